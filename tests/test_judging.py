"""The rule of judging: how often it is wrong, simulated where the truth is known."""

import math
import re
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from classroom.judging import LEVEL, Estimate, estimate, judge, overall, seeds_wanted
from classroom.ledger import bounds
from labkit.keeping.paths import data_path

INF = float("inf")
SEEDS, ITEMS, LEDGERS = 8, 60, 2_000


def ledgers(
    truth: float, seed_noise: float, item_noise: float, *, shared: bool, contrasts: int = 1
) -> list[list[str]]:
    """Judge 2,000 claims whose contrasts all have the value `truth`, to lie above 0.1."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(LEDGERS):
        estimates = []
        for _ in range(contrasts):
            items_SI = item_noise * random.normal(size=(1 if shared else SEEDS, ITEMS))
            seeds_S1 = seed_noise * random.normal(size=(SEEDS, 1))
            a_SI = truth + items_SI + seeds_S1 + 0.1 * random.normal(size=(SEEDS, ITEMS))
            runs = [{"a": row, "b": np.zeros(ITEMS)} for row in a_SI]
            estimates.append(estimate(runs, {"a": 1, "b": -1}, shared=shared))
        found.append(judge(estimates, [(0.1, INF)] * contrasts, seeds=SEEDS))
    return found


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("seed_noise", "item_noise"), [(0.1, 0.0), (0.0, 0.5), (0.05, 0.5), (0.2, 0.2)]
)
def test_a_claim_on_its_bound_rarely_holds(
    seed_noise: float, item_noise: float, shared: bool
) -> None:
    verdicts = ledgers(0.1, seed_noise, item_noise, shared=shared)
    error = (LEVEL * (1 - LEVEL) / LEDGERS) ** 0.5
    # Sixteen shares are compared: with three standard errors one seed in fifty would fail.
    for wrong in ("holds", "does not hold here"):
        assert np.mean([one == [wrong] for one in verdicts]) <= LEVEL + 4 * error


def test_items_that_all_seeds_share_are_not_new_in_each_seed() -> None:
    """The rule for fresh items, used on shared ones, is wrong far more often than it says."""
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(LEDGERS):
        a_SI = 0.1 + 0.5 * random.normal(size=ITEMS) + 0.02 * random.normal(size=(SEEDS, ITEMS))
        one = estimate([{"a": row} for row in a_SI], {"a": 1}, shared=False)
        wrong += judge([one], [(0.1, INF)], seeds=SEEDS) == ["holds"]
    assert wrong / LEDGERS > 0.3


def test_many_contrasts_do_not_make_a_wrong_verdict_likelier() -> None:
    verdicts = ledgers(0.1, 0.1, 0.3, shared=True, contrasts=5)
    wrong = np.mean([any(one != "not significant" for one in each) for each in verdicts])
    assert wrong <= 2 * LEVEL + 3 * (2 * LEVEL / LEDGERS) ** 0.5  # either side


@pytest.mark.parametrize("shared", [False, True])
def test_the_power_is_what_a_design_may_count_on(shared: bool) -> None:
    verdicts = ledgers(0.3, 0.1, 0.3, shared=shared)
    assert np.mean([one == ["holds"] for one in verdicts]) >= 0.8


def test_the_power_of_the_bounds_is_what_they_say() -> None:
    text = data_path("claims", "bounds.toml").read_text(encoding="utf-8")
    power = float(re.search(r"power +([\d.]+) for", text)[1])  # type: ignore[index]
    said = re.findall(r"by ([\d.]+)[a-z\s#]*\((\d+) seeds\)", text)
    designs = {int(seeds): float(apart) for apart, seeds in said}
    assert {one["seeds"] for one in bounds().values()} == set(designs)
    for seeds, apart in designs.items():
        random, found = np.random.default_rng(0), 0
        for _ in range(2 * LEDGERS):
            runs = [{"a": [x]} for x in apart + random.normal(size=seeds)]
            one = estimate(runs, {"a": 1}, shared=False)
            found += judge([one], [(0.0, INF)], seeds=seeds) == ["holds"]
        assert abs(found / (2 * LEDGERS) - power) < 0.02


def test_as_many_seeds_as_wanted_decide_four_times_of_five() -> None:
    few, truth, noise = 8, 0.05, 0.1
    one = Estimate(truth, noise / few**0.5, few - 1)
    many = seeds_wanted(one, (0.0, INF), seeds=few)
    assert many == 32  # 2.8 standard errors: 1.96 for the level and 0.84 for the power
    random, found = np.random.default_rng(0), 0
    for _ in range(LEDGERS):
        runs = [{"a": [x]} for x in truth + noise * random.normal(size=many)]
        found += judge([estimate(runs, {"a": 1}, shared=False)], [(0.0, INF)], seeds=many) == [
            "holds"
        ]
    assert 0.75 < found / LEDGERS < 0.85


def test_more_seeds_do_not_help_where_the_items_decide() -> None:
    items = np.random.default_rng(0).normal(0.02, 0.2, size=100)
    few, many = (
        estimate([{"a": list(items)} for _ in range(seeds)], {"a": 1}, shared=True)
        for seeds in (5, 500)
    )
    assert few.error == pytest.approx(many.error)
    assert few.of_items == pytest.approx(few.error**2)
    assert seeds_wanted(few, (0.0, INF), seeds=5) is None
    # Half of the variance is that of the seeds: twice as many seeds leave three quarters of it.
    half = Estimate(0.1, 0.05, 7.0, of_items=0.05**2 / 2)
    allowed = (0.1 / 2.8016) ** 2 - half.of_items
    assert seeds_wanted(half, (0.0, INF), seeds=8) == math.ceil(8 * half.of_items / allowed)


def test_pairs_of_items_are_compared_item_by_item() -> None:
    random = np.random.default_rng(0)
    hard_I = random.normal(size=200)
    runs = [{"a": hard_I + 0.1, "b": hard_I} for _ in range(SEEDS)]
    assert estimate(runs, {"a": 1, "b": -1}, shared=True).error < 1e-9
    assert estimate(runs, {"a": 1}, shared=True).error == pytest.approx(
        hard_I.std(ddof=1) / 200**0.5
    )


def test_no_verdict_comes_from_few_seeds() -> None:
    runs = [{"a": [1.0, 2.0]}, {"a": [3.0, 4.0]}, {"a": [2.0, 3.0]}, {"a": [2.0, 2.0]}]
    one = estimate(runs, {"a": 1}, shared=False)
    assert judge([one], [(0, INF)], seeds=4) == ["not judged"]
    assert judge([estimate(runs[:1], {"a": 1}, shared=False)], [(0, INF)], seeds=1) == [
        "not judged"
    ]


def test_a_figure_without_chance_is_compared_as_it_is() -> None:
    exact = Estimate(0.94, 0.0, 1.0)
    assert judge([exact], [(0.9, 1.1)], seeds=1, exact=[True]) == ["holds"]
    assert judge([exact], [(0.95, 1.05)], seeds=8) == ["does not hold here"]
    # Three seeds may agree by chance.
    assert judge([exact], [(0.9, 1.1)], seeds=3) == ["not judged"]
    assert exact.interval() == (0.94, 0.94)


@pytest.mark.parametrize("figure", [1.0, 0.1, 1 / 3])
def test_seeds_that_happen_to_agree_are_not_certain(figure: float) -> None:
    """Five heads in a row come up once in 32 times, and 1/32 is more than the level."""
    for seeds, contrasts, verdict in (
        (5, 1, "not significant"),
        (6, 1, "holds"),
        (7, 4, "not significant"),
        (8, 4, "holds"),
    ):
        one = estimate([{"a": [figure] * 7}] * seeds, {"a": 1}, shared=True)
        bounds = [(0.0, INF)] * contrasts
        assert judge([one] * contrasts, bounds, seeds=seeds) == [verdict] * contrasts
        if verdict == "not significant" and contrasts == 1:
            assert seeds_wanted(one, (0.0, INF), seeds=seeds) == 6
    assert judge([one], [(2.0, INF)], seeds=5) == ["not significant"]
    assert judge([one], [(0.0, INF)], seeds=5, exact=[True]) == ["holds"]


def test_more_seeds_are_wanted_where_more_contrasts_are_open() -> None:
    one = Estimate(0.05, 0.1 / 8**0.5, 7)
    alone, among = (seeds_wanted(one, (0.0, INF), seeds=8, among=open_) for open_ in (1, 5))
    assert alone is not None
    assert among == pytest.approx(1.49 * alone, rel=0.03)
    # No number of seeds decides on which side of a bound a value is that lies on it.
    assert seeds_wanted(Estimate(0.0, 0.1, 7), (0.0, INF), seeds=8) is None


def test_a_claim_holds_if_all_its_contrasts_do() -> None:
    assert overall([]) == "not tested at this size"
    assert overall(["holds", "holds"]) == "holds"
    assert overall(["holds", "not significant"]) == "not significant"
    assert overall(["not significant", "does not hold here"]) == "does not hold here"
    assert overall(["holds", "not judged"]) == "not judged"


def test_the_error_of_shared_items_is_that_of_the_formulas() -> None:
    random = np.random.default_rng(0)
    seeds, items = 6, 10
    x_SI = (
        random.normal(size=(seeds, 1))
        + 0.5 * random.normal(size=items)
        + random.normal(size=(seeds, items))
    )
    found = estimate([{"a": row} for row in x_SI], {"a": 1}, shared=True)
    # Two-way analysis of variance: mean squares of items and of what is left over.
    left = x_SI - x_SI.mean(0) - x_SI.mean(1, keepdims=True) + x_SI.mean()
    noise = (left**2).sum() / ((seeds - 1) * (items - 1))
    between = seeds * x_SI.mean(0).var(ddof=1)
    of_items = (between - noise) / (seeds * items)
    of_seeds = x_SI.mean(1).var(ddof=1) / seeds
    assert of_items > 0
    assert found.of_items == pytest.approx(of_items)
    assert found.error == pytest.approx((of_seeds + of_items) ** 0.5)
    # Satterthwaite: a sum of three independent mean squares, the last one subtracted.
    squares = {seeds - 1: seeds * items * of_seeds, items - 1: between,
               (seeds - 1) * (items - 1): noise}  # fmt: skip
    below = sum(square**2 / freedom for freedom, square in squares.items())
    assert found.freedom == pytest.approx((seeds * items * (of_seeds + of_items)) ** 2 / below)


@pytest.mark.parametrize("item_noise", [0.0, 0.1, 0.3])
def test_few_shared_items_make_no_wrong_verdict_likelier(item_noise: float) -> None:
    """Four items and twenty seeds that disagree much: the hardest case for the formula."""
    random, wrong = np.random.default_rng(0), 0
    for _ in range(2 * LEDGERS):
        items_I, seeds_S1 = item_noise * random.normal(size=4), 0.1 * random.normal(size=(20, 1))
        a_SI = 0.1 + items_I + seeds_S1 + 0.5 * random.normal(size=(20, 4))
        one = estimate([{"a": row} for row in a_SI], {"a": 1}, shared=True)
        wrong += judge([one], [(0.1, INF)], seeds=20) == ["holds"]
    assert wrong / (2 * LEDGERS) <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / (2 * LEDGERS)) ** 0.5


@pytest.mark.parametrize(
    ("chances", "clear"),
    [
        # In order of clarity each has to be below 0.025 / 3, 0.025 / 2, 0.025.
        ((0.005, 0.010, 0.020), (True, True, True)),
        ((0.020, 0.005, 0.010), (True, True, True)),
        # After the first that fails none is settled, however clear it is by itself.
        ((0.005, 0.020, 0.024), (True, False, False)),
        ((0.009, 0.009, 0.009), (False, False, False)),
    ],
)
def test_contrasts_are_judged_by_holms_steps(
    chances: tuple[float, ...], clear: tuple[bool, ...]
) -> None:
    estimates = [Estimate(NormalDist().inv_cdf(1 - p), 1.0, 1e9) for p in chances]
    verdicts = judge(estimates, [(0.0, INF)] * len(chances), seeds=8)
    assert verdicts == ["holds" if one else "not significant" for one in clear]


def test_the_nearest_bound_says_how_many_seeds_are_wanted() -> None:
    below, above = (Estimate(value, 0.1 / 8**0.5, 7) for value in (0.05, 0.95))
    assert seeds_wanted(below, (0.0, INF), seeds=8) == 32
    assert seeds_wanted(above, (0.0, 1.0), seeds=8) == 32


def test_a_counted_figure_lies_between_both_bounds() -> None:
    for value, verdict in ((0.9, "does not hold here"), (0.95, "holds"),
                           (1.0, "does not hold here"), (1.1, "does not hold here")):  # fmt: skip
        assert judge([Estimate(value, 0.0, 1.0)], [(0.9, 1.0)], seeds=1, exact=[True]) == [verdict]
    # On a bound a count does not lie between them, with many seeds as with one.
    on_it = [Estimate(1.0, 0.0, 1.0)]
    assert judge(on_it, [(0.9, 1.0)], seeds=8, exact=[True]) == ["does not hold here"]


@pytest.mark.parametrize("apart", [0.1, 0.5, 1.0, 3.0])
def test_bounds_that_are_close_together_make_no_wrong_verdict_likelier(apart: float) -> None:
    """The truth is the upper bound; `apart` is the room between bounds in standard errors."""
    random, wrong, low = np.random.default_rng(0), 0, -apart / SEEDS**0.5
    for _ in range(2 * LEDGERS):
        one = estimate([{"a": [x]} for x in random.normal(size=SEEDS)], {"a": 1}, shared=False)
        wrong += judge([one], [(low, 0.0)], seeds=SEEDS) == ["does not hold here"]
    assert wrong / (2 * LEDGERS) <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / (2 * LEDGERS)) ** 0.5


@pytest.mark.parametrize(
    ("draw", "short", "long", "share"),
    [
        (lambda random: np.exp(0.3 * random.normal(size=8) - 0.3**2 / 2) - 1,
         "does not hold here", "holds", (0.03, 0.07)),
        (lambda random: np.exp(random.normal(size=8) - 0.5) - 1,
         "does not hold here", "holds", (0.14, 0.22)),
        (lambda random: 0.005 - random.binomial(100, 0.005, size=8) / 100,
         "holds", "does not hold here", (0.07, 0.13)),
    ],
    ids=["ratio", "ratio that varies much", "share close to 1"],
)  # fmt: skip
def test_skewed_figures_are_wrong_as_often_as_the_module_says(
    draw: Callable[[np.random.Generator], np.ndarray],
    short: str,
    long: str,
    share: tuple[float, float],
) -> None:
    """Every mean is 0, on the bound."""
    random = np.random.default_rng(0)
    found = [
        judge([estimate([{"a": [x]} for x in draw(random)], {"a": 1}, shared=False)],
              [(0.0, INF)], seeds=8)[0]
        for _ in range(LEDGERS)
    ]  # fmt: skip
    assert share[0] < found.count(short) / LEDGERS < share[1]
    assert found.count(long) / LEDGERS < LEVEL
