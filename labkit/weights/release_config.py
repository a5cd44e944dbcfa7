"""What a release's config.json says, as our config, and our config as a release says it.

A release can say things that our models do not do, and our models can be what no release can say:
both are refused by name.  The names of the fields stand in `labkit.weights.release_names`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from labkit.blocks import Backbone
from labkit.checks import shown
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.weights.release_names import ACTIVATION_NAMES, RELEASES
from labkit.weights.tensors import WeightsError

CONFIG = "config.json"

MODELS: dict[str, tuple[Callable[[Any], Backbone], type]] = {
    "openai-gpt": (GPT, GPTConfig),
    "gpt2": (GPT, GPTConfig),
    "bert": (BERT, BERTConfig),
    "roberta": (BERT, BERTConfig),
    "albert": (BERT, BERTConfig),
    "distilbert": (BERT, BERTConfig),
    "xlnet": (XLNet, XLNetConfig),
}


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
        if name in values and values[name] not in allowed:
            raise WeightsError(
                f"{where} says {name}={shown(values[name])}, labkit's {kind} has "
                f"{' or '.join(map(repr, allowed))} only"
            )
    fields = RELEASES[kind].config(values)
    if kind == "xlnet":
        fields["memory"] = values.get("mem_len") or 0
    for name in ("vocabulary", "width", "layers", "heads"):
        if type(fields.get(name)) is not int or not 0 < fields[name] < 10**7:
            theirs = RELEASES[kind].sizes[name]
            raise WeightsError(f"{where} gives no sound {theirs}: {fields.get(name)!r}")
    return MODELS[kind][1](**fields)


def kind_for(backbone: nn.Module) -> str:
    """The family whose releases look like this backbone."""
    match backbone.config:
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
    """A release's config.json from our config; whether it says all of it is checked elsewhere."""
    release = RELEASES[kind]
    values = {name: allowed[0] for name, allowed in release.only.items()}
    values |= {theirs: getattr(config, ours) for ours, theirs in release.sizes.items()}
    values |= dict.fromkeys(release.dropouts, config.dropout)
    if "inner" in release.sizes:
        values[release.sizes["inner"]] = config.inner or 4 * config.width
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
