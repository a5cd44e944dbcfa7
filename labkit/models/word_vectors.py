"""Word vectors: skip-gram and CBOW.

Mikolov et al. 2013a, "Efficient estimation of word representations", section 3 (CBOW, skip-gram);
2013b, "Distributed representations of words and phrases", sections 2.2 and 2.3 (negative samples,
subsampling). All that is random is drawn by the caller: uniform numbers come in, so the same
numbers give the same pairs on any machine. Read `WordVectors.skip_gram` first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import Backbone, States
from labkit.checks import check_whole
from labkit.recurrence import only_real


@dataclass(frozen=True)
class WordVectorsConfig:
    """The sizes of a table of word vectors."""

    vocabulary: int
    width: int = 100


class WordVectors(Backbone):
    """Two vectors for each word: its own, and its output embedding, which predicts it."""

    config: WordVectorsConfig
    causal, attends = True, False

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.output = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList()
        # As in the released program: the first products are 0, and no word is better than another.
        nn.init.uniform_(self.token.weight, -0.5 / config.width, 0.5 / config.width)
        nn.init.zeros_(self.output.weight)

    def forward(self, tokens_BT: Tensor, *, mask: Tensor | None = None) -> States:
        """One vector per word, without its context; zero at padding."""
        return States((only_real(self.token(tokens_BT), mask),))

    def skip_gram(self, centres_N: Tensor, context_N: Tensor, noise: Tensor) -> Tensor:
        """The loss of each pair: tell the true neighbour of a centre from the noise words [N, k].

        -log s(u_context . v_centre) - sum_noise log s(-u_noise . v_centre)
        """
        return self._tell_apart(self.token(centres_N), context_N, noise)

    def cbow(
        self, context_NK: Tensor, present_NK: Tensor, centres_N: Tensor, noise: Tensor
    ) -> Tensor:
        """The same from the mean of the neighbours that are present to the word between them."""
        return self._tell_apart(self.mean_vectors(context_NK, present_NK), centres_N, noise)

    def mean_vectors(self, context_NK: Tensor, present_NK: Tensor) -> Tensor:
        """The mean of the vectors of the neighbours that are present: [N, D]."""
        sum_ND = (self.token(context_NK) * present_NK[:, :, None]).sum(dim=1)
        return sum_ND / present_NK.sum(dim=1, keepdim=True).clamp(min=1)

    def _tell_apart(self, given_ND: Tensor, right_N: Tensor, noise: Tensor) -> Tensor:
        right = (self.output(right_N) * given_ND).sum(dim=-1)
        wrong = (self.output(noise) @ given_ND[:, :, None]).squeeze(-1)
        return -F.logsigmoid(right) - F.logsigmoid(-wrong).sum(dim=-1)


class Contexts(NamedTuple):
    """What CBOW reads: the words around each centre, and which of these positions hold a word."""

    context_NK: Tensor
    present_NK: Tensor
    centres_N: Tensor


def noise_distribution(counts_V: Tensor, power: float = 0.75) -> Tensor:
    """How likely each word is drawn as noise: its count to the power of 3/4, as a share [V]."""
    weights_V = counts_V.double() ** power * (counts_V > 0)
    if not bool(weights_V.sum() > 0):
        raise ValueError("no word has a count above 0: count the words of the training text")
    return weights_V / weights_V.sum()


def draw_noise(p_V: Tensor, uniform: Tensor) -> Tensor:
    """Words by the distribution, one for each number in [0, 1)."""
    steps_V = p_V.double().cumsum(0)
    # Divided by its own end, the last step is 1 exactly, and no number lies beyond it.
    return torch.searchsorted(steps_V / steps_V[-1], uniform.double(), right=True)


def keep_probabilities(counts_V: Tensor, threshold: float = 1e-5) -> Tensor:
    """How likely a word stays in the text: min(1, sqrt(threshold / its share of the text)) [V]."""
    shares_V = counts_V.double() / counts_V.sum()
    return (threshold / shares_V).sqrt().clamp(max=1.0)


def subsampled(tokens_BT: Tensor, keep_V: Tensor, uniform_BT: Tensor) -> Tensor:
    """Which tokens of the text stay when frequent words are left out at random [B, T]."""
    return uniform_BT < keep_V[tokens_BT]


def close_gaps(table_BT: Tensor, kept_BT: Tensor) -> Tensor:
    """Move what is kept to the front of its row, in order, so that windows reach further."""
    return table_BT.gather(1, (~kept_BT).long().argsort(dim=1, stable=True))


def contexts(
    tokens_BT: Tensor,
    real_BT: Tensor,
    reach_BT: Tensor,
    widest: int,
    documents_BT: Tensor | None = None,
) -> Contexts:
    """The words at most `reach` (1 … widest, one number for each centre) positions from each word.

    The papers draw the reach uniformly, so that near words count more than far ones.
    """
    length = tokens_BT.shape[1]
    away_K = torch.cat([torch.arange(-widest, 0), torch.arange(1, widest + 1)]).to(tokens_BT.device)
    position_TK = torch.arange(length, device=tokens_BT.device)[:, None] + away_K
    inside_TK = (position_TK >= 0) & (position_TK < length)
    position_TK = position_TK.clamp(0, length - 1)
    near = inside_TK & (away_K.abs() <= reach_BT[:, :, None])
    present = near & real_BT[:, position_TK] & real_BT[:, :, None]
    if documents_BT is not None:
        present = present & (documents_BT[:, position_TK] == documents_BT[:, :, None])
    # A word without neighbours has nothing to be predicted from.
    rows_N, positions_N = present.any(dim=2).nonzero(as_tuple=True)
    context_NK = tokens_BT[rows_N[:, None], position_TK[positions_N]]
    return Contexts(context_NK, present[rows_N, positions_N], tokens_BT[rows_N, positions_N])


class Near(NamedTuple):
    """Words, the nearest first, and their cosine similarities to the query."""

    words: Tensor
    cosines: Tensor


def neighbours(
    vectors_VD: Tensor, query_D: Tensor, count: int = 10, *, leave_out: tuple[int, ...] = ()
) -> Near:
    """The words whose vectors have the largest cosine similarity to the query."""
    check_whole("count", count, 1)
    _check_numbers(vectors_VD, *leave_out)
    cosines_V = F.cosine_similarity(vectors_VD, query_D[None], dim=-1)
    out = torch.tensor(sorted(set(leave_out)), dtype=torch.long, device=cosines_V.device)
    cosines, words = cosines_V.index_fill(0, out, -torch.inf).sort(descending=True, stable=True)
    count = min(count, len(words) - len(out))
    return Near(words[:count], cosines[:count])


def analogy(vectors_VD: Tensor, a: int, b: int, c: int, count: int = 10) -> Near:
    """a is to b as c is to …: the words nearest to b - a + c, these three left out."""
    _check_numbers(vectors_VD, a, b, c)
    unit_VD = F.normalize(vectors_VD, dim=-1)
    return neighbours(unit_VD, unit_VD[b] - unit_VD[a] + unit_VD[c], count, leave_out=(a, b, c))


def _check_numbers(vectors_VD: Tensor, *words: int) -> None:
    """Refuse an index outside the vocabulary; -1 would silently mean the last word."""
    for word in words:
        check_whole("a word", word, most=len(vectors_VD) - 1)
