"""Read a folder in the format of the public releases: config.json and model.safetensors.

A release may carry a head or not, put a prefix before the names of the backbone or not, be cut into
several files, repeat tied weights, say `gamma` for the weight of a norm, and keep tables that are
no weights at all.  All this is made equal before the tensors are compared with the model.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from labkit.weights.release_model import (
    CONFIG,
    INDEX,
    WEIGHTS,
    build_release,
    kind_of,
    loose,
    release_names,
    warn_of_dropouts,
)
from labkit.weights.release_names import NO_WEIGHTS, OLD_NAMES, RELEASES, Release
from labkit.weights.tensors import (
    LARGEST_WEIGHT,
    Contents,
    Entry,
    WeightsError,
    checksum_on_disk,
    is_sound,
    list_tensors,
    read_description,
)


def release_contents(folder: Path) -> Contents:
    """What the folder of a release holds."""
    if not (folder / CONFIG).is_file():
        raise WeightsError(
            f"{folder} does not hold a model: neither labkit.json nor {CONFIG} is there (a run's "
            "checkpoints are read by Trainer(...).resume(folder), and weights.save then saves the "
            "model)"
        )
    values = read_description(folder / CONFIG)
    kind = kind_of(values, folder / CONFIG)
    warn_of_dropouts(kind, values, folder / CONFIG)
    entries = tidy(kind, files_of(folder))
    shapes = {name: entry.shape for name, entry in entries.items()}

    def make() -> nn.Module:
        try:
            return build_release(kind, values, shapes, folder)
        except WeightsError:
            raise
        except (TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise WeightsError(f"{folder / CONFIG} describes no model: {error}") from None

    with torch.device("meta"):
        model = make()
    drop_copies(RELEASES[kind], model, entries)
    return Contents(make, functools.partial(release_names, kind), entries, check_finite)


def check_finite(entry: Entry, tensor: Tensor) -> None:
    """Refuse numbers that no model can compute with: a release has no checksums."""
    if not is_sound(tensor):
        raise WeightsError(
            f"the tensor {entry.name!r} in {entry.file} has numbers that are not finite, or "
            f"beyond {LARGEST_WEIGHT:.0e}: fetch or save it again"
        )


def files_of(folder: Path) -> dict[str, Entry]:
    """The tensors of a folder, from one file or from the several that the index names."""
    if (folder / WEIGHTS).is_file():
        return list_tensors(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _shards(folder)
    others = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".h5", ".onnx"})
    raise WeightsError(
        f"there is no {WEIGHTS} in {folder}"
        + (f", and labkit does not read {others[0]}: convert it to safetensors" if others else "")
    )


def _shards(folder: Path) -> dict[str, Entry]:
    """The tensors of a release in several files: each where the index says, and nowhere else."""
    where = read_description(folder / INDEX).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise WeightsError(f"{folder / INDEX} has no weight_map")
    files = sorted({str(name) for name in where.values()})
    for name in files:
        # No name may lead out of the folder.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise WeightsError(
                f"{folder / INDEX} names {name!r}, which is not a safetensors file in this folder"
            )
        if not (folder / name).is_file():
            raise WeightsError(f"{folder / INDEX} names {name}, which is missing in {folder}")
    entries: dict[str, Entry] = {}
    for path in (folder / name for name in files):
        for tensor, entry in list_tensors(path).items():
            if where.get(tensor) != path.name:
                raise WeightsError(f"{path} has {tensor!r}, which {INDEX} places elsewhere")
            entries[tensor] = entry
    if missing := [tensor for tensor in where if tensor not in entries]:
        raise WeightsError(f"the tensor {missing[0]!r} is missing in {folder / where[missing[0]]}")
    return entries


def tidy(kind: str, found: Mapping[str, Entry]) -> dict[str, Entry]:
    """The tensors under the names that a new file of the bare backbone has for them."""
    release = RELEASES[kind]
    entries: dict[str, Entry] = {}
    for name, entry in found.items():
        if any(f".{name}".endswith(f".{table}") for table in NO_WEIGHTS):
            continue
        plain = name.removeprefix(release.prefix)
        for old, new in OLD_NAMES.items():
            plain = plain.replace(old, new)
        if release.only_label and plain.startswith("classifier."):
            plain = release.only_label + plain.removeprefix("classifier")
        if plain in entries:
            raise WeightsError(
                f"{entry.file} has both {entries[plain].name!r} and {name!r}, which are the same"
            )
        entries[plain] = entry
    return entries


def drop_copies(release: Release, model: nn.Module, entries: dict[str, Entry]) -> None:
    """Leave out what repeats another tensor, after making sure that it does."""
    (token,) = next(row.theirs for row in release.backbone if row.ours == "token.weight")
    bias = next((row.theirs[0] for row in release.words if row.ours == "words.bias"), "")
    for copy in release.copies:
        name = bias if copy.endswith("bias") else token
        if copy not in entries or (copy == release.copies[0] and loose(model)):
            continue
        entry = entries.pop(copy)
        first = entries.setdefault(name, entry)
        if entry.shape != first.shape or checksum_on_disk(entry) != checksum_on_disk(first):
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} should repeat "
                f"{first.name!r}, with which it is tied, but has other numbers"
            )
