"""Output that changes while a cell runs: the curve of a hand-written loop, a line of progress.

live = LiveCurve(steps=shortened(700, profile), floor=0.561)
for step in live:
    ...
    live.add(loss)
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from matplotlib.axes import Axes
from torch import Tensor

from classroom.charts.style import SERIES, Chart, chart, lowest
from classroom.demos import recording
from labkit.keeping.processor import give_back

Item = TypeVar("Item")
LOOP_PER_DRAWING = 9
"""The loop runs for this many times the time of a drawing before the curve is drawn again."""
RECORDED = 100
"""How many points of a curve are recorded, for a page that plays it again."""
SHORT = "LABKIT_SHORT"
"""Where this is set, cells that train in view only show that they run: when stored outputs are
compared, when a class is graded, when a lecture warms up."""


def shortened(steps: int, profile: str, *, short: int = 10, smoke: int | None = None) -> int:
    """How many steps to train in view: few where LABKIT_SHORT is set and in the smoke profile.

    `smoke` is how many in the smoke profile, where nobody looks at what the model has learned.
    """
    if profile == "smoke":
        return min(steps, short if smoke is None else smoke)
    return min(steps, short) if os.environ.get(SHORT) else steps


def _displayed() -> Callable[..., None]:
    """An output of the cell that can be replaced; on a terminal, a line for each change."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        return lambda bundle, **_: print(bundle["text/plain"])
    handle = display({"text/plain": "starting …"}, raw=True, display_id=True)

    def show(bundle: dict[str, Any], **more: Any) -> None:
        handle.update(bundle, raw=True, **more)

    return show


class LiveCurve:
    """The loss of a loop, drawn while it falls, above the lowest loss that is possible.

    `quantity` names what is drawn, if not the loss; `name` tells several runs apart.
    """

    def __init__(
        self,
        steps: int,
        floor: float | None = None,
        *,
        unit: str = "nats per word",
        every: float = 1.0,
        quantity: str = "loss",
        name: str = "",
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps is {steps}: give at least one step")
        self.steps, self.floor, self.unit, self.every = steps, floor, unit, every
        self.quantity, self.name = quantity, name
        self.losses: list[float] = []

    def __iter__(self) -> Iterator[int]:
        self.losses.clear()  # a second loop over the same steps is a curve of its own
        show = _displayed()
        begun = drawn = time.monotonic()
        pause = self.every
        try:
            for step in range(self.steps):
                yield step
                now = time.monotonic()
                left = (now - begun) / (step + 1) * (self.steps - step - 1)
                if step == self.steps - 1:
                    break
                if now - drawn > pause:
                    show(self.view(step + 1, left)._repr_mimebundle_())
                    drawn = time.monotonic()
                    # On a slow machine the loop gets most of the time, not the picture.
                    pause = min(max(self.every, LOOP_PER_DRAWING * (drawn - now)), 10 * self.every)
                elif step == 0:
                    # In words, since the first picture of a kernel takes long to draw.
                    show({"text/plain": self._state(1, left)})
        finally:
            # Also of a loop that is stopped: by `break`, by an error, or by the notebook's button.
            self._end(show, step + 1)
            give_back()

    def _end(self, show: Callable[..., None], step: int) -> None:
        """Show the whole curve; of a loop that failed before there was a loss, only words."""
        if self.losses:
            bundle = self.view(step)._repr_mimebundle_()
            show(bundle, metadata=recording.metadata(self.recorded))
        else:
            show({"text/plain": self._state(step, 0.0)})

    def add(self, loss: Tensor | float) -> None:
        """Keep the loss of this step."""
        self.losses.append(float(loss.detach() if isinstance(loss, Tensor) else loss))

    def view(self, step: int, left: float = 0.0) -> Chart:
        """The curve, smoothed over up to ten steps, with its state in words."""
        says, points = self._state(step, left), self._smooth()
        figure, axes = chart(7, 2.6, says=says)
        # A single point has no line, and nothing would be seen of it.
        marker = "o" if sum(math.isfinite(loss) for _, loss in points) < 2 else ""
        axes.plot(*zip(*points, strict=True), color=SERIES[0], marker=marker)
        axes.set(xlabel="step", ylabel=f"{self.quantity}, {self.unit}", title=says)
        # From 0 on, unless the quantity is negative somewhere, as a reward may be.
        bottom = None if any(y < 0 for _, y in points) else 0
        axes.set(xlim=(0, self.steps), ylim=(bottom, None))
        # To find margins takes a third of the time of a picture; these have room for five digits.
        figure.set_layout_engine(None)
        figure.subplots_adjust(left=0.11, bottom=0.19, right=0.975, top=0.9)
        if self.floor is not None:
            _make_room(axes, self.floor)
            lowest(axes, self.floor)
            figure.says += f"; lowest possible: {self.floor:.3f}"
        return figure

    def _state(self, step: int, left: float) -> str:
        """How far the loop is, in words."""
        says = f"{self.name}, step" if self.name else "step"
        says += f" {step} of {self.steps}"
        if left >= 1:
            says += f", {left:.0f} s left"
        points = self._smooth()
        return f"{says}: {self.quantity} {points[-1][1]:.3f}" if points else says

    def recorded(self) -> dict[str, Any]:
        """The curve in some of its points, so that a page can play it again."""
        points = [[step, round(loss, 4)] for step, loss in self._smooth()]
        some = points[:: -(-len(points) // RECORDED)] if points else []
        # The last point is the one that readers look for.
        some += [points[-1]] if some and some[-1] != points[-1] else []
        unit = self.unit if self.quantity == "loss" else f"{self.quantity}, {self.unit}"
        return {"name": "training", "points": some, "floor": self.floor, "unit": unit}

    def _smooth(self) -> list[tuple[int, float]]:
        """Steps, counted from 1, with the mean loss of the steps that end there.

        Of ten steps, or of fewer where a curve has so few that hardly a point would be left.
        """
        if not self.losses:
            return []
        window = min(10, max(1, len(self.losses) // 3))
        means = torch.tensor(self.losses).unfold(0, window, 1).mean(-1).tolist()
        return list(enumerate(means, start=window))


def _make_room(axes: Axes, value: float) -> None:
    """Widen a picture for a value outside it: a loss below the lowest possible is worth seeing."""
    bottom, top = axes.get_ylim()
    if value > top:
        axes.set_ylim(bottom, value + (value - bottom) / 10)
    elif value < bottom:
        axes.set_ylim(value - (top - value) / 10, top)


def progress(items: Sequence[Item], what: str, *, every: float = 0.5) -> Iterator[Item]:
    """Iterate over items; one line of output shows the progress and the time left."""
    show = _displayed()
    begun, drawn = time.monotonic(), 0.0
    try:
        for done, item in enumerate(items):
            now = time.monotonic()
            ended = f"stopped after {done} of {len(items)}"
            if now - drawn > every:
                left = f", {(now - begun) / done * (len(items) - done):.0f} s left" if done else ""
                show({"text/plain": f"{what}: {done} of {len(items)} done{left}"})
                drawn = now
            yield item
        ended = f"all {len(items)} done"
    finally:
        show({"text/plain": f"{what}: {ended}"})


@contextmanager
def waiting(what: str, *, every: float = 1.0) -> Iterator[None]:
    """Show how long something has taken so far that cannot report its own progress."""
    show, over, begun = _displayed(), threading.Event(), time.monotonic()
    ended = "failed"

    def tell() -> None:
        while not over.wait(every):
            show({"text/plain": f"{what}: {time.monotonic() - begun:.0f} s so far"})

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
        ended = "finished"
    except KeyboardInterrupt:
        ended = "stopped"
        raise
    finally:
        over.set()
        teller.join()
        # No time: what is stored with the notebook should not change with the machine.
        show({"text/plain": f"{what}: {ended}"})
