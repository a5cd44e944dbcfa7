"""A verdict is right when the truth is known, and intervals hold what they should as often."""

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
from coins import broken, coins, killed, nothing

from classroom import ledger
from classroom.charts.figures import unit_of
from classroom.claims import addresses, alignment, claims, eras
from classroom.cli import main
from classroom.cli.claims import expect, measure_all, store
from classroom.demos.ledger import arms, ledger_view
from classroom.findings import finding_chart, sentence, show_finding
from classroom.judging import estimate, overall
from classroom.ledger import Claim, Contrast, measure, table, text_of
from classroom.running.children import end_processes, processes
from labkit.keeping.files import write_json
from labkit.keeping.paths import data_path
from labkit.world import LANGUAGES


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))


def claim(*contrasts: Contrast, id: str = "coins", experiment=coins) -> Claim:  # type: ignore[no-untyped-def]
    return Claim(
        id, "good beats poor", "nowhere", "00_start_here", "accuracy", experiment, contrasts
    )


FOLDERS = {"crawl": "language", "foreign": "translation"}
"""Languages without a folder of their own, and the one that they are made from."""
BETTER = Contrast("good - poor", {"good": 1, "poor": -1})
WORSE = Contrast("poor - good", {"good": -1, "poor": 1})
FAR = Contrast("good - poor above 0.2", {"good": 1, "poor": -1}, above=0.2)
NEAR = Contrast("good - poor between", {"good": 1, "poor": -1}, above=0.1, below=0.3)


@pytest.mark.parametrize(
    ("contrasts", "wanted"),
    [
        ([BETTER], "holds"), ([WORSE], "does not hold here"), ([FAR], "not significant"),
        ([NEAR], "holds"), ([BETTER, FAR], "not significant"),
        ([BETTER, FAR, WORSE], "does not hold here"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_one_that_is_true(contrasts: list[Contrast], wanted: str) -> None:
    asked, seeds = claim(*contrasts), range(8)
    runs = [ledger.one_seed(asked, "smoke", seed) for seed in seeds]
    assert ledger.judged(asked, "smoke", seeds, runs).verdict == wanted


def test_an_arm_that_cannot_be_better_is_named() -> None:
    finding = measure(claim(BETTER), "smoke")
    assert ledger.at_ceiling(finding) == ([] if finding.arms["good"].mean < 0.79 else ["good"])
    best = replace(finding.arms["poor"], best=finding.arms["poor"].mean + 0.005)
    flat = replace(finding, arms={"poor": best})
    assert ledger.at_ceiling(flat) == ["poor"]
    assert "poor: at its ceiling" in table([flat])


def test_a_single_seed_gives_figures_and_no_verdict() -> None:
    finding = measure(claim(BETTER), "smoke")
    assert finding.verdict == "not judged"
    [seen] = finding.contrasts
    assert (seen.low, seen.high, seen.edges) == (None, None, "")


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_a_figure_that_is_not_finite_is_named_and_not_judged(
    figure: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [ledger.one_seed(claim(BETTER), "smoke", seed) for seed in range(100, 105)]
    runs[3]["arms"]["poor"][17] = figure
    with pytest.raises(ValueError, match=f"arm 'poor' with seed 103 gave {figure} for item 17: "):
        ledger.judged(claim(BETTER), "smoke", range(100, 105), runs)
    asked = {"one": claim(BETTER, id="one"), "two": claim(BETTER, id="two")}
    monkeypatch.setattr("classroom.cli.claims._alone", lambda one, profile, seed: (
        runs[seed - 100] if one.id == "one" else ledger.one_seed(one, profile, seed)))  # fmt: skip
    seeds = dict.fromkeys(asked, range(100, 105))
    assert [one.id for one, _ in measure_all(asked, "smoke", seeds, jobs=1)] == ["two"]
    assert "FAILED: arm 'poor' with seed 103" in capsys.readouterr().out


def test_a_single_seed_is_shown_without_an_interval() -> None:
    one, three = (measure(claim(BETTER), "smoke", seeds=seeds) for seeds in (1, 3))
    shown = {len(each.seeds): [row[2] for row in arms(each).rows] for each in (one, three)}
    assert shown[1] == ["–", "–"]
    assert all(" … " in interval for interval in shown[3])
    bars = [[line for line in finding_chart(each).axes[0].lines if len(line.get_xdata()) > 1]
            for each in (one, three)]  # fmt: skip
    assert [len(some) for some in bars] == [0, 2]


def test_seeds_run_in_several_processes_and_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = [ledger.one_seed(claim(BETTER), "laptop", seed) for seed in (4, 5, 6)]
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "another"))  # nothing is found there
    together = measure(claim(BETTER), "laptop", 4)
    assert together.seeds == [4, 5, 6]
    assert together.arms["good"].by_seed == [np.mean(run["arms"]["good"]) for run in one_by_one]
    alone = ledger.judged(claim(BETTER), "laptop", together.seeds, one_by_one)
    assert replace(together, seconds=0) == replace(alone, seconds=0)


def test_what_cannot_be_tested_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = measure(claim(BETTER, experiment=nothing, id="nothing"), "smoke")
    assert finding.verdict == "not tested at this size"
    assert "not tested" in str(finding)
    # A notebook shows no chart of it, and does not fail.
    monkeypatch.setattr("classroom.findings._now", lambda *_: finding)
    shown = list[Any]()
    monkeypatch.setattr("IPython.display.display", lambda one, **_: shown.append(one))
    show_finding("real-labels", measured=("smoke", 0))
    assert "was not tested: this size or this machine" in shown[0]["text/plain"]
    assert len(shown) == 2


def test_what_could_not_be_tested_replaces_no_kept_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"six-n-d": claim(BETTER, experiment=nothing, id="six-n-d")}
    monkeypatch.setattr("classroom.claims.claims", lambda: known)
    folder = tmp_path / "ledger"
    folder.mkdir()
    monkeypatch.setattr("classroom.cli.claims._folder", lambda: folder)
    words = ["claims", "six-n-d", "--seeds", "5", "--jobs", "1", "--store", "--expect"]
    assert main(words) == 0
    assert "six-n-d                is not stored: this size or this machine" in (
        capsys.readouterr().out
    )
    assert not list(folder.iterdir())


def test_an_unknown_arm_or_profile_is_named() -> None:
    with pytest.raises(ValueError, match="there is no arm 'best': the arms are good, poor"):
        measure(claim(Contrast("best", {"best": 1})), "smoke")
    with pytest.raises(ValueError, match="profile is 'tiny': choose smoke, laptop or gpu"):
        measure(claim(BETTER), "tiny")


def test_a_finding_is_kept_and_read_again(tmp_path: Path) -> None:
    chosen = {"coins": claim(BETTER, NEAR)}
    [(finding, runs)] = measure_all(chosen, "smoke", {"coins": range(100, 105)}, jobs=2)
    store(finding, runs, tmp_path, ["coins"])
    kept = ledger.read(tmp_path / "coins.json")
    assert kept.verdict == finding.verdict
    assert kept.arms["good"].mean == pytest.approx(finding.arms["good"].mean, rel=1e-5)
    assert [seen.below for seen in kept.contrasts] == [None, 0.3]
    raw = json.loads((tmp_path / "coins.json").read_text())
    assert {"command", "versions"} < set(raw)
    assert {"date", "machine", "seconds", "texts"} == set(ledger.records(tmp_path)["coins"])
    assert "good beats poor" in table([kept])
    assert "1 claim: holds 1" in table([kept])
    assert "min  all 1 claim, on one core" in ledger.cost([kept])
    with np.load(tmp_path / "items" / "coins.npz") as items:
        assert items["good"].shape == (5, 400)
        seeds = zip(items["good"], items["poor"], strict=True)
        again = estimate([{"good": g, "poor": p} for g, p in seeds], BETTER.weights, shared=True)
    seen = kept.contrasts[0]
    assert again.value == pytest.approx(seen.value, abs=1e-5)
    assert again.interval() == pytest.approx((seen.low, seen.high), abs=1e-4)


def test_commands_that_store_at_the_same_time_lose_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*given: object, **how: object) -> None:
        time.sleep(0.05)  # long enough for another one to have read what is replaced here
        write_json(*given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr("classroom.cli.claims.write_json", slowly)
    finding = measure(claim(BETTER), "smoke", seeds=5)
    runs = [ledger.one_seed(claim(BETTER), "smoke", seed) for seed in finding.seeds]
    names = ["one", "two", "three"]

    def keep(name: str) -> None:
        store(replace(finding, id=name), runs, tmp_path, [name])
        expect(replace(finding, id=name), tmp_path)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(keep, names))
    assert set(ledger.records(tmp_path)) == set(names)
    assert set(json.loads((tmp_path / "expected.json").read_text())) == set(names)


def test_changed_bounds_take_the_verdict_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [finding] = [row for row in ledger.rows() if row.id == "six-n-d"]
    kept = {**ledger.plain(finding), "digest": ledger.digest_of("six-n-d")}
    (tmp_path / "six-n-d.json").write_text(json.dumps(kept))
    assert ledger.read(tmp_path / "six-n-d.json").verdict == finding.verdict
    contrasts = ledger.bounds()["six-n-d"]["contrasts"]
    for changed, verdict in (
        ([{**one, "says": "in other words"} for one in contrasts], finding.verdict),
        ([{**one, "above": 0.123} for one in contrasts], "bounds changed after measuring"),
        ([{**one, "weights": {}} for one in contrasts], "bounds changed after measuring"),
        (contrasts[1:], "bounds changed after measuring"),
    ):
        monkeypatch.setattr(ledger, "bounds", lambda c=changed: {"six-n-d": {"contrasts": c}})
        assert ledger.read(tmp_path / "six-n-d.json").verdict == verdict


def test_the_ledger_says_what_the_bounds_say() -> None:
    for row in ledger.rows():
        about = ledger.bounds()[row.id]
        assert (row.says, row.where) == (about["says"], about["where"])
        assert [seen.says for seen in row.contrasts] == [one["says"] for one in about["contrasts"]]


def test_a_claim_that_was_measured_on_other_texts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [finding] = [row for row in ledger.rows() if row.id == "albert"]
    (tmp_path / "albert.json").write_text(json.dumps(ledger.plain(finding)))
    records = {"albert": {"seconds": 5, "texts": ledger.digest_of_texts("albert")}}
    (tmp_path / "runs.json").write_text(json.dumps(records))
    kept = ledger.read(tmp_path / "albert.json")
    assert not kept.outdated
    assert "earlier version" not in table([kept])
    village = tmp_path / "data" / "village"
    village.mkdir(parents=True)
    (village / "village.txt").write_text(data_path("village", "village.txt").read_text() + "# \n")
    monkeypatch.setattr(ledger, "data_path", lambda *names: tmp_path.joinpath("data", *names))
    monkeypatch.setattr(ledger, "digest_of", lambda id: finding.digest)
    kept = ledger.read(tmp_path / "albert.json")
    assert kept.outdated
    assert table([kept]).endswith("; 1 on an earlier version of their texts or models")
    # Whoever reads the finding in a notebook learns it, too.
    view = str(ledger_view([kept], claim="albert").text)
    for said in (text_of(kept), sentence(kept), view):
        assert "easured on an earlier version of its texts or models" in said
    assert ledger.OUTDATED not in sentence(finding)


def test_a_claim_that_began_with_another_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "data_path", lambda *names: tmp_path.joinpath("data", *names))
    about = {"one": {"texts": [], "models": ["gpt/weights-*"]}, "other": {"texts": []}}
    monkeypatch.setattr(ledger, "bounds", lambda: about)
    folder = tmp_path / "data" / "models" / "gpt"
    folder.mkdir(parents=True)
    (folder / "weights-1").write_bytes(b"1")
    before = [ledger.digest_of_texts(name) for name in about]
    (folder / "card.json").write_text("{}")
    assert [ledger.digest_of_texts(name) for name in about] == before
    (folder / "weights-1").write_bytes(b"2")
    after = [ledger.digest_of_texts(name) for name in about]
    assert [one == two for one, two in zip(before, after, strict=True)] == [False, True]


def test_every_claim_names_the_models_that_it_begins_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(name: str | Path, **_: object) -> NoReturn:
        raise AskedError(Path(name).name)

    for module, function in ((alignment, "load"), (eras, "trained"), (addresses, "trained")):
        monkeypatch.setattr(module, function, asked)
        for one in module.CLAIMS:
            named = {kind.split("/")[0] for kind in ledger.bounds()[one.id].get("models", ())}
            if one.id == "real-both-sides":  # counts alone
                assert not named
                continue
            with pytest.raises(AskedError) as first:
                one.experiment("smoke", 0)
            assert {str(first.value)} == named, one.id
    for name, about in ledger.bounds().items():
        for kind in about.get("models", ()):
            assert list(data_path("models").glob(kind)), name
    begun = [Path(path).stem for path in Path(alignment.__file__).parent.glob("*.py")
             if "labkit.weights import load" in (text := path.read_text(encoding="utf-8"))
             or "shipped import" in text]  # fmt: skip
    assert sorted(begun) == ["addresses", "alignment", "eras"]


def test_every_claim_names_the_folders_that_its_models_read() -> None:
    folders = {"addresses", "translation", *LANGUAGES} - FOLDERS.keys()
    for name, about in ledger.bounds().items():
        assert set(about["texts"]) <= folders, name
        assert ledger.digest_of_texts(name)


class AskedError(Exception):
    """An experiment asks for a language."""


def test_every_claim_names_the_language_that_it_loads_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(name: str) -> None:
        raise AskedError(FOLDERS.get(name, name))

    monkeypatch.setattr("labkit.world.world._of_the_course", asked)
    for name, one in claims().items():
        texts = set(ledger.bounds()[name]["texts"])
        if texts & set(LANGUAGES):
            with pytest.raises(AskedError) as first:
                one.experiment("smoke", 0)
            assert str(first.value) in texts, name


def test_every_claim_has_bounds_that_were_written_down_before() -> None:
    assert set(ledger.bounds()) == set(claims())
    with pytest.raises(ValueError, match="has no claim 'wish': write its bounds down"):
        ledger.claim("wish", coins)


def test_text_hides_from_the_comparison_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"good": [0.7, 0.9], "poor": [0.1, 0.2]}
    monkeypatch.setattr(ledger, "expected", lambda claim, profile: bounds)
    said = text_of(measure(claim(BETTER), "smoke"))
    lines = [line.strip() for line in said.splitlines()]
    good, poor = (next(x for x in lines if x.startswith(arm)) for arm in ("good  ", "poor  "))
    assert good.startswith("good  ⟨0.")
    assert "expected 0.700 … 0.900: yes; possible ⟨0.800⟩" in good
    # A figure outside its interval is seen by whoever compares the outputs.
    assert "expected 0.100 … 0.200: NO" in poor
    assert ledger.inside(0.25, 0.2, 0.3, "nats") == "⟨0.250⟩ nats, expected 0.200 … 0.300: yes"


def test_expected_intervals_need_five_seeds(tmp_path: Path) -> None:
    finding = measure(claim(BETTER), "smoke", seeds=5)
    expect(finding, tmp_path)
    kept = json.loads((tmp_path / "expected.json").read_text())
    low, high = kept["coins"]["smoke"]["good"]
    assert low < min(finding.arms["good"].by_seed) < max(finding.arms["good"].by_seed) < high
    with pytest.raises(ValueError, match="at least 5"):
        ledger.interval([1.0] * 4)


@pytest.mark.parametrize("row", ledger.rows(), ids=lambda row: row.id)
def test_what_is_expected_is_what_was_measured(row: ledger.Finding) -> None:
    expected = ledger.expected(row.id, row.profile)
    assert not expected or expected.keys() == row.arms.keys()
    for name, (low, high) in expected.items():
        assert low <= row.arms[name].mean <= high, name


def test_no_share_is_expected_to_be_more_than_all() -> None:
    figures = [0.9, 1.0, 1.0, 0.8, 1.0]
    assert ledger.interval(figures, "nats per word")[1] > 1
    for unit in ("accuracy", "share of the sentences"):
        low, high = ledger.interval(figures, unit)
        assert (low, high) == (ledger.interval(figures)[0], 1.0)
        assert ledger.interval([1 - figure for figure in figures], unit)[0] == 0.0
    assert ledger.interval([1.01] * 5, "share")[1] >= 1.01


def test_a_picture_shows_every_arm() -> None:
    figure = finding_chart(measure(claim(BETTER), "smoke"))
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["good", "poor"]
    assert "good: " in figure.says


def test_figures_of_different_units_have_a_panel_each() -> None:
    units = "nats per word (loss), accuracy (senses), times"
    arms = {"a: loss": "nats per word", "a: senses right": "accuracy", "parameters": "times"}
    assert {arm: unit_of(arm, units) for arm in arms} == arms
    assert unit_of("late, transferred", "nats per word, mean of documents") == (
        "nats per word, mean of documents"
    )
    figure = finding_chart(measure(replace(claim(BETTER), unit="share, times (poor)"), "smoke"))
    labels = [axes.get_xlabel().split(" (")[0] for axes in figure.axes]
    assert labels == ["share", "times"]


def test_a_claim_that_fails_is_said_and_the_others_are_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = {"broken": claim(BETTER, id="broken", experiment=broken), "coins": claim(BETTER)}
    [(finding, _)] = measure_all(chosen, "smoke", dict.fromkeys(chosen, (0, 1)), jobs=2)
    assert finding.id == "coins"
    assert finding.seeds == [0, 1]
    said = capsys.readouterr().out
    assert said.count("FAILED: RuntimeError: out of ink") == 2
    assert said.count("coins") == 2


def test_a_second_run_writes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, written = {"coins": claim(BETTER)}, []
    for turn in ("first", "second"):
        monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / f"cache-{turn}"))
        [(finding, runs)] = measure_all(chosen, "smoke", {"coins": range(100, 103)}, jobs=2)
        store(finding, runs, tmp_path / turn, ["coins"])
        written.append((tmp_path / turn / "coins.json").read_bytes())
    assert written[0] == written[1]


def test_a_run_that_is_killed_takes_no_other_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = {"killed": claim(BETTER, id="killed", experiment=killed), "coins": claim(BETTER)}
    found = list(measure_all(chosen, "smoke", dict.fromkeys(chosen, (0,)), jobs=1))
    assert [finding.id for finding, _ in found] == ["coins"]
    assert "killed                 seed 0  FAILED: BrokenProcessPool" in capsys.readouterr().out


def test_whoever_stops_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("one", "two")
    chosen = {name: claim(BETTER, id=name) for name in names}
    runs = measure_all(chosen, "smoke", dict.fromkeys(names, (0,)), jobs=1)
    first, _ = next(runs)
    runs.close()
    again = {finding.id: finding for finding, _ in
             measure_all(chosen, "smoke", dict.fromkeys(names, (0,)), jobs=1)}  # fmt: skip
    assert set(again) == set(names)
    # The same number of seconds: it was found, not measured again.
    assert again[first.id] == first


@pytest.mark.skipif(sys.platform != "linux", reason="there is a server on Linux alone")
def test_a_server_that_ends_slowly_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with processes(1) as pool:
        pool.submit(os.getpid).result()
    kill = psutil.Process.kill
    monkeypatch.setattr(
        psutil.Process, "kill", lambda process: threading.Timer(0.5, kill, [process]).start()
    )
    end_processes()
    with processes(1) as pool:
        assert pool.submit(time.sleep, 1).result() is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new-yrok"], "there is no claim new-yrok; did you mean new-york?"),
        (["new-york", "--expect", "--seeds", "2"], "give --seeds 5 or more"),
        (["new-york", "--seed", "-5"], "--seed: '-5': give a whole number, 0 or more"),
        (["new-york", "--seed", "9" * 20], "give a whole number, 0 to 2147483648"),
        (["--kept", "--cost"], "--cost: not allowed with argument --kept"),
        (["--kept", "--store"], "--store does nothing beside --kept, which measures nothing"),
        (["--cost", "--seeds", "5"], "--seeds does nothing beside --cost"),
        (["--kept", "--profile", "gpu"], "--profile does nothing beside --kept"),
        (["--cost", "--jobs", "2"], "--jobs does nothing beside --cost"),
        (["new-york", "--seeds", "0"], "argument --seeds: '0': give a whole number"),
        (["new-york", "--profile", "smoke", "--store"], "--store with --profile smoke"),
        (["new-york", "--profile", "lap"], "did you mean laptop?"),
    ],
)
def test_a_mistake_on_the_command_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["claims", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("count", "said"), [("1", "1 seed"), ("4", "4 seeds")])
def test_no_finding_without_a_verdict_replaces_a_kept_one(
    count: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("classroom.cli.claims._folder", lambda: pytest.fail("it would store"))
    with pytest.raises(SystemExit) as left:
        main(["claims", "new-york", "--seeds", count, "--store"])
    assert left.value.code == 2
    assert f"--store with {said}: give --seeds 5 or more" in capsys.readouterr().err


def test_ctrl_c_ends_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python would wait for all runs before it ends."""
    stopped = threading.Event()

    def interrupted(futures: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("classroom.cli.claims._alone", lambda *_: stopped.wait(60))
    monkeypatch.setattr("classroom.cli.claims.as_completed", interrupted)
    monkeypatch.setattr("classroom.cli.claims.end_processes", stopped.set, raising=False)
    seeds = {"coins": range(3)}
    with pytest.raises(KeyboardInterrupt):
        next(measure_all({"coins": claim(BETTER)}, "smoke", seeds, jobs=1))
    assert stopped.is_set()


def test_the_kept_ledger_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--kept"]) == 0
    assert "claims: " in capsys.readouterr().out


# ---- the claims of the course


def test_claims_have_notebooks_and_arms_that_differ() -> None:
    root = Path(__file__).resolve().parent.parent
    for one in claims().values():
        assert (root / "notebooks" / f"{one.notebook}.ipynb").is_file(), one.id
        assert one.contrasts, f"{one.id} can come out one way only"
        assert one.where, one.id


def test_the_ledger_holds_only_claims_that_there_are() -> None:
    known = claims()
    for finding in ledger.rows():
        assert finding.id in known
        assert [seen.says for seen in finding.contrasts] == [
            c.says for c in known[finding.id].contrasts
        ]
        weights = [c.weights for c in known[finding.id].contrasts]
        values = [sum(w * finding.arms[arm].mean for arm, w in each.items()) for each in weights]
        assert values == pytest.approx(
            [seen.value for seen in finding.contrasts], rel=1e-3, abs=1e-4
        )
        assert finding.verdict == overall([seen.verdict for seen in finding.contrasts]), finding.id


@pytest.mark.parametrize(
    "raw", ["{", "[]", "{}", '{"arms": 3}', '{"arms": {}, "contrasts": [{"x": 1}]}', "[" * 100_000]
)
def test_a_damaged_finding_is_named(raw: str, tmp_path: Path) -> None:
    path = tmp_path / "coins.json"
    path.write_text(raw)
    with pytest.raises(ValueError, match=r"coins\.json is not a finding of the ledger .*restore"):
        ledger.read(path)


@pytest.mark.parametrize("part", ["arms", "contrasts"])
def test_a_word_among_the_figures_of_a_finding_is_named(part: str, tmp_path: Path) -> None:
    found = json.loads(data_path("claims", "restart.json").read_text(encoding="utf-8"))
    if part == "arms":
        next(iter(found["arms"].values()))["by_seed"][0] = "high"
    else:
        found["contrasts"][0]["value"] = "high"
    (tmp_path / "restart.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"restart\.json is not a finding of the ledger"):
        ledger.read(tmp_path / "restart.json")


def test_a_finding_under_the_name_of_another_claim_is_named(tmp_path: Path) -> None:
    shutil.copy(data_path("claims", "restart.json"), tmp_path / "albert.json")
    with pytest.raises(ValueError, match=r"albert\.json is not a finding .*about 'restart'"):
        ledger.read(tmp_path / "albert.json")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of two rows of the ledger, which a test may damage."""
    folder = tmp_path / "data" / "claims"
    folder.mkdir(parents=True)
    for name in ("bounds.toml", "expected.json", "runs.json", "albert.json", "restart.json"):
        shutil.copy(data_path("claims", name), folder)
    whole = ledger.data_path
    monkeypatch.setattr(
        ledger, "data_path",
        lambda *parts: folder.joinpath(*parts[1:]) if parts[0] == "claims" else whole(*parts),
    )  # fmt: skip
    monkeypatch.setattr("classroom.cli.claims._folder", lambda: folder)
    ledger.bounds.cache_clear()
    yield folder
    ledger.bounds.cache_clear()


@pytest.mark.parametrize(
    ("damaged", "words", "said"),
    [
        ("albert.json", ["--kept"], r"albert\.json is not a finding of the ledger"),
        ("runs.json", ["--cost"], r"labkit claims: \S*runs\.json is not JSON"),
        ("bounds.toml", ["--kept"], r"bounds\.toml is not TOML"),
        ("runs.json", ["six-n-d", "--store"], r"runs\.json is not JSON"),
        ("expected.json", ["six-n-d"], r"expected\.json is not JSON"),
    ],
)
def test_a_damaged_file_of_the_ledger_is_named_in_one_line(
    damaged: str, words: list[str], said: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / damaged).write_text("{")
    with pytest.raises(SystemExit) as left:
        main(["claims", *words])
    assert left.value.code == 1
    written = capsys.readouterr().err
    assert re.search(said, written)
    assert written.count("\n") == 1


@pytest.mark.parametrize(
    ("damaged", "before", "after", "words", "said"),
    [
        ("bounds.toml", "six-n-d", "six", ["--profile", "smoke"], "has no claim 'six-n-d'"),
        ("bounds.toml", 'unit = "', 'unix = "', ["--kept"], "not described .* it lacks unit"),
        ("bounds.toml", "seeds = 8", 'seeds = "8"', ["--store"], r"it lacks seeds \(int\)"),
        ("bounds.toml", "above = ", "abov = ", ["--kept"], "not described .* argument 'abov'"),
        ("bounds.toml", '" = 1,', '" = "1",', ["--kept"], "is not described as a claim is"),
        ("bounds.toml", "[four-quadrants]", "x = 3\n[four-quadrants]", ["--kept"], ": x is not"),
        ("runs.json", '"seconds": ', '"seconds": "many", "s": ', ["--cost"], "albert are 'many'"),
        ("runs.json", '"seconds": ', '"seconds": -', ["--cost"], r"albert are -\d+:"),
        ("runs.json", '"albert": ', '"albert": 3, "s": ', ["--cost"], "albert are None:"),
    ],
)
def test_what_the_ledger_lacks_is_said_in_one_line_with_its_file(
    damaged: str, before: str, after: str, words: list[str], said: str, copied: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("classroom.cli.claims.measure_all", lambda *_: pytest.fail("it measures"))
    for module in [name for name in sys.modules if name.startswith("classroom.claims")]:
        monkeypatch.delitem(sys.modules, module)  # so that each claim is looked up again
    text = (copied / damaged).read_text(encoding="utf-8")
    assert before in text
    (copied / damaged).write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["claims", *words])
    assert left.value.code == 1
    written = capsys.readouterr().err
    assert re.search(rf"labkit claims: \S*{damaged}.*{said}", written)
    assert written.count("\n") == 1


def test_a_ledger_that_cannot_be_written_is_found_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("classroom.cli.claims.measure_all", lambda *_: pytest.fail("it measures"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SystemExit) as left:
        main(["claims", "six-n-d", "--store"])
    assert left.value.code == 1
    assert "cannot be written: leave --store and --expect out" in capsys.readouterr().err


def test_what_a_claim_of_ones_own_lacks_is_found_before_measuring(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("classroom.cli.claims.measure_all", lambda *_: pytest.fail("it measures"))
    bounds = copied / "bounds.toml"
    text = bounds.read_text(encoding="utf-8").partition("[restart]")[2].partition("\n[posterior")[0]
    with bounds.open("a", encoding="utf-8") as file:
        file.write("\n[own]" + text.replace("[restart.", "[own.").replace('"village"', '"nowhere"'))
    for words, said in (["own"], "own has no experiment"), (["own", "--store"], "no data/nowhere"):
        with pytest.raises(SystemExit) as left:
            main(["claims", *words])
        assert left.value.code
        written = capsys.readouterr().err
        assert said in written
        assert written.count("\n") == 1


def test_a_damaged_row_does_not_hide_the_others(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "albert.json").write_text("{")
    assert main(["claims", "--kept", "restart"]) == 0
    assert "restart: holds" in capsys.readouterr().out


def test_stored_items_are_those_of_their_findings() -> None:
    """A damaged file of items would not open, or not give the figures of the ledger."""
    files = sorted(data_path("claims", "items").glob("*.npz"))
    assert files
    assert sum(path.stat().st_size for path in files) < 3e6
    for path in files:
        finding = ledger.read(data_path("claims", f"{path.stem}.json"))
        with np.load(path) as items:
            for name, figures in items.items():
                means = [float(seed[np.isfinite(seed)].mean()) for seed in figures]
                assert means == pytest.approx(finding.arms[name].by_seed, abs=1e-3), path.stem


def test_another_seed_lies_within_four_deviations_and_two_hundredths() -> None:
    low, high = ledger.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    room = 4 * 2.5**0.5 + 0.02 * 3
    assert (low, high) == (float(f"{3 - room:.3g}"), float(f"{3 + room:.3g}"))


def test_a_process_that_is_killed_leaves_no_semaphore_behind() -> None:
    with processes(1) as pool:
        lock = pool.submit(eval, "type(__import__('tqdm').tqdm.get_lock()).__module__")
        assert lock.result() == "_thread"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_what_runs_and_is_heard_by_this_process_alone() -> None:
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), processes(1) as pool:  # noqa: PT012
        heard = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [])
        assert signal.SIGINT in heard.result()
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        pool.submit(time.sleep, 120)
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 60
