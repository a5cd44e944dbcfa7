"""Find the files of a language and load them."""

from pathlib import Path

from labkit.paths import data_path
from labkit.world.lexicon import translate
from labkit.world.reading import read
from labkit.world.world import World

VARIANTS = ("second", "crawl")
OTHERS = ("village", "journey", "language", "answers", "instructions")
LANGUAGES = ("world", *VARIANTS, *OTHERS)


def load_world(name: str | Path = "world") -> World:
    """Load "world", its variants "second" (another language) and "crawl" (noisy), the harder
    "language", "answers" (prompts with few answers), one of the small languages "village" and
    "journey", or a folder of one's own.
    """
    folder = data_path(str(name) if name in OTHERS else "world")
    if name in VARIANTS:
        extra = [folder / "variants" / f"{name}.txt"]
    elif name in LANGUAGES:
        extra = []
    else:
        folder, extra = Path(name), []
        if not folder.is_dir():
            known = ", ".join(LANGUAGES)
            raise FileNotFoundError(f'there is no folder "{folder}": name one, or one of {known}')
    paths = [
        path
        for path in sorted(folder.rglob("*.txt"))
        if "variants" not in path.relative_to(folder).parts
    ]
    if not paths:
        raise FileNotFoundError(f'the folder "{folder}" holds no .txt files of a language')
    return world_from_text({str(path.relative_to(folder)): _text(path) for path in paths + extra})


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f'"{path}" is not UTF-8 text (byte {error.start}): save it as UTF-8'
        ) from None


def world_from_text(files: dict[str, str]) -> World:
    """Compile the texts of files, given by name."""
    return World(translate(read(files)))
