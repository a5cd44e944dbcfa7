"""Notebooks as pages: formulas, the list of the site, and the words of the two commands."""

import re
import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import pytest

from classroom.cli import main
from classroom.cli.lecture import free_port
from classroom.pages.formulas import mathml, with_mathml
from classroom.pages.site import build, described, links

MATH = "{http://www.w3.org/1998/Math/MathML}"


@pytest.mark.parametrize(
    ("tex", "parts"),
    [
        (r"\frac{a}{b}", ["mfrac"]),
        (r"-\log q(w_{t+1} \mid w_t)", ["msub"]),
        (r"\sum_{i=1}^n x_i^2", ["munderover", "msubsup"]),
        (r"\sqrt{x} \cdot \mathbf{W}", ["msqrt"]),
        (r"\begin{aligned} a &= b \\ c &< d \end{aligned}", ["mtable", "mtr", "mtd"]),
        (r"\operatorname{softmax}(x)", ["mo"]),
    ],
)
def test_formulas_become_mathml(tex: str, parts: list[str]) -> None:
    tree = ElementTree.fromstring(mathml(tex, block=True))
    assert tree.tag == f"{MATH}math"
    assert tree.get("display") == "block"
    assert {f"{MATH}{part}" for part in parts} <= {inner.tag for inner in tree.iter()}
    assert ElementTree.fromstring(mathml(tex)).get("display") == "inline"


@pytest.mark.parametrize("tex", [r"\frac{<b>", "a & <script>alert(1)</script> {", r"\left( x"])
def test_what_is_no_formula_is_shown_as_it_was_written(tex: str) -> None:
    made = mathml(tex)
    assert "<script" not in made
    assert "<b>" not in made
    assert ElementTree.fromstring(made).tag in ("code", f"{MATH}math")


def test_every_formula_of_the_course_can_be_read() -> None:
    for path in sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                text = re.sub(r"`[^`]*`", "", cell.source)
                for tex in re.findall(r"\$\$(.+?)\$\$|(?<!\$)\$([^$]+)\$(?!\$)", text, re.DOTALL):
                    assert "labkit-tex" not in mathml("".join(tex)), f"{path.name}: {tex}"


def test_a_renderer_draws_all_three_kinds() -> None:
    class Plain:
        """A renderer of nothing."""

    made = with_mathml(Plain)()
    for html in (
        made.inline_math("x"),
        made.block_math("x"),
        made.latex_environment("matrix", "x"),
    ):
        assert ElementTree.fromstring(html).tag == f"{MATH}math"


def book(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(cell) for cell in cells])


def test_a_notebook_is_described_by_its_title_and_first_sentence() -> None:
    made = book("# A <title>\n\nThe *first* one: of `two`. The second.", "## More")
    found = described(Path("07_name.ipynb"), made)
    assert found == ("07_name.html", "07", "A <title>", "The first one: of two.")
    assert described(Path("07_name.ipynb"), book()).title == "07_name"
    both = links([found, found], 0)
    assert "A &lt;title&gt; →" in both
    assert "←" not in both


def test_the_site_escapes_titles_and_is_written_again(tmp_path: Path) -> None:
    nbformat.write(book("# <script>alert(1)</script> & co\n\nText."), tmp_path / "01_x.ipynb")
    for _ in range(2):
        build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    listed = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in listed
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in listed


def test_the_command_writes_the_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "00", "--out", str(tmp_path / "out")]) == 0
    assert "1 notebooks: open" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["00_start_here.html", "index.html"]


def test_the_site_for_students_has_no_solutions(tmp_path: Path) -> None:
    code = nbformat.v4.new_code_cell(
        "### BEGIN SOLUTION\nanswer = 41 + 1\n### END SOLUTION\nanswer"
    )
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T\n\nx"), code])
    nbformat.write(made, tmp_path / "01_x.ipynb")
    for students in (False, True):
        build([tmp_path / "01_x.ipynb"], tmp_path / "out", students=students)
        page = (tmp_path / "out" / "01_x.html").read_text(encoding="utf-8")
        assert ("END SOLUTION" in page) != students


def test_stored_pictures_of_widgets_are_in_the_site(tmp_path: Path) -> None:
    books = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]*.ipynb"))
    build(books, tmp_path)
    for path in books:
        outputs = [
            "".join(output["data"].get("text/html", ""))
            for cell in nbformat.read(path, as_version=4).cells
            for output in cell.get("outputs", ())
            if "data" in output
        ]
        stored = sum(html.count('class="labkit-view') for html in outputs)
        page = (tmp_path / f"{path.stem}.html").read_text(encoding="utf-8")
        assert page.count('class="labkit-view') == stored
        assert not re.search(r"<script|<link|@import|url\((?!data:)", page)


@pytest.mark.parametrize("command", ["lecture", "site"])
def test_a_name_that_is_not_there_gets_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "00_strat_here"])
    assert "did you mean 00_start_here?" in capsys.readouterr().err


def test_a_port_that_is_taken_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port("127.0.0.1", port) > port
    with pytest.raises(SystemExit):
        free_port("203.0.113.7", 8866)
    assert "another --port or --ip" in capsys.readouterr().err
