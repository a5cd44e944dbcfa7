"""A translator with one source, which can be sampled and searched like a language model."""

from typing import Any

import torch
from torch import Tensor

from labkit.blocks import Backbone, LanguageModel, States, check_reads_source, evaluating


class Conditional(LanguageModel):
    """A translator with one source: a language model that can be sampled and searched."""

    def __init__(self, model: Any, source_1K: Tensor) -> None:
        check_reads_source(model)
        if not hasattr(model, "head"):
            raise ValueError(f"the model is a bare {type(model).__name__}: put a head on it")
        if not isinstance(source_1K, Tensor) or len(source_1K) != 1:
            raise ValueError("a translator has one source: give its tokens as a tensor [1, K]")
        super().__init__(_WithSource(model.backbone, source_1K), model.head)


class _WithSource(Backbone):
    """A decoder and the states of one source, for any number of rows."""

    causal, remembers = True, True
    encoded_1KD: Tensor

    def __init__(self, backbone: Any, source_1K: Tensor) -> None:
        super().__init__(backbone.config)
        self.decoder = backbone
        with torch.no_grad(), evaluating(backbone):
            device = next(backbone.parameters()).device
            encoded_1KD = backbone.encode(source_1K.to(device)).hidden
        # It goes with the model to another device or precision.
        self.register_buffer("encoded_1KD", encoded_1KD, persistent=False)

    def forward(self, tokens_BT: Tensor, *, memory: Any = None) -> States:
        """The decoder's states, given the source."""
        encoded_BKD = self.encoded_1KD.expand(len(tokens_BT), -1, -1)
        states: States = self.decoder(tokens_BT, encoded_BKD=encoded_BKD, memory=memory)
        return states
