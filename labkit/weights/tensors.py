"""Files of tensors: looked at before they are read, and replaced only as a whole.

A safetensors file is eight bytes with the length N of the header, N bytes of JSON (name -> dtype,
shape, first and last byte), then the numbers, one tensor after the other.  Nothing in it can run,
unlike a pickle.  The header alone says whether the file is what the model needs, so everything is
checked before any memory of the model's size is taken.  Read `read_header` first.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from labkit.keeping.files import digest, file_digest, replacing, save_tensors, write_text

MAX_HEADER = 100_000_000
"""The longest header that safetensors itself allows, in bytes."""

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

FOREIGN = {
    b"PK\x03\x04": "an archive of pickles as torch.save writes it, and a pickle can run any code",
    b"\x80": "a pickle, and a pickle can run any code",
    b"version https://git-lfs": "a pointer of Git LFS and not the file itself: fetch the file",
    b"\x89HDF": "an HDF5 file",
    b"<": "a web page",
}


class WeightsError(ValueError):
    """A file of weights that is not what it should be; the text names the file and the tensor."""


class Entry(NamedTuple):
    """What the header says about one tensor."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int
    start: int
    """Where the numbers begin in the file; `begin` and `end` count from there."""


class Plan(NamedTuple):
    """What a folder holds, before any of its numbers are read."""

    make: Callable[[], nn.Module]
    """Builds the model, on whatever device torch builds now."""
    names: Callable[[nn.Module], dict[str, Tensor]]
    """What the folder calls the model's tensors, or parts of them."""
    entries: dict[str, Entry]


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors of a file, when its header is sound and its length what the header promises."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(64)
        for mark, what in FOREIGN.items():
            # A true length may begin with the same byte, but then the JSON follows at byte 8.
            if start.startswith(mark) and start[8:9] != b"{":
                raise WeightsError(f"{path} is no safetensors file: it is {what}")
        length = int.from_bytes(start[:8], "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise WeightsError(
                f"{path} is no safetensors file, or a truncated one: its first 8 bytes promise a "
                f"header of {length:,} bytes, the file has {size:,}: fetch or save it again"
            )
        file.seek(8)
        text = file.read(length)
    entries = {name: _entry(path, name, value, 8 + length) for name, value in _header(path, text)}
    _check_extent(path, entries, size - 8 - length)
    return entries


def _header(path: Path, text: bytes) -> list[tuple[str, Any]]:
    """The names and values in the JSON of a header, each name once."""
    try:
        pairs = json.loads(text.decode("utf-8"), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"the header of {path} is damaged: {error}") from None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise WeightsError(f"the header of {path} is damaged: it is no table of tensors")
    name, times = Counter(name for name, _ in pairs).most_common(1)[0] if pairs else ("", 0)
    if times > 1:
        raise WeightsError(f"the header of {path} is damaged: it has the tensor {name!r} twice")
    return [(name, value) for name, value in pairs if name != "__metadata__"]


def _entry(path: Path, name: str, value: Any, start: int) -> Entry:
    """One line of a header, checked."""
    fields = dict(value) if isinstance(value, list) and _all_pairs(value) else {}
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    dtype: Any = fields.get("dtype")
    if not (_naturals(shape) and _naturals(offsets) and len(offsets) == 2 and dtype in DTYPES):
        raise WeightsError(
            f"the header of {path} is damaged, or of a kind labkit does not read, at tensor "
            f"{name!r}: dtype {dtype!r}, shape {shape!r}, bytes {offsets!r}; "
            f"dtypes that labkit reads: {', '.join(DTYPES)}"
        )
    begin, end = offsets
    needed = math.prod(shape) * DTYPES[dtype].itemsize
    if end - begin != needed:
        raise WeightsError(
            f"the header of {path} is damaged at tensor {name!r}: {dtype} of shape {shape} takes "
            f"{needed:,} bytes, the header gives it {end - begin:,}"
        )
    return Entry(name, path, DTYPES[dtype], tuple(shape), begin, end, start)


def _all_pairs(values: list[Any]) -> bool:
    return all(isinstance(value, tuple) for value in values)


def _naturals(values: Any) -> bool:
    """Whether this is a list of the numbers 0, 1, 2 ..."""
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_extent(path: Path, entries: Mapping[str, Entry], room: int) -> None:
    """The tensors must fill the rest of the file: no hole, no overlap, nothing behind the last."""
    ordered = sorted(entries.items(), key=lambda pair: (pair[1].begin, pair[1].end))
    ends = [0, *(entry.end for _, entry in ordered)]
    for (name, entry), before in zip(ordered, ends, strict=False):
        if entry.begin != before:
            raise WeightsError(
                f"the header of {path} is damaged at tensor {name!r}: it should begin at byte "
                f"{before:,}, the header says {entry.begin:,}"
            )
        if entry.end > room:
            raise WeightsError(
                f"{path} is truncated at tensor {name!r}: it should end at byte {entry.end:,} of "
                f"the numbers, the file has {room:,}: fetch or save it again"
            )
    if ends[-1] != room:
        raise WeightsError(
            f"{path} has {room - ends[-1]:,} bytes behind its last tensor: it is damaged"
        )


def check(found: Mapping[str, Entry], wanted: Mapping[str, Tensor], where: Path) -> None:
    """Every wanted tensor must be there, with its shape and kind; no other may be there."""
    for name, tensor in wanted.items():
        shape = tensor.shape
        if name not in found:
            raise WeightsError(
                f"the tensor {name!r} of shape {list(shape)} is missing in {where}; there are "
                f"{len(found)} tensors, the model needs {len(wanted)}"
            )
        entry = found[name]
        if entry.shape != shape:
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} has the shape {list(entry.shape)}, "
                f"the model that the folder describes needs {list(shape)}"
            )
        both_real = entry.dtype.is_floating_point and tensor.dtype.is_floating_point
        if not both_real and entry.dtype != tensor.dtype:
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} holds {entry.dtype}, "
                f"the model needs {tensor.dtype}"
            )
    if extra := [entry for name, entry in found.items() if name not in wanted]:
        raise WeightsError(
            f"{extra[0].file} has the tensor {extra[0].name!r}, which the model that the folder "
            f"describes has no place for ({len(extra)} such in all)"
        )


def read(entries: Mapping[str, Entry], take: Callable[[str, Tensor], None]) -> None:
    """Hand over the tensors one by one, file by file."""
    for path in sorted({entry.file for entry in entries.values()}):
        try:
            with safe_open(path, framework="pt") as file:
                for name, entry in entries.items():
                    if entry.file == path:
                        take(name, file.get_tensor(entry.name))
        except SafetensorError as error:
            raise WeightsError(f"{path} cannot be read: {error}") from None


def checksum(tensor: Tensor) -> str:
    """SHA-256 of the numbers of a tensor, as they stand in a file."""
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return digest(numbers.numpy().data)


def checksum_on_disk(entry: Entry) -> str:
    """The same from the file, a megabyte at a time."""
    return file_digest(entry.file, entry.start + entry.begin, entry.start + entry.end)


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors, whole or not at all."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_tensors(draft, whole, metadata={"format": "pt"})


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that a person can read, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"there is no {path}") from None
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{path} is damaged: it holds no table of names and values")
    return value
