"""The hidden Markov model that a grammar is compiled to: its arcs and emissions as sparse arrays.

A slot with many fillers is one state that emits any of them; a name of several words is a chain
of states.  All sentences of a section (a stage of a topic) end in one state, its
full stop, and leave it by the chances of the next section: so the sentences are a forest of short
chains between few full stops.

    nodes     0 … S-1 states, the first of them full stops;  S … S+K-1 sections (silent)
    arcs      node -> state, sorted by the state they enter
    leave     full stop -> section, a small dense matrix
    closing   section -> the full stop of its sentences
    entries   (symbol, state) pairs with the probability that the state emits the symbol, sorted by
              symbol; symbol V stands for a hidden word (every state, probability 1), V + 1 for an
              unknown one (none)
    onward    state -> state, the way over full stop and section included;  turned: the same, back

What is drawn once for a document (hero, home) is no part of the state: a fact's state emits each of
its words with weight 1, and `facts.py` multiplies by the chance of the values that agree with the
words seen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.world.grammar import Fact, Location

END = "<end>"


class Section(NamedTuple):
    """What every state of a sentence knows: its position in the document's plan."""

    topic: str
    stage: str
    feeling: str | None
    relation: str | None


class Emissions(NamedTuple):
    """All emission distributions: words and weights of number n from start[n] on."""

    start: np.ndarray
    word: np.ndarray
    weight: np.ndarray


class Entries(NamedTuple):
    """Which states emit a symbol: those of symbol n from start[n] on, with their probabilities."""

    start: np.ndarray
    state: np.ndarray
    weight: np.ndarray


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
    """The compiled language: see the head of the file for the arrays."""

    vocabulary: list[str]
    number: dict[str, int]
    sections: list[Section]
    facts: list[Fact]
    fact_words: list[dict[str, np.ndarray]]
    patterns: list[Location]
    # One number per state.
    emission: np.ndarray
    section: np.ndarray
    pattern: np.ndarray
    side: np.ndarray
    fact: np.ndarray
    bound: np.ndarray
    # Distributions (of fillers) and what they say about senses.
    emissions: Emissions
    senses: dict[tuple[int, int], str]
    fact_emissions: dict[int, tuple[int, int]]  # emission -> number of the fact and of its field
    # Arcs, entries, and the way from full stop to section.
    arc_source: np.ndarray
    arc_target: np.ndarray
    arc_weight: np.ndarray
    leave: np.ndarray
    closing: np.ndarray
    ends: np.ndarray
    entries: Entries

    def __post_init__(self) -> None:
        # Inside one text nothing follows the end of a document.
        self.inside = self.leave.copy()
        self.inside[self.ends] = 0.0
        number = np.repeat(np.arange(len(self.entries.start) - 1), np.diff(self.entries.start))
        self._keys = number * self.states + self.entries.state
        self.onward, self.turned = self._from_state_to_state()

    def _from_state_to_state(self) -> tuple[Arcs, Arcs]:
        """The arcs between states, with the way over the sections, onward and turned round."""
        inner = self.arc_source < self.states
        stop, section = np.nonzero(self.inside)
        by_source = pack_arcs(
            self.arc_source, self.arc_target, self.arc_weight, self.states + len(self.sections)
        )
        first = by_source.start[self.states + section]
        counts = by_source.start[self.states + section + 1] - first
        begins = spans(first, counts)
        over = np.repeat(self.inside[stop, section], counts) * by_source.weight[begins]
        source = np.concatenate([self.arc_source[inner], np.repeat(stop, counts)])
        target = np.concatenate([self.arc_target[inner], by_source.target[begins]])
        weight = np.concatenate([self.arc_weight[inner], over])
        size = self.states
        return pack_arcs(source, target, weight, size), pack_arcs(target, source, weight, size)

    def enter(self, start: np.ndarray) -> np.ndarray:
        """The weight with which every state is entered from nodes of these weights."""
        sent = start[self.arc_source] * self.arc_weight
        return np.bincount(self.arc_target, sent, minlength=self.states)

    def says(self, symbols: np.ndarray, states: np.ndarray) -> np.ndarray:
        """The probability that each state emits the symbol beside it."""
        keys = symbols * self.states + states
        index = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return self.entries.weight[index] * (self._keys[index] == keys)

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.emission)

    @property
    def hidden(self) -> int:
        """The symbol of a hidden word."""
        return len(self.vocabulary)


def spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate the ranges start … start + count - 1."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def pack_emissions(rows: list[list[tuple[int, float]]]) -> Emissions:
    """Put the emissions, given as (word, weight) pairs, one behind the other."""
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    flat = [pair for row in rows for pair in row]
    return Emissions(
        start, np.array([word for word, _ in flat]), np.array([weight for _, weight in flat])
    )


def list_entries(emissions: Emissions, emission: np.ndarray, words: int) -> Entries:
    """Pair every state with every word that it emits and with the hidden word, sorted by symbol."""
    size = len(emission)
    counts = np.diff(emissions.start)[emission]
    index = spans(emissions.start[emission], counts)
    symbol = np.concatenate([emissions.word[index], np.full(size, words)])
    state = np.concatenate([np.repeat(np.arange(size), counts), np.arange(size)])
    emits = np.concatenate([emissions.weight[index], np.ones(size)])
    order = np.lexsort((state, symbol))
    start = np.searchsorted(symbol[order], np.arange(words + 3))
    return Entries(start, state[order], emits[order])
