"""What the scores of a model depend on, by gradients and by exchanging words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.blocks import evaluating
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.leaks.allowed import allow, readable
from labkit.leaks.asking import ask, exchanges, given_away, positions_of
from labkit.objectives import (
    Balanced,
    Distillation,
    Memory,
    Objective,
    Sum,
    Targets,
    Translation,
)


class Leak(NamedTuple):
    """A prediction that depends on what it may not see."""

    how: str
    """"gradient": on what stands at a position; "word": on which word stands there."""
    term: str
    row: int
    position: int
    segment: int
    from_row: int
    from_position: int

    def __str__(self) -> str:
        return (
            f"{self.term} at row {self.row}, position {self.position} depends ({self.how}) on row "
            f"{self.from_row}, position {self.from_position} of segment {self.segment}"
        )


@dataclass(frozen=True, eq=False)
class Dependence:
    """Which predictions depend on which words: boolean tables [N, B, K].

    K counts the words of a row through all segments, the last segment at the end.
    """

    predictions: list[tuple[str, int, int]]
    """Term, row and position of each prediction."""
    widths: list[int]
    """How many words of each segment the model reads."""
    by_gradient: Tensor
    by_word: Tensor
    positions_allowed: Tensor
    """What a gradient may reach: never memory."""
    words_allowed: Tensor
    """What an exchanged word may change: never a word that was hidden."""

    @property
    def leaks(self) -> list[Leak]:
        """All dependence that is not allowed."""
        found = []
        tables = (
            ("gradient", self.by_gradient & ~self.positions_allowed),
            ("word", self.by_word & ~self.words_allowed),
        )
        for how, table in tables:
            for n, row, column in table.nonzero().tolist():
                term, of_row, of_position = self.predictions[n]
                segment, position = self._segment(column)
                found.append(Leak(how, term, of_row, of_position, segment, row, position))
        return found

    def _segment(self, column: int) -> tuple[int, int]:
        """The segment and the position in it of a column."""
        segment = 0
        while column >= self.widths[segment]:
            column -= self.widths[segment]
            segment += 1
        return segment, column


# Gradients are needed, also within torch.no_grad() and torch.inference_mode().
@torch.inference_mode(mode=False)
def trace(
    model: Any, objective: Objective, batches: Batch | Sequence[Batch], *, seed: int = 0
) -> Dependence:
    """Measure what the predictions in the last batch depend on.

    The words of a batch should be all different where a model looks words up out of their position
    (ELMo, word vectors). A gradient is there unless it is exactly zero; a score that moves by no
    more than rounding may do when a word is exchanged has not moved. Gradients are computed in
    training mode too, where statistics over a batch leak; words are exchanged in eval mode only.

    Where positions read both sides, a prediction must not depend on its own word at another
    position, where it is visible: the objective may have forgotten `causal=True`.
    """
    while isinstance(objective, Distillation | Balanced):
        objective = objective.task if isinstance(objective, Distillation) else objective.objective
    if next(model.parameters()).device.type != "cpu":
        raise ValueError("the model is not on the CPU: trace it with model.cpu()")
    if isinstance(objective, Sum):
        raise ValueError("a sum reads the text several times: trace each of its parts")
    if isinstance(objective, Translation):
        raise ValueError("a translation reads two texts: trace NextToken with a model of one")
    batches = [batches] if isinstance(batches, Batch) else list(batches)
    if not batches:
        raise ValueError("there are no batches: give at least one")
    asked = ask(objective, batches, seed)
    widths = [targets.inputs.tokens.shape[1] for targets in asked]
    allowed = allow(model.backbone, objective, asked)
    if not len(allowed):
        raise ValueError("nothing is predicted in this text: give more words")
    if not (asked[-1].causal or model.backbone.causal):
        allowed &= ~given_away(objective, batches, widths, seed, model.backbone.config.vocabulary)
    now = torch.arange(sum(widths)) >= sum(widths[:-1])
    pairs = enumerate(zip(batches, asked, strict=True))
    visible = torch.cat(
        [readable(objective, b, q, Chance(seed, step, b.rows)) for step, (b, q) in pairs], dim=1
    )
    by_gradient = torch.zeros_like(allowed)
    with training(model):
        by_gradient[:, :, now] = differentiate(model, objective, asked)
    with evaluating(model):
        # What dropout hid in training is seen here.
        by_gradient[:, :, now] |= differentiate(model, objective, asked)
        by_word = exchange(model, objective, batches, widths, seed)
    predictions = list(positions_of(objective, asked[-1]))
    return Dependence(predictions, widths, by_gradient, by_word, allowed & now, allowed & visible)


def answers(model: Any, objective: Objective, asked: Sequence[Targets]) -> Tensor:
    """The scores of all predictions in the last segment, one number each.

    A fixed mix of the scores of all answers moves when any of them does. A model that draws at
    random draws the same each time: what it draws is no word.
    """
    memory: Memory | None = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for targets in asked:
            states, memory = objective.forward(model, targets, memory)
        found = objective.scores(model, states, asked[-1]).values()
    mixed = []
    for scores in found:
        weights = torch.linspace(1.0, 2.0, scores.shape[1], dtype=scores.dtype)
        mixed.append(scores @ weights)
    return torch.cat(mixed)


# ---- by gradients ------------------------------------------------------------------------------


@contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """Put a model in training mode; afterwards its modes and its statistics are as before."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with evaluating(model):
            model.train()
            yield
    finally:
        for buffer, kept in before:
            buffer.copy_(kept)


class Vectors(NamedTuple):
    """What is added to the vectors of words, zero, to differentiate by."""

    positions: Tensor
    words: Tensor


@contextmanager
def watched(backbone: Any, targets: Targets) -> Iterator[Vectors]:
    """Add a zero to each vector that is looked up: one for each position, or else for each word."""
    tokens, weight = targets.inputs.tokens, next(backbone.token.parameters())
    shape = (*tokens.shape, 1), (backbone.config.vocabulary, 1)
    vectors = Vectors(*(torch.zeros(s, dtype=weight.dtype, requires_grad=True) for s in shape))

    def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        numbers = inputs[0]
        if numbers.equal(tokens):
            return output + ramp(output) * vectors.positions
        if numbers.shape != output.shape[:-1]:
            # Words that are given by their letters: which ones are they?
            same = (backbone.spelling[:, None] == numbers[None]).all(dim=-1)
            numbers = same.int().argmax(dim=0)
        return output + ramp(output) * vectors.words[numbers]

    handle = backbone.token.register_forward_hook(add)
    try:
        yield vectors
    finally:
        handle.remove()


def ramp(output: Tensor) -> Tensor:
    """A direction in which the vector is moved: not all features alike, or a norm would undo it."""
    return torch.linspace(-1.0, 2.0, output.shape[-1], dtype=output.dtype).square()


def differentiate(model: Any, objective: Objective, asked: Sequence[Targets]) -> Tensor:
    """Which scores move with which vectors of the last segment: [N, B, T]."""
    tokens, found = asked[-1].inputs.tokens, []
    with watched(model.backbone, asked[-1]) as vectors:
        scores = answers(model, objective, asked)
    for score in scores:
        by_position, by_word = torch.autograd.grad(
            score, vectors, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        found.append((by_position[..., 0] != 0) | (by_word[tokens, 0] != 0))
    return torch.stack(found)


# ---- by exchange -------------------------------------------------------------------------------


@torch.no_grad()
def exchange(
    model: Any,
    objective: Objective,
    batches: Sequence[Batch],
    widths: Sequence[int],
    seed: int,
) -> Tensor:
    """Which scores move when another word stands at a position, one position after the other."""
    asked = ask(objective, batches, seed)
    usual, predictions = answers(model, objective, asked), list(positions_of(objective, asked[-1]))
    tolerance = 1e4 * torch.finfo(usual.dtype).eps * max(1.0, *usual.abs().tolist())
    moved = torch.zeros(len(usual), len(batches[0]), sum(widths), dtype=torch.bool)
    vocabulary = model.backbone.config.vocabulary
    for row, column, asked in exchanges(objective, batches, widths, seed, vocabulary):
        if list(positions_of(objective, asked[-1])) == predictions:
            difference = answers(model, objective, asked) - usual
            moved[:, row, column] = difference.abs() > tolerance
        else:
            # What is asked tells what stands there.
            moved[:, row, column] = True
    return moved
