"""The ledger, to look through: what is claimed, what was measured here, and the verdict.

Read `ledger_view`, the pure function; `classroom.ledger` measures and judges.
"""

from collections.abc import Callable, Sequence

from classroom.demos.base import Demo, choice
from classroom.demos.drawing import (
    BAR,
    View,
    clean,
    heading,
    note,
    page,
    problem,
    safe,
    short,
    table,
)
from classroom.figures import figure_of
from classroom.ledger import Arm, Finding, rows

ALL = "all"
WIDTH, LABEL, LINE = 640, 210, 32


def chosen(findings: Sequence[Finding], notebook: str, verdict: str) -> list[Finding]:
    """The findings of a notebook that came out so; "all" leaves none out."""
    return [
        one for one in findings if notebook in (ALL, one.notebook) and verdict in (ALL, one.verdict)
    ]


def ledger_view(
    findings: Sequence[Finding], notebook: str = ALL, verdict: str = ALL, claim: str = ""
) -> View:
    """A table of the claims that fit, and everything about one of them."""
    if not findings:
        said = "The ledger is empty: measure the claims with python -m labkit claims --store."
        return page("ledger", problem(said))
    fitting = chosen(findings, notebook, verdict)
    listed = [[one.id, one.verdict, one.says, one.notebook] for one in fitting]
    pieces = [
        heading(f"{len(fitting)} of {len(findings)} claims"),
        table(["claim", "verdict", "what it says", "notebook"], listed, name="claims"),
    ]
    if not fitting:
        pieces[1] = problem("No claim fits: choose another notebook or verdict.")
    about = next((one for one in findings if one.id == claim), None)
    if about is not None:
        pieces += details(about)
    return page("ledger", *pieces)


def details(finding: Finding) -> list[View]:
    """Where a claim comes from, its arms with intervals and floors, and what was to be seen."""
    seeds = f"{len(finding.seeds)} seed{'s' if len(finding.seeds) != 1 else ''}"
    pieces = [
        heading(f"{finding.id}: {finding.verdict}"),
        note(f"{finding.says} ({finding.where})", "says"),
        note(f"Profile {finding.profile}, {seeds}, {finding.seconds:,.0f} s.", "run"),
    ]
    if finding.note:
        pieces.append(note(finding.note, "remark"))
    if not finding.arms:
        pieces.append(note("Not tested at this size.", "untested"))
        return pieces
    pieces += [intervals(finding), arms(finding), heading("What must be seen"), contrasts(finding)]
    return pieces


def arms(finding: Finding) -> View:
    """One line for each arm."""
    shown = [
        [
            name,
            figure_of(arm.mean),
            f"{figure_of(arm.low)} … {figure_of(arm.high)}",
            "–" if arm.best is None else figure_of(arm.best),
            ", ".join(map(figure_of, arm.by_seed)),
        ]
        for name, arm in finding.arms.items()
    ]
    head = ["arm", finding.unit, "95 % interval", "possible at best", "by seed"]
    return table(head, shown, name="arms")


def contrasts(finding: Finding) -> View:
    """What had to be seen, and what was."""
    shown = []
    for seen in finding.contrasts:
        bound = f"> {figure_of(seen.above)}" if seen.above != float("-inf") else ""
        bound += f" < {figure_of(seen.below)}" if seen.below is not None else ""
        interval = seen.edges.strip(" []")
        shown.append([seen.says, bound.strip(), figure_of(seen.value), interval, seen.verdict])
    head = ["contrast", "bound", "seen", "95 % interval", "verdict"]
    return table(head, shown, name="contrasts")


def intervals(finding: Finding) -> View:
    """The arms on one line of numbers: a dot, its interval, and a dashed mark for the best."""
    every = [
        number
        for arm in finding.arms.values()
        for number in (arm.low, arm.high, arm.mean, arm.best)
        if number is not None
    ]
    low, high = min(every), max(every)
    room = (high - low) or 1.0

    def x(number: float) -> str:
        return f"{LABEL + 10 + (number - low) / room * (WIDTH - LABEL - 70):.1f}"

    lines = [
        one_arm(short(clean(name)), arm, n * LINE + 22, x)
        for n, (name, arm) in enumerate(finding.arms.items())
    ]
    height = len(lines) * LINE + 10
    said = f"Arms of {clean(finding.id)} in {clean(finding.unit)}; the dashes are the best possible"
    html = (
        f'<svg data-arms="{len(lines)}" role="img" aria-label="{safe(said)}" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" fill="currentColor">{"".join(lines)}</svg>'
    )
    return View(html, said)


def one_arm(name: str, arm: Arm, y: int, x: Callable[[float], str]) -> str:
    """The line of one arm."""
    best = ""
    if arm.best is not None:
        best = (
            f'<path data-best="{arm.best:.4f}" d="M{x(arm.best)} {y - 11}v20" '
            f'stroke="currentColor" stroke-dasharray="3 2" fill="none"/>'
        )
    return (
        f'<text x="{LABEL}" y="{y + 4}" text-anchor="end">{safe(name)}</text>'
        f'<path d="M{x(arm.low)} {y}H{x(arm.high)}" stroke="{BAR}" stroke-width="3"/>'
        f'<circle cx="{x(arm.mean)}" cy="{y}" r="4" fill="{BAR}"/>'
        f'<text x="{x(arm.mean)}" y="{y - 7}" text-anchor="middle">{figure_of(arm.mean)}</text>'
        f"{best}"
    )


def ledger_demo(findings: Sequence[Finding] | None = None) -> Demo:
    """Look through the ledger of the course, or through findings of your own."""
    known = rows() if findings is None else list(findings)
    notebooks = sorted({one.notebook for one in known})
    verdicts = sorted({one.verdict for one in known})

    def draw(notebook: str, verdict: str, claim: str) -> View:
        return ledger_view(known, notebook, verdict, claim)

    controls = {
        "notebook": choice("notebook", [ALL, *notebooks]),
        "verdict": choice("verdict", [ALL, *verdicts]),
        "claim": choice("claim", ["", *(one.id for one in known)]),
    }
    demo = Demo("ledger", draw, controls)

    def narrow(_: object) -> None:
        # Only claims of the table can be asked about.
        fitting = chosen(known, controls["notebook"].value, controls["verdict"].value)
        before, options = controls["claim"].value, ["", *(one.id for one in fitting)]
        controls["claim"].options = options
        controls["claim"].value = before if before in options else ""

    for name in ("notebook", "verdict"):
        controls[name].observe(narrow, names="value")
    return demo
