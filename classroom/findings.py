"""What a lecture claims and what was measured: a sentence, a picture, and the statistics in a fold.

    show_finding("auxiliary-objective")                          from the ledger, at all its seeds
    show_finding("auxiliary-objective", measured=(profile, 0))   measured now

    all_findings(), surprises(), outlook()                       the page of all findings, 13_claims

Nothing is typed in by hand, so a notebook cannot contradict the ledger.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import fill
from typing import NamedTuple

from matplotlib.axes import Axes

from classroom import ledger
from classroom.charts.figures import figure_of, unit_of
from classroom.charts.style import INK, SERIES, Chart
from classroom.ledger import OUTDATED, Arm, Finding, bounds, text_of
from labkit.checks import counted
from labkit.keeping.processor import give_back

PLAIN = {
    "holds": "holds here",
    "does not hold here": "does not hold here",
    "not significant": "is not settled: chance is not ruled out",
    "not tested at this size": "was not tested: this size or this machine does not allow it",
    "not judged": "was not judged: that takes more seeds",
    "bounds changed after measuring": "was judged against other bounds: measure it again",
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
    if finding.arms:
        display(finding_chart(finding))
    show_folded("How it was measured", details)


def show_folded(summary: str, text: str) -> None:
    """Show a text that unfolds below its summary."""
    from IPython.display import display

    display({"text/html": _fold(summary, text), "text/plain": text}, raw=True)


def unmeasured() -> set[str]:
    """Claims that have bounds but no row in the ledger."""
    return set(bounds()) - set(ledger.files())


def kept(claim: str) -> Finding:
    """The row of the ledger of that claim."""
    found = ledger.files()
    if claim not in found:
        raise ValueError(f"the ledger has no claim {claim!r}: choose {', '.join(found)}")
    return ledger.read(found[claim])


def _now(claim: str, profile: str, seed: int) -> Finding:
    from classroom.charts.live import waiting
    from classroom.claims import claims
    from classroom.running.sweeps import record

    with waiting(f"measuring {claim}"):
        finding = ledger.measure(claims()[claim], profile, seed)
    record(**{claim.replace("-", "_"): finding.verdict})
    return finding


def sentence(finding: Finding) -> str:
    """The claim and what came of it; its parts are listed only where their verdicts differ."""
    parts = [f"- {one.says}: **{PLAIN[one.verdict]}**." for one in finding.contrasts]
    head = f"> *{finding.says}* ({finding.where})\n\n"
    if finding.outdated:
        head += f"*This was {OUTDATED}.*\n\n"
    if len({one.verdict for one in finding.contrasts}) < 2:
        return f"{head}**The claim {PLAIN[finding.verdict]}.**"
    some = any(one.verdict == "holds" for one in finding.contrasts)
    if finding.verdict == "not significant":
        came = "Part of the claim holds here, and part of it is not settled"
    elif finding.verdict == "not judged":
        came = "Part of the claim holds here; the rest was not judged: that takes more seeds"
    elif finding.verdict != "does not hold here":
        came = f"The claim {PLAIN[finding.verdict]}"
    elif some:
        came = "Not all of the claim holds here"
    else:
        came = "No part of the claim is shown to hold here"
    return "\n".join([f"{head}**{came}.**", "", *parts])


def finding_chart(finding: Finding) -> Chart:
    """One chart of the arms, with a panel for each unit: losses and shares have no axis in common.

    A panel shows the mean of each arm with its interval, and the best possible value as a bar.
    Figures that are the same for every seed are listed below in words, unless all of them are.
    """
    panels: dict[str, dict[str, Arm]] = {}
    for name, arm in finding.arms.items():
        panels.setdefault(unit_of(name, finding.unit), {})[name] = arm
    spread = {unit for unit, arms in panels.items() if any(x.low < x.high for x in arms.values())}
    drawn = {unit: arms for unit, arms in panels.items() if unit in spread} or panels
    heights = [0.36 * len(arms) + 0.9 for arms in drawn.values()]
    figure = Chart(figsize=(7, sum(heights)), layout="constrained")
    rows = figure.subplots(len(drawn), squeeze=False, height_ratios=heights)[:, 0]
    for axes, (unit, arms) in zip(rows, drawn.items(), strict=True):
        _draw(axes, unit, arms)
    said = {unit: "; ".join(f"{name}: {figure_of(arm.mean)}" for name, arm in arms.items())
            for unit, arms in panels.items()}  # fmt: skip
    figure.says = ". ".join(f"{unit}. {figures}" for unit, figures in said.items())
    if words := [figures for unit, figures in said.items() if unit not in drawn]:
        figure.supxlabel(fill("; ".join(words), 90), fontsize=9, color=INK)
    return figure


def _draw(axes: Axes, unit: str, arms: dict[str, Arm]) -> None:
    for y, arm in enumerate(arms.values()):
        axes.annotate(figure_of(arm.mean), (arm.mean, y), (0, 6), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
        if len(arm.by_seed) > 1:
            axes.plot([arm.low, arm.high], [y, y], color=SERIES[0], linewidth=2.5, marker="")
        axes.plot(arm.mean, y, "o", color=SERIES[0])
        if arm.best is not None:
            # Short enough not to cross the number above a mean beside it.
            axes.plot(arm.best, y, "|", color=SERIES[1], markersize=10, markeredgewidth=2)
    best = any(arm.best is not None for arm in arms.values())
    axes.set(yticks=range(len(arms)), yticklabels=list(arms), ylim=(len(arms) - 0.4, -0.7))
    axes.set_xlabel(fill(unit + (" (| is the best possible)" if best else ""), 66))


# ---- the page of all findings ------------------------------------------------------------------

MISSING = "not in the ledger yet"
SIGNS = {"holds": "✓", "does not hold here": "✗", MISSING: "·"}
"""The sign before a claim; all other verdicts get a question mark."""
MANY = {
    "holds": "hold here",
    "does not hold here": "do not hold here",
    "not significant": "are not settled",
    "not tested at this size": "were not tested at this size or on this machine",
    "not judged": "were not judged",
    "bounds changed after measuring": "were judged by other bounds",
    MISSING: "are not in the ledger yet",
}
"""The verdicts as predicates of several claims."""
TITLES = {
    "01": "Word vectors", "02": "ELMo", "03": "ULMFiT", "04": "The Transformer", "05": "GPT",
    "06": "Sampling and prompting", "07": "Instructions", "08": "BERT", "09": "BERT's family",
    "10": "Transformer-XL", "11": "XLNet", "12": "Costs",
}  # fmt: skip
KINDS = {
    "Counted": (
        "Counted, or compared number by number, on models that are built: chance plays almost no "
        "part. The same can be done for a model of any size, and the result may depend on it.",
        "six-n-d restart half-memory",
    ),
    "How it is built": (
        "A model cannot learn what it cannot see, remember or express, however large it is. "
        "Expect the direction at a larger size; how much it matters depends on the text.",
        "static-vectors characters characters-right "
        "half-precision posterior-in-states contamination nucleus both-sides both-at-once "
        "real-both-sides real-memory "
        "subwords long-memory relative-positions new-york attention-bottleneck context-decides "
        "written-step",
    ),
    "A matter of degree": (
        "A rate, a schedule, a mix of data, a choice between two good methods. The best choice "
        "depends on model, data and budget: at a larger size, expect the question, not the answer.",
        "order-matters speed-of-encoders over-optimisation same-frontier "
        "four-quadrants mixed-layers hundred-labels three-tricks last-layers new-language "
        "auxiliary-objective auxiliary-faster shots-or-tuning eighty-ten-ten mask-mixes "
        "fifteen-percent next-sentence dynamic-masks real-masks larger-batches longer-rows albert "
        "factorised-embeddings distillation permutation experts curated-text beam-search "
        "tied-embeddings pretrained-encoder second-language alignment-tax real-labels",
    ),
    "About size itself": (
        "Models this small show a trend at most. Look at the sizes in the original paper.",
        "zero-shot-grows few-shot scaling-law instructions small-and-tuned real-scaling",
    ),
}
"""What each claim is about, which decides how far a verdict on small models carries."""


class Told(NamedTuple):
    """A claim with its row of the ledger, if there is one."""

    id: str
    says: str
    where: str
    notebook: str
    row: Finding | None

    @property
    def verdict(self) -> str:
        """The verdict of the ledger, or `MISSING`."""
        return MISSING if self.row is None else self.row.verdict

    @property
    def sign(self) -> str:
        """The verdict at a glance."""
        return SIGNS.get(self.verdict, "?")


def told() -> list[Told]:
    """Every claim whose bounds are written down, in the order of the notebooks."""
    found = {row.id: row for row in ledger.rows()}
    every = [Told(id, about["says"], about["where"], about["notebook"], found.get(id))
             for id, about in bounds().items()]  # fmt: skip
    return sorted(every, key=lambda one: one.notebook)


def all_findings() -> None:
    """Show all claims by notebook, each with its verdict and what was seen; the rest unfolds."""
    every = told()
    counts = Counter(one.verdict for one in every)
    said = ", ".join(f"{counts[verdict]} {MANY[verdict]}" for verdict in MANY if counts[verdict])
    page = _Page()
    page.paragraph(f"{counted(len(every), 'claim')}: {said}.")
    early = sum(one.row is not None and min(one.row.seeds) < 100 for one in every)
    if early:
        page.paragraph(
            f"{early} of the rows are of an earlier run, with seeds that tuning had seen. They "
            "are kept until they are measured again."
        )
    old = sum(one.row is not None and one.row.outdated for one in every)
    if old:
        page.paragraph(f"{old} of the rows: {OUTDATED}.")
    for number, title in TITLES.items():
        page.heading(f"{number} {title}")
        page.claims([one for one in every if one.notebook.startswith(number)])
    page.show()


def surprises() -> None:
    """Show the claims that did not come out as claimed, with what was seen instead."""
    page = _Page()
    for verdict in ("does not hold here", "not significant"):
        some = [one for one in told() if one.verdict == verdict]
        page.heading(f"{len(some)} {MANY[verdict]}")
        page.claims(some, bounds_too=True)
    page.show()


def outlook() -> None:
    """Show what each kind of claim says about larger models, and what was found of each."""
    every, page = {one.id: one for one in told()}, _Page()
    for kind, (meaning, ids) in KINDS.items():
        some = sorted((every[id] for id in ids.split() if id in every), key=lambda one: one.sign)
        page.heading(kind)
        page.paragraph(meaning)
        page.paragraph("   ".join(f"{one.sign} {one.id}" for one in some))
    page.show()


class _Page:
    """A text for readers, written as HTML and as plain text at once."""

    def __init__(self) -> None:
        self.html, self.text = list[str](), list[str]()

    def heading(self, said: str) -> None:
        """A heading below those of the notebook's sections."""
        self.html.append(f"<h3>{escape(said)}</h3>")
        self.text += ["", said]

    def paragraph(self, said: str) -> None:
        """A paragraph."""
        self.html.append(f"<p style='white-space:pre-wrap'>{escape(said)}</p>")
        self.text.append(said)

    def claims(self, some: Sequence[Told], *, bounds_too: bool = False) -> None:
        """A list of claims: verdict, what was seen, and the statistics in a fold."""
        self.html.append("<ul style='list-style:none;padding-left:0'>")
        for one in some:
            seen, fold = list[str](), ""
            if one.row is not None:
                seen, figures = [*_seen(one.row)], text_of(one.row)
                if bounds_too:
                    figures = "\n".join([figures, *_bounds(one.row)])
                fold = _fold(f"{one.id}: who says so, and all figures", figures)
            head = f"{one.sign} <b>{escape(one.says)}</b> {_verdict(one)}"
            lines = "".join(f"<div style='padding-left:3em'>{escape(x)}</div>" for x in seen)
            self.html.append(f"<li style='margin-bottom:8px'>{head}{lines}{fold}</li>")
            self.text += [f"{one.sign} {one.says} {_verdict(one)}", *(f"    {x}" for x in seen)]
        self.html.append("</ul>")

    def show(self) -> None:
        """Show it as the output of the cell."""
        from IPython.display import display

        said = "\n".join(self.text).strip()
        display({"text/html": "".join(self.html), "text/plain": said}, raw=True)


def _fold(summary: str, text: str) -> str:
    """A text that unfolds below its summary."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def _verdict(one: Told) -> str:
    said = PLAIN.get(one.verdict, one.verdict)
    return f"{said[0].upper()}{said[1:]}."


def _seen(row: Finding) -> Iterator[str]:
    """What was seen of each contrast."""
    weights = {about["says"]: about["weights"] for about in bounds()[row.id]["contrasts"]}
    for seen in row.contrasts:
        # A contrast has the unit of its arms, which are unknown if the bounds have changed.
        unit = unit_of(next(iter(weights.get(seen.says, [seen.says]))), row.unit)
        yield f"{SIGNS.get(seen.verdict, '?')} {seen.says}: {figure_of(seen.value)} ({unit})"


def _bounds(row: Finding) -> Iterator[str]:
    """The bounds of each contrast."""
    for one in row.contrasts:
        below = f", below {figure_of(one.below)}" if one.below is not None else ""
        yield f"bound of “{one.says}”: above {figure_of(one.above)}{below}"
