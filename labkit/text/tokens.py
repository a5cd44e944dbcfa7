"""All tokens of a corpus in one array, and where its words, sentences and documents end.

Each token is one 32-bit number: the token itself and two marks, "a word begins" and "a document
begins". So words and documents in any stretch of text are a running sum of marks.
`labkit.text.encoding.tokenize` makes a corpus from documents.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labkit.keeping.fingerprints import fingerprint
from labkit.text.vocabulary import Vocabulary

Integers = NDArray[np.int64]
NUMBER = (1 << 30) - 1
WORD = 1 << 30
DOCUMENT = 1 << 31


class Arrays(NamedTuple):
    """A corpus in numbers: its tokens, where each sentence and each document ends, the labels."""

    marked: NDArray[np.uint32]
    sentence_ends: Integers  # in tokens
    document_ends: Integers  # in sentences
    labels: Integers  # -1: none


class Tokens:
    """The tokens of a corpus, one document after the other."""

    def __init__(
        self,
        arrays: Arrays,
        vocabulary: Vocabulary,
        classes: tuple[str, ...],
        end: bool,
        on_read: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_read` is told after each reading how many stretches and tokens have been read."""
        self.arrays = arrays
        self.vocabulary = vocabulary
        self.classes = classes
        # Whether a separator stands at the end of each document.
        self.end = end
        self._on_read = on_read
        self._check()

    def _check(self) -> None:
        # A piece at a time: the file may be larger than the memory.
        for start in range(0, len(self), 2**20):
            largest = (self.arrays.marked[start : start + 2**20] & NUMBER).max()
            if largest >= self.vocabulary.size:
                raise ValueError(
                    f"token {largest:,} is not in the vocabulary of {self.vocabulary.size:,}"
                )
            self._note(1, 2**20)
        check_ends(self.arrays, len(self.classes))

    def __len__(self) -> int:
        return len(self.arrays.marked)

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.arrays.document_ends)

    @property
    def fingerprint(self) -> str:
        """A name that differs when any token, end or label does."""
        return fingerprint(self.arrays, self.vocabulary, self.classes, self.end)

    def take(self, positions: Integers) -> Integers:
        """The marked tokens at these positions."""
        taken = self.arrays.marked[positions].astype(np.int64)
        self._note(len(positions), positions.size)
        return taken

    def _note(self, stretches: int, tokens: int) -> None:
        if self._on_read is not None:
            self._on_read(stretches, tokens)

    def sentence_starts(self, sentences: Integers) -> Integers:
        """At which token each sentence begins."""
        return self.arrays.sentence_ends[sentences - 1] * (sentences > 0)

    def document_starts(self, documents: Integers) -> Integers:
        """At which sentence each document begins."""
        return self.arrays.document_ends[documents - 1] * (documents > 0)


def check_corpus(given: Any) -> None:
    """Refuse what has not been tokenized, such as documents or a list of numbers."""
    if not isinstance(given, Tokens):
        raise TypeError(
            f"tokens is a {type(given).__name__}: give tokenize(documents, tokenizer), or rows of "
            "your own as Batch.of(tokens)"
        )


def check_ends(arrays: Arrays, classes: int) -> None:
    """Refuse ends that do not part the text in order, and labels that are not a class."""
    for ends, until, what in (
        (arrays.sentence_ends, len(arrays.marked), "sentences"),
        (arrays.document_ends, len(arrays.sentence_ends), "documents"),
    ):
        if len(ends) == 0 or ends[0] < 0 or ends[-1] != until or (np.diff(ends) < 0).any():
            raise ValueError(f"the ends of the {what} do not part the text in order")
    if len(arrays.labels) != len(arrays.document_ends):
        raise ValueError(
            f"{len(arrays.document_ends)} documents have {len(arrays.labels)} labels: give one "
            "for each, -1 for none"
        )
    if arrays.labels.min() < -1 or (classes and arrays.labels.max() >= classes):
        raise ValueError(f"a label is not one of the {classes} classes")
