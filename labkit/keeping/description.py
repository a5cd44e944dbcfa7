"""A description of a run, by which two runs can be compared."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.blocks import Backbone, Model, backbone_of
from labkit.checks import check_type
from labkit.corpus import Batch, Batches, Stages
from labkit.keeping.checkpoints import Snapshot
from labkit.keeping.files import digest, tensor_bytes
from labkit.objectives.base import Objective

# What may differ when a run goes on: where and how it is computed, not what.
FREE = frozenset({"accumulate", "compile", "checkpointing", "save_every", "keep", "processes"})


NOTES = "give numbers, texts, lists and dicts with texts as keys, float(…) of a tensor"
"""What `trainer.notes` may hold."""


def plain(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts as JSON gives them back, so that what is read is what was written."""
    try:
        return json.loads(json.dumps(facts))
    except (TypeError, ValueError) as problem:
        raise TypeError(f"trainer.notes cannot be saved: {problem}; {NOTES}") from problem


def check_notes(given: dict[str, Any], read: dict[str, Any]) -> None:
    """Refuse notes that JSON gives back as something else, such as a tuple as a list."""
    if not _as_given(given, read):
        name = next((n for n in given if n not in read or not _as_given(given[n], read[n])), None)
        raise TypeError(
            f"trainer.notes cannot be saved: {name!r} holds a tuple, or a key that is not a text; "
            f"{NOTES}"
        )


def _as_given(given: Any, read: Any) -> bool:
    if isinstance(given, dict):
        return list(given) == list(read) and all(
            _as_given(given[name], read[name]) for name in read
        )
    if isinstance(given, list):
        return all(map(_as_given, given, read))
    return given == read or given != given  # nan does not equal even itself


def about(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    groups: list[tuple[list[str], float]],
) -> dict[str, Any]:
    """A description of the model, the objective, the batches and the groups of a run."""
    told = {**_described(model), "objective": named(objective), "batches": _first(batches)}
    rates = [f"{factor:g} of {len(names)} weights {_checksum(names)}" for names, factor in groups]
    # A config of the reader's own may hold what JSON does not know, such as a function.
    return json.loads(json.dumps(told | {"groups": ", ".join(rates)}, default=named))


def _first(batches: Batches) -> str:
    """The first batch of each stage; batches that depend on the model describe themselves."""
    if isinstance(batches, Stages):
        return "; ".join(f"from {start}: {_first(stage)}" for start, stage in batches.stages)
    if hasattr(batches, "described"):
        return batches.described()
    batch = batches.at(0)
    check_type("batches.at(0)", batch, Batch, "a Batch, such as Batch.of(tokens)")
    # The same text may have other labels, or be read across documents.
    parts = {name: getattr(batch, name) for name in ("tokens", "labels", "documents")}
    told = [
        f"{name} with checksum {digest(tensor_bytes(part))[:16]}"
        for name, part in parts.items()
        if part is not None
    ]
    return f"{list(batch.tokens.shape)} {', '.join(told)}"


def _checksum(names: list[str]) -> str:
    return digest(" ".join(sorted(names)).encode())[:8]


def check_sound(saved: Snapshot, path: Path | None) -> None:
    """Refuse a state that is not damaged, but cannot come from a trainer."""
    wrong = next(_unsound(saved), None)
    if wrong is not None:
        raise ValueError(f"{path} {wrong}: remove it to continue from the checkpoint before it")


def _unsound(saved: Snapshot) -> Iterator[str]:
    """What is wrong with a state."""
    facts, tensors = saved.facts, saved.tensors
    for name, sound in SOUND.items():
        if name not in facts or not sound(facts[name]):
            yield f"says that {name} is {facts.get(name, 'nothing')!r}"
    for kind in {"weights", "health"} - tensors.keys():
        yield f"holds no {kind}"
    for kind in ("optimizer", "average"):
        for name, tensor in tensors.get(kind, {}).items():
            weight = tensors["weights"].get(name.split("|")[0])
            if weight is None or (tensor.ndim and tensor.shape != weight.shape):
                yield f"holds {kind} values of {name} that fit no weight: {list(tensor.shape)}"
    for name, tensor in tensors["health"].items():
        if tensor.ndim:
            yield f"holds more than one number for {name}"
    memory = tensors.get("memory", {})
    if memory and ("known" not in memory or len({len(each) for each in memory.values()}) > 1):
        yield "holds a memory of unlike rows"


SOUND: dict[str, Callable[[Any], bool]] = {
    "about": lambda given: isinstance(given, dict),
    "plan": lambda given: isinstance(given, dict) and "optimizer" in given,
    "scale": lambda given: type(given) in (int, float) and 0 < given < math.inf,
    "notes": lambda given: isinstance(given, dict),
    "averaging": lambda given: isinstance(given, bool),
    "averaged": lambda given: type(given) is int and given >= 0,
    "learning": lambda given: isinstance(given, list),
}
"""What the state of a trainer holds, and which values make sense."""


def differences(
    saved: Mapping[str, Any], given: Mapping[str, Any], changed: Iterable[str]
) -> list[str]:
    """The differences between a saved description and this one, except those that are allowed."""
    allowed = FREE | set(changed)
    return [
        f"{name} was {saved.get(name)!r} and is {given.get(name)!r}"
        for name in sorted(saved.keys() | given.keys())
        if saved.get(name) != given.get(name) and name not in allowed
    ]


def check_same(
    saved: Snapshot,
    new: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    changed: Iterable[str],
    folder: Path,
) -> None:
    """Refuse to resume a run that differs from the one that was saved."""
    old, changed = saved.facts, set(changed)
    known = {name for each in (old, new) for part in ("about", "plan") for name in each[part]}
    if unknown := changed - known:
        raise ValueError(
            f"changed names {min(unknown)!r}, which no run has: the names are "
            f"{', '.join(sorted(known))}"
        )
    unlike = differences(old["about"], new["about"], changed)
    unlike += differences(old["plan"], new["plan"], changed)
    if unlike:
        names = sorted({line.split()[0] for line in unlike})
        raise ValueError(
            f"{folder} holds a different run: {'; '.join(unlike)}. Choose another "
            f"folder, or call resume(folder, changed={names}) if this is intended"
        )
    shapes = {name: list(tensor.shape) for name, tensor in saved.tensors["weights"].items()}
    own = {name: list(tensor.shape) for name, tensor in weights.items()}
    if shapes != own:
        name = next(n for n in [*own, *shapes] if shapes.get(n) != own.get(n))
        raise ValueError(
            f"{folder} holds another model: there {name} has the shape {shapes.get(name)}, "
            f"here {own.get(name)}; choose another folder"
        )


def _described(model: nn.Module) -> dict[str, Any]:
    """A model by its classes and its config."""
    backbone = backbone_of(model)
    sizes = asdict(backbone.config) if isinstance(backbone, Backbone) else {}
    kinds = {"model": f"{type(model).__name__} of {type(backbone).__name__}"}
    if isinstance(model, Model):
        kinds["head"] = type(model.head).__name__
    return kinds | sizes


def named(part: Any) -> str:
    """An objective by its class and its fields, those of its parts included.

    A tensor is described by a checksum, and a function by its name, so two lambdas of one function
    look the same; a module, such as a teacher, or any other object by its class alone.
    """
    if isinstance(part, Tensor):
        return f"tensor {list(part.shape)} {digest(tensor_bytes(part))[:8]}"
    if isinstance(part, nn.Module):
        return type(part).__name__
    if type(part) in (list, tuple):
        return f"[{', '.join(map(named, part))}]"
    if is_dataclass(part) and not isinstance(part, type):
        inside = ", ".join(f"{name}={named(value)}" for name, value in _held(part).items())
        return f"{type(part).__name__}({inside})"
    if isinstance(part, dict):
        pairs = [f"{named(key)}: {named(value)}" for key, value in part.items()]
        return f"{{{', '.join(sorted(pairs))}}}"
    if isinstance(part, set | frozenset):
        return f"{{{', '.join(sorted(map(named, part)))}}}"
    if hasattr(part, "__qualname__"):
        return f"{getattr(part, '__module__', None)}.{part.__qualname__}"
    written = isinstance(part, str | int | float | tuple | torch.dtype | None)
    return repr(part) if written else type(part).__name__


def _held(part: Any) -> dict[str, Any]:
    """The fields of a dataclass, with or without slots, and its other attributes."""
    given = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    return {**given, **getattr(part, "__dict__", {})}
