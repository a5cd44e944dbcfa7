"""What all objectives share: targets, outcomes, and exact sums over the parts of a step."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import States, vocabulary_of
from labkit.chance import Chance
from labkit.checks import check_type
from labkit.corpus import Batch, sent
from labkit.heads import head_of
from labkit.masking import causal, real_keys, same_segment
from labkit.objectives.hiding import Order
from labkit.objectives.memory import Memory, memory_after, recall
from labkit.tensor_checks import check_asked, check_positions, check_predictions, check_targets


@dataclass(frozen=True, eq=False)
class Term:
    """One thing that is measured: a sum over `count` predictions, and its weight in the loss."""

    total: Tensor
    count: int
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an objective found: its terms, and what the model remembers."""

    terms: dict[str, Term]
    memory: Memory | None = None

    @property
    def loss(self) -> Tensor:
        """The weighted sum of the terms' means; 0 where nothing is predicted."""
        return self.over({name: term.count for name, term in self.terms.items()})

    @property
    def count(self) -> int:
        """The number of predictions: that of the first term."""
        return next(iter(self.terms.values())).count

    @property
    def metrics(self) -> dict[str, Tensor]:
        """The mean of each term, those included that have no weight in the loss."""
        return {name: term.total / max(term.count, 1) for name, term in self.terms.items()}

    def over(self, counts: Mapping[str, int]) -> Tensor:
        """This part's share of the loss of a whole step with `counts` predictions."""
        weighed = {name: term for name, term in self.terms.items() if term.weight}
        if unknown := weighed.keys() - counts.keys():
            raise ValueError(
                f"the targets do not count the term {min(unknown)!r}: say of how many predictions "
                f"it is a sum, Targets.of(…, counts={{{min(unknown)!r}: …}})"
            )
        shares = [term.weight * term.total / max(counts[name], 1) for name, term in weighed.items()]
        if not shares:
            raise ValueError("every part of the loss has the weight 0: give at least one more")
        return torch.stack(shares).sum()


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One outcome for many batches, as if they had been one, without gradients."""
    terms: dict[str, Term] = {}
    for outcome in outcomes:
        for name, term in outcome.terms.items():
            sum_ = term.total.detach()
            # In 32 bits the sum over a long text would stop growing; not every device has 64.
            sum_ = sum_ if sum_.device.type == "mps" else sum_.double()
            now = replace(term, total=sum_)
            if name in terms:
                before = terms[name]
                now = replace(now, total=before.total + now.total, count=before.count + now.count)
            terms[name] = now
    return Outcome(terms)


class Predicted(NamedTuple):
    """N predictions: the rows and positions of the states that predict, and their targets."""

    rows_N: Tensor
    positions_N: Tensor
    targets_N: Tensor

    @classmethod
    def where(cls, wanted: Tensor, answers: Tensor) -> "Predicted":
        """A prediction at each position where `wanted` [B, T] is True."""
        check_asked(wanted, answers)
        rows_N, positions_N = wanted.nonzero(as_tuple=True)
        return cls(rows_N, positions_N, answers[rows_N, positions_N])


@dataclass(frozen=True, eq=False)
class Targets:
    """What the model sees of a batch and what it has to predict, decided without the model."""

    inputs: Batch
    """What the model reads: the text, with something hidden from it."""
    predicted: dict[str, Predicted]
    """The predictions of each term."""
    counts: dict[str, int]
    """How many predictions each term is a sum of, over the whole batch; unless given, its own."""
    padded: bool
    fresh: Tensor
    """Rows that remember nothing; stays on the CPU, where it can be read without waiting."""
    causal: bool = False
    """Whether a position may attend only to itself and to those before it."""
    order: Order | None = None
    """XLNet: the order in which the words are predicted."""
    queries: Tensor | None = None
    """XLNet: the positions [B, N] of the words that the query stream predicts."""
    sampled: tuple[Tensor, ...] = ()
    """Other tensors that an objective needs, such as the noise words of word vectors."""
    parts: "tuple[Targets, ...]" = ()
    """Several objectives at once: the targets of each."""

    def __post_init__(self) -> None:
        found = {name: len(each.targets_N) for name, each in self.predicted.items()}
        object.__setattr__(self, "counts", found | self.counts)

    @classmethod
    def of(
        cls,
        inputs: Batch,
        predicted: dict[str, Predicted],
        counts: dict[str, int] | None = None,
        **more: Any,
    ) -> "Targets":
        """The targets `predicted` from these `inputs`; each position is one prediction."""
        check_type("`inputs`", inputs, Batch, "a Batch, what the model reads")
        check_type("`predicted`", predicted, dict, "the predictions of each term, {name: …}")
        for name, each in predicted.items():
            check_type(f"the term {name!r}", each, Predicted, "Predicted.where(asked_BT, words_BT)")
            check_predictions(name, each._asdict())
        real = inputs.real
        if bool((real[:, 1:] & ~real[:, :-1]).any()):
            raise ValueError("there is padding before or between words: put it all at the end")
        # torch's losses know targets of 64 bits only.
        predicted = {n: p._replace(targets_N=p.targets_N.long()) for n, p in predicted.items()}
        padded = not bool(real.all())
        return cls(inputs, predicted, counts or {}, padded, inputs.fresh.cpu(), **more)

    def to(self, device: torch.device | str) -> "Targets":
        """The same targets on another device."""

        def move(parts: Any) -> Any:
            return tuple(sent(part, device) for part in parts)

        return replace(
            self,
            inputs=self.inputs.to(device),
            predicted={name: Predicted(*move(each)) for name, each in self.predicted.items()},
            order=None if self.order is None else Order(*move(self.order)),
            queries=None if self.queries is None else sent(self.queries, device),
            sampled=move(self.sampled),
            parts=tuple(part.to(device) for part in self.parts),
        )


def check_labels(name: str, labels: Tensor | None, *shape: int) -> Tensor:
    """The labels of a batch; refuse those that are missing, of another shape or no numbers."""
    if labels is None or labels.shape != shape:
        found = "none" if labels is None else f"shape {tuple(labels.shape)}"
        raise ValueError(
            f"labels: {found}; {name} needs one of shape {tuple(shape)}: give each document a "
            "label, as from_documents(texts, labels) does, or Batch.of(tokens, labels=…)"
        )
    if labels.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"labels are {labels.dtype}: give whole numbers, such as labels.long()")
    return labels


def total(every: Iterable[Targets]) -> dict[str, int]:
    """How many predictions of each term there are in all parts of a step."""
    counts: Counter[str] = Counter()
    for targets in every:
        advice = "Targets.of(batch, {name: Predicted.where(asked_BT, words_BT)})"
        check_type("what `targets` of the objective gave", targets, Targets, advice)
        counts.update(targets.counts)
    return dict(counts)


def attention_mask(backbone: Any, targets: Targets) -> Tensor | None:
    """The mask for this model, or None where it needs none.

    A causal backbone needs a mask only where documents are packed; one that attends to all needs
    one for padding and to predict the next word; one that does not attend can leave out padding.
    """
    causal_, inputs = backbone.causal, targets.inputs
    if targets.causal and not (causal_ or backbone.attends):
        raise ValueError(
            f"{type(backbone).__name__} reads from both sides and would see the word that it has "
            "to predict: use MaskedToken, or a model that reads from left to right"
        )
    parts = []
    if inputs.documents is not None:
        parts.append(same_segment(inputs.documents))
    # Padding stands at the end, where a causal model never sees it.
    if targets.padded and not causal_:
        parts.append(real_keys(inputs.real))
    ordered = bool(parts) if causal_ else targets.causal
    if ordered:
        parts.append(causal(inputs.tokens.shape[1], device=inputs.tokens.device))
    mask = None
    for part in parts:
        mask = part if mask is None else mask & part
    return mask


def mask_with_memory(
    mask: Tensor | None, known: Tensor, length: int, device: torch.device
) -> Tensor:
    """A mask over memory and text [B, 1, T, M + T]; `known` says what each row may attend to."""
    past = known.shape[1]
    mask = (
        causal(length, past + length, device=device)
        if mask is None
        else F.pad(mask, (past, 0), value=True)
    )
    seen = torch.cat([known, known.new_ones(len(known), length)], dim=1)
    return mask & real_keys(seen.to(device))


def segments_of(backbone: Any, targets: Targets) -> dict[str, Tensor]:
    """The segments of the text, for a model that takes them."""
    segments = targets.inputs.segments
    if segments is None or not backbone.segments:
        return {}
    return {"segments_BT": segments}


def at(hidden_BTD: Tensor, predicted: Predicted) -> Tensor:
    """The states that predict [N, D], row after row and each position once."""
    flat = hidden_BTD.flatten(0, 1)
    check_positions(predicted.rows_N, predicted.positions_N, *hidden_BTD.shape[:2])
    if len(predicted.rows_N) == len(flat):
        return flat
    return flat.index_select(0, predicted.rows_N * hidden_BTD.shape[1] + predicted.positions_N)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """What the model has to predict, and the loss of its predictions."""

    one_state_per_word: ClassVar[bool] = True
    """Whether the model has one state for each word that it reads."""
    term_weight: ClassVar[float] = 1.0
    """The weight in the loss of each term that is predicted."""
    head: str = "head"
    """The name of the model's head that predicts."""

    @property
    def together(self) -> int:
        """How many rows, one after the other, belong together when a batch is split into parts."""
        return 1

    @property
    def remembers(self) -> bool:
        """Whether it continues from what the model remembers of the segment before."""
        return bool(getattr(self, "carry", False))

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """What the model sees and what it has to predict."""
        raise NotImplementedError

    def check_model(self, model: Any) -> None:
        """Refuse a model that this objective cannot train."""
        head_of(model, self.head)

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The states of the backbone, and what it remembers."""
        self.check_model(model)
        backbone, tokens = model.backbone, targets.inputs.tokens
        segments = segments_of(backbone, targets)
        mask = attention_mask(backbone, targets)
        return backbone(tokens, mask=mask, **segments), None

    def hidden(self, states: States, targets: Targets) -> dict[str, Tensor]:
        """The states from which each term is predicted."""
        return {name: at(states.hidden, each) for name, each in targets.predicted.items()}

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """The head's scores of all possible answers, for each prediction."""
        head = head_of(model, self.head)
        return {name: head(hidden_ND) for name, hidden_ND in self.hidden(states, targets).items()}

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """The terms of the loss: minus the log-probability of the right answers."""
        head, losses = head_of(model, self.head), {}
        if not hasattr(head, "losses_N"):
            raise ValueError(
                f"the head {self.head!r} is a {type(head).__name__}, which has no losses_N: give "
                "NextWord, MaskedWord, or a head of your own that derives from WordHead"
            )
        vocabulary = vocabulary_of(model)
        for name, hidden_ND in self.hidden(states, targets).items():
            targets_N = targets.predicted[name].targets_N
            check_targets(targets_N, vocabulary)
            losses[name] = head.losses_N(hidden_ND, targets_N)
        return self.weigh(losses, targets)

    def weigh(self, losses: Mapping[str, Tensor], targets: Targets) -> dict[str, Term]:
        """The terms of these losses [N] of all predictions, which weigh as in this objective."""
        return {
            name: Term(
                self.summed(losses_N, targets.predicted[name]),
                targets.counts[name],
                self.term_weight,
            )
            for name, losses_N in losses.items()
        }

    def summed(self, losses_N: Tensor, predicted: Predicted) -> Tensor:
        """The sum of the losses of a term; divided by its count it is the term's mean."""
        return losses_N.sum()

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """Run the model, and compare its predictions with the targets."""
        states, kept = self.forward(model, targets, memory)
        return Outcome(self.terms(model, states, targets), kept)

    def __call__(
        self, model: nn.Module, batch: Batch, chance: Chance, memory: Memory | None = None
    ) -> Outcome:
        """The outcome for a batch: its targets, and the loss of the model."""
        return self.loss(model, self.targets(batch, chance), memory)


@dataclass(frozen=True, kw_only=True, eq=False)
class Continuing(Objective):
    """An objective that can continue from the segment before."""

    carry: bool = False
    """Continue from what the model remembers of the segment before. A GPT with learned positions
    counts those of a row that begins afresh from the end of its part's memory on, so where rows
    begin one by one, the loss depends on `accumulate`."""

    def _check(self, batch: Batch) -> None:
        if self.carry and batch.documents is not None:
            raise ValueError(
                "rows of packed documents have no segment before them to remember: "
                "use carry=False or a stream of text"
            )

    def check_model(self, model: Any) -> None:
        """Refuse a model that remembers nothing, where it has to."""
        super().check_model(model)
        if self.carry and not model.backbone.remembers:
            raise ValueError(f"{type(model.backbone).__name__} remembers nothing: give carry=False")

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The states of the backbone, given its memory of the segment before."""
        if not self.carry:
            return super().forward(model, targets)
        self.check_model(model)
        backbone, tokens = model.backbone, targets.inputs.tokens
        past = recall(memory, targets.fresh)
        mask = attention_mask(backbone, targets)
        if mask is None and targets.padded and not backbone.attends:
            # A recurrent model's states do not need it, but its memory ends with the last word.
            mask = real_keys(targets.inputs.real)
        if past.known.shape[1] and (mask is not None or not bool(past.known.all())):
            mask = mask_with_memory(mask, past.known, tokens.shape[1], tokens.device)
        segments = segments_of(backbone, targets)
        states = backbone(tokens, mask=mask, memory=past.layers, **segments)
        return states, self.keep(states, past, targets)

    def keep(self, states: States, past: Memory, targets: Targets) -> Memory | None:
        """What the next segment may attend to."""
        real = targets.inputs.real
        read = real.cpu() if targets.padded else torch.ones(real.shape, dtype=torch.bool)
        return memory_after(states, past.known, read)
