"""Compile a grammar: every sentence becomes a chain of states, every slot one state.

A frontier is what a sentence has come to: nodes, each with its chance to go on to the next item.
Read `_Builder._items` first.
"""

import numpy as np

from labkit.world.grammar import (
    Choice,
    Fact,
    Filler,
    Grammar,
    Item,
    Location,
    Pattern,
    Relation,
    Slot,
    Token,
    Topic,
    WorldError,
    expected,
)
from labkit.world.machine import END, Machine, list_entries, pack_emissions
from labkit.world.plan import Plan

Frontier = list[tuple[int, float]]
# Fillers of a slot that go together: their article, share and emission, or the words of one name.
Group = tuple[str, float, int | None, list[Token]]


def compile_grammar(grammar: Grammar, new_forms: bool = False) -> Machine:
    """Check how the parts of the grammar fit together and compile them."""
    return _Builder(grammar, new_forms).machine()


class _Builder:
    """States, arcs and emissions while they are collected; `machine` turns them into arrays."""

    def __init__(self, grammar: Grammar, new_forms: bool) -> None:
        self.grammar, self.new_forms = grammar, new_forms
        self.plan = Plan(grammar)
        self.number: dict[str, int] = {END: 0}
        self.patterns: list[Location] = []
        self.emissions: dict[tuple, int] = {}
        self.emission_rows: list[list[tuple[int, float]]] = []
        self.senses: dict[tuple[int, int], str] = {}
        self.states: list[
            tuple[int, int, int, int, int]
        ] = []  # emission, section, pattern, side, fact
        self.arcs: list[tuple[int, int, float]] = []  # a section k is the source -1 - k
        self.facts = list(grammar.facts.values())
        self.fact_emissions: dict[int, tuple[int, int]] = {}
        self.fact_slots = {
            fact.name + field: (i, f)
            for i, fact in enumerate(self.facts)
            for f, field in enumerate(fact.fields)
        }
        self.seen_lists: set[str] = set()
        self._check_held_out()
        self._stops()
        self._sentences()
        self._check_facts()

    def _stops(self) -> None:
        """The full stops: state k ends section k, and those of the prompts come after them."""
        dot, end = self._token(Token(".")), self._token(Token(END))
        between = self._token(Token(";")) if self.plan.relations else dot
        for k, section in enumerate(self.plan.sections):
            emission = end if k in self.plan.ends else between if section.relation else dot
            self.states.append((emission, k, -1, -1, -1))
        self.states += [(dot, k, -1, -1, -1) for k in self.plan.relations]
        self.arcs += [(-1 - k, k, 1.0) for k in self.plan.ends]

    # ── sentences ────────────────────────────────────────────────────────────────────────────────

    def _sentences(self) -> None:
        for topic in self.grammar.topics.values():
            for side in range(max(1, len(topic.feelings))):
                for i, stage in enumerate(topic.stages):
                    k = self.plan.first[topic.name, side] + i
                    total = sum(pattern.weight for pattern in stage.patterns)
                    for pattern in stage.patterns:
                        self._pattern(pattern, pattern.weight / total, k, side, topic)
        for k, relation in zip(self.plan.relations, self.grammar.relations.values(), strict=True):
            self._relation(k, relation)

    def _pattern(self, pattern: Pattern, share: float, k: int, side: int, topic: Topic) -> None:
        shares = [1 / pattern.sides] * pattern.sides
        if topic.feelings and pattern.sides > 1:
            if pattern.sides != len(topic.feelings):
                raise WorldError(
                    pattern.location, f"expected one side for each of {topic.feelings} in <…|…>"
                )
            shares = [topic.agree if i == side else 1 - topic.agree for i in range(pattern.sides)]
        self.patterns.append(pattern.location)
        self.where = (k, len(self.patterns) - 1)
        for i, chance in enumerate(shares):
            if chance:
                self.side = i if pattern.sides > 1 else -1
                frontier = self._items(pattern.items, [(-1 - k, share * chance)])
                self._close(frontier, [(k, 1.0)])

    def _relation(self, k: int, relation: Relation) -> None:
        stops = [(k, 1 - relation.stops), (self.plan.last_stop(k), relation.stops)]
        total = sum(answer.weight for _, answer in relation.pairs)
        for question, answer in relation.pairs:
            self.patterns.append(answer.location)
            self.where, self.side = (k, len(self.patterns) - 1), -1
            items = (*question, Token(":"), *answer.tokens)
            frontier = self._items(items, [(-1 - k, answer.weight / total)])
            self._close(frontier, stops)

    def _close(self, frontier: Frontier, stops: Frontier) -> None:
        for source, weight in frontier:
            if source < 0:
                raise WorldError(
                    self.patterns[self.where[1]], "all words of this sentence may be left out"
                )
            self.arcs += [(source, stop, weight * share) for stop, share in stops if share]

    def _items(self, items: tuple[Item, ...], frontier: Frontier) -> Frontier:
        """Append the items after the frontier: nodes, each with its chance to go on."""
        for item in items:
            if isinstance(item, Token):
                frontier = [(self._state(self._token(item), frontier), 1.0)]
            elif isinstance(item, Slot):
                frontier = self._slot(item, frontier)
            else:
                frontier = self._choice(item, frontier)
        return frontier

    def _choice(self, choice: Choice, frontier: Frontier) -> Frontier:
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

    def _slot(self, slot: Slot, frontier: Frontier) -> Frontier:
        fact = -1
        if slot.name in self.fact_slots:
            fact, field = self.fact_slots[slot.name]
            groups: list[Group] = [
                ("a" if slot.article else "", 1.0, self._fact_emission(fact, field), [])
            ]
        elif slot.name == "any":
            groups = [("", 1.0, self._emission(("any",), []), [])]
        elif slot.name in self.grammar.lists:
            groups = self._fillers(slot)
        else:
            known = [*self.grammar.lists, *self.fact_slots]
            raise WorldError(slot.location, expected("a list or a fact", slot.name, known))
        after = []
        for article, share, emission, chain in groups:
            part = [(source, weight * share) for source, weight in frontier]
            if article:
                part = [(self._state(self._token(Token(article)), part), 1.0)]
            if emission is not None:
                part = [(self._state(emission, part, fact), 1.0)]
            after += self._items(tuple(chain), part)
        return after

    def _fillers(self, slot: Slot) -> list[Group]:
        """Group the fillers: one emission for all single words, a chain for each longer name."""
        rows = self.grammar.lists[slot.name]
        kept = rows if self.new_forms else [row for row in rows if not self._is_new(row)]
        if not kept:
            raise WorldError(
                rows[0].location,
                f'all of "{slot.name}" is held out: leave some of it in the training text',
            )
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
        out: list[Group] = []
        for article, group in groups.items():
            single = [row for row in group if len(row.tokens) == 1]
            if single:
                weight = sum(row.weight for row in single)
                emission = self._emission(
                    ("list", slot.name, article), [(r.tokens[0], r.weight / weight) for r in single]
                )
                out.append((article, weight / total, emission, []))
            for row in group:
                if len(row.tokens) > 1:
                    out.append((article, row.weight / total, None, list(row.tokens)))
        return out

    def _state(self, emission: int, frontier: Frontier, fact: int = -1) -> int:
        state = len(self.states)
        self.states.append((emission, *self.where, self.side, fact))
        self.arcs += [(source, state, weight) for source, weight in frontier]
        return state

    # ── emissions ────────────────────────────────────────────────────────────────────────────────

    def _token(self, token: Token) -> int:
        return self._emission(("token", *token), [(token, 1.0)])

    def _emission(self, key: tuple, rows: list[tuple[Token, float]]) -> int:
        """The number of a emission; it is made when first asked for."""
        if key not in self.emissions:
            emission = self.emissions[key] = len(self.emission_rows)
            merged: dict[int, float] = {}
            for token, weight in rows:
                number = self.number.setdefault(token.word, len(self.number))
                merged[number] = merged.get(number, 0.0) + weight
                if (
                    token.sense
                    and self.senses.setdefault((emission, number), token.sense) != token.sense
                ):
                    location = self.patterns[self.where[1]]
                    raise WorldError(
                        location,
                        f'the list "{key[1]}" holds "{token.word}" in two senses: use two lists',
                    )
            self.emission_rows.append(list(merged.items()))
        return self.emissions[key]

    def _fact_emission(self, fact: int, field: int) -> int:
        words = dict.fromkeys(value.tokens[field] for value in self.facts[fact].values)
        emission = self._emission(("fact", fact, field), [(token, 1.0) for token in words])
        self.fact_emissions[emission] = (fact, field)
        return emission

    # ── checks ───────────────────────────────────────────────────────────────────────────────────

    def _is_new(self, filler: Filler) -> bool:
        return any(token.word in self.grammar.held_out for token in filler.tokens)

    def _check_held_out(self) -> None:
        listed = {
            t.word for rows in self.grammar.lists.values() for row in rows for t in row.tokens
        }
        for word, location in self.grammar.held_out.items():
            if word not in listed:
                raise WorldError(location, expected("a word of some list", word, listed))

    def _check_facts(self) -> None:
        """Facts stay exact because where they are used their words come from their slots."""
        plan = self.plan
        groups = [plan.groups.get(section.topic, section.stage) for section in plan.sections]
        users = {groups[section] for _, section, _, _, fact in self.states if fact >= 0}
        self.bound = np.array([groups[section] in users for _, section, *_ in self.states])
        self.fact_words = [_words_of(fact) for fact in self.facts]
        for i, fact in enumerate(self.facts):
            mine = {self.number[w]: w for w in self.fact_words[i] if w in self.number}
            for state, (emission, _, pattern, _, owner) in enumerate(self.states):
                shared = [
                    mine[w] for w, _ in self.emission_rows[emission] if w in mine and owner != i
                ]
                if shared and self.bound[state]:
                    message = (
                        f'"{shared[0]}" belongs to the fact "{fact.name}", so here it may only '
                    )
                    message += f"come from {{{fact.name}}}: use another word"
                    raise WorldError(
                        self.patterns[pattern] if pattern >= 0 else fact.location, message
                    )
        for word, location in self.grammar.held_out.items():
            fixed = [key for key in self.emissions if key[0] != "list" and key[1:2] == (word,)]
            if fixed or any(word in has for has in self.fact_words):
                message = (
                    f'"{word}" is held out, but a sentence, a fact or a prompt says it outright'
                )
                raise WorldError(location, message)

    # ── arrays ───────────────────────────────────────────────────────────────────────────────────

    def machine(self) -> Machine:
        """Turn what was collected into arrays."""
        if ("any",) in self.emissions:
            new = set() if self.new_forms else self.grammar.held_out.keys()
            words = [n for word, n in self.number.items() if n and word not in new]
            self.emission_rows[self.emissions["any",]] = [(n, 1 / len(words)) for n in words]
        emissions = pack_emissions(self.emission_rows)
        emission, section, pattern, side, fact = np.array(self.states).T
        source, target, weight = (np.array(column) for column in zip(*self.arcs, strict=True))
        source = np.where(source < 0, len(emission) - 1 - source, source)
        order = np.argsort(target, kind="stable")
        arcs = source[order], target[order], weight[order]
        return Machine(
            vocabulary=list(self.number),
            number=self.number,
            sections=self.plan.sections,
            facts=self.facts,
            fact_words=self.fact_words,
            patterns=self.patterns,
            emission=emission,
            section=section,
            pattern=pattern,
            side=side,
            fact=fact,
            bound=self.bound,
            emissions=emissions,
            senses=self.senses,
            fact_emissions=self.fact_emissions,
            arc_source=arcs[0],
            arc_target=arcs[1],
            arc_weight=arcs[2],
            leave=self.plan.leave,
            closing=self.plan.closing,
            ends=np.array(self.plan.ends),
            entries=list_entries(emissions, emission, len(self.number)),
        )


def _words_of(fact: Fact) -> dict[str, np.ndarray]:
    """For every word of a fact, which values have it; a word has the same fields in all of them."""
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
                raise WorldError(value.location, message)
    return has
