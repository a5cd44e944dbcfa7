"""An independent reference for the language: every document of a small grammar, written out.

It walks the grammar as it was read, never the compiled machine, so it shares no sum with what it
checks.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from labkit.world.grammar import Choice, Grammar, Item, Slot, Token
from labkit.world.machine import END


class Path(NamedTuple):
    """One way to build a document: what each word means comes with it."""

    words: tuple[str, ...]
    senses: tuple[str | None, ...]
    topics: tuple[str, ...]  # of every word
    feelings: tuple[str | None, ...]
    relations: tuple[str | None, ...]
    chance: float


Said = tuple[tuple[Token, ...], float]


def all_paths(grammar: Grammar) -> list[Path]:
    """Every path of a grammar without loops."""
    values = [[(fact, value) for value in fact.values] for fact in grammar.facts.values()]
    out = []
    for drawn in itertools.product(*values):
        chance = 1.0
        facts = {}
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
                    out.append(Path(words, senses, *last, share * p))
    return out


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
                for i in range(pattern.sides):
                    p = 1 / pattern.sides
                    if sides > 1 and pattern.sides > 1:
                        p = topic.agree if i == side else 1 - topic.agree
                    for tokens, q in _items(grammar, facts, pattern.items, i):
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


def _items(grammar: Grammar, facts: dict, items: tuple[Item, ...], side: int) -> Iterator[Said]:
    parts = [list(_item(grammar, facts, item, side)) for item in items]
    for combination in itertools.product(*parts):
        chance = 1.0
        for _, p in combination:
            chance *= p
        yield tuple(t for tokens, _ in combination for t in tokens), chance


def _item(grammar: Grammar, facts: dict, item: Item, side: int) -> Iterator[Said]:
    if isinstance(item, Token):
        yield (item,), 1.0
    elif isinstance(item, Choice):
        options = [item.options[side]] if item.tied else item.options
        for option in options:
            for tokens, p in _items(grammar, facts, option, side):
                yield tokens, p / len(options)
    else:
        yield from _slot(grammar, facts, item)


def _slot(grammar: Grammar, facts: dict, slot: Slot) -> Iterator[Said]:
    if slot.name in facts:
        rows = [((facts[slot.name],), 1.0)]
    else:
        kept = [
            f
            for f in grammar.lists[slot.name]
            if not any(t.word in grammar.held_out for t in f.tokens)
        ]
        rows = [(f.tokens, f.weight / sum(f.weight for f in kept)) for f in kept]
    for tokens, p in rows:
        article = ()
        if slot.article:
            # A fact always takes "a"; the words of a list choose.
            vowel = slot.name not in facts and tokens[0].word[0] in "aeiou"
            article = (Token("an" if vowel else "a"),)
        yield (*article, *tokens), p


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
        return {
            other: chance
            for other, chance in self.texts.items()
            if len(other) == len(words)
            and all(
                i in hidden or a == b for i, (a, b) in enumerate(zip(words, other, strict=True))
            )
        }
