"""Live curves, progress, charts, schematics, findings: what they say, and who can read it."""

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import copies
import pytest
import torch
from matplotlib.colors import to_rgb

from classroom import findings
from classroom.charts import figures, schematics, style
from classroom.charts.figures import figure_of
from classroom.charts.live import LiveCurve, progress, shortened, waiting
from classroom.charts.style import Chart
from classroom.judging import Verdict
from classroom.ledger import bounds, rows
from labkit.costs.scaling import Fit, ScalingRun


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.1)."""
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_letters_read_on_light_and_dark_pages(page: str) -> None:
    assert contrast(style.INK, page) > 4
    for colour in style.SERIES[:3]:
        assert contrast(colour, page) > 3, colour


@pytest.mark.parametrize("kind", schematics.KINDS)
def test_words_in_a_box_read_on_its_colour(kind: str) -> None:
    fill, edge = schematics.KINDS[kind]
    assert contrast(schematics.LETTERS, fill) > 7
    assert fill != edge


def test_lines_differ_by_marker_and_not_by_colour_alone() -> None:
    _, axes = style.chart(says="x")
    drawn = [axes.plot([0, 1])[0] for _ in style.SERIES]
    assert len({line.get_marker() for line in drawn}) == len(style.SERIES)
    assert len({line.get_color() for line in drawn}) == len(style.SERIES)


DRAWN = [
    one
    for one in vars(schematics).values()
    if getattr(one, "__annotations__", {}) == {"return": Chart}
]
"""Every schematic of the course."""


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_a_schematic_has_a_description_and_a_transparent_page(draw: Any) -> None:
    picture = draw()
    bundle = picture._repr_mimebundle_()
    assert len(bundle["text/plain"]) > 80
    assert bundle["image/png"]
    from io import BytesIO

    from matplotlib.image import imread

    assert imread(BytesIO(picture.png()))[0, 0, 3] == 0


def test_a_live_curve_shows_the_loss_and_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveCurve(12, floor=0.5, every=0.0)
    steps = []
    for step in live:
        live.add(torch.tensor(2.0 / (step + 1)))
        steps.append(step)
    assert steps == list(range(12))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    mean = sum(2.0 / (i + 1) for i in range(8, 12)) / 4  # of the last third
    assert lines[-1] == f"step 12 of 12: loss {mean:.3f}; lowest possible: 0.500"


@pytest.mark.parametrize(
    ("losses", "points", "marker"),
    [
        ([4 - 0.1 * i for i in range(10)], 8, ""),
        ([3.0], 1, "o"),
        ([3.0, math.nan], 2, "o"),
        ([4 - 0.1 * i for i in range(30)], 21, ""),
    ],
)
def test_a_short_live_curve_is_seen(losses: list[float], points: int, marker: str) -> None:
    live = LiveCurve(len(losses))
    live.losses = losses
    [line] = live.view(len(losses)).axes[0].lines
    assert (len(line.get_xdata()), line.get_marker()) == (points, marker)


def test_a_live_curve_says_at_its_first_step_that_it_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    for step in LiveCurve(3, every=60.0):
        said.append(capsys.readouterr().out)
        assert step < 3
    assert said == ["", "step 1 of 3\n", ""]
    assert capsys.readouterr().out == "step 3 of 3\n"


def test_a_live_curve_says_how_long_it_takes_and_needs_no_loss() -> None:
    assert LiveCurve(5).view(2, left=7.4).says == "step 2 of 5, 7 s left"
    with pytest.raises(ValueError, match="give at least one step"):
        LiveCurve(0)


@pytest.mark.parametrize(("drawing", "pictures"), [(0.01, 34), (0.5, 11), (60.0, 6)])
def test_a_live_curve_leaves_the_time_to_its_loop(
    drawing: float, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture a second if that takes less than a tenth of the time, and one in ten at least."""
    now, drawn = 0.0, 0

    def view(*_: object) -> Any:
        nonlocal now, drawn
        now, drawn = now + drawing, drawn + 1
        return SimpleNamespace(_repr_mimebundle_=dict)

    live = LiveCurve(100, every=1.0)
    monkeypatch.setattr("classroom.charts.live.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("classroom.charts.live._displayed", lambda: lambda *_, **__: None)
    monkeypatch.setattr(live, "view", view)
    for _ in live:
        now += 0.5
        live.add(1.0)
    assert drawn == pictures


def test_a_live_curve_may_show_something_else_than_a_loss() -> None:
    live = LiveCurve(5, 0.0, quantity="below the ceiling", unit="in reward", name="PPO")
    live.add(torch.tensor(0.25))
    figure = live.view(2)
    assert figure.says == "PPO, step 2 of 5: below the ceiling 0.250; lowest possible: 0.000"
    assert figure.axes[0].get_ylabel() == "below the ceiling, in reward"
    assert live.recorded()["unit"] == "below the ceiling, in reward"


def test_a_curve_below_zero_is_in_the_picture() -> None:
    live = LiveCurve(4, quantity="reward")
    for loss in (-2.0, -1.5, -1.0, -0.5):
        live.add(torch.tensor(loss))
    low, high = live.view(4).axes[0].get_ylim()
    assert low < -2 < -0.5 < high


@pytest.mark.parametrize(("losses", "floor"), [([0.2, 0.1], 0.5), ([-1.0, -2.0], 0.0), ([1.0], -1)])
def test_the_lowest_possible_is_in_the_picture(losses: list[float], floor: float) -> None:
    live = LiveCurve(2, floor)
    for loss in losses:
        live.add(loss)
    bottom, top = live.view(2).axes[0].get_ylim()
    assert all(bottom <= value <= top for value in (*losses, floor))


@pytest.mark.parametrize("losses", [[3.0, 1.0], []])
def test_a_loop_that_is_stopped_shows_how_far_it_came(
    losses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveCurve(1_000, every=60.0)
    with suppress(KeyboardInterrupt):
        for _, loss in zip(live, [*losses, None], strict=False):
            if loss is None:
                raise KeyboardInterrupt
            live.add(loss)
    told = "step 3 of 1000: loss 1.000" if losses else "step 1 of 1000"
    assert capsys.readouterr().out.splitlines()[-1] == told
    with suppress(KeyboardInterrupt):
        for item in progress([1, 2, 3], "reading", every=60.0):
            if item == 2:
                raise KeyboardInterrupt
    assert capsys.readouterr().out.splitlines()[-1] == "reading: stopped after 1 of 3"


def test_a_second_loop_draws_a_curve_of_its_own() -> None:
    live = LiveCurve(4)
    for loss in (3.0, 1.0):
        for _ in live:
            live.add(torch.tensor(loss))
    assert live.losses == [1.0] * 4


def test_progress_goes_through_all_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress([1, 2, 3], "reading", every=0.0)) == [1, 2, 3]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "reading: 0 of 3 done"
    assert said[-1] == "reading: all 3 done"


@pytest.mark.parametrize(
    ("error", "ended"), [(ValueError, "failed"), (KeyboardInterrupt, "stopped")]
)
def test_what_cannot_tell_how_far_it_is_tells_that_it_works(
    error: type[BaseException], ended: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(error), waiting("measuring", every=0.01):
        time.sleep(0.1)
        raise error("broken")
    *before, last = capsys.readouterr().out.splitlines()
    assert before
    assert all(re.fullmatch(r"measuring: \d+ s so far", line) for line in before)
    assert last == f"measuring: {ended}"
    time.sleep(0.05)
    assert capsys.readouterr().out == ""


def test_training_in_view_is_short_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_SHORT", raising=False)
    assert shortened(700, "laptop") == 700
    assert shortened(700, "smoke") == 10
    assert shortened(7, "smoke") == 7
    assert shortened(700, "smoke", short=80) == 80
    assert shortened(700, "smoke", short=80, smoke=5) == 5
    monkeypatch.setenv("LABKIT_SHORT", "1")
    assert shortened(700, "laptop", short=80, smoke=5) == 80
    assert shortened(700, "smoke", short=80, smoke=5) == 5
    assert shortened(700, "laptop") == 10
    assert shortened(700, "laptop", short=8) == 8


def test_a_finding_is_that_of_the_ledger() -> None:
    for row in rows():
        said = findings.sentence(findings.kept(row.id))
        assert row.says in said
        differ = len({one.verdict for one in row.contrasts}) > 1
        if not differ:
            assert f"The claim {findings.PLAIN[row.verdict]}." in said
        elif row.verdict == "not significant":
            assert "**Part of the claim holds here, and part of it is not settled.**" in said
            assert "**does not hold here**" not in said
        else:
            assert row.verdict == "does not hold here"
            some = any(one.verdict == "holds" for one in row.contrasts)
            assert ("Not all of the claim holds here." in said) == some
            assert ("No part of the claim is shown to hold here." in said) != some
        for one in row.contrasts:
            assert (f"- {one.says}: **{findings.PLAIN[one.verdict]}**." in said) == differ
    with pytest.raises(ValueError, match="the ledger has no claim 'nothing'"):
        findings.kept("nothing")


@pytest.mark.parametrize(
    ("verdict", "parts", "said"),
    [
        ("not judged", ("holds", "not judged"),
         "Part of the claim holds here; the rest was not judged: that takes more seeds."),
        ("does not hold here", ("does not hold here", "not judged"),
         "No part of the claim is shown to hold here."),
        ("bounds changed after measuring", ("holds", "does not hold here"),
         "The claim was judged against other bounds: measure it again."),
    ],
)  # fmt: skip
def test_a_headline_says_no_more_than_the_verdict(
    verdict: Verdict, parts: tuple[Verdict, ...], said: str
) -> None:
    row = next(row for row in rows() if len(row.contrasts) == 2)
    seen = [replace(one, verdict=part) for one, part in zip(row.contrasts, parts, strict=True)]
    head = findings.sentence(replace(row, verdict=verdict, contrasts=seen)).splitlines()[2]
    assert head == f"**{said}**"


def test_every_verdict_has_plain_words() -> None:
    assert set(findings.PLAIN) == set(get_args(Verdict))
    assert set(findings.MANY) == {*get_args(Verdict), findings.MISSING}


def shown(page: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a page of findings says in plain text; its HTML has the same words."""
    said = list[dict[str, str]]()
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: said.append(bundle))
    page()
    return said[0]["text/plain"]


def test_the_page_of_findings_says_of_every_claim_what_the_ledger_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, known = shown(findings.all_findings, monkeypatch), {row.id: row for row in rows()}
    for id, about in bounds().items():
        row = known.get(id)
        verdict = "Not in the ledger yet." if row is None else findings.PLAIN[row.verdict]
        assert f"{about['says']} {verdict[0].upper()}{verdict[1:]}" in said
        for one in row.contrasts if row else ():
            assert f"{one.says}: {figure_of(one.value)} (" in said
    surprising = shown(findings.surprises, monkeypatch)
    for row in known.values():
        assert (row.says in surprising) == (
            row.verdict in ("does not hold here", "not significant")
        ), row.id


def test_without_a_ledger_no_finding_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("classroom.ledger.rows", list)
    said = shown(findings.all_findings, monkeypatch)
    assert said.startswith(f"{len(bounds())} claims: {len(bounds())} are not in the ledger yet.")
    assert "✓" not in said
    assert "✗" not in said


def test_every_claim_is_of_one_kind() -> None:
    kinds = [id for _, ids in findings.KINDS.values() for id in ids.split()]
    assert sorted(kinds) == sorted(bounds())


def test_arms_of_different_units_have_panels_of_their_own() -> None:
    finding = findings.kept("hundred-labels")
    panels = findings.finding_chart(finding).axes
    assert len(panels) == 2
    assert sum(len(axes.get_yticklabels()) for axes in panels) == len(finding.arms)
    for axes in panels:
        assert not math.isnan(axes.get_xlim()[0])


def test_what_no_seed_changes_stands_below_the_panels() -> None:
    drawn = findings.finding_chart(findings.kept("albert"))
    [axes] = drawn.axes
    assert len(axes.get_yticklabels()) == 3
    assert drawn.get_supxlabel() == "BERT-large / ALBERT-large, parameters: 18.952"
    assert "parameters: 18.952" in drawn.says


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux says what is held")
def test_what_a_loop_has_freed_goes_back_to_the_system() -> None:
    """glibc keeps freed blocks below one that is still used, such as the last model's.

    Only memory of the process itself counts, and not what it shares with that which it copies.
    """
    code = """
import ctypes, torch
from classroom.charts.live import LiveCurve
from labkit.keeping.processor import give_back
import psutil
if not hasattr(ctypes.CDLL(None), "malloc_trim"): raise SystemExit(3)
held = lambda: psutil.Process().memory_full_info().uss / 2**20
give_back()
before = held()
for step in LiveCurve(1):
    blocks = [torch.ones(20_000) for _ in range(1000)]
    kept, blocks = blocks[-1], None
    during = held()
after = held()
assert during - before > 60, (before, during)
assert after - before < 30, (before, during, after)
"""
    done = copies.run(["-c", code])
    if done.returncode == 3:
        pytest.skip("this library of C has no malloc_trim")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("scale", "ticks"), [(1, [0.5, 1, 2, 4]), (2**-7, [2**-8, 2**-7, 2**-6, 2**-5])]
)
def test_the_chart_of_scaling_has_ticks_where_its_points_are(
    scale: float, ticks: list[float]
) -> None:
    law = Fit(1.0, 0.5, 1.0, 0.5, {}, 0.0)
    points = [ScalingRun(1e3, 1e4, 0.6 * scale), ScalingRun(1e4, 1e5, 3 * scale)]
    assert [*figures.scaling_law(points, law).axes[0].get_yticks()] == ticks
