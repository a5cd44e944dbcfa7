"""Read one sentence of a language: its words, slots, verbs, choices and variables.

    {fruit} {fruit.s} {a fruit}   a word of a list, its plural, with its article
    {hero} {hero.he}              what is drawn once a document, and a word that goes with it
    {when}                        a phrase: one of its patterns, put in here
    {village.town}                a cell of a table; its row is a variable of the sentence
    {village!asked.name}          only rows of which the column `asked` says yes
    [walk] [walk+] [{move}]       a verb in the document's tense, singular and plural
    (a|b|) (3 a|b)                one of these, with weights
    <a|b>                         tied: the whole sentence takes one side
    <x: a|b>                      tied: the same option wherever x stands in this sentence
    <x+y: a|b>                    the option (x + y) modulo their number
    <x~0.9: a|b>                  this option with chance 0.9, else one of the others
    <x=9,1>                       draw x: 0 nine times as often as 1; nothing is said
    <g=x+y>                       let g be (x + y) modulo 2, so that x and y may be forgotten
    bank~river                    a word in one of its senses

A variable of a phrase is its own, unless its name is a capital letter.
"""

import math
import re
import unicodedata

from labkit.world.grammar import (
    Choice,
    Draw,
    Item,
    Let,
    Line,
    Location,
    Pattern,
    Slot,
    Tied,
    Token,
    Verb,
    WorldError,
    walk,
)

# A bracket inside a bracket inside …: no sentence that a person reads goes deeper.
DEEPEST = 20
_VARIABLES = r"[a-zA-Z]\w*(?:\+[a-zA-Z]\w*)*"
_PIECES = re.compile(
    r"\{[^{}]*\}|\[[^\]]*\]"
    rf"|<[a-zA-Z]\w*=(?:[\d.,]+|{_VARIABLES})>|<{_VARIABLES}(?:~[\d.]+)?:"
    r"|[()|<>]|[^\s(){}|<>\[\]]+|[{}\[\]]"
)

# What `Tokenizer.words` keeps whole: floors count a word of a language as one token.
_WHOLE = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]", re.ASCII)


# ── numbers, words ───────────────────────────────────────────────────────────────────────────────


# Sums of much larger weights overflow; beside much smaller ones, a topic that leads to itself seems
# never to end, because of rounding.
LEAST, MOST = 1e-6, 1e6


def read_number(
    text: str, location: Location, what: str, most: float = MOST, zero: bool = False
) -> float:
    """Read a number that sums can be made of, or say what is wrong with it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (LEAST <= value <= most or (zero and value == 0)):
        limits = f"{'0, or ' if zero else ''}at least {LEAST:.6f} and at most {most:.7g}"
        raise WorldError(location, f'{what} must be a number, {limits}, not "{text}"')
    return value


def read_token(text: str, location: Location, origin: bool = False) -> Token:
    """Read `word` or `word~sense`; with `origin` also the `word@origin` of a translation."""
    word, mark, sense = text.partition("~")
    if not word or (mark and not sense) or re.search(r"[A-Z{}()<>|~\[\]\s]", word + sense):
        raise WorldError(location, f'expected a word in small letters, or word~sense, not "{text}"')
    parts = word.split("@") if origin and word != "@" else [word]
    if not all(_WHOLE.fullmatch("".join(map(_stand_in, part))) for part in parts):
        raise WorldError(
            location,
            f'"{word}" would be split into several tokens: write letters and digits, with "\'" or '
            '"-" only inside a word, and any other sign as a word of its own',
        )
    return Token(word, sense or None)


def _stand_in(sign: str) -> str:
    """Return "a" for what belongs to a word; for the tokenizers, unlike for `re`, accents do."""
    kind = unicodedata.category(sign)
    return "a" if kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") else sign


# ── a sentence ───────────────────────────────────────────────────────────────────────────────────


def read_weighted(line: Line, whole: bool = True) -> Pattern:
    """Read `2 the dog ran .`: a weight, if it begins with one, and a pattern."""
    first, _, rest = line.text.partition(" ")
    if not re.fullmatch(r"[-+]?[\d.]+", first) or not rest.strip():
        pattern = read_pattern(line.text, 1.0, line.location, whole)
    else:
        weight = read_number(first, line.location, "the weight of a sentence")
        pattern = read_pattern(rest.strip(), weight, line.location, whole)
    for item in walk(pattern.items):
        if isinstance(item, Token):
            read_token(item.word, line.location)  # only the other language has `word@origin`
    return pattern


def read_pattern(text: str, weight: float, location: Location, whole: bool) -> Pattern:
    """Read one sentence with its slots and choices; unless it is a phrase it ends with ` .`."""
    pieces = _PIECES.findall(text)
    if whole and pieces[-1:] != ["."]:
        raise WorldError(location, f'a sentence ends with " .", not with "{text[-12:]}"')
    items, rest = _sequence(pieces[:-1] if whole else pieces, location, "", 0)
    assert not rest
    if whole and not items:
        raise WorldError(location, "expected words before the full stop")
    tied = (item for item in walk(items) if isinstance(item, Tied))
    sides = {len(item.options) for item in tied if item.variables == ("",)}
    if len(sides) > 1:
        raise WorldError(
            location, f"all <a|b> of a sentence have equally many sides, not {sorted(sides)}"
        )
    return Pattern(items, weight, location)


def _sequence(
    pieces: list[str], location: Location, closing: str, depth: int
) -> tuple[tuple[Item, ...], list[str]]:
    """Read items up to `|` or the closing bracket; return them and the rest, that mark first."""
    if depth > DEEPEST:
        raise WorldError(location, f"brackets are nested more than {DEEPEST} deep")
    items: list[Item] = []
    while pieces:
        piece, *rest = pieces
        if piece in ("|", ")", ">"):
            if not closing or piece not in ("|", closing):
                raise WorldError(location, f'"{piece}" without its opening bracket')
            return tuple(items), pieces
        if piece == "(" or (piece[0] == "<" and piece[-1] in "<:"):
            choice, rest = _options(piece, rest, location, depth + 1)
            items.append(choice)
        elif piece[0] == "<":
            items.append(_variable(piece, location))
        elif piece[0] == "{":
            items.append(_slot(piece, location))
        elif piece[0] == "[":
            items.append(_verb(piece, location))
        else:
            items.append(read_token(piece, location, origin=True))
        pieces = rest
    if closing:
        raise WorldError(location, f'a bracket is not closed: expected "{closing}"')
    return tuple(items), []


def _options(
    mark: str, pieces: list[str], location: Location, depth: int
) -> tuple[Choice | Tied, list[str]]:
    """Read the options behind `(`, `<` or `<x:`, up to the closing bracket."""
    options, weights, end = [], [], "|"
    while end == "|":
        weight = 1.0
        if mark == "(" and pieces and re.fullmatch(r"[\d.]*\d[\d.]*", pieces[0]):
            weight = read_number(pieces[0], location, "the weight of an option")
            pieces = pieces[1:]
        option, pieces = _sequence(pieces, location, ")" if mark == "(" else ">", depth)
        options.append(option)
        weights.append(weight)
        end, *pieces = pieces
    if mark == "(":
        return Choice(tuple(options), tuple(weights)), pieces
    names, _, sure = mark[1:-1].partition("~") if mark.endswith(":") else ("", "", "")
    chance = read_number(sure or "1", location, "how sure a tied option is", most=1)
    return Tied(tuple(options), tuple(names.split("+")), chance), pieces


def _variable(piece: str, location: Location) -> Draw | Let:
    """Read `<x=9,1>` or `<g=x+y>`."""
    name, _, said = piece[1:-1].partition("=")
    if said[0].isalpha():
        return Let(name, tuple(said.split("+")), location)
    what = f'a weight of "{name}"'
    weights = tuple(read_number(text, location, what, zero=True) for text in said.split(","))
    if not sum(weights):
        raise WorldError(location, f'one of the weights of "{name}" must be more than 0')
    return Draw(name, weights)


def _verb(piece: str, location: Location) -> Verb:
    """Read `[walk]`, `[walk+]`, `[{walk}]` or `[{walk}+]`."""
    match = re.fullmatch(r"\[(\{)?([a-z][a-z0-9_-]*)(?(1)\})(\+?)\]", piece)
    if not match:
        raise WorldError(location, f"expected `[verb]` or `[{{list}}]`, not `{piece}`")
    return Verb(match[2], match[1] is not None, match[3] == "+", location)


def _slot(piece: str, location: Location) -> Slot:
    words = piece.strip("{}").split()
    article = words[:1] == ["a"] and len(words) == 2
    if len(words) != 1 + article or not piece.endswith("}"):
        raise WorldError(location, f"expected `{{list}}` or `{{a list}}`, not `{piece}`")
    return Slot(words[-1], article, location)
