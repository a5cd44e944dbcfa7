"""The kit's own bugs, made on purpose: each is found by a test of the kit.

A mutant takes the place of one of the kit's functions; a check that the kit's tests make has to
fail then, and to hold without it.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mutants import slipped
from solutions_duels import GOOD, WEAK

from classroom.exercises import checking, duels, students, verdicts
from classroom.exercises.limits import Outcome
from classroom.grading import contest, handed_in, marks, sandbox


def mask(length: int) -> Any:
    return torch.ones(length, length, dtype=torch.bool).tril()


def judged(answer: Any) -> verdicts.Verdict:
    return checking.judge(checking.exercise("04.mask"), answer)


def a_wrong_answer_is_refused() -> bool:
    return not judged(lambda n: mask(n).T).right and not judged(lambda n: mask(n) & False).right


def a_known_mistake_is_named() -> bool:
    return "other triangle" in judged(lambda n: mask(n).T).why


def a_right_answer_is_accepted() -> bool:
    return judged(mask).right


def an_input_that_is_changed_is_seen() -> bool:
    loss = checking.exercise("05.loss").fallback
    assert callable(loss)
    return not checking.judge(
        checking.exercise("05.loss"), lambda x, t, r: (loss(x, t, r), r.fill_(True))[0]
    ).right


def a_cut_off_gradient_is_refused() -> bool:
    loss = checking.exercise("05.loss").fallback
    assert callable(loss)
    return not checking.judge(
        checking.exercise("05.loss"), lambda x, t, r: loss(x.detach(), t, r) + 0 * x.sum()
    ).right


def an_endless_answer_is_stopped() -> bool:
    def endless(length: int) -> Any:
        while True:
            pass

    asked = checking.exercise("04.mask")
    assert isinstance(asked, checking.Function)
    return "never end" in checking.judge(replace(asked, seconds=0.2), endless).why


def a_missing_answer_is_asked_for() -> bool:
    return "write the function" in judged(...).why


def a_weak_test_misses_something() -> bool:
    return not duels.play(duels.topic_of("masking"), WEAK["masking"][0]).right


def a_false_alarm_ends_the_round() -> bool:
    return "false alarm" in duels.play(duels.topic_of("masking"), lambda m, t: bool(t.sum())).why


def all_honest_players_are_played() -> bool:
    topic, met = duels.topic_of("masking"), []
    duels.play(topic, lambda model, tokens: met.append(model))
    return all(one.player in met for one in topic.honest)


def all_bugs_are_played() -> bool:
    topic = duels.topic_of("masking")
    rows = duels.play(topic, GOOD["masking"]).rows
    return {bug.name for bug in topic.bugs} == {row[0] for row in rows[1:]}


def no_name_of_a_survivor_is_shown() -> bool:
    shown = str(duels.play(duels.topic_of("masking"), WEAK["masking"][0]))
    return "first three words" not in shown


def a_solution_is_taken_out() -> bool:
    source = f"def f(x):\n    {students.BEGIN}\n    return x + 1\n    {students.END}"
    return "x + 1" not in students.unsolved(source)


def what_is_written_is_escaped() -> bool:
    return "<script>" not in verdicts.Verdict(False, "<script>", [("<script>", "")]).html


def who_reaches_into_the_judge_is_seen() -> bool:
    return bool(handed_in.reaches_in(["from classroom.exercises.verdicts import HEARD"]))


def what_an_exercise_needs_is_run() -> bool:
    cells = ["a = 1", "b = 2", 'check("05.factor", a)']
    return handed_in.needed(cells) == ["a = 1", "", cells[2]]


def a_changed_submission_is_marked_again() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "t.csv")
        table.write_text("student,digest\nanna,1\nben,2\n")
        rows = marks.already(marks.earlier(table), {"anna": "1", "ben": "3"})
        return [row["student"] for row in rows] == ["anna"]


def a_better_model_scores_better() -> bool:
    task = contest.draw("village", 100, 300, seed=0)
    worse, _ = contest.score(task.lowest + 0.5, task)
    padded, _ = contest.score(task.lowest + ~task.real, task)
    return abs(worse - 0.5) < 1e-9 and abs(padded) < 1e-9


def a_patch_is_seen() -> bool:
    class Module:
        __name__ = "judge"

        def __init__(self, same: Any) -> None:
            self.same = same

    one, other = sandbox.fingerprint([Module(len)]), sandbox.fingerprint([Module(max)])  # type: ignore[list-item]
    return one != other


def never_stops(call: Callable[[], Any], seconds: float) -> Outcome:
    return Outcome()


def every_mark_stays(rows: list[dict[str, str]], digests: Any) -> list[dict[str, str]]:
    return rows


MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], bool]]] = {
    "a check that accepts anything": (
        checking, "same", lambda a, b: True, a_wrong_answer_is_refused),
    "a check that accepts nothing": (
        checking, "same", lambda a, b: False, a_right_answer_is_accepted),
    "a check that knows no mistake": (
        checking, "_makes", lambda wrong, trial: False, a_known_mistake_is_named),
    "an input that is not copied": (
        checking, "_copied", lambda arguments: arguments, an_input_that_is_changed_is_seen),
    "a check that does not look at gradients": (
        checking, "_of_gradients", lambda trial, seconds: "", a_cut_off_gradient_is_refused),
    "a limit that does not bite": (
        checking, "limited", never_stops, an_endless_answer_is_stopped),
    "a missing answer that counts": (
        checking, "is_missing", lambda answer: False, a_missing_answer_is_asked_for),
    "a duel in which every test wins": (
        duels, "_ask", lambda test, player, arguments: duels.Said(isinstance(player, duels.Bug)),
        a_weak_test_misses_something),
    "a duel that forgives false alarms": (
        duels, "_false_alarm", lambda player, said: verdicts.Verdict(True, ""),
        a_false_alarm_ends_the_round),
    "a duel whose picture forgets a bug": (
        duels, "_picture", lambda bugs, said: [("bug",), *((bug.name,) for bug in bugs[1:])],
        all_bugs_are_played),
    "a picture that names a survivor": (
        duels, "_picture", lambda bugs, said: [(bug.name,) for bug in bugs],
        no_name_of_a_survivor_is_shown),
    "a solution that stays": (
        students, "unsolved", lambda source: source, a_solution_is_taken_out),
    "a page that is not escaped": (
        verdicts, "escape", lambda text: text, what_is_written_is_escaped),
    "a judge that does not look at imports": (
        handed_in, "reaches_in", lambda cells: "", who_reaches_into_the_judge_is_seen),
    "a run that leaves out what is needed": (
        handed_in, "_names", lambda cell: (set(), set(), set()), what_an_exercise_needs_is_run),
    "marks that are never made anew": (
        marks, "already", every_mark_stays, a_changed_submission_is_marked_again),
    "a score that counts padding": (
        contest, "score", lambda losses, task: (float((losses - task.lowest).mean()), 0.1),
        a_better_model_scores_better),
    "a patch that is not seen": (
        sandbox, "fingerprint", lambda modules: {}, a_patch_is_seen),
}  # fmt: skip


def test_all_honest_players_are_played() -> None:
    assert all_honest_players_are_played()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_kit_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, planted, holds = MUTANTS[mutant]
    assert holds()
    monkeypatch.setattr(module, name, planted)
    try:
        found = not holds()
    except Exception as problem:
        found = not slipped(problem)
    assert found
