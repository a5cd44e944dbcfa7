"""The reply of a check: right or not yet, why, and a small table; on a page and in plain text."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STRICT = "LABKIT_STRICT"
"""Where this is 1, an answer that is not right raises: in tests and where a class is graded."""

PAINTED = {
    "✓": ";background:#00795a;color:white;text-align:center",
    "→ missed": ";background:#b34d00;color:white;text-align:center",
}
"""Cells of the picture of a duel."""


class NotYet(AssertionError):  # noqa: N818
    """An answer that is missing or not right."""

    def _render_traceback_(self) -> list[str]:
        """Only the message: a student needs no traceback."""
        return [f"Not yet: {self}"]


@dataclass(frozen=True)
class Verdict:
    """The reply to an answer, with the rows of a table; the first row may be its header."""

    right: bool
    why: str
    rows: Sequence[Sequence[str]] = ()
    header: bool = False
    picture: str = ""
    """Shown below the sentence, as HTML."""
    hint: str = ""
    """Folded, until the student asks for it."""

    def __str__(self) -> str:
        return "\n".join([f"{self.word}: {self.why}", *("  ".join(row) for row in self._even())])

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return "Right" if self.right else "Not yet"

    def _even(self) -> list[list[str]]:
        """The rows with columns as wide as their longest entry."""
        wide = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return [
            [*(f"{cell:<{width}}" for cell, width in zip(row[:-1], wide, strict=False)), row[-1]]
            for row in self.rows
        ]

    @property
    def html(self) -> str:
        """The verdict as a card; everything that a student wrote is escaped."""
        colour, mark = ("#00795a", "✓") if self.right else ("#b34d00", "→")
        table = "".join(
            "<tr>" + "".join(self._cell(cell, number, i) for i, cell in enumerate(row)) + "</tr>"
            for number, row in enumerate(self.rows)
        )
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:2px 10px">{mark} '
            f"<b>{self.word}</b>: {_prose(self.why)}"
            + (f"<div>{self.picture}</div>" if self.picture else "")
            + (f'<table style="margin:6px 0 0">{table}</table>' if table else "")
            + (f"<details><summary>A hint</summary>{_prose(self.hint)}</details>" * bool(self.hint))
            + "</div>"
        )

    def _cell(self, text: str, row: int, column: int) -> str:
        kind = "th" if (self.header and row == 0) or column == 0 else "td"
        paint = PAINTED.get(text, "")
        style = f"text-align:left;white-space:pre-wrap{paint}"
        return f'<{kind} style="{style}">{escape(text)}</{kind}>'

    def show(self, name: str) -> None:
        """Show it below the cell, or print it; raise where it must be right."""
        HEARD.append((name, self))
        if not self.right and os.environ.get(STRICT) == "1":
            raise NotYet(str(self).removeprefix(f"{self.word}: "))
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None:
            print(self)
        else:
            display({"text/html": self.html, "text/plain": str(self)}, raw=True)


def _prose(text: str) -> str:
    """A text as HTML, with code where it stands between backticks."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


HEARD: list[tuple[str, Verdict]] = []
"""The verdicts of this process, with their exercises: for marks."""
