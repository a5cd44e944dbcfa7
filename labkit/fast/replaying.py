"""Reading one more word with a GPT on a GPU: recorded once, then replayed with a single call.

A word takes hundreds of small operations, and the GPU finishes each of them before Python has
launched the next. So they are recorded as a CUDA graph. A graph repeats the same operations on the
same memory: the position is a tensor, new keys and values are written at that position, and
attention sees the whole buffer through a mask.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from labkit.attention import Attention, KeysValues, merge_heads, split_heads
from labkit.blocks import Block
from labkit.fast.attention import by_kernel

WARM = 3
"""Calls before the recording, in which libraries choose their kernels and take their memory."""


def can_replay(model: Any) -> bool:
    """Whether a model that `can_decode` is on a GPU and has learned positions."""
    backbone = model.backbone
    return backbone.position is not None and backbone.token.weight.device.type == "cuda"


class WordByWord:
    """Keys and values of a GPT, with room for `length` positions, of which some are filled."""

    def __init__(self, model: Any, memory: tuple[KeysValues, ...], length: int) -> None:
        self.backbone = model.backbone
        like_BHKE = memory[0].k_BHKE
        self.rows, heads, self.filled, each = like_BHKE.shape
        # Of each layer: the keys [0] and the values [1]. Zeros, since a product with a weight of
        # zero is NaN where memory that was never written happens to hold a NaN.
        self.buffer = like_BHKE.new_zeros(len(memory), 2, self.rows, heads, length, each)
        for kept, known in zip(self.buffer, memory, strict=True):
            for part, old_BHKE in zip(kept, known, strict=True):
                part[:, :, : self.filled] = old_BHKE

    @property
    def memory(self) -> tuple[KeysValues, ...]:
        """What `GPT.forward` goes on from."""
        return tuple(KeysValues(*kept[..., : self.filled, :].clone()) for kept in self.buffer)


class Replayer(WordByWord):
    """Goes on from the memory of a GPT, a word of each row at a time, up to `length` words."""

    def __init__(self, model: Any, memory: tuple[KeysValues, ...], length: int) -> None:
        super().__init__(model, memory, length)
        self.head, device = model.head, self.buffer.device
        self.position_1 = torch.tensor([self.filled], device=device)
        self.positions_L = torch.arange(length, device=device)
        self.tokens_B = torch.zeros(self.rows, dtype=torch.long, device=device)
        self.replay = self._recorded() if device.type == "cuda" else self._read

    @torch.inference_mode()
    def next_word(self, tokens_B: Tensor) -> Tensor:
        """Read one word of each row, and score the one that comes next [B, V]."""
        self.tokens_B.copy_(tokens_B)
        self.position_1.fill_(self.filled)
        self.filled += 1
        return self.replay().clone()

    @torch.inference_mode()
    def select(self, rows: Tensor) -> None:
        """Go on with as many of the rows."""
        read = self.buffer[..., : self.filled, :]
        read.copy_(read[:, :, rows])

    @torch.inference_mode()
    def _recorded(self) -> Callable[[], Tensor]:
        """`_read` as a graph, and a function that replays it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                self._read()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scores_BV = self._read()

        def replay() -> Tensor:
            graph.replay()
            return scores_BV

        return replay

    def _read(self) -> Tensor:
        """`GPT.forward` and the head for the word at the position, which is a tensor."""
        backbone = self.backbone
        x_B1D = backbone.token(self.tokens_B[:, None]) + backbone.position.weight[self.position_1]
        for i, block in enumerate(backbone.blocks):
            x_B1D = self._block(cast(Block, block), self.buffer[i], x_B1D, backbone.band(i))
        return self.head(x_B1D if backbone.norm is None else backbone.norm(x_B1D))[:, 0]

    def _block(self, block: Block, kept: Tensor, x_B1D: Tensor, band: int | None) -> Tensor:
        """The new state of one block."""
        if block.norm_first:
            x_B1D = x_B1D + self._attend(block, kept, block.attention_norm(x_B1D), band)
            return x_B1D + block.mlp(block.mlp_norm(x_B1D))
        x_B1D = block.attention_norm(x_B1D + self._attend(block, kept, x_B1D, band))
        return block.mlp_norm(x_B1D + block.mlp(x_B1D))

    def _attend(self, block: Block, kept: Tensor, x_B1D: Tensor, band: int | None) -> Tensor:
        """Write the key and the value of the word, and attend to all that were written."""
        attention = cast(Attention, block.attention)
        parts = split_heads(attention.query_key_value(x_B1D), 3 * attention.heads)
        q_BH1E, *new = parts.chunk(3, dim=1)
        for part, one_BH1E in zip(kept, new, strict=True):
            part.index_copy_(2, self.position_1, one_BH1E)
        seen_L = self.positions_L <= self.position_1
        if band is not None:
            seen_L = seen_L & (self.positions_L > self.position_1 - band)
        keys, values = kept
        mask_111L = seen_L.view(1, 1, 1, -1)
        return attention.out(merge_heads(by_kernel(q_BH1E, keys, values, mask_111L)))
