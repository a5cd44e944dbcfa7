"""A head on the weighted sum of all layers, as Peters et al. 2018 use ELMo for a task."""

from typing import Any

from torch import Tensor, nn

from labkit.blocks import Backbone, States
from labkit.models.elmo import WeightedSum
from labkit.recurrence import real_of


class Mixed(Backbone):
    """A backbone whose states are the weighted sum of its layers, to put a head on."""

    def __init__(self, backbone: Backbone, mix: WeightedSum) -> None:
        super().__init__(backbone.config, width=backbone.width)
        self.backbone, self.mix = backbone, mix
        self.context, self.segments = backbone.context, backbone.segments
        self.causal, self.attends = backbone.causal, backbone.attends
        self.two_ways = backbone.two_ways
        self.remembers, self.memory_length = backbone.remembers, backbone.memory_length

    @property
    def token(self) -> nn.Embedding:  # type: ignore[override]
        """The vectors of the words, before any layer."""
        return self.backbone.token

    @property
    def spelling(self) -> Tensor:
        """The letters of the words, of an ELMo."""
        return self.backbone.spelling  # type: ignore[return-value]

    @property
    def blocks(self) -> nn.ModuleList:  # type: ignore[override]
        """The layers that are mixed."""
        return self.backbone.blocks

    @property
    def layers(self) -> int:
        """How often states are computed from states."""
        return self.backbone.layers

    def band(self, layer: int) -> int | None:
        """How many positions back a layer attends to."""
        return self.backbone.band(layer)

    def above(self) -> list[nn.Module]:
        """The mix stands on the last layer."""
        return [*self.backbone.above(), self.mix]

    def forward(self, tokens_BT: Tensor, **inputs: Any) -> States:
        """The layers of the backbone, and their mix on top."""
        states = self.backbone(tokens_BT, **inputs)
        as_one = self.mix.normalise == "batch"
        real_BT = real_of(inputs.get("mask"), states.hidden) if as_one else None
        return States((*states.layers, self.mix(states.layers, real_BT)), states.memory)
