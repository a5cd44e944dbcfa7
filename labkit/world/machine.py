"""The hidden Markov model that a grammar is compiled to: its arcs and emissions as sparse arrays.

A slot with many fillers is one state that emits any of them; a name of several words is a chain
of states.  All sentences of a section (a stage of a topic) end in one state, its
full stop, and leave it by the chances of the next section: so the sentences are a forest of short
chains between few full stops.

    nodes     0 … S-1 states, the first of them full stops;  S … S+K-1 sections (silent)
    arcs      node -> state, sorted by the state they enter
    leave     full stop -> section, a small dense matrix
    closing   section -> the full stop of its sentences
    entries   symbol -> the states that emit it; symbol V stands for a hidden word (every state,
              with probability 1), V + 1 for an unknown one (none)
    onward    state -> state, the way over full stop and section included;  turned: the same, back

What a document remembers (facts, urns) is not part of the state: such a state emits each of its
words with weight 1, and `memory.py` multiplies by their chance.  What changes the words of a
document but never its arcs (its tense, the gender of its hero) is a class: an emission says in
which classes it emits a word, as the bits of a number.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.world.grammar import Location
from labkit.world.memory import Family

END = "<end>"


class Section(NamedTuple):
    """What every state of a sentence knows: its position in the document's plan."""

    topic: str
    stage: str
    feeling: str | None
    relation: str | None


class Emissions(NamedTuple):
    """All emission distributions: words, weights and classes of number n from start[n] on."""

    start: np.ndarray
    word: np.ndarray
    weight: np.ndarray
    classes: np.ndarray

    @property
    def distributions(self) -> int:
        """How many distributions there are."""
        return len(self.start) - 1


class Entries(NamedTuple):
    """Which states emit a symbol: those of symbol n from start[n] on."""

    start: np.ndarray
    state: np.ndarray


class Arcs(NamedTuple):
    """Arcs from state to state: those of state n from start[n] on."""

    start: np.ndarray
    target: np.ndarray
    weight: np.ndarray


def pack_arcs(source: np.ndarray, target: np.ndarray, weight: np.ndarray, size: int) -> Arcs:
    """Sort arcs by the state that they leave."""
    order = np.argsort(source, kind="stable")
    start = np.searchsorted(source[order], np.arange(size + 1))
    return Arcs(start, target[order], weight[order])


@dataclass
class Machine:
    """The compiled language: the docstring of the module describes the arrays."""

    vocabulary: tuple[str, ...]
    number: dict[str, int]
    sections: list[Section]
    patterns: list[Location]
    # The families that are remembered, those of each group of topics, the chance of every class.
    families: list[Family]
    members: list[list[int]]
    prior: np.ndarray
    # One number per state.
    emission: np.ndarray
    section: np.ndarray
    pattern: np.ndarray
    family: np.ndarray
    group: np.ndarray
    # Distributions (of fillers) and what they say about senses.
    emissions: Emissions
    senses: dict[tuple[int, int], str]
    # Arcs, and the way from full stop to section.
    arc_source: np.ndarray
    arc_target: np.ndarray
    arc_weight: np.ndarray
    leave: np.ndarray
    closing: np.ndarray
    ends: np.ndarray

    def __post_init__(self) -> None:
        # Inside one text nothing follows the end of a document.
        self.inside = self.leave.copy()
        self.inside[self.ends] = 0.0
        self._tabulate()
        self.entries = list_entries(self.emissions, self.emission, self.hidden)
        self.onward, self.turned = self._from_state_to_state()
        # For each word of each emission, whether it is drawn from a family.
        drawn = np.zeros(self.emissions.distributions, bool)
        drawn[self.emission[self.family >= 0]] = True
        self.remembered = np.repeat(drawn, np.diff(self.emissions.start))
        # For each class, whether each set of classes holds it.
        sets = np.arange(self.every_class + 1)
        self.class_bits = (sets >> np.arange(len(self.prior))[:, None] & 1).astype(float)

    def _from_state_to_state(self) -> tuple[Arcs, Arcs]:
        """The arcs between states, with the way over the sections, onward and turned round."""
        inner = self.arc_source < self.states
        stop, section = np.nonzero(self.inside)
        by_source = pack_arcs(
            self.arc_source, self.arc_target, self.arc_weight, self.states + len(self.sections)
        )
        begins, way = items_of(by_source.start, self.states + section)
        over = self.inside[stop, section][way] * by_source.weight[begins]
        source = np.concatenate([self.arc_source[inner], stop[way]])
        target = np.concatenate([self.arc_target[inner], by_source.target[begins]])
        weight = np.concatenate([self.arc_weight[inner], over])
        size = self.states
        return pack_arcs(source, target, weight, size), pack_arcs(target, source, weight, size)

    def enter(self, start: np.ndarray) -> np.ndarray:
        """The weight with which every state is entered from nodes of these weights."""
        sent = start[self.arc_source] * self.arc_weight
        return np.bincount(self.arc_target, sent, minlength=self.states)

    def _tabulate(self) -> None:
        """Find the probability of each word in each emission without a search.

        `_position[word, emission]` is its position in `_weight` and `_classes`; position 0 has
        probability 0. No emission lists a word twice. All emit the hidden word, in all classes;
        none emits the unknown word of the last row. The table takes some 8 MB.
        """
        emissions, count = self.emissions, self.emissions.distributions
        size = len(emissions.word)
        self._position = np.zeros((self.hidden + 2, count), np.int32)
        self._position[emissions.word, owners(emissions.start)] = np.arange(1, size + 1)
        self._position[self.hidden] = size + 1
        self._weight = np.concatenate([[0.0], emissions.weight, [1.0]])
        self._classes = np.concatenate([[0], emissions.classes, [self.every_class]])

    def can_say(self, symbols: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Whether each state can emit the symbol beside it."""
        return self._position[symbols, self.emission[states]] > 0

    def says(self, symbols: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The probability that each state emits the symbol beside it, and in which classes."""
        position = self._position[symbols, self.emission[states]]
        return self._weight[position], self._classes[position]

    @property
    def first_section(self) -> np.ndarray:
        """The distribution of the first section of a document: what follows another's end."""
        return self.leave[self.ends[0]]

    @property
    def every_class(self) -> int:
        """The bits of all classes."""
        return (1 << len(self.prior)) - 1

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.emission)

    @property
    def hidden(self) -> int:
        """The symbol of a hidden word."""
        return len(self.vocabulary)


def items_of(start: np.ndarray, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All items of these lists, and for each item which of the lists it is from: 0, 1, ….

    List n has the items from start[n] to start[n + 1].
    """
    first = start[lists]
    counts = start[lists + 1] - first
    before = np.cumsum(counts) - counts
    items = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
    return items, np.repeat(np.arange(len(lists)), counts)


def owners(start: np.ndarray) -> np.ndarray:
    """The number of the list that each item is from."""
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def pack_emissions(rows: list[list[tuple[int, float, int]]]) -> Emissions:
    """Concatenate the distributions, which are given as (word, weight, classes)."""
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    word, weight, classes = zip(*(entry for row in rows for entry in row), strict=True)
    return Emissions(start, np.array(word), np.array(weight), np.array(classes))


def list_entries(emissions: Emissions, emission: np.ndarray, hidden: int) -> Entries:
    """Pair every word, and the symbol of a hidden one, with the states that emit it."""
    index, owner = items_of(emissions.start, emission)
    symbol = np.concatenate([emissions.word[index], np.full(len(emission), hidden)])
    state = np.concatenate([owner, np.arange(len(emission))])
    order = np.lexsort((state, symbol))
    return Entries(np.searchsorted(symbol[order], np.arange(hidden + 3)), state[order])
