"""Files that survive a crash, and checksums that show whether they are what was written."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".unfinished-"
"""The prefix of the name of a file or folder that is still being written."""

ABANDONED = 24 * 3600  # seconds without a write, after which an unfinished file is removed


def cache_folder() -> Path:
    """Return the user's cache folder, or the one that LABKIT_CACHE names.

    An `OSError` says that there is none: in a container a user may have no home.
    """
    import platformdirs

    try:
        if chosen := os.environ.get("LABKIT_CACHE"):
            return Path(chosen).expanduser()
        return Path(platformdirs.user_cache_dir("labkit", False))
    except (RuntimeError, KeyError) as problem:
        raise OSError(str(problem)) from problem


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, survive a loss of power."""
    folder = path.is_dir()
    if folder and sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as problem:
        # Some file systems, such as shared folders of virtual machines, cannot do it for folders.
        if not folder or problem.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(
    path: Path, *, folder: bool = False, sound: Callable[[Path], bool] = lambda path: False
) -> Iterator[Path]:
    """Give an empty file (or folder) to write, which replaces `path` once it is on the disk.

    A folder of which `sound` is true by then stays, and the new one is dropped.
    After an error or a crash, a file is what it was before; a folder may be missing. An unfinished
    file that a killed process left is removed by a later call, when nobody has written to it for a
    day.
    """
    if not folder:  # what a link leads to is replaced, not the link
        path = Path(os.path.realpath(path))
    draft = path.with_name(f"{UNFINISHED}{path.name}-{uuid.uuid4().hex}")
    old = path.with_name(f"{UNFINISHED}old-{path.name}-{uuid.uuid4().hex}")
    try:
        draft.mkdir() if folder else draft.touch()
        # Who may read a file may read the new one.
        mode = (path if path.is_file() and not folder else draft).stat().st_mode
        yield draft
        # A library may have put a file there that only its owner can read.
        draft.chmod(mode)
        for file in draft.iterdir() if folder else ():
            to_disk(file)
        to_disk(draft)
        if folder and (path.exists() or path.is_symlink()):
            if sound(path):
                return
            # Deleted later, so that other processes miss the folder for a moment only.
            path.rename(old)
        draft.replace(path)
        to_disk(path.parent)
        _remove_abandoned(path.parent)
    finally:
        _delete(draft)
        _delete(old)


def remove(path: Path) -> None:
    """Remove a file or a folder; it is renamed first, so that no half of a folder is ever seen."""
    doomed = path.with_name(f"{UNFINISHED}old-{path.name}-{uuid.uuid4().hex}")
    path.rename(doomed)
    _delete(doomed)


def set_aside(path: Path) -> Path | None:
    """Rename a damaged file or folder, so that a sound one can take its name; None: it cannot be.

    Anything set aside earlier is deleted.
    """
    aside = path.with_name(f"{path.name}.damaged")
    try:
        if aside.is_dir():
            remove(aside)
        path.replace(aside)
    except OSError:
        return None
    return aside


def _delete(path: Path) -> None:
    # Of a link, only the link itself is removed.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            files = [path, *path.iterdir()] if path.is_dir() else [path]
            if time.time() - max(file.stat().st_mtime for file in files) > ABANDONED:
                _delete(path)


def read_text(path: Path, most: int) -> str:
    """Return the text of a UTF-8 file of at most so many bytes; an error names the file."""
    if not path.is_file():
        if path.exists():
            raise ValueError(f"{path} is not a file: give one with text in it")
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size > most:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes: at most {most:,} are read")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start + 1}): save it as UTF-8"
        ) from None


def read_json(path: Path, most: int = 10**6) -> dict[str, Any]:
    """Return the object in a JSON file of at most so many bytes; an error names the file."""
    text = read_text(path, most)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__} in JSON: give an object, {{…}}")
    return found


def with_numbers(value: Any, change: Callable[[float], Any]) -> Any:
    """Return plain data, such as JSON holds, with each float as `change` gives it."""
    if isinstance(value, float):
        return change(value)
    if isinstance(value, dict):
        return {name: with_numbers(part, change) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_numbers(part, change) for part in value]
    return value


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all; half of a surrogate pair is written as its escape."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_json(path: Path, value: Any, *, sort_keys: bool = False) -> None:
    """Write a value as indented JSON, whole or not at all."""
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=sort_keys)
    write_text(path, text + "\n")


def save_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file; what the disk refuses is an `OSError`, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def save_aligned(tensors: "Mapping[str, Tensor]", path: Path) -> None:
    """Write a safetensors file in which tensors begin at multiples of 64 bytes, as in memory.

    Some products round differently where a matrix begins elsewhere. Each tensor is flat, with up to
    63 zeros behind it.
    """
    from safetensors.torch import save
    from torch.nn.functional import pad

    flat = {name: tensor.detach().reshape(-1) for name, tensor in tensors.items()}
    content = save({name: pad(row, (0, -len(row) % 64)) for name, row in flat.items()})
    head = content[8 : 8 + int.from_bytes(content[:8], "little")]
    spaces = b" " * (-(8 + len(head)) % 64)
    length = (len(head) + len(spaces)).to_bytes(8, "little")
    path.write_bytes(b"".join([length, head, spaces, content[8 + len(head) :]]))


def tensor_bytes(tensor: "Tensor") -> memoryview:
    """Return the numbers of a tensor as they are stored in a file."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def digest(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of some bytes, one part after the other."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
