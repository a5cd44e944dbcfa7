"""Rows of one text or two, padded: what pairs and labelled examples are made of.

The rows of several steps are laid out at once, since for a small batch the overhead of a call is
larger than the work. Read `LaidOut` first.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from labkit.chance import Chance, shuffled
from labkit.checks import check_whole
from labkit.corpus.batch import Batch
from labkit.corpus.batches import Epochs
from labkit.corpus.rows import Bounds, Rows, lay_out
from labkit.text.tokens import Integers, Tokens, check_corpus

# Labelled examples are sorted by length among those of this many batches.
BUCKETS = 64
# Rows with this many tokens in all are laid out at once, if that is more than one step needs.
AHEAD = 2**16


@dataclass(frozen=True, eq=False)
class LaidOut(Epochs):
    """Rows of one text or two, padded; those of some steps are laid out at once.

    Which steps share the work depends on their numbers alone, and each gets copies: so a batch is
    still a function of its step.
    """

    tokens: Tokens
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_corpus(self.tokens)
        check_whole("length", self.length, least=5)

    @abstractmethod
    def lay_out(self, examples: Tensor, chances: Sequence[Chance]) -> Rows:
        """The rows of these examples, those of the first chance, those of the second and so on."""

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The rows of these examples."""
        return self.lay_out(examples, [chance]).batch(0, len(examples))

    def at(self, step: int) -> Batch:
        """The batch of a step, a function of the seed and the step alone."""
        check_whole("step", step, most=2**62)
        block, turn = divmod(step, self._together)
        rows, edges = self._rows(block)
        return rows.batch(edges[turn], edges[turn + 1])

    @cached_property
    def _together(self) -> int:
        """How many steps are laid out at once."""
        return max(1, AHEAD // (self.batch * self.length))

    @cached_property
    def _rows(self) -> Callable[[int], tuple[Rows, list[int]]]:
        return lru_cache(maxsize=2)(self._rows_of_block)

    def _rows_of_block(self, block: int) -> tuple[Rows, list[int]]:
        """The rows of some steps, and where those of each step begin and end."""
        steps = range(block * self._together, (block + 1) * self._together)
        examples = [self._examples(step) for step in steps]
        sizes, rows = [len(some) for some in examples], torch.arange(self.batch)
        chances = [
            Chance(self.seed, step, rows[:size]) for step, size in zip(steps, sizes, strict=True)
        ]
        return self.lay_out(torch.cat(examples), chances), [0, *accumulate(sizes)]


@dataclass(frozen=True, eq=False)
class Examples(LaidOut):
    """One row for each document, padded: [CLS] text [SEP], or [CLS] text [SEP] text [SEP].

    Texts that are too long are cut. `bucketed` puts rows of similar lengths together, so that
    there is little padding. Without `framed` a row is the bare document with its separator.
    """

    bucketed: bool = True
    framed: bool = True

    @property
    def size(self) -> int:
        """How many documents there are."""
        return self.tokens.documents

    @property
    def fewest(self) -> int:
        """With `bucketed`, one batch of each epoch has only the rows that are left over."""
        return (self.size % self.batch or self.batch) if self.bucketed else self.batch

    def lay_out(self, examples: Tensor, chances: Sequence[Chance]) -> Rows:
        """The documents with these numbers."""
        documents = examples.numpy()
        a, b = self._spans(documents)
        known = {"examples": documents}
        if self.tokens.classes:
            known["labels"] = self.tokens.arrays.labels[documents]
        return lay_out(self.tokens, a, b, self.length, known, framed=self.framed)

    @cached_property
    def _two(self) -> bool:
        """Whether all documents are two labelled texts."""
        ends = self.tokens.arrays.document_ends
        return bool(self.framed and self.tokens.classes and (np.diff(ends, prepend=0) == 2).all())

    def _spans(self, documents: Integers) -> tuple[Bounds, Bounds | None]:
        """The whole text of each document; or its two texts, where all have two labelled ones."""
        tokens = self.tokens
        first, last = tokens.document_starts(documents), tokens.arrays.document_ends[documents]
        start, end = tokens.sentence_starts(first), tokens.arrays.sentence_ends[last - 1]
        if self.framed and tokens.end:
            end = end - 1
        if not self._two:
            return Bounds(start, end), None
        middle = tokens.arrays.sentence_ends[first]
        return Bounds(start, middle), Bounds(middle, end)

    def _examples(self, step: int) -> Tensor:
        if not self.bucketed:
            return super()._examples(step)
        epoch, position = divmod(step, self.steps)
        block, turn = divmod(position, BUCKETS)
        return self._block(epoch, block)[turn]

    @cached_property
    def _block(self) -> Callable[[int, int], list[Tensor]]:
        return lru_cache(maxsize=2)(self._by_length)

    def _by_length(self, epoch: int, block: int) -> list[Tensor]:
        """The batches of one block: rows of similar lengths together, the batches in any order."""
        width = BUCKETS * self.batch
        mixed = self._order(epoch)[block * width : (block + 1) * width]
        a, b = self._spans(mixed.numpy())
        sizes = torch.from_numpy(a.size if b is None else a.size + b.size)
        batches = mixed[sizes.argsort(stable=True)].split(self.batch)
        turns = shuffled(len(batches), self.seed, "turn", epoch, block)
        return [batches[turn] for turn in turns.tolist()]
