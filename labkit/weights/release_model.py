"""A model from a release's config.json and the names of its tensors, and both from a model.

A release can have settings that our models do not support, and our models can have settings that
no release can express: both are refused by name.  The tensors of a release show which heads it has.
All names are in `labkit.weights.release_names`.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from labkit.blocks import Backbone, Classifier, LanguageModel, Model, backbone_of
from labkit.checks import shown
from labkit.heads import Label, MaskedWord, NextWord, Span, tied
from labkit.models.bert import BERTConfig
from labkit.models.gpt import GPTConfig
from labkit.models.xlnet import XLNetConfig
from labkit.weights.description import from_config
from labkit.weights.release_names import ACTIVATION_NAMES, RELEASES, SPAN, Row, meant
from labkit.weights.tensors import WeightsError

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

CONFIGS: dict[str, type] = {
    "openai-gpt": GPTConfig,
    "gpt2": GPTConfig,
    "bert": BERTConfig,
    "roberta": BERTConfig,
    "albert": BERTConfig,
    "distilbert": BERTConfig,
    "xlnet": XLNetConfig,
}

Shapes = Mapping[str, tuple[int, ...]]

# ---- config.json -------------------------------------------------------------------------------


def kind_of(values: Mapping[str, Any], where: Any) -> str:
    """The family that a release's config.json names."""
    kind = values.get("model_type")
    if str(kind) not in RELEASES:
        raise WeightsError(
            f"{where} describes a model of type {shown(kind)}; labkit reads releases of "
            f"{', '.join(RELEASES)}, and folders that labkit.weights.save wrote"
        )
    return str(kind)


def read_config(kind: str, values: Mapping[str, Any], where: Any) -> Any:
    """Our config from a release's config.json."""
    for name, allowed in RELEASES[kind].only.items():
        _check_says(kind, values, where, name, *allowed)
    fields = RELEASES[kind].config(values)
    if kind == "albert":
        # What a config.json without an activation means; in the rest of the family it is "gelu".
        fields.setdefault("activation", "gelu_tanh")
    if kind == "xlnet":
        fields["memory"] = values.get("mem_len") or 0
    if fields.get("attention_dropout") == fields.get("dropout"):
        # One rate for both, as in our configs where nothing is said.
        fields.pop("attention_dropout", None)
    for name in ("vocabulary", "width", "layers", "heads"):
        if type(fields.get(name)) is not int or not 0 < fields[name] < 10**7:
            theirs = RELEASES[kind].sizes[name]
            raise WeightsError(f"{where} gives an invalid {theirs}: {fields.get(name)!r}")
    if kind == "xlnet":
        _check_says(kind, values, where, "d_head", fields["width"] // fields["heads"], None)
    return CONFIGS[kind](**fields)


def _check_says(kind: str, values: Mapping[str, Any], where: Any, name: str, *allowed: Any) -> None:
    """Refuse what config.json says where our models leave no such choice."""
    if name in values and values[name] not in allowed:
        raise WeightsError(
            f"{where} says {name}={shown(values[name])}, labkit's {kind} has "
            f"{' or '.join(map(repr, allowed))} only"
        )


def warn_of_dropouts(kind: str, values: Mapping[str, Any], where: Any) -> None:
    """Warn of rates of dropout that our model does not have: they matter when it is trained."""
    main = RELEASES[kind].sizes["dropout"]
    for name in RELEASES[kind].dropouts:
        if name in values and values[name] != values.get(main, values[name]):
            warnings.warn(
                f"{where} says {name}={shown(values[name])}, labkit's {kind} has {main}="
                f"{shown(values[main])} there, too: its answers are the same, its training is not",
                stacklevel=4,
            )


def kind_for(backbone: nn.Module) -> str:
    """The family whose releases look like this backbone."""
    match getattr(backbone, "config", None):
        case GPTConfig(norm_first=norm_first):
            return "gpt2" if norm_first else "openai-gpt"
        case XLNetConfig():
            return "xlnet"
        case BERTConfig(shared=True):
            return "albert"
        case BERTConfig(segments=0):
            return "distilbert"
        case BERTConfig(unused_positions=unused):
            return "roberta" if unused else "bert"
    raise WeightsError(
        f"there is no public release of the kind of {type(backbone).__name__}: "
        "save it with labkit.weights.save"
    )


def write_config(kind: str, config: Any) -> dict[str, Any]:
    """A release's config.json from our config; whether it says all of it is checked later."""
    release = RELEASES[kind]
    values = {name: allowed[0] for name, allowed in release.only.items()}
    fields = vars(config)
    values |= {theirs: meant(fields, ours) for ours, theirs in release.sizes.items()}
    values |= dict.fromkeys(release.dropouts, config.dropout)
    if "activation" in release.sizes:
        names = {ours: theirs for theirs, ours in reversed(ACTIVATION_NAMES.items())}
        values[release.sizes["activation"]] = names.get(config.activation, config.activation)
    if "context" in release.sizes:
        unused = config.unused_positions if isinstance(config, BERTConfig) else 0
        values[release.sizes["context"]] += unused
    if kind == "xlnet":
        values["mem_len"] = config.memory
    for ours, theirs in release.sizes.items():
        if values[theirs] is None:
            raise WeightsError(
                f"a release of the {kind} family cannot say {ours}=None: "
                "save the model with labkit.weights.save"
            )
    return {"model_type": kind, **values}


# ---- the model and its tensors -----------------------------------------------------------------


def loose(model: Any) -> bool:
    """Whether the head for words has a matrix of its own, which else repeats the embedding."""
    if not isinstance(model, Model) or not isinstance(model.head, NextWord):
        return False
    return not tied(model.head, model.backbone.token)


def build_release(kind: str, values: Mapping[str, Any], shapes: Shapes, where: Path) -> nn.Module:
    """The backbone, and the heads whose tensors are there."""
    config = read_config(kind, values, where / CONFIG)
    _check_no_tagger(values, where / CONFIG)
    if isinstance(config, BERTConfig):
        config = dataclasses.replace(config, pooler="pooler" in _tops(shapes))
    shared = isinstance(config, BERTConfig) and config.shared
    if config.layers > len(shapes) and not shared:
        raise WeightsError(
            f"{where / CONFIG} says {config.layers} layers, the folder has {len(shapes)} tensors"
        )
    backbone = from_config(config)
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


def _check_no_tagger(values: Mapping[str, Any], where: Any) -> None:
    """Refuse a head that labels every word: its tensors have the names of one for the text."""
    for name in values.get("architectures") or []:
        if str(name).endswith("ForTokenClassification"):
            raise WeightsError(
                f"{where} says architectures={shown(name)}, a head for a label of every word; "
                "labkit reads releases with heads for words, for a label of the text or for spans"
            )


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
        for row in {Label: release.label, Span: SPAN}.get(type(head), release.words):
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
    if tensor is None:  # a layer without a bias
        return {}
    heads = module.config.heads if isinstance(module, Backbone) else 1
    return dict(zip(row.theirs, row.views(tensor, heads), strict=True))
