"""The fast way to read one more word with a GPT: the sums of `GPT.forward`, in fewer calls.

A word is so little arithmetic that calling the operations and fetching the weights from memory is
what takes time.  So nothing is done twice here: keys and values lie in space set aside at the
start, a single query needs no mask, and the weights lie in memory in the order in which a product
with few rows reads them fastest.  Read `Decoder.next_word` first.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import Attention, KeysValues
from labkit.blocks import Block, FeedForward, LanguageModel, backbone_of, gelu_tanh
from labkit.heads import NextWord
from labkit.models.gpt import GPT

Product = Callable[[Tensor], Tensor]

SMALL = 50_000
"""A matrix with fewer weights stays in the fast memory of a processor: packing gains nothing."""
STRIPE = 32
"""How many outputs a stripe of a matrix has: two vectors of sixteen."""


def can_decode(model: Any) -> bool:
    """Whether this is a plain GPT that predicts words, without dropout or experts."""
    backbone = backbone_of(model)
    return (
        type(backbone) is GPT
        and isinstance(model, LanguageModel)
        and type(model.head) is NextWord
        and backbone.config.experts is None
        and not backbone.training
    )


class Decoder:
    """Goes on from the memory of a GPT, a word of each row at a time, up to `room` words."""

    def __init__(self, model: Any, memory: tuple[KeysValues, ...], room: int) -> None:
        self.backbone: GPT = model.backbone
        like_BHKE = memory[0].k_BHKE
        self.rows, heads, self.filled, each = like_BHKE.shape
        # Of each layer: the keys [0] and the values [1], of which the first `filled` are written.
        self.room = like_BHKE.new_empty(len(memory), 2, self.rows, heads, room, each)
        for kept, known in zip(self.room, memory, strict=True):
            for part, old_BHKE in zip(kept, known, strict=True):
                part[:, :, : self.filled] = old_BHKE
        self.blocks = [
            OneWord(cast(Block, block), kept)
            for block, kept in zip(self.backbone.blocks, self.room, strict=True)
        ]
        self.words = product(model.head.words, self.rows)

    @torch.inference_mode()
    def next_word(self, tokens_B: Tensor) -> Tensor:
        """Read one word of each row, and score the one that comes next [B, V]."""
        place, band = self.filled, self.backbone.config.band
        x_BD = self.backbone.token(tokens_B) + self.backbone.position(1, start=place)
        for i, block in enumerate(self.blocks):
            first = max(0, place + 1 - band) if band is not None and i % 2 else 0
            x_BD = block(x_BD, first, place)
        self.filled += 1
        return self.words(x_BD if self.backbone.norm is None else self.backbone.norm(x_BD))

    @torch.inference_mode()
    def select(self, rows: Tensor, since: int) -> None:
        """Go on with as many of the rows, which are what they were before the place `since`."""
        changed = self.room[..., since : self.filled, :]
        changed.copy_(changed[:, :, rows])

    @property
    def memory(self) -> tuple[KeysValues, ...]:
        """What `GPT.forward` goes on from."""
        return tuple(KeysValues(*kept[..., : self.filled, :].clone()) for kept in self.room)


class OneWord:
    """A block of GPT for one position, whose keys and values are the next ones of `room`."""

    def __init__(self, block: Block, room: Tensor) -> None:
        attention, mlp = cast(Attention, block.attention), cast(FeedForward, block.mlp)
        rows, self.heads, each = room.shape[1], room.shape[2], room.shape[4]
        self.room, self.norm_first = room, block.norm_first
        # The heads of all rows are one batch of products.
        self.keys, self.values = room.flatten(1, 2)
        self.attention_norm, self.mlp_norm = norm(block.attention_norm), norm(block.mlp_norm)
        ask = deepcopy(attention.query_key_value).requires_grad_(False)
        # 1 / sqrt(E) is in the weights of the queries, and costs no call of its own.
        for part in ask.parameters():
            part[: self.heads * each] /= math.sqrt(each)
        self.ask, self.out = product(ask, rows), product(attention.out, rows)
        self.widen, self.narrow = product(mlp.widen, rows, bend=True), product(mlp.narrow, rows)

    def __call__(self, x_BD: Tensor, first: int, place: int) -> Tensor:
        """The new state; attention looks from the place `first` on."""
        if self.norm_first:
            x_BD = x_BD.add_(self._attend(self.attention_norm(x_BD), first, place))
            return x_BD.add_(self.narrow(self.widen(self.mlp_norm(x_BD))))
        x_BD = self.attention_norm(x_BD.add_(self._attend(x_BD, first, place)))
        return self.mlp_norm(x_BD.add_(self.narrow(self.widen(x_BD))))

    def _attend(self, x_BD: Tensor, first: int, place: int) -> Tensor:
        """softmax(q k' / sqrt(E)) v, of the one query of each head."""
        asked = self.ask(x_BD).view(len(x_BD), 3, self.heads, -1).transpose(0, 1)
        self.room.select(3, place).copy_(asked[1:])
        count = place + 1 - first
        k, v = self.keys.narrow(1, first, count), self.values.narrow(1, first, count)
        q = asked[0].reshape(len(k), 1, -1)
        y_BD = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v).view_as(x_BD)
        return self.out(y_BD)


def norm(layer: nn.LayerNorm) -> Product:
    """layer(x), with what the layer knows at hand."""
    shape, weight, bias, eps = layer.normalized_shape, layer.weight, layer.bias, layer.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def product(layer: nn.Linear, rows: int, *, bend: bool = False) -> Product:
    """layer(x) for so many rows of x [B, D], with GELU behind it when it is to bend."""
    weight, bias = layer.weight.detach(), layer.bias
    if rows > 1 and _packs(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        then: tuple[str, list[Any], str] = ("gelu", [], "tanh") if bend else ("none", [], "")
        return lambda x_BD: torch.ops.mkldnn._linear_pointwise(x_BD, packed, bias, *then)
    straight: Product = (
        in_stripes(weight, bias) if rows == 1 else partial(F.linear, weight=weight, bias=bias)
    )
    return (lambda x_BD: gelu_tanh(straight(x_BD))) if bend else straight


def in_stripes(weight: Tensor, bias: Tensor | None) -> Product:
    """weight x + bias for a single row of x, which is no more than a walk through the memory.

    The product of a matrix and a vector reads with one core, at a third of the speed of memory.  A
    batch of products with stripes of the matrix reads with all cores, and each stripe in its order.
    """
    outputs, inputs = weight.shape
    short = -outputs % STRIPE
    stripes_SDN = F.pad(weight, (0, 0, 0, short)).view(-1, STRIPE, inputs).transpose(1, 2)
    stripes_SDN, count = stripes_SDN.contiguous(), len(stripes_SDN)
    added = weight.new_zeros(outputs) if bias is None else bias.detach()
    added_S1N = F.pad(added, (0, short)).view(-1, 1, STRIPE)

    def times(x_1D: Tensor) -> Tensor:
        y_S1N = torch.baddbmm(added_S1N, x_1D.expand(count, 1, inputs), stripes_SDN)
        return y_S1N.view(1, -1)[:, :outputs]

    return times


def _packs(weight: Tensor) -> bool:
    """Whether the library of the processor's vendor has an order of its own for this matrix."""
    return (
        weight.numel() >= SMALL
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
