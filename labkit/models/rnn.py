"""Three ways to represent a sentence before the Transformer: a bag, a recurrence, a convolution.

A bag of words is fast and knows no order; a recurrent network (Elman 1990; LSTM: Hochreiter and
Schmidhuber 1997; GRU: Cho et al. 2014) reads in order, one word after the other; a convolution
(Kim 2014) sees order within its kernels, all positions at once. Each gives states for every word,
and the head decides how to pool them: `Pooled(…, parts=("mean",))`, `("last",)` and `("max",)`.
Read `Elman` first.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from labkit.blocks import Backbone, States
from labkit.checks import check_choice, check_config
from labkit.recurrence import BothWays, LayerState, blank, lengths_of, only_real, run_layer


@dataclass(frozen=True)
class BagConfig:
    """The sizes of a bag of words."""

    vocabulary: int
    width: int = 128
    dropout: float = 0.0


class Bag(Backbone):
    """Each word for itself: the states are the words' vectors, and the head takes their mean."""

    config: BagConfig
    causal, attends = True, False

    def __init__(self, config: BagConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList()

    def forward(self, tokens_BT: Tensor, *, mask: Tensor | None = None) -> States:
        """The words' vectors; zero at padding."""
        return States((only_real(self.dropout(self.token(tokens_BT)), mask),))


@dataclass(frozen=True)
class RecurrentConfig:
    """The sizes of a recurrent network."""

    vocabulary: int
    width: int = 128
    layers: int = 1
    cell: str = "lstm"
    """elman, lstm or gru."""
    activation: str = "sigmoid"
    """The activation of the Elman network: sigmoid or tanh."""
    both_ways: bool = False
    """Read from the right as well; the states are then twice as wide."""
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choice("cell", self.cell, "elman", "lstm", "gru")
        check_choice("activation", self.activation, "sigmoid", "tanh")


class Elman(nn.Module):
    """h_t = f(W_h h_(t-1) + W_e e_t + b_1)"""

    def __init__(self, given: int, width: int, *, activation: str = "sigmoid") -> None:
        super().__init__()
        self.word = nn.Linear(given, width)
        self.state = nn.Linear(width, width, bias=False)
        self.activation = torch.sigmoid if activation == "sigmoid" else torch.tanh
        for weight in self.parameters():
            nn.init.uniform_(weight, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor | PackedSequence, h_1BD: Tensor) -> tuple[Any, Tensor]:
        """The states of all words, and the last one of each row, as nn.RNN gives them."""
        # The product with the words is one for all positions, that with the state one for each.
        if isinstance(x, PackedSequence):
            steps = self.word(x.data).split(x.batch_sizes.tolist())
        else:
            steps = self.word(x).unbind(1)
        h_BD, states = h_1BD[0], []
        for word in steps:
            # Of packed rows, the shorter ones stand last and have ended.
            going, ended = h_BD[: len(word)], h_BD[len(word) :]
            states.append(self.activation(self.state(going) + word))
            h_BD = torch.cat([states[-1], ended])
        if isinstance(x, PackedSequence):
            return PackedSequence(torch.cat(states), x.batch_sizes), h_BD.unsqueeze(0)
        return torch.stack(states, dim=1), h_BD.unsqueeze(0)


class Recurrent(Backbone):
    """e_t = E x_t;  each layer reads the states of the layer below, one after the other."""

    config: RecurrentConfig
    attends = False

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config, width=config.width * (2 if config.both_ways else 1))
        c = config
        self.causal = self.remembers = not c.both_ways
        # The second layer would read both halves of the first.
        self.two_ways = c.both_ways and c.layers == 1
        self.token = nn.Embedding(c.vocabulary, c.width)
        self.dropout = nn.Dropout(c.dropout)
        given = [c.width] + [self.width] * (c.layers - 1)
        self.blocks = nn.ModuleList(
            BothWays(self._cell(width), self._cell(width)) if c.both_ways else self._cell(width)
            for width in given
        )

    def _cell(self, given: int) -> nn.Module:
        c = self.config
        if c.cell == "elman":
            return Elman(given, c.width, activation=c.activation)
        return {"lstm": nn.LSTM, "gru": nn.GRU}[c.cell](given, c.width, batch_first=True)

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: tuple[LayerState, ...] | None = None,
    ) -> States:
        """The states of all layers; one way, also each layer's state after the last word."""
        c = self.config
        if c.both_ways and memory:
            raise ValueError(
                "a network that reads both ways cannot go on from a memory, for what comes from "
                "the right is not known yet: leave memory out or build it with both_ways=False"
            )
        lengths_B = lengths_of(mask, tokens_BT)
        x = self.dropout(self.token(tokens_BT))
        layers, kept = [x], []
        for i, block in enumerate(self.blocks):
            start = blank(x, *[c.width] * (2 if c.cell == "lstm" else 1))
            if c.both_ways:
                left, right, after, _ = block(x, x, start, start, lengths_B)
                y = torch.cat([left, right], dim=-1)
            else:
                y, after = run_layer(block, x, memory[i] if memory else start, lengths_B)
            x = self.dropout(y)
            layers.append(x)
            kept.append(after)
        return States(tuple(layers), None if c.both_ways else tuple(kept))


@dataclass(frozen=True)
class ConvolutionsConfig:
    """The sizes of a convolution with several kernels."""

    vocabulary: int
    width: int = 128
    channels: int = 128
    """Features that each kernel finds; the states are as wide as all of them together."""
    kernels: tuple[int, ...] = (3, 5, 11)
    """How many neighbouring words each kernel sees at once."""
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_config(self)
        if not self.kernels:
            raise ValueError("kernels is (): give the size of at least one kernel, such as (3,)")


class Convolutions(Backbone):
    """relu(kernel * words) for each kernel, side by side: n-grams of several lengths."""

    config: ConvolutionsConfig
    attends = False

    def __init__(self, config: ConvolutionsConfig) -> None:
        super().__init__(config, width=config.channels * len(config.kernels))
        c = config
        self.token = nn.Embedding(c.vocabulary, c.width)
        self.dropout = nn.Dropout(c.dropout)
        # Side by side, all kernels are one layer.
        kernels = [nn.Conv1d(c.width, c.channels, size, padding="same") for size in c.kernels]
        self.blocks = nn.ModuleList([nn.ModuleList(kernels)])

    def forward(self, tokens_BT: Tensor, *, mask: Tensor | None = None) -> States:
        """The words' vectors, and what the kernels find around each word; zero at padding."""
        # Beyond the last word a kernel sees zeros, however wide the padding is.
        x_BTD = only_real(self.dropout(self.token(tokens_BT)), mask)
        kernels: Any = self.blocks[0]
        found = [kernel(x_BTD.transpose(1, 2)).relu().transpose(1, 2) for kernel in kernels]
        y = self.dropout(torch.cat(found, dim=-1))
        return States((x_BTD, only_real(y, mask)))
