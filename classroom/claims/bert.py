"""The claims about BERT: both sides, 80/10/10, 15 %, next sentence.

All on the small language of `village.py`; read the experiment of `both_sides` first.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from classroom.claims import village
from classroom.ledger import Measured, claim
from classroom.recipes import plan, train_once
from labkit.blocks import LanguageModel
from labkit.corpus import Batches, Document, Examples, Pairs, from_documents, tokenize
from labkit.heads import Label, NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import (
    Both,
    MaskedToken,
    NextSentence,
    NextToken,
    Objective,
    SentenceOrder,
)

STEPS = {"smoke": 100, "laptop": 300, "gpu": 3000}
WORDS = {"smoke": 40_000, "laptop": 60_000, "gpu": 300_000}
TESTS = 400


def pretrained(profile: str, seed: int, **choices: Any) -> LanguageModel:
    """A small BERT after its pre-training on sentences; `choices` are those of MaskedToken."""
    model = village.encoder(seed)
    batches = village.rows(village.sentences("train", WORDS[profile]), seed=seed)
    how = plan(STEPS[profile], seed=seed, rate=village.RATE)
    train_once(model, village.masked(**choices), batches, how)
    return model


# ---- both sides


def left_to_right(profile: str, seed: int) -> LanguageModel:
    """A GPT of the same size, after as many steps on the same rows."""
    torch.manual_seed(seed)
    words = len(village.tokenizer())
    backbone = GPT(GPTConfig(words, 64, 2, 4, context=village.LONGEST, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token))
    village.larger_weights(model)
    batches = village.rows(village.sentences("train", WORDS[profile]), seed=seed)
    train_once(model, NextToken(), batches, plan(STEPS[profile], seed=seed, rate=village.RATE))
    return model


@torch.no_grad()
def next_losses(model: Any, asked: village.Blanks) -> list[float]:
    """How surprised a left-to-right model is by the asked words, each from the words before it."""
    tokens, count = asked.batch.tokens, torch.arange(len(asked.batch))
    before = model.backbone(tokens).hidden[count, asked.places - 1]
    losses: list[float] = model.head.losses_N(before, tokens[count, asked.places]).tolist()
    return losses


def both_sides(profile: str, seed: int) -> Measured:
    """The same words of the same sentences, guessed from both sides and from the left alone."""
    asked = village.blanks(TESTS)
    arms = {
        "left only": next_losses(left_to_right(profile, seed), asked),
        "both sides": village.cloze(pretrained(profile, seed), asked),
    }
    best = {"left only": float(asked.left.mean()), "both sides": float(asked.both.mean())}
    return Measured(arms, best, "one word of each of 400 held-out sentences; as many steps")


BOTH_SIDES = claim("both-sides", both_sides)


# ---- 80/10/10


def eighty_ten_ten(profile: str, seed: int) -> Measured:
    """Trained with [MASK] always, or with 80/10/10: with [MASK], and on text as it is."""
    asked, arms = village.blanks(TESTS), {}
    for name, shares in (("100/0/0", (1.0, 0.0, 0.0)), ("80/10/10", (0.8, 0.1, 0.1))):
        model = pretrained(profile, seed, shares=shares)
        arms[f"{name}: loss at [MASK]"] = village.cloze(model, asked)
        arms[f"{name}: loss, word shown"] = village.cloze(model, asked, hidden=False)
        arms[f"{name}: senses right"] = village.sense_probe(model)
    floor, accuracy = float(asked.both.mean()), village.senses("held_out", TESTS).best
    best = {name: floor for name in arms if name.endswith("[MASK]")}
    best |= {name: accuracy for name in arms if name.endswith("right")}
    return Measured(arms, best, "a linear probe reads senses from states of text without [MASK]")


EIGHTY_TEN_TEN = claim("eighty-ten-ten", eighty_ten_ten)


# ---- 15 %

RATES = (0.05, 0.15, 0.4, 0.8)


def fifteen_percent(profile: str, seed: int) -> Measured:
    """The same number of steps with other shares of predicted words, and a probe of senses."""
    arms = {
        f"{rate:.0%}": village.sense_probe(pretrained(profile, seed, rate=rate)) for rate in RATES
    }
    best = village.senses("held_out", TESTS).best
    return Measured(arms, dict.fromkeys(arms, best), "a linear probe of 4 examples a sense")


FIFTEEN_PERCENT = claim("fifteen-percent", fifteen_percent)


# ---- next sentence

Question = Literal["next", "order"]
QUESTIONS: tuple[Question, ...] = ("next", "order")


def pair_batches(question: Question, words: int, seed: int) -> Pairs:
    """Rows of two sentences that follow one another, or not."""
    texts = from_documents(village.documents("train", words))
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


def pair_features(model: Any, question: Question, split: str, size: int) -> tuple[Tensor, Tensor]:
    """Of labelled pairs: the state of [CLS] beside the mean of all, and the labels."""
    drawn = village.village().labelled(question, size, seed=1, split=split)
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
    mean = (hidden * batch.real[:, :, None]).sum(dim=1) / batch.real.sum(dim=1, keepdim=True)
    return torch.cat([hidden[:, 0], mean], dim=1), batch.labels


def next_sentence(profile: str, seed: int) -> Measured:
    """Masked words alone, with NSP, with SOP; then a probe for both kinds of pairs."""
    arms: dict[str, list[float]] = {}
    for task in ("none", "NSP", "SOP"):
        model = pair_model(task, profile, seed)
        for question in QUESTIONS:
            few, many = (
                pair_features(model, question, split, TESTS) for split in ("train", "held_out")
            )
            arms[f"{task}, {question}"] = village.probe(*few, *many)
    world = village.village()
    best: dict[str, float] = {}
    for question in QUESTIONS:
        possible = world.labelled(question, TESTS, seed=1, split="held_out").best_accuracy
        best |= {name: possible for name in arms if name.endswith(question)}
    return Measured(arms, best, "a linear probe learns each question from 400 labelled pairs")


def _mean(task: str, sign: float) -> dict[str, float]:
    return {f"{task}, {question}": sign / 2 for question in QUESTIONS}


NEXT_SENTENCE = claim("next-sentence", next_sentence)

CLAIMS = (BOTH_SIDES, EIGHTY_TEN_TEN, FIFTEEN_PERCENT, NEXT_SENTENCE)
