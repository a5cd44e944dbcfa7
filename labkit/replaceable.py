"""Functions that `labkit.fast` may replace by faster ones that compute the same.

The lesson's code states each formula once and plainly. `@replaceable` marks the functions that
have a faster version, which is used inside `with labkit.fast.enable():`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

replacements: dict[str, Callable[..., Any]] = {}
"""The faster versions in use now, by the full name of the function that each replaces."""


def replaceable(plain: Callable[P, R]) -> Callable[P, R]:
    """Let a function be replaced. A faster version returns None where it has no advantage."""
    name = f"{plain.__module__}.{plain.__qualname__}"

    @wraps(plain)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        faster = replacements.get(name)
        found = None if faster is None else faster(*args, **kwargs)
        return plain(*args, **kwargs) if found is None else found

    return call
