"""The small language of the experiments on Transformer-XL and XLNet: what they read, how long.

In `data/journey` much is named once and needed again later.
"""

from dataclasses import dataclass
from functools import lru_cache

from classroom.models.recipes import CourseText, course_text


@dataclass(frozen=True)
class Size:
    """How large an experiment is."""

    steps: int
    words: int
    held_out: int
    width: int = 64
    batch: int = 16


SIZES = {
    "smoke": Size(500, 100_000, 12_000),
    "laptop": Size(1_000, 200_000, 40_000),
    "gpu": Size(6_000, 1_000_000, 100_000, 256, 64),
}


@lru_cache(maxsize=2)
def journeys(profile: str, seed: int) -> CourseText:
    """The text of the experiments with memory and with permutations."""
    size = SIZES[profile]
    return course_text("journey", words=size.words, held_out=size.held_out, seed=seed)
