"""Models that train in a blink, and text for them: shared by the trainer's tests."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.heads import MaskedWord, NextWord
from labkit.keeping.checkpoints import Snapshot
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import MaskedToken, Memory, NextToken, Objective, Outcome, Targets
from labkit.text.vocabulary import Vocabulary

WORDS = 11


@dataclass(frozen=True)
class Text:
    """Rows of a text in which each word mostly follows from the one before; some rows are short."""

    rows: int = 4
    length: int = 9
    padded: bool = False
    streams: bool = False
    """Rows go on from batch to batch."""

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        chance = torch.Generator().manual_seed(1000 + step)
        start = torch.randint(5, WORDS, (self.rows, 1), generator=chance)
        walk = torch.arange(self.length) + start
        noise = torch.randint(0, 2, (self.rows, self.length), generator=chance)
        tokens = 5 + (walk + noise) % (WORDS - 5)
        real = torch.ones_like(tokens, dtype=torch.bool)
        if self.padded:
            lengths = torch.randint(2, self.length + 1, (self.rows, 1), generator=chance)
            real = torch.arange(self.length) < lengths
        fresh = torch.full((self.rows,), not self.streams or step % 4 == 0)
        return Batch.of(tokens.where(real, 0), real, fresh=fresh)


def gpt(seed: int = 0, dropout: float = 0.1, width: int = 16) -> nn.Module:
    """A GPT of two layers."""
    torch.manual_seed(seed)
    sizes = GPTConfig(WORDS, width=width, layers=2, heads=2, context=32, dropout=dropout)
    backbone = GPT(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def bert(seed: int = 0) -> nn.Module:
    """A BERT of two layers."""
    torch.manual_seed(seed)
    backbone = BERT(BERTConfig(WORDS, width=16, layers=2, heads=2, context=32))
    return LanguageModel(backbone, MaskedWord(backbone.token, 16))


def transformer_xl(seed: int = 0) -> nn.Module:
    """A Transformer-XL that remembers twelve positions."""
    torch.manual_seed(seed)
    sizes = TransformerXLConfig(WORDS, width=16, layers=2, heads=2, context=8, memory=12)
    backbone = TransformerXL(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def awd_lstm(seed: int = 0) -> nn.Module:
    """An AWD-LSTM with all its dropouts."""
    torch.manual_seed(seed)
    backbone = AWDLSTM(AWDLSTMConfig(WORDS, width=12, inner=16, layers=2))
    return LanguageModel(backbone, NextWord(backbone.token))


def masked() -> Objective:
    """BERT's objective, with words hidden anew at each step."""
    special = Vocabulary(WORDS, pad=0, mask=4, special=(0, 1, 2, 3, 4))
    return MaskedToken(vocabulary=special, rate=0.3)


@dataclass(frozen=True)
class Case:
    """A run that has to survive: what is trained, on what, by which plan."""

    model: Callable[[int], nn.Module]
    objective: Objective
    text: Text
    plan: dict[str, Any]


def cases() -> dict[str, Case]:
    """Runs that between them have every kind of state there is."""
    carry = NextToken(carry=True)
    streams = Text(streams=True)
    ema = {"average": "ema", "average_from": 3, "ema_decay": 0.9}
    sgd = {"optimizer": "sgd", "rate": 0.5, "momentum": 0.9, "average": "mean", "average_from": 8}
    return {
        "gpt": Case(gpt, NextToken(), Text(padded=True), {"accumulate": 3, **ema}),
        "bert, dynamic masks": Case(bert, masked(), Text(rows=6, padded=True), {"accumulate": 2}),
        "transformer-xl, memory": Case(transformer_xl, carry, streams, {"accumulate": 2}),
        "awd-lstm, averaged sgd": Case(
            awd_lstm, NextToken(carry=True, ar=2.0, tar=1.0), streams, sgd
        ),
        "gpt, muon": Case(gpt, carry, streams, {"optimizer": "muon"}),
        "gpt, half precision": Case(gpt, NextToken(), Text(), {"precision": "float16"}),
    }


def alike(a: Snapshot, b: Snapshot) -> list[str]:
    """What differs in a single bit."""
    found = [f"fact {k}" for k in a.facts if a.facts[k] != b.facts[k]]
    found += [] if a.step == b.step else [f"step {a.step} and {b.step}"]
    for file in a.tensors.keys() | b.tensors.keys():
        one, other = a.tensors.get(file, {}), b.tensors.get(file, {})
        names = one.keys() | other.keys()
        found += [f"{file} {n}" for n in names if not same_bits(one.get(n), other.get(n))]
    return found


def same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors hold the same bytes; nan is nan."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    one, other = (t.contiguous().view(-1).view(torch.uint8) for t in (a, b))
    return one.equal(other)


@dataclass(frozen=True, kw_only=True, eq=False)
class Failing(NextToken):
    """Predicts words, but at some batches something comes out that is no number."""

    at: tuple[int, ...] = ()
    clock: list[int]
    where: str = "loss"
    """Or "gradient", which alone is wrong; or "memory", which is wrong too."""

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        outcome = super().loss(model, targets, memory)
        number = self.clock[0]
        self.clock[0] += 1
        if number not in self.at:
            return outcome
        term, kept = outcome.terms["word"], outcome.memory
        if self.where == "memory" and kept is not None:
            kept = Memory.load(
                {k: v * nan if v.is_floating_point() else v for k, v in kept.tensors().items()}
            )
        wrong = Poison.apply(term.total) if self.where == "gradient" else term.total * nan
        return replace(outcome, terms={"word": replace(term, total=wrong)}, memory=kept)


class Poison(torch.autograd.Function):
    """A number whose gradient is none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * nan
