"""What demos are made of: pieces that know how to look as HTML and how to read as plain text.

Each piece is made of the same words and numbers in both forms, so a page that is exported, or
read aloud, says what the picture shows.  Every word of a text is escaped here and nowhere else.
Colours come in pairs of background and text, readable in any theme, and always beside a word.
"""

import re
import unicodedata
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

LONGEST_LABEL = 24

# Background and text.
COLOURS = {
    "plain": ("#eef1f4", "#1b1f24"),
    "special": ("#d5dae0", "#1b1f24"),
    "mask": ("#1f3d7a", "#ffffff"),
    "random": ("#8a3b00", "#ffffff"),
    "kept": ("#0b5d3b", "#ffffff"),
    "asked": ("#5b2a86", "#ffffff"),
}
PANEL = (
    "background:var(--jp-layout-color1,#ffffff);color:var(--jp-content-font-color1,#1b1f24);"
    "padding:8px;line-height:1.4;font-family:sans-serif;overflow-x:auto"
)
BAR = "#2f6fb3"
# A word of ten thousand letters is no reason for a page as wide.
BREAK = "overflow-wrap:anywhere"
CHIP = "border:1px solid;border-radius:4px;padding:1px 5px"
CENTRED = "text-align:center"


class View(NamedTuple):
    """One thing in two forms."""

    html: str
    text: str


class Chip(NamedTuple):
    """A token of a text, what became of it, and a word about that."""

    token: str
    kind: str = "plain"
    caption: str = ""


class Share(NamedTuple):
    """A number between 0 and 1, drawn as a bar beside its digits; None where there is none."""

    value: float | None

    def __str__(self) -> str:
        # What a filter has taken away is no small number.
        return "–" if self.value is None else "0" if self.value == 0 else f"{self.value:.4f}"


def clean(text: str) -> str:
    """The text with nothing in it that no page can show: control characters, half characters."""
    kept = {"\n", "\t"}
    if text.isprintable():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(c) in ("Cc", "Cs") and c not in kept else c for c in text
    )


def safe(text: str) -> str:
    """A text that a browser shows as it stands, whatever stands in it."""
    return escape(clean(text))


def short(text: str) -> str:
    """A label that cannot push everything else out of the picture."""
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


# ---- what is stored ----------------------------------------------------------------------------


def as_images(html: str) -> str:
    """The page with its drawings as images.

    JupyterLab shows no SVG of a notebook that was not run yet: only the labels would be left.
    """
    return re.sub("<svg .*?</svg>", _image, html, flags=re.DOTALL)


def _image(found: re.Match[str]) -> str:
    drawing = found[0].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    said = re.search('aria-label="([^"]*)"', drawing)
    data = b64encode(drawing.encode()).decode()
    # An image does not know the colours of the page: black on white, like all figures.
    return (
        f'<img alt="{said[1] if said else ""}" style="background:#ffffff" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


# ---- pieces ------------------------------------------------------------------------------------


def page(name: str, *pieces: View) -> View:
    """All pieces below each other, as one part of a page with a name."""
    html = "".join(piece.html for piece in pieces)
    return View(
        # The formulas of a page are looked for in its text: a reader's "$" is no formula.
        f'<div class="labkit-view tex2jax_ignore mathjax_ignore" role="region" '
        f'aria-label="{safe(name)}" data-demo="{safe(name)}" style="{PANEL}">{html}</div>',
        "\n\n".join(piece.text for piece in pieces),
    )


def beside(*pieces: View) -> View:
    """Pieces next to each other, as far as there is room."""
    html = "".join(f"<div>{piece.html}</div>" for piece in pieces)
    return View(
        f'<div style="display:flex;flex-wrap:wrap;gap:24px">{html}</div>',
        "\n\n".join(piece.text for piece in pieces),
    )


def heading(title: str) -> View:
    """The title of what follows."""
    return View(
        f'<div role="heading" aria-level="4" style="font-weight:600;margin-top:8px;{BREAK}">'
        f"{safe(title)}</div>",
        clean(title),
    )


def note(text: str, name: str = "note") -> View:
    """A sentence; `name` is what a program finds it by."""
    return View(f'<div data-note="{safe(name)}" style="{BREAK}">{safe(text)}</div>', clean(text))


def problem(text: str) -> View:
    """What is wrong and what to do, in the place of a picture."""
    return View(
        f'<div role="alert" style="border-left:4px solid;padding-left:8px;{BREAK}">'
        f"{safe(text)}</div>",
        clean(text),
    )


def chips(tokens: Sequence[Chip]) -> View:
    """A text, token by token; each keeps its own direction of writing."""
    return View(
        f'<div style="display:flex;flex-wrap:wrap;gap:3px">'
        f"{''.join(_chip(place, chip) for place, chip in enumerate(tokens))}</div>",
        " ".join(clean(chip.token) for chip in tokens),
    )


def _chip(place: int, chip: Chip) -> str:
    ground, ink = COLOURS[chip.kind]
    # A text has many chips: each says no more than it needs.
    style = f"background:{ground};color:{ink};{CHIP}"
    below = ""
    if chip.caption:
        below, style = f'<br><small dir="ltr">{safe(chip.caption)}</small>', f"{style};{CENTRED}"
    if len(chip.token) > LONGEST_LABEL:
        style += f";max-width:100%;{BREAK}"
    return (
        f'<span data-place="{place}" data-kind="{chip.kind}" style="{style}">'
        f"<bdi>{safe(chip.token)}</bdi>{below}</span>"
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str | Share]], *, name: str, marked: int = -1
) -> View:
    """A table, in which shares are bars with their numbers; one row may be marked with a star."""
    columns = "".join(
        f'<th scope="col" style="text-align:left;padding:0 8px">{safe(title)}</th>'
        for title in head
    )
    body = "".join(
        f'<tr data-row="{n}">{"".join(_cell(cell, n == marked) for cell in row)}</tr>'
        for n, row in enumerate(rows)
    )
    html = (
        f'<table data-table="{safe(name)}" style="border-collapse:collapse">'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    )
    lines = ([clean(str(cell)) for cell in row] for row in (head, *rows))
    return View(html, _aligned(list(lines)))


def _cell(cell: str | Share, marked: bool) -> str:
    weight = "font-weight:600;" if marked else ""
    style = f'style="{weight}text-align:left;padding:0 8px"'
    if isinstance(cell, str):
        broken = f' style="{BREAK}"' if len(cell) > 2 * LONGEST_LABEL else ""
        return f"<td {style}><bdi{broken}>{safe(cell)}</bdi></td>"
    width = 0 if cell.value is None else round(100 * min(max(cell.value, 0.0), 1.0), 1)
    bar = (
        f'<span aria-hidden="true" style="display:inline-block;width:100px;vertical-align:middle">'
        f'<span style="display:block;height:10px;width:{width}%;background:{BAR}"></span></span>'
    )
    return f"<td {style}>{bar} {cell}</td>"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in padded)
