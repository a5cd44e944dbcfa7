"""Training, live: the loss above its floor, the rate and the gradient, while a model learns.

live = training_demo(floor=1.38)
display(live)
for report in live.watch(trainer):
    ...
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from classroom.demos.base import Demo
from classroom.demos.drawing import BAR, View, heading, note, page, problem, table
from labkit.keeping.reports import Report

WIDTH, HEIGHT, MARGIN, DRAWN = 560, 200, 46, 300


class Point(NamedTuple):
    """What is drawn of a report."""

    step: int
    loss: float
    rate: float
    norm: float


def training_view(points: Sequence[Point], floor: float | None = None) -> View:
    """The curve of the loss with its floor, and the numbers of the last step."""
    if not points:
        return page("training", problem("No step has been reported yet."))
    last = points[-1]
    rows = [
        ["step", f"{last.step:,}"],
        ["loss", f"{last.loss:.4f}"],
        ["learning rate", f"{last.rate:.2e}"],
        ["length of the gradient", f"{last.norm:.4f}"],
    ]
    if floor is not None:
        rows.insert(2, ["floor", f"{floor:.4f}"])
        rows.insert(3, ["above the floor", f"{last.loss - floor:.4f}"])
    pieces = [heading("Loss"), curve(points, floor), table(["what", "now"], rows, name="now")]
    broken = sum(not math.isfinite(point.loss) for point in points)
    if broken:
        pieces.append(note(f"{broken} of {len(points)} losses are no numbers.", "broken"))
    return page("training", *pieces)


def curve(points: Sequence[Point], floor: float | None) -> View:
    """The loss over the steps, at most 300 of them, and a dashed line for the floor."""
    finite = [point for point in points if math.isfinite(point.loss)]
    some = finite[:: max(1, math.ceil(len(finite) / DRAWN))]
    # The last one is what everybody looks for.
    some += [finite[-1]] if finite and some[-1] != finite[-1] else []
    if not some:
        return View("", "")
    values = [point.loss for point in some] + ([] if floor is None else [floor])
    low, high = min(values), max(values)
    first, last = some[0].step, some[-1].step

    def x(step: int) -> float:
        return round(MARGIN + (step - first) / max(last - first, 1) * (WIDTH - MARGIN - 8), 1)

    def y(loss: float) -> float:
        return round(HEIGHT - 20 - (loss - low) / max(high - low, 1e-12) * (HEIGHT - 36), 1)

    line = " ".join(f"{x(point.step)},{y(point.loss)}" for point in some)
    dashed = "" if floor is None else _floor(floor, y(floor))
    marks = (
        "".join(
            f'<text x="{MARGIN - 4}" y="{y(value) + 4}" text-anchor="end">{value:.3g}</text>'
            for value in {low, high}
        )
        + f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">step {last}</text>'
    )
    said = f"The loss fell from {some[0].loss:.4f} to {some[-1].loss:.4f}"
    if some[-1].loss > some[0].loss:
        said = said.replace("fell", "rose")
    said += f" between steps {first} and {last}."
    html = (
        f'<svg role="img" aria-label="{said}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">'
        f'<path data-points="{len(some)}" d="M{line}" stroke="{BAR}" stroke-width="2" '
        f'fill="none"/>{dashed}{marks}</svg><div>{said}</div>'
    )
    return View(html, said)


def _floor(floor: float, y: float) -> str:
    """A dashed line that no loss can fall below, with its number."""
    return (
        f'<path data-floor="{floor:.4f}" d="M{MARGIN} {y}H{WIDTH - 8}" '
        f'stroke="currentColor" stroke-dasharray="5 4" fill="none"/>'
        f'<text x="{WIDTH - 8}" y="{y - 4}" text-anchor="end">floor {floor:.4f}</text>'
    )


class TrainingDemo(Demo):
    """Draws reports as they come, at most a few times a second."""

    def __init__(self, floor: float | None, seconds: float) -> None:
        self.points: list[Point] = []
        self.floor, self.seconds = floor, seconds
        super().__init__("training", lambda: training_view(self.points, self.floor), {})

    def watch(self, reports: Iterable[Report], every: int = 1) -> Iterator[Report]:
        """The same reports; every so many of them are read, which waits for the device."""
        drawn = -math.inf
        report = None
        for report in reports:
            if report.step % every == 0:
                self.add(report)
                if time.monotonic() - drawn >= self.seconds:
                    self.refresh()
                    drawn = time.monotonic()
            yield report
        if report is not None and (not self.points or self.points[-1].step != report.step):
            self.add(report)
        self.refresh()

    def add(self, report: Report) -> None:
        """Keep what is drawn of a report."""
        self.points.append(Point(report.step, float(report.loss), report.rate, float(report.norm)))


def training_demo(*, floor: float | None = None, seconds: float = 0.3) -> TrainingDemo:
    """A live curve for the reports of a trainer, drawn every so many seconds."""
    return TrainingDemo(floor, seconds)
