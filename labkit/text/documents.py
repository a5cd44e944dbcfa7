"""Documents, and lists of them; `files` and `tables` read them.

A source is read from its beginning each time, one document after the other, so a corpus may be
larger than the memory. Whether a document is held out is decided by its own text alone: equal
documents cannot end up on both sides. Read `Documents` first.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from labkit.checks import HALF_A_PAIR, check_several, shown
from labkit.keeping.files import digest

# Where a sentence may end: after its sign, or at the end of a line.
# A run of signs is matched whole, whatever follows it, so that a long one is looked at once. The
# pattern begins with one set of signs, which `re` finds twice as fast as either of two patterns.
SENTENCE_END = re.compile(r"[.!?\n](?:(?<=\n)|[.!?]*+(?=(\s)?))")
# Labels that are all numbers are sorted as numbers.
NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?(e[-+]?\d{1,3})?")


class Document(NamedTuple):
    """A text in parts: its sentences, which together are the text, or the two texts of a pair."""

    parts: tuple[str, ...]
    label: int | None = None

    @property
    def text(self) -> str:
        """All parts in a row."""
        return "".join(self.parts)


@dataclass(frozen=True)
class Documents:
    """A source that can be read again and again; `classes` are the names of its labels.

    `fingerprint` gives a name that changes with the content; without it nothing can be cached.
    """

    read: Callable[[], Iterator[Document]]
    classes: tuple[str, ...] = ()
    fingerprint: Callable[[], str] | None = None

    def __iter__(self) -> Iterator[Document]:
        return self.read()

    @property
    def texts(self) -> Iterable[str]:
        """The bare texts, to train a tokenizer on."""
        return _Texts(self)

    def split(self, held_out: float = 0.05) -> "tuple[Documents, Documents]":
        """The documents to train on and those held out, about this share of them."""
        if not 0 < held_out < 1:
            raise ValueError(f"held_out is {held_out}: give a share between 0 and 1, such as 0.05")
        return self._side(held_out, False), self._side(held_out, True)

    def _side(self, held_out: float, side: bool) -> "Documents":
        def read() -> Iterator[Document]:
            return (one for one in self.read() if (_number(one) < held_out) == side)

        name = self.fingerprint
        fingerprint = None if name is None else lambda: f"{name()} {held_out} {side}"
        return replace(self, read=read, fingerprint=fingerprint)


class _Texts:
    def __init__(self, documents: Documents) -> None:
        self.documents = documents

    def __iter__(self) -> Iterator[str]:
        return (document.text for document in self.documents)


def _number(document: Document) -> float:
    """A number in [0, 1) from a hash of the text, or of the first text of a labelled pair."""
    text = document.text if document.label is None else "".join(document.parts[:1])
    try:
        content = " ".join(text.split()).encode()
    except UnicodeEncodeError:
        raise ValueError(f"the text {shown(text)} {HALF_A_PAIR}") from None
    number = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(number, "little") / 2**64


def sentences(text: str) -> tuple[str, ...]:
    """Cut a text after each sentence or line; put together again, the parts are the text."""
    parts: list[str] = []
    start = blank = 0  # between the two is white space only
    for end in SENTENCE_END.finditer(text):
        if end[0] != "\n" and end[1] is None:
            continue
        # White space goes with the sentence after it, as it does in the tokens of GPT-2.
        cut = end.start() if end[0] == "\n" else end.end()
        part = text[blank:cut]
        blank = cut
        if part and not part.isspace():
            parts.append(text[start:cut])
            start = cut
    rest = text[start:]
    if parts and (not rest or rest.isspace()):
        parts[-1] += rest
    else:
        parts.append(rest)
    return tuple(parts)


def unknown(label: Any) -> bool:
    """Whether this stands for a label that is not known, as libraries of tables write it."""
    return str(label) in ("", "None", "null", "NULL", "nan", "NaN")


def ordered(labels: Iterable[str]) -> tuple[str, ...]:
    """The different labels in order; numbers in the order of numbers."""
    names = sorted(set(labels))
    if all(NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=Decimal))
    return tuple(names)


def from_documents(documents: Iterable[Any], labels: Sequence[Any] | None = None) -> Documents:
    """Texts, `Document`s, or anything that has a `.text`, kept in memory; with a label for each.

    A label that is empty, null, None or NaN is not known. With labels, a text is not cut into its
    sentences, and the two texts of a pair stay two.
    """
    check_several("documents", documents)
    check_several("labels", labels)
    known = [_document(one) for one in documents]
    if labels is None:
        # Documents that come with the numbers of their classes have no names for them.
        numbers = [one.label for one in known if one.label is not None]
        classes = tuple(str(number) for number in range(max(numbers, default=-1) + 1))
    else:
        if hasattr(labels, "tolist"):  # the elements of a tensor are tensors
            labels = labels.tolist()
        if len(labels) != len(known):
            raise ValueError(f"{len(known)} documents have {len(labels)} labels: give one for each")
        classes = ordered(str(label) for label in labels if not unknown(label))
        number = {name: n for n, name in enumerate(classes)}
        known = [
            Document(_labelled_parts(one), number.get(str(label)))
            for one, label in zip(known, labels, strict=True)
        ]
    name = digest(repr(known).encode())
    return Documents(lambda: iter(known), classes, lambda: name)


def _labelled_parts(one: Document) -> tuple[str, ...]:
    """Both texts of a pair, or the whole text, whose parts may be its sentences."""
    a_pair = len(one.parts) == 2 and (one.label is not None or one.parts != sentences(one.text))
    return one.parts if a_pair else (one.text,)


def _document(one: Any) -> Document:
    if isinstance(one, Document):
        return one
    text = one if isinstance(one, str) else getattr(one, "text", None)
    if not isinstance(text, str):
        raise TypeError(f"a document is a {type(one).__name__}: give text or an object with .text")
    return Document(sentences(text))
