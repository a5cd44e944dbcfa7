"""The optimizers: AdamW, Muon beside it, or plain SGD; and averages of the weights.

Loshchilov and Hutter 2019 (AdamW), in torch's own implementation; Jordan et al. 2024 (Muon), whose
step is torch's, but in a precision that the processor has. This module decides which weights decay
and which are matrices for Muon, and it can skip a step without waiting for the GPU.
"""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from labkit.blocks import Model, backbone_of
from labkit.keeping.computing import has_bfloat16
from labkit.keeping.processes import shard_like
from labkit.plan import Plan

Group = tuple[Iterable[nn.Parameter], float]
"""Parameters, and the factor by which their learning rate is multiplied."""
MATRICES = (nn.Linear, nn.RNNBase)


def named_groups(model: nn.Module, groups: Sequence[Group] | None) -> list[tuple[list[str], float]]:
    """The groups by the names of their parameters, once each; all of the model without groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if groups is None:
        return [(list(names.values()), 1.0)]
    found = []
    for group in groups:
        if not isinstance(group, tuple | list) or len(group) != 2:
            raise ValueError(
                f"a group is a {type(group).__name__}: give pairs of parameters and the factor of "
                "their rate, such as [(model.parameters(), 1.0)]"
            )
        parameters, factor = group
        if not isinstance(factor, int | float) or not 0 <= factor < math.inf:
            raise ValueError(f"the factor of a group is {factor!r}: give a number of at least 0")
        ids = [id(parameter) for parameter in parameters]
        if any(key not in names for key in ids):
            raise ValueError(
                "a group holds a parameter that is not of this model, or is in two groups: "
                "give each parameter of the model in one group"
            )
        found.append(([names.pop(key) for key in ids], factor))
    left = [n for n, p in model.named_parameters() if id(p) in names and p.requires_grad]
    if left:
        raise ValueError(
            f"{len(left)} parameters are in no group, {left[0]} among them: give each of them a "
            "group, or freeze those that should not learn (requires_grad = False)"
        )
    return found


def matrices(model: nn.Module) -> set[str]:
    """The names of the matrices between hidden states: no embeddings, no heads, no tables.

    A matrix that makes queries, keys and values at once counts as one, as do the gates of an LSTM.
    So do the layers that make a word's vector, such as those of ELMo above its letters: they learn
    as hidden layers, and the models that ship were trained so.
    """
    backbone = backbone_of(model)
    outside: list[nn.Module] = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    outside += [model.head] if isinstance(model, Model) else []
    taken = {id(parameter) for module in outside for parameter in module.parameters()}
    inside = {
        id(parameter)
        for module in backbone.modules()
        if isinstance(module, MATRICES)
        for parameter in module.parameters(recurse=False)
        if parameter.ndim == 2
    }
    return {name for name, p in model.named_parameters() if id(p) in inside - taken}


BIASES = ("bias", "u_HE", "v_HE", "s_HE")
"""The endings of the names of biases; the last three are those of relative attention."""


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: to matrices, not to biases and norms."""
    return parameter.ndim >= 2 and not name.endswith(BIASES)


class Uncompiled(torch.optim.Optimizer):
    """An optimizer without the decorators that keep torch's compiler out of a step.

    They import the compiler, which takes a second or two and 70 MB. The trainer compiles the model
    and never the step, so they have nothing to do. A step that is `differentiable` needs them.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch's AdamW."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class SGD(Uncompiled, torch.optim.SGD):
    """torch's SGD."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class Muon(Uncompiled, torch.optim.Muon):
    """torch's Muon, in float32 where products of 16-bit numbers are emulated.

    torch's own always multiplies in bfloat16. Most laptops have no such products; there its step
    takes many times as long as this one (`python -m labkit bench muon`).
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the weights by an orthogonal matrix near the mean of their gradients."""
        assert closure is None
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight.grad)
                mean = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
                update = orthogonal(weight.grad.lerp(mean, momentum), group["ns_coefficients"])
                weight.mul_(1 - rate * group["weight_decay"])
                # So that the step is as large as AdamW's, and one rate serves both.
                weight.add_(update, alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    """Nearly U V', where U S V' is the singular value decomposition: a Newton-Schulz iteration."""
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x.to(torch.bfloat16 if has_bfloat16(matrix.device) else torch.float32)
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _check_dense(name: str, parameter: Tensor) -> None:
    """Refuse a parameter that shares memory or leaves gaps: torch's fused kernel writes past it."""
    strides = sorted(zip(parameter.stride(), parameter.shape, strict=True))
    expected = 1
    for stride, size in strides:
        if size > 1 and stride != expected:
            raise ValueError(
                f"{name} is part of another tensor, or one that .expand() made (strides "
                f"{parameter.stride()} for shape {tuple(parameter.shape)}): make the parameter of "
                "tensor.contiguous()"
            )
        expected *= max(size, 1)


class Optimizers:
    """One or two optimizers that step together, or not at all."""

    def __init__(self, model: nn.Module, plan: Plan, groups: list[tuple[list[str], float]]) -> None:
        self.parameters = dict(model.named_parameters())
        for name, parameter in self.parameters.items():
            _check_dense(name, parameter)
        hidden = matrices(model) if plan.optimizer == "muon" else set()
        if plan.optimizer == "muon" and not hidden:
            raise ValueError("this model has no matrices for Muon: choose optimizer='adamw'")
        self.all: list[torch.optim.Optimizer] = []
        others = self._grouped(groups, plan, self.parameters.keys() - hidden)
        inner = self._grouped(groups, plan, hidden)
        if not others and not inner:
            raise ValueError(
                "no parameter is in a group, so nothing would learn: give groups with parameters "
                "of the model, or groups=None for all of them"
            )
        # The groups may leave one of the two without weights, which torch refuses.
        if others and plan.optimizer == "sgd":
            # Not fused: that kernel leaves the momentum unset when the first step is called off.
            self.all.append(SGD(others, lr=0.0, momentum=plan.momentum))
        elif others:
            self.all.append(AdamW(others, lr=0.0, betas=plan.betas, eps=plan.eps, fused=True))
        if inner:
            self.all.append(Muon(inner, lr=0.0))

    def _grouped(
        self, groups: list[tuple[list[str], float]], plan: Plan, chosen: Set[str]
    ) -> list[dict[str, Any]]:
        """torch's groups: by factor of the rate, and by whether they decay."""
        made: list[dict[str, Any]] = []
        for names, factor in groups:
            for decay in (True, False):
                picked = [
                    self.parameters[name]
                    for name in names
                    if name in chosen and decays(name, self.parameters[name]) == decay
                ]
                if picked:
                    share = plan.decay if decay else 0.0
                    made.append({"params": picked, "weight_decay": share, "factor": factor})
        return made

    def gradients(self) -> list[Tensor]:
        """All gradients there are."""
        return [p.grad for p in self.parameters.values() if p.grad is not None]

    def step(self, rate: float, divisor: Tensor, bad: Tensor) -> None:
        """Change the weights by the gradients / divisor, unless `bad` is 1."""
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["factor"]
            if isinstance(optimizer, AdamW):
                # The fused kernel divides, and decides on the device whether to step at all.
                optimizer.grad_scale, optimizer.found_inf = divisor, bad  # type: ignore[attr-defined]
                optimizer.step()
            elif not bool(bad):
                own = [p.grad for g in optimizer.param_groups for p in g["params"]]
                # While all of its layers are frozen, an optimizer has nothing to do.
                if learning := [grad for grad in own if grad is not None]:
                    torch._foreach_div_(learning, divisor)
                    optimizer.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """The state of the optimizers, by the names of the parameters."""
        found = {}
        # In one order for all processes: to put a tensor together, all of them must ask for it.
        for name, parameter in self.parameters.items():
            for optimizer in self.all:
                for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                    if isinstance(value, Tensor):
                        found[f"{name}|{key}"] = value
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a state that was saved."""
        owner = {
            id(parameter): optimizer
            for optimizer in self.all
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for optimizer in self.all:
            optimizer.state.clear()
        for full_name, tensor in tensors.items():
            name, key = full_name.rsplit("|", 1)
            parameter = self.parameters[name]
            # What is in no group any more does not learn, and has no state.
            if id(parameter) in owner:
                state = owner[id(parameter)].state[parameter]
                state[key] = shard_like(parameter, tensor)


class Average:
    """The mean of the weights of many steps: NT-ASGD's (Polyak and Juditsky 1992), or EMA."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.parameters = dict(model.named_parameters())
        self.count = 0
        self.averages: dict[str, Tensor] = {}
        ema = plan.average == "ema"
        self._mix = get_ema_multi_avg_fn(plan.ema_decay) if ema else get_swa_multi_avg_fn()

    @torch.no_grad()
    def add(self) -> None:
        """Add the current weights to the mean."""
        if self.count == 0:
            self.averages = {name: p.detach().clone() for name, p in self.parameters.items()}
        else:
            values = [p.detach() for p in self.parameters.values()]
            self._mix(list(self.averages.values()), values, self.count)
        self.count += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the model with their mean."""
        for name, average in self.averages.items():
            parameter = self.parameters[name]
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)

    def load(self, count: int, tensors: Mapping[str, Tensor]) -> None:
        """Restore a mean that was saved."""
        self.count = count
        self.averages = {
            name: shard_like(parameter, tensors[name])
            for name, parameter in self.parameters.items()
            if name in tensors
        }
