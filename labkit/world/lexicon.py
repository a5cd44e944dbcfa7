"""The second language: the same meanings in other words and in another order.

Its sentences run the other way (as in languages that put the verb before the subject and the noun
before its article), a stem is coined from the file's syllables, endings are its own, and a word
with two senses becomes two words.
"""

import hashlib
from dataclasses import replace

from labkit.world.grammar import Choice, Filler, Grammar, Item, Slot, Tied, Token, WorldError


def translate(grammar: Grammar) -> Grammar:
    """Return the grammar in the language that its `syllables`, `endings` and `translate` blocks
    describe, if any.
    """
    if not grammar.lexicon:
        return grammar
    if not grammar.lexicon.get("syllables"):
        location = next(iter(grammar.topics.values())).location
        raise WorldError(location, "a second language coins words: add a `syllables` block to it")
    words = _Lexicon(grammar)
    topics = {
        name: replace(
            topic,
            stages=[
                replace(
                    stage,
                    patterns=[
                        p._replace(items=tuple(words.items(p.items))) for p in stage.patterns
                    ],
                )
                for stage in topic.stages
            ],
        )
        for name, topic in grammar.topics.items()
    }
    facts = {
        name: replace(
            fact, values=[v._replace(tokens=tuple(map(words.token, v.tokens))) for v in fact.values]
        )
        for name, fact in grammar.facts.items()
    }
    relations = {
        name: replace(
            relation,
            pairs=[
                (tuple(words.token(t) for t in question[::-1]), words.filler(answer))
                for question, answer in relation.pairs
            ],
        )
        for name, relation in grammar.relations.items()
    }
    return replace(
        grammar,
        topics=topics,
        facts=facts,
        relations=relations,
        lists={name: [words.filler(row) for row in rows] for name, rows in grammar.lists.items()},
        held_out={words.word(word, None): place for word, place in grammar.held_out.items()},
        derived={},
    )


class _Lexicon:
    """Coins a word once and remembers it."""

    def __init__(self, grammar: Grammar) -> None:
        self.derived = grammar.derived
        self.known = dict(grammar.lexicon.get("translate", {}))
        self.endings = grammar.lexicon.get("endings", {})
        self.syllables = list(grammar.lexicon.get("syllables", {}))
        self.taken = set(self.known.values())

    def word(self, word: str, sense: str | None) -> str:
        """The translation: given in the file, or coined; forms get the ending of their form."""
        key = word if sense is None else f"{word}~{sense}"
        if key not in self.known:
            if not word.isalpha():
                return word
            lemma, form = self.derived.get(word, (word, ""))
            stem = self._coin(key) if lemma == word else self.word(lemma, sense)
            coined = stem + self.endings.get(form, "")
            while coined in self.taken:
                coined += self.syllables[0]
            self.taken.add(coined)
            self.known[key] = coined
        return self.known[key]

    def _coin(self, key: str) -> str:
        attempt, count = 0, len(self.syllables)
        while True:
            digest = int.from_bytes(
                hashlib.blake2b(f"{key} {attempt}".encode(), digest_size=8).digest(), "big"
            )
            stem = ""
            # Short words stay short: a syllable for about every three letters.
            for _ in range(1 + min(3, len(key) // 4) + attempt // 8):
                digest, pick = divmod(digest, count)
                stem += self.syllables[pick]
            if stem not in self.taken:
                return stem
            attempt += 1

    def token(self, token: Token) -> Token:
        return Token(self.word(token.word, token.sense), token.sense)

    def filler(self, filler: Filler) -> Filler:
        return filler._replace(tokens=tuple(self.token(token) for token in filler.tokens[::-1]))

    def items(self, items: tuple[Item, ...]) -> list[Item]:
        """The items in reverse; articles that depend on the next sound are left out."""
        out: list[Item] = []
        for item in reversed(items):
            if isinstance(item, Token):
                out.append(self.token(item))
            elif isinstance(item, Slot):
                out.append(item._replace(article=False))
            else:
                assert isinstance(item, Choice | Tied)
                out.append(item._replace(options=tuple(tuple(self.items(o)) for o in item.options)))
        return out
