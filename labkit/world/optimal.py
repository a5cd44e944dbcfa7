"""The best that a policy can do: exact rewards, divergences and frontiers, without any sampling.

A policy answers a prompt. Its value is J = E[reward] - beta * KL(policy | reference), in the units
of the reward; the divergence is in nats. Where all answers can be listed, everything is a
sum over p [answers], their probabilities under the reference (Ziegler et al. 2019, section 2):

    best = best_policy(p, reward, beta)                     p * exp(reward / beta) / Z
    ceiling = beta * log_partition(p, reward, beta)         the value of the best policy
    frontier(p, reward, betas)                              the highest reward at each divergence
    best_of(p, reward, n)                                   the best of n drawn answers
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from labkit.checks import check_above_zero, check_whole, require

LEAST_REST = float(np.finfo(np.float32).eps)
"""Models compute in single precision, so what they leave over is known no better than this."""


class Point(NamedTuple):
    """The best policy for one beta: a point of the frontier."""

    beta: float
    reward: float
    divergence: float
    value: float


def with_rest(p: np.ndarray) -> np.ndarray:
    """The probabilities of the listed answers, and that of all others together as the last one.

    It is never 0: a policy that leaves 1e-8 over by rounding would be infinitely far from that.
    """
    total = p.sum()
    if not total <= 1 + 1e-4:
        raise ValueError(
            f"the probabilities add up to {total:.4f}: list each answer once, with its end"
        )
    return np.append(p, max(LEAST_REST, 1 - total))


def _check_complete(p: np.ndarray) -> None:
    """Refuse probabilities that leave some answers out: their sums would describe no policy."""
    total = p.sum()
    require(
        abs(total - 1) <= 1e-3,
        f"the probabilities add up to {total:.4f}, not to 1: list all answers, or add the chance "
        "of all others with with_rest(p), and their reward",
    )


def log_partition(p: np.ndarray, reward: np.ndarray, beta: float) -> float:
    """log Z, with Z the mean of exp(reward / beta) under the reference."""
    return float(np.logaddexp.reduce(_tilted(p, reward, beta)))


def best_policy(p: np.ndarray, reward: np.ndarray, beta: float) -> np.ndarray:
    """The policy with the most reward - beta * divergence: p * exp(reward / beta) / Z."""
    logs = _tilted(p, reward, beta)
    return np.exp(logs - np.logaddexp.reduce(logs))


def _tilted(p: np.ndarray, reward: np.ndarray, beta: float) -> np.ndarray:
    check_above_zero(beta=beta)
    _check_complete(p)
    with np.errstate(divide="ignore"):
        return np.log(p) + reward / beta


def divergence(policy: np.ndarray, reference: np.ndarray) -> float:
    """KL(policy | reference) in nats; infinite where the reference never gives an answer."""
    some = policy > 0
    with np.errstate(divide="ignore"):
        nats = float(policy[some] @ (np.log(policy[some]) - np.log(reference[some])))
    return max(0.0, nats)  # rounding may give slightly less than 0


def frontier(p: np.ndarray, reward: np.ndarray, betas: Iterable[float]) -> list[Point]:
    """The best policies for these betas. No policy has more reward at the same divergence."""
    return [_point(p, reward, beta) for beta in betas]


def _point(p: np.ndarray, reward: np.ndarray, beta: float) -> Point:
    best, log_z = best_policy(p, reward, beta), log_partition(p, reward, beta)
    mean = float(best @ reward)
    return Point(beta, mean, mean / beta - log_z, beta * log_z)


def highest_reward(p: np.ndarray, reward: np.ndarray, nats: float) -> float:
    """The highest reward that a policy can have at a divergence of so many nats.

    Between two betas the frontier is found by bisection on 1 / beta.
    """
    require(nats >= 0, f"the divergence is {nats} nats: give at least 0")
    _check_complete(p)
    top = reward[p > 0].max()
    most = -np.log(p[reward == top].sum())
    if nats >= most:
        return float(top)
    low, high = 0.0, 1.0
    while _point(p, reward, 1 / high).divergence < nats:
        # Only rounding keeps a policy of the best answers alone below this divergence.
        if not best_policy(p, reward, 1 / high)[reward < top].any():
            return float(top)
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if middle and _point(p, reward, 1 / middle).divergence < nats:
            low = middle
        else:
            high = middle
    return _point(p, reward, 1 / high).reward


def best_of(p: np.ndarray, reward: np.ndarray, n: int) -> np.ndarray:
    """The distribution of the best of n drawn answers; equal rewards are chosen by chance."""
    check_whole("n", n, 1)
    _check_complete(p)
    _, level = np.unique(reward, return_inverse=True)
    mass = np.bincount(level, p)
    below = np.cumsum(mass)
    best = below**n - (below - mass) ** n
    share = np.divide(best, mass, out=np.zeros_like(mass), where=mass > 0)
    return p * share[level]


def best_of_bound(n: int) -> float:
    """log n - (n - 1) / n: the divergence of the best of n if no two rewards are equal.

    With ties it is an upper bound only (Beirami et al. 2024).
    """
    check_whole("n", n, 1)
    return float(np.log(n) - (n - 1) / n)


def win_rate(
    policy: np.ndarray, other: np.ndarray, reward: np.ndarray, alike: np.ndarray | None = None
) -> float:
    """The chance that the policy's answer has more reward than the other's; ties count half.

    With `alike`, such as the length of each answer, only answers that are alike are compared: the
    length-controlled win rate (Dubois et al. 2024), which no policy raises by its length alone.
    """
    _, level = np.unique(reward, return_inverse=True)
    kind = np.zeros_like(level) if alike is None else np.unique(alike, return_inverse=True)[1]
    wins = compared = 0.0
    for one in range(kind.max() + 1):
        mine = np.bincount(level[kind == one], policy[kind == one], level.max() + 1)
        theirs = np.bincount(level[kind == one], other[kind == one], level.max() + 1)
        wins += float(mine @ (np.cumsum(theirs) - theirs / 2))
        compared += float(mine.sum() * theirs.sum())
    if not compared:
        raise ValueError("no answers of the two policies are alike: leave `alike` out")
    return wins / compared


def preferred(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The chance that the first is preferred, by their rewards (Bradley and Terry 1952)."""
    return np.exp(-np.logaddexp(0.0, second - first))


def best_accuracy(p: np.ndarray, reward: np.ndarray) -> float:
    """How often the best reward model agrees with preferences: E[max(s, 1 - s)] over drawn pairs.

    A pair whose rewards are equal is preferred by chance, and one half of the answers are right.
    """
    _check_complete(p)
    rewards, level = np.unique(reward, return_inverse=True)
    mass = np.bincount(level, p)
    chance = preferred(rewards[:, None], rewards[None, :])
    return float(mass @ np.maximum(chance, 1 - chance) @ mass)


def accuracy(p: np.ndarray, reward: np.ndarray, guessed: np.ndarray) -> float:
    """How often a reward model with these guesses agrees with preferences by the true reward."""
    _check_complete(p)
    chance = preferred(reward[:, None], reward[None, :])
    right = np.where(guessed[:, None] > guessed[None, :], chance, 1 - chance)
    right = np.where(guessed[:, None] == guessed[None, :], 0.5, right)
    return float(p @ right @ p)
