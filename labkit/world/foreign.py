"""The target language of the translation as a language of its own, in its own letters.

Another order of words, agreement in gender, an optional particle, and no word in common: what a
model of the course's language meets when it is transferred.  The file of the translation is
rewritten as a language's file, so every probability is exact here, too. What may be left out is
drawn slot by slot, so some of its sentences translate none of the source language.
"""

import numpy as np

from labkit.world.grammar import Choice, Item, Slot, Tied, Token
from labkit.world.lexicon import GENDERS, Lexicon, Words, list_of
from labkit.world.translation import Translator, load_translator


def foreign_text(translator: Translator | None = None) -> str:
    """The target language as the text of a language's file."""
    translator = translator or load_translator()
    lines = ["documents", "    story 1 begins with talk"]
    for name, rows in _lists(translator.lexicon).items():
        lines += [f"words {name}", *(f"    {' '.join(_spelled(translator, r))}" for r in rows)]
    lines += ["topic talk", "    leads to end", "stage one again 0.9"]
    for weight, source, target in translator.lexicon.patterns:
        chances, heads = _present(source), _heads(target)
        draws = [_draw(translator.lexicon, head) for head in heads]
        said = [_say(translator, item, chances, heads) for item in target]
        lines.append(f"    {_written(weight)} {' '.join([*draws, *said])} .")
    return "\n".join(lines)


def _spelled(translator: Translator, row: tuple[Words, float]) -> list[str]:
    words, weight = row
    return [*translator.in_letters(words), str(weight)]


def _lists(lexicon: Lexicon) -> dict[str, list[tuple[Words, float]]]:
    """Every list: all of it, its words of one gender, or with the endings of one gender."""
    lists: dict[str, list[tuple[Words, float]]] = {}
    for name, fillers in lexicon.lists.items():
        ways = [way for filler in fillers for way in filler.ways]
        lists[name] = [(way.words, way.chance) for way in ways]
        for n, gender in enumerate(GENDERS):
            if name in lexicon.endings:
                ending = lexicon.endings[name][n]
                rows = [(way.with_ending(ending), way.chance) for way in ways]
            else:
                rows = [(way.words, way.chance) for way in ways if way.gender == gender]
            if rows:
                lists[f"{name}_{gender}"] = rows
    return lists


def _present(items: tuple[Item, ...]) -> dict[str, float]:
    """How often each slot of the source is said, when it may be left out."""
    return {
        item.name: weight / sum(choice.weights)
        for choice in items
        if isinstance(choice, Choice)
        for weight, option in zip(choice.weights, choice.options, strict=True)
        for item in option
        if isinstance(item, Slot)
    }


def _heads(items: tuple[Item, ...]) -> list[str]:
    """The nouns whose gender shows in other words."""
    tied = [item.variables[0] for item in items if isinstance(item, Tied)]
    slots = [item.name for item in items if isinstance(item, Slot)]
    agreeing = [name.partition("^")[2] for name in slots if "^" in name]
    return list(dict.fromkeys(tied + agreeing))


def _draw(lexicon: Lexicon, head: str) -> str:
    """Draw the gender of a noun."""
    ways = [way for filler in lexicon.lists[list_of(head)] for way in filler.ways]
    shares = (sum(way.chance for way in ways if way.gender == gender) for gender in GENDERS)
    return f"<{head}={','.join(map(_written, shares))}>"


def _written(number: float) -> str:
    """All digits of a number, without an exponent, which would be read as a word."""
    return np.format_float_positional(number, trim="0")


def _say(translator: Translator, item: Item, chances: dict[str, float], heads: list[str]) -> str:
    if isinstance(item, Token):
        [word] = translator.in_letters([item.word.partition("@")[0]])
        return word
    if isinstance(item, Choice | Tied):
        options = [" ".join(_say(translator, i, chances, heads) for i in o) for o in item.options]
        if isinstance(item, Tied):
            return f"<{item.variables[0]}: {'|'.join(options)}>"
        weighted = zip(item.weights, options, strict=True)
        return f"({'|'.join(f'{_written(weight)} {option}' for weight, option in weighted)})"
    assert isinstance(item, Slot)
    name, _, head = item.name.partition("^")
    listed = list_of(name)
    shows = head or (name if name in heads else "")
    said = f"<{shows}: {{{listed}_m}}|{{{listed}_f}}>" if shows else f"{{{listed}}}"
    share = chances.get(name, 1.0)
    return said if share == 1 else f"({_written(share)} {said}|{_written(1 - share)})"
