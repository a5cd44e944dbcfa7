"""Learn from the probability of each word instead of the word that was drawn.

In a text that someone wrote, one word stands at each position, and its loss is -log q(word). In a
language of the course every probability p is known, so the mean of this loss over all words that
may stand there can be taken instead: -sum of p(w) log q(w). Its gradient is the same on average,
without the noise of the draw. Read `KnownWords` first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from classroom.models.recipes import CourseText
from labkit.blocks import States
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import exact, head_of
from labkit.keeping.reports import with_progress
from labkit.objectives import BothDirections, Targets, Term
from labkit.world import World
from labkit.world.machine import items_of

LEAST = 1e-5
"""Words that are less likely are left out."""
ROWS = 2_048
"""How many rows are computed at once."""


class Table(NamedTuple):
    """The words that may stand at each of T positions of each row, and how likely each word is.

    Those of position t of row n are the numbers from start[n * T + t] to start[n * T + t + 1].
    """

    start: np.ndarray
    word: np.ndarray
    chance: np.ndarray

    def take(self, rows: np.ndarray, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Positions (of one row after another), words and chances of some rows of this length."""
        asked = (rows[:, None] * length + np.arange(length)).ravel()
        taken, position = items_of(self.start, asked)
        words, chances = self.word[taken].astype(np.int64), self.chance[taken]
        return torch.from_numpy(position), torch.from_numpy(words), torch.from_numpy(chances)


def table_of(world: World, rows: Sequence[np.ndarray], direction: str, token: np.ndarray) -> Table:
    """The possible neighbours of the words of some rows; `token` has the model's number of each.

    Forward, position t is that of the word after word t; backward, of the one before word t + 1.
    """
    counts, words, chances = [], [], []
    for first in with_progress(range(0, len(rows), ROWS), unit="part"):
        some = rows[first : first + ROWS]
        found = world.following(some, direction=direction, start="anywhere", least=LEAST)
        for one in found:
            # The word after the last one of a row is not predicted.
            start = one.start[:-1]
            count, order = np.diff(start), np.arange(start[-1])
            if direction == "backward":
                # The last word was read first, and the word before it has the last position.
                order = np.argsort(np.repeat(-np.arange(len(count)), count), kind="stable")
                count = count[::-1]
            counts.append(count)
            words.append(token[one.word[order]].astype(np.uint16))
            chances.append(one.chance[order].astype(np.float32))
    start = np.append(0, np.cumsum(np.concatenate(counts)))
    return Table(start, np.concatenate(words), np.concatenate(chances))


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownWords(BothDirections):
    """The objective of ELMo with the probabilities of the next and of the previous word.

    The tables cover all rows of the corpus; a batch's `examples` are the numbers of its rows. They
    are computed when the first batch needs them: a part that was finished before needs none.
    """

    after: Callable[[], Table]
    before: Callable[[], Table]

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The words that may stand after each word and before it, with their probabilities."""
        targets = super().targets(batch, chance)
        rows, length = batch.examples.numpy(), batch.tokens.shape[1] - 1
        known = (*self.after().take(rows, length), *self.before().take(rows, length))
        return replace(targets, sampled=known)

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """-sum of p(w) log q(w) of the next word and of the one before, half of each."""
        head, terms = head_of(model, self.head), {}
        known = {"next": targets.sampled[:3], "previous": targets.sampled[3:]}
        for name, hidden_ND in self.hidden(states, targets).items():
            position, word, chance = known[name]
            logs_NV = exact(head(hidden_ND)).log_softmax(dim=-1)
            logs = logs_NV.flatten()[position * logs_NV.shape[1] + word]
            terms[name] = Term(-(chance * logs).sum(), targets.counts[name], 0.5)
        return terms


def known_words(text: CourseText, tokens_NT: Tensor) -> KnownWords:
    """The objective for rows of a text of the course's language."""
    world = text.language
    token = np.array(text.numbers(world.vocabulary))
    number = np.zeros(text.vocabulary, int)
    number[token] = np.arange(len(token))
    rows = list(number[tokens_NT.numpy()])
    return KnownWords(
        after=cache(lambda: table_of(world, rows, "forward", token)),
        before=cache(lambda: table_of(world, rows, "backward", token)),
    )
