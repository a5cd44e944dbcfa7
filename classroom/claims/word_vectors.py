"""The claims of notebook 01: when to freeze what was pre-trained, and when to tune it.

The four quadrants: lecture 003. Word vectors: Mikolov et al. 2013.
"""

from typing import Any

import torch
from torch import nn

from classroom.ledger import Measured, claim
from classroom.models import recipes
from classroom.tasks import classifying
from labkit.blocks import LanguageModel
from labkit.corpus import Examples, from_documents, tokenize
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.transfer import labels_of
from labkit.transfer.finetuning import Way, one_way
from labkit.world import load_world
from labkit.world.examples import LabelledSet

TASKS = {"similar": "topic", "different": "feeling"}
"""Words of one topic occur near each other, so vectors encode topics. *Lovely* and *awful* occur in
the same places, so the same vectors do not encode feelings."""
LENGTH = 160

SIZES: dict[str, dict[str, int]] = {
    "smoke": {"words": 100_000, "steps": 250, "width": 48, "small": 96, "large": 1_920,
              "tests": 576, "tuning": 120},
    "laptop": {"words": 300_000, "steps": 800, "width": 64, "small": 96, "large": 5_760,
               "tests": 960, "tuning": 300},
    "gpu": {"words": 3_000_000, "steps": 6_000, "width": 128, "small": 96, "large": 57_600,
            "tests": 3_840, "tuning": 2_000},
}  # fmt: skip


# ---- four quadrants


def examples(found: LabelledSet, tokenizer: Tokenizer, batch: int, seed: int) -> Examples:
    """A labelled set as batches: a row for each text."""
    texts = from_documents([" ".join(e.words) for e in found], [e.label for e in found])
    tokens = tokenize(texts, tokenizer)
    return Examples(tokens, batch=batch, length=LENGTH, framed=False, seed=seed)


def right(model: Any, tests: Examples) -> list[float]:
    """For each text, 1 where the classifier's best label is the right one."""
    return classifying.right(model, labels_of(model), tests.once())


def four_quadrants(profile: str, seed: int) -> Measured:
    """Two tasks from few and from many labels, each with the same vectors, frozen or fine-tuned."""
    sizes, world = SIZES[profile], load_world()
    text = recipes.course_text(words=sizes["words"], held_out=1_000, seed=seed)
    start, _ = recipes.word_vectors(text, sizes["steps"], seed=seed, width=sizes["width"])
    torch.manual_seed(seed)
    vectors = WordVectors(WordVectorsConfig(text.vocabulary, sizes["width"]))
    starts = {"frozen": start, "fine-tuned": start}
    ways: dict[Way, Any] = {**starts, "from scratch": LanguageModel(vectors, nn.Identity())}  # type: ignore[dict-item]
    arms, best = {}, {}
    for kind, task in TASKS.items():
        tests = world.labelled(task, sizes["tests"], seed=seed, split="held_out")
        asked = examples(tests, text.tokenizer, 64, seed)
        for size in ("small", "large"):
            labelled = world.labelled(task, sizes[size], seed=seed)
            batches = examples(labelled, text.tokenizer, 32, seed)
            plan = tuning(sizes["tuning"] * (1 if size == "small" else 2), seed)
            for way, before in ways.items():
                torch.manual_seed(seed)
                built = one_way(before, way, batches, labels=len(tests.labels), plan=plan)
                arms[f"{size}, {kind}, {way}"] = right(built, asked)
                best[f"{size}, {kind}, {way}"] = tests.best_accuracy
    note = (
        f"similar: the topic of a sentence; different: the feeling of a review; "
        f"{sizes['small']} or {sizes['large']:,} labels"
    )
    return Measured(arms, best, note, shared=False)


def tuning(steps: int, seed: int) -> Plan:
    """How all classifiers of the quadrants learn."""
    return recipes.plan(steps, seed=seed, optimizer="adamw", rate=3e-2, decay=0.0)


FOUR_QUADRANTS = claim("four-quadrants", four_quadrants)
CLAIMS = (FOUR_QUADRANTS,)
