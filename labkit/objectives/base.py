"""What all objectives share: questions, answers, and exact sums over the parts of a step."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import States
from labkit.chance import Chance
from labkit.corpus import Batch, sent
from labkit.masking import Order, causal, real_keys, same_segment
from labkit.objectives.memory import Memory, recall, remember


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
        """The weighted sum of the terms' means; 0 where nothing was asked."""
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
        shares = [
            term.weight * term.total / max(counts[name], 1)
            for name, term in self.terms.items()
            if term.weight
        ]
        return torch.stack(shares).sum()


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One outcome for many batches, as if they had been one; cut off from the gradients."""
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


class Asked(NamedTuple):
    """N questions: the rows and places of the states that have to answer, and what is right."""

    rows_N: Tensor
    places_N: Tensor
    targets_N: Tensor

    @classmethod
    def where(cls, wanted: Tensor, targets: Tensor) -> "Asked":
        """A question at each place where `wanted` [B, T] is True."""
        rows_N, places_N = wanted.nonzero(as_tuple=True)
        return cls(rows_N, places_N, targets[rows_N, places_N])


@dataclass(frozen=True, eq=False)
class Questions:
    """What is asked about a batch: decided by an objective without looking at the model."""

    seen: Batch
    """What the model reads: the text, with something hidden from it."""
    asked: dict[str, Asked]
    """The questions of each term."""
    counts: dict[str, int]
    """How many predictions each term is a sum of, over the whole batch."""
    padded: bool
    fresh: Tensor
    """Rows that remember nothing; stays on the CPU, where it can be read without waiting."""
    left: bool = False
    """Whether a position may look only to the left."""
    order: Order | None = None
    """XLNet: the order in which the words are predicted."""
    places: Tensor | None = None
    """XLNet: the places [B, N] of the words that the query stream has to guess."""
    drawn: tuple[Tensor, ...] = ()
    """Word vectors: who stands near whom, and the words drawn as noise."""
    parts: "tuple[Questions, ...]" = ()
    """Several objectives at once: the questions of each."""

    @classmethod
    def about(
        cls, seen: Batch, asked: dict[str, Asked], counts: dict[str, int] | None = None, **more: Any
    ) -> "Questions":
        """The questions `asked` about what is `seen`; each asked place is one prediction."""
        real = seen.real
        if bool((real[:, 1:] & ~real[:, :-1]).any()):
            raise ValueError("there is padding before or between words: put it all at the end")
        found = {name: len(each.targets_N) for name, each in asked.items()}
        return cls(
            seen, asked, found | (counts or {}), not bool(real.all()), seen.fresh.cpu(), **more
        )

    def to(self, device: torch.device | str) -> "Questions":
        """The same questions on another device."""

        def move(parts: Any) -> Any:
            return tuple(sent(part, device) for part in parts)

        return replace(
            self,
            seen=self.seen.to(device),
            asked={name: Asked(*move(asked)) for name, asked in self.asked.items()},
            order=None if self.order is None else Order(*move(self.order)),
            places=None if self.places is None else move([self.places])[0],
            drawn=move(self.drawn),
            parts=tuple(part.to(device) for part in self.parts),
        )


def total(asked: Iterable[Questions]) -> dict[str, int]:
    """How many predictions of each term there are in all parts of a step."""
    counts: Counter[str] = Counter()
    for questions in asked:
        counts.update(questions.counts)
    return dict(counts)


def rule(backbone: Any, questions: Questions) -> Tensor | None:
    """Who may look at whom: the mask for this model, or None where its own rule says it all.

    A causal backbone needs a mask only where documents are packed; one that attends to all needs
    one for padding and to predict the next word; one that does not attend can leave out padding.
    """
    causal_, seen = backbone.causal, questions.seen
    if questions.left and not (causal_ or backbone.attends):
        raise ValueError(
            f"{type(backbone).__name__} reads from both sides and would see the word that it has "
            "to predict: use MaskedToken or BothDirections, or a model that reads to the right"
        )
    parts = []
    if seen.documents is not None:
        parts.append(same_segment(seen.documents))
    # Padding stands at the end, where a causal model never sees it.
    if questions.padded and not causal_:
        parts.append(real_keys(seen.real))
    if parts if causal_ else questions.left:
        parts.append(causal(seen.tokens.shape[1], device=seen.tokens.device))
    mask = None
    for part in parts:
        mask = part if mask is None else mask & part
    return mask


def reach_back(mask: Tensor | None, known: Tensor, length: int, device: torch.device) -> Tensor:
    """A mask over memory and text [B, 1, T, M + T]: rows look at what they know of the memory."""
    past = known.shape[1]
    mask = (
        causal(length, past + length, device=device)
        if mask is None
        else F.pad(mask, (past, 0), value=True)
    )
    seen = torch.cat([known, known.new_ones(len(known), length)], dim=1)
    return mask & real_keys(seen.to(device))


def parts_of_text(backbone: Any, questions: Questions) -> dict[str, Tensor]:
    """The segments of the text, for a model that takes them."""
    segments = questions.seen.segments
    if segments is None or not backbone.segments:
        return {}
    return {"segments_BT": segments}


def at(hidden_BTD: Tensor, asked: Asked) -> Tensor:
    """The states of the asked places, row after row and each place once: [N, D]."""
    flat = hidden_BTD.flatten(0, 1)
    if len(asked.rows_N) == len(flat):
        return flat
    return flat.index_select(0, asked.rows_N * hidden_BTD.shape[1] + asked.places_N)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """The two halves of every objective, and both together."""

    head: str = "head"
    """The name of the model's head that answers."""

    @property
    def together(self) -> int:
        """How many rows, one after the other, are one question, which no cut of a batch parts."""
        return 1

    def ask(self, batch: Batch, chance: Chance) -> Questions:
        """What is hidden and what is asked."""
        raise NotImplementedError

    def think(
        self, model: Any, questions: Questions, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """Let the backbone read what it may see."""
        backbone, seen = model.backbone, questions.seen
        parts = parts_of_text(backbone, questions)
        return backbone(seen.tokens, mask=rule(backbone, questions), **parts), None

    def hidden(self, states: States, questions: Questions) -> dict[str, Tensor]:
        """The states that have to answer the questions of each term."""
        return {name: at(states.hidden, asked) for name, asked in questions.asked.items()}

    def scores(self, model: Any, states: States, questions: Questions) -> dict[str, Tensor]:
        """What the head says to each question: the scores of all possible answers."""
        head = getattr(model, self.head)
        return {name: head(hidden_ND) for name, hidden_ND in self.hidden(states, questions).items()}

    def read(self, model: Any, states: States, questions: Questions) -> dict[str, Term]:
        """How surprised the model is by the right answers: the terms of the loss."""
        head = getattr(model, self.head)
        return {
            name: Term(
                head.losses_N(hidden_ND, questions.asked[name].targets_N).sum(),
                questions.counts[name],
            )
            for name, hidden_ND in self.hidden(states, questions).items()
        }

    def answer(self, model: Any, questions: Questions, memory: Memory | None = None) -> Outcome:
        """Let the model read, and compare what it says with what is right."""
        states, kept = self.think(model, questions, memory)
        return Outcome(self.read(model, states, questions), kept)

    def __call__(
        self, model: nn.Module, batch: Batch, chance: Chance, memory: Memory | None = None
    ) -> Outcome:
        """Ask and answer."""
        return self.answer(model, self.ask(batch, chance), memory)


@dataclass(frozen=True, kw_only=True, eq=False)
class Continuing(Objective):
    """An objective that can go on from the segment before."""

    carry: bool = False
    """Go on from what the model remembers of the segment before."""

    def _check(self, batch: Batch) -> None:
        if self.carry and batch.documents is not None:
            raise ValueError(
                "rows of packed documents have no segment before them to remember: "
                "use carry=False or a stream of text"
            )

    def think(
        self, model: Any, questions: Questions, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """Read the text, looking back to the segment before where there is one."""
        if not self.carry:
            return super().think(model, questions)
        backbone, seen = model.backbone, questions.seen
        past = recall(memory, questions.fresh)
        mask = rule(backbone, questions)
        if past.known.shape[1] and (mask is not None or not bool(past.known.all())):
            mask = reach_back(mask, past.known, seen.tokens.shape[1], seen.tokens.device)
        parts = parts_of_text(backbone, questions)
        states = backbone(seen.tokens, mask=mask, memory=past.layers, **parts)
        return states, self.keep(states, past, questions)

    def keep(self, states: States, past: Memory, questions: Questions) -> Memory | None:
        """What the next segment may look back to."""
        real = questions.seen.real
        read = real.cpu() if questions.padded else torch.ones(real.shape, dtype=torch.bool)
        return remember(states, past.known, read)
