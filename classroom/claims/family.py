"""The claims about BERT's family: dynamic masks (RoBERTa), sharing (ALBERT), distillation.

All on the small language of `village.py`; exact counts are those of the published sizes.
"""

import copy
import time
from typing import TYPE_CHECKING, Any

import torch

from classroom.claims import village
from classroom.ledger import Measured, claim
from classroom.recipes import plan, train_once
from labkit.blocks import LanguageModel
from labkit.costs.counting import counted_flop
from labkit.models.bert import BERT, BERTConfig
from labkit.objectives import Distillation, Objective
from labkit.weights import published

if TYPE_CHECKING:
    pass

STEPS = {"smoke": 100, "laptop": 280, "gpu": 3000}
WORDS = {"smoke": 40_000, "laptop": 60_000, "gpu": 300_000}
TESTS = 400


def learned(
    model: LanguageModel,
    profile: str,
    seed: int,
    *,
    objective: Objective | None = None,
    words: int | None = None,
    times: int = 1,
) -> LanguageModel:
    """The model after pre-training on sentences, for so many times the steps of the profile."""
    texts = village.sentences("train", words or WORDS[profile])
    how = plan(times * STEPS[profile], seed=seed, rate=village.RATE)
    train_once(model, objective or village.masked(), village.rows(texts, seed=seed), how)
    return model


# ---- RoBERTa


SMALL_TEXT = {"smoke": 2_000, "laptop": 4_000, "gpu": 10_000}
"""Words of a text so small that it is read many times."""


def dynamic_masks(profile: str, seed: int) -> Measured:
    """A small text read again and again: with the same words hidden each time, or others."""
    asked, arms = village.blanks(TESTS), {}
    words = SMALL_TEXT[profile]
    for name in ("static", "dynamic"):
        objective = village.masked(static=name == "static")
        model = learned(village.encoder(seed), profile, seed, objective=objective, words=words)
        arms[f"{name}: loss"] = village.cloze(model, asked)
        arms[f"{name}: senses right"] = village.sense_probe(model)
    floor, accuracy = float(asked.both.mean()), village.senses("held_out", TESTS).best
    best = {name: floor if name.endswith("loss") else accuracy for name in arms}
    sentences = len(village.sentences("train", words))
    note = f"{STEPS[profile] * 64 / sentences:.0f} readings of {sentences} sentences"
    return Measured(arms, best, note)


DYNAMIC_MASKS = claim("dynamic-masks", dynamic_masks)


# ---- ALBERT


def albert(profile: str, seed: int) -> Measured:
    """Exact counts at the published sizes; four layers with weights of their own, or one block."""
    asked = village.blanks(TESTS)
    ways: dict[str, dict[str, Any]] = {
        "own weights": {},
        "narrow embeddings": {"embedding": 32},
        "narrow, shared": {"embedding": 32, "shared": True},
    }
    arms = {
        "BERT-large / ALBERT-large, parameters": [
            published.parameters("bert-large-uncased") / published.parameters("albert-large-v2")
        ]
    }
    best = {}
    for name, sizes in ways.items():
        model = village.encoder(seed, layers=4, **sizes)
        arms[f"{name}: loss"] = village.cloze(learned(model, profile, seed), asked)
        best[f"{name}: loss"] = float(asked.both.mean())
    return Measured(arms, best, "four layers of width 64; embeddings of width 32 where narrow")


ALBERT = claim("albert", albert)


# ---- DistilBERT


def student_of(teacher: LanguageModel, seed: int) -> LanguageModel:
    """Half as deep: every other layer of the teacher, its embeddings and its head."""
    student = village.encoder(seed, layers=2)
    backbone: Any = student.backbone
    known: Any = teacher.backbone
    for part in ("token", "position", "segment", "norm"):
        getattr(backbone, part).load_state_dict(getattr(known, part).state_dict())
    for i, block in enumerate(backbone.blocks):
        block.load_state_dict(known.blocks[2 * i].state_dict())
    student.head.load_state_dict(teacher.head.state_dict())
    return student


def published_ratio(what: str) -> float:
    """BERT-base over DistilBERT: parameters, or operations for a text of 128 tokens."""
    if what == "parameters":
        counts = [published.parameters(name) for name in PAIR]
    else:
        text = torch.zeros(1, 128, dtype=torch.long, device="meta")
        counts = [counted_flop(published.build(name), text, training=False) for name in PAIR]
    return counts[0] / counts[1]


def times_faster(*, width: int = 384, repeats: int = 5) -> float:
    """How much faster six layers read 128 tokens than twelve, in seconds of the processor."""
    tokens, best = torch.zeros(1, 128, dtype=torch.long), []
    for layers in (12, 6):
        model = BERT(BERTConfig(1_000, width, layers, heads=width // 64)).eval()
        seconds = []
        for _ in range(1 + repeats):
            begun = time.process_time()
            with torch.no_grad():
                model(tokens)
            seconds.append(time.process_time() - begun)
        best.append(min(seconds[1:]))
    return best[0] / best[1]


PAIR = ("bert-base-uncased", "distilbert-base-uncased")


def distillation(profile: str, seed: int) -> Measured:
    """A teacher of four layers, who read twice as long; students of two, taught and alone."""
    asked = village.blanks(TESTS)
    teacher = learned(village.encoder(seed, layers=4), profile, seed, times=2)
    task = Distillation(task=village.masked(), teacher=copy.deepcopy(teacher).eval())
    student = learned(student_of(teacher, seed), profile, seed, objective=task)
    alone = learned(village.encoder(seed, layers=2), profile, seed)
    arms = {
        "share of parameters left, published": [1 / published_ratio("parameters")],
        "times fewer operations, published": [published_ratio("operations")],
    }
    best = {}
    for name, model in (("teacher", teacher), ("student", student), ("alone", alone)):
        arms[f"{name}: senses right"] = village.sense_probe(model)
        arms[f"{name}: loss"] = village.cloze(model, asked)
        best[f"{name}: senses right"] = village.senses("held_out", TESTS).best
        best[f"{name}: loss"] = float(asked.both.mean())
    return Measured(arms, best, "the student begins as every other layer of its teacher")


DISTILLATION = claim("distillation", distillation)

CLAIMS = (DYNAMIC_MASKS, ALBERT, DISTILLATION)
