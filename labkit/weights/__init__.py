"""Read and write models: our own folders, the public releases, and names on the hub.

    model = load("folder")                   what save or save_release wrote
    model = load("gpt2")                     a release on the hub (extra `hub`)
    save(model, "folder")                    our own format: safetensors and JSON, nothing else
    save_release(model, "release")           the format of the public releases, bit for bit
    save_release(model, "shared", tokenizer=tokenizer)    with the tokenizer, for other tools
    tokenizer = load_tokenizer("shared")     the tokenizer beside the weights
    encoder = load(real_encoder())           a small real BERT (extra `real`)

Nothing is ever unpickled.  A file is compared with the model that it should be, name by name and
shape by shape, before any memory of the model's size is taken.  Read `load` first.
"""

import functools

import torch
from torch import nn

from labkit.text.tokenizers import Tokenizer
from labkit.weights import ours, release_read
from labkit.weights.ours import DESCRIPTION, save
from labkit.weights.release_write import save_release
from labkit.weights.sources import Source, find, real_encoder
from labkit.weights.tensors import (
    Contents,
    Entry,
    WeightsError,
    WithoutInitialisation,
    check,
    read_tensors,
)

__all__ = ["WeightsError", "load", "load_tokenizer", "real_encoder", "save", "save_release"]


def load(
    source: Source, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> nn.Module:
    """The model in a folder, or on the hub when there is no such folder, ready to evaluate.

    A path is never asked for on the hub: "runs/gpt" is one where there is a folder "runs".
    A release with a head for words gives a `LanguageModel`, one with a head for labels a
    `Classifier`, one without a head the backbone; where there is a head for pairs of sentences
    beside the one for words, it is `model.pair`.  `dtype` is the file's own unless given.
    """
    folder = find(source)
    own = (folder / DESCRIPTION).is_file()
    contents = ours.contents(folder) if own else release_read.release_contents(folder)
    # To draw numbers on "meta" would import torch's compiler, which takes a second.
    with torch.device("meta"), WithoutInitialisation():
        check(contents.entries, contents.names(contents.make()), folder)
    for name, tensor in read_tensors(contents.entries):
        contents.check_numbers(contents.entries[name], tensor)
    model = _build(contents, device, dtype)
    parts = contents.names(model)
    if own and dtype is None:
        # A model whose tensors are not all of one kind gets back each as it was.
        for name, entry in contents.entries.items():
            if entry.dtype.is_floating_point:
                parts[name].data = parts[name].data.to(entry.dtype)

    with torch.no_grad():
        for name, tensor in read_tensors(contents.entries):
            parts[name].copy_(tensor)
    return model.eval()


def _build(contents: Contents, device: torch.device | str, dtype: torch.dtype | None) -> nn.Module:
    """The model on its device, its weights not yet drawn, in the dtype that holds the file's."""
    before = torch.get_default_dtype()
    wanted = dtype or _widest(contents.entries)
    torch.set_default_dtype(wanted)
    try:
        with torch.device(device), WithoutInitialisation():
            model = contents.make()
    finally:
        torch.set_default_dtype(before)
    # A class may name the dtype of a tensor, as in torch.arange(8).float().
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(wanted)
    return model


def _widest(entries: dict[str, Entry]) -> torch.dtype:
    """The dtype of reals that holds every number of a file exactly."""
    reals = [entry.dtype for entry in entries.values() if entry.dtype.is_floating_point]
    return functools.reduce(torch.promote_types, reals) if reals else torch.float32


def load_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer beside the weights."""
    return Tokenizer.load(find(source))
