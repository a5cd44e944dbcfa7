"""Draw documents, many side by side, together with their hidden variables.

Whether a document may be training text is decided by a hash of its own words, so that no document,
from whatever seed, is ever in both splits.
"""

import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from labkit.checks import check_seed
from labkit.world.machine import END, Machine, Section, owners
from labkit.world.memory import GroupMemory

# One text in eight belongs to the held-out split.
HELD_OUT_SHARE, SIDE_BY_SIDE = 8, 512
SPLITS = ("train", "held_out")
TRIES = 100
"""How many chunks of documents are drawn before a split is declared empty."""
KEPT = 24
"""How many chunks are kept, of one to two MB."""


def text_hash(text: str) -> int:
    """A number that depends on the text alone, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(text: str) -> str:
    """The only split that this document may belong to."""
    return "held_out" if text_hash(text) % HELD_OUT_SHARE == 0 else "train"


class Sense(NamedTuple):
    """An ambiguous word of a document: its position, and which of its meanings is meant."""

    position: int
    word: str
    sense: str


@dataclass(frozen=True)
class Annotations:
    """What is hidden in a document; lists have one entry per sentence."""

    topics: list[str]
    stages: list[str]
    patterns: list[str]
    feeling: str | None
    relation: str | None
    facts: dict[str, str]
    senses: list[Sense]


@dataclass(frozen=True)
class Document:
    """A text of the language; `words` ends with the end mark, `text` leaves it out."""

    machine: Machine
    numbers: np.ndarray
    states: np.ndarray

    @cached_property
    def words(self) -> list[str]:
        """The words, full stops and the end mark among them."""
        return [self.machine.vocabulary[number] for number in self.numbers.tolist()]

    @cached_property
    def text(self) -> str:
        """The words joined by spaces, without the end mark."""
        return " ".join(self.words[:-1])

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        """First position and one past the last of each sentence."""
        stops = [i + 1 for i, word in enumerate(self.words) if word == "."]
        return list(zip([0, *stops[:-1]], stops, strict=True))

    @cached_property
    def annotations(self) -> Annotations:
        """What is hidden in this document."""
        machine = self.machine
        firsts = [self.states[a] for a, _ in self.sentences]
        emissions = machine.emission[self.states].tolist()
        sections: list[Section] = [machine.sections[machine.section[s]] for s in firsts]
        senses = [
            Sense(i, word, machine.senses[emission, number])
            for i, (word, emission, number) in enumerate(
                zip(self.words, emissions, self.numbers.tolist(), strict=True)
            )
            if (emission, number) in machine.senses
        ]
        facts: dict[str, str] = {}
        for t in np.nonzero(machine.family[self.states] >= 0)[0].tolist():
            family = machine.families[machine.family[self.states[t]]]
            if family.alpha == 0:
                facts.setdefault(family.name, self.words[t])
        return Annotations(
            topics=[section.topic for section in sections],
            stages=[section.stage for section in sections],
            patterns=[str(machine.patterns[machine.pattern[s]]) for s in firsts],
            feeling=next((s.feeling for s in sections if s.feeling), None),
            relation=next((s.relation for s in sections if s.relation), None),
            facts=facts,
            senses=senses,
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __str__(self) -> str:
        return self.text


@dataclass
class _Drawn:
    """What is kept of a document; its words and text are made anew for each reader."""

    numbers: np.ndarray
    states: np.ndarray
    split: str | None = None


class Sampler:
    """Draws documents; everything that is needed more than once is computed in advance."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        # Both splits of a seed are read from the same chunks.
        self._chunk = functools.lru_cache(maxsize=KEPT)(self._draw)
        self.memory = GroupMemory(machine.families, machine.prior, {})
        size, classes = machine.states, len(machine.prior)
        by_source = np.argsort(machine.arc_source, kind="stable")
        self.targets = machine.arc_target[by_source]
        self.arcs = _Wheel(
            machine.arc_source[by_source],
            machine.arc_weight[by_source],
            size + len(machine.sections),
        )
        stop, section = np.nonzero(machine.leave)
        self.next_section = section
        self.leave = _Wheel(stop, machine.leave[stop, section], len(machine.leave))
        # The node of a wheel of words is an emission in a class.
        emissions = machine.emissions
        row, of_class = np.nonzero(emissions.classes[:, None] >> np.arange(classes) & 1)
        node = owners(emissions.start)[row] * classes + of_class
        order = np.argsort(node, kind="stable")
        self.emitted = emissions.word[row[order]]
        self.emit = _Wheel(
            node[order], emissions.weight[row[order]], emissions.distributions * classes
        )
        if machine.families:
            self._first_draws()
            self._words_of_values()

    def _first_draws(self) -> None:
        """The wheel of the values that are remembered, for a family in a class and a style."""
        machine, memory = self.machine, self.memory
        of_class, style, value = np.nonzero(memory.base)
        families = len(memory.alpha)
        node = (of_class * memory.styles + style) * families + memory.family_of[value]
        self.drawn = value
        self.first_draw = _Wheel(
            node, memory.base[of_class, style, value], families * memory.styles * len(machine.prior)
        )

    def _words_of_values(self) -> None:
        """The word that says a value: (emission, value, class) -> word, as sorted keys."""
        machine, emissions = self.machine, self.machine.emissions
        number = owners(emissions.start)
        family = np.full(emissions.distributions, -1)
        family[machine.emission] = machine.family
        values = [(f, words) for f, each in enumerate(machine.families) for words in each.words]
        value_of = {(f, word): value for value, (f, words) in enumerate(values) for word in words}
        said = np.nonzero(machine.remembered)[0]
        drawn = [
            value_of[f, machine.vocabulary[word]]
            for f, word in zip(family[number[said]], emissions.word[said], strict=True)
        ]
        classes = np.arange(len(machine.prior))
        row, of_class = np.nonzero(emissions.classes[said, None] >> classes & 1)
        keys = self._key(number[said[row]], np.array(drawn)[row], of_class)
        order = np.argsort(keys)
        self.said_keys, self.said_words = keys[order], emissions.word[said[row[order]]]

    def _key(self, emission: np.ndarray, value: np.ndarray, of_class: np.ndarray) -> np.ndarray:
        values, classes = len(self.memory.family_of), len(self.machine.prior)
        return (emission * values + value) * classes + of_class

    def documents(self, seed: int, split: str | None, begin: np.ndarray) -> Iterator[Document]:
        """All documents of a seed and a split (None: both), without end.

        `begin` weighs the first sections.
        """
        check_seed(seed)
        if not begin.sum():
            raise ValueError("this language has no such documents: draw them without `having`")
        found, begin = 0, begin / begin.sum()
        for chunk in itertools.count():
            for drawn in self._chunk(seed, chunk, tuple(begin)):
                document = Document(self.machine, drawn.numbers, drawn.states)
                if split is not None and drawn.split is None:
                    drawn.split = split_of(document.text)
                if split is None or drawn.split == split:
                    found += 1
                    yield document
            if not found and chunk == TRIES:
                raise ValueError(
                    f"none of {TRIES * SIDE_BY_SIDE:,} documents belongs to {split}: this language "
                    "has too few of them to be split, so give split=None"
                )

    def _draw(self, seed: int, chunk: int, begin: tuple[float, ...]) -> list[_Drawn]:
        """Draw documents side by side, and put the words of each together."""
        random = np.random.default_rng([seed, chunk])
        drawn = zip(*self._words(random, np.array(begin)), strict=True)
        who, numbers, states = (np.concatenate(column) for column in drawn)
        order = np.argsort(who, kind="stable")
        edges = np.searchsorted(who[order], np.arange(SIDE_BY_SIDE + 1))
        out = []
        for first, past in itertools.pairwise(edges):
            mine = order[first:past]
            made = _Drawn(numbers[mine], states[mine])
            # Every reader of a kept document has the same arrays.
            made.numbers.setflags(write=False)
            made.states.setflags(write=False)
            out.append(made)
        return out

    def _words(
        self, random: np.random.Generator, begin: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The next word of each document that goes on: which documents, the words, their states."""
        machine, count = self.machine, SIDE_BY_SIDE
        of_class = random.choice(len(machine.prior), count, p=machine.prior)
        urns = _Urns(self, of_class, random)
        stops = len(machine.leave)
        alive = np.arange(count)
        node = machine.states + random.choice(len(begin), count, p=begin)
        while len(alive):
            state = self.targets[self.arcs.spin(node, random)]
            emission, classes = machine.emission[state], of_class[alive]
            wheel = emission * len(machine.prior) + classes
            word = self.emitted[self.emit.spin(wheel, random)]
            mine = (machine.family[state] >= 0).nonzero()[0]
            if len(mine):
                value = urns.draw(alive[mine], machine.family[state[mine]])
                keys = self._key(emission[mine], value, classes[mine])
                word[mine] = self.said_words[self.said_keys.searchsorted(keys)]
            yield alive, word, state
            going = word != machine.number[END]
            alive, node = alive[going], state[going]
            at_stop = node < stops
            if at_stop.any():
                chosen = self.leave.spin(node[at_stop], random)
                node[at_stop] = machine.states + self.next_section[chosen]


class _Urns:
    """What the documents of a chunk have drawn so far.

    The next draw copies one of the n earlier ones with chance n / (n + α), and else is new: this
    is the same as an urn to which every drawn ball goes back with another of its kind.
    """

    def __init__(self, sampler: Sampler, of_class: np.ndarray, random: np.random.Generator) -> None:
        self.sampler, self.of_class, self.random = sampler, of_class, random
        memory = sampler.memory
        self.style = random.integers(memory.styles, size=len(of_class))
        self.count = np.zeros((len(of_class), len(memory.alpha)), int)
        self.history = np.zeros((*self.count.shape, 8), np.int32)

    def draw(self, document: np.ndarray, family: np.ndarray) -> np.ndarray:
        """One value for each of these documents, from one family each."""
        memory = self.sampler.memory
        n = self.count[document, family]
        if n.max() == self.history.shape[2]:
            self.history = np.concatenate([self.history, np.zeros_like(self.history)], axis=2)
        chosen = self.random.random(len(n)) * (n + memory.alpha[family])
        again = (chosen < n) | ((n > 0) & (memory.alpha[family] == 0))
        which = np.minimum(chosen.astype(int), np.maximum(n - 1, 0))
        node = self.of_class[document] * memory.styles + self.style[document]
        node = node * len(memory.alpha) + family
        first = self.sampler.drawn[self.sampler.first_draw.spin(node, self.random)]
        value = np.where(again, self.history[document, family, which], first)
        self.history[document, family, n] = value
        self.count[document, family] += 1
        return value


class _Wheel:
    """Draws one arc of each given node: those of node n lie between n and n + 1 on a long line."""

    def __init__(self, node: np.ndarray, weight: np.ndarray, nodes: int) -> None:
        total = np.bincount(node, weight, minlength=nodes)
        share = weight / total[node]
        before = np.cumsum(share) - share
        first = np.searchsorted(node, np.arange(nodes))
        base = before[np.minimum(first, len(before) - 1)]
        self.edges = node + np.minimum(before - base[node] + share, 1.0)
        last = np.append(node[1:] != node[:-1], True)
        self.edges[last] = node[last] + 1.0

    def spin(self, node: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """One arc per node."""
        return self.edges.searchsorted(node + random.random(len(node)), side="right")
