"""The tokens of a corpus in files, which are mapped and not read into memory.

The files are written under another name and renamed when they are complete: a run that dies leaves
no incomplete corpus behind. Read `stored` first.
"""

import contextlib
import json
import mmap
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from labkit.keeping.files import file_digest, replacing, set_aside
from labkit.text.tokens import Arrays

FORMAT = 2
CHECKSUMS = "checksums.json"
AROUND = 512 << 10  # bytes that reading one position may bring into memory
TOUCHED = 64 << 20  # bytes of a file that may be in memory before they are handed back


class Pages:
    """Releases the pages of a file that were read: a long run would keep all of it in memory."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped, self._touched = mapped, 0

    def __call__(self, stretches: int, tokens: int) -> None:
        """Note what has been read, and release it when it is too much."""
        # The system maps much around each page that is read.
        self._touched += stretches * AROUND + 4 * tokens
        if self._touched > TOUCHED and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
            self._touched = 0


def stored(folder: Path, encoded: Iterable[Arrays]) -> tuple[Arrays, Pages]:
    """The corpus of a folder, which is written first if it is missing or damaged."""
    if not folder.exists():
        write_arrays(folder, encoded)
    elif wrong := damage(folder):
        aside = set_aside(folder)
        where = f", those there are set aside as {aside.name}" if aside else ""
        warnings.warn(f"the tokens in {folder} are made anew{where}: {wrong}", stacklevel=3)
        write_arrays(folder, encoded)
    return map_arrays(folder)


def write_arrays(folder: Path, encoded: Iterable[Arrays]) -> None:
    """Write a corpus and the checksums of its files, all or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        # What another run has written meanwhile stays: it may be reading it by now.
        with replacing(folder, folder=True, sound=lambda path: damage(path) is None) as draft:
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context((draft / name).open("wb")) for name in Arrays._fields]
                for arrays in encoded:
                    for name, file in zip(Arrays._fields, files, strict=True):
                        getattr(arrays, name).tofile(file)
            checksums = {name: file_digest(draft / name) for name in Arrays._fields}
            (draft / CHECKSUMS).write_text(json.dumps(checksums), encoding="utf-8")
    except OSError:
        # Another run may have written the same corpus just now.
        if damage(folder) is not None:
            raise


def damage(folder: Path) -> str | None:
    """What is wrong with the files of a corpus, or None if they are what was written."""
    try:
        checksums = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        for name in Arrays._fields:
            if file_digest(folder / name) != checksums[name]:
                return f"the checksum of {name} differs"
    except OSError as error:
        return f"{Path(error.filename or folder).name} is missing or cannot be read"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{CHECKSUMS} is not what was written"
    return None


def map_arrays(folder: Path) -> tuple[Arrays, Pages]:
    """The arrays of a folder, and what releases the memory that reading them takes."""
    maps = []
    for name in Arrays._fields:
        with (folder / name).open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    types = (np.uint32, np.int64, np.int64, np.int64)
    arrays = [np.frombuffer(one, kind) for one, kind in zip(maps, types, strict=True)]
    return Arrays(*arrays), Pages(maps[0])
