"""A run as a picture: the loss, and the floor under it as a line."""

import html
from collections.abc import Sequence
from itertools import pairwise

WIDTH, HEIGHT, MARGIN = 640, 240, 44
BARS = "▁▂▃▄▅▆▇█"


def loss_picture(
    steps: Sequence[float], losses: Sequence[float], *, floor: float | None = None, title: str = ""
) -> str:
    """An SVG of a loss against the steps; the floor is the lowest loss that is possible."""
    _check(steps, losses)
    low = min([*losses, *([] if floor is None else [floor])])
    high, last = max([*losses, low + 1e-9]), max(steps[-1], steps[0] + 1e-9)

    def place(step: float, loss: float) -> str:
        x = MARGIN + (step - steps[0]) / (last - steps[0]) * (WIDTH - 2 * MARGIN)
        y = MARGIN + (high - loss) / (high - low) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    points = " ".join(place(*pair) for pair in zip(steps, losses, strict=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12" width="{WIDTH}">',
        f"<title>{html.escape(title or 'loss')}</title>",
        f'<polyline points="{points}" fill="none" stroke="#0b5394" stroke-width="2"/>',
        _text(MARGIN, MARGIN - 24, title),
        _text(4, MARGIN + 4, f"{high:.2f}"),
        _text(4, HEIGHT - MARGIN + 4, f"{low:.2f}"),
        _text(MARGIN, HEIGHT - 16, f"step {steps[0]:g} to {steps[-1]:g}"),
    ]
    if floor is not None:
        start, end = place(steps[0], floor), place(last, floor)
        parts.append(
            f'<polyline points="{start} {end}" stroke="#990000" stroke-dasharray="5 4"/>'
            + _text(WIDTH - 2 * MARGIN - 60, HEIGHT - MARGIN + 16, f"floor {floor:.4f}", "#990000")
        )
    return "\n".join([*parts, "</svg>"])


def loss_line(losses: Sequence[float], *, floor: float | None = None, width: int = 40) -> str:
    """The same in one line of text, where no picture can be shown; the lowest bar is the floor."""
    _check(losses, losses)
    low = min(losses) if floor is None else floor
    high = max([*losses, low + 1e-9])
    count = min(width, len(losses))
    edges = [len(losses) * i // count for i in range(count + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]
    marks = [max(0, min(7, int((mean - low) / (high - low) * 8))) for mean in means]
    said = f"{losses[0]:.2f} {''.join(BARS[mark] for mark in marks)} {losses[-1]:.4f}"
    return said if floor is None else f"{said}, {losses[-1] - floor:.4f} above the floor"


def _check(steps: Sequence[float], losses: Sequence[float]) -> None:
    if not losses or len(steps) != len(losses):
        raise ValueError(f"{len(steps)} steps and {len(losses)} losses: give a loss for each step")


def _text(x: float, y: float, words: str, color: str = "#333333") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}">{html.escape(words)}</text>'
