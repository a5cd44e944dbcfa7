"""What a trained model guesses for each asked word, beside the exact distribution."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from classroom.demos.pieces import Note, Piece, Share, Table
from classroom.demos.reading import Words, best, label, labels, next_distribution, words_of
from labkit.blocks import evaluating
from labkit.corpus import Batch
from labkit.objectives import MaskedToken, Objective, Targets
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

SHOWN = 12


class Reference(NamedTuple):
    """The language that a text is of, and where its texts begin."""

    world: World
    start: str


def guesses(
    batch: Batch,
    targets: Targets,
    objective: Objective,
    tokenizer: Tokenizer,
    model: Any,
    reference: Reference | None,
) -> list[Piece]:
    """One line for each asked word: its probability and the likeliest words, by model and language.

    "Exact" knows as much as the model. For a masked word that is the visible words, any of which
    may be wrong; for the next word, the words before it; for an order, those earlier in it.
    """
    positions = asked_positions(targets)
    given = torch.zeros(0, 0) if model is None else answered(model, objective, targets)
    exact = None if reference is None else told(reference, batch, targets, objective, tokenizer)
    names = labels(tokenizer, range(len(tokenizer)))
    rows, nats = [], list[tuple[float, float, float]]()
    for n, position in sorted(enumerate(positions), key=lambda found: found[1]):
        token = int(batch.tokens[0, position])
        row: list[str | Share] = [f"{position}: {label(tokenizer, token)}"]
        if model is not None:
            row += [Share(float(given[n][token])), best(given[n].numpy(), names)]
        if exact is not None:
            row += exact[n].cells
        rows.append(tuple(row))
        if model is not None and exact is not None:
            nats += in_nats(given[n].double().numpy(), token, exact[n], tokenizer)
    head = ["word", *(["p by the model", "the model's guesses"] if model is not None else [])]
    head += [] if exact is None else ["p exact", "the most probable"]
    shown: list[Piece] = [Table(tuple(head), tuple(rows[:SHOWN]), "guesses")]
    if len(rows) > SHOWN:
        shown.append(Note(f"The first {SHOWN} of {len(rows)} predicted words.", "rest"))
    if nats:
        means = tuple(f"{mean:.4f}" for mean in np.mean(nats, axis=0))
        shown.append(
            Table(("nats per word, model", "exact", "KL(exact ‖ model)"), (means,), "nats")
        )
    return shown


def asked_positions(targets: Targets) -> list[int]:
    """The positions of the words that are asked, as the objective lists them."""
    [asked] = targets.predicted.values()
    positions_N = asked.positions_N
    if targets.queries is not None:
        positions_N = targets.queries[0, positions_N]
    # A language model predicts at one word the next one.
    return (positions_N + (1 if targets.causal else 0)).tolist()


@torch.no_grad()
def answered(model: Any, objective: Objective, targets: Targets) -> Tensor:
    """The model's distribution of each word that is asked [N, V]."""
    [(name, asked)] = targets.predicted.items()
    if not len(asked.positions_N):
        return torch.zeros(0, 0)
    there = targets.to(next(model.parameters()).device)
    with evaluating(model):
        states, _ = objective.forward(model, there)
        scores = objective.scores(model, states, there)[name]
    return scores.float().softmax(dim=-1).cpu()


class Exact(NamedTuple):
    """The language's distribution of one asked word, None where it has none, and the word."""

    distribution: np.ndarray | None
    number: int | None
    world: World

    @property
    def cells(self) -> list[str | Share]:
        """The probability of the word itself, and the likeliest words."""
        if self.distribution is None:
            return [Share(None), "the language cannot say this"]
        right = 0.0 if self.number is None else float(self.distribution[self.number])
        return [Share(right), best(self.distribution, self.world.vocabulary)]


def told(
    reference: Reference,
    batch: Batch,
    targets: Targets,
    objective: Objective,
    tokenizer: Tokenizer,
) -> list[Exact]:
    """The exact distribution and the word of each asked position."""
    words, positions = words_of(batch, tokenizer), asked_positions(targets)
    if isinstance(objective, MaskedToken):
        seen = seen_words(batch, targets, tokenizer)
        found = masked(reference, words, seen, positions, objective)
    else:
        found = [before(reference, words, position, targets) for position in positions]
    number = reference.world.machine.number
    spelled = [
        words.words[at] if at >= 0 else "" for at in (words.of_position[p] for p in positions)
    ]
    return [
        Exact(distribution, number.get(word), reference.world)
        for distribution, word in zip(found, spelled, strict=True)
    ]


def before(
    reference: Reference, words: Words, position: int, targets: Targets
) -> np.ndarray | None:
    """The distribution of a word given those that come before it, in the text or in an order."""
    here, (world, start) = words.of_position[position], reference
    if here < 0:
        return None
    if targets.order is None:
        return next_distribution(world, words.words[:here], start)
    rank = targets.order.rank[0].tolist()
    later = [other for other, at in enumerate(rank) if at >= rank[position]]
    hidden = sorted({words.of_position[n] for n in later if words.of_position[n] >= 0})
    try:
        return world.conditional(words.words, hidden, start=start)[hidden.index(here)]
    except ValueError:
        return None


def seen_words(batch: Batch, targets: Targets, tokenizer: Tokenizer) -> list[str | None]:
    """The words as the model sees them; None for one of which a part is hidden."""
    words, tokens = words_of(batch, tokenizer), targets.inputs.tokens[0].tolist()
    found: list[str | None] = []
    for n in range(len(words.words)):
        parts = [tokens[t] for t, word in enumerate(words.of_position) if word == n]
        hidden = tokenizer.vocabulary.mask in parts
        found.append(None if hidden else tokenizer.decode(parts, special=True).strip())
    return found


def masked(
    reference: Reference,
    words: Words,
    seen: list[str | None],
    positions: list[int],
    objective: MaskedToken,
) -> list[np.ndarray | None]:
    """The distribution of each asked word given what is seen, as `World.floor("masked")` has it.

    Which words were asked is known, which of them were swapped or kept is not; any other word may
    have been chosen and swapped too (Devlin et al. 2019, section 3.1 and appendix A.1).  An asked
    word that documents remember (a name) counts as hidden: the language has no wrong names.
    """
    world, (_, replace, keep), rate = reference.world, objective.shares, objective.rate
    at = [words.of_position[position] for position in positions]
    asked = sorted({n for n in at if n >= 0})
    others, noisy = int(world.replacements.sum()), dict[int, tuple[int, float, float]]()
    shown = [world.machine.number.get(word) if word is not None else None for word in seen]
    for n, number in enumerate(shown):
        if n in asked and number is not None and world.replacements[number]:
            noisy[n] = (number, keep, replace / others)
        elif n not in asked and number is not None and replace and rate:
            noisy[n] = (number, 1 - rate + rate * keep, rate * replace / others)
    try:
        texts = [(world.numbers(words.words), asked, noisy)]
        [given] = world.distributions(texts, reference.start)
    except ValueError:
        return [None] * len(positions)
    return [given[asked.index(n)] if n >= 0 else None for n in at]


def in_nats(
    model: np.ndarray, token: int, exact: Exact, tokenizer: Tokenizer
) -> list[tuple[float, float, float]]:
    """−log p of the word by model and language, and KL(exact ‖ model), where words are tokens."""
    distribution = exact.distribution
    if distribution is None or exact.number is None or not distribution[exact.number]:
        return []
    tokens = word_tokens(exact.world, tokenizer)
    by_model = np.where(tokens >= 0, model[tokens], 0.0)
    likely = distribution > 0
    if not by_model[likely].all():
        return []
    ratio = np.log(distribution[likely]) - np.log(by_model[likely])
    divergence = float((distribution[likely] * ratio).sum())
    return [(-float(np.log(model[token])), -float(np.log(distribution[exact.number])), divergence)]


@lru_cache(maxsize=16)
def word_tokens(world: World, tokenizer: Tokenizer) -> np.ndarray:
    """The token of each word of a language; the end of a text is the separator; −1 for none."""
    end = tokenizer.vocabulary.sep
    found = [-1 if end is None else end]
    for word in world.vocabulary[1:]:
        tokens = tokenizer.encode(word)
        alone = len(tokens) == 1 and tokens[0] not in tokenizer.vocabulary.special
        found.append(tokens[0] if alone else -1)
    return np.array(found)
