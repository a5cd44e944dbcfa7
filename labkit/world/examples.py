"""Labelled examples, each with the exact chances of its labels: the best accuracy of a set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Example(NamedTuple):
    """A text, a second one for pairs, its label, and the exact chances of all labels.

    The chances are empty until the example is one of a set.
    """

    words: list[str]
    second: list[str] | None
    position: int | None
    label: str
    chances: dict[str, float]


@dataclass(frozen=True)
class LabelledSet(Sequence[Example]):
    """Examples in random order; equally many of each label, except for prompts."""

    task: str
    labels: list[str]
    examples: list[Example]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """One example, or a list of them for a slice."""
        return self.examples[index]

    @property
    def best_accuracy(self) -> float:
        """The accuracy that the best classifier is expected to have on these texts."""
        return float(np.mean([max(e.chances.values()) for e in self.examples]))

    @property
    def standard_error(self) -> float:
        """How far the measured accuracy of the best classifier strays from `best_accuracy`."""
        best = np.array([max(e.chances.values()) for e in self.examples])
        return float(np.sqrt((best * (1 - best)).sum()) / len(best))
