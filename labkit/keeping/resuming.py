"""What a run needs to go on, and whether a checkpoint is of the same run."""

import json
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from labkit.blocks import Backbone, Model, backbone_of
from labkit.keeping.checkpoints import Snapshot, copied
from labkit.keeping.distributed import cut_like, whole
from labkit.keeping.files import digest
from labkit.objectives import Memory, Objective
from labkit.plan import Batches, Stages, described, differences

if TYPE_CHECKING:
    from labkit.trainer import Trainer


def snapshot(trainer: "Trainer") -> Snapshot:
    """All that the run needs to go on, as it is now; every process must ask.

    Only the first gets the tensors, which it is to write.
    """
    facts = {
        "about": trainer.about,
        "plan": described(trainer.plan),
        "scale": trainer.scale,
        "notes": trainer.notes,
        "averaging": trainer.averaging,
        "averaged": trainer.average.count,
        "learning": [n for n, p in trainer.model.named_parameters() if p.requires_grad],
    }
    tensors = {
        "weights.safetensors": state_of(trainer),
        "optimizer.safetensors": trainer.optimizers.tensors(),
        "average.safetensors": trainer.average.averages,
        "health.safetensors": trainer.health.tensors,
        "memory.safetensors": _whole_memory(trainer),
    }
    first = trainer.ranks.first
    own = {file: _gathered(found, first) for file, found in tensors.items() if found}
    return Snapshot(trainer.step, _plain(facts), own)


def _gathered(tensors: dict[str, Tensor], first: bool) -> dict[str, Tensor]:
    """Tensor by tensor, so that the whole of a model that is cut is nowhere on a GPU at once."""
    found = {}
    for name, tensor in tensors.items():
        everything = whole(tensor)
        if first:
            found[name] = copied(everything)
    return found


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """A copy as a file gives it back, so that what is read is what was written."""
    try:
        return json.loads(json.dumps(facts))
    except (TypeError, ValueError) as problem:
        raise TypeError(
            f"trainer.notes cannot be saved: {problem}; give numbers, texts, lists and dicts with "
            "texts as keys, float(…) of a tensor"
        ) from problem


def state_of(trainer: "Trainer") -> dict[str, Tensor]:
    """The weights and what else the model keeps, each once, however many names it has."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in trainer.model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):
            named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def _whole_memory(trainer: "Trainer") -> dict[str, Tensor]:
    """The memory of all rows, as if the batch had never been cut."""
    own = [{} if part is None else part.tensors() for part in trainer.memory]
    here = [{name: tensor.cpu() for name, tensor in part.items()} for part in own]
    parts = [part for process in trainer.ranks.gathered(here) for part in process]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


@torch.no_grad()
def restore(trainer: "Trainer", saved: Snapshot) -> None:
    """Become what was saved."""
    trainer.step = saved.step
    weights = saved.tensors["weights.safetensors"]
    for name, tensor in state_of(trainer).items():
        tensor.copy_(cut_like(tensor, weights[name]))
    learning = set(saved.facts["learning"])
    for name, parameter in trainer.model.named_parameters():
        parameter.requires_grad_(name in learning)
    # What one optimizer remembers means nothing to another.
    same = saved.facts["plan"]["optimizer"] == trainer.plan.optimizer
    trainer.optimizers.load(saved.tensors.get("optimizer.safetensors", {}) if same else {})
    trainer.averaging = saved.facts["averaging"] and trainer.plan.average != "none"
    mean = saved.tensors.get("average.safetensors", {}) if trainer.averaging else {}
    trainer.average.load(saved.facts["averaged"] if mean else 0, mean)
    trainer.health.load(saved.tensors["health.safetensors"])
    trainer.scale = saved.facts["scale"]
    trainer.notes.clear()
    trainer.notes.update(saved.facts["notes"])
    _part_memory(trainer, saved.tensors.get("memory.safetensors", {}))
    trainer.troubles.clear()
    trainer.stops.clear()


def _part_memory(trainer: "Trainer", tensors: dict[str, Tensor]) -> None:
    """Give each part of a batch the memory of its rows."""
    trainer.memory = [None] * trainer.plan.accumulate
    if not tensors:
        return
    rows = len(tensors["known"])
    for i in range(trainer.plan.accumulate):
        place = trainer.first_part + i
        start, end = rows * place // trainer.parts, rows * (place + 1) // trainer.parts
        own = {
            name: tensor[start:end].to("cpu" if name == "known" else trainer.device)
            for name, tensor in tensors.items()
        }
        trainer.memory[i] = Memory.load(own)


def about(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    groups: list[tuple[list[str], float]],
) -> dict[str, Any]:
    """What is trained on what, in words that two runs can be compared by."""
    told = {**_described(model), "objective": _named(objective), "batches": _first(batches)}
    rates = [f"{factor:g} of {len(names)} weights {_checksum(names)}" for names, factor in groups]
    return json.loads(json.dumps(told | {"groups": ", ".join(rates)}))


def _first(batches: Batches) -> str:
    """The first batch of each stage."""
    if isinstance(batches, Stages):
        return "; ".join(f"from {start}: {_first(stage)}" for start, stage in batches.stages)
    tokens = batches.at(0).tokens.cpu()
    checksum = digest(tokens.numpy().tobytes())[:16]
    return f"{list(tokens.shape)} tokens with checksum {checksum}"


def _checksum(names: list[str]) -> str:
    return digest(" ".join(sorted(names)).encode())[:8]


def check_same(trainer: "Trainer", saved: Snapshot, changed: Iterable[str], folder: Path) -> None:
    """Refuse to go on with something else than what was saved."""
    old, new = saved.facts, {"about": trainer.about, "plan": described(trainer.plan)}
    unlike = differences(old["about"], new["about"], changed)
    unlike += differences(old["plan"], new["plan"], changed)
    if unlike:
        fields = sorted({line.split()[0] for line in unlike})
        raise ValueError(
            f"{folder} holds a run that was another: {'; '.join(unlike)}. Choose another "
            f"folder, or say resume(folder, changed={fields}) if it is meant to go on so"
        )
    weights = saved.tensors["weights.safetensors"]
    shapes = {name: list(tensor.shape) for name, tensor in weights.items()}
    own = {name: list(tensor.shape) for name, tensor in state_of(trainer).items()}
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


def _named(part: Any) -> str:
    """An objective by its class and its fields, those of its parts included.

    A tensor is told by a checksum; a module, such as a teacher, by its class alone.
    """
    if isinstance(part, Tensor):
        data = part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        return f"tensor {list(part.shape)} {digest(data)[:8]}"
    if isinstance(part, nn.Module):
        return type(part).__name__
    if isinstance(part, list | tuple) and type(part) in (list, tuple):
        return f"[{', '.join(map(_named, part))}]"
    if is_dataclass(part) and not isinstance(part, type):
        inside = ", ".join(f"{name}={_named(value)}" for name, value in vars(part).items())
        return f"{type(part).__name__}({inside})"
    return repr(part) if isinstance(part, str | int | float | tuple | None) else type(part).__name__
