"""Whole recipes of transfer, one call each: fine-tuning, ULMFiT's three stages, four quadrants.

Each is a short loop over the Trainer: read them, and write your own.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from labkit.blocks import Classifier, LanguageModel
from labkit.corpus import Batch, Batches
from labkit.objectives import NextToken, Objective
from labkit.plan import Plan
from labkit.trainer import Evaluation, Trainer, evaluate
from labkit.transfer.groups import (
    classifier,
    discriminative,
    features_only,
    labels_of,
    layer_groups,
    unfreeze_from_top,
)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a pre-trained model learns a task."""

    plan: Plan
    factor: float = 1.0
    """How many times slower each layer learns than the one above it: 2.6 in ULMFiT."""
    unfreeze_every: int | None = None
    """Steps until one layer more learns, from the head down; None: all from the start."""
    layers: int | None = None
    """How many of the highest layers ever learn, the head among them; None: all."""


def fine_tune(
    model: Classifier, objective: Objective, batches: Batches, tuning: Tuning
) -> Classifier:
    """Train a classifier in place, some of its layers later or slower or never."""
    layers = len(layer_groups(model)) if tuning.layers is None else tuning.layers
    begin = layers if tuning.unfreeze_every is None else min(1, layers)
    groups = discriminative(model, tuning.factor)
    unfreeze_from_top(model, begin)
    for report in Trainer(model, objective, batches, tuning.plan, groups=groups).run():
        if tuning.unfreeze_every is not None:
            unfreeze_from_top(model, min(layers, begin + report.step // tuning.unfreeze_every))
    unfreeze_from_top(model, len(layer_groups(model)))
    return model


@dataclass(frozen=True)
class ThreeStages:
    """What ULMFiT's three stages gave."""

    language_model: LanguageModel
    classifier: Classifier
    losses: dict[str, Evaluation] = field(default_factory=dict)


def ulmfit(
    model: LanguageModel,
    general: Batches | None,
    target: Batches | None,
    labelled: Batches,
    *,
    labels: int,
    plans: Sequence[Plan],
    factor: float = 2.6,
    unfreeze_every: int | None = None,
    held_out: Iterable[Batch] | None = None,
) -> ThreeStages:
    """Howard and Ruder 2018: a language model of general text, of the target's text, a classifier.

    A stage without batches is left out (a model that is pre-trained already needs no first one).
    The second and third use discriminative rates; the third unfreezes layer after layer, one every
    `unfreeze_every` steps (a fraction of its plan when None). Give `plans` with the slanted
    triangle for the paper's recipe. The language model itself is trained, not a copy of it.
    """
    if len(plans) != 3:
        raise ValueError(f"{len(plans)} plans: give three, one for each stage")
    for batches, plan, slower in ((general, plans[0], 1.0), (target, plans[1], factor)):
        if batches is not None:
            groups = discriminative(model, slower)
            for _ in Trainer(model, NextToken(), batches, plan, groups=groups).run():
                pass
    built = classifier(copy.deepcopy(model), labels)
    every = unfreeze_every or max(1, plans[2].steps // (2 * len(layer_groups(built))))
    objective = labels_of(built)
    fine_tune(
        built, objective, labelled, Tuning(plan=plans[2], factor=factor, unfreeze_every=every)
    )
    found = ThreeStages(model, built)
    if held_out is not None:
        found.losses["classifier"] = evaluate(built, objective, held_out)
    return found


Way = Literal["frozen", "fine-tuned", "from scratch"]
WAYS: tuple[Way, ...] = ("frozen", "fine-tuned", "from scratch")


def one_way(start: nn.Module, way: Way, batches: Batches, *, labels: int, plan: Plan) -> Classifier:
    """A classifier on top of a copy of a language model, which it trains unless it is frozen."""
    built = classifier(copy.deepcopy(start), labels)
    if way == "frozen":
        features_only(built)
    for _ in Trainer(built, labels_of(built), batches, plan).run():
        pass
    return built


def quadrants(
    model: LanguageModel,
    fresh: LanguageModel,
    tasks: dict[str, tuple[Batches, Sequence[Batch]]],
    *,
    labels: int,
    plan: Plan,
) -> dict[tuple[str, Way], Evaluation]:
    """Freeze, fine-tune, or start anew?  Each way on each task (lectures/003: the four quadrants).

    `tasks` are labelled batches to train on and others to test on, under names such as
    "small, similar"; `fresh` is the same model before it was pre-trained. Neither is changed.
    """
    found = {}
    for task, (batches, held_out) in tasks.items():
        for way in WAYS:
            start: nn.Module = fresh if way == "from scratch" else model
            built = one_way(start, way, batches, labels=labels, plan=plan)
            found[task, way] = evaluate(built, labels_of(built), held_out)
    return found
