"""Objectives, which turn a batch of raw text into predictions and a loss.

An objective works in two steps. `targets(batch, chance)` decides, without the model, what the model
sees and what it has to predict: a pure function of the batch and of chance, so it can run earlier,
elsewhere, or twice. `loss(model, targets)` runs the model and compares its predictions with the
targets. `objective(model, batch, chance)` does both and is all that most readers need:

    outcome = objective(model, batch, Chance(seed, step, batch.rows))
    outcome.loss.backward()

An outcome is a set of named terms, each a sum over a counted number of predictions; the loss is
their weighted mean. A step that is split into parts (micro-batches, ranks) has exactly the loss and
gradients of the whole when every part divides by the counts of the whole step:

    every = [objective.targets(part, Chance(seed, step, part.rows)) for part in parts]
    counts = total(every)                                # add up the ranks' counts as well
    for i, targets in enumerate(every):
        outcome = objective.loss(model, targets.to(device), memory[i])
        outcome.over(counts).backward()                  # gradients add up: nothing to divide
        memory[i] = outcome.memory

The model's memory of earlier segments is a value too: `outcome.memory` is what the next batch of
the same rows is given, and None forgets. `Memory.tensors` and `Memory.load` are for checkpoints.

Read base.py first, then one file for each kind of target: words.py (next, masked),
permutation.py (in a random order), vectors.py (skip-gram, CBOW), labels.py (classes, tags, pairs,
choices, spans), translation.py (one text from another), sums.py (several at once), experts.py (a
mixture that is balanced).
"""

from labkit.objectives.base import Objective, Outcome, Predicted, Targets, Term, combine, total
from labkit.objectives.experts import Balanced
from labkit.objectives.labels import Labels, NextSentence, SentenceOrder, Similarity, SpanEnds
from labkit.objectives.memory import Memory
from labkit.objectives.permutation import Permutation
from labkit.objectives.sums import Both, Distillation, Sum, auxiliary
from labkit.objectives.translation import Translation
from labkit.objectives.vectors import CBOW, SkipGram
from labkit.objectives.words import BothDirections, MaskedToken, NextToken

__all__ = [
    "CBOW",
    "Balanced",
    "Both",
    "BothDirections",
    "Distillation",
    "Labels",
    "MaskedToken",
    "Memory",
    "NextSentence",
    "NextToken",
    "Objective",
    "Outcome",
    "Permutation",
    "Predicted",
    "SentenceOrder",
    "Similarity",
    "SkipGram",
    "SpanEnds",
    "Sum",
    "Targets",
    "Term",
    "Translation",
    "auxiliary",
    "combine",
    "total",
]
