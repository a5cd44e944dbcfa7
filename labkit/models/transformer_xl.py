"""Transformer-XL: a language model that reads segment after segment and remembers the last ones.

Dai et al. 2019: section 3.2 (memory), section 3.3 (relative positions, since the
absolute ones of two segments are the same). Its words come from a large vocabulary, which has
adaptive embeddings and an adaptive softmax, at the end of this file.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import RelativeAttention, distances, sinusoids
from labkit.blocks import Backbone, Block, FeedForward, States, initialise, remember
from labkit.checks import check_whole
from labkit.heads import WordHead, exact
from labkit.layers import Dropout
from labkit.masking import causal
from labkit.tensor_checks import check_tokens


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
    """Each further piece of the vocabulary has embeddings this many times narrower."""
    dropout: float = 0.1
    eps: float = 1e-5


class TransformerXL(Backbone):
    """h_0 = W_e tokens;  h_i = block(h_(i-1)), with the keys [memory_i, h_(i-1)].

    `memory_i` are the states h_(i-1) of earlier segments, into which no gradient flows.
    """

    config: TransformerXLConfig
    token: "nn.Embedding | AdaptiveEmbedding"  # type: ignore[assignment]
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


# ---- a large vocabulary ----------------------------------------------------------------------


class AdaptiveEmbedding(nn.Module):
    """Rare words get narrower vectors, projected up by a matrix (Baevski and Auli 2019, section 3).

    The vocabulary is sorted from frequent to rare and cut into pieces at the `cutoffs`; vectors of
    each further piece are `shrink` times narrower.
    """

    def __init__(
        self, vocabulary: int, width: int, cutoffs: tuple[int, ...], *, shrink: int = 1
    ) -> None:
        super().__init__()
        check_whole("shrink", shrink, least=1)
        self.edges, self.width = (0, *cutoffs, vocabulary), width
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError(
                f"cutoffs {cutoffs} do not cut a vocabulary of {vocabulary} words: "
                f"give increasing numbers between 1 and {vocabulary - 1}"
            )
        sizes = [last - first for first, last in pairwise(self.edges)]
        widths = [width // shrink**i for i in range(len(sizes))]
        if 0 in widths:
            raise ValueError(
                f"width {width}, {shrink} times narrower in each of {len(widths)} pieces, "
                "ends at 0: give fewer cutoffs or a smaller shrink"
            )
        self.pieces = nn.ModuleList(nn.Embedding(*each) for each in zip(sizes, widths, strict=True))
        self.up = nn.ModuleList(
            nn.Linear(narrow, width, bias=False) if shrink > 1 else nn.Identity()
            for narrow in widths
        )

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The vector of each word, from the piece of the vocabulary that holds it: [B, T, D]."""
        if not torch.compiler.is_compiling():
            check_tokens(tokens_BT, self.edges[-1])
        pieces = zip(pairwise(self.edges), self.pieces, self.up, strict=True)
        x_BTD: Tensor | None = None
        for (first, last), piece, up in pieces:
            here = (first <= tokens_BT) & (tokens_BT < last)
            vectors_ND = up(piece(tokens_BT[here] - first))
            if x_BTD is None:
                x_BTD = vectors_ND.new_zeros(*tokens_BT.shape, self.width)
            x_BTD = x_BTD.index_put(here.nonzero(as_tuple=True), vectors_ND)
        assert x_BTD is not None
        return x_BTD


class AdaptiveWord(WordHead):
    """Adaptive softmax (Grave et al. 2017): first the piece of the vocabulary, then the word.

    Frequent words and the pieces of the rare ones share one small softmax, so that most targets
    need no softmax over rare words.  The word vectors are those of the embedding.
    """

    def __init__(self, embedding: AdaptiveEmbedding) -> None:
        super().__init__()
        self.edges = embedding.edges
        self.vectors = nn.ParameterList(piece.weight for piece in embedding.pieces)
        self.biases = nn.ParameterList(torch.zeros(len(vectors)) for vectors in self.vectors)
        narrow = [vectors.shape[1] for vectors in self.vectors]
        # The first piece has a matrix of its own; the others use the embedding's, transposed.
        self.down = nn.ParameterList(
            torch.empty(narrow[0], embedding.width).normal_(std=0.02) if i == 0 else up.weight
            for i, up in enumerate(embedding.up)
            if isinstance(up, nn.Linear)
        )
        self.rare = nn.Linear(narrow[0], len(self.vectors) - 1)

    def losses_N(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """-log p(piece of the target) - log p(target | piece)"""
        first_NV = exact(self._first(hidden_ND)).log_softmax(-1)
        common = self.edges[1]
        piece_N = torch.bucketize(
            targets_N.contiguous(), torch.tensor(self.edges[1:-1]).to(targets_N), right=True
        )
        column_N = torch.where(piece_N == 0, targets_N, common + piece_N - 1)
        loss_N = -first_NV.gather(1, column_N[:, None])[:, 0]
        for i in range(1, len(self.vectors)):
            here = (piece_N == i).nonzero()[:, 0]
            within = exact(self._rest(hidden_ND[here], i))
            loss = F.cross_entropy(within, targets_N[here] - self.edges[i], reduction="none")
            loss_N = loss_N.index_add(0, here, loss)
        return loss_N

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """The log-probabilities of all words [N, V]."""
        common = self.edges[1]
        first_NV = exact(self._first(hidden_ND)).log_softmax(-1)
        pieces = [first_NV[..., :common]]
        for i in range(1, len(self.vectors)):
            rest = exact(self._rest(hidden_ND, i)).log_softmax(-1)
            pieces.append(rest + first_NV[..., common + i - 1, None])
        return torch.cat(pieces, dim=-1)

    def _first(self, hidden_ND: Tensor) -> Tensor:
        """Scores of the frequent words, then of the other pieces."""
        if self.down:
            hidden_ND = F.linear(hidden_ND, self.down[0])
        words = F.linear(hidden_ND, self.vectors[0], self.biases[0])
        return torch.cat([words, self.rare(hidden_ND)], dim=-1)

    def _rest(self, hidden_ND: Tensor, piece: int) -> Tensor:
        """Scores of the words of one of the other pieces."""
        if self.down:
            hidden_ND = hidden_ND @ self.down[piece]
        return F.linear(hidden_ND, self.vectors[piece], self.biases[piece])
