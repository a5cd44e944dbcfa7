"""Attention by the library's kernel, or by the formula where that is faster; and its memory."""

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from labkit import masking
from labkit.attention import KeysValues, attention_weights, check_scores
from labkit.layers import drop

LONG = 512
"""With more keys than this, the weights of all queries are too large to be kept for the backward
pass, if there is another way."""
SOUND = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The kernels that may take a mask. On recent GPUs torch prefers cuDNN's, which gives gradients of
NaN for some masks (pytorch/pytorch issue 196678) and wrong states in decoding (193893)."""


def attend(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    *,
    mask: Tensor | None = None,
    bias_BHQK: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor | None:
    """`labkit.attention.attend`, by the kernel or by the formula."""
    check_scores(q_BHQE, k_BHKE, mask)
    queries, keys = q_BHQE.shape[2], k_BHKE.shape[2]
    bare = mask is None and bias_BHQK is None and queries == keys
    if causal and not bare:
        earlier_QK = masking.causal(queries, keys, device=q_BHQE.device)
        mask, causal = earlier_QK if mask is None else mask & earlier_QK, False
    if formula_is_faster(q_BHQE, k_BHKE, dropout):
        if causal:
            # A bias, not a mask, which would be searched for queries that see nothing.
            hidden_QK = ~masking.causal(queries)
            zeros_QK = torch.zeros(hidden_QK.shape, dtype=dtype_of_products(q_BHQE))
            bias_QK = zeros_QK.masked_fill_(hidden_QK, -math.inf)
            bias_BHQK = bias_QK.expand(*q_BHQE.shape[:2], -1, -1)
        weights_BHQK = attention_weights(q_BHQE, k_BHKE, mask=mask, bias_BHQK=bias_BHQK)
        return drop(weights_BHQK, dropout) @ v_BHKE
    if bias_BHQK is not None and mask is not None:
        # A large finite number instead of -inf would turn a row where all is hidden into the mean
        # of all keys.
        mask = bias_BHQK.masked_fill(~mask, -math.inf)
    elif bias_BHQK is not None:
        mask = bias_BHQK
    return by_kernel(q_BHQE, k_BHKE, v_BHKE, mask, causal=causal, dropout=dropout)


def by_kernel(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    mask: Tensor | None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention by a kernel of the library, and with a mask on a GPU by one that is sound."""
    with sdpa_kernel(SOUND) if mask is not None and q_BHQE.is_cuda else nullcontext():
        return F.scaled_dot_product_attention(
            q_BHQE, k_BHKE, v_BHKE, attn_mask=mask, is_causal=causal, dropout_p=dropout
        )


def formula_is_faster(q_BHQE: Tensor, k_BHKE: Tensor, dropout: float) -> bool:
    """Whether the formula is faster than the library's kernel, which it is on a CPU in two cases.

    With dropout there is no fast kernel; in bfloat16 the kernel's backward pass takes two to four
    times as long as the formula's (`python -m labkit bench trainer attention`).
    """
    if q_BHQE.device.type != "cpu":
        return False
    if dtype_of_products(q_BHQE) == torch.bfloat16 and q_BHQE.requires_grad:
        return dropout > 0 or k_BHKE.shape[2] <= LONG
    return dropout > 0 and not torch.compiler.is_compiling()


def dtype_of_products(x: Tensor) -> torch.dtype:
    """The type in which matrix products of x are computed on a CPU."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


# ---- keys and values that grow in spare room --------------------------------------------------


class Buffer:
    """Space for keys and for values, [B, H, space, E] each; the first `filled` are written."""

    def __init__(self, old: KeysValues, space: int) -> None:
        batch, heads, _, each = old.k_BHKE.shape
        self.keys, self.values = (old.k_BHKE.new_empty(batch, heads, space, each) for _ in range(2))
        self.filled = 0
        self.put(*old)

    def put(self, k_BHKE: Tensor, v_BHKE: Tensor) -> None:
        """Write behind what is there."""
        count = k_BHKE.shape[2]
        self.keys.narrow(2, self.filled, count).copy_(k_BHKE)
        self.values.narrow(2, self.filled, count).copy_(v_BHKE)
        self.filled += count


class Growing(KeysValues):
    """Keys and values at the beginning of a buffer."""

    buffer: Buffer


def extended(old: KeysValues, k_BHQE: Tensor, v_BHQE: Tensor) -> KeysValues | None:
    """`KeysValues.extended` without gradients: new ones are written behind the old.

    So no token copies all the old ones. No older value looks at that part of the buffer, so each
    stays as it is.
    """
    # Of two precisions the plain version keeps the wider one.
    if torch.is_grad_enabled() or k_BHQE.dtype != old.k_BHKE.dtype:
        return None
    before, new = old.k_BHKE.shape[2], k_BHQE.shape[2]
    buffer = old.buffer if isinstance(old, Growing) else None
    # Another text may have gone on from the same value and written there already.
    if buffer is None or buffer.filled != before or before + new > buffer.keys.shape[2]:
        buffer = Buffer(old, max(2 * (before + new), 64))
    buffer.put(k_BHQE, v_BHQE)
    keys, values = (part.narrow(2, 0, buffer.filled) for part in (buffer.keys, buffer.values))
    grown = Growing(keys, values)
    grown.buffer = buffer
    return grown
