"""The page for lecturers, docs/labs.md: every exercise, what it teaches, the mistakes it knows.

python -m classroom.exercises.labs          writes docs/labs.md
"""

from collections.abc import Sequence
from pathlib import Path

from classroom.exercises.checking import NOTEBOOKS, Exercise, Number, exercises
from classroom.exercises.duels import TOPICS, symptom_of, topic_of
from labkit.keeping.files import write_text

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
# Exercises

Each exercise is checked by the course: on many random inputs, against the course's own version and
against the mistakes that students usually make. The reply to a right answer is "Right". The reply
to any other is "Not yet" with the first reason that applies. It can be a result of the wrong type
or without a required property, or a known mistake that the answer agrees with. Otherwise it is the
student's own error in one line, or the smallest input on which the answer differs. Where the
course's version has a gradient, the answer needs the same one. The notebook continues with the
course's version.

`python -m labkit students` writes the notebooks without solutions, with nbgrader's metadata, and
`python -m labkit grade FOLDER` marks a class: see [lecturer.md](lecturer.md). With
`LABKIT_STRICT=1` an answer that is not right raises.

To add an exercise, edit the module of its notebook, such as `classroom/exercises/gpt.py` for 05. An
exercise is a `Function` with the course's version, a generator of random inputs, and at least three
mistakes with a message for each; or it is a `Number`, which is stored as a hash. The tests need two
more right answers, written independently.

`python -m classroom.exercises.labs` writes this page.

## Functions and numbers

| exercise | what is learned | minutes | mistakes that are recognised |
|---|---|---|---|
"""
DUELS = """
## Duels: write the test

`duel(topic, test, …)` plays a student's tests against sound versions, none of which they may
accuse, and against players with bugs, most of which lived in real projects. The result is a
picture of bugs by assertions; a bug that survives gives a hint. `classroom/exercises/bugs` holds
the topics.

| topic | sound | bugs, and where they lived |
|---|---|---|
"""
DIAGNOSES = """
## From the symptom to the bug

`diagnose(topic, cause)` shows what a bug does and asks for the cause.

| topic | what could be the cause |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{name}` | {one.learned} | {one.minutes} | {_listed(_mistakes(one))} |"
        for number in NOTEBOOKS
        for name, one in exercises(number).items()
    ]
    duels = [
        f"| `{name}` | {len(topic_of(name).honest)} | "
        f"{_listed([f'{bug.name} ({bug.where})' for bug in topic_of(name).bugs])} |"
        for name in TOPICS
    ]
    symptoms = [f"| `{name}` | {_listed(symptom_of(name).choices)} |" for name in TOPICS]
    parts = (HEAD, "\n".join(rows), "\n", DUELS, "\n".join(duels), "\n", DIAGNOSES)
    return "".join(parts) + "\n".join(symptoms) + "\n"


def _mistakes(one: Exercise) -> list[str]:
    if isinstance(one, Number):
        return list(one.mistakes.values())
    return list(dict.fromkeys(says for says, _ in one.mistakes))  # some have two forms


def _listed(items: Sequence[str]) -> str:
    return "; ".join(item.replace("|", "\\|") for item in items)


if __name__ == "__main__":
    write_text(ROOT / "docs" / "labs.md", page())
