"""Some hundred random inputs of each kind; and the harness finds what it should find."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fuzz as harness
from fuzz import PACKAGES, Fault, is_ours, run, try_one
from fuzz.kinds import KINDS

COUNT = 150


@pytest.fixture(scope="module")
def faults() -> list[Fault]:
    """The faults of all kinds, found in one process."""
    return run(KINDS, range(COUNT))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_give_a_right_answer_or_one_line(kind: str, faults: list[Fault]) -> None:
    assert [fault for fault in faults if fault.kind == kind] == []


# ---- the harness itself


def bare(rng: random.Random, folder: Path) -> None:
    """An error of a library."""
    raise Exception("the library said so")


def wrong(rng: random.Random, folder: Path) -> None:
    """A wrong answer."""
    raise AssertionError("not the right answer")


def theirs(rng: random.Random, folder: Path) -> None:
    """An error of Python's."""
    int("x")


def ours(rng: random.Random, folder: Path) -> None:
    """An error of the package."""
    from labkit.checks import check_whole

    check_whole("n", "x")


def right(rng: random.Random, folder: Path) -> None:
    """No error."""
    (folder / "file").write_text("x")


@pytest.mark.parametrize("attempt", [bare, wrong, theirs])
def test_faults_are_found(attempt: Any) -> None:
    fault = try_one("kind", 7, attempt)
    assert fault is not None
    assert fault.number == 7


@pytest.mark.parametrize("attempt", [ours, right])
def test_right_answers_and_errors_of_ours_are_no_faults(attempt: Any) -> None:
    assert try_one("kind", 7, attempt) is None


@pytest.mark.parametrize(
    ("said", "expected"), [("'a'", True), ("'a\\nb'", False), ("'a' * 2000", False), ("''", False)]
)
def test_an_error_of_ours_is_one_line(
    said: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{PACKAGES[0]}/made_up.py"
    monkeypatch.setattr(harness.linecache, "getline", lambda *_: "    raise ValueError(")
    with pytest.raises(ValueError, match=r"a|^$") as caught:
        exec(compile(f"raise ValueError({said})", path, "exec"))
    assert is_ours(caught.value) == expected


def test_an_input_is_a_function_of_its_kind_and_number() -> None:
    seen: list[float] = []
    for kind, number in (("a", 1), ("a", 1), ("a", 2), ("b", 1)):
        try_one(kind, number, lambda rng, folder: seen.append(rng.random()))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def run_as_child(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness run a script as the process of its inputs, with two seconds for each."""
    script = folder / "child.py"
    script.write_text(source)
    start = subprocess.Popen

    def child(command: list[str], **options: Any) -> Any:
        options["env"] = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
        return start([sys.executable, str(script), *command[3:]], **options)

    monkeypatch.setattr(harness.subprocess, "Popen", child)
    monkeypatch.setattr(harness, "SECONDS", 2)


CHILD = """
import os, sys, time, types
# The kinds of inputs import torch, and only this one is asked for.
sys.modules["tests.fuzz.kinds"] = types.SimpleNamespace(KINDS=dict(bad={bad}))
from tests.fuzz import __main__
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("lambda rng, folder: os.abort()", "died with -6"),
        ("lambda rng, folder: [0] * 10**10", "MemoryError"),
        ("lambda rng, folder: time.sleep(1000)", "hang"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="memory cannot be limited on Windows")
def test_aborts_floods_and_hangs_are_found(
    bad: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_child(CHILD.format(bad=bad), tmp_path, monkeypatch)
    begun = time.monotonic()
    found = run(["bad"], range(2))
    assert [fault.number for fault in found] == [0, 1], "the inputs after it are still run"
    assert all(what in fault.what for fault in found), found
    assert time.monotonic() - begun < 120


def test_the_end_of_the_process_is_no_part_of_the_last_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_end = "import atexit, time\natexit.register(time.sleep, 1000)"
    source = slow_end + CHILD.format(bad="lambda rng, folder: None")
    run_as_child(source, tmp_path, monkeypatch)
    assert run(["bad"], range(2)) == []
