"""Files are replaced whole or not at all, whatever happens meanwhile."""

import errno
import os
import stat
import time

import pytest
import torch
from safetensors.torch import load_file

from labkit.keeping import files
from labkit.keeping.files import UNFINISHED, digest, file_digest, save_aligned, save_tensors


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path, monkeypatch):
    """Shared folders of virtual machines have no fsync; what a file's disk refuses counts."""
    flush = os.fsync

    def refusing(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    files.write_text(tmp_path / "a.txt", "half of a pair: \ud800")
    assert (tmp_path / "a.txt").read_text() == "half of a pair: \\ud800"
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.EIO, "")))
    with pytest.raises(OSError, match="Errno 5"):
        files.write_text(tmp_path / "a.txt", "second")


@pytest.mark.skipif(os.name == "nt", reason="links and modes of Windows are others")
def test_a_file_keeps_its_readers_and_a_link_leads_where_it_led(tmp_path):
    (tmp_path / "shared").mkdir()
    there, link = tmp_path / "shared" / "marks.csv", tmp_path / "marks.csv"
    there.write_text("first")
    there.chmod(0o600)
    link.symlink_to(there)
    files.write_text(link, "second")
    assert link.is_symlink()
    assert there.read_text() == "second"
    assert stat.S_IMODE(there.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="links of Windows are others")
@pytest.mark.parametrize("there", [True, False])
def test_of_a_link_to_a_folder_only_the_link_goes(tmp_path, there):
    if there:
        (tmp_path / "away").mkdir()
        (tmp_path / "away" / "kept.txt").touch()
    here = tmp_path / "here"
    here.mkdir()
    (here / "one").symlink_to(tmp_path / "away")
    (here / "two").symlink_to(tmp_path / "away")
    with files.replacing(here / "one", folder=True) as draft:
        (draft / "new.txt").touch()
    files.remove(here / "two")
    assert [path.name for path in here.iterdir()] == ["one"]
    assert [path.name for path in (here / "one").iterdir()] == ["new.txt"]
    assert (tmp_path / "away" / "kept.txt").exists() == there


def test_a_file_is_replaced_or_stays(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "first\n")
    with pytest.raises(KeyboardInterrupt), files.replacing(path) as draft:  # noqa: PT012
        draft.write_text("half")
        raise KeyboardInterrupt
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_bytes() == b"first\n"
    files.write_text(path, "second\n")
    assert path.read_bytes() == b"second\n"


def test_a_folder_is_replaced_whole(tmp_path):
    for text in ("first", "second"):
        with files.replacing(tmp_path / "folder", folder=True) as draft:
            (draft / text).write_text(text)
    assert [one.name for one in (tmp_path / "folder").iterdir()] == ["second"]
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_a_folder_is_deleted_once_the_new_one_has_its_place(tmp_path, monkeypatch):
    path, delete, there = tmp_path / "folder", files._delete, []
    path.mkdir()
    (path / "first").write_text("x")

    def deleting(which):
        there.append((path / "second").exists())
        delete(which)

    monkeypatch.setattr(files, "_delete", deleting)
    with files.replacing(path, folder=True) as draft:
        (draft / "second").write_text("x")
    assert there
    assert all(there)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_everything_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    path, synced = tmp_path / "a", []

    def to_disk(which):
        synced.append((which.name, path.exists()))

    monkeypatch.setattr(files, "to_disk", to_disk)
    with files.replacing(path, folder=True) as draft:
        (draft / "inside").write_text("x")
    names = [name for name, _ in synced]
    assert names[0] == "inside"
    assert names[1].startswith(UNFINISHED)
    assert names[2] == tmp_path.name
    assert [there for _, there in synced] == [False, False, True]


@pytest.mark.skipif(os.name == "nt", reason="there is no umask on Windows")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_any_new_file(tmp_path, umask):
    """safetensors writes files that only the owner reads: a class could not share a cache."""
    before = os.umask(umask)
    try:
        with files.replacing(tmp_path / "a.safetensors") as draft:
            save_tensors(draft, {"w": torch.ones(2)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o666 & ~umask


def test_what_a_killed_process_left_goes_after_a_day(tmp_path):
    left, fresh = tmp_path / f"{UNFINISHED}x-1", tmp_path / f"{UNFINISHED}x-2"
    for path in (left, fresh):
        path.mkdir()
        (path / "inside").write_text("x")
    for path in (left / "inside", left):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    files.write_text(tmp_path / "a", "text")
    assert not left.exists(), "nobody writes there any more"
    assert fresh.exists(), "another process may be writing there"


def test_a_full_disk_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        save_tensors(tmp_path / "missing" / "a.safetensors", {"w": torch.ones(2)})


def test_tensors_begin_where_a_product_rounds_as_in_memory(tmp_path):
    tensors = {
        "a": torch.arange(7.0), "b": torch.tensor(3), "c": torch.randn(3, 5).T,
        "d": torch.ones(0, 2), "e": torch.randn(16, 8), "f": torch.ones(65, dtype=torch.bfloat16),
    }  # fmt: skip
    save_aligned(tensors, tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name][: tensor.numel()].view(tensor.shape), tensor)
        assert found[name].data_ptr() % 64 == 0


def test_digests(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 2**13)  # more than one piece
    assert file_digest(path) == digest(path.read_bytes())
    assert digest(b"ab", b"c") == digest(b"abc") != digest(b"abd")


def test_a_text_file_is_read_up_to_a_limit(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert files.read_text(path, 8) == "café"
    with pytest.raises(ValueError, match=r"a\.txt has 8 bytes: at most 7 are read"):
        files.read_text(path, 7)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a\.txt is not UTF-8 text \(byte 4\)"):
        files.read_text(path, 8)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*b\.txt"):
        files.read_text(tmp_path / "b.txt", 8)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
def test_what_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", files.Path("/dev/zero"), tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            files.read_text(path, 8)
