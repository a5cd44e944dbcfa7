"""What a model attends to, kept while it computes."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from labkit.attention import attention_weights
from labkit.layers import replacements
from labkit.masking import causal as causal_mask

ATTEND = "labkit.attention.attend"


@contextmanager
def watching() -> Iterator[list[Tensor]]:
    """Within this, the weights of every attention that a model computes are kept [B, H, Q, K]."""
    found: list[Tensor] = []

    def watch(
        q_BHQE: Tensor,
        k_BHKE: Tensor,
        v_BHKE: Tensor,
        *,
        mask: Tensor | None = None,
        bias_BHQK: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """Keep the weights and return None: the attention itself is computed as always."""
        if causal:
            earlier_QK = causal_mask(q_BHQE.shape[2], k_BHKE.shape[2], device=q_BHQE.device)
            mask = earlier_QK if mask is None else mask & earlier_QK
        found.append(attention_weights(q_BHQE, k_BHKE, mask=mask, bias_BHQK=bias_BHQK))

    before = replacements.get(ATTEND)
    replacements[ATTEND] = watch
    try:
        yield found
    finally:
        del replacements[ATTEND]
        if before is not None:
            replacements[ATTEND] = before
