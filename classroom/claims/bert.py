"""The claims about BERT: both sides, both at once, 80/10/10, 15 %, next sentence.

All on the small language of `village.py`; read the experiment of `both_sides` first.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from classroom.claims import village
from classroom.ledger import Measured, claim
from classroom.models.recipes import larger_weights, plan, train_once
from labkit.blocks import LanguageModel
from labkit.corpus import Batches, Document, Examples, Pairs, from_documents, tokenize
from labkit.heads import Label, NextWord, pool
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import (
    Both,
    MaskedToken,
    NextSentence,
    NextToken,
    Objective,
    SentenceOrder,
)
from labkit.world import load_world, sides

STEPS = {"smoke": 100, "laptop": 1_000, "gpu": 3000}
WORDS = {"smoke": 40_000, "laptop": 60_000, "gpu": 300_000}
TESTS = 1_000
HELD_OUT = {"smoke": 1_500, "laptop": 8_000, "gpu": 40_000}
"""Words of held-out documents in which one of twenty is hidden."""


def pretrained(profile: str, seed: int, **choices: Any) -> LanguageModel:
    """A small BERT after its pre-training on sentences; `choices` are those of MaskedToken."""
    model = village.encoder(seed)
    batches = village.rows(village.sentences("train", WORDS[profile], seed), seed=seed)
    how = plan(STEPS[profile], seed=seed, rate=village.RATE)
    train_once(model, village.masked(**choices), batches, how)
    return model


# ---- both sides


def one_direction(profile: str, seed: int) -> LanguageModel:
    """A GPT of the same size, after as many steps on the same rows."""
    torch.manual_seed(seed)
    words = len(village.tokenizer())
    backbone = GPT(GPTConfig(words, 64, 2, 4, context=village.LONGEST, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token))
    larger_weights(model)
    texts = village.sentences("train", WORDS[profile], seed)
    batches = village.rows(texts, seed=seed)
    train_once(model, NextToken(), batches, plan(STEPS[profile], seed=seed, rate=village.RATE))
    return model


@torch.no_grad()
def next_scores(model: Any, asked: village.Blanks) -> Tensor:
    """The log-probabilities [N, V] of the asked words, from the words before them."""
    states = model.backbone(asked.batch.tokens).hidden
    scores: Tensor = model.head(states[torch.arange(len(states)), asked.places - 1])
    return scores.log_softmax(dim=-1)


def both_sides(profile: str, seed: int) -> Measured:
    """The same words of the same sentences, guessed from both sides and from the left alone."""
    asked = village.blanks(TESTS, seed)
    scores = next_scores(one_direction(profile, seed), asked)
    arms = {
        "left only": (-scores.gather(1, asked.words[:, None])[:, 0]).tolist(),
        "both sides": village.cloze(pretrained(profile, seed), asked),
    }
    best = {"left only": float(asked.left.mean()), "both sides": float(asked.both.mean())}
    note = f"one word of each of {TESTS} held-out sentences; as many steps"
    return Measured(arms, best, note, shared=False)


BOTH_SIDES = claim("both-sides", both_sides)


# ---- both at once


def both_at_once(profile: str, seed: int) -> Measured:
    """How well a hidden word can be guessed by two models of one side each, and by one of both.

    No model is trained: the distributions are those of the language. Those of the sides and that of
    the words alone are multiplied, each to the power that is best on other documents.
    """
    language = load_world()
    texts = language.sample(words=HELD_OUT[profile], seed=seed, split="held_out")
    found = sides.sides(language, [text.words for text in texts], seed=seed)
    arms = {
        "side by side": np.concatenate(found.side_by_side.losses).tolist(),
        "both at once": np.concatenate(found.both.losses).tolist(),
    }
    return Measured(arms, note="perfect models, on the course's language", shared=False)


BOTH_AT_ONCE = claim("both-at-once", both_at_once)


# ---- 80/10/10


MIXES: dict[str, dict[str, Any]] = {
    "100/0/0": {"shares": (1.0, 0.0, 0.0), "rate": 0.12},
    "80/10/10": {"shares": (0.8, 0.1, 0.1)},
    "80/20/0": {"shares": (0.8, 0.2, 0.0)},
    "80/0/20": {"shares": (0.8, 0.0, 0.2)},
}
"""[MASK], a random word, the word itself. All predict as many words at a [MASK], 12 %."""


def probed(models: dict[str, LanguageModel], seed: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The accuracy of a probe for senses on each model and on an untrained one, and the best."""
    arms = {
        name: village.sense_probe(model, seed, asked=TESTS)
        for name, model in {**models, "untrained": village.encoder(seed)}.items()
    }
    return arms, dict.fromkeys(arms, village.senses("held_out", TESTS, seed).best)


def eighty_ten_ten(profile: str, seed: int) -> Measured:
    """Trained with [MASK] always, or with some words random or as they are: then used without it.

    The models have learned from as many [MASK]s, and their losses there are compared, too.
    """
    models = {name: pretrained(profile, seed, **mix) for name, mix in MIXES.items()}
    right, possible = probed(models, seed)
    asked = village.blanks(TESTS, seed)
    losses = {f"{name}: loss at [MASK]": village.cloze(models[name], asked) for name in models}
    arms = {f"{name}: senses right": items for name, items in right.items()} | losses
    best = {f"{name}: senses right": one for name, one in possible.items()}
    best |= dict.fromkeys(losses, float(asked.both.mean()))
    note = "a linear probe reads senses from states of text without [MASK]"
    return Measured(arms, best, note, shared=False)


EIGHTY_TEN_TEN = claim("eighty-ten-ten", eighty_ten_ten)
MASK_MIXES = claim("mask-mixes", eighty_ten_ten)


# ---- 15 %

RATES = (0.05, 0.15, 0.4, 0.8)


def fifteen_percent(profile: str, seed: int) -> Measured:
    """The same number of steps with other shares of predicted words, and a probe of senses."""
    models = {f"{rate:.0%}": pretrained(profile, seed, rate=rate) for rate in RATES}
    return Measured(*probed(models, seed), "a linear probe of 4 examples a sense", shared=False)


FIFTEEN_PERCENT = claim("fifteen-percent", fifteen_percent)


# ---- next sentence

Question = Literal["next", "order"]
QUESTIONS: tuple[Question, ...] = ("next", "order")


def pair_batches(question: Question, words: int, seed: int) -> Pairs:
    """Rows of two sentences that follow one another, or not."""
    texts = from_documents(village.documents("train", words, seed))
    tokens = tokenize(texts, village.tokenizer(), end=False)
    return Pairs(tokens, batch=64, length=village.LONGEST, question=question, fill=False, seed=seed)


def pair_model(task: str, profile: str, seed: int) -> LanguageModel:
    """A small BERT that has read pairs: masked words alone, or with one of the two questions."""
    model = village.encoder(seed)
    words: MaskedToken = village.masked()
    objective: Objective = words
    batches: Batches = pair_batches("order" if task == "SOP" else "next", WORDS[profile], seed)
    if task != "none":
        asks: Any = NextSentence if task == "NSP" else SentenceOrder
        model.pair = Label(64, 2)
        objective = Both(parts=(words, asks(head="pair")))
    train_once(model, objective, batches, plan(STEPS[profile], seed=seed, rate=village.RATE))
    return model


def pair_features(
    model: Any, question: Question, split: str, size: int, seed: int = 1
) -> tuple[Tensor, Tensor]:
    """The state of [CLS] and the mean of all states of labelled pairs, and their labels."""
    drawn = village.village().labelled(question, size, seed=seed, split=split)
    number = {"next": 0, "random": 1, "right": 0, "swapped": 1}
    source = from_documents(
        [
            Document((" ".join(one.words), " ".join(one.second or [])), number[one.label])
            for one in drawn
        ]
    )
    tokens = tokenize(source, village.tokenizer(), end=False)
    [batch] = Examples(tokens, batch=len(drawn), length=village.LONGEST).once()
    assert batch.segments is not None
    assert batch.labels is not None
    hidden = village.states(model, batch.tokens, batch.real, segments_BT=batch.segments)
    return torch.cat([hidden[:, 0], pool(hidden, batch.real, "mean")], dim=1), batch.labels


def next_sentence(profile: str, seed: int) -> Measured:
    """Masked words alone, with NSP, with SOP; then probes for senses and for both kinds of pairs.

    A model can do what it was trained for: only other tasks show what it has learned.
    """
    models = {task: pair_model(task, profile, seed) for task in ("none", "NSP", "SOP")}
    right, possible = probed(models, seed)
    arms: dict[str, Sequence[float]] = {f"{task}, senses": right[task] for task in right}
    best = {f"{task}, senses": possible[task] for task in right}
    for question in QUESTIONS:
        drawn = village.village().labelled(question, TESTS, seed=seed, split="held_out")
        for task, model in models.items():
            few, many = (
                pair_features(model, question, split, TESTS, seed)
                for split in ("train", "held_out")
            )
            arms[f"{task}, {question}"] = village.probe(*few, *many)
            best[f"{task}, {question}"] = drawn.best_accuracy
    note = f"linear probes; those of pairs learn each question from {TESTS} labelled ones"
    return Measured(arms, best, note, shared=False)


NEXT_SENTENCE = claim("next-sentence", next_sentence)

CLAIMS = (BOTH_SIDES, BOTH_AT_ONCE, EIGHTY_TEN_TEN, MASK_MIXES, FIFTEEN_PERCENT, NEXT_SENTENCE)
