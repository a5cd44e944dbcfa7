"""What a model is asked to learn: everything that turns a batch of raw text into a loss.

An objective works in two halves. `ask(batch, chance)` decides, without the model, what is hidden
and what is asked: a pure function of the batch and of chance, so it can run before, elsewhere, or
twice. `answer(model, questions)` lets the model answer. `objective(model, batch, chance)` does
both and is all that most readers need:

    outcome = objective(model, batch, chance)
    outcome.loss.backward()

An outcome is a set of named terms, each a sum over a counted number of predictions; the loss is
their weighted mean. A step that is cut into parts (micro-batches, ranks) has exactly the loss and
gradients of the whole when every part divides by the counts of the whole step:

    asked = [objective.ask(part, Chance(seed, step, part.rows)) for part in parts]
    counts = total(asked)                                # add up the ranks' counts as well
    for i, questions in enumerate(asked):
        outcome = objective.answer(model, questions.to(device), memory[i])
        outcome.over(counts).backward()                  # gradients add up: nothing to divide
        memory[i] = outcome.memory

The model's memory of earlier segments is a value too: `outcome.memory` is what the next batch of
the same rows is given, and None forgets. `Memory.tensors` and `Memory.load` are for checkpoints.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.attention import KeysValues
from labkit.blocks import States
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.masking import causal, real_keys, same_segment


@dataclass(frozen=True, eq=False)
class Term:
    """One thing that is measured: a sum over `count` predictions, and its weight in the loss."""

    total: Tensor
    count: int
    weight: float = 1.0


class Asked(NamedTuple):
    """N questions: the rows and places of the batch that are asked, and the right answers."""

    rows_N: Tensor
    places_N: Tensor
    targets_N: Tensor


@dataclass(frozen=True, eq=False)
class Questions:
    """What is asked about a batch: decided by an objective without looking at the model."""

    inputs: dict[str, Tensor]
    """What the backbone reads: tokens, and the mask and segments where they are needed."""
    asked: dict[str, Asked]
    """The questions of each term."""
    counts: dict[str, int]
    """How many predictions each term is a sum of."""
    real: Tensor
    fresh: Tensor

    def to(self, device: torch.device | str) -> "Questions":
        """The same questions on another device; what memory needs stays where it is."""
        return replace(
            self,
            inputs={
                name: given.to(device, non_blocking=True) for name, given in self.inputs.items()
            },
            asked={
                name: Asked(*(part.to(device, non_blocking=True) for part in asked))
                for name, asked in self.asked.items()
            },
        )


def total(asked: Iterable[Questions]) -> dict[str, int]:
    """How many predictions of each term there are in all parts of a step."""
    counts: Counter[str] = Counter()
    for questions in asked:
        counts.update(questions.counts)
    return dict(counts)


class Memory(NamedTuple):
    """What a model keeps of the segments before, and which rows may still look at it."""

    layers: tuple[Any, ...]
    """`States.memory`, cut off from the gradients."""
    known: Tensor
    """True [B, M] where a remembered position belongs to the text that the row goes on with."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is in memory under a name of its own, for a checkpoint."""
        named = {"known": self.known}
        for i, layer in enumerate(self.layers):
            parts = (layer,) if isinstance(layer, Tensor) else layer
            kind = "keys_values" if isinstance(layer, KeysValues) else type(layer).__name__
            named |= {f"{i}.{kind}.{j}": part for j, part in enumerate(parts)}
        return named

    @classmethod
    def load(cls, tensors: Mapping[str, Tensor]) -> "Memory":
        """The memory that `tensors` was made from."""
        layers: dict[int, tuple[str, list[Tensor]]] = {}
        for name in sorted(set(tensors) - {"known"}, key=lambda n: int(n.split(".")[2])):
            i, kind, _ = name.split(".")
            layers.setdefault(int(i), (kind, []))[1].append(tensors[name])
        built = [_rebuild(*layer) for _, layer in sorted(layers.items())]
        return cls(tuple(built), tensors["known"])


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
            now = replace(term, total=term.total.detach())
            if name in terms:
                now = replace(
                    now, total=terms[name].total + now.total, count=terms[name].count + now.count
                )
            terms[name] = now
    return Outcome(terms)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The two halves of every objective, and both together."""

    head: str = "head"
    """The name of the model's head that answers."""

    def ask(self, batch: Batch, chance: Chance) -> Questions:
        """What is hidden and what is asked."""
        raise NotImplementedError

    def read(self, model: Any, states: States, questions: Questions) -> dict[str, Term]:
        """The terms, from the states that the backbone reached."""
        raise NotImplementedError

    def answer(self, model: Any, questions: Questions, memory: Memory | None = None) -> Outcome:
        """Let the model read what it may see, and compare its answers."""
        states = model.backbone(questions.inputs["tokens"], **_rest(questions.inputs))
        return Outcome(self.read(model, states, questions))

    def __call__(
        self, model: nn.Module, batch: Batch, chance: Chance, memory: Memory | None = None
    ) -> Outcome:
        """Ask and answer."""
        return self.answer(model, self.ask(batch, chance), memory)


def _rest(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """All inputs but the tokens."""
    return {name: given for name, given in inputs.items() if name != "tokens"}


def words(model: Any, states: States, asked: Asked, head: str) -> Tensor:
    """-log p of the right word at the places that are asked, and only there, added up."""
    hidden_ND = states.hidden[asked.rows_N, asked.places_N]
    return getattr(model, head).losses_N(hidden_ND, asked.targets_N).sum()


@dataclass(frozen=True, kw_only=True)
class NextToken(Objective):
    """Predict each word from those before it: -sum log p(x_t | x_1 ... x_(t-1))."""

    carry: bool = False
    """Go on from what the model remembers of the segment before."""

    def ask(self, batch: Batch, chance: Chance) -> Questions:
        """Every real word that has a word of its own text before it."""
        tokens, real = batch.tokens, batch.real
        wanted = real[:, 1:] & real[:, :-1]
        inputs = {"tokens": tokens[:, :-1]}
        if batch.documents is not None:
            if self.carry:
                raise ValueError(
                    "rows of packed documents have no segment before them to remember: "
                    "use carry=False or a stream of text"
                )
            wanted = wanted & (batch.documents[:, 1:] == batch.documents[:, :-1])
            rule = causal(tokens.shape[1] - 1, device=tokens.device)
            inputs["mask"] = rule & same_segment(batch.documents[:, :-1])
        rows_N, places_N = wanted.nonzero(as_tuple=True)
        asked = Asked(rows_N, places_N, tokens[rows_N, places_N + 1])
        counts = {"word": len(rows_N)}
        return Questions(inputs, {"word": asked}, counts, real[:, :-1].cpu(), batch.fresh.cpu())

    def read(self, model: Any, states: States, questions: Questions) -> dict[str, Term]:
        """How surprised the model was by the next words."""
        sum_ = words(model, states, questions.asked["word"], self.head)
        return {"word": Term(sum_, questions.counts["word"])}

    def answer(self, model: Any, questions: Questions, memory: Memory | None = None) -> Outcome:
        """Read the text, with memory of the segment before where there is one."""
        if not self.carry:
            return super().answer(model, questions)
        layers, known, mask = recall(questions, memory)
        states = model.backbone(questions.inputs["tokens"], mask=mask, memory=layers)
        terms = self.read(model, states, questions)
        return Outcome(terms, remember(states, known, questions))


def recall(
    questions: Questions, memory: Memory | None
) -> tuple[tuple[Any, ...], Tensor, Tensor | None]:
    """What each row may look back to: nothing at all where it starts afresh."""
    tokens, fresh = questions.inputs["tokens"], questions.fresh
    batch, length = tokens.shape
    if memory is None or bool(fresh.all()):
        return (), torch.ones(batch, 0, dtype=torch.bool), None
    if len(memory.known) != batch:
        raise ValueError(
            f"the memory is of {len(memory.known)} rows, the batch has {batch}: give each "
            "part of a step the memory of the same part of the step before"
        )
    known = memory.known & ~fresh[:, None]
    layers = _each(memory.layers, lambda kept: _forget(kept, fresh))
    if bool(known.all()):
        return layers, known, None
    past = known.shape[1]
    seen = torch.cat([known, known.new_ones(batch, length)], dim=1).to(tokens.device)
    mask = causal(length, past + length, device=tokens.device) & real_keys(seen)
    return layers, known, mask


def remember(states: States, known: Tensor, questions: Questions) -> Memory | None:
    """What the next segment may look back to, without gradients."""
    if states.memory is None:
        return None
    layers = _each(states.memory, Tensor.detach)
    known = torch.cat([known, questions.real], dim=1)
    # A model may keep fewer positions than it has read; a recurrent one keeps none.
    kept = length_of(layers[0])
    return Memory(layers, known[:, known.shape[1] - kept :])


def _rebuild(kind: str, parts: list[Tensor]) -> Any:
    """One layer of a memory from its parts."""
    if kind == "keys_values":
        return KeysValues(*parts)
    return tuple(parts) if kind == "tuple" else parts[0]


def length_of(layer: Any) -> int:
    """How many positions one layer of a memory holds: the state of an LSTM holds none."""
    if isinstance(layer, KeysValues):
        return layer.k_BHKE.shape[2]
    return layer.shape[1] if isinstance(layer, Tensor) and layer.dim() == 3 else 0


def _forget(kept: Tensor, fresh: Tensor) -> Tensor:
    """Zeros in the rows that start afresh: the state in which a recurrent model begins."""
    gone = fresh.to(kept.device).view(-1, *[1] * (kept.dim() - 1))
    return kept.masked_fill(gone, 0.0)


def _each(layers: Any, change: Any) -> Any:
    """The same memory with every tensor changed."""
    if isinstance(layers, Tensor):
        return change(layers)
    if isinstance(layers, KeysValues):
        return KeysValues(*(change(part) for part in layers))
    return tuple(_each(layer, change) for layer in layers)
