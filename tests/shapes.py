"""Names that end in a shape, checked while the code runs.

`with checked_shapes() as seen: model(...)` looks at every frame of the package when it returns: a
tensor whose name ends in capitals of the alphabet must have as many axes as the name says, an axis
named 1 must have the size 1, and a letter must have one size within the frame.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import labkit

ALPHABET = frozenset("BTQKMRDHEFVN1")
SUFFIX = re.compile(r"_([A-Z0-9]*[A-Z][A-Z0-9]*)$")
PACKAGE = str(Path(labkit.__file__).parent)


@contextmanager
def checked_shapes(package: str = PACKAGE) -> Iterator[set[str]]:
    """Give the set of the names that were checked; raise at the end if one of them lied."""
    seen: set[str] = set()
    lies: dict[str, None] = {}  # a set that keeps the order
    named: dict[CodeType, list[tuple[str, str]]] = {}

    def hook(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "return" or not code.co_filename.startswith(package):
            return
        if code not in named:
            names = code.co_varnames + code.co_cellvars + code.co_freevars
            named[code] = [(name, found[1]) for name in names if (found := SUFFIX.search(name))]
        if named[code]:
            tensors = {
                name: (suffix, tuple(frame.f_locals[name].shape))
                for name, suffix in named[code]
                if hasattr(frame.f_locals.get(name), "shape")
            }
            seen.update(tensors)
            where = f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_name}"
            lies.update(dict.fromkeys(f"{where}: {lie}" for lie in lies_among(tensors)))

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield seen
    finally:
        sys.setprofile(before)
    if lies:
        raise AssertionError("names of tensors that lie about their shapes:\n" + "\n".join(lies))


def lies_among(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> Iterator[str]:
    """Yield what is wrong among the named tensors of one frame: name → (suffix, shape)."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, (suffix, shape) in tensors.items():
        unknown = set(suffix) - ALPHABET
        if unknown:
            yield f"{name} has the letter {', '.join(sorted(unknown))}, not of the alphabet"
        elif len(suffix) != len(shape):
            yield f"{name} has {len(shape)} axes: {shape}"
        else:
            for letter, size in zip(suffix, shape, strict=True):
                first, where = sizes.setdefault(letter, (size, name))
                if letter == "1" and size != 1:
                    yield f"{name} has the shape {shape}, and 1 is a broadcast axis"
                elif letter != "1" and size != first:
                    yield f"{letter} is {first} in {where} and {size} in {name}"
