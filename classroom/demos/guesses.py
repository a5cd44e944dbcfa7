"""What a trained model guesses for each word that is asked, beside the language's own law."""

from typing import Any

import torch
from torch import Tensor

from classroom.demos.drawing import Share, View, note, table
from classroom.demos.reading import Words, best, evaluating, label, labels, law, next_law, words_of
from labkit.corpus import Batch
from labkit.objectives import Objective, Questions
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

SHOWN = 12


def guesses(
    batch: Batch,
    questions: Questions,
    objective: Objective,
    tokenizer: Tokenizer,
    model: Any,
    world: World | None,
    start: str,
) -> View:
    """One line for each asked word: its probability, and the likeliest words.

    "Exact" is the language's law of the whole word given the words that are not asked; for the
    next word, given those before, and for an order, given those earlier in it.
    """
    places, likely_NV = answered(model, objective, questions)
    names = labels(tokenizer, range(len(tokenizer)))
    words = words_of(batch, tokenizer)
    rows: list[list[str | Share]] = []
    for n, place in sorted(enumerate(places), key=lambda found: found[1])[:SHOWN]:
        token = int(batch.tokens[0, place])
        row: list[str | Share] = [
            f"{place}: {label(tokenizer, token)}",
            Share(float(likely_NV[n, token])),
            best(likely_NV[n].numpy(), names),
        ]
        if world is not None:
            row += exact(world, words, place, places, questions, start)
        rows.append(row)
    head = ["asked", "p by the model", "its guesses"]
    head += [] if world is None else ["p exact", "the likeliest"]
    shown = table(head, rows, name="guesses")
    if len(places) <= SHOWN:
        return shown
    rest = note(f"The first {SHOWN} of {len(places)} words that are asked.", "rest")
    return View(shown.html + rest.html, f"{shown.text}\n{rest.text}")


@torch.no_grad()
def answered(model: Any, objective: Objective, questions: Questions) -> tuple[list[int], Tensor]:
    """The places of the words that are asked, and the model's law of each [N, V]."""
    [(name, asked)] = questions.asked.items()
    places_N = asked.places_N
    if questions.places is not None:
        places_N = questions.places[0, places_N]
    places = (places_N + (1 if questions.left else 0)).tolist()
    if not places:
        return [], torch.zeros(0, 0)
    there = questions.to(next(model.parameters()).device)
    with evaluating(model):
        states, _ = objective.think(model, there)
        scores = objective.scores(model, states, there)[name]
    return places, scores.float().softmax(dim=-1).cpu()


def exact(
    world: World, words: Words, place: int, places: list[int], questions: Questions, start: str
) -> list[str | Share]:
    """The language's probability of the word at a place, and its likeliest words there."""
    here = words.of_place[place]
    if here < 0:
        return [Share(None), "–"]
    if questions.left:
        found = next_law(world, words.words[:here], start)
    else:
        found = law(world, words.words, here, unseen(words, place, places, questions), start)
    number = world.machine.number.get(words.words[here])
    if found is None:
        return [Share(None), "the language cannot say this"]
    return [Share(0.0 if number is None else float(found[number])), best(found, world.vocabulary)]


def unseen(words: Words, place: int, places: list[int], questions: Questions) -> list[int]:
    """The words that the one at this place may not look at, itself among them."""
    if questions.order is not None:
        rank = questions.order.rank[0].tolist()
        places = [other for other, at in enumerate(rank) if at >= rank[place]]
    return sorted({words.of_place[other] for other in places if words.of_place[other] >= 0})
