"""Schedules: shape, ends and peaks, against torch's own and the papers' formulas."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.corpus import Batch, Stages
from labkit.plan import (
    SCHEDULES,
    cosine,
    inverse_root,
    linear,
    non_monotone,
    one_cycle,
    slanted_triangle,
)

runs = st.integers(2, 3000).flatmap(
    lambda steps: st.tuples(
        st.integers(0, steps - 1), st.just(steps), st.none() | st.integers(1, max(1, steps // 2))
    )
)


@pytest.mark.parametrize("name", SCHEDULES)
@given(run=runs)
def test_a_share_is_between_nothing_and_all(name: str, run: tuple[int, int, int | None]) -> None:
    assert 0 <= SCHEDULES[name](*run) <= 1 + 1e-12


@pytest.mark.parametrize("name", SCHEDULES)
@given(run=runs)
def test_it_goes_up_once_and_then_down_or_stays(
    name: str, run: tuple[int, int, int | None]
) -> None:
    _, steps, warmup = run
    shares = [SCHEDULES[name](step, steps, warmup) for step in range(steps)]
    top = shares.index(max(shares))
    assert all(a <= b + 1e-12 for a, b in pairwise(shares[: top + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(shares[top:]))
    assert all(share > 0 for share in shares), "a step with a rate of 0 is wasted"
    if warmup is not None:
        assert top in (warmup - 1, warmup), "the peak is where the warm-up ends"
        assert shares[top] == pytest.approx(1)


def test_the_triangle_is_the_one_of_the_paper() -> None:
    """Howard and Ruder 2018, equation 3, with cut_frac = 0.1 and ratio = 32."""
    steps, cut_frac, ratio = 1000, 0.1, 32
    cut = math.floor(steps * cut_frac)
    for t in range(steps):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        expected = (1 + p * (ratio - 1)) / ratio
        assert slanted_triangle(t, steps) == pytest.approx(expected, abs=1e-12)


def test_the_inverse_root_is_the_one_of_the_transformer() -> None:
    """Vaswani et al. 2017, equation 3, divided by its peak at the end of the warm-up."""

    def paper(step: int) -> float:
        return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)

    for step in range(0, 20000, 37):
        expected = paper(step + 1) / paper(4000)
        assert inverse_root(step, 20000, 4000) == pytest.approx(expected)


def test_every_warmup_reaches_the_peak() -> None:
    for name, schedule in SCHEDULES.items():
        for warmup in (0, 1, 5):
            assert max(schedule(step, 20, warmup) for step in range(20)) == pytest.approx(1.0), name


@pytest.mark.parametrize("steps", [20, 101, 1000])
def test_one_cycle_is_the_one_of_torch(steps: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, steps, cycle_momentum=False)
    for step in range(steps):
        assert one_cycle(step, steps) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)
        optimizer.step()
        if step + 1 < steps:
            cycle.step()


def test_ends() -> None:
    assert linear(999, 1000, 100) == pytest.approx(1 / 900)
    assert cosine(999, 1000, 100) == pytest.approx(0.1, abs=1e-4)
    assert cosine(550, 1000, 100) == pytest.approx(0.55)


def test_averaging_begins_when_progress_stops() -> None:
    falling = [5.0, 4.0, 3.0, 2.5, 2.2, 2.1, 2.0, 1.9]
    assert not any(non_monotone(falling[: n + 1]) for n in range(len(falling)))
    # 2.05 is worse than the last one, but there was progress within the last five.
    assert not non_monotone([*falling, 2.05])
    # 3.1 is worse than 3.0, the best that is more than five checks old.
    assert not non_monotone([*falling, 2.9])
    assert non_monotone([*falling, 3.1])
    assert not non_monotone([1.0, 9.0, 9.0, 9.0, 9.0, 9.0]), "too early to say"
    assert non_monotone([1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0])


class Counted:
    """Batches whose only token is the number of the step."""

    def __init__(self, length: int) -> None:
        self.length = length

    def at(self, step: int) -> Batch:
        return Batch.of(torch.full((1, self.length), step))


def test_stages_begin_their_batches_anew() -> None:
    stages = Stages((0, Counted(2)), (3, Counted(5)))
    seen = [stages.at(step).tokens for step in range(5)]
    assert [tokens.shape[1] for tokens in seen] == [2, 2, 2, 5, 5]
    assert [int(tokens[0, 0]) for tokens in seen] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("starts", [(), (1,), (0, 5, 5), (0, 9, 3)])
def test_stages_that_leave_a_gap_are_refused(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="begins at 0"):
        Stages(*((start, Counted(1)) for start in starts))
