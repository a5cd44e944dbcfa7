"""What all models share: dropout, and functions that `labkit.fast` may replace.

The lesson's code states each formula once and plainly. `@replaceable` marks the functions that
have a faster version, which is used inside `with labkit.fast.enable():`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

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


def check_rate(rate: float) -> float:
    """Return a dropout rate; refuse one that is below 0, or 1 and more."""
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate of {rate}: give a share from 0 up to, not including, 1")
    return rate


@replaceable
def drop(x: Tensor, rate: float) -> Tensor:
    """x with a random share of its elements zero, and the others larger to make up for it."""
    return F.dropout(x, rate)


class Dropout(nn.Dropout):
    """Ordinary dropout, by `drop`, so that it has a faster version."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or in training what `drop` leaves of it."""
        return drop(x, self.p) if self.training and self.p > 0 else x
