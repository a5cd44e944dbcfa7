"""How the rate of learning goes up and down: step -> share of the plan's rate.

Each schedule is a pure function `(step, steps, warmup) -> share`: the first step is 0, `steps` is
the length of the run, `warmup` the number of steps on the way up (None: what the paper takes).
Being pure, a schedule has nothing to save and nothing that a restart could lose.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from labkit.corpus import Batch

Schedule = Callable[[int, int, int | None], float]


def rise(step: int, warmup: int | None) -> float:
    """From almost nothing to 1 within `warmup` steps; a rate of exactly 0 would waste a step."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _fallen(step: int, steps: int, warmup: int | None) -> float:
    """Which share of the way down is behind us: 0 at the end of the warm-up, 1 after the run."""
    start = warmup or 0
    return min(1.0, max(0.0, (step - start) / max(1, steps - start)))


def constant(step: int, steps: int, warmup: int | None = None) -> float:
    """Up, and then level."""
    return rise(step, warmup)


def linear(step: int, steps: int, warmup: int | None = None) -> float:
    """Up, and straight down to nothing (Devlin et al. 2019, appendix A.2)."""
    return rise(step, warmup) * (1 - _fallen(step, steps, warmup))


def cosine(step: int, steps: int, warmup: int | None = None) -> float:
    """Up, and down half a cosine to one tenth (Brown et al. 2020, appendix B)."""
    down = 0.5 * (1 + math.cos(math.pi * _fallen(step, steps, warmup)))
    return rise(step, warmup) * (0.1 + 0.9 * down)


def inverse_root(step: int, steps: int, warmup: int | None = None) -> float:
    """Up, and down like 1 / sqrt(step) (Vaswani et al. 2017, section 5.3, with its peak as 1)."""
    peak = warmup or 1
    return min((step + 1) / peak, math.sqrt(peak / (step + 1)))


def slanted_triangle(step: int, steps: int, warmup: int | None = None) -> float:
    """Steeply up in a tenth of the steps, slowly down to 1/32 (Howard and Ruder 2018, section 3.2).

    cut = warmup;  p = t / cut before it, 1 - (t - cut) / (steps - cut) after;
    share = (1 + p (ratio - 1)) / ratio.
    """
    ratio = 32
    cut = max(1, steps // 10) if warmup is None else max(1, warmup)
    p = step / cut if step < cut else 1 - (step - cut) / max(1, steps - cut)
    return (1 + p * (ratio - 1)) / ratio


def one_cycle(step: int, steps: int, warmup: int | None = None) -> float:
    """From 1/25 up a cosine in three tenths of the steps, down one to 1/250,000 (Smith 2018).

    The shape is the one of `torch.optim.lr_scheduler.OneCycleLR`.
    """
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
    """When NT-ASGD begins to average: is the last loss worse than the best one long before it?

    Merity et al. 2018, algorithm 1: the losses are those on held-out text, and `interval` of
    them may pass without progress.
    """
    before = losses[:-1]
    return len(before) > interval and losses[-1] > min(before[: len(before) - interval])


class Batches(Protocol):
    """Anything that knows its batches by number, as a pure function."""

    def at(self, step: int) -> Batch:
        """The whole batch of one step."""
        ...


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
