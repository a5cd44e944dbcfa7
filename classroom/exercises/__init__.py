"""Your turn: exercises that check themselves, duels of tests and bugs, the students' version.

    next_word_loss = check("05.loss", next_word_loss)     a function, or a number
    duel("masking", looks_ahead)                           a test, played against models with bugs
    diagnose("training", "the targets are not shifted")    a symptom: what causes it?

`check` tries the answer on many random inputs and says "Right" or "Not yet" with a reason, and the
notebook runs on: it returns the answer, or the course's own version while the answer is not right.
It raises only where LABKIT_STRICT=1. The answers live in the modules of this package, one for each
notebook.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from classroom.exercises.students import asked, proving, solved_cells, students_version
from classroom.exercises.verdicts import NotYet

__all__ = [
    "NotYet",
    "asked",
    "check",
    "diagnose",
    "duel",
    "proving",
    "solved_cells",
    "students_version",
]


def check(name: str, answer: Any) -> Any:
    """Say whether an answer is right, and return what the notebook can go on with."""
    from classroom.exercises.checking import Function, exercise, judge, lent, while_judged
    from classroom.exercises.verdicts import Verdict

    asked, fallback = exercise(name), lent(name)
    known = getattr(answer, "__module__", None) or ""
    if isinstance(asked, Function) and known.startswith(f"{__name__}."):
        # After a wrong answer its name means the course's version, which is no answer. Neither is
        # that function when it is imported from this package.
        why = "this is the course's own version: run the cell with your function again, then this"
        verdict = Verdict(right=False, why=why)
    else:
        with while_judged(name):
            verdict = judge(asked, answer)
    if not verdict.right:
        verdict = replace(verdict, hint=asked.hint)
    verdict.show(name)
    return answer if verdict.right else fallback


def duel(topic: str, *tests: Callable[..., Any]) -> None:
    """Play one test or several against sound versions and versions with bugs; show who found what.

    A test finds a bug by returning True, or by an assertion that fails.
    """
    from classroom.exercises.duels import play, topic_of

    play(topic_of(topic), *tests).show(f"duel {topic}")


def diagnose(topic: str, answer: Any = ...) -> None:
    """Show what a bug does to a model and ask which bug it is."""
    from classroom.exercises.duels import symptom_of

    symptom_of(topic).verdict(answer).show(f"diagnose {topic}")
