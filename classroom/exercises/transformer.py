"""Exercises of notebook 04: the Transformer."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k' / sqrt(E)) v over the keys that the mask lets take part."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ v


def causal_mask(length: int) -> Tensor:
    """True [T, T] where a position may look: at itself and at what came before it."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H * E] -> [B, H, T, E]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def sinusoids(length: int, width: int) -> Tensor:
    """sin, then cos, of each position at width / 2 wave lengths: [T, D]."""
    frequencies = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def cross_attention(
    x: Tensor, source: Tensor, real: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """What each position of x takes from the real positions of the source: [B, T, D]."""
    mask = real[:, None, :].expand(-1, x.shape[1], -1)
    return attention(x @ query, source @ key, source @ value, mask)


def teacher_forced(answers: Tensor, begin: int) -> Tensor:
    """The right words, one position later, after `begin`: [B, T]."""
    return torch.cat([torch.full_like(answers[:, :1], begin), answers[:, :-1]], dim=1)


def smoothed_loss(logits: Tensor, answers: Tensor, share: float) -> Tensor:
    """Cross-entropy with a target that gives `share` to all words evenly."""
    return F.cross_entropy(logits, answers, label_smoothing=share)


# ---- inputs -----------------------------------------------------------------------------------


def _rows(rng: torch.Generator) -> tuple[int, int, int, int]:
    """Rows, positions of queries, positions of keys, width."""
    return between(1, 4, rng), between(1, 5, rng), between(2, 6, rng), 2 * between(1, 4, rng)


def _queries(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, asks, answers, width = _rows(rng)
    heads = [between(2, 4, rng)] if between(0, 2, rng) else []
    q = torch.randn(rows, *heads, asks, width, generator=rng).requires_grad_()
    k, v = torch.randn(2, rows, *heads, answers, width, generator=rng)
    mask = torch.rand(rows, *[1] * len(heads), asks, answers, generator=rng) < 0.6
    mask[..., between(0, answers, rng)] = True
    scale = (1, 8)[between(0, 2, rng)]  # large scores, and large values that nobody may look at:
    hidden = ~mask.any(dim=-2)[..., None]  # the smallest share of such a key is seen
    return (q * scale).detach().requires_grad_(), k, torch.where(hidden, 1e6 * v, v), mask


def _heads(rng: torch.Generator) -> tuple[Tensor, int]:
    heads, width, length = between(2, 4, rng), between(2, 4, rng), between(2, 5, rng)
    x = torch.randn(between(1, 3, rng), length, heads * width, generator=rng)
    return x, heads


def _two_texts(rng: torch.Generator) -> tuple[Tensor, ...]:
    rows, asks, answers, width = _rows(rng)
    if between(0, 2, rng):  # as many positions on both sides: a wrong choice gives a result, too
        asks = answers = max(asks, answers)
    x = torch.randn(rows, asks, width, generator=rng).requires_grad_()
    source = torch.randn(rows, answers, width, generator=rng)
    lengths = torch.randint(1, answers, (rows,), generator=rng)
    real = torch.arange(answers) < lengths[:, None]
    return (x, source, real, *torch.randn(3, width, width, generator=rng))


def _answers(rng: torch.Generator) -> tuple[Tensor, int]:
    shape = between(1, 4, rng), between(2, 7, rng)
    return torch.randint(2, 9, shape, generator=rng), between(0, 2, rng)


def _scores(rng: torch.Generator) -> tuple[Tensor, Tensor, float]:
    count, words = between(1, 6, rng), between(3, 9, rng)
    logits = 2 * torch.randn(count, words, generator=rng)
    answers = torch.randint(words, (count,), generator=rng)
    return logits.requires_grad_(), answers, between(1, 5, rng) / 10


# ---- mistakes ---------------------------------------------------------------------------------


def _scaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    return attention(q * math.sqrt(q.shape[-1]) / scale, k, v, mask)


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def _zeros_before(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (_products(q, k) * mask).softmax(dim=-1) @ v


def _zeros_after(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (_products(q, k).softmax(dim=-1) * mask) @ v


def _added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (_products(q, k) + mask).softmax(dim=-1) @ v


def _over_queries(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return _products(q, k).masked_fill(~mask, -math.inf).softmax(dim=-2) @ v


def _crossed(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cross-attention with another attention inside."""

    def answer(
        x: Tensor, source: Tensor, real: Tensor, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        mask = real[:, None, :].expand(-1, x.shape[1], -1)
        return attend(x @ query, source @ key, source @ value, mask)

    return answer


def _waves(
    length: int, width: int, *, first: int = 0, base: int = 10_000, halves: int = 2
) -> Tensor:
    """Sinusoids from another position or of another base, or with halves / 2 times the exponent."""
    frequencies = base ** (-torch.arange(0, width, 2) * halves / 2 / width)
    angles = torch.arange(first, first + length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


ADDED = "adding the mask adds 1 where it is True and hides nothing: put −∞ where it is False"

EXERCISES: dict[str, Exercise] = {
    "04.attention": Function(
        "softmax(q k' / √E) v, over the keys for which the mask is True",
        attention,
        _queries,
        (
            ("the scores are not divided by √E: with wide vectors the softmax has no gradient left",
             lambda q, k, v, mask: _scaled(q, k, v, mask, 1)),
            ("the scores are divided by E: divide by its square root",
             lambda q, k, v, mask: _scaled(q, k, v, mask, q.shape[-1])),
            ("the mask is inverted: True means that the key takes part",
             lambda q, k, v, mask: attention(q, k, v, ~mask)),
            ("the mask is not used", lambda q, k, v, mask: attention(q, k, v, mask | True)),
            ("a score of zero still gets a share, since e⁰ = 1: put −∞ there", _zeros_before),
            (ADDED, _added),
            ("a large negative number is not −∞: where scores are large, the hidden key still gets "
             "a share",
             lambda q, k, v, mask: _products(q, k).masked_fill(~mask, -20.0).softmax(dim=-1) @ v),
            ("zeros after the softmax leave rows that do not sum to one: put −∞ before it",
             _zeros_after),
            ("the softmax runs over the queries: each query shares out 1 among the keys",
             _over_queries),
            ("the weights average the keys: they belong to the values",
             lambda q, k, v, mask: attention(q, k, k, mask)),
            ("count dimensions from the end, −1 and −2: the heads put one more in front",
             lambda q, k, v, mask: (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]))
             .masked_fill(~mask, -math.inf).softmax(dim=-1) @ v),
        ),
        minutes=8,
        learned="attention",
    ),
    "04.mask": Function(
        "a boolean [T, T], True where position i (row) may look at position j (column)",
        causal_mask,
        lambda rng: (between(1, 8, rng),),
        (
            ("a position may look at itself, too: only later words are out of sight",
             lambda length: torch.ones(length, length, dtype=torch.bool).tril(-1)),
            ("that is the other triangle: position i may look at j where j ≤ i, not where j ≥ i",
             lambda length: torch.ones(length, length, dtype=torch.bool).triu()),
            ("that hides the past and shows the future: True means that a position may look",
             lambda length: torch.ones(length, length, dtype=torch.bool).triu(1)),
            ("the diagonal is one too far: each position sees the word that it has to predict",
             lambda length: torch.ones(length, length, dtype=torch.bool).tril(1)),
            ("nothing is hidden: that is the mask of an encoder",
             lambda length: torch.ones(length, length, dtype=torch.bool)),
        ),
        learned="the causal mask",
        hint="Row i has i + 1 times True. `torch.tril` keeps the lower triangle of a matrix.",
    ),
    "04.heads": Function(
        "the same numbers as [B, H, T, E]: each head has its own part of every position's vector",
        split_heads,
        _heads,
        (
            ("the shape is right, the numbers are mixed up: a position's vector must be split "
             "first, [B, T, H, E], and the axes swapped afterwards",
             lambda x, heads: x.reshape(len(x), heads, x.shape[1], -1)),
            ("the heads are still behind the positions: swap the axes 1 and 2",
             lambda x, heads: x.unflatten(-1, (heads, -1))),
            ("neighbouring features went to different heads: head 0 has the first E of them",
             lambda x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)),
            ("H and E are swapped: there are `heads` heads",
             lambda x, heads: x.unflatten(-1, (-1, heads)).transpose(1, 2)),
        ),
        learned="several heads side by side",
    ),
    "04.sinusoids": Function(
        "position p, column i: sin(p / 10000^(2i/D)) in the first half, cos in the second",
        sinusoids,
        lambda rng: (between(3, 7, rng), 2 * between(2, 5, rng)),
        (
            ("sines and cosines alternate, as in the paper; here all sines come first",
             lambda length, width:
             sinusoids(length, width).unflatten(1, (2, -1)).transpose(1, 2).flatten(1)),
            ("cosines come first: position 0 is 0, 0, …, 1, 1, …",
             lambda length, width: sinusoids(length, width).roll(width // 2, 1)),
            ("positions are counted from 1: the first is 0",
             lambda length, width: _waves(length, width, first=1)),
            ("the exponent is twice as large as it should be: 2i / D for column i of D / 2",
             lambda length, width: _waves(length, width, halves=4)),
            ("the exponent is half as large as it should be: 2i / D for column i of D / 2",
             lambda length, width: _waves(length, width, halves=1)),
            ("the longest wave is too short: the base is 10,000",
             lambda length, width: _waves(length, width, base=1_000)),
        ),
        properties=(
            ("return float32, PyTorch's default, which the layers compute with",
             lambda found, *_: found.dtype == torch.float32),
        ),
        minutes=8,
        learned="positions as waves",
        hint="Multiply the positions by D/2 frequencies, and concatenate sines and cosines.",
    ),
    "04.cross": Function(
        "queries from x, keys and values from the source, whose padding takes no part: [B, T, D]",
        cross_attention,
        _two_texts,
        (
            ("queries, keys and values all come from x: that is self-attention",
             lambda x, source, real, query, key, value:
             cross_attention(x, x, real, query, key, value)),
            ("the sides are swapped: queries come from x, keys and values from the source",
             lambda x, source, real, query, key, value:
             cross_attention(source, x, real, query, key, value)),
            ("the padding of the source is attended to: mask it",
             lambda x, source, real, query, key, value:
             cross_attention(x, source, real | True, query, key, value)),
            ("only padding is attended to: real is True where there is a word",
             lambda x, source, real, query, key, value:
             cross_attention(x, source, ~real, query, key, value)),
            ("the values come from x: they must come from the source",
             lambda x, source, real, query, key, value: attention(
                 x @ query, source @ key, x @ value,
                 real[:, None, :].expand(-1, x.shape[1], -1))),
            ("the scores are not divided by √D",
             lambda x, source, real, query, key, value: cross_attention(
                 x * math.sqrt(x.shape[-1]), source, real, query, key, value)),
            ("the scores are divided by D: divide by its square root",
             lambda x, source, real, query, key, value: cross_attention(
                 x / math.sqrt(x.shape[-1]), source, real, query, key, value)),
            ("a score of zero still gets a share, since e⁰ = 1: put −∞ there",
             _crossed(_zeros_before)),
            (ADDED, _crossed(_added)),
            ("zeros after the softmax leave rows that do not sum to one: put −∞ before it",
             _crossed(_zeros_after)),
        ),
        minutes=8,
        learned="cross-attention and the padding of the source",
        hint="The mask depends on the source alone: `real[:, None, :]`, the same for every query.",
    ),
    "04.forced": Function(
        "what the decoder reads in training: `begin`, then all right words but the last",
        teacher_forced,
        _answers,
        (
            ("that is not shifted: each position reads the very word that it has to predict",
             lambda answers, begin: answers),
            ("the row is one longer than the answers: leave out the last word, which nothing "
             "comes after", lambda answers, begin: F.pad(answers, (1, 0), value=begin)),
            ("the shift goes the wrong way: each position reads the word after the one it predicts",
             lambda answers, begin: torch.cat(
                 [answers[:, 1:], torch.full_like(answers[:, :1], begin)], dim=1)),
            ("the last word comes first: it is the answer to the last question; put `begin`",
             lambda answers, begin: answers.roll(1, 1)),
            ("the first word is replaced and nothing is shifted",
             lambda answers, begin: torch.cat(
                 [torch.full_like(answers[:, :1], begin), answers[:, 1:]], dim=1)),
        ),
        learned="teacher forcing: the shift",
        hint="Shift to the right: put one new token in front, and drop the last one.",
    ),
    "04.smoothed": Function(
        "the mean cross-entropy with (1 − share) on the right word and share spread over all words",
        smoothed_loss,
        _scores,
        (
            ("nothing is smoothed: that is the plain cross-entropy",
             lambda logits, answers, share: F.cross_entropy(logits, answers)),
            ("the share is spread over the wrong words only: the paper's code spreads it over all",
             lambda logits, answers, share: F.cross_entropy(
                 logits, answers,
                 label_smoothing=share * logits.shape[1] / (logits.shape[1] - 1))),
            ("the right word keeps all of its weight: the target sums to more than one",
             lambda logits, answers, share: F.cross_entropy(logits, answers)
             - share * logits.log_softmax(dim=-1).mean(dim=-1).mean()),
            ("that is the sum over the words: take the mean over the predictions",
             lambda logits, answers, share: F.cross_entropy(
                 logits, answers, label_smoothing=share, reduction="sum")),
            ("the right word has a part of the share, too: 1 − share + share / V",
             lambda logits, answers, share: smoothed_loss(logits, answers, share)
             - share / logits.shape[1] * F.cross_entropy(logits, answers)),
            ("the share is spread over the words: take the mean over them, not the sum",
             lambda logits, answers, share: (1 - share) * F.cross_entropy(logits, answers)
             - share * logits.log_softmax(dim=-1).sum(dim=-1).mean()),
            ("share and 1 − share are swapped",
             lambda logits, answers, share: smoothed_loss(logits, answers, 1 - share)),
        ),
        minutes=8,
        learned="label smoothing",
        hint="The share is spread over all V words, the right one among them: a mean over V.",
    ),
}  # fmt: skip
