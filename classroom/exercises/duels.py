"""Duels: a student's test against honest models and models with bugs; and from symptom to bug.

A test must accept every honest model: one false alarm ends the round. What it finds is shown as a
table of bugs and assertions, with the project in which each bug lived; what survives gives a hint.
"""

import importlib
import linecache
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from classroom.exercises.checking import is_missing, told
from classroom.exercises.limits import Outcome, OutOfTime, limited
from classroom.exercises.verdicts import Verdict

TOPICS = {"masking": "gpt_bugs"}
SYMPTOMS = {"training": "gpt_bugs"}
"""The module of this package that holds a topic."""
SECONDS = 10.0
"""For one call of a student's test."""


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
    """What is played: the students' test is called with a player and with some inputs."""

    asks: str
    honest: Sequence[Honest]
    bugs: Sequence[Bug]
    arguments: Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Said:
    """What a test said of one player."""

    alarm: bool
    by: str = ""
    """The assertion that failed."""
    stopped: str = ""
    """The error of the test itself."""


def topic_of(name: str) -> Topic:
    """The topic of that name."""
    found: Topic = _entry(name, TOPICS, "TOPICS", "duel")
    return found


def _entry(name: str, table: dict[str, str], kind: str, what: str) -> Any:
    if name not in table:
        raise ValueError(f"there is no {what} {name!r}: choose {', '.join(table)}")
    return getattr(importlib.import_module(f"classroom.exercises.{table[name]}"), kind)[name]


def play(topic: Topic, find_bug: Callable[..., Any]) -> Verdict:
    """Play a test against everybody, in an order that nobody can guess."""
    if is_missing(find_bug):
        return Verdict(False, f"write the test above: {topic.asks}")
    players: list[Honest | Bug] = [*topic.honest, *topic.bugs]
    said: dict[str, Said] = {}
    for player in random.sample(players, len(players)):
        one = _ask(find_bug, player, topic.arguments())
        if one.stopped:
            return Verdict(False, f"your test stops with {one.stopped}")
        said[player.name] = one
    alarms = [player for player in topic.honest if said[player.name].alarm]
    if alarms:
        return _false_alarm(alarms[0], said[alarms[0].name])
    missed = [bug for bug in topic.bugs if not said[bug.name].alarm]
    found, of = len(topic.bugs) - len(missed), len(topic.bugs)
    rows = [
        ("bug", "your test", "where it lived"),
        *(_row(bug, said[bug.name]) for bug in topic.bugs),
    ]
    why = f"no false alarm on {len(topic.honest)} honest models, and {found} of {of} bugs found"
    if missed:
        why += f". {missed[0].hint}"
    return Verdict(not missed, why, rows, header=True)


def _row(bug: Bug, said: Said) -> tuple[str, str, str]:
    if not said.alarm:
        # The name of a bug that survives would be the answer.
        return "a bug that survives", "→ missed", "?"
    return bug.name, f"✓ {said.by or 'found'}", bug.where


def _false_alarm(player: Honest, said: Said) -> Verdict:
    by = f" ({said.by})" if said.by else ""
    return Verdict(
        False, f"a false alarm{by}: your test accuses {player.name}. The round is over, since "
        "nobody trusts a test that gives false alarms"
    )  # fmt: skip


def _ask(find_bug: Callable[..., Any], player: Honest | Bug, arguments: tuple[Any, ...]) -> Said:
    """Ask a test: it finds a bug by returning something true, or by an assertion that fails."""
    outcome: Outcome = limited(lambda: find_bug(player.player, *arguments), SECONDS)
    error = outcome.error
    if error is None:
        try:
            return Said(bool(outcome.value))
        except (RuntimeError, ValueError) as problem:
            return Said(False, stopped=f"{told(problem)}: return True or False")
    if isinstance(error, AssertionError):
        frames = traceback.extract_tb(error.__traceback__)
        lines = [linecache.getline(frame.filename, frame.lineno or 0).strip() for frame in frames]
        asserted = [line for line in lines if line.startswith("assert")]
        return Said(True, asserted[-1] if asserted else "")
    if isinstance(error, OutOfTime):
        return Said(False, stopped=f"nothing after {SECONDS:g} s: does a loop never end?")
    return Said(False, stopped=told(error))


# ---- from the symptom to the bug ----------------------------------------------------------------


@dataclass(frozen=True)
class Symptom:
    """What one sees, and what could be behind it."""

    sees: Callable[[], str]
    """Measures the symptom and says it in a sentence."""
    choices: Sequence[str]
    key: str
    """The hash of the right choice."""
    hints: dict[str, str]
    """For the hash of each wrong choice, what one would see instead."""

    def verdict(self, answer: Any) -> Verdict:
        """What to say of an answer; without one, the symptom and the choices."""
        from classroom.exercises.checking import hashed

        if answer is ...:
            rows = [(f"{number}", choice) for number, choice in enumerate(self.choices, start=1)]
            return Verdict(False, f"{self.sees()} What is the cause? Give one of these", rows)
        if answer not in self.choices:
            return Verdict(False, f"{answer!r} is none of the choices: copy one of them")
        if hashed(answer) == self.key:
            return Verdict(True, f"{answer}. {self.sees()}")
        return Verdict(False, f"with that bug {self.hints[hashed(answer)]}")


def symptom_of(name: str) -> Symptom:
    """The symptom of that name."""
    found: Symptom = _entry(name, SYMPTOMS, "SYMPTOMS", "symptom")
    return found
