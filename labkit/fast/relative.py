"""Attention by distance in one kernel of a GPU, which picks each score where it needs it.

Written out, the scores of all distances are gathered into a table of all queries and keys, and the
softmax reads and writes such tables again. FlexAttention (Dong et al. 2024) adds the score while a
tile of the products is still in the fast memory of the chip.
"""

import math

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from labkit.attention import check_scores


def attend_by_distance(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    scores_BHQR: Tensor,
    positions: Tensor,
    *,
    mask: Tensor | None = None,
    bias_BHQK: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor | None:
    """`labkit.attention.attend_by_distance` in a compiled model on a GPU; None elsewhere.

    FlexAttention drops no weights, and without the compiler it is slower than the formula.
    """
    compiled = torch.compiler.is_compiling() and q_BHQE.device.type == "cuda"
    if not compiled or bias_BHQK is not None or dropout > 0:
        return None
    return by_flex(q_BHQE, k_BHKE, v_BHKE, scores_BHQR, positions, mask)


def by_flex(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    scores_BHQR: Tensor,
    positions: Tensor,
    mask: Tensor | None,
) -> Tensor:
    """softmax(q k' / sqrt(E) + the score of the distance) v, over the keys that take part."""
    check_scores(q_BHQE, k_BHKE, mask)
    (batch, _, queries, _), keys = q_BHQE.shape, k_BHKE.shape[2]
    first_BQ = (keys - 1 - positions).expand(batch, queries)
    mask_BQK = None if mask is None else mask.expand(batch, 1, queries, keys)[:, 0]

    def with_distance(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = score + scores_BHQR[b, h, i, first_BQ[b, i] + j]
        return score if mask_BQK is None else torch.where(mask_BQK[b, i, j], score, -math.inf)

    # Autocast does not know FlexAttention.
    dtype = q_BHQE.dtype
    if torch.is_autocast_enabled(q_BHQE.device.type):
        dtype = torch.get_autocast_dtype(q_BHQE.device.type)
    q, k, v = (part.to(dtype) for part in (q_BHQE, k_BHKE, v_BHKE))
    y_BHQE = flex_attention(q, k, v, score_mod=with_distance)
    assert isinstance(y_BHQE, Tensor)
    return y_BHQE
