"""How a row is laid out: which tokens stand where, and what is known about each of them."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.corpus.batch import Batch
from labkit.corpus.tokens import DOCUMENT, NUMBER, WORD, Tokens


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
        words=_counted(marked_BT, WORD),
    )


def _counted(marked_BT: Tensor, mark: int) -> Tensor:
    return (marked_BT & mark).ne_(0).cumsum_(1)


@dataclass(frozen=True)
class Span:
    """From where to where each row's text goes, in tokens of the corpus."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def size(self) -> NDArray[np.int64]:
        """How many tokens each text has."""
        return self.end - self.start

    def columns(self) -> tuple[Tensor, Tensor]:
        """Starts and sizes, each as [B, 1]."""
        return torch.from_numpy(self.start).unsqueeze(1), torch.from_numpy(self.size).unsqueeze(1)


def lay_out(
    tokens: Tokens, a: Span, b: Span | None, examples: Tensor, length: int, framed: bool = True
) -> Batch:
    """[CLS] a [SEP] b [SEP] in each row and padding after it; bare a without `framed`.

    What does not fit is cut: see `_cut`.
    """
    first, last = frame_tokens(tokens) if framed else (0, 0)
    a, b = _cut(a, b, length - (0 if not framed else 2 if b is None else 3))
    a_start_B1, a_size_B1 = a.columns()
    ends_B1 = a_size_B1 + (2 if framed else 0)
    middle_B1 = a_size_B1 + 1
    if b is not None:
        b_start_B1, b_size_B1 = b.columns()
        ends_B1 = ends_B1 + b_size_B1 + 1
    places_1T = torch.arange(max(1, int(ends_B1.max()))).unsqueeze(0)
    index_BT = a_start_B1 - int(framed) + places_1T
    segments_BT = None
    if b is not None:
        second_BT = places_1T > middle_B1
        index_BT = torch.where(second_BT, b_start_B1 - middle_B1 - 1 + places_1T, index_BT)
        segments_BT = (second_BT & (places_1T < ends_B1)).long()
    marked_BT = torch.from_numpy(tokens.take(index_BT.clamp_(0, len(tokens) - 1).numpy()))
    real_BT = places_1T < ends_B1
    if framed:
        marked_BT[:, :2] |= WORD
        marked_BT[:, 0] = first | WORD
        marked_BT.masked_fill_((places_1T == middle_B1) | (places_1T == ends_B1 - 1), last | WORD)
    marked_BT.masked_fill_(~real_BT, (tokens.vocabulary.pad or 0) | WORD)
    return replace(unmark(marked_BT, examples), real=real_BT, segments=segments_BT)


def _cut(a: Span, b: Span | None, room: int) -> tuple[Span, Span | None]:
    """Each text to its half of the room; what one of them leaves of its half is the other's.

    A text alone loses its end. Of two, the first loses its beginning and the second its end, so
    that the place where they meet stays whole.
    """
    if b is None:
        return Span(a.start, np.minimum(a.end, a.start + room)), None
    start = np.maximum(a.start, a.end - np.maximum(room - b.size, room // 2))
    end = np.minimum(b.end, b.start + room - (a.end - start))
    return Span(start, a.end), Span(b.start, end)
