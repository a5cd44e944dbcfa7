"""Feeding a model word by word, with its memory; and checks of what it is given to read."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from labkit.attention import KeysValues
from labkit.blocks import evaluating
from labkit.checks import is_whole, require, shown
from labkit.heads import check_next_word
from labkit.layers import replaceable


class Reader:
    """Feeds a model `length` words at most, and keeps its memory: keys and values, or a state."""

    def __init__(self, model: Any, length: int) -> None:
        self.model, self.length = model, length
        self.memory: Any = ()
        # Walking through a small model's modules takes a third of the time of a word.
        self.parts: list[nn.Module] = list(model.modules())

    def evaluating(self) -> AbstractContextManager[None]:
        """For reading: the model is in eval mode, and afterwards as it was before."""
        learns = any(part.training for part in self.parts)
        return evaluating(self.model) if learns else nullcontext()

    @replaceable
    def next_word(self, tokens_BT: Tensor) -> Tensor:
        """Read on, and score the word that comes next [B, V]."""
        backbone = self.model.backbone
        if backbone.remembers and backbone.memory_length != 0:
            states = backbone(tokens_BT, memory=self.memory)
            self.memory = states.memory
        else:
            self.memory = (torch.cat([*self.memory, tokens_BT], dim=1),)
            states = backbone(*self.memory)
        return self.model.head(states.hidden[:, -1]).float()

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of what was read, in any order."""
        self.memory = select(self.memory, rows)


@replaceable
def select(memory: Any, rows: Tensor) -> Any:
    """The same memory for some of the rows."""
    if isinstance(memory, Tensor):
        return memory[rows]
    parts = [select(part, rows) for part in memory]
    if isinstance(memory, KeysValues):
        return KeysValues(*parts)
    return type(memory)(*parts) if hasattr(memory, "_fields") else tuple(parts)


# ---- checks ------------------------------------------------------------------------------------


def check_known(model: Any, tokens: Any, name: str) -> None:
    """Refuse tokens that the model does not know."""
    known = model.backbone.config.vocabulary
    for token in tokens.tolist() if isinstance(tokens, Tensor) else tokens:
        require(
            is_whole(token) and 0 <= token < known,
            f"{name} has the token {shown(token)}, the model knows 0 to {known - 1}: use the "
            "tokenizer that the model was trained with",
        )


def checked(model: Any, tokens: Sequence[int], name: str) -> Tensor:
    """A text as a tensor [T] on the device of the model, if it is one that the model can read."""
    given: Any = tokens
    single = is_whole(given) or getattr(given, "ndim", 1) == 0
    require(not single, f"{name} is the number {shown(tokens)}: give a list of lists of tokens")
    advice = "start with a token, such as the one that opens a document"
    require(len(tokens) > 0, f"{name} is empty: {advice}")
    check_known(model, tokens, name)
    return torch.as_tensor(tokens, device=next(model.parameters()).device).long()


def rows_of(
    model: Any, prompts: Sequence[Sequence[int]], length: int, stop: Sequence[int]
) -> list[Tensor]:
    """The prompts as tensors, if the model can go on from each with `length` words."""
    require(len(prompts) > 0, "there is no prompt: give at least one list of tokens")
    check_next_word(model, "reads a text from both sides and cannot continue it")
    backbone = model.backbone
    check_known(model, stop, "`stop`")
    # Many texts may begin with the same prompt, which is checked once. The list holds the rows of a
    # tensor or an array, which would otherwise be new objects each time.
    prompts, once = list(prompts), dict[int, Tensor]()
    for i, prompt in enumerate(prompts):
        if id(prompt) not in once:
            once[id(prompt)] = checked(model, prompt, f"prompt {i}")
    rows = [once[id(prompt)] for prompt in prompts]
    for i, row_T in enumerate(rows):
        room = (math.inf if backbone.context is None else backbone.context + 1) - len(row_T)
        require(
            length <= room,
            f"prompt {i} has {len(row_T)} tokens and {length} more are wanted, but the model has "
            f"positions for {backbone.context}: shorten the prompt, or ask for at most "
            f"{max(room, 0)} tokens",
        )
    return rows
