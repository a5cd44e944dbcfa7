"""What is written about many runs of notebooks: an index of results, and the README's table."""

import datetime
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from classroom.running.notebook import Run
from labkit.keeping.files import write_text
from labkit.keeping.paths import checkout

OPENED = "opened"
"""What `course --table` also measures: the laptop profile with `LABKIT_SHORT`, as a lecture is
opened. The models that ship are used, and cells that train only show that they run."""
START_MARK, END_MARK = "<!-- notebooks: begin -->", "<!-- notebooks: end -->"


def index_of(outputs: Sequence[Path], results: Sequence[Run]) -> str:
    """The results of all runs: a link to each notebook, its time, and what it recorded."""
    lines = ["# Results", "", "| notebook | time | memory | results |", "|---|---:|---:|---|"]
    for output, run in zip(outputs, results, strict=True):
        records = output.with_suffix(".records.json")
        found = json.loads(records.read_text(encoding="utf-8")) if records.is_file() else {}
        said = f"**failed**: {run.error}" if run.error else "; ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in found.items()
        )  # fmt: skip
        lines.append(
            f"| [{output.stem}]({output.name}) | {run.seconds:.0f} s "
            f"| {run.memory} | {' '.join(said.split()).replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


def write_table(books: Sequence[Path], measured: Mapping[str, Sequence[Run]], jobs: int) -> None:
    """Write the measured table between the two marks of the README."""
    import psutil
    import torch

    from labkit.keeping.computing import processor

    root = checkout()
    assert root is not None
    today = datetime.date.today().isoformat()
    memory = psutil.virtual_memory().total / 2**30
    named = "" if len(measured) > 1 else f" --profile {next(iter(measured))}"
    head = "".join(f" {profile} | memory |" for profile in measured)
    lines = [
        f"Measured by `python -m labkit course{named} --jobs {jobs} --table` on {today}, with "
        f"nothing in the cache: {processor()}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Python {platform.python_version()}, torch {torch.__version__}.",
    ]
    if OPENED in measured:
        lines.append("*opened*: the laptop profile with `LABKIT_SHORT=1`, which shortens the "
                     "cells that train: after this time, a lecture is ready.")  # fmt: skip
    lines += ["", f"| notebook | |{head}", f"|---|---|{'---:|---:|' * len(measured)}"]
    for book, *results in zip(books, *measured.values(), strict=True):
        cells = "".join(f" {run.seconds:.0f} s | {run.memory} |" for run in results)
        lines.append(f"| [`{book.stem}`](notebooks/{book.name}) | {title(book)} |{cells}")
    readme = root / "README.md"
    pattern = re.compile(f"{START_MARK}.*?{END_MARK}", re.DOTALL)
    table = "\n".join([START_MARK, *lines, END_MARK])
    write_text(readme, pattern.sub(lambda _: table, readme.read_text(encoding="utf-8")))


def title(notebook: Path) -> str:
    """Return the first heading of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else notebook.stem
