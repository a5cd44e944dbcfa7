"""Losses that go wrong: NaN or infinity, jumps, and gradients too small for half precision.

Everything is a tensor on the device of the model, since reading a number waits for the GPU.
float16 has no numbers below 6e-8: losses are multiplied by a scale before the backward pass, and
the scale follows the largest gradients (Micikevicius et al. 2018, section 3.2).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from labkit.keeping.checkpoints import copied
from labkit.keeping.processes import whole
from labkit.plan import Plan

# How many good steps pass before float16 tries twice the scale.
PATIENT = 2000
# How slowly the usual loss is learned, and how many usual distances above it a spike begins.
SLOW, SPIKE = 0.05, 6.0
LEARNED = 20


class Verdict(NamedTuple):
    """The measurements of one step; each is one number on the device."""

    bad: Tensor
    """1 where the loss or a gradient is not finite: the step is not taken."""
    spike: Tensor
    """1 where the loss is far above what it was of late."""
    divisor: Tensor
    """What the gradients are divided by: the scale of the loss, and what clips long ones."""
    norm: Tensor
    """The length of the gradient before it is clipped."""
    vanished: Tensor | None
    """float16: the share of the gradients that are exactly zero."""


class Health:
    """Looks at every step, and remembers what went wrong."""

    def __init__(self, plan: Plan, half: bool, device: torch.device) -> None:
        self.clip, self.half = plan.clip, half
        names = ("bad_in_a_row", "skipped", "good_in_a_row", "seen", "usual", "distance")
        self.tensors = {name: torch.zeros((), dtype=torch.float32, device=device) for name in names}
        self._one = torch.ones((), dtype=torch.float32, device=device)
        if half and plan.loss_scale is not None:
            self.tensors["scale"] = self._one * plan.loss_scale

    @property
    def scale(self) -> Tensor:
        """What the loss is multiplied by before the backward pass."""
        return self.tensors.get("scale", self._one)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what was saved; a scale that another precision did not have starts afresh."""
        self.tensors = {k: tensors.get(k, v).to(v.device) for k, v in self.tensors.items()}

    @torch.no_grad()
    def look(self, loss: Tensor, gradients: Sequence[Tensor]) -> Verdict:
        """Judge a step by its loss and by its gradients, and remember it; all processes do."""
        zeros = whole(vanished(gradients)) if self.half else None
        # Of a model in float64, too: the fused kernel of AdamW takes a divisor in float32.
        norm = whole(get_total_norm(gradients)).float() / self.scale
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        bad = (~finite).float()
        divisor = self.scale
        if self.clip is not None:
            divisor = divisor * (norm / self.clip).clamp(min=1.0)
        spike = self._compare(loss.float(), finite)
        self._count(bad)
        return Verdict(bad, spike, divisor, norm, zeros)

    def _compare(self, loss: Tensor, finite: Tensor) -> Tensor:
        """Whether the loss jumps above its usual value; a jump counts little for what is usual."""
        known = self.tensors
        known["seen"] = known["seen"] + finite
        limit = known["usual"] + SPIKE * known["distance"]
        ready = known["seen"] > LEARNED
        spike = finite & ready & (loss > limit)
        tame = torch.where(ready, torch.minimum(loss, limit), loss)
        # In the beginning all losses count alike, later the last twenty most.
        weight = torch.clamp(1 / known["seen"].clamp(min=1), min=SLOW)
        gap = tame - known["usual"]
        usual = known["usual"] + weight * gap
        distance = torch.lerp(known["distance"], (tame - usual).abs(), weight)
        known["usual"] = torch.where(finite, usual, known["usual"])
        known["distance"] = torch.where(finite, distance, known["distance"])
        return spike.float()

    def _count(self, bad: Tensor) -> None:
        known = self.tensors
        known["skipped"] = known["skipped"] + bad
        # While the scale can still be lowered, gradients that overflow are normal in float16.
        serious = bad * (self.scale <= 1)
        known["bad_in_a_row"] = (known["bad_in_a_row"] + serious) * bad
        if "scale" in known:
            good = (known["good_in_a_row"] + 1) * (1 - bad)
            grow = good >= PATIENT
            known["good_in_a_row"] = torch.where(grow, 0, good)
            factor = torch.where(bad > 0, 0.5, torch.where(grow, 2.0, 1.0))
            known["scale"] = (known["scale"] * factor).clamp(min=1.0)


@torch.no_grad()
def vanished(gradients: Sequence[Tensor]) -> Tensor:
    """The share of all gradients that are exactly zero: in half precision, many are too small."""
    zeros = torch.stack([(grad == 0).sum() for grad in gradients]).sum()
    return zeros / sum(grad.numel() for grad in gradients)


class Later:
    """Numbers on their way from the device; a step later they can be read without waiting."""

    def __init__(self, value: Tensor) -> None:
        self._value = copied(value)
        self._event: torch.cuda.Event | None = None
        if value.device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record()

    def read(self) -> Tensor:
        """The numbers, on the CPU."""
        if self._event is not None:
            self._event.synchronize()
        return self._value
