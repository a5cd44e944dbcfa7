"""A language whose every probability is known, with all that can be asked of it."""

import itertools
from functools import cache, cached_property
from pathlib import Path

from labkit.keeping.files import read_text
from labkit.keeping.paths import data_path
from labkit.world.compiled import compiled
from labkit.world.exact import Language
from labkit.world.floors import floor as floor_of
from labkit.world.foreign import foreign_text
from labkit.world.labelled import labelled as labelled_of
from labkit.world.labelled import next_odds as next_odds_of
from labkit.world.labelled import order_odds as order_odds_of
from labkit.world.prompts import few_shot as few_shot_of
from labkit.world.reading import read


class World(Language):
    """A language whose every probability is known."""

    @cached_property
    def new_forms(self) -> "World":
        """The same language with the inflections that its training text never shows."""
        return World(self.grammar, new_forms=True)

    # Each is a function of a language in a file of its own.
    floor = floor_of
    labelled = labelled_of
    few_shot = few_shot_of
    order_odds = order_odds_of
    next_odds = next_odds_of


# ── the languages of the course ──────────────────────────────────────────────────────────────────

LARGEST_FILE = 1_000_000
"""Bytes of a file of a language; the largest of the course has 28,000."""
MOST_FILES = 1_000

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
    return world_from_text(_texts(folder))


@cache
def _of_the_course(name: str) -> World:
    """Each language is compiled once."""
    if name == "foreign":
        return world_from_text({"foreign.txt": foreign_text()})
    folder = data_path("language" if name == "crawl" else name)
    noise = [folder / "variants" / "crawl.txt"] if name == "crawl" else []
    grammar = read(_texts(folder, *noise))
    return World(grammar, machine=compiled(grammar))


def _texts(folder: Path, *extra: Path) -> dict[str, str]:
    texts = (
        path for path in folder.rglob("*.txt") if "variants" not in path.relative_to(folder).parts
    )
    paths = sorted(itertools.islice(texts, MOST_FILES + 1))
    if not paths:
        raise FileNotFoundError(f'the folder "{folder}" holds no .txt files of a language')
    if len(paths) > MOST_FILES:
        raise ValueError(
            f'the folder "{folder}" holds more than {MOST_FILES} .txt files: give one that holds '
            "the files of a language and nothing else"
        )
    return {
        str(path.relative_to(folder)): read_text(path, LARGEST_FILE) for path in [*paths, *extra]
    }


def world_from_text(files: dict[str, str]) -> World:
    """Compile the texts of files, given by name."""
    return World(read(files))
