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

__all__ = [
    "before",
    "causal",
    "prefix",
    "real",
    "real_keys",
    "same_position",
    "same_segment",
    "up_to",
    "window",
]

Device = torch.device | str | None


def check_tokens(tokens_BT: Tensor, vocabulary: int) -> None:
    """Refuse what is no table of the numbers of words; 0: a vocabulary of any size."""
    if not isinstance(tokens_BT, Tensor):
        raise ValueError(f"the tokens are a {type(tokens_BT).__name__}: give a tensor [B, T]")
    whole = tokens_BT.dtype in (torch.int64, torch.int32)
    if tokens_BT.dim() != 2 or not tokens_BT.numel() or not whole:
        raise ValueError(
            f"the tokens are {str(tokens_BT.dtype).removeprefix('torch.')} of shape "
            f"{tuple(tokens_BT.shape)}: give whole numbers [B, T], at least one row of one token"
        )
    advice = "use the tokenizer that the model was trained with"
    check_range(tokens_BT, vocabulary, "token", "in the vocabulary", advice)


def check_answers(targets_N: Tensor, known: int) -> None:
    """Refuse right answers that the head does not know; 0: it may know any number of them.

    torch would leave out the answer -100 in silence.
    """
    if len(targets_N) and not torch.compiler.is_compiling():
        advice = "give its labels, or words of the tokenizer that it was trained with"
        check_range(targets_N, known, "answer", "among those of the head", advice)


def check_segments(segments_BT: Tensor | None, tokens_BT: Tensor, known: int) -> None:
    """Refuse segments that are not numbered like the tokens; 0: there may be any number of them."""
    if segments_BT is None or torch.compiler.is_compiling():
        return
    if segments_BT.shape != tokens_BT.shape or segments_BT.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"segments are {str(segments_BT.dtype).removeprefix('torch.')} of shape "
            f"{tuple(segments_BT.shape)}: give a whole number for each token, "
            f"{tuple(tokens_BT.shape)}"
        )
    check_range(segments_BT, known, "segment", "in the model", "number them from 0 on")


def check_range(numbers: Tensor, known: int, name: str, where: str, advice: str) -> None:
    """Refuse numbers below 0, or from `known` on unless that is 0."""
    if numbers.device.type == "cuda":
        check_without_waiting(numbers, known, name)
    if numbers.device.type != "cpu":
        return
    low, high = map(int, numbers.aminmax())
    if low < 0 or 0 < known <= high:
        has = f"it has 0 to {known - 1}" if known else "numbers begin at 0"
        raise ValueError(f"{name} {low if low < 0 else high} is not {where}: {has}; {advice}")


def check_without_waiting(numbers: Tensor, known: int, name: str = "token") -> None:
    """Let a GPU stop at a number that is not known, when it comes to it.

    The CPU would have to wait for the answer, so it does not say which number it is.
    """
    fine = (numbers >= 0) & ((numbers < known) | (known == 0))
    torch._assert_async(fine.all(), f"a {name} is not in the vocabulary of {known}")


def check_mask(mask: Tensor | None, *shape: int | None, name: str = "the mask") -> None:
    """Refuse a mask that is not boolean, or does not broadcast to the shape; None: any size."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise ValueError(f"{name} is a {type(mask).__name__}: give a boolean tensor")
    fits = mask.dim() <= len(shape) and all(
        size in (1, wanted) or wanted is None
        for size, wanted in zip(reversed(mask.shape), reversed(shape), strict=False)
    )
    if mask.dtype != torch.bool or not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} is {str(mask.dtype).removeprefix('torch.')} of shape {tuple(mask.shape)}: "
            f"give a boolean one that broadcasts to ({wanted}); True takes part"
        )


def _check_sizes(least: int, **sizes: Any) -> None:
    """Refuse numbers of positions that are no whole numbers."""
    for name, size in sizes.items():
        if not isinstance(size, int) or not least <= size < 2**31:
            raise ValueError(
                f"{name} is {size!r} positions: give a whole number of at least {least}"
            )


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
