"""What is saved, and how it survives a crash.

A checkpoint is a folder `step-00000100` of safetensors files and a `manifest.json`. It is written
under another name, forced to the disk file by file, and then renamed, so that under its own name
it is either whole or not there. The manifest holds a checksum of every file and of itself:
whatever happens to the folder later is noticed, and the checkpoint before it is taken instead.
Nothing in it is ever executed on loading: tensors and JSON only. Read `write` and `newest` first.
"""

import errno
import json
import re
import shutil
import threading
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from labkit.keeping.files import (
    UNFINISHED,
    digest,
    file_digest,
    remove,
    replacing,
    save_tensors,
)

MANIFEST = "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
FORMAT = 2
"""The format of a checkpoint; a manifest of format 1 does not name its format."""


class BrokenCheckpointError(Exception):
    """A folder that is not a whole checkpoint, and what is wrong with it."""


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on: facts as JSON, and tensors by kind and name."""

    step: int
    facts: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]

    def copy(self) -> "Snapshot":
        """A copy of the values, on the device where the tensors are."""
        tensors = {
            kind: {name: tensor.detach().clone() for name, tensor in own.items()}
            for kind, own in self.tensors.items()
        }
        return Snapshot(self.step, deepcopy(self.facts), tensors)


class Found(NamedTuple):
    """The newest whole checkpoint, and why newer ones were passed over."""

    snapshot: Snapshot | None
    path: Path | None
    skipped: tuple[str, ...]


def name_of(step: int) -> str:
    """The folder of a step's checkpoint."""
    return f"step-{step:08d}"


def write(folder: Path, snapshot: Snapshot) -> Path:
    """Write a checkpoint that is either whole or not there; replace a broken one of that step."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name_of(snapshot.step)
    with replacing(target, folder=True) as draft:
        files = {}
        for name, tensors in snapshot.tensors.items():
            file = draft / f"{name}.safetensors"
            save_tensors(file, tensors)
            files[file.name] = {"bytes": file.stat().st_size, "sha256": file_digest(file)}
        content = {"format": FORMAT, "step": snapshot.step, "facts": snapshot.facts, "files": files}
        (draft / MANIFEST).write_bytes(_manifest(content))
    return target


def read_checkpoint(path: Path) -> Snapshot:
    """Read a checkpoint after a check of every byte; an error says what is wrong with it."""
    try:
        content = _checked_manifest((path / MANIFEST).read_bytes())
        _check_format(path, content)
        if path.name != name_of(content["step"]):
            raise BrokenCheckpointError(
                f"it holds step {content['step']}, which is not what the folder says"
            )
        tensors = {}
        for name, seal in content["files"].items():
            if Path(name).name != name:
                raise BrokenCheckpointError(f"{name!r} is not a file of this folder")
            raw = (path / name).read_bytes()
            if len(raw) != seal["bytes"]:
                raise BrokenCheckpointError(
                    f"{name} has {len(raw):,} bytes, {seal['bytes']:,} were written"
                )
            if digest(raw) != seal["sha256"]:
                raise BrokenCheckpointError(
                    f"{name} is not the file that was written: its checksum differs"
                )
            tensors[Path(name).stem] = load(raw)
    except SafetensorError as problem:
        raise BrokenCheckpointError(f"a file holds no tensors: {problem}") from problem
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        reason = "is missing" if missing else f"cannot be read ({problem.strerror})"
        raise BrokenCheckpointError(f"{Path(problem.filename or path).name} {reason}") from problem
    return Snapshot(content["step"], content["facts"], tensors)


def newest(folder: Path) -> Found:
    """The newest whole checkpoint of a folder; those that are broken are passed over, with why."""
    skipped: list[str] = []
    for path in reversed(listed(folder)):
        try:
            return Found(read_checkpoint(path), path, tuple(skipped))
        except BrokenCheckpointError as problem:
            skipped.append(f"{path.name}: {problem}")
    return Found(None, None, tuple(skipped))


def listed(folder: Path) -> list[Path]:
    """Everything in the folder that is called a checkpoint, by step."""
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return sorted(named, key=lambda path: int(path.name.removeprefix("step-")))


def sweep(folder: Path) -> None:
    """Clear away what a crash left unfinished."""
    for path in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def copied(tensor: Tensor) -> Tensor:
    """A copy in main memory of the values as they are now, while training goes on."""
    tensor = tensor.detach()
    if tensor.device.type != "cuda":
        return tensor.to("cpu", copy=True).contiguous()
    # Into pinned memory and in the order of the stream: the next step does not have to wait.
    place = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return place.copy_(tensor, non_blocking=True)


class Saver:
    """Writes checkpoints beside the training, one at a time, and keeps the last good ones.

    A checkpoint that cannot be written (a full disk) is reported and training goes on: the ones
    before it are still there.  Old ones go only when `keep` that are known to be whole exist.
    With `silent`, writing is left to another process.
    """

    def __init__(
        self, folder: Path, keep: int, *, known: Path | None = None, silent: bool = False
    ) -> None:
        # The reader may change to another folder while the training goes on.
        self.folder, self.keep, self.silent = folder.absolute(), keep, silent
        self.good = [] if known is None else [known.name]
        self.problem: BaseException | None = None
        self._left = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        """Finish the checkpoint that is being written, except after an interrupt or an exit."""
        if kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit):
            self._left = True
        else:
            self.wait(last=kind is None)

    def save(self, snapshot: Snapshot) -> None:
        """Start to write a snapshot, whose tensors must not change any more."""
        self.wait()
        if self.silent:
            return
        ready = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            ready = torch.cuda.Event()
            ready.record()
        # A process that is terminated does not wait for it: half a checkpoint does no harm.
        self._thread = threading.Thread(target=self._write, args=(snapshot, ready), daemon=True)
        self._thread.start()

    def wait(self, *, last: bool = False) -> None:
        """Wait until the checkpoint is on the disk, and warn if it could not be written.

        With `last`, which is set for a run's first and last checkpoints, this is an error.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.problem is not None:
            problem, self.problem = self.problem, None
            if not isinstance(problem, OSError):
                raise problem
            still = self.good[-1] if self.good else "none"
            message = (
                f"a checkpoint could not be written to {self.folder}: {problem}; the newest whole "
                f"checkpoint is still {still}: {advice(problem, self.folder)}"
            )
            if last:
                raise OSError(problem.errno, message) from problem
            warnings.warn(message, stacklevel=3)

    def _write(self, snapshot: Snapshot, ready: Any) -> None:
        try:
            if ready is not None:
                ready.synchronize()
            path = write(self.folder, snapshot)
            self.good = [name for name in self.good if name != path.name] + [path.name]
            if not self._left:
                self._forget()
        except BaseException as problem:  # `wait` raises it in the thread of the run
            self.problem = problem

    def _forget(self) -> None:
        """Remove what is older than the last good ones, or broken."""
        self.good = self.good[-self.keep :]
        if len(self.good) == self.keep:
            for path in listed(self.folder):
                if path.name not in self.good:
                    remove(path)


def advice(problem: OSError, folder: Path) -> str:
    """What to do when a folder cannot be written."""
    if problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "choose a folder that you may write to"
    if problem.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
        return "remove the file that is in the way, or choose another folder"
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**20
    return f"make room ({free:,.0f} MiB are free there) or save to another disk"


def _manifest(content: dict[str, Any]) -> bytes:
    """The content with its own checksum, in the only form in which it is written."""
    plain = json.dumps(content, sort_keys=True)
    whole = {"checksum": digest(plain.encode()), "content": content}
    return json.dumps(whole, sort_keys=True, indent=1).encode()


def _check_format(path: Path, content: dict[str, Any]) -> None:
    """Refuse a checkpoint of another format: it is whole, and must not be passed over."""
    found = content.get("format", 1)
    if found != FORMAT:
        raise ValueError(
            f"{path} was written in format {found}, and this version of labkit reads format "
            f"{FORMAT}: choose another folder, or go on with the version that wrote it"
        )
    files = content.get("files")
    sound = (
        _whole(content.get("step"))
        and isinstance(content.get("facts"), dict)
        and isinstance(files, dict)
        and all(_is_seal(seal) for seal in files.values())
    )
    if not sound:
        raise BrokenCheckpointError(f"{MANIFEST} lacks step, facts or files")


def _whole(number: Any) -> bool:
    return type(number) is int and number >= 0


def _is_seal(seal: Any) -> bool:
    return isinstance(seal, dict) and _whole(seal.get("bytes")) and "sha256" in seal


def _checked_manifest(raw: bytes) -> dict[str, Any]:
    """The content of a manifest that is byte for byte what was written."""
    try:
        content = json.loads(raw)["content"]
        intact = _manifest(content) == raw and isinstance(content, dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise BrokenCheckpointError(f"{MANIFEST} is not the file that was written")
    return content
