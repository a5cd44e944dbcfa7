"""Random inputs, most of them damaged: each gives a right answer or one line that names the fault.

    python -m labkit bench fuzz                         10,000 inputs of each kind
    python -m labkit bench fuzz weights --count 500     some of one kind
    python -m labkit bench fuzz weights --only 123      one input again, with its traceback

Every input is a function of its kind and number. They run in a process of their own, whose memory
is limited and which is ended when one input takes too long: a hang, an abort and a panic are found
like any other fault.
"""

import contextlib
import linecache
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (str(ROOT / "labkit"), str(ROOT / "classroom"))
SECONDS = 20  # for one input, on a machine that does other things, too
LONGEST_MESSAGE = 1000

Attempt = Callable[[random.Random, Path], None]
"""Makes an input from random numbers in an empty folder and uses it; asserts what comes of it."""


class Fault(NamedTuple):
    """An input that gave neither a right answer nor an error of ours."""

    kind: str
    number: int
    what: str


def is_ours(error: BaseException) -> bool:
    """Whether an error was raised by a line of ours, for a caller to read, and is one line."""
    if not isinstance(error, ValueError | FileNotFoundError) or isinstance(error, UnicodeError):
        return False
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    path = frame.f_code.co_filename
    raised = linecache.getline(path, line).strip().startswith("raise")
    text = str(error)
    short = 0 < len(text) <= LONGEST_MESSAGE and "\n" not in text.strip("\n")
    return path.startswith(PACKAGES) and raised and short


def try_one(kind: str, number: int, attempt: Attempt) -> Fault | None:
    """Run one input."""
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="labkit-fuzz-") as folder:
            attempt(random.Random(f"{kind} {number}"), Path(folder))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        if not is_ours(error):
            text = " ".join(str(error).split())[:200]
            return Fault(kind, number, f"{type(error).__name__}: {text}")
    seconds = time.perf_counter() - start
    return Fault(kind, number, f"{seconds:.0f} seconds") if seconds > SECONDS else None


# ---- a process of its own


def run(kinds: Iterable[str], numbers: range, gigabytes: float = 2) -> list[Fault]:
    """Run many inputs in a process of their own; one that dies loses one input and is replaced."""
    faults: list[Fault] = []
    jobs = [(kind, number) for kind in kinds for number in numbers]
    while jobs:
        found, done = _in_a_child(jobs, gigabytes)
        faults += found
        jobs = jobs[done:]
    return faults


def _in_a_child(jobs: Sequence[tuple[str, int]], gigabytes: float) -> tuple[list[Fault], int]:
    """Run inputs until all are done or the process dies; say how many were begun."""
    command = [sys.executable, "-m", "tests.fuzz", "--child", str(gigabytes)]
    found, begun = [], 0
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as told,
        tempfile.TemporaryFile("w+", encoding="utf-8") as asked,
    ):
        asked.write("\n".join(f"{kind} {number}" for kind, number in jobs))
        asked.seek(0)
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=asked, stdout=told, stderr=subprocess.DEVNULL
        )
        ended = _wait(child, told)
        told.seek(0)
        for line in told.read().splitlines():
            if line == "begin":
                begun += 1
            elif line.startswith("fault "):
                found.append(Fault(*jobs[begun - 1], line.removeprefix("fault ")))
    if begun < len(jobs) or ended != 0:
        begun = max(begun, 1)
        how = "a hang" if ended is None else f"the process died with {ended}"
        found.append(Fault(*jobs[begun - 1], how))
    return found, begun


def _wait(child: "subprocess.Popen[bytes]", told: Any) -> int | None:
    """Wait for a process as long as it begins new inputs; None if it had to be ended."""
    size, since = 0, time.monotonic()
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        now = Path(f"/proc/self/fd/{told.fileno()}").stat().st_size if _LINUX else size + 1
        if now != size:
            size, since = now, time.monotonic()
        # The first input comes after the imports.
        if time.monotonic() - since > SECONDS + (60 if size == 0 else 0):
            child.kill()
            child.wait()
            return None
    return child.returncode


_LINUX = sys.platform.startswith("linux")


# ---- hostile values

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 256, 2**31 - 1, 2**31, 2**32, 2**63, -(2**63), 10**9,
    10**30, 0.5, 1.5, -0.0, 1e-38, 1e-40, 1e308, math.nan, math.inf, -math.inf,
    "", "a", " ", "[UNK]", "[MASK]", "\u2028", "\ufeff", "a" * 500, "☃", "1", "nan",
    [], [[]], {}, {"a": 1}, [1, 2], ["a"],
)  # fmt: skip
PIECES = (
    b"", b"\x00", b"\xff", b"\n", b"\r", b'"', b",", b"\t", b"[", b"{", b"(", b"9", b"-", b"NaN",
    b"\xe2\x80\xa8", b"\x0c", b"\xef\xbb\xbf", b"1e999", b"[" * 3000,
)  # fmt: skip


def changed(value: Any, rng: random.Random) -> Any:
    """A JSON value with one part replaced, removed, doubled or moved."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return value | {rng.choice(("", "extra", "type", "☃")): rng.choice(VALUES)}
            case 2:
                return value | {key: value[rng.choice(list(value))]}
            case _:
                return value | {key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        new = changed(value[at], rng)
        part = rng.choice(([], [new], [new], [value[at]] * 2, [rng.choice(VALUES)]))
        return [*value[:at], *part, *value[at + 1 :]]
    return rng.choice(VALUES)


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """Bytes of which some are changed, removed, inserted or repeated."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(raw) + 1)
        until = min(len(raw), at + rng.choice((1, 1, 8, 1000)))
        piece = rng.choice((*PIECES, raw[at:until] * 2, bytes([rng.randrange(256)])))
        raw = raw[:at] + piece + raw[rng.choice((at, until)) :]
    return raw
