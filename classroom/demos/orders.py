"""Permutation orders, to play with: who may attend to whom when words are predicted in any order.

XLNet, Yang et al. 2019, section 2.3.  Read `orders_view`, the pure function.
"""

import re
from collections import Counter
from typing import Any

import ipywidgets as widgets
import torch

from classroom.demos.base import TOOLTIP, WIDE, Demo, text_box
from classroom.demos.pieces import Beside, Chip, Chips, Heading, Problem, Table
from classroom.demos.reading import first_words
from classroom.demos.rendering import View, clean, short
from classroom.demos.squares import grid
from labkit.masking import before, up_to

LONGEST = 40
# A word of an order cannot be taken out, so it has no cross.
UNCROSSED = "<style>.labkit-drag .jupyter-widget-tag-close { display: none; }</style>"


def order_of(order: str, count: int) -> list[int]:
    """The positions 1 … count in the order that was written; the natural one if nothing was."""
    given = [part for part in re.split(r"[\s,;()\[\]→>-]+", order) if part]
    every, positions = range(1, count + 1), []
    for part in given or map(str, every):
        # Digits of other scripts are refused, since the text is shown again as it was typed.
        if not re.fullmatch(r"[0-9]{1,6}", part):
            raise ValueError(
                f"“{part[:40]}” in the order is not a position: give numbers from 1 to {count}"
            )
        positions.append(int(part))
    missing = sorted({*every} - {*positions})
    wrong = sorted({*positions} - {*every})
    twice = sorted(position for position, times in Counter(positions).items() if times > 1)
    for said, which in (("misses", missing), ("has no word for", wrong), ("has twice", twice)):
        if which:
            raise ValueError(
                f"the order {said} {', '.join(map(str, which[:10]))}: name each of the positions "
                f"1 to {count} once"
            )
    return positions


def orders_view(text: str, order: str) -> View:
    """Both masks of an order of the words of a text, and what each prediction is given."""
    words, cut = first_words(text, LONGEST)
    if not words:
        return View.of("orders", Problem("There is nothing to order: write some words."))
    try:
        positions = order_of(order, len(words))
    except ValueError as error:
        return View.of("orders", Problem(str(error)))
    rank_1T = torch.empty(1, len(words), dtype=torch.long)
    rank_1T[0, torch.tensor(positions) - 1] = torch.arange(len(words))
    content, query = up_to(rank_1T)[0, 0], before(rank_1T)[0, 0]
    rank = rank_1T[0].tolist()
    names = [f"{position + 1} {word}" for position, word in enumerate(words)]
    return View.of(
        "orders",
        *cut,
        Heading("The text; below each word, when it is predicted"),
        Chips(tuple(Chip(word, "plain", f"{rank[i] + 1}.") for i, word in enumerate(words))),
        Heading("What each prediction is given"),
        Table(("step", "predicts", "given"), given(positions, words, query), "given"),
        Beside(
            (
                grid(content, names, title="Content stream (its own word too)"),
                grid(query, names, title="Query stream (its position, not its word)"),
            )
        ),
    )


def given(
    positions: list[int], words: list[str], query: torch.Tensor
) -> tuple[tuple[str, ...], ...]:
    """For each step of the order its word, and the words that its query may attend to."""
    rows = []
    for step, position in enumerate(positions):
        seen = query[position - 1].nonzero()[:, 0].tolist()
        said = " ".join(words[i] for i in seen) or "nothing"
        rows.append((str(step + 1), f"{position} {words[position - 1]}", said))
    return tuple(rows)


def drawn(count: int, draw: int) -> str:
    """A random order of so many positions, the same for the same draw."""
    random = torch.Generator().manual_seed(draw)
    return spelled([at + 1 for at in torch.randperm(count, generator=random).tolist()])


def words_to_drag() -> Any:
    """An empty row of words to drag; None with ipywidgets 7, as on Colab, which has no such row."""
    if not hasattr(widgets, "TagsInput"):
        return None
    row = widgets.TagsInput(allow_duplicates=False, layout={"width": "98%"})
    row.add_class("labkit-drag")
    return row


class OrdersDemo(Demo):
    """The order as a text, as words to drag, and with buttons that a keyboard reaches as well."""

    def __init__(self, text: str, order: str) -> None:
        self.draws = 0
        controls = {"text": text_box("text", text), "order": text_box("order", order, rows=1)}
        buttons = {
            "left to right": lambda: self.change(order=""),
            "turn round": lambda: self.change(order=spelled(self.positions[::-1])),
            "draw an order": self.draw_one,
            "earlier": lambda: self.move(-1),
            "later": lambda: self.move(1),
        }
        self.dragged = words_to_drag()
        self.chosen = widgets.Dropdown(description="word to move", style=WIDE, **{TOOLTIP: "word"})
        self.chosen.add_class("labkit-chosen")
        count = len(first_words(text, LONGEST)[0])
        some = [order, "", spelled([*range(count, 0, -1)]), *(drawn(count, n) for n in range(1, 7))]
        kept = {"order": list(dict.fromkeys(some))}
        super().__init__("orders", orders_view, controls, buttons, kept=kept)
        bar = self.bar
        moved = [self.chosen, self.buttons["earlier"], self.buttons["later"]]
        others = [child for child in bar.children if child not in moved]
        how = "drag a word, or move one" if self.dragged else "move a word"
        said = f"{UNCROSSED}the order: {how} with the buttons"
        hint = widgets.HTML(said, layout={"width": "98%"})
        bar.children = [*others, hint, *([self.dragged] if self.dragged else []), *moved]
        if self.dragged:
            self.dragged.observe(self._dragged, names="value")

    @property
    def names(self) -> list[str]:
        """The words with their positions, which tell equal words apart."""
        words, _ = first_words(self.values["text"], LONGEST)
        return [f"{n + 1} {short(clean(word))}" for n, word in enumerate(words)]

    @property
    def positions(self) -> list[int]:
        """The order that is written; the natural one where it is not valid."""
        count = len(self.names)
        try:
            return order_of(self.values["order"], count)
        except ValueError:
            return list(range(1, count + 1))

    def refresh(self) -> None:
        """Draw, and put the words to drag into that order."""
        super().refresh()
        names, positions = self.names, self.positions
        with self.quietly():
            if self.dragged:
                self.dragged.allowed_tags = names
                self.dragged.value = [names[position - 1] for position in positions]
            if list(self.chosen.options) != names:
                # In one message: a list without its choice would be shown as empty.
                with self.chosen.hold_sync():
                    self.chosen.options = names
                    self.chosen.index = 0 if names else None

    def _dragged(self, change: Any) -> None:
        if self._quiet:
            return
        names, dragged = self.names, self.dragged.value
        if sorted(dragged) != sorted(names):
            # An order names each word: one that the key Delete took out is put back in its place.
            self.refresh()
        else:
            self.change(order=spelled([names.index(name) + 1 for name in dragged]))

    def move(self, steps: int) -> None:
        """Predict the chosen word earlier or later."""
        positions = self.positions
        if not positions:
            return
        at = positions.index(self.names.index(self.chosen.value) + 1)
        to = min(max(at + steps, 0), len(positions) - 1)
        positions.insert(to, positions.pop(at))
        self.change(order=spelled(positions))

    def draw_one(self) -> None:
        """A random order, another one each time."""
        self.draws += 1
        self.change(order=drawn(len(self.names), self.draws))


def spelled(positions: list[int]) -> str:
    """An order as somebody would write it."""
    return " ".join(map(str, positions))


def orders_demo(text: str = "New York is a city", order: str = "") -> OrdersDemo:
    """Write an order, drag one, draw one, turn it round: both masks follow."""
    return OrdersDemo(text, order)
