"""Read the files of a language.

A file is a series of blocks: a header at the left margin and its lines indented below it; `#`
starts a comment.  What is read is checked as far as one file can tell; `plan.py` and `builder.py`
check how the parts fit.  Read `read` first, then `parse_pattern`.
"""

import math
import re
from collections.abc import Callable, Iterable

from labkit.world.forms import FORMS
from labkit.world.grammar import (
    Choice,
    Fact,
    Filler,
    Grammar,
    Item,
    Kind,
    Line,
    Location,
    Pattern,
    Relation,
    Slot,
    Stage,
    Token,
    Topic,
    WorldError,
    expected,
)


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
                        header.location, "a stage belongs to a topic: write `topic NAME` above it"
                    )
                topic.stages.append(_stage(header, arguments, body))
            elif keyword in _BLOCKS:
                _BLOCKS[keyword](grammar, header, arguments, body)
            else:
                known = ["topic", "stage", *_BLOCKS]
                raise WorldError(header.location, expected("a block", keyword, known))
    return grammar


def _blocks(name: str, text: str) -> Iterable[tuple[Line, list[Line]]]:
    header: Line | None = None
    body: list[Line] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = Line(raw.split("#")[0].rstrip(), Location(name, number))
        if not line.text:
            continue
        if not line.text[0].isspace():
            if header is not None:
                yield header, body
            header, body = line, []
        elif header is None:
            raise WorldError(
                line.location,
                "an indented line belongs to a block: start with a header such as `words fruit`",
            )
        else:
            body.append(Line(line.text.strip(), line.location))
    if header is not None:
        yield header, body


# ── numbers, weights, names ──────────────────────────────────────────────────────────────────────


def _number(
    text: str, location: Location, what: str, most: float = math.inf, zero: bool = False
) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= most if zero else 0 < value <= most) or value == math.inf:
        limits = "not negative" if zero else "more than 0"
        limits += f" and at most {most:g}" if most < math.inf else ""
        raise WorldError(location, f'{what} must be a number, {limits}, not "{text}"')
    return value


def _weighted(text: str, location: Location) -> tuple[str, float]:
    """Split `ice cream 3` into the words and the weight, 1 unless given."""
    words = text.split()
    if len(words) > 1 and re.fullmatch(r"[-+]?[\d.]+([eE]-?\d+)?", words[-1]):
        return " ".join(words[:-1]), _number(
            words[-1], location, f'the weight of "{" ".join(words[:-1])}"'
        )
    return " ".join(words), 1.0


def _entries(body: list[Line]) -> Iterable[tuple[str, Location]]:
    for line in body:
        for part in line.text.rstrip(",").split(","):
            if not part.strip():
                raise WorldError(line.location, "expected a word between two commas")
            yield part.strip(), line.location


def _table(text: str, location: Location) -> dict[str, tuple[float, Location]]:
    """Read `garden 2, sea` into {garden: 2, sea: 1}, each with its location."""
    return {
        name: (weight, location)
        for name, weight in (
            _weighted(part, location) for part, location in _entries([Line(text, location)])
        )
    }


def _options(arguments: list[str], names: set[str], location: Location) -> dict[str, str]:
    """Read `again 0.5 weight 2` into {again: 0.5, weight: 2}."""
    if len(arguments) % 2:
        raise WorldError(location, f'expected a number after "{arguments[-1]}"')
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    for name in given:
        if name not in names:
            raise WorldError(location, expected("an option", name, names))
    return given


def _one_name(header: Line, arguments: list[str]) -> str:
    if not arguments or not re.fullmatch(r"[a-z][a-z0-9_]*", arguments[0]):
        raise WorldError(
            header.location, f"expected a name in small letters after `{header.text.split()[0]}`"
        )
    return arguments[0]


def _token(text: str, location: Location) -> Token:
    word, mark, sense = text.partition("~")
    if not word or (mark and not sense) or re.search(r"[A-Z{}()<>|~]", word + sense):
        raise WorldError(location, f'expected a word in small letters, or word~sense, not "{text}"')
    return Token(word, sense or None)


# ── the blocks ───────────────────────────────────────────────────────────────────────────────────


def _list(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`words fruit`: fillers as they are; `nouns`, `verbs`, `adjectives`: with their forms."""
    keyword, name = header.text.split()[0], _one_name(header, arguments)
    if arguments[1:] not in ([], ["zipf"]):
        raise WorldError(header.location, f'expected nothing or "zipf" after `{keyword} {name}`')
    rows = []
    for rank, (entry, location) in enumerate(_entries(body), start=1):
        text, weight = _weighted(entry, location)
        # Zipf's law: the word of rank r is r times as rare as the first.
        rows.append((text, weight / rank if arguments[1:] else weight, location))
    if not rows:
        raise WorldError(
            header.location, f'"{name}" is empty: write its words, indented, below the header'
        )
    for form, inflect in FORMS[keyword].items():
        fillers = []
        for text, weight, location in rows:
            lemma, *irregular = text.split("/")
            tokens = [_token(word, location) for word in lemma.split()]
            last = tokens[-1]
            tokens[-1] = Token(inflect(last.word, irregular), last.sense)
            if form:
                grammar.derived.setdefault(tokens[-1].word, (last.word, form.strip(".")))
            fillers.append(Filler(tuple(tokens), weight, location))
        grammar.add(grammar.lists, name + form, fillers, header.location)


def _fact(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`fact hero he him his`: every value is a name and a word for each further field."""
    name = _one_name(header, arguments)
    fact = Fact(name, ("", *("." + field for field in arguments[1:])), header.location)
    for entry, location in _entries(body):
        text, weight = _weighted(entry, location)
        words = tuple(_token(word, location) for word in text.split())
        if len(words) != len(fact.fields):
            fields = " ".join([name, *arguments[1:]])
            raise WorldError(
                location, f'expected {len(fact.fields)} words ({fields}), not "{text}"'
            )
        fact.values.append(Filler(words, weight, location))
    if not fact.values:
        raise WorldError(
            header.location, f'the fact "{name}" has no values: write them below the header'
        )
    grammar.add(grammar.facts, name, fact, header.location)


def _relation(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`relation capital weight 2 stops 0.1`: pairs such as `france = paris`."""
    name, location = _one_name(header, arguments), header.location
    given = _options(arguments[1:], {"weight", "stops"}, location)
    weight = _number(given.get("weight", "1"), location, "the weight")
    stops = _number(given.get("stops", "0.1"), location, "how often a prompt stops", most=1)
    relation = Relation(name, weight, stops, location)
    for entry, line in _entries(body):
        text, weight = _weighted(entry, line)
        question, equals, answer = (part.strip() for part in text.partition("="))
        if not (question and equals and answer):
            raise WorldError(line, f'expected `question = answer`, not "{entry}"')
        tokens = [tuple(_token(word, line) for word in part.split()) for part in (question, answer)]
        relation.pairs.append((tokens[0], Filler(tokens[1], weight, line)))
    if not relation.pairs:
        raise WorldError(
            location, f'the relation "{name}" has no pairs: write `question = answer` below it'
        )
    grammar.add(grammar.relations, name, relation, location)


def _documents(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`documents`: lines such as `story 6 begins with opening`; a later block replaces an earlier
    one.
    """
    grammar.kinds.clear()
    for line in body:
        match = re.fullmatch(r"([a-z_]+)\s+(\S+)\s+begins with\s+(.+)", line.text)
        if not match:
            raise WorldError(
                line.location, f'expected `KIND WEIGHT begins with TOPIC, …`, not "{line.text}"'
            )
        weight = _number(match[2], line.location, f'the weight of "{match[1]}"')
        kind = Kind(match[1], weight, _table(match[3], line.location), line.location)
        grammar.add(grammar.kinds, match[1], kind, line.location)


def _held_out(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`held_out`: forms that the training text never shows."""
    grammar.held_out.update(dict(_entries(body)))


def _pairs(grammar: Grammar, header: Line, arguments: list[str], body: list[Line]) -> None:
    """`translate`, `endings`, `syllables`: how another language says it; see `lexicon.py`."""
    table = grammar.lexicon.setdefault(header.text.split()[0], {})
    for entry, location in _entries(body):
        here, equals, there = (part.strip() for part in entry.partition("="))
        if bool(equals) != (header.text.split()[0] != "syllables") or (equals and not there):
            raise WorldError(
                location, f'expected `word = word` (or, in `syllables`, a syllable), not "{entry}"'
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
    topic = Topic(_one_name(header, arguments), header.location)
    for line in body:
        words = line.text.split()
        if words[:2] == ["leads", "to"]:
            topic.leads_to.update(_table(line.text[len("leads to") :], line.location))
        elif words[:2] == ["comes", "after"]:
            topic.comes_after.update(_table(line.text[len("comes after") :], line.location))
        elif words[0] == "feelings" and words[-2] == "agree" and len(words) == 5:
            topic.feelings = tuple(words[1:3])
            topic.agree = _number(words[-1], line.location, "how often a sentence agrees", most=1)
        else:
            allowed = (
                "`leads to TOPIC, …`, `comes after TOPIC, …` or `feelings ONE TWO agree SHARE`"
            )
            raise WorldError(
                line.location, f'expected {allowed}, not "{line.text}"; sentences stand in a stage'
            )
    grammar.add(grammar.topics, topic.name, topic, header.location)
    return topic


def _stage(header: Line, arguments: list[str], body: list[Line]) -> Stage:
    name = _one_name(header, arguments)
    given = _options(arguments[1:], {"again"}, header.location)
    again = _number(
        given.get("again", "0"), header.location, "how often a stage goes on", most=0.99, zero=True
    )
    stage = Stage(name, again, header.location)
    for line in body:
        weight, text = 1.0, line.text
        first, _, rest = text.partition(" ")
        if re.fullmatch(r"[-+]?[\d.]+", first):
            weight, text = _number(first, line.location, "the weight of a sentence"), rest.strip()
        stage.patterns.append(parse_pattern(text, weight, line.location))
    if not stage.patterns:
        raise WorldError(
            header.location, f'the stage "{name}" has no sentences: write them below it'
        )
    return stage


# ── a sentence ───────────────────────────────────────────────────────────────────────────────────


def parse_pattern(text: str, weight: float, location: Location) -> Pattern:
    """Read one sentence with its slots and choices; it must end with ` .`."""
    pieces = re.findall(r"\{[^{}]*\}|[()|<>]|[^\s(){}|<>]+|[{}]", text)
    if pieces[-1:] != ["."]:
        raise WorldError(location, f'a sentence ends with " .", not with "{text[-12:]}"')
    items, rest = _sequence(pieces[:-1], location, closing="")
    assert not rest
    if not items:
        raise WorldError(location, "expected words before the full stop")
    sides = {len(choice.options) for choice in _tied(items)} or {1}
    if len(sides) > 1:
        raise WorldError(
            location, f"all <a|b> of a sentence have equally many sides, not {sorted(sides)}"
        )
    return Pattern(items, weight, sides.pop(), location)


def _tied(items: Iterable[Item]) -> Iterable[Choice]:
    for item in items:
        if isinstance(item, Choice):
            if item.tied:
                yield item
            for option in item.options:
                yield from _tied(option)


def _sequence(
    pieces: list[str], location: Location, closing: str
) -> tuple[tuple[Item, ...], list[str]]:
    """Read items up to `|` or the closing bracket; return them and the rest, that mark first."""
    items: list[Item] = []
    while pieces:
        piece, *rest = pieces
        if piece in ("|", ")", ">"):
            if not closing or piece not in ("|", closing):
                raise WorldError(location, f'"{piece}" without its opening bracket')
            return tuple(items), pieces
        if piece in ("(", "<"):
            options, mark = [], "|"
            while mark == "|":
                option, rest = _sequence(rest, location, ")" if piece == "(" else ">")
                options.append(option)
                mark, *rest = rest
            items.append(Choice(tuple(options), piece == "<", location))
        elif piece.startswith("{"):
            items.append(_slot(piece, location))
        else:
            items.append(_token(piece, location))
        pieces = rest
    if closing:
        raise WorldError(location, f'a bracket is not closed: expected "{closing}"')
    return tuple(items), []


def _slot(piece: str, location: Location) -> Slot:
    words = piece.strip("{}").split()
    article = words[:1] == ["a"] and len(words) == 2
    if len(words) != 1 + article or not piece.endswith("}"):
        raise WorldError(location, f"expected `{{list}}` or `{{a list}}`, not `{piece}`")
    return Slot(words[-1], article, location)
