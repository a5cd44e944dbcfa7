"""A name for anything that a result depends on: it differs when the thing differs.

torch takes a second to import: it is imported only where it may be needed, which a text does not.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import PurePath
from types import CodeType, EllipsisType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.keeping.files import tensor_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

PART = 2**20
"""How many numbers are read at a time: a text in a file may be larger than the memory."""
NUMBER_OR_TEXT = (int, float, complex, str, bytes, PurePath, EllipsisType, NoneType)


def fingerprint(*things: object) -> str:
    """Return a name that differs when any of the things differs."""
    digest = hashlib.blake2b(digest_size=16)
    for thing in things:
        for part in _parts(thing):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(thing: Any) -> Iterator[bytes]:
    """Everything that distinguishes a value from others of its type."""
    if isinstance(thing, NUMBER_OR_TEXT):
        yield f"{type(thing).__name__} {thing!r}".encode()
        return
    from torch import Tensor, nn

    if isinstance(thing, Tensor) or (isinstance(thing, np.ndarray) and thing.dtype != object):
        yield from _numbers(thing)
    elif isinstance(thing, nn.Module):
        yield repr(thing).encode()
        yield from _parts(thing.state_dict())
        for name, part in thing.named_modules():
            yield from _parts([name, _attributes(part)])
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield type(thing).__qualname__.encode()
        for field in dataclasses.fields(thing):
            yield from _parts((field.name, getattr(thing, field.name)))
    elif isinstance(thing, Mapping):
        yield from _parts([[key, thing[key]] for key in thing])
    elif isinstance(thing, Sequence):
        yield f"{len(thing)} things".encode()
        for one in thing:
            yield from _parts(one)
    elif isinstance(thing, Set):
        yield from _parts(["set", *sorted(fingerprint(one) for one in thing)])
    else:
        yield from _other_parts(thing)


def _other_parts(thing: Any) -> Iterator[bytes]:
    """The same for functions, classes, and objects of any other class."""
    if isinstance(thing, partial):
        yield from _parts(["partial", thing.func, thing.args, thing.keywords])
    elif hasattr(thing, "__qualname__"):
        yield f"{thing.__module__}.{thing.__qualname__}".encode()
        if isinstance(thing, MethodType):
            yield from _parts(thing.__self__)
        elif isinstance(thing, FunctionType):
            yield from _parts(_behaviour(thing))
    elif isinstance(known := getattr(thing, "fingerprint", None), str):
        yield f"{type(thing).__qualname__} {known}".encode()
    elif hasattr(thing, "__dict__"):
        yield type(thing).__qualname__.encode()
        yield from _parts(vars(thing))
    else:
        raise TypeError(
            f"a {type(thing).__name__} cannot be part of a key: give numbers, texts, tensors, "
            "arrays, modules, dataclasses, functions, or lists and dicts of them"
        )


def _numbers(thing: "Tensor | np.ndarray") -> Iterator[bytes]:
    """The type, the shape and the numbers of a tensor or an array."""
    yield f"{thing.dtype} {tuple(thing.shape)}".encode()
    if isinstance(thing, np.ndarray):
        for part in np.array_split(thing.reshape(-1), 1 + thing.size // PART):
            yield part.tobytes()
    else:
        yield tensor_bytes(thing).tobytes()


def _attributes(module: "nn.Module") -> dict[str, Any]:
    """The settings of a module that neither its weights nor its name show."""
    return {
        key: value
        for key, value in vars(module).items()
        if key[0] != "_" and key not in _of_any_module()
    }


@cache
def _of_any_module() -> frozenset[str]:
    from torch import nn

    return frozenset(vars(nn.Module()))


def _behaviour(function: FunctionType) -> list[Any]:
    """What distinguishes functions of the same name: their code, defaults and closures."""
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    return [_code(function.__code__), function.__defaults__, function.__kwdefaults__, closed]


def _code(code: CodeType) -> list[Any]:
    """The code of a function, without its location in a file."""
    constants = [_code(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return [code.co_code, code.co_names, constants]
