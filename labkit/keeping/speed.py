"""How many operations a step takes, counted as torch computes them.

MFU is operations of the step / seconds / peak of the machine (Chowdhery et al. 2022, appendix B);
the peak is measured by `measured_peak` in `labkit.keeping.computing`.
"""

from dataclasses import replace

import torch
from torch import nn

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

    step = Loss(model, objective)
    where = next(model.parameters()).device if depends_on_text(model) else torch.device("meta")
    # Each weight once: a head that shares the embedding's is tied to it again by the call.
    state = {name: buffer.to(where) for name, buffer in step.named_buffers()}
    for name, parameter in step.named_parameters():
        state[name] = parameter.detach().to(where).requires_grad_(parameter.requires_grad)
    # A compiled model is counted as it stands in the source.
    with torch.compiler.set_stance("force_eager"), products() as counter:
        given = unpadded(targets) if where.type == "meta" else targets
        arguments = (given.to(where), None, targets.counts)
        loss, _ = torch.func.functional_call(step, state, arguments)
        loss.backward()
    return float(counter.get_total_flops())


def unpadded(targets: Targets) -> Targets:
    """The same as if all were text: on the meta device nobody can tell where the padding is."""
    return replace(targets, padded=False, parts=tuple(map(unpadded, targets.parts)))
