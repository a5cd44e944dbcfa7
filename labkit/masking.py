"""Who may look at whom.

One rule: a boolean says True where something takes part.  A mask says: this query may look at
this key.  Masks broadcast to [B, 1, Q, K], are joined with `&`, `|` and `~`, and the queries
are always the last Q of the K keys, so that memory needs no special case.

    causal(T)                       GPT, Transformer-XL with memory: causal(Q, K)
    causal(T) & window(n, T)        GPT-3's banded layers
    causal(T) & real(tokens, pad)   padded batches
    causal(T) & same_segment(ids)   packed documents
    causal(T) | prefix(n, T)        a language model that sees its prompt at once
    up_to(order), before(order)     XLNet's content and query streams

What is hidden from the model, the other half of masking, lives in hiding.py and is found here too.
"""

import torch
from torch import Tensor

from labkit.hiding import choose, choose_spans, choose_words, corrupt, order, ordinary

__all__ = [
    "before",
    "causal",
    "choose",
    "choose_spans",
    "choose_words",
    "corrupt",
    "itself",
    "order",
    "ordinary",
    "prefix",
    "real",
    "real_keys",
    "same_segment",
    "up_to",
    "window",
]

Device = torch.device | str | None


def _positions(queries: int, keys: int | None, device: Device) -> tuple[Tensor, Tensor]:
    """The places of the queries, as a column, and of the keys, as a row: the queries come last."""
    keys = queries if keys is None else keys
    if queries > keys:
        raise ValueError(
            f"{queries} queries but only {keys} keys: the queries are the last of the keys, "
            "so give at least as many keys"
        )
    place_K = torch.arange(keys, device=device)
    return place_K[keys - queries :, None], place_K[None, :]


def causal(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look at itself and at what came before it: j <= i."""
    i, j = _positions(queries, keys, device)
    return j <= i


def window(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look less than `size` positions away: |i - j| < size."""
    if size < 1:
        raise ValueError(f"a window of {size} positions sees nothing: give at least 1")
    i, j = _positions(queries, keys, device)
    return (i - j).abs() < size


def prefix(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """Every position may look at the first `size` positions: j < size."""
    i, j = _positions(queries, keys, device)
    return (j < size).expand(i.shape[0], j.shape[1])


def itself(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look at itself only: j = i."""
    i, j = _positions(queries, keys, device)
    return i == j


def real(tokens_BT: Tensor, pad: int) -> Tensor:
    """Every position may look at real tokens, none at padding: [B, 1, 1, T]."""
    return real_keys(tokens_BT != pad)


def real_keys(real_BT: Tensor) -> Tensor:
    """The same, from a table that is True at real tokens."""
    return real_BT[:, None, None, :]


def same_segment(ids_BT: Tensor) -> Tensor:
    """Positions of one document may look at each other: [B, 1, T, T]."""
    return (ids_BT[:, :, None] == ids_BT[:, None, :])[:, None]


def up_to(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's content stream: look at what is not later in the order; all may look at memory."""
    return _remember(order_BT[:, None, :] <= order_BT[:, :, None], memory)


def before(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's query stream: look at what is earlier in the order; all may look at memory."""
    return _remember(order_BT[:, None, :] < order_BT[:, :, None], memory)


def _remember(mask: Tensor, memory: int) -> Tensor:
    """Put `memory` columns that all may look at before a mask [B, T, T]; give [B, 1, T, M + T]."""
    seen = mask.new_ones(*mask.shape[:-1], memory)
    return torch.cat([seen, mask], dim=-1)[:, None]
