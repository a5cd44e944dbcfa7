"""Filling blanks: which words stand where nothing is seen?

A masked model predicts each blank independently of the others: a text with two blanks gets two
good words that may not go together ("New Angeles").
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.blocks import evaluating
from labkit.checks import is_whole, require, shown
from labkit.heads import check_scores_words
from labkit.masking import real_keys, same_position
from labkit.models.elmo import ELMo
from labkit.models.xlnet import XLNet
from labkit.writing.reader import check_known, checked


@torch.no_grad()
def one_by_one(model: Any, tokens: Sequence[int], blanks: Sequence[int], *, mask: int) -> Tensor:
    """log p of every word at each blank, given all but the blanks: [blanks, V].

    A masked model reads [MASK] at the blanks; one with two streams does not attend to them.
    """
    text_1T, backbone = _checked(model, tokens, blanks, mask), model.backbone
    asked_B = torch.tensor(list(blanks), device=text_1T.device)
    hidden_1T = torch.zeros_like(text_1T, dtype=torch.bool)
    hidden_1T[:, asked_B] = True
    with evaluating(model):
        if not isinstance(backbone, XLNet):
            states = backbone(text_1T.masked_fill(hidden_1T, mask)).hidden[:, asked_B]
        else:
            length = text_1T.shape[1]
            seen = real_keys(~hidden_1T).expand(-1, 1, length, -1)
            # A hidden position may attend to itself: no other position attends to it.
            content = seen | same_position(length, device=text_1T.device)
            both = backbone.two_streams(text_1T, asked_B[None], mask=content, query_mask=seen)
            states = both.query.hidden
        scores_BV: Tensor = model.head(states[0]).float()
    return scores_BV.log_softmax(dim=-1)


def _checked(model: Any, tokens: Sequence[int], blanks: Sequence[int], mask: int) -> Tensor:
    """The text as a row, if the model can read it and the blanks are in it."""
    check_scores_words(model)
    backbone = model.backbone
    blanks = blanks.tolist() if hasattr(blanks, "tolist") else blanks
    several = isinstance(blanks, Iterable) and not isinstance(blanks, str)
    require(several, f"the blanks are {shown(blanks)}: give a list of positions, such as [3]")
    require(
        not backbone.causal,
        f"{type(backbone).__name__} sees only what comes before a blank: use "
        "labkit.writing.prompting, or a model that reads from both sides",
    )
    require(
        not isinstance(backbone, ELMo),
        "ELMo was not trained to fill blanks: "
        "give a LanguageModel of BERT or XLNet, or another that MaskedToken trained",
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
