"""The notebooks as a site of files: it opens without a server, and asks no network for anything.

Widgets are there as the pictures they were stored with, formulas as MathML, the style in the page.
Links between notebooks lead to their pages; other files that a notebook names travel along.
"""

import re
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from classroom.exercises import students_version
from classroom.pages.formulas import mathml, with_mathml

TEMPLATES = Path(__file__).resolve().parent / "share" / "nbconvert" / "templates"
TITLE = "Pre-training and transfer learning in NLP"
# What a page shows of an output, the best first: no widget, which would need a kernel.
SHOWN = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg",
         "text/plain")  # fmt: skip
# Files that a browser shows as they are; all others are shown as text.
SEEN = (".png", ".jpg", ".jpeg", ".svg", ".gif", ".txt")
LINK = re.compile(r'(?P<before>\b(?:href|src)=")(?P<to>[^"#:]+)(?P<rest>#[^"]*)?"')


class Page(NamedTuple):
    """One notebook of the site."""

    file: str
    number: str
    title: str
    first: str


def build(notebooks: Sequence[Path], out: Path, *, students: bool = False) -> list[Page]:
    """Write a page for each notebook and a list of them; for students, without solutions."""
    import nbformat

    books = [nbformat.read(path, as_version=4) for path in notebooks]
    if students:
        books = [nbformat.from_dict(students_version(book)) for book in books]
    pages = [described(path, book) for path, book in zip(notebooks, books, strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    export = exporter()
    for place, (path, book) in enumerate(zip(notebooks, books, strict=True)):
        resources = {
            "metadata": {"name": pages[place].title, "path": str(path.parent)},
            "course_links": links(pages, place),
        }
        html, _ = export.from_notebook_node(book, resources)
        text = connected(html, path, notebooks, out)
        (out / pages[place].file).write_text(text, encoding="utf-8")
    listed = export.environment.get_template("list.html.j2").render(title=TITLE, pages=pages)
    (out / "index.html").write_text(listed, encoding="utf-8")
    return pages


def exporter() -> Any:
    """The exporter of one notebook to one page."""
    from jinja2 import pass_context
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    renderer = with_mathml(IPythonRenderer)

    @pass_context
    def markdown(context: Any, source: str) -> str:
        """Markdown, with what it attaches and without anything of a speaker's."""
        given = {"attachments": context.get("cell", {}).get("attachments", {})}
        path = context.get("resources", {}).get("metadata", {}).get("path", "")
        made = renderer(escape=False, embed_images=True, path=path, **given)
        spoken = re.sub(r"<!--\s*notes:.*?-->", "", source, flags=re.DOTALL | re.IGNORECASE)
        return str(MarkdownWithMath(renderer=made).render(spoken))

    config = Config()
    config.NbConvertBase.display_data_priority = list(SHOWN)
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = {"notes"}
    return HTMLExporter(
        config=config,
        template_name="course",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"markdown2html": markdown, "formula": formula},
    )


def formula(tex: str) -> str:
    """An output in TeX, without the signs around it."""
    return mathml(tex.strip().strip("$"), block=True)


def described(path: Path, book: Any) -> Page:
    """The number of a notebook, its title and its first sentence."""
    texts = [cell.source for cell in book.cells if cell.cell_type == "markdown"]
    heading = re.search(r"^# (.+)$", "\n".join(texts), re.MULTILINE)
    paragraphs = [part for part in "\n\n".join(texts).split("\n\n") if re.match(r"[\w*]", part)]
    plain = re.sub(r"[*`]|\$[^$]*\$", "", " ".join(paragraphs[0].split())) if paragraphs else ""
    first = re.split(r"(?<=[.?!])\s", plain)[0]
    number = path.stem.split("_")[0]
    return Page(f"{path.stem}.html", number, heading[1].strip() if heading else path.stem, first)


def links(pages: Sequence[Page], place: int) -> str:
    """The way to the list, and to the pages before and after."""
    ways = [("index.html", "All notebooks")]
    if place:
        ways.append((pages[place - 1].file, f"← {pages[place - 1].title}"))
    if place + 1 < len(pages):
        ways.append((pages[place + 1].file, f"{pages[place + 1].title} →"))
    made = "".join(f'<a href="{escape(to)}">{escape(said)}</a>' for to, said in ways)
    return f'<nav class="course-links" aria-label="notebooks">{made}</nav>'


def connected(html: str, notebook: Path, notebooks: Sequence[Path], out: Path) -> str:
    """The page with its links to notebooks as links to pages; other files travel along."""
    pages = {path.resolve(): f"{path.stem}.html" for path in notebooks}

    def way(found: re.Match[str]) -> str:
        target = (notebook.parent / unquote(found["to"])).resolve()
        if target in pages:
            to = pages[target]
        elif target.is_file() and target.suffix != ".html":
            # Beside the pages, under the folder it stood in, as a text that a browser shows.
            name = target.name if target.suffix in SEEN else f"{target.name}.txt"
            to = f"files/{target.parent.name}/{name}"
            (out / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, out / to)
        else:
            return found[0]
        return f'{found["before"]}{to}{found["rest"] or ""}"'

    return LINK.sub(way, html)
