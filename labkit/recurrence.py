"""Recurrent layers, their three kinds of dropout, and the penalties AR and TAR.

Merity, Keskar and Socher 2018 (AWD-LSTM), sections 3 and 4. Ordinary dropout draws a new mask at
each position. Here one mask holds for the whole text: of the features (locked), of the words, or of
the weights from state to state. All of them keep the expected value and do nothing outside of
training.

A recurrent model's memory is its state after the last real word. It is an argument and a result:
tensors [B, D], rows first, so that the memory of some rows can be dropped.
Padding stands after the text. Read `LockedDropout` and `run_layer` first.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from labkit.layers import check_rate

# On a GPU torch would like weights to lie side by side; dropped ones are new each time and cannot.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")


class LockedDropout(nn.Module):
    """Drops the same features at all positions of a text (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = check_rate(rate)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x times one mask [B, 1, D]."""
        if not self.training or self.rate == 0:
            return x_BTD
        kept_B1D = torch.empty_like(x_BTD[:, :1]).bernoulli_(1 - self.rate)
        return x_BTD * (kept_B1D / (1 - self.rate))


class WordDropout(nn.Module):
    """Drops words: every occurrence of a dropped word, in the whole batch, becomes zero."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = check_rate(rate)

    def forward(self, tokens_BT: Tensor, embedding: nn.Embedding) -> Tensor:
        """The vectors of the tokens, as if rows of the embedding were zero: [B, T, D]."""
        x_BTD = embedding(tokens_BT)
        if not self.training or self.rate == 0:
            return x_BTD
        # The mask of the rows is looked up like the rows: no copy of the whole table is made.
        kept_V = x_BTD.new_empty(embedding.num_embeddings).bernoulli_(1 - self.rate)
        return x_BTD * (kept_V / (1 - self.rate))[tokens_BT].unsqueeze(-1)


class WeightDropLSTM(nn.LSTM):
    """One layer of LSTM that drops weights from state to state (Wan et al. 2013: DropConnect).

    The weights are dropped once for a whole text, so one kernel still runs the whole text. It
    is given the dropped weights as an argument; the module keeps only the raw ones.
    """

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, weight_dropout: float) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        self.weight_dropout = check_rate(weight_dropout)

    def forward(  # type: ignore[override]
        self, x: Tensor | PackedSequence, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """What nn.LSTM gives, from texts of one length or packed ones, longest first."""
        recurrent_weights = F.dropout(self.weight_hh_l0, self.weight_dropout, self.training)
        weights = (self.weight_ih_l0, recurrent_weights, self.bias_ih_l0, self.bias_hh_l0)
        one_layer = (True, 1, 0.0, self.training, False)  # biases, layers, dropout, …, both ways
        if not isinstance(x, PackedSequence):
            y, h, c = torch.lstm(x, state, weights, *one_layer, True)
            return y, (h, c)
        data, h, c = torch.lstm(x.data, x.batch_sizes, state, weights, *one_layer)
        return PackedSequence(data, x.batch_sizes), (h, c)


def activation(dropped_BTD: Tensor) -> Tensor:
    """AR: how large the last states are after dropout, the mean square at each position [B, T]."""
    return dropped_BTD.square().mean(dim=-1)


def temporal_activation(raw_BTD: Tensor) -> Tensor:
    """TAR: how far the last states move before dropout, the mean square of each step [B, T - 1]."""
    return (raw_BTD[:, 1:] - raw_BTD[:, :-1]).square().mean(dim=-1)


# ---- recurrent layers ----------------------------------------------------------------------------


LayerState = tuple[Tensor, ...]
"""The state of one layer: (h,) or, of an LSTM, (h, c)."""


def real_of(mask: Tensor | None, tokens_BT: Tensor) -> Tensor | None:
    """Which tokens are real [B, T], from a mask that leaves out padding and nothing else."""
    if mask is None:
        return None
    rows, positions = tokens_BT.shape[:2]
    return mask.expand(rows, 1, 1, positions)[:, 0, 0]


def only_real(x_BTD: Tensor, mask: Tensor | None) -> Tensor:
    """x, zero at padding."""
    real_BT = real_of(mask, x_BTD[:, :, 0])
    return x_BTD if real_BT is None else x_BTD * real_BT[:, :, None]


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


def blank(x_BTD: Tensor, *widths: int) -> LayerState:
    """The memory before the first word: zeros."""
    return tuple(x_BTD.new_zeros(len(x_BTD), width) for width in widths)


def run_layer(
    cell: nn.Module, x_BTD: Tensor, memory: LayerState, lengths_B: Tensor | None = None
) -> tuple[Tensor, LayerState]:
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


def _run(cell: nn.Module, x: Any, memory: LayerState) -> tuple[Any, LayerState]:
    """Call a layer in torch's way: a state has an axis for layers, and only an LSTM's is a pair."""
    state = tuple(part.unsqueeze(0) for part in memory)
    with _in_weights_format(cell, x, state) as (x, state):
        y, new = cell(x, state if len(state) == 2 else state[0])
    return y, tuple(part.squeeze(0) for part in (new if len(state) == 2 else (new,)))


@contextmanager
def _in_weights_format(
    cell: nn.Module, x: Any, state: LayerState
) -> Iterator[tuple[Any, LayerState]]:
    """Let torch's recurrent kernels compute in the format of the weights on a GPU.

    Under autocast they would compute in float16, even where bfloat16 is asked for, and float16
    needs a loss scale.
    """
    on_gpu = (x.data if isinstance(x, PackedSequence) else x).is_cuda
    if not on_gpu or not isinstance(cell, nn.RNNBase):
        yield x, state
        return
    dtype = next(cell.parameters()).dtype
    with torch.autocast("cuda", enabled=False):
        yield x.to(dtype), tuple(part.to(dtype) for part in state)


def turned(x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    """Each row from its last real word to its first; padding stays at the end."""
    if lengths_B is None:
        return x_BTD.flip(1)
    position = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    lengths = lengths_B.to(x_BTD.device)[:, None]
    source_BT = torch.where(position < lengths, lengths - 1 - position, position)
    rows = torch.arange(len(x_BTD), device=x_BTD.device)[:, None]
    return x_BTD[rows, source_BT]


class BothWays(nn.Module):
    """One layer twice: one reads from the left, the other from the right."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        memory: LayerState,
        start: LayerState,
        lengths_B: Tensor | None,
    ) -> tuple[Tensor, Tensor, LayerState, LayerState]:
        """The states of both, word by word, and the memory of each.

        The direction from the left goes on from `memory`, the one from the right from `start`,
        which is usually blank: what it has read stands before this text, and it reads backwards.
        """
        y_left, after = run_layer(self.left, left, memory, lengths_B)
        y_right, before = run_layer(self.right, turned(right, lengths_B), start, lengths_B)
        return y_left, turned(y_right, lengths_B), after, before
