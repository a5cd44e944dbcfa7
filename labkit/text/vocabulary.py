"""What a model and an objective need to know about a tokenizer."""

from typing import NamedTuple


class Vocabulary(NamedTuple):
    """The size of a vocabulary and the ids of its special tokens.

    A special token that the vocabulary does not have is None; `special` holds all that it has.
    """

    size: int
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    special: tuple[int, ...] = ()
