"""The exercises of notebook 03, each solved in two ways that are not the course's own."""

import numpy as np
import torch
from torch import Tensor


def triangle_from_its_ends(t: int, steps: int) -> float:
    cut, lowest = steps // 10, 1 / 32
    p = min(t / cut, (steps - t) / (steps - cut))
    return lowest + p * (1 - lowest)


def triangle_by_interpolation(step: int, steps: int) -> float:
    return float(np.interp(step, [0, steps // 10, steps], [1 / 32, 1, 1 / 32]))


def rates_from_the_top(layers: int, rate: float) -> list[float]:
    found = [rate]
    while len(found) < layers:
        found.insert(0, found[0] / 2.6)
    return found


def rates_by_powers(layers: int, rate: float) -> list[float]:
    return (rate * 2.6 ** torch.arange(1.0 - layers, 1.0, dtype=torch.double)).tolist()


def unfrozen_by_numbers(step: int, layers: int, every: int) -> list[bool]:
    begins = [every * (layers - 1 - i) for i in range(layers)]
    return [step >= begin for begin in begins]


def unfrozen_by_building(step: int, layers: int, every: int) -> list[bool]:
    asleep = max(0, layers - 1 - step // every)
    return [False] * asleep + [True] * (layers - asleep)


def drop_by_where(weight: Tensor, draws: Tensor, rate: float) -> Tensor:
    return torch.where(draws < rate, 0.0, weight / (1 - rate))


def drop_by_filling(weight: Tensor, draws: Tensor, rate: float) -> Tensor:
    return weight.masked_fill(draws < rate, 0.0) * (1 / (1 - rate))


def pooled_by_loops(states: Tensor, real: Tensor) -> Tensor:
    rows = [row[own] for row, own in zip(states, real, strict=True)]
    return torch.stack([torch.cat([row[-1], row.max(0).values, row.mean(0)]) for row in rows])


def pooled_by_the_package(states: Tensor, real: Tensor) -> Tensor:
    from labkit.heads import pool

    return torch.hstack([pool(states, real, part) for part in ("last", "max", "mean")])


RIGHT = {
    "03.triangle": (triangle_from_its_ends, triangle_by_interpolation),
    "03.rates": (rates_from_the_top, rates_by_powers),
    "03.unfreeze": (unfrozen_by_numbers, unfrozen_by_building),
    "03.drop": (drop_by_where, drop_by_filling),
    "03.pool": (pooled_by_loops, pooled_by_the_package),
}
