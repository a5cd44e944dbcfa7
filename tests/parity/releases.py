"""What the comparisons with the releases' own implementation have in common."""

import os
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from labkit.weights.release_names import RELEASES, Row

from . import largest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SHAPES = ((3, 7, 1), (2, 12, 4), (1, 1, 2))
"""Batch, length and heads of the texts that every model reads."""


def tiny(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights large enough that every part of the model shows in the output."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm.weight" in name.lower() or "ln_" in name else 0.0
            noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.copy_(centre + 0.2 * noise)
    return model.eval()


def named(reference: nn.Module) -> dict[str, Tensor]:
    """The parameters of a reference under all the names that they have."""
    return dict(reference.named_parameters(remove_duplicate=False))


def rows(
    family: str, backbone: nn.Module, heads: dict[str, nn.Module | None]
) -> Iterator[tuple[nn.Module, Row]]:
    """Each row of the table with the module of ours that has its tensor."""
    release = RELEASES[family]
    for row in release.rows(len(backbone.blocks)):
        part = row.ours.split(".")[0]
        if part not in ("pooler", "position") or getattr(backbone, part) is not None:
            names = tuple(release.prefix + name for name in row.theirs)
            yield backbone, Row(row.ours, names, row.layout)
    for name, head in heads.items():
        for row in getattr(release, name) if head is not None else []:
            yield head, row


def copy_weights(
    family: str, reference: nn.Module, backbone: nn.Module, **heads: nn.Module | None
) -> None:
    """Give our model the weights of the reference, through the table of names."""
    theirs = named(reference)
    for module, row in rows(family, backbone, heads):
        parts = row.views(module.get_parameter(row.ours).detach(), backbone.config.heads)
        for part, name in zip(parts, row.theirs, strict=True):
            part.copy_(theirs[name].detach())


def gradients(
    family: str, reference: nn.Module, backbone: nn.Module, **heads: nn.Module | None
) -> float:
    """The largest difference between gradients, ours written in the reference's names."""
    theirs, mine, expected = named(reference), {}, {}
    for module, row in rows(family, backbone, heads):
        parts = row.views(_gradient(module.get_parameter(row.ours)), backbone.config.heads)
        mine |= dict(zip(row.theirs, parts, strict=True))
        expected |= {name: _gradient(theirs[name]) for name in row.theirs}
    missed = {id(p) for p in reference.parameters() if p.grad is not None}
    assert missed <= {id(theirs[name]) for name in mine}, "a parameter was not compared"
    return largest(mine.values(), expected.values())


def _gradient(parameter: Tensor) -> Tensor:
    """Its gradient; zeros where the loss does not depend on it."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
