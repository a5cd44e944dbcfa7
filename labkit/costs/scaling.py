"""Scaling laws: how the loss above the floor falls with the size of the model and of the text.

    loss(N, D) - floor = A / N^alpha + B / D^beta          (Hoffmann et al. 2022, equation 2)

In the literature the floor is fitted with the rest, and small errors of it move the exponents.  For
the course's language it is known, so four numbers are left to fit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import check_choice, check_seed, check_whole, is_number

Array = NDArray[np.float64]


class ScalingRun(NamedTuple):
    """One trained model: its size, how much text it read, and how far above the floor it ended."""

    parameters: float
    tokens: float
    excess: float
    """Loss - floor, in nats per token."""


class Fit(NamedTuple):
    """A fitted scaling law, and its intervals from resampled runs (2.5 % to 97.5 %)."""

    a: float
    alpha: float
    b: float
    beta: float
    intervals: dict[str, tuple[float, float]]
    error: float
    """Root mean square of log(predicted / measured)."""

    def excess(self, parameters: ArrayLike, tokens: ArrayLike) -> Array:
        """The loss above the floor that the fit predicts."""
        n, d = np.asarray(parameters, float), np.asarray(tokens, float)
        return self.a * n**-self.alpha + self.b * d**-self.beta

    @property
    def compute_exponent(self) -> float:
        """How the best size grows with the operations: N ~ C^(beta / (alpha + beta))."""
        return self.beta / (self.alpha + self.beta)


def fit(runs: Sequence[ScalingRun], *, resamples: int = 300, seed: int = 0) -> Fit:
    """Fit the scaling law to runs of at least three sizes and three amounts of text.

    Least squares of log(predicted / measured), by Levenberg's steps, from several starts.
    """
    sizes, texts = {run.parameters for run in runs}, {run.tokens for run in runs}
    if len(sizes) < 3 or len(texts) < 3:
        raise ValueError(
            f"{len(runs)} runs with {len(sizes)} sizes and {len(texts)} amounts of text do not fix "
            "four numbers: give runs of at least three sizes and three amounts"
        )
    check_whole("resamples", resamples, least=1)
    check_seed(seed)
    _check(runs)
    log_n, log_d, log_y = (np.log(column) for column in np.array(runs, float).T)
    # Measured from the middle of the data, the four numbers hardly depend on each other.
    middle_n, middle_d = log_n.mean(), log_d.mean()
    rng = np.random.default_rng(seed)
    picked = rng.integers(len(runs), size=(resamples, len(runs)))
    weights: Array = np.array([np.bincount(row, minlength=len(runs)) for row in picked], float)
    weights = np.vstack([np.ones(len(runs)), weights])
    found, errors = _least_squares(log_n - middle_n, log_d - middle_d, log_y, weights)
    found[:, 0] += found[:, 1] * middle_n
    found[:, 2] += found[:, 3] * middle_d
    found[:, [0, 2]] = np.exp(found[:, [0, 2]])
    low, high = np.percentile(found[1:], [2.5, 97.5], axis=0)
    names = ("a", "alpha", "b", "beta")
    intervals = dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    a, alpha, b, beta = found[0].tolist()
    return Fit(a, alpha, b, beta, intervals, error=float(errors[0]))


def _check(runs: Sequence[ScalingRun]) -> None:
    if not all(run.excess > 0 for run in runs):
        raise ValueError("a run is not above the floor: there is nothing to take a logarithm of")
    for run in runs:
        if not all(is_number(number) and number > 0 for number in run):
            raise ValueError(f"{run} holds no finite numbers above 0: leave it out")


def held_out_errors(runs: Sequence[ScalingRun], law: str = "power") -> list[float]:
    """|log(predicted / measured)| of each run, by the power law fitted to all the others.

    "power" is that of `fit`; "exponential", a exp(-alpha N) + b exp(-beta D), has as many numbers.
    """
    check_choice("law", law, "power", "exponential")
    if len(runs) < 6:
        raise ValueError(f"{len(runs)} runs: one is left out and four numbers fitted, give six")
    _check(runs)
    n, d, y = np.array(runs, float).T
    x, z = (np.log(v) if law == "power" else v / np.median(v) for v in (n, d))
    data, others = (x - x.mean(), z - z.mean(), np.log(y)), 1 - np.eye(len(runs))
    found, _ = _least_squares(*data, others)
    residual, _ = _residuals(found, *data)
    return [abs(float(each)) for each in np.diag(residual)]


def _least_squares(x: Array, z: Array, log_y: Array, weights: Array) -> tuple[Array, Array]:
    """(log a, alpha, log b, beta) for each row of weights, the best of some starts; its error."""
    best = np.full(len(weights), np.inf)
    found = np.zeros((len(weights), 4))
    half = np.log(0.5) + np.average(log_y)
    for alpha in (0.1, 0.5, 1.0):
        for beta in (0.1, 0.5, 1.0):
            start = np.tile([half, alpha, half, beta], (len(weights), 1))
            values, cost = _levenberg(start, x, z, log_y, weights)
            better = cost < best
            best[better], found[better] = cost[better], values[better]
    return found, np.sqrt(best / weights.sum(axis=1))


def _levenberg(
    values: Array, x: Array, z: Array, log_y: Array, weights: Array
) -> tuple[Array, Array]:
    """Damped Gauss-Newton steps for all rows at once; a row's step counts if its cost falls."""
    damping = np.full(len(values), 1e-2)
    residual, slope = _residuals(values, x, z, log_y)
    cost = (weights * residual**2).sum(axis=1)
    for _ in range(60):
        hessian = np.einsum("rn,rni,rnj->rij", weights, slope, slope)
        gradient = np.einsum("rn,rni,rn->ri", weights, slope, residual)
        # A little on the diagonal keeps it solvable when a resample leaves a direction free.
        extra = damping[:, None, None] * np.eye(4)
        tried = values - np.linalg.solve(hessian + extra, gradient[..., None])[..., 0]
        tried[:, [1, 3]] = np.clip(tried[:, [1, 3]], 1e-3, 5.0)
        there, slope_there = _residuals(tried, x, z, log_y)
        new = (weights * there**2).sum(axis=1)
        better = new < cost
        values = np.where(better[:, None], tried, values)
        residual = np.where(better[:, None], there, residual)
        slope = np.where(better[:, None, None], slope_there, slope)
        cost = np.where(better, new, cost)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e6)
    return values, cost


def _residuals(values: Array, x: Array, z: Array, log_y: Array) -> tuple[Array, Array]:
    """log(predicted / measured) of each row and run, and its slopes by the four numbers."""
    log_a, alpha, log_b, beta = (column[:, None] for column in values.T)
    size, text = log_a - alpha * x, log_b - beta * z
    predicted = np.logaddexp(size, text)
    share = np.exp(size - predicted)
    slope = np.stack([share, -share * x, 1 - share, -(1 - share) * z], axis=-1)
    return predicted - log_y, slope
