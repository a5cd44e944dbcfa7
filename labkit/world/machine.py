"""Compile a grammar to a hidden Markov model whose arcs and emissions are sparse arrays.

A slot with many fillers is one state whose emission is the law of its fillers; a name of several words is a
chain of states.  All sentences of a section (a stage of a topic) end in one state, its full stop, and leave it
by the chances of the next section: so the sentences are a forest of short chains between few full stops.

    nodes     0 … S-1 states, the first of them full stops;  S … S+K-1 sections (silent)
    arcs      node -> state, sorted by the state they enter
    leave     full stop -> section, a small dense matrix;  closing: section -> the full stop of its sentences
    entries   (symbol, state) pairs with the probability that the state emits the symbol, sorted by symbol;
              symbol V stands for a hidden word (every state, probability 1), V + 1 for an unknown one

What is drawn once for a document (hero, home) is no part of the state: a fact's state emits each of its
words with weight 1, and `facts.py` multiplies by the chance of the values that agree with the words seen.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.world.grammar import (
    Choice,
    Fact,
    Filler,
    Grammar,
    Item,
    Pattern,
    Place,
    Slot,
    Token,
    Topic,
    WorldError,
    expected,
)

END = "<end>"


class Section(NamedTuple):
    """What every state of a sentence knows: its place in the document's plan."""

    topic: str
    stage: str
    feeling: str | None
    relation: str | None


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
    law_start: np.ndarray
    law_word: np.ndarray
    law_weight: np.ndarray
    senses: dict[tuple[int, int], str]
    fact_laws: dict[int, tuple[int, int]]  # law -> number of the fact and of its field
    # Arcs, entries, and the way from full stop to section.
    arc_source: np.ndarray
    arc_target: np.ndarray
    arc_weight: np.ndarray
    leave: np.ndarray
    closing: np.ndarray
    ends: np.ndarray
    entry_start: np.ndarray
    entry_state: np.ndarray
    entry_weight: np.ndarray
    entry_arc: np.ndarray
    pull_source: np.ndarray
    pull_weight: np.ndarray

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


def compile_grammar(grammar: Grammar, new_forms: bool = False) -> Machine:
    """Check how the parts of the grammar fit together and compile them."""
    builder = _Builder(grammar, new_forms)
    builder.build()
    return builder.finish()


class _Builder:
    """States, arcs and laws while they are collected; `finish` turns them into arrays."""

    def __init__(self, grammar: Grammar, new_forms: bool) -> None:
        self.grammar, self.new_forms = grammar, new_forms
        self.number: dict[str, int] = {END: 0}
        self.sections: list[Section] = []
        self.patterns: list[Place] = []
        self.laws: dict[tuple, int] = {}
        self.law_rows: list[list[tuple[int, float]]] = []
        self.senses: dict[tuple[int, int], str] = {}
        self.states: list[tuple[int, int, int, int, int]] = []  # law, section, pattern, side, fact
        self.arcs: list[tuple[int, int, float]] = []  # a section k is the source -1 - k
        self.facts = list(grammar.facts.values())
        self.fact_laws: dict[int, tuple[int, int]] = {}
        self.seen_lists: set[str] = set()

    # ── the plan of a document ───────────────────────────────────────────────────────────────────

    def build(self) -> None:
        """Lay out the sections, then fill each with its sentences."""
        grammar = self.grammar
        if not grammar.kinds:
            place = Place("the language", 0)
            raise WorldError(place, "no `documents` block says which kinds of documents there are")
        self._check_held_out()
        self.groups = _groups(grammar)
        ends = sorted(set(self.groups.values()))
        self.first: dict[tuple[str, int], int] = {}
        for topic in grammar.topics.values():
            for side in range(max(1, len(topic.feelings))):
                feeling = topic.feelings[side] if topic.feelings else None
                self.first[topic.name, side] = len(self.sections)
                if not topic.stages:
                    raise WorldError(topic.place, f'topic "{topic.name}" has no stage: write `stage NAME` below it')
                self.sections += [Section(topic.name, s.name, feeling, None) for s in topic.stages]
        for relation in grammar.relations.values():
            self.first["relations", len(self.first)] = len(self.sections)
            self.sections.append(Section("relations", "pairs", None, relation.name))
        self.first_end = len(self.sections)
        self.sections += [Section("end", group, None, None) for group in ends]
        # The full stops come first: state k ends section k; a prompt's comes after them.
        dot, end = self._token(Token(".")), self._token(Token(END))
        semicolon = self._token(Token(";")) if grammar.relations else 0
        for k, section in enumerate(self.sections):
            law = end if section.topic == "end" else semicolon if section.relation else dot
            self.states.append((law, k, -1, -1, -1))
        for k, section in enumerate(self.sections):
            if section.relation:
                self.states.append((dot, k, -1, -1, -1))
        self.stops = len(self.states)
        self._plan(ends)
        self._sentences()
        self._check_facts()

    def _plan(self, ends: list[str]) -> None:
        """Fill `leave`: from each full stop to the sections that may follow."""
        grammar = self.grammar
        self.leave = np.zeros((self.stops, len(self.sections)))
        self.closing = np.eye(len(self.sections), self.stops)
        self.end_of = {group: self.first_end + i for i, group in enumerate(ends)}
        for k in range(self.first_end, self.first_end + len(ends)):
            self.arcs.append((-1 - k, k, 1.0))
            total = sum(kind.weight for kind in grammar.kinds.values())
            for kind in grammar.kinds.values():
                self._lead(k, kind.begins, kind.weight / total, 0, 1)
        for topic in grammar.topics.values():
            sides = max(1, len(topic.feelings))
            for side in range(sides):
                for i, stage in enumerate(topic.stages):
                    k = self.first[topic.name, side] + i
                    self.leave[k, k] += stage.again
                    if i + 1 < len(topic.stages):
                        self.leave[k, k + 1] += 1 - stage.again
                    else:
                        self._lead(k, _leads_to(grammar, topic), 1 - stage.again, side, sides)
        last = self.first_end + len(ends)
        for k, section in enumerate(self.sections):
            if section.relation:
                stops = grammar.relations[section.relation].stops
                self.closing[k, k], self.closing[k, last] = 1 - stops, stops
                self.leave[k, k] = 1.0
                self.leave[last, self.end_of["relations"]] = 1.0
                last += 1

    def _lead(
        self, stop: int, table: dict[str, tuple[float, Place]], share: float, side: int, sides: int
    ) -> None:
        """Spread `share` over the beginnings of the topics in the table; a feeling lasts."""
        total = sum(weight for weight, _ in table.values())
        for name, (weight, place) in table.items():
            part = share * weight / total
            if name == "end" and stop < self.first_end:
                self.leave[stop, self.end_of[self.groups[self.sections[stop].topic]]] += part
            elif name == "relations" and self.grammar.relations and stop >= self.first_end:
                whole = sum(relation.weight for relation in self.grammar.relations.values())
                for k, section in enumerate(self.sections):
                    if section.relation:
                        weight = self.grammar.relations[section.relation].weight
                        self.leave[stop, k] += part * weight / whole
            elif name in self.grammar.topics:
                there = max(1, len(self.grammar.topics[name].feelings))
                chosen = [side] if there == sides > 1 else range(there)
                for other in chosen:
                    self.leave[stop, self.first[name, other]] += part / len(chosen)
            else:
                known = [*self.grammar.topics, "relations" if stop >= self.first_end else "end"]
                raise WorldError(place, expected("a topic", name, known))

    # ── sentences ────────────────────────────────────────────────────────────────────────────────

    def _sentences(self) -> None:
        for topic in self.grammar.topics.values():
            for side in range(max(1, len(topic.feelings))):
                for i, stage in enumerate(topic.stages):
                    k = self.first[topic.name, side] + i
                    total = sum(pattern.weight for pattern in stage.patterns)
                    for pattern in stage.patterns:
                        self._pattern(pattern, pattern.weight / total, k, side, topic)
        last = self.first_end + len(self.end_of)
        for k, section in enumerate(self.sections):
            if section.relation:
                self._relation(k, last)
                last += 1

    def _pattern(self, pattern: Pattern, share: float, k: int, side: int, topic: Topic) -> None:
        shares = [1 / pattern.sides] * pattern.sides
        if topic.feelings and pattern.sides > 1:
            if pattern.sides != len(topic.feelings):
                raise WorldError(pattern.place, f"expected one side for each of {topic.feelings} in <…|…>")
            shares = [topic.agree if i == side else 1 - topic.agree for i in range(pattern.sides)]
        self.patterns.append(pattern.place)
        self.where = (k, len(self.patterns) - 1)
        for i, chance in enumerate(shares):
            if chance:
                self.side = i if pattern.sides > 1 else -1
                frontier = self._items(pattern.items, [(-1 - k, share * chance)])
                self._close(frontier, [(k, 1.0)])

    def _relation(self, k: int, last: int) -> None:
        relation = self.grammar.relations[self.sections[k].relation]
        total = sum(answer.weight for _, answer in relation.pairs)
        for question, answer in relation.pairs:
            self.patterns.append(answer.place)
            self.where, self.side = (k, len(self.patterns) - 1), -1
            items = (*question, Token(":"), *answer.tokens)
            frontier = self._items(items, [(-1 - k, answer.weight / total)])
            self._close(frontier, [(k, 1 - relation.stops), (last, relation.stops)])

    def _close(self, frontier: list[tuple[int, float]], stops: list[tuple[int, float]]) -> None:
        for source, weight in frontier:
            if source < 0:
                raise WorldError(self.patterns[self.where[1]], "all words of this sentence may be left out")
            self.arcs += [(source, stop, weight * share) for stop, share in stops if share]

    def _items(self, items: tuple[Item, ...], frontier: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Append the items after the frontier (nodes, each with its chance to go on); return the new one."""
        for item in items:
            if isinstance(item, Token):
                frontier = [(self._state(self._token(item), frontier), 1.0)]
            elif isinstance(item, Slot):
                frontier = self._slot(item, frontier)
            else:
                frontier = self._choice(item, frontier)
        return frontier

    def _choice(self, choice: Choice, frontier: list[tuple[int, float]]) -> list[tuple[int, float]]:
        if choice.tied:
            return self._items(choice.options[self.side], frontier)
        after = []
        for option in choice.options:
            part = [(source, weight / len(choice.options)) for source, weight in frontier]
            after += self._items(option, part)
        merged: dict[int, float] = {}
        for source, weight in after:
            merged[source] = merged.get(source, 0.0) + weight
        return list(merged.items())

    def _slot(self, slot: Slot, frontier: list[tuple[int, float]]) -> list[tuple[int, float]]:
        name, _, field = slot.name.partition(".")
        if name in self.grammar.facts:
            fact = self.grammar.facts[name]
            place = "." + field if field else ""
            if place not in fact.fields:
                known = [name + f for f in fact.fields]
                raise WorldError(slot.place, expected("a field of the fact", slot.name, known))
            law = self._fact_law(fact, fact.fields.index(place))
            fillers = [("a", 1.0, law, [])] if slot.article else [("", 1.0, law, [])]
        elif slot.name == "any":
            fillers = [("", 1.0, self._law(("any",), []), [])]
        elif slot.name in self.grammar.lists:
            fillers = self._fillers(slot)
        else:
            raise WorldError(slot.place, expected("a list or a fact", slot.name, [*self.grammar.lists, *self.grammar.facts]))
        after = []
        for article, share, law, chain in fillers:
            part = [(source, weight * share) for source, weight in frontier]
            if article:
                part = [(self._state(self._token(Token(article)), part), 1.0)]
            if law is not None:
                fact_number = self.facts.index(self.grammar.facts[name]) if name in self.grammar.facts else -1
                part = [(self._state(law, part, fact_number), 1.0)]
            after += self._items(tuple(chain), part)
        return after

    def _fillers(self, slot: Slot) -> list[tuple[str, float, int | None, list[Token]]]:
        """Group the fillers of a slot: one law for all single words, a chain for each longer name."""
        rows = self.grammar.lists[slot.name]
        kept = rows if self.new_forms else [row for row in rows if not self._is_new(row)]
        if not kept:
            raise WorldError(rows[0].place, f'all of "{slot.name}" is held out: leave some of it in the training text')
        if slot.name not in self.seen_lists:
            self.seen_lists.add(slot.name)
            for row in rows:
                for token in row.tokens:
                    self.number.setdefault(token.word, len(self.number))
        total = sum(row.weight for row in kept)
        groups: dict[str, list[Filler]] = {}
        for row in kept:
            vowel = row.tokens[0].word[0] in "aeiou"
            groups.setdefault(("an" if vowel else "a") if slot.article else "", []).append(row)
        out: list[tuple[str, float, int | None, list[Token]]] = []
        for article, group in groups.items():
            single = [row for row in group if len(row.tokens) == 1]
            if single:
                weight = sum(row.weight for row in single)
                law = self._law(("list", slot.name, article), [(r.tokens[0], r.weight / weight) for r in single])
                out.append((article, weight / total, law, []))
            for row in group:
                if len(row.tokens) > 1:
                    out.append((article, row.weight / total, None, list(row.tokens)))
        return out

    def _state(self, law: int, frontier: list[tuple[int, float]], fact: int = -1) -> int:
        state = len(self.states)
        self.states.append((law, *self.where, self.side, fact))
        self.arcs += [(source, state, weight) for source, weight in frontier]
        return state

    # ── laws ─────────────────────────────────────────────────────────────────────────────────────

    def _token(self, token: Token) -> int:
        return self._law(("token", *token), [(token, 1.0)])

    def _law(self, key: tuple, rows: list[tuple[Token, float]]) -> int:
        """The number of a law; it is made when first asked for."""
        if key not in self.laws:
            law = self.laws[key] = len(self.law_rows)
            merged: dict[int, float] = {}
            for token, weight in rows:
                number = self.number.setdefault(token.word, len(self.number))
                merged[number] = merged.get(number, 0.0) + weight
                if token.sense and self.senses.setdefault((law, number), token.sense) != token.sense:
                    place = self.patterns[self.where[1]]
                    raise WorldError(place, f'the list "{key[1]}" holds "{token.word}" in two senses: use two lists')
            self.law_rows.append(list(merged.items()))
        return self.laws[key]

    def _fact_law(self, fact: Fact, index: int) -> int:
        words = dict.fromkeys(value.tokens[index] for value in fact.values)
        law = self._law(("fact", fact.name, index), [(token, 1.0) for token in words])
        self.fact_laws[law] = (self.facts.index(fact), index)
        return law

    # ── checks ───────────────────────────────────────────────────────────────────────────────────

    def _is_new(self, filler: Filler) -> bool:
        return any(token.word in self.grammar.held_out for token in filler.tokens)

    def _check_held_out(self) -> None:
        listed = {t.word for rows in self.grammar.lists.values() for row in rows for t in row.tokens}
        for word, place in self.grammar.held_out.items():
            if word not in listed:
                raise WorldError(place, expected("a word of some list", word, listed))

    def _check_facts(self) -> None:
        """Facts stay exact because their words come, in documents that use them, only from their slots."""
        groups = [self.groups.get(section.topic, section.stage) for section in self.sections]
        users = {groups[section] for _, section, _, _, fact in self.states if fact >= 0}
        self.bound = np.array([groups[section] in users for _, section, *_ in self.states])
        self.fact_words = []
        for i, fact in enumerate(self.facts):
            has: dict[str, np.ndarray] = {}
            fields: dict[str, set[int]] = {}
            for v, value in enumerate(fact.values):
                for f, token in enumerate(value.tokens):
                    has.setdefault(token.word, np.zeros(len(fact.values), bool))[v] = True
                    fields.setdefault(token.word, set()).add(f)
            for v, value in enumerate(fact.values):
                for word, where in fields.items():
                    if has[word][v] and any(value.tokens[f].word != word for f in where):
                        message = f'"{word}" stands in different fields of two values of "{fact.name}"'
                        raise WorldError(value.place, message)
            self.fact_words.append(has)
            numbers = {self.number[word]: word for word in has if word in self.number}
            for state, (law, _, pattern, _, owner) in enumerate(self.states):
                shared = [numbers[w] for w, _ in self.law_rows[law] if w in numbers] if owner != i else []
                if shared and self.bound[state]:
                    place = self.patterns[pattern] if pattern >= 0 else fact.place
                    message = f'"{shared[0]}" belongs to the fact "{fact.name}", so here it may only come from '
                    raise WorldError(place, message + f"{{{fact.name}}}: use another word")
        for word, place in self.grammar.held_out.items():
            fixed = [key for key in self.laws if key[0] != "list" and key[1:2] == (word,)]
            if fixed or any(word in has for has in self.fact_words):
                raise WorldError(place, f'"{word}" is held out, but a sentence, a fact or a prompt says it outright')

    # ── arrays ───────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> Machine:
        """Turn what was collected into arrays."""
        if ("any",) in self.laws:
            new = {self.number[w] for w in self.grammar.held_out if w in self.number and not self.new_forms}
            words = [n for n in self.number.values() if n and n not in new]
            self.law_rows[self.laws["any",]] = [(n, 1 / len(words)) for n in words]
        size, words = len(self.states), len(self.number)
        law, section, pattern, side, fact = np.array(self.states).T
        counts = np.array([len(rows) for rows in self.law_rows])
        law_start = np.concatenate([[0], np.cumsum(counts)])
        flat = [pair for rows in self.law_rows for pair in rows]
        law_word = np.array([word for word, _ in flat])
        law_weight = np.array([weight for _, weight in flat])
        source, target, weight = (np.array(column) for column in zip(*self.arcs, strict=True))
        source = np.where(source < 0, size - 1 - source, source)
        order = np.argsort(target, kind="stable")
        source, target, weight = source[order], target[order], weight[order]
        # Entries: every state with every word of its law; then all states (hidden word); then none (unknown).
        places = spans(law_start[law], counts[law])
        symbol = np.concatenate([law_word[places], np.full(size, words), np.array([words + 1])])
        state = np.concatenate([np.repeat(np.arange(size), counts[law]), np.arange(size), np.array([0])])
        emits = np.concatenate([law_weight[places], np.ones(size), np.zeros(1)])
        silent = np.setdiff1d(np.arange(words), symbol)  # words of the vocabulary that are held out
        symbol = np.concatenate([symbol, silent])
        state, emits = (np.concatenate([a, np.zeros(len(silent), a.dtype)]) for a in (state, emits))
        order = np.lexsort((state, symbol))
        symbol, state, emits = symbol[order], state[order], emits[order]
        into = np.searchsorted(target, np.arange(size + 1))
        arcs_in = np.diff(into)[state]
        pulled = spans(into[state], arcs_in)
        return Machine(
            vocabulary=list(self.number),
            number=self.number,
            sections=self.sections,
            facts=self.facts,
            fact_words=self.fact_words,
            patterns=self.patterns,
            law=law,
            section=section,
            pattern=pattern,
            side=side,
            fact=fact,
            bound=self.bound,
            law_start=law_start,
            law_word=law_word,
            law_weight=law_weight,
            senses=self.senses,
            fact_laws=self.fact_laws,
            arc_source=source,
            arc_target=target,
            arc_weight=weight,
            leave=self.leave,
            closing=self.closing,
            ends=np.arange(self.first_end, self.first_end + len(self.end_of)),
            entry_start=np.searchsorted(symbol, np.arange(words + 3)),
            entry_state=state,
            entry_weight=emits,
            entry_arc=np.concatenate([[0], np.cumsum(arcs_in)]),
            pull_source=source[pulled],
            pull_weight=weight[pulled] * np.repeat(emits, arcs_in),
        )


def _leads_to(grammar: Grammar, topic: Topic) -> dict[str, tuple[float, Place]]:
    """Where a topic leads, by its own word or by that of the topics after it."""
    table = dict(topic.leads_to)
    for other in grammar.topics.values():
        if topic.name in other.comes_after:
            table[other.name] = other.comes_after[topic.name]
    if not table:
        raise WorldError(topic.place, f'topic "{topic.name}" leads nowhere: add `leads to end` below it')
    return table


def _groups(grammar: Grammar) -> dict[str, str]:
    """Check that every topic can be reached and left; name the group of connected topics each is in."""
    after = {}
    for topic in grammar.topics.values():
        table = _leads_to(grammar, topic)
        for name, (_, place) in (table | topic.comes_after).items():
            if name not in grammar.topics and (name != "end" or name in topic.comes_after):
                raise WorldError(place, expected("a topic", name, [*grammar.topics, "end"]))
        after[topic.name] = set(table)
    begins = {name for kind in grammar.kinds.values() for name in kind.begins}
    reached = _closure(begins, after)
    for topic in grammar.topics.values():
        if topic.name not in reached:
            message = f'no document reaches topic "{topic.name}": add `comes after TOPIC` below it'
            raise WorldError(topic.place, message)
        if "end" not in _closure({topic.name}, after):
            raise WorldError(topic.place, f'after topic "{topic.name}" no document can end: lead to end somewhere')
    if grammar.relations and "relations" not in begins:
        place = next(iter(grammar.relations.values())).place
        raise WorldError(place, "no document reaches the relations: add `prompt 1 begins with relations`")
    groups = {name: name for name in after}
    for name, others in after.items():
        for other in others - {"end"}:
            old, new = groups[other], groups[name]
            groups = {key: new if value == old else value for key, value in groups.items()}
    return groups | ({"relations": "relations"} if grammar.relations else {})


def _closure(names: set[str], after: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    while names:
        reached |= names
        names = set().union(*(after.get(name, set()) for name in names)) - reached
    return reached
