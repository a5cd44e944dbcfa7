"""How many operations a step takes, counted as torch computes them.

MFU is operations of the step / seconds / peak of the machine (Chowdhery et al. 2022, appendix B);
the peak is measured by `measured_peak` in `labkit.keeping.computing`.
"""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.fx.experimental import _config

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.keeping.distributed import Loss
from labkit.objectives.base import Objective, Targets


class Operations:
    """How many operations a step with a batch takes; counted once for each length of texts."""

    def __init__(self, model: nn.Module, objective: Objective, parts: int) -> None:
        self.model, self.objective, self.parts = model, objective, parts
        self.known: dict[int, float] = {}

    def __call__(self, batch: Batch) -> float:
        """The operations of the whole batch, from those of its first part."""
        length = batch.tokens.shape[1]
        if length not in self.known:
            part = batch.micro(self.parts, together=self.objective.together)[0]
            targets = self.objective.targets(part, Chance(0, 0, part.rows))
            counted = counted_operations(self.model, self.objective, targets)
            self.known[length] = counted / len(part)
        return self.known[length] * len(batch)


def counted_operations(model: nn.Module, objective: Objective, targets: Targets) -> float:
    """Operations of all matrix products of the loss of these targets, forward and backward.

    Counted on the meta device, where nothing is computed and nothing stored; a model whose
    computation depends on the text, such as a mixture of experts, is run where it is, on leaves of
    its own that take the gradients.
    """
    from labkit.costs.counting import depends_on_text, products  # training does without

    step = Loss(model, with_copies(objective))
    where = next(model.parameters()).device if depends_on_text(model) else torch.device("meta")
    # Each weight once: a head that shares the embedding's is tied to it again by the call.
    state = {name: buffer.to(where) for name, buffer in step.named_buffers()}
    for name, parameter in step.named_parameters():
        state[name] = parameter.detach().to(where).requires_grad_(parameter.requires_grad)
    # On the meta device a mask has no values, so it selects everything.
    everything = _config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
    # A compiled model is counted as if it were not compiled.
    with torch.compiler.set_stance("force_eager"), everything, products() as counter:
        given = unpadded(targets) if where.type == "meta" else targets
        arguments = (given.to(where), None, targets.counts)
        loss, _ = torch.func.functional_call(step, state, arguments)
        loss.backward()
    return float(counter.get_total_flops())


def unpadded(targets: Targets) -> Targets:
    """The same as if nothing were padding, which the meta device cannot tell from text."""
    return replace(targets, padded=False, parts=tuple(map(unpadded, targets.parts)))


def with_copies(objective: Objective) -> Objective:
    """The same with copies of its own models, such as a teacher: on the meta device they are lost.

    They do not learn: torch cannot follow weights that do where no gradients are computed.
    """
    own = {name: part for name, part in vars(objective).items() if isinstance(part, nn.Module)}
    copies: dict[str, Any] = {
        name: copy.deepcopy(part).requires_grad_(False) for name, part in own.items()
    }
    return replace(objective, **copies) if copies else objective
