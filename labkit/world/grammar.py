"""The contents of a language's files: lists, facts, relations, topics, sentences.

`data/language/README.md` explains the files by adding a topic; `reading.py` reads them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from labkit.checks import clipped, nearest


class Location(NamedTuple):
    """A location in the files of a language: a file and a line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class WorldError(ValueError):
    """Something is wrong in the files of a language; the message starts with file and line."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(f"{location}: {clipped(message, 800)}")


class Token(NamedTuple):
    """A word and, if it is ambiguous, which of its senses is meant."""

    word: str
    sense: str | None = None


class Filler(NamedTuple):
    """One way to fill a slot: one word or a name of several words."""

    tokens: tuple[Token, ...]
    weight: float
    location: Location


class Slot(NamedTuple):
    """`{fruit}`, `{hero.she}`, or with its article `{a fruit}`."""

    name: str
    article: bool
    location: Location


class Verb(NamedTuple):
    """`[walk]`, `[walk+]`: a verb in the tense of the document, singular or plural.

    `[{walk}]` takes one of the verbs of a list; then `listed` is true.
    """

    name: str
    listed: bool
    plural: bool
    location: Location


class Choice(NamedTuple):
    """`(a|b|)` or `(2 a|b|)`: one of these, as often as their weights say."""

    options: tuple[tuple["Item", ...], ...]
    weights: tuple[float, ...]


class Tied(NamedTuple):
    """`<x: a|b>`: the option that x selects; `<x+y: a|b>`: the sum, modulo the number of options.

    `<a|b>` belongs to the side of the whole sentence, the variable without a name.  With
    `<x~0.9: a|b>` the option is taken with this chance, and else one of the others.
    """

    options: tuple[tuple["Item", ...], ...]
    variables: tuple[str, ...]
    sure: float


class Draw(NamedTuple):
    """`<x=9,1>`: draw the variable x, 0 nine times as often as 1; nothing is said."""

    variable: str
    weights: tuple[float, ...]


class Let(NamedTuple):
    """`<g=x+y>`: let g be (x + y) modulo 2, so that x and y may be forgotten; nothing is said."""

    variable: str
    terms: tuple[str, ...]
    location: Location


Item = Token | Slot | Verb | Choice | Tied | Draw | Let


def walk(items: Iterable[Item]) -> Iterator[Item]:
    """Every item, and every item inside the options of another."""
    for item in items:
        yield item
        if isinstance(item, Choice | Tied):
            for option in item.options:
                yield from walk(option)


class Pattern(NamedTuple):
    """A way to build a sentence."""

    items: tuple[Item, ...]
    weight: float
    location: Location


class Stage(NamedTuple):
    """A step of a topic: its sentences, and how likely another one of them follows."""

    name: str
    again: float
    patterns: list[Pattern]


@dataclass
class Topic:
    """What a part of a document is about: stages in order, and the topics before and after it."""

    name: str
    location: Location
    leads_to: dict[str, tuple[float, Location]] = field(default_factory=dict)
    comes_after: dict[str, tuple[float, Location]] = field(default_factory=dict)
    feelings: tuple[str, ...] = ()
    agree: float = 1.0
    stages: list[Stage] = field(default_factory=list)


@dataclass
class Fact:
    """What is drawn once for a document: its values, each with a word for every field."""

    name: str
    fields: tuple[str, ...]
    location: Location
    values: list[Filler] = field(default_factory=list)


class Urn(NamedTuple):
    """How a document remembers a list: `alpha` is the weight of a word that was not yet drawn.

    A `styled` list holds synonyms: a document of style k prefers the k-th of them.
    """

    alpha: float
    styled: bool
    location: Location


@dataclass
class Table:
    """What is true in all documents: rows with a word in every column."""

    columns: tuple[str, ...]
    location: Location
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def cell(self, row: int, columns: Iterable[str]) -> str:
        """The word in a column; of several columns, each one names the row of the next."""
        names = {words[0]: number for number, words in enumerate(self.rows)}
        word = ""
        for column in columns:
            word = self.rows[row][self.columns.index(column)]
            row = names.get(word, row)
        return word


@dataclass
class Relation:
    """One rule of the prompts: pairs of a question and its answer."""

    name: str
    weight: float
    stops: float
    location: Location
    pairs: list[tuple[tuple[Token, ...], Filler]] = field(default_factory=list)


class Kind(NamedTuple):
    """A kind of documents and the topics it may begin with (`relations` for prompts)."""

    weight: float
    begins: dict[str, tuple[float, Location]]
    location: Location


class Line(NamedTuple):
    """A line without its comment."""

    text: str
    location: Location


@dataclass
class Grammar:
    """Everything that the files define."""

    lists: dict[str, list[Filler]] = field(default_factory=dict)
    urns: dict[str, Urn] = field(default_factory=dict)
    phrases: dict[str, list[Pattern]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    held_out: dict[str, Location] = field(default_factory=dict)


def check_name(location: Location, what: str, given: str, known: Collection[str]) -> None:
    """Refuse a name that is not known; say which is similar, or else which there are."""
    if given not in known:
        near = nearest(given, known, cutoff=0.6)
        hint = f'did you mean "{near}"?' if near else f"There are: {', '.join(sorted(known)[:40])}"
        raise WorldError(location, f'expected {what}, not "{given}": {hint}')
