"""Checks of what a caller gives, with messages in one form: what was given, what is allowed."""

import dataclasses
import difflib
import math
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

LARGEST_SIZE = 10**7
"""The largest size of a model or batch: ten million words, positions or features."""
MOST_LAYERS = 10_000
AT_LEAST_ONE = frozenset({"width", "heads", "inner", "embedding", "layers", "channels", "kernels",
                          "cutoffs", "letter_width"})  # fmt: skip
"""The sizes of a config that cannot be 0."""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known word that is nearest to one that is not known, if any is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def shown(given: Any, most: int = 60) -> str:
    """Return what was given as a message shows it: in quotes if it is text, and not too long."""
    return clipped(repr(given), most)


def clipped(text: str, most: int) -> str:
    """Return a text, or its beginning and how long it is if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def counted(count: int, thing: str) -> str:
    """Return a number and what it counts, in the plural unless it is 1."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if there is no message."""
    try:
        said = str(error)
    except Exception:  # a class of errors that somebody wrote may not be able to
        said = ""
    return (said.strip().splitlines() or [type(error).__name__])[0]


def in_a_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    kind, said = type(error).__name__, first_line(error)
    return kind if said == kind else f"{kind}: {said}"


def require(condition: bool, message: str) -> None:
    """Refuse what does not meet a condition."""
    if not condition:
        raise ValueError(message)


def is_whole(given: Any) -> bool:
    """Whether this is a whole number, of Python or of numpy."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def is_number(given: Any) -> bool:
    """Whether this is a finite number, of Python or of numpy."""
    is_real = isinstance(given, Real) and not isinstance(given, bool)
    return is_real and bool(-math.inf < given < math.inf)


def check_whole(name: str, given: Any, least: int = 0, most: int = LARGEST_SIZE) -> None:
    """Refuse anything but a whole number from `least` to `most`."""
    if not is_whole(given) or not least <= given <= most:
        raise ValueError(f"{name} is {shown(given)}: give a whole number from {least} to {most:,}")


def check_type(name: str, given: Any, kind: type, advice: str) -> None:
    """Refuse an object of another type, and a class where one of its objects is needed."""
    if not isinstance(given, kind):
        is_class = isinstance(given, type)
        said = f"the class {given.__name__}" if is_class else f"of type {type(given).__name__}"
        raise TypeError(f"{name} is {said}: give {advice}")


def check_choice(name: str, given: Any, *known: str) -> None:
    """Refuse anything but one of the known words."""
    if given not in known:
        *others, last = known
        raise ValueError(f"{name} is {shown(given)}: choose {', '.join(others)} or {last}")


def check_seed(seed: Any) -> None:
    """Refuse anything but a seed of numpy's generators: a whole number from 0."""
    if not is_whole(seed) or seed < 0:
        raise ValueError(f"seed is {shown(seed)}: give a whole number from 0")


def check_share(name: str, share: Any) -> None:
    """Refuse anything but a share of a whole."""
    if not isinstance(share, Real) or not 0 <= float(share) <= 1:
        raise ValueError(f"{name} is {shown(share)}: give a share between 0 and 1, such as 0.15")


def check_words(words: Any) -> None:
    """Refuse anything but a list of words, above all a text that was not split into them."""
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"a text is {shown(words)}: give a list of words, such as text.split()")


def check_several(name: str, given: Any) -> None:
    """Refuse a single text where a list is expected: its letters would count as the texts."""
    if isinstance(given, str | bytes):
        raise TypeError(f"the {name} are {shown(given)}: give a list of them")


def check_above_zero(**given: Any) -> None:
    """Refuse anything but finite numbers above 0."""
    for name, number in given.items():
        if not is_number(number) or not number > 0:
            raise ValueError(f"{name} is {shown(number)}: give a finite number above 0")


def check_not_negative(**given: Any) -> None:
    """Refuse anything but a finite number of at least 0."""
    for name, number in given.items():
        of_python = isinstance(number, int | float)  # as a float64 of numpy is
        if not of_python or not is_number(number) or number < 0:
            raise ValueError(f"{name} is {number!r}: give a number of at least 0")


HALF_A_PAIR = (
    "holds half of a surrogate pair, which is no character: clean it with "
    "text.encode('utf-8', 'replace').decode()"
)
"""The message about a text that cannot be written to a file."""


def has_half_a_pair(text: str) -> bool:
    """Whether a text holds half of a surrogate pair."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def check_config(config: Any) -> None:
    """Refuse a config whose sizes are not whole numbers in range, or whose rates are not shares.

    Only fields of the types `int`, `float` and tuple, with or without None, are checked.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        given = getattr(config, field.name)
        hint = hints[field.name]
        several = get_origin(hint) in (Union, UnionType)
        kinds = set(get_args(hint)) if several else {hint}
        if given is None and type(None) in kinds:
            continue
        kinds.discard(type(None))
        of_python = isinstance(given, int | float)
        if isinstance(given, Real) and not of_python:
            raise ValueError(f"{field.name} is a {type(given).__name__}: give a Python number")
        if kinds == {float}:
            _check_rate(field.name, given)
        elif len(kinds) == 1:
            least = 1 if field.name in AT_LEAST_ONE else 0
            most = MOST_LAYERS if field.name == "layers" else LARGEST_SIZE
            for name, size in _sizes(field.name, given, *kinds):
                check_whole(name, size, least, most)


def _sizes(name: str, given: Any, kind: Any) -> Iterator[tuple[str, Any]]:
    """The sizes of a field and their names; those in a tuple are named by their index."""
    if kind is int:
        yield name, given
    elif get_origin(kind) is tuple:
        is_several, kinds = isinstance(given, tuple | list), get_args(kind)
        if is_several and kinds[-1:] == (...,):
            kinds = kinds[:1] * len(given)
        require(is_several and len(given) == len(kinds), f"{name} is {shown(given)}: give a {kind}")
        for i, each in enumerate(given):
            yield from _sizes(f"{name}[{i}]", each, kinds[i])


def _check_rate(name: str, given: Any) -> None:
    """Refuse a field of a config that is not a number, or is out of range for its name."""
    if not is_number(given):
        raise ValueError(f"{name} is {shown(given)}: give a number")
    if name == "clip" and not given > 0:
        raise ValueError(f"clip is {shown(given)}: give a number above 0, or None")
    if ("dropout" in name or name == "eps") and not 0 <= given < 1:
        raise ValueError(f"{name} is {shown(given)}: give a number from 0 up to, not including, 1")
