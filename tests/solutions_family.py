"""The exercises of notebook 09, each solved in two ways that are not the course's own."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def masks_by_loops(draws: Tensor, rate: float, copies: int) -> Tensor:
    rows = [draws[i % copies if copies else i] < rate for i in range(len(draws))]
    return torch.stack(rows)


def masks_by_repeating(draws: Tensor, rate: float, copies: int) -> Tensor:
    own = draws[:copies] if copies else draws
    return own.repeat(len(draws), 1)[: len(draws)].lt(rate)


def weights_by_parts(vocabulary: int, width: int, narrow: int, layers: int, shared: bool) -> int:
    attention, feed_forward = 4 * width * width, 2 * width * 4 * width
    total = narrow * (vocabulary + width)
    for _ in range(1 if shared else layers):
        total += attention + feed_forward
    return total


def weights_of_modules(vocabulary: int, width: int, narrow: int, layers: int, shared: bool) -> int:
    block = [torch.nn.Linear(width, 12 * width, bias=False)] * layers
    blocks = block if shared else [torch.nn.Linear(width, 12 * width, bias=False) for _ in block]
    parts = [torch.nn.Embedding(vocabulary, narrow), torch.nn.Linear(narrow, width, bias=False)]
    return sum(p.numel() for p in torch.nn.ModuleList([*parts, *blocks]).parameters())


def order_by_numbers(sentences: list[str], swapped: list[bool]) -> list[tuple[str, str, int]]:
    pairs = []
    for i in range(len(sentences) - 1):
        j = int(swapped[i])
        pairs.append((sentences[i + j], sentences[i + 1 - j], j))
    return pairs


def order_by_reversing(sentences: list[str], swapped: list[bool]) -> list[tuple[str, str, int]]:
    found = []
    for i, swap in enumerate(swapped):
        first, second = sentences[i : i + 2][:: -1 if swap else 1]
        found.append((first, second, 1 if swap else 0))
    return found


def student_by_places(blocks: list[str], layers: int) -> list[str]:
    return [blocks[i * (len(blocks) // layers)] for i in range(layers)]


def student_by_rests(blocks: list[str], layers: int) -> list[str]:
    return [block for i, block in enumerate(blocks) if i % (len(blocks) // layers) == 0]


def distil_by_kl_div(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    log_q = F.log_softmax(student / temperature, dim=1)
    p = F.softmax(teacher / temperature, dim=1)
    return F.kl_div(log_q, p, reduction="batchmean") * temperature * temperature


def distil_by_rows(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    losses = []
    for z, s in zip(teacher, student, strict=True):
        p, q = (z / temperature).softmax(0), (s / temperature).softmax(0)
        losses.append((p * (p / q).log()).sum())
    return temperature**2 * torch.stack(losses).mean()


RIGHT: dict[str, tuple[Any, Any]] = {
    "09.masks": (masks_by_loops, masks_by_repeating),
    "09.weights": (weights_by_parts, weights_of_modules),
    "09.order": (order_by_numbers, order_by_reversing),
    "09.student": (student_by_places, student_by_rests),
    "09.distil": (distil_by_kl_div, distil_by_rows),
}
