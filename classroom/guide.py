"""The lecturer's guide, made from the speaker's notes in the notebooks.

    python -m classroom.guide          writes docs/guide.md

A cell of Markdown with the tag `notes` says what to click, what the class will ask and what to
beware of. Slides leave it out; the guide collects it under the heading that it stands below.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.keeping.files import write_text

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# The lecturer's guide

What to click, what the class will ask, and what to watch out for in each notebook. The notes are
stored in the notebooks, in cells with the tag `notes`; slides leave them out, and
`python -m classroom.guide` collects them here.

`make lecture NB=NN` shows a notebook as slides. Start it early, since cells that train do so each
time; `LABKIT_SHORT=1 make lecture NB=NN` shortens them, so that most curves stop far above the
lowest possible loss. Slides play widgets; to change or start a cell, open the notebook in
JupyterLab. `python -m labkit students` writes the version without solutions. The exercises take
three to fifteen minutes each ([labs.md](labs.md)); let neighbours compare their answers before you
show a solution. "Click: nothing" means that a picture or a table is to be read, not changed.

Some words recur in many notes. The *floor* is the lowest possible loss. The *village* is a small
made-up language whose probabilities are known. An *arm* is one of the things that a claim compares,
and a *contrast* is the difference that is judged.
"""


def guide() -> str:
    """The text of docs/guide.md."""
    parts = [HEAD]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        title, minutes = _first(cells)
        parts += [f"## {path.stem[:2]} {title}\n", f"*{minutes} minutes.*\n", *_notes(cells)]
    return "\n".join(parts)


def _first(cells: list[Any]) -> tuple[str, str]:
    """The title of a notebook, and how long it takes."""
    found = re.search(r"[Aa]bout (\d+) minutes", "".join(cells[0]["source"]))
    title = re.sub(r"^#+ ", "", "".join(cells[0]["source"]).splitlines()[0])
    return title, found[1] if found else "45"


def _notes(cells: list[Any]) -> Iterator[str]:
    """Each note under the heading that it belongs to."""
    heading = told = ""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "markdown":
            continue
        if "notes" in cell["metadata"].get("tags", []):
            if heading and heading != told:
                yield f"### {heading}\n"
            told = heading
            yield f"{source.strip()}\n"
        else:
            heading = [heading, *re.findall(r"^#{2,} +(.+?)\s*$", source, re.MULTILINE)][-1]


if __name__ == "__main__":
    write_text(ROOT / "docs" / "guide.md", guide())
