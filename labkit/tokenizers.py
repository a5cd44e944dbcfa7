"""From text to tokens and back."""

from typing import NamedTuple


class Vocabulary(NamedTuple):
    """What an objective must know of a tokenizer: its size and the numbers of its special tokens.

    A special token that the vocabulary does not have is None; `special` holds all that it has.
    """

    size: int
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    special: tuple[int, ...] = ()
