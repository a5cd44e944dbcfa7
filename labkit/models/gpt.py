"""GPT: a stack of blocks in which a position attends only to itself and those before it.

Radford et al. 2018 (GPT: norm after), Radford et al. 2019, section 2.3 (GPT-2: norm before), Brown
et al. 2020, section 2.1 (GPT-3: every other layer attends to a band).
"""

from dataclasses import dataclass

from torch import Tensor, nn

from labkit.attention import Attention, KeysValues, LearnedPositions, check_length
from labkit.blocks import (
    Backbone,
    Block,
    Experts,
    FeedForward,
    States,
    initialise,
    remembered,
    scale_residuals,
)
from labkit.layers import Dropout
from labkit.masking import causal, window


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT."""

    vocabulary: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    context: int = 1024
    inner: int | None = None
    """Width of the feed-forward; four times the width when None."""
    activation: str = "gelu_tanh"
    """GELU by its approximation, as in all releases; "gelu" is exact."""
    norm_first: bool = True
    """False for the first GPT."""
    band: int | None = None
    """GPT-3: every other layer attends to this many positions only."""
    rotary: bool = False
    """Queries and keys are turned by their positions (Su et al. 2021); none are learned."""
    experts: int | None = None
    """The number of experts of a block; None: one feed-forward for all positions."""
    experts_used: int = 2
    dropout: float = 0.1
    attention_dropout: float | None = None
    """Dropout on the attention weights; the same as `dropout` when None."""
    eps: float = 1e-5


class GPT(Backbone):
    """h_0 = W_e tokens + W_p;  h_i = block(h_(i-1));  a position attends to its left only."""

    config: GPTConfig
    causal, remembers, summary = True, True, -1

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.context = config.context
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = None if config.rotary else LearnedPositions(config.context, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.eps) if config.norm_first else None
        initialise(self)
        if config.norm_first:
            scale_residuals(self.blocks)

    def band(self, layer: int) -> int | None:
        """The band of every other layer, from the second on."""
        return self.config.band if layer % 2 == 1 else None

    def above(self) -> list[nn.Module]:
        """The norm of the last states."""
        return [] if self.norm is None else [self.norm]

    def _block(self) -> Block:
        c = self.config
        on_weights = c.dropout if c.attention_dropout is None else c.attention_dropout
        attention = Attention(c.width, c.heads, dropout=on_weights, rotary=c.rotary)
        inner = c.inner or 4 * c.width
        mlp = (
            FeedForward(c.width, inner, activation=c.activation)
            if c.experts is None
            else Experts(c.width, inner, c.experts, used=c.experts_used, activation=c.activation)
        )
        return Block(attention, mlp, c.width, norm_first=c.norm_first, dropout=c.dropout, eps=c.eps)

    def embed(self, tokens_BT: Tensor, *, start: int = 0) -> Tensor:
        """W_e tokens + W_p, for tokens that stand at the positions from `start` on."""
        length = tokens_BT.shape[1]
        if self.position is not None:
            return self.token(tokens_BT) + self.position(length, start=start)
        check_length(length, self.config.context, start=start)
        return self.token(tokens_BT)

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: tuple[KeysValues, ...] | None = None,
    ) -> States:
        """The states of all layers.  memory=() starts to remember keys and values, None forgets."""
        length, past = tokens_BT.shape[1], remembered(memory)
        x_BTD = self.dropout(self.embed(tokens_BT, start=past))
        layers, kept = [x_BTD], []
        for i, block in enumerate(self.blocks):
            own_mask, is_causal = self._mask_of(i, length, past, mask, tokens_BT)
            before = memory[i] if memory else None
            x_BTD, known = block(x_BTD, memory=before, mask=own_mask, causal=is_causal)
            layers.append(x_BTD)
            kept.append(known)
        if self.norm is not None:
            layers[-1] = self.norm(x_BTD)
        return States(tuple(layers), None if memory is None else tuple(kept))

    def _mask_of(
        self, layer: int, length: int, past: int, mask: Tensor | None, tokens_BT: Tensor
    ) -> tuple[Tensor | None, bool]:
        """The mask of this layer, or None; and whether attention is causal without a mask."""
        keys, where = past + length, tokens_BT.device
        band = self.band(layer)
        if mask is None and band is None and (past == 0 or length == 1):
            return None, past == 0
        mask = causal(length, keys, device=where) if mask is None else mask
        if band is not None:
            mask = mask & window(band, length, keys, device=where)
        return mask, False
