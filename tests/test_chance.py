"""Randomness without a state: quality, and the same numbers whatever else is computed."""

import copies
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.chance import GOLDEN, Chance, mix, shuffled

MASK = 2**64 - 1
# Written down once: what a seed means must not change from version to version.
WRITTEN_DOWN = [[-635536510, 503920290, 1491434527], [-575596662, -1946060862, 599947927]]


def splitmix64(state: int) -> int:
    """The published mixer on Python's unbounded integers."""
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def chance(rows: int, seed: int = 1, step: int = 0) -> Chance:
    return Chance(seed, step, torch.arange(rows))


def chi_square(counts: torch.Tensor) -> float:
    """The statistic less its mean, in standard deviations of its law."""
    expected = counts.sum() / counts.numel()
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    freedom = counts.numel() - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_mix_is_splitmix64(numbers):
    scrambled = mix(torch.tensor(numbers)).tolist()
    assert [n & MASK for n in scrambled] == [splitmix64(n & MASK) for n in numbers]


def test_first_outputs_of_the_reference_generator():
    # The published test vector of SplitMix64 for seed 1234567.
    states = 1234567 + torch.arange(1, 4) * GOLDEN
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [n & MASK for n in mix(states).tolist()] == expected


@given(st.integers(1, 40), st.data())
def test_other_rows_their_order_and_the_width_do_not_matter(T, data):
    whole = chance(6).uniform("hide", 50)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=1)))
    assert torch.equal(Chance(1, 0, rows).uniform("hide", T), whole[rows, :T])


def test_each_part_of_the_key_matters():
    base = chance(4).bits("hide", 8)
    others = [
        chance(4, seed=2).bits("hide", 8),
        chance(4, step=1).bits("hide", 8),
        chance(4).bits("swap", 8),
        Chance(1, 0, torch.arange(1, 5)).bits("hide", 8),
        chance(4, seed=-1).bits("hide", 8),
    ]
    for bits in others:
        assert (bits == base).float().mean() < 0.05
    assert torch.equal(Chance.of_examples(1, torch.arange(4)).bits("hide", 8), base)


def test_same_in_another_process():
    code = (
        "import torch; from labkit.chance import Chance;"
        "print(Chance(7, 3, torch.tensor([2, 9])).bits('hide', 3).tolist())"
    )
    there = copies.run(["-c", code])
    assert Chance(7, 3, torch.tensor([2, 9])).bits("hide", 3).tolist() == WRITTEN_DOWN
    assert there.stdout.strip() == str(WRITTEN_DOWN)


@pytest.mark.parametrize("bins", [2, 10, 256, 5000])
def test_uniform_and_integers_are_uniform(bins):
    uniform = chance(1000).uniform("hide", 2001).flatten()
    assert uniform.dtype == torch.float32
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(chi_square(torch.bincount((uniform * bins).long(), minlength=bins))) < 4.5
    integers = chance(1000).integers("hide", 2001, bins).flatten()
    assert abs(chi_square(torch.bincount(integers, minlength=bins))) < 4.5


def test_extremes_stay_inside(monkeypatch):
    extremes = torch.tensor([[-(2**31), 2**31 - 1, 0, -1]], dtype=torch.int32)
    monkeypatch.setattr(Chance, "bits", lambda *_: extremes.clone())
    assert chance(1).uniform("", 4).tolist() == [[0.0, 1 - 2**-24, 0.5, 0.5 - 2**-24]]
    assert chance(1).integers("", 4, 2**31).tolist() == [[0, 2**31 - 1, 2**30, 2**30 - 1]]


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 64])
def test_neighbours_are_independent(lag):
    draws = chance(1024).uniform("hide", 1024).double() - 0.5
    later = chance(1024, step=lag).uniform("hide", 1024).double() - 0.5
    products = draws[:, lag:] * draws[:, :-lag], draws[lag:] * draws[:-lag], draws * later
    # Twelve times each product has mean 0 and standard deviation 1; there are about a million.
    for product in products:
        assert abs(12 * product.mean().item()) * product.numel() ** 0.5 < 4.5


def test_pairs_fill_the_square():
    draws = chance(1024).bits("hide", 1024).long() + 2**31 >> 26
    for first, second in ((draws[:, :-1], draws[:, 1:]), (draws[:-1], draws[1:])):
        counts = torch.bincount((first * 64 + second).flatten(), minlength=4096)
        assert abs(chi_square(counts)) < 4.5


@pytest.mark.parametrize("part", ["row", "seed", "step"])
def test_avalanche(part):
    """One bit of the key moves every bit of every position with probability 1/2."""
    rows = torch.arange(4000)
    base = Chance(5, 9, rows).bits("hide", 2).long()
    for bit in range(0, 40, 3):
        flip = {"row": 0, "seed": 0, "step": 0} | {part: 1 << bit}
        flipped = Chance(5 ^ flip["seed"], 9 ^ flip["step"], rows ^ flip["row"])
        changed = base ^ flipped.bits("hide", 2).long()
        share = ((changed.unsqueeze(-1) >> torch.arange(32)) & 1).double().mean(0)
        assert (share - 0.5).abs().max() < 5 * 0.5 / 4000**0.5


def test_orders_by_random_bits_are_all_as_likely():
    orders = chance(24_000).bits("order", 4).argsort(dim=1, stable=True)
    numbers = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = torch.bincount(numbers)
    assert (counts > 0).sum() == 24
    assert abs(chi_square(counts[counts > 0])) < 4.5


@given(st.integers(1, 300), st.integers())
def test_shuffled_is_an_order(size, seed):
    order = shuffled(size, seed, "order")
    assert sorted(order.tolist()) == [*range(size)]
    assert torch.equal(shuffled(size, seed, "order"), order)


def test_all_shuffles_are_as_likely():
    orders = torch.stack([shuffled(4, seed, "order") for seed in range(12_000)])
    counts = torch.bincount((orders * torch.tensor([64, 16, 4, 1])).sum(1))
    assert (counts > 0).sum() == 24
    assert abs(chi_square(counts[counts > 0])) < 4.5


def test_errors_say_what_to_give():
    with pytest.raises(ValueError, match=r"int64 tensor \[B\]"):
        Chance(1, 0, torch.zeros(2, 2))
    with pytest.raises(ValueError, match="high is 0"):
        chance(1).integers("word", 2, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_same_numbers_on_the_gpu():
    rows = torch.arange(64)
    here, there = Chance(1, 2, rows), Chance(1, 2, rows.cuda())
    assert torch.equal(there.uniform("hide", 99).cpu(), here.uniform("hide", 99))
    assert torch.equal(there.bits("order", 99).cpu(), here.bits("order", 99))


def test_seeds_and_steps_are_whole_numbers() -> None:
    for name, wrong in (("seed", "x"), ("seed", 1.0), ("seed", None), ("step", True)):
        with pytest.raises(ValueError, match=f"{name} is {wrong!r}: give a whole number"):
            Chance(**{"seed": 0, "step": 0, "rows": torch.arange(2), name: wrong})


def test_numbers_of_numpy_are_those_of_python():
    rows = torch.arange(3)
    given = Chance(np.int64(1), np.int32(2), rows)  # type: ignore[arg-type]
    assert torch.equal(given.bits("hide", 5), Chance(1, 2, rows).bits("hide", 5))
    assert torch.equal(shuffled(9, np.int64(1), "order", np.int64(2)), shuffled(9, 1, "order", 2))


@pytest.mark.parametrize("wrong", [1.0, True, "1", None, np.float64(1)])
def test_seeds_that_are_no_whole_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"seed is .*: give a whole number"):
        Chance(wrong, 0, torch.arange(3))
