"""A model as a table of names and numbers, and the model again from the table.

A backbone is its config: a folder names the class and the fields. Only subclasses of `Backbone`
that are defined already are built: no file can make labkit import or run anything else. The
arguments of a head are read from the module itself.
"""

import contextlib
import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from torch import nn

from labkit import models
from labkit.blocks import Backbone, Classifier, LanguageModel, Model
from labkit.checks import shown
from labkit.heads import LABEL_ACTIVATIONS, Label, MaskedWord, NextWord, Pooled, Span, tied
from labkit.models.bert import BERT
from labkit.models.elmo import WeightedSum
from labkit.models.transformer_xl import AdaptiveWord
from labkit.transfer.mixed import Mixed
from labkit.weights.tensors import WeightsError

WHOLES: dict[str, type[Model]] = {"LanguageModel": LanguageModel, "Classifier": Classifier}


def families() -> dict[str, type[Backbone]]:
    """Every class of backbone by its name; the names of labkit's own are reserved."""
    for module in pkgutil.iter_modules(models.__path__, "labkit.models."):
        importlib.import_module(module.name)
    every = sorted(_below(Backbone), key=lambda kind: kind.__module__.startswith("labkit."))
    return {kind.__name__: kind for kind in every if _names_config(kind)}


def _names_config(kind: type[Backbone]) -> bool:
    """Whether a class names a config of its own, though that may not be found."""
    try:
        return "config" in kind.__annotations__
    except NameError:  # from Python 3.14 on, annotations are evaluated where they are read
        return True


def _below(kind: type[Backbone]) -> list[type[Backbone]]:
    """The classes that derive from a class, the first defined first."""
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


def describe(model: nn.Module) -> dict[str, Any]:
    """What `model_of` needs to make a model of the same shape."""
    if isinstance(model, LanguageModel | Classifier) and type(model) in WHOLES.values():
        backbone = describe(model.backbone)
        return {"class": type(model).__name__, "backbone": backbone, **_describe_heads(model)}
    name = type(model).__name__
    if isinstance(model, Mixed):
        mix = {"layers": len(model.mix.weights), "normalise": model.mix.normalise}
        return {"class": name, "backbone": describe(model.backbone), "mix": mix}
    known = families()
    if not isinstance(model, Backbone) or type(model) is not known.get(name):
        raise WeightsError(
            f"labkit.weights cannot describe a {name}; it can save {', '.join(known)}, alone or "
            f"in {' or '.join(WHOLES)}, and any Backbone that names its config and is the latest "
            "of its name; save other modules with safetensors.torch.save_model"
        )
    return {"class": name, "config": _values_of(model.config)}


def _values_of(config: Any) -> dict[str, Any]:
    """The fields of a config; one that JSON would give back as something else is refused."""
    values = {each.name: getattr(config, each.name) for each in _given(type(config))}
    hints = get_type_hints(type(config))
    for name, value in values.items():
        try:
            again = _from_json(json.loads(json.dumps(value)), hints[name])
            same = again == _from_json(value, hints[name])
        except (TypeError, ValueError, RecursionError):  # JSON has no such type, or it is a circle
            same = False
        if not same:
            raise WeightsError(
                f"{type(config).__name__} cannot be saved: its field {name!r} is {shown(value)}; "
                "a config that is saved holds numbers, texts, True, False, None, and tuples, lists "
                "and dicts of them with texts as keys"
            )
    return values


def model_of(description: Any, where: Any) -> nn.Module:
    """The model of a description; `where` is named when the description is wrong."""
    try:
        return _build(description)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, NameError) as error:
        raise WeightsError(
            f"{where} describes no model that labkit can build: {type(error).__name__}: {error}"
        ) from None


def _build(description: dict[str, Any]) -> nn.Module:
    if description["class"] not in WHOLES:
        return _build_backbone(description)
    backbone = _build_backbone(description["backbone"])
    whole = WHOLES[description["class"]](backbone, _build_head(description["head"], backbone))
    for each, head in description.items():
        if each not in ("class", "backbone", "head"):
            other = head.get("as")
            part = _build_head(head, backbone) if other is None else whole.get_submodule(other)
            whole.add_module(each, part)
    return whole


def _build_backbone(description: dict[str, Any]) -> Backbone:
    name = description["class"]
    if name == "Mixed":
        return Mixed(_build_backbone(description["backbone"]), WeightedSum(**description["mix"]))
    config = config_of(name, description["config"])
    return families()[name](config)


def from_config(config: Any) -> Backbone:
    """A new backbone of the family whose config this is."""
    kinds = {}
    for kind in families().values():
        # A family whose config cannot be found is no reason to refuse the others.
        with contextlib.suppress(ValueError):
            kinds[config_class(kind)] = kind
    if type(config) not in kinds:
        raise ValueError(
            f"{type(config).__name__} is the config of no backbone: the backbones are "
            f"{', '.join(families())}"
        )
    return kinds[type(config)](config)


def config_class(kind: type[Backbone]) -> type:
    """The dataclass that a backbone names as its config."""
    try:
        return get_type_hints(kind)["config"]
    # With `from __future__ import annotations`, a name inside of a function is not found.
    except (NameError, AttributeError) as error:
        raise ValueError(
            f"the annotations of {kind.__name__} cannot be read ({error}): define the class and "
            "its config at the top level of a module"
        ) from None


def config_of(name: str, values: dict[str, Any]) -> Any:
    """The config of a class of backbone, from what JSON made of it.

    Lists become tuples again, except where a list is annotated.
    """
    known = families()
    if name not in known:
        raise ValueError(
            f"there is no model {name!r}: the classes are {', '.join([*known, *WHOLES])}; a class "
            "of your own must be defined before its folder is loaded"
        )
    kind = config_class(known[name])
    names = {field.name for field in _given(kind)}
    if unknown := set(values) - names:
        raise ValueError(
            f"{kind.__name__} has no field {min(unknown)!r}: it has {', '.join(names)}"
        )
    hints = get_type_hints(kind)
    return kind(**{field: _from_json(value, hints[field]) for field, value in values.items()})


def _given(kind: Any) -> list[dataclasses.Field[Any]]:
    """The fields that a config is made with."""
    return [field for field in dataclasses.fields(kind) if field.init]


def _from_json(value: Any, hint: Any) -> Any:
    """The value of a field: JSON knows only lists, which are tuples where no list is annotated."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        known = [each for each in inner if each is not type(None)]
        return _from_json(value, known[0])
    part_hint = None if not inner else inner[-1] if isinstance(value, dict) else inner[0]
    if isinstance(value, dict):
        return {name: _from_json(part, part_hint) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return (list if kind is list else tuple)(_from_json(part, part_hint) for part in value)
    return value


def _describe_heads(model: Model) -> dict[str, Any]:
    """The heads of a model by their names; one that has several names is described once."""
    heads: dict[str, Any] = {}
    first = {model.head: "head"}
    # named_children would leave out the second name.
    for name, head in model.named_modules(remove_duplicate=False):
        if name and "." not in name and head is not model.backbone:
            known = first.setdefault(head, name)
            again = known != name
            heads[name] = {"as": known} if again else _describe_head(head, model.backbone)
    return heads


def _describe_head(head: nn.Module, backbone: Backbone) -> dict[str, Any]:
    """The class of a head and what it was built with."""
    describers: dict[type, Callable[[Any, Backbone], dict[str, Any]]] = {
        NextWord: _next_word,
        MaskedWord: _masked_word,
        AdaptiveWord: lambda head, backbone: {},
        Label: _label,
        Pooled: _pooled,
        Span: lambda head, backbone: {"width": head.ends.in_features},
    }
    if isinstance(head, Model):
        raise WeightsError(
            "a part of this model is a model of its own, such as model.behaviour, the copy that "
            "Rollouts(epochs=2) keeps: remove it (del model.behaviour), then save"
        )
    if type(head) not in describers:
        raise WeightsError(
            f"labkit.weights cannot describe a head {type(head).__name__}; it can save "
            f"{', '.join(known.__name__ for known in describers)}"
        )
    return {"class": type(head).__name__, **describers[type(head)](head, backbone)}


def _next_word(head: NextWord, backbone: Backbone) -> dict[str, Any]:
    return {
        "tied": isinstance(backbone.token, nn.Embedding) and tied(head, backbone.token),
        "bias": head.words.bias is not None,
        "vocabulary": head.words.out_features,
        "width": head.words.in_features,
    }


def _masked_word(head: MaskedWord, backbone: Backbone) -> dict[str, Any]:
    activation = _activation(head.activation)
    return {"width": head.dense.in_features, "activation": activation, "eps": head.norm.eps}


def _label(head: Label, backbone: Backbone) -> dict[str, Any]:
    return {
        "width": head.labels.in_features,
        "labels": head.labels.out_features,
        "pooled": head.pool is not None,
        "shared": head.pool is not None and head.pool is _pooler(backbone),
        "activation": _activation(head.activation),
        "dropout": head.dropout.p,
        "each": head.each,
    }


def _pooled(head: Pooled, backbone: Backbone) -> dict[str, Any]:
    return {
        "width": (head.inner or head.labels).in_features // len(head.parts),
        "labels": head.labels.out_features,
        "parts": head.parts,
        "inner": None if head.inner is None else head.inner.out_features,
        "dropout": head.dropout.p,
        "normalised": head.normalised,
    }


def _build_head(description: dict[str, Any], backbone: Backbone) -> nn.Module:
    """The head of a description; word heads use the embedding of the backbone."""
    given = {name: value for name, value in description.items() if name != "class"}
    match description["class"]:
        case "NextWord":
            shape = given.pop("vocabulary"), given.pop("width")
            return NextWord(backbone.token if given["tied"] else nn.Embedding(*shape), **given)
        case "MaskedWord":
            return MaskedWord(backbone.token, **given)
        case "Label":
            pool = _pooler(backbone) if given.pop("shared") else None
            return Label(**given, pool=pool)
        case "Pooled":
            return Pooled(**{**given, "parts": tuple(given["parts"])})
        case "AdaptiveWord":
            return AdaptiveWord(backbone.token, **given)  # type: ignore[arg-type]
        case "Span":
            return Span(**given)
        case name:
            raise ValueError(f"there is no head {name!r}")


def _pooler(backbone: Backbone) -> nn.Linear | None:
    """The layer of BERT's backbone that heads for labels share."""
    return backbone.pooler if isinstance(backbone, BERT) else None


def _activation(function: Callable[..., Any]) -> str:
    """The name of an activation."""
    for name, each in LABEL_ACTIVATIONS.items():
        if each is function:
            return name
    *others, last = LABEL_ACTIVATIONS
    raise WeightsError(
        f"a head with the activation {shown(function)} cannot be saved: choose "
        f"{', '.join(others)} or {last}"
    )
