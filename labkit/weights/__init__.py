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

import functools
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from labkit.text.tokenizers import Tokenizer
from labkit.weights import ours, release_read, release_write
from labkit.weights.ours import DESCRIPTION
from labkit.weights.sources import find, real_encoder
from labkit.weights.tensors import (
    Contents,
    Entry,
    WeightsError,
    WithoutInitialisation,
    check,
    read_tensors,
)

__all__ = ["WeightsError", "load", "load_tokenizer", "real_encoder", "save", "save_release"]

Source = str | os.PathLike[str]
LARGEST_WEIGHT = 1e15
"""No model has larger ones; what a flipped bit makes of a weight mostly is."""


def load(
    source: Source, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> nn.Module:
    """The model in a folder, or on the hub when there is no such folder, ready to evaluate.

    A release with a head for words gives a `LanguageModel`, one with a head for labels a
    `Classifier`, one without a head the backbone; where there is a head for pairs of sentences
    beside the one for words, it is `model.pair`.  `dtype` is the file's own unless given.
    """
    folder = find(source)
    own = (folder / DESCRIPTION).is_file()
    contents = ours.contents(folder) if own else release_read.release_contents(folder)
    with torch.device("meta"):
        check(contents.entries, contents.names(contents.make()), folder)
    if own:
        ours.check_numbers(folder, contents.entries)
    model = _build(contents, device, dtype)
    parts = contents.names(model)
    if own and dtype is None:
        # A model whose tensors are not all of one kind gets back each as it was.
        for name, entry in contents.entries.items():
            parts[name].data = parts[name].data.to(entry.dtype)

    @torch.no_grad()
    def put(name: str, tensor: Tensor) -> None:
        if not own and tensor.is_floating_point() and not sound(tensor):
            entry = contents.entries[name]
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} has numbers that are not finite, or "
                f"beyond {LARGEST_WEIGHT:.0e}: "
                "fetch or save it again"
            )
        parts[name].copy_(tensor)

    read_tensors(contents.entries, put)
    return model.eval()


def sound(weights: Tensor) -> bool:
    """Whether all weights are numbers that a model can compute with."""
    if not weights.numel():
        return True
    low, high = map(float, weights.aminmax())
    # NaN spreads through both, and is neither above nor below anything.
    return low >= -LARGEST_WEIGHT and high <= LARGEST_WEIGHT


def _build(contents: Contents, device: torch.device | str, dtype: torch.dtype | None) -> nn.Module:
    """The model on its device, its weights not yet drawn, in the dtype that holds the file's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or _widest(contents.entries))
    try:
        with torch.device(device), WithoutInitialisation():
            return contents.make()
    finally:
        torch.set_default_dtype(before)


def _widest(entries: dict[str, Entry]) -> torch.dtype:
    """The dtype of reals that holds every number of a file exactly."""
    reals = [entry.dtype for entry in entries.values() if entry.dtype.is_floating_point]
    return functools.reduce(torch.promote_types, reals) if reals else torch.float32


def load_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer beside the weights."""
    return Tokenizer.load(find(source))


def save(model: nn.Module, folder: Source) -> None:
    """Write a model in our own format; an older one there is replaced as a whole or not at all."""
    ours.write_folder(model, Path(folder))


def save_release(model: nn.Module, folder: Source) -> None:
    """Write a model in the format of its family's public releases."""
    release_write.write_release(model, Path(folder))
