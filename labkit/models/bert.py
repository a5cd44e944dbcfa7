"""BERT: a stack of blocks in which every position attends to every other.

Devlin et al. 2019 (BERT).  The rest of the family are rows of the same config: RoBERTa (Liu et al.
2019), ALBERT (Lan et al. 2020, section 3.1: narrower embeddings, one block for all layers),
DistilBERT (Sanh et al. 2019: no segments).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.attention import Attention, LearnedPositions, check_length
from labkit.blocks import Backbone, Block, FeedForward, States, initialise
from labkit.layers import Dropout
from labkit.tensor_checks import check_segments


@dataclass(frozen=True)
class BERTConfig:
    """The sizes of a BERT, and what the others of the family changed."""

    vocabulary: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    context: int = 512
    inner: int | None = None
    """Width of the feed-forward; four times the width when None."""
    segments: int = 2
    """How many parts a text may have; 1 in RoBERTa, 0 in DistilBERT, which has no segments."""
    unused_positions: int = 0
    """2 in RoBERTa, whose first word stands at position 2."""
    embedding: int | None = None
    """ALBERT: width of the embeddings, if narrower than the model."""
    shared: bool = False
    """ALBERT: one block, used as every layer."""
    pooler: bool = False
    """Whether the layer between the first position and a label belongs to the backbone."""
    activation: str = "gelu"
    """"gelu" is exact, as in the paper and the common library; "gelu_tanh" approximates it, as the
    authors' code does (modeling.py, gelu), and ALBERT. A release's config decides."""
    dropout: float = 0.1
    rotary: bool = False
    """Queries and keys are turned by their positions (Su et al. 2021); none are learned."""
    eps: float = 1e-12


class BERT(Backbone):
    """h_0 = norm(W_e tokens + W_p + W_s segments);  h_i = block(h_(i-1)), without a causal mask.

    A head for words is `MaskedWord(bert.token, width)`, one for the first position
    `Label(width, labels, pool=bert.pooler)`.
    """

    config: BERTConfig
    summary = 0

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        c = config
        self.context, self.segments = c.context, c.segments > 1
        narrow = c.embedding or c.width
        self.token = nn.Embedding(c.vocabulary, narrow)
        self.position = (
            None if c.rotary else LearnedPositions(c.context, narrow, unused=c.unused_positions)
        )
        self.segment = nn.Embedding(c.segments, narrow) if c.segments else None
        self.norm = nn.LayerNorm(narrow, eps=c.eps)
        self.dropout = Dropout(c.dropout)
        self.up = nn.Linear(narrow, c.width) if c.embedding else nn.Identity()
        self.blocks = nn.ModuleList(self._block() for _ in range(1 if c.shared else c.layers))
        self.pooler = nn.Linear(c.width, c.width) if c.pooler else None
        initialise(self)

    @property
    def layers(self) -> int:
        """The number of times that a block is applied; ALBERT has one block only."""
        return self.config.layers

    def above(self) -> list[nn.Module]:
        """The layer between the first position and a label."""
        return [] if self.pooler is None else [self.pooler]

    def _block(self) -> Block:
        c = self.config
        attention = Attention(c.width, c.heads, dropout=c.dropout, rotary=c.rotary)
        mlp = FeedForward(c.width, c.inner or 4 * c.width, activation=c.activation)
        return Block(attention, mlp, c.width, norm_first=False, dropout=c.dropout, eps=c.eps)

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: None = None,
        segments_BT: Tensor | None = None,
    ) -> States:
        """The states of all layers.  Every position attends to all, unless there is a mask."""
        if memory is not None:
            raise ValueError("BERT reads a text at once and remembers nothing: give memory=None")
        x_BTD = self._embed(tokens_BT, segments_BT)
        layers = [x_BTD]
        for i in range(self.layers):
            x_BTD, _ = self.blocks[i % len(self.blocks)](x_BTD, mask=mask)
            layers.append(x_BTD)
        return States(tuple(layers))

    def _embed(self, tokens_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """Word, position and segment, added up; rotary positions are not added."""
        length = tokens_BT.shape[1]
        x_BTD = self.token(tokens_BT)
        if self.position is not None:
            x_BTD = x_BTD + self.position(length)
        else:
            check_length(length, self.config.context)
        if self.segment is not None:
            if segments_BT is None:
                segments_BT = torch.zeros_like(tokens_BT)
            check_segments(segments_BT, tokens_BT, self.segment.num_embeddings)
            x_BTD = x_BTD + self.segment(segments_BT)
        elif segments_BT is not None:
            raise ValueError(
                "this model does not tell segments apart (segments=0): "
                "give no segments_BT or build it with segments=2"
            )
        return self.up(self.dropout(self.norm(x_BTD)))
