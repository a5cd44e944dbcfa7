"""The claims of notebook 07: instructions, steps written out, preferences, rewards, and their cost.

All experiments begin with models that ship (`gpt-base`, `gpt-tuned`); only the small model of
`small_and_tuned` is pre-trained anew with each seed. Otherwise a seed decides the order of what
they learn from, the pairs that are judged, and what is drawn. Read `tune` first.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from classroom.ledger import Measured, claim
from classroom.tasks import instructions as village
from labkit import alignment
from labkit.alignment import Question, Reinforce, Rollouts
from labkit.alignment.preferences import (
    DPO,
    AnswerTokens,
    BradleyTerry,
    answer_log_probs,
    answer_rows,
    learned_rewards,
)
from labkit.blocks import LanguageModel
from labkit.corpus import Batch, Batches
from labkit.heads import Label, NextWord
from labkit.keeping.paths import data_path
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import Objective
from labkit.plan import Plan
from labkit.sampling import sample
from labkit.trainer import Trainer
from labkit.weights import load
from labkit.world import optimal

SIZES: dict[str, dict[str, int]] = {
    "smoke": {"tune": 60, "policy": 20, "pairs": 600, "answers": 100, "rewards": 40, "draws": 1},
    "laptop": {"tune": 250, "policy": 200, "pairs": 20_000, "answers": 5_000, "rewards": 150,
               "draws": 4},
    "gpu": {"tune": 2_000, "policy": 1_000, "pairs": 100_000, "answers": 10_000, "rewards": 600,
            "draws": 16},
}  # fmt: skip
SHOTS = "where does tom live ? in oslo . what does max do ? a potter . "


def shipped(name: str) -> Any:
    """A model that ships, as the experiments begin with it."""
    return load(data_path("models") / name, dtype=torch.float32)


def train(
    model: Any, objective: Objective, batches: Batches, steps: int, rate: float, seed: int
) -> Any:
    """Train a model in place with AdamW and a linear schedule."""
    plan = Plan(steps=steps, rate=rate, schedule="linear", precision="float32", device="cpu",
                seed=seed, clip=1.0)  # fmt: skip
    for _ in Trainer(model, objective, batches, plan, progress=False).run():
        pass
    return model.eval()


def tune(model: Any, profile: str, seed: int, steps: int | None = None) -> Any:
    """Instruction tuning: the answers of conversations."""
    steps = steps or SIZES[profile]["tune"]
    return train(model, AnswerTokens(), conversations(seed), steps, 3e-3, seed)


def conversations(seed: int) -> village.Rows:
    """What every model is tuned on, 32 at a time."""
    return village.Rows(village.conversations("train"), batch=32, seed=seed)


# ---- answers


def texts(model: Any, prompts: Sequence[str], profile: str, seed: int) -> list[list[str]]:
    """What a model writes after each prompt, up to its next question."""
    numbers = village.tokenizer().encode
    tokens = [[village.end(), *numbers(prompt)] for prompt in prompts]
    drawn = sample(model, tokens, village.answering(), samples=SIZES[profile]["draws"], seed=seed)
    return [village.spoken(one.tokens).split(" ? ")[0].split() for some in drawn for one in some]


def people() -> list[str]:
    """Those who live in the village."""
    return [row[0] for row in village.world().grammar.tables["village"].rows]


def instructions(profile: str, seed: int) -> Measured:
    """Whether each text begins with an answer: it names a town."""
    base = shipped("gpt-base").eval()
    tuned = tune(copy.deepcopy(base), profile, seed)
    plainly = [village.plain_question(one, "town") for one in people()]
    towns = {village.row_of(one)["town"] for one in people()}
    asked = {
        "base, no shot": (base, plainly),
        "base, two shots": (base, [SHOTS + one for one in plainly]),
        "tuned, no shot": (tuned, [f"user : {one} model :" for one in plainly]),
    }
    arms = {}
    for name, one in asked.items():
        named = [bool(towns & set(words)) for words in texts(*one, profile, seed)]
        # A figure for each person: what is drawn for the same person is alike.
        arms[name] = np.reshape(named, (len(plainly), -1)).mean(axis=1).tolist()
    return Measured(arms, dict.fromkeys(arms, 1.0))


def small_and_tuned(profile: str, seed: int) -> Measured:
    """A small model, pre-trained and tuned, against the base model, by true rewards."""
    base, asked = shipped("gpt-base").eval(), village.questions()
    torch.manual_seed(seed)
    gpt = GPT(GPTConfig(len(village.tokenizer()), 32, 1, 1, 97, dropout=0.0))
    small = LanguageModel(gpt, NextWord(gpt.token))
    steps = SIZES[profile]["tune"]
    train(small, AnswerTokens(), village.base_rows(16, seed=seed), 4 * steps, 1e-2, seed)
    tune(small, profile, seed, 2 * steps)
    numbers = village.tokenizer().encode
    arms: dict[str, list[float]] = {"against no shot": [], "against two shots": []}
    for (name, what), one, mine in zip(
        village.ASKED, asked, alignment.policies(small, asked), strict=True
    ):
        question = village.plain_question(name, what)
        for arm, shots in (("against no shot", ""), ("against two shots", SHOTS)):
            shown = [village.end(), *numbers(shots + question)]
            # The base model goes on after its answer: up to there it is compared.
            plain = Question(shown, [answer[:-1] for answer in one.answers], one.rewards)
            theirs = alignment.policies(base, [plain])[0]
            arms[arm].append(optimal.win_rate(mine, theirs, one.rewards))
    return Measured(arms, dict.fromkeys(arms, 1.0))


def written_step(profile: str, seed: int) -> Measured:
    """Where friends live: those of people whom training asked about, and those of the others."""
    model = tune(shipped("gpt-base"), profile, seed, 2 * SIZES[profile]["tune"])
    arms = {}
    for known, who in ((True, "asked about"), (False, "never asked about")):
        for explained, how in ((False, "at once"), (True, "step written")):
            asked = village.hops(known, explained=explained)
            prompts = [prompt for prompt, _ in asked]
            said = sample(model, prompts, village.answering(temperature=0.0))
            ends = [village.spoken(text.tokens).split()[-2:] for [text] in said]
            right = [town in end for end, (_, town) in zip(ends, asked, strict=True)]
            arms[f"{who}, {how}"] = [float(one) for one in right]
    return Measured(arms, dict.fromkeys(arms, 1.0))


# ---- rewards


def reward_model(tuned: Any, pairs: Sequence[Any], profile: str, seed: int) -> Any:
    """A reward model that has learned from these pairs."""
    torch.manual_seed(seed)
    model = copy.deepcopy(tuned)
    model.reward = Label(model.backbone.width, 1, pooled=False)
    rows = village.Rows(pairs, batch=min(32, len(pairs)), seed=seed)
    return train(model, BradleyTerry(), rows, SIZES[profile]["rewards"], 2e-3, seed)


def guesses(model: Any, asked: Sequence[Question]) -> list[np.ndarray]:
    """The rewards that a reward model gives to all answers to each question."""
    rows: list[Batch] = [answer_rows([q.prompt] * len(q.answers), q.answers) for q in asked]
    return [learned_rewards(model, batch).numpy() for batch in rows]


def true_rewards(
    asked: Sequence[Question], reference: Sequence[np.ndarray], proxies: Sequence[Question]
) -> list[float]:
    """The true rewards of the best policies for a proxy, from a cautious one to the boldest."""
    ways = [alignment.best_policies(reference, proxies, b) for b in np.geomspace(20, 0.02, 60)]
    return [alignment.measured(way, reference, asked, village.BETA).reward for way in ways]


def over_optimisation(profile: str, seed: int) -> Measured:
    """What a learned reward is worth when it is followed just far enough, and when too far."""
    tuned, asked = shipped("gpt-tuned"), village.questions()
    reference = alignment.policies(tuned, asked)
    answers = village.written(tuned, asked, SIZES[profile]["answers"], seed=seed)
    judged = village.preferences(asked, answers, 2_000, seed=seed)
    arms = {}
    for count in (100, 2_000):
        model = reward_model(tuned, judged.texts[:count], profile, seed)
        proxies = village.other_rewards(asked, guesses(model, asked))
        earned = true_rewards(asked, reference, proxies)
        arms[f"{count:,} pairs, at its best"] = [max(earned)]
        arms[f"{count:,} pairs, followed furthest"] = [earned[-1]]
    return Measured(arms, shared=False)


def same_frontier(profile: str, seed: int) -> Measured:
    """The share of the way to the ceiling that is left after DPO and after REINFORCE."""
    tuned, asked, beta = shipped("gpt-tuned"), village.questions(), village.BETA
    frozen, reference = alignment.reference_of(tuned), alignment.policies(tuned, asked)
    best = alignment.ceiling(reference, asked, beta)
    start = alignment.measured(reference, reference, asked, beta).value
    steps = SIZES[profile]["policy"]
    rollouts = Rollouts(
        model=copy.deepcopy(tuned), reference=frozen, prompts=[one.prompt for one in asked],
        reward=alignment.gold(asked), settings=village.answering(), batch=8, group=8, seed=seed,
    )  # fmt: skip
    answers = village.written(tuned, asked, SIZES[profile]["answers"], seed=seed)
    judged = village.preferences(asked, answers, SIZES[profile]["pairs"], seed=seed, exact=True)
    pairs = village.Rows(judged.texts, batch=64, seed=seed, labels=judged.chances)
    dpo = DPO(reference=frozen, beta=beta)
    policies = {
        "leave one out": train(
            rollouts.model, Reinforce(beta=beta, group=8), rollouts, steps, 1e-3, seed
        ),
        "DPO, exact preferences": train(copy.deepcopy(tuned), dpo, pairs, steps, 3e-4, seed),
    }
    arms = {}
    for name, policy in policies.items():
        found = alignment.measured(alignment.policies(policy, asked), reference, asked, beta)
        arms[name] = [(best - found.value) / (best - start)]
    return Measured(arms, dict.fromkeys(arms, 0.0), shared=False)


# ---- what it costs


class Together:
    """Conversations, the same as without plain text, and plain text in one batch."""

    def __init__(self, seed: int) -> None:
        self.spoken = conversations(seed)
        self.plain = village.base_rows(16, seed=seed)

    def at(self, step: int) -> Batch:
        """32 conversations and 16 plain texts; all tokens after the prompt count."""
        parts = [self.spoken.at(step), self.plain.at(step)]
        rows = [row for batch in parts for row in _rows(batch)]
        return answer_rows([prompt for prompt, _ in rows], [answer for _, answer in rows])


def _rows(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The prompts and answers of a batch."""
    assert batch.segments is not None
    found = []
    for tokens, real, answer in zip(batch.tokens, batch.real, batch.segments == 1, strict=True):
        found.append((tokens[real & ~answer].tolist(), tokens[real & answer].tolist()))
    return found


@torch.no_grad()
def plain_loss(model: Any) -> list[float]:
    """Nats per word of each held-out plain text."""
    losses = []
    for batch in village.base_tests(village.plain("held_out", 300)):
        assert batch.segments is not None
        words_B = ((batch.segments == 1) & batch.real).sum(dim=1)
        losses += (-answer_log_probs(model, batch).sum(dim=1) / words_B).tolist()
    return losses


def alignment_tax(profile: str, seed: int) -> Measured:
    """The loss of plain text before tuning, after it, and after tuning with plain text."""
    base, steps = shipped("gpt-base").eval(), SIZES[profile]["tune"]
    mixed = train(copy.deepcopy(base), AnswerTokens(), Together(seed), steps, 3e-3, seed)
    tuned = tune(copy.deepcopy(base), profile, seed)
    models = {"base": base, "tuned alone": tuned, "with plain text": mixed}
    return Measured({name: plain_loss(model) for name, model in models.items()})


CLAIMS = [
    claim("instructions", instructions),
    claim("small-and-tuned", small_and_tuned),
    claim("written-step", written_step),
    claim("over-optimisation", over_optimisation),
    claim("same-frontier", same_frontier),
    claim("alignment-tax", alignment_tax),
]
