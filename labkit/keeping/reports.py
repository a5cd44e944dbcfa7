"""The reports of a training step and of an evaluation, as lines to print."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor
from tqdm import tqdm

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Report:
    """What one step found. Its tensors become numbers when they are printed, not before."""

    step: int
    """How many steps are done, this one among them."""
    steps: int
    loss: Tensor
    metrics: dict[str, Tensor]
    norm: Tensor
    """The length of the gradient before it was clipped."""
    rate: float
    tokens: int
    """Real tokens of the batch."""
    skipped: Tensor
    """How many steps of the run were not taken, since something in them was not finite."""
    spike: Tensor
    """1 where the loss is far above what it was of late."""
    seconds: float = math.nan
    left: float = math.nan
    """Seconds that the rest of the run will take at the pace so far."""
    bad_in_a_row: Tensor | None = None
    """How many steps, this one the last of them, were not taken."""
    vanished: Tensor | None = None
    """float16: the share of gradients that are exactly zero."""
    precision: str = ""
    """The format of matrix products: float32, bfloat16 or float16."""
    operations: float | None = None
    """Operations of the step's matrix products, after `Trainer.measure()`."""
    mfu: float | None = None
    """The share of the machine's measured peak, after `Trainer.measure()`."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of training text per second."""
        return self.tokens / self.seconds

    def __str__(self) -> str:
        parts = [
            f"step {self.step}/{self.steps}",
            f"loss {float(self.loss):.4f}",
            f"rate {self.rate:.2e}",
        ]
        if not math.isnan(self.left):  # a single step has no pace yet
            pace = f"{self.tokens_per_second:,.0f} tokens/s"
            pace += f" in {self.precision}" if self.precision else ""
            parts += [pace, f"{_clock(self.left)} left"]
        if self.mfu is not None:
            parts.append(f"{self.mfu:.0%} of the peak")
        if self.vanished is not None:
            parts.append(f"{float(self.vanished):.1%} of the gradients are zero")
        if self.spike > 0:
            parts.append("a spike")
        if self.skipped > 0:
            parts.append(f"{int(self.skipped)} steps skipped")
        return " · ".join(parts)


def bar_of_steps(done: int, steps: int, shown: bool) -> "tqdm[Any]":
    """A bar on a terminal for the steps of a run; its `update` is True once a second at most.

    The loss is read only then: reading it waits for the GPU.
    """
    return tqdm(
        initial=done, total=steps, unit="step", leave=False, mininterval=1, disable=not shown
    )


def with_progress(things: Iterable[T], unit: str) -> Iterable[T]:
    """The things, with a bar on a terminal once they have taken two seconds."""
    return tqdm(things, unit=unit, delay=2, leave=False, disable=None)


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts."""

    loss: float
    count: int
    metrics: dict[str, float]
    floor: float | None = None
    """The lowest loss that is possible."""

    def __str__(self) -> str:
        said = f"loss {self.loss:.4f} over {self.count:,} predictions"
        if self.floor is None:
            return said
        # The floor is that of words: other terms of the loss, such as a penalty, have none.
        name, mean = next(iter(self.metrics.items()), ("loss", self.loss))
        also = "" if mean == self.loss else f", {name} {mean:.4f}"
        return f"{said}{also}, {mean - self.floor:.4f} above the floor of {self.floor:.4f}"


def _clock(seconds: float) -> str:
    """Seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
