"""Exercises of notebook 07: the mask of an answer, Bradley-Terry, KL estimators, RLOO, DPO."""

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def answer_loss(logits: Tensor, tokens: Tensor, answer: Tensor) -> Tensor:
    """The mean of -log p over the tokens of the answers, each predicted from those before it."""
    wanted = answer[:, 1:]
    return F.cross_entropy(logits[:, :-1][wanted], tokens[:, 1:][wanted])


def preference_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """The mean of -log sigmoid(reward of the chosen answer - reward of the rejected one)."""
    return -F.logsigmoid(chosen - rejected).mean()


def kl_estimates(policy: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """k1, k2 and k3 of each sample [B], from log p under the policy and under the reference."""
    ratio = reference - policy
    return -ratio, ratio**2 / 2, ratio.exp() - 1 - ratio


def leave_one_out(rewards: Tensor) -> Tensor:
    """Each reward [prompts, K] minus the mean of the K - 1 others of its prompt."""
    others = rewards.sum(dim=1, keepdim=True) - rewards
    return rewards - others / (rewards.shape[1] - 1)


def dpo_loss(policy: Tensor, reference: Tensor, beta: float) -> Tensor:
    """DPO from log p of whole answers [P, 2]: the chosen one of each pair first."""
    gains = beta * (policy - reference)
    return -F.logsigmoid(gains[:, 0] - gains[:, 1]).mean()


# ---- inputs -----------------------------------------------------------------------------------


def _conversation(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    rows, words, known = between(2, 4, rng), between(5, 9, rng), between(4, 7, rng)
    logits = torch.randn(rows, words, known, generator=rng).requires_grad_()
    tokens = torch.randint(known, (rows, words), generator=rng)
    begin = torch.randint(1, 3, (rows, 1), generator=rng)
    end = torch.randint(4, words, (rows, 1), generator=rng)
    position = torch.arange(words)
    return logits, tokens, (position >= begin) & (position < end)


def _rewards(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    pairs = between(2, 5, rng)
    chosen = 3 * torch.randn(pairs, generator=rng)
    return chosen.requires_grad_(), 3 * torch.randn(pairs, generator=rng)


def _log_p(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    samples = between(2, 6, rng)
    return -2 * torch.rand(samples, generator=rng), -2 * torch.rand(samples, generator=rng)


def _pairs(rng: torch.Generator) -> tuple[Tensor, Tensor, float]:
    pairs = between(2, 5, rng)
    policy = (-9 * torch.rand(pairs, 2, generator=rng)).requires_grad_()
    beta = (0.1, 0.3, 2.0)[between(0, 3, rng)]
    return policy, -9 * torch.rand(pairs, 2, generator=rng), beta


# ---- mistakes ---------------------------------------------------------------------------------


def _one_off(logits: Tensor, tokens: Tensor, answer: Tensor) -> Tensor:
    wanted = answer[:, :-1]
    return F.cross_entropy(logits[:, :-1][wanted], tokens[:, 1:][wanted])


def _k3_turned(policy: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    k1, k2, _ = kl_estimates(policy, reference)
    return k1, k2, k1.exp() - 1 - k1


def _no_half(policy: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    k1, k2, k3 = kl_estimates(policy, reference)
    return k1, 2 * k2, k3


EXERCISES: dict[str, Exercise] = {
    "07.mask": Function(
        "the mean of -log p over the answers' tokens; the logits at t predict the token at t + 1",
        answer_loss,
        _conversation,
        (
            ("the logits at t were compared with the token at t: they predict the one at t + 1",
             lambda logits, tokens, answer: F.cross_entropy(logits[answer], tokens[answer])),
            ("the mask is off by one: it must mark the predicted tokens, answer[:, 1:]",
             _one_off),
            ("the prompt is learned, too: only tokens of the answer count",
             lambda logits, tokens, answer:
             answer_loss(logits, tokens, torch.ones_like(answer))),
            ("the last token of each answer is missing: a model that never learns the end never "
             "stops (reasoning-from-scratch, issue 185)", lambda logits, tokens, answer:
             answer_loss(logits, tokens, answer & F.pad(answer[:, 1:], (0, 1)))),
            ("that is a sum: take the mean over the tokens of all answers",
             lambda logits, tokens, answer:
             answer_loss(logits, tokens, answer) * answer[:, 1:].sum()),
        ),
        learned="instruction tuning",
        hint="The logits at t predict the token at t + 1: shift all three before you pick.",
    ),
    "07.preference": Function(
        "the mean over the pairs of -log sigmoid(chosen - rejected)",
        preference_loss,
        _rewards,
        (
            ("chosen and rejected are exchanged: the rejected answer would get the higher reward",
             lambda chosen, rejected: preference_loss(-chosen, -rejected)),
            ("the logarithm is missing: the loss is -log of the probability",
             lambda chosen, rejected: -(chosen - rejected).sigmoid().mean()),
            ("the sign is missing: a loss falls while the probability rises",
             lambda chosen, rejected: F.logsigmoid(chosen - rejected).mean()),
            ("that is a sum: take the mean over the pairs",
             lambda chosen, rejected: -F.logsigmoid(chosen - rejected).sum()),
        ),
        learned="the reward model of Bradley and Terry",
        hint="`torch.nn.functional.logsigmoid` stays exact where the sigmoid is nearly 0.",
    ),
    "07.kl": Function(
        "(k1, k2, k3), each [B], for ρ = policy / reference: log ρ, (log ρ)^2 / 2, 1/ρ - 1 + log ρ",
        kl_estimates,
        _log_p,
        (
            ("policy and reference are exchanged: k1 is log policy - log reference",
             lambda policy, reference: kl_estimates(reference, policy)),
            ("k3 has the wrong ratio in it: reference / policy, since the samples are the policy's",
             _k3_turned),
            ("k2 is one half of the square", _no_half),
            ("that is the mean: return one number for each sample",
             lambda *given: tuple(k.mean() for k in kl_estimates(*given))),
        ),
        minutes=7,
        learned="estimators of a divergence",
        hint="With log ρ = policy − reference, 1/ρ is exp(−log ρ).",
    ),
    "07.leave_one_out": Function(
        "each reward [prompts, K] minus the mean of the others of its row",
        leave_one_out,
        lambda rng: (torch.randn(between(1, 4, rng), between(2, 6, rng), generator=rng),),
        (
            ("its own reward is in the mean: divide the sum of the others by K - 1",
             lambda rewards: rewards - rewards.mean(dim=1, keepdim=True)),
            ("the sum of the others is divided by K: there are K - 1 of them",
             lambda rewards: rewards - (rewards.sum(1, keepdim=True) - rewards) / rewards.shape[1]),
            ("the mean is that of all prompts: each prompt has its own",
             lambda rewards: rewards - (rewards.sum() - rewards) / (rewards.numel() - 1)),
            ("that is the baseline alone: subtract it from the reward",
             lambda rewards: rewards - leave_one_out(rewards)),
        ),
        learned="a baseline that costs nothing",
        hint="The others of a row sum to the sum of the row minus this reward.",
    ),
    "07.dpo": Function(
        "the mean over the pairs of -log sigmoid(beta x (log-ratio chosen - log-ratio rejected))",
        dpo_loss,
        _pairs,
        (
            ("the reference is missing: what counts is log policy - log reference",
             lambda policy, reference, beta: dpo_loss(policy, torch.zeros_like(reference), beta)),
            ("beta is in the denominator: it multiplies the log-ratios, so that a large beta is "
             "satisfied by a small change",
             lambda policy, reference, beta: dpo_loss(policy, reference, 1 / beta)),
            ("the sign inside the sigmoid is wrong: take policy - reference, and column 0, the "
             "chosen answer, minus column 1",
             lambda policy, reference, beta: dpo_loss(policy.flip(1), reference.flip(1), beta)),
            ("beta is outside the sigmoid: it belongs to the log-ratios",
             lambda policy, reference, beta: beta * dpo_loss(policy, reference, 1.0)),
            ("that is a sum: take the mean over the pairs",
             lambda policy, reference, beta: dpo_loss(policy, reference, beta) * len(policy)),
        ),
        minutes=10,
        learned="direct preference optimisation",
        hint="The log-ratio of an answer is policy − reference. Compare chosen with rejected.",
    ),
}  # fmt: skip
