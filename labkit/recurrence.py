"""Reading one word after the other: what all recurrent models share.

A recurrent model's memory is its state after the last real word. It is an argument and a result:
tensors [B, D], rows first, so that whoever carries it on can drop the memory of some rows.
Padding stands after the text. Read `read` first.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from labkit.blocks import States

Memory = tuple[Tensor, ...]
"""The state of one layer: (h,) or, of an LSTM, (h, c)."""


def real_of(mask: Tensor | None, tokens_BT: Tensor) -> Tensor | None:
    """Which tokens are real [B, T], from a mask that leaves out padding and nothing else."""
    if mask is None:
        return None
    rows, positions = tokens_BT.shape[:2]
    allowed = {(rows, 1, 1, positions), (1, 1, 1, positions)}
    if mask.dtype != torch.bool or tuple(mask.shape) not in allowed:
        raise ValueError(
            f"the mask is {mask.dtype} of shape {tuple(mask.shape)}: this model has no attention "
            "and can only leave out padding, so give real(tokens, pad), which is boolean and has "
            f"the shape ({rows}, 1, 1, {positions})"
        )
    return mask[:, 0, 0].expand(rows, positions)


def lengths_of(mask: Tensor | None, tokens_BT: Tensor) -> Tensor | None:
    """How many real words each row has, on the CPU; None when nothing is padded."""
    real_BT = real_of(mask, tokens_BT)
    if real_BT is None:
        return None
    real_BT = real_BT.cpu()
    if bool((real_BT[:, 1:] & ~real_BT[:, :-1]).any()):
        raise ValueError(
            "there is padding before or between the words of a row, and a recurrent model would "
            "read it: put all padding at the end"
        )
    return None if bool(real_BT.all()) else real_BT.sum(dim=1)


def blank(x_BTD: Tensor, *widths: int) -> Memory:
    """The memory of one who has read nothing: zeros."""
    return tuple(x_BTD.new_zeros(len(x_BTD), width) for width in widths)


def read(
    cell: nn.Module, x_BTD: Tensor, memory: Memory, lengths_B: Tensor | None = None
) -> tuple[Tensor, Memory]:
    """Run one layer over the texts: its states, zero at padding, and its memory of each row."""
    if lengths_B is None:
        return _run(cell, x_BTD, memory)
    # Only packed rows stop where their text stops: the cell of an LSTM shows at the end alone.
    order_B = lengths_B.argsort(descending=True, stable=True)
    back_B = order_B.argsort().to(x_BTD.device)
    # A row without words is run as if it had one, and put right below.
    lengths_at_least_1 = lengths_B[order_B].clamp(min=1)
    order_B = order_B.to(x_BTD.device)
    packed = pack_padded_sequence(x_BTD[order_B], lengths_at_least_1, batch_first=True)
    y, new = _run(cell, packed, tuple(part[order_B] for part in memory))
    y, _ = pad_packed_sequence(y, batch_first=True, total_length=x_BTD.shape[1])
    some_B1 = (lengths_B > 0).to(x_BTD.device)[:, None]
    pairs = zip(new, memory, strict=True)
    kept = tuple(torch.where(some_B1, after[back_B], before) for after, before in pairs)
    return y[back_B] * some_B1[:, :, None], kept


def _run(cell: nn.Module, x: Any, memory: Memory) -> tuple[Any, Memory]:
    """Call a layer in torch's way: a state has an axis for layers, and only an LSTM's is a pair."""
    state = tuple(part.unsqueeze(0) for part in memory)
    y, new = cell(x, state if len(state) == 2 else state[0])
    return y, tuple(part.squeeze(0) for part in (new if len(state) == 2 else (new,)))


def turned(x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    """Each row from its last real word to its first; padding stays at the end."""
    if lengths_B is None:
        return x_BTD.flip(1)
    place = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    lengths = lengths_B.to(x_BTD.device)[:, None]
    source_BT = torch.where(place < lengths, lengths - 1 - place, place)
    rows = torch.arange(len(x_BTD), device=x_BTD.device)[:, None]
    return x_BTD[rows, source_BT]


class BothWays(nn.Module):
    """One layer twice: one reads from the left, the other from the right."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(
        self, left: Tensor, right: Tensor, memory: Memory, start: Memory, lengths_B: Tensor | None
    ) -> tuple[Tensor, Tensor, Memory]:
        """The states of both, word by word, and the memory of the one that reads from the left.

        What comes from the right has no past to remember: it starts from `start` in any text.
        """
        y_left, after = read(self.left, left, memory, lengths_B)
        y_right, _ = read(self.right, turned(right, lengths_B), start, lengths_B)
        return y_left, turned(y_right, lengths_B), after


def halves(states: States) -> tuple[States, States]:
    """States of a model that reads both ways: those from the left, and those from the right.

    At a position the first know the words up to it, the second the words from it on.
    """
    left, right = zip(*(layer.chunk(2, dim=-1) for layer in states.layers), strict=True)
    return States(tuple(left), states.memory), States(tuple(right))
