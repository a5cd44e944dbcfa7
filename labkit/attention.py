"""Attention: each query takes a weighted mean of the values, by its products with the keys.

Vaswani et al. 2017, section 3.2; the relative form is Dai et al. 2019, section 3.3.
Read `attend` first: it is all the attention there is, and every model of the course calls it.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import masking
from labkit.layers import drop, replaceable
from labkit.tensor_checks import check_mask


@replaceable
def attend(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    *,
    mask: Tensor | None = None,
    bias_BHQK: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k' / sqrt(E) + bias) v, over the keys that `mask` (and `causal`) let take part.

    A query that may attend to nothing gives zeros.
    """
    check_scores(q_BHQE, k_BHKE, mask)
    if causal:
        earlier_QK = masking.causal(q_BHQE.shape[2], k_BHKE.shape[2], device=q_BHQE.device)
        mask = earlier_QK if mask is None else mask & earlier_QK
    weights_BHQK = attention_weights(q_BHQE, k_BHKE, mask=mask, bias_BHQK=bias_BHQK)
    return drop(weights_BHQK, dropout) @ v_BHKE


def check_scores(q_BHQE: Tensor, k_BHKE: Tensor, mask: Tensor | None) -> None:
    """Refuse a mask that does not broadcast to [B, 1, Q, K]: it is the same for all heads."""
    check_mask(mask, len(q_BHQE), 1, q_BHQE.shape[2], k_BHKE.shape[2])


def attention_weights(
    q_BHQE: Tensor, k_BHKE: Tensor, *, mask: Tensor | None = None, bias_BHQK: Tensor | None = None
) -> Tensor:
    """softmax(q k' / sqrt(E) + bias): how much each query takes from each key."""
    scores_BHQK = q_BHQE / math.sqrt(q_BHQE.shape[-1]) @ k_BHKE.transpose(-2, -1)
    if bias_BHQK is not None:
        scores_BHQK = scores_BHQK + bias_BHQK
    if mask is None:
        return scores_BHQK.softmax(dim=-1)
    # The softmax of a row of -inf would be 0/0: a query that may attend to nothing keeps its scores
    # and gets zeros afterwards.
    attends = mask.any(dim=-1, keepdim=True)
    scores_BHQK = scores_BHQK.masked_fill(attends & ~mask, -math.inf)
    return scores_BHQK.softmax(dim=-1) * attends.to(scores_BHQK.dtype)


def attend_by_distance(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    scores_BHQR: Tensor,
    positions: Tensor,
    *,
    mask: Tensor | None = None,
    bias_BHQK: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend`, where each query also has a score for every distance (see `by_distance`)."""
    distant_BHQK = by_distance(scores_BHQR, positions, k_BHKE.shape[2])
    bias_BHQK = distant_BHQK if bias_BHQK is None else distant_BHQK + bias_BHQK
    return attend(q_BHQE, k_BHKE, v_BHKE, mask=mask, bias_BHQK=bias_BHQK, dropout=dropout)


def check_heads(width: int, heads: int) -> None:
    """Refuse a width that cannot be shared out among the heads."""
    if heads < 1 or width % heads:
        raise ValueError(
            f"a width of {width} does not divide into {heads} heads: "
            "choose a width that is a multiple of the number of heads"
        )


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, H * E] -> [B, H, T, E]"""
    return x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x_BHTE: Tensor) -> Tensor:
    """[B, H, T, E] -> [B, T, H * E]"""
    return x_BHTE.transpose(1, 2).flatten(2)


class KeysValues(NamedTuple):
    """The keys and values of the positions read so far."""

    k_BHKE: Tensor
    v_BHKE: Tensor

    @replaceable
    def extended(self, k_BHQE: Tensor, v_BHQE: Tensor) -> "KeysValues":
        """A copy with the given keys and values appended; this one does not change."""
        return KeysValues(
            torch.cat([self.k_BHKE, k_BHQE], dim=2), torch.cat([self.v_BHKE, v_BHQE], dim=2)
        )


class Attention(nn.Module):
    """Multi-head attention: split into heads, attend, merge, project."""

    def __init__(
        self, width: int, heads: int, *, dropout: float = 0.0, rotary: bool = False
    ) -> None:
        """`rotary`: self-attention rotates queries and keys by their positions (see `rotate`)."""
        super().__init__()
        check_heads(width, heads)
        if rotary and width // heads % 2:
            raise ValueError(f"a width of {width} gives each of {heads} heads {width // heads} "
                             "features; rotary needs an even number")  # fmt: skip
        self.width, self.heads, self.dropout, self.rotary = width, heads, dropout, rotary
        # One matrix for query, key and value: one large product is faster than three small ones.
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x_BQD: Tensor,
        source_BKD: Tensor | None = None,
        *,
        memory: KeysValues | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> tuple[Tensor, KeysValues]:
        """Attend from x to the memory followed by `source`; None means x itself."""
        if source_BKD is None:
            parts = split_heads(self.query_key_value(x_BQD), 3 * self.heads)
            q_BHQE, k_BHKE, v_BHKE = parts.chunk(3, dim=1)
            if self.rotary:
                past = 0 if memory is None else memory.k_BHKE.shape[2]
                q_BHQE, k_BHKE = rotate(q_BHQE, past), rotate(k_BHKE, past)
        else:
            q_BHQE = split_heads(self._project(x_BQD, 0, 1), self.heads)
            both = split_heads(self._project(source_BKD, 1, 3), 2 * self.heads)
            k_BHKE, v_BHKE = both.chunk(2, dim=1)
        known = KeysValues(k_BHKE, v_BHKE)
        if memory is not None:
            known = memory.extended(k_BHKE, v_BHKE)
        dropout = self.dropout if self.training else 0.0
        y_BHQE = attend(
            q_BHQE, known.k_BHKE, known.v_BHKE, mask=mask, causal=causal, dropout=dropout
        )
        return self.out(merge_heads(y_BHQE)), known

    def _project(self, x_BTD: Tensor, first: int, last: int) -> Tensor:
        """Matrices first .. last of the three that are stacked, applied to x."""
        rows = slice(first * self.width, last * self.width)
        return F.linear(x_BTD, self.query_key_value.weight[rows], self.query_key_value.bias[rows])


class RelativeAttention(nn.Module):
    """Attention that knows distances and no positions (Dai et al. 2019, section 3.3).

    score(i, j) = ((q_i + u) k_j + (q_i + v) W_r r(i - j) + (q_i + s) g(i, j)) / sqrt(E)

    u, v and s are learned and the same for every query; r(i - j) is the sinusoid of the distance.
    The last term is XLNet's (Yang et al. 2019, section 2.5): g is one of two learned
    vectors, for a key in the segment of the query and for one in another.
    """

    def __init__(
        self, width: int, heads: int, *, dropout: float = 0.0, segments: bool = False
    ) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        each = (heads, width // heads)
        self.u_HE = nn.Parameter(torch.empty(each).normal_(std=0.02))
        self.v_HE = nn.Parameter(torch.empty(each).normal_(std=0.02))
        self.s_HE = nn.Parameter(torch.empty(each).normal_(std=0.02)) if segments else None
        self.segment = nn.Parameter(torch.empty(2, *each).normal_(std=0.02)) if segments else None

    def forward(
        self,
        x_BQD: Tensor,
        source_BKD: Tensor | None = None,
        *,
        r_RD: Tensor,
        known: KeysValues | None = None,
        positions: Tensor | None = None,
        other_segment: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Attend from x to `source`: memory and x, or x itself when None.

        `known` are keys and values that this module has already computed from the source.  The
        queries are the last of the keys, or stand among them at `positions` [B, Q].  r_RD holds the
        sinusoids of `distances(T, K)`, with T the positions that are not memory.
        """
        if known is None:
            source_BKD = x_BQD if source_BKD is None else source_BKD
            k, v = self.key_value(source_BKD).chunk(2, dim=-1)
            known = KeysValues(split_heads(k, self.heads), split_heads(v, self.heads))
        q_BHQE = split_heads(self.query(x_BQD), self.heads)
        queries, keys = q_BHQE.shape[2], known.k_BHKE.shape[2]
        if positions is None:
            positions = torch.arange(keys - queries, keys, device=q_BHQE.device)
        scale = 1 / math.sqrt(q_BHQE.shape[-1])
        r_1HRE = split_heads(self.distance(r_RD)[None], self.heads)
        scores_BHQR = (q_BHQE + self.v_HE[:, None]) * scale @ r_1HRE.transpose(-2, -1)
        y_BHQE = attend_by_distance(
            q_BHQE + self.u_HE[:, None],
            *known,
            scores_BHQR,
            positions,
            mask=mask,
            bias_BHQK=None if other_segment is None else self._by_segment(q_BHQE, other_segment),
            dropout=self.dropout if self.training else 0.0,
        )
        return self.out(merge_heads(y_BHQE)), known

    def _by_segment(self, q_BHQE: Tensor, other_segment: Tensor) -> Tensor:
        """What the segment of a key adds to the score of its content."""
        if self.segment is None or self.s_HE is None:
            raise ValueError("this attention was built without segments: give segments=True")
        query_BHQE = (q_BHQE + self.s_HE[:, None]) * (1 / math.sqrt(q_BHQE.shape[-1]))
        same, other = (query_BHQE @ g_HE[:, :, None] for g_HE in self.segment)
        return torch.where(other_segment, other, same)


# ---- positions -----------------------------------------------------------------------------------
#
# Learned positions (GPT, BERT), sinusoids (Vaswani et al. 2017, section 3.5), and two that know
# distances alone: sinusoids of a distance (Dai et al. 2019, section 3.3), and queries and keys that
# are turned by their positions (Su et al. 2021, section 3.2).


def check_length(length: int, context: int, *, start: int = 0) -> None:
    """Refuse a text that is longer than the model has positions for; it begins at `start`."""
    if start + length > context:
        remembered = f" after {start} that are remembered" if start else ""
        raise ValueError(
            f"the text has {length} tokens{remembered}, the model has positions for {context}: "
            f"shorten the text or build the model with context={start + length}"
        )


def sinusoids(positions_T: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """sin and cos of each position at width / 2 wave lengths from 2 pi to 10,000 * 2 pi: [T, D]."""
    if width % 2:
        raise ValueError(f"sinusoids come in pairs of sine and cosine: width {width} is odd")
    # Half precision cannot represent every position exactly.
    exact = torch.promote_types(dtype, torch.float32)
    steps = torch.arange(0, width, 2, device=positions_T.device).to(exact)
    frequencies = 1 / torch.pow(10_000, steps / width)
    angles = positions_T.to(exact)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)


def rotate(x_BHTE: Tensor, start: int = 0) -> Tensor:
    """Rotate queries or keys by angles that grow with their positions start .. start + T.

    Dimensions e and e + E/2 are the coordinates of a point in a plane. The product of a query and
    a key then depends on their distance only, and not on their absolute positions.
    """
    length, width = x_BHTE.shape[-2:]
    positions_T = torch.arange(start, start + length, device=x_BHTE.device)
    sin, cos = sinusoids(positions_T, width, x_BHTE.dtype).chunk(2, dim=-1)
    x, y = x_BHTE.chunk(2, dim=-1)
    return torch.cat([x * cos - y * sin, y * cos + x * sin], dim=-1)


def distances(queries: int, keys: int, *, device: torch.device | str | None = None) -> Tensor:
    """All distances from a query to a key, the farthest past first: keys - 1 ... 1 - queries."""
    return torch.arange(keys - 1, -queries, -1, device=device)


def by_distance(scores_BHQR: Tensor, positions: Tensor, keys: int) -> Tensor:
    """The score of each query and key, picked from a query's scores of all distances.

    `positions` [Q] or [B, Q] says where among the keys each query stands; the scores are in the
    order of `distances`, so that query i finds key j in column (keys - 1) - (position_i - j).
    """
    key_K = torch.arange(keys, device=positions.device)
    column = keys - 1 - positions[..., :, None] + key_K
    batch, heads, queries, _ = scores_BHQR.shape
    column = column.view(-1, 1, queries, keys).expand(batch, heads, -1, -1)
    return scores_BHQR.gather(-1, column)


class LearnedPositions(nn.Module):
    """One vector for each position of the text, learned like a word's.

    RoBERTa's table starts with `unused` rows that no position of a text uses.
    """

    def __init__(self, context: int, width: int, *, unused: int = 0) -> None:
        super().__init__()
        self.context, self.unused = context, unused
        self.weight = nn.Parameter(torch.empty(unused + context, width).normal_(std=0.02))

    def forward(self, length: int, *, start: int = 0) -> Tensor:
        """The vectors of positions start .. start + length: [T, D]."""
        check_length(length, self.context, start=start)
        return self.weight[self.unused + start : self.unused + start + length]
