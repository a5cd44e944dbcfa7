"""A plan: how a model is trained, checked before the run starts; and the schedules of its rate.

The same plan, model, objective and batches give the same weights, bit for bit, on the same
processor. On a GPU some of torch's kernels add up in an order that changes from run to run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.keeping.plan_checks import check_plan

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
    peak = 0.3 * steps - 1 if warmup is None else max(warmup, 1) - 1
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


# ---- plans ------------------------------------------------------------------------------------


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
    """Gradient accumulation: the number of parts that a batch is split into, to save memory. A
    GPT with carry=True may have another loss then: see `NextToken.carry`."""
    average: Literal["none", "mean", "ema"] = "none"
    """Average of the weights from `average_from` on: the mean, or an exponential moving average."""
    average_from: int | None = None
    """The first step that is averaged, counted from 1 as in a report; None: when
    `trainer.start_average()` is called."""
    ema_decay: float = 0.999

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 where a GPU has it, and on a CPU that has it from width 128 on; else
    float32. Weights are always float32. Choose float32 for the same results on every CPU."""
    loss_scale: float | None = 2.0**16
    """float16 only: the initial scale of the loss; None: it is never scaled."""
    device: str = "auto"
    """auto: a GPU where there is one that PyTorch calls cuda."""
    compile: bool = False
    """Compile the backbone's forward pass, and the loss of words; XLNet's two streams are not."""
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
        check_plan(self)

    def share(self, step: int) -> float:
        """The share of the rate that a step takes; steps are counted from 0."""
        risen = self.decay_from == "start" and step >= (self.warmup or 0)
        schedule = SCHEDULES[self.schedule]
        return schedule(step, self.steps, None if risen else self.warmup)
