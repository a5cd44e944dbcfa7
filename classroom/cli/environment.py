"""Set up `.venv` in the checkout, with nothing but the standard library.

A stamp in `.venv` records the pyproject.toml, constraints.txt and Python that it was made from, so
a second call only compares two hashes.  Each thing that is missing gets an error of one line.
"""

import contextlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from classroom.cli.parser import Parser, fail
from labkit.keeping.files import digest
from labkit.keeping.paths import checkout

EXTRAS = "lab,lecture,dev,hub,cluster,real,text,bleu"
INPUTS = ("pyproject.toml", "setup.py", "constraints.txt")
# The versions that all packages of constraints.txt have wheels for.
VERSIONS = ("3.15", "3.14", "3.13", "3.12", "3.11")
# The release of torch that is pinned, by the first version of Python that gets it.
TORCH = (("3.11", "2.13.0"), ("3.15", "2.15.0"))
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
# What a lesson in JupyterLab imports.
IMPORTED = ("torch", "matplotlib.pyplot", "ipykernel.kernelapp", "ipywidgets", "jupyterlab.labapp",
            "nbconvert", "classroom.demos", "classroom.exercises")  # fmt: skip
NETWORK_SIGNS = (
    "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ProxyError",
    "NameResolutionError", "ConnectionResetError", "Connection refused", "Network is unreachable",
)  # fmt: skip
# pip's messages when an index has no package for this machine or this Python, such as a new one.
LACKING = re.compile(
    r"no matching distributions available for your environment:\s+(\S+)"
    r"|No matching distribution found for (\S+)"
)

# Stored outputs and tests run under the same settings: one thread, since more threads add up in
# another order (and two processes of one thread are faster than one of two), without the hub, and
# without a message about what another notebook is computing.
REPEATABLE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
              "LABKIT_QUIET": "1"}  # fmt: skip

# Many images of containers set this variable, and each process then compiles torch anew: 5 s.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


class SetupError(Exception):
    """Something that the machine lacks: one line, with the remedy."""


def checkout_of(what: str) -> Path:
    """Return the root of the checkout, or leave with one line: `what` belongs to one."""
    root = checkout()
    if root is None:
        fail(f"{what} to a checkout, and this is an installed package")
    return root


def venv_python(root: Path, folder: str = ".venv") -> Path:
    """Return the path of the checkout's own Python, which may not exist yet."""
    return root / folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ready_python(here: bool, folder: str = ".venv") -> str:
    """Return the Python to run with: this one, or the checkout's own, set up first."""
    root = checkout()
    if here or root is None:
        return sys.executable
    try:
        return str(prepare(root, folder))
    except SetupError as error:
        fail(str(error), code=1)


def become(command: list[str]) -> int:
    """Become another program, which then gets Ctrl-C itself; on Windows, wait for it instead."""
    if os.name == "nt":
        return subprocess.call(command)
    sys.stdout.flush()
    os.execv(command[0], command)


def stamp(root: Path) -> str:
    """Return what `.venv` depends on, as a hash: the inputs, this Python and the place."""
    inputs = ((root / name).read_bytes() for name in INPUTS)
    return digest(f"{sys.version}|{root}".encode(), *inputs)


def prepare(root: Path, folder: str = ".venv") -> Path:
    """Return the checkout's own Python, after installing what is missing or out of date."""
    python, mark = venv_python(root, folder), root / folder / "labkit-stamp.txt"

    def is_ready() -> bool:
        # A Python that this user may not run does not count.
        return os.access(python, os.X_OK) and mark.is_file() and mark.read_text() == stamp(root)

    if is_ready():
        return python
    if not os.access(root, os.W_OK):
        raise SetupError(
            f"{root} cannot be written, so there is no place for {folder}: copy the "
            "course to a folder of your own, or use the packages of this Python with --here"
        )
    with alone(root / f"{folder}.lock"):
        if is_ready():  # another command has just set it up
            return python
        print(f"Setting up {folder} (about 2 GB; a few minutes, this once) ...", flush=True)
        create(root / folder, python)
        mark.unlink(missing_ok=True)
        log = root / folder / "install.log"
        log.write_text("")
        pip = [str(python), "-m", "pip", "install"]
        install([*pip, "--upgrade", "pip", "setuptools"], root, log)
        install([*pip, "--no-compile", "--no-build-isolation", "-e", f".[{EXTRAS}]"], root, log)
        import_once(python, log)
        mark.write_text(stamp(root))
    return python


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait for the lock on this file; the system releases a command's lock when it ends."""
    with path.open("w") as lock:
        if not taken(lock):
            print(f"Another command is setting up {path.stem}: waiting for it ...", flush=True)
            while not taken(lock):
                time.sleep(1)
        yield


def taken(lock: TextIO) -> bool:
    """Lock an open file, unless another process has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # on Linux and macOS, and on Windows
        return False
    return True


def create(folder: Path, python: Path) -> None:
    """Make an empty virtual environment, unless this Python already made one there."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"this Python has no module {missing[0]}, so it cannot make .venv: install it (Debian, "
            f"Ubuntu: apt-get install python{THIS}-venv) and run the same command again"
        )
    if python.exists():
        found = subprocess.run(
            # Without pip, an earlier run of venv was interrupted.
            [str(python), "-c", "import pip._internal.cli.main, sys; print(sys.version)"],
            capture_output=True,
            text=True,
        )
        if found.stdout.strip() == sys.version.strip():
            return
    base = getattr(sys, "_base_executable", sys.executable)
    made = subprocess.run(
        [base, "-m", "venv", "--clear", str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        said = (made.stdout + made.stderr).strip().splitlines() or ["no reason given"]
        raise SetupError(
            f"{base} -m venv failed ({said[-1]}): install the venv module of Python {THIS} "
            "(or free some disk space) and run the same command again"
        )


def install(command: Sequence[str], root: Path, log: Path) -> None:
    """Run one pip command under the constraints, writing its output to the log."""
    flags = ["--progress-bar", "off", "--retries", "2", "--disable-pip-version-check"]
    flags += ["-c", str(root / "constraints.txt")]
    lines: list[str] = []
    # One package name per line is enough to show progress; the rest is in the log.
    with (
        log.open("a", encoding="utf-8") as record,
        subprocess.Popen(
            [*command, *flags],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            record.write(line)
            lines.append(line.strip())
            if sys.stdout.isatty() and line.startswith(("Collecting", "Installing")):
                print(f"\r\033[K  {line.strip()[:70]}", end="", flush=True)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if pip.returncode:
        raise SetupError(diagnosis(lines, log))


def import_once(python: Path, log: Path) -> None:
    """Import what lessons need, to compile it for all users and to see that it works.

    To compile all that pip has installed would take a minute, and most of it is never imported.
    """
    done = subprocess.run(
        [str(python), "-c", f"import {', '.join(IMPORTED)}"],
        env={**os.environ, **COMPILED}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        with log.open("a", encoding="utf-8") as record:
            record.write(done.stderr)
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SetupError(f"the packages are installed but do not work ({last}): see {log}")


def diagnosis(lines: Sequence[str], log: Path) -> str:
    """Say in one line why pip failed and what to do."""
    text = "\n".join(lines)
    if "No space left on device" in text:
        return f"the disk is full: .venv needs about 2 GB in {log.parent.parent}; free some space"
    if any(sign in text for sign in NETWORK_SIGNS):
        return (
            "the package index cannot be reached: connect to the network (behind a proxy, set "
            "HTTPS_PROXY; an index of your own: PIP_INDEX_URL) and run the same command again; "
            "a .venv that worked before still works: run its Python with `-m labkit lab --here`"
        )
    lacking = LACKING.search(text)
    if lacking:
        remedy = (
            "docs/student.md names other ways to open the course"
            if THIS in VERSIONS
            else f"use Python {VERSIONS[-1]} to {VERSIONS[0]}, as in `make lab "
            f"PYTHON=python{VERSIONS[1]}` (on Windows `py -{VERSIONS[1]} -m labkit lab`)"
        )
        return (
            f"pip finds no {lacking[1] or lacking[2]} package for Python {THIS} on this "
            f"machine ({platform.system()} {platform.machine()}): {remedy}; details are in {log}"
        )
    errors = [line for line in lines if line.startswith("ERROR")] or ["no reason given"]
    return f"pip could not install the packages ({errors[0]}): see {log} for details"


def pins(parser: Parser, words: Sequence[str]) -> int:
    """Write constraints.txt: the newest version of each package, direct or indirect."""
    parser.parse_args(words)
    root = checkout_of("labkit pins: constraints.txt belongs")
    if importlib.util.find_spec("pip") is None:
        fail(f"labkit pins: pip is not installed in {sys.executable}: `make lab` sets up .venv, "
             "whose Python has it")  # fmt: skip
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = ["pip", *project["dependencies"]]
    wanted += [word for extra in project["optional-dependencies"].values() for word in extra]
    lines = with_markers({python: resolved(wanted, python, torch) for python, torch in TORCH})
    text = "# Written by `make pins`: the exact versions that the tests run with.\n"
    (root / "constraints.txt").write_text(text + "\n".join(lines) + "\n")
    print(f"constraints.txt: {len(lines)} lines")
    return 0


def resolved(wanted: Sequence[str], python: str, torch: str) -> dict[str, str]:
    """The versions of packages, and of all that they need, for one version of Python."""
    with tempfile.TemporaryDirectory() as folder:
        only_torch, report = Path(folder, "torch.txt"), Path(folder, "report.json")
        # Named exactly, torch resolves to a build that needs no CUDA packages where there is one.
        only_torch.write_text(f"torch=={torch}\n")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), "-c", str(only_torch)]
        # The pins must also hold for the first release of that Python, not only for this one.
        command += ["--python-version", python, "--only-binary", ":all:"]
        command += ["--target", folder, *wanted]  # pip requires it, but writes nothing there
        if subprocess.call(command):
            fail("labkit pins: pip could not resolve the versions; it says why above", code=1)
        install = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {item["metadata"]["name"]: item["metadata"]["version"] for item in install}
    # A local version such as 2.13.0+cpu is this machine's build of a release: pin the release.
    # A CUDA build of torch itself requires exact versions of the CUDA packages.
    return {name: version.split("+")[0] for name, version in found.items()
            if not name.startswith(("cuda-", "nvidia-", "triton"))}  # fmt: skip


def with_markers(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The lines of constraints.txt, from the versions of packages by the oldest Python for them."""
    lines, oldest = [], next(iter(found))
    for name in sorted({name for versions in found.values() for name in versions}, key=str.lower):
        versions = [versions.get(name) for versions in found.values()]
        if len(set(versions)) == 1:
            lines.append(f"{name}=={versions[0]}")
            continue
        for version, since, until in zip(versions, found, [*list(found)[1:], ""], strict=True):
            limits = []
            if since != oldest:
                limits.append(f'python_version >= "{since}"')
            if until:
                limits.append(f'python_version < "{until}"')
            if version:
                lines.append(f"{name}=={version}; {' and '.join(limits)}")
    return lines
