"""The layout of rows: their tokens, special tokens, padding, words, segments and documents."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.corpus.batch import Batch
from labkit.text.tokens import DOCUMENT, NUMBER, WORD, Integers, Tokens


def frame(marked_BT: Tensor, tokens: Tokens) -> Tensor:
    """[CLS] before each row and [SEP] after it."""
    first, last = frame_tokens(tokens)
    edges = torch.full((2, len(marked_BT), 1), WORD)
    # A row may begin within a word, which is not the word of the [CLS]; a document that begins
    # with the row begins at the [CLS].
    marked_BT[:, 0] = (marked_BT[:, 0] & ~DOCUMENT) | WORD
    return torch.cat([edges[0] | first, marked_BT, edges[1] | last], dim=1)


def frame_tokens(tokens: Tokens) -> tuple[int, int]:
    """The [CLS] and the [SEP] of the vocabulary."""
    first, last = tokens.vocabulary.cls, tokens.vocabulary.sep
    if first is None or last is None:
        raise ValueError(
            "rows begin with [CLS] and end with [SEP], and the vocabulary lacks "
            f"{'[CLS]' if first is None else '[SEP]'}: train or load a tokenizer that has both"
        )
    return first, last


def unmark(marked_BT: Tensor, examples: Tensor, apart: bool = False) -> Batch:
    """Rows without padding, from tokens with their marks."""
    documents_BT = None
    if apart:
        documents_BT = (marked_BT & DOCUMENT).ne_(0)
        documents_BT[:, 0] = 0
        documents_BT = documents_BT.cumsum(1)
    return Batch(
        tokens=marked_BT & NUMBER,
        real=torch.ones_like(marked_BT, dtype=torch.bool),
        rows=torch.arange(len(marked_BT)),
        examples=examples,
        fresh=torch.ones(len(marked_BT), dtype=torch.bool),
        documents=documents_BT,
        words=(marked_BT & WORD).ne_(0).cumsum_(1),
    )


@dataclass(frozen=True)
class Bounds:
    """From where to where each row's text goes, in tokens of the corpus."""

    start: Integers
    end: Integers

    @property
    def size(self) -> Integers:
        """How many tokens each text has."""
        return self.end - self.start


@dataclass(frozen=True)
class Rows:
    """The rows of one step or of several, laid out: each batch is a copy of some of them."""

    by_position: dict[str, NDArray[Any]]
    """What is known of each position: [B, T]."""
    by_row: dict[str, NDArray[Any]]
    """What is known of each row: [B]."""
    ends: Integers

    def batch(self, start: int, end: int) -> Batch:
        """The rows from start to end, as wide as the longest of them."""
        width = max(1, int(self.ends[start:end].max()))
        # numpy slices and copies in a third of torch's time.
        parts = {name: known[start:end, :width].copy() for name, known in self.by_position.items()}
        parts |= {name: known[start:end].copy() for name, known in self.by_row.items()}
        parts["rows"] = np.arange(end - start)
        parts["fresh"] = np.ones(end - start, dtype=np.bool_)
        return Batch(**{name: torch.from_numpy(part) for name, part in parts.items()})


def lay_out(
    tokens: Tokens,
    a: Bounds,
    b: Bounds | None,
    length: int,
    by_row: dict[str, Integers],
    *,
    framed: bool = True,
) -> Rows:
    """[CLS] a [SEP] b [SEP] in each row and padding after it; bare a without `framed`.

    What does not fit is cut: see `_cut`.
    """
    edges = int(framed)
    a, b = _cut(a, b, length - edges * (2 if b is None else 3))
    middle = a.size + edges
    ends = middle + (edges if b is None else b.size + 2)
    positions_T = np.arange(max(1, int(ends.max())))
    real_BT = positions_T < ends[:, None]
    index_BT = positions_T + (a.start - edges)[:, None]
    second_BT = None
    if b is not None:
        second_BT = real_BT & (positions_T > middle[:, None])
        index_BT += second_BT * (b.start - middle - a.start)[:, None]
    # Before the text stands a [CLS]; padding would read on, and may not read beyond the corpus.
    np.minimum(index_BT, len(tokens) - 1, out=index_BT)
    marked_BT = tokens.take(index_BT)
    marked_BT[~real_BT] = (tokens.vocabulary.pad or 0) | WORD
    if framed:
        first, last = frame_tokens(tokens)
        rows = np.arange(len(ends))
        marked_BT[:, 1] |= WORD
        marked_BT[:, 0] = first | WORD
        marked_BT[rows, middle] = marked_BT[rows, ends - 1] = last | WORD
    by_position = {"tokens": marked_BT & NUMBER, "real": real_BT}
    by_position["words"] = np.cumsum((marked_BT & WORD) != 0, axis=1)
    if second_BT is not None:
        by_position["segments"] = second_BT.astype(np.int64)
    return Rows(by_position, by_row, ends)


def _cut(a: Bounds, b: Bounds | None, room: int) -> tuple[Bounds, Bounds | None]:
    """Each text to its half of the room; what one of them leaves of its half is the other's.

    A text alone loses its end. Of two, the first loses its beginning and the second its end, so
    that the position where they meet stays whole.
    """
    if b is None:
        return Bounds(a.start, np.minimum(a.end, a.start + room)), None
    start = np.maximum(a.start, a.end - np.maximum(room - b.size, room // 2))
    end = np.minimum(b.end, b.start + room - (a.end - start))
    return Bounds(start, a.end), Bounds(b.start, end)
