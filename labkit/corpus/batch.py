"""What a model is trained on: rows of tokens, and what is known about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from labkit.checks import shown
from labkit.tensor_checks import check_tokens, described


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; a copy to a GPU does not block."""
    if torch.device(device).type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    # A part of a tensor would be copied once more on its way, and that copy blocks.
    return tensor.contiguous().pin_memory().to(device, non_blocking=True)


def pad_rows(rows: Sequence[Sequence[int]], value: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor [B, T], and where each has a token [B, T]."""
    if not len(rows):
        raise ValueError("there are no rows: give at least one")
    tensors = [_whole(row, number) for number, row in enumerate(rows)]
    tokens_BT = nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
    lengths_B1 = torch.tensor([[len(row)] for row in rows])
    return tokens_BT, torch.arange(tokens_BT.shape[1]) < lengths_B1


def _whole(row: Sequence[int], number: int) -> Tensor:
    """A row as a tensor; fractions are refused, since they would be dropped silently."""
    try:
        found = torch.as_tensor(row if len(row) else torch.empty(0, dtype=torch.long))
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(())
    if found.dim() != 1 or found.dtype == torch.bool or found.dtype.is_floating_point:
        raise ValueError(f"row {number} is {shown(row)}: give a list of whole numbers")
    return found.to(torch.long)


def split(rows: int, parts: int, *, together: int = 1) -> list[slice]:
    """The rows of each of `parts` parts, whose sizes differ by `together` rows at most."""
    most = rows // together
    if not 1 <= parts <= most:
        whole = f"{rows} rows" + (f" in groups of {together}" if together > 1 else "")
        raise ValueError(f"{whole} cannot be split into {parts} parts: give 1 to {most}")
    edges = [together * (most * part // parts) for part in range(parts)] + [rows]
    return [slice(start, end) for start, end in pairwise(edges)]


def check_part(name: str, given: Tensor | None, shape: torch.Size) -> None:
    """Refuse a part of a batch that has the wrong shape or type."""
    if given is None:
        return
    is_bool = given.dtype == torch.bool
    if name in ("real", "fresh"):
        kind, fits = "booleans", is_bool
    else:
        kind, fits = "whole numbers", not (is_bool or given.is_floating_point())
    if given.shape != shape or not fits:
        raise ValueError(f"{name} is {described(given)}: give {kind} of the shape {list(shape)}")


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of raw text; an objective decides what is hidden from the model.

    `real` is True where a position holds text and not padding. `segments` counts the parts of a
    pair (0, 1), `documents` the documents packed into one row, `words` the words of the row, so
    that all pieces of a word share a number. `labels` are [B] or [B, T].

    `rows` numbers each row within the step's whole batch and `examples` names what the row holds:
    random choices depend on these two, not on where the row happens to be computed. `fresh` is
    True where a row does not continue the same row of the batch before: memory is dropped there.
    """

    tokens: Tensor
    real: Tensor
    rows: Tensor
    examples: Tensor
    fresh: Tensor
    segments: Tensor | None = None
    documents: Tensor | None = None
    words: Tensor | None = None
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("real", "segments", "documents", "words"):
            check_part(name, getattr(self, name), self.tokens.shape)
        for name in ("rows", "examples", "fresh"):
            check_part(name, getattr(self, name), self.tokens.shape[:1])
        if self.labels is not None and len(self.labels) != len(self):
            raise ValueError(
                f"labels have the shape {list(self.labels.shape)}: give those of each of the "
                f"{len(self)} rows, [B] or [B, T]"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Some of the rows: a slice, a boolean mask or indices."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._each(lambda tensor: sent(tensor, device))

    def micro(self, parts: int, *, together: int = 1) -> "list[Batch]":
        """The batch split into `parts` batches whose sizes differ by one row at most.

        Or by `together` rows, where that many are one question.
        """
        return [self[rows] for rows in split(len(self), parts, together=together)]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{k: change(v) for k, v in given.items() if v is not None})

    @classmethod
    def of(cls, tokens: Tensor, real: Tensor | None = None, **parts: Tensor) -> "Batch":
        """A batch from tokens [B, T] alone: all real, rows and examples counted, all rows fresh."""
        check_tokens(tokens, 0)
        count = torch.arange(len(tokens), device=tokens.device)
        # Each in memory of its own, so that a change of one part is not one of another.
        defaults = {"rows": count, "examples": count.clone(), "fresh": count >= 0}
        everything = torch.ones_like(tokens, dtype=torch.bool)
        return cls(tokens, everything if real is None else real, **(defaults | parts))


class Batches(Protocol):
    """Batches by number, as a pure function of the step."""

    def at(self, step: int) -> Batch:
        """The whole batch of one step."""
        ...
