"""Edges of the command line: Ctrl-C, folders that cannot be written, links, and other machines."""

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from typing import Any

import nbformat
import psutil
import pytest

from classroom import cli
from classroom.charts import figures
from classroom.cli import doctor, lecture, main, publish
from classroom.cli.costs import why_they_differ
from classroom.models import training
from classroom.models.shipped_recipes import RECIPES
from classroom.pages.site import build


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit code and what is printed of a command that does not do its work."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code, capsys.readouterr().err


def test_ctrl_c_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "called", interrupted)
    assert refused(["train", "gpt-village"], capsys) == (130, "labkit train: stopped\n")
    assert refused([], capsys) == (130, "labkit: stopped\n")


def test_what_cannot_be_combined_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(["costs", "--json", "--tables"], capsys)
    assert code == 2
    assert "leave --tables and --figure out" in said


def test_a_folder_that_cannot_be_written_is_found_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")

    def trained(*_: Any) -> float:
        raise AssertionError("it trained")

    monkeypatch.setattr(training, "_train_in_parts", trained)
    with pytest.raises(OSError, match="file") as caught:
        training.carry_out("x", "", RECIPES["tagger"], tmp_path / "file" / "model")
    assert caught.value.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENOENT)


@pytest.mark.parametrize(
    "origin",
    [
        "me/course", "https://github.com/me/course.git", "git@github.com:me/course.git",
        "ssh://git@github.com/me/course",
    ],
)  # fmt: skip
def test_an_address_on_github_is_understood(origin: str) -> None:
    named = publish.NAMED.fullmatch(origin)
    assert named is not None
    assert named[1] == "me/course"


def test_a_chromium_that_cannot_be_run_does_not_end_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LABKIT_CHROMIUM", str(tmp_path / "none"))
    assert "cannot be run" in doctor.chromium_found()


def test_a_link_to_an_address_of_version_6_has_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    links: Queue[str] = Queue()
    monkeypatch.setattr(lecture, "free_port", lambda ip, first: first)
    monkeypatch.setattr(lecture, "serve", lambda *_: None)
    monkeypatch.setattr(lecture, "announce", lambda *told: links.put(told[3]))
    assert main(["lecture", "00", "--ip", "::1", "--no-browser"]) == 0
    assert links.get(timeout=10).startswith("http://[::1]:8866/?token=")


@pytest.mark.parametrize(
    "words",
    [
        ["site", "00", "--output"], ["students", "00", "--output"], ["course", "--output"],
        ["sweep", "00", "-p", "seed=1", "--output"], ["train", "gpt-village", "--output"], ["copy"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_file_is_no_folder(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, said = refused([*words, str(tmp_path / "file")], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert said.endswith("file is a file: give a folder\n")


def test_copy_names_no_option_that_it_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, said = refused(["copy", str(tmp_path / "file" / "inside")], capsys)
    assert (code, said.count("\n")) == (1, 1)
    assert said.endswith("name another place with `labkit copy FOLDER`\n")


def test_a_path_that_does_not_exist_is_no_notebook_of_the_course(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = refused(["run", "mycopies/05_gpt.ipynb"], capsys)
    assert code == 2
    assert "there is no file mycopies/05_gpt.ipynb" in said
    code, said = refused(["run", "1"], capsys)
    assert code == 2
    assert "'1' matches 10_transformer_xl, 11_xlnet, 12_cost_tables, 13_claims" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["train", "gpt"], "gpt reads text of your own: give --text, such as 'books/*.txt'"),
        (["train", "classifier"], "give --text, such as reviews.csv"),
        (["train", "gpt-village", "--labels", "5"], "--labels is for a classifier: leave it out"),
        (["train", "gpt", "--text", "a.txt", "--column", "x"], "--column is for a classifier"),
        (["train", "gpt-village", "--minutes", "5"], "--minutes is for text of your own"),
        (["train", "classifier", "--text", "a.csv", "--minutes", "5"], "leave --minutes out"),
        (["course", "-p", "profile", "tiny"], "there is no profile tiny"),
        (["course", "-p", "profile=tiny"], "there is no profile tiny"),
        (["course", "--where-known", "seed"], "--where-known: 'seed' is not NAME=VALUE"),
        (["course", "--where-known", "sed=3"], "there is no parameter sed; did you mean seed?"),
        (["claims", "--kept", "--seed", "0"], "--seed does nothing beside --kept"),
        (["sweep", "00", "-p", "seed="], "parameter seed: give a value after the ="),
    ],
)
def test_what_an_option_is_for_is_said(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(words, capsys)
    assert code == 2
    assert why in said


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_begins_no_other_notebook(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    words = [sys.executable, "-m", "labkit", "course", "--profile", "smoke", "--output"]
    process = subprocess.Popen(
        [*words, str(tmp_path)], text=True, stdout=-1, stderr=-1, start_new_session=True
    )
    request.addfinalizer(process.kill)
    deadline = time.monotonic() + 300
    while not list(tmp_path.iterdir()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: its processes get it too
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    assert said.endswith("labkit course: stopped\n")
    assert [path.name for path in tmp_path.glob("*.ipynb")] == ["00_start_here-smoke.ipynb"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("words", [["notebooks"], ["run", "--output", "out.ipynb"]])
def test_ctrl_c_in_a_cell_is_one_line(
    words: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    began = tmp_path / "began"
    cell = nbformat.v4.new_code_cell(f"import time; open({str(began)!r}, 'w'); time.sleep(300)")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "x.ipynb")
    before = (tmp_path / "x.ipynb").read_bytes()
    path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", *words, "x.ipynb"], text=True, stdout=-1, stderr=-1,
        start_new_session=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    request.addfinalizer(process.kill)
    deadline = time.monotonic() + 120
    while not began.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    kernels = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # the kernel has a session of its own
    assert process.communicate(timeout=60) == ("", f"labkit {words[0]}: stopped\n")
    assert process.returncode == 130
    assert kernels
    assert not psutil.wait_procs(kernels, timeout=20)[1]
    assert (tmp_path / "x.ipynb").read_bytes() == before


def test_a_notebook_is_not_replaced_by_its_own_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copy(Path("notebooks/00_start_here.ipynb"), tmp_path / "mine.ipynb")
    (tmp_path / "link.ipynb").symlink_to(path)
    for output in (path, tmp_path / "link.ipynb"):
        code, said = refused(["run", str(path), "--output", str(output)], capsys)
        assert code == 2
        assert said.endswith("is the notebook that is run: give another name with --output\n")


def test_a_name_that_the_locale_does_not_know_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "called", lambda words: "\udcc3".encode())
    code, said = refused(["run", "\udcc3.ipynb"], capsys)
    assert code == 1
    assert said.startswith("labkit run: a name has characters that this locale")
    assert said.endswith("set PYTHONUTF8=1\n")


def test_letters_that_no_page_can_hold_are_found_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("classroom.tasks.own_text.train_on", lambda *_: pytest.fail("it trains"))
    code, said = refused(["train", "gpt", "--text", "x.txt", "--output", "\udcc3"], capsys)
    assert code == 1
    assert said.startswith("labkit train: a name has characters that this locale")
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, said = refused(["train", "gpt", "--text", "x.txt"], capsys)
    assert (code, said) == (
        2, "labkit train: --text takes one process: start it without torchrun\n"
    )  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="shells of POSIX")
def test_no_file_gets_the_number_of_a_closed_output(tmp_path: Path) -> None:
    program = (
        "from classroom.cli import main; main(['--version']); "
        f"file = open({str(tmp_path / 'x')!r}, 'w'); assert file.fileno() > 2"
    )
    command = f'{shlex.quote(sys.executable)} -c "$0" <&- >&-'
    done = subprocess.run(["sh", "-c", command, program], stderr=-1, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_what_is_near_twenty_is_called_so() -> None:
    assert "again: 22, near the twenty" in " ".join(why_they_differ(1e21).split())
    assert "again: 7; at the budgets of the paper" in " ".join(why_they_differ(1e40).split())


def half_written(_: Any, path: Path, **__: Any) -> None:
    half_written_text(path)


def half_written_text(path: Path, *_: Any, **__: Any) -> None:
    Path(path).write_bytes(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_no_part_of_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(figures.compute_by_model()), "savefig", half_written)
    code, said = refused(["costs", "--figure", str(tmp_path / "all.png")], capsys)
    assert code == 1
    assert "all.png cannot be written: [Errno 28]" in said
    assert list(tmp_path.iterdir()) == []
    code, said = refused(["costs", "--figure", str(tmp_path / "none" / "all.png")], capsys)
    assert code == 1
    assert "all.png cannot be written: [Errno 2]" in said


def test_a_full_disk_leaves_no_part_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Path("notebooks/00_start_here.ipynb")
    monkeypatch.setattr(Path, "write_text", half_written_text)
    with pytest.raises(OSError, match="No space"):
        build([book], tmp_path, students=False, scripts_for=lambda _: [])
    assert list(tmp_path.rglob("*.html")) == []
