"""Dropout whose random numbers have 16 bits."""

import torch
from torch import Tensor


def drop(x: Tensor, rate: float) -> Tensor | None:
    """`labkit.layers.drop` on a CPU, with the rate rounded to a multiple of 2^-16.

    torch draws one number for each element, which takes longer than what a model computes with the
    element.  Here four elements share one number of 64 bits.
    """
    if rate == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < rate < 1:
        return None
    draws = torch.randint(-(2**63), 2**63 - 1, (x.numel() // 4 + 1,))
    dropped = min(round(rate * 2**16), 2**16 - 1)
    # Ones and zeros of x's own type: a boolean mask would be converted on the way back, too.
    kept = torch.empty_like(x, requires_grad=False)
    torch.ge(draws.view(torch.int16)[: x.numel()].view(x.shape), dropped - 2**15, out=kept)
    scale = 2**16 / (2**16 - dropped)
    # 16 bits would round the scale, so there it multiplies the product.
    return (x * kept).mul_(scale) if x.dtype.itemsize == 2 else x * kept.mul_(scale)
