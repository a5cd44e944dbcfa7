"""What the documents promise about the notebooks is there."""

import json
import re
import sys
from pathlib import Path

import pytest

from classroom.claims import claims
from classroom.exercises import students_version
from classroom.guide import guide

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ROW = re.compile(r"^\| .+ \| [\w ]+ \| \[(\w+)\]\(\.\./notebooks/\1\.ipynb\) \| (.+) \|$")


def text_of(notebook: Path) -> str:
    """Return all markdown of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def headings(notebook: Path) -> set[str]:
    """Return the headings of a notebook."""
    return set(re.findall(r"^#+ (.+?)\s*$", text_of(notebook), re.MULTILINE))


def test_every_notebook_is_mentioned() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    said = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    every = [*NOTEBOOKS, *(ROOT / "notebooks").glob("extra/*.ipynb")]
    assert [book.stem for book in every if book.stem not in said] == []


def missing(coverage: str) -> list[str]:
    """Return the rows of the table whose section is not there."""
    rows = [row for row in coverage.splitlines() if "../notebooks/" in row]
    found = [(row, ROW.match(row)) for row in rows]
    return [
        row
        for row, parts in found
        if not parts or parts[2] not in headings(ROOT / "notebooks" / f"{parts[1]}.ipynb")
    ]


def test_every_topic_of_the_lectures_has_its_section() -> None:
    coverage = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert coverage.count("../notebooks/") > 90
    assert not missing(coverage)
    for notebook in NOTEBOOKS:
        assert f"../notebooks/{notebook.name}" in coverage, notebook.name


def test_a_section_that_is_gone_is_found() -> None:
    row = "| New York | 003 | [11_xlnet](../notebooks/11_xlnet.ipynb) | Old York |"
    assert missing(row) == [row]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_the_parts_that_readers_expect(notebook: Path) -> None:
    text, source = text_of(notebook), notebook.read_text(encoding="utf-8")
    # The first edition lists aims; a lesson of the second says how long it takes and what it needs.
    assert re.search(r"\*Aims:\*|\*\*Aims|\*About \d+ minutes\.", text)
    assert re.search(r"\bminutes\b", text)
    assert re.search(r"^## (What to remember|Remember)$", text, re.MULTILINE)
    assert "References" in text
    assert source.count("### BEGIN SOLUTION") == source.count("### END SOLUTION") >= 2


def test_the_guide_has_a_section_for_every_notebook() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for notebook in NOTEBOOKS:
        number = notebook.name[:2]
        part = re.search(rf"^## {number} .*?(?=^## |\Z)", guide, re.MULTILINE | re.DOTALL)
        assert part, notebook.name
        for word in ("minutes", "**Click**", "**They ask**", "**Beware**"):
            assert word in part[0], f"{notebook.name}: {word}"


def test_the_guide_is_made_from_the_speakers_notes() -> None:
    """`python -m classroom.guide` writes it."""
    written = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    assert written == guide()
    source = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    assert any("notes" in cell["metadata"].get("tags", []) for cell in source["cells"])
    left = students_version(source)["cells"]
    assert not any("notes" in cell["metadata"].get("tags", []) for cell in left)


def test_every_claim_is_measured_in_its_notebook() -> None:
    for claim in claims().values():
        source = (ROOT / "notebooks" / f"{claim.notebook}.ipynb").read_text(encoding="utf-8")
        assert claim.id in source, f"{claim.id} has no finding in {claim.notebook}"


def test_the_page_of_benchmarks_is_what_its_command_writes() -> None:
    """Two screens of questions and tables; the rest stands in folds."""
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    import page

    text = page.PAGE.read_text(encoding="utf-8")
    found = page.parsed(text)
    assert len(found) > 10
    assert page.composed(found) == text
    shown = [line for line in page.FOLD.sub("", text).splitlines() if line.strip()]
    assert len(shown) <= 90, "two screens"
    for name, question in page.QUESTIONS.items():
        if question.rows and name in found:
            assert f"**{question.asks}** {question.means}" in text, name
    scripts = {path.stem.removeprefix("bench_") for path in page.PAGE.parents[1].glob(
        "tests/bench/bench_*.py")}  # fmt: skip
    assert set(page.QUESTIONS) == scripts
    assert all(
        re.match(r"\d{4}-\d\d-\d\d: .+, torch .+, Python ", one.where) for one in found.values()
    )


def test_rows_are_found_with_the_head_of_their_table() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    import page

    text = "| a | b |\n|---|---|\n| x | 1 |\n| y | 2 |\n\nsaid: 3\n\n| c |\n|---|\n| y |"
    assert page.headline(text, r"^\| y|^said") == [
        "| a | b |", "|---|---|", "| y | 2 |", "", "said: 3", "", "| c |", "|---|", "| y |"
    ]  # fmt: skip
    assert page.headline("a b\n1 2\n3 4", "a|3") == ["```", "a b", "3 4", "```"]
    assert page.headline("a b\n1 2", "nothing") == []
