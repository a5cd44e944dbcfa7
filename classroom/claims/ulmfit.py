"""Claims of notebook 03: a hundred labels, three tricks, a new language; order matters."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from classroom.claims.order import ORDER_MATTERS, SPEED_OF_ENCODERS
from classroom.ledger import Measured, claim
from classroom.models.recipes import CourseText, course_text, plan, train_once, untrained_awd_lstm
from classroom.models.scaling_runs import document_floors, document_losses
from classroom.tasks.classifying import openings, right, rows_of
from labkit.blocks import Classifier, LanguageModel
from labkit.corpus import Batch, Examples, Windows, from_documents, tokenize
from labkit.objectives import NextToken
from labkit.trainer import Trainer
from labkit.transfer import classifier, labels_of
from labkit.transfer.finetuning import Tuning, fine_tune


@dataclass(frozen=True)
class Size:
    """How large the experiments of a profile are."""

    words: int = 100_000
    """Of general text."""
    width: int = 96
    general: int = 300
    """Steps of the first stage, on general text."""
    target: int = 150
    """Steps of the second stage, on the target's own text."""
    labelled: int = 120
    """Steps of the third stage, on labelled texts."""
    tests: int = 396
    counts: tuple[int, ...] = (18, 54, 180, 540)
    """How many labels are given: 2, 6, 20 and 60 for each of nine relations."""
    draws: int = 1
    """How many sets of labels are drawn for one pre-trained model."""
    second: tuple[int, int] = (40, 120)
    """Steps in the new language after which the loss is measured."""


SIZES = {
    "smoke": Size(),
    "laptop": Size(
        words=500_000, general=1_500, target=400, labelled=180, tests=1_980,
        counts=(18, 54, 180, 540, 1_620), draws=4, second=(50, 300),
    ),
    "gpu": Size(
        words=2_000_000, width=256, general=6_000, target=1_000, labelled=400, tests=1_980,
        counts=(18, 54, 180, 540, 1_620), draws=8, second=(200, 4_000),
    ),
}  # fmt: skip


# ---- three stages ------------------------------------------------------------------------------


def general(text: CourseText, profile: str, seed: int) -> LanguageModel:
    """The first stage: a language model of general text."""
    size = SIZES[profile]
    model = untrained_awd_lstm(text.vocabulary, size.width, seed=seed)
    batches = text.windows(8, 32, seed=seed)
    train_once(model, NextToken(), batches, plan(size.general, rate=3e-2, seed=seed))
    return model


def target_text(text: CourseText, seed: int) -> Windows:
    """Text of the target task without its labels: prompts alone."""
    prompts = itertools.islice(text.language.documents(seed=seed, having="relation"), 2_000)
    tokens = tokenize(from_documents(list(prompts)), text.tokenizer)
    return Windows(tokens, batch=8, length=32, seed=seed)


def adapted(text: CourseText, profile: str, seed: int) -> LanguageModel:
    """The first two stages: general text, then text of the target."""
    model = general(text, profile, seed)
    steps = SIZES[profile].target
    how = plan(steps, rate=1e-2, schedule="slanted_triangle", warmup=None, seed=seed)
    train_once(model, NextToken(), target_text(text, seed), how)
    return model


def tuned(
    start: LanguageModel,
    rows: Examples,
    *,
    labels: int,
    steps: int,
    seed: int = 0,
    factor: float = 2.6,
    schedule: str = "slanted_triangle",
    gradually: bool = True,
    layers: int | None = None,
) -> Classifier:
    """The third stage: a classifier, by default with the three tricks of the paper, and by Adam."""
    torch.manual_seed(seed)
    model = classifier(copy.deepcopy(start), labels, dropout=0.1)
    how = plan(steps, optimizer="adamw", rate=5e-3, schedule=schedule, warmup=None, seed=seed)
    every = max(1, steps // 8) if gradually else None
    tuning = Tuning(plan=how, factor=factor, unfreeze_every=every, layers=layers)
    return fine_tune(model, labels_of(model), rows, tuning)


PAIRS = 2
"""How many pairs of a prompt are shown: enough to tell nearly always, for one who knows them."""


@dataclass(frozen=True)
class Task:
    """Which relation do the first pairs of a prompt have?  Nine answers."""

    text: CourseText
    tests: list[Batch]
    best: float
    labels: int

    def rows(self, count: int, seed: int) -> Examples:
        """So many labelled prompts to learn from."""
        world = self.text.language
        labelled = openings(world, world.labelled("relation", count, seed=seed), PAIRS)
        return rows_of(labelled, self.text.tokenizer, batch=16, seed=seed)

    def right(self, model: Classifier) -> list[float]:
        """Which of the tests a classifier gets right."""
        return right(model, labels_of(model), self.tests)


def task(profile: str, seed: int) -> Task:
    """The task, with its general text."""
    size = SIZES[profile]
    text = course_text(words=size.words, held_out=4_000, seed=seed)
    asked = text.language.labelled("relation", size.tests, seed=seed, split="held_out")
    asked = openings(text.language, asked, PAIRS)
    rows = rows_of(asked, text.tokenizer, batch=100)
    return Task(text, list(rows.once()), asked.best_accuracy, len(asked.labels))


def hundred_labels(profile: str, seed: int) -> Measured:
    """The same classifier from pre-trained and from fresh weights, over numbers of labels."""
    size, given = SIZES[profile], task(profile, seed)
    before = adapted(given.text, profile, seed)
    nothing = untrained_awd_lstm(given.text.vocabulary, size.width, seed=seed)
    arms: dict[str, list[float]] = {}
    for count in size.counts:
        rows = given.rows(count, seed)
        for way, start in (("pre-trained", before), ("from scratch", nothing)):
            # The same plain recipe for both: another claim tests the tricks.
            model = tuned(
                start, rows, labels=given.labels, steps=size.labelled, seed=seed,
                factor=1.0, gradually=False,
            )  # fmt: skip
            arms[f"{count:,} labels, {way}"] = given.right(model)
    best = dict.fromkeys(arms, given.best)
    means = {name: float(np.mean(items)) for name, items in arms.items()}
    scratch, learned = (
        [means[f"{count:,} labels, {way}"] for count in size.counts]
        for way in ("from scratch", "pre-trained")
    )
    for i, count in enumerate(size.counts[:2]):
        arms[f"times: {count} labels"] = [10 ** more_labels(size.counts, scratch, i, learned[i])]
    return Measured(arms, best, shared=False)


def more_labels(counts: Sequence[int], scratch: Sequence[float], i: int, accuracy: float) -> float:
    """How many times counts[i] labels a model from scratch needs for this accuracy, as log10.

    Between the counts it is interpolated; an accuracy that is never reached gets the last count.
    """
    rising = np.maximum.accumulate(scratch)
    needed = np.interp(accuracy, rising, np.log10(counts))
    return float(needed - np.log10(counts[i]))


HUNDRED_LABELS = claim("hundred-labels", hundred_labels)

ABLATION: Mapping[str, Mapping[str, Any]] = {
    "all three": {},
    "one rate for all layers": {"factor": 1.0},
    "constant rate": {"schedule": "constant"},
    "all layers from the start": {"gradually": False},
    "none of the three": {"factor": 1.0, "schedule": "constant", "gradually": False},
}


FEW = 54
"""Labels: six for each relation."""


def ablation(ways: Mapping[str, Mapping[str, Any]], profile: str, seed: int) -> Measured:
    """One pre-trained model, fine-tuned in several ways with several draws of few labels."""
    given, size = task(profile, seed), SIZES[profile]
    before = adapted(given.text, profile, seed)
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    for draw in range(size.draws):
        rows = given.rows(FEW, 1_000 * draw + seed)
        for name, changes in ways.items():
            model = tuned(
                before, rows, labels=given.labels, steps=size.labelled, seed=seed, **changes
            )
            found[name].append(given.right(model))
    arms = {name: np.mean(each, axis=0).tolist() for name, each in found.items()}
    note = f"each figure is the mean of {size.draws} draws of {FEW} labels"
    return Measured(arms, dict.fromkeys(arms, given.best), note, shared=False)


def three_tricks(profile: str, seed: int) -> Measured:
    """Fine-tuning with few labels, without one of the tricks at a time."""
    return ablation(ABLATION, profile, seed)


THREE_TRICKS = claim("three-tricks", three_tricks)

PLAINLY: Mapping[str, Any] = {"factor": 1.0, "gradually": False}
LAST: Mapping[str, Mapping[str, Any]] = {
    "head alone": {**PLAINLY, "layers": 1},
    "head and last layer": {**PLAINLY, "layers": 2},
    "head and both layers": {**PLAINLY, "layers": 3},
    "all, words too": PLAINLY,
}


def last_layers(profile: str, seed: int) -> Measured:
    """Fine-tuning of so many of the last layers; the others stay as they were pre-trained."""
    return ablation(LAST, profile, seed)


LAST_LAYERS = claim("last-layers", last_layers)


# ---- a new language ----------------------------------------------------------------------------


def with_new_words(model: LanguageModel, vocabulary: int, *, seed: int = 0) -> LanguageModel:
    """The layers of a language model under new word vectors, for words that it has never seen."""
    old: Any = model.backbone
    new = untrained_awd_lstm(vocabulary, old.config.width, seed=seed)
    layers: Any = new.backbone.blocks
    layers.load_state_dict(old.blocks.state_dict())
    return new


def new_language(profile: str, seed: int) -> Measured:
    """The loss in another language, early and late, from scratch and transferred."""
    size = SIZES[profile]
    first = course_text(words=size.words, held_out=4_000, seed=seed)
    second = course_text("foreign", words=size.words // 2, held_out=2_000, seed=seed)
    tests, best = second.tests(48), float(np.mean(document_floors(second, 48)))
    moved = with_new_words(general(first, profile, seed), second.vocabulary, seed=seed)
    scratch = untrained_awd_lstm(second.vocabulary, size.width, seed=seed)
    starts = {"from scratch": scratch, "transferred": moved}
    batches = second.windows(8, 32, seed=seed)
    how = plan(max(size.second), rate=2e-2, schedule="constant", seed=seed)
    when = dict(zip(size.second, ("early", "late"), strict=True))
    arms: dict[str, list[float]] = {}
    for way, model in starts.items():
        for report in Trainer(model, NextToken(), batches, how, progress=False).run():
            if report.step in when:
                arms[f"{when[report.step]}, {way}"] = document_losses(model, tests)
    note = f"early is after {size.second[0]} steps, late after {size.second[1]}"
    return Measured(arms, dict.fromkeys(arms, best), note, shared=False)


NEW_LANGUAGE = claim("new-language", new_language)

CLAIMS = (
    ORDER_MATTERS, SPEED_OF_ENCODERS, HUNDRED_LABELS, THREE_TRICKS, LAST_LAYERS, NEW_LANGUAGE,
)  # fmt: skip
