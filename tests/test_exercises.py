"""A check names the likely mistake; the student's version has no solution, and fails."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from torch import Tensor

from classroom.cli import main
from classroom.exercises import NotYet, check, proving, students_version
from classroom.exercises.memory import with_memory
from classroom.exercises.orders import stream_masks
from classroom.exercises.students import BEGIN, unsolved
from classroom.exercises.transformer import sinusoids
from classroom.exercises.ulmfit import learning

SOLVED = f"""\
rate = 0.15
{BEGIN}
a, b = rate * 0.1, 2
share = 1000 * a  # of all words
### END SOLUTION
share = check("08.random", share)"""


def test_a_student_sees_the_message_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_STRICT", "1")
    with pytest.raises(NotYet) as found:
        check("08.random", ...)
    [line] = found.value._render_traceback_()
    assert line.startswith("Not yet: give the number")


def test_the_students_version_has_the_names_and_not_the_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABKIT_STRICT", "1")
    left = unsolved(SOLVED)
    assert "0.1, 2" not in left
    assert "SOLUTION" not in left
    assert left.count("= ...  # your turn") == 3
    names: dict[str, Any] = {"check": check}
    with pytest.raises(NotYet, match="give the number"):
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
         "outputs": [{"output_type": "stream", "name": "stdout", "text": "Right: 15.0\n"}]},
    ]  # fmt: skip
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_notebook_for_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = notebook()
    theirs = students_version(whole)
    assert theirs["cells"][:2] == whole["cells"][:2]
    assert theirs["cells"][2]["outputs"] == []
    assert theirs["cells"][3]["source"].startswith('share = check("08.random"')
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
    assert "unsolved, it says: give the number" in said
    assert said.endswith("Right: 15.0\n")


def test_an_exercise_that_passes_unsolved_is_found() -> None:
    whole = notebook()
    whole["cells"][2]["source"] = f"{BEGIN}\nx = 1\n### END SOLUTION\nprint(x)"
    with pytest.raises(AssertionError, match="passes without its solution"):
        exec(proving(whole)["cells"][2]["source"], {})
    whole["cells"][2]["metadata"]["tags"] = ["open"]
    assert len(proving(whole)["cells"]) == len(whole["cells"])


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["students", "00", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("00_start_here.ipynb: 5 exercises\n")
    [written] = tmp_path.glob("*.ipynb")
    assert "SOLUTION" not in written.read_text(encoding="utf-8")
    text = written.read_text(encoding="utf-8")
    # Byte for byte as Jupyter writes it, so that nothing differs once a student has saved it.
    assert nbformat.writes(nbformat.reads(text, as_version=4)) + "\n" == text
    assert main(["students", "06", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(": 10 exercises, 1 of them ungraded\n")
    with pytest.raises(SystemExit):
        main(["students", "00", "--output", "notebooks"])
    assert "give another folder" in capsys.readouterr().err


def test_answers_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = tmp_path / "00_start_here.ipynb"
    book.write_text("answers", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["students", "00", "01", "--output", str(tmp_path)])
    assert f"{tmp_path} already has {book.name}: give another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [book.name]
    assert book.read_text(encoding="utf-8") == "answers"
    assert main(["students", "00", "--output", str(tmp_path), "--overwrite"]) == 0
    assert "your turn" in book.read_text(encoding="utf-8")


def detached_memory(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    source, kept = with_memory(memory, states, length)
    return source.detach(), kept


def numbers_for_masks(rank: Tensor) -> tuple[Tensor, Tensor]:
    content, query = stream_masks(rank)
    return content.long(), query.long()


def numbers_for_layers(step: int, layers: int, every: int) -> list[int]:
    return [int(one) for one in learning(step, layers, every)]


def sinusoids_of_64_bits(length: int, width: int) -> Tensor:
    return sinusoids(length, width).double()


@pytest.mark.parametrize(
    ("exercise", "answer", "says"),
    [
        ("10.memory", detached_memory, "no gradient can flow"),
        ("11.masks", numbers_for_masks, "give True and False"),
        ("03.unfreeze", numbers_for_layers, "True or False"),
        ("04.sinusoids", sinusoids_of_64_bits, "return float32"),
    ],
)
def test_what_the_next_cell_cannot_use_is_not_right(
    exercise: str, answer: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABKIT_STRICT", "1")
    with pytest.raises(NotYet, match=says):
        check(exercise, answer)
