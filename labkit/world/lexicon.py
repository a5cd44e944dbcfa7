"""The file of a translation: lists of words with their translations, and pairs of sentences.

`read_lexicon` reads it; an error in the file is reported with its line.
"""

import functools
import operator
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from labkit.world.grammar import (
    Choice,
    Item,
    Line,
    Location,
    Pattern,
    Slot,
    Tied,
    Token,
    WorldError,
    check_name,
    walk,
)
from labkit.world.patterns import read_number, read_pattern, read_weighted
from labkit.world.reading import read_blocks

Words = tuple[str, ...]
GENDERS = ("m", "f")


class Way(NamedTuple):
    """One translation of a filler: its words, its gender (or ""), and its chance."""

    words: Words
    gender: str
    chance: float

    def with_ending(self, ending: str) -> Words:
        """Its words, the last one with an ending."""
        return (*self.words[:-1], self.words[-1] + ending)


class TranslatedFiller(NamedTuple):
    """A word or a name of the source language, its sense, and how it is translated."""

    words: Words
    sense: str
    ways: tuple[Way, ...]


@dataclass
class Lexicon:
    """The contents of the file: lists of fillers, endings by gender, pairs of patterns, letters."""

    lists: dict[str, list[TranslatedFiller]] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    endings: dict[str, tuple[str, str]] = field(default_factory=dict)
    patterns: list[tuple[float, tuple[Item, ...], tuple[Item, ...]]] = field(default_factory=list)
    letters: dict[str, str] = field(default_factory=dict)


def list_of(name: str) -> str:
    """The list of a slot: {adj2} is the second of the list `adj`."""
    return name.rstrip("0123456789")


def read_lexicon(name: str, text: str) -> Lexicon:
    """Read the file of a translation: `endings`, `letters`, `words`, `patterns`."""
    lexicon = Lexicon()
    patterns: list[list[Line]] = []
    first: dict[str, Location] = {}
    for header, body in read_blocks(name, text):
        match header.text.split():
            case ["endings"]:
                for line in body:
                    _endings(lexicon, line, first)
            case ["letters"]:
                lexicon.letters |= dict(pair for line in body for pair in _letters(line, first))
            case ["words", of, part]:
                _once(first, f'list "{of}"', header.location)
                lexicon.parts[of], lexicon.lists[of] = part, _fillers(header, body)
            case ["patterns"]:
                patterns.append(body)
            case _:
                known = ["endings", "letters", "words LIST PART", "patterns"]
                check_name(header.location, "a block", header.text, known)
    # What endings and patterns need may stand below them.
    for of in lexicon.endings:
        check_name(first[f'line of endings for "{of}"'], "a list", of, lexicon.lists)
    for body in patterns:
        _patterns(lexicon, body)
    if not lexicon.patterns:
        message = "no sentences: write them, indented, below `patterns`, each above its translation"
        raise WorldError(Location(name, 1), message)
    return lexicon


def _once(first: dict[str, Location], what: str, location: Location) -> None:
    """Refuse a duplicate, with both locations."""
    if what in first:
        message = f"a second {what}: the first is in {first[what]}, leave one of the two out"
        raise WorldError(location, message)
    first[what] = location


def _endings(lexicon: Lexicon, line: Line, first: dict[str, Location]) -> None:
    """Read `adj o a`."""
    of, *endings = line.text.split()
    if len(endings) != 2:
        raise WorldError(line.location, "expected a list and its two endings")
    _once(first, f'line of endings for "{of}"', line.location)
    lexicon.endings[of] = endings[0], endings[1]


def _fillers(header: Line, body: list[Line]) -> list[TranslatedFiller]:
    """Read the words of a list, which commas separate."""
    if not body:
        message = f'"{header.text}" is empty: write its words, indented, below the header'
        raise WorldError(header.location, message)
    gendered = header.text.split()[2] == "noun"
    entries = [(e, line.location) for line in body for e in line.text.strip(",").split(",")]
    return [_filler(entry, place, gendered) for entry, place in entries]


def _letters(line: Line, first: dict[str, Location]) -> Iterator[tuple[str, str]]:
    for pair in line.text.split(","):
        here, _, there = pair.strip().partition(" ")
        if len(here) != 1 or len(there) != 1:
            raise WorldError(line.location, f'expected two letters such as "a ა", not "{pair}"')
        _once(first, f'letter for "{here}"', line.location)
        yield here, there


def _filler(entry: str, location: Location, gendered: bool) -> TranslatedFiller:
    """Read `bank~money = kontor m 0.7 / bank f 0.3`."""
    here, equals, there = (part.strip() for part in entry.partition("="))
    if not equals or not here or not there:
        raise WorldError(location, f'expected `word = translation`, not "{entry.strip()}"')
    word, tilde, sense = here.partition("~")
    if not word or (tilde and not sense):
        raise WorldError(location, f'expected a word, or word~sense, before "=", not "{here}"')
    ways = [_way(way, location, gendered) for way in there.split("/")]
    if abs(sum(way.chance for way in ways) - 1) > 1e-9:
        raise WorldError(location, f'the chances of "{here}" do not add up to 1')
    return TranslatedFiller(tuple(word.split()), sense, tuple(ways))


def _way(text: str, location: Location, gendered: bool) -> Way:
    """Read `kontor m 0.7`: words, of a noun its gender, and the chance, 1 unless given."""
    words = text.split()
    chance = 1.0
    # -0.5 and .5 are numbers as well: the first is refused, the second is a chance.
    if words and re.match(r"[-+]?\.?\d", words[-1]):
        chance = read_number(words.pop(), location, "the chance of a translation", most=1)
    gender = words.pop() if gendered and words and words[-1] in GENDERS else ""
    if not words or (gendered and not gender):
        what = "a word and its gender, m or f," if gendered else "a word"
        raise WorldError(location, f'expected {what} behind "=" or "/", not "{text.strip()}"')
    return Way(tuple(words), gender, chance)


def _patterns(lexicon: Lexicon, body: list[Line]) -> None:
    """Lines in pairs: a sentence, and `= ` its order in the other language."""
    for line, below in zip(body[::2], [*body[1::2], None], strict=False):
        if below is None or not below.text.startswith("= "):
            raise WorldError(line.location, "a sentence needs a line `= …` below it")
        source = read_weighted(line, whole=False)
        target = read_pattern(below.text[2:], 1.0, below.location, whole=False)
        _check_source(lexicon, source)
        _check_target(lexicon, source, target)
        lexicon.patterns.append((source.weight, source.items, target.items))


def _check_source(lexicon: Lexicon, source: Pattern) -> None:
    """A sentence holds words, slots of lists, and choices among them; it says a slot once."""
    _check_plain(source)
    for item in walk(source.items):
        if not isinstance(item, Token | Slot | Choice):
            message = "a sentence that is translated holds words, {slots} and (choices) only"
            raise WorldError(source.location, message)
        if isinstance(item, Slot):
            check_name(source.location, "a list", list_of(item.name), lexicon.lists)
    for slot, count in _most(source.items).items():
        if count > 1:
            of = list_of(slot)
            message = f"{{{slot}}} occurs twice: number them, {{{of}1}} and {{{of}2}}"
            raise WorldError(source.location, message)


def _check_plain(pattern: Pattern) -> None:
    """Refuse the articles and senses of a language's own sentences."""
    for item in walk(pattern.items):
        if isinstance(item, Slot) and item.article:
            message = f"expected a slot without an article, {{{item.name}}}, not {{a {item.name}}}"
            raise WorldError(pattern.location, message)
        if isinstance(item, Token) and item.sense:
            message = f'expected a word without a sense, not "{item.word}~{item.sense}"'
            raise WorldError(pattern.location, message)


def _check_target(lexicon: Lexicon, source: Pattern, target: Pattern) -> None:
    """Refuse a translation that refers to anything that is not in the sentence above it."""
    _check_plain(target)
    place, said = target.location, _always(source.items)
    slots = {item.name for item in walk(source.items) if isinstance(item, Slot)}
    nouns = {name for name in said if lexicon.parts.get(list_of(name)) == "noun"}
    noun = "a noun that the sentence always says"
    for item in target.items:
        options = item.options if isinstance(item, Choice | Tied) else ((item,),)
        if isinstance(item, Slot):
            name, hat, head = item.name.partition("^")
            check_name(place, "a slot", name, slots)
            if hat:
                check_name(place, "a list with endings", list_of(name), lexicon.endings)
                check_name(place, noun, head, nouns)
        elif not all(isinstance(one, Token) for option in options for one in option):
            message = "a translation holds words, {slots}, and (a|b) or <noun: a|b> of words only"
            raise WorldError(place, message)
        if isinstance(item, Tied):
            check_name(place, noun, "+".join(item.variables), nouns)
            if len(options) != len(GENDERS) or item.sure < 1:
                message = f"expected `<{item.variables[0]}: a|b>`, the words for m and those for f"
                raise WorldError(place, message)
    for item in walk(target.items):
        if isinstance(item, Token) and (origin := item.word.partition("@")[2]):
            words = {name[1:] for name in said if name.startswith("@")}
            check_name(place, "a word that the sentence always says", origin, words)


def _always(items: tuple[Item, ...]) -> set[str]:
    """The slots of a sentence and, as `@word`, its words, without those that may be left out."""
    found: set[str] = set()
    for item in items:
        if isinstance(item, Choice):
            found |= set.intersection(*map(_always, item.options))
        elif isinstance(item, Slot):
            found.add(item.name)
        elif isinstance(item, Token):
            found.add("@" + item.word)
    return found


def _most(items: tuple[Item, ...]) -> Counter[str]:
    """How often a sentence says each slot at most."""
    found: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Choice):
            found += functools.reduce(operator.or_, map(_most, item.options))
        elif isinstance(item, Slot):
            found[item.name] += 1
    return found
