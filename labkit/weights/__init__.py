"""Read and write models: our own folders, the public releases, and names on the hub.

    model = load("folder")                   what save or save_release wrote
    model = load("gpt2")                     a release on the hub (extra `hub`)
    save(model, "folder")                    our own format: safetensors and JSON, nothing else
    save_release(model, "folder")            the format of the public releases, bit for bit
    tokenizer = load_tokenizer("folder")     the tokenizer beside the weights
    encoder = load(real_encoder())           a small real BERT (extra `real`)

Nothing is ever unpickled.  A file is compared with the model that it should be, name by name and
shape by shape, before any memory of the model's size is taken.  Read `load` first.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.tokenizers import Tokenizer
from labkit.weights import ours, release_read, release_write
from labkit.weights.ours import DESCRIPTION
from labkit.weights.places import find, real_encoder
from labkit.weights.release_model import release_names
from labkit.weights.tensors import Entry, WeightsError, check, read

__all__ = ["WeightsError", "load", "load_tokenizer", "real_encoder", "save", "save_release"]

Source = str | os.PathLike[str]


def load(
    source: Source,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """The model in a folder, or on the hub when there is no such folder, ready to evaluate.

    A release with a head for words gives a `LanguageModel`, one with a head for labels a
    `Classifier`, one without a head the backbone.  `dtype` is the file's own unless given.
    """
    folder = find(source)
    own = (folder / DESCRIPTION).is_file()
    model, names, entries = _ours(folder) if own else _release(folder)
    check(entries, {name: tuple(t.shape) for name, t in names(model).items()}, folder)
    if own:
        ours.check_numbers(folder, entries)
    _take_memory(model, device, dtype or _widest(entries))
    parts = names(model)

    @torch.no_grad()
    def put(name: str, tensor: Tensor) -> None:
        parts[name].copy_(tensor)

    read(entries, put)
    return model.eval()


Named = tuple[nn.Module, Callable[[Any], dict[str, Tensor]], dict[str, Entry]]


def _ours(folder: Path) -> Named:
    """A folder of our own: the model on the meta device, its names, what the file has."""
    model, entries = ours.described(folder)
    return model, ours.tensors, entries


def _release(folder: Path) -> Named:
    """The same of a release."""
    model, kind, entries = release_read.described(folder)
    return model, lambda model: release_names(kind, model), entries


def _widest(entries: dict[str, Entry]) -> torch.dtype:
    """The dtype that holds every number of a file exactly."""
    dtypes = {entry.dtype for entry in entries.values()}
    widest = dtypes.pop() if dtypes else torch.float32
    for dtype in dtypes:
        widest = torch.promote_types(widest, dtype)
    return widest


def _take_memory(model: nn.Module, device: torch.device | str, dtype: torch.dtype) -> None:
    """Move a model from the meta device to a real one; weights that are tied stay tied."""
    taken: dict[Tensor, nn.Parameter] = {}
    for module in model.modules():
        for name, given in module._parameters.items():
            if given is not None:
                if given not in taken:
                    memory = torch.empty_like(given, device=device, dtype=dtype)
                    taken[given] = nn.Parameter(memory, requires_grad=given.requires_grad)
                module._parameters[name] = taken[given]


def load_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer beside the weights."""
    return Tokenizer.load(find(source))


def save(model: nn.Module, folder: Source) -> None:
    """Write a model in our own format; an older one there is replaced as a whole or not at all."""
    ours.save(model, Path(folder))


def save_release(model: nn.Module, folder: Source) -> None:
    """Write a model in the format of its family's public releases."""
    release_write.save(model, Path(folder))
