"""How an answer is judged: properties, comparison with the course's function, known mistakes.

Every function is tried on many random inputs, drawn from seeds, so two students see the same. The
reply to a wrong answer is the most helpful one that is known: the mistake that it agrees with on
all inputs; else the student's own error, in one line; else the smallest input on which it differs.
Where all values are right, the gradients have to be, too.
"""

import contextlib
import copy
import dis
import functools
import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor

from classroom.exercises.comparing import (
    changed,
    exchanged,
    kind,
    plain_numbers,
    reordered,
    same,
    shown,
    told,
    told_apart,
    unlike,
)
from classroom.exercises.limits import Outcome, OutOfTime, limited
from classroom.exercises.verdicts import Verdict
from labkit.checks import first_line, is_whole
from labkit.keeping.files import digest

NOTEBOOKS = {
    "00": "start",
    "01": "vectors",
    "02": "elmo",
    "03": "ulmfit",
    "04": "transformer",
    "05": "gpt",
    "06": "sampling",
    "07": "alignment",
    "08": "bert",
    "09": "family",
    "10": "memory",
    "11": "orders",
    "12": "costs",
    "13": "claims",
}
"""The module of this package that holds the exercises of a notebook."""
DOES_NOTHING = ("NOP", "LOAD_CONST", "LOAD_COMMON_CONSTANT", "RETURN_CONST", "RETURN_VALUE")
"""The instructions of a function whose body is `...`, from Python 3.11 to 3.15; the constant is
None."""
TRIALS = 40
"""How many inputs an answer is tried on."""
CHANGES = "your function changes its input: work on a copy"
"""The reply to an answer that does so."""


@dataclass(frozen=True)
class Function:
    """A function to write: what it must return, on which inputs it is tried, what goes wrong."""

    asks: str
    fallback: Callable[..., Any]
    """The course's own version."""
    inputs: Callable[[torch.Generator], tuple[Any, ...]]
    """Random arguments from a seeded generator."""
    mistakes: Sequence[tuple[str, Callable[..., Any]]]
    """The reply to a known mistake, and a function that makes it."""
    properties: Sequence[tuple[str, Callable[..., bool]]] = ()
    """What must be true of (result, *arguments), and the reply where it is not."""
    minutes: int = 5
    learned: str = ""
    hint: str = ""
    """Shown folded where the answer is not right; empty where the notebook has one beside it."""
    seconds: float = 10.0
    """The limit of time for all trials together."""


@dataclass(frozen=True)
class Number:
    """A number to work out. Neither it nor the mistakes can be read here: they are hashes."""

    asks: str
    key: str
    mistakes: Mapping[str, str]
    minutes: int = 3
    learned: str = ""
    hint: str = ""
    exact: bool = False
    """Whether every digit of a whole number counts, and not the first three."""
    fallback: EllipsisType = ...


Exercise = Function | Number


def between(low: int, high: int, rng: torch.Generator) -> int:
    """A random whole number from low to high - 1, for the size of an input."""
    return int(torch.randint(low, high, (), generator=rng))


def whole(*numbers: Any) -> bool:
    """Whether all of these can be used as an index: whole numbers, of Python or of numpy."""
    return all(is_whole(number) for number in numbers)


def exercise(name: str) -> Exercise:
    """The exercise of that name, such as "05.loss"."""
    notebook, _, _ = name.partition(".")
    known = exercises(notebook) if notebook in NOTEBOOKS else {}
    if name not in known:
        names = ", ".join(known or (f"{number}.…" for number in NOTEBOOKS))
        raise ValueError(f"there is no exercise {name!r}: choose {names}")
    return known[name]


def exercises(notebook: str) -> dict[str, Exercise]:
    """All exercises of a notebook, by name."""
    module = importlib.import_module(f"classroom.exercises.{NOTEBOOKS[notebook]}")
    return module.EXERCISES


# ---- what a notebook goes on with


class NotYours(Exception):  # noqa: N818
    """Raised where an answer calls the course's own version of the function that is asked for."""


_judged: list[str] = []


@contextlib.contextmanager
def while_judged(name: str) -> Iterator[None]:
    """While this exercise is judged, its lent version raises: no answer is right by calling it."""
    _judged.append(name)
    try:
        yield
    finally:
        _judged.remove(name)


@functools.cache
def lent(name: str) -> Any:
    """The course's own version, which a notebook goes on with while an answer is not right.

    Answers to other exercises may call it.
    """
    asked = exercise(name)
    if isinstance(asked, Number):
        return asked.fallback

    @functools.wraps(asked.fallback)
    def own(*given: Any, **named: Any) -> Any:
        if name in _judged:
            raise NotYours("it calls the course's own version: write it yourself")
        return asked.fallback(*given, **named)

    own.__dict__["__signature__"] = inspect.signature(asked.fallback)
    del own.__wrapped__
    return own


# ---- judging


@dataclass(frozen=True)
class Trial:
    """One input, what should come of it, what did, and how long it took."""

    arguments: tuple[Any, ...]
    known: tuple[Any, ...]
    """The copy that the course's function was given."""
    wanted: Any
    given: tuple[Any, ...]
    """The copy that the answer was given."""
    outcome: Outcome
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the answer returned what the course's function returns."""
        return self.outcome.error is None and same(self.outcome.value, self.wanted)

    @property
    def size(self) -> float:
        """How large the input is: numbers of a tensor, items of a list, a number itself."""
        return sum(_extent(argument) for argument in self.arguments)


def _extent(value: Any) -> float:
    if isinstance(value, Tensor):
        return value.numel()
    return abs(value) if isinstance(value, int | float) else len(value)


def judge(asked: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer."""
    if is_missing(answer):
        what = "write the function above" if isinstance(asked, Function) else "give the number"
        return Verdict(False, f"{what}: {asked.asks}")
    if isinstance(asked, Number):
        return _judge_number(asked, answer)
    if not callable(answer):
        return Verdict(False, f"{kind(answer)} was given: give the function itself")
    trials, left = [], asked.seconds
    for number in range(TRIALS):
        trial = _try(asked, answer, number, left)
        if isinstance(trial, Verdict):
            return trial
        trials.append(trial)
        left -= trial.seconds
    if all(trial.right for trial in trials):
        for trial in trials:
            if problem := _of_gradients(trial, left):
                return Verdict(False, problem, _inputs(asked, trial.arguments))
        return Verdict(True, f"agrees with the course's version on {TRIALS} random inputs")
    for says, wrong in asked.mistakes:
        if all(_makes(wrong, trial) for trial in trials):
            return Verdict(False, says)
    for arranged in (exchanged, reordered):
        if all(found := [arranged(trial.outcome.value, trial.wanted) for trial in trials]):
            return Verdict(False, found[0])
    return _smallest(asked, [trial for trial in trials if not trial.right])


def _try(
    asked: Function, answer: Callable[..., Any], number: int, seconds: float
) -> Trial | Verdict:
    """Try an answer on one input; a verdict where no other input could say more."""
    arguments = asked.inputs(torch.Generator().manual_seed(number))
    known, given = _copied(arguments), _copied(arguments)
    wanted = asked.fallback(*known)
    begun = time.monotonic()
    outcome = limited(lambda: answer(*given), max(seconds, 0.1))
    took = time.monotonic() - begun
    if isinstance(outcome.error, OutOfTime):
        why = f"your function had not returned after {asked.seconds:g} s: does a loop never end?"
        if took < asked.seconds / 2:
            why = f"your function is too slow: {number} of {TRIALS} inputs took {asked.seconds:g} s"
        return Verdict(False, why, _inputs(asked, arguments))
    # PyTorch itself refuses to change an input that needs gradients.
    if outcome.error and "leaf Variable that requires grad" in first_line(outcome.error):
        return Verdict(False, CHANGES, _inputs(asked, arguments))
    if outcome.error is None:
        plain = replace(outcome, value=plain_numbers(outcome.value))
        if problem := unlike(plain.value, wanted):
            why = exchanged(plain.value, wanted) or problem
            return Verdict(False, why, _inputs(asked, arguments))
        if any(changed(*pair) for pair in zip(arguments, given, strict=True)):
            return Verdict(False, CHANGES, _inputs(asked, arguments))
        for says, holds in asked.properties:
            if _lacks(holds, outcome.value, arguments):
                rows = [*_inputs(asked, arguments), ("yours", shown(outcome.value))]
                return Verdict(False, exchanged(plain.value, wanted) or says, rows)
        outcome = plain
    return Trial(arguments, known, wanted, given, outcome, took)


def _lacks(holds: Callable[..., bool], value: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a result lacks a property; where the check raises, it is left to `same`."""
    try:
        return not holds(value, *_copied(arguments))
    except Exception:
        return False


def _of_gradients(trial: Trial, seconds: float) -> str:
    """What is wrong with the gradients of an answer whose values are right; empty for nothing."""
    wanted = _gradients(trial.wanted, trial.wanted, trial.known)
    if not wanted:
        return ""
    for one, right in zip(*map(_parts, (trial.outcome.value, trial.wanted)), strict=True):
        if getattr(right, "requires_grad", False) and not one.requires_grad:
            return (
                "no gradient can flow through your result: it is cut off from the input "
                "(.item(), .detach(), argmax or no_grad?)"
            )
    outcome = limited(
        lambda: _gradients(trial.outcome.value, trial.wanted, trial.given), max(seconds, 0.1)
    )
    if outcome.error is not None:
        return f"the value is right, but its gradient stops with {told(outcome.error)}"
    if any(one.isnan().any() for one in outcome.value):
        return "the value is right, the gradient is not: it is nan"
    for one, right in zip(outcome.value, wanted, strict=True):
        # Right ways differ in rounding; what is cut off is missed by far on some input.
        room = 1e-3 * float(right.abs().max()) + 1e-5 if right.numel() else 0.0
        if not torch.allclose(one, right, 1e-3, room):
            return (
                "the value is right, the gradient is not: part of it is cut off (.detach(), "
                ".item() or no_grad?)"
            )
    return ""


def _gradients(value: Any, wanted: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    """The gradients of a result, weighted at random, for each argument that needs one.

    Those parts of a result count that should have a gradient; where none has, there is none.
    """
    parts = zip(_parts(value), _parts(wanted), strict=True)
    flow = [one for one, right in parts if isinstance(right, Tensor) and right.requires_grad]
    sources = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    if not flow or not sources:
        return []
    rng = torch.Generator().manual_seed(0)
    weighted = [(one.double() * torch.randn(one.shape, generator=rng)).sum() for one in flow]
    found = torch.autograd.grad(torch.stack(weighted).sum(), sources, allow_unused=True)
    return [
        torch.zeros_like(source) if one is None else one
        for source, one in zip(sources, found, strict=True)
    ]


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _makes(wrong: Callable[..., Any], trial: Trial) -> bool:
    """Whether a known mistake gives what the answer gave: the same value, or the same error."""
    try:
        value = wrong(*_copied(trial.arguments))
    except Exception as error:
        return type(error) is type(trial.outcome.error)
    return trial.outcome.error is None and same(trial.outcome.value, value)


def _smallest(asked: Function, wrong: Sequence[Trial]) -> Verdict:
    """The smallest input on which the answer stops or differs."""
    trial = min(wrong, key=lambda one: one.size)
    rows = _inputs(asked, trial.arguments)
    if trial.outcome.error is not None:
        return Verdict(False, f"your function stops with {told(trial.outcome.error)}", rows)
    expected, yours = told_apart(trial.wanted, trial.outcome.value)
    differs = "its shape is wrong" if all(map(_of_another_shape, wrong)) else "it differs"
    return Verdict(
        False,
        f"{differs} on {len(wrong)} of {TRIALS} inputs; this is the smallest of them",
        [*rows, ("expected", expected), ("yours", yours)],
    )


def _of_another_shape(trial: Trial) -> bool:
    shapes = [getattr(one, "shape", None) for one in (trial.outcome.value, trial.wanted)]
    return None not in shapes and shapes[0] != shapes[1]


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a if callable(a) else _copy_of(a) for a in arguments)


def _copy_of(value: Any) -> Any:
    if type(value) is Tensor and value.is_leaf and value.is_contiguous():
        # What deepcopy does, in a tenth of its time: there are hundreds of copies to an answer.
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value)


def _inputs(asked: Function, arguments: tuple[Any, ...]) -> list[tuple[str, str]]:
    names = list(inspect.signature(asked.fallback).parameters)
    return [(name, shown(value)) for name, value in zip(names, arguments, strict=True)]


def is_missing(answer: Any) -> bool:
    """Whether nothing was written yet: `...`, or a function that does nothing."""
    if answer is ... or answer is None:
        return True
    if not inspect.isfunction(answer):
        return False
    return all(step.opname == "RESUME" or (step.opname in DOES_NOTHING and step.argval is None)
               for step in dis.get_instructions(answer))  # fmt: skip


# ---- numbers


def sealed(value: float) -> str:
    """The hash of a number, of which its first three digits count."""
    return hashed(f"{float(f'{value:.3g}'):.6g}")


def hashed(text: str) -> str:
    """The hash of an answer, so that it cannot be read off the course's code."""
    return digest(f"labkit {text}".encode())[:16]


def _judge_number(asked: Number, answer: Any) -> Verdict:
    try:
        value = float(answer)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return Verdict(False, f"{kind(answer)} was given: a number is asked for")
    keys = {sealed(value * (1 + nudge)) for nudge in (0, 5e-4, -5e-4)}
    whole = {hashed(f"{value:.0f}")} if asked.exact else set()
    if asked.key in (whole or keys):
        return Verdict(True, shown(answer))
    for key, says in asked.mistakes.items():
        if key in whole | keys:
            return Verdict(False, f"{shown(answer)}: {says}")
    if not asked.exact and sealed(value / 100) == asked.key:
        return Verdict(False, f"{shown(answer)} is 100 times too large: for 50 % give 0.5")
    return Verdict(False, f"{shown(answer)} is not right: {asked.asks}")
