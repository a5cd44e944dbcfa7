"""The best word, and the nucleus from a few of the best words, where they hold the share.

numpy looks for both with the vector units of the processor, several times faster than torch.
"""

import numpy as np
import torch
from torch import Tensor

from labkit.heads import exact

FEW = 256
"""How many of the best words are tried before all words are sorted."""
NUMPYS = (torch.float32, torch.float64)
"""The types that numpy has, too."""


def nucleus(logits_BV: Tensor, p: float, *, within: bool = False) -> Tensor | None:
    """`labkit.sampling.nucleus`: all words of a row are sorted only where the best do not hold p.

    The shares and their sums are the same numbers as there, so that the same words stay.
    """
    if within or not (isinstance(p, float) and 0 < p < 1 and logits_BV.shape[-1] > FEW):
        return None
    share_BV = exact(logits_BV).softmax(dim=-1)
    least_B1, last_B1 = last_of(best(share_BV, FEW), p)
    more_B = last_B1[..., 0] == FEW - 1
    if bool(more_B.any()):
        least_B1[more_B] = last_of(best(share_BV[more_B], share_BV.shape[-1]), p)[0]
    return logits_BV.masked_fill(share_BV < least_B1, -torch.inf)


def best_word(logits_BV: Tensor) -> Tensor | None:
    """`labkit.sampling.best_word`: NaN counts as the highest score there as here."""
    if logits_BV.device.type != "cpu" or logits_BV.requires_grad or logits_BV.dtype not in NUMPYS:
        return None
    return torch.from_numpy(logits_BV.numpy().argmax(axis=-1))


def last_of(best_BK: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The smallest of the sorted shares that stays, and its number."""
    last_B1 = (best_BK.cumsum(dim=-1)[..., :-1] < p).sum(dim=-1, keepdim=True)
    return best_BK.gather(-1, last_B1), last_B1


def best(share_BV: Tensor, count: int) -> Tensor:
    """The largest shares of each row, the largest first."""
    if share_BV.device.type != "cpu" or share_BV.requires_grad:
        return share_BV.topk(count, dim=-1).values
    some = share_BV.numpy()
    if count < some.shape[-1]:
        some = np.partition(some, -count, axis=-1)[..., -count:]
    return torch.from_numpy(np.sort(some, axis=-1)).flip(-1)
