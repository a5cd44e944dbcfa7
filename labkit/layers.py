"""Dropout, as all models but the recurrent ones use it."""

import torch.nn.functional as F
from torch import Tensor, nn

from labkit.replaceable import replaceable


def check_rate(rate: float) -> float:
    """A share that is dropped: at least 0, less than 1."""
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate of {rate}: give a share from 0 up to, not including, 1")
    return rate


@replaceable
def drop(x: Tensor, rate: float) -> Tensor:
    """x with a random share of its elements zero, and the others larger to make up for it."""
    return F.dropout(x, rate)


class Dropout(nn.Dropout):
    """Ordinary dropout."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or in training what `drop` leaves of it."""
        return drop(x, self.p) if self.training and self.p > 0 else x
