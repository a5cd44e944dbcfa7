"""Is each model equal, number for number, to an implementation that is not ours?

Every module of this package lists its cases in `CASES`; `MODULES` lists the modules.  The tests run
all cases in both precisions; `python -m tests.parity` prints the table and keeps it in the docs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

MODULES = (
    "word_vectors",
    "rnn",
    "elmo",
    "awd_lstm",
    "transformer",
    "gpt",
    "experts",
    "bert",
    "transformer_xl",
    "xlnet",
    "training",
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

Differences = dict[str, float]
"""What was compared ("layers", "loss", "gradients"), and the largest difference found."""


@dataclass(frozen=True)
class Case:
    """One model under one condition, against a reference."""

    model: str
    what: str
    reference: str
    compare: Callable[[torch.dtype], Differences]

    def __str__(self) -> str:
        return f"{self.model}: {self.what}"


def cases() -> list[Case]:
    """The cases of all modules."""
    found = [import_module(f".{name}", __name__).CASES for name in MODULES]
    return [case for each in found for case in each]


def largest(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """The largest difference between two lists of tensors; what is not finite differs by inf."""
    worst = 0.0
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.shape == reference.shape, f"{tuple(mine.shape)} is not {tuple(reference.shape)}"
        difference = (mine - reference).detach().abs().max().nan_to_num(float("inf"))
        worst = max(worst, float(difference))
    return worst


def merge(several: Iterable[Differences]) -> Differences:
    """The largest difference of each kind over several runs."""
    worst: Differences = {}
    for differences in several:
        for kind, value in differences.items():
            worst[kind] = max(worst.get(kind, 0.0), value)
    return worst
