"""What Windows lacks is taken away, and each command of the command line is called.

One process stands for it: no fcntl, resource, fork, affinity, user ids or SIGKILL, and cp1252 for
what is printed into a file or a pipe, as all versions of Python before 3.15 have it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from classroom.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent

WITHOUT = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "geteuid", "getuid", "killpg", "getpgid", "setsid"):
    vars(os).pop(name, None)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
    vars(signal).pop(name, None)
"""
# These know real Windows by other means, and would miss what is taken away here.
LIGHT = """
import asyncio, getpass, multiprocessing.util, subprocess, tempfile
import filelock, platformdirs, psutil
"""
IN_KERNELS = f"{LIGHT}import torch\n"
BEFORE = f"""{IN_KERNELS}
from classroom.running.light import light_papermill
light_papermill()
import nbconvert, papermill
"""
KERNEL = """
from labkit.keeping import cache
import labkit.trainer
from labkit.keeping.processor import threads

print(cache.kept_json("windows", lambda: {"threads": threads()[0]}), "λ ⟨⟩")
"""
# The kernel of a sweep starts as that of `run` does; one of the two imports torch.
SWEPT = """
from labkit.keeping import cache
from labkit.keeping.processor import cores

print(cache.kept_json("swept", lambda: {"cores": cores()}), "λ ⟨⟩")
"""


class Call(NamedTuple):
    """The smallest run of a command, or a mistake in one; what it says on which stream."""

    words: list[str]
    code: int
    says: str


CALLS = {
    "lab": Call(["--port", "x"], 2, "give a whole number, 1 to 65535"),
    "test": Call(["tets"], 2, "did you mean tests?"),
    "doctor": Call([], 0, "threads"),
    "run": Call(["./small.ipynb", "--output", "out.ipynb"], 0, "out.ipynb"),
    "sweep": Call(["./swept.ipynb", "-p", "a=0", "--workers", "1", "--output", "grid"], 0, "grid"),
    "claims": Call(["--kept"], 0, " claims: "),
    "course": Call(["--profile", "x"], 2, "choose from"),
    "notebooks": Call(["zz"], 2, "there is no notebook zz"),
    "lecture": Call(["zz"], 2, "there is no notebook zz"),
    "site": Call(["00", "--output", "site"], 0, "site"),
    "bench": Call(["nonsense"], 2, "there is no benchmark nonsense"),
    "students": Call(["00", "--output", "students"], 0, "students"),
    "grade": Call(["class"], 0, "ann"),
    "speedrun": Call(["none.py"], 2, "none.py does not exist: give one"),
    "train": Call(["nonsense"], 2, "there is no recipe nonsense"),
    "copy": Call(["mine"], 0, "notebooks"),
    "cache": Call([], 0, "kept"),
    "costs": Call(["gpt3-175b"], 0, "gpt-3-175b"),
    "publish": Call(["nonsense"], 2, "nonsense is not a repository"),
    "pins": Call(["--python"], 2, "unrecognized arguments"),
}
SIMULATION = """
import contextlib, io, json, traceback
from classroom.demos import recording
from classroom.cli import main

recording.MOST = 8  # states of a demo that `site` writes down

def call(*words):
    said = [io.TextIOWrapper(io.BytesIO(), encoding="cp1252") for _ in range(2)]
    with contextlib.redirect_stdout(said[0]), contextlib.redirect_stderr(said[1]):
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code
        except BaseException:
            code = traceback.format_exc()
    for stream in said:
        stream.flush()
    return code, *(stream.buffer.getvalue().decode("cp1252") for stream in said)

calls = json.load(sys.stdin)
sys.__stdout__.write(json.dumps({
    name: [call(name, "--help"), call(name, *words)] for name, words in calls.items()
}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[object, str, str]]]:
    """Return the exit code and both streams of each command's help and call."""
    folder = tmp_path_factory.mktemp("windows")
    work = {"small": IN_KERNELS + WITHOUT + KERNEL, "swept": LIGHT + WITHOUT + SWEPT}
    for name, code in work.items():
        cells = [
            nbformat.v4.new_code_cell("a: int = 1", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(code),
        ]
        book = nbformat.v4.new_notebook(cells=cells)
        book.metadata["kernelspec"] = {
            "name": "python3", "display_name": "Python 3", "language": "python"
        }  # fmt: skip
        nbformat.write(book, folder / f"{name}.ipynb")
    (folder / "class").mkdir()
    nbformat.write(book, folder / "class" / "ann.ipynb")
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + WITHOUT + SIMULATION],
        input=json.dumps({name: call.words for name, call in CALLS.items()}),
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0",
             "PYTHONPATH": str(ROOT), "LABKIT_CACHE": str(folder / "cache")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[object, str, str]]] = json.loads(done.stdout)
    return found


def test_every_command_is_called() -> None:
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_helps_and_runs_without_what_windows_lacks(
    command: str, said: dict[str, list[tuple[object, str, str]]]
) -> None:
    (helped, text, error), (code, printed, complaint) = said[command]
    assert (helped, error) == (0, "")
    assert text.startswith(f"usage: labkit {command}")
    call = CALLS[command]
    assert code == call.code, (code, complaint)
    assert "Traceback" not in complaint
    if call.code:
        assert (printed, complaint.count("\n")) == ("", 1)
    assert call.says in (complaint if call.code else printed)
