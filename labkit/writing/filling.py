"""Filling blanks: which words stand where nothing is seen?

A masked model predicts each blank independently of the others; a text with two blanks gets two
good words that may not go together ("New Angeles").  `fill` can also predict one blank after the
other, the second given the word of the first, as XLNet was trained to (Yang et al. 2019, section
2.5).  With a beam as wide as the vocabulary that is exact: every combination has been scored.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.blocks import evaluating
from labkit.checks import check_whole, is_whole, require, shown
from labkit.masking import real_keys, same_position
from labkit.models.xlnet import XLNet
from labkit.writing.reader import check_known, checked, highest


class Filling(NamedTuple):
    """Words for the blanks, in their order in the text, and how likely they are together."""

    words: tuple[int, ...]
    log_probability: float


def log_probabilities(
    model: Any, tokens_BT: Tensor, asked_B: Tensor, hidden_BT: Tensor, mask: int
) -> Tensor:
    """log p(word at the asked position | all words that are not hidden): [B, V].

    A masked model reads [MASK] at hidden positions; one with two streams does not attend to them.
    """
    backbone, rows_B = model.backbone, torch.arange(len(tokens_BT), device=tokens_BT.device)
    with evaluating(model):
        if not isinstance(backbone, XLNet):
            states = backbone(tokens_BT.masked_fill(hidden_BT, mask))
            return _log_softmax(model, states.hidden[rows_B, asked_B])
        length = tokens_BT.shape[1]
        seen = real_keys(~hidden_BT).expand(-1, 1, length, -1)
        # A hidden position may attend to itself: no other position attends to it.
        content = seen | same_position(length, device=tokens_BT.device)
        streams = backbone.two_streams(tokens_BT, asked_B[:, None], mask=content, query_mask=seen)
        return _log_softmax(model, streams.query.hidden[:, 0])


def _log_softmax(model: Any, hidden_BD: Tensor) -> Tensor:
    scores_BV: Tensor = model.head(hidden_BD).float()
    return scores_BV.log_softmax(dim=-1)


@torch.no_grad()
def one_by_one(model: Any, tokens: Sequence[int], blanks: Sequence[int], *, mask: int) -> Tensor:
    """log p of every word at each blank, given all but the blanks: [blanks, V]."""
    text_1T = _checked(model, tokens, blanks, mask)
    hidden_1T = torch.zeros_like(text_1T, dtype=torch.bool)
    hidden_1T[:, list(blanks)] = True
    many = len(blanks)
    asked_B = torch.tensor(list(blanks), device=text_1T.device)
    texts_BT, hidden_BT = text_1T.expand(many, -1), hidden_1T.expand(many, -1)
    return log_probabilities(model, texts_BT, asked_B, hidden_BT, mask)


@torch.no_grad()
def fill(
    model: Any,
    tokens: Sequence[int],
    blanks: Sequence[int],
    *,
    mask: int,
    jointly: bool = True,
    keep: int = 5,
    width: int | None = None,
    rows: int = 256,
) -> list[Filling]:
    """The likeliest ways to fill the blanks, the best first.

    Jointly: one blank after the other, each given the words of those before, keeping the `width`
    best (all of them, which is exact, when None).  Otherwise the product of the distributions that
    each blank has by itself.
    """
    for name, count in (("keep", keep), ("rows", rows), ("width", 1 if width is None else width)):
        check_whole(name, count, least=1)
    text_1T = _checked(model, tokens, blanks, mask)
    alone = one_by_one(model, tokens, blanks, mask=mask)
    ways_BN, score_B = alone.new_zeros(1, 0, dtype=torch.long), alone.new_zeros(1)
    for i, position in enumerate(blanks):
        if jointly and i:
            some = ways_BN.split(rows)
            parts = (given_earlier_blanks(model, text_1T, blanks, s, position, mask) for s in some)
            log_p_BV = torch.cat(list(parts))
        else:
            log_p_BV = alone[i].expand(len(ways_BN), -1)
        total_BV = score_B[:, None] + log_p_BV
        last = i + 1 == len(blanks)
        # Alone, words that come later score the same after any others: what is not among the `keep`
        # best now has that many better ones in the end, too.
        few = last or not jointly
        wanted = keep if few else total_BV.numel() if width is None else width
        score_B, row, word = highest(total_BV, wanted)
        ways_BN = torch.cat([ways_BN[row], word[:, None]], dim=1)
    order = sorted(range(len(blanks)), key=lambda i: blanks[i])
    found = zip(ways_BN[:, order].tolist(), score_B.tolist(), strict=True)
    return [Filling(tuple(words), score) for words, score in found]


def given_earlier_blanks(
    model: Any, text_1T: Tensor, blanks: Sequence[int], ways_BN: Tensor, position: int, mask: int
) -> Tensor:
    """log p of every word at the next blank for each way to fill the first ones: [B, V]."""
    text_BT = text_1T.repeat(len(ways_BN), 1)
    text_BT[:, list(blanks[: ways_BN.shape[1]])] = ways_BN
    hidden_BT = torch.zeros_like(text_BT, dtype=torch.bool)
    hidden_BT[:, list(blanks[ways_BN.shape[1] :])] = True
    asked_B = torch.full_like(text_BT[:, 0], position)
    return log_probabilities(model, text_BT, asked_B, hidden_BT, mask)


def _checked(model: Any, tokens: Sequence[int], blanks: Sequence[int], mask: int) -> Tensor:
    """The text as a row, if the model can read it and the blanks are in it."""
    backbone = model.backbone
    require(
        not backbone.causal,
        f"{type(backbone).__name__} sees only what stands before a blank: use "
        "labkit.writing.prompting, or a model that reads from both sides",
    )
    row_T = checked(model, tokens, "the text")
    check_known(model, [mask], "`mask`")
    ok = bool(blanks) and all(is_whole(blank) and 0 <= blank < len(row_T) for blank in blanks)
    require(
        ok and len(set(blanks)) == len(blanks),
        f"the blanks are {shown(list(blanks))} in a text of {len(row_T)} tokens: give different "
        f"positions from 0 to {len(row_T) - 1}, at least one",
    )
    return row_T[None]
