"""Beam search: the likeliest text that a search finds, instead of a drawn one.

At each step the search keeps the best texts of one length and looks at every word that may follow
each of them (Graves 2012, section 3). Without stop words, a beam of one is greedy.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit import fast
from labkit.checks import check_type, check_whole, is_number, require, shown
from labkit.sampling import NEVER, Sample, Sampling
from labkit.writing.reader import Reader, rows_of


def highest(score_BV: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The highest scores of a table, `count` at most, with the row and the word of each.

    Of equal scores the first is taken, which topk does not guarantee.
    """
    scores = score_BV.flatten()
    count = min(count, len(scores))
    ahead = (scores >= scores.topk(count).values[-1]).nonzero()[:, 0]
    best, order = (part[:count] for part in scores[ahead].sort(descending=True, stable=True))
    where = ahead[order]
    return best, where // score_BV.shape[1], where % score_BV.shape[1]


class Texts(NamedTuple):
    """Texts of one length, the best first."""

    tokens_BT: Tensor
    score_B: Tensor
    """The sum of the log-probabilities of the new words, after the filters."""
    log_probability_B: Tensor
    """The same sum under the model itself."""

    def longer(self, logits_BV: Tensor, last_BV: Tensor, count: int) -> tuple["Texts", Tensor]:
        """The best texts with one word more, `count` at most, and the row each goes on from."""
        score_BV = self.score_B[:, None] + last_BV.log_softmax(dim=-1)
        model_BV = self.log_probability_B[:, None] + logits_BV.log_softmax(dim=-1)
        best, rows, words = highest(score_BV, count)
        tokens = torch.cat([self.tokens_BT[rows], words[:, None]], dim=1)
        return Texts(tokens, best, model_BV[rows, words]), rows

    def sorted_out(
        self, settings: Sampling, new: int, beams: int
    ) -> tuple[list[Sample], list[int]]:
        """The texts that end after `new` words, and the rows of those that can go on."""
        ended, going = list[Sample](), list[int]()
        words = self.tokens_BT[:, -1].tolist()
        for i, (word, score) in enumerate(zip(words, self.score_B.tolist(), strict=True)):
            if score == NEVER or len(going) == beams:
                break
            stopped = word in settings.stop
            if stopped or new == settings.length:
                text = self.tokens_BT[i, -new:].tolist()
                ended.append(Sample(text, float(self.log_probability_B[i]), stopped, score))
            if not stopped:
                going.append(i)
        return ended, going


@torch.no_grad()
def beam(
    model: Any,
    prompt: Sequence[int],
    settings: Sampling,
    *,
    beams: int = 4,
    length_penalty: float = 1.0,
) -> list[Sample]:
    """The best texts that a search `beams` wide finds, the best first.

    Texts are compared by s / length^length_penalty, where s sums the log-probabilities of the new
    words after the filters, and length counts the new words: a penalty of 0 compares sums, 1 means.
    """
    check_type("settings", settings, Sampling, "Sampling(length=…)")
    check_search(beams, length_penalty)
    [prompt_T] = rows_of(model, [prompt], settings.length, settings.stop)
    zero_1 = torch.zeros(1, device=prompt_T.device)
    texts, found = Texts(prompt_T[None], zero_1, zero_1), list[Sample]()
    reader, unread_BT = Reader(model, len(prompt) + settings.length), texts.tokens_BT
    for new in range(1, settings.length + 1):
        with fast.enable(), reader.evaluating():
            logits_BV = reader.next_word(unread_BT)
            new_B = torch.full_like(texts.score_B, new - 1)
            *_, (_, last_BV) = settings.stages(logits_BV, texts.tokens_BT, new_B)
        # Each text can stop once for each stop word, so `beams` of so many go on, if any can.
        grown, rows = texts.longer(logits_BV, last_BV, beams * (1 + len(settings.stop)))
        ended, going = grown.sorted_out(settings, new, beams)
        found += ended
        if not going or new == settings.length:
            break
        texts = Texts(*(part[going] for part in grown))
        unread_BT = texts.tokens_BT[:, -1:]
        with fast.enable():
            reader.select(rows[going])

    def worth(text: Sample) -> float:
        return text.filtered_log_probability / len(text.tokens) ** length_penalty

    return sorted(found, key=worth, reverse=True)[:beams]


def check_search(beams: int, length_penalty: float) -> None:
    """Refuse settings with which no search is possible."""
    check_whole("beams", beams, least=1)
    ok = is_number(length_penalty) and math.fabs(length_penalty) <= 10
    require(
        ok, f"length_penalty is {shown(length_penalty)}: give -10 to 10; 0 compares sums, 1 means"
    )
