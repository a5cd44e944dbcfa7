"""Labelled texts of the language as batches, and which of them a classifier gets right.

texts = rows_of(world.labelled("feeling", 100, seed=0), tokenizer, batch=20)
model = transfer.classifier(language_model, labels=2)
right(model, transfer.labels_of(model), tests)      # for each text 1 or 0, for the ledger
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import evaluating
from labkit.chance import Chance
from labkit.corpus import Batch, Document, Examples, from_documents, tokenize
from labkit.objectives import Labels
from labkit.text.tokenizers import Tokenizer
from labkit.world import World
from labkit.world.examples import Example, LabelledSet
from labkit.world.labelled import priors

LENGTH = 160
"""The most tokens in a row; longer examples are cut."""


def rows_of(
    labelled: LabelledSet, tokenizer: Tokenizer, *, batch: int = 32, seed: int = 0
) -> Examples:
    """A row for each example, [CLS] text [SEP] or [CLS] text [SEP] text [SEP], with its label."""
    documents = []
    for example in labelled:
        parts: tuple[str, ...] = (" ".join(example.words),)
        if example.second is not None:
            parts = (*parts, f" {' '.join(example.second)}")
        documents.append(Document(parts, labelled.labels.index(example.label)))
    tokens = tokenize(from_documents(documents), tokenizer)
    return Examples(tokens, batch=batch, length=LENGTH, seed=seed)


def openings(world: World, labelled: LabelledSet, pairs: int) -> LabelledSet:
    """Prompts of which only the first pairs are shown, with the exact chances of each relation.

    A whole prompt shows its relation many times; a short one requires knowledge of its words.
    """
    shown = [_first(example.words, pairs) for example in labelled]
    posteriors = world.posteriors([(words, len(words) - 1) for words in shown], "relation")
    before, found = priors(world, "relation"), []
    for example, words, posterior in zip(labelled, shown, posteriors, strict=True):
        weights = {label: chance / before[label] for label, chance in posterior.items()}
        chances = {label: weight / sum(weights.values()) for label, weight in weights.items()}
        found.append(Example(words, None, None, example.label, chances))
    return LabelledSet(labelled.task, labelled.labels, found)


def _first(words: list[str], pairs: int) -> list[str]:
    """The words of the first pairs: a pair ends at a semicolon or at the full stop."""
    ends = [i + 1 for i, word in enumerate(words) if word in (";", ".")]
    return words[: ends[min(pairs, len(ends)) - 1]]


@torch.no_grad()
def right(model: Any, objective: Labels, batches: Iterable[Batch]) -> list[float]:
    """For each text, in order, 1 where the likeliest label is the right one, else 0."""
    found: list[float] = []
    with evaluating(model):
        for step, batch in enumerate(batches):
            targets = objective.targets(batch, Chance(0, step, batch.rows))
            targets = targets.to(next(model.parameters()).device)
            states, _ = objective.forward(model, targets)
            scores = objective.scores(model, states, targets)[objective.name]
            labels = targets.predicted[objective.name].targets_N[:: objective.choices]
            found += (scores.argmax(dim=-1) == labels).float().tolist()
    return found


def regression(
    x_ND: Tensor, labels: Tensor, classes: int, penalty: float, steps: int = 100
) -> nn.Linear:
    """A logistic regression with a penalty on the squares of its weights.

    It learns from labels [N], or from the chances of each label [N, C].
    """
    linear = nn.Linear(x_ND.shape[1], classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimizer = torch.optim.LBFGS(
        linear.parameters(), max_iter=steps, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        squares = penalty / (2 * len(x_ND)) * linear.weight.square().sum()
        value = F.cross_entropy(linear(x_ND), labels) + squares
        value.backward()
        return value

    optimizer.step(loss)
    return linear
