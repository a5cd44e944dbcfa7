"""Files of tensors: looked at before they are read, and replaced only as a whole.

Nothing in a safetensors file can run, unlike in a pickle. Its header alone says whether the file is
what the model needs, so everything is checked before any memory of the model's size is taken. Read
`list_tensors` and `check` first.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from labkit.keeping.files import digest, read_json, replacing, save_tensors, tensor_bytes

LARGEST_JSON = 50_000_000  # bytes
LARGEST_WEIGHT = 1e15
"""No model has larger weights, but a flipped bit mostly makes a weight larger than this."""

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
    """What the header of a file says about one tensor."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    step: float | None = None
    """For a file of int8: the factor by which its numbers are multiplied."""


class Contents(NamedTuple):
    """What a folder holds, before any of its numbers are read."""

    make: Callable[[], nn.Module]
    """Builds the model, on whatever device torch builds now."""
    names: Callable[[nn.Module], dict[str, Tensor]]
    """What the folder calls the model's tensors, or parts of them."""
    entries: dict[str, Entry]
    check_numbers: Callable[[Entry, Tensor], None]
    """Refuses a tensor that was read and is not what it should be."""


def list_tensors(path: Path) -> dict[str, Entry]:
    """The tensors of a file by their names; no number is read.

    The library checks that the header is sound and that the tensors fill the file exactly.
    """
    with path.open("rb") as file:
        start = file.read(64)
    for mark, what in FOREIGN.items():
        # The length of a header may begin with the same byte, but then the JSON starts at byte 8.
        if start.startswith(mark) and start[8:9] != b"{":
            raise WeightsError(f"{path} is not a safetensors file: it is {what}")
    with _opened(path) as file:
        return {name: _entry(path, name, file.get_slice(name)) for name in file.keys()}  # noqa: SIM118


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise WeightsError(
            f"{path} is damaged or truncated, or no safetensors file ({error}): fetch or save it "
            "again"
        ) from None


def _entry(path: Path, name: str, part: Any) -> Entry:
    if part.get_dtype() not in DTYPES:
        raise WeightsError(
            f"the tensor {name!r} in {path} holds {part.get_dtype()}; labkit reads "
            f"{', '.join(DTYPES)}"
        )
    return Entry(name, path, DTYPES[part.get_dtype()], tuple(part.get_shape()))


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
        narrower = (entry.dtype, tensor.dtype) == (torch.int16, torch.int64)
        if not both_real and not narrower and entry.dtype != tensor.dtype:
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} holds {entry.dtype}, "
                f"the model needs {tensor.dtype}"
            )
    if extra := [entry for name, entry in found.items() if name not in wanted]:
        raise WeightsError(
            f"{extra[0].file} has the tensor {extra[0].name!r}, which the model that the folder "
            f"describes has no place for ({len(extra)} such in all)"
        )


def read_tensors(entries: Mapping[str, Entry]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors one by one, file by file."""
    for path in sorted({entry.file for entry in entries.values()}):
        with _opened(path) as file:
            for name, entry in entries.items():
                if entry.file == path:
                    tensor = file.get_tensor(entry.name)
                    yield name, tensor if entry.step is None else from_bytes(tensor, entry.step)


def from_bytes(whole: Tensor, step: float) -> Tensor:
    """The numbers in float16 that whole numbers of one byte stand for."""
    return whole.half() * step


def in_bytes(name: str, tensor: Tensor, step: float) -> Tensor:
    """The whole numbers of one byte that stand for a tensor in float16, so many times `step`."""
    whole = (tensor.float() / step).round().clamp(-127, 127).to(torch.int8)
    if tensor.dtype != torch.float16 or not torch.equal(from_bytes(whole, step), tensor):
        raise ValueError(
            f"the tensor {name!r} is not made of float16 numbers that are -127 to 127 times {step}"
            ": round it first, or leave its name out of steps"
        )
    return whole


def narrowed(tensor: Tensor) -> Tensor:
    """Whole numbers of 64 bits in 16, where all fit: the letters of words, for example."""
    if tensor.dtype != torch.int64:
        return tensor
    short = tensor.short()
    return short if torch.equal(short.long(), tensor) else tensor


def checksum(tensor: Tensor) -> str:
    """SHA-256 of the numbers of a tensor, as they stand in a file."""
    return digest(tensor_bytes(tensor))


def checksum_on_disk(entry: Entry) -> str:
    """The same for a tensor in a file."""
    with _opened(entry.file) as file:
        return checksum(file.get_tensor(entry.name))


def check_alike(model: nn.Module, again: nn.Module) -> None:
    """Refuse a model that is read back as another, such as one with layers that were replaced."""
    here, there = _said_of_tensors(model), _said_of_tensors(again)
    for name in here | there:
        if here.get(name) != there.get(name):
            raise WeightsError(
                f"this model is not what its config says, at {name!r}: it has {here.get(name)}, a "
                f"model of that config {there.get(name)}; build it from its config, then change "
                "the numbers"
            )


def _said_of_tensors(model: nn.Module) -> dict[str, str]:
    """The shape of each tensor, its dtype unless it is real, and which one it is tied to."""
    first: dict[Tensor, str] = {}
    said = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise WeightsError(
                f"{name!r} is a {type(tensor).__name__}: only tensors can be saved; make it a "
                "buffer or a field of the config"
            )
        kind = "" if tensor.is_floating_point() else f" of {tensor.dtype}"
        known = first.setdefault(tensor, name)
        said[name] = f"{list(tensor.shape)}{kind}" + (f" tied to {known}" if known != name else "")
    return said


def check_storable(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that no file would give back as they are."""
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise WeightsError(f'the tensor {name!r} is on the device "meta": it has no numbers')
        if tensor.dtype not in DTYPES.values():
            raise WeightsError(
                f"the tensor {name!r} is of {tensor.dtype}, which labkit does not read: convert "
                "the model, for example with model.float()"
            )
        known = first.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if known != name:
            raise WeightsError(
                f"the tensors {known!r} and {name!r} share their memory, and would be two after "
                "loading: make them one parameter, or give one its own with tensor.data.clone()"
            )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors, whole or not at all."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_tensors(draft, whole, metadata={"format": "pt"})


def read_description(path: Path) -> dict[str, Any]:
    """The table in a JSON file of a model's folder."""
    try:
        return read_json(path, LARGEST_JSON)
    except (FileNotFoundError, ValueError) as error:
        raise WeightsError(str(error)) from None


class WithoutInitialisation(TorchFunctionMode):
    """Builds models without drawing their weights, for models that are then loaded from a file.

    with WithoutInitialisation():
        model = GPT(config)
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function of torch, unless it draws random numbers into a tensor."""
        kwargs = kwargs or {}
        # torch's own normal_ and uniform_, and what torch.nn.init makes of them.
        if getattr(function, "__name__", "").endswith(("normal_", "uniform_")):
            tensor = args[0] if args else kwargs["tensor"]
            # A seed of its own may be all that a file says of a buffer.
            if kwargs.get("generator") is None or tensor.is_meta:
                return tensor
        return function(*args, **kwargs)


def is_sound(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite, and not too large to compute with."""
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    low, high = map(float, tensor.detach().aminmax())
    # NaN spreads through both, and is neither above nor below anything.
    return low >= -LARGEST_WEIGHT and high <= LARGEST_WEIGHT
