"""Fine-tuning, with layers that learn later or slower or never: short loops over the Trainer."""

import copy
from dataclasses import dataclass
from typing import Literal

from torch import nn

from labkit.blocks import Classifier
from labkit.checks import check_above_zero, check_whole
from labkit.corpus import Batches
from labkit.objectives import Objective
from labkit.plan import Plan
from labkit.trainer import Trainer
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

    def __post_init__(self) -> None:
        check_above_zero(factor=self.factor)
        for name in ("unfreeze_every", "layers"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least=1)


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


Way = Literal["frozen", "fine-tuned", "from scratch"]


def one_way(start: nn.Module, way: Way, batches: Batches, *, labels: int, plan: Plan) -> Classifier:
    """A classifier on top of a copy of a language model, which it trains unless it is frozen."""
    built = classifier(copy.deepcopy(start), labels)
    if way == "frozen":
        features_only(built)
    for _ in Trainer(built, labels_of(built), batches, plan).run():
        pass
    return built
