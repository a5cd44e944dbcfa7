"""Views: pieces rendered as HTML and as plain text, from the same words and numbers.

Every word of a text is escaped here and nowhere else.  Colours come in pairs of background and
text, readable in any theme, and always beside a word or a shape.  `pages/live/render.js` renders
the same HTML and the same text.
"""

import re
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from classroom.demos.pieces import (
    Beside,
    Chip,
    Chips,
    Curve,
    Grid,
    Heading,
    Interval,
    Intervals,
    Lot,
    Note,
    Piece,
    Problem,
    Shades,
    Share,
    Table,
)

LONGEST_LABEL = 24
# Background and text of the kinds of chips.
COLOURS = {
    "plain": ("#eef1f4", "#1b1f24"),
    "special": ("#d5dae0", "#1b1f24"),
    "mask": ("#1f3d7a", "#ffffff"),
    "random": ("#8a3b00", "#ffffff"),
    "kept": ("#0b5d3b", "#ffffff"),
    "asked": ("#5b2a86", "#ffffff"),
    "new": ("#fff1c9", "#1b1f24"),
}
PANEL = (
    "background:var(--jp-layout-color1,#ffffff);color:var(--jp-content-font-color1,#1b1f24);"
    "padding:8px;line-height:1.4;font-family:sans-serif;overflow-x:auto"
)
BAR = "#2f6fb3"
BAR_RGB = "47,111,179"
WRONG = "#b3541e"
# A word of ten thousand letters must not widen the page.
BREAK = "overflow-wrap:anywhere"
CHIP = "border:1px solid;border-radius:4px;padding:1px 5px"
WIDTH, MARGIN = 560, 60
# The sign of a square without styles: empty, filled, wrong.
SIGNS = "·■✗"


@dataclass(frozen=True)
class View:
    """What a demo shows in one state: pieces, which can be seen as HTML and read as text."""

    name: str
    pieces: tuple[Piece, ...]

    @staticmethod
    def of(name: str, *pieces: Piece) -> "View":
        """A view of some pieces."""
        return View(name, pieces)

    @cached_property
    def html(self) -> str:
        """The view as a part of a page."""
        # A reader's "$" is not a formula: MathJax leaves these classes alone.
        return (
            f'<div class="labkit-view tex2jax_ignore mathjax_ignore" role="region" tabindex="0" '
            f'aria-label="{safe(self.name)}" data-demo="{safe(self.name)}" style="{PANEL}">'
            f"{''.join(map(html_of, self.pieces))}</div>"
        )

    @cached_property
    def text(self) -> str:
        """The view in plain text."""
        return "\n\n".join(map(text_of, self.pieces))

    def as_data(self) -> dict[str, Any]:
        """The view in lists, numbers and texts."""
        return {"name": self.name, "pieces": [piece.as_data() for piece in self.pieces]}

    @property
    def clickable(self) -> Chips | Table | Shades | None:
        """The first piece in which something can be clicked."""
        able = (p for p in self.pieces if isinstance(p, Chips | Table | Shades) and p.act)
        return next(able, None)


def clean(text: str) -> str:
    """The text with nothing in it that no page can show: control characters, half characters."""
    if text.isprintable():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text
    )


def safe(text: str) -> str:
    """A text, escaped: a browser shows it unchanged, whatever it contains."""
    return escape(clean(text))


def short(text: str) -> str:
    """A label that cannot push everything else out of the picture."""
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def html_of(piece: Piece) -> str:
    """A piece as HTML."""
    match piece:
        case Heading(title):
            style = f"font-weight:600;margin-top:8px;{BREAK}"
            return f'<div role="heading" aria-level="3" style="{style}">{safe(title)}</div>'
        case Note(text, name):
            style = f"{BREAK};white-space:pre-line"
            return f'<div data-note="{safe(name)}" style="{style}">{safe(text)}</div>'
        case Problem(text):
            style = f"border-left:4px solid;padding-left:8px;{BREAK}"
            return f'<div role="status" style="{style}">{safe(text)}</div>'
        case Chips():
            return _chips(piece)
        case Table():
            return _table(piece)
        case Grid():
            return _grid(piece)
        case Shades():
            return _shades(piece)
        case Curve():
            return _curve(piece)
        case Intervals():
            return _intervals(piece)
        case Lot():
            return _lot(piece)
        case Beside(pieces):
            parts = "".join(f"<div>{html_of(part)}</div>" for part in pieces)
            return f'<div style="display:flex;flex-wrap:wrap;gap:24px">{parts}</div>'
    raise TypeError(f"no piece: {piece!r}")


def text_of(piece: Piece) -> str:
    """A piece in plain text."""
    match piece:
        case Heading(title):
            return clean(title)
        case Note(text) | Problem(text):
            return clean(text)
        case Chips(chips):
            return " ".join(clean(chip.token) for chip in chips)
        case Table():
            return _aligned(
                [[clean(str(cell)) for cell in row] for row in (piece.head, *piece.rows)]
            )
        case Grid():
            signs = ["".join(SIGNS[level] for level in row) for row in piece.levels]
            return "\n".join([clean(piece.said), *_labelled(piece.down, signs)])
        case Shades():
            shown = [" ".join(f"{share:.2f}" for share in row) for row in piece.shares]
            name = [clean(piece.title)] if piece.small else []
            return "\n".join([*name, *_labelled(piece.down, shown)])
        case Curve() | Intervals():
            return clean(piece.said)
        case Lot():
            return _lot_said(piece)
        case Beside(pieces):
            return "\n\n".join(map(text_of, pieces))
    raise TypeError(f"no piece: {piece!r}")


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in padded)


def _labelled(labels: Sequence[str], rows: Sequence[str]) -> list[str]:
    """Rows with their labels in front."""
    names = [short(clean(label)) for label in labels]
    wide = max(map(len, names), default=0)
    return [f"{name.ljust(wide)}  {row}" for name, row in zip(names, rows, strict=True)]


# ---- words and tables --------------------------------------------------------------------------


def _act(act: str) -> str:
    return f' data-act="{safe(act)}"' if act else ""


def _chips(piece: Chips) -> str:
    # With spaces between, the words do not run together where styles are taken away.
    shown = " ".join(_chip(n, chip) for n, chip in enumerate(piece.chips))
    style = "display:flex;flex-wrap:wrap;gap:3px"
    return f'<div data-chips="{len(piece.chips)}"{_act(piece.act)} style="{style}">{shown}</div>'


def _chip(position: int, chip: Chip) -> str:
    ground, ink = COLOURS[chip.kind]
    style, below = f"background:{ground};color:{ink};{CHIP}", ""
    if chip.caption:
        below = f'<br><small dir="ltr">{safe(chip.caption)}</small>'
        style += ";text-align:center"
    if len(chip.token) > LONGEST_LABEL:
        style += f";max-width:100%;{BREAK}"
    return (
        f'<span data-position="{position}" data-kind="{chip.kind}" style="{style}">'
        f"<bdi>{safe(chip.token)}</bdi>{below}</span>"
    )


def _table(piece: Table) -> str:
    columns = "".join(
        f'<th scope="col" style="text-align:left;padding:0 8px">{safe(title)}</th>'
        for title in piece.head
    )
    keys = [f' data-key="{key}"' for key in piece.keys] or [""] * len(piece.rows)
    cells = ["".join(_cell(cell, n == piece.marked) for cell in row)
             for n, row in enumerate(piece.rows)]  # fmt: skip
    body = "".join(f'<tr data-row="{n}"{keys[n]}>{row}</tr>' for n, row in enumerate(cells))
    return (
        f'<table data-table="{safe(piece.name)}"{_act(piece.act)} style="border-collapse:collapse">'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(cell: str | Share, marked: bool) -> str:
    weight = "font-weight:600;" if marked else ""
    style = f'style="{weight}text-align:left;padding:0 8px"'
    if isinstance(cell, str):
        broken = f' style="{BREAK}"' if len(cell) > 2 * LONGEST_LABEL else ""
        return f"<td {style}><bdi{broken}>{safe(cell)}</bdi></td>"
    width = 0.0 if cell.value is None else 100 * min(max(cell.value, 0.0), 1.0)
    bar = (
        f'<span aria-hidden="true" style="display:inline-block;width:100px;vertical-align:middle">'
        f'<span style="display:block;height:10px;width:{width:.1f}%;background:{BAR}"></span>'
        f"</span>"
    )
    return f"<td {style}>{bar} {cell}</td>"


# ---- squares -----------------------------------------------------------------------------------

FILLS = ("", f";background:{BAR};color:{BAR}", f";background:{WRONG};color:#ffffff")


def _squares(piece: Grid | Shades, rows: Sequence[str], said: str) -> str:
    """A table of squares with its labels; columns are labelled from the bottom to the top."""
    turned = "writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;padding:2px 0"
    head = "".join(f'<th style="{turned}">{safe(short(name))}</th>' for name in piece.across)
    body = "".join(
        f'<tr data-row="{n}"><th style="text-align:right;font-weight:400;padding:0 4px">'
        f"{safe(short(name))}</th>{row}</tr>"
        for n, (name, row) in enumerate(zip(piece.down, rows, strict=True))
    )
    return (
        f'<table role="img" aria-label="{safe(said)}" style="border-collapse:collapse;'
        f'font-size:11px;line-height:1.3;border:1px solid #8a9199;text-align:center">'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _grid(piece: Grid) -> str:
    cells = [
        f'<td style="padding:0 2px{fill}">{sign}</td>'
        for fill, sign in zip(FILLS, SIGNS, strict=True)
    ]
    rows = ["".join(cells[level] for level in row) for row in piece.levels]
    table = _squares(piece, rows, piece.said)
    return f'<div data-grid="{safe(piece.title)}"><div>{safe(piece.said)}</div>{table}</div>'


def _shades(piece: Shades) -> str:
    if piece.small:
        return _small_map(piece)
    top = _top(piece)
    rows = [
        "".join(
            f'<td style="padding:0 6px;background:rgba({BAR_RGB},{share / top:.3f})" '
            f'title="{safe(short(down))} → {safe(short(across))}: {share:.3f}"></td>'
            for share, across in zip(row, piece.across, strict=True)
        )
        for row, down in zip(piece.shares, piece.down, strict=True)
    ]
    mark = _mark(",".join(map(_heights, piece.shares)))
    past = len(piece.across) - len(piece.down)
    # Only where a text attends to itself do the words below stand for rows too.
    of = "" if piece.across[past:] == piece.down else "tr"
    # The words below stand on bars as high as the shares of the row under the pointer.
    heights = _heights if piece.selected < 0 else _all_heights
    pointed = "".join(
        f'#{mark}:has({of}[data-row="{n}"]:hover){{{heights(row)}}}'
        for n, row in enumerate(piece.shares)
    )
    words = " ".join(
        f"<span{_row(n - past)} "
        f'style="border-bottom:calc(var(--h{n},0)*24px) solid {BAR};padding:0 3px">'
        f"<bdi>{safe(short(word))}</bdi></span>"
        for n, word in enumerate(piece.across)
    )
    chosen = _heights(piece.shares[piece.selected]) if piece.selected >= 0 else ""
    table = _squares(piece, rows, piece.title)
    return (
        f'<div id="{mark}" data-shades="{safe(piece.title)}" data-top="{top:.4f}"'
        f'{_act(piece.act)} style="{chosen}"><style>{pointed}</style>'
        f"<div>{safe(piece.title)}</div>{table}"
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start;min-height:4em">{words}'
        f"</div></div>"
    )


def _top(piece: Shades) -> float:
    """The largest share, which has the fullest colour."""
    return max((share for row in piece.shares for share in row), default=1.0) or 1.0


def _mark(text: str) -> str:
    """A name for an element, the same for the same text (FNV-1a, 32 bits)."""
    number = 2166136261
    for sign in text:
        number = (number ^ ord(sign)) * 16777619 & 0xFFFFFFFF
    return f"map-{number}"


def _row(number: int) -> str:
    """A word below the map stands for its row; a remembered one has none."""
    return f' data-row="{number}"' if number >= 0 else ""


def _heights(row: Sequence[float]) -> str:
    return ";".join(f"--h{n}:{share:.2f}" for n, share in enumerate(row) if share >= 0.005)


def _all_heights(row: Sequence[float]) -> str:
    """Heights that take the place of those of a selected row, which the element itself has."""
    return ";".join(f"--h{n}:{share:.2f}!important" for n, share in enumerate(row))


def _small_map(piece: Shades) -> str:
    top, side = _top(piece), 6
    squares = "".join(
        f'<rect x="{x * side}" y="{y * side}" width="{side}" height="{side}" fill="{BAR}" '
        f'fill-opacity="{share / top:.2f}"/>'
        for y, row in enumerate(piece.shares)
        for x, share in enumerate(row)
        if share >= 0.005
    )
    wide, high = side * len(piece.across), side * len(piece.down)
    frame = f'<path d="M0 0h{wide}v{high}H0z" fill="none" stroke="currentColor"/>'
    return f"<div>{safe(piece.title)}</div>{_svg(piece.title, wide, high, squares + frame)}"


# ---- drawings ----------------------------------------------------------------------------------


def _svg(said: str, width: int, height: int, inside: str) -> str:
    return (
        f'<svg role="img" aria-label="{safe(said)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" '
        f'fill="currentColor">{inside}</svg>'
    )


def _label(x: float, y: float, text: str, anchor: str = "end") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(text)}</text>'


def _curve(piece: Curve) -> str:
    height, right, bottom = 190, WIDTH - 12, 166
    floors = [] if piece.floor is None else [piece.floor[0]]
    values = [y for _, y in piece.points] + floors
    filled = piece.points[0][0], piece.points[-1][0], min(values), max(values)
    first, last, low, high = piece.frame or filled

    def x(step: float) -> float:
        return MARGIN + (step - first) / ((last - first) or 1) * (right - MARGIN)

    def y(value: float) -> float:
        return bottom - (value - low) / max(high - low, 1e-12) * (bottom - 16)

    line = "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in piece.points)
    inside = (
        f'<path data-points="{len(piece.points)}" d="M{line}" stroke="{BAR}" stroke-width="2" '
        'fill="none"/>'
    )
    if piece.floor is not None:
        value, label = piece.floor
        inside += (
            f'<path data-floor="{value:.4f}" d="M{MARGIN} {y(value):.1f}H{right}" '
            f'stroke="currentColor" stroke-dasharray="5 4" fill="none"/>'
        )
        # Where the line begins at the floor, a label at its beginning would cover it.
        leaves = abs(piece.points[0][1] - value) < abs(piece.points[-1][1] - value)
        where = (right, y(value) - 5) if leaves else (MARGIN, y(value) + 13)
        inside += _label(*where, label, "end" if leaves else "start")
    at = piece.mark or piece.points[-1]
    inside += (
        f'<circle cx="{x(at[0]):.1f}" cy="{y(at[1]):.1f}" r="5">'
        f"<title>{safe(piece.said)}</title></circle>"
    )
    inside += _label(MARGIN - 6, bottom + 4, piece.low) + _label(MARGIN - 6, 20, piece.high)
    inside += _label(right, height - 4, piece.last)
    drawing = _svg(piece.said, WIDTH, height, inside)
    return f'<div data-curve="{safe(piece.name)}">{drawing}<div>{safe(piece.said)}</div></div>'


def _intervals(piece: Intervals) -> str:
    wide, names, line = 640, 210, 32
    every = [
        number
        for one in piece.lines
        for number in (one.low, one.mean, one.high, one.best)
        if number is not None
    ]
    low, high = min(every), max(every)
    room = (high - low) or 1.0

    def x(number: float) -> float:
        return names + 10 + (number - low) / room * (wide - names - 70)

    drawn = "".join(_interval(one, n * line + 22, x) for n, one in enumerate(piece.lines))
    return _svg(piece.said, wide, len(piece.lines) * line + 10, drawn)


def _interval(one: Interval, y: int, x: Callable[[float], float]) -> str:
    best = ""
    if one.best is not None:
        best = (
            f'<path data-best="{one.best:.4f}" d="M{x(one.best):.1f} {y - 11}v20" '
            f'stroke="currentColor" stroke-dasharray="3 2" fill="none"/>'
        )
    return (
        f"{_label(210, y + 4, short(clean(one.name)))}"
        f'<path d="M{x(one.low):.1f} {y}H{x(one.high):.1f}" stroke="{BAR}" stroke-width="3"/>'
        f'<circle cx="{x(one.mean):.1f}" cy="{y}" r="4" fill="{BAR}"/>'
        f"{_label(x(one.mean), y - 7, one.label, 'middle')}{best}"
    )


def _lot(piece: Lot) -> str:
    # Very unlikely words are left out of the bar: the others share its whole width.
    whole = sum(share for _, share in piece.parts)
    shown_before = sum(share for _, share in piece.parts[: piece.drawn])
    at = min(max((shown_before + piece.number - piece.before) / whole, 0.0), 1.0)
    parts = "".join(
        f'<span title="{safe(word)}: {share:.4f}" style="width:{100 * share / whole:.2f}%;'
        f"display:flex;flex-wrap:wrap;height:1.4em;"
        f"overflow:hidden;white-space:nowrap;box-sizing:border-box;border-right:1px solid #8a9199"
        f'{";background:#1f3d7a;color:#ffffff" if n == piece.drawn else ""}">'
        f"{_whole_word(word) if share > 0.04 * whole else ''}</span> "
        for n, (word, share) in enumerate(piece.parts)
    )
    mark = f'<div style="width:{100 * at:.1f}%;text-align:right">▼</div>'
    return (
        f'<div data-lot="{piece.number:.4f}" style="max-width:640px"><div aria-hidden="true">'
        f'{mark}<div style="display:flex;border:1px solid #8a9199">{parts}</div></div>'
        f"{safe(_lot_said(piece))}</div>"
    )


def _whole_word(word: str) -> str:
    """After an element as high as the bar, a word that is too wide wraps below it, out of sight."""
    return f'<span style="height:100%"></span><bdi>{safe(short(word))}</bdi>'


def _lot_said(piece: Lot) -> str:
    word, share = piece.parts[piece.drawn]
    return (
        f"The number drawn is {piece.number:.4f}: it falls on “{short(clean(word))}”, which has "
        f"{piece.before:.4f} to {piece.before + share:.4f}."
    )


# ---- what is stored ----------------------------------------------------------------------------


def as_images(html: str) -> str:
    """The page with its drawings as images, and without rules of style.

    JupyterLab shows no SVG of a notebook that was not run yet: only the labels would be left.
    """
    html = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
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
