"""A server that a class shares: another user, a course that nobody may write, no home, no room."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
STUDENT = 12345
"""The id of a user without a name."""

TINY = """
import torch
from classroom import versions
from classroom.models import recipes
from classroom.models.recipes import plan, train_once
from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.heads import NextWord
from labkit.keeping import cache
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken

class Rows:
    def at(self, step):
        rng = torch.Generator().manual_seed(step)
        return Batch.of(torch.randint(11, (4, 9), generator=rng))

def curve():
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(11, 16, 1, 2, context=8))
    model = LanguageModel(backbone, NextWord(backbone.token))
    return str(train_once(model, NextToken(), Rows(), plan(4), points=2))
"""
TEACHER = (
    TINY
    + """
print(curve())
cache.kept_json("key", lambda: ["the teacher's"])
"""
)
# Python itself may lie where only root reads, so what is needed is imported before.
STUDENTS = (
    TINY
    + """
import contextlib, importlib, io, json, os, pkgutil, resource, signal, sys
import classroom
from classroom.running.light import light_papermill
light_papermill()
import getpass, nbclient, nbconvert, nbformat, papermill, platformdirs, torch._dynamo
from classroom.cli import main
for module in pkgutil.walk_packages(classroom.__path__, "classroom."):
    importlib.import_module(module.name)
versions.result_version()
os.setgroups([])
os.setgid(STUDENT)
os.setuid(STUDENT)

def said(*words):
    with contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code
    return code, error.getvalue()

def quietly(call):
    with contextlib.redirect_stderr(io.StringIO()) as error:
        return call(), error.getvalue()

trainer, recipes.Trainer = recipes.Trainer, None  # what is kept needs none
found = {"shared": quietly(lambda: [curve(), cache.kept_json("key", lambda: ["the student's"])])}
recipes.Trainer = trainer
found["own"] = quietly(lambda: [cache.kept_json("mine", lambda: [n]) for n in (1, 2)])
found["folder"] = str(cache.folder())
del os.environ["LABKIT_CACHE_SHARED"]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # as a quota that is used up
found["full"] = quietly(lambda: [curve()])
found["left"] = sorted(path.name for path in cache.folder().iterdir())
for words in json.load(sys.stdin):
    found[words[0]] = said(*words)
print(json.dumps(found))
"""
)
CALLS = {
    "run": (["./x.ipynb"], "--output"),
    "sweep": (["./x.ipynb", "-p", "a=0:1"], "--output"),
    "students": (["./x.ipynb"], "--output"),
    "site": (["./x.ipynb"], "--output"),
    "copy": (["mine"], "FOLDER"),
    "grade": (["."], "--csv"),
    "lab": (["--no-browser"], "--here"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """Give a folder of root's that all may read, with a course and room for temporary files."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-server-"))
    folder.chmod(0o755)
    (folder / "course").mkdir()
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    cell = nbformat.v4.new_code_cell("a: int = 1", metadata={"tags": ["parameters"]})
    book = nbformat.v4.new_notebook(cells=[cell])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, folder / "course" / "x.ipynb")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def python(code: str, folder: Path, stdin: str = "", **settings: str) -> str:
    """Return what code prints in the course's folder, for a user without HOME."""
    absent = ("HOME", "LABKIT_CACHE", "LABKIT_CACHE_SHARED", "XDG_CACHE_HOME")
    env = {name: word for name, word in os.environ.items() if name not in absent}
    env |= {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT), **settings}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder / "course", env=env,
                          input=stdin, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def can_become_another() -> bool:
    """Whether this process may start another as a user of its choice."""
    try:
        return subprocess.run(["true"], user=STUDENT, group=STUDENT).returncode == 0
    except (OSError, ValueError, subprocess.SubprocessError):
        return False


@pytest.mark.skipif(not can_become_another(), reason="only root can become another user")
def test_another_user_reads_what_a_teacher_has_made_and_keeps_the_rest(server: Path) -> None:
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in (ROOT, *ROOT.parents)):
        pytest.skip(f"others may not read {ROOT}")
    shared = server / "shared"
    before = python(TEACHER, server, LABKIT_CACHE=str(shared)).strip()
    files = {path: path.stat().st_mtime_ns for path in shared.rglob("*")}
    calls = json.dumps([[name, *words] for name, (words, _) in CALLS.items()])
    code = STUDENTS.replace("STUDENT", str(STUDENT))
    printed = python(code, server, calls, LABKIT_CACHE_SHARED=str(shared))
    found = json.loads(printed.splitlines()[-1])

    assert found["shared"][0] == [before, ["the teacher's"]]
    assert found["own"][0] == [[1], [1]]
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*")} == files
    # There is no home and no name: one line, and a folder of one's own.
    assert Path(found["folder"]) == server / "tmp" / f"labkit-{STUDENT}" / "kept"
    lines = "".join(found[name][1] for name in ("shared", "own", "full"))
    assert lines.count("there is no home folder") == 1
    # What was trained without room for it is used.
    assert found["full"][0] == [before]
    assert found["full"][1].count("\n") == 1
    assert "File too large" in found["full"][1]
    assert "nothing is kept" in found["full"][1]
    assert [name for name in found["left"] if not name.endswith(".lock")] == [
        path for path in found["left"] if path.startswith("mine.")
    ]
    for name, (_, option) in CALLS.items():
        code, said = found[name]
        *home, line = said.splitlines()
        assert code == 1, (name, said)
        assert option in line, (name, line)
        assert all("there is no home folder" in one for one in home), (name, home)
    assert sorted(path.name for path in (server / "course").iterdir()) == ["x.ipynb"]
