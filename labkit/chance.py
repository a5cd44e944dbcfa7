"""Randomness without a state: each number is a function of (seed, step, purpose, row, position).

A generator that is asked twice gives two answers, so what it gives depends on everybody who asked
before. Here nobody asked before: the state that a row's generator *would* have after n calls is
known in closed form, so any number is computed directly, for any rows in any order.

Each (seed, step, purpose, row) owns one SplitMix64 stream (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014): state n is key + n * GOLDEN, and its output is `mix(state)`.
One output holds 64 bits, enough for two positions. Read `Chance.bits` first.
"""

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# 2^64 divided by the golden ratio, and the multipliers of the mixer, as signed 64-bit numbers.
GOLDEN = -0x61C8864680B583EB
MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)


def mix(x: Tensor) -> Tensor:
    """Scramble 64-bit integers in place: each bit moves each bit returned with probability 1/2."""
    shifted = torch.empty_like(x)
    for shift, multiplier in ((30, MULTIPLIERS[0]), (27, MULTIPLIERS[1]), (31, None)):
        torch.bitwise_right_shift(x, shift, out=shifted)
        # torch shifts the sign in from the left; the mixer needs zeros there.
        x ^= shifted.bitwise_and_((1 << (64 - shift)) - 1)
        if multiplier is not None:
            x *= multiplier
    return x


def key_of(*parts: int | str) -> int:
    """Hash numbers and words to one signed 64-bit key, the same in every process and machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True, eq=False)
class Chance:
    """The random numbers of some rows of one step, whatever other rows stand beside them."""

    seed: int
    step: int
    rows: Tensor

    def __post_init__(self) -> None:
        if self.rows.dtype != torch.int64 or self.rows.dim() != 1:
            raise ValueError(
                f"rows are {self.rows.dtype} of shape {tuple(self.rows.shape)}: give the number of "
                "each row of the step as one int64 tensor [B], such as torch.arange(B)"
            )

    @classmethod
    def of_examples(cls, seed: int, examples: Tensor) -> "Chance":
        """Numbers that stay with an example through all epochs, as for BERT's static masks."""
        return cls(seed, 0, examples)

    def select(self, rows: Tensor | slice) -> "Chance":
        """The same numbers for some of the rows: a slice, a boolean mask or indices."""
        return replace(self, rows=self.rows[rows])

    def bits(self, purpose: str, positions: int) -> Tensor:
        """32 random bits for each position, as signed numbers [B, T]."""
        # Rows are scrambled before they become keys, else row r + 1 would be row r moved by one.
        row_keys_B1 = mix(self.rows.unsqueeze(1) * GOLDEN + key_of(self.seed, self.step, purpose))
        counters = torch.arange(1, (positions + 1) // 2 + 1, device=self.rows.device) * GOLDEN
        both_halves = mix(row_keys_B1 + counters).view(torch.int32)
        return both_halves[:, :positions]

    def uniform(self, purpose: str, positions: int) -> Tensor:
        """Numbers in [0, 1) for each position, float32 [B, T]: the multiples of 2^-24."""
        # A float32 holds 24 bits exactly; the shift keeps the sign, so the range starts at -1/2.
        return (self.bits(purpose, positions) >> 8).float().mul_(2.0**-24).add_(0.5)

    def integers(self, purpose: str, positions: int, high: int | Tensor) -> Tensor:
        """Whole numbers from 0 to high - 1 for each position, int64 [B, T]; high may be [B, 1]."""
        if isinstance(high, int) and not 0 < high <= 2**31:
            raise ValueError(f"high is {high}: give 1 to 2^31, the numbers are 0 … high - 1")
        return scaled(self.bits(purpose, positions), high)

    def permutation(self, purpose: str, positions: int) -> Tensor:
        """A random order of the positions for each row, int64 [B, T]."""
        return self.bits(purpose, positions).argsort(dim=1, stable=True)


def scaled(bits: Tensor, high: int | Tensor) -> Tensor:
    """Whole numbers from 0 to high - 1, one for each 32 random bits."""
    # The high half of a product: no share of the numbers is off by more than high / 2^32.
    return bits.long().add_(2**31).mul_(high).bitwise_right_shift_(32)


def shuffled(size: int, *key: int | str) -> Tensor:
    """The numbers 0 … size - 1 in an order that the key decides."""
    # The low bits of each random number make room for the number it is drawn for: sorting them in
    # place takes no second array, and there are no ties.
    low = (1 << size.bit_length()) - 1
    drawn = mix(torch.arange(1, size + 1) * GOLDEN + key_of(*key)).bitwise_and_(~low)
    numbered = drawn.bitwise_or_(torch.arange(size))
    numbered.numpy().sort()
    return numbered.bitwise_and_(low)
