"""Better answers without training: draw several, and keep some.

Best of n: Stiennon et al. 2020, section 3; what is kept can also be trained on (Dong et al. 2023).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from labkit.alignment.rollouts import Reward, Tokens, rewards_of
from labkit.chance import Chance, key_of
from labkit.checks import check_above_zero, check_whole, is_number, require, shown
from labkit.sampling import Sample, Sampling, sample


def best_of(
    model: Any,
    prompts: Sequence[Tokens],
    reward: Reward,
    settings: Sampling,
    n: int,
    *,
    seed: int = 0,
) -> list[Sample]:
    """The best of n answers to each prompt; among equal rewards the first one."""
    check_whole("n", n, least=1)
    found = []
    texts = sample(model, prompts, settings, samples=n, seed=seed)
    for prompt, drawn in zip(prompts, texts, strict=True):
        rewards = rewards_of(reward, [prompt] * n, [text.tokens for text in drawn])
        found.append(drawn[int(rewards.argmax())])
    return found


def rejection_sample(
    model: Any,
    prompt: Tokens,
    reward: Reward,
    settings: Sampling,
    *,
    beta: float,
    highest: float,
    count: int,
    rounds: int = 1_000,
    seed: int = 0,
) -> list[Sample]:
    """Draw from the best policy: keep each drawn answer with probability exp((r - highest) / beta).

    `highest` is the highest reward that there is. The smaller beta is, the fewer are kept: on
    average exp(highest / beta) / Z answers are drawn for each one that is kept.
    """
    check_above_zero(beta=beta)
    require(is_number(highest), f"highest is {shown(highest)}: give the highest reward there is")
    check_whole("count", count, least=1)
    check_whole("rounds", rounds, least=1)
    kept: list[Sample] = []
    for turn in range(rounds):
        [drawn] = sample(model, [prompt], settings, samples=64, seed=key_of(seed, turn))
        answers = [text.tokens for text in drawn]
        rewards = rewards_of(reward, [prompt] * len(drawn), answers).tolist()
        if max(rewards) > highest + 1e-6:
            raise ValueError(
                f"a reward is {max(rewards)}, above highest={highest}: give the highest possible"
            )
        draws = Chance(seed, turn, torch.arange(len(drawn))).uniform("kept", 1)[:, 0].tolist()
        for text, r, u in zip(drawn, rewards, draws, strict=True):
            if u < math.exp((r - highest) / beta):
                kept.append(text)
        if len(kept) >= count:
            return kept[:count]
    raise ValueError(
        f"{len(kept)} of {count} answers were kept in {rounds} rounds: give a larger beta, or more "
        "rounds"
    )
