"""One small GPT as a point of a scaling law: its size, what it read, how far above the floor.

The points that the course ships were made by a sweep over a notebook of three cells:

    python -m labkit sweep notebooks/extra/one_gpt.ipynb --output runs/scaling \\
        -p width=16,32,64,128 -p words=40000,100000,250000,500000
    cp runs/scaling/results.jsonl data/claims/scaling_runs.jsonl

Read `scaling_run` first; `scaling.fit` fits the law.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from classroom.models import recipes
from classroom.models.recipes import CourseText
from classroom.running.sweeps import read_rows
from labkit.blocks import evaluating
from labkit.corpus import Batch
from labkit.costs import counting
from labkit.costs.scaling import ScalingRun
from labkit.keeping.paths import data_path

LENGTH, BATCH = 64, 4


class Point(NamedTuple):
    """The record of one run."""

    parameters: int
    """All parameters: the embeddings are used for each word, too, as the matrix of the head."""
    tokens: int
    operations: float
    """The operations of training, counted on the built model."""
    loss: float
    floor: float

    @property
    def excess(self) -> float:
        """The loss above the floor."""
        return self.loss - self.floor

    @property
    def run(self) -> ScalingRun:
        """The part of the record that the fit needs."""
        return ScalingRun(self.parameters, self.tokens, self.excess)


def rate_of(width: int) -> float:
    """The best rate falls with the width: 0.025 was found at 64."""
    return 0.025 * (64 / width) ** 0.5


def scaling_run(width: int, words: int, seed: int = 0, *, held_out: int = 20_000) -> Point:
    """Train one GPT on text that it reads once, and measure it on documents that were held out."""
    text, floors = _text(words, held_out, seed)
    steps = max(1, words // (LENGTH * BATCH))
    model, _ = recipes.gpt(
        text, steps, seed=seed, width=width, layers=1, length=LENGTH, batch=BATCH,
        rate=rate_of(width),
    )  # fmt: skip
    losses = document_losses(model, text.tests(LENGTH))
    operations = steps * counting.counted_flop(model, torch.zeros(BATCH, LENGTH, dtype=torch.long))
    return Point(
        counting.parameters(model).total,
        steps * BATCH * LENGTH,
        float(operations),
        float(np.mean(losses)),
        float(np.mean(floors)),
    )


@lru_cache(maxsize=2)
def _text(words: int, held_out: int, seed: int) -> tuple[CourseText, list[float]]:
    """The text of several runs, drawn once, and the floors of its documents."""
    text = recipes.course_text(words=words, held_out=held_out, seed=seed)
    return text, document_floors(text, LENGTH)


@torch.no_grad()
def word_losses(model: Any, batch: Batch) -> Tensor:
    """The loss of each word after those before it [B, T - 1], by a causal model; 0 at padding."""
    batch = batch.to(next(model.parameters()).device)
    asked, targets = batch.real[:, 1:], batch.tokens[:, 1:]
    with evaluating(model):
        hidden_BTD = model.backbone(batch.tokens[:, :-1]).hidden
        losses = torch.zeros(asked.shape, device=asked.device)
        losses[asked] = model.head.losses_N(hidden_BTD[asked], targets[asked]).float()
    return losses.cpu()


def document_losses(model: nn.Module, tests: Iterable[Batch]) -> list[float]:
    """The mean loss of the words of each document, for a model that reads from left to right."""
    found: list[float] = []
    for batch in tests:
        found += (word_losses(model, batch).sum(dim=1) / batch.real[:, 1:].sum(dim=1)).tolist()
    return found


def document_floors(text: CourseText, length: int) -> list[float]:
    """The lowest possible mean loss of the words of each document."""
    told = text.language.log_probabilities([words[:length] for words in text.documents])
    return [float(-each.mean()) for each in told]


def read(path: Path) -> list[Point]:
    """The points that a sweep recorded: its `results.jsonl`, a row for each run.

    Where the code has changed between runs, only those of the newest version count: points of two
    versions do not lie on one law.
    """
    done = [row for row in read_rows(path) if row.status == "finished"]
    done = [row for row in done if row.versions.get("labkit") == done[-1].versions.get("labkit")]
    try:
        if not done:
            raise ValueError("it holds no finished run")
        points = [Point(*(row.results[name] for name in Point._fields)) for row in done]
        if not all(isinstance(number, int | float) for point in points for number in point):
            raise ValueError("not all results are numbers")
        return points
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a record of runs of the scaling laws: {error}") from None


def shipped() -> list[Point]:
    """The runs that the course ships."""
    return read(data_path("claims", "scaling_runs.jsonl"))
