"""What is drawn once for a document: which values still agree with the words seen, and how likely
that is.

In documents that use a fact, its words come from its own slots alone.  So every such word that is
seen leaves only the values that have it, all of which explain all words seen: the sum over values
is the chance of those that are left, times one sum over paths.  Noisy words decide nothing for
certain; then the values are split into the few classes that explain the same of the words shown,
and each class is a case with its own sum over paths.
"""

import itertools
from typing import NamedTuple

import numpy as np

from labkit.world.machine import Machine

# {position: (word shown, keep, noise)}: a state that says the word with probability p shows it with
# keep * p + noise.
Noisy = dict[int, tuple[int, float, float]]

# Cases less likely than the best by this many nats (a factor of 1e-10) are left out.
NEGLIGIBLE = 23.0


class Case(NamedTuple):
    """Values that explain the same words: for every fact a mask over its values; and how likely
    they are.
    """

    masks: tuple[np.ndarray, ...]
    log_chance: float


class Facts:
    """The facts of a language by the numbers of their words."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.priors = []
        self.owner: dict[int, int] = {}
        self.has: dict[int, np.ndarray] = {}
        for f, fact in enumerate(machine.facts):
            weights = np.array([value.weight for value in fact.values])
            self.priors.append(weights / weights.sum())
            for word, mask in machine.fact_words[f].items():
                if word in machine.number:
                    self.owner[machine.number[word]] = f
                    self.has[machine.number[word]] = mask
        self.everything = tuple(np.ones(len(prior), bool) for prior in self.priors)

    def log_chance(self, masks: tuple[np.ndarray, ...]) -> float:
        """Log of the chance that each fact has one of the values in its mask."""
        with np.errstate(divide="ignore"):
            return float(
                sum(np.log(prior @ mask) for prior, mask in zip(self.priors, masks, strict=True))
            )

    def left(self, words: np.ndarray) -> tuple[np.ndarray, ...]:
        """The values that agree with all the words."""
        masks = list(self.everything)
        for word in set(words.tolist()) & self.owner.keys():
            masks[self.owner[word]] = masks[self.owner[word]] & self.has[word]
        return tuple(masks)

    def log_chances(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of the values left after every word, from left to right."""
        out, masks, now = np.zeros(len(words)), list(self.everything), 0.0
        for t, word in enumerate(words.tolist()):
            if word in self.owner:
                f = self.owner[word]
                masks[f] = masks[f] & self.has[word]
                now = self.log_chance(tuple(masks))
            out[t] = now
        return out

    def cases(self, seen: np.ndarray, noisy: Noisy) -> list[Case]:
        """Split the values that are left by which of the noisy words they explain."""
        parts: list[list[tuple[float, np.ndarray]]] = []
        for f, mask in enumerate(self.left(seen)):
            shown = [
                (word, keep, noise)
                for word, keep, noise in noisy.values()
                if self.owner.get(word) == f
            ]
            explained = np.array([self.has[word][mask] for word, _, _ in shown], bool).reshape(
                len(shown), mask.sum()
            )
            # What a value does not explain is noise: each such word costs it about noise / keep.
            costs = np.log([max(noise, 1e-300) / (keep + noise) for _, keep, noise in shown])
            classes: dict[bytes, tuple[float, np.ndarray]] = {}
            for value, column in zip(np.nonzero(mask)[0], explained.T, strict=True):
                start = (float(costs[~column].sum()), np.zeros(len(mask), bool))
                classes.setdefault(column.tobytes(), start)[1][value] = True
            parts.append(list(classes.values()))
        products = [
            (sum(score for score, _ in part), tuple(mask for _, mask in part))
            for part in itertools.product(*parts)
        ]
        best = max(score for score, _ in products)
        return [Case(m, self.log_chance(m)) for score, m in products if score >= best - NEGLIGIBLE]

    def explains(self, case: Case, word: int) -> bool:
        """Whether the values of this case have this word."""
        return bool((self.has[word] & case.masks[self.owner[word]]).any())

    def distribution(
        self, fact: int, field: int, masks: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The words of a field and their chances, given the values left."""
        prior = self.priors[fact] * masks[fact]
        values = self.machine.facts[fact].values
        words = np.array([self.machine.number[value.tokens[field].word] for value in values])
        return words, prior / max(prior.sum(), 1e-300)
