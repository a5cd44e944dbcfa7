"""Labels of texts, of pairs, of words, of one of several choices, and of the span of an answer.

Radford et al. 2018, section 3.3 (GPT's inputs, similarity), Devlin et al. 2019, sections 3.1 (next
sentence) and 4 (fine-tuning, spans), Lan et al. 2020, section 3.1 (sentence order).
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.blocks import States
from labkit.chance import Chance
from labkit.checks import check_choice, check_whole
from labkit.corpus import Batch
from labkit.heads import Label, Pooled, Span, WordHead, exact, head_of, one_score
from labkit.objectives.base import Objective, Predicted, Targets, Term, check_labels
from labkit.tensor_checks import check_targets


def check_head(objective: Objective, model: Any, right: type) -> None:
    """Refuse a head of another task: it reads other states, or scores something else."""
    head = head_of(model, objective.head)
    if isinstance(head, WordHead | Label | Pooled | Span) and not isinstance(head, right):
        raise ValueError(
            f"the head {objective.head!r} is a {type(head).__name__}: {type(objective).__name__} "
            f"needs a {right.__name__}, or a head of your own that gives the same scores"
        )


def check_has_read(model: Any, position: str) -> None:
    """Refuse the first position of a model that has read nothing but one word there."""
    if position == "first" and model.backbone.causal:
        raise ValueError(
            f"{type(model.backbone).__name__} has read one word at the first position: give "
            "position='last'"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels(Objective):
    """-mean log p(label | text), and the share of texts whose best label is the right one.

    A label below zero means that the answer is not known: it is not predicted.
    """

    name: ClassVar[str] = "label"
    position: Literal["first", "last", "pooled", "each"] = "first"
    """Which state predicts: the first (BERT), the last real one (GPT, XLNet), all of them through a
    pooling head, or each for its own label (tagging: labels [B, T])."""
    choices: int = 1
    """Multiple choice: how many rows, one after the other, belong to one question. The head gives
    one score to each, and every row carries the number of the right one as its label."""

    def __post_init__(self) -> None:
        check_choice("position", self.position, "first", "last", "pooled", "each")
        check_whole("choices", self.choices, least=1)
        if self.choices > 1 and self.position == "each":
            raise ValueError(
                f"choices={self.choices} with position={self.position!r}: give more than 1 choice "
                "for whole texts only"
            )

    def check_model(self, model: Any) -> None:
        """Refuse a head that does not score labels, or is given other states."""
        check_head(self, model, Pooled if self.position == "pooled" else Label)

    @property
    def together(self) -> int:
        """The rows of all choices."""
        return self.choices

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The label of each row, or of each word, that has one."""
        labels = self._labels(batch)
        if self.position == "each":
            predicted = Predicted.where(batch.real & (labels >= 0), labels)
        else:
            # A question is left out as a whole: its choices are compared with one another.
            known = ((labels >= 0) & batch.real.any(dim=1)).view(-1, self.choices)
            whole = known.all(dim=1, keepdim=True).expand_as(known)
            rows_N = whole.flatten().nonzero().squeeze(1)
            last_B = batch.real.sum(dim=1) - 1
            positions_N = last_B[rows_N] if self.position == "last" else torch.zeros_like(rows_N)
            predicted = Predicted(rows_N, positions_N, labels[rows_N])
        count = len(predicted.targets_N) // self.choices
        counts = {self.name: count, f"{self.name} right": count}
        return Targets.of(batch, {self.name: predicted}, counts)

    def _labels(self, batch: Batch) -> Tensor:
        """The labels of the batch, if they have the right shape."""
        wanted = batch.tokens.shape if self.position == "each" else batch.tokens.shape[:1]
        labels = check_labels(self.name, batch.labels, *wanted)
        together = len(batch) % self.choices == 0
        if together and self.choices > 1:
            targets = labels.view(-1, self.choices)
            together = bool((targets == targets[:, :1]).all())
        if not together:
            raise ValueError(
                f"the rows of a question with {self.choices} choices are not next to each other, "
                "or do not have the same label: give all choices of a question one after the other"
            )
        return labels

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The scores of all labels, or of all choices of a question, in one row."""
        head = head_of(model, self.head)
        check_has_read(model, self.position)
        if self.position == "pooled":
            scores = head(states.hidden, targets.inputs.real)[targets.predicted[self.name].rows_N]
        else:
            scores = head(self.hidden(states, targets)[self.name])
        if self.choices > 1:
            scores = one_score(scores, self.head).view(-1, self.choices)
        return {self.name: scores}

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """Minus the log-probability of the right labels, and how often they are the best."""
        scores = exact(self.scores(model, states, targets)[self.name])
        targets_N = targets.predicted[self.name].targets_N[:: self.choices]
        check_targets(targets_N, scores.shape[-1])
        loss = F.cross_entropy(scores, targets_N, reduction="sum")
        right = (scores.argmax(dim=-1) == targets_N).sum().to(scores.dtype)
        count = targets.counts[self.name]
        return {self.name: Term(loss, count), f"{self.name} right": Term(right, count, 0.0)}


@dataclass(frozen=True, kw_only=True, eq=False)
class NextSentence(Labels):
    """BERT: whether the second segment follows the first (label 0) or is from elsewhere (1)."""

    name: ClassVar[str] = "next sentence"

    def _labels(self, batch: Batch) -> Tensor:
        if batch.segments is None:
            raise ValueError(
                f"{self.name} needs pairs, but the batch has no segments: "
                "make the batches from pairs of sentences"
            )
        return super()._labels(batch)


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceOrder(NextSentence):
    """ALBERT: whether two neighbouring segments are in their order (label 0) or swapped (1)."""

    name: ClassVar[str] = "sentence order"


@dataclass(frozen=True, kw_only=True, eq=False)
class Similarity(Labels):
    """Similarity of two texts: each pair is two rows, one for each order of the texts.

    The head reads the sum of both rows' states, so it does not depend on the order.
    """

    name: ClassVar[str] = "similarity"
    choices: int = field(default=2, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("position", self.position, "first", "last")

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The scores of all labels for each pair."""
        hidden_ND = self.hidden(states, targets)[self.name]
        both_ND = hidden_ND.unflatten(0, (-1, 2)).sum(dim=1)
        return {self.name: head_of(model, self.head)(both_ND)}


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanEnds(Objective):
    """The first and the last position of an answer in each text: labels [B, 2].

    -mean (log p(begin) + log p(end)) / 2, over the real positions of each text; a label below zero
    means that the answer is not known.
    """

    name: ClassVar[str] = "span"
    term_weight: ClassVar[float] = 0.5

    def check_model(self, model: Any) -> None:
        """Refuse a head that does not score positions."""
        check_head(self, model, Span)

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

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The scores of all positions of each text, for the beginning and for the end."""
        ends = exact(head_of(model, self.head)(states.hidden))
        # Padding has no chance, and yet a finite score: a teacher's and a student's are compared.
        ends = ends.masked_fill(~targets.inputs.real[:, :, None], -1e4)
        pairs = zip(targets.predicted.items(), ends.unbind(-1), strict=True)
        return {name: each_BT[predicted.rows_N] for (name, predicted), each_BT in pairs}

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """Minus the log-probability of both ends, and how often both are the best."""
        losses, right = {}, []
        for name, scores in self.scores(model, states, targets).items():
            targets_N = targets.predicted[name].targets_N
            losses[name] = F.cross_entropy(scores, targets_N, reduction="none")
            right.append(scores.argmax(dim=-1) == targets_N)
        named, both = f"{self.name} right", (right[0] & right[1]).sum()
        return self.weigh(losses, targets) | {named: Term(both, targets.counts[named], 0.0)}
