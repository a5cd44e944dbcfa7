"""Charts of the bill and of scaling, and how a figure is written."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.costs import tables as cost_tables

if TYPE_CHECKING:
    from classroom.charts.style import Chart
    from labkit.costs.scaling import Fit

FAMILIES = ("GPT and GPT-4", "BERT", "RoBERTa", "T5", "GPT-3")


def compute_by_model() -> "Chart":
    """Training compute of each model in the order of the lectures, on a scale of powers of ten."""
    from classroom.charts.style import SERIES, chart

    rows = cost_tables.compute_by_model()
    told = (f"{row.model}: {figure_of(row.petaflop_days)}" for row in rows)
    says = f"Petaflop/s-days of training. {'; '.join(told)}"
    figure, axes = chart(8, 0.28 * len(rows) + 1.1, says=says)
    for line, row in enumerate(rows):
        axes.barh(
            line, row.petaflop_days, color=SERIES[FAMILIES.index(row.family)], label=row.family
        )
        axes.annotate(
            f"{row.petaflop_days:,.{0 if row.petaflop_days > 100 else 1}f}",
            (row.petaflop_days, line),
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
    return figure


def scaling_law(points: Sequence[Any], law: "Fit") -> "Chart":
    """Plot the loss above the floor over the words read, with the law as a line for each size.

    A point has `parameters`, `tokens` and `excess` (`classroom.models.scaling_runs`).
    """
    from classroom.charts.style import INK, MARKERS, SERIES, chart

    sizes = sorted({point.parameters for point in points})
    says = (
        f"Loss above the floor over words read, for {len(sizes)} sizes of model, with the fitted "
        f"law: it falls as a power of the words (exponent {law.beta:.2f}) until the size is what "
        "limits it."
    )
    figure, axes = chart(7, 3.6, says=says)
    axes.set(xscale="log", yscale="log")
    read = np.geomspace(min(p.tokens for p in points) / 1.5, max(p.tokens for p in points) * 1.5)
    for i, size in enumerate(sizes):
        own = [point for point in points if point.parameters == size]
        mark, colour = MARKERS[i % len(MARKERS)], SERIES[i % len(SERIES)]
        axes.plot([p.tokens for p in own], [p.excess for p in own], color=colour, linestyle="",
                  marker=mark, label=f"{size:,.0f} parameters")  # fmt: skip
        axes.plot(read, law.excess(size, read), color=colour, marker="")
    axes.plot(read, law.b * read**-law.beta, color=INK, linestyle=":", marker="",
              label="infinitely many parameters")  # fmt: skip
    texts = sorted({point.tokens for point in points})
    axes.set_xticks(texts, [f"{count:,.0f}" for count in texts])
    low, high = (pick(p.excess for p in points) for pick in (min, max))
    powers = [2.0**n for n in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    axes.set_yticks(powers, [f"{power:g}" for power in powers])
    axes.minorticks_off()
    axes.set_xlabel("words read")
    axes.set_ylabel("loss - floor, nats per word")
    axes.legend(fontsize=8)
    return figure


def figure_of(value: float) -> str:
    """Format a figure with as many digits as a reader needs."""
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def unit_of(arm: str, units: str) -> str:
    """The unit of an arm, out of units such as "nats per word (loss), accuracy (senses)"."""
    if "(" not in units:
        return units
    hints = [part.rstrip(")").partition(" (") for part in units.split(", ")]
    spoken = [unit for unit, _, hint in hints if hint and hint in arm]
    return [*spoken, *(unit for unit, _, hint in hints if not hint)][0]
