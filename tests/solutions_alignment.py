"""The exercises of notebook 07, each solved in two ways that are not the course's own."""

import torch
import torch.nn.functional as F
from torch import Tensor


def mask_by_ignoring(logits: Tensor, tokens: Tensor, answer: Tensor) -> Tensor:
    labels = tokens.masked_fill(~answer, -100)[:, 1:]
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels)


def mask_by_weights(logits: Tensor, tokens: Tensor, answer: Tensor) -> Tensor:
    log_p = logits.log_softmax(-1)[:, :-1].gather(2, tokens[:, 1:, None])[..., 0]
    return -(log_p * answer[:, 1:]).sum() / answer[:, 1:].sum()


def preference_by_softplus(chosen: Tensor, rejected: Tensor) -> Tensor:
    return F.softplus(rejected - chosen).mean()


def preference_by_choice(chosen: Tensor, rejected: Tensor) -> Tensor:
    scores = torch.stack([chosen, rejected], dim=1)
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


def kl_by_ratios(policy: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r = policy.exp() / reference.exp()
    return r.log(), r.log().square() / 2, 1 / r - 1 + r.log()


def kl_by_expm1(policy: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_r = policy - reference
    return log_r, 0.5 * log_r * log_r, torch.expm1(-log_r) + log_r


def others_by_loops(rewards: Tensor) -> Tensor:
    rows = []
    for row in rewards.tolist():
        rows.append([r - (sum(row) - r) / (len(row) - 1) for r in row])
    return torch.tensor(rows)


def others_by_scaling(rewards: Tensor) -> Tensor:
    k = rewards.shape[1]
    return (rewards - rewards.mean(dim=1, keepdim=True)) * k / (k - 1)


def dpo_by_softplus(policy: Tensor, reference: Tensor, beta: float) -> Tensor:
    ratio = policy - reference
    return F.softplus(beta * (ratio[:, 1] - ratio[:, 0])).mean()


def dpo_by_choice(policy: Tensor, reference: Tensor, beta: float) -> Tensor:
    return -(beta * (policy - reference)).log_softmax(dim=1)[:, 0].mean()


RIGHT = {
    "07.mask": (mask_by_ignoring, mask_by_weights),
    "07.preference": (preference_by_softplus, preference_by_choice),
    "07.kl": (kl_by_ratios, kl_by_expm1),
    "07.leave_one_out": (others_by_loops, others_by_scaling),
    "07.dpo": (dpo_by_softplus, dpo_by_choice),
}
