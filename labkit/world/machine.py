"""The hidden Markov model that a grammar is compiled to: its arcs and emissions as sparse arrays.

A slot with many fillers is one state whose emission is the law of its fillers; a name of several
words is a chain of states.  All sentences of a section (a stage of a topic) end in one state, its
full stop, and leave it by the chances of the next section: so the sentences are a forest of short
chains between few full stops.

    nodes     0 … S-1 states, the first of them full stops;  S … S+K-1 sections (silent)
    arcs      node -> state, sorted by the state they enter
    leave     full stop -> section, a small dense matrix
    closing   section -> the full stop of its sentences
    entries   (symbol, state) pairs with the probability that the state emits the symbol, sorted by
              symbol; symbol V stands for a hidden word (every state, probability 1), V + 1 for an
              unknown one (none)

What is drawn once for a document (hero, home) is no part of the state: a fact's state emits each of
its words with weight 1, and `facts.py` multiplies by the chance of the values that agree with the
words seen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.world.grammar import Fact, Place

END = "<end>"


class Section(NamedTuple):
    """What every state of a sentence knows: its place in the document's plan."""

    topic: str
    stage: str
    feeling: str | None
    relation: str | None


class Laws(NamedTuple):
    """The laws of fillers, one behind the other: words and weights of law n from start[n] on."""

    start: np.ndarray
    word: np.ndarray
    weight: np.ndarray


class Entries(NamedTuple):
    """Which states emit a symbol, and over which arcs they are entered; see the head of the file."""

    start: np.ndarray
    state: np.ndarray
    weight: np.ndarray
    arc: np.ndarray
    source: np.ndarray
    arc_weight: np.ndarray


@dataclass
class Machine:
    """The compiled language: see the head of the file for the arrays."""

    vocabulary: list[str]
    number: dict[str, int]
    sections: list[Section]
    facts: list[Fact]
    fact_words: list[dict[str, np.ndarray]]
    patterns: list[Place]
    # One number per state.
    law: np.ndarray
    section: np.ndarray
    pattern: np.ndarray
    side: np.ndarray
    fact: np.ndarray
    bound: np.ndarray
    # Laws (of fillers) and what they say about senses.
    laws: Laws
    senses: dict[tuple[int, int], str]
    fact_laws: dict[int, tuple[int, int]]  # law -> number of the fact and of its field
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

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.law)

    @property
    def hidden(self) -> int:
        """The symbol of a hidden word."""
        return len(self.vocabulary)


def spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate the ranges start … start + count - 1."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def pack_laws(rows: list[list[tuple[int, float]]]) -> Laws:
    """Put the laws, given as (word, weight) pairs, one behind the other."""
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    flat = [pair for row in rows for pair in row]
    return Laws(
        start, np.array([word for word, _ in flat]), np.array([weight for _, weight in flat])
    )


def list_entries(laws: Laws, law: np.ndarray, arcs: tuple[np.ndarray, ...], words: int) -> Entries:
    """Pair every state with every word of its law, with the hidden word, and none with unknown ones."""
    source, target, weight = arcs
    size = len(law)
    counts = np.diff(laws.start)[law]
    places = spans(laws.start[law], counts)
    # A symbol that no state emits still needs an entry, of weight 0.
    silent = np.setdiff1d(np.arange(words), laws.word[places])
    nothing = np.append(silent, words + 1)
    symbol = np.concatenate([laws.word[places], np.full(size, words), nothing])
    state = np.concatenate(
        [np.repeat(np.arange(size), counts), np.arange(size), np.zeros(len(nothing), int)]
    )
    emits = np.concatenate([laws.weight[places], np.ones(size), np.zeros(len(nothing))])
    order = np.lexsort((state, symbol))
    symbol, state, emits = symbol[order], state[order], emits[order]
    into = np.searchsorted(target, np.arange(size + 1))
    arcs_in = np.diff(into)[state]
    pulled = spans(into[state], arcs_in)
    return Entries(
        start=np.searchsorted(symbol, np.arange(words + 3)),
        state=state,
        weight=emits,
        arc=np.concatenate([[0], np.cumsum(arcs_in)]),
        source=source[pulled],
        arc_weight=weight[pulled] * np.repeat(emits, arcs_in),
    )
