"""Any trained policy by a list of all answers: rewards and divergences without sampling noise.

    questions = [Question(prompt, answers, rewards), ...]
    reference = policies(base, questions)
    found = measured(policies(model, questions), reference, questions, beta=0.3)
    found.value <= ceiling(reference, questions, beta=0.3)

All answers that are not listed count as one more, with a reward of its own: `outside` is its
probability. The divergence within it is not counted, so a policy looks better, never worse.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labkit.alignment.rollouts import Reward, Tokens
from labkit.blocks import evaluating
from labkit.world import optimal
from labkit.writing.prompting import log_likelihoods


@dataclass(frozen=True)
class Question:
    """A prompt, its answers with their end tokens, and their rewards, that of the rest last."""

    prompt: Tokens
    answers: Sequence[Tokens]
    rewards: np.ndarray

    def __post_init__(self) -> None:
        if len(self.rewards) != len(self.answers) + 1:
            raise ValueError(
                f"{len(self.answers)} answers have {len(self.rewards)} rewards: give one for each, "
                "and one more for all that is not listed"
            )


class Measured(NamedTuple):
    """The means over all questions."""

    reward: float
    divergence: float
    value: float
    outside: float


def policies(model: Any, questions: Sequence[Question], *, rows: int = 256) -> list[np.ndarray]:
    """The probability of each listed answer under a model, and that of all others as the last."""
    found = []
    with evaluating(model):
        for question in questions:
            logs = log_likelihoods(model, [question.prompt], question.answers, rows=rows)[0]
            found.append(optimal.with_rest(np.exp(logs.double().numpy())))
    return found


def measured(
    policy: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    questions: Sequence[Question],
    beta: float,
) -> Measured:
    """Reward, divergence and value of a policy, and its probability outside of the lists."""
    rewards = [p @ q.rewards for p, q in zip(policy, questions, strict=True)]
    apart = [optimal.divergence(p, r) for p, r in zip(policy, reference, strict=True)]
    reward, away = float(np.mean(rewards)), float(np.mean(apart))
    return Measured(reward, away, reward - beta * away, float(np.mean([p[-1] for p in policy])))


def best_policies(
    reference: Sequence[np.ndarray], questions: Sequence[Question], beta: float
) -> list[np.ndarray]:
    """The best policy for each question."""
    pairs = zip(reference, questions, strict=True)
    return [optimal.best_policy(p, q.rewards, beta) for p, q in pairs]


def ceiling(reference: Sequence[np.ndarray], questions: Sequence[Question], beta: float) -> float:
    """beta * log Z, the mean over the questions: no policy has a higher value."""
    pairs = zip(reference, questions, strict=True)
    return beta * float(np.mean([optimal.log_partition(p, q.rewards, beta) for p, q in pairs]))


def frontier(
    reference: Sequence[np.ndarray], questions: Sequence[Question], betas: Iterable[float]
) -> list[Measured]:
    """The best policies for these betas, each measured."""
    return [
        measured(best_policies(reference, questions, beta), reference, questions, beta)
        for beta in betas
    ]


def gold(questions: Sequence[Question]) -> Reward:
    """The true reward as a function of (prompts, answers), by looking it up."""
    table = {
        (tuple(q.prompt), tuple(answer)): float(reward)
        for q in questions
        for answer, reward in zip(q.answers, q.rewards[:-1], strict=True)
    }
    rest = {tuple(q.prompt): float(q.rewards[-1]) for q in questions}

    def reward(prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> list[float]:
        pairs = [(tuple(p), tuple(a)) for p, a in zip(prompts, answers, strict=True)]
        return [table.get(pair, rest[pair[0]]) for pair in pairs]

    return reward
