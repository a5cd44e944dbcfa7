"""A picture of what predictions depend on: one row of squares for each prediction."""

from collections.abc import Sequence
from html import escape

from labkit.leaks import Dependence

SIDE, MARGIN = 22, 96
WORD, POSITION, ALLOWED, LEAK, NONE = "#2f6fb3", "#8fb8e0", "#8a919940", "#d62728", "none"
LEGEND = (
    (WORD, "depends on this word"),
    (POSITION, "depends on this position, not on its word"),
    (ALLOWED, "may, but does not"),
    (LEAK, "leak: may not, but does"),
)


def picture(found: Dependence, words: Sequence[str] | None = None) -> str:
    """The first row of a batch as SVG: predictions downwards, the words of the row across."""
    words = words or [str(column + 1) for column in range(sum(found.widths))]
    lines = [n for n, (_, row, _) in enumerate(found.predictions) if row == 0]
    columns = sum(found.widths)
    start = columns - found.widths[-1]
    parts = [_label(MARGIN + (c + 0.5) * SIDE, MARGIN - 6, words[c], -45) for c in range(columns)]
    for i, n in enumerate(lines):
        term, _, position = found.predictions[n]
        y = MARGIN + i * SIDE
        parts.append(_label(MARGIN - 6, y + 15, f"{term} at {words[start + position]}", 0, "end"))
        for c in range(columns):
            colour = _colour(found, n, c)
            parts.append(_square(MARGIN + c * SIDE, y, colour))
    edge = MARGIN
    for width in found.widths[:-1]:
        # A line where one segment ends and the next begins.
        edge += width * SIDE
        bottom = MARGIN + len(lines) * SIDE
        parts.append(
            f'<path d="M{edge} {MARGIN}V{bottom}" stroke="currentColor" stroke-width="2"/>'
        )
    top = MARGIN + len(lines) * SIDE + 14
    for i, (colour, text) in enumerate(LEGEND):
        parts.append(_square(MARGIN, top + i * SIDE, colour))
        parts.append(_label(MARGIN + SIDE + 6, top + i * SIDE + 15, text))
    width = MARGIN + max(columns * SIDE, 300) + 40
    height = top + len(LEGEND) * SIDE + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" '
        f'fill="currentColor" role="img">'
        f"<title>What each prediction depends on</title>{''.join(parts)}</svg>"
    )


def _colour(found: Dependence, prediction: int, column: int) -> str:
    """What one square says."""
    at = prediction, 0, column
    by_word, by_position = bool(found.by_word[at]), bool(found.by_gradient[at])
    word_allowed, position_allowed = found.words_allowed[at], found.positions_allowed[at]
    if (by_word and not word_allowed) or (by_position and not position_allowed):
        return LEAK
    if by_word or (by_position and word_allowed):
        return WORD
    if by_position:
        return POSITION
    return ALLOWED if word_allowed or position_allowed else NONE


def _square(x: float, y: float, colour: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{SIDE}" height="{SIDE}" fill="{colour}" '
        'stroke="#8a9199"/>'
    )


def _label(x: float, y: float, text: str, turn: int = 0, anchor: str = "start") -> str:
    turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turned}>{escape(text)}</text>'
