"""Mistakes in learning from instructions, rewards and preferences, and who finds them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import test_alignment
import torch
from mutants import Mutant
from mutants_of_writing import put
from torch import Tensor

from labkit.alignment import GRPO, PPO, Reinforce, Rollout, gradients, preferences, rollouts
from labkit.alignment.preferences import DPO, AnswerTokens
from labkit.objectives.base import Outcome, Targets, Term
from labkit.objectives.words import NextToken

# ---- what is measured ------------------------------------------------------------------------


def in_place(owner: Any, name: str, mutant: Any) -> Callable[[], Any]:
    """Put a mutant in the place of a method or a property."""
    return lambda: patch.object(owner, name, mutant)


kl_turned_round = property(lambda self: (self.reference - self.old).sum(dim=1))
plain_loss, plain_targets = Reinforce.loss, AnswerTokens.targets
plain_over = Outcome.over
grpo_loss, dpo_loss, metrics = GRPO.loss, DPO.loss, gradients.PolicyGradient.metrics
log_probs, answered = preferences.answer_log_probs, preferences.answered


def divergence_in_the_loss(
    self: Reinforce, model: Any, targets: Targets, memory: Any = None
) -> Outcome:
    batch: Any = targets.inputs
    found = plain_loss(replace(self, beta=0.0), model, targets)
    k1 = (gradients.answer_log_probs(model, batch) - batch.reference).sum()
    policy = found.terms["policy"]
    total = policy.total + self.beta * k1
    return Outcome({**found.terms, "policy": Term(total, policy.count)})


def always(**switches: Any) -> Callable[..., Outcome]:
    """GRPO with some of its switches stuck."""

    def loss(self: GRPO, model: Any, targets: Targets, memory: Any = None) -> Outcome:
        return grpo_loss(replace(self, **switches), model, targets)

    return loss


def without_temperature(model: Any, batch: Any, *, temperature: float = 1.0, **more: Any) -> Tensor:
    return log_probs(model, batch, **more)


def per_token(model: Any, batch: Any, **more: Any) -> Tensor:
    return log_probs(model, batch, **more) / answered(batch).sum(dim=1, keepdim=True)


def values_on_padding(reward_BT, value_BT, answer_BT, discount, trace):
    return plain_advantages(reward_BT, value_BT, torch.ones_like(answer_BT), discount, trace)


plain_advantages = gradients.advantages


def reward_at_the_end_of_the_row(batch: Rollout, beta: float) -> Tensor:
    reward_BT = -beta * (batch.old - batch.reference)
    reward_BT[:, -1] += batch.rewards
    return reward_BT


def without_the_end(batch: Any) -> Tensor:
    where = answered(batch)
    last_B = batch.real.sum(dim=1) - 2
    where[torch.arange(len(where)), last_B] = False
    return where


def one_too_early(batch: Any) -> Tensor:
    return (batch.segments[:, :-1] == 1) & batch.real[:, 1:]


def one_two_one_two(numbers_B: Tensor, group: int) -> Tensor:
    return numbers_B.view(group, -1).T


def with_its_own_reward(reward_GK: Tensor) -> Tensor:
    spread = reward_GK.sum(dim=1, keepdim=True) / (reward_GK.shape[1] - 1)
    return reward_GK - spread


def mean_of_means(self: Outcome, counts: Any) -> Tensor:
    return plain_over(self, {name: term.count for name, term in self.terms.items()})


def at_the_last_position(model: Any, batch: Any) -> Tensor:
    return model.reward(model.backbone(batch.tokens).hidden[:, -1])[:, 0]


def all_masked(self: AnswerTokens, batch: Any, chance: Any) -> Targets:
    targets = NextToken.targets(self, batch, chance)
    words, where = targets.predicted["word"], preferences.answered(batch)
    kept = where[words.rows_N, words.positions_N]
    predicted = type(words)(*(part[kept] for part in words))
    counts = targets.counts | {"word": len(predicted.targets_N)}
    return replace(targets, predicted={"word": predicted}, counts=counts)


def beta_turned_round(self: DPO, model: Any, targets: Targets, memory: Any = None) -> Outcome:
    return dpo_loss(replace(self, beta=1 / self.beta), model, targets)


def always_something(self: Any, batch: Rollout) -> dict[str, Term]:
    found = metrics(self, batch)
    every = Term(torch.tensor(float(len(batch))), len(batch), 0.0)
    return {**found, "told apart": every}


def nothing(*_: Any) -> None:
    """A check that is missing."""


def best_case(ratio_BT: Tensor, advantage_BT: Tensor, clip: float) -> Tensor:
    inside_BT = ratio_BT.clamp(1 - clip, 1 + clip)
    return torch.maximum(ratio_BT * advantage_BT, inside_BT * advantage_BT)


MUTANTS = [
    Mutant(
        "the divergence has the other sign",
        "PaLM-rlhf-pytorch #38, #43",
        in_place(Rollout, "log_ratio", kl_turned_round),
    ),
    Mutant(
        "the divergence as a loss: k1 has no gradient on average",
        "NeMo-RL #2506, open-instruct #535, OpenRLHF #1309",
        in_place(Reinforce, "loss", divergence_in_the_loss),
    ),
    Mutant(
        "k3 as a loss: the other divergence",
        "open-instruct #535, OpenRLHF #1309",
        in_place(GRPO, "loss", always(kl="loss")),
    ),
    Mutant(
        "the temperature of sampling is not in the log-probabilities",
        "trl #3029, #4159",
        put(log_probs, without_temperature),
    ),
    Mutant(
        "top-k while sampling, all words while scoring",
        "SkyRL #877, prime-rl #1965",
        put(rollouts.check_unfiltered, nothing),
    ),
    Mutant(
        "values of padding are in GAE",
        "rlhf-book #216, ROLL #447",
        put(gradients.advantages, values_on_padding),
    ),
    Mutant(
        "the reward lands on padding behind the end",
        "trl #3750",
        put(gradients.token_rewards, reward_at_the_end_of_the_row),
    ),
    Mutant(
        "the end of an answer is not trained",
        "reasoning-from-scratch #185",
        put(answered, without_the_end),
    ),
    Mutant(
        "prompts stand 1, 2, 1, 2 and are grouped 1, 1, 2, 2",
        "prime-rl #600",
        put(gradients.in_groups, one_two_one_two),
    ),
    Mutant(
        "GRPO divides by the length though told not to",
        "trl #3138",
        in_place(GRPO, "loss", always(by_length=True)),
    ),
    Mutant(
        "GRPO divides by the standard deviation though told not to",
        "open-instruct #636",
        in_place(GRPO, "loss", always(by_spread=True)),
    ),
    Mutant(
        "a mean of the means of micro-batches of answers",
        "open-instruct #1161, prime-rl #583",
        in_place(Outcome, "over", mean_of_means),
    ),
    Mutant(
        "dropout makes the first ratio differ from 1",
        "trl #3234",
        put(rollouts.check_no_dropout, nothing),
    ),
    Mutant(
        "policy and reference are one object",
        "trl #2046",
        put(preferences.check_apart, nothing),
    ),
    Mutant(
        "the reward is read at the last position, padding or not",
        "trl #937, reward-bench #154",
        put(preferences.learned_rewards, at_the_last_position),
    ),
    Mutant(
        "the mask of the answer is off by one",
        "minimind #621",
        put(answered, one_too_early),
    ),
    Mutant(
        "log-probabilities of an answer are averaged, not summed",
        "LLMs-from-scratch #818",
        put(log_probs, per_token),
    ),
    Mutant(
        "all labels are masked and nobody notices",
        "trl #6668",
        in_place(AnswerTokens, "targets", all_masked),
    ),
    Mutant(
        "all rewards are equal and nobody notices",
        "trl #6668",
        in_place(gradients.PolicyGradient, "metrics", always_something),
    ),
    Mutant(
        "a larger beta of DPO lets the policy go further",
        "as easy to make",
        in_place(DPO, "loss", beta_turned_round),
    ),
    Mutant(
        "the baseline of an answer holds its own reward",
        "NeMo-RL #4158",
        put(gradients.leave_one_out, with_its_own_reward),
    ),
    Mutant(
        "PPO takes the better of the two, not the worse",
        "as easy to make",
        put(gradients.clipped_objective, best_case),
    ),
]


# ---- who finds them ----------------------------------------------------------------------------


def with_models(check: Callable[..., None], *given: Any) -> Callable[[], None]:
    """A test with its two models."""

    def run() -> None:
        reference = rollouts.reference_of(test_alignment.tiny(1))
        check(*given, test_alignment.tiny(0), reference)

    return run


def with_model(check: Callable[..., None]) -> Callable[[], None]:
    """A test of one model."""
    return lambda: check(test_alignment.tiny(0))


BETA = test_alignment.BETA
CHECKS: dict[str, Callable[[], None]] = {
    "answers: the end": with_model(
        test_alignment.test_instruction_tuning_learns_the_answer_and_its_end
    ),
    "rollouts: refusals": with_models(test_alignment.test_what_would_go_wrong_silently_is_refused),
    "rollouts: temperature": (
        test_alignment.test_the_temperature_of_the_rollouts_is_that_of_the_policy
    ),
    "rewards: nothing to learn": with_models(test_alignment.test_it_shows_when_nothing_is_learned),
    "reward model: formula": with_model(test_alignment.test_the_reward_model_is_bradley_and_terrys),
    "DPO: formula": with_models(test_alignment.test_dpo_is_its_formula),
    "PPO: formula": with_models(test_alignment.test_ppo_is_its_formula),
    "PPO: padding and micro-batches": with_models(
        test_alignment.test_padding_and_micro_batches_change_nothing, PPO(beta=BETA, group=2)
    ),
    "GRPO: formula": with_models(test_alignment.test_grpo_is_its_formula),
    "RLOO: unbiased": with_models(
        test_alignment.test_these_are_unbiased, Reinforce(beta=BETA, group=2)
    ),
    "GRPO: unbiased": with_models(
        test_alignment.test_these_are_unbiased,
        GRPO(beta=BETA, group=2, by_length=False, by_spread=False, kl="reward"),
    ),
}
