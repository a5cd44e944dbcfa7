"""Folders in the format of the public releases: config.json and model.safetensors.

A release may carry a head or not, put a prefix before the names of the backbone or not, be cut into
several files, repeat tied weights, say `gamma` for the weight of a norm, and keep tables that are
no weights at all.  All this is made equal before the tensors are compared with the model.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.blocks import Classifier, LanguageModel
from labkit.heads import Label, MaskedWord, NextWord, tied
from labkit.release_names import NO_WEIGHTS, OLD_NAMES, RELEASES, Release, Row
from labkit.weights.released import MODELS, kind_for, kind_of, read_config, write_config
from labkit.weights.tensors import Entry, WeightsError, digest, read_header, read_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = "model.safetensors.index.json"

ARCHITECTURES = {
    "openai-gpt": {"": "OpenAIGPTModel", "words": "OpenAIGPTLMHeadModel"},
    "gpt2": {"": "GPT2Model", "words": "GPT2LMHeadModel"},
    "bert": {
        "": "BertModel",
        "words": "BertForMaskedLM",
        "label": "BertForNextSentencePrediction",
        "words and label": "BertForPreTraining",
    },
    "roberta": {
        "": "RobertaModel",
        "words": "RobertaForMaskedLM",
        "label": "RobertaForSequenceClassification",
    },
    "albert": {
        "": "AlbertModel",
        "words": "AlbertForMaskedLM",
        "words and label": "AlbertForPreTraining",
    },
    "distilbert": {
        "": "DistilBertModel",
        "words": "DistilBertForMaskedLM",
        "label": "DistilBertForSequenceClassification",
    },
    "xlnet": {
        "": "XLNetModel",
        "words": "XLNetLMHeadModel",
        "label": "XLNetForSequenceClassification",
    },
}
"""What a release calls the model with these heads."""


def files_of(folder: Path) -> dict[str, Entry]:
    """The tensors of a folder, from one file or from the several that the index names."""
    if (folder / WEIGHTS).is_file():
        return read_header(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _shards(folder)
    others = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".h5", ".onnx"})
    raise WeightsError(
        f"there is no {WEIGHTS} in {folder}"
        + (f", and labkit does not read {others[0]}: convert it to safetensors" if others else "")
    )


def _shards(folder: Path) -> dict[str, Entry]:
    """The tensors of a release in several files: each where the index says, and nowhere else."""
    where = read_json(folder / INDEX).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise WeightsError(f"{folder / INDEX} has no weight_map")
    entries: dict[str, Entry] = {}
    for name in sorted({str(name) for name in where.values()}):
        path = folder / name
        # No name may lead out of the folder.
        if Path(name).name != name or path.suffix != ".safetensors":
            raise WeightsError(f"{folder / INDEX} names {name!r}, no safetensors file beside it")
        if not path.is_file():
            raise WeightsError(f"{folder / INDEX} names {name}, which is missing in {folder}")
        for tensor, entry in read_header(path).items():
            if where.get(tensor) != name:
                raise WeightsError(f"{path} has {tensor!r}, which {INDEX} places elsewhere")
            entries[tensor] = entry
    if missing := [tensor for tensor in where if tensor not in entries]:
        raise WeightsError(f"the tensor {missing[0]!r} is missing in {folder / where[missing[0]]}")
    return entries


def tidy(release: Release, found: Mapping[str, Entry]) -> dict[str, Entry]:
    """The tensors under the names that a new file of the bare backbone has for them."""
    entries: dict[str, Entry] = {}
    for name, entry in found.items():
        if any(f".{name}".endswith(f".{table}") for table in NO_WEIGHTS):
            continue
        plain = name.removeprefix(release.prefix)
        for old, new in OLD_NAMES.items():
            plain = plain.replace(old, new)
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
        if copy not in entries or (copy == LOOSE and _loose(model)):
            continue
        entry = entries.pop(copy)
        if name not in entries:
            entries[name] = entry
        elif (entry.shape, digest(entry)) != (entries[name].shape, digest(entries[name])):
            raise WeightsError(
                f"the tensor {entry.name!r} in {entry.file} should repeat "
                f"{entries[name].name!r}, with which it is tied, but has other numbers"
            )


LOOSE = "lm_head.weight"
"""The matrix of a head for words that is not the embedding."""


def _loose(model: Any) -> bool:
    """Whether the head for words has a matrix of its own."""
    head = getattr(model, "head", None)
    return isinstance(head, NextWord) and not tied(head, model.backbone.token)


def build(folder: Path, kind: str, entries: Mapping[str, Entry]) -> nn.Module:
    """The backbone, and the heads whose tensors are there."""
    values = read_json(folder / CONFIG)
    release = RELEASES[kind]
    config = read_config(kind, values, folder / CONFIG)
    if hasattr(config, "pooler"):
        pooler = any(name.startswith("pooler.") for name in entries)
        config = dataclasses.replace(config, pooler=pooler)
    backbone = MODELS[kind][0](config)
    words = _word_head(kind, backbone, values, entries)
    label = _label_head(kind, backbone, entries)
    if words is None:
        return backbone if label is None else Classifier(backbone, label)
    model = LanguageModel(backbone, words)
    if label is not None:
        model.label = label
    return model


def _word_head(
    kind: str, backbone: Any, values: Mapping[str, Any], entries: Mapping[str, Entry]
) -> NextWord | MaskedWord | None:
    """The head for words, when the release has one."""
    release, c = RELEASES[kind], backbone.config
    named = ARCHITECTURES[kind]["words"] in (values.get("architectures") or [])
    own = [name for row in release.words for name in row.theirs]
    if not named and not any(name in entries for name in (*own, *release.copies)):
        return None
    if len(own) > 1:
        activation = "gelu" if kind == "roberta" else c.activation
        return MaskedWord(backbone.token, c.width, activation=activation, eps=c.eps)
    is_tied = values.get("tie_word_embeddings", True)
    return NextWord(backbone.token, tied=bool(is_tied), bias=bool(own))


def _label_head(kind: str, backbone: Any, entries: Mapping[str, Entry]) -> Label | None:
    """The head for a label, when the release has one."""
    rows = {row.ours: row.theirs[0] for row in RELEASES[kind].label}
    entry = entries.get(rows.get("labels.weight", ""))
    if entry is None:
        return None
    pool = None if "pool.weight" in rows else backbone.pooler
    if pool is None and "pool.weight" not in rows:
        raise WeightsError(f"{entry.file} has the head {entry.name!r}, but not the pooler below it")
    activation = "relu" if kind == "distilbert" else "tanh"
    labels = entry.shape[0] if entry.shape else 0
    return Label(backbone.config.width, labels, pool=pool, activation=activation)


def release_names(kind: str, model: Any) -> dict[str, Tensor]:
    """The part of our parameters that a release keeps under each name."""
    release, backbone = RELEASES[kind], getattr(model, "backbone", model)
    names: dict[str, Tensor] = {}
    for row in release.rows(len(backbone.blocks)):
        names |= _parts(row, backbone)
    for head in (getattr(model, name, None) for name in ("head", "label")):
        if isinstance(head, Label):
            for row in release.label:
                names |= _parts(row, head)
        elif head is not None:
            for row in release.words:
                names |= _parts(row, head)
    if _loose(model):
        names[LOOSE] = model.head.words.weight
    return names


def _parts(row: Row, module: nn.Module) -> dict[str, Tensor]:
    """The parts of one of our tensors, under the release's names; nothing if we have none."""
    owner, _, last = row.ours.rpartition(".")
    try:
        tensor = getattr(module.get_submodule(owner), last)
    except AttributeError:
        return {}
    heads = getattr(getattr(module, "config", None), "heads", 1)
    return dict(zip(row.theirs, row.views(tensor, heads), strict=True))


def described(folder: Path) -> tuple[nn.Module, str, dict[str, Entry]]:
    """The model of a release on the meta device, its family, and the tensors it is made of."""
    kind = kind_of(read_json(folder / CONFIG), folder / CONFIG)
    entries = tidy(RELEASES[kind], files_of(folder))
    try:
        with torch.device("meta"):
            model = build(folder, kind, entries)
    except WeightsError:
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise WeightsError(f"{folder / CONFIG} describes no model: {error}") from None
    drop_copies(RELEASES[kind], model, entries)
    return model, kind, entries


def save(model: Any, folder: Path) -> None:
    """Write a release; an older one of the same model there is replaced as a whole."""
    backbone = getattr(model, "backbone", model)
    kind = kind_for(backbone)
    names = release_names(kind, model)
    heads = _heads(model)
    if heads:
        own = {name for row in RELEASES[kind].rows(len(backbone.blocks)) for name in row.theirs}
        prefix = RELEASES[kind].prefix
        names = {(prefix + name if name in own else name): t for name, t in names.items()}
    if heads not in ARCHITECTURES[kind]:
        raise WeightsError(
            f"there is no release of the {kind} family with a head for {heads}: "
            "save the model with labkit.weights.save"
        )
    values = write_config(kind, backbone.config)
    values |= {"architectures": [ARCHITECTURES[kind][heads]], "dtype": "float32"}
    values["tie_word_embeddings"] = not _loose(model)
    folder.mkdir(parents=True, exist_ok=True)
    _check_place(folder, values)
    write(folder / WEIGHTS, {name: tensor.detach().contiguous() for name, tensor in names.items()})
    write_json(folder / CONFIG, values)


def _heads(model: Any) -> str:
    """Which heads the model has, in the words of ARCHITECTURES."""
    heads = [getattr(model, name, None) for name in ("head", "label")]
    kinds = {"label" if isinstance(head, Label) else "words" for head in heads if head is not None}
    return " and ".join(sorted(kinds, reverse=True))


def _check_place(folder: Path, values: dict[str, Any]) -> None:
    """Refuse to write into a folder of another model, which would be neither for a moment."""
    if (folder / INDEX).exists() or (
        (folder / CONFIG).exists() and read_json(folder / CONFIG) != values
    ):
        raise WeightsError(f"{folder} holds a release of another model: choose another folder")
