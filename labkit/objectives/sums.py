"""Several objectives at once: in one forward pass, in one each, or from a teacher.

Two tasks: Devlin et al. 2019, section 3.1. L3 = L2 + lambda L1: Radford et al. 2018, section 3.2.
Distillation: Hinton et al. 2015, section 2; Sanh et al. 2019, section 3.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import States, to_device_of
from labkit.chance import Chance
from labkit.checks import check_not_negative
from labkit.corpus import Batch
from labkit.heads import exact
from labkit.objectives.base import Objective, Outcome, Targets, Term
from labkit.objectives.labels import Labels
from labkit.objectives.memory import Memory
from labkit.objectives.words import NextToken


def weighted(terms: dict[str, Term], weight: float) -> dict[str, Term]:
    """The same terms with another weight in the loss."""
    return {name: replace(term, weight=weight * term.weight) for name, term in terms.items()}


def united(maps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One map from several; no name may stand in two of them."""
    twice = [name for name, count in Counter(n for each in maps for n in each).items() if count > 1]
    if twice:
        raise ValueError(f"two objectives both measure {twice}: use each kind of objective once")
    return {name: value for each in maps for name, value in each.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Several(Objective):
    """What `Both` and `Sum` share: several objectives and their weights in the loss."""

    parts: Sequence[Objective]
    weights: Sequence[float] = ()
    """One for each part; all are 1 when there are none."""

    def __post_init__(self) -> None:
        if len(self.parts) < 2 or len(self.weights) not in (0, len(self.parts)):
            raise ValueError(
                f"{len(self.parts)} objectives with {len(self.weights)} weights: give at least two "
                "objectives, and a weight for each or none at all"
            )
        for weight in self.weights:
            check_not_negative(weight=weight)
        for part in self.parts[1:]:
            if part.remembers:
                raise ValueError(
                    f"{type(part).__name__} does not come first, and only the first objective "
                    "remembers: give carry=False to it, or to what it holds, or put it first"
                )

    @property
    def together(self) -> int:
        """The least number of rows that keeps the rows of every part together."""
        return math.lcm(*(part.together for part in self.parts))

    @property
    def remembers(self) -> bool:
        """As the first part says."""
        return self.parts[0].remembers

    def weigh(self, losses: Mapping[str, Tensor], targets: Targets) -> dict[str, Term]:
        """As each part weighs its own, with the weights of the parts."""
        every = []
        for part, own in zip(self.parts, targets.parts, strict=True):
            every.append(part.weigh({name: losses[name] for name in own.predicted}, own))
        return self.weighed(every)

    def weighed(self, every: Sequence[dict[str, Term]]) -> dict[str, Term]:
        """The terms of all parts, with the weights of the parts."""
        weights = self.weights or [1.0] * len(self.parts)
        return united([weighted(terms, w) for terms, w in zip(every, weights, strict=True)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Both(Several):
    """Several objectives in one forward pass, as BERT's two tasks: sum of weight * loss.

    The first decides what the model sees, so it is the one that may hide words. A model has a
    head for each: `model.pair = Label(width, 2)` and `NextSentence(head="pair")`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts:
            check_in_steps(part)
            if not part.one_state_per_word:
                raise ValueError(
                    f"{type(part).__name__} has states of its own, which no other objective can "
                    "read: give each a forward pass with Sum"
                )

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The targets of all, with the inputs of the first."""
        every = [part.targets(batch, chance) for part in self.parts]
        inputs = every[0].inputs
        for part, targets in zip(self.parts[1:], every[1:], strict=True):
            width = targets.inputs.tokens.shape[1]
            changed = not torch.equal(targets.inputs.tokens, batch.tokens[:, :width])
            if changed or targets.order is not None or inputs.tokens.shape[1] < width:
                raise ValueError(
                    f"{type(part).__name__} sees a different text from "
                    f"{type(self.parts[0]).__name__}: put the one that hides words first, or give "
                    "each a forward pass with Sum"
                )
        return replace(merged(every), causal=any(targets.causal for targets in every))

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The forward pass of the first objective, with a model that suits all of them."""
        for part in self.parts[1:]:
            part.check_model(model)
        return self.parts[0].forward(model, targets, memory)

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The scores of each head."""
        pairs = zip(self.parts, targets.parts, strict=True)
        return united([part.scores(model, states, own) for part, own in pairs])

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """The terms of all parts, weighted."""
        pairs = zip(self.parts, targets.parts, strict=True)
        return self.weighed([part.terms(model, states, own) for part, own in pairs])


def check_in_steps(objective: Objective) -> None:
    """Refuse an objective whose loss is more than a forward pass and its terms."""
    if type(objective).loss is not Objective.loss:
        raise ValueError(
            f"{type(objective).__name__} computes its loss as a whole: put it around other "
            "objectives, not inside of them"
        )


def merged(every: Sequence[Targets]) -> Targets:
    """The targets of several objectives in one, with the inputs of the first."""
    return replace(
        every[0],
        predicted=united([targets.predicted for targets in every]),
        counts=united([targets.counts for targets in every]),
        parts=tuple(every),
    )


def auxiliary(share: float, *, label: Objective | None = None, by_row: bool = False) -> Both:
    """GPT's fine-tuning: L3 = L2 + share * L1, the label and the language model together.

    The classifier predicts with `model.head`, the language model with `model.words`; `by_row` takes
    the mean of L1 as the release does (see `NextToken`).
    """
    label = Labels(position="last") if label is None else label
    return Both(parts=(label, NextToken(head="words", by_row=by_row)), weights=(1.0, share))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum(Several):
    """Several objectives, each with a forward pass of its own: sum of weight * loss."""

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The targets of all."""
        return merged([part.targets(batch, chance) for part in self.parts])

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """One forward pass for each; only the first may remember."""
        outcomes = [
            part.loss(model, own, memory if i == 0 else None)
            for i, (part, own) in enumerate(zip(self.parts, targets.parts, strict=True))
        ]
        return Outcome(self.weighed([one.terms for one in outcomes]), outcomes[0].memory)


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation(Objective):
    """Learn a task and, at the same positions, the predictions of a teacher.

    hard * loss + soft * t^2 KL(teacher || student, both at temperature t) + cosine * (1 - cos)

    A prediction weighs as much in the KL as in the loss of the task. The cosine is between the last
    states of student and teacher, at all real positions.
    """

    task: Objective
    teacher: nn.Module
    temperature: float = 2.0
    hard: float = 2.0
    soft: float = 5.0
    cosine: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative(
            temperature=self.temperature, hard=self.hard, soft=self.soft, cosine=self.cosine
        )
        check_in_steps(self.task)
        if self.task.remembers:
            raise ValueError(
                "the teacher would not know the segment before: give the task carry=False"
            )
        if not self.temperature:
            raise ValueError("temperature is 0: give a temperature above 0, such as 2")
        if self.cosine and not self.task.one_state_per_word:
            raise ValueError(
                f"{type(self.task).__name__} has no state for each word it reads: give cosine=0"
            )

    @property
    def together(self) -> int:
        """As the task says."""
        return self.task.together

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The targets of the task, for the student and for the teacher."""
        targets = self.task.targets(batch, chance)
        counts = {f"soft {name}": targets.counts[name] for name in targets.predicted}
        if self.cosine:
            counts["cosine"] = int(targets.inputs.real.sum())
        return replace(targets, counts=targets.counts | counts)

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The loss of the task, and the distance of student and teacher."""
        if any(part.training for part in self.teacher.modules()):
            raise ValueError("the teacher is in training mode and would drop units: teacher.eval()")
        to_device_of(self.teacher, model)
        states, kept = self.task.forward(model, targets, memory)
        terms = weighted(self.task.terms(model, states, targets), self.hard)
        with torch.no_grad():
            known, _ = self.task.forward(self.teacher, targets)
            taught = self.task.scores(self.teacher, known, targets)
        losses = {}
        for name, scores in self.task.scores(model, states, targets).items():
            if scores.shape != taught[name].shape:
                raise ValueError(
                    f"the student chooses among {scores.shape[-1]} answers and the teacher among "
                    f"{taught[name].shape[-1]}: give both the same vocabulary or labels"
                )
            losses[name] = soft_losses(taught[name], scores, self.temperature)
        soft = weighted(self.task.weigh(losses, targets), self.soft)
        terms |= {f"soft {name}": term for name, term in soft.items()}
        if self.cosine:
            widths = states.hidden.shape[-1], known.hidden.shape[-1]
            if widths[0] != widths[1]:
                raise ValueError(
                    f"the student is {widths[0]} wide and the teacher {widths[1]}, so the angle "
                    "between their states has no meaning: give cosine=0, or equal widths"
                )
            apart = 1 - F.cosine_similarity(exact(states.hidden), exact(known.hidden), dim=-1)
            total = apart[targets.inputs.real].sum()
            terms["cosine"] = Term(total, targets.counts["cosine"], self.cosine)
        return Outcome(terms, kept)


def soft_losses(teacher_NV: Tensor, student_NV: Tensor, temperature: float) -> Tensor:
    """t^2 times the KL(teacher || student) at temperature t of each prediction [N].

    Soft gradients shrink with 1 / t^2; the factor makes up for it.
    """
    teacher_NV = (exact(teacher_NV) / temperature).log_softmax(dim=-1)
    student_NV = (exact(student_NV) / temperature).log_softmax(dim=-1)
    divergence_NV = F.kl_div(student_NV, teacher_NV, reduction="none", log_target=True)
    return divergence_NV.sum(dim=-1) * temperature**2
