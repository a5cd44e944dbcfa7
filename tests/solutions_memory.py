"""The exercises of notebook 10, each solved in two ways that are not the course's own."""

from typing import Any

import torch
from torch import Tensor


def memory_by_splitting(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    source = torch.cat((memory, states), 1)
    length = min(length, source.shape[1])
    return source, source.detach().split([source.shape[1] - length, length], dim=1)[1]


def memory_by_indices(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    both = torch.hstack([memory, states])
    last = [i for i in range(both.shape[1]) if i >= both.shape[1] - length]
    with torch.no_grad():
        return both, both[:, last].clone()


def mask_by_comparison(length: int, memory: int) -> Tensor:
    i, j = torch.arange(length)[:, None] + memory, torch.arange(memory + length)
    return j <= i


def mask_by_joining(length: int, memory: int) -> Tensor:
    own = torch.tensor([[j <= i for j in range(length)] for i in range(length)])
    return torch.cat([torch.ones(length, memory, dtype=torch.bool), own], dim=1)


def reach_by_recursion(position: int, segment: int, memory: int, layers: int) -> int:
    if layers == 0:
        return position
    begins = position - position % segment
    return reach_by_recursion(max(0, begins - memory), segment, memory, layers - 1)


def reach_by_sets(position: int, segment: int, memory: int, layers: int) -> int:
    seen = {position}
    for _ in range(layers):
        seen = {j for i in seen for j in range(max(i // segment * segment - memory, 0), i + 1)}
    return min(seen)


def shift_by_gathering(scores: Tensor, keys: int) -> Tensor:
    queries = scores.shape[0]
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    distance = keys - queries + i - j
    return scores.gather(1, keys - 1 - distance)


def shift_by_rolling(scores: Tensor, keys: int) -> Tensor:
    last = len(scores) - 1
    return torch.stack([row.roll(i - last)[:keys] for i, row in enumerate(scores)])


RIGHT: dict[str, tuple[Any, Any]] = {
    "10.memory": (memory_by_splitting, memory_by_indices),
    "10.mask": (mask_by_comparison, mask_by_joining),
    "10.reach": (reach_by_recursion, reach_by_sets),
    "10.shift": (shift_by_gathering, shift_by_rolling),
}
