"""Randomness without a state: each number is a function of (seed, step, purpose, row, position).

The next number of an ordinary generator depends on how often it was called before. Here the state
of a row's generator after n calls is known in closed form, so any number is computed directly, for
any rows in any order.

Each (seed, step, purpose, row) owns one SplitMix64 stream (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014): state n is key + n * GOLDEN, and its output is `mix(state)`.
One output holds 64 bits, enough for two positions. Read `Chance.bits` first.
"""

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.checks import is_whole

Numbers = TypeVar("Numbers", Tensor, NDArray[np.int64])

# 2^64 divided by the golden ratio, and the multipliers of the mixer, as signed 64-bit numbers.
GOLDEN = -0x61C8864680B583EB
MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)


def mix(x: Numbers) -> Numbers:
    """Scramble 64-bit integers in place: a bit flips each bit of the result with chance 1/2."""
    for shift, multiplier in ((30, MULTIPLIERS[0]), (27, MULTIPLIERS[1]), (31, None)):
        # Signed numbers shift their sign in from the left; the mixer needs zeros there.
        x ^= (x >> shift) & ((1 << (64 - shift)) - 1)
        if multiplier is not None:
            x *= multiplier
    return x


def key_of(*parts: int | str) -> int:
    """Hash numbers and words to one signed 64-bit key, the same in every process and machine."""
    # A number of numpy has another `repr` than the same number of Python.
    plain = tuple(part if isinstance(part, str) else operator.index(part) for part in parts)
    digest = hashlib.blake2b(repr(plain).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True, eq=False)
class Chance:
    """The random numbers of some rows of one step; the other rows do not affect them."""

    seed: int
    step: int
    rows: Tensor

    def __post_init__(self) -> None:
        for name in ("seed", "step"):
            if not is_whole(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}: give a whole number")
        if self.rows.dtype != torch.int64 or self.rows.dim() != 1:
            raise ValueError(
                f"rows are {self.rows.dtype} of shape {tuple(self.rows.shape)}: give the number of "
                "each row of the step as one int64 tensor [B], such as torch.arange(B)"
            )

    @classmethod
    def of_examples(cls, seed: int, examples: Tensor) -> "Chance":
        """Numbers that stay with an example through all epochs, as for BERT's static masks."""
        return cls(seed, 0, examples)

    def bits(self, purpose: str, positions: int) -> Tensor:
        """32 random bits for each position, as signed numbers [B, T]."""
        key, halves = key_of(self.seed, self.step, purpose), (positions + 1) // 2
        # The same few operations take numpy a third of the time, and most batches are small.
        if self.rows.device.type == "cpu":
            both = torch.from_numpy(_outputs(self.rows.numpy(), np.arange(1, halves + 1), key))
        else:
            both = _outputs(self.rows, torch.arange(1, halves + 1, device=self.rows.device), key)
        return both.view(torch.int32)[:, :positions]

    def uniform(self, purpose: str, positions: int) -> Tensor:
        """Numbers in [0, 1) for each position, float32 [B, T]: the multiples of 2^-24."""
        # A float32 holds 24 bits exactly; the shift keeps the sign, so the range starts at -1/2.
        return (self.bits(purpose, positions) >> 8).float().mul_(2.0**-24).add_(0.5)

    def integers(self, purpose: str, positions: int, high: int) -> Tensor:
        """Whole numbers from 0 to high - 1 for each position, int64 [B, T]."""
        if not 0 < high <= 2**31:
            raise ValueError(f"high is {high}: give 1 to 2^31, the numbers are 0 … high - 1")
        return scaled(self.bits(purpose, positions).long(), high)


def first_bits(chances: Sequence[Chance], *purposes: str) -> NDArray[np.int64]:
    """The result of `bits(purpose, 1)` for the rows of several steps at once: [purposes, B]."""
    keys = np.array([[key_of(c.seed, c.step, purpose) for c in chances] for purpose in purposes])
    rows = [c.rows.numpy() for c in chances]
    keys = keys.repeat([len(some) for some in rows], axis=1)[:, :, None]
    outputs = _outputs(np.concatenate(rows), np.arange(1, 2), keys)
    return outputs.view(np.int32)[:, :, 0].astype(np.int64)


def _outputs(rows: Numbers, counts: Numbers, key: int | Numbers) -> Numbers:
    """The outputs with these numbers of the streams of these rows [B, T / 2]."""
    # Rows are scrambled before they become keys, else row r + 1 would be row r moved by one.
    return mix(mix(rows[:, None] * GOLDEN + key) + counts * GOLDEN)


def scaled(bits: Numbers, high: int | Numbers) -> Numbers:
    """Whole numbers from 0 to high - 1, one for each 32 random bits, which they overwrite."""
    # The high half of a product: no share of the numbers is off by more than high / 2^32.
    bits += 2**31
    bits *= high
    bits >>= 32
    return bits


def shuffled(size: int, *key: int | str) -> Tensor:
    """The numbers 0 … size - 1 in an order that the key decides."""
    # The low bits of each random number make room for the number it is drawn for: sorting them in
    # place takes no second array, and there are no ties.
    low = (1 << size.bit_length()) - 1
    drawn = mix(np.arange(1, size + 1) * GOLDEN + key_of(*key))
    drawn &= ~low
    drawn |= np.arange(size)
    drawn.sort()
    drawn &= low
    return torch.from_numpy(drawn)
