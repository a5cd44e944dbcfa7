"""A separate process for untrusted code: limits, no network, no access to other files.

`Child` starts a function in a fresh Python and talks with it in plain bytes: what comes back is
never unpickled. `shield` runs first in the child and returns what this system enforces. On Linux
the kernel enforces it (a network namespace, Landlock); elsewhere hooks inside of Python do, which
stop mistakes and simple attacks, but not code that goes around Python.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, NoReturn

from classroom.running.children import (
    held_by,
    inherit,
    kept_variables,
    kill_with_children,
    quick_start,
)
from labkit.keeping.paths import PACKAGE

MB = 2**20
LARGEST_FILE = 200 * MB
LARGEST_MESSAGE = 256 * MB
REFUSED = dict.fromkeys(
    ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"), "the network"
) | dict.fromkeys(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty",
     "os.kill", "os.killpg", "os.spawn", "os.startfile"), "other programs"
)  # fmt: skip
"""Audit events of Python that are refused, and what they give access to."""
NAMING = ("open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.chmod", "os.mkdir",
          "os.link", "os.symlink", "os.truncate", "os.rmdir", "os.chown")  # fmt: skip
"""Events whose first argument is a path, and sometimes the second one, too; of `open`, the mode."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Refused(PermissionError):  # noqa: N818
    """Raised in the sandbox when code accesses something that it may not."""


@dataclass(frozen=True)
class Limits:
    """What a child may use, and where it may not look."""

    seconds: float
    memory: int
    hidden: Sequence[Path] = ()
    """Folders and files that it may not open."""
    modules: Sequence[str] = ()
    """Modules that it may not import once `shield` has run."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of its environment."""


# ---- in the child -------------------------------------------------------------------------------


def shield(limits: Limits, folder: Path) -> list[str]:
    """Restrict this process to what it needs; return in words what is enforced."""
    enforced = []
    if no_network():
        enforced.append("no network (a namespace without interfaces)")
    enforced += only_these(readable(limits.hidden), [folder, *devices()])
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that is too long is an OSError
        enforced.append(f"files of {LARGEST_FILE // MB} MB at most")
    refuse(limits, folder)
    enforced.append("no network, no other programs, no files of others, and none changed outside "
                    "of its own folder (inside of Python)")  # fmt: skip
    return enforced


def refuse(limits: Limits, folder: Path) -> None:
    """Refuse audit events of Python for good: a hook cannot be removed.

    Nothing is written outside of the folder and of what every program may write to.
    """
    hidden = [os.path.realpath(path) for path in limits.hidden]
    own = [os.path.realpath(str(path)) for path in (folder, os.devnull, *devices())]
    modules = tuple(limits.modules)

    def hook(event: str, words: tuple[Any, ...]) -> None:
        if event in REFUSED:
            _refuse(f"no access to {REFUSED[event]} here")
        for word in words[: 1 if event == "open" else 2] if event in NAMING else ():
            if isinstance(word, str | bytes | os.PathLike):
                path = os.path.realpath(os.fsdecode(word))
                if within(path, hidden):
                    _refuse(f"no access to {os.path.basename(path)} here")
                if changes(event, words) and not within(path, own):
                    _refuse(f"{os.path.basename(path)} may not be changed here")
        if event == "import" and words and str(words[0]).startswith(modules or ("\0",)):
            _refuse(f"{words[0]} may not be imported here")

    sys.addaudithook(hook)


def within(path: str, others: Sequence[str]) -> bool:
    """Whether a path is one of these files and folders, or lies in one of the folders."""
    return any(path == one or path.startswith(one + os.sep) for one in others)


def changes(event: str, words: tuple[Any, ...]) -> bool:
    """Whether an event about a path changes something there."""
    if event != "open":
        return event not in ("os.listdir", "os.scandir")
    mode, flags = (*words[1:3], None, None)[:2]
    writing = isinstance(mode, str) and bool(set(mode) & set("wax+"))
    return writing or bool(isinstance(flags, int) and flags & WRITING)


_refusals: list[str] = []


def _refuse(why: str) -> NoReturn:
    _refusals.append(why)
    raise Refused(why)


def refusals() -> list[str]:
    """What was refused in this process so far, also where the code went on."""
    return list(_refusals)


def no_network() -> bool:
    """Move to a network without interfaces, where Linux allows every user to."""
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    new_user, new_network = 0x10000000, 0x40000000
    if _libc().unshare(new_user | new_network) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                       ("gid_map", f"{group} {group} 1")):  # fmt: skip
        with contextlib.suppress(OSError):
            Path("/proc/self", name).write_text(text)
    return True


def readable(hidden: Sequence[Path]) -> list[Path]:
    """What any Python program has to read: itself, its libraries, the course's data."""
    root = PACKAGE.parent
    own = [PACKAGE, *(root / name for name in ("classroom", "data", "pyproject.toml"))]
    own += [Path(sys.prefix), Path(sys.base_prefix)]
    own += [Path(entry) for entry in sys.path if "site-packages" in entry]
    # A virtual environment in the checkout is readable, and the checkout is not.
    system = ["usr", "lib", "lib64", "bin", "etc", "sys"]
    system += ["proc/cpuinfo", "proc/meminfo", "proc/stat"]
    return [path for path in (*own, *(Path("/", name) for name in system)) if path not in hidden]


def devices() -> list[Path]:
    """Where a program without files of its own writes."""
    names = ("null", "zero", "full", "random", "urandom")
    return [*(Path("/dev", name) for name in names), Path("/proc/self")]


READ = 0b1101  # Landlock's bits: execute, read a file, read a folder
KNOWN = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF}  # all that each version knows
SCOPED = 6  # the first version that also refuses abstract Unix sockets and signals


def landlock_version() -> int:
    """The version of Landlock that the kernel has; below 1 where it has none."""
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        return 0
    return int(_libc().syscall(444, None, 0, 1))


def only_these(read: Sequence[Path], write: Sequence[Path]) -> list[str]:
    """Let this process open these files and folders only, by Landlock (Linux 5.13 and newer).

    Truncating a file is refused from Linux 6.2 on, signals to other processes from 6.12 on.
    Return what is enforced, in words.
    """
    version = landlock_version()
    if version < 1:
        return []
    libc = _libc()  # which Windows does not have
    known = KNOWN[min(version, 3)]
    scoped = version >= SCOPED
    # Files, ports (none: there is no network), abstract sockets and signals.
    handled = struct.pack("=QQQ", known, 0, 0b11) if scoped else struct.pack("=Q", known)
    rules = libc.syscall(444, handled, len(handled), 0)
    if rules < 0:
        return []
    files = known & 0b100000000000111  # of a file: execute, write, read, truncate
    for paths, allowed in ((read, READ), (write, known)):
        for path in paths:
            if path.exists():
                bits = allowed if path.is_dir() else allowed & files
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
                libc.syscall(445, rules, 1, struct.pack("=Qi", bits, handle), 0)
                os.close(handle)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges: Landlock requires it
    if libc.syscall(446, rules, 0) != 0:
        return []
    signals = ["no signals to other processes (Landlock)"] if scoped else []
    return ["no other files (Landlock)", *signals]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def fingerprint(modules: Sequence[ModuleType]) -> dict[str, int]:
    """Which objects the names of some modules stand for: it changes when somebody patches one."""
    return {
        f"{module.__name__}.{name}": id(value)
        for module in modules
        for name, value in vars(module).items()
        if callable(value) or name.isupper()
    }


# ---- in the parent ------------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818
    """Raised when a child has ended: it used too much, or it ended by itself."""


class Child:
    """A function that runs in a fresh Python of its own, and the pipe to it."""

    running: ClassVar[set["Child"]] = set()
    """The children of all threads."""

    def __init__(
        self,
        target: Callable[..., None],
        *words: Any,
        limits: Limits,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self.limits, self.why = limits, ""
        self.folder = Path(tempfile.mkdtemp(prefix="labkit-"))
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        context = quick_start()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_begin, args=(target, theirs, self.folder, limits, words), daemon=True
        )
        self.process.start()
        theirs.close()
        self.peak = 0
        self.deadline = time.monotonic() + limits.seconds
        self._watch = threading.Thread(target=self._watched, daemon=True)
        self._watch.start()

    def receive(self, seconds: float | None = None, largest: int = LARGEST_MESSAGE) -> bytes:
        """The next message; raises `Stopped`, with the reason, if there is none or a larger one."""
        try:
            # A process that the child has started may hold the pipe after the child's end.
            left = self.deadline - time.monotonic() + 2 if seconds is None else seconds
            if not self.pipe.poll(max(0.0, left)):
                self.why = self.why or f"nothing came for {round(left, 1):g} s"
                self.end()
                raise Stopped(self.why)
            return self.pipe.recv_bytes(largest)
        except (EOFError, OSError) as error:
            if "bad message length" in str(error):
                self.why = f"it sent more than {largest // MB} MB at once"
                self.end()
            self.process.join(5)
            code = self.process.exitcode
            raise Stopped(self.why or f"its process ended by itself (code {code})") from None

    def said(self, seconds: float | None = None, largest: int = LARGEST_MESSAGE) -> dict[str, Any]:
        """The next message as JSON; raises `Stopped` if it is not a JSON object."""
        try:
            found = json.loads(self.receive(seconds, largest))
            if isinstance(found, dict):
                return found
        except (ValueError, RecursionError):
            pass
        self.why = "it sent something that the judge cannot read"
        self.end()
        raise Stopped(self.why)

    def send(self, data: bytes) -> None:
        """Send a message; raises `Stopped` if the child has ended."""
        try:
            self.pipe.send_bytes(data)
        except OSError:
            raise Stopped(self.why or "its process ended by itself") from None

    def _watched(self) -> None:
        import psutil

        while self.process.is_alive():
            with contextlib.suppress(psutil.Error):
                self.peak = max(self.peak, held_by(psutil.Process(self.process.pid)))
            if self.peak > self.limits.memory:
                self.why = f"more than {self.limits.memory // MB:,} MB of memory"
            elif time.monotonic() > self.deadline:
                self.why = f"not done after {self.limits.seconds:g} s"
            if self.why:
                self.end()
                return
            time.sleep(0.1)

    def end(self) -> None:
        """End the child and all that it started."""
        kill_with_children(self.process)

    def __enter__(self) -> "Child":
        self.running.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.running.discard(self)
        self.end()
        self.process.join(10)
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def end_children() -> None:
    """End the children of all threads; a thread that waits for one gets `Stopped`."""
    for child in list(Child.running):
        child.end()


OWN = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "LABKIT_CACHE")


def _begin(
    target: Callable[..., None],
    pipe: Connection,
    folder: Path,
    limits: Limits,
    words: tuple[Any, ...],
) -> None:
    """The child: its own folder for all that it writes, then the shield, then the function."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.setsid()  # the terminal is the lecturer's
    sys.dont_write_bytecode = True
    inherit(kept_variables())
    os.environ.update(dict.fromkeys(OWN, str(folder)), MPLBACKEND="agg", **limits.settings)
    tempfile.tempdir = str(folder)
    # Nobody reads its output, and a file of it would reach its largest size.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.chdir(folder)
    target(pipe, shield(limits, folder), *words)
