"""Floors, to play with: how surprising each word is to one who knows the language exactly."""

import numpy as np

from classroom.demos.base import Demo, text_box, whole_slider
from classroom.demos.drawing import Share, View, heading, note, page, problem, table
from classroom.demos.reading import words_in
from labkit.world import World

LONGEST = 60


def floors_view(text: str, reach: int, world: World, start: str = "sentence") -> View:
    """p of each word given all before, given the last `reach`, and given all others."""
    every = words_in(text)
    words = every[:LONGEST]
    if not words:
        return page("floors", problem("There is nothing to be surprised by: write some words."))
    numbers = world.numbers(words)
    before = world.log_probability(words, start=start)
    if not np.isfinite(before).all():
        place = int(np.flatnonzero(~np.isfinite(before))[0])
        said = f"The language cannot say this: “{words[place][:40]}” cannot be word {place + 1}."
        return page("floors", problem(said))
    near = world.log_probability(words, reach=reach, start=start)
    distributions = world.distributions(
        [(numbers, [place], {}) for place in range(len(words))], start
    )
    around = np.log(
        [
            distribution[0, number]
            for distribution, number in zip(distributions, numbers, strict=True)
        ]
    )
    rows: list[list[str | Share]] = [
        [word, *(Share(float(np.exp(log[i]))) for log in (before, near, around))]
        for i, word in enumerate(words)
    ]
    near_name = f"p given the last {reach}"
    pieces = [
        heading("How likely each word is"),
        table(["word", "p given all before", near_name, "p given all others"], rows, name="words"),
        heading("Nats a word: the lowest loss that is possible on this text"),
        table(
            ["all before", f"the last {reach}", "all others"],
            [[f"{-float(log.mean()):.4f}" for log in (before, near, around)]],
            name="floors",
        ),
    ]
    if len(every) > LONGEST:
        pieces.insert(0, note(f"The first {LONGEST} of {len(every)} words.", "cut"))
    return page("floors", *pieces)


def floors_demo(world: World, text: str = "", *, reach: int = 2, start: str = "sentence") -> Demo:
    """Write a text of the language and see what its words cost at least."""
    if not text:
        document = world.sample(documents=1, seed=1)[0]
        first, last = document.sentences[0]
        text = " ".join(document.words[first:last])

    def draw(text: str, reach: int) -> View:
        return floors_view(text, reach, world, start)

    controls = {"text": text_box("text", text), "reach": whole_slider("reach", reach, 1, 12)}
    return Demo("floors", draw, controls)
