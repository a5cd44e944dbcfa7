"""What a document remembers: how likely its remembered words are, on whatever path.

A *family* is a fact or an urn: words that come from their own slots alone.  Its draws follow a
Pólya urn (Dirichlet-multinomial): p(next = v) = (count of v + α · base of v) / (draws + α).  With
α = 0 all draws are the first one: a fact.  Draws are exchangeable, so any set of seen words has the
same chance in every order, and hidden words drop out:

    p(words) = Σ over classes c  p(c) · paths_c(words) · memory_c(words)

A *class* (the tense, the words that go with a fact) says which words a state may say.  A *style*
says which synonyms a document prefers; the memory is a mixture over the styles.
"""

import functools
from dataclasses import dataclass

import numpy as np

# How many times as often a document of style k uses the k-th synonym of a styled list.
PREFERENCE = 8.0
# How many chances of remembered words are cached, a few hundred bytes each.
KEPT = 20_000


@dataclass(frozen=True)
class Family:
    """Values, each with the words that say it, and their first chances [class, style, value]."""

    name: str
    alpha: float
    words: list[set[str]]
    base: np.ndarray


class Memories:
    """The memory of the documents of each group of topics; those of group 0 remember nothing."""

    def __init__(
        self,
        families: list[Family],
        members: list[list[int]],
        prior: np.ndarray,
        number: dict[str, int],
    ) -> None:
        self.groups = [
            GroupMemory([families[f] for f in group], prior, number) for group in members
        ]
        self.remembered = np.any([m.value_of >= 0 for m in self.groups], axis=0)
        self._log_chance = functools.lru_cache(maxsize=KEPT)(self._log_chance_of)

    def log_chances(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of what is remembered of every prefix: [words + 1, group, class]."""
        return np.stack([memory.log_chances(words) for memory in self.groups], axis=1)

    def log_chance(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of all that is remembered of the words: [group, class].

        The result is cached: most of the successive windows of a text remember the same words.
        """
        remembered = words[self.remembered[words]].astype(np.int64)
        return self._log_chance(np.sort(remembered).tobytes())

    def _log_chance_of(self, words: bytes) -> np.ndarray:
        numbers = np.frombuffer(words, np.int64)
        found = np.stack([memory.log_chance(numbers) for memory in self.groups])
        found.setflags(write=False)
        return found


class GroupMemory:
    """The families of a group of topics by the numbers of their words."""

    def __init__(self, families: list[Family], prior: np.ndarray, number: dict[str, int]) -> None:
        self.prior = prior
        sizes = [len(family.words) for family in families]
        self.family_of = np.repeat(np.arange(len(families)), sizes)
        self.alpha = np.array([family.alpha for family in families])
        self.styles = max([family.base.shape[1] for family in families], default=1)
        whole = (len(prior), self.styles)
        bases = [np.broadcast_to(f.base, (*whole, f.base.shape[2])) for f in families]
        self.base = np.concatenate([np.zeros((*whole, 0)), *bases], axis=2)
        # The value that a word says, or -1; behind the vocabulary stand hidden and unknown words.
        self.value_of = np.full(len(number) + 2, -1)
        values = [words for family in families for words in family.words]
        for value, words in enumerate(values):
            for word in words & number.keys():
                self.value_of[number[word]] = value

    def values(self, words: np.ndarray) -> np.ndarray:
        """The remembered values among the words, in their order."""
        found = self.value_of[words]
        return found[found >= 0]

    def log_chances(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of what is remembered of every prefix: [words + 1, class]."""
        draws = np.append(0, np.cumsum(self.value_of[words] >= 0))
        return _mean(self._logs(self.values(words)))[draws]

    def log_chance(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of all that is remembered of the words: [class]."""
        return _mean(self._logs(self.values(words))[-1])

    def distributions(self, words: np.ndarray) -> np.ndarray:
        """Chances of the next draw of every family, given the seen words: [class, value]."""
        values = self.values(words)
        logs = self._logs(values)[-1]
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        base = np.einsum("ck,ckv->cv", weights, self.base)
        counts = np.bincount(values, minlength=len(self.family_of))
        drawn = np.bincount(self.family_of[values], minlength=len(self.alpha))[self.family_of]
        share, whole = next_draw(drawn, self.alpha[self.family_of])
        return (counts + share * base) / whole

    def _logs(self, values: np.ndarray) -> np.ndarray:
        """Log of the chance of the first n draws, for every n from 0 on: [draws + 1, class, style].

        Their order changes the steps, but not the sum of all.
        """
        logs = np.zeros((len(values) + 1, *self.base.shape[:2]))
        if not len(values):
            return logs
        family = self.family_of[values]
        share, whole = next_draw(_earlier(family), self.alpha[family])
        base = np.moveaxis(self.base[:, :, values], 2, 0)
        count, share, whole = (part[:, None, None] for part in (_earlier(values), share, whole))
        with np.errstate(divide="ignore"):
            np.log((count + share * base) / whole).cumsum(axis=0, out=logs[1:])
        return logs


def next_draw(drawn: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share of the base and the whole: the next draw has chance (count + share * base) / whole.

    With α = 0 what was drawn is certain: the first draw, of which the base is the chance, decides.
    """
    first = drawn == 0
    return np.where(first, 1.0, alpha), np.where(first, 1.0, drawn + alpha)


def _earlier(keys: np.ndarray) -> np.ndarray:
    """How many of the keys before each are the same."""
    order = np.argsort(keys, kind="stable")
    ordered, out = keys[order], np.empty(len(keys), int)
    out[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return out


def _mean(logs: np.ndarray) -> np.ndarray:
    """Log of the mean over the styles, the last axis."""
    return np.logaddexp.reduce(logs, axis=-1) - np.log(logs.shape[-1])
