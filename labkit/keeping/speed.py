"""How fast a machine could be, and how much a step asks of it: the two halves of MFU.

MFU is operations of the step / seconds / peak of the machine (Chowdhery et al. 2022, appendix B):
here the operations are counted as torch computes them and the peak is measured.
"""

import time
from functools import cache

import torch
from torch import nn

from labkit.costs.counting import has_experts, products
from labkit.keeping.distributed import Answer
from labkit.objectives import Objective, Questions


def counted_operations(model: nn.Module, objective: Objective, questions: Questions) -> float:
    """Operations of all matrix products of one answer and the way back.

    Counted on the meta device, where nothing is computed and nothing stored; a mixture of experts
    is run where it is, on leaves of its own that take the gradients.
    """
    step = Answer(model, objective)
    where = next(model.parameters()).device if has_experts(model) else torch.device("meta")
    # Each weight once: a head that shares the embedding's is tied to it again by the call.
    state = {name: buffer.to(where) for name, buffer in step.named_buffers()}
    for name, parameter in step.named_parameters():
        state[name] = parameter.detach().to(where).requires_grad_(parameter.requires_grad)
    # A compiled model is counted as it stands in the source.
    with torch.compiler.set_stance("force_eager"), products() as counter:
        arguments = (questions.to(where), None, questions.counts)
        loss, _ = torch.func.functional_call(step, state, arguments)
        loss.backward()
    return float(counter.get_total_flops())


@cache
def measured_peak(device: str, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product, the best of some tries."""
    size = 8192 if device.startswith("cuda") else 1024
    a = torch.randn(size, size, device=device, dtype=dtype)
    out = torch.empty_like(a)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, a, out=out)
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
