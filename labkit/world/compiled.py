"""A compiled language that is kept in a file, which all processes map: they share its memory.

To compile the course's language takes a second and 70 MB, and each notebook that asks for its
probabilities needs it. It is compiled once for the machine: from then on a process reads the file
in a few hundredths of a second, and a class of kernels holds its arrays once.

The file is found by the language and by the code that compiles it, and is checked against its
digest. It is a safetensors file; everything that is not an array is JSON in its header.
"""

import functools
import json
import mmap
import platform
from pathlib import Path
from typing import Any

import numpy as np

from labkit.keeping.cache import kept
from labkit.keeping.files import digest
from labkit.world.builder import compile_grammar
from labkit.world.grammar import Grammar, Location
from labkit.world.machine import Arcs, Emissions, Entries, Machine, Section
from labkit.world.memory import Family

LARGE = 200_000
"""Characters of `repr(grammar)`; a shorter grammar is compiled faster than it is looked up."""
GROUPS: dict[str, type[Emissions | Entries | Arcs]] = {
    "emissions": Emissions,
    "entries": Entries,
    "onward": Arcs,
    "turned": Arcs,
}
"""The fields of a machine that hold several arrays, and their types."""
DTYPES = {"F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "?"}


def compiled(grammar: Grammar) -> Machine:
    """Compile a grammar, or read the result of an earlier compilation."""

    def make() -> Machine:
        return compile_grammar(grammar, new_forms=False)

    said = repr(grammar)
    if len(said) < LARGE:
        return make()
    key = "language-" + digest(said.encode(), code())[:32]
    return kept(key, ".safetensors", make, write_machine, read_machine, quiet=True)


@functools.cache
def code() -> bytes:
    """Everything that the result of compiling depends on, besides the grammar.

    Python is part of it: from 3.12 on, `sum` rounds less.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    versions = f"python {platform.python_version()} numpy {np.__version__}"
    return b"".join(path.read_bytes() for path in sources) + versions.encode()


def write_machine(machine: Machine, path: Path) -> None:
    """Write a machine and the tables that it has computed."""
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {}
    for name, value in vars(machine).items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif name in GROUPS:
            arrays |= {f"{name}.{part}": array for part, array in value._asdict().items()}
    as_they_are = ("members", "vocabulary", "sections", "patterns")
    said = {name: getattr(machine, name) for name in as_they_are}
    said["senses"] = [[*key, sense] for key, sense in machine.senses.items()]
    said["families"] = [[f.name, f.alpha, list(map(sorted, f.words))] for f in machine.families]
    arrays |= {f"family.{n}": family.base for n, family in enumerate(machine.families)}
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(whole, path, metadata={"language": json.dumps(said, ensure_ascii=False)})


def read_machine(path: Path) -> Machine:
    """Read what `write_machine` has written; the arrays are mapped, and cannot be changed."""
    arrays, said = mapped(path)
    fields: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
    for name, kind in GROUPS.items():
        fields[name] = kind(*(arrays[f"{name}.{part}"] for part in kind._fields))
    fields["vocabulary"] = tuple(said["vocabulary"])
    fields["number"] = {word: n for n, word in enumerate(said["vocabulary"])}
    fields["sections"] = [Section(*section) for section in said["sections"]]
    fields["patterns"] = [Location(*location) for location in said["patterns"]]
    fields["senses"] = {(emission, word): sense for emission, word, sense in said["senses"]}
    fields["members"] = said["members"]
    fields["families"] = [
        Family(name, alpha, list(map(set, words)), arrays[f"family.{n}"])
        for n, (name, alpha, words) in enumerate(said["families"])
    ]
    machine = object.__new__(Machine)  # without its __post_init__, which tabulates
    vars(machine).update(fields)
    return machine


def mapped(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a safetensors file, mapped from the disk, and the metadata in its header."""
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    begin = 8 + int.from_bytes(content[:8], "little")
    head = json.loads(content[8:begin])
    said = json.loads(head.pop("__metadata__")["language"])
    arrays = {}
    for name, about in head.items():
        dtype = np.dtype(DTYPES[about["dtype"]])
        first, last = about["data_offsets"]
        flat = np.frombuffer(content, dtype, (last - first) // dtype.itemsize, begin + first)
        arrays[name] = flat.reshape(about["shape"])
    return arrays, said
