"""Word vectors: tell the words that stand near a word from words drawn at random.

Mikolov et al. 2013b, section 2. The model is `WordVectors`; who stands near whom is decided here.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.models.word_vectors import Windows, draw, keep_shares, noise_law, pairs, subsample, windows
from labkit.objectives.base import Objective, Outcome, Questions, Term
from labkit.objectives.memory import Memory


@dataclass(frozen=True, kw_only=True, eq=False)
class SkipGram(Objective):
    """From each word, tell its neighbours from `noise` words drawn at random."""

    counts: Tensor
    """How often each word [V] stands in the training text."""
    reach: int = 5
    """The widest window; the actual one is drawn from 1 to this for each word."""
    noise: int = 5
    threshold: float | None = 1e-5
    """Leave out words more frequent than this at random; None keeps all."""
    special: tuple[int, ...] = ()
    """Tokens that are no words: neither looked at nor company nor noise."""

    def __post_init__(self) -> None:
        if self.reach < 1 or self.noise < 1:
            raise ValueError(f"reach={self.reach}, noise={self.noise}: give at least 1 of each")

    def around(self, batch: Batch, chance: Chance) -> Windows:
        """The words that stand near each word, after frequent words were left out."""
        tokens, real = batch.tokens, batch.real
        for token in self.special:
            real = real & (tokens != token)
        length = tokens.shape[1]
        if self.threshold is not None:
            keep = keep_shares(self.counts.clamp(min=1), self.threshold).to(tokens.device)
            tokens, real = subsample(tokens, real, keep, chance.uniform("keep", length))
        return windows(tokens, real, 1 + chance.integers("reach", length, self.reach), self.reach)
