"""Notebooks as pages: formulas, the list of the site, and the words of the two commands."""

import json
import re
import socket
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import nbformat
import pytest
from test_live import contrast

from classroom.cli import main
from classroom.cli.lecture import KERNEL, SHARE, free_port, room, serve
from classroom.cli.site import write as build
from classroom.demos.recording import KEY
from classroom.pages.formulas import mathml, with_mathml
from classroom.pages.harmless import harmless_page
from classroom.pages.live.parts import ENGINE, SHOWN
from classroom.pages.site import described, links, listed


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
    assert tree.tag == "math"
    assert tree.get("display") == "block"
    assert set(parts) <= {inner.tag for inner in tree.iter()}
    assert ElementTree.fromstring(mathml(tex)).get("display") == "inline"


@pytest.mark.parametrize("tex", [r"\frac{<b>", "a & <script>alert(1)</script> {", r"\left( x"])
def test_what_is_no_formula_is_shown_as_it_was_written(tex: str) -> None:
    made = mathml(tex)
    assert "<script" not in made
    assert "<b>" not in made
    assert ElementTree.fromstring(made).tag in ("code", "math")


@pytest.mark.parametrize("text", ["<end>", "a & b", "a<b"])
def test_a_text_within_a_formula_is_read_as_it_is(text: str) -> None:
    [found] = ElementTree.fromstring(mathml(f"p(\\text{{{text}}} \\mid x)")).iter("mtext")
    assert (found.text or "").replace("\xa0", " ") == text


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
    assert ElementTree.fromstring(made.inline_math("x")).tag == "math"
    for html in (made.block_math("x"), made.latex_environment("matrix", "x")):
        # It may be wider than a phone: then it scrolls, and the keyboard reaches it.
        around = ElementTree.fromstring(html)
        assert (around.tag, around.get("tabindex"), around[0].tag) == ("span", "0", "math")


def book(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(cell) for cell in cells])


def test_a_notebook_is_described_by_its_title_and_what_you_will_do() -> None:
    made = book("# A <title>\n\nThe *first* one: of `two`. The second.", "## More")
    found = described(Path("07_name.ipynb"), made)
    assert found == ("07_name.html", "07", "A <title>", "The first one: of two.")
    promised = book("# T\n\nA question?\n\nAn answer. You will *build* it. You will use it.")
    assert described(Path("07_name.ipynb"), promised).promise == "You will build it."
    assert described(Path("07_name.ipynb"), book()).title == "07_name"
    both = links([found, found], 0)
    assert "A &lt;title&gt; →" in both
    assert "←" not in both


@pytest.mark.parametrize(
    ("text", "title", "first"),
    [
        ("```python\n# a comment\n```\n\n# Right\n\nText. More.", "Right", "Text."),
        ("Right\n=====\n\nText. More.", "Right", "Text."),
        ("# A *bold* `a_b`, [here](x.html), $n$-grams #\nText.", "A bold a_b, here, n-grams",
         "Text."),
        ("<!-- notes: ask them -->\n\n# Right\n\n<!-- notes:\n\nhidden\n\n-->\n\nText.",
         "Right", "Text."),
    ],
)  # fmt: skip
def test_titles_are_found_as_readers_see_them(text: str, title: str, first: str) -> None:
    assert described(Path("07_name.ipynb"), book(text))[2:] == (title, first)


def test_names_of_files_are_quoted_in_links() -> None:
    odd = described(Path("50% #1?.ipynb"), book("# T\n\nx"))
    address = 'href="50%25%20%231%3F.html"'
    assert address in links([odd, odd], 0)
    assert address in links([odd, odd], 1)
    assert address in listed([odd])


def test_code_that_shows_a_link_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1", encoding="utf-8")
    shown = '<a href="data.csv">'
    nbformat.write(book(f"# T\n\n```\n{shown}\n```"), tmp_path / "01_x.ipynb")
    build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    assert 'href="data.csv"' in (tmp_path / "out" / "01_x.html").read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "files").exists()


def test_pictures_have_a_text_and_the_keyboard_reaches_code_and_outputs(tmp_path: Path) -> None:
    made = book("# T\n\n<img src='a.png'> <img src='b.png' title='>' alt='b'>")
    made.cells.append(nbformat.v4.new_code_cell("1", outputs=[
        nbformat.v4.new_output("display_data", {"text/plain": "1"}),
        nbformat.v4.new_output("stream", text="1"),
    ]))  # fmt: skip
    nbformat.write(made, tmp_path / "01_x.ipynb")
    build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    page = (tmp_path / "out" / "01_x.html").read_text(encoding="utf-8")
    assert re.findall(r'<img[^>]*alt="([^"]*)"', page.replace('">"', "")) == [
        "No description has been provided for this image", "b"
    ]  # fmt: skip
    divs = re.findall(r"<div [^>]*>", page)
    reached = [div for div in divs if re.search("highlight hl|OutputArea-output", div)]
    assert len(reached) == 3
    assert [div for div in divs if 'tabindex="0"' in div] == reached


def test_half_a_character_and_a_cell_of_notes_leave_a_page(tmp_path: Path) -> None:
    made = book("The speaker says: hello.", "# A \ud83d title\n\nText \ud83d.")
    made.cells[0].metadata["tags"] = ["notes"]
    made.cells.append(nbformat.v4.new_code_cell("x = '\ud83d'"))
    (tmp_path / "01_x.ipynb").write_text(json.dumps(made), encoding="utf-8")
    build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    for name in ("01_x", "index"):
        page = (tmp_path / "out" / f"{name}.html").read_text(encoding="utf-8")
        assert "A \ufffd title" in page
        assert "speaker says" not in page


def test_pictures_are_counted_among_the_cells_that_a_page_shows(tmp_path: Path) -> None:
    made = book("# T\n\nx", "spoken", "installs")
    for cell, tag in zip(made.cells[1:], ("notes", "install"), strict=True):
        cell.metadata["tags"] = [tag]
    nbformat.write(made, tmp_path / "01_x.ipynb")
    with patch("classroom.pages.live.pictures.scripts_for", return_value=[]) as asked:
        build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    assert [cell.source for cell in asked.call_args.args[0].cells] == ["# T\n\nx"]


@pytest.mark.parametrize("names", [["01_x", "folder/01_X"], ["index"], ["live"]])
def test_a_page_never_takes_the_place_of_another(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    paths = [tmp_path / f"{name}.ipynb" for name in names]
    for path in paths:
        nbformat.write(book("# T\n\nx"), path)
    with pytest.raises(SystemExit):
        main(["site", *map(str, paths), "--output", str(tmp_path / "out")])
    assert f"another page {paths[-1].stem}.html" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("left", ["02_y.html", "files/02_y.ipynb.txt"])
def test_the_site_for_students_is_not_put_beside_solutions(
    left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "files").mkdir(parents=True)
    (out / left).write_text("### BEGIN SOLUTION", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["site", "00", "--students", "--output", str(out)])
    assert "holds solutions" in capsys.readouterr().err
    assert not (out / "index.html").exists()


def test_the_site_escapes_titles_and_is_written_again(tmp_path: Path) -> None:
    nbformat.write(book("# <script>alert(1)</script> & co\n\nText."), tmp_path / "01_x.ipynb")
    for _ in range(2):
        build([tmp_path / "01_x.ipynb"], tmp_path / "out")
    listed = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "alert(1)<" not in listed
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in listed


def test_the_command_writes_the_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "00", "--output", str(tmp_path / "out")]) == 0
    assert "1 notebook: open" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["00_start_here.html", "index.html", "live.html"]


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


def test_a_picture_that_is_not_attached_is_named(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "01_x.ipynb"
    nbformat.write(book("# T", "![y](attachment:lost.png)"), path)
    with pytest.raises(SystemExit):
        main(["site", str(path), "--output", str(tmp_path / "out")])
    assert f"{path}: missing attachment: lost.png" in capsys.readouterr().err


def test_a_cell_without_outputs_is_named(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "01_x.ipynb"
    cell = {"cell_type": "code", "metadata": {}, "source": "1"}
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit):
        main(["site", str(path), "--output", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{path} is not a valid notebook: 'outputs' is a required property: run" in said


def test_a_linked_notebook_travels_to_students_without_its_solutions(tmp_path: Path) -> None:
    code = nbformat.v4.new_code_cell("### BEGIN SOLUTION\nanswer = 41 + 1\n### END SOLUTION\n")
    note = nbformat.v4.new_markdown_cell("Text.<!-- notes: they ask why -->")
    for name, link in (("01_x.ipynb", "[more](02_y.IPYNB)"), ("02_y.IPYNB", "none")):
        cells = [nbformat.v4.new_markdown_cell(f"# T\n\n{link}"), note, code]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), str(tmp_path / name))
    for students in (False, True):
        build([tmp_path / "01_x.ipynb"], tmp_path / "out", students=students)
        [other] = (tmp_path / "out" / "files").rglob("02_y.IPYNB.txt")
        text = other.read_text(encoding="utf-8")
        assert ("41 + 1" in text, "they ask why" in text) == (not students, not students)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"cells": [1]}', '{"cells": [{}]}'])
def test_a_linked_notebook_that_is_damaged_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "02_y.ipynb").write_text(text)
    nbformat.write(book("# T", "[more](02_y.ipynb)"), tmp_path / "01_x.ipynb")
    words = ["site", str(tmp_path / "01_x.ipynb"), "--students", "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / '02_y.ipynb'} is linked and is not a Jupyter notebook" in said
    assert said.count("\n") == 1


class Course(NamedTuple):
    """The site of the whole course, built once."""

    books: list[Path]
    folder: Path
    cleaned: list[tuple[str, str]]
    """Each page before and after `harmless_page`."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    books = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]*.ipynb"))
    made = Course(books, tmp_path_factory.mktemp("course"), [])

    def seen(page: str) -> str:
        made.cleaned.append((page, harmless_page(page)))
        return made.cleaned[-1][1]

    with patch("classroom.pages.site.harmless_page", seen):
        build(books, made.folder)
    return made


def test_stored_pictures_of_widgets_are_in_the_site(course: Course) -> None:
    for path in course.books:
        outputs = [
            output
            for cell in nbformat.read(path, as_version=4).cells
            for output in cell.get("outputs", ())
            if "data" in output
        ]
        # A curve that was drawn as a picture is a view where it was recorded.
        stored = sum(
            "".join(output["data"].get("text/html", "")).count('class="labkit-view')
            or (KEY in output["metadata"])
            for output in outputs
        )
        page = (course.folder / f"{path.stem}.html").read_text(encoding="utf-8")
        main = page[page.index("<main") : page.rindex("</main>")]
        assert main.count('class="labkit-view') == stored
        contents = page.split('aria-label="sections"')[1].split("</nav>")[0]
        listed = re.findall(r'<li><a href="#([^"]+)">', contents)
        assert listed == re.findall(r'<h2 id="([^"]+)"', main)
        # Every picture is described, and not by the name of its class.
        assert not re.search(r'alt="(No description|&lt;|")', main), path.name
        own = page.count("<script>")
        assert own == len(re.findall("'sha256-", page)) in (0, 1 + len(SHOWN), 1 + len(ENGINE))
        assert not re.search(r"<script|<link|@import|url\((?!data:)", main)


def test_colours_of_code_and_tracebacks_are_read_on_light_and_dark() -> None:
    style = SHARE / "nbconvert" / "templates" / "course" / "shared.css"
    text = style.read_text(encoding="utf-8")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"):
        assert f".ansi-{name}-fg, .ansi-{name}-intense-fg" in text
    colours = re.findall(r"light-dark\((#\w{6}), (#\w{6})\)", text)
    assert len(colours) == text.count("light-dark")
    for light, dark in colours:
        # On the page, and behind an error.
        for colour, ground in ((light, "#ffffff"), (light, "#ffdddd"), (dark, "#212121")):
            assert contrast(colour, ground) > 4.5, (colour, ground)
        assert contrast(dark, "#541414") > 4.5, dark


@pytest.mark.parametrize("command", ["lecture", "site"])
def test_a_name_that_is_not_there_gets_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "00_strat_here"])
    assert "did you mean 00_start_here?" in capsys.readouterr().err


@pytest.mark.parametrize(("kernels", "said"), [(0.2, "about 1."), (7.9, "about 7.")])
def test_a_lecture_says_how_many_browsers_it_can_serve(
    monkeypatch: pytest.MonkeyPatch, kernels: float, said: str
) -> None:
    free = SimpleNamespace(available=kernels * KERNEL)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    assert room().endswith(said)


def test_a_lecture_ends_the_kernel_of_a_browser_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("voila")
    monkeypatch.setenv("JUPYTER_PATH", "")  # which is written
    with patch("voila.app.Voila") as voila:
        serve(tmp_path / "x.ipynb", "127.0.0.1", 8866, "a-token", "light")
    culled = voila.call_args.kwargs["config"].MappingKernelManager
    assert 0 < culled.cull_idle_timeout <= 600
    assert not culled.get("cull_connected"), "an open page keeps its kernel, however long it rests"


def test_a_port_that_is_taken_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port("127.0.0.1", port) > port
    with pytest.raises(SystemExit):
        free_port("203.0.113.7", 8866)
    assert "another --port or --ip" in capsys.readouterr().err


# ---- notebooks of strangers ----------------------------------------------------------------------

RAN = "document.body.dataset.ran = 'yes'"
SCRIPTS = [
    f"<script>{RAN}</script>",
    f'<img src=x onerror="{RAN}">',
    f"[a](javascript:{RAN.replace(' ', '')})",
    f'<a id="jump" href=" java\tscript:{RAN}">b</a>',
    f'<a href="data:text/html,<script>{RAN}</script>">c</a>',
    f"$\\text{{<script>{RAN}</script>}}$",
    f'$\\text{{<img src=x onerror="{RAN}">}}$',
    f"$$\\frac{{<script>{RAN}</script>}}{{2}}$$",
    f'<svg onload="{RAN}"><script>{RAN}</script></svg>',
    f'<iframe srcdoc="<script>parent.{RAN}</script>"></iframe>',
    f'<math><mtext><table><mglyph><style><img src=x onerror="{RAN}"></style></math>',
    f"</main></body><script>{RAN}</script><main>",
    f'<details open ontoggle="{RAN}">d</details>',
    '<meta http-equiv="refresh" content="0;url=https://example.org">',
    '<base href="https://example.org"><link rel="stylesheet" href="https://example.org/x.css">',
    '<p style="background:u\\72l(https://example.org/x.png)">e</p>',
    '<p style="background-image:url(https://example.org/x.png)">f</p>',
    '<img src="//evil.example/share/x.png"><img src="\\\\evil.example\\share\\x.png">',
    '<img src="%5C%5Cevil.example%5Cshare%5Cx.png"><img src="%2F%2Fevil.example/share/x.png">',
    '<div data-play="sampling">g</div>',
    '<form action="https://example.org"><button>g</button></form>',
    "<object data=x></object><embed src=x><style>@import 'https://example.org/x.css'</style>",
]


def hostile(folder: Path) -> Path:
    """Write a notebook that tries all of it in each place that reaches a page."""
    shown = [
        nbformat.v4.new_output("display_data", {kind: text})
        for text in SCRIPTS
        for kind in ("text/html", "text/markdown", "text/latex", "text/plain")
    ]
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><script>{RAN}</script><rect/></svg>'
    shown.append(nbformat.v4.new_output("display_data", {"image/svg+xml": svg}))
    shown.append(nbformat.v4.new_output("display_data", {"application/javascript": RAN}))
    shown.append(nbformat.v4.new_output("stream", text="\n".join(SCRIPTS)))
    shown.append(nbformat.v4.new_output("error", ename=SCRIPTS[0], evalue="", traceback=SCRIPTS))
    cells = [nbformat.v4.new_markdown_cell(f"# T {text}\n\n{text}") for text in SCRIPTS]
    cells.append(nbformat.v4.new_code_cell("\n".join(SCRIPTS), outputs=shown, execution_count=1))
    cells.append(nbformat.v4.new_raw_cell("\n".join(SCRIPTS), metadata={"format": "text/html"}))
    made = nbformat.v4.new_notebook(cells=cells, metadata={"title": SCRIPTS[0]})
    path = folder / "01_hostile.ipynb"
    nbformat.write(made, path)
    return path


def test_a_page_of_a_hostile_notebook_has_nothing_that_runs(tmp_path: Path) -> None:
    build([hostile(tmp_path)], tmp_path / "out")
    for page, begin, end in (("01_hostile", "<body", "</html>"), ("index", "<h2>The", "</ol>")):
        html = (tmp_path / "out" / f"{page}.html").read_text(encoding="utf-8")
        body = html[html.index(begin) : html.index(end)]
        assert not re.search(r"<(script|iframe|object|embed|base|meta|link|style|form)\b", body)
        assert not re.search(r"<[^>]*\s(on\w+|srcdoc)=", body)
        assert not re.search(r"""<[^>]*(href|src)=["'\s]*(javascript|data:text)""", body)
        assert not re.search(r"<[^>]*style=\"[^\"]*(url|\\)", body)
        assert not re.search(r"<[^>]*(href|src)=[\"'\s]*([\\/]|%5c|%2f){2}", body, re.IGNORECASE)
        assert not re.search(r"<[^>]*data-play=", body)


@pytest.mark.browser
def test_a_page_of_a_hostile_notebook_runs_nothing_in_a_browser(
    tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build([hostile(tmp_path)], tmp_path / "out")
    context = browser.new_context()
    asked: list[str] = []
    try:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "out" / "01_hostile.html").as_uri(), wait_until="load")
        protocols = page.evaluate("[...document.querySelectorAll('[href]')].map(a => a.protocol)")
        assert {*protocols} <= {"file:", "http:", "https:", "mailto:"}
        page.wait_for_timeout(300)
        assert page.evaluate("document.body.dataset.ran") is None
        assert page.evaluate("document.scripts.length") == 0
        assert page.locator("math").count() > 1
        assert not [url for url in asked if url.startswith("http")]
        assert page.url.startswith("file:")
        # The policy alone stops all scripts, too; the page as it came shows that the tricks do run.
        # A policy cannot stop a page from navigating away: an empty answer (204) keeps it here.
        context.route(re.compile("^https?:"), lambda route: route.fulfill(status=204))
        monkeypatch.setattr("classroom.pages.site.harmless_page", lambda html: html)
        build([hostile(tmp_path)], tmp_path / "policy")
        page.goto((tmp_path / "policy" / "01_hostile.html").as_uri(), wait_until="load")
        page.wait_for_timeout(300)
        assert page.evaluate("document.body.dataset.ran") is None
        monkeypatch.setattr("classroom.pages.live.parts.policy", lambda scripts: "")
        build([hostile(tmp_path)], tmp_path / "bare")
        page.goto((tmp_path / "bare" / "01_hostile.html").as_uri(), wait_until="commit")
        page.wait_for_function("document.body && document.body.dataset.ran")
    finally:
        context.close()


def test_only_files_of_the_course_travel(tmp_path: Path) -> None:
    """Not by going up, not in other spellings, not through links, not what is hidden."""
    root, out = tmp_path / "course", tmp_path / "out"
    (root / "data").mkdir(parents=True)
    (root / ".hidden").mkdir()
    for path in ("secret.txt", "course/data/a b.csv", "course/.hidden/key.txt", "course/page.html",
                 "course/data/picture.svg", "course/.env"):  # fmt: skip
        (tmp_path / path).write_text(path)
    (root / "data" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    ways = ["../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "data/../../secret.txt",
            "data/link.txt", "folder/secret.txt", str(tmp_path / "secret.txt"), "page.html",
            ".hidden/key.txt", ".env", "&#46;&#46;/secret.txt", str(root / "data" / "a b.csv"),
            "missing.txt", "data/a%20b.csv", "data/picture.svg",
            "a%00b.txt", f"search?q={'x' * 300}"]  # fmt: skip
    links = [f'<a href="{way}">x</a> <img src="{way}"> ![y]({way})' for way in ways]
    nbformat.write(book("# T", *links), root / "01_x.ipynb")
    build([root / "01_x.ipynb"], out)
    files = {path.relative_to(out / "files").as_posix(): path.read_text()
             for path in (out / "files").rglob("*") if path.is_file()}  # fmt: skip
    assert files == {
        "data/a b.csv.txt": "course/data/a b.csv",
        "data/picture.svg": "course/data/picture.svg",
        "data/picture.svg.txt": "course/data/picture.svg",
    }
    page = (out / "01_x.html").read_text(encoding="utf-8")
    assert 'href="files/data/a%20b.csv.txt"' in page
    assert 'href="files/data/picture.svg.txt"' in page
    assert 'src="files/data/picture.svg"' in page
    assert "base64" not in page[page.index("<main") :], "nothing is embedded, either"


def test_the_course_loses_nothing_by_being_cleaned(course: Course) -> None:
    class Elements(HTMLParser):
        """The elements of a page with their attributes."""

        def __init__(self, html: str) -> None:
            super().__init__()
            self.found = Counter[str]()
            self.feed(html)

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            # A style only hides a stored picture beside a live one; browsers add tbody themselves.
            if tag not in ("style", "tbody"):
                self.found[f"{tag} {sorted(attrs)}"] += 1

        handle_startendtag = handle_starttag

    for path, (before, after) in zip(course.books, course.cleaned, strict=True):
        assert Elements(after).found == Elements(before).found, path.name
