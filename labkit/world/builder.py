"""Compile a grammar: every sentence becomes a chain of states, every slot one state.

A frontier is the point up to which a sentence is compiled. For all values of the variables that
live there, it holds nodes, each with its chance of going on to the next item. A variable lives from
its first to its last mention; after that, the copies are merged again.  Read `_Builder._items`
first.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from labkit.world.forms import takes_an, tenses
from labkit.world.grammar import (
    Choice,
    Draw,
    Grammar,
    Item,
    Let,
    Location,
    Pattern,
    Relation,
    Slot,
    Tied,
    Token,
    Topic,
    Verb,
    WorldError,
    check_name,
)
from labkit.world.machine import END, Machine, pack_emissions
from labkit.world.memory import PREFERENCE, Family
from labkit.world.plan import Classes, SectionPlan

Variables = tuple[tuple[str, int], ...]
Nodes = dict[int, float]
Frontier = dict[Variables, Nodes]
Row = tuple[Token, float, int]  # a word, its weight, the classes that say it
Said = list[tuple[tuple[Token, ...], int]]  # the ways to say a value: words, and in which classes


class Group(NamedTuple):
    """Fillers of a slot that go together: an emission, or the words of one long name."""

    article: str
    share: float
    emission: int | None
    family: int
    chain: tuple[Token, ...]


def compile_grammar(grammar: Grammar, new_forms: bool) -> Machine:
    """Check how the parts of the grammar fit together and compile them."""
    return _Builder(grammar, new_forms).machine()


class _Builder:
    """States, arcs and emissions while they are collected; `machine` turns them into arrays."""

    def __init__(self, grammar: Grammar, new_forms: bool) -> None:
        self.grammar, self.new_forms = grammar, new_forms
        self.plan = SectionPlan(grammar)
        self.classes = Classes(grammar)
        self.number: dict[str, int] = {END: 0}
        self.patterns: list[Location] = []
        self.emissions: dict[tuple, int] = {}
        self.emission_rows: list[list[tuple[int, float, int]]] = []
        self.senses: dict[tuple[int, int], str] = {}
        self.states: list[tuple[int, int, int, int]] = []  # emission, section, pattern, family
        self.arcs: list[tuple[int, int, float]] = []  # a section k is the source -1 - k
        self.families: list[Family] = []
        self.family_of: dict[tuple[str, bool], int] = {}
        self.groups: dict[tuple[str, bool], list[Group]] = {}
        self.phrase_sizes: dict[str, dict[str, int]] = {}
        self.opened: list[str] = []  # the phrases that are being put in
        self.copies = itertools.count()
        self._check_held_out()
        self._fact_families()
        self._stops()
        self._sentences()
        self._group_families()
        self._check_families()
        self._check_outright()

    def _stops(self) -> None:
        """The full stops: state k ends section k, and those of the prompts come after them."""
        dot, end = self._token(Token(".")), self._token(Token(END))
        between = self._token(Token(";")) if self.plan.relations else dot
        for k, section in enumerate(self.plan.sections):
            emission = end if k in self.plan.ends else between if section.relation else dot
            self.states.append((emission, k, -1, -1))
        self.states += [(dot, k, -1, -1) for k in self.plan.relations]
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
        self.section = k
        self.patterns.append(pattern.location)
        self.arity = self._sizes(pattern.items)
        sides = self.arity.get("", 1)
        shares = [1 / sides] * sides
        if topic.feelings and sides > 1:
            if sides != len(topic.feelings):
                message = f"expected one side for each of {topic.feelings} in <…|…>"
                raise WorldError(pattern.location, message)
            shares = [topic.agree if i == side else 1 - topic.agree for i in range(sides)]
        frontier: Frontier = {
            (("", i),) if sides > 1 else (): {-1 - k: share * chance}
            for i, chance in enumerate(shares)
            if chance
        }
        frontier = self._items(pattern.items, frontier, frozenset(self.arity))
        self._close(frontier, [(k, 1.0)])

    def _relation(self, k: int, relation: Relation) -> None:
        stops = [(k, 1 - relation.stops), (self.plan.last_stop(k), relation.stops)]
        total = sum(answer.weight for _, answer in relation.pairs)
        self.section = k
        for question, answer in relation.pairs:
            self.patterns.append(answer.location)
            items = (*question, Token(":"), *answer.tokens)
            self._close(self._items(items, {(): {-1 - k: answer.weight / total}}), stops)

    def _close(self, frontier: Frontier, stops: list[tuple[int, float]]) -> None:
        for nodes in frontier.values():
            for source, weight in nodes.items():
                if source < 0:
                    message = "all words of this sentence may be left out"
                    raise WorldError(self.patterns[-1], message)
                self.arcs += [(source, stop, weight * share) for stop, share in stops if share]

    def _items(
        self, items: tuple[Item, ...], frontier: Frontier, scope: frozenset[str] = frozenset()
    ) -> Frontier:
        """Append the items after the frontier; variables of the scope end at their last mention."""
        last = dict.fromkeys(scope, -1)
        for i, item in enumerate(items if scope else ()):
            last |= dict.fromkeys(self._sizes((item,)).keys() & scope, i)
        for i, item in enumerate(items):
            frontier = self._item(item, frontier)
            dead = {name for name, end in last.items() if end <= i}
            if dead and any(name in dead for values in frontier for name, _ in values):
                merged: Frontier = {}
                for values, nodes in frontier.items():
                    _add(merged, tuple(v for v in values if v[0] not in dead), nodes)
                frontier = merged
        return frontier

    def _item(self, item: Item, frontier: Frontier) -> Frontier:
        match item:
            case Token():
                return self._say(self._token(item), frontier)
            case Slot():
                return self._slot(item, frontier)
            case Verb():
                return self._say_groups(self._verb(item), frontier)
            case Choice():
                options = zip(item.weights, item.options, strict=True)
                return self._either(list(options), frontier)
            case Tied():
                return self._tied(item, frontier)
            case Draw():
                return self._draw(item, frontier)
            case Let():
                return _let(item, frontier)

    def _either(
        self,
        options: list[tuple[float, tuple[Item, ...]]],
        frontier: Frontier,
        scope: frozenset[str] = frozenset(),
    ) -> Frontier:
        out: Frontier = {}
        total = sum(weight for weight, _ in options)
        for weight, items in options:
            _merge(out, self._items(items, _scaled(frontier, weight / total), scope))
        return out

    def _draw(self, draw: Draw, frontier: Frontier) -> Frontier:
        out: Frontier = {}
        total = sum(draw.weights)
        for values, nodes in frontier.items():
            for value, weight in enumerate(draw.weights):
                if weight:
                    known = _sorted(dict(values) | {draw.variable: value})
                    _add(out, known, {s: w * weight / total for s, w in nodes.items()})
        return out

    def _tied(self, tied: Tied, frontier: Frontier) -> Frontier:
        """Continue with the option that the variables select; draw those that have no value yet."""
        count = len(tied.options)
        out: Frontier = {}
        for values, nodes in frontier.items():
            known = dict(values)
            new = [name for name in tied.variables if name not in known]
            drawn = list(itertools.product(*(range(self.arity[name]) for name in new)))
            for numbers in drawn:
                here = known | dict(zip(new, numbers, strict=True))
                chosen = sum(here[name] for name in tied.variables) % count
                for k, option in enumerate(tied.options):
                    chance = tied.sure if k == chosen else (1 - tied.sure) / max(count - 1, 1)
                    if chance > 0:
                        part = {s: w * chance / len(drawn) for s, w in nodes.items()}
                        _merge(out, self._items(option, {_sorted(here): part}))
        return out

    # ── slots ────────────────────────────────────────────────────────────────────────────────────

    def _slot(self, slot: Slot, frontier: Frontier) -> Frontier:
        if _table_of(slot) in self.grammar.tables:
            return self._cell(slot, frontier)
        if slot.name in self.grammar.phrases:
            return self._phrase(slot, frontier)
        key = slot.name, slot.article
        if key not in self.groups:
            self.groups[key] = self._groups(slot)
        return self._say_groups(self.groups[key], frontier)

    def _say_groups(self, groups: list[Group], frontier: Frontier) -> Frontier:
        out: Frontier = {}
        for group in groups:
            part = _scaled(frontier, group.share)
            if group.article:
                part = self._say(self._token(Token(group.article)), part)
            if group.emission is not None:
                part = self._say(group.emission, part, group.family)
            _merge(out, self._items(group.chain, part))
        return out

    def _phrase(self, slot: Slot, frontier: Frontier) -> Frontier:
        if slot.name in self.opened:
            raise WorldError(slot.location, f'the phrase "{slot.name}" is a part of itself')
        self.opened.append(slot.name)
        prefix = f"{next(self.copies)}."
        patterns = self.grammar.phrases[slot.name]
        options = [(p.weight, tuple(_renamed(i, prefix) for i in p.items)) for p in patterns]
        sizes = _largest(self._sizes(items) for _, items in options)
        own = frozenset(name for name in sizes if name.startswith(prefix))
        self.arity |= {name: sizes[name] for name in own}
        out = self._either(options, frontier, own)
        self.opened.pop()
        return out

    def _cell(self, slot: Slot, frontier: Frontier) -> Frontier:
        """A cell of a table; the row is a variable with the name of the table."""
        name = _table_of(slot)
        table = self.grammar.tables[name]
        head, *columns = slot.name.split(".")
        flag = head.partition("!")[2]
        if not columns or slot.article:
            raise WorldError(slot.location, f"expected `{{{name}.COLUMN}}` without an article")
        for column in [*columns, *([flag] if flag else [])]:
            check_name(slot.location, "a column", column, table.columns)
        asked = [
            row
            for row, words in enumerate(table.rows)
            if not flag or self.new_forms or words[table.columns.index(flag)] == "yes"
        ]
        if not asked:
            raise WorldError(slot.location, f'no row of "{name}" has "yes" in the column "{flag}"')
        out: Frontier = {}
        for values, nodes in frontier.items():
            known = dict(values)
            rows = [known[name]] if name in known else asked
            for row in rows:
                emission = self._token(Token(table.cell(row, columns)))
                part = {_sorted(known | {name: row}): {s: w / len(rows) for s, w in nodes.items()}}
                _merge(out, self._say(emission, part))
        return out

    def _groups(self, slot: Slot) -> list[Group]:
        name, _, form = slot.name.partition(".")
        article = "a" if slot.article else ""
        if name in self.grammar.facts and f".{form}" in self.grammar.facts[name].fields:
            rows = [(Token(word), 1.0, bits) for word, bits in self.classes.words(name, form)]
            return [Group(article, 1.0, self._emission(("field", name, form), rows), -1, ())]
        if slot.name in self.grammar.facts:
            family = self.family_of[name, False]
            words = dict.fromkeys(v.tokens[0].word for v in self.grammar.facts[name].values)
            rows = [(Token(word), 1.0, self.classes.every) for word in words]
            emission = self._emission(("fact", name), rows)
            return [Group(article, 1.0, emission, family, ())]
        if slot.name == "any":
            return [Group("", 1.0, self._emission(("any",), []), -1, ())]
        facts = [name + field for name, f in self.grammar.facts.items() for field in f.fields]
        known = [*self.grammar.lists, *facts, *self.grammar.phrases, *self.grammar.tables]
        check_name(slot.location, "a list or a fact", slot.name, known)
        # Held-out words have numbers, too.
        for row in self.grammar.lists[slot.name]:
            for token in row.tokens:
                self.number.setdefault(token.word, len(self.number))
        every = self.classes.every
        said = [[(row.tokens, every)] for row in self.grammar.lists[slot.name]]
        return self._fillers(slot.name, name, slot.article, said, slot.location)

    def _verb(self, verb: Verb) -> list[Group]:
        """A verb in the tense of the document."""
        bits = self.classes.saying("tense", 0, "present"), self.classes.saying("tense", 0, "past")
        if verb.listed:
            return self._listed_verb(verb, bits)
        present, presents, past, pasts = tenses(verb.name)
        words = (presents, pasts) if verb.plural else (present, past)
        rows = [(Token(word), 1.0, classes) for word, classes in _joined(words, bits)]
        key = ("verb", verb.name, verb.plural)
        return [Group("", 1.0, self._emission(key, rows), -1, ())]

    def _listed_verb(self, verb: Verb, bits: tuple[int, int]) -> list[Group]:
        """One of the verbs of a list in the tense of the document."""
        key = f"[{verb.name}{'+' if verb.plural else ''}]"
        if (key, False) not in self.groups:
            lists = self.grammar.lists
            known = [name for name in lists if name + ".ed" in lists]
            check_name(verb.location, "a list of verbs", verb.name, known)
            said: list[Said] = []
            present = lists[verb.name if verb.plural else verb.name + ".s"]
            for now, then in zip(present, lists[verb.name + ".ed"], strict=True):
                if len(now.tokens) > 1:
                    raise WorldError(now.location, "a verb with a tense has one word only")
                pair = now.tokens[0].word, then.tokens[0].word
                said.append([((Token(word),), classes) for word, classes in _joined(pair, bits)])
            self.groups[key, False] = self._fillers(key, verb.name, False, said, verb.location)
        return self.groups[key, False]

    def _fillers(
        self, key: str, name: str, article: bool, said: list[Said], location: Location
    ) -> list[Group]:
        """Group the values of a list: an emission for all single words, a chain for a long name."""
        rows, urn = self.grammar.lists[name], self.grammar.urns.get(name)
        kept = [i for i in range(len(rows)) if self.new_forms or not self._is_new(said[i])]
        if not kept:
            message = f'all of "{key}" is held out: leave some of it in the training text'
            raise WorldError(rows[0].location, message)
        total = sum(rows[i].weight for i in kept)
        groups: dict[bool, list[int]] = defaultdict(list)
        for i in kept:
            vowel = _vowel(said[i])
            groups[vowel and (article if urn is None else not urn.styled)].append(i)
        if urn and urn.styled and article and any(_vowel(said[i]) != _vowel(said[0]) for i in kept):
            message = f'"{name}" has words with "a" and with "an": leave the article out'
            raise WorldError(location, message)
        out: list[Group] = []
        for vowel, members in groups.items():
            before = ("an" if _vowel(said[members[0]]) else "a") if article else ""
            single = [i for i in members if len(said[i][0][0]) == 1]
            mine = sum(rows[i].weight for i in single)
            if single:
                family = self._urn_family(name, vowel, members) if urn else -1
                words = [
                    (tokens[0], 1.0 if urn else rows[i].weight / mine, bits)
                    for i in single
                    for tokens, bits in said[i]
                ]
                emission = self._emission(("list", key, article, vowel), words)
                out.append(Group(before, mine / total, emission, family, ()))
            for i in members:
                if len(said[i][0][0]) > 1:
                    out.append(Group(before, rows[i].weight / total, None, -1, said[i][0][0]))
        return out

    def _say(self, emission: int, frontier: Frontier, family: int = -1) -> Frontier:
        """Add a state for all values of the variables."""
        out: Frontier = {}
        for values, nodes in frontier.items():
            state = len(self.states)
            self.states.append((emission, self.section, len(self.patterns) - 1, family))
            self.arcs += [(source, state, weight) for source, weight in nodes.items()]
            out[values] = {state: 1.0}
        return out

    def _sizes(self, items: tuple[Item, ...]) -> dict[str, int]:
        """The variables that these items mention, and how many values each has."""
        parts: list[dict[str, int]] = []
        for item in items:
            if isinstance(item, Token):  # most items
                continue
            more: dict[str, int] = {}
            match item:
                case Tied():
                    more = dict.fromkeys(item.variables, len(item.options))
                case Draw():
                    more = {item.variable: len(item.weights)}
                case Let():
                    more = dict.fromkeys((item.variable, *item.terms), 2)
                case Slot() if _table_of(item) in self.grammar.tables:
                    more = {_table_of(item): len(self.grammar.tables[_table_of(item)].rows)}
                case Slot() if item.name in self.grammar.phrases:
                    more = self._phrase_sizes(item)
            inside = item.options if isinstance(item, Choice | Tied) else ()
            parts += [more, *map(self._sizes, inside)]
        return _largest(parts)

    def _phrase_sizes(self, slot: Slot) -> dict[str, int]:
        """The variables that a phrase shares with the sentence or phrase around it."""
        if slot.name not in self.phrase_sizes:
            self.phrase_sizes[slot.name] = {}  # a phrase that contains itself is refused later
            sizes = _largest(self._sizes(p.items) for p in self.grammar.phrases[slot.name])
            self.phrase_sizes[slot.name] = {
                name: n for name, n in sizes.items() if _shared(name) or name in self.grammar.tables
            }
        return self.phrase_sizes[slot.name]

    # ── emissions and families ───────────────────────────────────────────────────────────────────

    def _token(self, token: Token) -> int:
        return self._emission(("token", *token), [(token, 1.0, self.classes.every)])

    def _emission(self, key: tuple, rows: list[Row]) -> int:
        """The number of an emission, which is made at its first use."""
        if key not in self.emissions:
            emission = self.emissions[key] = len(self.emission_rows)
            merged: dict[tuple[int, int], float] = {}
            for token, weight, classes in rows:
                number = self.number.setdefault(token.word, len(self.number))
                merged[number, classes] = merged.get((number, classes), 0.0) + weight
                sense = token.sense
                if sense and self.senses.setdefault((emission, number), sense) != sense:
                    message = f'the list "{key[1]}" holds "{token.word}" in two senses'
                    raise WorldError(self.patterns[-1], f"{message}: use two lists")
            if len({number for number, _ in merged}) < len(merged):
                message = f'two verbs of "{key[1]}" share a form in different tenses'
                raise WorldError(self.patterns[-1], f"{message}: use two lists")
            self.emission_rows.append([(n, w, bits) for (n, bits), w in merged.items()])
        return self.emissions[key]

    def _fact_families(self) -> None:
        for name, fact in self.grammar.facts.items():
            words = list(dict.fromkeys(value.tokens[0].word for value in fact.values))
            base = np.zeros((len(self.classes.prior), 1, len(words)))
            for value in fact.values:
                fits = self.classes.fits(name, value)
                base[fits, 0, words.index(value.tokens[0].word)] += value.weight
            base /= np.maximum(base.sum(axis=2, keepdims=True), 1e-300)
            self.family_of[name, False] = len(self.families)
            self.families.append(Family(name, 0.0, [{word} for word in words], base))

    def _urn_family(self, name: str, vowel: bool, members: list[int]) -> int:
        """The family of a list, or of its words that take "an"; it is made at its first use."""
        if (name, vowel) in self.family_of:
            return self.family_of[name, vowel]
        urn, lists = self.grammar.urns[name], self.grammar.lists
        if any(len(lists[name][i].tokens) > 1 for i in members):
            raise WorldError(urn.location, f'an urn holds single words: shorten those of "{name}"')
        forms = [form for form in lists if form == name or form.startswith(name + ".")]
        words = [{lists[form][i].tokens[0].word for form in forms} for i in members]
        weights = np.array([lists[name][i].weight for i in members])
        prefers = np.ones((1, 1, len(members)))
        if urn.styled:
            styles = max(len(lists[other]) for other, u in self.grammar.urns.items() if u.styled)
            prefers = 1 + (PREFERENCE - 1) * np.eye(styles, len(members))[None]
        base = weights * prefers
        self.family_of[name, vowel] = len(self.families)
        self.families.append(Family(name, urn.alpha, words, base / base.sum(axis=2, keepdims=True)))
        return self.family_of[name, vowel]

    # ── checks ───────────────────────────────────────────────────────────────────────────────────

    def _is_new(self, said: Said) -> bool:
        return any(token.word in self.grammar.held_out for form, _ in said for token in form)

    def _check_held_out(self) -> None:
        rows = itertools.chain(*self.grammar.lists.values())
        listed = {token.word for row in rows for token in row.tokens}
        for word, location in self.grammar.held_out.items():
            check_name(location, "a word of some list", word, listed)

    def _group_families(self) -> None:
        """Find the families that the documents of each group of topics remember."""
        plan = self.plan
        names = [plan.groups.get(section.topic, section.stage) for section in plan.sections]
        members: dict[str, set[int]] = {}
        for _, section, _, family in self.states:
            if family >= 0:
                members.setdefault(names[section], set()).add(family)
        # Group 0 holds the topics that remember nothing.
        number = {name: n for n, name in enumerate(members, start=1)}
        self.members = [[], *map(sorted, members.values())]
        self.group = np.array([number.get(names[section], 0) for _, section, *_ in self.states])

    def _check_families(self) -> None:
        """Refuse remembered words outside their own slots: the sums would not be exact."""
        owners = [self._owners(group) for group in self.members]
        words = list(self.number)
        # Most states emit the same as an earlier state of their group.
        groups, seen = self.group.tolist(), set()
        for state, (emission, _, pattern, own) in enumerate(self.states):
            if (said := (groups[state], emission, own)) in seen:
                continue
            seen.add(said)
            owner = owners[groups[state]]
            if owner and emission == self.emissions.get(("any",)):
                message = "{any} includes words that these documents remember"
                advice = "use it in a topic without facts and urns"
                raise WorldError(self.patterns[pattern], f"{message}: {advice}")
            for word, *_ in self.emission_rows[emission] if owner else ():
                if owner.get(word, own) != own:
                    family = self.families[owner[word]].name
                    kind = "fact" if family in self.grammar.facts else "urn"
                    message = f'"{words[word]}" belongs to the {kind} "{family}", so here it may '
                    location = self.patterns[pattern] if pattern >= 0 else self._location(family)
                    raise WorldError(
                        location, f"{message}only come from {{{family}}}: use another word"
                    )

    def _owners(self, group: list[int]) -> dict[int, int]:
        """The family of each word that the documents of a group remember."""
        owner: dict[int, int] = {}
        for f in group:
            family = self.families[f]
            for word in sorted(set().union(*family.words) & self.number.keys()):
                if owner.setdefault(self.number[word], f) != f:
                    other = self.families[owner[self.number[word]]].name
                    message = f'"{word}" belongs to "{other}" and to "{family.name}"'
                    raise WorldError(self._location(family.name), f"{message}: use another word")
        return owner

    def _check_outright(self) -> None:
        """Refuse a held-out form in a sentence, a fact or a prompt: only lists may contain it."""
        outright = {names[1] for names in self.emissions if names[0] in ("token", "verb")}
        outright |= {word for family in self.families for words in family.words for word in words}
        for word, location in self.grammar.held_out.items():
            if word in outright:
                message = "is held out, but a sentence, a fact or a prompt contains it"
                raise WorldError(location, f'"{word}" {message}')

    def _location(self, name: str) -> Location:
        return (self.grammar.facts.get(name) or self.grammar.urns[name]).location

    # ── arrays ───────────────────────────────────────────────────────────────────────────────────

    def machine(self) -> Machine:
        """Turn what was collected into arrays."""
        if ("any",) in self.emissions:
            new = set() if self.new_forms else self.grammar.held_out.keys()
            words = [n for word, n in self.number.items() if n and word not in new]
            rows = [(n, 1 / len(words), self.classes.every) for n in words]
            self.emission_rows[self.emissions["any",]] = rows
        emission, section, pattern, family = np.array(self.states).T
        source, target, weight = (np.array(column) for column in zip(*self.arcs, strict=True))
        source = np.where(source < 0, len(emission) - 1 - source, source)
        order = np.argsort(target, kind="stable")
        return Machine(
            vocabulary=tuple(self.number),
            number=self.number,
            sections=self.plan.sections,
            patterns=self.patterns,
            families=self.families,
            members=self.members,
            prior=self.classes.prior,
            emission=emission,
            section=section,
            pattern=pattern,
            family=family,
            group=self.group,
            emissions=pack_emissions(self.emission_rows),
            senses=self.senses,
            arc_source=source[order],
            arc_target=target[order],
            arc_weight=weight[order],
            leave=self.plan.leave,
            closing=self.plan.closing,
            ends=np.array(self.plan.ends),
        )


def _table_of(slot: Slot) -> str:
    """The table that `{village!asked.name}` refers to, if there is one of this name."""
    return slot.name.partition("!")[0].partition(".")[0]


def _largest(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Merge the sizes of variables; where two differ, the larger one counts."""
    found: dict[str, int] = {}
    for part in parts:
        for name, n in part.items():
            found[name] = max(found.get(name, 0), n)
    return found


def _shared(name: str) -> bool:
    """Whether a variable of a phrase is that of the sentence: capital letters, and its side."""
    return name == "" or name.isupper()


def _renamed(item: Item, prefix: str) -> Item:
    """Give the variables of a phrase names of their own."""

    def own(name: str) -> str:
        return name if _shared(name) else prefix + name

    match item:
        case Choice() | Tied():
            options = tuple(tuple(_renamed(i, prefix) for i in o) for o in item.options)
            item = item._replace(options=options)
            if isinstance(item, Tied):
                item = item._replace(variables=tuple(map(own, item.variables)))
            return item
        case Draw():
            return item._replace(variable=own(item.variable))
        case Let():
            return item._replace(variable=own(item.variable), terms=tuple(map(own, item.terms)))
    return item


def _vowel(said: Said) -> bool:
    return takes_an(said[0][0][0].word)


def _joined(words: tuple[str, str], bits: tuple[int, int]) -> list[tuple[str, int]]:
    """Present and past with their classes; a form that is both is said once."""
    if words[0] == words[1]:
        return [(words[0], bits[0] | bits[1])]
    return list(zip(words, bits, strict=True))


def _sorted(known: dict[str, int]) -> Variables:
    return tuple(sorted(known.items()))


def _scaled(frontier: Frontier, factor: float) -> Frontier:
    return {values: {s: w * factor for s, w in nodes.items()} for values, nodes in frontier.items()}


def _let(let: Let, frontier: Frontier) -> Frontier:
    out: Frontier = {}
    for values, nodes in frontier.items():
        known = dict(values)
        for name in let.terms:
            if name not in known:
                spoken = name.rpartition(".")[2]
                raise WorldError(let.location, f'the variable "{spoken}" has no value here yet')
        value = sum(known[name] for name in let.terms) % 2
        _add(out, _sorted(known | {let.variable: value}), nodes)
    return out


def _merge(frontier: Frontier, other: Frontier) -> None:
    for values, nodes in other.items():
        _add(frontier, values, nodes)


def _add(frontier: Frontier, values: Variables, nodes: Nodes) -> None:
    mine = frontier.setdefault(values, {})
    for node, weight in nodes.items():
        mine[node] = mine.get(node, 0.0) + weight
