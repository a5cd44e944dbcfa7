"""Counting a model: its parameters, its operations, its memory.

Three ways to count the operations, from the envelope to the last product:
`rule_flop` (6 N D: Kaplan et al. 2020, section 2.1), `formula_flop_per_token` (the same with
attention), `counted_flop` (every matrix product of the built model).  Every name ends in its unit.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from labkit import fast
from labkit.attention import Attention
from labkit.blocks import Experts, FeedForward, States


def positive(**given: float) -> None:
    """Refuse sizes that are not above zero."""
    for name, value in given.items():
        if not value > 0 or math.isinf(value):
            raise ValueError(f"{name} is {value}: give a number above 0")


# ---- parameters ------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """How many numbers a model has learned, by the part that holds them."""

    embeddings: int
    attention: int
    feed_forward: int
    rest: int
    active: int
    """How many of all take part in one token: fewer than all in a mixture of experts."""

    @property
    def total(self) -> int:
        """All of them; a matrix that two parts share counts once."""
        return self.embeddings + self.attention + self.feed_forward + self.rest

    @property
    def without_embeddings(self) -> int:
        """The N of the scaling laws: Kaplan et al. 2020, section 1.3."""
        return self.total - self.embeddings


def _kind(module: nn.Module) -> str | None:
    """Which part of the count a module opens, None for one that only holds others."""
    name = type(module).__name__
    if isinstance(module, Attention) or name.endswith("Attention"):
        return "attention"
    if isinstance(module, FeedForward | Experts):
        return "feed_forward"
    if isinstance(module, nn.Embedding) or name.endswith("Positions"):
        return "embeddings"
    return None


def _parts(module: nn.Module, part: str = "rest") -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter with the part that it belongs to."""
    part = _kind(module) or part
    for parameter in module.parameters(recurse=False):
        yield part, parameter
    for child in module.children():
        yield from _parts(child, part)


def parameters(model: nn.Module) -> Parameters:
    """Count the parameters of a model; it may be built on the meta device."""
    seen: set[int] = set()
    counts = dict.fromkeys(("embeddings", "attention", "feed_forward", "rest"), 0)
    for part, parameter in _parts(model):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            counts[part] += parameter.numel()
    return Parameters(**counts, active=sum(counts.values()) - _idle(model))


def _idle(model: nn.Module) -> int:
    """Parameters of the experts that a token does not visit."""
    idle = 0
    for module in model.modules():
        if isinstance(module, Experts):
            each = sum(p.numel() for p in module.experts[0].parameters())
            idle += each * (len(module.experts) - module.used)
    return idle


# ---- operations ------------------------------------------------------------------------------


def rule_flop(parameters: float, tokens: float, *, training: bool = True) -> float:
    """6 N D: a multiply and an add per parameter and token, and twice that again to go back."""
    positive(parameters=parameters, tokens=tokens)
    return (6 if training else 2) * parameters * tokens


@dataclass(frozen=True)
class Shape:
    """The sizes that the closed formulas of a Transformer need."""

    layers: int
    width: int
    vocabulary: int
    context: int
    inner: int | None = None
    heads: int = 1
    experts: int = 1
    experts_used: int = 1

    def __post_init__(self) -> None:
        positive(**{k: v for k, v in vars(self).items() if v is not None})
        if self.experts_used > self.experts:
            raise ValueError(f"{self.experts_used} experts are used of only {self.experts}")

    @property
    def feed_forward(self) -> int:
        """Width of the feed-forward."""
        return 4 * self.width if self.inner is None else self.inner

    def matrices(self, experts: int) -> int:
        """Entries of all matrices in the blocks: 4 D^2 of attention, 2 D F of each expert."""
        return self.layers * (4 * self.width**2 + 2 * experts * self.width * self.feed_forward)

    @property
    def parameters(self) -> int:
        """Parameters of a GPT of this shape, with biases and norms."""
        small = 9 * self.width + self.feed_forward  # biases, and two norms, of one block
        embeddings = (self.vocabulary + self.context) * self.width
        router = self.layers * self.experts * self.width if self.experts > 1 else 0
        extra = (self.experts - 1) * self.layers * (self.width + self.feed_forward)
        return (
            embeddings
            + self.matrices(self.experts)
            + self.layers * small
            + 2 * self.width
            + router
            + extra
        )


def formula_flop_per_token(shape: Shape, *, training: bool = True) -> float:
    """2 (matrices + D V) + 4 L T D forward: Kaplan et al. 2020, table 1, with the last layer too.

    The attention term counts all T keys, seen or masked: that is what a plain product computes.
    """
    matrices = shape.matrices(shape.experts_used) + shape.width * shape.vocabulary
    attention = 4 * shape.layers * shape.context * shape.width
    return (3 if training else 1) * (2 * matrices + attention)


def attention_share(shape: Shape) -> float:
    """Which share of all operations is attention over the context, left out by 6 N D."""
    return (
        4
        * shape.layers
        * shape.context
        * shape.width
        / formula_flop_per_token(shape, training=False)
    )


def has_experts(model: nn.Module) -> bool:
    """Whether what a model computes depends on the text, so that it must be run to be counted."""
    return any(isinstance(module, Experts) for module in model.modules())


@contextmanager
def products() -> Iterator[FlopCounterMode]:
    """Count the operations of all matrix products within, those of attention as plain products."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        yield counter


def counted_flop(model: nn.Module, tokens_BT: Tensor, *, training: bool = True) -> int:
    """Operations of all matrix products of one pass, counted as torch computes them.

    Counted on the meta device, where nothing is computed and nothing stored; a mixture of experts
    must be run, since what it computes depends on the text.  Attention is counted as two plain
    products: the fused kernels of some processors are not counted at all.
    """
    if not has_experts(model):
        model, tokens_BT = copy.deepcopy(model).to("meta"), tokens_BT.to("meta")
    with products() as counter:
        output = model(tokens_BT)
        output = output.hidden if isinstance(output, States) else output
        if training:
            output.float().sum().backward()
    return counter.get_total_flops()


# ---- memory ----------------------------------------------------------------------------------

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Memory(NamedTuple):
    """Bytes that training keeps on its devices."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it together."""
        return sum(self)


def training_memory(
    shape: Shape, *, batch: int = 1, precision: str = "bfloat16", checkpointing: bool = False
) -> Memory:
    """Memory of one training step with AdamW.

    In 16 bits the optimizer keeps the weights once more in 32 (Micikevicius et al. 2018), beside
    its two averages: 16 bytes for each parameter in all, whichever the precision.
    """
    positive(batch=batch)
    if precision not in BYTES:
        raise ValueError(f"precision is {precision!r}: choose one of {', '.join(BYTES)}")
    each, count = BYTES[precision], shape.parameters
    masters = 4 if each == 2 else 0
    return Memory(
        weights_bytes=each * count,
        gradients_bytes=each * count,
        optimizer_bytes=(8 + masters) * count,
        activations_bytes=activation_bytes(shape, batch, each, checkpointing),
    )


def activation_bytes(shape: Shape, batch: int, each: int, checkpointing: bool) -> float:
    """What the way back needs of the way forth, after Korthikanti et al. 2022, section 4.

    With fused attention no table of scores is kept; with checkpointing only each block's input.
    """
    numbers = 17 if not checkpointing else 1
    tokens = batch * shape.context
    extra = 2 * (shape.feed_forward - 4 * shape.width) if not checkpointing else 0
    blocks = shape.layers * tokens * (numbers * shape.width + extra)
    logits = tokens * shape.vocabulary
    return each * (blocks + logits)


def saved_bytes(model: nn.Module, tokens_BT: Tensor) -> int:
    """The same, measured in a model as it is trained: the bytes that torch keeps for backward.

    Weights are not counted, and a tensor that several operations keep counts once.
    """
    kept: dict[int, Tensor] = {}
    weights = {p.untyped_storage()._cdata for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in weights:
            kept[storage] = tensor
        return tensor

    with fast.enable(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(tokens_BT)
    assert output is not None
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def cache_bytes(shape: Shape, *, batch: int = 1, precision: str = "bfloat16") -> float:
    """Keys and values of a whole context, kept while writing: 2 L T D numbers for each text."""
    positive(batch=batch)
    return 2 * shape.layers * shape.context * shape.width * batch * BYTES[precision]
