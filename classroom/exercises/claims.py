"""Exercises of notebook 13: an interval, a pair, a verdict, and many verdicts at once."""

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def bootstrap(values: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """The 2.5 % and 97.5 % quantiles of the means of resampled values: each row of draws is one."""
    means = values[draws].mean(dim=1)
    return means.quantile(0.025), means.quantile(0.975)


def paired_error(with_it: Tensor, without: Tensor) -> Tensor:
    """The standard error of the mean difference of losses on the same documents."""
    difference = with_it - without
    return difference.std() / len(difference) ** 0.5


def verdict(low: float, high: float, bound: float) -> str:
    """What an interval says of the claim that a difference is at least `bound`."""
    if low >= bound:
        return "holds"
    return "does not hold here" if high < bound else "not significant"


def each_coverage(any_misses: float, tests: int) -> float:
    """Bonferroni: how sure each of many intervals must be, so that all together are sure enough."""
    return 1 - any_misses / tests


# ---- inputs -----------------------------------------------------------------------------------


def _sample(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    size = between(3, 9, rng)
    values = torch.randn(size, generator=rng)
    return values, torch.randint(size, (between(20, 60, rng), size), generator=rng)


def _pairs(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    hard = torch.randn(between(3, 12, rng), generator=rng, dtype=torch.float64)
    noise = 0.2 * torch.randn(2, len(hard), generator=rng, dtype=torch.float64)
    return hard + noise[0] - 0.1, hard + noise[1]


def _interval(rng: torch.Generator) -> tuple[float, float, float]:
    bound = 0.1 * between(0, 3, rng)
    low, high = sorted((torch.rand(2, generator=rng) - 0.3).tolist())
    case = between(0, 6, rng)
    if case == 0:  # the bound itself is an end
        low, high = bound, bound + abs(high)
    elif case == 1:
        low, high = bound - abs(low) - 0.01, bound
    return low, high, bound


EXERCISES: dict[str, Exercise] = {
    "13.bootstrap": Function(
        "(low, high): the quantiles 0.025 and 0.975 of the means of values[row], for each row of "
        "draws",
        bootstrap,
        _sample,
        (
            ("those are quantiles of the values: an interval for the mean needs means",
             lambda values, draws: (values.quantile(0.025), values.quantile(0.975))),
            ("the mean runs over the draws: each row of draws is one sample, so its mean is wanted",
             lambda values, draws: (values[draws].mean(dim=0).quantile(0.025),
                                    values[draws].mean(dim=0).quantile(0.975))),
            ("that interval holds 90 %: 95 % leave 2.5 % on each side",
             lambda values, draws: (values[draws].mean(dim=1).quantile(0.05),
                                    values[draws].mean(dim=1).quantile(0.95))),
            ("low and high are exchanged", lambda *given: bootstrap(*given)[::-1]),
            ("the smallest and largest mean are the ends of an interval that holds everything",
             lambda values, draws: (values[draws].mean(dim=1).min(),
                                    values[draws].mean(dim=1).max())),
        ),
        minutes=8,
        learned="an interval without a formula",
    ),
    "13.paired": Function(
        "the standard error of the mean of with_it − without",
        paired_error,
        _pairs,
        (
            ("the two are treated as if the documents were different: take differences first",
             lambda a, b: ((a.var() + b.var()) / len(a)) ** 0.5),
            ("that is the standard deviation: a mean of n is √n times as certain",
             lambda a, b: (a - b).std()),
            ("divide by √n, not by n", lambda a, b: (a - b).std() / len(a)),
            ("that is the variance of the mean: its root is the error",
             lambda a, b: (a - b).var() / len(a)),
            ("the spread around a mean that was estimated too: divide by n − 1 (std's default)",
             lambda a, b: (a - b).std(correction=0) / len(a) ** 0.5),
        ),
        learned="why the same documents are used twice",
    ),
    "13.verdict": Function(
        '"holds", "does not hold here" or "not significant", for the claim "at least bound"',
        verdict,
        _interval,
        (
            ("the middle of the interval decides nothing: all of it has to be above the bound",
             lambda low, high, bound: "holds" if (low + high) / 2 >= bound
             else "does not hold here"),
            ("an interval above 0 is no reason: the claim names its bound",
             lambda low, high, bound: verdict(low, high, 0.0)),
            ("an interval that reaches across the bound is not against the claim: not significant",
             lambda low, high, bound: "holds" if low >= bound else "does not hold here"),
            ("the upper end is not enough: the lower one has to be above the bound",
             lambda low, high, bound: "holds" if high >= bound else "does not hold here"),
            ("“at least” includes the bound: the claim holds if low equals it",
             lambda low, high, bound: "holds" if low > bound else
             "does not hold here" if high < bound else "not significant"),
            ("where high equals the bound the claim may still be true: that is not significant",
             lambda low, high, bound: "holds" if low >= bound else
             "does not hold here" if high <= bound else "not significant"),
        ),
        learned="three verdicts",
    ),
    "13.each": Function(
        "the coverage that each of `tests` intervals needs, so that any misses at most so often",
        each_coverage,
        lambda rng: ((0.01, 0.05, 0.1)[between(0, 3, rng)], between(2, 60, rng)),
        (
            ("that is how often each may miss: its coverage is the rest",
             lambda any_misses, tests: any_misses / tests),
            ("that is how often all of them hold together",
             lambda any_misses, tests: (1 - any_misses) ** tests),
            ("each may miss less often when there are more of them: divide by their number",
             lambda any_misses, tests: 1 - any_misses),
            ("that is exact for independent tests; Bonferroni's division holds for all",
             lambda any_misses, tests: (1 - any_misses) ** (1 / tests)),
        ),
        minutes=3,
        learned="many tests at once",
    ),
}  # fmt: skip
