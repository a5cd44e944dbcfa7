"""The ledger, to look through: what is claimed, what was measured here, and the verdict.

Read `ledger_view`, the pure function; `classroom.ledger` measures and judges.
"""

from collections.abc import Sequence
from functools import partial

from classroom.charts.figures import figure_of
from classroom.demos.base import Demo, choice
from classroom.demos.pieces import Heading, Interval, Intervals, Note, Piece, Problem, Table
from classroom.demos.rendering import View
from classroom.ledger import OUTDATED, Finding, rows
from labkit.checks import counted

ALL = "all"


def chosen(findings: Sequence[Finding], notebook: str, verdict: str) -> list[Finding]:
    """The findings of a notebook with a verdict; "all" stands for every one."""
    return [
        one for one in findings if notebook in (ALL, one.notebook) and verdict in (ALL, one.verdict)
    ]


def ledger_view(
    findings: Sequence[Finding], notebook: str = ALL, verdict: str = ALL, claim: str = ""
) -> View:
    """A table of the claims that fit, and everything about one of them."""
    if not findings:
        said = "The ledger is empty: measure the claims with python -m labkit claims --store."
        return View.of("ledger", Problem(said))
    fitting = chosen(findings, notebook, verdict)
    pieces: list[Piece] = [Heading(f"{len(fitting)} of {len(findings)} claims")]
    if fitting:
        listed = tuple((one.id, one.verdict, one.says, one.notebook) for one in fitting)
        head = ("claim", "verdict", "what it says", "notebook")
        pieces.append(Table(head, listed, "claims"))
    else:
        pieces.append(Problem("No claim fits: choose another notebook or verdict."))
    about = next((one for one in findings if one.id == claim), None)
    if about is not None:
        pieces += details(about)
    return View.of("ledger", *pieces)


def details(finding: Finding) -> list[Piece]:
    """Where a claim comes from, its arms with intervals and floors, and what was to be seen."""
    seeds = counted(len(finding.seeds), "seed")
    pieces: list[Piece] = [
        Heading(f"{finding.id}: {finding.verdict}"),
        Note(f"{finding.says} ({finding.where})", "says"),
        Note(f"Profile {finding.profile}, {seeds}, {finding.seconds:,.0f} s.", "run"),
    ]
    if finding.note:
        pieces.append(Note(finding.note, "remark"))
    if finding.outdated:
        pieces.append(Note(f"{OUTDATED[0].upper()}{OUTDATED[1:]}.", "outdated"))
    if not finding.arms:
        pieces.append(Note("Not tested: this size or this machine does not allow it.", "untested"))
        return pieces
    pieces += [intervals(finding), arms(finding), Heading("What must be seen"), contrasts(finding)]
    return pieces


def arms(finding: Finding) -> Table:
    """The measurements of each arm."""
    shown = tuple(
        (
            name,
            figure_of(arm.mean),
            # One seed shows nothing about the spread.
            f"{figure_of(arm.low)} … {figure_of(arm.high)}" if len(arm.by_seed) > 1 else "–",
            "–" if arm.best is None else figure_of(arm.best),
            ", ".join(map(figure_of, arm.by_seed)),
        )
        for name, arm in finding.arms.items()
    )
    head = ("arm", finding.unit, "95 % interval", "possible at best", "by seed")
    return Table(head, shown, "arms")


def contrasts(finding: Finding) -> Table:
    """What had to be seen, and what was."""
    shown = []
    for seen in finding.contrasts:
        bound = f"> {figure_of(seen.above)}" if seen.above != float("-inf") else ""
        bound += f" < {figure_of(seen.below)}" if seen.below is not None else ""
        interval = seen.edges.strip(" []")
        shown.append((seen.says, bound.strip(), figure_of(seen.value), interval, seen.verdict))
    head = ("contrast", "bound", "seen", "95 % interval", "verdict")
    return Table(head, tuple(shown), "contrasts")


def intervals(finding: Finding) -> Intervals:
    """The arms on one line of numbers."""
    return Intervals(
        lines=tuple(
            Interval(name, arm.low, arm.mean, arm.high, arm.best, figure_of(arm.mean))
            for name, arm in finding.arms.items()
        ),
        said=f"Arms of {finding.id} in {finding.unit}; the dashes are the best possible",
    )


def ledger_demo(findings: Sequence[Finding] | None = None) -> Demo:
    """Look through the ledger of the course, or through findings of your own."""
    known = rows() if findings is None else list(findings)
    notebooks = sorted({one.notebook for one in known})
    verdicts = sorted({one.verdict for one in known})
    controls = {
        "notebook": choice("notebook", [ALL, *notebooks]),
        "verdict": choice("verdict", [ALL, *verdicts]),
        "claim": choice("claim", ["", *(one.id for one in known)]),
    }
    # One of the two lists is enough to find a claim where all views are written down.
    demo = Demo("ledger", partial(ledger_view, known), controls, kept={"notebook": [ALL]})

    def narrow(_: object) -> None:
        # Only claims of the table can be chosen.
        fitting = chosen(known, controls["notebook"].value, controls["verdict"].value)
        before, options = controls["claim"].value, ["", *(one.id for one in fitting)]
        controls["claim"].options = options
        controls["claim"].value = before if before in options else ""

    for name in ("notebook", "verdict"):
        controls[name].observe(narrow, names="value")
    return demo
