"""From instructions and preferences: fine-tuning on answers, reward models, DPO.

Instruction tuning and reward models: Ouyang et al. 2022, section 3.5; preferences: Bradley and
Terry 1952; DPO: Rafailov et al. 2023, section 4. Rows are a prompt and an answer: `segments` is 0
in the prompt and 1 in the answer, which ends with the token that ends a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import evaluating, to_device_of
from labkit.chance import Chance
from labkit.checks import check_choice, check_not_negative, check_type
from labkit.corpus import Batch, pad_rows
from labkit.heads import check_next_word, exact, head_of, one_score
from labkit.objectives.base import (
    Objective,
    Outcome,
    Predicted,
    Targets,
    Term,
    attention_mask,
    segments_of,
)
from labkit.objectives.labels import Labels, check_has_read
from labkit.objectives.memory import Memory
from labkit.objectives.words import NextToken
from labkit.tensor_checks import check_targets, described

Tokens = Sequence[int]


def answer_rows(prompts: Sequence[Tokens], answers: Sequence[Tokens], **parts: Tensor) -> Batch:
    """A row for each prompt and its answer, padded at the end."""
    if not len(prompts) == len(answers) > 0 or not all(map(len, prompts)):
        raise ValueError(
            f"there are {len(prompts)} prompts and {len(answers)} answers: give an answer to each "
            "prompt, at least one, and no prompt without tokens"
        )
    tokens, real = pad_rows([[*p, *a] for p, a in zip(prompts, answers, strict=True)])
    begins = torch.tensor([[len(prompt)] for prompt in prompts])
    answer = real & (torch.arange(tokens.shape[1]) >= begins)
    return Batch.of(tokens, real, segments=answer.long(), **parts)


def answered(batch: Batch) -> Tensor:
    """True [B, T - 1] where the next token belongs to an answer."""
    if batch.segments is None:
        raise ValueError(
            "the batch does not say where answers begin: give segments, 0 in the prompt and 1 in "
            "the answer (answer_rows makes such a batch)"
        )
    return (batch.segments[:, 1:] == 1) & batch.real[:, 1:]


def answer_log_probs(
    model: Any, batch: Batch, *, temperature: float = 1.0, hidden: Tensor | None = None
) -> Tensor:
    """log p of each token of an answer, given all before it, at [B, T - 1]; 0 elsewhere.

    `temperature` is that of the policy: what was drawn at a temperature is scored at the same one.
    `hidden` holds the states [B, T - 1, D], if they are there already.
    """
    where = answered(batch)
    if batch.documents is not None:
        raise ValueError("documents in one row would be read as one text: give each answer a row")
    check_next_word(model, "would see the answer that it has to predict")
    states_BTD = model.backbone(batch.tokens[:, :-1]).hidden if hidden is None else hidden
    logits_NV = exact(model.head(states_BTD[where])) / temperature
    targets_N1 = batch.tokens[:, 1:][where][:, None]
    check_targets(targets_N1, logits_NV.shape[-1])
    log_p_N = logits_NV.log_softmax(dim=-1).gather(-1, targets_N1)[:, 0]
    return log_p_N.new_zeros(where.shape).index_put(where.nonzero(as_tuple=True), log_p_N)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerTokens(NextToken):
    """Instruction tuning: the next token, where it belongs to the answer (its end included)."""

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The tokens of the answers; the prompt is only read."""
        targets, where = super().targets(batch, chance), answered(batch)
        words = targets.predicted["word"]
        kept = where[words.rows_N, words.positions_N]
        predicted = Predicted(*(part[kept] for part in words))
        silent = set(range(len(batch))) - set(predicted.rows_N.tolist())
        if silent:
            raise ValueError(
                f"row {min(silent)} has no token of an answer: shorten its prompt, or leave it out"
            )
        rows_N = predicted.rows_N.unique() if self.by_row else predicted.rows_N
        counts = targets.counts | {"word": len(rows_N)}
        return replace(targets, predicted={"word": predicted}, counts=counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class BradleyTerry(Labels):
    """A reward model: -log sigmoid(reward of the chosen answer - reward of the rejected one).

    Rows stand in pairs, the chosen answer first. `model.reward` gives one number to the state of
    the last token of a row, so this is a choice between two with the label 0.
    """

    name: ClassVar[str] = "preference"
    head: str = "reward"
    position: Literal["first", "last", "pooled", "each"] = "last"
    choices: int = 2

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The first of each pair is the right one."""
        if batch.labels is not None:
            raise ValueError(
                "the batch has labels, but a reward model takes the first of each pair as the "
                "preferred one: give the chosen answer first and no labels (DPO learns from them)"
            )
        return super().targets(replace(batch, labels=torch.zeros_like(batch.rows)), chance)


@torch.no_grad()
def learned_rewards(
    model: Any, batch: Batch, *, position: Literal["first", "last"] = "last"
) -> Tensor:
    """What a reward model gives to each row, at the position at which it was trained."""
    check_choice("position", position, "first", "last")
    check_has_read(model, position)
    batch = batch.to(next(model.parameters()).device)
    targets = Targets.of(batch, {})
    mask = attention_mask(model.backbone, targets)
    last_B = batch.real.sum(dim=1) - 1
    rows_B = torch.arange(len(batch), device=last_B.device)
    segments = segments_of(model.backbone, targets)
    with evaluating(model):
        hidden_BTD = model.backbone(batch.tokens, mask=mask, **segments).hidden
        state_BD = hidden_BTD[rows_B, last_B if position == "last" else 0]
        scores_B1 = head_of(model, "reward")(state_BD)
        return one_score(scores_B1, "reward").cpu()


def check_apart(model: nn.Module, reference: nn.Module) -> None:
    """Refuse a reference that would change with the policy, or that is not a model."""
    check_type("the reference", reference, nn.Module, "a model, such as reference_of(model)")
    shared = {id(p) for p in model.parameters()} & {id(p) for p in reference.parameters()}
    if shared:
        raise ValueError(
            "the policy and the reference share weights, so both would change and their divergence "
            "would stay 0: give copy.deepcopy(model) as the reference"
        )


def check_pairs(batch: Batch) -> None:
    """Refuse rows that are not pairs of answers to one prompt, and labels that are no chances."""
    answered(batch)
    if len(batch) % 2:
        raise ValueError(
            f"{len(batch)} rows are not pairs: give the rejected answer after each chosen one"
        )
    asked_BT = batch.tokens.where((batch.segments == 0) & batch.real, -1)
    differ_P = (asked_BT[0::2] != asked_BT[1::2]).any(dim=1)
    if bool(differ_P.any()):
        first = 2 * int(differ_P.nonzero()[0, 0])
        raise ValueError(
            f"rows {first} and {first + 1} are a pair, but answer different prompts: give the "
            "rejected answer after each chosen one, both after the same prompt"
        )
    labels = batch.labels
    if labels is None:
        return
    if labels.shape != (len(batch),) or not labels.is_floating_point():
        raise ValueError(
            f"labels are {described(labels)}: give a float for each of the {len(batch)} rows, the "
            "chance that the first of the pair is preferred, or no labels"
        )
    if not bool(((labels >= 0) & (labels <= 1)).all()):
        raise ValueError(
            "a label is not between 0 and 1: give the chance that the first is preferred"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DPO(Objective):
    """Direct preference optimisation: the policy itself is the reward model.

    -log sigmoid(beta * (log-ratio of the chosen answer - log-ratio of the rejected one)), where a
    log-ratio is log policy(answer) - log reference(answer), summed over the tokens of the answer.
    Rows stand in pairs, the chosen answer first. Float labels are the chance that the first of the
    pair is preferred, if that is known.
    """

    reference: nn.Module
    beta: float = 0.1

    def __post_init__(self) -> None:
        check_not_negative(beta=self.beta)

    @property
    def together(self) -> int:
        """Both rows of a pair."""
        return 2

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each pair: which of the two is preferred."""
        check_pairs(batch)
        return Targets.of(batch, {}, {"preference": len(batch) // 2, "right": len(batch) // 2})

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The loss of the pairs, and how often the chosen answer has gained more."""
        check_apart(model, self.reference)
        to_device_of(self.reference, model)
        batch = targets.inputs
        with torch.no_grad(), evaluating(self.reference):
            before_B = answer_log_probs(self.reference, batch).sum(dim=1)
        reward_B = self.beta * (answer_log_probs(model, batch).sum(dim=1) - before_B)
        margin_P = reward_B[0::2] - reward_B[1::2]
        chance_P = torch.ones_like(margin_P) if batch.labels is None else batch.labels[0::2]
        losses_P = chance_P * F.logsigmoid(margin_P) + (1 - chance_P) * F.logsigmoid(-margin_P)
        preference = Term(-losses_P.sum(), targets.counts["preference"])
        right = Term((margin_P > 0).to(margin_P.dtype).sum(), targets.counts["right"], 0.0)
        return Outcome({"preference": preference, "right": right})
