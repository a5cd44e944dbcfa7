"""Counting a built model: its parameters and its operations.

`formulas.py` has the closed formulas for the same quantities.  Every name ends in its unit.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from labkit.attention import Attention
from labkit.blocks import Backbone, Experts, FeedForward, States, backbone_of
from labkit.models.elmo import CharacterCNN
from labkit.models.transformer import Transformer
from labkit.models.transformer_xl import AdaptiveEmbedding

# ---- parameters ------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """How many numbers a model has learned, by the part that holds them."""

    embeddings: int
    attention: int
    feed_forward: int
    rest: int
    active: int
    """How many take part in one token: fewer than all in a mixture of experts. Those of a block
    that is used again in each layer, as ALBERT's, count as often as they are used. In an
    encoder-decoder a token uses half of them, on average over two texts of the same length."""

    @property
    def total(self) -> int:
        """All of them; a matrix that two parts share counts once."""
        return self.embeddings + self.attention + self.feed_forward + self.rest


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
    active = sum(counts.values()) - _idle(model) + _repeated(model)
    halves = 2 if isinstance(backbone_of(model), Transformer) else 1
    return Parameters(**counts, active=active // halves)


def _idle(model: nn.Module) -> int:
    """Parameters of the experts that a token does not visit."""
    idle = 0
    for module in model.modules():
        if isinstance(module, Experts):
            each = sum(p.numel() for p in module.experts[0].parameters())
            idle += each * (len(module.experts) - module.used)
    return idle


def _repeated(model: nn.Module) -> int:
    """Parameters of the blocks that run more than once, for each time but the first."""
    backbone = backbone_of(model)
    if not isinstance(backbone, Backbone) or not len(backbone.blocks):
        return 0
    once = sum(p.numel() for p in backbone.blocks.parameters())
    return once * (backbone.layers // len(backbone.blocks) - 1)


# ---- operations ------------------------------------------------------------------------------


def depends_on_text(model: nn.Module) -> bool:
    """Whether what a model computes depends on the text, so that it must be run to be counted."""
    kinds = (Experts, CharacterCNN, AdaptiveEmbedding)
    return any(isinstance(module, kinds) for module in model.modules())


@contextmanager
def products() -> Iterator[FlopCounterMode]:
    """Count the operations of all matrix products within, those of attention as plain products."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        yield counter


def counted_flop(model: nn.Module, tokens_BT: Tensor, *, training: bool = True) -> int:
    """Operations of all matrix products of one pass, counted as torch computes them.

    Counted on the meta device, where nothing is computed and nothing stored; a model whose
    computation depends on the text, such as a mixture of experts, must be run.  Attention is
    counted as two plain products: the fused kernels of some processors are not counted at all.
    """
    if training and not any(p.requires_grad for p in model.parameters()):
        raise ValueError("no parameter of the model learns, so there is no backward pass to count: "
                         "give training=False")  # fmt: skip
    model = copy.deepcopy(model)  # which gets the gradients
    if not depends_on_text(model):
        model, tokens_BT = model.to("meta"), tokens_BT.to("meta")
    with products() as counter:
        output = model(tokens_BT)
        output = output.hidden if isinstance(output, States) else output
        if training:
            output.float().sum().backward()
    return counter.get_total_flops()
