"""What was computed once is kept: trained models and results, found again by all they depend on.

A key is a hash of the model's first weights, of batches, objective, plan, code and versions; so a
changed seed, corpus or line of code never finds an old model, and to clear the cache changes no
result. It lives in the user's cache folder, or in the one that LABKIT_CACHE names, and stays under
LABKIT_CACHE_LIMIT (2 GB): what was not used for longest goes first.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import platformdirs
import torch

from classroom.versions import code_version
from labkit.keeping.files import UNFINISHED, replacing

Made = TypeVar("Made")

LIMIT = 2 * 10**9
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def folder() -> Path:
    """Return where things are kept."""
    chosen = os.environ.get("LABKIT_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("labkit", False))


def limit() -> int:
    """Return how many bytes may be kept."""
    words = os.environ.get("LABKIT_CACHE_LIMIT", str(LIMIT)).strip().upper().removesuffix("B")
    number, unit = (words[:-1], words[-1]) if words[-1:] in UNITS else (words, "")
    try:
        return int(float(number) * UNITS[unit])
    except ValueError:
        raise ValueError(
            f"LABKIT_CACHE_LIMIT is {os.environ['LABKIT_CACHE_LIMIT']!r}: give a number of bytes, "
            "such as 500M or 2G"
        ) from None


def versions(without: Collection[str] = ()) -> str:
    """Return what a result depends on besides its inputs: the code, the data, the libraries.

    The number of threads, too: more of them add up in another order.
    """
    libraries = f"torch {torch.__version__} numpy {np.__version__}"
    return f"{code_version(without)} {libraries} threads {torch.get_num_threads()}"


# ---- keeping


def kept(
    key: str,
    suffix: str,
    make: Callable[[], Made],
    write: Callable[[Made, Path], None],
    read: Callable[[Path], Made],
) -> Made:
    """Return what is kept under a key, or make it now and keep it.

    A file that cannot be read is made anew; one that cannot be written is not kept. Both are said.
    """
    path = folder() / f"{key}{suffix}"
    if path.is_file():
        try:
            found = read(path)
        except Exception as problem:  # a damaged file has many ways of being damaged
            _say(f"{path} cannot be read ({problem}) and is made anew")
        else:
            with contextlib.suppress(OSError):
                os.utime(path)
            return found
    made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            write(made, draft)
        shrink()
    except OSError as problem:
        _say(f"{path} cannot be written ({problem}): nothing is kept")
    return made


def kept_json(key: str, make: Callable[[], Any]) -> Any:
    """The same for anything that JSON knows."""

    def write(made: Any, path: Path) -> None:
        path.write_text(json.dumps(made), encoding="utf-8")

    def read(path: Path) -> Any:
        return json.loads(path.read_text(encoding="utf-8"))

    return kept(key, ".json", lambda: json.loads(json.dumps(make())), write, read)


def files() -> list[tuple[Path, os.stat_result]]:
    """Return what is kept, the least recently used first."""
    found = []
    for path in folder().glob("*") if folder().is_dir() else ():
        with contextlib.suppress(OSError):  # another process may just have removed it
            known = path.suffix in (".json", ".safetensors") or path.name.startswith(UNFINISHED)
            if path.is_file() and known:
                found.append((path, path.stat()))
    return sorted(found, key=lambda file: file[1].st_mtime)


def shrink(to: int | None = None) -> int:
    """Remove what was not used for longest until so many bytes are left; return how many went."""
    to = limit() if to is None else to
    everything = files()
    excess = sum(stat.st_size for _, stat in everything) - to
    gone = 0
    for path, stat in everything:
        if excess - gone <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            gone += stat.st_size
    return gone


def _say(message: str) -> None:
    print(f"labkit: {message}", file=sys.stderr, flush=True)
