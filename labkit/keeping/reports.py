"""What a step of training found, and how well a model answers: for the eye and for the ledger."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labkit import fast
from labkit.chance import Chance
from labkit.corpus import Batch, Batches
from labkit.keeping.distributed import answer
from labkit.objectives import Objective, combine


@dataclass(frozen=True, eq=False)
class Report:
    """What one step found. Its tensors become numbers when they are printed, not before."""

    step: int
    """How many steps are done, this one among them."""
    steps: int
    loss: Tensor
    metrics: dict[str, Tensor]
    norm: Tensor
    """The length of the gradient before it was cut."""
    rate: float
    tokens: int
    """Real tokens of the batch."""
    seconds: float
    left: float
    """Seconds that the rest of the run will take at the pace so far."""
    skipped: Tensor
    """How many steps of the run were not taken, since something in them was no number."""
    spike: Tensor
    """1 where the loss is far above what it was of late."""
    vanished: Tensor | None = None
    """float16: the share of gradients that are exactly zero."""
    mfu: float | None = None
    """The share of the machine's measured peak, after `Trainer.measure()`."""

    @property
    def tokens_per_second(self) -> float:
        """How much text a second holds."""
        return self.tokens / self.seconds

    def __str__(self) -> str:
        parts = [
            f"step {self.step}/{self.steps}",
            f"loss {float(self.loss):.4f}",
            f"rate {self.rate:.2e}",
            f"{self.tokens_per_second:,.0f} tokens/s",
            f"{_clock(self.left)} left",
        ]
        if self.mfu is not None:
            parts.append(f"{self.mfu:.0%} of the peak")
        if self.vanished is not None:
            parts.append(f"{float(self.vanished):.1%} of the gradients are zero")
        if self.spike > 0:
            parts.append("a spike")
        if self.skipped > 0:
            parts.append(f"{int(self.skipped)} steps skipped")
        return " · ".join(parts)


class Bar:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, done: int, steps: int, shown: bool) -> None:
        self._bar: Any = None
        self._last = 0.0
        if shown:
            from tqdm import tqdm

            self._bar = tqdm(total=steps, initial=done, unit="step", leave=False)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *problem: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, report: Report) -> None:
        """Move on, once a second at most: the bar needs a number, and waits for it."""
        if self._bar is not None and time.perf_counter() - self._last > 1:
            self._last = time.perf_counter()
            self._bar.set_postfix_str(f"loss {float(report.loss):.4f}", refresh=False)
            self._bar.update(report.step - self._bar.n)


@dataclass(frozen=True)
class Evaluation:
    """How well a model answers."""

    loss: float
    count: int
    metrics: dict[str, float]
    floor: float | None = None
    """The lowest loss that is possible."""

    def __str__(self) -> str:
        said = f"loss {self.loss:.4f} over {self.count:,} predictions"
        if self.floor is None:
            return said
        # The floor is one of words: what else is in the loss, a penalty say, has none.
        name, mean = next(iter(self.metrics.items()), ("loss", self.loss))
        also = "" if mean == self.loss else f", {name} {mean:.4f}"
        return f"{said}{also}, {mean - self.floor:.4f} above the floor of {self.floor:.4f}"


@torch.no_grad()
def evaluate(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch] | Batches,
    *,
    floor: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """The exact mean over all predictions of all batches, however they are cut.

    A model with memory carries it from batch to batch. What the objective hides is the same at
    each call. Training goes on afterwards as if nothing had been asked. `batches` is a corpus,
    all of which is read once, or a list of batches; several processes all ask the model together.
    """
    device = next(model.parameters()).device
    modes = {module: module.training for module in model.modules()}
    model.eval()
    memory, found = None, []
    try:
        for i, batch in enumerate(batches.once() if isinstance(batches, Batches) else batches):
            questions = objective.ask(batch, Chance(seed, i, batch.rows)).to(device)
            if memory is not None and len(memory.known) != len(batch):
                memory = None
            with fast.enable():
                outcome = answer(model, objective, questions, memory)
            memory = outcome.memory
            found.append(combine([outcome]))
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not found:
        raise ValueError("there are no batches to evaluate on: give at least one")
    everything = combine(found)
    metrics = {name: float(mean) for name, mean in everything.metrics.items()}
    return Evaluation(float(everything.loss), everything.count, metrics, floor)


def _clock(seconds: float) -> str:
    """Seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
