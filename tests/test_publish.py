"""The course's public address has one home, and the cell that installs labkit is quiet and safe."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from classroom.cli import main, publish
from classroom.cli.publish import TAG, address_of, with_address, with_cell, written
from classroom.exercises import students_version
from classroom.grading.marking import code_of, needed

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ADDRESS = "https://github.com/a-school/our-course"


def test_everything_that_names_the_address_agrees() -> None:
    """`python -m labkit publish OWNER/NAME` writes it."""
    for path, text in written(ROOT, address_of(ROOT)).items():
        assert path.read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_with_the_cell_that_installs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for version in (notebook, students_version(notebook)):
        code = [cell for cell in version["cells"] if cell["cell_type"] == "code"]
        assert [TAG in cell["metadata"].get("tags", []) for cell in code].index(True) == 0
        assert sum(TAG in cell["metadata"].get("tags", []) for cell in code) == 1
        assert code[0]["outputs"] == []
        assert code[0]["metadata"]["jupyter"] == {"source_hidden": True}


def test_a_marked_notebook_does_not_need_it() -> None:
    """Its lines that begin with % are no mystery to what looks for the cells that are needed."""
    cells = code_of(json.loads(NOTEBOOKS[0].read_text(encoding="utf-8")))
    assert needed(cells)[0] == ""


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of what an address is written into, as it is without one."""
    for name in ("docs", "notebooks"):
        (tmp_path / name).mkdir()
    for path, text in written(ROOT, "").items():
        (tmp_path / path.relative_to(ROOT)).write_text(text, encoding="utf-8")
    students = tmp_path / publish.STUDENTS
    if address_of(ROOT):
        students.write_text(students.read_text().replace(address_of(ROOT), publish.PLACE))
    monkeypatch.setattr("classroom.cli.environment.checkout", lambda: tmp_path)
    return tmp_path


def texts(course: Path) -> dict[str, str]:
    """Return what stands in each file of a course."""
    return {str(path.relative_to(course)): path.read_text(encoding="utf-8")
            for path in course.rglob("*") if path.suffix in (".md", ".toml", ".ipynb")}  # fmt: skip


def test_without_an_address_nobody_is_named(course: Path) -> None:
    badges = texts(course)["README.md"].split(publish.BADGES[0])[1].split(publish.BADGES[1])[0]
    assert "http" not in badges
    assert "[project.urls]" not in texts(course)["pyproject.toml"]
    for path in NOTEBOOKS:
        [cell] = installing(json.loads(texts(course)[f"notebooks/{path.name}"]))
        assert "http" not in cell
        assert "git+" not in cell


def installing(notebook: dict[str, Any]) -> list[str]:
    """Return the sources of the cells that install labkit."""
    return ["".join(cell["source"]) for cell in notebook["cells"]
            if TAG in cell["metadata"].get("tags", [])]  # fmt: skip


def test_the_command_writes_it_everywhere(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = texts(course)
    assert main(["publish", "a-school/our-course"]) == 0
    said = capsys.readouterr().out
    assert "whoever owns this account can run code in every kernel that installs from it" in said
    after = texts(course)
    changed = {name for name in after if after[name] != before[name]}
    books = {f"notebooks/{path.name}" for path in NOTEBOOKS}
    assert changed == {"pyproject.toml", "README.md", publish.STUDENTS, *books}
    assert address_of(course) == ADDRESS
    assert f"git clone {ADDRESS} labkit" in after[publish.STUDENTS]
    for path in NOTEBOOKS:
        [cell] = installing(json.loads(after[f"notebooks/{path.name}"]))
        assert f"git+{ADDRESS}\n" in cell + "\n"
        place = f"a-school/our-course/blob/main/notebooks/{path.name}"
        assert f"(https://colab.research.google.com/github/{place})" in after["README.md"]
        place = f"a-school/our-course/main?labpath=notebooks%2F{path.name}"
        assert f"(https://mybinder.org/v2/gh/{place})" in after["README.md"]
    assert main(["publish", "https://github.com/a-school/our-course.git"]) == 0
    assert capsys.readouterr().out.count("\n") == 1, "the second time nothing is written"
    # A fork that goes on elsewhere leaves no trace of the account that it came from.
    assert main(["publish", "other/fork"]) == 0
    assert not [name for name, text in texts(course).items() if "a-school" in text]
    for path, text in written(course, "https://github.com/other/fork").items():
        assert path.read_text(encoding="utf-8") == text


def test_git_knows_where_a_course_is_published(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["publish"])
    assert "git's origin is not on GitHub: give OWNER/NAME" in capsys.readouterr().err
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q"], cwd=course, check=True)
    subprocess.run(["git", "remote", "add", "origin", f"{ADDRESS}.git"], cwd=course, check=True)
    assert main(["publish"]) == 0
    assert address_of(course) == ADDRESS


WRONG = ("OWNER", "a/b/c", "a/b c", "http://github.com/a/b", "-x/y", "../x", "a/..",
         "a/.git", "a/é", 'a/b"', "a/b;x", "https://example.org/a/b")  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_repository_is_refused(
    name: str, course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(course)
    with pytest.raises(SystemExit):
        main(["publish", name])
    assert capsys.readouterr().err.count("\n") == 1
    assert texts(course) == before


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("README.md", f"{publish.BADGES[0]}\n", f"needs the lines {publish.BADGES[0]} and"),
        ("notebooks/08_bert.ipynb", "{", r"08_bert.ipynb is not JSON"),
    ],
)
def test_a_file_that_cannot_take_the_address_changes_no_other(
    name: str, text: str, message: str, course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (course / name).write_text(text)
    before = texts(course)
    with pytest.raises(SystemExit):
        main(["publish", "owner/name"])
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert texts(course) == before


def run(source: str, monkeypatch: pytest.MonkeyPatch, missing: bool) -> tuple[list[str], set[str]]:
    """Run the cell as a kernel does; return what it asks pip for, and the names that it leaves."""
    asked: list[str] = []

    class Shell:
        def run_line_magic(self, name: str, words: str, **_: object) -> None:
            asked.append(f"{name} {words}")

    if missing:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    names: dict[str, object] = {"get_ipython": Shell}
    exec(TransformerManager().transform_cell(source), names)
    return asked, set(names) - {"get_ipython", "__builtins__"}


def cell(address: str) -> str:
    """Return the cell with an address."""
    notebook = {"cells": [{"metadata": {"tags": [TAG]}, "source": []}]}
    return installing(with_cell(notebook, address))[0]


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_where_labkit_is_the_cell_does_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cell(address), monkeypatch, missing=False) == ([], {"importlib", "pathlib"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_in_the_course_it_installs_the_course(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("labkit", "notebooks"):
        (tmp_path / name).mkdir()
    (tmp_path / "labkit" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert run(cell(address), monkeypatch, missing=True)[0] == ["pip install --quiet .."]


def test_alone_it_installs_from_the_address_or_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked, _ = run(cell(ADDRESS), monkeypatch, missing=True)
    assert asked == [f"pip install --quiet git+{ADDRESS}"]
    with pytest.raises(ModuleNotFoundError, match="labkit is missing in this kernel: run `python"):
        run(cell(""), monkeypatch, missing=True)


def test_no_page_tells_anybody_to_install_a_stranger() -> None:
    """A package index is no home of this course: what bears its name there is someone else's."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        found = re.findall(r"pip install(?: -\S+)* labkit\b", path.read_text(encoding="utf-8"))
        assert not found, path


@pytest.mark.parametrize("others", ["", 'Homepage = "https://example.org"\n'])
def test_the_table_of_addresses_stays_one_table(others: str) -> None:
    table = f"[project.urls]\n{others}\n" if others else ""
    text = f'[project]\nname = "x"\n\n{table}[project.scripts]\nx = "y"\n'
    for address in (ADDRESS, "https://github.com/b/c"):
        told = with_address(with_address(text, ADDRESS), address)
        urls = tomllib.loads(told)["project"]["urls"]
        assert urls.pop("Repository") == address
        assert bool(urls) == bool(others)
    assert with_address(told, "") == text
