"""The processes that train one model: who they are, and what they exchange."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.corpus.batch import split
from labkit.keeping.checkpoints import copied
from labkit.objectives.memory import Memory

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, and the device of this one."""

    kind: str
    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process is the one that prints and saves."""
        return self.rank == 0

    def own(self, parts: Sequence[T]) -> Sequence[T]:
        """The parts of a step that this process computes."""
        each = len(parts) // self.count
        return parts[self.rank * each : (self.rank + 1) * each]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def agreed(self, value: T) -> T:
        """The value of the first process, in all processes."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def from_all(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks."""
        if self.count == 1:
            return [value]
        box: list[Any] = [None] * self.count
        dist.all_gather_object(box, value)
        return box

    def joined(self, memory: Sequence[Memory | None]) -> dict[str, Tensor]:
        """The memory of all rows of a batch, from those of this process's parts and all others."""
        # A part whose rows have all begun anew remembers fewer positions than the others.
        lengths = self.from_all([0 if part is None else part.known.shape[1] for part in memory])
        longest = max(max(each, default=0) for each in lengths)
        own = [{} if part is None else part.lengthened(longest).tensors() for part in memory]
        here = [{name: tensor.cpu() for name, tensor in part.items()} for part in own]
        parts = [part for process in self.from_all(here) for part in process]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def divided(
        self, tensors: Mapping[str, Tensor], parts: int, together: int
    ) -> list[Memory | None]:
        """The memory of each of this process's parts, from that of all rows."""
        if not tensors:
            return [None] * parts
        found: list[Memory | None] = []
        # The same rows as those of the batch, or each text would get the memory of another.
        for rows in self.own(split(len(tensors["known"]), parts * self.count, together=together)):
            own = {
                name: tensor[rows].to("cpu" if name == "known" else self.device)
                for name, tensor in tensors.items()
            }
            found.append(Memory.load(own))
        return found


def join(kind: str, device: str) -> Processes:
    """Find the other processes that torchrun started."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if kind == "single" and count > 1:
        raise ValueError(
            f"{count} processes were started and the plan says processes='single': choose 'ddp' "
            "or 'fsdp', or start one process"
        )
    place = _device(device)
    if count == 1:
        return Processes("single", 0, 1, place)
    if not dist.is_initialized():
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_store(rank), rank=rank, world_size=count)
    return Processes(kind, rank, count, place)


def _store(rank: int) -> dist.Store:
    """The store in which the processes find each other's addresses.

    torchrun's own store outlives its workers: after a restart they would find the addresses of
    dead processes in it, so the keys of each restart get a prefix of their own.
    """
    environment = os.environ
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in environment:
            raise ValueError(
                f"WORLD_SIZE is {environment['WORLD_SIZE']}, but {name} is not set: start the "
                "processes with torchrun, or leave WORLD_SIZE out for one process"
            )
    kept = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0 and not kept, multi_tenant=not kept)
    return dist.PrefixStore(f"restart {environment.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def _device(asked: str) -> torch.device:
    """The device of this process."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(asked)
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise ValueError(
            f"device is {asked!r}, and torch {torch.__version__} finds no such GPU here: give auto "
            "or cpu"
        )
    index: int | None = device.index
    if index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    # Events and streams are those of the current device: let it be this one.
    torch.cuda.set_device(device)
    return device


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether each process holds a shard of a tensor.

    Only those who shard import torch's module for it, which takes half a second and 50 MB.
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process holds a shard; all processes must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], processes: Processes) -> dict[str, Tensor]:
    """Copies of whole tensors for the first process; all processes must call this.

    One after the other, so that a model that is sharded is nowhere on a GPU as a whole.
    """
    found = {}
    for name, tensor in tensors.items():
        everything = whole(tensor)
        if processes.first:
            found[name] = copied(everything)
    return found


def shard_like(pattern: Tensor, tensor: Tensor) -> Tensor:
    """The shard of `tensor` that this process holds of a weight, on its device.

    In memory it lies as the weight does, which torch's fused AdamW takes for granted.
    """
    if is_sharded(pattern) and tensor.shape == pattern.shape:
        from torch.distributed.tensor import distribute_tensor

        there = tensor.to(pattern.device_mesh.device_type)
        return distribute_tensor(there, pattern.device_mesh, pattern.placements, src_data_rank=None)
    if tensor.shape == pattern.shape:
        return torch.empty_like(pattern, dtype=tensor.dtype).copy_(tensor)
    return tensor.to(pattern.device, copy=True)
