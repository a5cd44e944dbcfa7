"""Draw documents, many side by side, and say what is hidden in them.

Whether a document may be training text is decided by a hash of its own words, so that no document,
from whatever seed, is ever in both splits.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from labkit.world.machine import END, Machine, Section

# One text of eight belongs to the held-out split.
HELD_OUT_SHARE, SIDE_BY_SIDE = 8, 512
SPLITS = ("train", "held_out")


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
    """What is hidden in a document; lists have one entry a sentence."""

    topics: list[str]
    stages: list[str]
    patterns: list[str]
    sides: list[int]
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
    values: np.ndarray

    @cached_property
    def words(self) -> list[str]:
        """The words, full stops and the end mark among them."""
        return [self.machine.vocabulary[number] for number in self.numbers]

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
        """Topic, stage and pattern of each sentence; feeling, relation, facts and senses of the
        document.
        """
        machine = self.machine
        sections: list[Section] = [
            machine.sections[machine.section[self.states[a]]] for a, _ in self.sentences
        ]
        firsts = [self.states[a] for a, _ in self.sentences]
        senses = [
            Sense(i, word, machine.senses[emission, number])
            for i, (word, number, emission) in enumerate(
                zip(self.words, self.numbers, machine.emission[self.states], strict=True)
            )
            if (emission, number) in machine.senses
        ]
        used = {int(f) for f in machine.fact[self.states] if f >= 0}
        return Annotations(
            topics=[section.topic for section in sections],
            stages=[section.stage for section in sections],
            patterns=[str(machine.patterns[machine.pattern[s]]) for s in firsts],
            sides=[int(machine.side[s]) for s in firsts],
            feeling=next((s.feeling for s in sections if s.feeling), None),
            relation=next((s.relation for s in sections if s.relation), None),
            facts={
                machine.facts[f].name: machine.facts[f].values[self.values[f]].tokens[0].word
                for f in sorted(used)
            },
            senses=senses,
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __str__(self) -> str:
        return self.text


class Sampler:
    """Draws documents; what may be computed once is computed here."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        size = machine.states
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
        number = np.repeat(
            np.arange(len(machine.emissions.start) - 1), np.diff(machine.emissions.start)
        )
        self.emit = _Wheel(number, machine.emissions.weight, len(machine.emissions.start) - 1)
        self.fact_words = [
            np.array(
                [[machine.number.get(t.word, 0) for t in value.tokens] for value in fact.values]
            ).T
            for fact in machine.facts
        ]
        self.field = np.full(len(machine.emissions.start), -1)
        for emission, (_, field) in machine.fact_emissions.items():
            self.field[emission] = field

    def documents(
        self, seed: int, split: str | None, begin: np.ndarray | None = None
    ) -> Iterator[Document]:
        """All documents of a seed and a split (None: both), without end.

        `begin` is the distribution of the first section.
        """
        distribution = self.machine.leave[self.machine.ends[0]] if begin is None else begin
        chunk = 0
        while True:
            for document in self._chunk(
                np.random.default_rng([seed, chunk]), distribution / distribution.sum()
            ):
                if split is None or split_of(document.text) == split:
                    yield document
            chunk += 1

    def _chunk(self, random: np.random.Generator, begin: np.ndarray) -> Iterator[Document]:
        machine, count = self.machine, SIDE_BY_SIDE
        values = np.stack(
            [
                random.choice(len(f.values), count, p=_normalised([v.weight for v in f.values]))
                for f in machine.facts
            ]
            or [np.zeros(count, int)],
            axis=1,
        )
        stops = len(machine.leave)
        alive = np.arange(count)
        node = machine.states + random.choice(len(begin), count, p=begin)
        numbers, states, who = [], [], []
        while len(alive):
            state = self.targets[self.arcs.spin(node, random)]
            word = machine.emissions.word[self.emit.spin(machine.emission[state], random)]
            for f, table in enumerate(self.fact_words):
                mine = machine.fact[state] == f
                word[mine] = table[
                    self.field[machine.emission[state[mine]]], values[alive[mine], f]
                ]
            numbers.append(word)
            states.append(state)
            who.append(alive)
            going = word != machine.number[END]
            alive, node = alive[going], state[going]
            at_stop = node < stops
            chosen = self.leave.spin(node[at_stop], random)
            node[at_stop] = machine.states + self.next_section[chosen]
        whole = np.concatenate(who)
        order = np.argsort(whole, kind="stable")
        numbers_flat, states_flat = np.concatenate(numbers)[order], np.concatenate(states)[order]
        edges = np.searchsorted(whole[order], np.arange(count + 1))
        for i in range(count):
            span = slice(edges[i], edges[i + 1])
            yield Document(machine, numbers_flat[span], states_flat[span], values[i])


class _Wheel:
    """Draws one arc of each given node: the arcs of node n lie between n and n + 1 on one long
    line.
    """

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
        """One arc a node."""
        return np.searchsorted(self.edges, node + random.random(len(node)), side="right")


def _normalised(weights: list[float]) -> np.ndarray:
    return np.array(weights) / sum(weights)
