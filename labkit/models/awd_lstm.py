"""AWD-LSTM: a plain LSTM language model, well regularised; ULMFiT's encoder.

Merity, Keskar and Socher 2018, "Regularizing and optimizing LSTM language models", section 4;
Howard and Ruder 2018 (ULMFiT), section 3.1. Read `labkit.recurrence` first.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from labkit.blocks import Backbone, States
from labkit.recurrence import (
    LayerState,
    LockedDropout,
    WeightDropLSTM,
    WordDropout,
    blank,
    lengths_of,
    run_layer,
)


@dataclass(frozen=True)
class AWDLSTMConfig:
    """The sizes and dropout rates of an AWD-LSTM."""

    vocabulary: int
    width: int = 400
    """Width of the words' vectors and of the last layer: the head can share the embedding."""
    inner: int = 1150
    """Width of the layers below the last."""
    layers: int = 3
    dropout: float = 0.4
    """Dropout on the features that the head sees."""
    hidden_dropout: float = 0.25
    """Dropout on the features between two layers."""
    input_dropout: float = 0.4
    """Dropout on the features of the words' vectors."""
    embedding_dropout: float = 0.1
    """Dropout of whole words."""
    weight_dropout: float = 0.5
    """Dropout on the weights from state to state."""


class AWDLSTM(Backbone):
    """h_0 = drop(E tokens);  h_i = drop(LSTM_i(h_(i-1))), the LSTM's inner weights dropped too.

    The last two of `States.layers` are the last LSTM's states as they are, whose steps TAR holds
    small, and after dropout, which AR holds small and which the head sees.
    """

    config: AWDLSTMConfig
    causal, attends, remembers = True, False, True

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocabulary, c.width)
        nn.init.uniform_(self.token.weight, -0.1, 0.1)
        self.word_dropout = WordDropout(c.embedding_dropout)
        self.input_dropout = LockedDropout(c.input_dropout)
        self.hidden_dropout = LockedDropout(c.hidden_dropout)
        self.dropout = LockedDropout(c.dropout)
        self.widths = [*[c.inner] * (c.layers - 1), c.width]
        self.blocks = nn.ModuleList(
            WeightDropLSTM(given, made, weight_dropout=c.weight_dropout)
            for given, made in zip([c.width, *self.widths], self.widths, strict=False)
        )

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: tuple[LayerState, ...] | None = None,
    ) -> States:
        """The states of all layers, and each layer's (h, c) after the last word of each row."""
        lengths_B = lengths_of(mask, tokens_BT)
        x = self.input_dropout(self.word_dropout(tokens_BT, self.token))
        layers, kept = [x], []
        for i, lstm in enumerate(self.blocks):
            given = self.hidden_dropout(x) if i > 0 else x
            before = memory[i] if memory else blank(x, self.widths[i], self.widths[i])
            x, after = run_layer(lstm, given, before, lengths_B)
            layers.append(x)
            kept.append(after)
        layers.append(self.dropout(x))
        return States(tuple(layers), tuple(kept))
