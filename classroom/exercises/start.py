"""Exercises of notebook 00: surprise, entropy, pairs of words, the loss of a table of logits."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def mean_surprise(probabilities: Tensor) -> Tensor:
    """The mean of -log p over the words of a text, from the probability of each word [N]."""
    return -probabilities.log().mean()


def entropy(next_word: Tensor, share: Tensor) -> Tensor:
    """The mean surprise of one who knows the table [V, V], when word v has the share share[v]."""
    surprise = -next_word * next_word.clamp(min=1e-300).log()
    return (share[:, None] * surprise).sum()


def pair_counts(tokens: Tensor, size: int) -> Tensor:
    """How often word j follows word i in a text [T]: a table [V, V]."""
    counts = torch.zeros(size, size)
    for before, word in zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True):
        counts[before, word] += 1
    return counts


def smoothed(counts: Tensor) -> Tensor:
    """The probability of each next word, as if each pair had been seen once more: [V, V]."""
    return (counts + 1) / (counts.sum(dim=1, keepdim=True) + counts.shape[1])


def table_loss(logits: Tensor, before: Tensor, word: Tensor) -> Tensor:
    """The mean of -log p(word | before), for logits [V, V] and pairs of words [N]."""
    return F.cross_entropy(logits[before], word)


# ---- inputs -----------------------------------------------------------------------------------


def _probabilities(rng: torch.Generator) -> tuple[Tensor]:
    return (torch.rand(between(2, 9, rng), generator=rng, dtype=torch.float64) * 0.9 + 0.05,)


def _table(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    size = between(3, 7, rng)
    weights = torch.rand(size, size, generator=rng, dtype=torch.float64)
    weights = weights * (torch.rand(size, size, generator=rng) < 0.7)
    weights[:, 0] += 0.1  # each row has a next word
    share = torch.rand(size, generator=rng, dtype=torch.float64) + 0.05
    return weights / weights.sum(dim=1, keepdim=True), share / share.sum()


def _text(rng: torch.Generator) -> tuple[Tensor, int]:
    size = between(3, 6, rng)
    tokens = torch.randint(size, (between(3, 14, rng),), generator=rng)
    tokens[:3] = torch.tensor([0, 1, 1])  # some pair, and a word that follows itself
    return tokens, size


def _counts(rng: torch.Generator) -> tuple[Tensor]:
    size = between(3, 6, rng)
    counts = torch.randint(0, 5, (size, size), generator=rng).float()
    counts[0] = 0  # a word that was never followed by any
    counts[1, 2] = 7
    return (counts,)


def _logits(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    size, pairs = between(3, 7, rng), between(2, 9, rng)
    logits = torch.randn(size, size, generator=rng).requires_grad_()
    before, word = torch.randint(size, (2, pairs), generator=rng)
    return logits, before, word


EXERCISES: dict[str, Exercise] = {
    "00.surprise": Function(
        "the mean of −log p over the words of a text, in nats",
        mean_surprise,
        _probabilities,
        (
            ("that is in bits: the natural logarithm gives nats",
             lambda p: mean_surprise(p) / math.log(2)),
            ("the sign is missing: a logarithm of a probability is negative, a surprise is not",
             lambda p: -mean_surprise(p)),
            ("that is the sum: divide by the number of words", lambda p: -p.log().sum()),
            ("take the logarithm of each probability first and the mean of those after it",
             lambda p: -p.mean().log()),
            ("that is the perplexity: its logarithm is asked for",
             lambda p: mean_surprise(p).exp()),
        ),
        learned="the loss of a language model",
    ),
    "00.entropy": Function(
        "the mean over words v, weighted by share[v], of −Σ p(w | v) log p(w | v)",
        entropy,
        _table,
        (
            ("0 · log 0 is nan on a computer: a word that cannot come adds nothing",
             lambda p, share: -(share[:, None] * p * p.log()).sum()),
            ("each row counts alike here: weight row v by share[v]",
             lambda p, share: entropy(p, torch.full_like(share, 1 / len(share)))),
            ("the shares weight the columns: they belong to the word before, which is the row",
             lambda p, share: -(share * p * p.clamp(min=1e-300).log()).sum()),
            ("the sign is missing: entropy is not negative", lambda *given: -entropy(*given)),
            ("that is in bits: the natural logarithm gives nats",
             lambda *given: entropy(*given) / math.log(2)),
            ("the logarithms are not weighted by their probabilities p(w | v)",
             lambda p, share: -(share[:, None] * p.clamp(min=1e-300).log()).sum()),
        ),
        learned="the lowest possible loss",
    ),
    "00.pairs": Function(
        "a table [V, V] whose entry [i, j] says how often word j follows word i",
        pair_counts,
        _text,
        (
            ("rows and columns are exchanged: the row is the word before",
             lambda *given: pair_counts(*given).T),
            ("each word is counted with itself: pair word t with word t + 1",
             lambda tokens, size: torch.bincount(tokens, minlength=size).float().diag()),
            ("the text is not a ring: nothing follows its last word",
             lambda tokens, size: pair_counts(torch.cat([tokens, tokens[:1]]), size)),
            ("a pair that was seen twice counts twice; with whole tensors of indices, "
             "`counts[i, j] += 1` counts it once",
             lambda *given: pair_counts(*given).clamp(max=1)),
            ("the last pair is missing", lambda tokens, size: pair_counts(tokens[:-1], size)),
        ),
        learned="a bigram model",
        hint="`zip(tokens[:-1].tolist(), tokens[1:].tolist())` goes through all neighbours.",
    ),
    "00.smoothed": Function(
        "the probability of each next word, each pair counted once more than it was seen: [V, V]",
        smoothed,
        _counts,
        (
            ("a row of zeros has no probabilities: count each pair once more than it was seen",
             lambda counts: counts / counts.sum(dim=1, keepdim=True)),
            ("the rows do not add up to 1: with V pairs seen once more, the sum grows by V",
             lambda counts: (counts + 1) / (counts.sum(dim=1, keepdim=True) + 1)),
            ("the columns add up to 1: the row is the word before, so each row must",
             lambda counts: (counts + 1) / (counts.sum(dim=0) + len(counts))),
            ("each sum divides a column: with keepdim=True it divides its own row",
             lambda counts: (counts + 1) / (counts + 1).sum(dim=1)),
            ("the whole table adds up to 1: each row must",
             lambda counts: (counts + 1) / (counts + 1).sum()),
        ),
        learned="why a model needs a probability for what it has not seen",
        hint="Sum each row with `sum(dim=1, keepdim=True)`, so that it divides its own row.",
    ),
    "00.loss": Function(
        "the mean of −log softmax(logits[before])[word] over all pairs",
        table_loss,
        _logits,
        (
            ("rows and columns are exchanged: logits[i] are the scores of what follows word i",
             lambda logits, before, word: table_loss(logits, word, before)),
            ("the softmax is taken twice: cross_entropy expects logits, not probabilities",
             lambda logits, *pairs: table_loss(logits.softmax(dim=-1), *pairs)),
            ("that is the sum: divide by the number of pairs",
             lambda logits, before, word: table_loss(logits, before, word) * len(word)),
            ("the sign is missing: training would make the right words unlikely",
             lambda *given: -table_loss(*given)),
            ("those are the logits of the right words: take their log softmax",
             lambda logits, before, word: -logits[before, word].mean()),
            ("the softmax runs over the word before: dim=-1 is the next word",
             lambda logits, before, word: -logits.log_softmax(dim=0)[before, word].mean()),
        ),
        learned="cross-entropy",
    ),
}  # fmt: skip
