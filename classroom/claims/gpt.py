"""Claims of notebook 05: the auxiliary objective of fine-tuning, and half precision."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from classroom.classifying import openings, right, rows_of
from classroom.ledger import Measured, claim
from classroom.recipes import CourseText, course_text, gpt, plan, train_once
from labkit.blocks import Classifier, LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch, Examples
from labkit.objectives import NextToken, Objective, Targets, Term, auxiliary
from labkit.objectives.sums import weighted
from labkit.trainer import Trainer, evaluate
from labkit.transfer import classifier, labels_of

LENGTH, BATCH = 64, 4


@dataclass(frozen=True)
class Size:
    """How large the experiments of a profile are."""

    words: int = 150_000
    width: int = 64
    layers: int = 1
    rate: float = 2.5e-2
    steps: int = 300
    """Of pre-training."""
    labelled: int = 120
    """Steps of fine-tuning."""
    tests: int = 396
    half: int = 40
    """Steps of each run in half precision."""


SIZES = {
    "smoke": Size(),
    "laptop": Size(words=300_000, steps=900, labelled=240, half=100),
    "gpu": Size(
        words=2_000_000, width=256, layers=4, rate=4e-3, steps=6_000, labelled=400, tests=1_980,
        half=1_000,
    ),
}  # fmt: skip


# ---- L3 = L2 + λ L1 ----------------------------------------------------------------------------


def tuned(
    start: LanguageModel, rows: Examples, *, labels: int, share: float, steps: int, seed: int = 0
) -> Classifier:
    """A classifier that keeps on predicting words with this share λ of the loss."""
    torch.manual_seed(seed)
    start = copy.deepcopy(start)
    model: Any = classifier(start, labels, dropout=0.1)
    model.words = start.head
    label = labels_of(model)
    objective: Objective = auxiliary(share, label=label) if share else label
    train_once(model, objective, rows, plan(steps, rate=1e-2, seed=seed))
    return model


FEW, MANY = 99, 999
SHARES = (0.0, 0.5)


def auxiliary_objective(profile: str, seed: int) -> Measured:
    """Accuracy with and without the language model in fine-tuning, on a small and a large set."""
    size = SIZES[profile]
    text, start = pretrained(profile, seed)
    world = text.world
    assert world is not None
    asked = openings(world, world.labelled("relation", size.tests, seed=seed, split="held_out"), 1)
    tests = rows_of(asked, text.tokenizer, batch=100, bucketed=False)
    arms: dict[str, list[float]] = {}
    for count in (FEW, MANY):
        labelled = openings(world, world.labelled("relation", count, seed=seed), 1)
        rows = rows_of(labelled, text.tokenizer, batch=16, seed=seed)
        for share in SHARES:
            known = {"labels": len(asked.labels), "steps": size.labelled, "seed": seed}
            model = tuned(start, rows, share=share, **known)
            arms[arm(count, share)] = right(model, labels_of(model), tests.once())
    return Measured(arms, dict.fromkeys(arms, asked.best_accuracy))


def arm(count: int, share: float) -> str:
    """The name of what is measured with so many labels and this λ."""
    return f"{count} labels, λ = {share:g}"


AUXILIARY_OBJECTIVE = claim("auxiliary-objective", auxiliary_objective)


# ---- half precision ----------------------------------------------------------------------------

WORDS_A_STEP = 2**19
"""Half a million words in a step of GPT-3 small (Brown et al. 2020, table 2.1)."""
Precision = Literal["float32", "float16", "bfloat16"]
WAYS: dict[str, tuple[Precision, float | None]] = {
    "float32": ("float32", None),
    "float16": ("float16", None),
    "float16, scaled": ("float16", 2.0**16),
    "bfloat16": ("bfloat16", None),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PartOfStep(NextToken):
    """Next words, as one part of a step of many more: its loss is the mean over all of them."""

    share: float = 1.0

    def terms(self, model: Any, states: States, questions: Targets) -> dict[str, Term]:
        """The surprise, counted as the part that it is."""
        return weighted(super().terms(model, states, questions), self.share)


def pretrained(profile: str, seed: int) -> tuple[CourseText, LanguageModel]:
    """A small GPT that has read general text."""
    size = SIZES[profile]
    text = course_text(words=size.words, held_out=2_000, seed=seed)
    model, _ = gpt(
        text, size.steps, seed=seed, width=size.width, layers=size.layers, length=LENGTH,
        batch=BATCH, rate=size.rate,
    )  # fmt: skip
    return text, model


def half_precision(profile: str, seed: int) -> Measured:
    """The share of gradients that are zero, and the loss, in each precision.

    GPT-3 small learns from half a million words in each step. So many are too many here, but the
    gradients of a part of such a step are as small as there.
    """
    size = SIZES[profile]
    text, start = pretrained(profile, seed)
    tests = text.tests(48, batch=1)
    assert text.world is not None
    floor = text.world.floor("next", [words[:48] for words in text.documents])
    best = float(np.mean([losses.mean() for losses in floor.losses]))
    batches = text.windows(BATCH, LENGTH, seed=seed + 1)
    objective = PartOfStep(share=BATCH * LENGTH / WORDS_A_STEP)
    zeros: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for way, (precision, scale) in WAYS.items():
        model = copy.deepcopy(start)
        how = plan(
            size.half, rate=size.rate / 2, precision=precision, loss_scale=scale, seed=seed
        )  # fmt: skip
        reports = Trainer(model, objective, batches, how, progress=False).run()
        share = [float(one.vanished) for one in reports if one.vanished is not None]
        if share:
            zeros[f"zero: {way}"] = share
        losses[f"loss: {way}"] = [evaluate(model, NextToken(), [row]).loss for row in tests]
    return Measured({**zeros, **losses}, dict.fromkeys(losses, best))


HALF_PRECISION = claim("half-precision", half_precision)


def gradient_sizes(model: LanguageModel, batch: Batch) -> torch.Tensor:
    """The sizes of all gradients of one batch, one number for each weight."""
    model.zero_grad()
    NextToken()(model, batch, Chance(0, 0, batch.rows)).loss.backward()
    found = [
        weight.grad.flatten().abs() for weight in model.parameters() if weight.grad is not None
    ]
    model.zero_grad()
    return torch.cat(found)


CLAIMS = (AUXILIARY_OBJECTIVE, HALF_PRECISION)
