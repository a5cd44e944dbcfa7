"""Scaling laws: runs that follow a law give it back; resampling covers it."""

import numpy as np
import pytest

from labkit.costs import scaling
from labkit.costs import tables as cost_tables
from labkit.costs.scaling import ScalingRun

SIZES, TEXTS = (2e4, 8e4, 3e5, 1e6), (2e5, 1e6, 4e6, 2e7)


def runs(a=40.0, alpha=0.5, b=300.0, beta=0.4, noise=0.0, seed=0) -> list[ScalingRun]:
    rng = np.random.default_rng(seed)
    return [
        ScalingRun(n, d, (a * n**-alpha + b * d**-beta) * np.exp(noise * rng.normal()))
        for n in SIZES
        for d in TEXTS
    ]


@pytest.mark.parametrize("law", [(40, 0.5, 300, 0.4), (5, 0.2, 2000, 0.6), (400, 0.9, 20, 0.25)])
def test_exact_runs_give_the_law_back(law):
    a, alpha, b, beta = law
    found = scaling.fit(runs(a, alpha, b, beta), resamples=5)
    assert found[:4] == pytest.approx((a, alpha, b, beta), rel=1e-4)
    assert found.error < 1e-6
    assert found.compute_exponent == pytest.approx(beta / (alpha + beta), rel=1e-4)
    assert found.excess(SIZES[0], TEXTS[0]) == pytest.approx(runs(a, alpha, b, beta)[0].excess)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    covered = 0
    for seed in range(16):
        found = scaling.fit(runs(noise=0.03, seed=seed), resamples=60)
        low, high = found.intervals["beta"]
        covered += low <= 0.4 <= high
    assert 11 <= covered <= 16


def test_a_wrong_floor_moves_the_exponents():
    """Why a known floor matters: a tenth of a nat too high, and beta is another."""
    right = scaling.fit(runs(), resamples=5)
    shifted = [run._replace(excess=run.excess - 0.1) for run in runs()]
    wrong = scaling.fit(shifted, resamples=5)
    assert abs(wrong.beta - right.beta) > 0.02


def test_too_few_runs_and_runs_below_the_floor_are_refused():
    with pytest.raises(ValueError, match="2 sizes and 4 amounts"):
        scaling.fit(runs()[:8])
    with pytest.raises(ValueError, match="not above the floor"):
        scaling.fit([run._replace(excess=-0.1) for run in runs()])
    for bad in (ScalingRun(5, 5, float("inf")), ScalingRun(-5, 5, 1.0), ScalingRun(5, 0, 1.0)):
        with pytest.raises(ValueError, match="holds no finite numbers above 0"):
            scaling.fit([*runs(), bad])
        with pytest.raises(ValueError, match="holds no finite numbers above 0"):
            scaling.held_out_errors([*runs(), bad])
    with pytest.raises(ValueError, match="resamples is 0"):
        scaling.fit(runs(), resamples=0)
    with pytest.raises(ValueError, match="seed is -1: give a whole number from 0"):
        scaling.fit(runs(), seed=-1)


def test_the_published_points_of_chinchilla_say_one_half():
    """Size and text grow alike with the operations: the finding of the paper, from its table."""
    rows = cost_tables.read_table("chinchilla_table_3")
    flop, n, d = ([float(row[name]) for row in rows] for name in ("flop", "parameters", "tokens"))
    size, text = (np.polyfit(np.log(flop), np.log(column), 1)[0] for column in (n, d))
    assert size == pytest.approx(0.5, abs=0.01)
    assert text == pytest.approx(0.5, abs=0.01)
    assert size + text == pytest.approx(1, abs=0.01)
    # Six operations for each parameter and token: the table agrees with itself.
    for c, size_, text_ in zip(flop, n, d, strict=True):
        assert 6 * size_ * text_ == pytest.approx(c, rel=0.06)


def test_a_run_left_out_is_predicted_by_the_law_that_made_the_runs():
    """A power law where there is one, an exponential where there is that: either can win."""
    falling = [
        ScalingRun(n, d, 3 * np.exp(-n / 4e5) + 2 * np.exp(-d / 5e6)) for n in SIZES for d in TEXTS
    ]
    for made, right, wrong in ((runs(), "power", "exponential"), (falling, "exponential", "power")):
        assert max(scaling.held_out_errors(made, right)) < 1e-3
        assert np.mean(scaling.held_out_errors(made, wrong)) > 0.02
    with pytest.raises(ValueError, match="choose power or exponential"):
        scaling.held_out_errors(runs(), "linear")
    with pytest.raises(ValueError, match="give six"):
        scaling.held_out_errors(runs()[:5])
