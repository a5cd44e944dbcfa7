"""A plan: how a model is trained, checked before the run starts; and the schedules of its rate.

The same plan, model, objective and batches give the same weights, bit for bit, on the same machine.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

import torch

from labkit.corpus import Batch, Batches

# ---- schedules -----------------------------------------------------------------------------------
#
# A schedule gives the share of the plan's rate at a step. It is a pure function of the step (from
# 0), the number of steps and the number of warm-up steps (None: what the paper takes), so there is
# nothing to save.


Schedule = Callable[[int, int, int | None], float]


def rise(step: int, warmup: int | None) -> float:
    """Linear warm-up to 1 within `warmup` steps; the first step is not 0, which would waste it."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _fallen(step: int, steps: int, warmup: int | None) -> float:
    """The share of the steps after the warm-up that are done: from 0 to 1."""
    start = warmup or 0
    return min(1.0, max(0.0, (step - start) / max(1, steps - start)))


def constant(step: int, steps: int, warmup: int | None = None) -> float:
    """Warm-up, then constant."""
    return rise(step, warmup)


def linear(step: int, steps: int, warmup: int | None = None) -> float:
    """Warm-up, then linear decay to 0 (Devlin et al. 2019, appendix A.2)."""
    return rise(step, warmup) * (1 - _fallen(step, steps, warmup))


def cosine(step: int, steps: int, warmup: int | None = None) -> float:
    """Warm-up, then cosine decay to one tenth (Brown et al. 2020, appendix B)."""
    down = 0.5 * (1 + math.cos(math.pi * _fallen(step, steps, warmup)))
    return rise(step, warmup) * (0.1 + 0.9 * down)


def inverse_root(step: int, steps: int, warmup: int | None = None) -> float:
    """Warm-up, then 1 / sqrt(step) (Vaswani et al. 2017, section 5.3, with its peak as 1)."""
    peak = warmup or 1
    return min((step + 1) / peak, math.sqrt(peak / (step + 1)))


def slanted_triangle(step: int, steps: int, warmup: int | None = None) -> float:
    """Up in a tenth of the steps, slowly down to 1/32 (Howard and Ruder 2018, section 3.2).

    cut = warmup;  p = t / cut before it, 1 - (t - cut) / (steps - cut) after;
    share = (1 + p (ratio - 1)) / ratio;  a single step is the peak.
    """
    if steps == 1:
        return 1.0
    ratio = 32
    cut = max(1, steps // 10) if warmup is None else max(1, warmup)
    p = step / cut if step < cut else 1 - (step - cut) / max(1, steps - cut)
    return (1 + p * (ratio - 1)) / ratio


def one_cycle(step: int, steps: int, warmup: int | None = None) -> float:
    """Cosine from 1/25 up in three tenths of the steps, then down to 1/250,000 (Smith 2018).

    The shape is the one of `torch.optim.lr_scheduler.OneCycleLR`; a single step is the peak.
    """
    if steps == 1:
        return 1.0
    peak = 0.3 * steps - 1 if warmup is None else warmup - 1
    if step <= peak:
        low, way = 1 / 25, step / peak if peak else 1.0
    else:
        low, way = 1 / 250_000, (steps - 1 - step) / (steps - 1 - peak)
    return low + (1 - low) * 0.5 * (1 - math.cos(math.pi * way))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse_root": inverse_root,
    "slanted_triangle": slanted_triangle,
    "one_cycle": one_cycle,
}


def non_monotone(losses: Sequence[float], interval: int = 5) -> bool:
    """Whether NT-ASGD starts to average: the last loss is worse than the best one long before it.

    Merity et al. 2018, algorithm 1: the losses are those on held-out text, and `interval` of
    them may pass without progress.
    """
    before = losses[:-1]
    return len(before) > interval and losses[-1] > min(before[: len(before) - interval])


@dataclass(frozen=True)
class Stages:
    """Batches that change on the way: longer texts or larger batches later on.

    `Stages((0, short), (9000, long))` takes step 9000 from the first batch of `long`.
    BERT and RoBERTa learn from short texts first since a long text costs more than twice a short.
    """

    stages: tuple[tuple[int, Batches], ...]

    def __init__(self, *stages: tuple[int, Batches]) -> None:
        starts = [start for start, _ in stages]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(
                f"the stages begin at steps {starts}: give one that begins at 0, "
                "then others that begin later and later"
            )
        object.__setattr__(self, "stages", stages)

    def at(self, step: int) -> Batch:
        """The batch of this step, from the stage that it falls into."""
        start, batches = [stage for stage in self.stages if stage[0] <= step][-1]
        return batches.at(step - start)


# ---- plans ------------------------------------------------------------------------------------

DEVICES = "give auto, cpu, cuda or cuda:1"
# What may differ when a run goes on: where and how it is computed, not what.
FREE = frozenset({"accumulate", "compile", "checkpointing", "save_every", "keep", "processes"})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a model is trained."""

    steps: int
    """Number of optimizer steps."""
    rate: float = 1e-3
    """The peak learning rate; the schedule takes a share of it."""
    schedule: Literal[
        "constant", "linear", "cosine", "inverse_root", "slanted_triangle", "one_cycle"
    ] = "cosine"
    warmup: int | None = None
    """Warm-up steps. None: a tenth of slanted_triangle, three tenths of one_cycle, else none;
    the papers' thousands do not fit every run."""
    decay_from: Literal["warmup", "start"] = "warmup"
    """Where linear and cosine begin to decay. warmup: at its end, so that the rate has no jump.
    start: as 1 - t / T of all steps, as in BERT's code (optimization.py, create_optimizer), where
    the warm-up ends with a step down; GPT's (opt.py, warmup_linear) decays within it as well."""
    seed: int = 0

    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """muon: Muon for the matrices of the blocks, AdamW for all others, with the same rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    momentum: float = 0.0
    """Of sgd."""
    decay: float = 0.1
    """Weight decay of the matrices; biases and norms do not decay."""
    clip: float | None = 1.0
    """The largest norm of the gradient; None: no clipping."""
    accumulate: int = 1
    """Gradient accumulation: the number of parts that a batch is split into, to save memory."""
    average: Literal["none", "mean", "ema"] = "none"
    """Average of the weights from `average_from` on: the mean, or an exponential moving average."""
    average_from: int | None = None
    """The first step that is averaged; None: when `trainer.start_average()` is called."""
    ema_decay: float = 0.999

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 where a GPU has it, and on a CPU that has it from width 128 on; else
    float32. Weights are always float32. A run that must be the same on every CPU says float32."""
    loss_scale: float | None = 2.0**16
    """float16 only: the first factor by which the loss is scaled; None: it is never scaled."""
    device: str = "auto"
    """auto: a GPU where there is one that PyTorch calls cuda."""
    compile: bool = False
    checkpointing: bool = False
    """Gradient checkpointing: blocks are computed again in the backward pass, to save memory."""
    processes: Literal["single", "ddp", "fsdp"] = "single"
    """Under torchrun: each process holds the whole model (ddp) or a shard of it (fsdp)."""

    save_every: int = 500
    """Steps between checkpoints."""
    keep: int = 2
    """Number of checkpoints to keep."""
    on_nan: Literal["back", "stop"] = "back"
    """After `patience` bad steps: back to the last checkpoint with half the rate, or stop."""
    patience: int = 5
    """How many steps in a row may have a loss or a gradient that is not finite."""

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_sizes()
        self._check_together()

    @property
    def shape(self) -> Schedule:
        """The schedule as a function."""
        return SCHEDULES[self.schedule]

    def share(self, step: int) -> float:
        """The share of the rate that a step takes; steps are counted from 0."""
        risen = self.decay_from == "start" and step >= (self.warmup or 0)
        return self.shape(step, self.steps, None if risen else self.warmup)

    def _check_kinds(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            given, kinds = getattr(self, name), set(get_args(hint)) or {hint}
            if name == "betas" or (given is None and NoneType in kinds):
                continue
            if all(isinstance(kind, str) for kind in kinds):
                if given not in get_args(hint):
                    choices = ", ".join(get_args(hint))
                    raise ValueError(f"{name} is {given!r}: choose one of {choices}")
            elif str in kinds:
                self._check(name, isinstance(given, str), "its name")
            elif bool in kinds:
                self._check(name, isinstance(given, bool), "True or False")
            elif int in kinds:
                self._check(name, _whole(given), "a whole number")
            elif kinds <= {float, NoneType}:
                self._check(name, _number(given), "a number")

    def _check(self, name: str, right: bool, wanted: str) -> None:
        if not right:
            raise ValueError(f"{name} is {getattr(self, name)!r}: give {wanted}")

    def _check_sizes(self) -> None:
        for name in ("steps", "accumulate", "save_every", "keep", "patience"):
            self._check(name, getattr(self, name) >= 1, "a whole number of at least 1")
        for name in ("rate", "eps", "clip", "loss_scale"):
            given = getattr(self, name)
            self._check(name, given is None or 0 < given < float("inf"), "a number above 0")
        for name, top in (("momentum", 1.0), ("ema_decay", 1.0), ("decay", float("inf"))):
            self._check(name, 0 <= getattr(self, name) < top, f"0 to below {top}")
        try:
            kind = torch.device("cpu" if self.device == "auto" else self.device).type
        except RuntimeError as problem:
            raise ValueError(f"device is {self.device!r}: {DEVICES}") from problem
        if kind == "mps":
            raise ValueError(
                f"device is {self.device!r}, which has no 64-bit numbers for exact sums: {DEVICES}"
            )
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"device is {self.device!r}, which labkit does not know: {DEVICES}")
        pair = self.betas if isinstance(self.betas, tuple | list) else ()
        if len(pair) != 2 or not all(_number(beta) and 0 <= beta < 1 for beta in pair):
            raise ValueError(f"betas are {self.betas!r}: give two numbers from 0 to below 1")

    def _check_together(self) -> None:
        """Fields that make no sense side by side."""
        if self.warmup is not None and not 0 <= self.warmup < self.steps:
            raise ValueError(
                f"a warm-up of {self.warmup} steps does not fit a run of {self.steps}: "
                "give fewer steps of warm-up or more steps"
            )
        if self.decay_from == "start" and self.schedule not in ("linear", "cosine"):
            raise ValueError(
                f"decay_from is 'start' with the schedule {self.schedule}: "
                "choose linear or cosine, or leave decay_from out"
            )
        if self.average_from is not None and self.average == "none":
            raise ValueError(
                f"average_from is {self.average_from} but average is 'none': nothing would be "
                "averaged; choose average='mean' or 'ema', or leave average_from out"
            )
        if self.average_from is not None and not 0 <= self.average_from < self.steps:
            raise ValueError(
                f"average_from is {self.average_from} in a run of {self.steps} steps: "
                f"give 0 to {self.steps - 1}"
            )
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum is {self.momentum} but the optimizer is {self.optimizer!r}, whose "
                "momentum is betas[0]: leave momentum out or choose optimizer='sgd'"
            )
        if self.optimizer == "muon" and self.processes == "fsdp":
            raise ValueError(
                "Muon needs whole matrices, and processes='fsdp' shards them: "
                "choose processes='ddp' or optimizer='adamw'"
            )


def _whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _number(given: Any) -> bool:
    return _whole(given) or isinstance(given, float)


def differences(
    saved: Mapping[str, Any], given: Mapping[str, Any], changed: Iterable[str] = ()
) -> list[str]:
    """Where a saved description of a run and this one differ, but for what may differ."""
    allowed = FREE | set(changed)
    return [
        f"{name} was {saved.get(name)!r} and is {given.get(name)!r}"
        for name in sorted(saved.keys() | given.keys())
        if saved.get(name) != given.get(name) and name not in allowed
    ]


def described(plan: Plan) -> dict[str, Any]:
    """The plan as JSON knows it."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(plan).items()}
