"""The marks of a class: one for each submission, the table of them all, and a page for each."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from classroom.exercises.verdicts import Verdict
from classroom.pages.live.parts import page as whole_page
from labkit.keeping.files import digest

LAST = ["status", "seconds", "digest"]
"""The last columns of the table, behind those of the exercises."""
BOM = "\ufeff"
"""The prefix by which a spreadsheet on Windows knows that a table is UTF-8."""
FORMULA = re.compile(r"(^|[;,\t\r\n])(?=\s*[=+@＝＋－＠-]|\t)")
"""Before a formula: at the beginning, and behind what separates columns in some countries."""


@dataclass
class Mark:
    """The mark of one submission."""

    student: str
    file: str
    digest: str
    of: Sequence[str]
    """The names of all answers that were asked for."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Cells that stopped, counted from 1, and their errors."""
    code: list[tuple[str, str]] = field(default_factory=list)
    status: str = "finished"
    seconds: float = 0.0
    enforced: Sequence[str] = ()

    @property
    def points(self) -> int:
        """The number of right answers."""
        return sum(self.got(name) for name in self.of)

    def got(self, name: str) -> bool:
        """Whether this answer is right."""
        return name in self.verdicts and self.verdicts[name].right

    @property
    def row(self) -> dict[str, str]:
        """The line of the table."""
        plain = {"student": no_formula(self.student), "file": no_formula(self.file),
                 "points": f"{self.points}", "of": f"{len(self.of)}",
                 "status": no_formula(self.status), "seconds": f"{self.seconds:.1f}",
                 "digest": self.digest}  # fmt: skip
        return plain | {name: f"{int(self.got(name))}" for name in self.of}


def no_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula, also where it cuts it at a semicolon."""
    return FORMULA.sub(r"\1'", text)


def lessons(rows: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """The numbers of the lessons that are marked in some rows, each with its students."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for number in dict.fromkeys(name[:2] for name, text in row.items()
                                    if text and re.match(r"\d\d\.", name)):  # fmt: skip
            found.setdefault(number, []).append(row["student"])
    return found


def earlier(table: Path) -> list[dict[str, str]]:
    """The rows of an earlier run, with what a lecturer has added."""
    if not table.is_file():
        return []
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            file.seek(0)
            # In some countries a spreadsheet saves a table with semicolons.
            comma = max(",;", key=header.count)
            reader = csv.DictReader(file, restkey="", restval="", delimiter=comma)
            rows: list[dict[str, Any]] = list(reader)
        if not {"student", "digest"} <= set(reader.fieldnames or ()):
            raise ValueError
    except (ValueError, csv.Error):
        raise ValueError(f"{table} is not a table of marks: remove it, or name another") from None
    for row in rows:  # fields behind the last column come as a list
        if isinstance(more := row.get(""), list):
            row[""] = ", ".join(more)
    return rows


def already(rows: Iterable[dict[str, str]], digests: Mapping[str, str]) -> list[dict[str, str]]:
    """The rows of an earlier run whose submission and judge have not changed."""
    known = {no_formula(name): found for name, found in digests.items() if found}
    # A notebook that was stopped may need a longer time than it was given.
    return [row for row in rows if not row.get("status", "").startswith("stopped")
            and row["digest"] == known.get(row["student"])]  # fmt: skip


def added(row: Mapping[str, str]) -> dict[str, str]:
    """What a lecturer has added to a row: the columns that no mark has."""
    own = ("student", "file", "points", "of", *LAST)
    return {name: text for name, text in row.items() if name not in own and not is_asked(name)}


def is_asked(name: str) -> bool:
    """Whether a column is that of an exercise, a duel, or a diagnosis."""
    return bool(re.match(r"\d\d\.|duel |diagnose ", name))


def safe(name: str) -> str:
    """A file name for a student's name; if it had to be changed, a digest is added."""
    clean = re.sub(r"[^\w.-]+", "_", name.encode(errors="replace").decode()).strip(".") or "unnamed"
    own = digest(name.encode(errors="backslashreplace"))[:8]
    return clean if clean == name and len(clean) <= 80 else f"{clean[:80]}-{own}"


def as_csv(rows: Iterable[Mapping[str, str]]) -> str:
    """The table of a class, by name."""
    ordered = sorted(rows, key=lambda row: row["student"])
    columns = list(dict.fromkeys(name for row in ordered for name in row))
    # A column without a name comes last: its fields stand behind all others.
    columns = [name for name in columns if name and name not in LAST] + LAST
    columns += [""] * any("" in row for row in ordered)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(ordered)
    return text.getvalue()


def page(mark: Mark) -> str:
    """A student's page: what is right, what failed and why, and the code of the answers."""
    cards = []
    missing = Verdict(False, "this was never checked: the cell is gone, or was never reached")
    for name in mark.of:
        verdict = mark.verdicts.get(name, missing)
        code = "\n\n".join(cell for asks, cell in mark.code if asks == name)
        cards.append(f"<h2>{escape(name)}</h2>{verdict.html}<pre>{escape(code)}</pre>")
    unknown = "unknown: the notebook was not run to its end"
    errors = "".join(f"<li>cell {number}: {escape(text)}</li>" for number, text in mark.errors)
    return whole_page(
        mark.student,
        f"<h1><bdi>{escape(mark.student)}</bdi>: {mark.points} of {len(mark.of)}</h1>"
        f"<p><bdi>{escape(mark.file)}</bdi>, {escape(mark.status)}, {mark.seconds:.1f} s; "
        "cells that no exercise needs are run only if an answer is not right</p>"
        + (f"<h2>Cells that stopped</h2><ul>{errors}</ul>" if errors else "")
        + "".join(cards)
        + f"<p>Enforced: {escape('; '.join(mark.enforced) or unknown)}</p>",
    )
