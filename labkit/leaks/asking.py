"""The targets of an objective for batches, and for copies with one word exchanged."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.leaks.allowed import choices_of, terms_of
from labkit.objectives import (
    CBOW,
    Both,
    MaskedToken,
    Objective,
    Permutation,
    SkipGram,
    Targets,
)


def ask(objective: Objective, batches: Sequence[Batch], seed: int) -> list[Targets]:
    """The targets of each segment."""
    pairs = enumerate(batches)
    asked = [objective.targets(batch, Chance(seed, step, batch.rows)) for step, batch in pairs]
    if not asked[-1].predicted:
        raise ValueError(
            f"{type(objective).__name__} compares whole answers: trace NextToken, which predicts "
            "each word of them"
        )
    return asked


def positions_of(objective: Objective, targets: Targets) -> Iterator[tuple[str, int, int]]:
    """Term, row and position of each prediction, in the order of the scores."""
    for part, own, name in terms_of(objective, targets):
        asked, every = own.predicted[name], choices_of(part)
        for row, position in zip(
            asked.rows_N[::every].tolist(), asked.positions_N[::every].tolist(), strict=True
        ):
            if targets.queries is not None:
                position = int(targets.queries[row, position])
            yield name, row, position


def words_of_predictions(objective: Objective, targets: Targets) -> Tensor:
    """The targets of all predictions [N], in the order of the scores."""
    every = terms_of(objective, targets)
    return torch.cat([own.predicted[n].targets_N[:: choices_of(part)] for part, own, n in every])


def special_of(objective: Objective) -> set[int]:
    """The tokens that an objective does not treat as words."""
    if isinstance(objective, SkipGram | CBOW):
        return set((objective.counts == 0).nonzero()[:, 0].tolist())
    if isinstance(objective, Both):
        return set().union(*map(special_of, objective.parts))
    if isinstance(objective, MaskedToken | Permutation):
        return set(objective.vocabulary.special)
    return set()


def exchanges(
    objective: Objective,
    batches: Sequence[Batch],
    widths: Sequence[int],
    seed: int,
    vocabulary: int,
) -> Iterator[tuple[int, int, list[Targets]]]:
    """The row and the column of each position, and the targets with another word at it."""
    special = special_of(objective)
    other = unused(batches, special, vocabulary)
    for segment, (batch, width) in enumerate(zip(batches, widths, strict=True)):
        for row, position in itertools.product(range(len(batch)), range(width)):
            # A special token says what may be hidden: exchanged, it would be another batch.
            if int(batch.tokens[row, position]) in special and batch.real[row, position]:
                continue
            tokens = batch.tokens.clone()
            tokens[row, position] = other
            changed = list(batches)
            changed[segment] = replace(batch, tokens=tokens)
            yield row, sum(widths[:segment]) + position, ask(objective, changed, seed)


def given_away(
    objective: Objective,
    batches: Sequence[Batch],
    widths: Sequence[int],
    seed: int,
    vocabulary: int,
) -> Tensor:
    """Where a predicted word is visible at a position other than the predicting one: [N, B, K].

    That is where exchanging a word changes both the input and the target. The predicting position
    itself does not count: a masked language model may read the words that were left unmasked.
    """
    usual = ask(objective, batches, seed)[-1]
    wanted, predictions = words_of_predictions(objective, usual), [*positions_of(objective, usual)]
    start = sum(widths[:-1])
    away = torch.zeros(len(wanted), len(batches[0]), sum(widths), dtype=torch.bool)
    for row, column, asked in exchanges(objective, batches, widths, seed, vocabulary):
        if column >= start and [*positions_of(objective, asked[-1])] == predictions:
            before, after = (
                targets.inputs.tokens[row, column - start] for targets in (usual, asked[-1])
            )
            now = words_of_predictions(objective, asked[-1])
            away[:, row, column] = (before != after) & (wanted == before) & (now == after)
    for n, (_, row, position) in enumerate(predictions):
        away[n, row, start + position] = False
    return away


def unused(batches: Sequence[Batch], special: set[int], vocabulary: int) -> int:
    """A word that stands nowhere in the batches."""
    used = set(torch.cat([batch.tokens for batch in batches], dim=1).flatten().tolist())
    free = sorted(set(range(vocabulary)) - used - special)
    if not free:
        raise ValueError(
            f"the batch uses all {vocabulary} words, so none is left to exchange one for: "
            "trace a smaller batch or a model with more words"
        )
    return free[-1]
