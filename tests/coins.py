"""Experiments on coins: a process that tosses them does not have to wait for torch."""

import os

import numpy as np

from classroom.ledger import Measured


def coins(profile: str, seed: int) -> Measured | None:
    """Two arms: one right in 80 % of the cases, one in 60 %."""
    random = np.random.default_rng(seed)
    fair = random.random(400)
    return Measured({"good": (fair < 0.8).tolist(), "poor": (fair < 0.6).tolist()}, {"good": 0.8})


def nothing(profile: str, seed: int) -> Measured | None:
    return None


def broken(profile: str, seed: int) -> Measured | None:
    raise RuntimeError("out of ink")


def killed(profile: str, seed: int) -> Measured | None:
    os._exit(9)
