"""The minute: an honest file gets its score, and each way to cheat is refused with the reason."""

import math
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from classroom.cli import main
from classroom.grading import contest
from classroom.grading.contest import Result, Task

BIGRAMS = """
import time
import torch

def counted(tokens, size):
    pairs = torch.bincount(tokens[:-1] * size + tokens[1:], minlength=size**2).view(size, size)
    return ((pairs + 0.1) / (pairs + 0.1).sum(1, keepdim=True)).log()

def train(tokens, size, seconds):
    table = counted(tokens, size)
    return lambda rows: table[rows]
"""


def changed(what: str, into: str) -> str:
    assert what in BIGRAMS
    return BIGRAMS.replace(what, into)


def first(*lines: str) -> str:
    """The honest file with some lines at the beginning of `train`."""
    return changed("    table", "".join(f"    {line}\n" for line in lines) + "    table")


LOOKS_AHEAD = """def model(rows):
        out = table[rows].clone()
        out[:, :-1] -= 20
        out[:, :-1].scatter_(2, rows[:, 1:, None], 0.0)
        return out.log_softmax(-1)
    return model"""
CHEATS = {
    "reads the language": (
        first("from labkit.world import load_world"),
        r"out of bounds: labkit.world may not be imported here",
    ),
    "reads the language's files, and hides it": (
        first("try:", "    open(DATA).read()", "except OSError:", "    pass"),
        r"out of bounds: no access to",
    ),
    "looks ahead": (changed("return lambda rows: table[rows]", LOOKS_AHEAD), "it looks ahead"),
    "does not normalise": (changed("table[rows]", "table[rows] * 0.5"), "do not add up to 1"),
    "trains longer": (first("time.sleep(60)"), "trained for more than"),
    "patches the judge": (
        first("import classroom.grading.contest as judge", "judge.ALIKE = 99"),
        r"out of bounds: classroom.* may not be imported here",
    ),
    "stops the clock": (first("time.monotonic = lambda: 0.0"), "it changes the clock"),
    "returns something else": (changed("table[rows]", "rows"), r"of the shape \[11, 201\]"),
    "defines nothing": ("x = 1", "it defines no train"),
    "stops": (first("1 / 0"), "ZeroDivisionError"),
    "looks for a key that is not there": (first("{}['rate']"), "stops with KeyError: 'rate'"),
    "stops when it predicts": (
        changed("table[rows]", "None"),
        "predicting, it stops with TypeError: 'NoneType' object is not subscriptable",
    ),
}


@pytest.fixture(scope="module")
def task() -> Task:
    return contest.draw("village", 20_000, held_out=600, seed=1)


def written(folder: Path, name: str, source: str) -> Path:
    path = folder / f"{name}.py"
    data = contest.data_path("village") / "README.md"
    path.write_text(source.replace("DATA", repr(str(data))))
    return path


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_refused_with_the_reason(
    cheat: str, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, reason = CHEATS[cheat]
    monkeypatch.setattr(contest, "GRACE", 1.0 if cheat == "trains longer" else 60.0)
    result = contest.run(written(tmp_path, "cheat", source), task, 1)
    assert result.above == math.inf
    assert re.search(reason, result.refused), result.refused


def test_an_honest_file_gets_what_its_model_is_worth(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "GRACE", 60.0)
    result = contest.run(written(tmp_path, "bigrams", BIGRAMS), task, 1)
    assert result.refused == ""
    size = len(task.world.vocabulary)
    counts = np.full((size, size), 0.1)
    np.add.at(counts, (task.train[:-1], task.train[1:]), 1)
    log_p = np.log(counts / counts.sum(axis=1, keepdims=True))
    losses = -log_p[task.rows[:, :-1], task.rows[:, 1:]]
    wanted = losses[task.real].mean() - task.lowest[task.real].mean()
    assert result.above == pytest.approx(wanted, abs=1e-4)
    assert 0.5 < result.above < 3
    assert 0 < result.error < 0.3


REPEATS_ITSELF = """seen = []
    def model(rows):
        out = table[rows].clone()
        out[:, :-1] -= 20
        out[:, :-1].scatter_(2, rows[:, 1:, None], 0.0)
        out = out.log_softmax(-1)
        for before, said in seen:
            same = (before == rows).long().cumprod(1).bool()
            out[same] = said[same]
        seen[:] = [(rows, out)]
        return out
    return model"""


def test_who_looks_ahead_and_repeats_what_it_said_gains_nothing(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "GRACE", 60.0)
    cheat = changed("return lambda rows: table[rows]", REPEATS_ITSELF)
    honest, repeats = (
        contest.run(written(tmp_path, name, source), task, 1)
        for name, source in (("bigrams", BIGRAMS), ("eve", cheat))
    )
    assert repeats.refused == honest.refused == ""
    assert repeats.above > honest.above


def test_who_is_better_than_possible_knew_the_text(task: Task, monkeypatch: Any) -> None:
    child: dict[str, Any] = {"refusals": [], "clock": True}

    class Fake:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: Any) -> None: ...
        def said(self, *_: Any) -> dict[str, Any]:
            return child

        def send(self, *_: Any) -> None: ...

    monkeypatch.setattr(contest, "Child", Fake)
    monkeypatch.setattr(contest, "_losses", lambda *_: iter([task.lowest - 0.1]))
    assert "below the lowest possible one" in contest.run(contest.RECIPE, task, 1).refused
    monkeypatch.setattr(contest, "_losses", lambda *_: iter([task.lowest]))
    assert contest.run(contest.RECIPE, task, 1).above == pytest.approx(0)
    for reached in (["torch.hub"], "torch.hub"):
        child["refusals"] = reached
        assert contest.run(contest.RECIPE, task, 1).refused.endswith("out of bounds: torch.hub")
    # A mistake of the judge is an error, and not the fault of a file.
    monkeypatch.setattr(contest, "_trained", lambda *_: None)
    monkeypatch.setattr(contest, "_losses", lambda *_: iter([None]))
    with pytest.raises(ValueError, match="zero-dimensional"):
        contest.run(contest.RECIPE, task, 1)


def test_a_task_is_drawn_anew_each_time_and_its_floor_is_the_languages(task: Task) -> None:
    one, other = (contest.draw("village", 500, 200) for _ in range(2))
    assert not np.array_equal(one.train[:50], other.train[:50])
    assert task.rows[:, 0].max() == 0
    text = [task.world.vocabulary[i] for i in task.rows[0, 1:][task.real[0]]]
    assert task.lowest[0][task.real[0]] == pytest.approx(-task.world.log_probability(text))


def test_the_board_is_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = written(tmp_path, "recipe", BIGRAMS)
    monkeypatch.setattr(contest, "RECIPE", recipe)
    monkeypatch.setattr(contest, "GRACE", 60.0)
    folder = tmp_path / "class"
    folder.mkdir()
    written(folder, "anna", BIGRAMS.replace("0.1", "1.0"))
    written(folder, "b<b>", "x = 1")
    board = tmp_path / "board.md"
    words = ["speedrun", str(folder), "--seconds", "1", "--words", "5000", "--board", str(board)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "anna" in said
    assert "refused: it stops with NameError: it defines no train(...)" in said
    text = board.read_text(encoding="utf-8")
    assert "nanoGPT's recipe" in text
    assert "<" not in text
    assert board.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SystemExit):
        main(["speedrun", str(tmp_path / "nothing.py")])
    error = capsys.readouterr().err
    assert f"{tmp_path / 'nothing.py'} does not exist: give one" in error
    assert "defines train(tokens, vocabulary, seconds)" in error
    (tmp_path / "tiny.txt").write_text(BIGRAMS)
    with pytest.raises(SystemExit):
        main(["speedrun", str(tmp_path / "tiny.txt"), "--seconds", "1", "--board", str(board)])
    assert "tiny.txt is not a .py file" in capsys.readouterr().err


def test_the_table_compares_with_the_recipe_and_escapes() -> None:
    ours, refused = Result("b", above=0.4), Result("x", refused="why|<b>\na")
    results = [ours, Result("nanoGPT's recipe", above=0.5), refused]
    rows = contest.table(results).splitlines()[2:]
    assert [row.split("|")[2].strip() for row in rows] == ["b", "nanoGPT's recipe", "x"]
    assert "-0.100" in rows[0]
    assert rows[2].split("|")[5].strip() == "why  b  a"
    refused_recipe = Result("nanoGPT's recipe", refused="no")
    assert "inf" not in contest.table([ours, refused_recipe])


def test_a_file_with_the_name_of_the_recipe_is_not_the_recipe(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {contest.RECIPE: 0.5}

    def fake(path: Path, *_: Any) -> Result:
        return Result(path.stem, above=losses.get(path, 0.1))

    monkeypatch.setattr(contest, "run", fake)
    board = contest.race([Path("class", "nanoGPT's recipe.py")], task, 1, lambda _: None, 1)
    assert [one.name for one in board] == ["nanoGPT's recipe.py", "nanoGPT's recipe"]
    assert "-0.400" in contest.table(board)


LATE = """import time as now
    def model(rows):
        now.sleep(SECONDS)
        return table[rows]
    return model"""


def test_who_trains_when_it_is_asked_is_refused(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "GRACE", 60.0)
    source = changed("return lambda rows: table[rows]", LATE.replace("SECONDS", "60"))
    path = written(tmp_path, "late", source)
    assert "its predictions take too long" in contest.run(path, task, 1, to_answer=1).refused


@pytest.mark.parametrize(
    ("baseline", "wanted"),
    [(Result("a", above=1, answering=10), 20), (Result("a", above=1, answering=0.1), 5),
     (Result("a", refused="no"), 300)],
)  # fmt: skip
def test_predictions_may_take_a_few_times_as_long_as_the_recipes(
    baseline: Result, wanted: float, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def fake(path: Path, task: Task, seconds: float, threads: int, *more: float) -> Result:
        given.extend(more)
        return baseline

    monkeypatch.setattr(contest, "run", fake)
    contest.race([Path("a.py")], task, 1, lambda _: None, 1)
    assert given == [wanted]


@pytest.mark.parametrize(("runs", "kept"), [(2, "keeps the results so far"), (0, "no result yet")])
def test_ctrl_c_keeps_the_board(
    runs: int, kept: str, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    results = iter([Result("x", above=0.5), Result("anna", above=0.4)][:runs])

    def fake(path: Path, *_: Any) -> Result:
        for one in results:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr(contest, "run", fake)
    monkeypatch.setattr(contest, "draw", lambda *_, **__: task)
    board = tmp_path / "board.md"
    for name in ("anna", "ben"):
        written(tmp_path, name, BIGRAMS)
    with pytest.raises(SystemExit) as left:
        main(["speedrun", str(tmp_path), "--board", str(board)])
    assert left.value.code == 130
    assert kept in capsys.readouterr().err
    assert board.is_file() == board.with_suffix(".png").is_file() == bool(runs)
    if runs:
        assert "| 1 | anna |" in board.read_text(encoding="utf-8")


def test_a_table_is_not_written_where_the_picture_goes(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, "anna", BIGRAMS)
    with pytest.raises(SystemExit):
        main(["speedrun", str(path), "--board", str(tmp_path / "x.PNG")])
    assert "give a table such as" in capsys.readouterr().err
    with patch.object(contest, "draw", None), pytest.raises(SystemExit):  # before it is drawn
        main(["speedrun", str(path), "--board", str(tmp_path)])
    assert f"{tmp_path} cannot be written: give another --board" in capsys.readouterr().err


def test_a_file_of_any_size_is_not_read(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "LARGEST", 100)
    (tmp_path / "large.py").write_text("#" * 101)
    assert "at most 100 are read" in contest.run(tmp_path / "large.py", task, 1).refused
    assert "there is no file" in contest.run(tmp_path / "none.py", task, 1).refused
    (tmp_path / "latin.py").write_bytes(b"\xe9")
    assert "not UTF-8" in contest.run(tmp_path / "latin.py", task, 1).refused
