"""Pairs of texts, labelled by whether the second follows the first.

Next sentence (NSP): in half of the rows the second is from another document (Devlin et al., 2019,
section 3.1). Sentence order (SOP): in half of the rows the two are swapped (Lan et al.,
2020, section 3.1). The labels are those of the releases: 0 says yes, 1 says no.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labkit.chance import Chance, first_bits, scaled
from labkit.checks import check_choice, check_share
from labkit.corpus.padded import LaidOut
from labkit.corpus.rows import Bounds, Rows, lay_out
from labkit.text.tokens import NUMBER, Integers

# How many times to redraw a sentence that is identical to the true next one.
DRAWS = 64


@dataclass(frozen=True, eq=False)
class Pairs(LaidOut):
    """Rows [CLS] a [SEP] b [SEP]; an example is a sentence that another one follows.

    With `fill`, a row takes as many sentences as fit and is cut between two of them at random;
    without, both parts are single sentences. A `short` share of the filled rows is filled up to a
    random number of tokens from 2 on, as 10 % are in BERT's code, so that the model has seen short
    texts (create_pretraining_data.py, create_instances_from_document); by default none is, as the
    stories of the course are short themselves.
    """

    question: Literal["next", "order"]
    fill: bool = True
    short: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("short", self.short)
        check_choice("question", self.question, "next", "order")
        if self.size == 0:
            raise ValueError(
                "no document has two sentences: a pair needs them (a sentence ends at a line's end "
                "or after . ! ? and white space)"
            )
        if self.question == "next" and self.tokens.documents < 2:
            raise ValueError(
                "there is one document, and a sentence that does not follow is from another"
            )

    @cached_property
    def size(self) -> int:
        """How many sentences another one follows."""
        return len(self.tokens.arrays.sentence_ends) - self.tokens.documents

    @cached_property
    def _pairs_before(self) -> Integers:
        """How many examples there are up to the end of each document."""
        return self.tokens.arrays.document_ends - np.arange(1, self.tokens.documents + 1)

    def lay_out(self, examples: Tensor, chances: Sequence[Chance]) -> Rows:
        """The pairs that begin with these sentences."""
        document = np.searchsorted(self._pairs_before, examples.numpy(), "right")
        first = examples.numpy() + document
        room = self._room(chances)
        until = self._until(first, document, room, least=2)
        cut, answer, other = first_bits(chances, "cut", "answer", "other 0")
        # Somewhere between the first sentence and the last one.
        middle = first + 1 + scaled(cut, until - first - 1)
        a, b = self._span(first, middle, document), self._span(middle, until, document)
        no = answer < 0
        if self.question == "order":
            a, b = _where(no, b, a), _where(no, a, b)
        else:
            sentence = self._others(document, middle, no, other, chances)
            b = _where(no, self._from(sentence, room - a.size), b)
        known = {"examples": examples.numpy(), "labels": no.astype(np.int64)}
        return lay_out(self.tokens, a, b, self.length, known)

    def _room(self, chances: Sequence[Chance]) -> Integers:
        """How many tokens each row takes beside [CLS] and both [SEP]."""
        most = self.length - 3
        short, size = first_bits(chances, "short", "size")
        is_short = (short + 2**31) < self.short * 2**32
        return np.where(is_short, 2 + scaled(size, most - 1), most)

    def _until(self, first: Integers, document: Integers, room: Integers, least: int) -> Integers:
        """Up to which sentence the text from the first one fits, within its document."""
        if not self.fill:
            return first + least
        limit = self.tokens.sentence_starts(first) + room
        fits = self.tokens.arrays.sentence_ends.searchsorted(limit, "right")
        most = self.tokens.arrays.document_ends[document]
        return np.minimum(np.maximum(fits, first + least), most)

    def _span(self, first: Integers, until: Integers, document: Integers) -> Bounds:
        """The tokens of these sentences, without the separator of their document."""
        end = self.tokens.arrays.sentence_ends[until - 1]
        if self.tokens.end:
            end = end - (self.tokens.arrays.document_ends[document] == until)
        return Bounds(self.tokens.sentence_starts(first), end)

    def _document(self, sentence: Integers) -> Integers:
        return self.tokens.arrays.document_ends.searchsorted(sentence, "right")

    def _from(self, sentence: Integers, room: Integers) -> Bounds:
        """As much text as there is room for, and at least this sentence."""
        document = self._document(sentence)
        until = self._until(sentence, document, np.maximum(1, room), least=1)
        return self._span(sentence, until, document)

    def _others(
        self,
        document: Integers,
        following: Integers,
        needed: NDArray[np.bool_],
        drawn: Integers,
        chances: Sequence[Chance],
    ) -> Integers:
        """Sentences of other documents that differ from the true next ones in their words."""
        begin = self.tokens.document_starts(document)
        own = self.tokens.arrays.document_ends[document] - begin
        others = len(self.tokens.arrays.sentence_ends) - own
        sentence = np.zeros_like(following)
        left = needed.nonzero()[0]
        for draw in range(1, DRAWS + 1):
            found = scaled(drawn, others)[left]
            # The sentences of the document itself are skipped: all others are equally likely.
            found += own[left] * (found >= begin[left])
            sentence[left] = found
            left = left[self._same(found, following[left], document[left])]
            if not len(left):
                return sentence
            (drawn,) = first_bits(chances, f"other {draw}")
        raise ValueError(
            f"{DRAWS} sentences of other documents all have the words of the one that follows: "
            "the corpus repeats itself too much for this question"
        )

    def _same(self, one: Integers, other: Integers, document: Integers) -> NDArray[np.bool_]:
        """Whether two sentences, the second of the given document, have the same words."""
        a = self._span(one, one + 1, self._document(one))
        b = self._span(other, other + 1, document)
        same = a.size == b.size
        size_N1 = a.size[same][:, None]
        span = np.arange(size_N1.max(initial=0))
        # Beyond the end of a shorter sentence, its last word stands again.
        place_NL = np.minimum(span, np.maximum(size_N1 - 1, 0))
        places = [bounds.start[same][:, None] + place_NL for bounds in (a, b)]
        ours, theirs = np.split(self.tokens.take(np.concatenate(places)) & NUMBER, 2)
        same[same] = ((ours == theirs) | (span >= size_N1)).all(axis=1)
        return same


def _where(condition: NDArray[np.bool_], a: Bounds, b: Bounds) -> Bounds:
    return Bounds(np.where(condition, a.start, b.start), np.where(condition, a.end, b.end))
