"""Transformer-XL: a language model that reads segment after segment and remembers the last ones.

Dai et al. 2019: section 3.2 (memory), section 3.3 (relative positions, since the
absolute ones of two segments are the same).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.attention import RelativeAttention, distances, sinusoids
from labkit.blocks import Backbone, Block, FeedForward, States, initialise, remember
from labkit.heads import AdaptiveEmbedding
from labkit.layers import Dropout
from labkit.masking import causal


@dataclass(frozen=True)
class TransformerXLConfig:
    """The sizes of a Transformer-XL."""

    vocabulary: int
    width: int = 410
    layers: int = 16
    heads: int = 10
    context: int = 150
    """Length of a segment in training; no position depends on it, so it is not a limit."""
    memory: int = 150
    """How many positions before the segment are remembered."""
    inner: int | None = None
    """Width of the feed-forward; four times the width when None."""
    cutoffs: tuple[int, ...] = ()
    """Where the vocabulary, sorted from frequent to rare, is cut; () keeps it in one piece."""
    shrink: int = 1
    """Each further piece of the vocabulary has embeddings so many times narrower."""
    dropout: float = 0.1
    eps: float = 1e-5


class TransformerXL(Backbone):
    """h_0 = W_e tokens;  h_i = block(h_(i-1)), with the keys [memory_i, h_(i-1)].

    `memory_i` are the states h_(i-1) of earlier segments, into which no gradient flows.
    """

    config: TransformerXLConfig
    token: nn.Embedding | AdaptiveEmbedding  # type: ignore[assignment]
    causal, remembers, summary = True, True, -1

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__(config)
        c = config
        # May be raised to evaluate with a longer memory.
        self.memory_length = c.memory
        self.token = (
            AdaptiveEmbedding(c.vocabulary, c.width, c.cutoffs, shrink=c.shrink)
            if c.cutoffs
            else nn.Embedding(c.vocabulary, c.width)
        )
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(c.layers))
        initialise(self)
        # As the release does: norms near 1, and smaller matrices from narrow vectors to wide ones.
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, mean=1.0, std=0.02)
        if isinstance(self.token, AdaptiveEmbedding):
            initialise(self.token.up, std=0.01)

    def _block(self) -> Block:
        c = self.config
        attention = RelativeAttention(c.width, c.heads, dropout=c.dropout)
        inner = c.inner or 4 * c.width
        mlp = FeedForward(c.width, inner, activation="relu", dropout=c.dropout)
        return Block(attention, mlp, c.width, norm_first=False, dropout=c.dropout, eps=c.eps)

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: tuple[Tensor, ...] | None = None,
    ) -> States:
        """The states of all layers, and what the next segment may attend to.

        A mask covers the memory too: [B, 1, T, M + T].  Without one, attention is causal.
        """
        # As large as in Vaswani et al. 2017, section 3.4.
        x_BTD = self.dropout(self.token(tokens_BT) * self.config.width**0.5)
        memory = memory or (x_BTD[:, :0].detach(),) * self.config.layers
        queries, keys = tokens_BT.shape[1], memory[0].shape[1] + tokens_BT.shape[1]
        if mask is None:
            mask = causal(queries, keys, device=x_BTD.device)
        r_RD = sinusoids(
            distances(queries, keys, device=x_BTD.device), self.config.width, x_BTD.dtype
        )
        r_RD, layers, kept = self.dropout(r_RD), [x_BTD], []
        for block, before_BMD in zip(self.blocks, memory, strict=True):
            source_BKD = torch.cat([before_BMD, x_BTD], dim=1)
            kept.append(remember(source_BKD, self.memory_length))
            x_BTD, _ = block(x_BTD, source_BKD, r_RD=r_RD, mask=mask)
            layers.append(x_BTD)
        layers[-1] = self.dropout(x_BTD)
        return States(tuple(layers), tuple(kept))
