"""Methods of alignment against sums over all answers and formulas of the papers."""

import copy
import inspect
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import copies
import numpy as np
import pytest
import torch
from crash import aligned
from torch import Tensor

from labkit import alignment
from labkit.alignment import (
    GRPO,
    PPO,
    Question,
    Reinforce,
    Rollout,
    Rollouts,
    gradients,
    preferences,
)
from labkit.alignment.choosing import best_of, rejection_sample
from labkit.alignment.exact import best_policies, log_likelihoods_of_tree
from labkit.alignment.preferences import (
    DPO,
    AnswerTokens,
    BradleyTerry,
    answer_log_probs,
    answer_rows,
)
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import Label, NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.plan import Plan
from labkit.sampling import Sampling, sample
from labkit.trainer import Trainer
from labkit.world import optimal
from labkit.writing.prompting import log_likelihoods

END, WORDS, LONGEST = 0, (0, 1, 2, 3), 3
PROMPT = [3, 2]
ANSWERS = [
    list(words)
    for length in range(1, LONGEST + 1)
    for words in itertools.product(WORDS, repeat=length)
    if END not in words[:-1] and (words[-1] == END or length == LONGEST)
]
"""All answers of at most three tokens: 40 of them, so that every mean is a sum."""
REWARDS = torch.tensor([len(a) - 1.5 * a.count(2) + (a[0] == 1) for a in ANSWERS]).double()
BETA = 0.3
HOW = Sampling(length=LONGEST, stop=(END,))


def tiny(seed: int, *, double: bool = True) -> Any:
    torch.manual_seed(seed)
    gpt = GPT(GPTConfig(len(WORDS), 8, 1, 1, 12, dropout=0.0))
    model = LanguageModel(gpt, NextWord(gpt.token))
    model.value = Label(8, 1, pooled=False)
    model.reward = Label(8, 1, pooled=False)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model.double() if double else model


@pytest.fixture
def model() -> Any:
    return tiny(0)


@pytest.fixture
def reference() -> Any:
    return alignment.reference_of(tiny(1))


def log_p(model: Any, answers: list[list[int]] = ANSWERS) -> Tensor:
    """log p of each answer."""
    rows = answer_rows([PROMPT] * len(answers), answers)
    return answer_log_probs(model, rows).sum(dim=1)


def value(model: Any, reference: Any) -> Tensor:
    """J, by its definition."""
    logs = log_p(model)
    return (logs.exp() * (REWARDS - BETA * (logs - log_p(reference).detach()))).sum()


def rollout(model: Any, reference: Any, chosen: list[int]) -> Rollout:
    """A batch as if the model had written these answers."""
    with torch.no_grad():
        batch = answer_rows([PROMPT] * len(chosen), [ANSWERS[i] for i in chosen],
                            examples=torch.zeros(len(chosen), dtype=torch.long))  # fmt: skip
        return Rollout(
            **vars(batch), rewards=REWARDS[chosen],
            old=answer_log_probs(model, batch), reference=answer_log_probs(reference, batch),
            values=model.value(model.backbone(batch.tokens[:, :-1]).hidden)[..., 0],
        )  # fmt: skip


def flat(model: Any, loss: Tensor) -> Tensor:
    """The gradient of the words' part of the model as one vector."""
    weights = [*model.backbone.parameters()]
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    pairs = zip(found, weights, strict=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for g, w in pairs])


def expected(objective: Any, model: Any, reference: Any, group: int) -> Tensor:
    """The mean gradient of the objective over all groups of answers, each as likely as it is."""
    p = log_p(model).exp().detach()
    groups = list(itertools.product(range(len(ANSWERS)), repeat=group))
    weight_B = torch.stack([p[list(g)].prod() for g in groups]).repeat_interleave(group) / group
    batch = rollout(model, reference, [i for g in groups for i in g])
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    plain = gradients.answer_log_probs

    def weighed(*given: Any, **more: Any) -> Tensor:
        """The same numbers; the gradient of each row is as large as its group is likely."""
        log_p_BT = plain(*given, **more)
        scaled_BT = weight_B[:, None] * log_p_BT
        return scaled_BT + (log_p_BT - scaled_BT).detach()

    with patch.object(gradients, "answer_log_probs", weighed):
        return -flat(model, objective.loss(model, targets).terms["policy"].total)


def test_all_answers_are_listed(model: Any) -> None:
    assert len(ANSWERS) == 40
    assert log_p(model).exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_reinforce_is_unbiased(model: Any, reference: Any) -> None:
    exact = flat(model, value(model, reference))
    found = expected(Reinforce(beta=BETA, group=1, baseline="none"), model, reference, 1)
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=0)
    assert exact.norm() > 0.1


@pytest.mark.parametrize(
    "objective",
    [
        Reinforce(beta=BETA, group=2),
        PPO(beta=BETA, group=2, trace=1.0),
        GRPO(beta=BETA, group=2, by_length=False, by_spread=False, kl="reward"),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_these_are_unbiased(objective: Any, model: Any, reference: Any) -> None:
    """On average the gradient is that of J; half of it for GRPO, whose mean has its own answer."""
    exact = flat(model, value(model, reference))
    found = expected(objective, model, reference, 2)
    share = 0.5 if isinstance(objective, GRPO) else 1.0
    torch.testing.assert_close(found, share * exact, atol=1e-6, rtol=0)


def test_the_standard_deviation_makes_grpo_climb_the_win_rate(model: Any, reference: Any) -> None:
    """In groups of two it leaves the sign: which of the two is better, not by how much."""
    objective = GRPO(beta=0.0, group=2, by_length=False)
    logs = log_p(model)
    better = (REWARDS[:, None] - REWARDS[None, :]).sign()
    wins = logs.exp() @ better @ logs.exp().detach()
    found = expected(objective, model, reference, 2)
    torch.testing.assert_close(found, flat(model, wins), atol=1e-5, rtol=0)
    assert (found - 0.5 * flat(model, value(model, reference))).norm() > 0.01


def test_the_length_divides_what_a_token_earns(model: Any, reference: Any) -> None:
    objective = GRPO(beta=0.0, group=2, by_spread=False)
    logs, lengths = log_p(model), torch.tensor([len(a) for a in ANSWERS])
    p = logs.exp().detach()
    centred = REWARDS - p @ REWARDS
    wanted = 0.5 * flat(model, (p * centred / lengths * logs).sum())
    found = expected(objective, model, reference, 2)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_k3_as_a_loss_is_the_other_divergence(model: Any, reference: Any) -> None:
    """In the loss, its gradient is that of KL(reference | policy), token by token."""
    with_it = GRPO(beta=BETA, group=1, by_length=False, by_spread=False)
    found = expected(with_it, model, reference, 1)
    rows = answer_rows([PROMPT] * len(ANSWERS), ANSWERS)
    prefixes = {tuple(a[:t]): 0.0 for a in ANSWERS for t in range(len(a))}
    other = torch.zeros(())
    for prefix in prefixes:
        text = torch.tensor([[*PROMPT, *prefix]])
        mine = model(text)[0, -1].log_softmax(-1)
        theirs = reference(text)[0, -1].log_softmax(-1).detach()
        begun = sum(
            p for a, p in zip(ANSWERS, log_p(model).exp().detach(), strict=True)
            if tuple(a[: len(prefix)]) == prefix and len(a) > len(prefix)
        )  # fmt: skip
        other = other + begun * (theirs.exp() * (theirs - mine)).sum()
    torch.testing.assert_close(found, -BETA * flat(model, other), atol=1e-6, rtol=0)
    # k1 in the loss has no gradient at all, on average.
    logs = log_p(model)
    k1 = (logs.exp().detach() * (logs - log_p(reference))).sum()
    assert flat(model, k1).norm() < 1e-9
    assert rows.real.any()


def test_trust_in_the_values_is_a_bias(model: Any, reference: Any) -> None:
    exact = flat(model, value(model, reference))
    found = expected(PPO(beta=BETA, group=1, trace=0.5), model, reference, 1)
    assert (found - exact).norm() > 0.01


# ---- formulas of the papers, in float64 ---------------------------------------------------------


def padded(batch: Any, by: int) -> Any:
    """The same rows with more padding."""
    wide = {n: torch.nn.functional.pad(v, (0, by), value=7 if n in ("values", "old") else 0)
            for n, v in vars(batch).items() if isinstance(v, Tensor) and v.dim() == 2}  # fmt: skip
    wide["tokens"] = torch.nn.functional.pad(batch.tokens, (0, by), value=3)
    return type(batch)(**{**vars(batch), **wide})


def test_ppo_is_its_formula(model: Any, reference: Any) -> None:
    """Written out token by token: equations 7, 11 and 12 of Schulman et al. 2017."""
    objective = PPO(beta=BETA, group=1, trace=0.7, discount=0.9, clip=0.1)
    chosen = [0, 5, 30, 12, 3]
    batch = rollout(tiny(2), reference, chosen)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    found = objective.loss(model, targets).terms
    policy = worth = 0.0
    with torch.no_grad():
        for row, number in enumerate(chosen):
            answer, first = ANSWERS[number], len(PROMPT) - 1
            old, ref = batch.old[row, first:], batch.reference[row, first:]
            values = [float(v) for v in batch.values[row, first : first + len(answer)]]
            rewards = [-BETA * float(old[t] - ref[t]) for t in range(len(answer))]
            rewards[-1] += float(REWARDS[number])
            now = answer_log_probs(model, answer_rows([PROMPT], [answer]))[0, first:]
            text = torch.tensor([[*PROMPT, *answer]])
            predicted = model.value(model.backbone(text[:, :-1]).hidden)[0, first:, 0]
            for t in range(len(answer)):
                advantage = sum(
                    (0.9 * 0.7) ** (k - t)
                    * (rewards[k] + 0.9 * (values[k + 1] if k + 1 < len(answer) else 0) - values[k])
                    for k in range(t, len(answer))
                )
                ratio = math.exp(now[t] - old[t])
                policy -= min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage)
                worth += (float(predicted[t]) - advantage - values[t]) ** 2
    assert found["policy"].total.item() == pytest.approx(policy, abs=1e-9)
    assert found["value"].total.item() == pytest.approx(worth, abs=1e-9)
    assert found["clipped"].total.item() > 0


def test_grpo_is_its_formula(model: Any, reference: Any) -> None:
    """Equations 3 and 4 of Shao et al. 2024."""
    objective = GRPO(beta=BETA, group=3, clip=0.1)
    chosen = [0, 25, 9, 12, 3, 4]
    batch = rollout(tiny(2), reference, chosen)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    found, wanted = objective.loss(model, targets).terms["policy"].total, 0.0
    for row, number in enumerate(chosen):
        answer, first = ANSWERS[number], len(PROMPT) - 1
        rewards = REWARDS[chosen[row // 3 * 3 : row // 3 * 3 + 3]].numpy()
        advantage = (float(REWARDS[number]) - rewards.mean()) / (rewards.std() + 1e-6)
        now = answer_log_probs(model, answer_rows([PROMPT], [answer]))[0, first:].detach()
        for t in range(len(answer)):
            ratio = math.exp(now[t] - batch.old[row, first + t])
            away = float(batch.reference[row, first + t] - now[t])
            gain = min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage)
            wanted -= (gain - BETA * (math.exp(away) - away - 1)) / len(answer)
    assert found.item() == pytest.approx(wanted, abs=1e-9)


def test_a_penalty_in_grpos_reward_costs_the_same_in_every_group(
    model: Any, reference: Any
) -> None:
    """Rewards ten times as large have a spread ten times as large; the penalty stays."""
    objective = GRPO(beta=BETA, group=3, by_length=False, kl="reward", clip=1e9)
    batch = rollout(tiny(2), reference, [0, 25, 9, 12, 3, 4])
    grown = replace(batch, rewards=10 * batch.rewards)
    found, other = (
        objective(model, one, Chance(0, 0, batch.rows)).terms["policy"].total.item()
        for one in (batch, grown)
    )
    assert found == pytest.approx(other, abs=1e-4)
    ratio_BT = (answer_log_probs(model, batch) - batch.old).exp() * batch.answer
    reward_GK, penalty_GK = (x.view(2, 3) for x in (batch.rewards, BETA * batch.log_ratio))
    spread_G1 = reward_GK.std(dim=1, keepdim=True, correction=0)
    gain_GK = (reward_GK - reward_GK.mean(1, True)) / spread_G1
    gain_GK = gain_GK - penalty_GK + penalty_GK.mean(1, True)
    wanted = -(ratio_BT * gain_GK.flatten()[:, None]).sum().item()
    assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("objective", [PPO(beta=BETA, group=2), GRPO(beta=BETA, group=2)])
def test_a_ratio_of_two_precisions_is_refused(objective: Any, model: Any, reference: Any) -> None:
    batch = rollout(tiny(2), reference, [0, 5, 39, 12])
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match="give the plan precision='float32'"),
    ):
        objective(model, batch, Chance(0, 0, batch.rows))


def test_dpo_is_its_formula(model: Any, reference: Any) -> None:
    """Equation 7 of Rafailov et al. 2023, and the same with the chance that the first is better."""
    first, second = [0, 5, 9], [12, 3, 4]
    rows = [i for pair in zip(first, second, strict=True) for i in pair]
    batch = answer_rows([PROMPT] * 6, [ANSWERS[i] for i in rows])
    gain = BETA * (log_p(model) - log_p(reference))
    margins = (gain[first] - gain[second]).detach().numpy()
    wanted = np.log1p(np.exp(-margins)).sum()
    objective = DPO(reference=reference, beta=BETA)
    found = objective(model, batch, Chance(0, 0, batch.rows)).terms["preference"]
    assert found.total.item() == pytest.approx(wanted, abs=1e-9)
    assert found.count == 3
    chance = torch.tensor([0.9, 0.2, 0.5], dtype=torch.double)
    labelled = answer_rows(
        [PROMPT] * 6, [ANSWERS[i] for i in rows], labels=chance.repeat_interleave(2)
    )
    soft = objective(model, labelled, Chance(0, 0, batch.rows)).terms["preference"].total
    c = chance.numpy()
    wanted = (c * np.log1p(np.exp(-margins)) + (1 - c) * np.log1p(np.exp(margins))).sum()
    assert soft.item() == pytest.approx(wanted, abs=1e-9)


def test_dpo_begins_at_log_two_and_a_larger_beta_holds_it_back(model: Any) -> None:
    same = alignment.reference_of(model)
    batch = answer_rows([PROMPT] * 2, [ANSWERS[3], ANSWERS[8]])
    at = DPO(reference=same, beta=BETA)
    assert at(model, batch, Chance(0, 0, batch.rows)).loss.item() == pytest.approx(math.log(2))
    away = []
    for beta in (0.1, 2.0):
        learner = copy.deepcopy(model)
        descend = torch.optim.Adam(learner.parameters(), 0.05)
        for _ in range(50):
            descend.zero_grad()
            # Nobody is sure: three quarters of the people prefer the first.
            sure = answer_rows([PROMPT] * 2, [ANSWERS[3], ANSWERS[8]],
                               labels=torch.full((2,), 0.75).double())  # fmt: skip
            DPO(reference=same, beta=beta)(learner, sure, Chance(0, 0, batch.rows)).loss.backward()
            descend.step()
        ratio = (log_p(learner) - log_p(same)).detach()
        away.append((ratio[3] - ratio[8]).item())
        assert beta * away[-1] == pytest.approx(math.log(3), rel=0.15)
    assert away[0] > 5 * away[1]


def test_the_reward_model_is_bradley_and_terrys(model: Any) -> None:
    """The reward is read at the last real token, whatever stands behind it."""
    batch = answer_rows([PROMPT] * 4, [ANSWERS[i] for i in (0, 5, 9, 4)])
    rewards = [
        model.reward(model.backbone(torch.tensor([[*PROMPT, *ANSWERS[i]]])).hidden[0, -1]).item()
        for i in (0, 5, 9, 4)
    ]
    wanted = sum(math.log1p(math.exp(rewards[i + 1] - rewards[i])) for i in (0, 2))
    for shown in (batch, padded(batch, 3)):
        found = BradleyTerry()(model, shown, Chance(0, 0, shown.rows)).terms["preference"]
        assert found.total.item() == pytest.approx(wanted, abs=1e-9)
        assert found.count == 2
        torch.testing.assert_close(
            preferences.learned_rewards(model, shown), torch.tensor(rewards).double()
        )


def test_instruction_tuning_learns_the_answer_and_its_end(model: Any) -> None:
    batch = answer_rows([PROMPT, [1]], [[1, 2, END], [3, END]])
    outcome = AnswerTokens()(model, batch, Chance(0, 0, batch.rows))
    logs = answer_log_probs(model, batch)
    assert outcome.count == 5
    assert outcome.terms["word"].total.item() == pytest.approx(-logs.sum().item(), abs=1e-9)
    assert (logs != 0).sum() == 5
    targets = AnswerTokens().targets(batch, Chance(0, 0, batch.rows)).predicted["word"]
    assert targets.targets_N.tolist() == [1, 2, END, 3, END]
    # A row without an answer is refused, whichever part of a step it is in.
    silent = batch.segments.clone()
    silent[1] = 0
    with pytest.raises(ValueError, match="row 1 has no token of an answer"):
        AnswerTokens().targets(replace(batch, segments=silent), Chance(0, 0, batch.rows))
    with pytest.raises(ValueError, match="where answers begin"):
        AnswerTokens().targets(Batch.of(batch.tokens, batch.real), Chance(0, 0, batch.rows))


OBJECTIVES = [
    Reinforce(beta=BETA, group=2),
    PPO(beta=BETA, group=2),
    GRPO(beta=BETA, group=2),
    GRPO(beta=BETA, group=2, by_length=False, kl="reward"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
def test_padding_and_micro_batches_change_nothing(
    objective: Any, model: Any, reference: Any
) -> None:
    chosen = [0, 5, 39, 12, 3, 4, 0, 7]
    batch = rollout(tiny(2), reference, chosen)
    whole = objective(model, batch, Chance(0, 0, batch.rows)).loss
    wide = padded(batch, 4)
    assert objective(model, wide, Chance(0, 0, batch.rows)).loss.item() == pytest.approx(
        whole.item(), abs=1e-9
    )
    parts = [
        objective.targets(part, Chance(0, 0, part.rows))
        for part in batch.micro(3, together=objective.together)
    ]
    counts: dict[str, int] = {}
    for part in parts:
        counts = {name: counts.get(name, 0) + n for name, n in part.counts.items()}
    total = sum(objective.loss(model, part).over(counts).item() for part in parts)
    assert total == pytest.approx(whole.item(), abs=1e-9)


# ---- rollouts ------------------------------------------------------------------------------------


def gold(prompts: Any, answers: Any) -> list[float]:
    return [float(REWARDS[ANSWERS.index(list(answer))]) for answer in answers]


def rollouts(model: Any, reference: Any, **changes: Any) -> Rollouts:
    given = {"prompts": [PROMPT, [1], [2, 2, 1]], "settings": HOW, "batch": 2, "group": 4}
    return Rollouts(model=model, reference=reference, **{"reward": gold, **given, **changes})


def test_rollouts_are_what_the_policy_wrote(reference: Any) -> None:
    model = tiny(0, double=False)
    made = rollouts(model, tiny(1, double=False))
    batch = made.at(5)
    for examples in batch.examples.view(2, 4).tolist():
        assert len(set(examples)) == 1
    assert torch.equal(batch.tokens, made.at(5).tokens)
    assert not torch.equal(batch.tokens, made.at(6).tokens)
    once = [n for turn in range(3) for n in made.numbers(turn)]
    assert sorted(once) == [0, 0, 1, 1, 2, 2]
    for row in range(len(batch)):
        text = batch.tokens[row][batch.real[row]].tolist()
        prompt = [PROMPT, [1], [2, 2, 1]][int(batch.examples[row])]
        assert text[: len(prompt)] == prompt
        assert batch.rewards[row] == gold([prompt], [text[len(prompt) :]])[0]
        logs = model(torch.tensor([text[:-1]]))[0].log_softmax(-1)
        own = sum(logs[t - 1, text[t]] for t in range(len(prompt), len(text)))
        assert batch.old[row].sum().item() == pytest.approx(own.item(), abs=1e-5)


@pytest.mark.parametrize(
    "given", [lambda n: [1.0] * 2 * n, lambda n: [1.0] * (n - 1), lambda n: [[1.0]] * n]
)
def test_each_answer_has_one_reward(given: Any) -> None:
    made = rollouts(tiny(0, double=False), tiny(1, double=False),
                    reward=lambda prompts, answers: given(len(answers)))  # fmt: skip
    with pytest.raises(ValueError, match=r"rewards of 8 answers have the shape .* one number"):
        made.at(0)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([1.0, math.nan], ValueError, "a reward is nan: .* finite"),
        ([1.0, None], TypeError, "gives .*None.*: let it give one number"),
        (None, TypeError, "gives None: let it give one number"),
    ],
)
def test_rewards_are_finite_numbers(given: Any, error: type[Exception], message: str) -> None:
    model, other = tiny(0, double=False), tiny(1, double=False)

    def reward(prompts: Any, answers: Any) -> Any:
        return given and given * (len(answers) // 2)

    with pytest.raises(error, match=message):
        rollouts(model, other, reward=reward).at(0)
    with pytest.raises(error, match=message):
        best_of(model, [PROMPT], reward, HOW, 4)
    with pytest.raises(error, match=message):
        rejection_sample(model, PROMPT, reward, HOW, beta=1.0, highest=1.0, count=1)


def test_the_best_of_none_is_refused() -> None:
    model = tiny(0, double=False)
    with pytest.raises(ValueError, match="n is 0"):
        best_of(model, [PROMPT], gold, HOW, 0)
    for changed, message in (({"count": -1}, "count is -1"), ({"highest": math.nan}, "highest is")):
        how = {"beta": 1.0, "highest": 9.0, "count": 1} | changed
        with pytest.raises(ValueError, match=message):
            rejection_sample(model, PROMPT, gold, HOW, **how)


@pytest.mark.parametrize(
    ("objective", "given", "message"),
    [
        (PPO, {"clip": -0.5}, "clip is -0.5: give a number of at least 0"),
        (PPO, {"clip": "x"}, "clip is 'x'"),
        (PPO, {"value": "x"}, "value is 'x'"),
        (PPO, {"discount": 7}, "discount is 7: give a share"),
        (PPO, {"trace": 1.5}, "trace is 1.5: give a share"),
        (GRPO, {"clip": -0.5}, "clip is -0.5"),
    ],
)
def test_settings_of_which_nothing_is_learned_are_refused(
    objective: Any, given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        objective(**given)


def test_the_sampler_says_how_likely_a_text_was_with_and_without_filters() -> None:
    model = tiny(0, double=False)
    how = Sampling(length=3, stop=(END,), temperature=0.7, top_k=2)
    prompts = [PROMPT, [1]] * 4
    for prompt, [text] in zip(prompts, sample(model, prompts, how, seed=1), strict=True):
        rows = torch.tensor([[*prompt, *text.tokens]])
        logits = model(rows[:, :-1])[0, len(prompt) - 1 :]
        free = logits.log_softmax(-1).gather(-1, rows[0, len(prompt) :, None]).sum()
        assert text.log_probability == pytest.approx(free.item(), abs=1e-4)
        kept = (logits / 0.7).topk(2).values[:, -1:]
        left = (logits / 0.7).masked_fill(logits / 0.7 < kept, -math.inf)
        drawn = left.log_softmax(-1).gather(-1, rows[0, len(prompt) :, None]).sum()
        assert text.filtered_log_probability == pytest.approx(drawn.item(), abs=1e-4)


def test_the_temperature_of_the_rollouts_is_that_of_the_policy() -> None:
    model = tiny(0, double=False)
    how = Sampling(length=LONGEST, stop=(END,), temperature=0.5)
    batch = rollouts(model, tiny(1, double=False), settings=how).at(0)
    objective = PPO(group=4, temperature=0.5)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    assert objective.loss(model, targets).metrics["clipped"] == 0
    sharp_BTV = (model(batch.tokens[:, :-1]) / 0.5).log_softmax(-1)
    drawn_BT = sharp_BTV.gather(-1, batch.tokens[:, 1:, None])[..., 0] * batch.answer
    assert (drawn_BT - batch.old).abs().max() < 1e-5


def test_what_would_go_wrong_silently_is_refused(model: Any, reference: Any) -> None:
    with pytest.raises(ValueError, match="share weights"):
        rollouts(model, model)
    for filters in ({"top_k": 2}, {"top_p": 0.9}, {"temperature": 0.0}):
        with pytest.raises(ValueError, match="filtered answers would be scored"):
            rollouts(model, reference, settings=Sampling(length=2, stop=(END,), **filters))
    wet = LanguageModel(gpt := GPT(GPTConfig(4, 8, 1, 1, 12, dropout=0.1)), NextWord(gpt.token))
    with pytest.raises(ValueError, match="drops units"):
        rollouts(wet, reference)
    pair = answer_rows([PROMPT] * 2, ANSWERS[:2])
    with pytest.raises(ValueError, match="share weights"):
        DPO(reference=model)(model, pair, Chance(0, 0, pair.rows))
    with pytest.raises(TypeError, match="the reference is of type NoneType: give a model"):
        DPO(reference=None)(model, pair, Chance(0, 0, pair.rows))  # type: ignore[arg-type]
    batch = rollout(model, reference, [0, 1, 2, 3])
    chance = Chance(0, 0, batch.rows)
    mixed = Rollout(**{**vars(batch), "examples": torch.tensor([0, 1, 0, 1])})
    with pytest.raises(ValueError, match="different prompts"):
        Reinforce(group=2).targets(mixed, chance)
    bare = Rollout(**{**vars(batch), "values": None})
    with pytest.raises(ValueError, match="needs values"):
        PPO(group=2).targets(bare, chance)
    with pytest.raises(TypeError, match="Rollouts"):
        Reinforce(group=2).targets(pair, Chance(0, 0, pair.rows))


@pytest.mark.parametrize("memory", [0, 3, 4, 5, 9])
def test_what_writes_an_answer_sees_as_much_as_what_scores_it(memory: int) -> None:
    """Three tokens after three: the sixth is not read, and the fifth sees the four before it."""
    torch.manual_seed(0)
    sizes = TransformerXLConfig(len(WORDS), 8, 1, 1, 4, memory, dropout=0.0)
    model = LanguageModel(backbone := TransformerXL(sizes), NextWord(backbone.token))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    if 0 < memory < 4:
        with pytest.raises(ValueError, match=r"6 tokens and the model remembers 3.* memory=4"):
            rollouts(model, tiny(1))
        return
    made, how = rollouts(model, alignment.reference_of(model)), replace(HOW, stop=())
    for texts, prompt in zip(sample(model, made.prompts, how), made.prompts, strict=True):
        scored = answer_log_probs(model, answer_rows([prompt], [texts[0].tokens])).sum()
        assert texts[0].log_probability == pytest.approx(scored.item(), abs=1e-5)


def test_it_shows_when_nothing_is_learned(model: Any, reference: Any) -> None:
    batch = rollout(model, reference, [0, 0, 5, 9, 3, 12])
    targets = Reinforce(group=2).targets(batch, Chance(0, 0, batch.rows))
    assert batch.rewards[0] == batch.rewards[1]
    found = Reinforce(group=2).loss(model, targets).metrics["told apart"]
    assert found.item() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("objective", "epochs"), [(Reinforce(group=4), 1), (PPO(group=4), 2), (GRPO(group=4), 2)],
    ids=["Reinforce", "PPO", "GRPO"],
)  # fmt: skip
def test_a_resumed_run_is_the_same_bit_for_bit(objective: Any, epochs: int, tmp_path: Path) -> None:
    def trainer() -> Trainer:
        model = tiny(0, double=False)
        plan = Plan(steps=6, rate=1e-2, save_every=3, precision="float32", device="cpu")
        made = rollouts(model, alignment.reference_of(tiny(0, double=False)), epochs=epochs)
        return Trainer(model, objective, made, plan, progress=False)

    whole = trainer()
    for _ in whole.run():
        pass
    for report in trainer().resume(tmp_path):
        # The checkpoint of a step is written when the next one is asked for.
        if report.step == 4:
            break
    second = trainer()
    steps = [report.step for report in second.resume(tmp_path)]
    assert steps == [4, 5, 6]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name]), name


def test_a_run_is_resumed_with_the_model_that_it_has_changed(tmp_path: Path) -> None:
    model, calls = tiny(0, double=False), list[int]()
    reference = alignment.reference_of(model)

    def counted(prompts: Any, answers: Any) -> list[float]:
        calls.append(len(answers))
        return gold(prompts, answers)

    def trainer(**changes: Any) -> Trainer:
        plan = Plan(steps=4, rate=1e-2, precision="float32", device="cpu")
        made = replace(rollouts(model, reference, **changes), reward=counted)
        return Trainer(model, Reinforce(group=4), made, plan, progress=False)

    first = trainer()
    assert not calls, "no rewards are asked for before the first step"
    for report in first.resume(tmp_path):
        if report.step == 2:
            first.stop()
    assert [report.step for report in trainer().resume(tmp_path)] == [3, 4]
    assert len(calls) == 4
    for change in ({"seed": 1}, {"batch": 3}, {"prompts": [[1], [2]]}, {"group": 8}):
        with pytest.raises(ValueError, match="holds a different run: batches was '4 answers to"):
            next(trainer(**change).resume(tmp_path))


def test_reinforce_learns_once_from_each_answer(reference: Any) -> None:
    """In a second step it would follow the gradient of the policy that wrote the answers."""
    model = tiny(0, double=False)
    batch = rollouts(model, tiny(1, double=False), epochs=2).at(0)
    chance = Chance(0, 0, batch.rows)
    with pytest.raises(ValueError, match=r"2 steps learn from each answer.*epochs=1"):
        Reinforce(group=4).targets(batch, chance)
    assert GRPO(group=4).targets(batch, chance).counts["policy"] == len(batch)


@pytest.mark.parametrize("reward", [0.1, 0.3, 1000.1])
@pytest.mark.parametrize("group", [3, 7, 8])
def test_equal_rewards_are_no_advantage(reward: float, group: int) -> None:
    """Their mean is rounded, and their spread is as small as what is left."""
    assert not gradients.centred(torch.full((2, group), reward)).any()
    rewards = torch.tensor([[reward, reward + 1, reward]])
    wanted = torch.tensor([[-1, 2, -1]]) / 3
    torch.testing.assert_close(gradients.centred(rewards), wanted, atol=1e-4, rtol=0)


# ---- choosing, and exact measures ----------------------------------------------------------------


def question(reward: Tensor = REWARDS) -> Question:
    return Question(PROMPT, ANSWERS, np.append(reward.numpy(), -3.0))


@pytest.mark.parametrize("by_length", [True, False])
def test_an_empty_answer_gains_nothing(by_length: bool, model: Any) -> None:
    """Divided by its length of 0, it would make the loss of the whole batch NaN."""
    batch = answer_rows([PROMPT] * 2, [[], [1, 2]], examples=torch.zeros(2, dtype=torch.long))
    old = answer_log_probs(model, batch).detach()
    given = Rollout(**vars(batch), rewards=torch.tensor([0.0, 2.0]), old=old, reference=old)
    objective = GRPO(beta=0.0, group=2, by_length=by_length, by_spread=False)
    found = objective(model, given, Chance(0, 0, batch.rows)).loss
    assert found.item() == pytest.approx(-0.5 if by_length else -1.0)
    wanted = -answer_log_probs(model, batch)[1].sum() / 2  # the advantage is 1
    wanted = wanted / 2 if by_length else wanted
    torch.testing.assert_close(flat(model, found), flat(model, wanted))


def test_ppo_learns_nothing_from_an_empty_answer(model: Any) -> None:
    """After a prompt of one token there is no earlier position at which its reward could stand."""
    batch = answer_rows([[1], [1]], [[], [1, 2]], examples=torch.zeros(2, dtype=torch.long))
    old = answer_log_probs(model, batch).detach()
    values = model.value(model.backbone(batch.tokens[:, :-1]).hidden)[..., 0].detach()

    def loss(empty: float) -> Tensor:
        rewards = torch.tensor([empty, 2.0])
        given = Rollout(**vars(batch), rewards=rewards, old=old, reference=old, values=values)
        return PPO(group=2)(model, given, Chance(0, 0, batch.rows)).loss

    alone = PPO(group=1)(model, Rollout(
        **vars(batch[1:]), rewards=torch.tensor([2.0]), old=old[1:], reference=old[1:],
        values=values[1:],
    ), Chance(0, 0, batch.rows[1:])).loss  # fmt: skip
    for empty in (0.0, 5.0):
        torch.testing.assert_close(loss(empty), alone / 2)


def test_the_answers_of_a_pair_are_to_one_prompt(model: Any, reference: Any) -> None:
    batch = answer_rows([[1], [1], [3, 2], [3, 1]], [[1, 2], [2], [1], [1]])
    chance = Chance(0, 0, batch.rows)
    with pytest.raises(ValueError, match="rows 2 and 3 are a pair, but answer different prompts"):
        DPO(reference=reference).targets(batch, chance)
    assert DPO(reference=reference).targets(batch[:2], chance).counts["preference"] == 1


def test_a_model_without_a_reward_head_is_named() -> None:
    model = tiny(0)
    del model.reward
    with pytest.raises(ValueError, match="the model has no head 'reward': it has head, value"):
        preferences.learned_rewards(model, answer_rows([PROMPT], [[1]]))


def test_a_reward_model_takes_no_labels(model: Any) -> None:
    """It would take the first of a pair as the preferred one, whatever the labels say."""
    batch = answer_rows([PROMPT] * 2, [[1], [2]], labels=torch.tensor([0.1, 0.1]))
    with pytest.raises(ValueError, match="the batch has labels, but a reward model takes"):
        BradleyTerry()(model, batch, Chance(0, 0, batch.rows))


def test_answers_in_packed_rows_are_not_scored_as_one_text(model: Any) -> None:
    row, which = torch.tensor([[3, 2, 1, 3, 2, 1]] * 2), torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    batch = Batch.of(row, segments=(row == 1).long(), documents=which)
    with pytest.raises(ValueError, match="documents in one row would be read as one text"):
        DPO(reference=alignment.reference_of(tiny(1)))(model, batch, Chance(0, 0, batch.rows))
    # A reward model keeps documents apart, while it learns and afterwards.
    pair = replace(batch, documents=which * batch.rows[:, None])
    rewards = preferences.learned_rewards(model, pair)
    loss = BradleyTerry()(model, pair, Chance(0, 0, pair.rows)).loss
    torch.testing.assert_close(loss.detach(), torch.nn.functional.softplus(rewards[1] - rewards[0]))
    assert rewards[0] != rewards[1]


def test_an_empty_answer_has_no_probability() -> None:
    model = tiny(0, double=False)
    with pytest.raises(ValueError, match="answer 1 is empty"):
        log_likelihoods_of_tree(model, PROMPT, [ANSWERS[0], []])


@pytest.mark.parametrize("word", [-1, len(WORDS)])
def test_a_word_that_the_model_does_not_know_has_no_probability(word: int) -> None:
    """-1 would be read as the last word of the vocabulary."""
    with pytest.raises(ValueError, match=f"token {word} is not in the vocabulary"):
        log_likelihoods_of_tree(tiny(0, double=False), PROMPT, [ANSWERS[0], [1, word]])


def test_a_question_lists_each_answer_once() -> None:
    with pytest.raises(ValueError, match="answers 0 and 2 are the same"):
        Question(PROMPT, [[1, END], [END], [1, END]], np.zeros(4))


def test_rewards_are_known_for_the_questions_only() -> None:
    with pytest.raises(ValueError, match=r"no question has the prompt \[1\]"):
        alignment.gold([question()])([[1]], [ANSWERS[0]])


def test_beginnings_that_answers_share_are_read_once() -> None:
    """The same likelihoods as of each answer by itself, from one row for each beginning."""
    model = tiny(0, double=False)
    answers = [[1, 2, 3, 0], [1, 2, 0], [1, 2, 3, 3, 0], [2, 2, 0], [1, 2, 0], [3]]
    rows: list[int] = []
    reading = model.backbone.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    found = log_likelihoods_of_tree(model, PROMPT, answers)
    reading.remove()
    # The prompt; 1 and 2; 12 and 22; 123; 1233.
    assert rows == [1, 2, 2, 1, 1]
    each = [log_likelihoods(model, [PROMPT], [answer])[0, 0] for answer in answers]
    torch.testing.assert_close(found, torch.stack(each), atol=1e-5, rtol=1e-5)


def test_a_model_with_another_memory_has_a_policy_too() -> None:
    torch.manual_seed(0)
    backbone = TransformerXL(TransformerXLConfig(len(WORDS), 8, 1, 1, 4, 4, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token))
    [found] = alignment.policies(model, [question()])
    logs = log_likelihoods(model, [PROMPT], ANSWERS)[0]
    assert found[:-1] == pytest.approx(logs.double().exp().numpy())


def test_rounding_makes_no_policy_infinitely_far_from_its_reference() -> None:
    """All answers are listed, so what is left over is rounding: often 0, and as often 1e-8."""
    found = [alignment.policies(tiny(seed, double=False), [question()])[0] for seed in range(8)]
    for p, other in itertools.permutations(found, 2):
        wanted = float((p[:-1] * np.log(p[:-1] / other[:-1])).sum())
        apart = alignment.measured([p], [other], [question()], BETA)
        assert apart.divergence == pytest.approx(wanted, abs=1e-5)
        assert apart.value == pytest.approx(apart.reward - BETA * wanted, abs=1e-5)


def test_choosing_draws_what_theory_says(reference: Any) -> None:
    model = tiny(0, double=False)
    [p] = alignment.policies(model, [question()])
    assert p[-1] < 1e-6
    for drawn, wanted in (
        (
            alignment.best_of(model, [PROMPT] * 1_500, gold, HOW, 3),
            optimal.best_of(p, question().rewards, 3),
        ),
        (
            alignment.rejection_sample(
                model, PROMPT, gold, HOW, beta=1.0, highest=float(REWARDS.max()), count=1_500
            ),
            optimal.best_policy(p, question().rewards, 1.0),
        ),
    ):
        counts = np.bincount([ANSWERS.index(text.tokens) for text in drawn], minlength=41)
        some = wanted > 1e-9
        square = ((counts - 1_500 * wanted)[some] ** 2 / (1_500 * wanted[some])).sum()
        assert square < 77  # 39 degrees of freedom: once in four thousand
    with pytest.raises(ValueError, match=r"above highest=-9\.0"):
        alignment.rejection_sample(model, PROMPT, gold, HOW, beta=1.0, highest=-9.0, count=1)


@pytest.mark.parametrize("method", ["RLOO", "PPO"])
def test_training_comes_to_the_ceiling_and_never_above(method: str) -> None:
    model = tiny(0, double=False)
    reference, asked = alignment.reference_of(model), [question()]
    before = alignment.policies(reference, asked)
    top = alignment.ceiling(before, asked, BETA)
    objective = Reinforce(beta=BETA, group=32) if method == "RLOO" else PPO(beta=BETA, group=32)
    made = rollouts(model, reference, prompts=[PROMPT], batch=1, group=32,
                    epochs=2 if method == "PPO" else 1)  # fmt: skip
    plan = Plan(steps=100, rate=4e-2, schedule="linear", precision="float32", device="cpu")
    seen = []
    for report in Trainer(model, objective, made, plan, progress=False).run():
        if report.step % 20 == 0:
            found = alignment.measured(alignment.policies(model, asked), before, asked, BETA)
            highest = optimal.highest_reward(before[0], asked[0].rewards, found.divergence)
            assert found.reward <= highest + 1e-5
            seen.append(found.value)
    start = alignment.measured(before, before, asked, BETA)
    assert start.divergence == 0
    assert max(seen) <= top + 1e-6
    assert top - seen[-1] < 0.1 * (top - start.value)
    points = alignment.frontier(before, asked, [1.0, BETA])
    assert points[1].value == pytest.approx(top, abs=1e-9)
    assert best_policies(before, asked, BETA)[0].sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="one more"):
        Question(PROMPT, ANSWERS, REWARDS.numpy())
    assert gradients.leave_one_out(torch.tensor([[1.0, 2.0, 6.0]])).tolist() == [[-3, -1.5, 4.5]]


def test_two_processes_learn_what_one_does() -> None:
    """Each writes all answers, and learns from its own part of them."""
    done = copies.run(["-m", "tests.crash.aligned"], cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    two, one = json.loads(done.stdout.splitlines()[-1]), aligned.train("single")
    assert two["rewards"] == pytest.approx(one["rewards"], abs=1e-5)
    assert two["weights"] == pytest.approx(one["weights"], abs=1e-5)
    assert len(set(one["rewards"])) > 1


def test_each_method_fits_on_a_slide() -> None:
    methods = (Reinforce, PPO, GRPO, DPO, BradleyTerry, AnswerTokens,
               alignment.best_of, alignment.rejection_sample)  # fmt: skip
    for method in methods:
        assert len(inspect.getsourcelines(method)[0]) <= 41, method  # a decorator, and 40 lines


def test_rollouts_are_scored_by_the_reference_at_their_temperature() -> None:
    model, reference = tiny(0, double=False), tiny(1, double=False)
    how = Sampling(length=LONGEST, stop=(END,), temperature=0.5)
    batch = rollouts(model, reference, settings=how).at(0)
    sharp_BTV = (reference(batch.tokens[:, :-1]) / 0.5).log_softmax(-1)
    wanted_BT = sharp_BTV.gather(-1, batch.tokens[:, 1:, None])[..., 0] * batch.answer
    torch.testing.assert_close(batch.reference, wanted_BT.detach(), atol=1e-5, rtol=0)
    values_BT = model.value(model.backbone(batch.tokens[:, :-1]).hidden)[..., 0]
    torch.testing.assert_close(batch.values, values_BT.detach())


def test_steps_of_one_turn_have_the_same_answers() -> None:
    model, reference = tiny(0, double=False), tiny(1, double=False)
    made = rollouts(model, reference, epochs=2)
    first = made.at(0)
    with torch.no_grad():
        for weight in model.backbone.parameters():
            weight.mul_(-3)
    again = made.at(1)
    assert torch.equal(again.tokens, first.tokens)
    assert torch.equal(again.old, first.old)
    later = made.at(2)
    assert not torch.equal(later.tokens, first.tokens)
    logs = model(later.tokens[:, :-1]).log_softmax(-1).gather(-1, later.tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(later.old, (logs * later.answer).detach(), atol=1e-5, rtol=0)


def test_what_is_drawn_depends_on_the_seed() -> None:
    model, reference = tiny(0, double=False), tiny(1, double=False)
    prompts = [PROMPT] * 12
    one, other = (
        rollouts(model, reference, prompts=prompts, group=8, seed=seed) for seed in (0, 1)
    )
    assert one.numbers(0) != other.numbers(0)
    drawn = [
        lambda seed: (
            rollouts(model, reference, prompts=[PROMPT], batch=1, group=8, seed=seed)
            .at(0)
            .tokens.tolist()
        ),
        lambda seed: alignment.best_of(model, prompts, gold, HOW, 2, seed=seed),
        lambda seed: alignment.rejection_sample(
            model,
            PROMPT,
            gold,
            HOW,
            beta=1.0,
            highest=float(REWARDS.max()),
            count=12,
            seed=seed,
        ),
    ]
    for draw in drawn:
        assert draw(0) == draw(0) != draw(1)
