"""Exercises of notebook 05: GPT."""

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, Number, between

Rows = list[list[str]]

# ---- the course's own versions ----------------------------------------------------------------


def parameters(vocabulary: int, context: int, width: int, layers: int) -> int:
    """How many numbers a GPT-2 of this size learns."""
    block = 12 * width**2 + 13 * width
    return vocabulary * width + context * width + layers * block + 2 * width


def next_word_loss(logits: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
    """The mean of -log p(next word) over all real next words."""
    each = _each(logits[:, :-1], tokens[:, 1:])
    return each[real[:, 1:]].mean()


def _each(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")


def last_state(states: Tensor, real: Tensor) -> Tensor:
    """The state at the last real position of each row [B, D]."""
    return states[torch.arange(len(states)), real.sum(dim=1) - 1]


def both_orders(first: list[str], second: list[str]) -> Rows:
    """Similarity: the two rows of tokens, each text first once."""
    return [
        ["<start>", *first, "$", *second, "<extract>"],
        ["<start>", *second, "$", *first, "<extract>"],
    ]


def choice_loss(scores: Tensor, answers: Tensor) -> Tensor:
    """Multiple choice: cross-entropy over the rows of each question."""
    return F.cross_entropy(scores.reshape(len(answers), -1), answers)


# ---- inputs -----------------------------------------------------------------------------------


def _batch(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    rows, length, words = between(1, 4, rng), between(2, 7, rng), between(3, 9, rng)
    logits = torch.randn(rows, length, words, generator=rng).requires_grad_()
    tokens = torch.randint(words, (rows, length), generator=rng)
    lengths = torch.randint(2, length + 1, (rows,), generator=rng)
    return logits, tokens, torch.arange(length) < lengths[:, None]


def _states(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    rows, length, width = between(1, 4, rng), between(1, 6, rng), between(1, 4, rng)
    states = torch.randn(rows, length, width, generator=rng).requires_grad_()
    lengths = torch.randint(1, length + 1, (rows,), generator=rng)
    return states, torch.arange(length) < lengths[:, None]


def _texts(rng: torch.Generator) -> tuple[list[str], list[str]]:
    words = ["we", "saw", "a", "star", "in", "may"]
    drawn = torch.randint(len(words), (8,), generator=rng).tolist()
    first = between(1, 4, rng)
    return [words[i] for i in drawn[:first]], [words[i] for i in drawn[4 : 4 + between(1, 5, rng)]]


def _questions(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    questions, choices = between(1, 5, rng), between(2, 5, rng)
    scores = torch.randn(questions * choices, generator=rng).requires_grad_()
    return scores, torch.randint(choices, (questions,), generator=rng)


# ---- mistakes ---------------------------------------------------------------------------------


def _mean_of_rows(logits: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
    each = _each(logits[:, :-1], tokens[:, 1:])
    return torch.stack([one[own].mean() for one, own in zip(each, real[:, 1:], strict=True)]).mean()


EXERCISES: dict[str, Exercise] = {
    "05.parameters": Function(
        "how many numbers a GPT-2 of this size learns",
        parameters,
        lambda rng: (*torch.randint(3, 60, (3,), generator=rng).tolist(), between(1, 6, rng)),
        (
            ("the output layer is counted again: it is the embedding, used a second time (tied)",
             lambda v, c, d, n: parameters(v, c, d, n) + v * d),
            ("the biases and norms are missing: 13 D in each block, and 2 D at the end",
             lambda v, c, d, n: v * d + c * d + n * 12 * d * d),
            ("the norm at the end is missing: 2 D",
             lambda v, c, d, n: parameters(v, c, d, n) - 2 * d),
            ("the embeddings of the positions are missing",
             lambda v, c, d, n: parameters(v, c, d, n) - c * d),
            ("only one block is counted", lambda v, c, d, n: parameters(v, c, d, 1)),
        ),
        learned="what a model's size is made of",
        hint="A block has 12 D² weights and 13 D biases and norms; a last norm has 2 D.",
    ),
    "05.loss": Function(
        "the mean of −log p(next word) over all real next words",
        next_word_loss,
        _batch,
        (
            ("each position is compared with the word that it has just read, and it can see that "
             "word: compare position t with word t + 1",
             lambda logits, tokens, real: _each(logits, tokens)[real].mean()),
            ("the shift goes the wrong way: position t predicts the word before it",
             lambda logits, tokens, real:
             _each(logits[:, 1:], tokens[:, :-1])[real[:, :-1]].mean()),
            ("padding counts as words to be predicted: leave out the targets that are not real",
             lambda logits, tokens, real: _each(logits[:, :-1], tokens[:, 1:]).mean()),
            ("that is the mask of the inputs: take the mask of the targets, real[:, 1:]",
             lambda logits, tokens, real:
             _each(logits[:, :-1], tokens[:, 1:])[real[:, :-1]].mean()),
            ("that is the mean of the rows' means: a word of a short text weighs more than one of "
             "a long text", _mean_of_rows),
            ("the softmax is taken twice: cross_entropy expects logits, not probabilities",
             lambda logits, tokens, real:
             _each(logits[:, :-1].softmax(-1), tokens[:, 1:])[real[:, 1:]].mean()),
            ("that is the sum: divide by the number of predicted words",
             lambda logits, tokens, real: _each(logits[:, :-1], tokens[:, 1:])[real[:, 1:]].sum()),
            ("the sign is missing: that is the mean of log p, and training would lower it",
             lambda *given: -next_word_loss(*given)),
        ),
        minutes=10,
        learned="L1: the shift, the padding, the mean",
    ),
    "05.last": Function(
        "the state at the last real position of each row",
        last_state,
        _states,
        (
            ("in a padded row the last column is padding: take the last real one",
             lambda states, real: states[:, -1]),
            ("the first position has read only itself in GPT; BERT reads there",
             lambda states, real: states[:, 0]),
            ("that is one position too early: positions are counted from 0",
             lambda states, real: states[torch.arange(len(states)), real.sum(dim=1) - 2]),
            ("that is one position too late: positions are counted from 0",
             lambda states, real: states[torch.arange(len(states)), real.sum(dim=1)]),
            ("that is the mean of all states: GPT takes the last one",
             lambda states, real:
             (states * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)),
        ),
        learned="L2: which state has read everything",
        hint="The last real position is the number of real ones minus 1, in each row.",
    ),
    "05.similarity": Function(
        "two rows, each text first once: <start>, text, $, other text, <extract>",
        both_orders,
        _texts,
        (
            ("one order comes twice: similarity is symmetric, so each text comes first once",
             lambda *given: [both_orders(*given)[0]] * 2),
            ("the second row is missing: similarity is symmetric, so the model reads both orders",
             lambda *given: both_orders(*given)[:1]),
            ("the delimiter $ between the two texts is missing",
             lambda *given: [[word for word in row if word != "$"] for row in both_orders(*given)]),
            ("<extract> is missing: its state is the one that is read",
             lambda *given: [row[:-1] for row in both_orders(*given)]),
            ("<start> is missing",
             lambda *given: [row[1:] for row in both_orders(*given)]),
        ),
        learned="a task as rows of tokens",
        hint="Write the row for one order, then the same with both texts exchanged.",
    ),
    "05.choice": Function(
        "cross-entropy over the choices of each question, from one score per row",
        choice_loss,
        _questions,
        (
            ("the rows of one question are adjacent: the choices are the last dimension",
             lambda scores, answers: F.cross_entropy(scores.reshape(-1, len(answers)).T, answers)),
            ("each row is judged for itself: the choices of one question share one softmax",
             lambda scores, answers: F.binary_cross_entropy_with_logits(
                 scores.reshape(len(answers), -1),
                 F.one_hot(answers, len(scores) // len(answers)).to(scores.dtype))),
            ("the softmax runs over the questions and not over the choices",
             lambda scores, answers: -scores.reshape(len(answers), -1).log_softmax(dim=0)
             .gather(1, answers[:, None]).mean()),
            ("the softmax is taken twice: cross_entropy expects scores, not probabilities",
             lambda scores, answers:
             F.cross_entropy(scores.reshape(len(answers), -1).softmax(dim=-1), answers)),
        ),
        learned="a softmax over rows",
        hint="Give the scores the shape [questions, choices]; then it is a cross-entropy.",
    ),
    "05.factor": Number(
        "what must 2⁻³⁰ be multiplied by to become the smallest number that float16 keeps exactly?",
        "e3f7210741131090",
        {
            "c4f0848716832f26": "the gradient survives, but a smaller factor is enough",
            "f6e462a5f87dbdd3": "24 is the exponent of the smallest number: what is left to 30?",
            "65f6e9182d126e9a": "that is the exponent: give the factor itself",
            "0cfc034fea615c2c": "that gives half of the smallest number, which is rounded to zero",
        },
        learned="loss scaling",
        hint="The smallest number of float16 is 2⁻²⁴.",
    ),
}  # fmt: skip
