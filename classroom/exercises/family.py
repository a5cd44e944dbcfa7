"""Exercises of notebook 09: fresh masks, counts, sentence order, the student and its loss."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

Pair = tuple[str, str, int]
"""Two sentences, and 0 where they stand in their order or 1 where they were swapped."""

# ---- the course's own versions ----------------------------------------------------------------


def asked_words(draws: Tensor, rate: float, copies: int) -> Tensor:
    """True [N, T] where a word is asked for in an epoch; draws [N, T], copies 0: anew each time."""
    epochs = torch.arange(len(draws))
    if copies:
        epochs = epochs % copies
    return draws[epochs] < rate


def weights(vocabulary: int, width: int, narrow: int, layers: int, shared: bool) -> int:
    """Matrices of ALBERT: the table, the matrix behind it, and 12 H² for each block."""
    blocks = 1 if shared else layers
    return vocabulary * narrow + narrow * width + blocks * 12 * width**2


def order_pairs(sentences: Sequence[str], swapped: Sequence[bool]) -> list[Pair]:
    """Each sentence with its next one, in their order (label 0) or swapped (label 1)."""
    pairs = []
    for first, second, swap in zip(sentences, sentences[1:], swapped, strict=False):
        pairs.append((second, first, 1) if swap else (first, second, 0))
    return pairs


def every_other(blocks: Sequence[str], layers: int) -> list[str]:
    """The blocks of the teacher that a student of so many layers begins with, evenly spread."""
    step = len(blocks) // layers
    return list(blocks)[::step][:layers]


def distillation_loss(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T² times the mean of KL(teacher || student) at temperature T over all rows [N, V]."""
    log_p = (teacher / temperature).log_softmax(dim=-1)
    log_q = (student / temperature).log_softmax(dim=-1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


# ---- inputs -----------------------------------------------------------------------------------


def _draws(rng: torch.Generator) -> tuple[Tensor, float, int]:
    epochs, words = between(3, 8, rng), between(2, 6, rng)
    rate = (0.15, 0.3, 0.5)[between(0, 3, rng)]
    return torch.rand(epochs, words, generator=rng), rate, between(0, 4, rng)


def _sizes(rng: torch.Generator) -> tuple[int, int, int, int, bool]:
    narrow = between(2, 9, rng)
    vocabulary, width = between(20, 90, rng), narrow + between(1, 9, rng)
    return vocabulary, width, narrow, between(2, 7, rng), bool(between(0, 2, rng))


def _document(rng: torch.Generator) -> tuple[list[str], list[bool]]:
    known = ["She saw a wave.", "The boat sank.", "He cooked rice.", "It was good.", "We left."]
    count = between(1, 6, rng)
    sentences = [known[i] for i in torch.randperm(5, generator=rng)[:count].tolist()]
    return sentences, torch.randint(2, (count - 1,), generator=rng).bool().tolist()


def _blocks(rng: torch.Generator) -> tuple[list[str], int]:
    layers = between(1, 4, rng)
    return [f"block {i}" for i in range(layers * between(2, 4, rng))], layers


def _answers(rng: torch.Generator) -> tuple[Tensor, Tensor, float]:
    shape = between(1, 4, rng), between(2, 6, rng)
    teacher = 3 * torch.randn(shape, generator=rng)
    student = (3 * torch.randn(shape, generator=rng)).requires_grad_()
    return teacher, student, (1.5, 2.0, 4.0)[between(0, 3, rng)]


# ---- mistakes ---------------------------------------------------------------------------------


def _cross_entropy(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    soft = (teacher / temperature).softmax(dim=-1)
    return temperature**2 * F.cross_entropy(student / temperature, soft)


EXERCISES: dict[str, Exercise] = {
    "09.masks": Function(
        "a boolean [N, T]: the words that are asked for in each of N epochs",
        asked_words,
        _draws,
        (
            ("every epoch has the masks of the first one: there are `copies` of them, and with 0 "
             "copies each epoch has its own",
             lambda draws, rate, copies: (draws[:1] < rate).expand_as(draws)),
            ("every epoch draws anew: static masks come back after `copies` epochs",
             lambda draws, rate, copies: draws < rate),
            ("the copies are used in blocks: they come in turn, 0, 1, 2, 0, 1, 2, …",
             lambda draws, rate, copies: draws[torch.arange(len(draws)) // copies] < rate
             if copies else draws < rate),
            ("a word is asked for where its draw is below the rate, not above",
             lambda *given: ~asked_words(*given)),
            ("one copy too many comes back: epoch `copies` has the masks of epoch 0",
             lambda draws, rate, copies: asked_words(draws, rate, copies + 1 if copies else 0)),
        ),
        learned="static and dynamic masks",
    ),
    "09.weights": Function(
        "how many weights the table, the matrix behind it and the blocks have together",
        weights,
        _sizes,
        (
            ("the matrix from the narrow vectors to the wide ones is missing",
             lambda v, h, e, n, shared: weights(v, h, e, n, shared) - e * h),
            ("that is a table as wide as the model, as in BERT",
             lambda v, h, e, n, shared: weights(v, h, e, n, shared) - v * e - e * h + v * h),
            ("a shared block is stored once, however often it is used",
             lambda v, h, e, n, shared: weights(v, h, e, n, False)),
            ("without sharing every layer has a block of its own",
             lambda v, h, e, n, shared: weights(v, h, e, n, True)),
            ("a block has 12 H² weights: 4 H² of attention and 8 H² of its feed-forward",
             lambda v, h, e, n, shared:
             weights(v, h, e, n, shared) - (1 if shared else n) * 8 * h**2),
        ),
        learned="factorised embeddings and sharing",
        hint="Table V × E, matrix E × H, and 12 H² for each block that is stored.",
    ),
    "09.order": Function(
        "a list of (first, second, label): each sentence with its next one, swapped where it says "
        "so; label 0 in order, 1 swapped",
        order_pairs,
        _document,
        (
            ("the labels are the wrong way round: 0 is in order",
             lambda *given: [(a, b, 1 - label) for a, b, label in order_pairs(*given)]),
            ("no pair was swapped: swap the sentences, too, not only the label",
             lambda *given:
             [(b, a, 1) if label else (a, b, 0) for a, b, label in order_pairs(*given)]),
            ("every second pair is missing: each sentence but the last begins a pair",
             lambda *given: order_pairs(*given)[::2]),
            ("the pair was swapped and labelled 0: the label says what was done",
             lambda *given: [(a, b, 0) for a, b, _ in order_pairs(*given)]),
        ),
        learned="sentence-order pairs",
        hint="`zip(sentences, sentences[1:])` gives the neighbours; a swap turns one round.",
    ),
    "09.student": Function(
        "the list of the teacher's blocks that the student begins with",
        every_other,
        _blocks,
        (
            ("those are the first blocks: take them from the whole depth of the teacher",
             lambda blocks, layers: blocks[:layers]),
            ("those are the last blocks: take them from the whole depth of the teacher",
             lambda blocks, layers: blocks[-layers:]),
            ("that begins one block too late: the first block is one of them",
             lambda blocks, layers: blocks[1 :: len(blocks) // layers][:layers]),
            ("that is every other block, whatever the student's depth is",
             lambda blocks, layers: blocks[::2]),
        ),
        minutes=5,
        learned="how a student begins",
        hint="The step is the number of blocks divided by the number of layers: 2 for half as "
        "many.",
    ),
    "09.distil": Function(
        "T² · KL(teacher ‖ student) at temperature T, the mean over all rows",
        distillation_loss,
        _answers,
        (
            ("the factor T² is missing: soft gradients shrink with 1 / T²",
             lambda teacher, student, temperature:
             distillation_loss(teacher, student, temperature) / temperature**2),
            ("the KL is the wrong way round: take the mean under the teacher",
             lambda teacher, student, temperature:
             distillation_loss(student, teacher, temperature)),
            ("the temperature is missing: both are divided by it before the softmax",
             lambda teacher, student, temperature:
             temperature**2 * distillation_loss(teacher, student, 1.0)),
            ("the temperature multiplies: it divides the scores",
             lambda teacher, student, temperature:
             temperature**4 * distillation_loss(teacher, student, 1 / temperature)),
            ("that is the sum over the rows: take their mean",
             lambda *given: len(given[0]) * distillation_loss(*given)),
            ("that is the mean over all numbers, as F.kl_div does by itself: sum over the words",
             lambda *given: distillation_loss(*given) / given[0].shape[1]),
            ("that is the cross-entropy: KL is lower by the entropy of the teacher",
             _cross_entropy),
        ),
        minutes=10,
        learned="the loss of distillation",
        hint="Divide both logits by T before the softmax; multiply the mean KL by T².",
    ),
}  # fmt: skip
