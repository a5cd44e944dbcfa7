"""Floors, to play with: how surprising each word is to one who knows the language exactly."""

from functools import lru_cache, partial

import numpy as np

from classroom.demos.base import Demo, text_box, whole_slider
from classroom.demos.pieces import Heading, Problem, Share, Table
from classroom.demos.reading import first_words
from classroom.demos.rendering import View
from labkit.world import World

LONGEST = 60


def floors_view(text: str, reach: int, world: World, start: str = "sentence") -> View:
    """p of each word given all before, given the last `reach`, and given all others."""
    words, cut = first_words(text.lower(), LONGEST)  # as the language has them
    if not words:
        said = "There is nothing to be surprised by: write some words."
        return View.of("floors", Problem(said))
    before = given_before(tuple(words), world, start)
    if not np.isfinite(before).all():
        position = int(np.flatnonzero(~np.isfinite(before))[0])
        said = f"“{words[position][:40]}” cannot be word {position + 1}."
        return View.of("floors", Problem(f"The language cannot say this: {said}"))
    near = world.log_probability(words, reach=reach, start=start)
    around = given_others(tuple(words), world, start)
    rows: tuple[tuple[str | Share, ...], ...] = tuple(
        (word, *(Share(float(np.exp(log[i]))) for log in (before, near, around)))
        for i, word in enumerate(words)
    )
    head = ("word", "p given all before", f"p given the last {reach}", "p given all others")
    means = tuple(f"{-float(log.mean()):z.4f}" for log in (before, near, around))
    return View.of(
        "floors",
        *cut,
        Heading("How likely each word is"),
        Table(head, rows, "words"),
        Heading("Nats per word of this text for a reader who knows the language exactly"),
        Table(("all before", f"the last {reach}", "all others"), (means,), "floors"),
    )


@lru_cache(maxsize=64)
def given_before(words: tuple[str, ...], world: World, start: str) -> np.ndarray:
    """log p of each word given all before; the slider of the reach does not change it."""
    return world.log_probability(words, start=start)


@lru_cache(maxsize=64)
def given_others(words: tuple[str, ...], world: World, start: str) -> np.ndarray:
    """log p of each word given all others."""
    numbers = world.numbers(words)
    given = world.distributions([(numbers, [n], {}) for n in range(len(words))], start)
    return np.log([one[0, number] for one, number in zip(given, numbers, strict=True)])


def floors_demo(world: World, text: str = "") -> Demo:
    """Write a text of the language and see the lowest possible loss of each word."""
    if not text:
        document = world.sample(documents=1, seed=1)[0]
        first, last = document.sentences[0]
        text = " ".join(document.words[first:last])
    controls = {"text": text_box("text", text), "reach": whole_slider("reach", 2, 1, 12)}
    return Demo("floors", partial(floors_view, world=world), controls)
