"""The ledger: what the lectures claim, measured here, with an interval and an honest verdict.

A claim is an experiment that can come out either way and what must be seen if the claim is true.
An experiment gives figures for several *arms* (with and without pre-training, say), one figure for
each test item; a *contrast* is a sum of their means with signs, and must lie between two bounds.
Intervals are bootstrapped over seeds and items; arms with as many items are paired, item by item.

    finding = measure(elmo.STATIC_VECTORS, profile, seed)      in a notebook
    python -m labkit claims --profile laptop                   all of them
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from classroom import cache
from classroom.figures import arms_of, figure_of, unit_of
from labkit.keeping.files import fingerprint
from labkit.paths import data_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "does not hold here", "not significant", "not tested at this size"]
SEEDS = {"smoke": 1, "laptop": 3, "gpu": 5}
DRAWS = 1_000
# What has no say in what an experiment gives.
NOT_MEASURING = ("cli", "demos", "exercises.py", "figures.py", "ledger.py", "pages", "plots.py",
                 "running.py", "sweeps.py")  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What an experiment found with one seed."""

    arms: Mapping[str, Sequence[float]]
    """For each arm a figure for each item, such as the loss of each document. Items should be
    independent: documents rather than words."""
    best: Mapping[str, float] = field(default_factory=dict)
    """The lowest loss or the highest accuracy that is possible, for arms for which it is known."""
    note: str = ""


@dataclass(frozen=True)
class Contrast:
    """A sum of arms that lies above one bound and below another if the claim is true."""

    says: str
    weights: Mapping[str, float]
    above: float = 0.0
    below: float = math.inf


@dataclass(frozen=True)
class Claim:
    """What is claimed, by whom, and how it is measured."""

    id: str
    says: str
    where: str
    """Who says so: the paper with its section, or the lecture."""
    notebook: str
    unit: str
    """Of the arms: "accuracy", "nats a word", …"""
    experiment: Callable[[str, int], Measured | None]
    """(profile, seed) → figures; None where it cannot be tested at this size. A function of a
    module, since several seeds run in several processes."""
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True)
class Arm:
    """The mean of an arm, its interval, and the mean with each seed."""

    mean: float
    low: float
    high: float
    by_seed: list[float]
    best: float | None = None


@dataclass(frozen=True)
class Seen:
    """What was seen of a contrast."""

    says: str
    value: float
    low: float
    high: float
    above: float
    below: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Finding:
    """A claim with what was found: a row of the ledger."""

    id: str
    says: str
    where: str
    notebook: str
    unit: str
    profile: str
    seeds: list[int]
    verdict: Verdict
    arms: dict[str, Arm]
    contrasts: list[Seen]
    seconds: float
    note: str = ""
    expected: dict[str, list[float]] = field(default_factory=dict)

    def __str__(self) -> str:
        return text_of(self)

    def __repr__(self) -> str:
        return text_of(self)

    def draw(self) -> "Figure":
        """Return the arms with their intervals, beside what is possible."""
        return arms_of(self)


# ---- measuring


def measure(claim: Claim, profile: str, seed: int = 0, *, seeds: int | None = None) -> Finding:
    """Run the experiment of a claim with as many seeds as the profile has, and judge it.

    What was measured before, by the same code, is not measured again.
    """
    if profile not in SEEDS:
        raise ValueError(f"profile is {profile!r}: choose one of {', '.join(SEEDS)}")
    chosen = [seed + i for i in range(SEEDS[profile] if seeds is None else seeds)]
    if len(chosen) == 1:
        runs = [one_seed(claim, profile, chosen[0])]
    else:
        # A process for each core: small models do not fill two cores with one run.
        with ProcessPoolExecutor(2, get_context("spawn"), _one_thread) as pool:
            runs = list(pool.map(one_seed, [claim] * len(chosen), [profile] * len(chosen), chosen))
    return judged(claim, profile, chosen, runs)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def one_seed(claim: Claim, profile: str, seed: int) -> dict[str, Any]:
    """Run an experiment with one seed, or find what it gave; plain numbers that JSON knows."""
    key = fingerprint(cache.versions(NOT_MEASURING), claim.id, profile, seed)

    def run() -> dict[str, Any]:
        begun = time.perf_counter()
        found = claim.experiment(profile, seed)
        if found is None:
            return {"arms": {}, "best": {}, "note": "", "seconds": 0.0}
        arms = {name: [float(figure) for figure in found.arms[name]] for name in found.arms}
        best = {name: float(figure) for name, figure in found.best.items()}
        seconds = time.perf_counter() - begun
        return {"arms": arms, "best": best, "note": found.note, "seconds": seconds}

    found: dict[str, Any] = cache.kept_json(key, run)
    return found


def judged(
    claim: Claim, profile: str, seeds: Sequence[int], runs: Sequence[Mapping[str, Any]]
) -> Finding:
    """Put the runs of several seeds together, with intervals and the verdict."""
    given = [run["arms"] for run in runs]
    drawn = bootstrap(given)
    arms, seen = {}, []
    if given[0]:
        best = {name: np.mean([run["best"][name] for run in runs]) for name in runs[0]["best"]}
        for name in given[0]:
            by_seed = [float(np.mean(one[name])) for one in given]
            low, high = (float(edge) for edge in np.quantile(drawn[name], (0.025, 0.975)))
            ceiling = float(best[name]) if name in best else None
            arms[name] = Arm(float(np.mean(by_seed)), low, high, by_seed, ceiling)
        seen = [_seen(contrast, arms, drawn) for contrast in claim.contrasts]
    seconds = sum(run["seconds"] for run in runs)
    return Finding(
        claim.id, claim.says, claim.where, claim.notebook, claim.unit, profile, list(seeds),
        verdict([one.verdict for one in seen]), arms, seen, seconds, runs[0]["note"],
        expected(claim.id, profile),
    )  # fmt: skip


def bootstrap(runs: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, np.ndarray]:
    """Means of each arm under resampled seeds and, within a seed, resampled items [draws]."""
    random = np.random.default_rng(0)
    seeds = len(runs)
    drawn_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    means = {name: np.zeros(DRAWS) for name in (runs[0] if runs else ())}
    for seed, run in enumerate(runs):
        shares: dict[int, np.ndarray] = {}
        for name, items in run.items():
            count = len(items)
            if count not in shares:
                even = np.full(count, 1 / count)
                shares[count] = random.multinomial(count, even, size=DRAWS) / count
            means[name] += drawn_seeds[:, seed] * (shares[count] @ np.asarray(items, float))
    return means


def _seen(contrast: Contrast, arms: Mapping[str, Arm], drawn: Mapping[str, np.ndarray]) -> Seen:
    unknown = [name for name in contrast.weights if name not in arms]
    if unknown:
        raise ValueError(f"there is no arm {unknown[0]!r}: the arms are {', '.join(arms)}")
    value = sum(weight * arms[name].mean for name, weight in contrast.weights.items())
    spread = sum(weight * drawn[name] for name, weight in contrast.weights.items())
    low, high = (float(edge) for edge in np.quantile(spread, (0.025, 0.975)))
    below = None if math.isinf(contrast.below) else contrast.below
    return Seen(
        contrast.says, value, low, high, contrast.above, below,
        verdict_of(low, high, contrast.above, contrast.below),
    )  # fmt: skip


def verdict_of(low: float, high: float, above: float, below: float) -> Verdict:
    """Judge an interval by its bounds: inside, outside, or across one of them."""
    if above < low and high < below:
        return "holds"
    if high <= above or below <= low:
        return "does not hold here"
    return "not significant"


def verdict(parts: Sequence[Verdict]) -> Verdict:
    """A claim holds if all its contrasts do, and does not if one of them does not."""
    if not parts:
        return "not tested at this size"
    worse: tuple[Verdict, ...] = ("does not hold here", "not significant")
    for worst in worse:
        if worst in parts:
            return worst
    return "holds"


# ---- what is expected, and what is kept


def _folder() -> Path | None:
    try:
        return data_path("claims")
    except FileNotFoundError:
        return None


def expected(claim: str, profile: str) -> dict[str, list[float]]:
    """Between which figures each arm of a claim must lie, whatever the seed and the machine."""
    folder = _folder()
    if folder is None or not (folder / "expected.json").is_file():
        return {}
    known = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    found: dict[str, list[float]] = known.get(claim, {}).get(profile, {})
    return found


def intervals(finding: Finding) -> dict[str, list[float]]:
    """Between which figures each arm will lie with another seed."""
    return {
        name: interval(arm.by_seed, unit_of(name, finding.unit))
        for name, arm in finding.arms.items()
    }


def interval(figures: Sequence[float], unit: str = "") -> list[float]:
    """Where another seed's figure will lie: four deviations around the mean of these."""
    if len(figures) < 5:
        raise ValueError(f"an interval from {len(figures)} seeds: give at least 5")
    mean, deviation = float(np.mean(figures)), float(np.std(figures, ddof=1))
    room = 4 * deviation + 0.02 * abs(mean)
    low, high = mean - room, mean + room
    if unit.startswith(("accuracy", "share")):
        # A share of something is never below 0 or above 1; but of two printed figures it may be.
        low, high = max(low, min(0.0, *figures)), min(high, max(1.0, *figures))
    return [float(f"{low:.3g}"), float(f"{high:.3g}")]


def rows(files: Iterable[Path] | None = None) -> list[Finding]:
    """Read the committed ledger: one finding for each claim that was measured."""
    folder = _folder()
    if files is None:
        files = sorted(folder.glob("*.json")) if folder else ()
    return [read(path) for path in files if path.name != "expected.json"]


def read(path: Path) -> Finding:
    """Read one row of the ledger."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: kept[name] for name in Finding.__dataclass_fields__ if name in kept}
    kept["arms"] = {name: Arm(**arm) for name, arm in kept["arms"].items()}
    kept["contrasts"] = [Seen(**seen) for seen in kept["contrasts"]]
    return Finding(**kept)


def plain(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON knows it, with figures of six digits."""
    found: dict[str, Any] = _rounded(asdict(finding))
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


# ---- how it looks


def inside(value: float, low: float, high: float, unit: str = "") -> str:
    """Write a measured figure beside the interval in which it must fall.

    ⟨…⟩ holds what differs from machine to machine; the tests compare all but that.
    """
    said = "yes" if low <= value <= high else "NO"
    unit = f" {unit}" if unit else ""
    return f"⟨{figure_of(value)}⟩{unit}, expected {figure_of(low)} … {figure_of(high)}: {said}"


def text_of(finding: Finding) -> str:
    """Write a finding as text; what differs from machine to machine stands in ⟨…⟩."""
    wide = max([len(name) for name in finding.arms], default=0)
    lines = [f"{finding.id}: {finding.says}", f"({finding.where})", f"{finding.unit}:"]
    for name, arm in finding.arms.items():
        bounds = finding.expected.get(name)
        figure = inside(arm.mean, bounds[0], bounds[1]) if bounds else f"⟨{figure_of(arm.mean)}⟩"
        best = "" if arm.best is None else f"; possible ⟨{figure_of(arm.best)}⟩"
        lines.append(f"  {name:<{wide}}  {figure}{best}")
    for seen in finding.contrasts:
        lines.append(
            f"{seen.says}: ⟨{figure_of(seen.value)}, 95 % of {figure_of(seen.low)} … "
            f"{figure_of(seen.high)}: {seen.verdict}⟩"
        )
    seeds = f"{len(finding.seeds)} seed{'s' if len(finding.seeds) > 1 else ''}"
    lines.append(f"verdict with {seeds} at this size: ⟨{finding.verdict}⟩")
    return "\n".join(lines)


def table(findings: Sequence[Finding]) -> str:
    """The ledger as lines of text: each claim with what was seen of it, and the verdict."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.id}: {finding.verdict}")
        lines.append(f"    {finding.says} ({finding.notebook}; {finding.where})")
        for seen in finding.contrasts:
            bounds = f"above {figure_of(seen.above)}" if seen.above > float("-inf") else ""
            bounds += f" below {figure_of(seen.below)}" if seen.below is not None else ""
            lines.append(
                f"    {seen.says}: {figure_of(seen.value)} [{figure_of(seen.low)}, "
                f"{figure_of(seen.high)}], must be {bounds.strip()}: {seen.verdict}"
            )
    verdicts = [finding.verdict for finding in findings]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts)))
    return "\n".join([*lines, f"{len(findings)} claims: {counts or 'none'}"])
