"""Filling blanks: which words stand where nothing is seen?

A masked model answers for each blank alone, given what is seen; a text with two blanks gets two
good words that may not go together ("New Angeles").  `fill` also asks in turn: the second blank
given the word of the first, as XLNet was trained to (Yang et al. 2019, section 2.5).  With a beam
as wide as the vocabulary that is exact: every pair of words has been weighed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.masking import itself, real_keys
from labkit.models.xlnet import XLNet


class Filling(NamedTuple):
    """Words for the blanks, in their order in the text, and how likely they are together."""

    words: tuple[int, ...]
    log_probability: float


def laws(model: Any, tokens_BT: Tensor, asked_B: Tensor, hidden_BT: Tensor, mask: int) -> Tensor:
    """log p(word at the asked place | all words that are not hidden): [B, V].

    A masked model reads [MASK] at hidden places; one with two streams does not look there at all.
    """
    backbone, rows_B = model.backbone, torch.arange(len(tokens_BT), device=tokens_BT.device)
    if isinstance(backbone, XLNet):
        length = tokens_BT.shape[1]
        seen = real_keys(~hidden_BT).expand(-1, 1, length, -1)
        # A place that nobody looks at may look at itself: its states reach no one else.
        content = seen | itself(length, device=tokens_BT.device)
        streams = backbone.two_streams(tokens_BT, asked_B[:, None], mask=content, query_mask=seen)
        hidden_BD = streams.query.hidden[:, 0]
    else:
        hidden_BD = backbone(tokens_BT.masked_fill(hidden_BT, mask)).hidden[rows_B, asked_B]
    return model.head(hidden_BD).float().log_softmax(dim=-1)


@torch.no_grad()
def one_by_one(model: Any, tokens: Sequence[int], blanks: Sequence[int], *, mask: int) -> Tensor:
    """log p of every word at each blank, given all but the blanks: [blanks, V]."""
    text_1T = _checked(model, tokens, blanks)
    hidden_1T = torch.zeros_like(text_1T, dtype=torch.bool)
    hidden_1T[:, list(blanks)] = True
    many = len(blanks)
    asked_B = torch.tensor(list(blanks), device=text_1T.device)
    return laws(model, text_1T.expand(many, -1), asked_B, hidden_1T.expand(many, -1), mask)


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

    Jointly: blank after blank, each given the words of those before, keeping the `width` best (all
    of them, which is exact, when None).  Otherwise the product of what each blank says alone.
    """
    text_1T = _checked(model, tokens, blanks)
    alone = one_by_one(model, tokens, blanks, mask=mask)
    ways_BN, score_B = alone.new_zeros(1, 0, dtype=torch.long), alone.new_zeros(1)
    for i, place in enumerate(blanks):
        if jointly and i:
            law_BV = torch.cat(
                [_next(model, text_1T, blanks, some, place, mask) for some in ways_BN.split(rows)]
            )
        else:
            law_BV = alone[i].expand(len(ways_BN), -1)
        total_BV = score_B[:, None] + law_BV
        last = i + 1 == len(blanks)
        wanted = keep if last else total_BV.numel() if width is None else width
        score_B, flat = total_BV.flatten().topk(min(wanted, total_BV.numel()))
        row, word = flat // total_BV.shape[1], flat % total_BV.shape[1]
        ways_BN = torch.cat([ways_BN[row], word[:, None]], dim=1)
    order = sorted(range(len(blanks)), key=lambda i: blanks[i])
    found = zip(ways_BN[:, order].tolist(), score_B.tolist(), strict=True)
    return [Filling(tuple(words), score) for words, score in found]


def _next(
    model: Any, text_1T: Tensor, blanks: Sequence[int], ways_BN: Tensor, place: int, mask: int
) -> Tensor:
    """The law of the next blank for each way to fill the first ones."""
    known = list(blanks[: ways_BN.shape[1]])
    text_BT = text_1T.repeat(len(ways_BN), 1)
    text_BT[:, known] = ways_BN
    hidden_BT = torch.zeros_like(text_BT, dtype=torch.bool)
    hidden_BT[:, list(blanks[ways_BN.shape[1] :])] = True
    return laws(model, text_BT, torch.full_like(text_BT[:, 0], place), hidden_BT, mask)


def _checked(model: Any, tokens: Sequence[int], blanks: Sequence[int]) -> Tensor:
    """The text as a row, after a look at the blanks."""
    wrong = [place for place in blanks if not 0 <= place < len(tokens)]
    if not blanks or wrong or len(set(blanks)) < len(blanks):
        raise ValueError(
            f"the blanks are {list(blanks)} in a text of {len(tokens)} tokens: give different "
            f"places from 0 to {len(tokens) - 1}, at least one"
        )
    return torch.tensor([list(tokens)], device=next(model.parameters()).device)
