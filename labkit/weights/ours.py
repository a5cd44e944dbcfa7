"""Folders that labkit writes: labkit.json and a file of tensors that it names.

labkit.json says which classes to build with which sizes, and the checksum of every tensor.  It is
written last: until it is in place, the folder holds the old model, and from then on the new one.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.checks import nearest, shown
from labkit.keeping.files import digest, write_json
from labkit.weights.description import describe, model_of
from labkit.weights.sources import Source
from labkit.weights.tensors import (
    Contents,
    Entry,
    WeightsError,
    check_alike,
    check_storable,
    checksum,
    from_bytes,
    in_bytes,
    list_tensors,
    narrowed,
    read_description,
    write_tensors,
)

DESCRIPTION = "labkit.json"
FORMAT = 1


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Everything that makes the model what it is, under our own names, tied weights once."""
    tables = dict(model.named_buffers())
    kept = {name: tables[name] for name in model.state_dict() if name in tables}
    return dict(model.named_parameters()) | kept


def save(model: nn.Module, folder: Source, *, steps: Mapping[str, float] | None = None) -> None:
    """Write a model in our own format; an older one there is replaced as a whole or not at all.

    What is saved can be loaded: what could not, is refused before anything is written. Which
    weights are frozen is not saved, nor whether the model is in training mode.
    A tensor that is named in `steps` takes one byte for each number: its numbers, in float16, must
    be whole multiples of its step, at most 127 of them.
    """
    folder, description = Path(folder), describe(model)
    steps = {name: float(step) for name, step in (steps or {}).items()}
    check_storable(tensors(model))
    named = {name: narrowed(tensor) for name, tensor in tensors(model).items()}
    for name in steps.keys() - named.keys():
        near = nearest(name, named)
        raise ValueError(f"the model has no tensor {name!r} to store in steps"
                         + (f": did you mean {near!r}?" if near else ""))  # fmt: skip
    # From what a file will hold, so that whatever is saved can be loaded.
    with torch.device("meta"):
        check_alike(model, model_of(json.loads(json.dumps(description)), "this model"))
    small = {name: in_bytes(name, named[name], step) for name, step in steps.items()}
    # Of what is read again: a negative zero has no byte of its own.
    read = named | {name: from_bytes(whole, steps[name]) for name, whole in small.items()}
    sums = {name: checksum(tensor) for name, tensor in read.items()}
    file = f"weights-{_hash([sums, steps])[:12]}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    old = [path for path in folder.iterdir() if _is_ours(path.name) and path.name != file]
    write_tensors(folder / file, named | small)
    whole = {"format": FORMAT, "model": description, "weights": file, "checksums": sums}
    if steps:
        whole["steps"] = steps
    write_json(folder / DESCRIPTION, {**whole, "checksum": _hash(whole)})
    # Only what was there before: another process may be writing beside us.
    for path in old:
        path.unlink(missing_ok=True)


def _is_ours(name: str) -> bool:
    """Whether this is the name of a file of weights, as `save` gives it."""
    return re.fullmatch(r"weights-\w+\.safetensors", name) is not None


def _hash(value: Any) -> str:
    """SHA-256 of names and values."""
    return digest(json.dumps(value, sort_keys=True).encode())


def contents(folder: Path) -> Contents:
    """What a folder of our own holds."""
    path = folder / DESCRIPTION
    whole = read_description(path)
    if whole.get("format") != FORMAT:
        raise WeightsError(
            f"{path} has the format {shown(whole.get('format'))}, this labkit reads {FORMAT}: "
            "use the version of labkit that wrote it, or a newer one"
        )
    if _hash({k: v for k, v in whole.items() if k != "checksum"}) != whole.get("checksum"):
        raise WeightsError(f"{path} is damaged or was edited: it is not what was saved")
    file = whole.get("weights")
    # No name may lead out of the folder.
    if not isinstance(file, str) or not _is_ours(file) or not (folder / file).is_file():
        raise WeightsError(
            f"{path} names the file of weights {shown(file)}, which is not in {folder}"
        )
    sums = whole.get("checksums")

    def check_checksum(entry: Entry, tensor: Tensor) -> None:
        """Refuse numbers that are not those that were saved."""
        if not isinstance(sums, dict) or checksum(tensor) != sums.get(entry.name):
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} is damaged: its numbers are not those "
                "that were saved; save the model again, or copy the folder again"
            )

    entries = _with_steps(list_tensors(folder / file), whole.get("steps", {}), path)
    return Contents(lambda: model_of(whole.get("model"), path), tensors, entries, check_checksum)


def _with_steps(entries: dict[str, Entry], steps: Any, path: Path) -> dict[str, Entry]:
    """The entries of a file; an int8 tensor gets its step."""
    if not isinstance(steps, dict) or not all(isinstance(step, float) for step in steps.values()):
        raise WeightsError(f"{path} has the steps {shown(steps)}: they are numbers by names")
    for name in entries.keys() & steps.keys():
        if entries[name].dtype == torch.int8:
            entries[name] = entries[name]._replace(dtype=torch.float16, step=steps[name])
    return entries
