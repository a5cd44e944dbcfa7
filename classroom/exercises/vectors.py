"""Exercises of notebook 01: pairs, the mean of CBOW, negative samples, noise, analogies."""

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between, whole

# ---- the course's own versions ----------------------------------------------------------------


def pairs(tokens: list[int], reach: int) -> list[tuple[int, int]]:
    """(word, neighbour) for each word and each other position at most `reach` away from it."""
    return [
        (word, tokens[j])
        for i, word in enumerate(tokens)
        for j in range(max(0, i - reach), min(len(tokens), i + reach + 1))
        if j != i
    ]


def sgns_loss(centre: Tensor, near: Tensor, noise: Tensor) -> Tensor:
    """-log s(near . centre) - sum over noise of log s(-noise . centre), for each pair [N]."""
    right = (near * centre).sum(dim=-1)
    wrong = (noise * centre[:, None]).sum(dim=-1)
    return -F.logsigmoid(right) - F.logsigmoid(-wrong).sum(dim=-1)


def noise_shares(counts: Tensor) -> Tensor:
    """How likely each word [V] is drawn as noise: its count to the power of 3/4, as a share."""
    weights = counts**0.75
    return weights / weights.sum()


def cbow_mean(vectors: Tensor, present: Tensor) -> Tensor:
    """The mean [N, D] of the neighbours' vectors [N, K, D] that are present [N, K]."""
    total = (vectors * present[..., None]).sum(dim=1)
    return total / present.sum(dim=1, keepdim=True)


def analogy(vectors: Tensor, a: int, b: int, c: int) -> int:
    """a is to b as c is to …: the word nearest to b - a + c, which is none of the three."""
    similarity = vectors @ (vectors[b] - vectors[a] + vectors[c])
    similarity[[a, b, c]] = -torch.inf
    return int(similarity.argmax())


# ---- inputs -----------------------------------------------------------------------------------


def _sentence(rng: torch.Generator) -> tuple[list[int], int]:
    length = between(4, 9, rng)
    # A word that comes twice side by side is its own neighbour.
    tokens = [7, 7, *torch.randint(20, (length - 2,), generator=rng).tolist()]
    return tokens, between(1, 4, rng)


def _vectors(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    rows, noise, width = between(1, 5, rng), between(2, 5, rng), between(2, 5, rng)
    centre, near = torch.randn(2, rows, width, generator=rng).unbind()
    drawn = torch.randn(rows, noise, width, generator=rng)
    return centre.requires_grad_(), near.requires_grad_(), drawn.requires_grad_()


def _counts(rng: torch.Generator) -> tuple[Tensor]:
    counts = torch.randint(1, 90, (between(3, 7, rng),), generator=rng).double()
    counts[0] = 0  # a special token, which never occurs in the text
    return (counts,)


def _neighbours(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    rows, most, width = between(1, 5, rng), between(2, 5, rng), between(2, 5, rng)
    vectors = torch.randn(rows, most, width, generator=rng).requires_grad_()
    present = torch.rand(rows, most, generator=rng) < 0.6
    present[:, 0], present[0, -1] = True, False
    return vectors, present


def _question(rng: torch.Generator) -> tuple[Tensor, int, int, int]:
    words = between(6, 12, rng)
    vectors = F.normalize(torch.randn(words, between(3, 6, rng), generator=rng), dim=1)
    a, b, c = torch.randperm(words, generator=rng)[:3].tolist()
    if between(0, 3, rng) == 0:  # three words side by side, of which a is nearest to b - a + c
        vectors[[b, c]] = F.normalize(vectors[a] + 0.1 * vectors[[b, c]], dim=1)
    return vectors, a, b, c


# ---- mistakes ---------------------------------------------------------------------------------


def _nearest(vectors: Tensor, query: Tensor, leave_out: tuple[int, ...] = ()) -> int:
    similarity = vectors @ query
    similarity[list(leave_out)] = -torch.inf
    return int(similarity.argmax())


CUBE = "`counts ** 3 / 4` is a quarter of the cube: write `counts ** (3 / 4)`"

EXERCISES: dict[str, Exercise] = {
    "01.pairs": Function(
        "a list of pairs (word, neighbour), for each word all positions at most `reach` away",
        pairs,
        _sentence,
        (
            ("only the words to the right are there: a neighbour may be on either side",
             lambda tokens, reach: [(tokens[i], tokens[j]) for i in range(len(tokens))
                                    for j in range(i + 1, min(len(tokens), i + reach + 1))]),
            ("each position is paired with itself: leave it out",
             lambda tokens, reach: [(word, tokens[j]) for i, word in enumerate(tokens)
                                    for j in range(max(0, i - reach),
                                                   min(len(tokens), i + reach + 1))]),
            ("one position too few on the right: `range` ends before its second number",
             lambda tokens, reach: [(word, tokens[j]) for i, word in enumerate(tokens)
                                    for j in range(max(0, i - reach), min(len(tokens), i + reach))
                                    if j != i]),
            ("a negative index counts from the end, so the first words have the last ones as "
             "neighbours: begin at max(0, i - reach)",
             lambda tokens, reach: [(word, tokens[j]) for i, word in enumerate(tokens)
                                    for j in range(i - reach, min(len(tokens), i + reach + 1))
                                    if j != i]),
            ("equal words were left out: the same word at another position is a neighbour",
             lambda *given: [(a, b) for a, b in pairs(*given) if a != b]),
            ("the neighbour comes first in your pairs: (word, neighbour)",
             lambda *given: [(b, a) for a, b in pairs(*given)]),
        ),
        learned="what skip-gram is asked",
        hint="The neighbours of word i are at i − reach … i + reach, where there are any.",
    ),
    "01.loss": Function(
        "for each pair, −log σ(near · centre) − Σ log σ(−noise · centre): a tensor [N]",
        sgns_loss,
        _vectors,
        (
            ("the sign of the noise is missing: a noise word should have a low product",
             lambda centre, near, noise: -F.logsigmoid((near * centre).sum(-1))
             - F.logsigmoid((noise * centre[:, None]).sum(-1)).sum(-1)),
            ("the sign of the second term is wrong: both terms are subtracted",
             lambda centre, near, noise: -F.logsigmoid((near * centre).sum(-1))
             + F.logsigmoid(-(noise * centre[:, None]).sum(-1)).sum(-1)),
            ("the noise words are averaged: the formula adds them up",
             lambda centre, near, noise: -F.logsigmoid((near * centre).sum(-1))
             - F.logsigmoid(-(noise * centre[:, None]).sum(-1)).mean(-1)),
            ("the sign of the whole is wrong: a loss is minimised",
             lambda *given: -sgns_loss(*given)),
            ("that is a softmax over the neighbour and its noise words; here each word is a "
             "yes-or-no question of its own",
             lambda centre, near, noise: -torch.cat([near[:, None], noise], 1)
             .mul(centre[:, None]).sum(-1).log_softmax(-1)[:, 0]),
            ("a product of two vectors is a sum over their entries, not a mean",
             lambda centre, near, noise: -F.logsigmoid((near * centre).mean(-1))
             - F.logsigmoid(-(noise * centre[:, None]).mean(-1)).sum(-1)),
            ("the noise is missing: with the neighbour alone, all products would grow for ever",
             lambda centre, near, noise: -F.logsigmoid((near * centre).sum(-1))),
        ),
        minutes=10,
        learned="skip-gram with negative samples",
    ),
    "01.noise": Function(
        "the probability of each word [V] as noise: its count to the power of 3/4, as a share",
        noise_shares,
        _counts,
        (
            ("those are the shares of the text: the power of 3/4 is missing",
             lambda counts: counts / counts.sum()),
            ("they do not add up to 1: take the power first and divide by the sum of the powers",
             lambda counts: (counts / counts.sum()) ** 0.75),
            ("those are powers of counts: divide by their sum", lambda counts: counts**0.75),
            ("that is the square root", lambda counts: counts**0.5 / (counts**0.5).sum()),
            (CUBE, lambda counts: counts**3 / 4),
            (CUBE, lambda counts: counts**3 / (counts**3).sum()),
            ("a softmax takes powers of e: here the counts themselves are raised to 3/4",
             lambda counts: (0.75 * counts).softmax(0)),
        ),
        learned="how noise is drawn",
        hint="Take the power first, then divide by the sum of all.",
    ),
    "01.cbow": Function(
        "the mean [N, D] of those vectors [N, K, D] that are present [N, K]",
        cbow_mean,
        _neighbours,
        (
            ("all K positions are averaged: at the ends of a sentence some hold no word",
             lambda vectors, present: vectors.mean(dim=1)),
            ("divide by the number of neighbours that are present, not by K",
             lambda vectors, present: (vectors * present[..., None]).mean(dim=1)),
            ("that is the sum: divide by the number of neighbours that are present",
             lambda vectors, present: (vectors * present[..., None]).sum(dim=1)),
            ("that is the maximum: CBOW takes the mean",
             lambda vectors, present: vectors.masked_fill(~present[..., None], -torch.inf)
             .amax(dim=1)),
        ),
        learned="CBOW",
        hint="Multiply with `present[..., None]`, sum over K, divide by how many are present.",
    ),
    "01.analogy": Function(
        "the number of the word nearest to b − a + c that is none of the three",
        analogy,
        _question,
        (
            ("the words of the question count as answers: leave out a, b and c, since one of them "
             "may be nearest",
             lambda vectors, a, b, c: _nearest(vectors, vectors[b] - vectors[a] + vectors[c])),
            ("the step goes from b to a: it has to go from a to b",
             lambda vectors, a, b, c: _nearest(vectors, vectors[a] - vectors[b] + vectors[c],
                                               (a, b, c))),
            ("that is the nearest word to c: the step from a to b is missing",
             lambda vectors, a, b, c: _nearest(vectors, vectors[c], (a, b, c))),
            ("that is the word farthest away: the largest product is the nearest word",
             lambda vectors, a, b, c: _nearest(-vectors, vectors[b] - vectors[a] + vectors[c],
                                               (a, b, c))),
            ("a must be subtracted: b - a + c",
             lambda vectors, a, b, c: _nearest(vectors, vectors[a] + vectors[b] + vectors[c],
                                               (a, b, c))),
        ),
        properties=(
            ("return a whole number, as int(…) gives it: it is the number of a word",
             lambda found, *_: whole(found)),
        ),
        learned="analogies",
        hint="Set the similarity of the three given words to −∞ before the argmax.",
    ),
}  # fmt: skip
