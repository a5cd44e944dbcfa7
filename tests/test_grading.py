"""Marks: what a submission gets, what it cannot do, and how a class is run."""

import contextlib
import csv
import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from classroom.cli import main
from classroom.cli.grading import released
from classroom.exercises.verdicts import Verdict
from classroom.grading import handed_in, marks, sandbox
from classroom.grading import marking as grading
from classroom.grading.sandbox import MB, Child, Limits, Stopped
from classroom.running import children

RIGHT = "f = 2**6"
CHECK = 'from classroom.exercises import check\nf = check("05.factor", f)'
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own walls are Linux's")


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made})


TRIES = """
def tried(what):
    try:
        return f"got it: {what()}"
    except BaseException as error:
        return f"{type(error).__name__}"
import os, socket, subprocess, ctypes
libc = ctypes.CDLL(None)
found = [tried(lambda: open(OTHER).read()), tried(lambda: os.listdir(os.path.dirname(OTHER))),
         tried(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
         tried(lambda: subprocess.run(["ls"])), tried(lambda: os.fork()),
         libc.open(OTHER.encode(), 0)]
def f(states, real):
    raise ValueError(" ".join(map(str, found)))
f = check("05.last", f)
"""
FORGED = """
import classroom.exercises as judge
setattr(judge, "check", lambda name, answer: answer)
for part, name in ((".checking", "same"), (".comparing", "_same")):
    vars(__import__("sys").modules["classroom.exercises" + part])[name] = lambda a, b: True
"""
# The limit of a cell does not end it, so that the limit of memory has to, however busy the machine.
HOARD = """import time
kept = b"x" * 1_600_000_000
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""
CLASS = {
    "anna": notebook(RIGHT, CHECK),
    "ben/hw/05_gpt": notebook("f = ...\n1 / 0", CHECK),
    "carl": notebook("f = 64\nwhile True: pass", CHECK),
    "dora": notebook(RIGHT, CHECK, "import ctypes\nx = check('05.last', ctypes.string_at(0))"),
    "=evil()": notebook(HOARD + CHECK),
    "fred": "no notebook at all",
    "gina": notebook(RIGHT, "from classroom.exercises.verdicts import HEARD", CHECK),
    "hugo": notebook("f = 3", FORGED + CHECK),
}


@pytest.fixture(scope="session")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A class of eight, of whom six are trouble, and what was said while it ran."""
    folder = tmp_path_factory.mktemp("class")
    for name, text in CLASS.items():
        path = folder / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    other = folder / "anna.ipynb"
    nosy = notebook(f"OTHER = {str(other)!r}\nfrom classroom.exercises import check\n{TRIES}")
    (folder / "ida.ipynb").write_text(nosy)
    table, lines = folder / "out" / "marks.csv", list[str]()
    (folder / "out" / "marks").mkdir(parents=True)
    limits = Limits(60, 1500 * MB, [folder])
    words = (folder, table, folder / "out" / "marks", released, limits, 2, lines.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grading, "CELL", 2.0)
        grading.grade(*words)
    return words, lines


def rows_of(graded: Any) -> dict[str, dict[str, str]]:
    with graded[0][1].open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def page_of(graded: Any, student: str) -> str:
    return str((graded[0][2] / f"{student}.html").read_text(encoding="utf-8"))


def test_a_right_answer_gets_its_point_and_a_row_and_a_page(graded: Any) -> None:
    row = rows_of(graded)["anna"]
    asked = len(released("05"))
    assert (row["points"], row["of"], row["status"]) == ("1", f"{asked}", "finished")
    assert (row["05.factor"], row["05.loss"]) == ("1", "0")
    page = page_of(graded, "anna")
    assert f"anna</bdi>: 1 of {asked}" in page
    assert "Right: 64" in re.sub("<[^>]*>", "", page)
    assert escape(f"{RIGHT}\n\n{CHECK}") in page
    assert "this was never checked" in page


def test_a_cell_that_stops_is_reported_and_the_others_run(graded: Any) -> None:
    row = rows_of(graded)["ben"]
    assert (row["points"], row["status"]) == ("0", "finished")
    assert "give the number" in page_of(graded, "ben")
    assert "cell 1: ZeroDivisionError: division by zero" in page_of(graded, "ben")


def test_an_endless_cell_costs_its_own_time_only(graded: Any) -> None:
    row = rows_of(graded)["carl"]
    assert (row["05.factor"], row["status"]) == ("1", "finished")


def test_a_crash_keeps_what_was_right_before(graded: Any) -> None:
    row = rows_of(graded)["dora"]
    assert row["05.factor"] == "1"
    assert "ended by itself" in row["status"]


def test_memory_has_a_limit_and_a_name_is_no_formula(graded: Any) -> None:
    row = rows_of(graded)["'=evil()"]
    assert row["points"] == "0"
    assert "more than 1,500 MB of memory" in row["status"]


def test_what_is_no_notebook_is_said_in_a_line(graded: Any) -> None:
    assert rows_of(graded)["fred"]["points"] == "0"
    assert "\n" not in rows_of(graded)["fred"]["status"]


def test_who_reaches_into_the_judge_or_changes_it_is_refused(graded: Any) -> None:
    rows = rows_of(graded)
    assert "reaches into the judge (classroom.exercises.verdicts)" in rows["gina"]["status"]
    assert "it changes the judge" in rows["hugo"]["status"]
    assert "checking.same" in rows["hugo"]["status"]
    assert "comparing._same" in rows["hugo"]["status"]
    assert rows["gina"]["points"] == rows["hugo"]["points"] == "0"


def test_nobody_reads_other_submissions_or_reaches_the_network(graded: Any) -> None:
    assert tries(graded)[:5] == ["Refused"] * 5


def tries(graded: Any) -> list[str]:
    found = re.search(r"stops with ValueError: ([^(]*) \(line", page_of(graded, "ida"))
    assert found
    return found[1].split()


@LINUX
def test_the_kernel_refuses_what_goes_round_python(graded: Any) -> None:
    if "Landlock" not in page_of(graded, "anna"):
        pytest.skip("this kernel has no Landlock")
    assert tries(graded)[5] == "-1"


def test_it_goes_on_where_it_was_stopped_and_marks_what_changed(graded: Any) -> None:
    words, lines = graded
    assert len(lines) == 9
    assert lines[-1].startswith("[9/9] ")
    before = words[1].read_text(encoding="utf-8-sig")
    (words[0] / "fred.ipynb").write_text(notebook(RIGHT, CHECK))
    again = list[str]()
    grading.grade(*words[:-1], again.append)
    # A submission that was stopped gets another chance, perhaps with more time.
    rows = list(csv.DictReader(before.splitlines()))
    stopped = {row["student"] for row in rows if row["status"].startswith("stopped")}
    assert stopped
    assert again[0] == f"{8 - len(stopped)} of 9 were marked before"
    assert {line.split(":")[0].split("] ")[1] for line in again[1:]} == {
        "fred", *(name.removeprefix("'") for name in stopped)
    }  # fmt: skip
    after = words[1].read_text(encoding="utf-8-sig")
    changed = {a.split(",")[0] for a, b in zip(after.splitlines(), before.splitlines(), strict=True)
               if a != b}  # fmt: skip
    assert changed - stopped == {"fred"}


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: Any) -> None:
    for folder, says in ((tmp_path / "none", "no folder"), (tmp_path, "holds no .ipynb")):
        with pytest.raises(SystemExit):
            main(["grade", str(folder)])
        assert says in capsys.readouterr().err
    (tmp_path / "anna.ipynb").write_text(notebook(RIGHT, CHECK))
    with pytest.raises(SystemExit):
        main(["grade", str(tmp_path), "--csv", str(tmp_path / "marks")])
    assert "has no ending" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["grade", str(tmp_path), "--csv", f"{tmp_path}.csv"])
    assert f"among the notebooks in {tmp_path}: give another" in capsys.readouterr().err


# ---- what is run of a notebook


def test_only_what_an_exercise_needs_is_run() -> None:
    cells = [
        "import torch\nimport time",
        "time.sleep(100)",
        "def helper(n):\n    return torch.ones(n, n)",
        "tokens = time.sleep(100)",  # a name that is used inside of f only, as its own
        "table = {}",
        "table['a'] = 1",
        "def f(n):\n    tokens = table['a']\n    return helper(n * tokens)",
        'f = check("05.factor", f)',
        "f(3)",
    ]
    assert [bool(cell) for cell in handed_in.needed(cells)] == [
        True, False, True, False, True, True, True, True, False,
    ]  # fmt: skip
    assert handed_in.needed(["def f(:", "%matplotlib inline\nx = 1", 'check("05.factor", 1)'])[0]


def test_profiles_are_small_and_the_lesson_is_found() -> None:
    text = {"cell_type": "markdown", "source": "text"}
    for said, small in (('profile: str = "gpu"', True), ("a = 1\nprofile='gpu'", True),
                        ("if profile == 1: pass", False), ("profile == 1", False)):  # fmt: skip
        cells = [{"cell_type": "code", "source": [said]}, text]  # tags may be lost
        assert handed_in.code_of({"cells": cells}) == [said + '\nprofile = "smoke"' * small]
    assert handed_in.number_of([CHECK], Path("12_x.ipynb")) == "05"
    assert handed_in.number_of(["x"], Path("12_x.ipynb")) == "12"
    with pytest.raises(ValueError, match="no exercise of the course"):
        handed_in.number_of(["x"], Path("homework.ipynb"))
    assert released("05")[0].startswith("05.")
    assert "duel masking" in released("05")


def test_what_a_student_wrote_is_escaped_on_the_page() -> None:
    mark = marks.Mark("<b>", "f", "d", ["05.factor"], {"05.factor": Verdict(False, "<script>")})
    mark.code, mark.errors = [("05.factor", "<img>")], [(1, "<svg>")]
    page = marks.page(mark)
    assert not any(tag in page for tag in ("<b>:", "<script>", "<img>", "<svg>"))


def test_the_page_shows_the_answer_of_a_cell_before_its_check() -> None:
    cells = ["import torch", "def f(n):\n    return 64", "def f(n):\n    return torch.ones(n)",
             "g = 3", "from classroom.exercises import check\ncheck('05.factor', f)"]  # fmt: skip
    assert handed_in.answers(cells) == [("05.factor", f"{cells[2]}\n\n{cells[4]}")]
    assert handed_in.answers([CHECK]) == [("05.factor", CHECK)]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["x=1\n" * 60_000, CHECK], "240,0.. characters of code, and at most 200,000 are marked"),
        (["x"] * 1000 + [CHECK], "1,001 code cells, and at most 1,000"),
        ([CHECK] * 201, "201 checks, and at most 200"),
    ],
)
def test_a_notebook_that_would_keep_the_judge_busy_is_refused(
    cells: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "_collect", lambda *words: None)
    (tmp_path / "anna.ipynb").write_text(notebook(*cells))
    found = grading.mark("anna", tmp_path / "anna.ipynb", released, Limits(9, MB))
    assert re.match(f"refused: it has {says}", found.status)


def test_the_code_of_a_cell_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, read = handed_in._made, list[str]()

    def counted(cell: str) -> set[str]:
        read.append(cell)
        return made(cell)

    monkeypatch.setattr(handed_in, "_made", counted)
    cells = ["f = 64", *[CHECK] * 20]
    assert len(handed_in.answers(cells)) == 20
    assert len(read) == len(cells)
    assert len(handed_in.answers(["f = 1 #" + "x" * 30_000, CHECK])[0][1]) <= handed_in.SHOWN + 2


def talk(pipe: Any, enforced: Any, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        pipe.send_bytes(json.dumps(message).encode())


def test_what_a_child_says_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = {"name": "a", "right": True, "why": "x" * 9000, "rows": [["y" * 9000] * 30] * 300,
             "header": False}  # fmt: skip
    told = {"cell": 1, "error": "z" * 9000, "heard": [heard, {**heard, "name": "b"}]}
    done = {"done": True, "patched": [], "enforced": ["e" * 9000] * 99}
    monkeypatch.setattr(grading, "LARGEST_REPORT", 200 * MB)
    for messages, status in (([told, done], "finished"), ([told, told], "stopped: it reports")):
        found = marks.Mark("anna", "f", "d", ["a"])
        monkeypatch.setattr(grading, "run_submission", functools.partial(talk, messages=messages))
        monkeypatch.setattr(
            grading, "Child", lambda what, *words, limits: Child(what, limits=limits)
        )
        grading._collect(found, ["f"], Limits(30, 900 * MB))
        assert found.status.startswith(status)
        assert found.verdicts.keys() == {"a"}
        rows = found.verdicts["a"].rows
        assert (len(rows), len(rows[0])) == (100, 20)
        texts = (found.verdicts["a"].why, rows[0][0], found.errors[0][1], *found.enforced)
        assert {len(text) for text in texts} == {grading.SAID}


def test_a_message_that_is_too_large_is_not_read() -> None:
    with (
        Child(say, "x" * (2 * MB), limits=Limits(30, 900 * MB)) as child,
        pytest.raises(Stopped, match="it sent more than 1 MB at once"),
    ):
        child.said(largest=MB)


@pytest.mark.parametrize(
    "cell",
    [
        "from classroom.exercises import check, verdicts",
        "from classroom.exercises import comparing",
        "from classroom.exercises import (\n    checking as c,\n)",
        "import classroom.exercises as e, classroom.exercises.limits",
        "from classroom import exercises\nexercises.checking.same = None",
        "%time from classroom.exercises import verdicts",
        "%matplotlib inline\nfrom classroom.exercises.duels import show",
        "%%capture\nfrom classroom.exercises import (duels,\n  limits)",
        "%%time\nx = HEARD",
        "from classroom.exercises import check, gpt",
        "from classroom import exercises\nexercises.gpt.EXERCISES",
        "import classroom.exercises as e\ne.gpt.EXERCISES",
        "from classroom import exercises as e\ne.comparing.same = None",
        "%time from classroom.exercises import gpt",
    ],
)
def test_no_form_of_import_hides_the_judge(cell: str) -> None:
    assert handed_in.reaches_in(["x = 1", cell])


def test_what_a_lesson_imports_is_no_reach() -> None:
    assert not handed_in.reaches_in([
        "from classroom.exercises import check, diagnose, duel", "%matplotlib inline",
        "limits = checking = 3\nplot.limits", "%time verdicts = 3", CHECK,
        "%%time\nfrom classroom.exercises import check\nmemory = start = 3", "np.memory\nx.start",
    ])  # fmt: skip


def test_a_command_is_searched_for_so_many_characters() -> None:
    """Else a text of many imports would take a time that grows with its square."""
    near, far = (f"%%x\nexercises import {'a' * n}, verdicts" for n in (900, 1100))
    assert handed_in.reaches_in([near])
    assert not handed_in.reaches_in([far])


def test_a_second_run_of_a_notebook_loses_no_mark(monkeypatch: Any, tmp_path: Path) -> None:
    """The second one runs all cells, also those that no exercise needs and that may not end."""
    runs = iter([
        ({"05.factor": Verdict(True, "Right")}, [(2, "NameError: x")], "finished"),
        ({"05.loss": Verdict(True, "Right")}, [], "stopped: not done after 300 s"),
    ])  # fmt: skip

    def collect(found: Any, *words: Any) -> None:
        found.verdicts, found.errors, found.status = next(runs)

    monkeypatch.setattr(grading, "_collect", collect)
    (tmp_path / "05_gpt.ipynb").write_text(notebook(RIGHT, CHECK, "print(1)"))
    found = grading.mark("a", tmp_path / "05_gpt.ipynb", released, Limits(9, MB))
    assert (found.got("05.factor"), found.got("05.loss")) == (True, True)
    assert found.status == "finished"


def test_an_answer_that_needs_a_cell_which_seems_idle_is_right(tmp_path: Path) -> None:
    """Nobody can say in advance what a call changes."""
    cells = ("values = [8]\ndef double(v):\n    v[0] *= 8", "double(values)",
             'from classroom.exercises import check\ncheck("05.factor", values[0])')  # fmt: skip
    assert handed_in.needed(cells)[1] == ""
    (tmp_path / "anna.ipynb").write_text(notebook(*cells))
    found = grading.mark("anna", tmp_path / "anna.ipynb", released, Limits(60, 1500 * MB))
    assert found.got("05.factor")


@pytest.mark.parametrize(
    "cells",
    [
        (RIGHT, "from classroom.exercises import check as right\nright('05.factor', f)"),
        (RIGHT, "from classroom.exercises import check", "check ('05.factor', f)"),
        (
            RIGHT,
            "import classroom.exercises as e\ndef test(*x): e.check(*x)",
            "test('05.factor', f)",
        ),
        ("f = 64\nprint('x' * 210_000_000)", "print('a line')\n" + CHECK),
        ("f = 64\nclass Odd(Exception):\n    __str__ = None\nraise Odd", CHECK),
        ("%%writefile own.py\nf = 64", "from own import f", CHECK),
    ],
    ids=["another name", "a space", "a function", "much is printed", "an odd error", "a module"],
)
def test_a_right_answer_in_an_odd_notebook_gets_its_point(
    cells: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "05_gpt.ipynb").write_text(notebook(*cells))
    limits = Limits(60, 1500 * MB)
    found = grading.mark("anna", tmp_path / "05_gpt.ipynb", released, limits)
    assert (found.points, found.status) == (1, "finished"), found.errors


# ---- the sandbox


def say(pipe: Any, enforced: Any, what: str) -> None:
    pipe.send_bytes(what.encode())


def sleep(pipe: Any, enforced: Any) -> None:
    import time

    time.sleep(60)


def test_a_child_that_talks_nonsense_or_nothing_is_stopped() -> None:
    for nonsense in ("[1, 2", "[]", "\ud83d"):
        words = nonsense.encode("utf-8", "replace").decode()
        with Child(say, words, limits=Limits(30, 900 * MB)) as child, pytest.raises(Stopped):
            child.said()
    with (
        Child(sleep, limits=Limits(0.5, 900 * MB)) as child,
        pytest.raises(Stopped, match="not done after"),
    ):
        child.said()
    assert not child.folder.exists()
    assert not child.process.is_alive()


def test_a_fingerprint_changes_when_a_module_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sandbox.fingerprint([grading])
    assert sandbox.fingerprint([grading]) == before
    monkeypatch.setattr(grading, "needed", lambda cells: [])
    after = sandbox.fingerprint([grading])
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"classroom.grading.marking.needed"}


@pytest.mark.parametrize("raw", [b"student,points\nanna,1\n", b"\xff\xfe", b"digest\nx\n"])
def test_a_table_that_holds_no_marks_is_named(raw: bytes, tmp_path: Path) -> None:
    table = tmp_path / "marks.csv"
    table.write_bytes(raw)
    with pytest.raises(ValueError, match=r"marks\.csv is not a table of marks: remove it"):
        marks.earlier(table)


def test_a_report_of_any_kind_spoils_no_other_mark(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "eve.ipynb"
    path.write_text(notebook(RIGHT, CHECK))

    def boasts(*_: Any) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(grading, "_collect", boasts)
    found = grading.mark("eve", path, lambda number: [], grading.Limits(1, 1, []))
    assert found.status == "cannot convert float infinity to integer"


def test_line_ends_of_windows_do_not_change_what_a_submission_is(tmp_path: Path) -> None:
    path, table = tmp_path / "anna.ipynb", tmp_path / "marks.csv"
    path.write_bytes(notebook(RIGHT, CHECK).replace("{", "{\r\n", 1).encode())
    found = grading.mark("anna", path, lambda number: [], grading.Limits(1, 1, []))
    assert found.digest == grading._digest(path) != ""
    table.write_text("a,b\n")
    with pytest.raises(ValueError, match="not a table of marks"):
        marks.earlier(table)


def test_a_name_that_a_method_changes_is_run() -> None:
    cells = ["words = []", "words.append(1)", "print(words)", "def f():\n    return words[0]",
             'f = check("05.factor", f)']  # fmt: skip
    assert [bool(cell) for cell in handed_in.needed(cells)] == [True, True, False, True, True]


def test_paths_are_whole_where_a_child_hides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child runs in a folder of its own, where a relative path would be another."""
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "anna.ipynb").write_text(notebook(RIGHT, CHECK))
    monkeypatch.chdir(tmp_path)
    seen: list[Limits] = []
    monkeypatch.setattr(grading, "grade", lambda *given: seen.append(given[4]) or [])
    assert main(["grade", "class"]) == 0
    assert {tmp_path / "class", tmp_path / "marks.csv", tmp_path / "marks"} <= set(seen[0].hidden)
    # A folder in which Python itself lies cannot be hidden from it.
    (tmp_path / "anna.ipynb").write_text(notebook(RIGHT, CHECK))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    assert main(["grade", "."]) == 0
    assert tmp_path not in seen[1].hidden


def test_a_submission_that_cannot_be_read_or_run_costs_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "anna.ipynb").symlink_to(tmp_path / "nowhere")
    (tmp_path / "class" / "ben.ipynb").write_text(notebook(RIGHT, CHECK))

    def full(*given: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grading, "Child", full)
    (tmp_path / "marks").mkdir()
    words = (tmp_path / "class", tmp_path / "marks.csv", tmp_path / "marks", released,
             Limits(5, 900 * MB), 1, lambda line: None)  # fmt: skip
    rows = grading.grade(*words)
    assert [row["status"].startswith("stopped:") for row in rows] == [True, True]
    # It was the machine's fault, so both are tried again.
    assert marks.already(marks.earlier(words[1]), {"ben": rows[1]["digest"]}) == []


def test_whoever_cannot_write_does_not_wait_for_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "class").mkdir()
    for n in range(6):
        (tmp_path / "class" / f"s{n}.ipynb").write_text(notebook(RIGHT, CHECK))
    begun: list[str] = []

    def marked(student: str, path: Path, *given: Any) -> marks.Mark:
        begun.append(student)
        time.sleep(0.05)
        return marks.Mark(student, path.name, "", ())

    def refuse(*given: Any) -> None:
        raise PermissionError("marks.csv is open elsewhere")

    monkeypatch.setattr(grading, "mark", marked)
    monkeypatch.setattr(grading, "write_text", refuse)
    with pytest.raises(PermissionError):
        grading.grade(tmp_path / "class", tmp_path / "marks.csv", tmp_path, released,
                      Limits(5, 900 * MB), 1, lambda line: None)  # fmt: skip
    assert len(begun) < 4


def test_ctrl_c_keeps_the_marks_and_ends_the_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "class").mkdir()
    for name in ("anna", "ben", "carl", "dora"):
        (tmp_path / "class" / f"{name}.ipynb").write_text(notebook(RIGHT, CHECK))
    begun, table = list[Child](), tmp_path / "marks.csv"

    def marked(student: str, path: Path, *given: Any) -> marks.Mark:
        if student == "ben":
            while not begun:  # until the child of anna runs
                time.sleep(0.01)
            return marks.Mark(student, path.name, "", ())
        with Child(sleep, limits=Limits(60, 900 * MB)) as child:
            begun.append(child)
            with contextlib.suppress(Stopped):
                child.said()
        return marks.Mark(student, path.name, "", ())

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "mark", marked)
    monkeypatch.setattr("classroom.cli.grading.say", interrupted)
    before = time.monotonic()
    with pytest.raises(SystemExit) as left:
        main(["grade", str(tmp_path / "class"), "--csv", str(table), "--jobs", "2"])
    assert left.value.code == 130
    assert capsys.readouterr().err == (
        f"labkit grade: stopped: {table} keeps the marks that are known; the same command goes on\n"
    )
    assert time.monotonic() - before < 50  # the child would sleep for 60 s
    assert not any(child.process.is_alive() for child in begun)
    assert not Child.running
    # The mark of ben did not wait for that of anna.
    assert [row["student"] for row in marks.earlier(table)] == ["ben"]


OTHER_EVENTS = """
import os, sys
tried = []
for call in (lambda: os.killpg(0, 0), lambda: os.link(OTHER, "x"), lambda: os.symlink(OTHER, "x"),
             lambda: os.replace("x", OTHER), lambda: os.truncate(OTHER, 0)):
    try:
        call()
        tried.append("done")
    except BaseException as error:
        tried.append(type(error).__name__)
"""


def probe(pipe: Any, enforced: list[str], other: str) -> None:
    Path("x").write_text("mine")
    names: dict[str, Any] = {"OTHER": other}
    exec(OTHER_EVENTS, names)
    pipe.send_bytes(json.dumps({"tried": names["tried"]}).encode())


def changing(pipe: Any, enforced: Any, outside: str) -> None:
    tried = []
    for change in (lambda: open(outside, "w").close(), lambda: os.mkdir(outside),
                   lambda: os.close(os.open(outside, os.O_WRONLY | os.O_CREAT)),
                   lambda: open("inside", "w").close(),
                   lambda: open(os.devnull, "w").close()):  # fmt: skip
        try:
            change()
            tried.append("done")
        except BaseException as error:
            tried.append(type(error).__name__)
    pipe.send_bytes(json.dumps({"tried": tried, "secret": os.environ.get("SECRET")}).encode())


def test_a_submission_changes_nothing_outside_of_its_folder_and_knows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "a token")
    with Child(changing, str(tmp_path / "new"), limits=Limits(20, 900 * MB)) as child:
        found = child.said()
    assert found == {"tried": ["Refused"] * 3 + ["done"] * 2, "secret": None}
    assert not (tmp_path / "new").exists()


def test_the_processes_that_others_are_copied_from_know_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy can read the environment that its original began with, whatever it has now."""
    show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    started: list[dict[str, str]] = []
    read_meanwhile: list[dict[str, str]] = []

    def start() -> None:
        started.append(json.loads(subprocess.run(show, capture_output=True, check=True).stdout))
        read_meanwhile.append(dict(os.environ))

    monkeypatch.setenv("SECRET", "a token")
    monkeypatch.setenv("LABKIT_KNOWN", "1")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    monkeypatch.setattr(children, "ensure_running", start)
    before = dict(os.environ)
    if "forkserver" not in children.multiprocessing.get_all_start_methods():
        pytest.skip("this system has no such process")
    children.quick_start()
    assert "SECRET" not in started[0]
    assert {"PATH", "LABKIT_KNOWN"} <= started[0].keys()
    assert started[0]["RAYON_NUM_THREADS"] == "1"
    # Another thread may be reading the environment: for it, nothing is gone, not for a moment.
    assert read_meanwhile == [before]
    assert dict(os.environ) == before
    start()  # other processes get what they always did
    assert started[1] == started[1] | before
    assert "RAYON_NUM_THREADS" not in started[1]


def signalling(pipe: Any, enforced: list[str], number: int) -> None:
    import ctypes

    sent = ctypes.CDLL(None).kill(number, 0)
    pipe.send_bytes(json.dumps({"sent": sent, "enforced": enforced}).encode())


@LINUX
def test_a_submission_sends_no_signal_to_the_judge() -> None:
    with Child(signalling, os.getpid(), limits=Limits(20, 900 * MB)) as child:
        found = child.said()
    if "no other files (Landlock)" not in found["enforced"]:
        pytest.skip("this kernel has no Landlock")
    version = sandbox.landlock_version()
    assert (found["sent"] == -1) == (version >= sandbox.SCOPED)
    assert ("no signals" in " ".join(found["enforced"])) == (version >= sandbox.SCOPED)


def test_where_there_is_no_landlock_nothing_is_asked_of_the_c_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Windows `ctypes.CDLL(None)` raises, and no submission would begin."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sandbox, "_libc", None)
    assert sandbox.only_these([], []) == []


def test_a_name_or_an_error_of_any_letters_stops_nobody(tmp_path: Path) -> None:
    lines = list[str]()
    (tmp_path / "m").mkdir()
    for name in ("a b", "a_b", "x" * 200):
        (tmp_path / f"{name}.ipynb").write_text(
            notebook('raise ValueError("\\ud800")', RIGHT, CHECK)
        )
    rows = grading.grade(tmp_path, tmp_path / "m.csv", tmp_path / "m", released,
                         Limits(60, 1500 * MB), 2, lines.append)  # fmt: skip
    assert [row["05.factor"] for row in rows] == ["1"] * 3
    assert len(list((tmp_path / "m").glob("*.html"))) == 3


def elsewhere(pipe: Any, enforced: Any) -> None:
    own = Path.cwd()
    os.chdir(os.path.dirname(os.__file__))
    (own / "x.txt").write_text("mine")
    pipe.send_bytes(b'{"written": 1}')


def asks_for_extras(pipe: Any, enforced: Any) -> None:
    from classroom.cli.doctor import requirements

    pipe.send_bytes(json.dumps({"extras": list(requirements())}).encode())


def test_the_first_notebook_may_say_what_is_installed() -> None:
    with Child(asks_for_extras, limits=Limits(60, 900 * MB)) as child:
        assert "lecture" in child.said()["extras"]


def test_a_submission_writes_to_its_folder_from_any_other() -> None:
    with Child(elsewhere, limits=Limits(20, 900 * MB)) as child:
        assert child.said() == {"written": 1}


def test_no_event_goes_round_what_is_hidden(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("theirs")
    with Child(probe, str(other), limits=Limits(20, 900 * MB, [tmp_path])) as child:
        assert child.said()["tried"] == ["Refused"] * 5


# ---- the table of a class


def test_every_notebook_of_a_folder_is_marked_under_a_name_of_its_own(tmp_path: Path) -> None:
    """Also a second one, a file beside a folder of its name, and an ending in capitals.

    A folder is no notebook, whatever its name.
    """
    names = (
        "anna.ipynb",
        "anna/a.ipynb",
        "anna/a-Copy1.ipynb",
        "BEN.IPYNB",
        ".ipynb_checkpoints/x.ipynb",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(notebook(CHECK))
    (tmp_path / "anna" / "b.ipynb").mkdir()
    assert {name: path.relative_to(tmp_path).as_posix()
            for name, path in grading.submissions(tmp_path).items()} == {
        "anna": "anna/a.ipynb",
        str(Path("anna/a-Copy1")): "anna/a-Copy1.ipynb",
        "anna.ipynb": "anna.ipynb", "BEN": "BEN.IPYNB",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("=1", "'=1"), ("@x", "'@x"), ("＝1", "'＝1"), (" =1", "' =1"),
        ("a;=1", "a;'=1"), ("a; -1", "a;' -1"), ("a\t+1", "a\t'+1"), ("a\r\n=1", "a\r'\n'=1"),
        *((name, name) for name in ("Müller, Anna (final) 2", "anna - b", "a=1")),
    ],
)  # fmt: skip
def test_no_part_of_a_text_is_a_formula(text: str, plain: str) -> None:
    """Where a comma is no separator, a spreadsheet cuts a line at its semicolons."""
    assert marks.no_formula(text) == plain
    row = marks.Mark(text, f"{text}.ipynb", "d", [], status=text).row
    assert (row["student"], row["status"]) == (plain, plain)
    assert row["file"] == f"{plain}.ipynb"


def marked_class(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str
) -> Callable[[], list[str]]:
    """A class that is marked without running anything, and a call that marks it once more."""
    (folder / "class").mkdir()
    for name in names:
        (folder / "class" / f"{name}.ipynb").write_text(notebook(RIGHT, CHECK))

    def marked(student: str, path: Path, *given: Any) -> marks.Mark:
        return marks.Mark(student, path.name, grading._digest(path), ["05.factor"])

    monkeypatch.setattr(grading, "mark", marked)

    def once_more() -> list[str]:
        assert main(["grade", str(folder / "class"), "--csv", str(folder / "marks.csv")]) == 0
        lines = (folder / "marks.csv").read_text(encoding="utf-8-sig").splitlines()
        return [line for line in lines if line]

    once_more()
    return once_more


def test_what_a_lecturer_adds_to_the_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna", "ben")
    table = tmp_path / "marks.csv"
    header, anna, ben = table.read_text(encoding="utf-8-sig").splitlines()
    table.write_text(f"{header}\n{anna},asked again\n{ben},late,ill\n", encoding="utf-8")
    # The notebook of anna is marked again, and has another digest then.
    (tmp_path / "class" / "anna.ipynb").write_text(notebook(RIGHT, RIGHT, CHECK))
    again = once_more()
    assert again[0] == f"{header},"
    assert again[1].endswith(",asked again")
    assert again[1] != f"{anna},asked again"
    assert again[2] == f'{ben},"late, ill"'
    named = f"{header},note 1.5\n{anna},well done\n{ben}\n"
    table.write_text(named, encoding="utf-8")
    assert "well done" in once_more()[1]
    assert "note 1.5 " not in capsys.readouterr().out


def test_a_run_that_is_stopped_loses_nothing_that_a_lecturer_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna", "ben", "carl")
    table = tmp_path / "marks.csv"
    header, *rows = table.read_text(encoding="utf-8-sig").splitlines()
    lines = [f"{header},note", *(f"{row},note on {row.split(',')[0]}" for row in rows)]
    table.write_text("\n".join(lines), encoding="utf-8")
    for name in ("anna", "ben", "carl"):
        (tmp_path / "class" / f"{name}.ipynb").write_text(notebook(RIGHT, RIGHT, CHECK))

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr("classroom.cli.grading.say", interrupted)
        with pytest.raises(SystemExit):
            main(["grade", str(tmp_path / "class"), "--csv", str(table), "--jobs", "1"])
    kept = marks.earlier(table)
    notes = [f"note on {name}" for name in ("anna", "ben", "carl")]
    assert sorted(row["note"] for row in kept) == notes
    assert sorted(row["status"] for row in kept) == [
        "finished", *["stopped: not marked again yet"] * 2
    ]  # fmt: skip
    once_more()
    assert {(row["status"], row["note"]) for row in marks.earlier(table)} == {
        ("finished", f"note on {name}") for name in ("anna", "ben", "carl")
    }


def test_rows_of_students_who_are_not_in_the_folder_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna", "ben")
    before = once_more()
    (tmp_path / "class" / "anna.ipynb").rename(tmp_path / "class" / "dora.ipynb")
    capsys.readouterr()
    assert once_more()[:3] == before
    assert "2 students: " in capsys.readouterr().out


def test_a_table_of_another_lesson_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna", "ben")
    before = once_more()
    other = notebook(CHECK.replace("05.factor", "06.temperature"))
    (tmp_path / "class" / "anna.ipynb").write_text(other)
    assert once_more()[2:] == before[2:]  # one of several may hand in another lesson
    (tmp_path / "class" / "ben.ipynb").write_text(other)
    with pytest.raises(SystemExit):
        once_more()
    says = "has marks of notebook 05, and what is handed in is of 06: name another table with --csv"
    assert says in capsys.readouterr().err
    assert (tmp_path / "marks.csv").read_text(encoding="utf-8-sig").splitlines()[2:] == before[2:]


def test_a_table_with_semicolons_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna")
    table = tmp_path / "marks.csv"
    header, anna = table.read_text(encoding="utf-8-sig").splitlines()
    table.write_text(f"{header},note\n{anna},late".replace(",", ";"), encoding="utf-8")
    (tmp_path / "class" / "anna.ipynb").write_text(notebook(RIGHT, RIGHT, CHECK))
    assert once_more()[1].split(",")[-4:][0] == "late"


def test_the_command_says_what_it_passes_over_and_whose_lesson_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = tmp_path / "class"
    (folder / "dora").mkdir(parents=True)
    for name in ("anna.ipynb", "ben.ipynb", "carl.ipynb.txt", "dora/answer.py", ".hidden"):
        (folder / name).write_text(notebook(CHECK))

    def marked(student: str, path: Path, *given: Any) -> marks.Mark:
        return marks.Mark(student, path.name, "d", [f"0{len(student)}.x"])

    monkeypatch.setattr(grading, "mark", marked)
    assert main(["grade", str(folder), "--csv", str(folder / "marks.csv")]) == 0
    said = capsys.readouterr().out
    assert "not marked, because there is no .ipynb file: carl.ipynb.txt, dora\n" in said
    assert (
        "these notebooks are of 2 lessons, so do not compare their points: 03 (ben); 04 (anna)"
        in said
    )


def test_marks_of_another_judge_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, "anna")
    once_more()
    assert "1 of 1 were marked before" in capsys.readouterr().out
    monkeypatch.setattr(grading, "judge_version", lambda: "another")
    once_more()
    assert "marked before" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["'t Hooft", "=a", "Müller"])
def test_a_name_of_any_letters_is_marked_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    once_more = marked_class(tmp_path, monkeypatch, name)
    capsys.readouterr()
    assert len(once_more()) == 2
    assert "1 of 1 were marked before" in capsys.readouterr().out
    assert (tmp_path / "marks.csv").read_bytes().startswith(b"\xef\xbb\xbfstudent,")


def test_a_name_that_is_written_from_right_to_left_stands_apart_from_its_points() -> None:
    page = marks.page(marks.Mark("محمد", "محمد.ipynb", "d", ["05.factor"]))
    assert "<h1><bdi>محمد</bdi>: 0 of 1</h1>" in page
    assert "<bdi>محمد.ipynb</bdi>, finished" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no JSON", "the file is not JSON"),
        ("[1]", "not a notebook of version 4"),
        ('{"worksheets": []}', "not a notebook of version 4"),
        ('{"cells": [1]}', "not a notebook of version 4"),
        ('{"cells": [{"cell_type": "code", "source": 3}]}', "not a notebook of version 4"),
        (notebook(CHECK).replace('"metadata": {}', '"metadata": null'), "of version 4"),
    ],
)
def test_what_is_no_notebook_is_told_what_to_do(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "anna.ipynb").write_text(text)
    assert says in grading.mark("anna", tmp_path / "anna.ipynb", released, Limits(1, 1)).status


def test_a_file_that_is_too_large_is_told_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(handed_in, "LARGEST", 10**6)
    (tmp_path / "anna.ipynb").write_text(" " * 10**6 + notebook(CHECK))
    status = grading.mark("anna", tmp_path / "anna.ipynb", released, Limits(1, 1)).status
    assert status == "the file has more than 1 MB: clear its outputs and save it again"


def test_a_notebook_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "anna.ipynb").write_text(notebook(CHECK), encoding="utf-8-sig")
    assert handed_in.notebook_in(handed_in.read(tmp_path / "anna.ipynb"))["cells"]
