"""Preferences: a loss that makes the chosen answer likelier, DPO (Rafailov et al. 2023)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic


def honest(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    """The mean of -log sigmoid(beta * (log-ratio of the chosen - log-ratio of the rejected))."""
    ratio_2P = ((policy - reference) * answer).sum(dim=-1)
    return -F.logsigmoid(beta * (ratio_2P[0] - ratio_2P[1])).mean()


def _by_softplus(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    difference = (policy - reference).masked_fill(~answer, 0.0)
    gains = beta * difference.double().sum(dim=2)
    return F.softplus(gains[1] - gains[0]).mean().to(policy.dtype)


def _by_pairs(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    losses = []
    for i in range(policy.shape[1]):
        chosen = (policy[0, i] - reference[0, i])[answer[0, i]].sum()
        rejected = (policy[1, i] - reference[1, i])[answer[1, i]].sum()
        losses.append(torch.logaddexp(policy.new_zeros(()), beta * (rejected - chosen)))
    return torch.stack(losses).mean()


def _by_choice(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    scores = beta * torch.einsum("apt,apt->pa", policy - reference, answer.to(policy.dtype))
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


def _averaged(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    ratio = ((policy - reference) * answer).sum(dim=-1) / answer.sum(dim=-1)
    return -F.logsigmoid(beta * (ratio[0] - ratio[1])).mean()


def _without_the_end(policy: Tensor, reference: Tensor, answer: Tensor, beta: float) -> Tensor:
    followed = F.pad(answer[..., 1:], (0, 1))
    return honest(policy, reference, answer & followed, beta)


def arguments() -> tuple[Tensor, Tensor, Tensor, float]:
    """log p of tokens [2, P, T] under policy and reference, which are answers, and beta."""
    policy = -3 * torch.rand(2, 3, 7)
    reference = -3 * torch.rand(2, 3, 7)
    begin = torch.randint(1, 3, (2, 3, 1))
    end = torch.tensor([[[6], [4], [5]], [[4], [6], [6]]])
    position = torch.arange(7)
    answer = (position >= begin) & (position < end)
    return policy.requires_grad_(), reference, answer, 0.4


TOPIC = Topic(
    "loss(policy, reference, answer, beta) gets log p of the tokens [2, P, T], the chosen answers "
    "at 0 and the rejected ones at 1, and which tokens belong to the answers; return True if it is "
    "not the mean of DPO's loss over the P pairs",
    (
        Honest("a sound loss", honest),
        Honest("a sound loss with softplus in 64 bits", _by_softplus),
        Honest("a sound loss that goes pair by pair", _by_pairs),
        Honest("a sound loss as a choice between two", _by_choice),
    ),
    (
        Bug("log-probabilities are averaged over the tokens", _averaged,
            "LLMs-from-scratch, issue 818: mean instead of sum",
            "Calculate the loss of one pair yourself, with answers of different lengths"),
        Bug("prompt and padding count",
            lambda policy, reference, answer, beta:
            honest(policy, reference, torch.ones_like(answer), beta),
            "OpenRLHF, issue 294: the prompts of the rejected answers were not masked",
            "Change what does not belong to the answers"),
        Bug("the mask is off by one",
            lambda policy, reference, answer, beta:
            honest(policy, reference, answer.roll(1, dims=-1), beta),
            "minimind, pull request 621: the first token of the answer was left out",
            "Change what does not belong to the answers"),
        Bug("the end of the answer does not count", _without_the_end,
            "reasoning-from-scratch, issue 185: the end token was never trained",
            "Does each token of an answer count? Change the last one"),
        Bug("the reference is left out",
            lambda policy, reference, answer, beta:
            honest(policy, torch.zeros_like(reference), answer, beta),
            "SimPO on purpose, others by accident",
            "Change the reference alone"),
        Bug("a larger beta lets the policy go further",
            lambda policy, reference, answer, beta: honest(policy, reference, answer, 1 / beta),
            "as easy to make: beta is the strength of the divergence, not of the reward",
            "Try several betas"),
        Bug("chosen and rejected are exchanged",
            lambda policy, reference, answer, beta:
            honest(policy.flip(0), reference.flip(0), answer.flip(0), beta),
            "as easy to make: the loss falls all the same",
            "Make the chosen answer likelier: which way should the loss go?"),
        Bug("the sum over the pairs",
            lambda policy, *others: honest(policy, *others) * policy.shape[1],
            "open-instruct, issue 1161: divided by the wrong number",
            "Give the same pairs twice"),
        Bug("no gradient flows",
            lambda policy, *others: honest(policy.detach(), *others),
            "trl, issue 6668: nothing was learned and nobody noticed",
            "A loss is there to be differentiated: look at the gradient, too"),
    ),
    arguments,
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def stuck() -> list[float]:
    """DPO's loss over steps when the policy stands in for its own reference."""
    torch.manual_seed(0)
    policy, _, answer, beta = arguments()
    losses = []
    for _ in range(40):
        loss = honest(policy, policy, answer, beta)
        (slope,) = torch.autograd.grad(loss, policy)
        policy = (policy - slope).detach().requires_grad_()
        losses.append(float(loss.detach()))
    return losses


def _measure() -> Seen:
    losses = stuck()
    return Seen(
        f"DPO begins at a loss of {losses[0]:.3f} and is at {losses[-1]:.3f} after {len(losses)} "
        "steps. The divergence from the reference is 0 all the time.",
        losses, "steps", losses[0], "log 2",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "policy and reference are one object",
    {
        "chosen and rejected are exchanged": "with that bug the loss would fall, and the wrong "
        "answers would become likelier",
        "the reference is left out": "with that bug the loss would not begin at log 2",
        "a larger beta lets the policy go further": "with any beta the loss would begin at log 2 "
        "and fall",
        "log-probabilities are averaged over the tokens": "with that bug the loss would begin at "
        "log 2 and fall, only slowly",
    },
)
