"""Write a model as a public release: config.json and model.safetensors, read by any tool."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.blocks import backbone_of
from labkit.heads import Label, Span
from labkit.keeping.files import write_json
from labkit.text.tokenizers import Tokenizer
from labkit.weights.description import describe
from labkit.weights.ours import DESCRIPTION
from labkit.weights.release_model import (
    CONFIG,
    INDEX,
    WEIGHTS,
    build_release,
    heads_of,
    kind_for,
    loose,
    release_names,
    write_config,
)
from labkit.weights.release_names import RELEASES, meant
from labkit.weights.sources import Source
from labkit.weights.tensors import (
    WeightsError,
    check_alike,
    check_storable,
    is_sound,
    read_description,
    write_tensors,
)

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def save_release(model: nn.Module, folder: Source, *, tokenizer: Tokenizer | None = None) -> None:
    """Write a model in the format of its family's public releases.

    An older one of the same model there is replaced as a whole. A tokenizer is written beside the
    weights, and config.json then says its padding and its separator, at which other tools stop
    generating. The written tokenizer adds no special tokens to a text, but recognises those in it.
    """
    folder, backbone = Path(folder), backbone_of(model)
    kind, heads = kind_for(backbone), _heads(model)
    if heads not in RELEASES[kind].architectures:
        raise WeightsError(
            f"there is no release of the {kind} family with a head for {heads}: "
            "save the model with labkit.weights.save"
        )
    _check_pooler(kind, model, heads)
    names = release_names(kind, model)
    values = write_config(kind, backbone.config)
    values["architectures"] = [RELEASES[kind].architectures[heads]]
    values["tie_word_embeddings"] = not loose(model)
    values |= _special_tokens(kind, backbone.config.vocabulary, tokenizer)
    values["dtype"] = str(backbone.token.weight.dtype).removeprefix("torch.")
    _check_says_all(kind, model, values, names)
    check_storable(names)
    if bad := next((name for name, tensor in names.items() if not is_sound(tensor)), None):
        raise WeightsError(
            f"the tensor {bad!r} has numbers that are not finite, or too large, which no release "
            "may have: train again with a lower rate"
        )
    if heads:
        values |= _labels(heads_of(model)[-1])
        names = _with_prefix(kind, heads, names, release_names(kind, backbone))
    folder.mkdir(parents=True, exist_ok=True)
    _check_place(folder, values)
    write_tensors(folder / WEIGHTS, names)
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
        write_json(folder / TOKENIZER_CONFIG, _tokenizer_config(tokenizer))
    write_json(folder / CONFIG, values)


def _special_tokens(kind: str, vocabulary: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What config.json says about padding, and about the token that begins and ends a text."""
    if tokenizer is None:
        # GPT-2's separator, which is meant where nothing is said, is a token of its vocabulary.
        own = kind != "gpt2" or vocabulary == 50257
        return {} if own else {"bos_token_id": None, "eos_token_id": None}
    if len(tokenizer) > vocabulary:
        raise WeightsError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {vocabulary}: give the "
            "tokenizer that the model was trained with"
        )
    found = tokenizer.vocabulary
    if found.pad != RELEASES[kind].only.get("pad_token_id", (found.pad,))[0]:
        raise WeightsError(
            f"a release of the {kind} family cannot say pad={found.pad!r}, its padding is token 1: "
            "save the model with labkit.weights.save"
        )
    return {"pad_token_id": found.pad, "bos_token_id": found.sep, "eos_token_id": found.sep}


def _tokenizer_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """What makes other tools read tokenizer.json as it is, whatever the family's own one does."""
    found = tokenizer.vocabulary
    roles = {role: getattr(found, role) for role in ("pad", "unk", "cls", "sep", "mask")}
    roles |= {"bos": found.sep, "eos": found.sep}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # GPT-2 would add the embeddings of segments, which are those of words.
        "model_input_names": ["input_ids", "attention_mask"],
        **{f"{role}_token": tokenizer.pieces([n])[0] for role, n in roles.items() if n is not None},
    }


def _check_pooler(kind: str, model: Any, heads: str) -> None:
    """Refuse a head for labels without the pooler that the family's backbone has below it."""
    own = any(row.ours.startswith("pool.") for row in RELEASES[kind].label)
    if "label" in heads and heads_of(model)[-1].pool is None:
        raise WeightsError(
            f"a release of the {kind} family has a pooler below its head for labels, and this head "
            "has none (pooled=False), as where every word gets a label: save the model with "
            "labkit.weights.save, or its backbone alone with save_release(model.backbone, folder)"
        )
    if "label" in heads and not own and model.backbone.pooler is None:
        raise WeightsError(
            f"a release of the {kind} family has a pooler below its head for labels: build the "
            "model with BERTConfig(pooler=True) and Label(pool=bert.pooler), or save it with "
            "labkit.weights.save"
        )


def _heads(model: Any) -> str:
    """Which heads the model has, in the words of `Release.architectures`."""
    known = {Label: "label", Span: "span"}
    kinds = {known.get(type(head), "words") for head in heads_of(model)}
    return " and ".join(sorted(kinds, reverse=True))


def _labels(head: Any) -> dict[str, Any]:
    """The names of the labels, which say how many there are."""
    if not isinstance(head, Label):
        return {}
    names = {str(i): f"LABEL_{i}" for i in range(head.labels.out_features)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


def _with_prefix(
    kind: str, heads: str, names: dict[str, Tensor], backbone: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The names as a release with heads has them."""
    prefix, label = RELEASES[kind].prefix, RELEASES[kind].only_label
    long = {(prefix + name if name in backbone else name): t for name, t in names.items()}
    if heads != "label" or not label:
        return long
    return {name.replace(f"{label}.", "classifier."): tensor for name, tensor in long.items()}


def _check_says_all(
    kind: str, model: nn.Module, values: dict[str, Any], names: dict[str, Tensor]
) -> None:
    """Refuse a model that would be read back as a different one."""
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in names.items()}
        again = build_release(kind, values, shapes, Path())
    said, read = _facts(describe(model)), _facts(describe(again))
    # Where no position depends on the length of a segment, no release tells of it.
    unsaid = set() if "context" in RELEASES[kind].sizes else {"config.context"}
    for name in said.keys() | read.keys():
        if name.removeprefix("backbone.") in unsaid:
            continue
        if said.get(name) != read.get(name):
            raise WeightsError(
                f"a release of the {kind} family cannot say {name}={said.get(name)!r}: "
                "save the model with labkit.weights.save"
            )
    check_alike(model, again)


def _facts(description: dict[str, Any], path: str = "") -> dict[str, Any]:
    """A description as one flat table, without what no release tells of."""
    facts: dict[str, Any] = {}
    for name, value in description.items():
        if isinstance(value, dict):
            facts |= _facts(value, f"{path}{name}.")
        elif path + name not in {"head.dropout", "pair.dropout"}:
            facts[path + name] = meant(description, name)
    return facts


def _check_place(folder: Path, values: dict[str, Any]) -> None:
    """Refuse a folder of another model: for a moment it would hold parts of both."""
    other = (folder / CONFIG).exists() and read_description(folder / CONFIG) != values
    if other or (folder / INDEX).exists() or (folder / DESCRIPTION).exists():
        raise WeightsError(f"{folder} holds another model: choose another folder")
