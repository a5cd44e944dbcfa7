"""Permutation orders, to play with: who may look at whom when words are predicted in any order.

XLNet, Yang et al. 2019, section 2.3.  Read `orders_view`, the pure function.
"""

import re
from typing import Any

import torch

from labkit.demos.base import Demo, text_box
from labkit.demos.drawing import Chip, View, chips, grid, heading, note, page, problem, table
from labkit.demos.reading import words_in
from labkit.masking import before, up_to

LONGEST = 40


def order_of(order: str, count: int) -> list[int]:
    """The places 1 … count in the order that was written; the natural one if nothing was."""
    given = re.split(r"[\s,;→>]+", order.strip())
    places = []
    for part in given if order.strip() else map(str, range(1, count + 1)):
        # A digit of another script is no digit here: what is typed is shown again as it stands.
        if not re.fullmatch(r"[0-9]{1,6}", part):
            raise ValueError(
                f"“{part[:40]}” in the order is no place: give numbers from 1 to {count}"
            )
        places.append(int(part))
    missing = sorted(set(range(1, count + 1)) - set(places))
    wrong = sorted(set(places) - set(range(1, count + 1)))
    twice = sorted({place for place in places if places.count(place) > 1})
    for said, which in (("misses", missing), ("has no word for", wrong), ("has twice", twice)):
        if which:
            raise ValueError(
                f"the order {said} {', '.join(map(str, which[:10]))}: name each of the places "
                f"1 to {count} once"
            )
    return places


def orders_view(text: str, order: str) -> View:
    """Both masks of an order of the words of a text, and what each prediction is given."""
    every = words_in(text)
    words = every[:LONGEST]
    if not words:
        return page("orders", problem("There is nothing to order: write some words."))
    try:
        places = order_of(order, len(words))
    except ValueError as error:
        return page("orders", problem(str(error)))
    rank_1T = torch.empty(1, len(words), dtype=torch.long)
    rank_1T[0, torch.tensor(places) - 1] = torch.arange(len(words))
    content, query = up_to(rank_1T)[0, 0], before(rank_1T)[0, 0]
    rank = rank_1T[0].tolist()
    names = [f"{place + 1} {word}" for place, word in enumerate(words)]
    pieces = [
        heading("The text; below each word, when it is predicted"),
        chips([Chip(word, "plain", f"{rank[i] + 1}.") for i, word in enumerate(words)]),
        heading("What each prediction is given"),
        table(["step", "predicts", "given"], given(places, words, query), name="given"),
        grid(content, names, title="Content stream (its own word too)"),
        grid(query, names, title="Query stream (its place, not its word)"),
    ]
    if len(every) > LONGEST:
        pieces.insert(0, note(f"The first {LONGEST} of {len(every)} words.", "cut"))
    return page("orders", *pieces)


def given(places: list[int], words: list[str], query: torch.Tensor) -> list[list[str]]:
    """For each step of the order its word, and the words that its query may look at."""
    rows = []
    for step, place in enumerate(places):
        seen = query[place - 1].nonzero()[:, 0].tolist()
        said = " ".join(words[i] for i in seen) or "nothing"
        rows.append([str(step + 1), f"{place} {words[place - 1]}", said])
    return rows


def drawn(count: int, draw: int) -> str:
    """A random order of so many places, the same for the same draw."""
    random = torch.Generator().manual_seed(draw)
    return " ".join(str(place + 1) for place in torch.randperm(count, generator=random).tolist())


def orders_demo(text: str = "New York is a city", order: str = "") -> Demo:
    """Write an order, draw one, turn it round: both masks follow."""
    demo: Demo
    draws = iter(range(1, 1_000_000))

    def count() -> int:
        return min(len(words_in(demo.values["text"])), LONGEST)

    def turned() -> str:
        try:
            places = order_of(demo.values["order"], count())
        except ValueError:
            places = list(range(1, count() + 1))
        return " ".join(map(str, reversed(places)))

    actions: dict[str, Any] = {
        "left to right": lambda: demo.change(order=""),
        "turn round": lambda: demo.change(order=turned()),
        "draw an order": lambda: demo.change(order=drawn(count(), next(draws))),
    }
    controls = {"text": text_box("text", text), "order": text_box("order", order, rows=1)}
    demo = Demo("orders", orders_view, controls, actions)
    return demo
