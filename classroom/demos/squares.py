"""Pictures of squares: who may look at whom, and how much; the same in signs for plain text."""

from collections.abc import Sequence

import torch

from classroom.demos.drawing import BAR, View, clean, safe, short

CELL = 14
DRAWN = 48
"""How many positions a picture of a mask has room for."""
LOOKS = "a filled square says that the row may look at the column"


def grid(
    mask: torch.Tensor,
    words: Sequence[str],
    *,
    title: str,
    down: Sequence[str] | None = None,
    filled: str = LOOKS,
) -> View:
    """A mask [Q, K] as squares: a row for each query, filled where it may look at the key.

    The rows are called like the columns, or as `down` says.
    """
    seen = mask[:DRAWN, :DRAWN].tolist()
    across = [short(clean(word)) for word in words[:DRAWN]]
    labels = across if down is None else [short(clean(word)) for word in down[:DRAWN]]
    rows, columns = len(seen), len(seen[0]) if seen else 0
    margin = _margin([*labels, *across])
    squares = "".join(
        f"M{margin + start * CELL} {margin + y * CELL}h{(end - start) * CELL}v{CELL}H"
        f"{margin + start * CELL}z"
        for y, row in enumerate(seen)
        for start, end in _runs(row)
    )
    lines = "".join(
        [f"M{margin} {margin + i * CELL}h{columns * CELL}" for i in range(rows + 1)]
        + [f"M{margin + i * CELL} {margin}v{rows * CELL}" for i in range(columns + 1)]
    )
    left_out = f" The first {DRAWN} of {len(words)} positions." if len(words) > DRAWN else ""
    said = f"{clean(title)}: {filled}.{left_out}"
    html = (
        f"<div>{safe(said)}</div>"
        f'<svg data-mask="{safe(title)}" {_frame(said, labels[:rows], across[:columns])}>'
        f'<path d="{squares}" fill="{BAR}" stroke="none"/>'
        f'<path d="{lines}" stroke="currentColor" stroke-opacity="0.25" fill="none"/>'
        f"{_names(labels[:rows], across[:columns])}</svg>"
    )
    wide = max(map(len, labels), default=0)
    drawn = (
        f"{label.ljust(wide)}  {''.join('■' if cell else '·' for cell in row)}"
        for label, row in zip(labels, seen, strict=False)
    )
    return View(html, "\n".join([said, *drawn]))


def _margin(labels: Sequence[str]) -> int:
    """Room for the longest label, beside the squares and above them."""
    return 8 + 8 * max(map(len, labels), default=0)


def _frame(said: str, down: Sequence[str], across: Sequence[str]) -> str:
    """The attributes of a picture of squares."""
    margin = _margin([*down, *across])
    width, height = margin + len(across) * CELL + 4, margin + len(down) * CELL + 4
    return (
        f'role="img" aria-label="{safe(said)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" '
        f'fill="currentColor"'
    )


def _names(down: Sequence[str], across: Sequence[str]) -> str:
    """The labels of the rows, and those of the columns, turned."""
    margin = _margin([*down, *across])
    rows = (_label(margin - 4, margin + y * CELL + 11, n, "end") for y, n in enumerate(down))
    columns = (_turned(margin + x * CELL + 11, margin - 4, n) for x, n in enumerate(across))
    return "".join([*rows, *columns])


def _runs(row: Sequence[bool]) -> list[tuple[int, int]]:
    """Where each run of True begins and ends."""
    edges = [i for i in range(len(row) + 1) if (i > 0 and row[i - 1]) != (i < len(row) and row[i])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{safe(text)}</text>'


def _turned(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{safe(text)}</text>'


def shades(
    weights: torch.Tensor, words: Sequence[str], *, title: str, memory: Sequence[str] = ()
) -> View:
    """A table of shares [Q, K] as squares: the fuller, the more; first come remembered words."""
    labels = [short(clean(word)) for word in words]
    shares = weights.tolist()
    columns = len(shares[0]) if shares else 0
    # The largest share gets the full colour: where all is even, all would be pale.
    top = max(float(weights.max()), 1e-9) if shares else 1.0
    across = [f"({short(clean(word))})" for word in memory] + labels
    margin = _margin([*labels, *across])
    squares = "".join(
        f'<rect x="{margin + x * CELL}" y="{margin + y * CELL}" width="{CELL}" height="{CELL}" '
        f'fill="{BAR}" fill-opacity="{share / top:.3f}"/>'
        for y, row in enumerate(shares)
        for x, share in enumerate(row)
        if share >= 0.0005
    )
    edge = f"M{margin} {margin}h{columns * CELL}v{len(shares) * CELL}h{-columns * CELL}z"
    # A line between what is remembered and the text itself.
    parted = f"M{margin + len(memory) * CELL} {margin}v{len(shares) * CELL}" if memory else ""
    html = (
        f'<svg data-shades="{safe(title)}" data-top="{top:.4f}" {_frame(title, labels, across)}>'
        f"{squares}"
        f'<path d="{edge}{parted}" stroke="currentColor" fill="none"/>'
        f"{_names(labels, across)}</svg>"
    )
    wide = max((len(label) for label in labels), default=0)
    lines = (
        f"{label.ljust(wide)}  {' '.join(f'{share:.2f}' for share in row)}"
        for label, row in zip(labels, shares, strict=True)
    )
    return View(html, "\n".join(lines))
