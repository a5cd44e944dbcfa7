"""The model that a release's config.json and its tensors' names tell of, and those names again.

Which heads a release has shows in the tensors that are there: the names of the backbone stand in
`labkit.weights.release_names`, and so do those of the heads.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from labkit.blocks import Backbone, Classifier, LanguageModel, Model, backbone_of
from labkit.heads import Label, MaskedWord, NextWord, Span, tied
from labkit.models.bert import BERTConfig
from labkit.weights.release_config import CONFIG, MODELS, read_config
from labkit.weights.release_names import RELEASES, Row
from labkit.weights.tensors import WeightsError


def loose(model: Any) -> bool:
    """Whether the head for words has a matrix of its own, which else repeats the embedding."""
    if not isinstance(model, Model) or not isinstance(model.head, NextWord):
        return False
    return not tied(model.head, model.backbone.token)


SPAN = {"qa_outputs.weight": "ends.weight", "qa_outputs.bias": "ends.bias"}
"""The head that says where an answer starts and ends, in all of BERT's family: theirs -> ours."""

Shapes = Mapping[str, tuple[int, ...]]


def build_release(kind: str, values: Mapping[str, Any], shapes: Shapes, where: Path) -> nn.Module:
    """The backbone, and the heads whose tensors are there."""
    config = read_config(kind, values, where / CONFIG)
    if isinstance(config, BERTConfig):
        config = dataclasses.replace(config, pooler="pooler" in _tops(shapes))
    shared = isinstance(config, BERTConfig) and config.shared
    if config.layers > len(shapes) and not shared:
        raise WeightsError(
            f"{where / CONFIG} says {config.layers} layers, the folder has {len(shapes)} tensors"
        )
    backbone = MODELS[kind][0](config)
    words = _word_head(kind, backbone, values, shapes)
    label = _label_head(kind, backbone, shapes, where)
    if words is not None:
        model = LanguageModel(backbone, words)
        if label is not None:
            model.pair = label
        return model
    if label is None and "span" in RELEASES[kind].architectures and "qa_outputs" in _tops(shapes):
        return Classifier(backbone, Span(config.width))
    return backbone if label is None else Classifier(backbone, label)


def _tops(shapes: Shapes) -> set[str]:
    """The names of tensors, up to their first dot."""
    return {name.split(".")[0] for name in shapes}


def _word_head(
    kind: str, backbone: Any, values: Mapping[str, Any], shapes: Shapes
) -> NextWord | MaskedWord | None:
    """The head for words, when the release has one."""
    release, c = RELEASES[kind], backbone.config
    named = release.architectures["words"] in (values.get("architectures") or [])
    own = [name for row in release.words for name in row.theirs]
    if not named and not any(name in shapes for name in (*own, *release.copies)):
        return None
    if len(own) > 1:
        activation = "gelu" if kind == "roberta" else c.activation
        return MaskedWord(backbone.token, c.width, activation=activation, eps=c.eps)
    is_tied = values.get("tie_word_embeddings", True)
    return NextWord(backbone.token, tied=bool(is_tied), bias=bool(own))


def _label_head(kind: str, backbone: Any, shapes: Shapes, where: Path) -> Label | None:
    """The head for a label, when the release has one."""
    rows = {row.ours: row.theirs[0] for row in RELEASES[kind].label}
    shape = shapes.get(rows.get("labels.weight", ""))
    if not shape:
        return None
    pool = None if "pool.weight" in rows else backbone.pooler
    if pool is None and "pool.weight" not in rows:
        raise WeightsError(f"{where} has a head for labels, but not the pooler below it")
    activation = "relu" if kind == "distilbert" else "tanh"
    return Label(backbone.config.width, shape[0], pool=pool, activation=activation)


def release_names(kind: str, model: Any) -> dict[str, Tensor]:
    """The part of our parameters that a release keeps under each name."""
    release, backbone = RELEASES[kind], backbone_of(model)
    names: dict[str, Tensor] = {}
    for row in release.rows(len(backbone.blocks)):
        names |= _parts(row, backbone)
    for head in heads_of(model):
        span = [Row(ours, (theirs,)) for theirs, ours in SPAN.items()]
        kinds = {Label: release.label, Span: span}
        for row in kinds.get(type(head), release.words):
            names |= _parts(row, head)
    if loose(model):
        names[release.copies[0]] = model.head.words.weight
    return names


def heads_of(model: nn.Module) -> list[nn.Module]:
    """The heads of a model, that of pairs of sentences last; none of a backbone alone."""
    return [head for name, head in model.named_children() if name in ("head", "pair")]


def _parts(row: Row, module: nn.Module) -> dict[str, Tensor]:
    """The parts of one of our tensors, under the release's names; nothing if we have none."""
    owner, _, last = row.ours.rpartition(".")
    try:
        tensor = getattr(module.get_submodule(owner), last)
    except AttributeError:
        return {}
    heads = module.config.heads if isinstance(module, Backbone) else 1
    return dict(zip(row.theirs, row.views(tensor, heads), strict=True))
