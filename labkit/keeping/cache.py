"""A cache of results, trained models, compiled languages, and weights to share.

A key is a hash of all that a thing depends on: for a trained model its first weights, batches,
objective, plan, code and versions. So a run with a changed seed, corpus or line of code never finds
an old result, and clearing the cache changes no result. The cache is in the user's cache folder, or
in the one that LABKIT_CACHE names, and stays under LABKIT_CACHE_LIMIT (2 GB): the least recently
used entries are removed first. What a teacher has computed for a class (`labkit cache warm`) is
read from the folder that LABKIT_CACHE_SHARED names.

The name of a file holds the digest of its content: a file that is not what was written is set aside
and made anew. If several processes need the same thing, one makes it and the others wait.
"""

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from labkit.checks import first_line
from labkit.keeping.files import UNFINISHED, cache_folder, file_digest, replacing, set_aside
from labkit.keeping.paths import instead_of_home

Made = TypeVar("Made")

LIMIT = 2 * 10**9
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
# All that this module ever removes: files of these names, in a folder of its own.
OWN = re.compile(
    rf"[\w-]+\.[0-9a-f]{{64}}\.(json|safetensors)(\.damaged)?|{re.escape(UNFINISHED)}.+"
)


def folder() -> Path:
    """Return where things are kept: a folder in which there is nothing else."""
    try:
        return cache_folder() / "kept"
    except OSError as problem:
        return _homeless(str(problem))


@functools.cache
def _homeless(problem: str) -> Path:
    """Return a folder for a user without a home, and say so once."""
    place = instead_of_home()
    _say(f"there is no home folder ({problem}): results are kept in {place}; LABKIT_CACHE "
         "names another folder")  # fmt: skip
    return place / "kept"


def shared() -> Path | None:
    """Return the shared cache, which is only read, if LABKIT_CACHE_SHARED names one."""
    chosen = os.environ.get("LABKIT_CACHE_SHARED")
    # Not that of Path, which refuses the home folder of an unknown user.
    return Path(os.path.expanduser(chosen)) / "kept" if chosen else None


def limit() -> int:
    """Return how many bytes may be kept."""
    words = (os.environ.get("LABKIT_CACHE_LIMIT") or str(LIMIT)).strip().upper().removesuffix("B")
    number, unit = (words[:-1], words[-1]) if words[-1:] in UNITS else (words, "")
    try:
        size = int(float(number) * UNITS.get(unit, 1))
        if size < 0:
            raise ValueError
        return size
    except (ValueError, OverflowError):
        raise ValueError(
            f"LABKIT_CACHE_LIMIT is {os.environ['LABKIT_CACHE_LIMIT']!r}: give a number of bytes, "
            "such as 500M or 2G"
        ) from None


# ---- keeping


def kept(
    key: str,
    suffix: str,
    make: Callable[[], Made],
    write: Callable[[Made, Path], None],
    read: Callable[[Path], Made],
    *,
    quiet: bool = False,
) -> Made:
    """Return what is kept under a key, or make it now and keep it.

    A damaged file is set aside and made anew; where nothing can be written, nothing is kept. Each
    prints one line, and neither changes the result. `quiet` prints nothing: for things that take
    only a second to make.
    """
    say = (lambda message: None) if quiet else _say
    for found in _found(key, suffix, read, say):
        return found
    with _alone(key, say):
        # Another process may have made it while this one waited.
        for found in _found(key, suffix, read, say):
            return found
        made = make()
        path = folder() / f"{UNFINISHED}{key}{suffix}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as draft:
                write(made, draft)
            path.replace(path.with_name(f"{key}.{file_digest(path)}{suffix}"))
        except Exception as problem:  # whatever went wrong, the result is not lost
            say(f"{path} cannot be written ({first_line(problem)}): nothing is kept")
            return made
        try:
            shrink()
        except (OSError, ValueError) as problem:
            say(first_line(problem))
    return made


def _found(
    key: str, suffix: str, read: Callable[[Path], Made], say: Callable[[str], None]
) -> Iterator[Made]:
    """Yield what is kept under a key, if it is still what was written."""
    for place in filter(None, (folder(), shared())):
        try:
            paths = sorted(place.glob(f"{key}.*{suffix}"))
        except OSError as problem:  # such as a folder within one that only its owner can enter
            say(first_line(problem))
            continue
        for path in paths:
            try:
                if file_digest(path) != path.name.split(".")[1]:
                    raise ValueError("its content is not what was written")
                found = read(path)
            except FileNotFoundError:  # another process has just set it aside
                continue
            except (OSError, MemoryError) as problem:  # it may be as it was written
                _say(first_line(problem))
            except Exception as problem:  # a damaged file has many ways of being damaged
                _set_aside(path, problem)
            else:
                with contextlib.suppress(OSError):
                    os.utime(path)
                yield found


def _set_aside(path: Path, problem: Exception) -> None:
    """Rename a damaged file, so that a sound one can take its place, and print a line."""
    aside = set_aside(path)
    where = f", is set aside as {aside.name}" if aside else ""
    _say(f"{path} cannot be read ({first_line(problem)}){where} and is made anew")


@contextlib.contextmanager
def _alone(key: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process makes the same thing; the lock of one that dies is free."""
    path = folder() / f"{key}.lock"
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not os.environ.get("LABKIT_QUIET"):
                say("another notebook or process is computing the same thing: waiting for its "
                    "result (if it ends without one, this one goes on by itself)")  # fmt: skip
            lock.acquire(poll_interval=0.2)
    except (OSError, NotImplementedError):  # where nothing can be written, nobody waits
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def kept_json(key: str, make: Callable[[], Any]) -> Any:
    """The same for anything that JSON can hold."""

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
            if OWN.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                found.append((path, path.stat()))
    return sorted(found, key=lambda file: file[1].st_mtime)


def shrink(to: int | None = None) -> int:
    """Remove the least recently used until so many bytes are left; return how many were removed."""
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
