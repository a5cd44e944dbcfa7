"""The mixture of experts against a loop over positions, and its balance by counting."""

import math

import torch

from labkit.blocks import Experts
from labkit.objectives.experts import balance, routed

from . import Case, Differences, largest, loops, merge


def _compare(dtype: torch.dtype) -> Differences:
    return merge(
        _run(dtype, *sizes)
        for sizes in ((2, 5, 4, 2), (1, 1, 3, 1), (3, 4, 5, 5), (2, 3, 1, 1), (1, 6, 6, 3))
    )


def _run(dtype: torch.dtype, batch: int, length: int, experts: int, used: int) -> Differences:
    model = loops.random_weights(Experts(6, 9, experts, used=used, activation="relu").to(dtype))
    p = dict(model.named_parameters())
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(batch, length, 6, generator=draw, dtype=torch.float64).to(dtype)
    x.requires_grad_()
    with routed(model) as scores:
        y = model(x)
    rows, choices, likely = [], [0] * experts, torch.zeros(experts, dtype=dtype)
    for position in x.flatten(0, 1):
        probabilities = loops.softmax(p["router.weight"] @ position)
        likely = likely + probabilities / (batch * length)
        best = sorted(range(experts), key=lambda e: -float(probabilities[e].detach()))[:used]
        # A single expert keeps its probability (Fedus et al. 2022, equation 2).
        total, said = sum(probabilities[e] for e in best) if used > 1 else 1, 0
        for e in best:
            choices[e] += 1
            name = f"experts.{e}"
            inner = loops.relu(p[f"{name}.up.weight"] @ position + p[f"{name}.up.bias"])
            answer = p[f"{name}.down.weight"] @ inner + p[f"{name}.down.bias"]
            said = said + probabilities[e] / total * answer
        rows.append(said)
    expected = torch.stack(rows)
    uneven = experts * sum(
        count / (batch * length * used) * likely[e] for e, count in enumerate(choices)
    )
    ours, theirs = balance(scores[0], used), uneven
    weights = [x, *model.parameters()]
    loss, reference = y.sin().sum() + ours, expected.sin().sum() + theirs
    found = torch.autograd.grad(loss, weights, materialize_grads=True)
    wanted = torch.autograd.grad(reference, weights, materialize_grads=True)
    assert math.prod(y.shape[:2]) == len(expected)
    return {
        "layers": largest([y.flatten(0, 1)], [expected]),
        "loss": largest([ours], [theirs]),
        "gradients": largest(found, wanted),
    }


CASES = [Case("Experts", "top-k routing, balance", loops.PAPER, _compare)]
