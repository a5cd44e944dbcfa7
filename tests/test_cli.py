"""The command line: help to learn from, one line for a mistake, the nearest right name."""

import argparse
import asyncio
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from browser import wait_for

from classroom.charts.live import SHORT
from classroom.cli import COMMANDS, SPINS, main, overview, suite
from classroom.cli.doctor import machine
from classroom.cli.notebooks import (
    execute,
    find,
    joined,
    listing,
    named_after,
    normalised,
    static,
)
from classroom.cli.parameters import (
    ParameterError,
    checked,
    checked_grid,
    kind_of,
    value,
    with_equals,
)
from classroom.cli.parser import Parser
from classroom.cli.results import END_MARK, START_MARK, index_of, title, write_table
from classroom.running import notebook as running
from classroom.running.notebook import Run

ROOT = Path(__file__).resolve().parent.parent


def call(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `python -m labkit` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "labkit", *words], cwd=cwd, capture_output=True, text=True
    )


def left_with(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, str]:
    """Run the command line in this process; return its exit code and its standard error."""
    with pytest.raises(SystemExit) as left:
        main(words)
    return left.value.code, capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name, (_, _, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", said, re.MULTILINE)
    assert "examples:" in said
    assert main(["help"]) == 0
    assert capsys.readouterr().out == said


def test_help_about_a_command_is_asked_for_in_either_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = []
    for words in (["help", "run"], ["run", "--help"]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert "usage: labkit run" in told[0]


def test_a_notebook_without_parameters_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), path)
    assert main(["run", str(path), "--list"]) == 0
    assert capsys.readouterr().out == "none.ipynb has no parameters\n"


def test_help_is_quick_to_come_and_imports_nothing_large() -> None:
    code = "import sys; from classroom.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert not {"torch", "numpy", "papermill"} & set(done.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert COMMANDS[name][2][1:] in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_argument_in_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Parser] = []
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(Parser, "print_help", lambda self, file=None: seen.append(self))
    with pytest.raises(SystemExit):
        main([name, "--help"])
    [parser] = seen
    assert max(map(len, [*parser.format_help().splitlines(), *overview().splitlines()])) <= 80
    for action in parser._actions:
        assert action.help, action.dest
        assert "--out" not in action.option_strings, "every command calls its folder --output"
        if action.option_strings and action.default not in (None, False, [], argparse.SUPPRESS):
            assert "[" in action.help, f"{action.dest} has a default that its help does not name"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["docter"], "there is no command docter; did you mean doctor?"),
        (["zzz"], "there is no command zzz (the commands: lab, test,"),
        (["run", "00", "--profil", "gpu"], "did you mean --profile?"),
        (["run", "00", "--profile", "laptpo"], "did you mean laptop?"),
        (["run", "00", "-p", "sed", "1"], "there is no parameter sed; did you mean seed?"),
        (["run", "00", "-p", "sed=1"], "there is no parameter sed; did you mean seed?"),
        (["run", "00", "-p", "seed"], "'seed' is not NAME=VALUE: give a name and a value"),
        (["run", "00", "-p", "seed", "--list"], "'seed' is not NAME=VALUE: give a name"),
        (["run", "00", "-p", "=3"], "'=3' is not NAME=VALUE: give a name and a value"),
        (["run", "00", "-p", "seed", "one"], "parameter seed: 'one' is not of type int"),
        (["run", "00", "-p", "profile", "lap"], "there is no profile lap; did you mean laptop?"),
        (["run", "00_strt_here"], "there is no notebook 00_strt_here; did you mean 00_start_here?"),
        (["run"], "are required: notebook (all of them: `labkit run --help`)"),
        (["lab", "--nope"], "unrecognized arguments: --nope (all of them: `labkit lab --help`)"),
        (["run", "--", "00", "--list"], "unrecognized arguments: --list (all of them"),
        (["copy", ""], "'' is not a folder: give one, such as . for this one"),
        (["grade", ""], "'' is not a folder: give one, such as . for this one"),
        (["speedrun", ""], "'' is not a folder: give one, such as . for this one"),
        (["bench", "awd_ltsm"], "there is no benchmark awd_ltsm; did you mean awd_lstm?"),
        (["test", "tets"], "did you mean tests?"),
        (["lecture", "00", "--port", "99999"], "--port: '99999': give a whole number, 1 to 65535"),
        (["lab", "--here", "--port", "0"], "--port: '0': give a whole number, 1 to 65535"),
        (["lab", "--here", "--port", "http"], "--port: 'http': give a whole number, 1 to 65535"),
        (["claims", "--seeds", "2147483648"], "'2147483648': give a whole number, 1 to 10000"),
        (["course", "--jobs", "0"], "--jobs: '0': give a whole number, 1 or more"),
        (["run", "00", "--timeout", "-1"], "--timeout: '-1': give a whole number, 1 or more"),
        (["sweep", "00", "-p", f"seed={'-' * 5000}1"], "is not of type int"),
        (["run", "00", "-p", "seed", "[" * 5000], "is not of type int"),
        (["run", "00", "-p", "seed", "9" * 5000], "is not of type int"),
        (["run", "00", "-p", "seed=1", "-p", "seed=2"], "seed is given twice: give one value"),
        (["run", "00", "--profile", "smoke", "-p", "profile=gpu"], "profile is given twice"),
        (["course", "--profile", "smoke", "-p", "profile=gpu"], "profile is given twice"),
        (["run", "00", "--output", "x.txt"], "x.txt: give the name of a file that ends in .ipynb"),
        (["run", "00", "--output", "."], ".: give the name of a file that ends in .ipynb"),
        (["sweep", "00"], "there is nothing to vary: give -p NAME=VALUES"),
        (["sweep", "00", "-p", "seed=0:10000000000"], "seed: 0:10000000000 has more than 10,000"),
        (["sweep", "00", "-p", f"seed=0:{'9' * 400}"], "is not of type int"),
        (["sweep", "00", "-p", "seed=0:9999", "-p", "profile=smoke,laptop"], "19,998 runs; give"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(
    words: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = left_with(capsys, *words)
    assert code == 2
    assert said.count("\n") == 1
    assert message in said


def test_a_name_that_is_like_no_other_suggests_none(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = left_with(capsys, "run", "00", "-p", "nonsense", "3")
    assert "there is no parameter nonsense (the parameters: " in said


NO_NOTEBOOKS = {
    "empty": b"", "no JSON": b"{", "a list": b"[]", "no cells": b'{"nbformat": 4}',
    "nested": b"[" * 100_000, "not UTF-8": b"\xff\xfe",
    "an old one": b'{"nbformat": 3, "cells": []}',
    "cells that are none": b'{"nbformat": 4, "cells": [1]}',
    "a cell that lacks parts": b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}',
}  # fmt: skip


@pytest.mark.parametrize("content", NO_NOTEBOOKS.values(), ids=NO_NOTEBOOKS)
@pytest.mark.parametrize("command", ["run", "sweep", "lecture", "site", "students", "notebooks"])
def test_a_file_that_is_no_notebook_is_refused(
    command: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_bytes(content)
    code, said = left_with(capsys, command, str(path))
    assert (code, said) == (2, f"labkit: {path} is not a Jupyter notebook of version 4: give a "
                               "valid .ipynb file\n")  # fmt: skip


def test_a_notebook_of_any_size_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("classroom.cli.notebooks.LARGEST", 1_000_000)
    (tmp_path / "large.ipynb").write_bytes(b" " * 1_000_001)
    code, said = left_with(capsys, "run", str(tmp_path / "large.ipynb"))
    assert code == 2
    assert "has more than 1 MB" in said


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["site", "00", "--output"], "--output"),
        (["students", "00", "--output"], "--output"),
        (["course", "--unsolved", "--output"], "--output"),
    ],
)
def test_a_folder_that_cannot_be_is_said_with_the_option(
    words: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    code, said = left_with(capsys, *words, str(tmp_path / "file" / "inside"))
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"labkit {words[0]}: [Errno")
    assert said.endswith(f"name another place with {option}\n")


def test_an_output_that_cannot_be_is_said_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = small_notebook(tmp_path, "1")
    (tmp_path / "file").write_text("no folder")
    code, said = left_with(
        capsys, "run", str(notebook), "--output", str(tmp_path / "file" / "x" / "out.ipynb")
    )
    assert (code, said.count("\n")) == (1, 1)
    assert said.endswith("name another place with --output\n")


def test_a_full_disk_leaves_no_half_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook, output = small_notebook(tmp_path, "1"), tmp_path / "out.ipynb"

    def full(*_: object, **__: object) -> None:
        output.write_text('{"cells": [')
        raise OSError(28, "No space left on device", str(output))

    monkeypatch.setattr("papermill.execute_notebook", full)
    code, said = left_with(capsys, "run", str(notebook), "--output", str(output))
    assert code == 1
    assert "No space left on device" in said
    assert not output.exists()


def test_sizes_in_nested_json_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    code, said = left_with(capsys, "costs", str(tmp_path / "x.json"))
    assert (code, said.count("\n")) == (2, 1)
    assert "x.json is not JSON" in said


def test_a_limit_of_the_cache_that_is_none_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABKIT_CACHE_LIMIT", "inf")
    code, said = left_with(capsys, "cache")
    assert (code, said.count("\n")) == (2, 1)
    assert "LABKIT_CACHE_LIMIT is 'inf': give a number of bytes" in said


def test_a_cache_that_is_a_file_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    code, said = left_with(capsys, "cache")
    assert (code, said.count("\n")) == (2, 1)
    assert f"{tmp_path / 'file'} is not a folder" in said


@pytest.mark.skipif(os.name == "nt", reason="Windows says it otherwise")
def test_whoever_has_read_enough_hears_no_complaint() -> None:
    code = (
        "import os, sys; from classroom.cli import main\n"
        "reading, writing = os.pipe(); os.close(reading); os.dup2(writing, 1)\n"
        "sys.exit(main(['claims', '--kept']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""


def test_no_letter_ends_a_command() -> None:
    """Into a file or a pipe Windows writes cp1252, which has no Greek."""
    settings = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    # The escape is for the command line, which has no Greek in the locale C.
    code = r"print('L3 = L2 + \u03bb L1')"
    broken = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True)
    assert b"UnicodeEncodeError" in broken.stderr
    code = f"from classroom import cli; cli.called = lambda words: {code}; cli.main([])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, capture_output=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"L3 = L2 + ? L1", b"")


@pytest.mark.parametrize(("own", "seen"), [(None, SPINS["GOMP_SPINCOUNT"]), ("7", "7")])
def test_threads_that_wait_give_their_core_back_soon(
    own: str | None, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries read it when they are loaded: it is set before, for kernels too."""
    monkeypatch.setenv("GOMP_SPINCOUNT", own or "")
    if own is None:
        monkeypatch.delenv("GOMP_SPINCOUNT")
    found: list[object] = []

    def called(words: list[str]) -> int:
        return found.append(os.environ.get("GOMP_SPINCOUNT")) or 0

    monkeypatch.setattr("classroom.cli.called", called)
    main(["doctor"])
    assert found == [seen]


def test_words_after_one_benchmark_are_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Sequence[str]] = []
    monkeypatch.setattr(subprocess, "call", lambda command, **_: called.append(command[1:]) or 0)
    main(["bench", "minute", "village", "--seconds", "3"])
    main(["bench", "corpus", "language"])
    assert [Path(script).stem for script, *_ in called] == [
        "bench_minute", "bench_corpus", "bench_language"
    ]  # fmt: skip
    assert called[0][1:] == ["village", "--seconds", "3"]
    assert called[1][1:] == called[2][1:] == []


def test_as_a_program_too() -> None:
    done = call("rnu", "00")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "did you mean run?" in done.stderr


def test_doctor_says_what_it_found() -> None:
    done = call("doctor")
    assert done.returncode == 0, done.stderr
    found = {line.split()[0]: line for line in done.stdout.splitlines()}
    names = "Python torch memory threads GPU precision float32 bfloat16 Jupyter Chromium"
    assert {*names.split(), "[dev]", "[hub]", "[cluster]", "[lecture]"} <= set(found)
    assert ".".join(map(str, sys.version_info[:3])) in found["Python"]
    speed = re.search(r"([\d,]+) GFLOP/s", found["float32"])
    assert speed
    assert 0.1 < float(speed[1].replace(",", "")) < 1e6


def test_doctor_does_not_time_what_is_only_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit.keeping import computing

    timed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(computing, "has_bfloat16", lambda device: False)
    monkeypatch.setattr(computing, "measured_peak", lambda *given: (timed.append(given), 1e9)[1])
    said = dict(machine())
    assert timed == [("cpu", torch.float32)]
    assert "only emulates such products" in said["bfloat16"]


@pytest.mark.parametrize(
    ("word", "kind", "expected"),
    [
        ("3", "int", 3),
        ("3", "float", 3.0),
        ("1e-3", "float", 1e-3),
        ("3", "str", "3"),
        ("yes", "bool", True),
        ("False", "bool", False),
        ("None", "int | None", None),
        ("4", "int | None", 4),
        ("4", "Optional[int]", 4),
        ("[1, 2.5]", "list[int | float]", [1, 2.5]),
        ("[1, 2]", "list[int]", [1, 2]),
        ("(1, 2)", "tuple[int, ...]", (1, 2)),
        ("1.5", "int | float", 1.5),
        ("a b", "str | None", "a b"),
        ("b", "Literal['a', 'b']", "b"),
        ("2", "Literal['2', 'b']", "2"),
        ("2", "Literal[1, 2]", 2),
    ],
)
def test_words_become_values(word: str, kind: str, expected: object) -> None:
    found = value(word, kind)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("{1, 2}", "set[int]"), ("b'x'", "bytes"), ("[{1}]", "list"), ("1e999", "float")],
)
def test_what_no_notebook_can_keep_is_refused(word: str, kind: str) -> None:
    """papermill would end with a traceback, or the process of a sweep's run without a word."""
    with pytest.raises(ValueError, match="cannot be stored in a notebook"):
        value(word, kind)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("3.5", "int"), ("x", "float"), ("2", "bool"), ("1", "list[int]"), ("[1", "list"),
     ("[1, 'a']", "list[int]"), ("x", "Path"), ("None", "int"),
     ("c", "Literal['a', 'b']"), ("2", "Literal['a']"), ("9" * 400, "float")],
)  # fmt: skip
def test_words_of_another_type_are_refused(word: str, kind: str) -> None:
    with pytest.raises(ValueError, match="type"):
        value(word, kind)


def test_without_an_annotation_the_default_shows_the_type() -> None:
    assert kind_of("None", "0.5") == "float"
    assert kind_of("None", "True") == "bool"
    assert kind_of("None", "None") == "str | None"
    assert kind_of("None", "Path('x')") == ""
    assert kind_of("int", "0.5") == "int"


def tagged_notebook(folder: Path, *sources: str, kind: str = "code") -> Path:
    """Write a notebook whose cells are all tagged `parameters`; the first is of this kind."""
    first = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}[kind]
    cells = [first(sources[0]), *map(nbformat.v4.new_code_cell, sources[1:])]
    for cell in cells:
        cell.metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "own.ipynb")
    return folder / "own.ipynb"


def test_a_parameter_of_no_visible_type_is_not_taken_for_a_text(tmp_path: Path) -> None:
    """`n = 2 * 8` with -p n=9 would give the notebook the text "9"."""
    notebook = tagged_notebook(tmp_path, "n = 2 * 8\nseed = 0")
    assert checked(notebook, {"seed": "1"}) == {"seed": 1}
    for check in (checked, checked_grid):
        with pytest.raises(ParameterError, match=r"parameter n: 2 \* 8 does not show its type"):
            check(notebook, {"n": "9"})
    assert listing(notebook) == "n: ? = 2 * 8\nseed: int = 0"


@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_a_value_that_a_second_tagged_cell_would_undo_is_refused(tmp_path: Path, kind: str) -> None:
    notebook = tagged_notebook(tmp_path, "seed = 1", "seed = 2", kind=kind)
    with pytest.raises(ParameterError, match="to one code cell, and to no other"):
        checked(notebook, {"seed": "4"})


def test_a_magic_among_the_parameters_is_named(tmp_path: Path) -> None:
    notebook = tagged_notebook(tmp_path, "seed = 1\n%matplotlib inline")
    with pytest.raises(ParameterError, match="not plain Python: line 2: invalid syntax"):
        checked(notebook, {"seed": "4"})


def test_values_that_papermill_writes_as_texts_keep_their_types(tmp_path: Path) -> None:
    words = {"pair": "(3, 'é')", "table": "{1: (2, None)}", "text": "'a\"\\"}
    cell = 'pair: tuple = ()\ntable: dict = {}\ntext: str = ""\nbig = 1.0'
    notebook, output = tagged_notebook(tmp_path, cell), tmp_path / "out.ipynb"
    source = json.loads(notebook.read_text(encoding="utf-8"))
    source["cells"].append(nbformat.v4.new_code_cell("(pair, table, text, big)"))
    notebook.write_text(json.dumps(source), encoding="utf-8")
    given = {**checked(notebook, words), "big": math.inf}
    assert execute(notebook, output, given, timeout=60).error is None
    last = json.loads(output.read_text(encoding="utf-8"))["cells"][-1]
    said = "".join(last["outputs"][0]["data"]["text/plain"])
    assert said == repr(((3, "é"), {1: (2, None)}, "'a\"\\", math.inf))


def small_notebook(folder: Path, last: str) -> Path:
    """Write a notebook with parameters and a last cell."""
    parameters = 'seed: int = 0\nrate = 0.5\nprofile: str = "smoke"\n'
    cells = [
        nbformat.v4.new_markdown_cell("Some words\n\n# The title of it\n"),
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(last),
    ]
    path = folder / "small.ipynb"
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def test_parameters_reach_the_notebook_and_the_folder_is_made(tmp_path: Path) -> None:
    notebook = small_notebook(tmp_path, "(seed, rate, profile)")
    given = checked(notebook, {"seed": "7", "rate": "0.25", "profile": "gpu"})
    assert given == {"seed": 7, "rate": 0.25, "profile": "gpu"}
    output = tmp_path / "a" / "b" / "out.ipynb"
    result = execute(notebook, output, given, timeout=60)
    assert result.error is None
    assert result.peak_bytes > 10 * 2**20
    last = json.loads(output.read_text())["cells"][-1]
    assert "".join(last["outputs"][0]["data"]["text/plain"]) == "(7, 0.25, 'gpu')"
    assert title(notebook) == "The title of it"


def test_a_notebook_without_a_language_takes_any_type_and_nobody_complains(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As nbformat writes it: JupyterLab adds the language."""
    cells = [
        nbformat.v4.new_code_cell("most: int | None = None", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("most"),
    ]
    notebook, output = tmp_path / "bare.ipynb", tmp_path / "out.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), notebook)
    assert execute(notebook, output, checked(notebook, {"most": "4"}), timeout=60).error is None
    last = json.loads(output.read_text())["cells"][-1]
    assert "".join(last["outputs"][0]["data"]["text/plain"]) == "4"
    assert not caplog.records


@pytest.mark.parametrize(("seconds", "least", "most"), [(1000, 1, 2), (0, 7, 20)])
def test_a_notebook_that_runs_is_saved_now_and_then(
    seconds: int, least: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not twice a cell, which takes longer than most cells; and when it ends, in any case."""
    from papermill import engines

    written: list[str] = []
    write = engines.write_ipynb

    def counted(book: Any, path: str) -> None:
        written.append(path)
        write(book, path)

    monkeypatch.setattr(engines, "write_ipynb", counted)
    monkeypatch.setattr(running, "SAVED", seconds)
    output = tmp_path / "out.ipynb"
    assert execute(small_notebook(tmp_path, "6 * 7"), output, {}, timeout=60).error is None
    assert least <= len(written) <= most
    assert "42" in json.dumps(json.loads(output.read_text())["cells"][-1]["outputs"])


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "seed=7", "-p", "rate=-0.25"], ["-p", "seed", "7", "--parameter", "rate", "-0.25"],
        ["-p", "seed=7", "-p", "rate", "-0.25"], ["-pseed=7", "--parameter=rate=-0.25"],
    ],
)  # fmt: skip
def test_a_parameter_is_given_with_an_equals_sign_or_without(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[dict[str, object]] = []

    def executed(
        notebook: Path, output: Path, parameters: dict[str, object], *_: object, **__: object
    ) -> Run:
        ran.append(parameters)
        return Run(notebook.name, 0.0, 0, None)

    monkeypatch.setattr("classroom.cli.notebooks.execute", executed)
    notebook = str(small_notebook(tmp_path, "1"))
    assert main(["run", *words, notebook]) == 0
    assert main(["run", notebook, *words]) == 0
    assert ran == [{"seed": 7, "rate": -0.25}] * 2


def test_runs_with_other_parameters_have_other_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def executed(notebook: Path, output: Path, *_: object, **__: object) -> Run:
        names.append(output.name)
        return Run(notebook.name, 0.0, 0, None)

    monkeypatch.setattr("classroom.cli.notebooks.execute", executed)
    notebook = str(small_notebook(tmp_path, "1"))
    for words in ("", "--profile smoke", "--profile gpu -p seed=3", "-p seed=3 -p rate=1"):
        assert main(["run", notebook, *words.split()]) == 0
    assert names == ["small-as-is.ipynb", "small-smoke.ipynb", "small-gpu-seed=3.ipynb",
                     "small-as-is-rate=1.0-seed=3.ipynb"]  # fmt: skip
    strange = [named_after({"text": text}) for text in ("a/b", "a b", "ü" * 500, "ü" * 501)]
    assert len({*strange}) == 4
    assert all(re.fullmatch(r"[\w.=-]{1,100}", name, re.ASCII) for name in strange)


def test_each_command_has_one_usual_profile(capsys: pytest.CaptureFixture[str]) -> None:
    for command, usual in (("run", "[the notebook's own]"), ("course", "[laptop]")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"the same as -p profile=... {usual}" in " ".join(capsys.readouterr().out.split())


def test_only_a_name_without_an_equals_sign_takes_the_next_word() -> None:
    given = ["05", "-p", "seed", "0:5", "-p", "a=b", "--parameter", "c", "d=e", "--profile", "gpu"]
    assert with_equals(given) == [
        "05", "-p", "seed=0:5", "-p", "a=b", "--parameter", "c=d=e", "--profile", "gpu"
    ]  # fmt: skip
    assert with_equals(["-p", "seed=1", "05"]) == ["-p", "seed=1", "05"]
    assert with_equals(["-p", "--list", "05", "-p", "seed", "--list", "-p"]) == [
        "-p", "--list", "05", "-p", "seed", "--list", "-p"
    ]  # fmt: skip


def test_nobody_listens_to_what_is_said_to_a_kernel(tmp_path: Path) -> None:
    asked = (
        "from ipykernel.kernelapp import IPKernelApp\nassert IPKernelApp.instance().curve_secretkey"
    )
    notebook = small_notebook(tmp_path, asked)
    assert execute(notebook, tmp_path / "out.ipynb", {}, timeout=60).error is None


def test_a_kernel_that_is_ended_says_nothing_on_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "get_ipython().kernel.log.error('KeyboardInterrupt caught in kernel.')"
    notebook = small_notebook(tmp_path, said)
    assert execute(notebook, tmp_path / "out.ipynb", {}, timeout=60).error is None
    assert capfd.readouterr().err == ""


def test_results_are_found_from_an_index_and_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = small_notebook(tmp_path, "1")
    runs = [Run("small", 1.2, 3 * 2**20, None), Run("small", 9.0, 2**20, "a | b")]
    outputs = [tmp_path / "small-smoke.ipynb", tmp_path / "small-laptop.ipynb"]
    (tmp_path / "small-smoke.records.json").write_text('{"loss": 0.123456, "seen": "it\\nholds"}')
    lines = index_of(outputs, runs).splitlines()
    assert lines[-2:] == [
        "| [small-smoke](small-smoke.ipynb) | 1 s | 3 MB | loss 0.1235; seen it holds |",
        r"| [small-laptop](small-laptop.ipynb) | 9 s | 1 MB | **failed**: a \| b |",
    ]
    (tmp_path / "README.md").write_text(f"before\n{START_MARK}\nold\n{END_MARK}\nafter\n")
    monkeypatch.setattr("classroom.cli.results.checkout", lambda: tmp_path)
    write_table([notebook], {"smoke": runs[:1], "opened": runs[1:]}, jobs=2)
    said = (tmp_path / "README.md").read_text()
    assert (
        "| [`small`](notebooks/small.ipynb) | The title of it | 1 s | 3 MB | 9 s | 1 MB |" in said
    )
    assert "`python -m labkit course --jobs 2 --table`" in said
    assert "| smoke | memory | opened | memory |" in said
    assert "*opened*: the laptop profile" in said
    assert "old" not in said
    assert said.startswith("before")
    assert said.endswith("after\n")


def test_the_table_measures_smoke_laptop_and_what_it_takes_to_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, written = list[tuple[str, bool]](), dict[str, float]()
    monkeypatch.setenv(SHORT, "")
    notebook = small_notebook(tmp_path, "1")
    monkeypatch.setattr("classroom.cli.notebooks.every_notebook", lambda: [notebook])

    def run_all(books: Any, outputs: Any, parameters: Any, profile: str, *_: Any, **__: Any) -> Any:
        [given] = parameters
        assert given.get("profile", profile) == profile
        seen.append((profile, bool(os.environ[SHORT])))
        return [Run("small", float(len(seen)), 1, None)]

    def write_table(books: Any, measured: Any, jobs: int) -> None:
        written.update({kind: run.seconds for kind, [run] in measured.items()})

    monkeypatch.setattr("classroom.cli.notebooks.run_all", run_all)
    monkeypatch.setattr("classroom.cli.notebooks.write_table", write_table)
    assert main(["course", "--table", "--output", str(tmp_path)]) == 0
    assert seen == [("smoke", False), ("laptop", False), ("laptop", True)]
    assert written == {"smoke": 1.0, "laptop": 2.0, "opened": 3.0}


def test_a_cell_that_fails_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    notebook = small_notebook(tmp_path, "1 / 0")
    done = call("run", str(notebook), "--output", str(tmp_path / "out.ipynb"), cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError: division by zero" in done.stderr.splitlines()[-1]
    assert (tmp_path / "out.ipynb").is_file()


def test_a_cell_whose_kernel_dies_is_named_and_marked(tmp_path: Path) -> None:
    notebook = small_notebook(tmp_path, "import os; os._exit(3)")
    result = execute(notebook, tmp_path / "out.ipynb", {}, timeout=60)
    assert result.error == (
        "DeadKernelError: the kernel died in cell 2, most often for want of memory: give it more, "
        "or choose a smaller profile"
    )
    last = json.loads((tmp_path / "out.ipynb").read_text())["cells"][-1]
    assert last["metadata"]["papermill"]["status"] == "failed"
    assert f"DeadKernelError: {last['outputs'][0]['evalue']}" == result.error


def test_an_error_of_many_pages_is_shortened(tmp_path: Path) -> None:
    notebook = small_notebook(tmp_path, "raise ValueError(100_000 * 'x')")
    result = execute(notebook, tmp_path / "out.ipynb", {}, timeout=60)
    assert (result.error or "").startswith("cell 2: ValueError: xxx")
    assert len(result.error or "") < 1_100


def test_a_cell_that_hangs_is_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notebook = small_notebook(tmp_path, "import time; time.sleep(100)")
    start = time.monotonic()
    result = execute(notebook, tmp_path / "out.ipynb", {}, timeout=2)
    assert result.error == (
        "cell 2 took more than 2 seconds: give more with `labkit run --timeout`"
    )
    last = json.loads((tmp_path / "out.ipynb").read_text())["cells"][-1]
    assert last["outputs"][-1]["evalue"] == "cell 2 took more than 2 seconds"
    assert capfd.readouterr().err == ""  # the kernel does not complain either
    assert time.monotonic() - start < 60


def test_what_a_hanging_cell_says_as_it_ends_does_not_hide_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client listens until its kernel has ended, which begins with an interrupt."""
    from nbclient import NotebookClient
    from nbclient.util import ensure_async, run_sync

    clean_up = NotebookClient._async_cleanup_kernel

    async def slowly(client: Any) -> None:
        await ensure_async(client.km.interrupt_kernel())
        await asyncio.sleep(1)
        await clean_up(client)

    monkeypatch.setattr(NotebookClient, "_cleanup_kernel", run_sync(slowly))
    notebook = small_notebook(tmp_path, "import time; time.sleep(100)")
    execute(notebook, tmp_path / "out.ipynb", {}, timeout=2)
    outputs = json.loads((tmp_path / "out.ipynb").read_text())["cells"][-1]["outputs"]
    assert [one["ename"] for one in outputs] == ["TimeoutError"]


@pytest.mark.parametrize(("taken", "error"), [(1, None), (99, "before replying to kernel_info")])
def test_a_kernel_whose_port_was_taken_is_started_again(
    taken: int, error: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ports are chosen first and used later: `taken` of them belong to somebody else by then."""
    from jupyter_client.connect import LocalPortCache

    free, asked = LocalPortCache.find_available_port, []

    def find_available_port(self: Any, ip: str) -> int:
        asked.append(ip)
        return port if len(asked) <= taken else free(self, ip)

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(LocalPortCache, "find_available_port", find_available_port)
        result = execute(small_notebook(tmp_path, "1"), tmp_path / "out.ipynb", {}, timeout=60)
    assert (result.error is None) is (error is None)
    assert (error or "") in (result.error or "")


def test_unknown_names_are_refused_before_anything_runs(tmp_path: Path) -> None:
    notebook = small_notebook(tmp_path, "1")
    with pytest.raises(ParameterError, match="no parameter sead; did you mean seed"):
        checked(notebook, {"sead": "1"})


def test_a_notebook_is_found_by_the_beginning_of_its_name() -> None:
    assert find("00").stem == "00_start_here"
    assert find("notebooks/00_start_here.ipynb").stem == "00_start_here"
    assert find("00_start_here").stem == "00_start_here"


def test_normalised_keeps_what_is_shown_and_drops_what_changes() -> None:
    widget = "application/vnd.jupyter.widget-view+json"
    notebook = {
        "cells": [
            {
                "cell_type": "code", "id": "a", "source": "x", "execution_count": 1,
                "metadata": {"tags": ["t"], "execution": {"iopub.status.busy": "2026"}},
                "outputs": [
                    {"output_type": "stream", "name": "stdout", "text": "a\n"},
                    {"output_type": "stream", "name": "stdout", "text": "b\n"},
                    {"output_type": "display_data", "metadata": {"k": 1},
                     "data": {widget: {"model_id": "1"}, "text/html": "<b>x</b>"}},
                ],
            }
        ],
        "metadata": {"widgets": {"state": 1}, "papermill": {}, "language_info": {"version": "3"}},
        "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    cell = normalised(notebook)["cells"][0]
    assert cell["metadata"] == {"tags": ["t"]}
    assert cell["outputs"][0]["text"] == "a\nb\n"
    assert cell["outputs"][1]["data"] == {"text/html": "<b>x</b>"}
    assert set(normalised(notebook)["metadata"]) == {"kernelspec", "language_info"}
    assert normalised(normalised(notebook)) == normalised(notebook)
    assert joined([]) == []
    assert static({"output_type": "stream", "text": "x"}) == {"output_type": "stream", "text": "x"}


def test_every_part_runs_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "bad": ("-c", "print('3 failed, 1 passed in 2 s'); raise SystemExit(1)"),
        "good": ("-c", "import os; print(os.environ['OMP_NUM_THREADS'], 'passed')"),
    }
    monkeypatch.setattr(suite, "PARTS", parts)
    assert main(["test", "--here"]) == 1
    closing = capsys.readouterr().out.splitlines()[-5:]
    assert closing[:2] == ["3 failed, 1 passed in 2 s", "1 passed"]
    assert [line.split()[0] for line in closing[2:]] == ["bad", "good", "all"]
    assert closing[2].endswith("FAILED")
    assert closing[3].endswith("ok")
    assert closing[4].endswith("FAILED: bad")
    assert main(["test", "good", "--here"]) == 0


def test_the_types_are_checked_while_the_tests_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def meets(name: str, mine: Path, other: Path) -> tuple[str, str]:
        """Say that one part has begun, and wait until the other has."""
        return "-c", (
            "import os, time\n"
            f"open({str(mine)!r}, 'w').close()\n"
            "print('begun')\n"
            "end = time.time() + 20\n"
            f"while time.time() < end and not os.path.exists({str(other)!r}): time.sleep(0.01)\n"
            f"print('{name}', 'passed' if time.time() < end else 'late')\n"
            f"exit('{name}' == 'types')"
        )

    one, two = tmp_path / "one", tmp_path / "two"
    parts = {"types": meets("types", one, two), "tests": meets("tests", two, one)}
    monkeypatch.setattr(suite, "PARTS", parts)
    assert main(["test", "--here"]) == 1
    said = capsys.readouterr().out
    assert "\nbegun\ntypes passed\n" in said, "the lines of a part that runs aside stay together"
    closing = said.splitlines()[-5:]
    assert closing[:2] == ["types passed", "tests passed"]
    assert [(line.split()[0], line.split()[-1]) for line in closing[2:]] == [
        ("types", "FAILED"), ("tests", "ok"), ("all", "types"),
    ]  # fmt: skip


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals a process group")
def test_lab_opens_on_this_machine_alone_with_its_token(tmp_path: Path) -> None:
    port = free_port()
    words = ["lab", "--here", "--no-browser", "--port", str(port)]
    settings = {f"JUPYTER_{name}_DIR": str(tmp_path) for name in ("CONFIG", "DATA", "RUNTIME")}
    log = tmp_path / "log.txt"
    with (
        log.open("w") as record,
        subprocess.Popen(
            [sys.executable, "-m", "labkit", *words],
            cwd=ROOT, stdout=record, stderr=record, start_new_session=True,
            env={**os.environ, **settings},
        ) as server,
    ):  # fmt: skip
        try:
            found = None
            for _ in range(300):
                found = re.search(
                    r"(http://127\.0\.0\.1:(\d+))(/\S*)\?token=(\w+)", log.read_text()
                )
                if found or server.poll() is not None:
                    break
                time.sleep(0.2)
            assert found, log.read_text()
            address, _, path, token = found.groups()
            assert path == "/lab/tree/notebooks/00_start_here.ipynb"
            # A slow machine prints the address before it listens.
            wait_for(f"{address}/api/status?token={token}", server, log)
            assert answer(f"{address}/api/contents/notebooks?token={token}") == 200
            assert answer(f"{address}/api/contents/notebooks") == 403
            with opener().open(f"{address}/lab?token={token}", timeout=60) as response:
                [cookie] = [one for one in response.headers.get_all("Set-Cookie")
                            if one.startswith("username-")]  # fmt: skip
            assert "SameSite=Strict" in cookie
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def opener() -> urllib.request.OpenerDirector:
    """Return what opens an address without a proxy."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answer(address: str) -> int:
    """Return the status of a request."""
    try:
        with opener().open(address, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "words",
    [["--help"], ["run", "00", "--list"], ["costs", "gpt3-175b"], ["costs", "--tables"], ["cache"],
     ["costs", "--budget", "1000"], ["claims", "--kept"], ["claims", "--cost"], ["students"],
     ["copy", "own"], *([name, "--help"] for name in COMMANDS)],
    ids=" ".join,
)  # fmt: skip
def test_commands_that_need_no_model_do_not_wait_for_torch(
    words: list[str], tmp_path: Path
) -> None:
    code = f"""
import sys
from classroom.cli import main
try:
    main({words})
finally:
    slow = {{"torch", "scipy", "papermill", "nbformat", "matplotlib", "IPython"}} & set(sys.modules)
    print("imported:", *sorted(slow), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          cwd=tmp_path)  # fmt: skip
    assert done.stdout
    assert done.stderr.strip() == "imported:"
