"""Keys and values that grow in spare room, without a copy of all of them for each new token."""

import torch
from torch import Tensor

from labkit.attention import KeysValues


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

    No older value looks at that part of the buffer, so each stays as it is.
    """
    if torch.is_grad_enabled():
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
