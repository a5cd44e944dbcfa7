"""Checkpoints: every kind of damage is noticed, and what was whole before it is still found."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import copies
import pytest
import torch

from labkit.keeping.checkpoints import (
    MANIFEST,
    BrokenCheckpointError,
    Saver,
    Snapshot,
    copied,
    listed,
    newest,
    read_checkpoint,
    sweep,
    write,
)


def snapshot(step: int) -> Snapshot:
    generator = torch.Generator().manual_seed(step)
    weights = {f"w{i}": torch.randn(4, i + 1, generator=generator) for i in range(3)}
    state = {"mean": torch.rand(5, generator=generator), "step": torch.tensor(float(step))}
    facts = {"plan": {"steps": 10}, "notes": {"losses": [1.0 / (step + 1)]}}
    return Snapshot(step, facts, {"weights": weights, "optimizer": state})


def same(a: Snapshot, b: Snapshot) -> bool:
    return (a.step, a.facts, a.tensors.keys()) == (b.step, b.facts, b.tensors.keys()) and all(
        a.tensors[file].keys() == b.tensors[file].keys()
        and all(torch.equal(a.tensors[file][n], b.tensors[file][n]) for n in a.tensors[file])
        for file in a.tensors
    )


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    for step in (0, 7, 123_456_789):
        assert same(read_checkpoint(write(tmp_path, snapshot(step))), snapshot(step))
    found = newest(tmp_path)
    assert found.snapshot is not None
    assert found.snapshot.step == 123_456_789
    assert found.skipped == ()


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert newest(tmp_path / "nowhere") == (None, None, ())
    (tmp_path / "step-x").mkdir()
    assert newest(tmp_path) == (None, None, ())


# Each kind of damage changes the checkpoint at `path`; `older` is a whole one of an earlier step.
Damage = Callable[[random.Random, Path, Path], None]


def some_file(chance: random.Random, path: Path) -> Path:
    return chance.choice(sorted(path.iterdir()))


def truncate(chance: random.Random, path: Path, older: Path) -> None:
    file = some_file(chance, path)
    os.truncate(file, chance.randrange(file.stat().st_size))


def flip_a_bit(chance: random.Random, path: Path, older: Path) -> None:
    file = some_file(chance, path)
    raw = bytearray(file.read_bytes())
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    file.write_bytes(raw)


def zero_a_stretch(chance: random.Random, path: Path, older: Path) -> None:
    """What a lost page of the disk looks like."""
    file = some_file(chance, path)
    raw = bytearray(file.read_bytes())
    place = next(i for i in range(chance.randrange(len(raw)), -1, -1) if raw[i] != 0)
    raw[place : place + 64] = bytes(len(raw[place : place + 64]))
    file.write_bytes(raw)


def delete_a_file(chance: random.Random, path: Path, older: Path) -> None:
    some_file(chance, path).unlink()


def empty_a_file(chance: random.Random, path: Path, older: Path) -> None:
    some_file(chance, path).write_bytes(b"")


def lengthen(chance: random.Random, path: Path, older: Path) -> None:
    with some_file(chance, path).open("ab") as file:
        file.write(chance.randbytes(chance.randint(1, 100)))


def swap_two_files(chance: random.Random, path: Path, older: Path) -> None:
    a, b = chance.sample(sorted(path.iterdir()), 2)
    a_raw, b_raw = a.read_bytes(), b.read_bytes()
    a.write_bytes(b_raw)
    b.write_bytes(a_raw)


def take_a_file_of_another_step(chance: random.Random, path: Path, older: Path) -> None:
    name = some_file(chance, path).name
    shutil.copy(older / name, path / name)


def become_another_step(chance: random.Random, path: Path, older: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(older, path)


def put_a_foreign_file(chance: random.Random, path: Path, older: Path) -> None:
    foreign = chance.choice([b"hello", b"{}", b"[]", b"null", b"\x80\x04N.", chance.randbytes(99)])
    some_file(chance, path).write_bytes(foreign)


def folder_for_file(chance: random.Random, path: Path, older: Path) -> None:
    file = some_file(chance, path)
    file.unlink()
    file.mkdir()


def empty_the_folder(chance: random.Random, path: Path, older: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def file_for_folder(chance: random.Random, path: Path, older: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(chance.randbytes(10))


DAMAGES: list[Damage] = [
    truncate, flip_a_bit, zero_a_stretch, delete_a_file, empty_a_file, lengthen, swap_two_files,
    take_a_file_of_another_step, become_another_step, put_a_foreign_file, folder_for_file,
    empty_the_folder, file_for_folder,
]  # fmt: skip
CASES_EACH = 30


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_damage_is_noticed_and_the_one_before_is_taken(
    damage: Damage, tmp_path: Path
) -> None:
    """30 cases of each of 13 kinds: 390 damaged folders, of which none may be trusted."""
    whole = tmp_path / "whole"
    older, newer = write(whole, snapshot(5)), write(whole, snapshot(9))
    for case in range(CASES_EACH):
        folder = tmp_path / f"{case}"
        shutil.copytree(whole, folder)
        damage(random.Random(case), folder / newer.name, folder / older.name)
        found = newest(folder)
        assert found.snapshot is not None
        assert same(found.snapshot, snapshot(5)), f"case {case}: the damage went unnoticed"
        (reason,) = found.skipped
        assert reason.startswith(f"{newer.name}: "), "it says which one and why"
        write(folder, snapshot(9))
        assert newest(folder).skipped == (), "a broken one is replaced by the next of its step"


def test_the_damages_are_at_least_300() -> None:
    assert len(DAMAGES) * CASES_EACH >= 300


def test_a_mutant_that_does_not_look_at_checksums_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damages above are real: without checksums, a flipped bit would be trained on."""
    from labkit.keeping.files import digest

    path = write(tmp_path, snapshot(5))
    file = path / "weights.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(BrokenCheckpointError, match="checksum"):
        read_checkpoint(path)
    monkeypatch.setattr(
        "labkit.keeping.checkpoints.digest",
        lambda data: digest(
            data if not data.endswith(raw[-8:]) else bytes([*raw[:-1], raw[-1] ^ 1])
        ),
    )
    assert not same(read_checkpoint(path), snapshot(5))


def test_a_manifest_cannot_point_elsewhere(tmp_path: Path) -> None:
    import json

    from labkit.keeping.checkpoints import _manifest

    path = write(tmp_path, snapshot(5))
    content = json.loads((path / MANIFEST).read_bytes())["content"]
    content["files"]["../secret"] = content["files"].pop("weights.safetensors")
    (path / MANIFEST).write_bytes(_manifest(content))
    with pytest.raises(BrokenCheckpointError, match="not a file of this folder"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("step", "5"), ("step", -1), ("facts", None), ("files", ["weights.safetensors"]),
     ("files", {"weights.safetensors": {"bytes": "many", "sha256": "0"}})],
)  # fmt: skip
def test_a_manifest_that_somebody_wrote_by_hand_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    import json

    from labkit.keeping.checkpoints import _manifest

    path = write(tmp_path, snapshot(5))
    content = json.loads((path / MANIFEST).read_bytes())["content"]
    (path / MANIFEST).write_bytes(_manifest({**content, field: value}))
    with pytest.raises(BrokenCheckpointError, match="lacks step, facts or files"):
        read_checkpoint(path)


def test_the_last_good_ones_are_kept(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        saver.save(snapshot(step))
    saver.wait()
    assert [path.name for path in listed(tmp_path)] == ["step-00000003", "step-00000004"]


def test_old_ones_stay_until_enough_are_known_to_be_whole(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path, snapshot(step))
    saver = Saver(tmp_path, keep=2)
    saver.save(snapshot(3))
    saver.wait()
    assert len(listed(tmp_path)) == 3, "nobody has looked at 1 and 2, so they are not counted"
    saver.save(snapshot(4))
    saver.wait()
    assert [path.name for path in listed(tmp_path)] == ["step-00000003", "step-00000004"]


def test_training_may_change_the_tensors_while_they_are_written(tmp_path: Path) -> None:
    weight = torch.zeros(1000)
    saver = Saver(tmp_path, keep=1)
    saver.save(Snapshot(1, {}, {"weights": {"weight": copied(weight)}}))
    weight += 1
    saver.wait()
    found = newest(tmp_path).snapshot
    assert found is not None
    assert not found.tensors["weights"]["weight"].any()


FULL_DISK = """
import resource, sys, warnings, torch
from pathlib import Path
from labkit.keeping.checkpoints import Saver, Snapshot, newest
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
saver = Saver(folder, keep=2)
def shot(step, size):
    return Snapshot(step, {}, {"weights": {"weight": torch.full((size,), float(step))}})
saver.save(shot(1, 100)); saver.wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for step in (2, 3):
    saver.save(shot(step, 10_000))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        saver.wait()
    (warning,) = heard
    assert "step-00000001" in str(warning.message) and "make room" in str(warning.message)
    assert newest(folder).snapshot.step == 1
    assert [p.name for p in folder.iterdir()] == ["step-00000001"], "no rubbish is left behind"
saver.save(shot(4, 10)); saver.wait()
assert newest(folder).snapshot.step == 4, "it goes on as soon as there is room"
print("survived")
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """The kernel refuses to write more than 20,000 bytes to a file, as a full disk would."""
    done = copies.run(["-c", FULL_DISK, tmp_path])
    assert done.stdout == "survived\n", done.stderr


def test_a_write_that_fails_at_any_moment_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call to the disk fails once: before the rename nothing new is seen, after it all is."""
    calls = {"left": 0}
    real = os.fsync

    def failing(handle: int) -> None:
        calls["left"] -= 1
        if calls["left"] == 0:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    calls["left"] = -1
    write(tmp_path, snapshot(1))
    for moment in range(1, 6):
        calls["left"] = moment
        with pytest.raises(OSError, match="No space"):
            write(tmp_path, snapshot(2))
        found = newest(tmp_path)
        assert found.skipped == ()
        assert found.snapshot is not None
        assert found.snapshot.step == (2 if moment == 5 else 1)
        assert not list(tmp_path.glob(".unfinished*"))


def test_what_a_crash_left_is_swept_away(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    (tmp_path / ".unfinished-step-00000002-17").mkdir()
    assert newest(tmp_path).skipped == (), "an unfinished one is never taken for a checkpoint"
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
