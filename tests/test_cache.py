"""What is kept is found again only by exactly what it came from, and never changes a result."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import nbformat
import numpy as np
import pytest
import torch
from pairings import PAIRINGS, Pairing, chance
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from classroom import versions
from classroom.cli import main
from classroom.models.recipes import course_text, gpt, plan, train_once
from labkit.blocks import LanguageModel
from labkit.corpus import Batch, Windows, from_documents, tokenize
from labkit.heads import NextWord
from labkit.keeping import cache
from labkit.keeping.files import file_digest
from labkit.keeping.fingerprints import fingerprint
from labkit.models.elmo import WeightedSum
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.text.tokenizers import Tokenizer
from labkit.world import END

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    for name in ("LABKIT_CACHE_LIMIT", "LABKIT_CACHE_SHARED", "LABKIT_QUIET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def only(key: str = "") -> Path:
    """Return the only file that is kept, or the only one of a key."""
    [path] = [path for path, _ in cache.files() if path.name.startswith(f"{key}.") or not key]
    return path


# ---- keys


@dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    names: tuple[str, ...] = ("a", "b")


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(2, 3)


def mixed(*, normalise: bool = False) -> nn.Module:
    return nn.Sequential(WeightedSum(2, normalise=normalise))


def times(factor: int) -> Callable[[int], int]:
    return lambda number: factor * number


class Counter:
    def __init__(self, word: str) -> None:
        self.word = word

    def count(self, words: list[str]) -> int:
        return words.count(self.word)


ALIKE: list[Callable[[], Any]] = [
    lambda: 1, lambda: "text", lambda: None, lambda: Settings(), lambda: [1, [2, 3]],
    lambda: {"a": torch.arange(3)}, lambda: linear(), lambda: np.eye(2), lambda: Path("x"),
    lambda: nn.Sequential(linear(1), nn.Dropout(0.1)), lambda: json.dumps, lambda: NextToken(),
    lambda: mixed(), lambda: times(2), lambda: partial(pow, 2), lambda: Counter("a").count,
]  # fmt: skip


@pytest.mark.parametrize("make", ALIKE)
def test_what_is_made_alike_has_one_key(make: Callable[[], Any]) -> None:
    assert fingerprint(make()) == fingerprint(make())


def test_another_number_of_threads_is_another_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """They add up in another order: a model of two threads is not the one of a single thread."""
    found = set()
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found |= {versions.result_version(), versions.result_version()}
    assert len(found) == 2


def test_each_changed_file_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digests of files are kept, but not that of a file which was just written."""
    for settled in (0.0, 10.0):
        monkeypatch.setattr(versions, "SETTLED", settled)
        monkeypatch.setattr(versions, "PACKAGE", tmp_path / str(settled))
        path = tmp_path / str(settled) / "inner" / "a.py"
        path.parent.mkdir(parents=True)
        found = []
        for text in ("a = 1", "a = 2", "a = 2"):
            path.write_text(text)
            # As long, and of the same time: still another file. Without a pause only where it must.
            os.utime(path, (1_700_000_000, 1_700_000_000))
            time.sleep(0.1 if settled == 0 else 0)
            found.append(versions.code_version())
        assert found[0] != found[1] == found[2]
        for other in (".hidden.py", "__pycache__/a.py", "a.txt", "left/a.py"):
            (path.parents[1] / other).parent.mkdir(exist_ok=True)
            (path.parents[1] / other).write_text("b = 1")
        assert versions.code_version(("left",)) == found[2]
        assert versions.code_version() != found[2]


def test_whatever_differs_has_another_key() -> None:
    different = [
        1, 1.0, True, "1", b"1", None, [], [1], [[1]], [1, 1], {"a": 1}, {"b": 1}, Settings(),
        replace(Settings(), rate=0.2), Settings(names=("ab",)), torch.ones(2), torch.ones(2, 1),
        torch.ones(2, dtype=torch.float64), np.ones(2), linear(0), linear(1), nn.Dropout(0.1),
        nn.Dropout(0.2), nn.Sequential(linear(0)), json.dumps, json.loads,
        torch.tensor([0.0, -0.0]), torch.tensor([0.0, 0.0]), ["a", "b"], ["ab"], Path("1"),
        lambda n: n in {1, 2}, lambda n: n in {1, 3}, lambda: lambda: 1, lambda: lambda: 2,
        mixed(), mixed(normalise=True), times(2), times(3), lambda: 1, lambda: 2, {1}, {1, 2}, ...,
        partial(pow, 2), partial(pow, 3), partial(pow), Counter("a").count, Counter("b").count,
        Counter("a"), lambda *, n=1: n, lambda *, n=2: n,
    ]  # fmt: skip
    keys = [fingerprint(thing) for thing in different]
    assert len(set(keys)) == len(different)


@pytest.mark.parametrize("pairing", PAIRINGS, ids=lambda each: each.name)
def test_a_model_that_has_answered_has_the_key_of_one_that_has_not(pairing: Pairing) -> None:
    keys = []
    for answers in (0, 2):
        torch.manual_seed(0)
        model, objective = pairing.model(), pairing.objective()
        for step in range(answers):
            targets = objective.targets(pairing.batch(), chance(pairing.batch(), step=step))
            objective.loss(model, targets)
        keys.append(fingerprint(model, objective))
    assert keys[0] == keys[1]


def test_what_has_no_content_of_its_own_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a object cannot be part of a key: give numbers"):
        fingerprint(object())


# ---- keeping


def test_what_is_kept_is_made_once() -> None:
    made = []
    for _ in range(2):
        assert cache.kept_json("key", lambda: made.append(1) or {"loss": 0.1}) == {"loss": 0.1}
    assert made == [1]
    assert cache.kept_json("other", lambda: [1]) == [1]


def damaged(path: Path, how: str) -> None:
    """Damage a file: another byte, a byte less, nothing left, or another sound file instead."""
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes({
        "a bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "the end": content[:-1],
        "all": b"",
        "forged": content.replace(b"1", b"7"),
    }[how])  # fmt: skip


@pytest.mark.parametrize("how", ["a bit", "the end", "all", "forged"])
def test_a_damaged_file_is_named_set_aside_and_made_anew(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.kept_json("key", lambda: [1])
    path = only()
    damaged(path, how)
    content = path.read_bytes()
    assert cache.kept_json("key", lambda: [2]) == [2]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{path} cannot be read (its content is not what was written)" in said
    assert f"is set aside as {path.name}.damaged and is made anew" in said
    assert path.with_name(f"{path.name}.damaged").read_bytes() == content
    assert cache.kept_json("key", lambda: [3]) == [2]
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_written_the_result_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    assert cache.kept_json("key", lambda: [1]) == [1]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "nothing is kept" in said


@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left on device"), SafetensorError("disk quota exceeded")]
)
def test_a_full_disk_loses_nothing_and_leaves_nothing(
    problem: Exception, empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(made: list[int], path: Path) -> None:
        path.write_text("half of")
        raise problem

    assert cache.kept("key", ".json", lambda: [1], write, lambda path: [2]) == [1]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(problem) in said
    assert list((empty_cache / "kept").iterdir()) == []


def test_a_full_disk_keeps_the_trained_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("No space left on device")

    model, other = tiny(), tiny()
    monkeypatch.setattr("classroom.models.recipes.save_model", full)
    curve = train_once(model, NextToken(), Rows(), plan(4), points=2)
    assert "nothing is kept" in capsys.readouterr().err
    monkeypatch.undo()
    assert train_once(other, NextToken(), Rows(), plan(4), points=2) == curve
    assert weights(model) == weights(other)


def objective_of_the_readers_own(*, doubled: bool) -> NextToken:
    if doubled:

        class Mine(NextToken):
            def summed(self, losses_N: Any, predicted: Any) -> Any:
                return 2 * losses_N.sum()
    else:

        class Mine(NextToken):  # type: ignore[no-redef]
            def summed(self, losses_N: Any, predicted: Any) -> Any:
                return losses_N.sum()

    return Mine()


def test_an_objective_of_the_readers_own_is_known_by_its_code(empty_cache: Path) -> None:
    for doubled in (False, True, False):
        objective = objective_of_the_readers_own(doubled=doubled)
        train_once(tiny(), objective, Rows(), plan(2))
    assert len(list((empty_cache / "kept").glob("*.safetensors"))) == 2


@pytest.mark.skipif(os.name == "nt", reason="there is no umask on Windows")
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_what_is_kept_can_be_read_by_whom_the_umask_lets(umask: int) -> None:
    before = os.umask(umask)
    try:
        train_once(tiny(), NextToken(), Rows(), plan(2))
        assert stat.S_IMODE(only().stat().st_mode) == 0o666 & ~umask
        assert stat.S_IMODE(cache.folder().stat().st_mode) == 0o777 & ~umask
    finally:
        os.umask(before)


def test_a_shared_cache_is_read_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "teacher"))
    cache.kept_json("key", lambda: [1])
    made = only()
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "student"))
    monkeypatch.setenv("LABKIT_CACHE_SHARED", str(tmp_path / "teacher"))
    before = sorted(path.name for path in made.parent.iterdir())
    assert cache.kept_json("key", lambda: [2]) == [1]
    assert cache.kept_json("other", lambda: [3]) == [3]
    assert only().name.startswith("other."), "in the folder of the student"
    assert cache.shrink(0) > 0
    assert sorted(path.name for path in made.parent.iterdir()) == before
    damaged(made, "a bit")
    monkeypatch.setattr(Path, "replace", refused_in(made.parent, Path.replace))
    assert cache.kept_json("key", lambda: [4]) == [4]
    said = capsys.readouterr().err
    assert f"{made} cannot be read" in said
    assert "set aside" not in said
    assert cache.kept_json("key", lambda: [5]) == [4]


def refused_in(folder: Path, replace: Callable[[Path, Path], Path]) -> Callable[..., Path]:
    """Return `Path.replace` as it is where a folder is read-only."""

    def refused(self: Path, target: Path) -> Path:
        if self.parent == folder:
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    return refused


@pytest.mark.skipif(os.name == "nt", reason="Windows always has a folder of the user")
def test_without_a_home_there_is_a_folder_all_the_same(tmp_path: Path) -> None:
    """A container whose user id has no name: no HOME, and nothing in the table of users."""
    code = (
        "import pwd\n"
        "def nobody(uid): raise KeyError('uid not found')\n"
        "pwd.getpwuid = nobody\n"
        "from labkit.keeping import cache\n"
        "print(cache.kept_json('key', lambda: [1]), cache.kept_json('key', lambda: [2]))\n"
        "print(cache.folder())"
    )
    absent = ("HOME", "LABKIT_CACHE", "XDG_CACHE_HOME")
    env = {name: word for name, word in os.environ.items() if name not in absent}
    (tmp_path / f"labkit-{os.getuid()}").symlink_to(tmp_path)
    for expected in ("not a link of somebody else's", f"labkit-{os.getuid()}"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              cwd=ROOT, env={**env, "TMPDIR": str(tmp_path)})  # fmt: skip
        assert done.returncode == 0, done.stderr
        kept, place = done.stdout.splitlines()
        assert kept == "[1] [1]"
        assert done.stderr.count("\n") == 1
        assert "there is no home folder" in done.stderr
        assert (Path(place).parent.name == expected) != expected.startswith("not")
        assert stat.S_IMODE(Path(place).parent.stat().st_mode) == 0o700
        (tmp_path / f"labkit-{os.getuid()}").unlink(missing_ok=True) if "not" in expected else None


# ---- several processes

WORK = """
import sys, time
from pathlib import Path
from labkit.keeping import cache
folder = Path(sys.argv[1])
def make():
    (folder / f"begun-{sys.argv[2]}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return [sys.argv[2]]
print(*cache.kept_json("key", make), flush=True)
"""


def worker(folder: Path, name: str) -> "subprocess.Popen[str]":
    """Start a process that wants the same thing as the others."""
    return subprocess.Popen(
        [sys.executable, "-c", WORK, str(folder), name], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ},
    )  # fmt: skip


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_of_several_processes_one_works_and_the_others_wait(tmp_path: Path) -> None:
    first = worker(tmp_path, "first")
    wait_for((tmp_path / "begun-first").exists)
    others = [worker(tmp_path, name) for name in ("second", "third")]
    for other in others:
        assert other.stderr is not None
        assert "computing the same thing: waiting for its result" in other.stderr.readline()
    (tmp_path / "go").touch()
    said = [process.communicate(timeout=900) for process in (first, *others)]
    assert said == [("first\n", "")] * 3
    assert [path.name for path in tmp_path.glob("begun-*")] == ["begun-first"]
    assert not list(cache.folder().glob("*.lock"))


@pytest.mark.parametrize("ends", ["dies", "fails"])
def test_if_the_first_one_ends_without_a_result_another_goes_on(tmp_path: Path, ends: str) -> None:
    first = worker(tmp_path, "first")
    wait_for((tmp_path / "begun-first").exists)
    second = worker(tmp_path, "second")
    assert second.stderr is not None
    assert "waiting" in second.stderr.readline()
    first.kill() if ends == "dies" else first.send_signal(signal.SIGINT)
    first.communicate(timeout=900)
    wait_for((tmp_path / "begun-second").exists)
    (tmp_path / "go").touch()
    assert second.communicate(timeout=900) == ("second\n", "")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LABKIT_CACHE", "/" + 300 * "x"),
        ("LABKIT_CACHE_SHARED", "/" + 300 * "x"),
        ("LABKIT_CACHE_SHARED", "~nobody-of-this-name/cache"),
    ],
    ids=("too long", "too long to read", "of an unknown user"),
)
def test_a_folder_that_there_cannot_be_holds_nothing(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, name)
    assert cache.kept_json("key", lambda: 1) == 1


def test_a_folder_that_one_may_not_enter_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a teacher whose home folder is closed."""

    def refuse(path: Path, pattern: str) -> list[Path]:
        raise PermissionError(f"[Errno 13] Permission denied: {path}")

    monkeypatch.setattr(Path, "glob", refuse)
    assert list(cache._found("key", ".json", Path, cache._say)) == []
    assert "Permission denied" in capsys.readouterr().err


def test_the_least_recently_used_goes_first(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, key in enumerate(("new", "middle", "old")):
        cache.kept_json(key, lambda: "x" * 400)
        os.utime(only(key), (1e9 - age, 1e9 - age))
    monkeypatch.setenv("LABKIT_CACHE_LIMIT", "1K")
    cache.kept_json("middle", lambda: "never")
    cache.kept_json("newest", lambda: "x" * 400)
    left = {path.name.split(".")[0] for path, _ in cache.files()}
    assert left == {"middle", "newest"}


@pytest.mark.parametrize(
    ("words", "bytes_"), [("5", 5), ("2K", 2_000), ("1.5gb", 1_500_000_000), ("", cache.LIMIT)]
)
def test_the_limit_is_said_in_words(
    words: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABKIT_CACHE_LIMIT", words)
    assert cache.limit() == bytes_


@pytest.mark.parametrize("words", ["much", "inf", "nan", "-1G", "1e999", "G"])
def test_a_limit_that_is_no_number_is_refused(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CACHE_LIMIT", words)
    with pytest.raises(ValueError, match=f"LIMIT is '{words}': give a number of bytes, such as"):
        cache.limit()


def test_the_command_shows_and_clears(empty_cache: Path) -> None:
    cache.kept_json("key", lambda: [1])

    def call(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "labkit", "cache", *words], capture_output=True, text=True,
            check=True, env={**os.environ, "LABKIT_CACHE": str(empty_cache)},
        )  # fmt: skip
        return done.stdout

    others = [
        empty_cache / "kept" / name
        for name in ("mine.txt", "results.json.bak", "a b.json", "link.json", "folder.json")
    ]
    # The folder may be one that a user has for results of their own.
    others += [empty_cache / "kept" / name for name in ("mine.json", "mine.safetensors")]
    others += [empty_cache / name for name in ("key.json", "model.safetensors", "x.partial")]
    for path in others[:3] + others[5:]:
        path.write_text("not the cache's")
    others[3].symlink_to(others[0])
    others[4].mkdir()
    assert "1 file," in call()
    assert "removed" in call("clear")
    assert "0 files" in call()
    assert all(path.exists() for path in others)


def test_a_cache_that_cannot_be_cleared_says_so(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, **_: bool) -> NoReturn:
        raise PermissionError(path)

    cache.kept_json("key", lambda: [1])
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(SystemExit) as left:
        main(["cache", "clear"])
    assert left.value.code == 1
    assert "labkit cache: 1 file cannot be removed" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_teacher_warms_the_cache_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = [
        'profile = "smoke"\nmeasure = False',
        "from labkit.keeping import cache\n"
        "if measure:\n    cache.kept_json('key', lambda: profile)",
    ]
    cells = [nbformat.v4.new_code_cell(text) for text in code]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "x.ipynb")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_CACHE", "for all")
    before = os.umask(0o077)
    try:
        assert main(["cache", "warm", str(tmp_path / "x.ipynb"), "--profile", "laptop"]) == 0
    finally:
        os.umask(before)
    said = capsys.readouterr().out
    teacher = tmp_path / "for all"
    assert f"chmod -R o+rX '{teacher / 'kept'}'" in said
    assert f"LABKIT_CACHE_SHARED='{teacher}'" in said
    assert f"{teacher / 'kept'}: 1 file, 0.0 MB of 2,000 MB" in said
    assert not list(tmp_path.rglob("*.partial"))
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "student"))
    monkeypatch.setenv("LABKIT_CACHE_SHARED", str(teacher))
    assert cache.kept_json("key", lambda: "never") == "laptop"
    assert main(["cache"]) == 0
    assert f"{teacher / 'kept'}: read as well" in capsys.readouterr().out
    monkeypatch.setenv("LABKIT_CACHE_SHARED", str(teacher / "kept"))
    assert main(["cache"]) == 0
    assert "not read, since there is no such folder" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["cache", "clear", "00"])
    assert "are for `labkit cache warm`" in capsys.readouterr().err
    (tmp_path / "y.ipynb").write_text('{"nbformat": 4, "cells": [{}]}')
    with pytest.raises(SystemExit):
        main(["cache", "warm", str(tmp_path / "y.ipynb")])
    assert re.fullmatch(r"labkit: .*y\.ipynb is not a Jupyter .*\n", capsys.readouterr().err)


# ---- trained models


class Rows:
    """Random rows."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def at(self, step: int) -> Batch:
        chance = torch.Generator().manual_seed(1000 * self.seed + step)
        return Batch.of(torch.randint(11, (4, 9), generator=chance))


def tiny(seed: int = 0, layers: int = 1) -> LanguageModel:
    torch.manual_seed(seed)
    backbone = GPT(GPTConfig(11, 16, layers, 2, context=8, dropout=0.1))
    return LanguageModel(backbone, NextWord(backbone.token))


def weights(model: nn.Module) -> str:
    return fingerprint(model.state_dict())


def test_a_second_training_gives_the_same_weights_with_and_without_the_cache() -> None:
    models = [tiny() for _ in range(3)]
    curves = [train_once(models[0], NextToken(), Rows(), plan(6), points=3)]
    assert len(cache.files()) == 1
    curves.append(train_once(models[1], NextToken(), Rows(), plan(6), points=3))
    assert len(cache.files()) == 1
    cache.shrink(0)
    curves.append(train_once(models[2], NextToken(), Rows(), plan(6), points=3))
    assert weights(models[0]) == weights(models[1]) == weights(models[2])
    assert curves[0] == curves[1] == curves[2]
    assert curves[0].steps == [2, 4, 6]
    assert not models[0].training
    assert not models[1].training


def stored(**changes: torch.Tensor | str | None) -> None:
    """Write what is kept anew, with changes, under a name that its content has."""
    path = only()
    with safe_open(path, "pt") as file:
        found, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    for name, change in changes.items():
        where = about if isinstance(change, str) or name == "curve" else found
        where.pop(name)
        if change is not None:
            where[name] = change
    save_file(found, path, about)
    path.rename(path.with_name(f"{path.name.split('.')[0]}.{file_digest(path)}.safetensors"))


NAME = "backbone.token.weight"
FORGERIES: dict[str, Callable[[], Any]] = {
    "a bit": lambda: damaged(only(), "a bit"),
    "the end": lambda: damaged(only(), "the end"),
    "no curve": lambda: stored(curve=None),
    "a curve that is none": lambda: stored(curve="[[1]]"),
    "a tensor of another shape": lambda: stored(**{NAME: torch.ones(1, 16)}),
    "a tensor is missing": lambda: stored(**{NAME: None}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_after_a_damage_the_result_is_that_of_a_clean_run(
    forgery: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was read of a damaged file must not be what training begins with."""
    clean, repaired, later = tiny(), tiny(), tiny()
    curve = train_once(clean, NextToken(), Rows(), plan(4), points=2)
    FORGERIES[forgery]()
    assert train_once(repaired, NextToken(), Rows(), plan(4), points=2) == curve
    assert "is made anew" in capsys.readouterr().err
    assert train_once(later, NextToken(), Rows(), plan(4), points=2) == curve
    assert capsys.readouterr().err == ""
    assert weights(clean) == weights(repaired) == weights(later)


OTHERS: dict[str, Callable[[], tuple[LanguageModel, Rows, Any]]] = {
    "another first weight": lambda: (tiny(1), Rows(), plan(4)),
    "another size": lambda: (tiny(layers=2), Rows(), plan(4)),
    "other batches": lambda: (tiny(), Rows(1), plan(4)),
    "more steps": lambda: (tiny(), Rows(), plan(5)),
    "another rate": lambda: (tiny(), Rows(), plan(4, rate=1e-3)),
    "another seed": lambda: (tiny(), Rows(), plan(4, seed=1)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_never_finds_the_weights_of_this_one(other: str) -> None:
    train_once(tiny(), NextToken(), Rows(), plan(4))
    model, rows, how = OTHERS[other]()
    fresh, rows_again, how_again = OTHERS[other]()
    train_once(model, NextToken(), rows, how)
    assert len(cache.files()) == 2
    cache.shrink(0)
    train_once(fresh, NextToken(), rows_again, how_again)
    assert weights(model) == weights(fresh)


def test_a_text_with_one_other_word_is_another_run() -> None:
    """Also where none of the batches that are looked at has the word."""
    words = [f"w{i % 7}" for i in range(2_000)]
    tokenizer = Tokenizer.words([" ".join(words)])
    for other in (None, *range(100, 2_000, 400)):
        told = [*words] if other is None else [*words[:other], "w0", "w1", *words[other + 2 :]]
        text = tokenize(from_documents([" ".join(told)]), tokenizer)
        model = LanguageModel(backbone := GPT(GPTConfig(len(tokenizer), 8, 1, 2, context=8)),
                              NextWord(backbone.token))  # fmt: skip
        for weight in model.parameters():
            nn.init.constant_(weight, 0.01)
        train_once(model, NextToken(), Windows(text, batch=1, length=8), plan(30))
    assert len(cache.files()) == 6


def test_frozen_weights_are_another_run() -> None:
    train_once(tiny(), NextToken(), Rows(), plan(4))
    frozen = tiny()
    frozen.backbone.token.weight.requires_grad = False
    before = frozen.backbone.token.weight.clone()
    train_once(frozen, NextToken(), Rows(), plan(4))
    assert torch.equal(frozen.backbone.token.weight, before)


# ---- texts


def test_the_course_text_and_a_text_of_the_readers_own(tmp_path: Path) -> None:
    text = course_text(words=3_000, held_out=600)
    assert text.world is not None
    tests = text.tests(16)
    counted = sum(int(batch.real.sum()) - len(batch) for batch in tests)
    assert counted == sum(min(16, len(words)) for words in text.documents)
    assert 0.5 < (text.floor("next", 16) or 0) < 3
    for row, words in enumerate(text.documents):
        tokens = tests[0].tokens[row][tests[0].real[row]].tolist()
        *spelled, last = words[:16]
        assert text.tokenizer.decode(tokens) == " ".join(spelled + [last] * (last != END))
        assert (tokens[-1] == tokens[0]) == (last == END)

    mine = tmp_path / "mine.txt"
    mine.write_text("\n\n".join(f"the {i} th line has words of its own ." for i in range(300)))
    own = course_text(mine)
    assert own.world is None
    assert own.floor("next", 16) is None
    assert own.documents
    assert own.numbers(["line", "never-read", "[UNK]", END]) == [
        own.tokenizer["line"], own.tokenizer["[UNK]"], own.tokenizer["[UNK]"],
        own.tokenizer.vocabulary.sep,
    ]  # fmt: skip
    assert len(own.train) > 1_000
    _, curve = gpt(own, 3, width=16, layers=1, length=8, batch=2)
    assert len(curve.steps) == 3
    with pytest.raises(
        FileNotFoundError, match="corpus is 'wrld': give 'language', 'crawl', 'foreign'"
    ):
        course_text("wrld")
    for text in ("Once upon a time. " * 50, "a\0b"):  # a text itself, and what has no name
        with pytest.raises(FileNotFoundError, match=r"or the path of a text file \(there is none"):
            course_text(text)
    (tmp_path / "one.txt").write_text("a single short document")
    with pytest.raises(ValueError, match="too few different documents"):
        course_text(tmp_path / "one.txt")
