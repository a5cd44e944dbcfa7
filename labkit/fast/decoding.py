"""Reading one more word with a GPT: the sums of `GPT.forward`, in fewer calls.

A word is so little arithmetic that calling the operations and fetching the weights from memory is
what takes time.  So nothing is done twice here: keys and values lie in a buffer that is allocated
at the start, a single query needs no mask, and the weights lie in memory in the order in which a
product with few rows reads them fastest.  Read `Decoder.next_word` first.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property, partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from labkit.attention import Attention, KeysValues, LearnedPositions, rotate
from labkit.blocks import Block, FeedForward, LanguageModel, backbone_of, gelu_tanh
from labkit.fast.replaying import Replayer, WordByWord, can_replay
from labkit.heads import NextWord
from labkit.layers import Dropout
from labkit.models.gpt import GPT

Product = Callable[[Tensor], Tensor]

SMALL = 50_000
"""A matrix with fewer weights stays in the fast memory of a processor: packing gains nothing."""
STRIPE = 32
"""How many outputs a stripe of a matrix has: two vectors of sixteen."""


def can_decode(model: Any) -> bool:
    """Whether this is a plain GPT that predicts words: no dropout, experts or other activation."""
    backbone = backbone_of(model)
    return (
        type(backbone) is GPT
        and isinstance(model, LanguageModel)
        and type(model.head) is NextWord
        and backbone.remembers
        and backbone.config.experts is None
        and backbone.config.activation == "gelu_tanh"
        and not backbone.training
        # Packed weights are not cast to the 16 bits of autocast, and its rows are.
        and not torch.is_autocast_enabled(backbone.token.weight.device.type)
        # `Decoder` only reads the weights: it would miss what is replaced, or a hook.
        and not _has_any_global_hook()
        and all(map(is_plain, (*backbone.modules(), *model.head.modules())))
    )


PLAIN = (GPT, LearnedPositions, Dropout, Block, Attention, FeedForward, NextWord,
         nn.ModuleList, nn.Embedding, nn.LayerNorm, nn.Linear)  # fmt: skip
"""The classes whose computations `Decoder` repeats."""


def is_plain(module: nn.Module) -> bool:
    """Whether a module is of a known class, and has no hooks and no `forward` of its own."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return type(module) in PLAIN and not hooks and "forward" not in vars(module)


def next_word(reader: Any, tokens_BT: Tensor) -> Tensor | None:
    """`Reader.next_word` of a plain GPT by a `Decoder`, on a GPU by a `Replayer`.

    Equal beginnings are read once.
    """
    if isinstance(reader.memory, Decoder | Replayer):
        return reader.memory.next_word(tokens_BT[:, 0]).float()
    if not reader.memory:
        # Those of the samples of one prompt.
        some_BT, alike_B = tokens_BT.unique(dim=0, return_inverse=True)
        if len(some_BT) == len(tokens_BT):
            return None
        logits_BV = reader.next_word(some_BT)[alike_B]
        reader.select(alike_B)
        return logits_BV
    if tokens_BT.shape[1] > 1 or not can_decode(reader.model):
        return None
    way = Replayer if can_replay(reader.model) else Decoder
    reader.memory = way(reader.model, reader.memory, reader.length)
    return reader.memory.next_word(tokens_BT[:, 0]).float()


def select(memory: Any, rows: Tensor) -> Any:
    """`labkit.writing.reader.select` of the memory that a `Decoder` or a `Replayer` is."""
    if not isinstance(memory, Decoder | Replayer):
        return None
    if len(rows) != memory.rows:
        return tuple(KeysValues(k[rows], v[rows]) for k, v in memory.memory)
    memory.select(rows)
    return memory


class Decoder(WordByWord):
    """Goes on from the memory of a GPT, a word of each row at a time, up to `length` words."""

    def __init__(self, model: Any, memory: tuple[KeysValues, ...], length: int) -> None:
        super().__init__(model, memory, length)
        self.start = self.filled
        # The tokens that were read since.
        self.tokens_BT = torch.empty(self.rows, length, dtype=torch.long, device=self.buffer.device)
        self.blocks = [
            OneWord(cast(Block, block), kept)
            for block, kept in zip(self.backbone.blocks, self.buffer, strict=True)
        ]
        self.bands = [self.backbone.band(i) for i in range(len(self.blocks))]
        self.words = product(model.head.words, self.rows)

    @torch.inference_mode()
    def next_word(self, tokens_B: Tensor) -> Tensor:
        """Read one word of each row, and score the one that comes next [B, V]."""
        position = self.filled
        self.tokens_BT.select(1, position).copy_(tokens_B)
        x_BD = self.backbone.embed(tokens_B[:, None], start=position)[:, 0]
        for i, block in enumerate(self.blocks):
            band = self.bands[i]
            first = 0 if band is None else max(0, position + 1 - band)
            x_BD = block(x_BD, first, position)
        self.filled += 1
        return self.words(x_BD if self.backbone.norm is None else self.backbone.norm(x_BD))

    @torch.inference_mode()
    def select(self, rows: Tensor) -> None:
        """Go on with as many of the rows; only what differs from the row it replaces is copied."""
        read_BT = self.tokens_BT[:, self.start : self.filled]
        changed = (read_BT != read_BT[rows]).any(dim=0).tolist()
        if self.alike and True not in changed:
            return
        since = self.start + changed.index(True) if self.alike else 0
        for part in (self.buffer[..., since : self.filled, :].movedim(2, 0), read_BT):
            part.copy_(part[rows])

    @cached_property
    def alike(self) -> bool:
        """Whether all rows began with the same memory."""
        begun = self.buffer[..., : self.start, :]
        return bool((begun == begun[:, :, :1]).all())


class OneWord:
    """A block of GPT for one position, whose keys and values are the next ones of the buffer."""

    def __init__(self, block: Block, buffer: Tensor) -> None:
        attention, mlp = cast(Attention, block.attention), cast(FeedForward, block.mlp)
        rows, self.heads, each = buffer.shape[1], buffer.shape[2], buffer.shape[4]
        self.buffer, self.norm_first = buffer, block.norm_first
        self.rotary = attention.rotary
        # The heads of all rows are one batch of products.
        self.keys, self.values = buffer.flatten(1, 2)
        self.attention_norm, self.mlp_norm = norm(block.attention_norm), norm(block.mlp_norm)
        query_key_value = deepcopy(attention.query_key_value).requires_grad_(False)
        # 1 / sqrt(E) is in the weights of the queries, and costs no call of its own.
        for part in query_key_value.parameters():
            part[: self.heads * each] /= math.sqrt(each)
        self.query_key_value = product(query_key_value, rows)
        self.out = product(attention.out, rows)
        self.up, self.down = product(mlp.up, rows, gelu=True), product(mlp.down, rows)

    def __call__(self, x_BD: Tensor, first: int, position: int) -> Tensor:
        """The new state; attention looks from the position `first` on."""
        if self.norm_first:
            x_BD = x_BD.add_(self._attend(self.attention_norm(x_BD), first, position))
            return x_BD.add_(self.down(self.up(self.mlp_norm(x_BD))))
        x_BD = self.attention_norm(x_BD.add_(self._attend(x_BD, first, position)))
        return self.mlp_norm(x_BD.add_(self.down(self.up(x_BD))))

    def _attend(self, x_BD: Tensor, first: int, position: int) -> Tensor:
        """softmax(q k' / sqrt(E)) v, of the one query of each head."""
        all_three = self.query_key_value(x_BD).view(len(x_BD), 3, self.heads, -1).transpose(0, 1)
        if self.rotary:
            all_three[:2] = rotate(all_three[:2].unsqueeze(-2), position).squeeze(-2)
        self.buffer.select(3, position).copy_(all_three[1:])
        count = position + 1 - first
        k, v = self.keys.narrow(1, first, count), self.values.narrow(1, first, count)
        q = all_three[0].reshape(len(k), 1, -1)
        y_BD = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v).view_as(x_BD)
        return self.out(y_BD)


def norm(layer: nn.LayerNorm) -> Product:
    """layer(x), without looking up its attributes at each call."""
    shape, weight, bias, eps = layer.normalized_shape, layer.weight, layer.bias, layer.eps
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def product(layer: nn.Linear, rows: int, *, gelu: bool = False) -> Product:
    """layer(x) for so many rows of x [B, D], and GELU of it if wanted."""
    weight, bias = layer.weight.detach(), layer.bias
    if rows > 1 and _packs(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        then: tuple[str, list[Any], str] = ("gelu", [], "tanh") if gelu else ("none", [], "")
        return lambda x_BD: torch.ops.mkldnn._linear_pointwise(x_BD, packed, bias, *then)
    alone_on_a_cpu = rows == 1 and weight.device.type == "cpu"
    straight: Product = (
        in_stripes(weight, bias) if alone_on_a_cpu else partial(F.linear, weight=weight, bias=bias)
    )
    return (lambda x_BD: gelu_tanh(straight(x_BD))) if gelu else straight


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
