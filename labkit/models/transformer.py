"""The Transformer: an encoder reads a text, a decoder writes one that depends on it.

Vaswani et al. 2017, "Attention is all you need", section 3. GPT is its decoder without the
encoder, BERT its encoder without the decoder. Read `DecoderBlock` first.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.attention import Attention, KeysValues, sinusoids
from labkit.blocks import Backbone, Block, FeedForward, States, remembered
from labkit.layers import Dropout
from labkit.masking import causal


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of an encoder–decoder; the defaults are those of the paper's base model."""

    vocabulary: int
    """The words of both texts, which share one embedding (section 3.4)."""
    width: int = 512
    layers: int = 6
    """Layers of the encoder; the decoder has as many."""
    heads: int = 8
    inner: int = 2048
    dropout: float = 0.1
    eps: float = 1e-6


class DecoderBlock(nn.Module):
    """Self-attention, attention to the source, feed-forward; each norm(x + f(x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        c = config
        self.self_attention = Attention(c.width, c.heads, dropout=c.dropout)
        self.cross_attention = Attention(c.width, c.heads, dropout=c.dropout)
        self.mlp = FeedForward(c.width, c.inner, activation="relu")
        self.self_attention_norm = nn.LayerNorm(c.width, eps=c.eps)
        self.cross_attention_norm = nn.LayerNorm(c.width, eps=c.eps)
        self.mlp_norm = nn.LayerNorm(c.width, eps=c.eps)
        self.dropout = Dropout(c.dropout)

    def forward(
        self,
        x_BQD: Tensor,
        source_BKD: Tensor,
        *,
        memory: KeysValues | None,
        mask: Tensor | None,
        source_mask: Tensor | None,
    ) -> tuple[Tensor, KeysValues]:
        """The new states, and the keys and values of all that is written so far."""
        # Without a mask and without memory the attention is causal, which has a faster path.
        fast = mask is None and memory is None
        y_BQD, known = self.self_attention(x_BQD, memory=memory, mask=mask, causal=fast)
        x_BQD = self.self_attention_norm(x_BQD + self.dropout(y_BQD))
        y_BQD, _ = self.cross_attention(x_BQD, source_BKD, mask=source_mask)
        x_BQD = self.cross_attention_norm(x_BQD + self.dropout(y_BQD))
        return self.mlp_norm(x_BQD + self.dropout(self.mlp(x_BQD))), known


class Transformer(Backbone):
    """encode(source), then decode the tokens, each of which attends to the whole source."""

    config: TransformerConfig
    causal, remembers = True, True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        c = config
        self.token = nn.Embedding(c.vocabulary, c.width)
        self.dropout = Dropout(c.dropout)
        self.encoder = nn.ModuleList(self._encoder_block() for _ in range(c.layers))
        self.blocks = nn.ModuleList(DecoderBlock(c) for _ in range(c.layers))
        for module in reversed(list(self.modules())):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            if isinstance(module, Attention):
                # Query, key and value are three matrices, though they are stored as one.
                for matrix in module.query_key_value.weight.chunk(3):
                    nn.init.xavier_uniform_(matrix)
        nn.init.normal_(self.token.weight, std=c.width**-0.5)

    def _encoder_block(self) -> Block:
        c = self.config
        attention = Attention(c.width, c.heads, dropout=c.dropout)
        mlp = FeedForward(c.width, c.inner, activation="relu")
        return Block(attention, mlp, c.width, norm_first=False, dropout=c.dropout, eps=c.eps)

    def encode(self, source_BK: Tensor, *, mask: Tensor | None = None) -> States:
        """The states of the source; each word attends to all that `mask`, `real(…)`, allows."""
        self.check(source_BK, mask)
        layers = [self._embed(source_BK, 0)]
        for block in self.encoder:
            layers.append(block(layers[-1], mask=mask)[0])
        return States(tuple(layers))

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        source_BK: Tensor | None = None,
        encoded_BKD: Tensor | None = None,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        memory: tuple[KeysValues, ...] | None = None,
    ) -> States:
        """The decoder's states for a source text, or for its states that `encode` gave before.

        `mask` says which tokens attend to which, causal when None; `source_mask` says which
        words of the source are real. memory=() starts to remember keys and values.
        """
        if (source_BK is None) == (encoded_BKD is None):
            raise ValueError(
                "the decoder looks at one source: give either source_BK, its tokens, or "
                "encoded_BKD, the states encode(source_BK).hidden"
            )
        if source_BK is not None:
            encoded_BKD = self.encode(source_BK, mask=source_mask).hidden
        length, past = tokens_BT.shape[1], remembered(memory)
        if mask is None and past:
            mask = causal(length, past + length, device=tokens_BT.device)
        layers, kept = [self._embed(tokens_BT, past)], []
        for i, block in enumerate(self.blocks):
            before = memory[i] if memory else None
            seen = {"memory": before, "mask": mask, "source_mask": source_mask}
            x_BTD, known = block(layers[-1], encoded_BKD, **seen)
            layers.append(x_BTD)
            kept.append(known)
        return States(tuple(layers), None if memory is None else tuple(kept))

    def _embed(self, tokens_BT: Tensor, start: int) -> Tensor:
        """The words' vectors, as large as the positions' vectors that are added: [B, T, D]."""
        width = self.config.width
        positions_T = torch.arange(start, start + tokens_BT.shape[1], device=tokens_BT.device)
        words_BTD = self.token(tokens_BT) * math.sqrt(width)
        return self.dropout(words_BTD + sinusoids(positions_T, width, words_BTD.dtype))


def teacher_forced(answers_BT: Tensor, begin: int) -> Tensor:
    """The input of the decoder in training: `begin`, then the target without its last word.

    Each word is predicted from the right words before it, not from words that the model has
    predicted itself, so one forward pass serves all positions.
    """
    first_B1 = torch.full_like(answers_BT[:, :1], begin)
    return torch.cat([first_B1, answers_BT[:, :-1]], dim=1)
