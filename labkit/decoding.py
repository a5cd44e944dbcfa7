"""The fast way to read one more word with a GPT: the sums of `GPT.forward`, in fewer calls.

A word is so little arithmetic that calling the operations and fetching the weights from memory is
what takes time.  So nothing is done twice here: keys and values lie in space set aside at the
start, a single query needs no mask, and the weights lie in memory in the order in which a product
with few rows reads them fastest.  Read `Decoder.next_word` first.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import Attention, KeysValues
from labkit.blocks import Block, FeedForward, gelu_tanh
from labkit.heads import NextWord
from labkit.models.gpt import GPT

Product = Callable[[Tensor], Tensor]

SMALL = 100_000
"""A matrix with fewer weights stays in the fast memory of a processor: packing gains nothing."""


def can_decode(model: Any) -> bool:
    """Whether this is a plain GPT that predicts words, without dropout or experts."""
    backbone, head = getattr(model, "backbone", None), getattr(model, "head", None)
    return (
        type(backbone) is GPT
        and type(head) is NextWord
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
        self.scale, self.room, self.norm_first = 1 / math.sqrt(each), room, block.norm_first
        # The heads of all rows are one batch of products.
        self.keys, self.values = room.flatten(1, 2)
        self.attention_norm, self.mlp_norm = norm(block.attention_norm), norm(block.mlp_norm)
        self.ask, self.out = (
            product(layer, rows) for layer in (attention.query_key_value, attention.out)
        )
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
        asked, *new = self.ask(x_BD).view(len(x_BD), 3, self.heads, -1).unbind(1)
        for part, new_BHE in zip(self.room, new, strict=True):
            part.select(2, place).copy_(new_BHE)
        count = place + 1 - first
        q = (asked * self.scale).flatten(0, 1).unsqueeze(1)
        weights = torch.bmm(q, self.keys.narrow(1, first, count).transpose(1, 2)).softmax(-1)
        y_BD = torch.bmm(weights, self.values.narrow(1, first, count)).view_as(x_BD)
        return self.out(y_BD)


def norm(layer: nn.LayerNorm) -> Product:
    """layer(x), with what the layer knows at hand."""
    shape, weight, bias, eps = layer.normalized_shape, layer.weight, layer.bias, layer.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def product(layer: nn.Linear, rows: int, *, bend: bool = False) -> Product:
    """layer(x) for so many rows of x [B, D], with GELU behind it when it is to bend."""
    weight, bias = layer.weight.detach(), layer.bias
    if rows == 1:
        straight = partial(_times_vector, _along_the_longer_side(weight), bias)
    elif _packs(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        then: tuple[str, list[Any], str] = ("gelu", [], "tanh") if bend else ("none", [], "")
        return lambda x_BD: torch.ops.mkldnn._linear_pointwise(x_BD, packed, bias, *then)
    else:
        straight = partial(F.linear, weight=weight, bias=bias)
    return (lambda x_BD: gelu_tanh(straight(x_BD))) if bend else straight


def _along_the_longer_side(matrix: Tensor) -> Tensor:
    """The same matrix, in memory such that the longer side has its numbers next to each other."""
    return matrix.t().contiguous().t() if matrix.shape[0] > matrix.shape[1] else matrix


def _times_vector(matrix: Tensor, bias: Tensor | None, x_1D: Tensor) -> Tensor:
    """A single row as a vector: this product has a faster way than that of matrices."""
    vector = x_1D[0]
    return (matrix.mv(vector) if bias is None else torch.addmv(bias, matrix, vector))[None]


def _packs(weight: Tensor) -> bool:
    """Whether the library of the processor's vendor has an order of its own for this matrix."""
    return (
        weight.numel() >= SMALL
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
