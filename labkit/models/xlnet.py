"""XLNet: predict the words of a text in a random order, so that each may depend on any other.

Yang et al. 2019: section 2.3 (two streams), section 2.4 (memory), section 2.5 (segments).  Read
`XLNet.forward`, an ordinary encoder, and then `two_streams`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import RelativeAttention, distances, sinusoids
from labkit.blocks import Backbone, Block, FeedForward, States, initialise, remember
from labkit.layers import Dropout
from labkit.tensor_checks import check_mask, check_segments


@dataclass(frozen=True)
class XLNetConfig:
    """The sizes of an XLNet."""

    vocabulary: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    context: int = 512
    """Length of a segment in training; no position depends on it, so it is not a limit."""
    memory: int = 0
    """How many positions before the segment are remembered."""
    inner: int | None = None
    """Width of the feed-forward; four times the width when None."""
    activation: str = "gelu"
    """"gelu" is exact, as in the common library; "gelu_tanh" approximates it, as the authors' code
    does (modeling.py, gelu). A release's config decides."""
    dropout: float = 0.1
    eps: float = 1e-12


class TwoStreams(NamedTuple):
    """The states of both streams."""

    content: States
    """The same as from `forward` with this mask."""
    query: States
    """The states [B, N, D] of the positions in the query stream."""


class Given(NamedTuple):
    """What is the same for every layer."""

    r_RD: Tensor
    memory: tuple[Tensor, ...]
    other: Tensor | None


class XLNet(Backbone):
    """Content stream h: each position from itself and the positions that are earlier in the order.

    Query stream g: each position from its number and the positions that are earlier, not its word.
    Both use the same blocks: the queries are those of h or of g, the keys are [memory, h] for both.
    """

    config: XLNetConfig
    remembers, segments, summary = True, True, -1

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        c = config
        # May be raised to evaluate with a longer memory.
        self.memory_length = c.memory
        self.token = nn.Embedding(c.vocabulary, c.width)
        self.guess_D = nn.Parameter(torch.empty(c.width).normal_(std=0.02))
        """The state that every query starts from, which does not depend on a word."""
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(c.layers))
        initialise(self)

    def _block(self) -> Block:
        c = self.config
        attention = RelativeAttention(c.width, c.heads, dropout=c.dropout, segments=True)
        mlp = FeedForward(
            c.width, c.inner or 4 * c.width, activation=c.activation, dropout=c.dropout
        )
        return Block(attention, mlp, c.width, norm_first=False, dropout=c.dropout, eps=c.eps)

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        mask: Tensor | None = None,
        memory: tuple[Tensor, ...] | None = None,
        segments_BT: Tensor | None = None,
    ) -> States:
        """The content stream alone.  Without a mask, every position attends to all.

        A mask covers the memory too: [B, 1, T, M + T].
        """
        h_BTD, given = self._start(tokens_BT, memory, segments_BT)
        layers, kept = [h_BTD], []
        for block, before_BMD in zip(self.blocks, given.memory, strict=True):
            source_BKD = torch.cat([before_BMD, h_BTD], dim=1)
            kept.append(remember(source_BKD, self.memory_length))
            h_BTD, _ = block(
                h_BTD, source_BKD, r_RD=given.r_RD, mask=mask, other_segment=given.other
            )
            layers.append(h_BTD)
        layers[-1] = self.dropout(h_BTD)
        return States(tuple(layers), tuple(kept))

    def two_streams(
        self,
        tokens_BT: Tensor,
        asked_BN: Tensor,
        *,
        mask: Tensor,
        query_mask: Tensor,
        memory: tuple[Tensor, ...] | None = None,
        segments_BT: Tensor | None = None,
    ) -> TwoStreams:
        """Both streams; the query stream at the positions `asked_BN` only (partial prediction).

        In both masks, [B, 1, T, M + T], the queries are all positions of the text.  For a random
        order they are `up_to(order, M)` and `before(order, M)`.
        """
        self.check(tokens_BT, mask)
        rows, positions = tokens_BT.shape
        check_mask(query_mask, rows, 1, positions, None, name="query_mask")
        h_BTD, given = self._start(tokens_BT, memory, segments_BT)
        g_BND = self.dropout(self.guess_D.expand(*asked_BN.shape, -1))
        other = None if given.other is None else queried_rows(given.other, asked_BN, positions)
        guess = {
            "r_RD": given.r_RD,
            "positions": given.memory[0].shape[1] + asked_BN,
            "mask": queried_rows(query_mask, asked_BN, positions),
            "other_segment": other,
        }
        content, query, kept = [h_BTD], [g_BND], []
        for block, before_BMD in zip(self.blocks, given.memory, strict=True):
            source_BKD = torch.cat([before_BMD, h_BTD], dim=1)
            kept.append(remember(source_BKD, self.memory_length))
            h_BTD, known = block(
                h_BTD, source_BKD, r_RD=given.r_RD, mask=mask, other_segment=given.other
            )
            # The same block once more, with the same keys and the queries of the other stream.
            g_BND, _ = block(g_BND, known=known, **guess)
            content.append(h_BTD)
            query.append(g_BND)
        content[-1], query[-1] = self.dropout(h_BTD), self.dropout(g_BND)
        return TwoStreams(States(tuple(content), tuple(kept)), States(tuple(query)))

    def _start(
        self,
        tokens_BT: Tensor,
        memory: tuple[Tensor, ...] | None,
        segments_BT: Tensor | None,
    ) -> tuple[Tensor, Given]:
        """The first content states, and what every layer is given."""
        check_segments(segments_BT, tokens_BT, 0)
        h_BTD = self.dropout(self.token(tokens_BT))
        memory = memory or (h_BTD[:, :0].detach(),) * self.config.layers
        length, past = tokens_BT.shape[1], memory[0].shape[1]
        table = distances(length, past + length, device=h_BTD.device)
        r_RD = self.dropout(sinusoids(table, self.config.width, h_BTD.dtype))
        return h_BTD, Given(r_RD, memory, other_segment(segments_BT, past))


def other_segment(segments_BT: Tensor | None, memory: int) -> Tensor | None:
    """Whether query and key are in different segments; what is remembered counts as segment 0."""
    if segments_BT is None:
        return None
    keys_BK = F.pad(segments_BT, (memory, 0))
    return (segments_BT[:, :, None] != keys_BK[:, None, :])[:, None]


def queried_rows(mask: Tensor, asked_BN: Tensor, length: int) -> Tensor:
    """The rows of a mask [B, 1, T, K] that belong to the predicted positions: [B, 1, N, K]."""
    batch, keys = len(asked_BN), mask.shape[-1]
    whole = mask.expand(batch, 1, length, keys)
    return whole.gather(2, asked_BN[:, None, :, None].expand(-1, -1, -1, keys))
