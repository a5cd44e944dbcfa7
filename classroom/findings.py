"""What a lecture claims and what was measured: a sentence, a picture, and the statistics in a fold.

    show_finding("auxiliary-objective")                          from the ledger, at all its seeds
    show_finding("auxiliary-objective", measured=(profile, 0))   measured now

Nothing is typed in by hand, so a notebook cannot contradict the ledger.
"""

from html import escape

from classroom.figures import figure_of, unit_of
from classroom.ledger import Arm, Finding, bounds, text_of
from classroom.style import Chart, chart
from labkit.keeping.processor import give_back

PLAIN = {
    "holds": "holds here",
    "does not hold here": "does not hold here",
    "not significant": "is not settled: chance could have made the difference",
    "not tested at this size": "was not tested at this size",
    "not judged": "was not judged: that takes more seeds",
    "bounds changed after measuring": "was judged by other bounds: measure it anew",
}


def show_finding(claim: str, *, measured: tuple[str, int] | None = None) -> None:
    """Show a claim, its verdict, a chart of its arms, and the statistics in a fold."""
    from IPython.display import display

    give_back()
    if measured is None and claim in unmeasured():
        text = (
            f"> *{bounds()[claim]['says']}*\n\nNot in the ledger yet: `measure = True` measures it."
        )
        display({"text/markdown": text, "text/plain": text}, raw=True)
        return
    finding = _now(claim, *measured) if measured else kept(claim)
    said, details = sentence(finding), text_of(finding)
    display({"text/markdown": said, "text/plain": said}, raw=True)
    for one in charts(finding):
        display(one)
    fold = f"<details><summary>How it was measured</summary><pre>{escape(details)}</pre></details>"
    display({"text/html": fold, "text/plain": details}, raw=True)


def unmeasured() -> set[str]:
    """Claims whose bounds are written down and that no row of the ledger is about."""
    from classroom.ledger import rows

    return set(bounds()) - {row.id for row in rows()}


def kept(claim: str) -> Finding:
    """The row of the ledger of that claim."""
    from classroom.ledger import rows

    found = {row.id: row for row in rows()}
    if claim not in found:
        raise ValueError(f"the ledger has no claim {claim!r}: choose {', '.join(sorted(found))}")
    return found[claim]


def _now(claim: str, profile: str, seed: int) -> Finding:
    from classroom.claims import claims
    from classroom.ledger import measure
    from classroom.sweeps import record

    finding = measure(claims()[claim], profile, seed)
    record(**{claim.replace("-", "_"): finding.verdict})
    return finding


def sentence(finding: Finding) -> str:
    """The claim and what came of it, in plain words."""
    parts = [f"- {one.says}: **{PLAIN[one.verdict]}**." for one in finding.contrasts]
    all_alike = len({one.verdict for one in finding.contrasts}) < 2
    came = f"The claim {PLAIN[finding.verdict]}" if all_alike else "Not all of the claim holds here"
    head = f"> *{finding.says}* ({finding.where})\n\n**{came}.**"
    return "\n".join([head, "", *parts]) if len(parts) > 1 else head


def charts(finding: Finding) -> list[Chart]:
    """A chart of the arms for each unit: losses and shares have no axis in common."""
    panels: dict[str, dict[str, Arm]] = {}
    for name, arm in finding.arms.items():
        panels.setdefault(unit_of(name, finding.unit), {})[name] = arm
    return [_chart(unit, found) for unit, found in panels.items()]


def _chart(unit: str, found: dict[str, Arm]) -> Chart:
    """The mean of each arm with its interval, and the best possible value as a bar."""
    names = list(found)
    says = "; ".join(f"{name}: {figure_of(arm.mean)}" for name, arm in found.items())
    figure, axes = chart(7, 0.36 * len(names) + 0.9, says=f"{unit}. {says}")
    for y, arm in enumerate(found.values()):
        axes.annotate(figure_of(arm.mean), (arm.mean, y), (0, 6), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
        axes.plot([arm.low, arm.high], [y, y], color="#1b87c9", linewidth=2.5, marker="")
        axes.plot(arm.mean, y, "o", color="#1b87c9")
        if arm.best is not None:
            axes.plot(arm.best, y, "|", color="#d55e00", markersize=16, markeredgewidth=2)
    best = any(arm.best is not None for arm in found.values())
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.7))
    axes.set_xlabel(unit + (" (| is the best possible)" if best else ""))
    return figure
