"""What a document remembers: how likely its remembered words are, on whatever path.

A *family* is a fact or an urn: words that come from their own slots alone.  Its draws follow a
Pólya urn (Dirichlet-multinomial): p(next = v) = (count of v + α · base of v) / (draws + α).  With
α = 0 all draws are the first one: a fact.  Draws are exchangeable, so any set of seen words has the
same chance in every order, and hidden words drop out:

    p(words) = Σ over classes c  p(c) · paths_c(words) · memory_c(words)

A *class* (the tense, the words that go with a fact) says which words a state may say.  A *style*
says which synonyms a document prefers; the memory is a mixture over the styles.
"""

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
        # Replaced as a whole, never changed: several threads may ask at once.
        self._known: dict[bytes, np.ndarray] = {}

    def log_chances(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of what is remembered of every prefix: [words + 1, group, class]."""
        return np.stack([memory.log_chances(words) for memory in self.groups], axis=1)

    def log_chance(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of all that is remembered of the words: [group, class].

        The result is cached: most of the successive windows of a text remember the same words.
        """
        words = words[self.remembered[words]]
        key = np.sort(words).tobytes()
        known = self._known.get(key)
        if known is None:
            known = np.stack([memory.log_chance(words) for memory in self.groups])
            known.setflags(write=False)
            if len(self._known) >= KEPT:
                self._known = {}
            self._known[key] = known
        return known


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
        # Replaced as a whole, never changed: several threads may ask at once.
        self._tables = self._tabulate(8)

    def values(self, words: np.ndarray) -> np.ndarray:
        """The remembered values among the words, in their order."""
        found = self.value_of[words]
        return found[found >= 0]

    def log_chances(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of what is remembered of every prefix: [words + 1, class]."""
        remembered = self.value_of[words] >= 0
        values = self.values(words)
        if not len(values):
            return np.zeros((len(words) + 1, len(self.prior)))
        out = np.zeros((len(values) + 1, *self.base.shape[:2]))
        chances = np.empty_like(out[1:])
        counts: dict[int, int] = {}
        drawn: dict[int, int] = {}
        for t, v in enumerate(values.tolist()):
            family, base = int(self.family_of[v]), self.base[:, :, v]
            n, alpha = drawn.get(family, 0), float(self.alpha[family])
            # With α = 0 what was drawn is certain; only its first draw depends on the class.
            chances[t] = base if n == 0 else (counts.get(v, 0) + alpha * base) / (n + alpha)
            counts[v], drawn[family] = counts.get(v, 0) + 1, n + 1
        with np.errstate(divide="ignore"):
            out[1:] = np.log(chances).cumsum(axis=0)
        return _mean(out)[np.append(0, np.cumsum(remembered))]

    def log_chance(self, words: np.ndarray) -> np.ndarray:
        """Log of the chance of all that is remembered of the words: [class]."""
        counts = self._counts(words)
        return _mean(self._log_weights(counts)) if counts.any() else np.zeros(len(self.prior))

    def distributions(self, words: np.ndarray) -> np.ndarray:
        """Chances of the next draw of every family, given the seen words: [class, value]."""
        counts = self._counts(words)
        logs = self._log_weights(counts)
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        base = np.einsum("ck,ckv->cv", weights, self.base)
        drawn = np.bincount(self.family_of, counts, minlength=len(self.alpha))[self.family_of]
        alpha = self.alpha[self.family_of]
        first = drawn == 0
        return np.where(first, base, (counts + alpha * base) / np.where(first, 1.0, drawn + alpha))

    def _counts(self, words: np.ndarray) -> np.ndarray:
        return np.bincount(self.values(words), minlength=len(self.family_of))

    def _log_weights(self, counts: np.ndarray) -> np.ndarray:
        """Log of the chance of these draws, in any order: [class, style]."""
        drawn = np.bincount(self.family_of, counts, minlength=len(self.alpha)).astype(int)
        most = int(drawn.max(initial=0))
        above, below = self._tables
        if most >= below.shape[1]:
            above, below = self._tables = self._tabulate(2 * most)
        some, used = np.nonzero(counts)[0], np.nonzero(drawn)[0]
        chance = above[:, :, some, counts[some]].sum(axis=-1)
        different = np.bincount(self.family_of[some], minlength=len(drawn))
        if (different[self.alpha == 0] > 1).any():
            return np.full_like(chance, -np.inf)
        return chance - below[used, drawn[used]].sum()

    def _tabulate(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Log of (α b)(α b + 1) … and of α (α + 1) …, n factors each, for n up to `most`."""
        alpha, steps = self.alpha[self.family_of], np.arange(most)
        with np.errstate(divide="ignore"):
            above = np.log((alpha * self.base)[..., None] + steps)
            below = np.log(self.alpha[:, None] + steps)
            fact = np.log(self.base[:, :, alpha == 0])
        above[:, :, alpha == 0, 1:], below[self.alpha == 0] = 0.0, 0.0
        above[:, :, alpha == 0, 0] = fact
        return _sums(above), _sums(below)


def _sums(steps: np.ndarray) -> np.ndarray:
    """The sum of the first n steps, for every n from 0 on."""
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), steps.cumsum(axis=-1)], axis=-1)


def _mean(logs: np.ndarray) -> np.ndarray:
    """Log of the mean over the styles, the last axis."""
    return np.logaddexp.reduce(logs, axis=-1) - np.log(logs.shape[-1])
