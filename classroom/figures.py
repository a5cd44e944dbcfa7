"""Figures that the course draws: tables, schedules, reach, losses, findings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from labkit.costs import tables as cost_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from labkit.costs.scaling import Fit

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
    for line, row in enumerate(rows):
        axes.barh(line, row.petaflop_days, color=FAMILIES[row.family], label=row.family)
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
    axes.spines[["top", "right"]].set_visible(False)
    # Shown by whoever it is returned to, and not once more by pyplot.
    pyplot.close(figure)
    return figure


class Run(Protocol):
    """A point of a scaling law: a model of some size that has read so many tokens."""

    @property
    def parameters(self) -> float:
        """The size of the model."""

    @property
    def tokens(self) -> float:
        """How much text it read."""

    @property
    def excess(self) -> float:
        """Its loss above the floor."""


def scaling_law(points: Sequence[Run], law: "Fit") -> "Figure":
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


def figure_of(value: float) -> str:
    """Write a figure with the digits that a reader wants."""
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


class Measured(Protocol):
    """A mean with its interval, its value for each seed, and the best that is possible."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""

    @property
    def low(self) -> float:
        """The lower end of the interval."""

    @property
    def high(self) -> float:
        """The upper end of the interval."""

    @property
    def by_seed(self) -> list[float]:
        """The value with each seed."""

    @property
    def best(self) -> float | None:
        """What is possible at best, where that is known."""


def arms_of(arms: Mapping[str, Measured], units: str, title: str) -> "Figure":
    """Each arm with its interval and what is possible, a panel for each unit."""
    from matplotlib import pyplot

    panels, possible = dict[str, list[str]](), list[Any]()
    for name in arms:
        panels.setdefault(unit_of(name, units), []).append(name)
    counts = [len(names) for names in panels.values()]
    figure = pyplot.figure(
        figsize=(7, 0.34 * sum(counts) + 0.7 * len(counts) + 0.5), layout="constrained"
    )
    columns = figure.subplots(len(counts), height_ratios=counts, squeeze=False)[:, 0]
    for axes, (unit, names) in zip(columns, panels.items(), strict=True):
        for line, name in enumerate(names):
            arm = arms[name]
            axes.plot([arm.low, arm.high], [line, line], color="tab:blue", linewidth=2)
            axes.plot(arm.by_seed, [line] * len(arm.by_seed), "|", color="tab:blue", markersize=8)
            axes.plot([arm.mean], [line], "o", color="tab:blue")
            axes.annotate(
                figure_of(arm.mean), (arm.mean, line), (0, 6), textcoords="offset points",
                ha="center", fontsize=8,
            )  # fmt: skip
            if arm.best is not None:
                possible = axes.plot([arm.best], [line], "k|", markersize=16)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.7)
        axes.set_xlabel(f"{unit}, with 95 % intervals")
        axes.margins(x=0.1)
        axes.spines[["top", "right"]].set_visible(False)
    columns[0].set_title(title, fontsize=10, loc="left")
    if possible:
        figure.legend(possible, ["possible"], loc="outside lower right", fontsize=8)
    pyplot.close(figure)
    return figure


def unit_of(arm: str, units: str) -> str:
    """Of units such as "nats a word (loss), accuracy (senses)" the one that an arm speaks of."""
    if "(" not in units:
        return units
    hints = [part.rstrip(")").partition(" (") for part in units.split(", ")]
    spoken = [unit for unit, _, hint in hints if hint and hint in arm]
    return [*spoken, *(unit for unit, _, hint in hints if not hint)][0]
