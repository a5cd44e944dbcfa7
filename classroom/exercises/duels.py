"""Duels: a student's test against sound versions and versions with bugs; and from symptom to bug.

A player is a function that a course or a library would have: an attention, a loss, a training loop.
A test must accept every sound version: one false alarm ends the round. What it finds is shown as a
picture of bugs by assertions, with the project in which each bug lived; what survives gives a hint.
"""

import importlib
import linecache
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from classroom.exercises.checking import is_missing
from classroom.exercises.comparing import told
from classroom.exercises.limits import OutOfTime, limited
from classroom.exercises.verdicts import Verdict

TOPICS = (
    "attention", "masking", "objectives", "streams", "sampling", "memory", "training",
    "preferences",
)  # fmt: skip
"""The modules of `classroom.exercises.bugs`: each has a TOPIC for duels and a SYMPTOM."""
SECONDS = 10.0
"""For one call of a student's test."""
TRIES = 3
"""How many inputs a test gets for each player: with a single one, a bug may not show."""

Test = Callable[..., Any]


@dataclass(frozen=True)
class Honest:
    """A player that a test must accept."""

    name: str
    player: Any


@dataclass(frozen=True)
class Bug:
    """A player that a test must find."""

    name: str
    player: Any
    where: str
    """The project in which the bug lived."""
    hint: str
    """What to try, for a test that does not find it."""


@dataclass(frozen=True)
class Topic:
    """What is played: the student's test is called with a player and with some inputs."""

    asks: str
    honest: Sequence[Honest]
    bugs: Sequence[Bug]
    arguments: Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Said:
    """The verdict of a test on one player."""

    alarm: bool
    by: str = ""
    """The assertion that failed, or the name of the test."""
    line: int = 0
    stopped: str = ""
    """What went wrong in the test itself: it stops with an error, or never ends."""
    nothing: bool = False
    """Whether it returned None, as a test without `return` does."""


def topic_of(name: str) -> Topic:
    """The topic of that name."""
    return _module(name, "duel").TOPIC


def symptom_of(name: str) -> "Symptom":
    """The symptom of that name."""
    return _module(name, "symptom").SYMPTOM


def _module(name: str, what: str) -> Any:
    if name not in TOPICS:
        raise ValueError(f"there is no {what} {name!r}: choose {', '.join(TOPICS)}")
    return importlib.import_module(f"classroom.exercises.bugs.{name}")


def play(topic: Topic, *tests: Test) -> Verdict:
    """Play tests against all players, in a random order."""
    if not tests or any(is_missing(test) for test in tests):
        return Verdict(False, f"write the test above: {topic.asks}")
    players: list[Honest | Bug] = [*topic.honest, *topic.bugs]
    said: dict[str, list[Said]] = {}
    for player in random.sample(players, len(players)):
        said[player.name] = [_ask(test, player, topic.arguments) for test in tests]
        stopped = [one.stopped for one in said[player.name] if one.stopped]
        if stopped:
            return Verdict(False, f"your test {stopped[0]}")
    for honest in topic.honest:
        for one in said[honest.name]:
            if one.alarm:
                return _false_alarm(honest, one)
    missed = [bug for bug in topic.bugs if not any(one.alarm for one in said[bug.name])]
    found, of = len(topic.bugs) - len(missed), len(topic.bugs)
    why = f"no false alarm on {len(topic.honest)} sound versions, and {found} of {of} bugs found"
    if all(one.nothing for some in said.values() for one in some):
        why += ". It returned None each time: without assertions, a test needs `return`"
    if missed:
        why += f". {missed[0].hint}"
    return Verdict(not missed, why, _picture(topic.bugs, said), header=True)


def _picture(bugs: Sequence[Bug], said: dict[str, list[Said]]) -> list[tuple[str, ...]]:
    """Bugs by assertions: a row for each bug, and a column for each assertion that found one."""
    alarms = [one for bug in bugs for one in said[bug.name] if one.alarm]
    lines = {one.by: one.line for one in alarms}
    columns = sorted(lines, key=lines.__getitem__)
    rows = [("bug", *(columns or ["your test"]), "where it lived")]
    for bug in bugs:
        by = {one.by for one in said[bug.name] if one.alarm}
        if by:
            marks = ["✓" if column in by else "" for column in columns]
            rows.append((bug.name, *marks, bug.where))
        else:  # the name of a bug that survives would be the answer
            rows.append(("a bug that survives", "→ missed", *[""] * (len(columns) - 1), "?"))
    return rows


def _false_alarm(player: Honest, said: Said) -> Verdict:
    return Verdict(
        False, f"a false alarm ({said.by}): your test accuses {player.name}. The round is over, "
        "since nobody trusts a test that gives false alarms"
    )  # fmt: skip


def _ask(test: Test, player: Honest | Bug, arguments: Callable[[], tuple[Any, ...]]) -> Said:
    """Run a test on a player, with other inputs each time, until it accuses the player or fails."""
    for _ in range(TRIES):
        said = _ask_once(test, player, arguments())
        if said.alarm or said.stopped:
            break
    return said


def _ask_once(test: Test, player: Honest | Bug, arguments: tuple[Any, ...]) -> Said:
    """Run a test: it finds a bug by returning something true, or by an assertion that fails."""
    outcome = limited(lambda: test(player.player, *arguments), SECONDS)
    error = outcome.error
    name = getattr(test, "__name__", "your test")
    if error is None:
        try:
            return Said(bool(outcome.value), name, nothing=outcome.value is None)
        except (RuntimeError, ValueError) as problem:
            return Said(False, stopped=f"stops with {told(problem)}: return True or False")
    if isinstance(error, AssertionError):
        frames = traceback.extract_tb(error.__traceback__)
        asserted = [(linecache.getline(frame.filename, line).strip(), line)
                    for frame in frames if (line := frame.lineno)]  # fmt: skip
        own = [(code, line) for code, line in asserted if code.startswith("assert")]
        return Said(True, *(own[-1] if own else (name,)))
    if isinstance(error, OutOfTime):
        why = f"had not returned after {SECONDS:g} s: does a loop never end?"
        return Said(False, stopped=why)
    return Said(False, stopped=f"stops with {told(error)}")


# ---- from the symptom to the bug ----------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """The symptom of a bug: a sentence, and a curve that was measured."""

    says: str
    curve: Sequence[float]
    along: str
    """What the curve runs along."""
    floor: float | None = None
    """A value to compare the curve with."""
    floor_is: str = "lowest possible"


@dataclass(frozen=True)
class Symptom:
    """A symptom, and its possible causes."""

    measure: Callable[[], Seen]
    cause: str
    others: Mapping[str, str]
    """Other bugs, and the symptom that each would have instead."""

    @property
    def choices(self) -> list[str]:
        """The cause and the other bugs, in an order that reveals nothing."""
        return sorted([self.cause, *self.others])

    def verdict(self, answer: Any) -> Verdict:
        """The verdict on an answer; without one, the symptom and the choices."""
        if answer is ...:
            seen = self.measure()
            rows = [(f"{number}", choice) for number, choice in enumerate(self.choices, start=1)]
            why = f"{seen.says} What is the cause? Give one of these"
            return Verdict(False, why, rows, picture=drawn(seen))
        if not isinstance(answer, str) or answer not in self.choices:
            return Verdict(False, f"{answer!r} is not one of the choices: copy one of them")
        if answer in self.others:
            return Verdict(False, self.others[answer])
        return Verdict(True, f"{answer}. {self.measure().says}")


def drawn(seen: Seen) -> str:
    """The curve as a small picture, with the floor as a dashed line."""
    from classroom.demos.pieces import Curve
    from classroom.demos.rendering import html_of

    last = len(seen.curve) - 1
    low, high = min(0.0, *seen.curve), max(seen.curve) or 1.0
    floor = None
    if seen.floor is not None:
        low, high = min(low, seen.floor), max(high, seen.floor)
        floor = (seen.floor, seen.floor_is)
    return html_of(
        Curve(
            points=tuple(enumerate(seen.curve)), floor=floor, frame=(0, last, low, high),
            said=f"{len(seen.curve)} values, from {seen.curve[0]:.2f} to {seen.curve[-1]:.2f}",
            name="symptom", last=seen.along, low=f"{low:.1f}", high=f"{high:.1f}",
        )
    )  # fmt: skip
