"""Two stretches of text and a question: does the second follow the first?

Next sentence (NSP): in half of the rows the second is from another document (Devlin et al., 2019,
section 3.1). Sentence order (SOP): in half of the rows the two have changed places (Lan et al.,
2020, section 3.1). The labels are those of the releases: 0 says yes, 1 says no.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.chance import Chance
from labkit.corpus.batch import Batch
from labkit.corpus.batches import Batches
from labkit.corpus.rows import Span, lay_out
from labkit.corpus.tokens import NUMBER, Tokens

# How often another sentence is drawn when one has the very words of the true next one.
DRAWS = 64


@dataclass(frozen=True, eq=False)
class Pairs(Batches):
    """Rows [CLS] a [SEP] b [SEP]; an example is a sentence that another one follows.

    With `fill`, a row takes as many sentences as fit and is cut between two of them at random;
    without, both parts are single sentences.
    """

    tokens: Tokens
    length: int
    question: Literal["next", "order"]
    fill: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question not in ("next", "order"):
            raise ValueError(f"question={self.question!r}: ask for 'next' or for 'order'")
        if self.length < 5:
            raise ValueError(f"length is {self.length}: give at least 5")
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
    def _pairs_before(self) -> NDArray[np.int64]:
        """How many examples there are up to the end of each document."""
        return self.tokens.arrays.document_ends - np.arange(1, self.tokens.documents + 1)

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The pairs that begin with these sentences."""
        document = np.searchsorted(self._pairs_before, examples.numpy(), "right")
        first = examples.numpy() + document
        until = self._until(first, document, self.length - 3, least=2)
        # Somewhere between the first sentence and the last one.
        inner = torch.from_numpy(until - first - 1).unsqueeze(1)
        middle = first + 1 + chance.integers("cut", 1, inner).squeeze(1).numpy()
        a, b = self._span(first, middle), self._span(middle, until)
        no = chance.uniform("answer", 1).squeeze(1).numpy() < 0.5
        if self.question == "order":
            a, b = _where(no, b, a), _where(no, a, b)
        else:
            b = _where(no, self._elsewhere(document, middle, a.size, no, chance), b)
        batch = lay_out(self.tokens, a, b, examples, self.length)
        return replace(batch, labels=torch.from_numpy(no).long())

    def _until(
        self,
        first: NDArray[np.int64],
        document: NDArray[np.int64],
        room: NDArray[np.int64] | int,
        least: int,
    ) -> NDArray[np.int64]:
        """Up to which sentence the text from the first one fits, within its document."""
        if not self.fill:
            return first + least
        limit = self.tokens.sentence_starts(first) + room
        fits = np.searchsorted(self.tokens.arrays.sentence_ends, limit, "right")
        return np.clip(fits, first + least, self.tokens.arrays.document_ends[document])

    def _span(self, first: NDArray[np.int64], until: NDArray[np.int64]) -> Span:
        """The tokens of these sentences, without the separator of their document."""
        start = self.tokens.sentence_starts(first)
        end = self.tokens.arrays.sentence_ends[until - 1]
        if self.tokens.end:
            ends = self.tokens.arrays.document_ends
            end = end - (ends[np.searchsorted(ends, until)] == until)
        return Span(start, end)

    def _elsewhere(
        self,
        document: NDArray[np.int64],
        following: NDArray[np.int64],
        size: NDArray[np.int64],
        asked: NDArray[np.bool_],
        chance: Chance,
    ) -> Span:
        """Text from another document, which does not begin with the words of the true next one."""
        begin = self.tokens.document_starts(document)
        own = self.tokens.arrays.document_ends[document] - begin
        others = torch.from_numpy(len(self.tokens.arrays.sentence_ends) - own).unsqueeze(1)
        sentence = np.zeros_like(following)
        left = asked.copy()
        for draw in range(DRAWS):
            drawn = chance.integers(f"other {draw}", 1, others).squeeze(1).numpy()
            # The sentences of the document itself are skipped, so all others are as likely.
            sentence = np.where(left, drawn + own * (drawn >= begin), sentence)
            left = left & self._same(sentence, following)
            if not left.any():
                break
        else:
            raise ValueError(
                f"{DRAWS} sentences of other documents all have the words of the one that follows: "
                "the corpus repeats itself too much for this question"
            )
        where = np.searchsorted(self.tokens.arrays.document_ends, sentence, "right")
        room = np.maximum(1, self.length - 3 - size)
        return self._span(sentence, self._until(sentence, where, room, least=1))

    def _same(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        a, b = self._span(one, one + 1), self._span(other, other + 1)
        same = a.size == b.size
        for row in np.flatnonzero(same):
            span = np.arange(a.size[row])
            words = self.tokens.take(np.stack([a.start[row] + span, b.start[row] + span])) & NUMBER
            same[row] = (words[0] == words[1]).all()
        return same


def _where(condition: NDArray[np.bool_], a: Span, b: Span) -> Span:
    return Span(np.where(condition, a.start, b.start), np.where(condition, a.end, b.end))
