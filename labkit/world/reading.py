"""Read the files of a language.

A file is a series of blocks: a header at the left margin and its lines indented below it; `#`
starts a comment.  Everything that can be checked in one file alone is checked here; `plan.py` and
`builder.py` check how the parts fit.  Read `read` first, then `patterns.py`.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable

from labkit.world.forms import FORMS
from labkit.world.grammar import (
    Fact,
    Filler,
    Grammar,
    Kind,
    Line,
    Location,
    Relation,
    Stage,
    Table,
    Topic,
    Urn,
    WorldError,
    check_name,
)
from labkit.world.patterns import read_number, read_token, read_weighted


def read(files: dict[str, str]) -> Grammar:
    """Read the texts of the files, given by name, into one grammar."""
    grammar = Grammar()
    for name, text in files.items():
        topic: Topic | None = None
        for header, body in read_blocks(name, text):
            keyword = header.text.split()[0]
            check_name(header.location, "a block", keyword, ["topic", "stage", *_BLOCKS])
            if keyword == "topic":
                topic = _topic(grammar, header, body)
            elif keyword == "stage":
                if topic is None:
                    raise WorldError(
                        header.location, "a stage belongs to a topic: write `topic NAME` above it"
                    )
                topic.stages.append(_stage(header, body))
            else:
                _BLOCKS[keyword](grammar, header, body)
    return grammar


def read_blocks(name: str, text: str) -> Iterable[tuple[Line, list[Line]]]:
    """The blocks of a file: each header with the lines that are indented below it."""
    header: Line | None = None
    body: list[Line] = []
    # An accented letter may be stored as one character or as two: equal words must be equal here.
    for number, raw in enumerate(unicodedata.normalize("NFC", text).splitlines(), start=1):
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


def _weighted(text: str, location: Location) -> tuple[str, float]:
    """Split `ice cream 3` into the words and the weight, 1 unless given."""
    words = text.split()
    if len(words) > 1 and re.fullmatch(r"[-+]?[\d.]+([eE]-?\d+)?", words[-1]):
        name = " ".join(words[:-1])
        return name, read_number(words[-1], location, f'the weight of "{name}"')
    return " ".join(words), 1.0


def _entries(body: list[Line]) -> Iterable[tuple[str, Location]]:
    """The parts of all lines, which commas separate, each with its location."""
    for line in body:
        for part in line.text.rstrip(",").split(","):
            if not part.strip():
                raise WorldError(line.location, "expected a word between two commas")
            yield part.strip(), line.location


def _table(text: str, location: Location) -> dict[str, tuple[float, Location]]:
    """Read `garden 2, sea` into {garden: 2, sea: 1}, each with its location."""
    pairs = [_weighted(part, location) for part, _ in _entries([Line(text, location)])]
    return {name: (weight, location) for name, weight in pairs}


def _options(arguments: list[str], names: set[str], location: Location) -> dict[str, str]:
    """Read `again 0.5 weight 2` into {again: 0.5, weight: 2}."""
    if len(arguments) % 2:
        raise WorldError(location, f'expected a number after "{arguments[-1]}"')
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    for name in given:
        check_name(location, "an option", name, names)
    return given


def _named(header: Line) -> tuple[str, list[str]]:
    """The name behind the keyword of a header, and the words behind the name."""
    keyword, *words = header.text.split()
    if not words or not re.fullmatch(r"[a-z][a-z0-9_]*", words[0]):
        raise WorldError(header.location, f"expected a name in small letters after `{keyword}`")
    return words[0], words[1:]


def _filling(grammar: Grammar, header: Line) -> tuple[str, list[str]]:
    """The name, which slots refer to, and the words after it; no other block may have it.

    A phrase may share its name with verbs: {say} is the phrase, [{say}] one of the verbs.
    """
    name, arguments = _named(header)
    keyword = header.text.split()[0]
    if name == "any" or (keyword, name) == ("fact", "tense"):
        message = f'"{name}" already has a meaning: give the {keyword} another name'
        raise WorldError(header.location, message)
    tables: list[dict] = [grammar.facts, grammar.tables]
    if keyword != "verbs":
        tables.append(grammar.phrases)
    if keyword != "phrase" or f"{name}.ed" not in grammar.lists:
        tables.append(grammar.lists)
    for table in tables:
        _check_new(table, name, header.location)
    return name, arguments


def _check_new(table: dict, name: str, location: Location) -> None:
    """Refuse a second thing of the same name, with both locations."""
    if name in table:
        first = getattr(table[name], "location", None) or table[name][0].location
        raise WorldError(location, f'"{name}" was defined already in {first}: give it another name')


def _add(table: dict, name: str, value: object, location: Location) -> None:
    """Add a named thing once."""
    _check_new(table, name, location)
    table[name] = value


# ── the blocks ───────────────────────────────────────────────────────────────────────────────────


def _list(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`words fruit zipf urn 2`: fillers as they are; `nouns`, `verbs`: all forms."""
    name, arguments = _filling(grammar, header)
    exponent, urn = _remembered(header, arguments)
    rows = []
    for rank, (entry, location) in enumerate(_entries(body), start=1):
        text, weight = _weighted(entry, location)
        # Zipf's law: the word of rank r is r times as rare as the first.
        rows.append((text, weight / rank**exponent, location))
    if not rows:
        raise WorldError(
            header.location, f'"{name}" is empty: write its words, indented, below the header'
        )
    if urn is not None:
        grammar.urns[name] = urn
    keyword = header.text.split()[0]
    for form, inflect in FORMS[keyword].items():
        fillers = []
        for text, weight, location in rows:
            lemma, *irregular = text.split("/")
            if not lemma.strip() or (irregular and keyword == "words"):
                raise WorldError(location, f'expected a word, not "{text}"')
            tokens = [read_token(word, location) for word in lemma.split()]
            last = tokens[-1]
            said = read_token(inflect(last.word, irregular), location)
            tokens[-1] = said._replace(sense=last.sense)
            fillers.append(Filler(tuple(tokens), weight, location))
        _add(grammar.lists, name + form, fillers, header.location)


def _remembered(header: Line, arguments: list[str]) -> tuple[float, Urn | None]:
    """Read what follows the name of a list: `zipf`, `zipf 0.4`, `urn 2`, `styled`."""
    given: dict[str, str] = {}
    for before, word in itertools.pairwise(["", *arguments]):
        if re.fullmatch(r"[-+]?[\d.]+", word) and before in ("zipf", "urn"):
            given[before] = word
        elif word in ("zipf", "urn", "styled"):
            given[word] = "1"
        else:
            start = " ".join(header.text.split()[:2])
            allowed = 'nothing, "styled", "urn 2" or "zipf 0.4"'
            raise WorldError(header.location, f'expected {allowed} after `{start}`, not "{word}"')
    place = header.location
    exponent = read_number(given.get("zipf", "0"), place, "the exponent of zipf", 3, zero=True)
    if "urn" not in given and "styled" not in given:
        return exponent, None
    alpha = read_number(given.get("urn", "1"), place, "the weight of a new word in an urn")
    return exponent, Urn(alpha, "styled" in given, place)


def _fact(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`fact hero he his`: every value is a name and a word for each further field.

    Values that share these words may stand behind them: `she her: anna, clara`.
    """
    name, further = _filling(grammar, header)
    fact = Fact(name, ("", *("." + field for field in further)), header.location)
    fields = ""
    for line in body:
        before, colon, after = line.text.partition(":")
        fields = before if colon else fields
        text = after.strip() if colon else line.text
        for entry, location in _entries([Line(text, line.location)] if text else []):
            _value(fact, entry, fields, location)
    if not fact.values:
        raise WorldError(
            header.location, f'the fact "{name}" has no values: write them below the header'
        )
    _add(grammar.facts, name, fact, header.location)


def _value(fact: Fact, entry: str, fields: str, location: Location) -> None:
    text, weight = _weighted(entry, location)
    words = tuple(read_token(word, location) for word in f"{text} {fields}".split())
    if len(words) != len(fact.fields):
        names = " ".join([fact.name, *(field[1:] for field in fact.fields[1:])])
        raise WorldError(location, f'expected {len(fact.fields)} words ({names}), not "{entry}"')
    fact.values.append(Filler(words, weight, location))


def _facts_of_all(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`table village name town`: what is true in all documents, a row a line."""
    name, columns = _filling(grammar, header)
    table = Table(tuple(columns), header.location)
    for line in body:
        row = tuple(line.text.split())
        if len(row) != len(columns):
            message = f'expected {len(columns)} words ({" ".join(columns)}), not "{line.text}"'
            raise WorldError(line.location, message)
        for word in row:
            read_token(word, line.location)
        table.rows.append(row)
    if not table.rows:
        raise WorldError(header.location, f'the table "{name}" has no rows: write them below it')
    _add(grammar.tables, name, table, header.location)


def _phrase(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`phrase when`: patterns without a full stop, one of which is put in for {when}."""
    name, _ = _filling(grammar, header)
    patterns = [read_weighted(line, whole=False) for line in body]
    if not patterns:
        raise WorldError(header.location, f'the phrase "{name}" is empty: write it below')
    _add(grammar.phrases, name, patterns, header.location)


def _relation(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`relation capital weight 2 stops 0.1`: pairs such as `france = paris`."""
    (name, arguments), location = _named(header), header.location
    given = _options(arguments, {"weight", "stops"}, location)
    weight = read_number(given.get("weight", "1"), location, "the weight")
    stops = read_number(given.get("stops", "0.1"), location, "how often a prompt stops", most=1)
    relation = Relation(name, weight, stops, location)
    for entry, line in _entries(body):
        text, weight = _weighted(entry, line)
        question, equals, answer = (part.strip() for part in text.partition("="))
        if not (question and equals and answer):
            raise WorldError(line, f'expected `question = answer`, not "{entry}"')
        tokens = [
            tuple(read_token(word, line) for word in part.split()) for part in (question, answer)
        ]
        relation.pairs.append((tokens[0], Filler(tokens[1], weight, line)))
    if not relation.pairs:
        raise WorldError(
            location, f'the relation "{name}" has no pairs: write `question = answer` below it'
        )
    _add(grammar.relations, name, relation, location)


def _documents(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`documents`: lines such as `story 6 begins with opening`; the last block counts."""
    grammar.kinds.clear()
    for line in body:
        match = re.fullmatch(r"([a-z_]+)\s+(\S+)\s+begins with\s+(.+)", line.text)
        if not match:
            raise WorldError(
                line.location, f'expected `KIND WEIGHT begins with TOPIC, …`, not "{line.text}"'
            )
        weight = read_number(match[2], line.location, f'the weight of "{match[1]}"')
        kind = Kind(weight, _table(match[3], line.location), line.location)
        _add(grammar.kinds, match[1], kind, line.location)


def _held_out(grammar: Grammar, header: Line, body: list[Line]) -> None:
    """`held_out`: forms that the training text never shows."""
    grammar.held_out.update(dict(_entries(body)))


_BLOCKS: dict[str, Callable[[Grammar, Line, list[Line]], None]] = {
    "words": _list,
    "nouns": _list,
    "verbs": _list,
    "fact": _fact,
    "table": _facts_of_all,
    "phrase": _phrase,
    "relation": _relation,
    "documents": _documents,
    "held_out": _held_out,
}


def _topic(grammar: Grammar, header: Line, body: list[Line]) -> Topic:
    name, _ = _named(header)
    if name in ("end", "relations"):
        message = f'"{name}" already has a meaning after `leads to` or `begins with`'
        raise WorldError(header.location, f"{message}: give the topic another name")
    topic = Topic(name, header.location)
    for line in body:
        words = line.text.split()
        if words[:2] == ["leads", "to"]:
            topic.leads_to.update(_table(line.text[len("leads to") :], line.location))
        elif words[:2] == ["comes", "after"]:
            topic.comes_after.update(_table(line.text[len("comes after") :], line.location))
        elif len(words) == 5 and words[0] == "feelings" and words[3] == "agree":
            topic.feelings = tuple(words[1:3])
            what = "how often a sentence agrees"
            topic.agree = read_number(words[-1], line.location, what, most=1)
        else:
            allowed = (
                "`leads to TOPIC, …`, `comes after TOPIC, …` or `feelings ONE TWO agree SHARE`"
            )
            message = f'expected {allowed}, not "{line.text}"; sentences belong in a stage'
            raise WorldError(line.location, message)
    _add(grammar.topics, name, topic, header.location)
    return topic


def _stage(header: Line, body: list[Line]) -> Stage:
    name, arguments = _named(header)
    given = _options(arguments, {"again"}, header.location)
    again = read_number(
        given.get("again", "0"), header.location, "how often a stage goes on", most=0.99, zero=True
    )
    patterns = [read_weighted(line) for line in body]
    if not patterns:
        raise WorldError(
            header.location, f'the stage "{name}" has no sentences: write them below it'
        )
    return Stage(name, again, patterns)
