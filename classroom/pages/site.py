"""The notebooks as a site of files: it opens without a server, and makes no request to any network.

Widgets are there as the pictures they were stored with, formulas as MathML, the style in the page.
A picture whose demo has few states is live: its views are written down in the page.  Links between
notebooks lead to their pages; other files that a notebook names travel along if they lie in the
folder of the course.  Whatever could run is left out, since a notebook may be foreign: a policy
admits the page's own scripts by their digests, and nothing else.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from classroom.demos.reading import written
from classroom.exercises import students_version
from classroom.exercises.students import SPOKEN
from classroom.pages.formulas import mathml, with_mathml
from classroom.pages.harmless import harmless, harmless_page
from classroom.pages.live import parts
from classroom.running.light import light_jsonschema
from labkit.checks import clipped
from labkit.keeping.files import write_text
from labkit.keeping.paths import checkout

TEMPLATES = Path(__file__).resolve().parent / "share" / "nbconvert" / "templates"
TITLE = "Pre-training and transfer learning in NLP"
# What a page shows of an output, the best first: no widget, which would need a kernel.
SHOWN = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg",
         "text/plain")  # fmt: skip
# Files that a browser shows as they are; all others are shown as text.  An SVG that is opened by
# itself may run script, one in a picture may not.
SEEN = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".txt")
PICTURES = (*SEEN, ".svg")
LEFT_OUT = {"notes", "install"}
"""Tags of cells that no page shows."""
ICONS = re.compile(r"--jp-icon-[\w-]+:\s*url\([^)]*\);")
SECTION = re.compile(r'<h2 id="([^"]+)"[^>]*>(.*?)<a class="anchor-link"', re.DOTALL)
# Within a tag, as the cleaned page has them: code that is shown may have the same letters.
LINK = re.compile(
    r'(?P<before><[a-z](?:[^<>"]|"[^"]*")*?\s(?:href|src)=")(?P<to>[^"#:]+)(?P<rest>#[^"]*)?"'
)
UNTOLD = re.compile(r'<img(?=\s)(?!(?:[^<>"]|"[^"]*")*?\salt=)')
WIDE = re.compile(
    r'<div(?=\s(?:[^<>"]|"[^"]*")*?(?<=\sclass=)"(?:[^"]*\s)?'
    r'(?:highlight|jp-OutputArea-output)[\s"])'
)
FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^# +(.+?)[ #]*$|^ {0,3}(\S.*)\n {0,3}=+ *$", re.MULTILINE)


class Page(NamedTuple):
    """One notebook of the site."""

    file: str
    number: str
    title: str
    promise: str


def build(
    notebooks: Sequence[Path],
    out: Path,
    *,
    students: bool,
    scripts_for: Callable[[Any], Sequence[str]],
) -> list[Page]:
    """Write a page for each notebook; for students, without solutions.

    `scripts_for` gives the scripts that make the pictures of a notebook live.
    """
    light_jsonschema()
    import nbformat

    books = [nbformat.read(path, as_version=4) for path in notebooks]
    for book in books:
        book.cells = [
            cell for cell in book.cells if not LEFT_OUT & {*cell.metadata.get("tags", ())}
        ]
    if students:
        books = [nbformat.from_dict(students_version(book)) for book in books]
    pages = [described(path, book) for path, book in zip(notebooks, books, strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    for place, (path, book) in enumerate(zip(notebooks, books, strict=True)):
        resources = {
            "metadata": {"name": pages[place].title, "path": str(path.parent)},
            "course_links": links(pages, place),
        }
        scripts = scripts_for(book)
        html = exported(book, resources, path)
        html = connected(reachable(harmless_page(html)), path, notebooks, out, students=students)
        html = with_demos(with_contents(html), scripts)
        write_text(out / pages[place].file, html)  # never half of a page
    return pages


def exported(book: Any, resources: dict[str, Any], path: Path) -> str:
    """The page as nbconvert makes it; `ValueError` where the notebook is damaged."""
    import nbformat
    from nbconvert.filters.markdown_mistune import InvalidNotebook

    try:
        return str(exporter().from_notebook_node(book, resources)[0])
    except InvalidNotebook as problem:
        raise ValueError(f"{path}: {problem}: attach the picture to its cell again") from None
    except nbformat.ValidationError as problem:
        said = clipped(problem.message, 100)
        raise ValueError(
            f"{path} is not a valid notebook: {said}: run its cells again and save it"
        ) from None


def reachable(html: str) -> str:
    """The cleaned page; the keyboard reaches what may be too wide, and each picture has a text."""
    html = UNTOLD.sub('<img alt="No description has been provided for this image"', html)
    return WIDE.sub('<div tabindex="0"', html)


def with_contents(html: str) -> str:
    """The page with a list of its sections, folded, below the links to other pages."""
    items = "".join(f'<li><a href="#{id}">{said}</a></li>' for id, said in SECTION.findall(html))
    contents = (
        '<nav class="course-links" aria-label="sections"><details><summary>Contents</summary>'
        f"<ol>{items}</ol></details></nav>"
    )
    return html.replace("</nav>", f"</nav>{contents}", 1) if items else html


def with_demos(html: str, scripts: Sequence[str]) -> str:
    """The page with its policy, and with what makes its pictures live."""
    style = f"<style>{parts.style_of_demos()}</style>" if scripts else ""
    # The theme brings pictures for buttons that only JupyterLab has.
    html = ICONS.sub("", html)
    html = html.replace("<head>", f"<head>{parts.policy(scripts)}", 1)
    html = html.replace("</head>", f"{style}</head>", 1)
    before, end, after = html.rpartition("</body>")
    return f"{before}{parts.inline(scripts)}{end}{after}"


def listed(pages: Sequence[Page]) -> str:
    """The notebooks, and how to install the course."""
    items = "".join(
        f'<li><a href="{escape(quote(page.file))}">{escape(page.number)} · {escape(page.title)}</a>'
        f"<p>{escape(page.promise)}</p></li>"
        for page in pages
    )
    return (
        f'<h2>The notebooks</h2><ol class="course-list">{items}</ol><h2>Install</h2>'
        "<p>In a copy of the course, with Python 3.11 to 3.15:</p>"
        '<pre tabindex="0">python -m labkit lab     # opens the course in JupyterLab\n'
        "python -m labkit test    # runs all of its tests</pre>"
    )


@cache
def exporter() -> Any:
    """The exporter of one notebook to one page; its templates are compiled once."""
    from jinja2 import pass_context
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.exporters.templateexporter import TemplateExporter
    from nbconvert.filters.highlight import Highlight2HTML
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    renderer = with_mathml(IPythonRenderer)

    class AsTheTemplateSays(HTMLExporter):
        """Without the last pass of nbconvert, which takes longer than all before: `reachable`."""

        def from_notebook_node(self, nb: Any, resources: Any = None, **others: Any) -> Any:
            language = nb.metadata.get("language_info", {})
            lexer = language.get("pygments_lexer", language.get("name"))
            self.register_filter("highlight_code", Highlight2HTML(lexer, parent=self))
            return TemplateExporter.from_notebook_node(self, nb, resources, **others)

    @pass_context
    def markdown(context: Any, source: str) -> str:
        """Markdown, with what it attaches and without anything of a speaker's."""
        # Pictures travel as files, by the same rule as all others, and are not embedded unasked.
        given = {"attachments": context.get("cell", {}).get("attachments", {})}
        made = renderer(escape=False, embed_images=False, **given)
        return str(MarkdownWithMath(renderer=made).render(SPOKEN.sub("", source)))

    config = Config()
    config.NbConvertBase.display_data_priority = list(SHOWN)
    return AsTheTemplateSays(
        config=config,
        template_name="course",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"markdown2html": markdown, "formula": formula, "clean_html": clean},
    )


def clean(html: str | bytes) -> str:
    """What nbconvert cleans, code in colours above all: bleach takes ten times as long as nh3."""
    return harmless(html.decode() if isinstance(html, bytes) else str(html))


def formula(tex: str) -> str:
    """An output in TeX, without the signs around it."""
    return mathml(tex.strip().strip("$"), block=True)


def described(path: Path, book: Any) -> Page:
    """The number of a notebook, its title, and what it says that you will do, or its beginning."""
    texts = (cell.source for cell in book.cells if cell.cell_type == "markdown")
    text = FENCED.sub("", SPOKEN.sub("", written("\n\n".join(texts))))
    found = HEADING.search(text)
    title = plain(re.sub(r"\$([^$]+)\$", r"\1", found[1] or found[2])) if found else path.stem
    parts = HEADING.sub("", text).split("\n\n")
    paragraphs = [part for part in map(str.strip, parts) if re.match(r"[\w*]", part)]
    opening = [plain(re.sub(r"\$[^$]*\$", "", part)) for part in paragraphs[:4]]
    sentences = [one for part in opening for one in re.split(r"(?<=[.?!])\s", part)] or [""]
    promise = next((one for one in sentences if one.startswith("You will ")), sentences[0])
    return Page(f"{path.stem}.html", path.stem.split("_")[0], title, promise)


def plain(text: str) -> str:
    """Markdown within a line, without its signs."""
    without = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # of a link, its words
    return " ".join(re.sub(r"[*`]|\b_{1,2}|_{1,2}\b", "", without).split())


def links(pages: Sequence[Page], place: int) -> str:
    """The way to the list, and to the pages before and after."""
    ways = [("index.html", "All notebooks"), ("live.html", "Live demos")]
    if place:
        ways.append((quote(pages[place - 1].file), f"← {pages[place - 1].title}"))
    if place + 1 < len(pages):
        ways.append((quote(pages[place + 1].file), f"{pages[place + 1].title} →"))
    made = "".join(f'<a href="{escape(to)}">{escape(said)}</a>' for to, said in ways)
    return f'<nav class="course-links" aria-label="notebooks">{made}</nav>'


def connected(
    html: str, notebook: Path, notebooks: Sequence[Path], out: Path, *, students: bool
) -> str:
    """The page with its links to notebooks as links to pages; other files travel along.

    For students, a notebook that has no page travels without its solutions.
    """
    pages = {path.resolve(): f"{path.stem}.html" for path in notebooks}
    root = root_of(notebook)

    def way(found: re.Match[str]) -> str:
        named = Path(unquote(unescape(found["to"])))
        # It is not even looked up: on Windows it may be on another machine. No name has a null
        # byte.
        if named.anchor or "\0" in str(named):
            return found[0]
        target = (notebook.parent / named).resolve()
        if target in pages:
            to = pages[target]
        elif may_travel(target, root):
            # Beside the pages, as a picture or as a text that a browser shows.
            inside = target.relative_to(root)
            seen = target.suffix.lower() in (
                PICTURES if found["before"].endswith('src="') else SEEN
            )
            to = (Path("files") / inside).as_posix() + ("" if seen else ".txt")
            (out / to).parent.mkdir(parents=True, exist_ok=True)
            if students and target.suffix.lower() == ".ipynb":
                write_text(out / to, unsolved(target))
            else:
                shutil.copyfile(target, out / to)
        else:
            return found[0]
        return f'{found["before"]}{escape(quote(to))}{found["rest"] or ""}"'

    return LINK.sub(way, html)


def unsolved(path: Path) -> str:
    """A notebook's file for students, as JSON; what cannot be read may hold solutions."""
    try:
        return json.dumps(students_version(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"{path} is linked and is not a Jupyter notebook of version 4, so its solutions cannot "
            "be left out: mend the file, or the link"
        ) from None


def root_of(notebook: Path) -> Path:
    """The folder whose files a notebook may name: the checkout, or the folder it stands in."""
    root = checkout()
    inside = root is not None and notebook.resolve().is_relative_to(root.resolve())
    return root.resolve() if root and inside else notebook.parent.resolve()


def may_travel(target: Path, root: Path) -> bool:
    """Whether a file, all links followed, lies below a folder and in nothing that is hidden."""
    # `Path.is_file` raises where a name is too long for the disk, as one with a query may be.
    if not target.is_relative_to(root) or not os.path.isfile(target):
        return False
    hidden = any(part.startswith(".") for part in target.relative_to(root).parts)
    return not hidden and target.suffix.lower() != ".html"
