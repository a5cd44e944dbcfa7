"""Two tasks that need several states: the similarity of two texts, and the span of an answer.

Similarity: Radford et al. 2018, section 3.3. Spans: Devlin et al. 2019, section 4.2.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.blocks import States
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.objectives.base import Objective, Predicted, Targets, Term, check_labels
from labkit.objectives.labels import Labels


@dataclass(frozen=True, kw_only=True, eq=False)
class Similarity(Labels):
    """Similarity of two texts: each pair is two rows, one for each order of the texts.

    The head reads the sum of both rows' states, so it does not depend on the order.
    """

    name: ClassVar[str] = "similarity"
    choices: int = field(default=2, init=False)

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The scores of all labels for each pair."""
        hidden_ND = self.hidden(states, targets)[self.name]
        both_ND = hidden_ND.unflatten(0, (-1, 2)).sum(dim=1)
        return {self.name: getattr(model, self.head)(both_ND)}


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanEnds(Objective):
    """The first and the last position of an answer in each text: labels [B, 2].

    -mean (log p(begin) + log p(end)) / 2, over the real positions of each text; a label below zero
    means that the answer is not known.
    """

    name: ClassVar[str] = "span"

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """Both ends of the answer of each row that has one."""
        labels = check_labels("a span", batch.labels, len(batch), 2)
        known = (labels >= 0).all(dim=1)
        rows = known.nonzero().squeeze(1)
        lengths = batch.real.sum(dim=1)[rows]
        begin, end = labels[rows].unbind(dim=1)
        if bool(((begin > end) | (end >= lengths)).any()):
            raise ValueError(
                "a span ends before it begins, or beyond its text: give positions from 0 to "
                "the last real one, the beginning first"
            )
        predicted = {
            "begin": Predicted(rows, torch.zeros_like(rows), begin),
            "end": Predicted(rows, torch.zeros_like(rows), end),
        }
        return Targets.of(batch, predicted, {f"{self.name} right": len(rows)})

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """Minus the log-probability of both ends, and how often both are the best."""
        ends = getattr(model, self.head)(states.hidden)
        ends = ends.masked_fill(~targets.inputs.real[:, :, None], -math.inf)
        terms, right = {}, None
        for i, (name, each) in enumerate(targets.predicted.items()):
            scores = ends[each.rows_N, :, i]
            loss = F.cross_entropy(scores, each.targets_N, reduction="sum")
            terms[name] = Term(loss, targets.counts[name], 0.5)
            best = scores.argmax(dim=-1) == each.targets_N
            right = best if right is None else right & best
        assert right is not None
        named = f"{self.name} right"
        terms[named] = Term(right.sum().to(ends.dtype), targets.counts[named], 0.0)
        return terms
