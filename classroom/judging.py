"""Judging contrasts: which lie between their bounds beyond chance?

A contrast is a weighted sum of arms, each the mean of a figure over test items. Two things vary by
chance: the seed, which decides the first weights and the order of the text, and the test items.

* With fresh test items for each seed, the contrasts of the seeds are independent, and a t interval
  over them covers both.
* Where all seeds are tested on the same items, the error of these items is common to all seeds and
  cannot be seen by comparing them. It is estimated from the items and added (random effects of
  seeds and items; Satterthwaite's degrees of freedom).

Both take the figures of the seeds, and of shared items, to be roughly normal. Where they are
skewed, a verdict on the side of the short tail is wrong more often than `LEVEL` says: with 8 seeds
in 5 to 18 % of all cases for ratios, and in up to 10 % for shares so near to 1 that most seeds make
no error at all. A verdict on the side of the long tail is then wrong less often.

The contrasts of one claim are judged together, by Holm's method (Holm 1979), so that a claim with
many contrasts has no better chance of a wrong verdict than a claim with one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal[
    "holds", "does not hold here", "not significant", "not tested at this size", "not judged",
    "bounds changed after measuring",
]  # fmt: skip
FEWEST_SEEDS = 5
"""No verdict is given from fewer seeds."""
LEVEL = 0.025
"""One-sided: how often a verdict may be wrong when the truth lies exactly on a bound."""

Run = Mapping[str, Sequence[float]]
"""The result of one seed: for each arm a figure for each test item."""


@dataclass(frozen=True)
class Estimate:
    """The value of a contrast with its standard error and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float
    of_items: float = 0.0
    """The part of the variance that shared test items add: more seeds do not lower it."""

    def interval(self) -> tuple[float, float]:
        """Return the edges of the confidence interval, `LEVEL` outside on either side."""
        if self.error == 0:
            return self.value, self.value
        # To import scipy.stats takes a second; its checks of arguments take long, too.
        from scipy.special import stdtrit

        reach = float(stdtrit(self.freedom, 1 - LEVEL)) * self.error
        return self.value - reach, self.value + reach

    def p_below(self, bound: float) -> float:
        """Return how likely a value as large as this is if the truth is `bound` or less."""
        if math.isinf(bound):
            return 0.0 if bound < 0 else 1.0
        if self.error == 0:
            return float(self.value <= bound)
        from scipy.special import stdtr

        return float(stdtr(self.freedom, (bound - self.value) / self.error))

    def p_above(self, bound: float) -> float:
        """Return how likely a value as small as this is if the truth is `bound` or more."""
        return Estimate(-self.value, self.error, self.freedom).p_below(-bound)

    def p_between(self, above: float, below: float) -> float:
        """Return how likely a value as far outside is if the truth lies between these bounds.

        A value may fall outside on either side: where the bounds are close together, both count.
        """
        outside = max(above - self.value, self.value - below)
        if self.error == 0:
            return float(outside <= 0)
        from scipy.special import stdtr

        sides = (outside, outside + below - above)
        return min(1.0, sum(float(stdtr(self.freedom, -side / self.error)) for side in sides))


def estimate(runs: Sequence[Run], weights: Mapping[str, float], *, shared: bool) -> Estimate:
    """Return the contrast with its error; `shared`: all seeds were tested on the same items."""
    # `np.add.reduce` is what `np.mean` calls, without checks that take three times as long.
    by_seed = np.array(
        [
            sum(w * float(np.add.reduce(run[arm]) / len(run[arm])) for arm, w in weights.items())
            for run in runs
        ]
    )
    count, value = len(by_seed), float(by_seed.mean())
    if count < 2:
        return Estimate(value, math.inf, 1.0)
    of_items = item_variances(runs, weights) if shared else []
    of_seeds = float(by_seed.var(ddof=1)) / count
    parts = [(of_seeds, of_seeds**2 / (count - 1)), *of_items]
    total, below = (sum(column) for column in zip(*parts, strict=True))
    freedom = total**2 / below if below else count - 1.0
    return Estimate(value, math.sqrt(total), freedom, sum(variance for variance, _ in of_items))


def item_variances(runs: Sequence[Run], weights: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return the variance that shared items add and the square of its error, per set of items.

    Arms with as many items were tested on the same ones and are compared item by item. The variance
    is the difference of two mean squares, each with a square of its error (Satterthwaite 1946).
    """
    sets: dict[int, list[str]] = {}
    for arm in weights:
        sets.setdefault(len(runs[0][arm]), []).append(arm)
    found = []
    for items, arms in sets.items():
        if items < 2:
            continue
        x_SI = np.zeros((len(runs), items))
        for arm in arms:
            x_SI += weights[arm] * np.array([run[arm] for run in runs], float)
        seeds = len(x_SI)
        mean_I, mean_S1 = x_SI.mean(axis=0), x_SI.mean(axis=1, keepdims=True)
        rest_SI = x_SI - mean_I - mean_S1 + x_SI.mean()
        noise = float((rest_SI**2).sum()) / ((seeds - 1) * (items - 1))
        between = seeds * float(mean_I.var(ddof=1))
        if between > noise:
            square = between**2 / (items - 1) + noise**2 / ((seeds - 1) * (items - 1))
            found.append(((between - noise) / (seeds * items), square / (seeds * items) ** 2))
    return found


def judge(
    estimates: Sequence[Estimate],
    bounds: Sequence[tuple[float, float]],
    *,
    seeds: int,
    exact: Sequence[bool] = (),
) -> list[Verdict]:
    """Return the verdict on each contrast of one claim, judged together by Holm's method.

    `exact`: whether a contrast is counted, so that chance has no part in it. Seeds that measured
    the same may agree by chance: n of them are no surer than a sign test, which errs once in 2^n.
    """
    every = list(zip(estimates, bounds, exact or [False] * len(bounds), strict=True))
    if seeds < FEWEST_SEEDS:
        return [_exact(one, each) if sure else "not judged" for one, each, sure in every]
    decisions: list[tuple[float, Verdict]] = []
    for one, (above, below), sure in every:
        if sure:
            decisions.append((0.0, _exact(one, (above, below))))
            continue
        agree = one.error <= 1e-12 * max(1.0, abs(one.value))
        least = 0.5**seeds if agree else 0.0
        inside = max(one.p_below(above), one.p_above(below), least)
        outside = max(one.p_between(above, below), least)
        decisions.append((inside, "holds") if inside < outside else (outside, "does not hold here"))
    verdicts: list[Verdict] = ["not significant"] * len(decisions)
    order = sorted(range(len(decisions)), key=lambda i: decisions[i][0])
    for rank, i in enumerate(order):
        p, verdict = decisions[i]
        if p >= LEVEL / (len(order) - rank):
            break
        verdicts[i] = verdict
    return verdicts


def seeds_wanted(
    one: Estimate, bounds: tuple[float, float], *, seeds: int, among: int = 1
) -> int | None:
    """Return how many seeds decide a contrast with a chance of 80 %, if its value is as estimated.

    `among` is how many contrasts are open: Holm's method asks more of each. The part of the error
    that comes from shared test items does not fall with more seeds. None: it is too large by
    itself, so only more items would help; or the value is on the bound.
    """
    from scipy.special import ndtri

    apart = min(abs(one.value - bound) for bound in bounds)
    allowed = (apart / float(ndtri(0.8) - ndtri(LEVEL / among))) ** 2 - one.of_items
    if allowed <= 0:
        return None
    return max(seeds + 1, math.ceil(seeds * (one.error**2 - one.of_items) / allowed))


def _exact(one: Estimate, bounds: tuple[float, float]) -> Verdict:
    """Return the verdict on a figure that does not depend on chance."""
    return "holds" if bounds[0] < one.value < bounds[1] else "does not hold here"


def overall(parts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim: it holds if all its contrasts do."""
    if not parts:
        return "not tested at this size"
    worse: tuple[Verdict, ...] = ("does not hold here", "not judged", "not significant")
    return next((worst for worst in worse if worst in parts), "holds")
