"""Policies beside the best one: a slider for beta, all answers to a question, the frontier.

The best policy and the frontier are exact sums over all answers (`labkit.world.optimal`). Each
policy is given as the probabilities of the same answers, the last of which stands for all answers
that are not listed. Read `alignment_view`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from classroom.demos.base import Demo, choice, slider
from classroom.demos.pieces import Curve, Heading, Note, Share, Table
from classroom.demos.rendering import View
from labkit.world import optimal

SHOWN = 8
"""How many answers are listed: those that the best policy likes best."""
KEPT = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
BETAS = tuple(10.0**e for e in np.linspace(1, -1.5, 24))
REST = "(anything else)"


class Asked(NamedTuple):
    """A question: its answers in words, their rewards, and what each policy gives them."""

    answers: Sequence[str]
    rewards: np.ndarray
    reference: np.ndarray
    policies: Mapping[str, np.ndarray]


def line(asked: Asked) -> tuple[tuple[float, float], ...]:
    """The frontier as (divergence, reward), from the reference itself on."""
    points = optimal.frontier(asked.reference, asked.rewards, BETAS)
    start = (0.0, float(asked.reference @ asked.rewards))
    return (start, *((point.divergence, point.reward) for point in points))


def alignment_view(
    asked: Asked, beta: float, policy: str, frontier: tuple[tuple[float, float], ...] = ()
) -> View:
    """The likeliest answers of the best policy, those of another, and where all of them stand."""
    if policy not in asked.policies:
        raise ValueError(f"there is no policy {policy!r}: choose {', '.join(asked.policies)}")
    p, rewards = asked.reference, asked.rewards
    best, mine = optimal.best_policy(p, rewards, beta), asked.policies[policy]
    names = [*asked.answers, REST]
    likely = np.argsort(-best, kind="stable")[:SHOWN]
    answers = tuple(
        (names[i], f"{rewards[i]:+.1f}", *(Share(float(q[i])) for q in (p, best, mine)))
        for i in likely
    )
    every = {"tuned": p, "the best for this beta": best, **asked.policies}
    ceiling = beta * optimal.log_partition(p, rewards, beta)
    methods = tuple(_row(name, q, asked, beta, ceiling) for name, q in every.items())
    stands = _standing(policy, mine, asked, frontier or line(asked))
    return View.of(
        "alignment",
        Heading(f"The {len(likely)} likeliest answers of the best policy at beta {beta:.2f}"),
        Table(("answer", "reward", "tuned", "best", policy), answers, "answers"),
        Heading(f"The frontier, and where {policy} stands"),
        stands,
        Table(("policy", "reward", "divergence", "value", "below the ceiling", "outside"),
              methods, "policies"),
        Note(f"Ceiling = beta × log Z = {ceiling:z.3f}; value = reward − beta × divergence.",
             "ceiling"),
    )  # fmt: skip


def _standing(
    name: str, policy: np.ndarray, asked: Asked, points: tuple[tuple[float, float], ...]
) -> Curve | Note:
    """The frontier with a mark for a policy, or why it has no place there."""
    found = optimal.divergence(policy, asked.reference), float(policy @ asked.rewards)
    if not np.isfinite(found[0]):
        said = f"{name} gives answers that the tuned model never gives: its divergence is infinite."
        return Note(said, "infinite")
    highest = optimal.highest_reward(asked.reference, asked.rewards, found[0])
    xs, ys = zip(*points, found, strict=True)
    return Curve(
        points=points,
        said=f"{name} has a reward of {found[1]:z.3f} at a divergence of {found[0]:.3f} nats; "
        f"{highest:z.3f} is possible there.",
        name="reward over divergence",
        low=f"{min(ys):.2f}",
        high=f"{max(ys):.2f}",
        last=f"divergence {max(xs):.2f} nats",
        mark=found,
        frame=(0.0, max(xs), min(ys), max(ys)),
    )


def _row(
    name: str, policy: np.ndarray, asked: Asked, beta: float, ceiling: float
) -> tuple[str, ...]:
    away = optimal.divergence(policy, asked.reference)
    reward = float(policy @ asked.rewards)
    numbers = (reward, away, reward - beta * away, max(0.0, ceiling - reward + beta * away))
    return (name, *(f"{number:z.3f}" for number in numbers), f"{policy[-1]:.3f}")


def alignment_demo(asked: Mapping[str, Asked], beta: float = 0.3) -> Demo:
    """Slide beta, choose a question and a policy, and compare it with the best there is."""
    policies = _policies(asked)
    lines = {name: line(one) for name, one in asked.items()}

    def draw(beta: float, question: str, policy: str) -> View:
        return alignment_view(asked[question], beta, policy, lines[question])

    controls = {
        "beta": slider("beta", beta, min(0.05, beta), max(2.0, beta), 0.05),
        "question": choice("question", list(asked)),
        "policy": choice("policy", policies),
    }
    # A page without a kernel has views of a few values of beta, and of every question and policy.
    return Demo("alignment", draw, controls, kept={"beta": sorted({*KEPT, beta})})


def _policies(asked: Mapping[str, Asked]) -> list[str]:
    """The policies of every question, which are the same."""
    if not asked:
        raise ValueError("there is no question: give at least one")
    (first, one), *others = asked.items()
    for name, other in others:
        if other.policies.keys() != one.policies.keys():
            raise ValueError(
                f"{first!r} has the policies {', '.join(one.policies)}, but {name!r} has "
                f"{', '.join(other.policies)}: give every question the same ones"
            )
    return list(one.policies)
