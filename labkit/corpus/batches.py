"""From tokens to rows without padding: windows and streams, each a function of (seed, step).

Nothing is remembered from one step to the next: which examples a step takes is looked up in a
shuffle that depends on the seed and the epoch alone. So a run is resumed by the number of its
step, and each rank takes its rows of the same batch. Read `Epochs` first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from labkit.chance import Chance, shuffled
from labkit.checks import check_whole, is_whole
from labkit.corpus.batch import Batch, Batches
from labkit.corpus.rows import frame, unmark
from labkit.text.tokens import Tokens, check_corpus


def in_turn(step: int, batch: int, size: int, order: Callable[[int], Tensor]) -> Tensor:
    """The examples of a step; `order` gives an epoch's order of all of them.

    Epochs follow one another without a gap, so a batch may end one and begin the next.
    """
    start, end = step * batch, (step + 1) * batch
    picked = []
    while start < end:
        epoch, position = divmod(start, size)
        stop = min(size, position + end - start)
        picked.append(order(epoch)[position:stop])
        start += stop - position
    return torch.cat(picked)


@dataclass(frozen=True, kw_only=True, eq=False)
class Epochs(ABC):
    """Batches by number. Epochs follow one another without a gap, each in an order of its own."""

    batch: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, least=1)
        check_whole("seed", self.seed, least=-(2**63), most=2**64)
        # torch refuses some NumPy integers, and JSON all of them.
        for name, given in vars(self).copy().items():
            if is_whole(given):
                object.__setattr__(self, name, int(given))

    @property
    @abstractmethod
    def size(self) -> int:
        """How many examples there are."""

    @abstractmethod
    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The rows of these examples; what is drawn for them depends on `chance`."""

    @property
    def fewest(self) -> int:
        """How many rows the smallest batch has."""
        return self.batch

    @property
    def steps(self) -> int:
        """How many batches it takes to see every example at least once."""
        return -(-self.size // self.batch)

    def at(self, step: int) -> Batch:
        """The batch of a step, a function of the seed and the step alone."""
        check_whole("step", step, most=2**62)
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
        return in_turn(step, self.batch, self.size, self._order)


@dataclass(frozen=True, eq=False)
class Windows(Epochs):
    """Text of any documents, cut every `length` tokens: no padding, nothing left out but the end.

    With `framed` a row is [CLS] text [SEP], as for RoBERTa; with `apart` the batch says which
    documents its tokens come from, for a mask that keeps them apart. With `moved` each window
    begins a random number of tokens later, less than its length and drawn anew in each epoch: a
    model that reads a text many times then sees other windows each time. For rows that become
    longer, as BERT's do, see `Stages`.
    """

    tokens: Tokens
    length: int
    framed: bool = False
    apart: bool = False
    moved: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_corpus(self.tokens)
        check_whole("length", self.length, least=3 if self.framed else 1)
        if len(self.tokens) < self._text:
            raise ValueError(
                f"the corpus has {len(self.tokens)} tokens, and a window needs {self._text}: "
                "give more text or a shorter length"
            )

    @property
    def _text(self) -> int:
        """How many tokens of the text a row holds."""
        return self.length - 2 if self.framed else self.length

    @property
    def size(self) -> int:
        """How many windows there are."""
        return len(self.tokens) // self._text

    def once(self) -> Iterator[Batch]:
        """Every window once and in order, none of them moved."""
        return Epochs.once(replace(self, moved=False))

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The windows with these numbers."""
        starts_B1 = examples.unsqueeze(1) * self._text
        if self.moved:
            starts_B1 += chance.integers("moved", 1, self._text)
            starts_B1.clamp_(max=len(self.tokens) - self._text)
        positions_BT = starts_B1 + torch.arange(self._text)
        marked_BT = torch.from_numpy(self.tokens.take(positions_BT.numpy()))
        if self.framed:
            marked_BT = frame(marked_BT, self.tokens)
        return unmark(marked_BT, examples, apart=self.apart)


@dataclass(frozen=True, eq=False)
class Streams(Epochs):
    """The text as `batch` long streams that are read side by side, for models with a memory.

    A row continues the same row of the step before, except at the start of an epoch, where it is
    fresh. Rows hold length + 1 tokens, and the last one comes again as the first one of the
    next step: so each token but the first is predicted once, except those of an end that is too
    short for a segment. The seed has no effect: there is only one order. With `stride` a row begins
    that many tokens after the one before: XLNet's overlap, since only the first part of a row is
    remembered (data_utils.py, create_tfrecords; see `Permutation.reuse`). An objective that reads
    whole rows, such as `MaskedToken`, meets the token that two rows share twice; with
    `stride=length + 1` no token is shared.
    """

    tokens: Tokens
    length: int
    stride: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_corpus(self.tokens)
        check_whole("length", self.length, least=1)
        if self.stride is not None:
            check_whole("stride", self.stride, least=1, most=self.length + 1)
        if self._each < self.length + 1:
            raise ValueError(
                f"the corpus has {len(self.tokens)} tokens, and {self.batch} streams of one "
                f"segment need {self.batch * (self.length + 1)}: give more text or fewer, shorter "
                "rows"
            )

    @property
    def _each(self) -> int:
        return len(self.tokens) // self.batch

    @property
    def size(self) -> int:
        """How many segments there are in all streams together."""
        return self.batch * ((self._each - 1 - self.length) // self._stride + 1)

    @property
    def _stride(self) -> int:
        return self.stride or self.length

    def _examples(self, step: int) -> Tensor:
        return torch.arange(self.batch) + (step % self.steps) * self.batch

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The segments with these numbers: one step of all streams."""
        step = int(examples[0]) // self.batch
        starts_B1 = (examples % self.batch).unsqueeze(1) * self._each + step * self._stride
        positions_BT = starts_B1 + torch.arange(self.length + 1)
        marked_BT = torch.from_numpy(self.tokens.take(positions_BT.numpy()))
        batch = unmark(marked_BT, examples)
        return replace(batch, fresh=torch.full_like(batch.fresh, step == 0))


@dataclass(frozen=True)
class Stages:
    """Batches that change on the way: longer texts or larger batches later on.

    `Stages((0, short), (9000, long))` takes step 9000 from the first batch of `long`.
    BERT reads rows of 128 in 90 % of its steps: a row of 512 costs more than four of them.
    """

    stages: tuple[tuple[int, Batches], ...]

    def __init__(self, *stages: tuple[int, Batches]) -> None:
        starts = [start for start, _ in stages]
        for start in starts:
            check_whole("the first step of a stage", start)
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(
                f"the stages begin at steps {starts}: give one that begins at 0, "
                "then others that begin later and later"
            )
        object.__setattr__(self, "stages", stages)

    @property
    def fewest(self) -> int | None:
        """How many rows the smallest batch has, of the stages that say so; None if none does."""
        told = [getattr(batches, "fewest", None) for _, batches in self.stages]
        return min((rows for rows in told if rows is not None), default=None)

    def at(self, step: int) -> Batch:
        """The batch of this step, from the stage that it falls into."""
        check_whole("step", step, most=2**62)
        start, batches = [stage for stage in self.stages if stage[0] <= step][-1]
        return batches.at(step - start)
