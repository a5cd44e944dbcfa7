"""Attention masks: which queries may attend to which keys.

Masks are boolean, and True means that a query may attend to a key.  They broadcast to
[B, 1, Q, K] and are joined with `&`, `|` and `~`.  The queries are always the last Q of the K keys,
so that memory needs no special case.

    causal(T)                       GPT, Transformer-XL with memory: causal(Q, K)
    causal(T) & window(n, T)        GPT-3's banded layers
    causal(T) & real(tokens, pad)   padded batches
    causal(T) & same_segment(ids)   packed documents
    causal(T) | prefix(n, T)        a language model that sees its prompt at once
    up_to(order), before(order)     XLNet's content and query streams

`labkit.objectives.hiding` decides which words are hidden from a model.
"""

from typing import Any

import torch
from torch import Tensor

Device = torch.device | str | None


def _positions(queries: int, keys: int | None, device: Device) -> tuple[Tensor, Tensor]:
    """Positions of the queries, as a column, and of the keys, as a row: the queries come last."""
    keys = queries if keys is None else keys
    _check_sizes(0, queries=queries, keys=keys)
    if queries > keys:
        raise ValueError(
            f"{queries} queries but only {keys} keys: the queries are the last of the keys, "
            "so give at least as many keys"
        )
    position_K = torch.arange(keys, device=device)
    return position_K[keys - queries :, None], position_K[None, :]


def causal(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may attend to itself and to the positions before it: j <= i."""
    i, j = _positions(queries, keys, device)
    return j <= i


def window(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may attend to those less than `size` positions away: |i - j| < size."""
    _check_sizes(1, window=size)
    i, j = _positions(queries, keys, device)
    return (i - j).abs() < size


def prefix(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """Every position may attend to the first `size` positions: j < size."""
    _check_sizes(0, prefix=size)
    i, j = _positions(queries, keys, device)
    return (j < size).expand(i.shape[0], j.shape[1])


def same_position(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may attend to itself only: j = i."""
    i, j = _positions(queries, keys, device)
    return i == j


def real(tokens_BT: Tensor, pad: int) -> Tensor:
    """Every position may attend to real tokens, none to padding: [B, 1, 1, T]."""
    return real_keys(tokens_BT != pad)


def real_keys(real_BT: Tensor) -> Tensor:
    """The same, from a table that is True at real tokens."""
    return real_BT[:, None, None, :]


def same_segment(ids_BT: Tensor) -> Tensor:
    """Positions of one document may attend to each other: [B, 1, T, T]."""
    return (ids_BT[:, :, None] == ids_BT[:, None, :])[:, None]


def up_to(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's content stream: attend to what is not later in the order, and to memory."""
    return _remember(order_BT[:, None, :] <= order_BT[:, :, None], memory)


def before(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's query stream: attend to what is earlier in the order, and to memory."""
    return _remember(order_BT[:, None, :] < order_BT[:, :, None], memory)


def _remember(mask: Tensor, memory: int) -> Tensor:
    """Put `memory` columns that are True before a mask [B, T, T]; give [B, 1, T, M + T]."""
    seen = mask.new_ones(*mask.shape[:-1], memory)
    return torch.cat([seen, mask], dim=-1)[:, None]


def _check_sizes(least: int, **sizes: Any) -> None:
    """Refuse anything but whole numbers of positions, each at least `least`."""
    for name, size in sizes.items():
        if not isinstance(size, int) or not least <= size < 2**31:
            raise ValueError(
                f"{name} is {size!r} positions: give a whole number of at least {least}"
            )
