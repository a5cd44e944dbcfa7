"""The exercises of notebook 13, each solved in two ways that are not the course's own."""

import numpy as np
import torch
from torch import Tensor


def bootstrap_by_numpy(values: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    means = [np.mean(values.numpy()[row]) for row in draws.numpy()]
    low, high = np.quantile(means, [0.025, 0.975])
    return torch.tensor(low), torch.tensor(high)


def bootstrap_by_gather(values: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
    sums = values.expand(len(draws), -1).gather(1, draws).sum(dim=1)
    ends = torch.tensor([0.025, 0.975], dtype=values.dtype)
    return tuple((sums / draws.shape[1]).quantile(ends))


def paired_by_moments(with_it: Tensor, without: Tensor) -> Tensor:
    d, n = with_it - without, len(without)
    return (((d - d.mean()) ** 2).sum() / (n - 1) / n).sqrt()


def paired_by_numpy(with_it: Tensor, without: Tensor) -> Tensor:
    d = (with_it - without).numpy()
    return torch.tensor(np.std(d, ddof=1) / np.sqrt(len(d)))


def verdict_by_cases(low: float, high: float, bound: float) -> str:
    if high < bound:
        return "does not hold here"
    return "not significant" if low < bound else "holds"


def verdict_by_a_table(low: float, high: float, bound: float) -> str:
    return {
        (True, True): "holds",
        (False, True): "not significant",
        (False, False): "does not hold here",
    }[low >= bound, high >= bound]


RIGHT = {
    "13.bootstrap": (bootstrap_by_numpy, bootstrap_by_gather),
    "13.paired": (paired_by_moments, paired_by_numpy),
    "13.verdict": (verdict_by_cases, verdict_by_a_table),
    "13.each": (lambda p, n: 1 - p / n, lambda p, n: (n - p) / n),
}
