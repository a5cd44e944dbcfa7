"""Read the files of a language: lists of words, facts, relations, topics and their sentences.

A file is a series of blocks: a header at the left margin and its lines indented below it; `#`
starts a comment.  `data/world/README.md` explains every block by adding a topic.  What is read is
checked as far as one file can tell; `machine.py` checks how the parts fit.  Read `Grammar` first,
then `read`.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from labkit.world.forms import FORMS


class Place(NamedTuple):
    """Where something stands: a file and its line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class WorldError(ValueError):
    """Something is wrong in the files of a language; the message starts with file and line."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{place}: {message}")


class Token(NamedTuple):
    """A word and, if it is ambiguous, which of its senses is meant."""

    word: str
    sense: str | None = None


class Filler(NamedTuple):
    """One way to fill a slot: one word or a name of several words."""

    tokens: tuple[Token, ...]
    weight: float
    place: Place


class Slot(NamedTuple):
    """`{fruit}`, `{hero.she}`, or with its article `{a fruit}`."""

    name: str
    article: bool
    place: Place


class Choice(NamedTuple):
    """`(a|b|)`: one of these, all alike; or `<a|b>`: tied, the whole sentence picks one side."""

    options: tuple[tuple["Item", ...], ...]
    tied: bool
    place: Place


Item = Token | Slot | Choice


class Pattern(NamedTuple):
    """A way to build a sentence; `sides` is the number of sides of its `<a|b>`, or 1."""

    items: tuple[Item, ...]
    weight: float
    sides: int
    place: Place


@dataclass
class Stage:
    """A step of a topic: its sentences, and how likely another one of them follows."""

    name: str
    again: float
    place: Place
    patterns: list[Pattern] = field(default_factory=list)


@dataclass
class Topic:
    """What a part of a document is about: stages in order, and the topics before and after it."""

    name: str
    place: Place
    leads_to: dict[str, tuple[float, Place]] = field(default_factory=dict)
    comes_after: dict[str, tuple[float, Place]] = field(default_factory=dict)
    feelings: tuple[str, ...] = ()
    agree: float = 1.0
    stages: list[Stage] = field(default_factory=list)


@dataclass
class Fact:
    """What is drawn once for a document: its values, each with a word for every field."""

    name: str
    fields: tuple[str, ...]
    place: Place
    values: list[Filler] = field(default_factory=list)


@dataclass
class Relation:
    """One rule of the prompts: pairs of a question and its answer."""

    name: str
    weight: float
    stops: float
    place: Place
    pairs: list[tuple[tuple[Token, ...], Filler]] = field(default_factory=list)


class Kind(NamedTuple):
    """A kind of documents and the topics it may begin with (`relations` for prompts)."""

    name: str
    weight: float
    begins: dict[str, tuple[float, Place]]
    place: Place


class Line(NamedTuple):
    """A line without its comment."""

    text: str
    place: Place


@dataclass
class Grammar:
    """All that the files say."""

    lists: dict[str, list[Filler]] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    held_out: dict[str, Place] = field(default_factory=dict)
    derived: dict[str, tuple[str, str]] = field(default_factory=dict)
    lexicon: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, table: dict, name: str, value: object, place: Place) -> None:
        """Add a named thing once; the second of the same name is refused with both places."""
        if name in table:
            first = getattr(table[name], "place", None) or table[name][0].place
            raise WorldError(
                place, f'"{name}" was defined already in {first}: give it another name'
            )
        table[name] = value


def read(files: dict[str, str]) -> Grammar:
    """Read the texts of the files, given by name, into one grammar."""
    grammar = Grammar()
    for name, text in files.items():
        topic: Topic | None = None
        for header, body in _blocks(name, text):
            keyword, *arguments = header.text.split()
            if keyword == "topic":
                topic = _topic(grammar, header, arguments, body)
            elif keyword == "stage":
                if topic is None:
                    raise WorldError(
                        header.place, "a stage belongs to a topic: write `topic NAME` above it"
                    )
                topic.stages.append(_stage(header, arguments, body))
            elif keyword in _BLOCKS:
                _BLOCKS[keyword](grammar, header, arguments, body)
            else:
                known = ["topic", "stage", *_BLOCKS]
                raise WorldError(header.place, expected("a block", keyword, known))
    return grammar


def expected(what: str, given: str, known: Iterable[str]) -> str:
    """Say what was expected instead of `given`, the nearest first."""
    known = list(known)
    near = difflib.get_close_matches(given, known, 1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    listed = ", ".join(sorted(known)[:40])
    return f'expected {what}, not "{given}": {hint}There are: {listed}'


def _blocks(name: str, text: str) -> Iterable[tuple[Line, list[Line]]]:
    header, body = None, []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = Line(raw.split("#")[0].rstrip(), Place(name, number))
        if not line.text:
            continue
        if not line.text[0].isspace():
            if header is not None:
                yield header, body
            header, body = line, []
        elif header is None:
            raise WorldError(
                line.place,
                "an indented line belongs to a block: start with a header such as `words fruit`",
            )
        else:
            body.append(Line(line.text.strip(), line.place))
    if header is not None:
        yield header, body


# ── numbers, weights, names ──────────────────────────────────────────────────────────────────────


def _number(
    text: str, place: Place, what: str, most: float = math.inf, zero: bool = False
) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most if zero else 0 < value <= most) or value == math.inf:
        limits = "not negative" if zero else "more than 0"
        limits += f" and at most {most:g}" if most < math.inf else ""
        raise WorldError(place, f'{what} must be a number, {limits}, not "{text}"')
    return value


def _weighted(text: str, place: Place) -> tuple[str, float]:
    """Split `ice cream 3` into the words and the weight, 1 unless given."""
    words = text.split()
    if len(words) > 1 and re.fullmatch(r"[-+]?[\d.]+([eE]-?\d+)?", words[-1]):
        return " ".join(words[:-1]), _number(
            words[-1], place, f'the weight of "{" ".join(words[:-1])}"'
        )
    return " ".join(words), 1.0


def _entries(body: list[Line]) -> Iterable[tuple[str, Place]]:
    for line in body:
        for part in line.text.rstrip(",").split(","):
            if not part.strip():
                raise WorldError(line.place, "expected a word between two commas")
            yield part.strip(), line.place


def _table(text: str, place: Place) -> dict[str, tuple[float, Place]]:
    """Read `garden 2, sea` into {garden: 2, sea: 1}, each with its place."""
    return {
        name: (weight, place)
        for name, weight in (
            _weighted(part, place) for part, place in _entries([Line(text, place)])
        )
    }


def _options(arguments: list[str], names: set[str], place: Place) -> dict[str, str]:
    """Read `again 0.5 weight 2` into {again: 0.5, weight: 2}."""
    if len(arguments) % 2:
        raise WorldError(place, f'expected a number after "{arguments[-1]}"')
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    for name in given:
        if name not in names:
            raise WorldError(place, expected("an option", name, names))
    return given


def _one_name(header: Line, arguments: list[str]) -> str:
    if not arguments or not re.fullmatch(r"[a-z][a-z0-9_]*", arguments[0]):
        raise WorldError(
            header.place, f"expected a name in small letters after `{header.text.split()[0]}`"
        )
    return arguments[0]


def _token(text: str, place: Place) -> Token:
    word, mark, sense = text.partition("~")
    if not word or (mark and not sense) or re.search(r"[A-Z{}()<>|~]", word + sense):
        raise WorldError(place, f'expected a word in small letters, or word~sense, not "{text}"')
    return Token(word, sense or None)


# ── the blocks ───────────────────────────────────────────────────────────────────────────────────


def _list(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`words fruit`: fillers as they are; `nouns`, `verbs`, `adjectives`: with their forms."""
    keyword, name = header.text.split()[0], _one_name(header, arguments)
    if arguments[1:] not in ([], ["zipf"]):
        raise WorldError(header.place, f'expected nothing or "zipf" after `{keyword} {name}`')
    rows = []
    for rank, (entry, place) in enumerate(_entries(body), start=1):
        text, weight = _weighted(entry, place)
        # Zipf's law: the word of rank r is r times as rare as the first.
        rows.append((text, weight / rank if arguments[1:] else weight, place))
    if not rows:
        raise WorldError(
            header.place, f'"{name}" is empty: write its words, indented, below the header'
        )
    for form, inflect in FORMS[keyword].items():
        fillers = []
        for text, weight, place in rows:
            lemma, *irregular = text.split("/")
            tokens = [_token(word, place) for word in lemma.split()]
            last = tokens[-1]
            tokens[-1] = Token(inflect(last.word, irregular), last.sense)
            if form:
                grammar.derived.setdefault(tokens[-1].word, (last.word, form.strip(".")))
            fillers.append(Filler(tuple(tokens), weight, place))
        grammar.add(grammar.lists, name + form, fillers, header.place)


def _fact(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`fact hero he him his`: every value is a name and a word for each further field."""
    name = _one_name(header, arguments)
    fact = Fact(name, ("", *("." + field for field in arguments[1:])), header.place)
    for entry, place in _entries(body):
        text, weight = _weighted(entry, place)
        words = tuple(_token(word, place) for word in text.split())
        if len(words) != len(fact.fields):
            fields = " ".join([name, *arguments[1:]])
            raise WorldError(place, f'expected {len(fact.fields)} words ({fields}), not "{text}"')
        fact.values.append(Filler(words, weight, place))
    if not fact.values:
        raise WorldError(
            header.place, f'the fact "{name}" has no values: write them below the header'
        )
    grammar.add(grammar.facts, name, fact, header.place)


def _relation(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`relation capital weight 2 stops 0.1`: pairs such as `france = paris`."""
    name, place = _one_name(header, arguments), header.place
    given = _options(arguments[1:], {"weight", "stops"}, place)
    weight = _number(given.get("weight", "1"), place, "the weight")
    stops = _number(given.get("stops", "0.1"), place, "how often a prompt stops", most=1)
    relation = Relation(name, weight, stops, place)
    for entry, line in _entries(body):
        text, weight = _weighted(entry, line)
        question, equals, answer = (part.strip() for part in text.partition("="))
        if not (question and equals and answer):
            raise WorldError(line, f'expected `question = answer`, not "{entry}"')
        tokens = [tuple(_token(word, line) for word in part.split()) for part in (question, answer)]
        relation.pairs.append((tokens[0], Filler(tokens[1], weight, line)))
    if not relation.pairs:
        raise WorldError(
            place, f'the relation "{name}" has no pairs: write `question = answer` below it'
        )
    grammar.add(grammar.relations, name, relation, place)


def _documents(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`documents`: lines such as `story 6 begins with opening`; a later block replaces an earlier
    one.
    """
    grammar.kinds.clear()
    for line in body:
        match = re.fullmatch(r"([a-z_]+)\s+(\S+)\s+begins with\s+(.+)", line.text)
        if not match:
            raise WorldError(
                line.place, f'expected `KIND WEIGHT begins with TOPIC, …`, not "{line.text}"'
            )
        weight = _number(match[2], line.place, f'the weight of "{match[1]}"')
        kind = Kind(match[1], weight, _table(match[3], line.place), line.place)
        grammar.add(grammar.kinds, match[1], kind, line.place)


def _held_out(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`held_out`: forms that the training text never shows."""
    grammar.held_out.update(dict(_entries(body)))


def _pairs(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`translate`, `endings`, `syllables`: how another language says it; see `lexicon.py`."""
    table = grammar.lexicon.setdefault(header.text.split()[0], {})
    for entry, place in _entries(body):
        here, equals, there = (part.strip() for part in entry.partition("="))
        if bool(equals) != (header.text.split()[0] != "syllables") or (equals and not there):
            raise WorldError(
                place, f'expected `word = word` (or, in `syllables`, a syllable), not "{entry}"'
            )
        table[here] = there


_BLOCKS: dict[str, Callable[[Grammar, Line, list[str], list[Line]], None]] = {
    "words": _list,
    "nouns": _list,
    "verbs": _list,
    "adjectives": _list,
    "fact": _fact,
    "relation": _relation,
    "documents": _documents,
    "held_out": _held_out,
    "translate": _pairs,
    "endings": _pairs,
    "syllables": _pairs,
}


def _topic(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> Topic:
    topic = Topic(_one_name(header, arguments), header.place)
    for line in body:
        words = line.text.split()
        if words[:2] == ["leads", "to"]:
            topic.leads_to.update(_table(line.text[len("leads to") :], line.place))
        elif words[:2] == ["comes", "after"]:
            topic.comes_after.update(_table(line.text[len("comes after") :], line.place))
        elif words[0] == "feelings" and words[-2] == "agree" and len(words) == 5:
            topic.feelings = tuple(words[1:3])
            topic.agree = _number(words[-1], line.place, "how often a sentence agrees", most=1)
        else:
            allowed = (
                "`leads to TOPIC, …`, `comes after TOPIC, …` or `feelings ONE TWO agree SHARE`"
            )
            raise WorldError(
                line.place, f'expected {allowed}, not "{line.text}"; sentences stand in a stage'
            )
    grammar.add(grammar.topics, topic.name, topic, header.place)
    return topic


def _stage(header: Line, arguments: list[str], body: list[Line]) -> Stage:
    name = _one_name(header, arguments)
    given = _options(arguments[1:], {"again"}, header.place)
    again = _number(
        given.get("again", "0"), header.place, "how often a stage goes on", most=0.99, zero=True
    )
    stage = Stage(name, again, header.place)
    for line in body:
        weight, text = 1.0, line.text
        first, _, rest = text.partition(" ")
        if re.fullmatch(r"[-+]?[\d.]+", first):
            weight, text = _number(first, line.place, "the weight of a sentence"), rest.strip()
        stage.patterns.append(parse_pattern(text, weight, line.place))
    if not stage.patterns:
        raise WorldError(header.place, f'the stage "{name}" has no sentences: write them below it')
    return stage


# ── a sentence ───────────────────────────────────────────────────────────────────────────────────


def parse_pattern(text: str, weight: float, place: Place) -> Pattern:
    """Read one sentence with its slots and choices; it must end with ` .`."""
    pieces = re.findall(r"\{[^{}]*\}|[()|<>]|[^\s(){}|<>]+|[{}]", text)
    if pieces[-1:] != ["."]:
        raise WorldError(place, f'a sentence ends with " .", not with "{text[-12:]}"')
    items, rest = _sequence(pieces[:-1], place, closing="")
    assert not rest
    if not items:
        raise WorldError(place, "expected words before the full stop")
    sides = {len(choice.options) for choice in _tied(items)} or {1}
    if len(sides) > 1:
        raise WorldError(
            place, f"all <a|b> of a sentence have equally many sides, not {sorted(sides)}"
        )
    return Pattern(items, weight, sides.pop(), place)


def _tied(items: Iterable[Item]) -> Iterable[Choice]:
    for item in items:
        if isinstance(item, Choice):
            if item.tied:
                yield item
            for option in item.options:
                yield from _tied(option)


def _sequence(pieces: list[str], place: Place, closing: str) -> tuple[tuple[Item, ...], list[str]]:
    """Read items up to `|` or the closing bracket; return them and what is left, that mark first."""
    items: list[Item] = []
    while pieces:
        piece, *rest = pieces
        if piece in ("|", ")", ">"):
            if not closing or piece not in ("|", closing):
                raise WorldError(place, f'"{piece}" without its opening bracket')
            return tuple(items), pieces
        if piece in ("(", "<"):
            options, mark = [], "|"
            while mark == "|":
                option, rest = _sequence(rest, place, ")" if piece == "(" else ">")
                options.append(option)
                mark, *rest = rest
            items.append(Choice(tuple(options), piece == "<", place))
        elif piece.startswith("{"):
            items.append(_slot(piece, place))
        else:
            items.append(_token(piece, place))
        pieces = rest
    if closing:
        raise WorldError(place, f'a bracket is not closed: expected "{closing}"')
    return tuple(items), []


def _slot(piece: str, place: Place) -> Slot:
    words = piece.strip("{}").split()
    article = words[:1] == ["a"] and len(words) == 2
    if len(words) != 1 + article or not piece.endswith("}"):
        raise WorldError(place, f"expected `{{list}}` or `{{a list}}`, not `{piece}`")
    return Slot(words[-1], article, place)
