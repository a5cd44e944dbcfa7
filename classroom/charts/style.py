"""The style of every chart: readable on light and dark pages, by colour-blind readers, and aloud.

    figure, axes = chart(says="The loss falls to the dashed line.")
    axes.plot(steps, losses, label="trained")
    figure

The background is transparent and the letters are of a grey that reads on white and on black. Lines
differ by marker as well as by colour. `says` is the description for those who cannot see the chart.
Importing this module applies its style to everything that is drawn.
"""

import base64
import io
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#767676"
"""Letters and lines: a contrast of more than 4 to white and to black."""
# Okabe and Ito's palette, without the colours that are too pale for a thin line on white.
SERIES = ("#1b87c9", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DOTS_PER_INCH = 120

RULES: Any = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.prop_cycle": cycler(color=SERIES, marker=MARKERS),
    "lines.markersize": 5,
}
rcParams.update(RULES)


class Chart(Figure):
    """A figure with a description."""

    says = ""

    def png(self) -> bytes:
        """The picture as the bytes of a file; a chart has fewer than 256 colours."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        canvas, before = FigureCanvasAgg(self), self.dpi
        self.dpi = DOTS_PER_INCH
        try:
            canvas.draw()  # `savefig` would draw twice: the first time to lay the figure out
            picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
        finally:
            self.dpi = before
        return small(picture)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.says}


def small(picture: Any) -> bytes:
    """A picture of Pillow's as the bytes of a file, with 256 colours: a third of the size."""
    from PIL import Image

    file = io.BytesIO()
    picture.quantize(256, method=Image.Quantize.FASTOCTREE).save(file, "png", optimize=True)
    return file.getvalue()


def chart(width: float = 7, height: float = 2.8, *, says: str) -> tuple[Chart, Axes]:
    """An empty chart of this size in inches, and its axes."""
    figure = Chart(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    figure.says = says
    return figure, axes


def lowest(axes: Axes, value: float, label: str = "lowest possible") -> None:
    """A dashed line at the best value that is possible, with its name."""
    points = [y for line in axes.lines for y in np.asarray(line.get_ydata(), dtype=float)]
    bottom, top = axes.get_ylim()
    # Curves come down to a floor, so its name stands below, unless it would stand on the axis.
    figure = axes.figure
    assert figure is not None
    height = axes.bbox.height / figure.dpi * 72  # in points, like the size of its letters
    room = (value - bottom) / (top - bottom) * height
    below = sum(y > value for y in points) > len(points) / 2 and room > 14
    axes.axhline(value, color=INK, linestyle="--", linewidth=1.2, marker="")
    axes.annotate(
        f"{label}: {value:.3f}",
        (0.01, value),
        (0, -2 if below else 1),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="top" if below else "bottom",
    )
