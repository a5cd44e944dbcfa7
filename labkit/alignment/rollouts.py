"""Rollouts: a policy answers prompts, and each answer gets a reward.

    rollouts = Rollouts(model=model, reference=reference, prompts=prompts, reward=reward,
                        settings=Sampling(length=16, stop=(end,)), batch=8, group=8)
    for report in Trainer(model, Reinforce(beta=0.3), rollouts, plan).run(): ...

A batch is a function of the step and of the weights at that step, so a run that is resumed from a
checkpoint goes on as if it had never stopped.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labkit.alignment.preferences import answer_log_probs, answer_rows, answered, check_apart
from labkit.blocks import evaluating, to_device_of
from labkit.chance import key_of, shuffled
from labkit.checks import check_whole, shown
from labkit.corpus import Batch
from labkit.corpus.batches import in_turn
from labkit.heads import one_score
from labkit.keeping.files import digest
from labkit.sampling import Sampling, sample

Tokens = Sequence[int]
Reward = Callable[[Sequence[Tokens], Sequence[Tokens]], Sequence[float]]
"""The reward of each answer to its prompt."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout(Batch):
    """Answers that a policy wrote, one in each row; answers to the same prompt are adjacent.

    `examples` is the number of the prompt, `segments` is 1 in the answer. The entries for the
    token at position t + 1 have index t: [B, T - 1].
    """

    rewards: Tensor
    """The reward of each answer: [B]."""
    old: Tensor
    """log p of each token under the policy that wrote it."""
    reference: Tensor
    """log p of each token under the reference."""
    values: Tensor | None = None
    """The prediction of the value head before each token."""
    temperature: Tensor | None = None
    """The temperature at which each answer was drawn: [B]."""
    epochs: Tensor | None = None
    """How many steps learn from each answer: [B]."""

    @property
    def answer(self) -> Tensor:
        """True [B, T - 1] where the next token belongs to the answer."""
        return answered(self)

    @property
    def log_ratio(self) -> Tensor:
        """log policy(answer) - log reference(answer) of each row: its mean is the divergence."""
        return (self.old - self.reference).sum(dim=1)


def reference_of(model: nn.Module) -> Any:
    """A copy of a model that does not learn."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def check_unfiltered(how: Sampling) -> None:
    """Refuse filters: the drawn words would be scored as if they were drawn from all words."""
    if how.top_k or how.top_p < 1 or how.minimum or how.repetition != 1 or not how.temperature:
        raise ValueError(
            "filtered answers would be scored as if they were drawn from all words, so the "
            "gradient would be that of another policy: leave top_k, top_p, minimum and "
            "repetition at their defaults, and give a temperature above 0"
        )


def check_no_dropout(model: nn.Module) -> None:
    """Refuse dropout: in training, the model would not be the policy that wrote the answers."""
    for name, module in model.named_modules():
        for rate in ("p", "rate", "dropout", "weight_dropout"):
            share = getattr(module, rate, 0)
            if isinstance(share, int | float) and share > 0:
                raise ValueError(
                    f"the model drops units ({name}.{rate} is {share}) while it learns, so it is "
                    "not the policy that wrote the answers: set each such rate to 0"
                )


def check_remembers(model: Any, prompts: Sequence[Tokens], length: int) -> None:
    """Refuse a memory shorter than a text: writing would have less context than scoring has."""
    longest = max(map(len, prompts)) + length
    memory = model.backbone.memory_length if model.backbone.remembers else None
    # Without a memory, a model reads the whole text for each word. The last word is not read.
    if memory and memory < longest - 2:
        raise ValueError(
            f"a text may have {longest} tokens and the model remembers {memory}, so its "
            "answers would be written with less context than they are scored with: give shorter "
            f"prompts or answers, or a model with memory={longest - 2}"
        )


def rewards_of(reward: Reward, prompts: Sequence[Tokens], answers: Sequence[Tokens]) -> Tensor:
    """The reward of each answer; refuse anything but a finite number for each."""
    given = reward(prompts, answers)
    try:
        rewards = torch.tensor(list(given), dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the reward function gives {shown(given)}: let it give one number for each answer"
        ) from error
    if rewards.shape != (len(answers),):
        raise ValueError(
            f"the rewards of {len(answers)} answers have the shape {list(rewards.shape)}: let "
            "the reward function give one number for each answer"
        )
    if not bool(rewards.isfinite().all()):
        bad = rewards[~rewards.isfinite()][0].item()
        raise ValueError(f"a reward is {bad}: let the reward function give finite numbers")
    return rewards


@dataclass(frozen=True, kw_only=True, eq=False)
class Rollouts:
    """Batches of answers that the model itself writes."""

    model: Any
    reference: Any
    prompts: Sequence[Tokens]
    reward: Reward
    settings: Sampling
    batch: int = 8
    """The number of prompts in a step."""
    group: int = 8
    """The number of answers to each prompt."""
    epochs: int = 1
    """The number of steps on the same answers. With 2 or more, a copy of their policy is kept as
    `model.behaviour`, and saved with the model."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_apart(self.model, self.reference)
        check_unfiltered(self.settings)
        check_no_dropout(self.model)
        for name in ("batch", "group", "epochs"):
            check_whole(name, getattr(self, name), least=1)
        if not len(self.prompts):
            raise ValueError("there are no prompts: give at least one")
        check_remembers(self.model, self.prompts, self.settings.length)
        if self.epochs > 1:
            self.model.behaviour = None
            self.model.behaviour = reference_of(self.model)

    def described(self) -> str:
        """The prompts and settings. Not a batch: it would be drawn with the current weights."""
        prompts = [[int(token) for token in prompt] for prompt in self.prompts]
        return (
            f"{self.group} answers to each of {self.batch} of {len(prompts)} prompts with checksum "
            f"{digest(repr(prompts).encode())[:16]}, {self.settings}, epochs={self.epochs}, "
            f"seed={int(self.seed)}"
        )

    def numbers(self, turn: int) -> list[int]:
        """Which prompts are asked: each once, in an order of its own for each epoch."""
        count = len(self.prompts)
        order = partial(shuffled, count, self.seed, "prompts")
        return in_turn(turn, self.batch, count, order).tolist()

    @torch.no_grad()
    def at(self, step: int) -> Rollout:
        """The answers of a step, written by the model as it is now."""
        turn, again = divmod(step, self.epochs)
        policy = self.model
        if self.epochs > 1:
            policy = self.model.behaviour
            if not again:
                own = {k: v for k, v in self.model.state_dict().items() if "behaviour." not in k}
                policy.load_state_dict(own)
        to_device_of(self.reference, self.model)
        with evaluating(self.model), evaluating(self.reference):
            return self.written(policy, turn)

    def written(self, policy: Any, turn: int) -> Rollout:
        """The answers, their rewards, and each token's log p under the policy and the reference."""
        numbers = self.numbers(turn)
        asked = [self.prompts[n] for n in numbers]
        texts = sample(
            policy, asked, self.settings, samples=self.group, seed=key_of(self.seed, turn)
        )
        prompts = [prompt for prompt in asked for _ in range(self.group)]
        answers = [text.tokens for group in texts for text in group]
        device = next(policy.parameters()).device
        examples = torch.tensor(numbers).repeat_interleave(self.group)
        batch = answer_rows(prompts, answers, examples=examples)
        there = batch.to(device)
        temperature = self.settings.temperature
        values = None
        if hasattr(policy, "value"):
            values_BT1 = policy.value(policy.backbone(there.tokens[:, :-1]).hidden)
            values = one_score(values_BT1, "value").cpu()
        return Rollout(
            **vars(batch),
            rewards=rewards_of(self.reward, prompts, answers).to(torch.get_default_dtype()),
            old=answer_log_probs(policy, there, temperature=temperature).cpu(),
            reference=answer_log_probs(self.reference, there, temperature=temperature).cpu(),
            values=values,
            temperature=torch.full((len(batch),), temperature, dtype=torch.float64),
            epochs=torch.full((len(batch),), self.epochs),
        )
