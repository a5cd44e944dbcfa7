"""The claims about BERT's family: masks, batches, rows (RoBERTa), sharing (ALBERT), students.

All on the small language of `village.py`; exact counts are those of the published sizes.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from classroom.claims import journey, village
from classroom.claims.elmo import Unread, twins
from classroom.claims.journey import journeys
from classroom.ledger import Measured, claim
from classroom.models.recipes import (
    CourseText,
    course_text,
    plan,
    random_words,
    train_once,
    untrained_gpt,
)
from labkit.blocks import LanguageModel
from labkit.corpus import from_documents, tokenize
from labkit.costs.counting import counted_flop
from labkit.models.bert import BERT, BERTConfig
from labkit.objectives import Distillation, MaskedToken, NextToken, Objective
from labkit.text.tokenizers import Tokenizer
from labkit.weights import published
from labkit.world import load_world
from labkit.writing.prompting import score_texts

STEPS = {"smoke": 100, "laptop": 700, "gpu": 3000}
WORDS = {"smoke": 40_000, "laptop": 300_000, "gpu": 300_000}
TESTS = 1_000


def learned(
    model: LanguageModel,
    profile: str,
    seed: int,
    *,
    objective: Objective | None = None,
    batch: int = 64,
    rate: float = village.RATE,
    times: int = 1,
) -> LanguageModel:
    """The model after pre-training on sentences, of which it reads as many in any batches.

    With `times` it takes that many times the usual steps.
    """
    texts = village.sentences("train", WORDS[profile], seed)
    rows = village.rows(texts, batch=batch, seed=seed)
    steps = max(2, times * STEPS[profile] * 64 // batch)
    how = plan(steps, seed=seed, rate=rate)
    train_once(model, objective or village.masked(), rows, how)
    return model


# ---- RoBERTa


SMALL_TEXT = {"smoke": 2_000, "laptop": 12_000, "gpu": 30_000}
"""Words of a text so small that it is read many times."""


def dynamic_masks(profile: str, seed: int) -> Measured:
    """A small text read forty times: with one choice of hidden words, with ten, with new ones."""
    asked, models = village.blanks(TESTS, seed), {}
    texts = village.sentences("train", SMALL_TEXT[profile], seed)
    for name, kinds in village.MASKS.items():
        # What is copied ten times gets ten choices, as in BERT's code.
        rows = village.rows(texts * max(1, kinds), seed=seed)
        models[name] = village.encoder(seed)
        how = plan(max(2, village.READINGS * len(texts) // 64), seed=seed, rate=village.RATE)
        train_once(models[name], village.masked(static=kinds > 0), rows, how)
    arms = {name: village.cloze(model, asked) for name, model in models.items()}
    best = dict.fromkeys(arms, float(asked.both.mean()))
    note = f"{village.READINGS} readings of {len(texts)} sentences"
    return Measured(arms, best, note, shared=False)


DYNAMIC_MASKS = claim("dynamic-masks", dynamic_masks)


BATCHES = {16: 0.005, 64: 0.01, 256: 0.02}
"""Sentences in a batch, and the learning rate. Half and twice the rate were no better with the
seeds 0 and 1."""


def larger_batches(profile: str, seed: int) -> Measured:
    """The same sentences in small batches and many steps, or in large batches and few steps."""
    asked = village.blanks(TESTS, seed)
    arms = {
        f"batches of {batch}": village.cloze(
            learned(village.encoder(seed), profile, seed, batch=batch, rate=rate), asked
        )
        for batch, rate in BATCHES.items()
    }
    note = "all read as many sentences, each at the best rate of several"
    return Measured(arms, dict.fromkeys(arms, float(asked.both.mean())), note, shared=False)


LARGER_BATCHES = claim("larger-batches", larger_batches)


SHORT, LONG = 16, 48
MORE_STEPS = 4
"""As many times the steps of the other claims: in long rows more has to be learned."""


def longer_rows(profile: str, seed: int) -> Measured:
    """As many tokens in short rows or in long ones; then the same words, asked in such rows."""
    text, size = journeys(profile, seed), journey.SIZES[profile]
    vocabulary = text.tokenizer.vocabulary
    assert vocabulary.mask is not None
    objective = MaskedToken(
        vocabulary=vocabulary, frequencies=random_words(text.language, text.tokenizer)
    )
    whole = [words[: LONG - 2] for words in text.documents if len(words) >= LONG - 2]
    arms, best = {}, {}
    for name, length in (("short rows", SHORT), ("long rows", LONG)):
        model = village.encoder(seed, vocabulary=text.vocabulary, context=LONG)
        rows = text.windows(size.batch * LONG // length, length, seed=seed, framed=True)
        train_once(
            model, objective, rows, plan(MORE_STEPS * size.steps, seed=seed, rate=village.RATE)
        )
        first = (LONG - length) // 2
        asked = [words[first : first + length - 2] for words in whole]
        place = (length - 2) // 2
        tokens = text.framed(asked)
        targets = tokens[:, 1 + place].clone()
        tokens[:, 1 + place] = vocabulary.mask
        with torch.no_grad():
            hidden = model.backbone(tokens).hidden[:, 1 + place]
            arms[name] = model.head.losses_N(hidden, targets).tolist()  # type: ignore[operator]
        each = [text.language.joint(words, [place], start="anywhere") for words in asked]
        best[name] = -sum(each) / len(each)
    note = f"rows of {SHORT} and {LONG} tokens; one word of each of {len(whole)} documents"
    return Measured(arms, best, note, shared=False)


LONGER_ROWS = claim("longer-rows", longer_rows)


# ---- byte-level BPE


@dataclass(frozen=True, kw_only=True, eq=False)
class NextWithUnseen(Unread, NextToken):
    """The next word, with some words unread."""


PIECES = 1_000
SUBWORDS = {"smoke": (300, 300), "laptop": (1_500, 2_000), "gpu": (10_000, 20_000)}
"""Steps, and held-out documents."""


def subwords(profile: str, seed: int) -> Measured:
    """The rest of a sentence after a form that no training text has, and after a known word.

    A GPT with a word for each token reads [UNK], one with byte-level BPE reads the pieces. Both
    have read as many words in as many steps; the loss is that of whole words.
    """
    steps, documents = SUBWORDS[profile]
    batch, length = 16, 32
    count = steps * batch * length // 2
    text = course_text(words=count, held_out=1_000, seed=seed)
    world = load_world().new_forms
    pairs = twins(world, world.sample(documents=documents, seed=seed, split="held_out"), seed)
    read = [one.text for one in text.language.sample(words=count, seed=seed)]
    pieces = Tokenizer.bpe(read[:2_000], PIECES)
    inside = replace(text, tokenizer=pieces, train=tokenize(from_documents(read), pieces))
    share = len(inside.train) / len(text.train)
    unknown = text.tokenizer.vocabulary.unk
    assert unknown is not None

    def numbers(source: CourseText, words: Sequence[str]) -> list[int]:
        shown = [
            "[UNK]" if source is text and one in world.grammar.held_out else one for one in words
        ]
        return source.tokenizer.encode(" ".join(shown), special=source is text)

    models = {
        "words": (text, length, NextWithUnseen(unknown=unknown)),
        "BPE": (inside, round(share * length), NextToken()),
    }
    arms = {}
    for name, (source, long, objective) in models.items():
        model = untrained_gpt(source, seed=seed, width=64, length=2 * long)
        rows = source.windows(batch, long, seed=seed)
        train_once(model, objective, rows, plan(steps, seed=seed, rate=1.5e-2))
        for kind in ("known", "unseen"):
            parted = [(getattr(pair, kind), pair.place + 1) for pair in pairs]
            arms[f"{name}, {kind}"] = rest_losses(model, partial(numbers, source), parted)
    note = f"BPE of {PIECES} tokens, {share:.2f} of them a word; {len(pairs)} sentences"
    return Measured(arms, note=note, shared=False)


def rest_losses(
    model: LanguageModel,
    numbers: Callable[[Sequence[str]], list[int]],
    parted: Sequence[tuple[list[str], int]],
) -> list[float]:
    """For each text, the loss of the words from a place on, in nats per word."""
    # Byte-level pieces begin with the space before their word.
    asked = [(numbers(words[:place]), numbers(["", *words[place:]])) for words, place in parted]
    logs = [log for i in range(0, len(asked), 64)
            for log in score_texts(model, asked[i : i + 64]).tolist()]  # fmt: skip
    return [-log / (len(words) - place) for log, (words, place) in zip(logs, parted, strict=True)]


SUBWORDS_READ = claim("subwords", subwords)


# ---- ALBERT


def albert(profile: str, seed: int) -> Measured:
    """Exact counts at the published sizes; four layers with weights of their own, or one block."""
    asked = village.blanks(TESTS, seed)
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
    note = "four layers of width 64; embeddings of width 32 where narrow"
    return Measured(arms, best, note, shared=False)


ALBERT = claim("albert", albert)
FACTORISED = claim("factorised-embeddings", albert)


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


PAIR = ("bert-base-uncased", "distilbert-base-uncased")


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


def distillation(profile: str, seed: int) -> Measured:
    """A teacher of four layers; students of two, with its weights, its answers, both, or neither.

    The teacher takes four times as many steps as a student, since it is pre-trained once. The gains
    from its weights and from its answers are measured separately.
    """
    asked = village.blanks(TESTS, seed)
    teacher = learned(village.encoder(seed, layers=4), profile, seed, times=4)
    task = Distillation(task=village.masked(), teacher=copy.deepcopy(teacher).eval())

    def two() -> LanguageModel:
        return village.encoder(seed, layers=2)

    models = {
        "teacher": teacher,
        "student": learned(student_of(teacher, seed), profile, seed, objective=task),
        "weights alone": learned(student_of(teacher, seed), profile, seed),
        "answers alone": learned(two(), profile, seed, objective=task),
        "neither": learned(two(), profile, seed),
    }
    arms = {
        "share of parameters left, published": [1 / published_ratio("parameters")],
        "times fewer operations, published": [published_ratio("operations")],
    }
    best = {}
    for name, model in models.items():
        arms[f"{name}: senses right"] = village.sense_probe(model, seed, asked=TESTS)
        arms[f"{name}: loss"] = village.cloze(model, asked)
        best[f"{name}: senses right"] = village.senses("held_out", TESTS, seed).best
        best[f"{name}: loss"] = float(asked.both.mean())
    note = "a student with weights begins as every other layer of its teacher"
    return Measured(arms, best, note, shared=False)


DISTILLATION = claim("distillation", distillation)

CLAIMS = (
    DYNAMIC_MASKS,
    LARGER_BATCHES,
    LONGER_ROWS,
    SUBWORDS_READ,
    ALBERT,
    FACTORISED,
    DISTILLATION,
)
