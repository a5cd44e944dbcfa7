"""Real processes are killed while they train and while they save; their end is the same bits."""

import re
from pathlib import Path

import copies
from crash import differing_bits

from labkit.keeping.checkpoints import Snapshot, write

KILLS = 50


def test_killed_runs_end_with_the_same_bits() -> None:
    """In a process of its own, since it forks."""
    done = copies.run(["-m", "tests.crash", "--kills", KILLS], cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    kills, inside, resumed, _, kinds, bits = (int(n) for n in re.findall(r"\d+", done.stdout)[:6])
    assert kills >= KILLS
    assert inside >= 5, "some were killed in the middle of a checkpoint"
    assert resumed >= KILLS / 5, "many went on from a checkpoint"
    assert kinds == 6
    assert bits == 0


def test_a_single_bit_is_seen(tmp_path: Path) -> None:
    import torch

    for name, value in (("a", 1.0), ("b", 1.0 + 2**-23)):
        tensors = {"w": torch.tensor([0.5, value])}
        write(tmp_path / name, Snapshot(3, {}, {"weights": tensors}))
    assert differing_bits(tmp_path / "a", tmp_path / "a") == 0
    assert differing_bits(tmp_path / "a", tmp_path / "b") > 1
