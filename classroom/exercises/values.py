"""The check of a value whose right answer stands in the notebook: the form of the older lessons."""

import textwrap
from collections.abc import Mapping
from typing import Any

from classroom.exercises.verdicts import NotYet


def check_value(
    name: str,
    answer: Any,
    right: Any,
    mistakes: Mapping[Any, str] | None = None,
    *,
    tolerance: float = 1e-3,
) -> None:
    """Say that an answer is right, or raise with the likely mistake behind it.

    `mistakes` maps wrong answers to what probably led there. Numbers, arrays and tensors are
    compared up to the tolerance, relative to the right one; all others must be equal.
    """
    if answer is ...:
        raise NotYet(f"{name} is still `...`: write your answer where the three dots are")
    problem = _unlike(answer, right)
    if problem:
        raise NotYet(f"{name} is {problem}")
    if _same(answer, right, tolerance):
        print(f"{name}: right")
        return
    for wrong, why in (mistakes or {}).items():
        if not _unlike(answer, wrong) and _same(answer, wrong, tolerance):
            raise NotYet(f"{name} is {_short(answer)}: {why}")
    raise NotYet(f"{name} is {_short(answer)}, which is not right")


def _unlike(answer: Any, right: Any) -> str:
    """What kind of thing was given, where another kind is wanted."""
    import numpy as np

    if isinstance(right, str | bool | set | frozenset):
        wanted = type(right)
        fits = isinstance(answer, wanted) or (wanted is frozenset and isinstance(answer, set))
        return "" if fits else f"a {type(answer).__name__}: a {wanted.__name__} is asked for"
    try:
        given, asked = np.asarray(answer), np.asarray(right)
    except (ValueError, TypeError, RuntimeError):
        return f"a {type(answer).__name__}, which is no array"
    if given.dtype == object and asked.dtype != object:
        return f"a {type(answer).__name__}: {_kind(asked)} is asked for"
    if given.dtype.kind in "US" and asked.dtype.kind not in "US":
        return f"a text: {_kind(asked)} is asked for"
    if given.shape != asked.shape:
        return f"of shape {given.shape}: {asked.shape} is asked for"
    return ""


def _kind(asked: Any) -> str:
    return "a number" if asked.ndim == 0 else f"an array of shape {asked.shape}"


def _same(answer: Any, right: Any, tolerance: float) -> bool:
    import numpy as np

    if isinstance(right, str | bool | set | frozenset):
        return bool(answer == right)
    given, asked = np.asarray(answer), np.asarray(right)
    if asked.dtype.kind in "fiucb" and given.dtype.kind in "fiucb":
        return bool(np.allclose(given, asked, rtol=tolerance, atol=1e-9))
    return bool(np.array_equal(given, asked))


def _short(answer: Any) -> str:
    return textwrap.shorten(repr(answer), 60, placeholder=" …")
