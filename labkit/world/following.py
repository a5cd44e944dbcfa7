"""The distribution of the word that follows each prefix of a text, for many texts at once.

`Language.conditional` answers one question at a time, with a pass over the text for each. Here one
pass answers all questions about a text: the weights of the states after each word are those of the
pass, and what a document remembers is counted beside it. Read `_mass` first.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labkit.checks import check_whole
from labkit.world.machine import Arcs, Machine, items_of, owners, pack_arcs
from labkit.world.memory import GroupMemory, Memories, next_draw
from labkit.world.sums import ForwardStep, ReadingOrder, Symbols, chunks, forward


class Following(NamedTuple):
    """The words that may follow each prefix of a text, and how likely each is.

    Those after word n, counted from 0, are the entries from start[n] to start[n + 1].
    """

    start: np.ndarray
    word: np.ndarray
    chance: np.ndarray

    def after(self, words: int, vocabulary: int) -> np.ndarray:
        """The distribution after so many words, over a vocabulary of so many."""
        check_whole("words", words, least=1, most=len(self.start) - 1)
        chances = np.zeros(vocabulary)
        span = slice(self.start[words - 1], self.start[words])
        chances[self.word[span]] = self.chance[span]
        return chances


class Direction(NamedTuple):
    """The order in which a text is read, and what may come next.

    `said` holds the arcs from each state to the emissions that may come next: number
    `emission + emissions * group`. `over` weighs the end of another document next to a state.
    """

    order: ReadingOrder
    said: Arcs
    over: np.ndarray


def direction_over(machine: Machine, order: ReadingOrder, over: np.ndarray) -> Direction:
    """The direction of this order; arcs from a state to the same words are merged."""
    arcs = order.arcs
    emissions = machine.emissions.distributions
    every = emissions * len(machine.members)
    source = owners(arcs.start)
    said = machine.emission[arcs.target] + emissions * machine.group[arcs.target]
    key, number = np.unique(source * every + said, return_inverse=True)
    weight = np.bincount(number, arcs.weight * order.prior[arcs.target])
    return Direction(order, pack_arcs(*np.divmod(key, every), weight, machine.states), over)


def following(
    machine: Machine, memory: Memories, texts: list[np.ndarray], read: Direction, least: float
) -> list[Following]:
    """The words that may follow each prefix of each text, except those less likely than `least`."""
    nothing = Following(np.zeros(1, int), np.zeros(0, int), np.zeros(0))
    out = [nothing] * len(texts)
    rows = [Symbols(text) for text in texts]
    for chunk in chunks(machine, rows):
        found = list(_steps(machine, memory, [rows[i] for i in chunk], read, least))
        step = np.repeat(np.arange(len(found)), [len(one[0]) for one in found])
        row, word, chance = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(row, kind="stable")
        edges = np.searchsorted(row[order], np.arange(len(chunk) + 1))
        for n, i in enumerate(chunk):
            mine = order[edges[n] : edges[n + 1]]
            start = np.searchsorted(step[mine], np.arange(len(texts[i]) + 1))
            out[i] = Following(start, word[mine], chance[mine])
    return out


def joined(
    pieces: list[Following], begins: tuple[np.ndarray, np.ndarray] | None = None
) -> Following:
    """The words that may follow each prefix of several documents, given those of each document.

    `begins` are the words and chances of the first word of a document, which follows an end mark.
    """
    counts, words, chances = [], [], []
    for n, piece in enumerate(pieces):
        counts.append(np.diff(piece.start))
        words.append(piece.word)
        chances.append(piece.chance)
        if begins is not None and n + 1 < len(pieces):
            counts[-1][-1] = len(begins[0])
            words.append(begins[0])
            chances.append(begins[1])
    start = np.append(0, np.cumsum(np.concatenate(counts)))
    return Following(start, np.concatenate(words), np.concatenate(chances))


def documents_of(text: np.ndarray) -> list[np.ndarray]:
    """The parts of a text that end with an end mark, and what follows the last one."""
    ends = np.nonzero(text[:-1] == 0)[0] + 1
    return np.split(text, ends)


Shares = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, words, and the weight of each of these words in its row."""


def _steps(
    machine: Machine, memory: Memories, rows: list[Symbols], read: Direction, least: float
) -> Iterator[Shares]:
    """After each word: the rows, the words that may follow, and their probabilities."""
    words = len(machine.vocabulary)
    drawn = [Drawn(group, len(rows)) for group in memory.groups]
    for t, step in enumerate(forward(machine, rows, read.order.arcs, read.order.begin)):
        count = len(step.log_scale)
        shown = np.array([row.symbols[t] for row in rows[:count]])
        for group in drawn:
            group.add(shown)
        row, word, mass = _mass(machine, drawn, step, read)
        chance = np.bincount(row * words + word, mass, count * words).reshape(count, words)
        chance = likely(normalised(chance), least)
        row, word = np.nonzero(chance)
        yield row, word, chance[row, word]


def likely(chances: np.ndarray, least: float) -> np.ndarray:
    """Distributions without words that are less likely than `least`; the likeliest always stays."""
    unlikely = chances < np.minimum(least, chances.max(axis=-1, keepdims=True))
    return normalised(np.where(unlikely, 0.0, chances))


def normalised(weights: np.ndarray) -> np.ndarray:
    """Weights that add up to 1, or to 0 where nothing can follow: after the end of a document."""
    return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)


def _mass(machine: Machine, drawn: list["Drawn"], step: ForwardStep, read: Direction) -> Shares:
    """The weight of everything that may be said next: states times words times memory."""
    # From the states that are alive to what is said next ...
    arc, source = items_of(read.said.start, step.states)
    group, emission = np.divmod(read.said.target[arc], machine.emissions.distributions)
    row, classes, value = step.owner[source], step.classes[source], step.alpha[source]
    chances = _chances(machine, drawn, step, row, group)
    # ... and from there to the words.
    entry, source = items_of(machine.emissions.start, emission)
    word, bits = machine.emissions.word[entry], classes[source] & machine.emissions.classes[entry]
    value = (value * read.said.weight[arc])[source] * machine.emissions.weight[entry]
    row, group = row[source], group[source]
    share = chances.sums[row, group, bits]
    for g, one in enumerate(drawn):
        remembered = machine.remembered[entry] & (group == g) & (one.memory.value_of[word] >= 0)
        urn = np.nonzero(remembered)[0]
        if len(urn):
            share[urn] = one.next(chances, g, row[urn], word[urn], bits[urn])
    value *= share
    ends = step.alpha * read.over[step.states]
    ends *= chances.sums[step.owner, machine.group[step.states], step.classes]
    last = np.zeros(len(ends), int)
    return np.append(row, step.owner), np.append(word, last), np.append(value, ends)


class Chances(NamedTuple):
    """How likely all draws are: for each group [row, class, style], times the class's own chance;
    and summed over the styles and over every set of classes: [row, group, bits].
    """

    weights: list[np.ndarray]
    sums: np.ndarray


def _chances(
    machine: Machine, drawn: list["Drawn"], step: ForwardStep, row: np.ndarray, group: np.ndarray
) -> Chances:
    """The chances of all draws, divided in each row by the largest of the groups in use."""
    rows = len(step.log_scale)
    used = np.zeros((rows, len(drawn)), bool)
    used[row, group] = True
    used[step.owner, machine.group[step.states]] = True
    tops = np.stack([one.logs[:rows].max(axis=(1, 2)) for one in drawn], axis=1)
    top = np.where(used, tops, -np.inf).max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)[:, None, None]
    weights = [
        np.exp(np.minimum(one.logs[:rows] - top, 0.0))
        * (machine.prior[:, None] / one.memory.styles)
        for one in drawn
    ]
    sums = np.stack([one.sum(axis=2) @ machine.class_bits for one in weights], axis=1)
    return Chances(weights, sums)


class Drawn:
    """What each row has drawn of the families of a group of topics."""

    def __init__(self, memory: GroupMemory, rows: int) -> None:
        self.memory = memory
        self.logs = np.zeros((rows, *memory.base.shape[:2]))
        """Log of the chance of all draws: [row, class, style]."""
        self.counts = np.zeros((rows, len(memory.family_of)))
        self.drawn = np.zeros((rows, len(memory.alpha)))

    def add(self, words: np.ndarray) -> None:
        """Add the next word of each row, if it is one that is remembered."""
        values = self.memory.value_of[words]
        row = np.nonzero(values >= 0)[0]
        if not len(row):
            return
        value = values[row]
        base = np.moveaxis(self.memory.base[:, :, value], 2, 0)
        seen, share, whole = (part[:, None, None] for part in self._urn(row, value))
        with np.errstate(divide="ignore"):
            self.logs[row] += np.log((seen + share * base) / whole)
        self.counts[row, value] += 1
        self.drawn[row, self.memory.family_of[value]] += 1

    def next(
        self, chances: Chances, g: int, row: np.ndarray, word: np.ndarray, bits: np.ndarray
    ) -> np.ndarray:
        """The chance of each word in the next draw, summed over the classes and styles."""
        weights, value = chances.weights[g], self.memory.value_of[word]
        seen, share, whole = self._urn(row, value)
        # Only the base depends on the class and the style.
        mass = seen * chances.sums[row, g, bits]
        based = np.einsum("rcs,csv->crv", weights, self.memory.base)
        some = np.nonzero(share)[0]
        for c, of_class in enumerate(based):
            mine = some[bits[some] >> c & 1 > 0]
            mass[mine] += share[mine] * of_class[row[mine], value[mine]]
        return mass / whole

    def _urn(self, row: np.ndarray, value: np.ndarray) -> Shares:
        """The chance of a value in the next draw is (seen + share * base) / whole."""
        family = self.memory.family_of[value]
        share, whole = next_draw(self.drawn[row, family], self.memory.alpha[family])
        return self.counts[row, value], share, whole
