"""Policy gradients: an answer with more reward than expected becomes likelier.

All of them climb J = E[reward] - beta * KL(policy | reference). REINFORCE: Williams 1992; with the
other answers as a baseline (RLOO): Kool et al. 2019, Ahmadian et al. 2024; PPO: Schulman et al.
2017; GAE: Schulman et al. 2016; GRPO: Shao et al. 2024, without its two biases Liu et al. 2025.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from labkit.alignment.preferences import answer_log_probs
from labkit.alignment.rollouts import Rollout
from labkit.chance import Chance
from labkit.checks import check_choice, check_not_negative, check_share, check_whole
from labkit.corpus import Batch
from labkit.heads import one_score
from labkit.objectives.base import Objective, Outcome, Targets, Term
from labkit.objectives.memory import Memory


def in_groups(numbers_B: Tensor, group: int) -> Tensor:
    """The numbers of the answers to each prompt: [prompts, group]."""
    return numbers_B.view(-1, group)


def centred(numbers_GK: Tensor) -> Tensor:
    """Each number minus the mean of its group."""
    # Equal numbers become exactly 0; a mean of them is rounded, and dividing by their spread, which
    # is as small, would make an advantage of that.
    apart_GK = numbers_GK - numbers_GK[:, :1]
    return apart_GK - apart_GK.mean(dim=1, keepdim=True)


def leave_one_out(reward_GK: Tensor) -> Tensor:
    """Each reward minus the mean of the others in its group."""
    k = reward_GK.shape[1]
    others_GK = (reward_GK.sum(dim=1, keepdim=True) - reward_GK) / (k - 1)
    return reward_GK - others_GK


def ratio(log_p_BT: Tensor, old_BT: Tensor) -> Tensor:
    """How much likelier each token is than when the answer was drawn: 1 before the first step."""
    if torch.is_autocast_enabled(log_p_BT.device.type):
        raise ValueError(
            "the answers were scored in float32, and autocast scores them in 16 bits, so their "
            "ratio would include rounding errors: give the plan precision='float32'"
        )
    return (log_p_BT - old_BT).exp()


def clipped_objective(ratio_BT: Tensor, advantage_BT: Tensor, clip: float) -> Tensor:
    """PPO's objective: nothing is gained by moving the ratio outside of 1 - clip … 1 + clip."""
    inside_BT = ratio_BT.clamp(1 - clip, 1 + clip)
    return torch.minimum(ratio_BT * advantage_BT, inside_BT * advantage_BT)


def token_rewards(batch: Rollout, beta: float) -> Tensor:
    """The reward of each token: minus its divergence, and the answer's reward at the last token."""
    reward_BT = -beta * (batch.old - batch.reference)
    # An empty answer has no last token. Here its reward stands in the prompt, where none counts.
    last_B1 = (batch.real.sum(dim=1, keepdim=True) - 2).clamp(min=0)
    return reward_BT.scatter_add(1, last_B1, batch.rewards[:, None].to(reward_BT.dtype))


def advantages(
    reward_BT: Tensor, value_BT: Tensor, answer_BT: Tensor, discount: float, trace: float
) -> Tensor:
    """GAE: the sums over k of (discount * trace)^k d_(t+k); d_t = r_t + discount * V_(t+1) - V_t.

    Rewards and values outside the answer count as 0.
    """
    reward_BT, value_BT = reward_BT * answer_BT, value_BT * answer_BT
    next_BT = torch.nn.functional.pad(value_BT[:, 1:], (0, 1))
    delta_BT = reward_BT + discount * next_BT - value_BT
    out_BT, last_B = torch.zeros_like(delta_BT), torch.zeros_like(delta_BT[:, 0])
    for t in reversed(range(delta_BT.shape[1])):
        last_B = delta_BT[:, t] + discount * trace * last_B
        out_BT[:, t] = last_B
    return out_BT * answer_BT


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyGradient(Objective):
    """The base class of policy gradients: rows in groups, and metrics that show progress."""

    beta: float = 0.1
    """How much a nat of divergence from the reference costs."""
    group: int = 8
    """Answers to each prompt. With a single answer, GRPO learns only the divergence."""
    temperature: float = 1.0
    """The temperature at which the answers were drawn: it is part of the policy."""

    def __post_init__(self) -> None:
        numbers = [field.name for field in fields(self) if isinstance(field.default, float)]
        check_not_negative(**{name: getattr(self, name) for name in numbers})
        for share in ("discount", "trace"):
            check_share(share, getattr(self, share, 1.0))
        check_whole("group", self.group, least=1)
        if not self.temperature:
            raise ValueError("temperature is 0: give that of the rollouts, above 0")

    @property
    def together(self) -> int:
        """All answers to a prompt."""
        return self.group

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each answer, if those to one prompt stand together."""
        if not isinstance(batch, Rollout):
            raise TypeError(f"the batch is a {type(batch).__name__}: give batches of Rollouts")
        whole = len(batch) % self.group == 0
        same = in_groups(batch.examples, self.group) if whole else batch.examples
        if not whole or not bool((same == same[:, :1]).all()):
            raise ValueError(
                f"the rows of a group of {self.group} answer different prompts: give all answers "
                "to a prompt one after the other, and the group of the rollouts"
            )
        drawn = batch.temperature
        if drawn is not None and not bool((drawn == self.temperature).all()):
            raise ValueError(
                f"the answers were drawn at a temperature of {float(drawn[0]):g} and are scored at "
                f"{self.temperature:g}: give the objective temperature={float(drawn[0]):g}"
            )
        counts = dict.fromkeys(("policy", "reward", "kl", "told apart"), len(batch))
        return Targets.of(batch, {}, counts)

    def metrics(self, batch: Rollout) -> dict[str, Term]:
        """Reward, divergence, and the share of answers in groups whose rewards differ.

        Where no rewards differ, nothing is learned.
        """
        reward_GK = in_groups(batch.rewards, self.group)
        apart = (reward_GK != reward_GK[:, :1]).any(dim=1).sum() * self.group
        sums = {"reward": batch.rewards.sum(), "kl": batch.log_ratio.sum(), "told apart": apart}
        return {name: Term(sum_, len(batch), 0.0) for name, sum_ in sums.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Reinforce(PolicyGradient):
    """-(reward - beta * log-ratio - baseline) * log p(answer), for one step on each rollout.

    The divergence is part of the reward, so its gradient is right on average; as a term of the
    loss, log policy - log reference has a gradient whose mean is 0.
    """

    baseline: Literal["none", "leave one out"] = "leave one out"
    """Without a baseline, or with the mean of the other answers to the prompt: RLOO."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("baseline", self.baseline, "none", "leave one out")
        if self.baseline == "leave one out" and self.group < 2:
            raise ValueError("group is 1, so no other answer is left as a baseline: give 2 or more "
                             "answers to each prompt, or baseline='none'")  # fmt: skip

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each answer, if no other step has learned from it."""
        targets = super().targets(batch, chance)
        epochs = targets.inputs.epochs  # type: ignore[attr-defined]
        if epochs is not None and bool((epochs > 1).any()):
            raise ValueError(
                f"{int(epochs.max())} steps learn from each answer, and after the first of them "
                "the gradient would be that of another policy: give the rollouts epochs=1, or "
                "choose PPO or GRPO, which weigh by the ratio of both"
            )
        return targets

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The loss whose gradient is, on average, that of -J."""
        batch: Any = targets.inputs
        advantage_B = batch.rewards - self.beta * batch.log_ratio
        if self.baseline == "leave one out":
            advantage_B = leave_one_out(in_groups(advantage_B, self.group)).flatten()
        log_p_B = answer_log_probs(model, batch, temperature=self.temperature).sum(dim=1)
        policy = Term(-(advantage_B * log_p_B).sum(), targets.counts["policy"])
        return Outcome({"policy": policy, **self.metrics(batch)})


@dataclass(frozen=True, kw_only=True, eq=False)
class PPO(PolicyGradient):
    """Several steps on the same answers: the ratio of policies is clipped, values are learned.

    The reward stands at the last token of the answer; each token pays for its divergence.
    `model.value` predicts from each state what is still to come.
    """

    clip: float = 0.2
    discount: float = 1.0
    trace: float = 0.95
    """GAE's lambda: 1 trusts the rewards that came, 0 the values."""
    value: float = 0.5
    """The weight of the loss of the values."""

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The clipped loss of the policy, and the squared error of the values."""
        batch: Any = targets.inputs
        answer_BT, reward_BT = batch.answer, token_rewards(batch, self.beta)
        advantage_BT = advantages(reward_BT, batch.values, answer_BT, self.discount, self.trace)
        return_BT = (advantage_BT + batch.values) * answer_BT
        hidden_BTD = model.backbone(batch.tokens[:, :-1]).hidden
        log_p_BT = answer_log_probs(model, batch, temperature=self.temperature, hidden=hidden_BTD)
        ratio_BT = ratio(log_p_BT, batch.old)
        gained_BT = clipped_objective(ratio_BT, advantage_BT, self.clip) * answer_BT
        error_BT = one_score(model.value(hidden_BTD), "value") * answer_BT - return_BT
        outside_BT = ((ratio_BT - 1).abs() > self.clip) & answer_BT
        terms = {
            "policy": Term(-gained_BT.sum(), targets.counts["policy"]),
            "value": Term(error_BT.square().sum(), targets.counts["value"], self.value),
            "clipped": Term(outside_BT.sum(), targets.counts["clipped"], 0.0),
        }
        return Outcome(terms | self.metrics(batch))

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each answer, and one for each of its tokens."""
        targets = super().targets(batch, chance)
        if targets.inputs.values is None:  # type: ignore[attr-defined]
            raise ValueError("PPO needs values: model.value = Label(width, 1, pooled=False)")
        targets.counts.update(value=len(batch), clipped=int(targets.inputs.answer.sum()))  # type: ignore[attr-defined]
        return targets


@dataclass(frozen=True, kw_only=True, eq=False)
class GRPO(PolicyGradient):
    """The group is the baseline: (reward - mean) / standard deviation, the same for all tokens.

    Two biases can be switched off: dividing by the length makes long wrong answers cheap, dividing
    by the standard deviation makes very easy and very hard prompts count more.
    """

    clip: float = 0.2
    by_length: bool = True
    by_spread: bool = True
    kl: Literal["loss", "reward"] = "loss"
    """Where the divergence is. "loss": the estimate k3, as in the paper; its mean gradient is that
    of KL(reference | policy). "reward": the correct gradient, not divided by the spread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kl", self.kl, "loss", "reward")

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The clipped loss, with the estimate of the divergence."""
        batch: Any = targets.inputs
        answer_BT, reward_GK = batch.answer, in_groups(batch.rewards, self.group)
        advantage_GK = centred(reward_GK)
        if self.by_spread:
            spread_G1 = reward_GK.std(dim=1, keepdim=True, correction=0)
            advantage_GK = advantage_GK / (spread_G1 + 1e-6)
        if self.kl == "reward":
            penalty_GK = in_groups(self.beta * batch.log_ratio, self.group)
            advantage_GK = advantage_GK - centred(penalty_GK)
        log_p_BT = answer_log_probs(model, batch, temperature=self.temperature)
        ratio_BT = ratio(log_p_BT, batch.old)
        gained_BT = clipped_objective(ratio_BT, advantage_GK.flatten()[:, None], self.clip)
        if self.kl == "loss":
            away_BT = batch.reference - log_p_BT
            gained_BT = gained_BT - self.beta * (away_BT.exp() - away_BT - 1)
        gained_B = (gained_BT * answer_BT).sum(dim=1)
        if self.by_length:
            gained_B = gained_B / answer_BT.sum(dim=1).clamp(min=1)  # 1: an empty answer gains 0
        policy = Term(-gained_B.sum(), targets.counts["policy"])
        return Outcome({"policy": policy, **self.metrics(batch)})
