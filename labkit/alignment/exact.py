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
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.alignment.rollouts import Reward, Tokens
from labkit.blocks import LanguageModel, evaluating, vocabulary_of
from labkit.checks import require, shown
from labkit.corpus import pad_rows
from labkit.models.gpt import GPT
from labkit.tensor_checks import check_tokens
from labkit.world import optimal
from labkit.writing.prompting import log_likelihoods
from labkit.writing.reader import select


@dataclass(frozen=True)
class Question:
    """A prompt, its answers with their end tokens, their rewards, and one reward for all others."""

    prompt: Tokens
    answers: Sequence[Tokens]
    rewards: np.ndarray

    def __post_init__(self) -> None:
        if len(self.rewards) != len(self.answers) + 1:
            raise ValueError(
                f"{len(self.answers)} answers have {len(self.rewards)} rewards: give one for each, "
                "and one more for all that is not listed"
            )
        first: dict[Tokens, int] = {}
        for i, answer in enumerate(self.answers):
            if first.setdefault(tuple(answer), i) != i:
                raise ValueError(
                    f"answers {first[tuple(answer)]} and {i} are the same, so its probability "
                    "would count twice: list each answer once"
                )


class Measured(NamedTuple):
    """The means over all questions."""

    reward: float
    divergence: float
    value: float
    outside: float


def policies(model: LanguageModel, questions: Sequence[Question]) -> list[np.ndarray]:
    """The probability of each listed answer under a model, and that of all others as the last."""
    found = []
    with evaluating(model):
        for question in questions:
            if isinstance(model.backbone, GPT):
                logs_A = log_likelihoods_of_tree(model, question.prompt, question.answers)
            else:
                logs_A = log_likelihoods(model, [question.prompt], question.answers)[0]
            found.append(optimal.with_rest(np.exp(logs_A.double().numpy())))
    return found


@torch.no_grad()
def log_likelihoods_of_tree(
    model: LanguageModel, prompt: Tokens, answers: Sequence[Tokens]
) -> Tensor:
    """log p(answer | prompt) under a GPT. Prefixes that answers share are read only once.

    All prefixes of one length are the rows of one forward pass.
    """
    for i, answer in enumerate(answers):
        require(len(answer) > 0, f"answer {i} is empty: give at least the token that ends it")
    where = next(model.parameters()).device
    tokens_AT, real_AT = pad_rows(answers)
    check_tokens(tokens_AT, vocabulary_of(model))
    tokens_AT, real_AT = tokens_AT.to(where), real_AT.to(where)
    length_A, logs_A = real_AT.sum(dim=1), torch.zeros(len(answers), device=where)
    # The answers that go on, and the row that has read what stands before their next token.
    answer_N, row_N = torch.arange(len(answers), device=where), torch.zeros_like(length_A)
    text_RT, memory = torch.tensor([list(prompt)], device=where), ()
    for position in range(tokens_AT.shape[1]):
        states = model.backbone(text_RT, memory=memory)
        logs_RV = model.head(states.hidden[:, -1]).float().log_softmax(dim=-1)
        logs_A[answer_N] += logs_RV[row_N, tokens_AT[answer_N, position]]
        goes_on_N = length_A[answer_N] > position + 1
        answer_N, row_N = answer_N[goes_on_N], row_N[goes_on_N]
        # Answers that had one row and go on with one token share the next row, too.
        words = logs_RV.shape[1]
        next_N = row_N * words + tokens_AT[answer_N, position]
        next_R, row_N = next_N.unique(return_inverse=True)
        text_RT, parent_R = (next_R % words)[:, None], next_R // words
        memory = select(states.memory, parent_R)
    return logs_A.cpu()


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
        for prompt, _ in pairs:
            if prompt not in rest:
                raise ValueError(
                    f"no question has the prompt {shown(list(prompt))}, so its rewards are not "
                    "known: give only prompts of the questions"
                )
        return [table.get(pair, rest[pair[0]]) for pair in pairs]

    return reward
