"""The memory of earlier segments, which an objective carries from batch to batch."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.attention import KeysValues
from labkit.blocks import States


class Memory(NamedTuple):
    """What a model keeps of the segments before, and which rows may still attend to it."""

    layers: tuple[Any, ...]
    """`States.memory` without gradients; rows come first in every tensor."""
    known: Tensor
    """True [B, M] where a remembered position belongs to the text that the row goes on with."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is in memory under a name of its own, for a checkpoint."""
        named = {"known": self.known}
        for i, layer in enumerate(self.layers):
            named |= {f"{i}.{_kind(layer)}.{j}": part for j, part in enumerate(_parts(layer))}
        return named

    def lengthened(self, length: int) -> "Memory":
        """The same memory of `length` positions: those in front are not known."""
        more = max(0, length - self.known.shape[1])
        # Positions are the last axis but one, of states [B, M, D] as of keys and values.
        layers = (
            _each(self.layers, lambda part: F.pad(part, (0, 0, more, 0))) if more else self.layers
        )
        return Memory(layers, F.pad(self.known, (more, 0), value=False))

    @classmethod
    def load(cls, tensors: Mapping[str, Tensor]) -> "Memory":
        """The memory that `tensors` was made from."""
        layers: dict[int, tuple[str, list[Tensor]]] = {}
        for name in sorted(set(tensors) - {"known"}, key=lambda n: int(n.split(".")[2])):
            i, kind, _ = name.split(".")
            layers.setdefault(int(i), (kind, []))[1].append(tensors[name])
        built = [_rebuild(*layer) for _, layer in sorted(layers.items())]
        return cls(tuple(built), tensors["known"])


def _kind(layer: Any) -> str:
    """What one layer of a memory is: keys and values, states of positions, or of a recurrence."""
    if isinstance(layer, KeysValues):
        return "keys_values"
    if isinstance(layer, Tensor):
        return "states"
    return type(layer).__name__ if hasattr(layer, "_fields") else "tuple"


def _parts(layer: Any) -> tuple[Tensor, ...]:
    """The tensors of one layer; the spare room of keys and values stays behind."""
    if isinstance(layer, KeysValues):
        return layer.k_BHKE, layer.v_BHKE
    return (layer,) if isinstance(layer, Tensor) else tuple(layer)


def _rebuild(kind: str, parts: list[Tensor]) -> Any:
    """One layer of a memory from its parts."""
    if kind == "keys_values":
        return KeysValues(parts[0], parts[1])
    if kind == "states":
        return parts[0]
    # A NamedTuple of the reader's own; a cell that is run again defines another of the same name.
    named = [k for k in tuple.__subclasses__() if k.__name__ == kind and hasattr(k, "_fields")]
    return named[-1](*parts) if named else tuple(parts)


def _with(layer: Any, parts: list[Tensor]) -> Any:
    """A layer of the same kind with other tensors."""
    if hasattr(layer, "_fields") and not isinstance(layer, KeysValues):
        return type(layer)(*parts)
    return _rebuild(_kind(layer), parts)


def recall(memory: Memory | None, fresh: Tensor) -> Memory:
    """What the rows may attend to: nothing where they start afresh."""
    if memory is None or bool(fresh.all()):
        return Memory((), torch.ones(len(fresh), 0, dtype=torch.bool))
    if len(memory.known) != len(fresh):
        raise ValueError(
            f"the memory has {len(memory.known)} rows, the batch {len(fresh)}: give each "
            "part of a step the memory of the same part of the step before"
        )
    # FSDP moves what it is given to the GPU; which positions are known stays on the CPU.
    memory = memory._replace(known=memory.known.to(fresh.device))
    if not bool(fresh.any()):
        return memory

    def forget(kept: Tensor) -> Tensor:
        # Zeros are the state in which a recurrent model starts; attention is kept away by `known`.
        gone = fresh.to(kept.device).view(-1, *[1] * (kept.dim() - 1))
        return kept.masked_fill(gone, 0.0)

    return Memory(_each(memory.layers, forget), memory.known & ~fresh[:, None])


def memory_after(states: States, known: Tensor, read: Tensor) -> Memory | None:
    """What the next segment may attend to, without gradients; `read` [B, T] marks real text."""
    if states.memory is None:
        return None
    layers = _each(states.memory, Tensor.detach)
    known = torch.cat([known, read], dim=1)
    # A model may keep fewer positions than it has read; a recurrent one keeps none.
    return Memory(layers, known[:, known.shape[1] - _length(layers[0]) :])


def _length(layer: Any) -> int:
    """How many positions one layer of a memory holds: the state of a recurrent model holds none."""
    if isinstance(layer, KeysValues):
        return layer.k_BHKE.shape[2]
    return layer.shape[1] if isinstance(layer, Tensor) else 0


def _each(layers: tuple[Any, ...], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """The same memory with every tensor changed."""
    return tuple(_with(x, [change(part) for part in _parts(x)]) for x in layers)
