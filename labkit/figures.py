"""Figures that the course draws: tables, reach, losses."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

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


def reach(layers: int, segment: int, memory: int, segments: int = 3) -> "Figure":
    """Which positions of which layers the last one knows of, when segments leave a memory behind.

    Drawn from the rule itself: a position asks the layer below about its own segment up to itself,
    and about the last `memory` positions before the segment.
    """
    from matplotlib import pyplot

    length = segment * segments
    known = np.zeros((layers + 1, length), bool)
    known[layers, -1] = True
    for layer in range(layers, 0, -1):
        for place in np.flatnonzero(known[layer]):
            start = place // segment * segment
            known[layer - 1, max(0, start - memory) : place + 1] = True
    figure = pyplot.figure(figsize=(8, 0.45 * layers + 1.2), layout="constrained")
    axes = figure.add_subplot()
    for layer in range(layers + 1):
        colours = ["tab:blue" if seen else "white" for seen in known[layer]]
        axes.scatter(range(length), [layer] * length, 60, colours, edgecolors="tab:blue")
    for edge in range(segment, length, segment):
        axes.axvline(edge - 0.5, color="gray", linestyle=":")
    axes.set_yticks(range(layers + 1), ["words", *(f"layer {i + 1}" for i in range(layers))])
    axes.set_xlabel("position; dotted: where a segment ends")
    axes.set_title(f"The last position knows of {known[0].sum()} words (filled)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    pyplot.close(figure)
    return figure


def losses_by_place(lines: Mapping[str, Sequence[float]]) -> "Figure":
    """Losses by the place in the segment; the lines whose name begins with "lowest" are dashed."""
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    for name, losses in lines.items():
        exact = name.startswith("lowest")
        places = range(1, len(losses) + 1)
        axes.plot(places, losses, "k--" if exact else "o-", linewidth=1, label=name)
    axes.set(xlabel="place in the segment", ylabel="nats a word", ylim=(0, None))
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    pyplot.close(figure)
    return figure
