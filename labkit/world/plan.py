"""The plan of a document: its sections, which may follow which, and the classes of documents.

A section is a stage of a topic (once for each feeling, if the topic has feelings), a relation of
the prompts, or an end.  Every section has a full stop, its state of the same number; a relation has
two, ";" and, after all sections, ".".  Topics that lead to each other form a group with an end of
its own.

What is drawn once and changes words, but never the order of sentences, makes the *classes* of
documents: the tense is one, and so is the group of words that goes with a fact (she, her).  A class
is one combination of all of them; a set of classes is the bits of a number.
"""

import itertools
import math
from collections import defaultdict

import numpy as np

from labkit.world.grammar import (
    Filler,
    Grammar,
    Location,
    Topic,
    Verb,
    WorldError,
    check_name,
    walk,
)
from labkit.world.machine import Section

MOST_CLASSES = 16
"""The sums over sets of classes have a column for each of up to 2^16 sets."""


class SectionPlan:
    """The sections, and the chances to go from full stop to section."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.groups = groups(grammar)
        self.sections: list[Section] = []
        self.first: dict[tuple[str, int], int] = {}
        for topic in grammar.topics.values():
            for side, feeling in enumerate(topic.feelings or (None,)):
                self.first[topic.name, side] = len(self.sections)
                self.sections += [Section(topic.name, s.name, feeling, None) for s in topic.stages]
        self.relations = range(len(self.sections), len(self.sections) + len(grammar.relations))
        self.sections += [Section("relations", "pairs", None, name) for name in grammar.relations]
        names = sorted(set(self.groups.values()))
        self.ends = range(len(self.sections), len(self.sections) + len(names))
        self.sections += [Section("end", group, None, None) for group in names]
        self.end_of = dict(zip(names, self.ends, strict=True))
        stops = len(self.sections) + len(grammar.relations)
        self.leave = np.zeros((stops, len(self.sections)))
        self.closing = np.eye(len(self.sections), stops)
        self._follow_ends()
        self._follow_topics()
        self._follow_relations()

    def last_stop(self, k: int) -> int:
        """The full stop of a prompt, as against the semicolons between its pairs."""
        return len(self.sections) + k - self.relations[0]

    def _follow_ends(self) -> None:
        kinds = self.grammar.kinds.values()
        total = sum(kind.weight for kind in kinds)
        for k in self.ends:
            for kind in kinds:
                self._lead(k, kind.begins, kind.weight / total, 0, 1)

    def _follow_topics(self) -> None:
        for topic in self.grammar.topics.values():
            sides = max(1, len(topic.feelings))
            for side in range(sides):
                for i, stage in enumerate(topic.stages):
                    k = self.first[topic.name, side] + i
                    self.leave[k, k] += stage.again
                    if i + 1 < len(topic.stages):
                        self.leave[k, k + 1] += 1 - stage.again
                    else:
                        self._lead(k, leads_to(self.grammar, topic), 1 - stage.again, side, sides)

    def _follow_relations(self) -> None:
        for k, relation in zip(self.relations, self.grammar.relations.values(), strict=True):
            last = self.last_stop(k)
            self.closing[k, k], self.closing[k, last] = 1 - relation.stops, relation.stops
            self.leave[k, k] = 1.0
            self.leave[last, self.end_of["relations"]] = 1.0

    def _lead(
        self,
        stop: int,
        table: dict[str, tuple[float, Location]],
        share: float,
        side: int,
        sides: int,
    ) -> None:
        """Spread `share` over the beginnings of the topics in the table; a feeling lasts."""
        total = sum(weight for weight, _ in table.values())
        for name, (weight, _) in table.items():
            part = share * weight / total
            if name == "end" and stop not in self.ends:
                self.leave[stop, self.end_of[self.groups[self.sections[stop].topic]]] += part
            elif name == "relations" and self.grammar.relations and stop in self.ends:
                weights = np.array([each.weight for each in self.grammar.relations.values()])
                self.leave[stop, self.relations] += part * weights / weights.sum()
            else:
                there = max(1, len(self.grammar.topics[name].feelings))
                chosen = [side] if there == sides > 1 else list(range(there))
                for other in chosen:
                    self.leave[stop, self.first[name, other]] += part / len(chosen)


def leads_to(grammar: Grammar, topic: Topic) -> dict[str, tuple[float, Location]]:
    """Where a topic leads: its own `leads to`, and the `comes after` of other topics."""
    table = dict(topic.leads_to)
    for other in grammar.topics.values():
        if topic.name in other.comes_after:
            table[other.name] = other.comes_after[topic.name]
    if not table:
        raise WorldError(
            topic.location, f'topic "{topic.name}" leads nowhere: add `leads to end` below it'
        )
    return table


def groups(grammar: Grammar) -> dict[str, str]:
    """Check that every topic can be reached and left; name the group of topics that each is in."""
    _check_kinds(grammar)
    after = {topic.name: _after(grammar, topic) for topic in grammar.topics.values()}
    _check_reached(grammar, after)
    group = {name: name for name in after}
    for name, others in after.items():
        for other in others - {"end"}:
            old, new = group[other], group[name]
            group = {key: new if value == old else value for key, value in group.items()}
    return group | ({"relations": "relations"} if grammar.relations else {})


def _check_kinds(grammar: Grammar) -> None:
    """Check that documents begin with topics that exist."""
    if not grammar.kinds:
        location = Location("the language", 0)
        raise WorldError(location, "no `documents` block lists the kinds of documents")
    known = [*grammar.topics, *(["relations"] if grammar.relations else [])]
    for kind in grammar.kinds.values():
        for name, (_, location) in kind.begins.items():
            check_name(location, "a topic", name, known)


def _after(grammar: Grammar, topic: Topic) -> set[str]:
    """The topics that may follow a topic, and the end."""
    if not topic.stages:
        message = f'topic "{topic.name}" has no stage: write `stage NAME` below it'
        raise WorldError(topic.location, message)
    table = leads_to(grammar, topic)
    for name, (_, location) in table.items():
        check_name(location, "a topic", name, [*grammar.topics, "end"])
    for name, (_, location) in topic.comes_after.items():
        check_name(location, "a topic", name, grammar.topics)
    return set(table)


def _check_reached(grammar: Grammar, after: dict[str, set[str]]) -> None:
    """Check that some document reaches each topic and can end after it."""
    begins = {name for kind in grammar.kinds.values() for name in kind.begins}
    reached = _closure(begins, after)
    for topic in grammar.topics.values():
        if topic.name not in reached:
            message = f'no document reaches topic "{topic.name}": add `comes after TOPIC` below it'
            raise WorldError(topic.location, message)
        if "end" not in _closure({topic.name}, after):
            raise WorldError(
                topic.location,
                f'after topic "{topic.name}" no document can end: lead to end somewhere',
            )
    if grammar.relations and "relations" not in begins:
        location = next(iter(grammar.relations.values())).location
        raise WorldError(
            location, "no document reaches the relations: add `prompt 1 begins with relations`"
        )


def _closure(names: set[str], after: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    while names:
        reached |= names
        names = set().union(*(after.get(name, set()) for name in names)) - reached
    return reached


class Classes:
    """The combinations of tense and fields of facts, and their chances."""

    def __init__(self, grammar: Grammar) -> None:
        axes: dict[str, dict[tuple[str, ...], float]] = {}
        stages = [stage for topic in grammar.topics.values() for stage in topic.stages]
        patterns = [*grammar.phrases.values(), *(stage.patterns for stage in stages)]
        items = (item for some in patterns for pattern in some for item in walk(pattern.items))
        if any(isinstance(item, Verb) for item in items):
            axes["tense"] = {("past",): 0.5, ("present",): 0.5}
        for fact in grammar.facts.values():
            if len(fact.fields) > 1:
                weights: dict[tuple[str, ...], float] = defaultdict(float)
                for value in fact.values:
                    weights[_fields(value)] += value.weight
                axes[fact.name] = weights
        self.names, self.facts = list(axes), grammar.facts
        count = math.prod(map(len, axes.values()))
        if count > MOST_CLASSES:
            last = grammar.facts[self.names[-1]].location
            ways = f"the words of {', '.join(self.names)} combine in {count:,} ways"
            advice = f"at most {MOST_CLASSES} are allowed, so give fewer facts fields of their own"
            raise WorldError(last, f"{ways}: {advice}")
        self.values = list(itertools.product(*axes.values()))
        chances = [np.prod([axes[n][v] for n, v in zip(axes, c, strict=True)]) for c in self.values]
        self.prior = np.array(chances) / sum(chances)
        self.every = (1 << len(self.values)) - 1

    def saying(self, name: str, at: int, word: str) -> int:
        """The classes whose value of this name has this word at position `at`."""
        axis = self.names.index(name)
        return sum(1 << c for c, values in enumerate(self.values) if values[axis][at] == word)

    def words(self, fact: str, field: str) -> list[tuple[str, int]]:
        """The words of a fact's field, each with the classes that say it."""
        at = self.facts[fact].fields.index("." + field) - 1
        axis = self.names.index(fact)
        words = dict.fromkeys(values[axis][at] for values in self.values)
        return [(word, self.saying(fact, at, word)) for word in words]

    def fits(self, fact: str, value: Filler) -> np.ndarray:
        """In which classes a fact may have this value: [class]."""
        if fact not in self.names:
            return np.ones(len(self.values), bool)
        axis = self.names.index(fact)
        return np.array([values[axis] == _fields(value) for values in self.values])


def _fields(value: Filler) -> tuple[str, ...]:
    return tuple(token.word for token in value.tokens[1:])
