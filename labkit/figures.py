"""Figures that the course draws from its tables."""

from typing import TYPE_CHECKING

from labkit import cost_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
