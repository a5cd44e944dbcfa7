"""Models and languages as data that a page can hold: what `engine.js` reads."""

import base64
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from classroom.demos.reading import labels
from labkit.models.gpt import GPT
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

Trained = tuple[Any, Tokenizer]


def written_model(model: Any, tokenizer: Tokenizer, bits: int = 16) -> dict[str, Any]:
    """A GPT or a BERT: its sizes, its tokens, and its weights one after the other."""
    backbone, config = model.backbone, model.backbone.config
    weights = dict(embedding_of(model))
    for n, block in enumerate(backbone.blocks):
        weights.update(block_of(str(n), block))
    kind = {16: "<f2", 32: "<f4"}[bits]
    blob = b"".join(w.detach().cpu().numpy().astype(kind).tobytes() for w in weights.values())
    first = isinstance(backbone, GPT)
    return {
        "config": {
            "width": config.width, "layers": config.layers, "heads": config.heads,
            "context": config.context, "vocabulary": config.vocabulary, "eps": config.eps,
            "activation": config.activation, "first": first,
        },
        "names": [[name, list(weight.shape)] for name, weight in weights.items()],
        "bits": bits,
        "blob": base64.b64encode(blob).decode(),
        "tokens": labels(tokenizer, range(len(tokenizer))),
        "special": tokenizer.vocabulary._asdict(),
    }  # fmt: skip


def embedding_of(model: Any) -> list[tuple[str, Tensor]]:
    """The weights before and after the blocks; a tied matrix is written once."""
    backbone, head = model.backbone, model.head
    found = [("embedding.token", backbone.token.weight)]
    found.append(("embedding.position", backbone.position.weight))
    if isinstance(backbone, GPT):
        assert backbone.norm is not None
        return found + named("head", norm=backbone.norm)
    if backbone.segment is not None:
        # One sentence: its words are all of the first segment.
        found.append(("embedding.segment", backbone.segment.weight[:1]))
    found += named("embedding", norm=backbone.norm)
    found += named("head", dense=head.dense, norm=head.norm)
    return [*found, ("head.bias", head.words.bias)]


def block_of(group: str, block: Any) -> list[tuple[str, Tensor]]:
    """The weights of a block."""
    up, down = (part for part in block.mlp.children() if hasattr(part, "weight"))
    return named(
        group,
        qkv=block.attention.query_key_value,
        out=block.attention.out,
        up=up,
        down=down,
        norm1=block.attention_norm,
        norm2=block.mlp_norm,
    )


def named(group: str, **parts: Any) -> list[tuple[str, Tensor]]:
    """The weights and biases of layers."""
    found = []
    for name, part in parts.items():
        found.append((f"{group}.{name}", part.weight))
        found.append((f"{group}.{name}_bias", part.bias))
    return found


def written_language(world: World) -> dict[str, Any]:
    """A compiled language: first states, arcs between states, emissions, and what is remembered.

    An emission lists (word, weight, classes, whether it is drawn from the memory).
    """
    machine, begin = world.machine, {}
    for start in ("document", "sentence"):
        weights = machine.enter(world._start(start))
        begin[start] = [[int(s), float(weights[s])] for s in np.nonzero(weights)[0]]
    emissions = machine.emissions
    entries = list(
        zip(emissions.word.tolist(), emissions.weight.tolist(), emissions.classes.tolist(),
            machine.remembered.astype(int).tolist(), strict=True)
    )  # fmt: skip
    source = np.repeat(np.arange(machine.states), np.diff(machine.onward.start))
    return {
        "vocabulary": machine.vocabulary,
        "states": machine.states,
        "emission": machine.emission.tolist(),
        "emissions": [entries[a:z] for a, z in pairwise(emissions.start.tolist())],
        "group": machine.group.tolist(),
        "arcs": [source.tolist(), machine.onward.target.tolist(), machine.onward.weight.tolist()],
        "begin": begin,
        "prior": machine.prior.tolist(),
        "memories": [
            {
                "valueOf": memory.value_of[: len(machine.vocabulary)].tolist(),
                "familyOf": memory.family_of.tolist(),
                "alpha": memory.alpha.tolist(),
                "base": memory.base.tolist(),
            }
            for memory in world.memory.groups
        ],
    }
