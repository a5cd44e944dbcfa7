"""Training, live: the loss above its floor while a model learns, and then again, step by step.

live = training_demo(floor=1.38)
display(live)
for report in live.watch(trainer):
    ...
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from classroom.demos.base import Demo, whole_slider
from classroom.demos.pieces import Curve, Heading, Note, Piece, Problem, Table
from classroom.demos.rendering import View
from labkit.keeping.reports import Report

DRAWN = 300
REPLAYED = 40
"""How many moments of a training a page without a kernel shows."""


class Point(NamedTuple):
    """The part of a report that is drawn."""

    step: int
    loss: float
    rate: float | None = None
    norm: float | None = None


def training_view(
    points: Sequence[Point], floor: float | None = None, now: int | None = None, unit: str = ""
) -> View:
    """The curve of the loss with its floor, and the numbers of the last of the points.

    `now` is the number of points up to which the curve is drawn, in the frame of all of them.
    """
    if not points:
        return View.of("training", Problem("No step has been reported yet."))
    shown = points[:now]
    last = shown[-1]
    rows = [("step", f"{last.step:,}"), ("loss", f"{last.loss:.4f}")]
    if floor is not None:
        rows += [("floor", f"{floor:.4f}"), ("above the floor", f"{last.loss - floor:.4f}")]
    if last.rate is not None:
        rows.append(("learning rate", f"{last.rate:.2e}"))
    if last.norm is not None:
        rows.append(("length of the gradient", f"{last.norm:.4f}"))
    pieces: list[Piece] = [
        Heading(f"Loss, {unit}" if unit else "Loss"),
        *curve(shown, floor, points),
        Table(("what", "now"), tuple(rows), "now"),
    ]
    broken = sum(not math.isfinite(point.loss) for point in shown)
    if broken:
        pieces.append(Note(f"{broken} of {len(shown)} losses are not finite.", "broken"))
    return View.of("training", *pieces)


def curve(shown: Sequence[Point], floor: float | None, points: Sequence[Point]) -> list[Curve]:
    """The loss over the steps, at most 300 of them, and a dashed line for the floor."""
    some, every = thinned(shown), thinned(points)
    if not some:
        return []
    # Thinning a part keeps other points than thinning the whole: the frame has room for all.
    values = [point.loss for point in points if math.isfinite(point.loss)]
    values += [] if floor is None else [floor]
    first, last = some[0], some[-1]
    went = "rose" if last.loss > first.loss else "fell"
    way = "stayed at" if last.loss == first.loss else f"{went} from {first.loss:.4f} to"
    return [
        Curve(
            points=tuple((point.step, point.loss) for point in some),
            said=f"The loss {way} {last.loss:.4f} between steps {first.step} and {last.step}.",
            name="loss",
            low=f"{min(values):.3g}",
            high=f"{max(values):.3g}",
            last=f"step {every[-1].step}",
            floor=None if floor is None else (floor, f"floor {floor:.4f}"),
            frame=(every[0].step, every[-1].step, min(values), max(values)),
        )
    ]


def thinned(points: Sequence[Point]) -> list[Point]:
    """Some of the points whose loss is finite, always with the last one."""
    finite = [point for point in points if math.isfinite(point.loss)]
    some = finite[:: max(1, math.ceil(len(finite) / DRAWN))]
    return some + finite[-1:] if finite and some[-1] != finite[-1] else some


class TrainingDemo(Demo):
    """Draws reports as they come, at most a few times a second; a slider goes back over them."""

    def __init__(self, floor: float | None, seconds: float, unit: str) -> None:
        self.points: list[Point] = []
        self.floor, self.seconds, self.unit = floor, seconds, unit
        controls = {"shown": whole_slider("points shown", 0, 0, 0)}
        super().__init__("training", self.look, controls)

    def look(self, shown: int) -> View:
        """The curve up to a point."""
        return training_view(self.points, self.floor, shown or None, self.unit)

    def refresh(self) -> None:
        """Draw; the slider stands at the last point until it is moved."""
        slider, count = self.controls["shown"], len(self.points)
        if slider.max != count:
            with self.quietly():
                slider.max, slider.min, slider.value = count, min(1, count), count
            self.first = self.values
            self.kept = {"shown": sorted({*range(1, count + 1, -(-count // REPLAYED)), count})}
        super().refresh()

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


def training_demo(
    *, floor: float | None = None, seconds: float = 0.3, unit: str = ""
) -> TrainingDemo:
    """A live curve for the reports of a trainer, drawn every so many seconds."""
    return TrainingDemo(floor, seconds, unit)


def replay(
    points: Sequence[Sequence[float]], floor: float | None = None, unit: str = ""
) -> TrainingDemo:
    """A training that is over, as pairs of a step and a loss, to be played again."""
    demo = TrainingDemo(floor, 0.0, unit)
    demo.points = [Point(int(step), float(loss)) for step, loss in points]
    demo.refresh()
    return demo
