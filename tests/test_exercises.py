"""A check names the likely mistake; the student's version has no solution, and fails."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from classroom.cli import main
from classroom.exercises import (
    BEGIN,
    NotYet,
    check,
    proving,
    students_version,
    unsolved,
)

SOLVED = f"""\
rate = 0.15
{BEGIN}
a, b = rate * 0.8, 2
share = a  # of all words
### END SOLUTION
check("share", share, 0.12, {{0.8: "that is of the hidden words"}})"""


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (0.12, 0.12), (0.120001, 0.12), (torch.tensor(0.12), 0.12), ([1, 2], np.array([1, 2])),
        (torch.eye(2), np.eye(2)), ("word", "word"), (True, True), ({1, 2}, {2, 1}), (3.0, 3),
        ([True, False], torch.tensor([True, False])), (["a", "b"], ["a", "b"]),
    ],
)  # fmt: skip
def test_a_right_answer(answer: Any, right: Any, capsys: pytest.CaptureFixture[str]) -> None:
    check("answer", answer, right)
    assert capsys.readouterr().out == "answer: right\n"


@pytest.mark.parametrize(
    ("answer", "right", "message"),
    [
        (..., 0.12, r"answer is still `\.\.\.`: write your answer"),
        (0.8, 0.12, "answer is 0.8: of the hidden ones"),
        (0.5, 0.12, "answer is 0.5, which is not right"),
        ("0.12", 0.12, "answer is a text: a number is asked for"),
        (None, 0.12, "answer is a NoneType: a number is asked for"),
        ([0.12], 0.12, r"of shape \(1,\): \(\) is asked for"),
        (np.eye(3), np.eye(2), r"of shape \(3, 3\): \(2, 2\) is asked for"),
        (1, True, "a int: a bool is asked for"),
        (3, "word", "a int: a str is asked for"),
        ([1, 2], {1, 2}, "a list: a set is asked for"),
        (float("nan"), 0.12, "not right"),
    ],
)
def test_a_wrong_answer(answer: Any, right: Any, message: str) -> None:
    with pytest.raises(NotYet, match=message):
        check("answer", answer, right, {0.8: "of the hidden ones"})


def test_a_student_sees_the_message_and_no_traceback() -> None:
    with pytest.raises(NotYet) as found:
        check("answer", ..., 1)
    [line] = found.value._render_traceback_()
    assert line.startswith("Not yet: answer is still")


def test_the_students_version_has_the_names_and_not_the_solution() -> None:
    left = unsolved(SOLVED)
    assert "0.8, 2" not in left
    assert "SOLUTION" not in left
    assert left.count("= ...  # your turn") == 3
    names: dict[str, Any] = {"check": check}
    with pytest.raises(NotYet, match="share is still"):
        exec(left, names)
    exec(SOLVED, names)


def test_a_solution_may_stand_within_a_block_and_twice() -> None:
    end = "### END SOLUTION"
    source = f"if True:\n    {BEGIN}\n    x = 1\n    {end}\n{BEGIN}\ny = 2\n{end}\n"
    assert unsolved(source) == "if True:\n    x = ...  # your turn\ny = ...  # your turn\n"


def notebook() -> dict[str, Any]:
    cells = [
        {"cell_type": "markdown", "id": "m", "metadata": {}, "source": "# Title"},
        {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": 1,
         "source": "from classroom.exercises import check"},
        {"cell_type": "code", "id": "b", "metadata": {}, "source": SOLVED, "execution_count": 2,
         "outputs": [{"output_type": "stream", "name": "stdout", "text": "share: right\n"}]},
    ]  # fmt: skip
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_notebook_for_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = notebook()
    theirs = students_version(whole)
    assert theirs["cells"][:2] == whole["cells"][:2]
    assert theirs["cells"][2]["outputs"] == []
    assert theirs["cells"][3]["source"].startswith('check("share", share')
    assert whole == notebook()


def test_each_exercise_is_proved_to_fail_unsolved_and_pass_solved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = proving(notebook())["cells"]
    assert len(tried) == 4
    names: dict[str, Any] = {}
    for cell in tried:
        if cell["cell_type"] == "code":
            exec(cell["source"], names)
    said = capsys.readouterr().out
    assert "unsolved, it says: share is still `...`" in said
    assert said.endswith("share: right\n")


def test_an_exercise_that_passes_unsolved_is_found() -> None:
    whole = notebook()
    whole["cells"][2]["source"] = f"{BEGIN}\nx = 1\n### END SOLUTION\nprint(x)"
    with pytest.raises(AssertionError, match="passes without its solution"):
        exec(proving(whole)["cells"][2]["source"], {})
    whole["cells"][2]["metadata"]["tags"] = ["open"]
    assert len(proving(whole)["cells"]) == len(whole["cells"])


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["students", "00", "--output", str(tmp_path)]) == 0
    assert "exercises" in capsys.readouterr().out
    [written] = tmp_path.glob("*.ipynb")
    assert "SOLUTION" not in written.read_text(encoding="utf-8")
    assert json.loads(written.read_text(encoding="utf-8"))["nbformat"] == 4
    with pytest.raises(SystemExit):
        main(["students", "00", "--output", "notebooks"])
    assert "give another folder" in capsys.readouterr().err
