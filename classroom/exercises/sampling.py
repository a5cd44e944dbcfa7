"""Exercises of notebook 06: temperature, top-k, nucleus, a loop that writes, one step of a beam."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, Number, between, whole

Model = Callable[[Tensor], Tensor]

# ---- the course's own versions ----------------------------------------------------------------


def at_temperature(logits: Tensor, temperature: float) -> Tensor:
    """The probabilities [B, V] after the logits were divided by the temperature."""
    return (logits / temperature).softmax(dim=-1)


def top_k(logits: Tensor, k: int) -> Tensor:
    """The logits [B, V] with -inf for all but the k largest of each row."""
    worst = logits.topk(k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < worst, -math.inf)


def nucleus(logits: Tensor, p: float) -> Tensor:
    """The logits [B, V] with -inf outside the fewest best words that hold the share p."""
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    before = sorted_p.cumsum(dim=-1) - sorted_p  # what the better words hold
    return _without(logits, order, (before >= p) & (p < 1))  # a sum may be rounded to 1


def _without(logits: Tensor, order: Tensor, outside: Tensor) -> Tensor:
    """-inf for what is outside; `outside` marks the words in this order."""
    unsorted = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, outside)
    return logits.masked_fill(unsorted, -math.inf)


def greedy(model: Model, tokens: Tensor, words: int) -> Tensor:
    """The tokens [B, T], followed by `words` new ones, each the likeliest after all before it."""
    for _ in range(words):
        best = model(tokens)[:, -1].argmax(dim=-1, keepdim=True)
        tokens = torch.cat([tokens, best], dim=1)
    return tokens


def beam_step(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Which text [K] and which word [K] make the K likeliest longer texts, the best first."""
    beams, words = log_p.shape
    best = (scores[:, None] + log_p).flatten().topk(beams).indices
    return best // words, best % words


def kept(model: Tensor, exact: Tensor, k: int, p: float) -> tuple[int, int]:
    """How many words top-p keeps, and how many of those that top-k keeps cannot follow."""
    best, order = model.sort(descending=True)
    words = (best.cumsum(0) - best < p) | (p == 1)  # a sum may be rounded to 1
    return int(words.sum()), int((exact[order[:k]] == 0).sum())


# ---- inputs -----------------------------------------------------------------------------------


def _logits(rng: torch.Generator) -> Tensor:
    return 2 * torch.randn(between(1, 4, rng), between(4, 9, rng), generator=rng)


def _with_k(rng: torch.Generator) -> tuple[Tensor, int]:
    """Logits and k, from 1 to all words; in some of them, words are tied."""
    logits = torch.randn(between(2, 5, rng), between(5, 9, rng), generator=rng)
    k = between(1, logits.shape[1] + 1, rng)
    return logits.round() + 0.0 if between(0, 3, rng) == 0 else logits, k  # no -0.0


def _to_cut(rng: torch.Generator) -> tuple[Tensor, float]:
    """Logits and a share; with 1, a float's sum is a little above 1 before the last words."""
    logits, p = _logits(rng), (0.35, 0.5, 0.8, 0.95, 1.0)[between(0, 5, rng)]
    while p == 1 and not _above_one(logits):
        logits = _logits(rng)
        logits[:, ::3] -= 30
    return logits, p


def _above_one(logits: Tensor) -> bool:
    """Whether a rounded sum is above 1 before the last word, sorted after the softmax or before."""
    best = logits.sort(dim=-1, descending=True).values
    sums = logits.softmax(dim=-1).sort(dim=-1, descending=True).values.cumsum(dim=-1)
    return bool((sums[:, -2] > 1).any() and sums.equal(best.softmax(dim=-1).cumsum(dim=-1)))


def _two_distributions(rng: torch.Generator) -> tuple[Tensor, Tensor, int, float]:
    words = between(7, 12, rng)
    p = (0.5, 0.8, 0.9, 1.0)[between(0, 4, rng)]
    model = ((20 if p == 1 else 3) * torch.randn(words, generator=rng)).softmax(dim=0)
    able = torch.rand(words, generator=rng) < 0.5
    able[model.argmax()] = True
    exact = model * able * torch.rand(words, generator=rng)
    return model, exact / exact.sum(), between(3, 6, rng), p


class _Toy:
    """A model of a few words whose next word depends on all words before it and their order."""

    def __init__(self, words: int, rng: torch.Generator) -> None:
        self.table = torch.randn(words, words, generator=rng)

    def __call__(self, tokens: Tensor) -> Tensor:
        position = torch.arange(1, tokens.shape[1] + 1)
        return self.table[((tokens * tokens + 1) * position).cumsum(dim=1) % len(self.table)]

    def __repr__(self) -> str:
        return f"a model of {len(self.table)} words"

    def __len__(self) -> int:
        return len(self.table)


def _to_write(rng: torch.Generator) -> tuple[_Toy, Tensor, int]:
    words = between(5, 9, rng)
    tokens = torch.randint(words, (between(1, 4, rng), between(2, 5, rng)), generator=rng)
    return _Toy(words, rng), tokens, between(2, 5, rng)


def _beams(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    beams, words = between(2, 4, rng), between(4, 8, rng)
    scores = -3 * torch.rand(beams, generator=rng, dtype=torch.float64)
    logits = torch.randn(beams, words, generator=rng, dtype=torch.float64)
    return scores.sort(descending=True).values, logits.log_softmax(dim=-1)


# ---- mistakes ---------------------------------------------------------------------------------


def _stays_below(logits: Tensor, p: float) -> Tensor:
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    return _without(logits, order, sorted_p.cumsum(dim=-1) > p)


def _rounded(logits: Tensor, p: float) -> Tensor:
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    return _without(logits, order, sorted_p.cumsum(dim=-1) - sorted_p >= p)


def _rounded_up(logits: Tensor, p: float) -> Tensor:
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    above = sorted_p.cumsum(dim=-1) > p
    return _without(logits, order, above.roll(1, dims=-1).index_fill(-1, torch.tensor(0), False))


def _before(model: Tensor) -> Tensor:
    best = model.sort(descending=True).values
    return best.cumsum(0) - best


def _unsorted(logits: Tensor, p: float) -> Tensor:
    share = logits.softmax(dim=-1)
    return logits.masked_fill(share.cumsum(dim=-1) - share >= p, -math.inf)


def _not_put_back(logits: Tensor, p: float) -> Tensor:
    sorted_p = logits.softmax(dim=-1).sort(dim=-1, descending=True).values
    return logits.masked_fill(sorted_p.cumsum(dim=-1) - sorted_p >= p, -math.inf)


def _worst_first(logits: Tensor, p: float) -> Tensor:
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1)
    return _without(logits, order, sorted_p.cumsum(dim=-1) - sorted_p >= p)


def _both(says: str, wrong: Callable[[Tensor, float], Tensor]) -> tuple[tuple[str, Any], ...]:
    """A mistake, and the same by someone who keeps all words where p is 1."""
    return (says, wrong), (says, lambda logits, p: logits if p == 1 else wrong(logits, p))


def _forgets(model: Model, tokens: Tensor, words: int) -> Tensor:
    for _ in range(words):
        tokens = torch.cat([tokens, model(tokens[:, -1:])[:, -1:].argmax(dim=-1)], dim=1)
    return tokens


def _first_position(model: Model, tokens: Tensor, words: int) -> Tensor:
    for _ in range(words):
        tokens = torch.cat([tokens, model(tokens)[:, :1].argmax(dim=-1)], dim=1)
    return tokens


def _all_at_once(model: Model, tokens: Tensor, words: int) -> Tensor:
    best = model(tokens)[:, -1:].argmax(dim=-1)
    return torch.cat([tokens, best.expand(-1, words)], dim=1)


def _worst_step(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    beams, words = log_p.shape
    worst = (scores[:, None] + log_p).flatten().topk(beams, largest=False).indices
    return worst // words, worst % words


EXERCISES: dict[str, Exercise] = {
    "06.temperature": Function(
        "the probabilities [B, V] of a softmax over logits / temperature",
        at_temperature,
        lambda rng: (_logits(rng), (0.3, 0.7, 1.5, 3.0)[between(0, 4, rng)]),
        (
            ("the temperature multiplies the logits: divide, so that a high one flattens",
             lambda logits, t: (logits * t).softmax(dim=-1)),
            ("the softmax runs over the rows of the batch: the words are the last dimension",
             lambda logits, t: (logits / t).softmax(dim=0)),
            ("the probabilities are divided and not the logits: they no longer add up to 1",
             lambda logits, t: logits.softmax(dim=-1) / t),
            ("the softmax comes first and last: divide the logits, then one softmax",
             lambda logits, t: (logits.softmax(dim=-1) / t).softmax(dim=-1)),
            ("those are logits: the softmax is missing", lambda logits, t: logits / t),
        ),
        learned="temperature",
        hint="Divide the logits, not the probabilities.",
    ),
    "06.top_k": Function(
        "the logits [B, V] with -inf for all but the k largest of each row",
        top_k,
        _with_k,
        (
            ("the k largest of the whole batch were kept: each row keeps its own k",
             lambda logits, k:
             logits.masked_fill(logits < logits.flatten().topk(k).values[-1], -math.inf)),
            ("the first row decides for all: compare each row with its own k-th largest",
             lambda logits, k:
             logits.masked_fill(logits < logits[0].topk(k).values[-1], -math.inf)),
            ("the k smallest were kept",
             lambda logits, k: -top_k(-logits, k).masked_fill(top_k(-logits, k) == -math.inf,
                                                              math.inf)),
            ("one word too few was kept: the k-th largest stays", lambda logits, k:
             top_k(logits, k - 1)),
            ("the k-th largest itself was dropped: leave out what is smaller, not what is as large",
             lambda logits, k: logits.masked_fill(
                 logits <= logits.topk(k).values[:, -1:], -math.inf)),
            ("words that are tied with the k-th largest stay: compare with its value",
             lambda logits, k: torch.full_like(logits, -math.inf).scatter(
                 -1, logits.topk(k).indices, logits.topk(k).values)),
            ("a logit of 0 is not improbable: exp(0) is 1; the softmax needs -inf",
             lambda logits, k: top_k(logits, k).masked_fill(top_k(logits, k) == -math.inf, 0.0)),
        ),
        learned="top-k",
        hint="`logits.topk(k).values` are the k largest of each row; drop what is smaller.",
    ),
    "06.nucleus": Function(
        "the logits [B, V] with -inf outside the fewest best words that together hold the share p",
        nucleus,
        _to_cut,
        (
            *_both("the word that reaches p is missing: the set has to hold at least p (GPT-2's "
                   "own code stayed below it)", _stays_below),
            *_both("the words were added up in the order of the vocabulary: sort them, the best "
                   "first", _unsorted),
            *_both("the sorted positions were not put back: word i of the sorted list is not word "
                   "i of the vocabulary", _not_put_back),
            *_both("the words were added up from the worst: sort with descending=True",
                   _worst_first),
            *_both("each word with a probability below p was dropped: p is the share that the set "
                   "holds",
                   lambda logits, p: logits.masked_fill(logits.softmax(dim=-1) < p, -math.inf)),
            ("with p = 1 words were lost: a rounded sum is 1 before the last of them", _rounded),
            ("with p = 1 words were lost: a rounded sum is a little above 1 before the last of "
             "them", _rounded_up),
        ),
        minutes=10,
        learned="the nucleus",
    ),
    "06.greedy": Function(
        "the tokens, followed by `words` new ones, each the likeliest after all before it",
        greedy,
        _to_write,
        (
            ("the model was shown the last word only: give it all tokens so far", _forgets),
            ("that is the prediction at the first position: the next word is at the last one",
             _first_position),
            ("the same word was written each time: call the model again after each word",
             _all_at_once),
            ("the given tokens are missing: return them, followed by the new ones",
             lambda model, tokens, words: greedy(model, tokens, words)[:, tokens.shape[1]:]),
            ("one word too many was written", lambda model, tokens, words:
             greedy(model, tokens, words + 1)),
            ("one word too few was written", lambda model, tokens, words:
             greedy(model, tokens, words - 1)),
        ),
        learned="the loop that writes",
        hint="`logits[:, -1]` predicts the next word. Append it with `torch.cat` along dim 1.",
    ),
    "06.beam": Function(
        "(which text, which word): the K likeliest longer texts, the best first",
        beam_step,
        _beams,
        (
            ("the score of the text so far is missing: add it to the log probabilities",
             lambda scores, log_p: beam_step(torch.zeros_like(scores), log_p)),
            ("each text kept its own best word: compare all K x V longer texts with each other",
             lambda scores, log_p: (torch.arange(len(scores)), log_p.argmax(dim=1))),
            ("text and word are exchanged", lambda *given: beam_step(*given)[::-1]),
            ("the flat position is text x V + word: divide by V, the number of words",
             lambda scores, log_p: (
                 (scores[:, None] + log_p).flatten().topk(len(scores)).indices // len(scores),
                 (scores[:, None] + log_p).flatten().topk(len(scores)).indices % len(scores))),
            ("the worst texts were kept: the largest log probabilities are the best",
             _worst_step),
        ),
        minutes=10,
        learned="beam search",
        hint="Add each text's score to all of its next words, flatten, and take the best K.",
    ),
    "06.kept": Function(
        "(how many words top-p keeps, how many of the words that top-k keeps cannot follow)",
        kept,
        _two_distributions,
        (
            ("the word that reaches p is missing, which top-p keeps",
             lambda *given: (kept(*given)[0] - 1, kept(*given)[1])),
            ("the word that reaches p is missing, which top-p keeps",
             lambda *given: (kept(*given)[0] - (given[3] < 1), kept(*given)[1])),
            ("with p = 1 words were lost: a rounded sum is 1 before the last of them",
             lambda model, exact, k, p: (int((_before(model) < p).sum()),
                                         kept(model, exact, k, p)[1])),
            ("all impossible words were counted: only those among the k best of the model",
             lambda model, exact, k, p: (kept(model, exact, k, p)[0], int((exact == 0).sum()))),
            ("those can follow: a word is impossible where its exact probability is 0",
             lambda *given: (kept(*given)[0], given[2] - kept(*given)[1])),
            ("the k best of the language were taken: top-k keeps the k best of the model",
             lambda model, exact, k, p: (kept(model, exact, k, p)[0],
                                         kept(exact, exact, k, p)[1])),
            ("the two counts are exchanged", lambda *given: kept(*given)[::-1]),
        ),
        properties=(
            ("both are counts: return whole numbers, as int(…) gives them",
             lambda found, *_: whole(*found)),
        ),
        learned="a number of words or a share",
        hint="Sort from the best down: a word stays if those before it hold less than p.",
    ),
    "06.shot": Number(
        "the probability of ottawa after one shot",
        "05efae960cb3283e",
        {
            "9d13cc22ddb8d297": "two relations are left, with the weights 3 and 2",
            "504f867c19da21b5": "that is without the shot: all relations of countries",
            "a9fea80ec3fdad5b": "Cairo is also the biggest city: one shot does not tell them apart",
            "87aa7b506199a83e": "that is the other relation, the biggest city",
        },
        learned="what a shot shows",
        hint="Bayes: how likely is the shot under each of the two relations?",
    ),
    "06.leak": Number(
        "by how much the reported accuracy is too high",
        "a2d41f9d4e986d45",
        {
            "8f596e2f059fb61d": "that holds for the leaked ones, which are a part of the test",
            "e64733ab8701df0a": "that is the reported accuracy: subtract the clean one",
            "87aa7b506199a83e": "that is the share that leaked",
            "e6a3c209dcd24f5e": "that is what the leaked questions contribute",
        },
        learned="contamination",
        hint="Mix the accuracies of seen and unseen questions, and subtract the clean one.",
    ),
}  # fmt: skip
