"""An independent reference for the language: every document of a small grammar, written out.

It walks the grammar as it was read, never the compiled machine, so it shares no sum with what it
checks.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from labkit.world.forms import tenses
from labkit.world.grammar import (
    Choice,
    Draw,
    Filler,
    Grammar,
    Item,
    Let,
    Pattern,
    Slot,
    Tied,
    Token,
    Verb,
    walk,
)
from labkit.world.machine import END
from labkit.world.reading import read


class Path(NamedTuple):
    """One way to build a document: what each word means comes with it."""

    words: tuple[str, ...]
    senses: tuple[str | None, ...]
    topics: tuple[str, ...]  # of every word
    feelings: tuple[str | None, ...]
    relations: tuple[str | None, ...]
    chance: float


class Drawn(NamedTuple):
    """A word from an urn; how likely it is depends on what was drawn before."""

    word: str
    family: tuple[str, bool]
    value: int
    sense: str | None = None


Said = tuple[tuple[Token | Drawn, ...], float, dict[str, int]]


def all_paths(grammar: Grammar) -> list[Path]:
    """Every path of a grammar without loops."""
    values = [[(fact, value) for value in fact.values] for fact in grammar.facts.values()]
    out = []
    verbs = any(isinstance(i, Verb) for p in _patterns(grammar) for i in walk(p.items))
    tenses = ("past", "present") if verbs else ("",)
    for tense, *drawn in itertools.product(tenses, *values):
        chance = 1.0 / len(tenses)
        facts = {"tense": tense}
        for fact, value in drawn:
            chance *= value.weight / sum(v.weight for v in fact.values)
            facts |= {
                fact.name + f: token for f, token in zip(fact.fields, value.tokens, strict=True)
            }
        total = sum(kind.weight for kind in grammar.kinds.values())
        for kind in grammar.kinds.values():
            begins = sum(weight for weight, _ in kind.begins.values())
            for topic, (weight, _) in kind.begins.items():
                share = chance * kind.weight / total * weight / begins
                for row, p in _topic(grammar, facts, topic, None):
                    tokens, topics, feelings, relations = (
                        zip(*row, strict=True) if row else ((),) * 4
                    )
                    words = (*(t.word for t in tokens), END)
                    senses = (*(t.sense for t in tokens), None)
                    last = (*topics, "end"), (*feelings, None), (*relations, None)
                    q = share * p * _urns(grammar, [t for t in tokens if isinstance(t, Drawn)])
                    out.append(Path(words, senses, *last, q))
    return out


def _patterns(grammar: Grammar) -> list[Pattern]:
    stages = [stage for topic in grammar.topics.values() for stage in topic.stages]
    return [p for part in [*grammar.phrases.values(), *(s.patterns for s in stages)] for p in part]


def _urns(grammar: Grammar, drawn: list[Drawn]) -> float:
    """The chance of these draws one after the other, the mean over the document's styles."""
    styled = [len(grammar.lists[name]) for name, urn in grammar.urns.items() if urn.styled]
    styles = max(styled, default=1)
    total = 0.0
    for style in range(styles):
        chance, before = 1.0, []
        for family, value in ((d.family, d.value) for d in drawn):
            name, vowel = family
            urn, rows = grammar.urns[name], grammar.lists[name]
            mine = [i for i, row in enumerate(rows) if urn.styled or _vowel(row) == vowel]
            weights = {i: rows[i].weight * (8 if urn.styled and i == style else 1) for i in mine}
            same = [v for f, v in before if f == family]
            base = weights[value] / sum(weights.values())
            chance *= (same.count(value) + urn.alpha * base) / (len(same) + urn.alpha)
            before.append((family, value))
        total += chance / styles
    return total


def _vowel(row: Filler) -> bool:
    return row.tokens[0].word[0] in "aeiou"


def _topic(
    grammar: Grammar, facts: dict, name: str, feeling: int | None
) -> Iterator[tuple[tuple, float]]:
    """Every way to go on from the beginning of a topic to the end of the document."""
    if name == "end":
        yield (), 1.0
        return
    if name == "relations":
        yield from _relations(grammar)
        return
    topic = grammar.topics[name]
    sides = max(1, len(topic.feelings))
    chosen = [feeling] if feeling is not None and sides > 1 else range(sides)
    leads = {n: w for n, (w, _) in topic.leads_to.items()}
    for other in grammar.topics.values():
        if name in other.comes_after:
            leads[other.name] = other.comes_after[name][0]
    for side in chosen:
        label = topic.feelings[side] if sides > 1 else None
        texts: list[tuple[tuple, float]] = [((), 1.0 / len(chosen))]
        for stage in topic.stages:
            assert stage.again == 0
            said = defaultdict(float)
            for pattern in stage.patterns:
                share = pattern.weight / sum(p.weight for p in stage.patterns)
                sizes = _sizes(grammar, pattern.items)
                own = sizes.get("", 1)
                for i in range(own):
                    p = 1 / own
                    if sides > 1 and own > 1:
                        p = topic.agree if i == side else 1 - topic.agree
                    for tokens, q, _ in _items(grammar, facts, pattern.items, {"": i}, sizes):
                        said[*tokens, Token(".")] += share * p * q
            texts = [
                ((*row, *((t, name, label, None) for t in tokens)), p * q)
                for row, p in texts
                for tokens, q in said.items()
                if q
            ]
        for target, weight in leads.items():
            for rest, p in _topic(grammar, facts, target, side if sides > 1 else None):
                for row, q in texts:
                    yield (*row, *rest), p * q * weight / sum(leads.values())


def _relations(grammar: Grammar) -> Iterator[tuple[tuple, float]]:
    total = sum(relation.weight for relation in grammar.relations.values())
    for relation in grammar.relations.values():
        assert relation.stops == 1
        for question, answer in relation.pairs:
            tokens = (*question, Token(":"), *answer.tokens, Token("."))
            share = (
                relation.weight / total * answer.weight / sum(a.weight for _, a in relation.pairs)
            )
            yield tuple((t, "relations", None, relation.name) for t in tokens), share


def _sizes(grammar: Grammar, items: tuple[Item, ...], whole: bool = True) -> dict[str, int]:
    """How many values every variable of a sentence has; of a phrase only those that it shares."""
    found: dict[str, int] = defaultdict(int)
    for item in walk(items):
        if isinstance(item, Tied):
            for name in item.variables:
                found[name] = max(found[name], len(item.options))
        elif isinstance(item, Draw):
            found[item.variable] = max(found[item.variable], len(item.weights))
        elif isinstance(item, Slot) and item.name in grammar.phrases:
            for pattern in grammar.phrases[item.name]:
                for name, n in _sizes(grammar, pattern.items, whole=False).items():
                    found[name] = max(found[name], n)
    return {name: n for name, n in found.items() if whole or name == "" or name.isupper()}


def _items(
    grammar: Grammar, facts: dict, items: tuple[Item, ...], known: dict, sizes: dict
) -> Iterator[Said]:
    """Every way to say the items, its chance, and the variables after them."""
    if not items:
        yield (), 1.0, known
        return
    for tokens, p, after in _item(grammar, facts, items[0], known, sizes):
        for rest, q, last in _items(grammar, facts, items[1:], after, sizes):
            yield (*tokens, *rest), p * q, last


def _item(grammar: Grammar, facts: dict, item: Item, known: dict, sizes: dict) -> Iterator[Said]:
    if isinstance(item, Token):
        yield (item,), 1.0, known
    elif isinstance(item, Tied):
        new = [name for name in item.variables if name not in known]
        for values in itertools.product(*(range(sizes[name]) for name in new)):
            now = known | dict(zip(new, values, strict=True))
            chosen = sum(now[name] for name in item.variables) % len(item.options)
            for k, option in enumerate(item.options):
                sure = item.sure if k == chosen else (1 - item.sure) / (len(item.options) - 1)
                for _ in range(sure > 0):
                    for tokens, p, after in _items(grammar, facts, option, now, sizes):
                        share = sure / math.prod(sizes[name] for name in new)
                        yield tokens, p * share, after
    elif isinstance(item, Choice):
        for weight, option in zip(item.weights, item.options, strict=True):
            for tokens, p, after in _items(grammar, facts, option, known, sizes):
                yield tokens, p * weight / sum(item.weights), after
    elif isinstance(item, Draw):
        for value, weight in enumerate(item.weights):
            if weight:
                yield (), weight / sum(item.weights), known | {item.variable: value}
    elif isinstance(item, Let):
        value = sum(known[name] for name in item.terms) % 2
        yield (), 1.0, known | {item.variable: value}
    elif isinstance(item, Verb):
        for tokens, p in _verb(grammar, facts, item):
            yield tokens, p, known
    elif item.name.split(".")[0].split("!")[0] in grammar.tables:
        yield from _cell(grammar, item, known)
    elif item.name in grammar.phrases:
        patterns = grammar.phrases[item.name]
        for pattern in patterns:
            mine = _sizes(grammar, pattern.items)
            shared = {name: n for name, n in known.items() if name == "" or name.isupper()}
            share = pattern.weight / sum(p.weight for p in patterns)
            inner = mine | {n: sizes[n] for n in mine if n in sizes and (n == "" or n.isupper())}
            for tokens, p, after in _items(grammar, facts, pattern.items, shared, inner):
                out = {name: n for name, n in after.items() if name == "" or name.isupper()}
                yield tokens, p * share, known | out
    else:
        for tokens, p in _slot(grammar, facts, item):
            yield tokens, p, known


def _cell(grammar: Grammar, slot: Slot, known: dict) -> Iterator[Said]:
    head, *columns = slot.name.split(".")
    name, _, flag = head.partition("!")
    table = grammar.tables[name]
    rows = [
        n
        for n, row in enumerate(table.rows)
        if not flag or dict(zip(table.columns, row, strict=True))[flag] == "yes"
    ]
    for row in [known[name]] if name in known else rows:
        said = row
        for column in columns:
            word = dict(zip(table.columns, table.rows[said], strict=True))[column]
            said = next((n for n, other in enumerate(table.rows) if other[0] == word), said)
        share = 1.0 if name in known else 1 / len(rows)
        yield (Token(word),), share, known | {name: row}


def _verb(grammar: Grammar, facts: dict, verb: Verb) -> Iterator[tuple[tuple, float]]:
    past = facts["tense"] == "past"
    if not verb.listed:
        yield (Token(tenses(verb.name)[2 * past + verb.plural]),), 1.0
        return
    form = ".ed" if past else "" if verb.plural else ".s"
    yield from _listed(grammar, verb.name, form, False)


def _slot(grammar: Grammar, facts: dict, slot: Slot) -> Iterator[tuple[tuple, float]]:
    if slot.name in facts:
        article = (Token("a"),) if slot.article else ()
        yield (*article, facts[slot.name]), 1.0
    else:
        name, _, form = slot.name.partition(".")
        yield from _listed(grammar, name, form and f".{form}", slot.article)


def _listed(grammar: Grammar, name: str, form: str, article: bool) -> Iterator[tuple[tuple, float]]:
    rows = grammar.lists[name + form]
    kept = [row for row in rows if not any(t.word in grammar.held_out for t in row.tokens)]
    urn = grammar.urns.get(name)
    for i, row in enumerate(rows):
        if row in kept:
            p = row.weight / sum(f.weight for f in kept)
            tokens: tuple = row.tokens
            if urn:
                # The first letter is drawn anew every time; the urn is that of the letter.
                vowel = _vowel(row) and not urn.styled
                mine = [f for f in rows if urn.styled or _vowel(f) == vowel]
                p = sum(f.weight for f in mine) / sum(f.weight for f in rows)
                tokens = (Drawn(row.tokens[0].word, (name, vowel), i),)
            before = ("an" if _vowel(row) else "a",) if article else ()
            yield (*map(Token, before), *tokens), p


# ── quantities, by plain sums over the documents ─────────────────────────────────────────────────


class Reference:
    """The documents of a grammar with their chances, and sums over them."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths: dict[tuple[str, ...], list[Path]] = defaultdict(list)
        for path in paths:
            self.paths[path.words].append(path)
        self.texts = {words: sum(p.chance for p in same) for words, same in self.paths.items()}
        self.length = sum(chance * len(words) for words, chance in self.texts.items())
        self.prefixes: dict[tuple[str, ...], float] = defaultdict(float)
        for words, chance in self.texts.items():
            for t in range(len(words) + 1):
                self.prefixes[words[:t]] += chance
        self.windows: dict[int, dict[tuple[str, ...], float]] = {}

    def some(self, count: int) -> list[tuple[str, ...]]:
        """Some documents of every kind and length."""
        every = sorted(self.texts, key=lambda words: (len(words), words))
        return every[:: max(1, len(every) // count)]

    def prefix(self, words: tuple[str, ...]) -> float:
        """The chance that a document begins so."""
        return self.prefixes.get(words, 0.0)

    def anywhere(self, words: tuple[str, ...]) -> float:
        """The chance that a random position of an endless stream reads so; no end mark but the last
        word.
        """
        size = len(words)
        if size not in self.windows:
            table = self.windows[size] = defaultdict(float)
            for text, chance in self.texts.items():
                for i in range(len(text) - size + 1):
                    table[text[i : i + size]] += chance / self.length
        return self.windows[size].get(words, 0.0)

    def like(self, words: tuple[str, ...], hidden: Collection[int]) -> dict[tuple[str, ...], float]:
        """The documents of this length with these words wherever nothing is hidden."""
        seen = [i for i in range(len(words)) if i not in hidden]
        those = itemgetter(*seen) if seen else len
        wanted, size = those(words), len(words)
        return {
            other: chance
            for other, chance in self.texts.items()
            if len(other) == size and those(other) == wanted
        }


@cache
def reference_of(text: str) -> Reference:
    """The documents of a small language, written out once for all tests."""
    return Reference(all_paths(read({"tiny.txt": text})))
