"""Edges of the command line: Ctrl-C, folders that cannot be written, links, and other machines."""

import errno
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from classroom import cli, training
from classroom.cli import doctor, lecture, main, publish
from classroom.shipped import RECIPES


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
        ["site", "00", "--out"], ["students", "00", "--output"], ["course", "--output"],
        ["sweep", "00", "-p", "seed=1", "--out"], ["train", "gpt-village", "--output"], ["copy"],
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
    assert "'1' fits 10_transformer_xl, 11_xlnet, 12_cost_tables, 13_claims" in said


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
        (["sweep", "00", "-p", "seed="], "parameter seed: give a value after the ="),
    ],
)  # fmt: skip
def test_what_an_option_is_for_is_said(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(words, capsys)
    assert code == 2
    assert why in said
