"""Figures that the course draws from its tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from labkit import cost_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from labkit.scaling import Fit
    from labkit.scaling_runs import Point

FAMILIES = {
    "GPT and GPT-4": "#b45f06",
    "BERT": "#38761d",
    "RoBERTa": "#0b5394",
    "T5": "#741b47",
    "GPT-3": "#990000",
}


def compute_by_model() -> "Figure":
    """Training compute of each model in the order of the lectures, on a scale of powers of ten."""
    from matplotlib import pyplot

    rows = cost_tables.compute_by_model()
    figure = pyplot.figure(figsize=(8, 0.28 * len(rows) + 1.1), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        axes.barh(place, row.petaflop_days, color=FAMILIES[row.family], label=row.family)
        axes.annotate(
            f"{row.petaflop_days:,.{0 if row.petaflop_days > 100 else 1}f}",
            (row.petaflop_days, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.set_xlim(0.5, 3e6)
    axes.set_yticks(range(len(rows)), [row.model for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("petaflop/s-days of training (one is 8.64e19 operations)")
    axes.set_title("Each step to the right is ten times the compute")
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    # Shown by whoever it is returned to, and not once more by pyplot.
    pyplot.close(figure)
    return figure


def scaling_law(points: "Sequence[Point]", law: "Fit") -> "Figure":
    """Loss above the floor over the text that was read, a line of the law for each size."""
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    read = np.geomspace(min(p.tokens for p in points) / 1.5, max(p.tokens for p in points) * 1.5)
    for i, size in enumerate(sorted({point.parameters for point in points})):
        own = [point for point in points if point.parameters == size]
        axes.plot(
            [p.tokens for p in own], [p.excess for p in own], "osD^vPX*"[i % 8], color=f"C{i}"
        )
        axes.plot(read, law.excess(size, read), f"C{i}", label=f"{size:,.0f} parameters")
    axes.plot(read, law.b * read**-law.beta, "k:", label="endless parameters")
    texts = sorted({point.tokens for point in points})
    axes.set_xticks(texts, [f"{count:,.0f}" for count in texts])
    axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("words read")
    axes.set_ylabel("loss - floor, nats a word")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    pyplot.close(figure)
    return figure
