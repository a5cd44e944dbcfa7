"""Filters change the scores of the next word before it is drawn.

`at_temperature`, `top_k` (Fan et al. 2018), `nucleus` (Holtzman et al. 2020, section 3.1),
`repeat_less` (Keskar et al. 2019, section 4.1), `not_yet`.  Each is a function of scores, so they
compose in any order, and none of them ever leaves a row empty.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

NEVER = -math.inf
FEW = 32
"""So many of the best words are looked at before all are."""


def at_temperature(logits_BV: Tensor, temperature: float) -> Tensor:
    """softmax(logits / temperature): above 1 flatter, below 1 sharper, at 0 the best word only."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}: give 0 (always the best word) or more")
    if temperature == 0:
        best_B1 = logits_BV.argmax(dim=-1, keepdim=True)
        return torch.full_like(logits_BV, NEVER).scatter(-1, best_B1, 0.0)
    return logits_BV / temperature


def top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Only the k best words of each row, and those that equal the last of them."""
    if not 1 <= k <= logits_BV.shape[-1]:
        raise ValueError(
            f"top_k is {k}, and the vocabulary has {logits_BV.shape[-1]} words: "
            f"give 1 to {logits_BV.shape[-1]}, or None to keep all"
        )
    worst_B1 = logits_BV.topk(k, dim=-1).values[..., -1:]
    return logits_BV.masked_fill(logits_BV < worst_B1, NEVER)


def nucleus(logits_BV: Tensor, p: float) -> Tensor:
    """The smallest set of best words that holds the share p, and those that equal its last."""
    if not 0 <= p <= 1:
        raise ValueError(f"top_p is {p}: it is a share of the probability, give 0 to 1")
    if p == 1:
        return logits_BV
    # So many of the best nearly always hold p; only where they do not, all are sorted.
    least_B1, more_B = last_of_nucleus(logits_BV, p, FEW)
    if bool(more_B.any()):
        least_B1[more_B] = last_of_nucleus(logits_BV[more_B], p, logits_BV.shape[-1])[0]
    return logits_BV.masked_fill(logits_BV < least_B1, NEVER)


def last_of_nucleus(logits_BV: Tensor, p: float, count: int) -> tuple[Tensor, Tensor]:
    """The worst score that stays [B, 1] if the `count` best words hold p, and where more must."""
    if count < logits_BV.shape[-1]:
        best_BK, words_BK = logits_BV.topk(count, dim=-1)
        share_BK = logits_BV.softmax(dim=-1).gather(-1, words_BK)
    else:
        best_BK = falling(logits_BV)
        share_BK = best_BK.softmax(dim=-1)
    # A word stays while those above it hold less than p; the best always does.
    above_BK = share_BK.cumsum(dim=-1) - share_BK
    kept_B1 = (above_BK < p).sum(dim=-1, keepdim=True).clamp(min=1)
    return best_BK.gather(-1, kept_B1 - 1), kept_B1[:, 0] >= count


def falling(scores_BV: Tensor) -> Tensor:
    """The scores of each row, the best first."""
    if scores_BV.device.type == "cpu" and not scores_BV.requires_grad:
        # numpy sorts with the vector units of the processor: up to 30 times faster than torch.
        return torch.from_numpy(np.sort(scores_BV.numpy(), axis=-1)).flip(-1)
    return scores_BV.sort(dim=-1, descending=True).values


def repeat_less(logits_BV: Tensor, seen_BT: Tensor, penalty: float) -> Tensor:
    """Words that were seen lose: scores above 0 are divided by the penalty, others multiplied."""
    if not penalty > 0:
        raise ValueError(f"the penalty of repetition is {penalty}: give more than 0, 1 for none")
    score_BT = logits_BV.gather(-1, seen_BT)
    score_BT = torch.where(score_BT < 0, score_BT * penalty, score_BT / penalty)
    return logits_BV.scatter(-1, seen_BT, score_BT)


def not_yet(logits_BV: Tensor, words: Sequence[int]) -> Tensor:
    """These words are not allowed here, unless nothing else is."""
    banned_BV = logits_BV.clone()
    banned_BV[..., list(words)] = NEVER
    empty_B1 = (banned_BV == NEVER).all(dim=-1, keepdim=True)
    return torch.where(empty_B1, logits_BV, banned_BV)
