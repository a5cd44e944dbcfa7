"""A language whose every probability is known, with all that can be asked of it."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from labkit.world.exact import Language, Text
from labkit.world.floors import Channel, Floor, floor
from labkit.world.labelled import LabelledSet, labelled, next_odds, order_odds
from labkit.world.prompts import few_shot


class World(Language):
    """A language whose every probability is known."""

    @cached_property
    def new_forms(self) -> "World":
        """The same language with the inflections that its training text never shows."""
        return World(self.grammar, new_forms=True)

    # ── floors and labelled sets ─────────────────────────────────────────────────────────────────

    def floor(
        self,
        objective: str,
        documents: Sequence[Text],
        *,
        reach: int | None = None,
        rate: float = 0.15,
        channel: Channel = (1.0, 0.0, 0.0),
        seed: int = 0,
        start: str = "document",
    ) -> Floor:
        """The lowest loss of an objective on these documents: see `floors.py`."""
        return floor(
            self,
            objective,
            documents,
            reach=reach,
            rate=rate,
            channel=channel,
            seed=seed,
            start=start,
        )

    def entropy_rate(self, *, words: int = 100_000, seed: int = 0) -> Floor:
        """Nats a word of an endless stream, estimated from a sample."""
        return self.floor("next", self.sample(words=words, seed=seed, split=None))

    def labelled(self, task: str, size: int, *, seed: int = 0, split: str = "train") -> LabelledSet:
        """A balanced labelled set with the best possible accuracy: see `labelled.py`."""
        return labelled(self, task, size, seed, split)

    def few_shot(self, shots: int, size: int, *, seed: int = 0) -> LabelledSet:
        """Prompts with so many solved pairs, and the best possible answers: see `prompts.py`."""
        return few_shot(self, shots, size, seed)

    def order_odds(self, pairs: Sequence[tuple[Text, Text]]) -> np.ndarray:
        """log p(first, second) - log p(second, first), as neighbours in a document."""
        return order_odds(self, pairs)

    def next_odds(self, pairs: Sequence[tuple[Text, Text]]) -> np.ndarray:
        """The log odds that the second follows the first, against a second of another document."""
        return next_odds(self, pairs)
