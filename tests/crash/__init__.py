"""Kill training at any moment, resume it, and compare its end with a run that was left alone.

    python -m tests.crash --kills 200

The parent has imported everything and forks; each child is a real process that trains, saves and
is ended by SIGKILL: at a random time, or by itself just before or after a random call to the disk,
which is in the middle of a checkpoint. What remains of a run is the bytes of its last checkpoint.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from labkit.keeping import checkpoints
from labkit.plan import Plan
from labkit.trainer import Trainer

from .tiny import Case, cases

STEPS, SAVE_EVERY = 12, 3
# Calls to the disk in one checkpoint, roughly: kills fall into the first two or three of a life.
DISK_CALLS = 50


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    writing: int = 0
    """Kills that left an unfinished checkpoint behind."""
    runs: int = 0
    resumed: int = 0
    """Lives that went on from a checkpoint and not from the beginning."""
    different: int = 0
    """Bits of last checkpoints that differ from those of the run that was left alone."""
    names: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"kills: {self.kills} ({self.writing} of them inside a checkpoint) · "
            f"resumed from a checkpoint: {self.resumed} · runs: {self.runs} "
            f"of {len(self.names)} kinds · differing bits: {self.different}"
        )


def train(case: Case, folder: Path) -> None:
    """Train to the end, from wherever the folder says."""
    torch.set_num_threads(1)
    plan = {"steps": STEPS, "rate": 1e-2, "seed": 3, "save_every": SAVE_EVERY, **case.plan}
    for _ in Trainer(case.model(0), case.objective, case.text, Plan(**plan)).resume(folder):
        pass


def child(work: Callable[[], None]) -> int:
    """Begin a process that does the work, without a word; give its number."""
    number = os.fork()
    if number:
        return number
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def ended(number: int, seconds: float | None = None) -> bool:
    """Wait for a process, at most so long, then kill it; whether it came to its end alive."""
    if seconds is not None:
        time.sleep(seconds)
        os.kill(number, signal.SIGKILL)
    status = os.waitpid(number, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a run failed with exit code {os.WEXITSTATUS(status)}")
    return os.WIFEXITED(status)


def suicidal(work: Callable[[], None], calls: int, after: bool) -> Callable[[], None]:
    """The same work by a process that kills itself at a call to the disk."""
    left = [calls]

    def armed(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*given, **named)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    def run() -> None:
        os.fsync = armed(os.fsync)
        os.open = armed(os.open)
        shutil.rmtree = armed(shutil.rmtree)  # type: ignore[assignment]
        Path.rename = armed(Path.rename)  # type: ignore[method-assign]
        checkpoints.save_tensors = armed(checkpoints.save_tensors)
        work()

    return run


def differing_bits(a: Path, b: Path) -> int:
    """How many bits of the last checkpoints of two folders differ."""
    found = 0
    ours, theirs = (checkpoints.listed(folder)[-1] for folder in (a, b))
    for name in {path.name for path in (*ours.iterdir(), *theirs.iterdir())}:
        one, other = (
            (each / name).read_bytes() if (each / name).exists() else b"" for each in (ours, theirs)
        )
        size = max(len(one), len(other))
        both = (int.from_bytes(raw.ljust(size, b"\0"), "big") for raw in (one, other))
        found += (next(both) ^ next(both)).bit_count() + 8 * abs(len(one) - len(other))
    return found


def harness(folder: Path, kills: int, seed: int = 0) -> Tally:
    """Kill runs of every kind until so many kills are done and each run has come to its end."""
    chance, tally, known = random.Random(seed), Tally(), cases()
    lasts: dict[str, float] = {}
    while tally.kills < kills or len(tally.names) < len(known):
        name = sorted(known)[tally.runs % len(known)]
        alone = folder / f"{name}, alone"
        if name not in lasts:
            begun = time.monotonic()
            ended(child(lambda case=known[name], at=alone: train(case, at)))
            lasts[name] = time.monotonic() - begun
        place = folder / f"{name}, {tally.runs}"
        survive(known[name], place, lasts[name], chance, tally, kills)
        tally.runs += 1
        tally.names.add(name)
        tally.different += differing_bits(alone, place)
        shutil.rmtree(place)
    return tally


def survive(
    case: Case, place: Path, lasts: float, chance: random.Random, tally: Tally, kills: int
) -> None:
    """One run, killed again and again until it comes to its end."""

    def work() -> None:
        train(case, place)

    while True:
        tally.resumed += any(path.name != "step-00000000" for path in checkpoints.listed(place))
        if tally.kills >= kills:
            alive = ended(child(work))
        elif chance.random() < 0.5:
            alive = ended(child(work), chance.uniform(0, lasts))
        else:
            calls, after = chance.randint(1, DISK_CALLS), chance.random() < 0.5
            alive = ended(child(suicidal(work, calls, after)))
        if alive:
            return
        tally.kills += 1
        tally.writing += any(place.glob(".unfinished*"))


def main(kills: int, folder: Path, seed: int) -> int:
    """Print what happened; the exit code says whether a bit differs."""
    begun = time.monotonic()
    tally = harness(folder, kills, seed)
    print(f"{tally} · {time.monotonic() - begun:.0f} s")
    sys.stdout.flush()
    return 1 if tally.different else 0
