"""A language that was compiled before is the same language, whatever happened to its file."""

import mmap
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from labkit.keeping import cache
from labkit.world import World, compiled, load_world
from labkit.world.builder import compile_grammar
from labkit.world.grammar import Location
from labkit.world.machine import Machine
from labkit.world.memory import Family


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.delenv("LABKIT_CACHE_SHARED", raising=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a language that is compiled in no time, and is kept as a large one is."""
    village = load_world("village")
    monkeypatch.setattr(compiled, "LARGE", 0)
    return village


def alike(one: Any, other: Any) -> bool:
    """Whether two machines, or two parts of machines, hold the same."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Machine | Family):
        return vars(one).keys() == vars(other).keys() and all(
            alike(value, vars(other)[name]) for name, value in vars(one).items()
        )
    if isinstance(one, list | tuple):
        parts = zip(one, other, strict=True)
        return type(one) is type(other) and all(alike(a, b) for a, b in parts)
    return type(one) is type(other) and one == other


def kept_files() -> list[Path]:
    return [path for path, _ in cache.files()]


def test_what_was_kept_is_what_is_compiled(world: World) -> None:
    made = compiled.compiled(world.grammar)
    with patch.object(compiled, "compile_grammar", side_effect=AssertionError("again")):
        found = compiled.compiled(world.grammar)
    [path] = kept_files()
    assert path.name.startswith("language-")
    assert alike(made, found)
    assert alike(found, compile_grammar(world.grammar, new_forms=False))
    # A number more or less in one array is noticed.
    found.emission = found.emission + (np.arange(found.states) == 9)
    assert not alike(made, found)


def test_its_arrays_are_mapped_and_cannot_be_changed(world: World) -> None:
    compiled.compiled(world.grammar)
    found = compiled.compiled(world.grammar)
    for array in (found.emission, found.entries.state, found._position, found.turned.weight):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0
        while isinstance(array, np.ndarray):
            array = array.base  # type: ignore[assignment]
        assert isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


def test_a_damaged_file_is_compiled_again(small: World, capsys: pytest.CaptureFixture[str]) -> None:
    made = compiled.compiled(small.grammar)
    [path] = kept_files()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert alike(compiled.compiled(small.grammar), made)
    assert "its content is not what was written" in capsys.readouterr().err
    assert len(kept_files()) == 2  # the sound one, and the damaged one that was set aside


def test_another_language_or_another_code_has_another_file(small: World) -> None:
    compiled.compiled(small.grammar)
    with patch.object(compiled, "code", lambda: b"changed"):
        compiled.compiled(small.grammar)
    another = replace(small.grammar, held_out={"oak": Location("village.txt", 1)})
    assert compiled.compiled(another).vocabulary == small.vocabulary
    assert len({path.name.partition(".")[0] for path in kept_files()}) == 3


@pytest.mark.parametrize(
    ("module", "name"), [(platform, "python_version"), (np, "__version__")], ids=("python", "numpy")
)
def test_what_another_version_compiled_is_not_found(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.12 on `sum` rounds less, and the weights of the language differ."""
    before = compiled.code.__wrapped__()
    monkeypatch.setattr(
        module, name, "0" if isinstance(getattr(module, name), str) else lambda: "0"
    )
    assert compiled.code.__wrapped__() != before


def test_small_languages_are_not_kept() -> None:
    village = load_world("village")
    assert alike(compiled.compiled(village.grammar), compile_grammar(village.grammar, False))
    assert not kept_files()


def test_without_a_cache_it_is_compiled_in_silence(
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    assert compiled.compiled(small.grammar).states == small.machine.states
    assert not capsys.readouterr().err
