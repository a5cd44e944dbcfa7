"""Several processes that train one model: started by torchrun, each with its rows of every batch.

    torchrun --nproc-per-node=4 script.py        with Plan(processes="ddp") or "fsdp" in it

Every process makes the whole batch, since batches are a function of the step; it answers for its
rows and divides by the counts of all. So the sum over the processes is the same gradient, however
many there are. DistributedDataParallel and `fully_shard` are torch's own.
"""

import contextlib
import copy
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from labkit.blocks import Backbone, backbone_of
from labkit.objectives import Memory, Objective, Outcome, Questions, combine

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is, and where it computes."""

    kind: str
    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process is the one that prints and saves."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def agreed(self, value: T) -> T:
        """What the first process says."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def gathered(self, value: T) -> list[T]:
        """What each process says."""
        if self.count == 1:
            return [value]
        box: list[Any] = [None] * self.count
        dist.all_gather_object(box, value)
        return box

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()


def join(kind: str, device: str) -> Ranks:
    """Find the other processes that torchrun started."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if kind == "single" and count > 1:
        raise ValueError(
            f"{count} processes were started and the plan says processes='single': choose 'ddp' "
            "or 'fsdp', or start one process"
        )
    place = _device(device)
    if count == 1:
        return Ranks("single", 0, 1, place)
    if not dist.is_initialized():
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_meeting(rank), rank=rank, world_size=count)
    return Ranks(kind, rank, count, place)


def _meeting(rank: int) -> dist.Store:
    """Where the processes leave their addresses for each other.

    torchrun's own store outlives its workers: after a restart they would find the addresses of
    the dead in it, so each life gets a page of its own.
    """
    environment = os.environ
    kept = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0 and not kept, multi_tenant=not kept)
    return dist.PrefixStore(f"life {environment.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def _device(asked: str) -> torch.device:
    """The device of this process."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(asked)
    if device.type != "cuda":
        return device
    index: int | None = device.index
    if index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    # Events and streams are those of the current device: let it be this one.
    torch.cuda.set_device(device)
    return device


class Answer(nn.Module):
    """A model together with its objective, as one module: what a step computes."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(
        self, questions: Questions, memory: Memory | None, counts: dict[str, int]
    ) -> tuple[Tensor, Outcome]:
        """This part's share of the loss of the whole step, and all that was found."""
        outcome = answer(self.model, self.objective, questions, memory)
        # Nobody but the loss leads back: several processes wait for the gradients of all that does.
        found = replace(combine([outcome]), memory=outcome.memory)
        return outcome.over(counts), found


def answer(
    model: nn.Module, objective: Objective, questions: Questions, memory: Memory | None
) -> Outcome:
    """Let the model answer; one that is cut into shares puts its weights together first."""
    if isinstance(model, FSDPModule):
        return model.answer_whole(objective, questions, memory)  # type: ignore[operator]
    return objective.answer(model, questions, memory)


def _answer_whole(
    model: nn.Module, objective: Objective, questions: Questions, memory: Memory | None
) -> Outcome:
    return objective.answer(model, questions, memory)


def cut(model: nn.Module, ranks: Ranks) -> None:
    """fsdp: leave each process its share of the weights, block by block."""
    # A block also gives keys and values, which are views; nobody writes into them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(ranks.device.type, (ranks.count,))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    sharded: Any = fully_shard(model, mesh=mesh)
    sharded.answer_whole = MethodType(_answer_whole, sharded)
    # An objective calls the parts of a model; this is the door at which the weights are gathered.
    register_fsdp_forward_method(sharded, "answer_whole")


def without_weights(model: nn.Module) -> nn.Module:
    """A copy of the model whose tensors have shapes and no values: to count with."""
    tensors = [*model.parameters(), *model.buffers()]
    shapes = {id(t): torch.empty_like(t, device="meta") for t in tensors}
    for t in model.parameters():
        shapes[id(t)] = nn.Parameter(shapes[id(t)], requires_grad=t.requires_grad)
    return copy.deepcopy(model, shapes)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model's backbone; none where it has no such list."""
    backbone = backbone_of(model)
    return list(backbone.blocks) if isinstance(backbone, Backbone) else []


class Wrapped:
    """The answer of this process, whose gradients become those of all on the last part."""

    def __init__(self, model: nn.Module, objective: Objective, ranks: Ranks) -> None:
        self.ranks, self.inner = ranks, Answer(model, objective)
        self._ddp: DistributedDataParallel | None = None
        self._learning: list[bool] = []

    def __call__(
        self, questions: Questions, memory: Memory | None, counts: dict[str, int]
    ) -> tuple[Tensor, Outcome]:
        """What `Answer` gives."""
        if self.ranks.kind != "ddp":
            return self.inner(questions, memory, counts)
        return self._wrapped()(questions, memory, counts)

    @property
    def gain(self) -> int:
        """torch gives the mean of the gradients over the processes, and their sum is wanted."""
        return self.ranks.count

    def _wrapped(self) -> DistributedDataParallel:
        """Made anew when other weights learn than before."""
        learning = [parameter.requires_grad for parameter in self.inner.parameters()]
        if self._ddp is None or learning != self._learning:
            self._ddp = DistributedDataParallel(self.inner, find_unused_parameters=True)
            self._learning = learning
        return self._ddp

    @contextlib.contextmanager
    def part(self, last: bool) -> Iterator[None]:
        """Gradients are only exchanged once, after the last part of a step."""
        if self.ranks.kind == "fsdp":
            self.inner.model.set_requires_gradient_sync(last)  # type: ignore[operator]
        quiet = self.ranks.kind == "ddp" and not last
        with self._wrapped().no_sync() if quiet else contextlib.nullcontext():
            yield


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process holds a share; all processes must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def cut_like(pattern: Tensor, tensor: Tensor) -> Tensor:
    """The share of `tensor` that this process holds of a weight, on its device."""
    if isinstance(pattern, DTensor) and tensor.shape == pattern.shape:
        there = tensor.to(pattern.device_mesh.device_type)
        return distribute_tensor(there, pattern.device_mesh, pattern.placements, src_data_rank=None)
    return tensor.to(pattern.device, copy=True)
