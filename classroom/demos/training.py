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
from classroom.demos.pieces import Curve, Heading, Note, Piece, Problem, Table
from classroom.demos.rendering import View
from labkit.keeping.reports import Report

DRAWN = 300


class Point(NamedTuple):
    """What is drawn of a report."""

    step: int
    loss: float
    rate: float
    norm: float


def training_view(points: Sequence[Point], floor: float | None = None) -> View:
    """The curve of the loss with its floor, and the numbers of the last step."""
    if not points:
        return View.of("training", Problem("No step has been reported yet."))
    last = points[-1]
    rows = [
        ("step", f"{last.step:,}"),
        ("loss", f"{last.loss:.4f}"),
        ("learning rate", f"{last.rate:.2e}"),
        ("length of the gradient", f"{last.norm:.4f}"),
    ]
    if floor is not None:
        rows.insert(2, ("floor", f"{floor:.4f}"))
        rows.insert(3, ("above the floor", f"{last.loss - floor:.4f}"))
    pieces: list[Piece] = [Heading("Loss"), *curve(points, floor)]
    pieces.append(Table(("what", "now"), tuple(rows), "now"))
    broken = sum(not math.isfinite(point.loss) for point in points)
    if broken:
        pieces.append(Note(f"{broken} of {len(points)} losses are no numbers.", "broken"))
    return View.of("training", *pieces)


def curve(points: Sequence[Point], floor: float | None) -> list[Curve]:
    """The loss over the steps, at most 300 of them, and a dashed line for the floor."""
    finite = [point for point in points if math.isfinite(point.loss)]
    some = finite[:: max(1, math.ceil(len(finite) / DRAWN))]
    # The last one is what everybody looks for.
    some += [finite[-1]] if finite and some[-1] != finite[-1] else []
    if not some:
        return []
    values = [point.loss for point in some] + ([] if floor is None else [floor])
    first, last = some[0], some[-1]
    went = "rose" if last.loss > first.loss else "fell"
    return [
        Curve(
            points=tuple((point.step, point.loss) for point in some),
            said=f"The loss {went} from {first.loss:.4f} to {last.loss:.4f} "
            f"between steps {first.step} and {last.step}.",
            name="loss",
            low=f"{min(values):.3g}",
            high=f"{max(values):.3g}",
            last=f"step {last.step}",
            floor=None if floor is None else (floor, f"floor {floor:.4f}"),
        )
    ]


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
