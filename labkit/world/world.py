"""A language whose every probability is known, with all that can be asked of it."""

from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from labkit.paths import data_path
from labkit.world.exact import Language, Text
from labkit.world.examples import LabelledSet
from labkit.world.floors import Channel, Floor, floor
from labkit.world.foreign import foreign_text
from labkit.world.labelled import labelled, next_odds, order_odds
from labkit.world.prompts import few_shot
from labkit.world.reading import read


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


# ── the languages of the course ──────────────────────────────────────────────────────────────────

# The course's language; the same with noise; one of other words, order and letters; small ones.
LANGUAGES = ("language", "crawl", "foreign", "village", "journey", "answers", "instructions")


def load_world(name: str | Path = "language") -> World:
    """Load the language of the course, or another one.

    "crawl" is the same with noise, "foreign" another language (that of the translation), "answers"
    has few answers to each prompt, "instructions" teaches to follow them; "village" and "journey"
    are small.  Or give a folder of your own.
    """
    if name in LANGUAGES:
        return _of_the_course(str(name))
    folder = Path(name)
    if not folder.is_dir():
        known = ", ".join(LANGUAGES)
        raise FileNotFoundError(f'there is no folder "{folder}": name one, or one of {known}')
    return _from_folder(folder)


@cache
def _of_the_course(name: str) -> World:
    """Each language is compiled once."""
    if name == "foreign":
        return world_from_text({"foreign.txt": foreign_text()})
    folder = data_path("language" if name == "crawl" else name)
    return _from_folder(folder, *[folder / "variants" / "crawl.txt"] * (name == "crawl"))


def _from_folder(folder: Path, *extra: Path) -> World:
    paths = [
        path
        for path in sorted(folder.rglob("*.txt"))
        if "variants" not in path.relative_to(folder).parts
    ]
    if not paths:
        raise FileNotFoundError(f'the folder "{folder}" holds no .txt files of a language')
    return world_from_text(
        {str(path.relative_to(folder)): _text(path) for path in [*paths, *extra]}
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f'"{path}" is not UTF-8 text (byte {error.start}): save it as UTF-8'
        ) from None


def world_from_text(files: dict[str, str]) -> World:
    """Compile the texts of files, given by name."""
    return World(read(files))
