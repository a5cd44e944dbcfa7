"""The comparison of stored outputs sees a wrong number, and lets pass what differs by machine."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from classroom.cli.notebooks import normalised
from classroom.cli.suite import MORE
from classroom.demos import recording

ROOT = Path(__file__).resolve().parent.parent
SOURCE = """\
from classroom.ledger import inside

print(f"floor {0.6931:.3f}")
print(inside(0.31, 0.2, 0.4, "nats"))"""
RIGHT = "floor 0.693\n⟨0.310⟩ nats, expected 0.200 … 0.400: yes\n"
STORED = {
    "as it is": (RIGHT, True),
    "measured on another machine": (RIGHT.replace("0.310", "0.305"), True),
    "a wrong exact number": (RIGHT.replace("0.693", "0.694"), False),
    "outside of its interval": (RIGHT.replace("yes", "NO"), False),
    "another interval": (RIGHT.replace("0.400", "0.500"), False),
    "nothing": ("", False),
}


# As `normalised` stores it: a cell that trains in view is not compared, whatever it prints.
TRAINED = normalised({"metadata": {}, "nbformat": 4, "nbformat_minor": 5, "cells": [
    {"cell_type": "code", "id": "a", "metadata": {"tags": ["train"]}, "execution_count": 1,
     "source": "import random\nprint(random.random())",
     "outputs": [{"output_type": "stream", "name": "stdout", "text": "0.641\n"}]},
    {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": 2,
     "source": "print(random.random())",
     "outputs": [{"output_type": "stream", "name": "stdout", "text": "0.640\n"}]},
]})  # fmt: skip


# Each cell works for half a second, which is too long here for one that shows nothing.
WORK = "start = time.process_time()\nwhile time.process_time() < start + 0.5:\n    {}"
CELLS = ["import time\nget_ipython().most_silent = 0.3", WORK.format("pass"),
         WORK.format("print('at work', flush=True)")]  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compare a cell for each row of the table, in one run: a kernel for each takes seconds."""
    folder = tmp_path_factory.mktemp("stored")
    rows = [nbformat.v4.new_code_cell(SOURCE, execution_count=1) for _ in STORED]
    for cell, (text, _) in zip(rows, STORED.values(), strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    book = nbformat.v4.new_notebook(cells=rows, metadata={"kernelspec": {
        "display_name": "Python 3", "language": "python", "name": "python3"}})  # fmt: skip
    nbformat.write(book, folder / "rows.ipynb")
    (folder / "trained.ipynb").write_text(json.dumps(TRAINED), encoding="utf-8")
    cells = [nbformat.v4.new_code_cell(f"# NBVAL_IGNORE_OUTPUT\n{source}") for source in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "silent.ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", str(folder), "--nbval-current-env", "-q",
         f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval.cfg'}", "-rA", "-p", "no:cacheprovider"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **MORE["outputs"]},
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("name", STORED)
def test_outputs_are_compared(name: str, said: str) -> None:
    number = list(STORED).index(name)
    lines = [line for line in said.splitlines() if f"rows.ipynb::Cell {number}" in line]
    assert any(line.startswith("PASSED" if STORED[name][1] else "FAILED") for line in lines), said


def test_what_is_learned_in_view_is_not_compared(said: str) -> None:
    lines = [line for line in said.splitlines() if "trained.ipynb::Cell" in line]
    assert any(line.startswith("PASSED") and "Cell 0" in line for line in lines), said
    assert any(line.startswith("FAILED") and "Cell 1" in line for line in lines), said


def test_a_cell_that_shows_nothing_for_long_fails(said: str) -> None:
    lines = [line for line in said.splitlines() if "silent.ipynb::Cell" in line]
    assert any(line.startswith("FAILED") and "Cell 1" in line for line in lines), said
    assert any(line.startswith("PASSED") and "Cell 2" in line for line in lines), said


@pytest.mark.parametrize("path", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_stored_curve_has_the_unit_that_its_cell_names(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        named = re.findall(r'\bunit="([^"{]+)"', "".join(cell["source"]))
        kept = [one["metadata"] for one in cell.get("outputs", []) if one.get("metadata")]
        curves = [recording.unpacked(one[recording.KEY]) for one in kept]
        units = [one["unit"] for one in curves if one.get("name") == "training"]
        assert not named or all(unit.endswith(named[0]) for unit in units), cell["id"]
