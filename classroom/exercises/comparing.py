"""How a result is compared with the course's, and how values and errors are shown."""

import math
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from labkit.checks import in_a_line
from labkit.keeping.paths import PACKAGE

LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
OWN = [str(path) for path in (Path(__file__).parents[1], PACKAGE, Path(torch.__file__).parent)]
NOT_THEIRS = ("<frozen", *OWN, *LIBRARIES)
"""Files whose lines are not a student's: the course, its package, and what is installed."""
SPOKEN_WITH_AN = ("a", "e", "i", "o", "u", "ndarray")
RETURNS = "your function returns"
LONGEST = 160
"""Characters of a value that is shown."""


def same(a: Any, b: Any) -> bool:
    """Whether two results agree, up to rounding; what cannot be compared is not the same."""
    try:
        return _same(a, b)
    except Exception:  # such as an array beside a number, which is neither true nor false
        return False


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape:
            return False
        if a.dtype == b.dtype and torch.equal(a, b):
            return True
        exact = a.dtype == torch.bool or b.dtype == torch.bool
        a, b = a.detach().double(), b.detach().double()
        close = torch.equal(a, b) if exact else torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
        return bool(close)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return False
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-8) or (a != a and b != b)
    # The course's class compares: one of a student's could say that it equals anything.
    return a is b or b.__eq__(a) is True


def changed(before: Any, after: Any) -> bool:
    """Whether an input was changed, or cut off from its gradients."""
    flows = [getattr(one, "requires_grad", False) for one in (before, after)]
    return flows[0] != flows[1] or not same(before, after)


def unlike(given: Any, wanted: Any, returns: str = RETURNS) -> str:
    """Why two results cannot be compared; empty when they can."""
    if given is None:
        return f"{returns} None" + ": is `return` missing?" * (returns == RETURNS)
    if isinstance(wanted, tuple) and isinstance(given, list | tuple):
        if len(given) != len(wanted):
            return f"{returns} {len(given)} values, not {len(wanted)}"
        problems = (
            unlike(*pair, f"as value {number} of {len(wanted)}, {RETURNS}")
            for number, pair in enumerate(zip(given, wanted, strict=True), start=1)
        )
        return next(filter(None, problems), "")
    if not isinstance(wanted, Tensor):
        number = isinstance(wanted, int | float) and isinstance(given, int | float)
        rows = isinstance(wanted, list) and isinstance(given, tuple)
        if isinstance(given, list | tuple) and any(isinstance(one, Tensor) for one in given):
            return f"{returns} {kind(given)} of tensors: give Python's numbers (.tolist())"
        fits = number or rows or isinstance(given, type(wanted))
        return "" if fits else f"{returns} {kind(given)}, not {kind(wanted)}"
    if type(given).__module__ == "torch.return_types" and hasattr(given, "values"):
        part = "values" if wanted.is_floating_point() else "indices"
        return f"{returns} values and indices: take .{part}"
    if not isinstance(given, Tensor):
        return f"{returns} {kind(given)}, not a tensor"
    if type(given) not in (Tensor, Parameter):  # a class of its own can say that it equals anything
        return f"{returns} {kind(given)}: give a plain tensor (torch.Tensor)"
    if given.layout != torch.strided:
        return f"{returns} a sparse tensor: give a dense one (.to_dense())"
    if given.is_complex() and not wanted.is_complex():
        return f"{returns} {given.dtype}: give real numbers"
    if wanted.dtype == torch.bool and given.dtype != torch.bool:
        return f"{returns} {given.dtype}: give True and False (dtype=torch.bool)"
    if not wanted.is_floating_point() and given.is_floating_point():
        return f"{returns} {given.dtype}: give whole numbers (dtype=torch.long)"
    return ""


def exchanged(value: Any, wanted: Any) -> str:
    """Whether a pair is right the other way round, which explains whatever else is wrong."""
    pairs = isinstance(wanted, tuple) and len(wanted) == 2 and isinstance(value, list | tuple)
    if pairs and same(value[::-1], wanted) and not same(value, wanted):
        return "the two are exchanged: return them in the order that the task gives"
    return ""


def reordered(value: Any, wanted: Any) -> str:
    """Whether a list has the right items in another order."""
    if not isinstance(wanted, list) or not isinstance(value, list | tuple):
        return ""
    if sorted(map(repr, value)) != sorted(map(repr, wanted)):
        return ""
    return "the items are right, but not their order: return them in the order that the task gives"


def plain_numbers(value: Any) -> Any:
    """A result with Python's numbers instead of numpy's."""
    if type(value) in (list, tuple):
        return type(value)(map(plain_numbers, value))
    return value.item() if isinstance(value, np.generic) else value


# ---- words


def told(error: BaseException) -> str:
    """An error of the student's code in one line, with the line of code that raised it."""
    said = in_a_line(error)
    if isinstance(error, SyntaxError) and error.text:  # raised by whoever reads the line
        return f"{said} (line {error.lineno}: {error.text.strip()})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if one.line and not one.filename.startswith(NOT_THEIRS)]
    if not own:
        return said
    return f"{said} (line {own[-1].lineno}: {own[-1].line})"


def told_apart(wanted: Any, given: Any) -> tuple[str, str]:
    """Two results as a table shows them, with enough digits to differ.

    A large tensor is not shown, only its value at the first position where the two differ.
    """
    for digits in (3, 6, 9):
        both = shown(wanted, digits), shown(given, digits)
        if both[0] != both[1]:
            return both
    if isinstance(wanted, Tensor) and isinstance(given, Tensor) and wanted.shape == given.shape:
        apart = ~torch.isclose(wanted.double(), given.double(), 1e-4, 1e-5, equal_nan=True)
        for at in apart.nonzero()[:1].tolist():
            values = [float(one[tuple(at)]) for one in (wanted, given)]
            return f"{both[0]}; {values[0]:.6g} at {at}", f"{both[1]}; {values[1]:.6g} at {at}"
    return both


def shown(value: Any, digits: int = 3) -> str:
    """A value as a table shows it; the numbers of tensors are rounded."""
    if isinstance(value, Tensor):
        shape = " × ".join(map(str, value.shape)) or "one number"
        if value.numel() > 36:
            return f"{shape}, {value.dtype}"
        rounded = value.detach()
        if value.is_floating_point():
            rounded = rounded.double().round(decimals=digits)
        lines = ",\n ".join(map(str, rounded.tolist())) if value.dim() > 1 else ""
        return f"{shape}: " + (f"[{lines}]" if lines else str(rounded.tolist()))
    if isinstance(value, list | tuple) and any(isinstance(one, Tensor) for one in value):
        return ";\n".join(shown(one, digits) for one in value)
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def kind(value: Any) -> str:
    """The type of a value with its article, such as "a list"."""
    name = type(value).__name__
    return f"{'an' if name.lower().startswith(SPOKEN_WITH_AN) else 'a'} {name}"
