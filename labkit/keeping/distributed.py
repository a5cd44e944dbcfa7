"""Several processes that train one model: started by torchrun, each with its rows of every batch.

    torchrun --nproc-per-node=4 script.py        with Plan(processes="ddp") or "fsdp" in it

Every process makes the whole batch, since batches are a function of the step; it computes the loss
of its own rows and divides by the counts of all. So the sum over the processes is the same
gradient, however many there are. DistributedDataParallel and `fully_shard` are torch's own; both
wrap `Loss`, a model and its objective as one module, so that the trainer knows of neither.
"""

import copy
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from labkit.corpus import sent
from labkit.keeping.computing import blocks
from labkit.keeping.processes import Processes
from labkit.objectives.base import Objective, Outcome, Targets, combine
from labkit.objectives.memory import Memory


class Loss(nn.Module):
    """A model and its objective as one module, whose forward is the loss of a part of a step."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(
        self, targets: Targets, memory: Memory | None, counts: dict[str, int]
    ) -> tuple[Tensor, Outcome]:
        """This part's share of the loss of the whole step, and the outcome without gradients."""
        outcome = self.objective.loss(self.model, targets, memory)
        # DDP waits for the gradients of every tensor that it is given, so only the loss has some.
        return outcome.over(counts), replace(combine([outcome]), memory=outcome.memory)


class Single:
    """The loss in one process."""

    gain = 1

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        self.loss = Loss(model, objective)

    def __call__(
        self, targets: Targets, memory: Memory | None, counts: dict[str, int]
    ) -> tuple[Tensor, Outcome]:
        """What `Loss` gives."""
        return self.module()(targets, memory, counts)

    def module(self) -> nn.Module:
        """The loss, or what torch wraps it in."""
        return self.loss

    def part(self, last: bool) -> AbstractContextManager[object]:
        """For forward and backward of one part; gradients are exchanged after the last one."""
        return nullcontext()


class Replicated(Single):
    """ddp: each process has the whole model, and the gradients are added up."""

    def __init__(self, model: nn.Module, objective: Objective, count: int) -> None:
        super().__init__(model, objective)
        # torch gives the mean of the gradients over the processes, and their sum is wanted.
        self.gain = count
        self._ddp: DistributedDataParallel | None = None
        self._learning: list[bool] = []

    def module(self) -> nn.Module:
        """DDP takes part only where there are gradients to exchange."""
        return self._wrapped() if torch.is_grad_enabled() else self.loss

    def _wrapped(self) -> DistributedDataParallel:
        """The loss in DDP, wrapped anew when other weights learn than before."""
        learning = [parameter.requires_grad for parameter in self.loss.parameters()]
        if self._ddp is None or learning != self._learning:
            # A pooler or a head that is not used, or whose term has the weight 0, gets no gradient.
            # Which these are depends on the objective, so torch may warn that there are none.
            self._ddp = DistributedDataParallel(self.loss, find_unused_parameters=True)
            self._learning = learning
        return self._ddp

    def part(self, last: bool) -> AbstractContextManager[object]:
        """For forward and backward of one part; gradients are exchanged after the last one."""
        return nullcontext() if last else self._wrapped().no_sync()


class Sharded(Single):
    """fsdp: each process keeps a shard of every weight; a block is gathered when it computes."""

    def __init__(self, model: nn.Module, objective: Objective, processes: Processes) -> None:
        super().__init__(model, objective)
        from torch.distributed.fsdp import fully_shard  # half a second: only where it is used

        self.gain = processes.count
        # A block also gives keys and values, which are views; nobody writes into them.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(processes.device.type, (processes.count,))
        for block in blocks(model):
            fully_shard(block, mesh=mesh)
        self._root: Any = fully_shard(self.loss, mesh=mesh)

    def part(self, last: bool) -> AbstractContextManager[object]:
        """For forward and backward of one part; gradients are exchanged after the last one."""
        self._root.set_requires_gradient_sync(last)
        return nullcontext()


def wrapped(model: nn.Module, objective: Objective, processes: Processes) -> Single:
    """The loss as this process computes it; fsdp leaves the model only its shards."""
    if processes.kind == "ddp":
        return Replicated(model, objective, processes.count)
    if processes.kind == "fsdp":
        for name, parameter in model.named_parameters():
            if parameter.dim() == 0:
                raise ValueError(
                    f"the weight {name} is a single number, and processes='fsdp' shards weights: "
                    "choose processes='ddp', or make it a tensor of one axis"
                )
        return Sharded(model, objective, processes)
    return Single(model, objective)


def without_weights(model: nn.Module) -> nn.Module:
    """A copy of the model whose tensors have shapes but no values, to count operations."""
    tensors = [*model.parameters(), *model.buffers()]
    shapes = {id(t): torch.empty_like(t, device="meta") for t in tensors}
    for t in model.parameters():
        shapes[id(t)] = nn.Parameter(shapes[id(t)], requires_grad=t.requires_grad)
    return copy.deepcopy(model, shapes)


def combined(
    processes: Processes, loss: Tensor, outcome: Outcome
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and the metrics of all processes together."""
    if processes.count == 1:
        return loss, outcome.metrics
    counts = torch.tensor([float(term.count) for term in outcome.terms.values()])
    own = torch.stack([loss, *(term.total.float() for term in outcome.terms.values())])
    totals = processes.total(torch.cat([own, sent(counts, processes.device)]))
    sums, counts = totals[1 : len(own)], totals[len(own) :].clamp(min=1)
    return totals[0], dict(zip(outcome.terms, sums / counts, strict=True))
