"""What one side, two sides side by side, and both sides at once reveal about a hidden word.

    left           p(w | words before)                     GPT
    right          p(w | words after)                      a language model from right to left
    side by side   p(w | before)^a p(w | after)^b p(w)^c   two models put together at the end: the
                                                           best log-linear pool of their
                                                           distributions, fitted on other documents
    both           p(w | all other words)                  BERT

Words that neither side narrows down alone (the sum of two choices) are what side by side misses.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.world.exact import Language, Text
from labkit.world.floors import Floor, choose, mean_of
from labkit.world.hidden import Request

# Impossible words keep a finite logarithm.
SMALLEST = 1e-12


@dataclass(frozen=True)
class Sides:
    """The floors on the same hidden words, and the exponents of the pool."""

    left: Floor
    right: Floor
    side_by_side: Floor
    both: Floor
    exponents: np.ndarray


def sides(
    language: Language, documents: Sequence[Text], *, rate: float = 0.05, seed: int = 0
) -> Sides:
    """Hide words one by one; every second document fits the pool, the others are measured."""
    if len(documents) < 2:
        raise ValueError("the pool is fitted on other documents: give at least two")
    texts = [language.numbers(document) for document in documents]
    chosen = choose(texts, rate, seed)
    at = [(i, t) for i, positions in enumerate(chosen) for t in positions]
    left = _ask(language, [Request(texts[i][: t + 1], [t], {}) for i, t in at], "document")
    right = _ask(language, [Request(texts[i][t:], [0], {}) for i, t in at], "anywhere")
    both = _ask(language, [Request(texts[i], [t], {}) for i, t in at], "document")
    alone = language.conditional(np.array([language.machine.hidden]), [0], start="anywhere")
    owner, target = np.array([i for i, _ in at]), np.array([texts[i][t] for i, t in at])
    features = np.log(np.maximum([left, right, np.broadcast_to(alone, left.shape)], SMALLEST))
    fitted, measured = owner % 2 == 0, owner % 2 == 1
    exponents = fit_exponents(features[:, fitted], target[fitted])
    pooled = np.exp(weighted_product(features[:, measured], exponents))

    def floor(chances: np.ndarray) -> Floor:
        losses = -np.log(chances[np.arange(len(chances)), target[measured]])
        return mean_of([losses[owner[measured] == i] for i in np.unique(owner[measured])])

    return Sides(
        floor(left[measured]),
        floor(right[measured]),
        floor(pooled),
        floor(both[measured]),
        exponents,
    )


def _ask(language: Language, requests: list[Request], start: str) -> np.ndarray:
    """The distribution of the hidden word of every request: [request, vocabulary]."""
    return np.concatenate(language.distributions(requests, start))


def weighted_product(features: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Log of the normalised product of powers: features are logs [feature, row, word]."""
    logits = np.tensordot(exponents, features, 1)
    return logits - np.logaddexp.reduce(logits, axis=1)[:, None]


def fit_exponents(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The exponents with the least mean loss, by Newton's method with halved steps."""
    rows = np.arange(len(target))
    exponents = np.array([1.0, 1.0, -1.0])

    def loss(at: np.ndarray) -> float:
        return float(-weighted_product(features, at)[rows, target].mean())

    for _ in range(50):
        chances = np.exp(weighted_product(features, exponents))
        mean = np.einsum("fnw,nw->fn", features, chances)
        slope = (mean - features[:, rows, target]).mean(axis=1)
        square = np.einsum("fnw,gnw,nw->fg", features, features, chances) / len(rows)
        curvature = square - mean @ mean.T / len(rows) + 1e-9 * np.eye(len(exponents))
        step = np.linalg.solve(curvature, slope)
        now = loss(exponents)
        while loss(exponents - step) > now and np.abs(step).max() > 1e-12:
            step = step / 2
        exponents = exponents - step
        if np.abs(step).max() < 1e-10:
            break
    return exponents
