"""From tokens to rows: windows, streams and labelled examples, each a function of (seed, step).

Nothing is remembered from one step to the next: which examples a step takes is looked up in a
shuffle that depends on the seed and the epoch alone. So a run is resumed by the number of its
step, and each rank takes its rows of the same batch. Read `Batches` first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.chance import Chance, shuffled
from labkit.corpus.batch import Batch
from labkit.corpus.rows import Rows, Span, frame, lay_out, unmark
from labkit.corpus.tokens import Tokens

# Labelled examples are sorted by length among those of so many batches.
BUCKETS = 64
# Padded rows of so many tokens are laid out at one go, if they are those of more than one step.
AHEAD = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches(ABC):
    """Batches by number. Epochs follow one another without a gap, each in an order of its own."""

    batch: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}: give the number of rows, at least 1")

    @property
    @abstractmethod
    def size(self) -> int:
        """How many examples there are."""

    @abstractmethod
    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The rows of these examples; what is drawn for them depends on `chance`."""

    @property
    def steps(self) -> int:
        """How many batches meet every example at least once."""
        return -(-self.size // self.batch)

    def at(self, step: int) -> Batch:
        """The batch of a step, the same whenever and wherever it is asked for."""
        if step < 0:
            raise ValueError(f"step is {step}: steps are counted from 0")
        rows = torch.arange(self.batch)
        return self.rows_of(self._examples(step), Chance(self.seed, step, rows))

    def once(self) -> Iterator[Batch]:
        """Every example once and in order, for measuring; the last batch may be smaller."""
        for step, examples in enumerate(torch.arange(self.size).split(self.batch)):
            yield self.rows_of(examples, Chance(self.seed, step, torch.arange(len(examples))))

    @cached_property
    def _order(self) -> Callable[[int], Tensor]:
        # Two epochs are kept, as a batch may end one and begin the next.
        return lru_cache(maxsize=2)(lambda epoch: shuffled(self.size, self.seed, "order", epoch))

    def _examples(self, step: int) -> Tensor:
        start, end = step * self.batch, (step + 1) * self.batch
        picked = []
        while start < end:
            epoch, place = divmod(start, self.size)
            stop = min(self.size, place + end - start)
            picked.append(self._order(epoch)[place:stop])
            start += stop - place
        return torch.cat(picked)


@dataclass(frozen=True, eq=False)
class Windows(Batches):
    """Text of any documents, cut every `length` tokens: no padding, nothing left out but the end.

    With `framed` a row is [CLS] text [SEP], as for RoBERTa; with `apart` the batch says which
    documents its tokens come from, for a mask that keeps them apart. The length may be a function
    of the step, as for BERT, which was trained on short rows first.
    """

    tokens: Tokens
    length: int | Callable[[int], int]
    framed: bool = False
    apart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.length):
            self._check(self.length)

    def _check(self, length: int) -> None:
        least = 3 if self.framed else 1
        if length < least:
            raise ValueError(f"length is {length}: give at least {least}")
        if len(self.tokens) < self._room(length):
            raise ValueError(
                f"the corpus has {len(self.tokens)} tokens, a window takes {self._room(length)}: "
                "give more text or a shorter length"
            )

    def _room(self, length: int) -> int:
        return length - 2 if self.framed else length

    @property
    def size(self) -> int:
        """How many windows there are, at the length of the first step."""
        length = self.length(0) if callable(self.length) else self.length
        return len(self.tokens) // self._room(length)

    def at(self, step: int) -> Batch:
        """The batch of a step, in the length of that step."""
        if not callable(self.length):
            return super().at(step)
        return self._of_length(self.length(step)).at(step)

    def once(self) -> Iterator[Batch]:
        """Every window once and in order, at the length of the first step."""
        if not callable(self.length):
            return super().once()
        return self._of_length(self.length(0)).once()

    @cached_property
    def _of_length(self) -> "Callable[[int], Windows]":
        return lru_cache(maxsize=2)(lambda length: replace(self, length=length))

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The windows with these numbers."""
        length = self.length if isinstance(self.length, int) else self.length(chance.step)
        starts_B1 = examples.unsqueeze(1) * self._room(length)
        marked_BT = torch.from_numpy(
            self.tokens.take((starts_B1 + torch.arange(self._room(length))).numpy())
        )
        if self.framed:
            marked_BT = frame(marked_BT, self.tokens)
        return unmark(marked_BT, examples, apart=self.apart)


@dataclass(frozen=True, eq=False)
class Streams(Batches):
    """The text as `batch` long streams that are read side by side, for models with a memory.

    A row goes on where the same row of the step before ended, but at the start of an epoch, where
    it is fresh. Rows hold length + 1 tokens, and the last one comes again as the first one of the
    next step: so each token but the first is predicted once. With `vary` the ends move by up to so
    many tokens at random, as in the AWD-LSTM (Merity et al., 2018, section 5).
    """

    tokens: Tokens
    length: int
    vary: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise ValueError(f"length is {self.length}: give at least 1")
        if not 0 <= 2 * self.vary < self.length:
            raise ValueError(
                f"vary is {self.vary}: give 0 to less than half of the length {self.length}"
            )
        if self._each < self.length + 1:
            raise ValueError(
                f"the corpus has {len(self.tokens)} tokens, {self.batch} streams of one segment "
                f"take {self.batch * (self.length + 1)}: give more text or fewer, shorter rows"
            )

    @property
    def _each(self) -> int:
        return len(self.tokens) // self.batch

    @property
    def size(self) -> int:
        """How many segments there are in all streams together."""
        return self.batch * ((self._each - 1) // self.length)

    def _examples(self, step: int) -> Tensor:
        return torch.arange(self.batch) + (step % self.steps) * self.batch

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The segments with these numbers: one step of all streams."""
        epoch = chance.step // self.steps
        step = int(examples[0]) // self.batch
        span = torch.arange(self._edge(epoch, step), self._edge(epoch, step + 1) + 1)
        starts_B1 = (examples % self.batch).unsqueeze(1) * self._each
        marked_BT = torch.from_numpy(self.tokens.take((starts_B1 + span).numpy()))
        batch = unmark(marked_BT, examples)
        return replace(batch, fresh=torch.full_like(batch.fresh, step == 0))

    def _edge(self, epoch: int, step: int) -> int:
        edge = step * self.length
        if self.vary and 0 < step < self.steps:
            chance = Chance(self.seed, epoch, torch.tensor([step]))
            edge += int(chance.integers("edge", 1, 2 * self.vary + 1)) - self.vary
        return edge


@dataclass(frozen=True, eq=False)
class LaidOut(Batches):
    """Rows of one text or two, padded; those of some steps are laid out at one go.

    A small batch takes longer to be asked for than to be made. Which steps share the work depends
    on their numbers alone, and each gets copies: so a batch is still a function of its step.
    """

    tokens: Tokens
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 5:
            raise ValueError(f"length is {self.length}: give at least 5")

    @abstractmethod
    def lay_out(self, examples: Tensor, chances: Sequence[Chance]) -> Rows:
        """The rows of these examples, those of the first chance, those of the second and so on."""

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The rows of these examples."""
        return self.lay_out(examples, [chance]).batch(0, len(examples))

    def at(self, step: int) -> Batch:
        """The batch of a step, the same whenever and wherever it is asked for."""
        if step < 0:
            raise ValueError(f"step is {step}: steps are counted from 0")
        block, turn = divmod(step, self._together)
        rows, edges = self._rows(block)
        return rows.batch(edges[turn], edges[turn + 1])

    @cached_property
    def _together(self) -> int:
        """How many steps are laid out at one go."""
        return max(1, AHEAD // (self.batch * self.length))

    @cached_property
    def _rows(self) -> Callable[[int], tuple[Rows, list[int]]]:
        return lru_cache(maxsize=2)(self._rows_of_block)

    def _rows_of_block(self, block: int) -> tuple[Rows, list[int]]:
        """The rows of some steps, and where those of each step begin and end."""
        steps = range(block * self._together, (block + 1) * self._together)
        examples = [self._examples(step) for step in steps]
        chances = [
            Chance(self.seed, step, torch.arange(len(some)))
            for step, some in zip(steps, examples, strict=True)
        ]
        edges = [0, *accumulate(map(len, examples))]
        return self.lay_out(torch.cat(examples), chances), edges


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

    def _spans(self, documents: NDArray[np.int64]) -> "tuple[Span, Span | None]":
        """The whole text of each document; or its two texts, where all have two labelled ones."""
        tokens = self.tokens
        first, last = tokens.document_starts(documents), tokens.arrays.document_ends[documents]
        start, end = tokens.sentence_starts(first), tokens.arrays.sentence_ends[last - 1]
        if self.framed and tokens.end:
            end = end - 1
        if not self._two:
            return Span(start, end), None
        middle = tokens.arrays.sentence_ends[first]
        return Span(start, middle), Span(middle, end)

    def _examples(self, step: int) -> Tensor:
        if not self.bucketed:
            return super()._examples(step)
        epoch, place = divmod(step, self.steps)
        block, turn = divmod(place, BUCKETS)
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
