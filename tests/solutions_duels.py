"""A test for each duel that finds every bug, and one that is too weak, with the hint that it gets.

The good tests stand on properties or on a plain calculation of their own, as a student would
write them; none calls the honest players of the course.
"""

import copy
from typing import Any

import torch
from torch import Tensor


def looks_ahead(model: Any, tokens: Tensor) -> bool:
    for t in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, t:] = (other[:, t:] + 1) % 9
        if not torch.allclose(model(tokens)[:, :t], model(other)[:, :t], atol=1e-5):
            return True
    return False


def only_the_last(model: Any, tokens: Tensor) -> bool:
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 9
    return not torch.allclose(model(tokens)[:, :-1], model(other)[:, :-1], atol=1e-5)


def stepped(model: Any, batches: Any) -> Tensor:
    """All weights [4 + 1] after one step of gradient descent for each batch."""
    weight, bias = model.weight.detach()[0].clone(), model.bias.detach()[0].clone()
    for x, y in batches:
        error = x @ weight + bias - y
        slope = torch.cat([2 * error @ x, 2 * error.sum()[None]]) / len(x)
        slope = slope / max(1.0, float(slope.norm()))
        weight, bias = weight - 0.1 * slope[:4], bias - 0.1 * slope[4]
    return torch.cat([weight, bias[None]])


def trains_wrongly(train: Any, model: Any, batches: Any) -> bool:
    for scale in (1.0, 0.02):
        for pieces in (1, 2, 3):
            mine, easy = copy.deepcopy(model), [(x, y * scale) for x, y in batches]
            mine.weight.grad, mine.bias.grad = torch.ones(1, 4), torch.ones(1)
            wanted = stepped(mine, easy)
            train(mine, easy, pieces)
            if not torch.allclose(torch.cat([mine.weight[0], mine.bias]), wanted, atol=1e-5):
                return True
    return False


def never_trains(train: Any, model: Any, batches: Any) -> bool:
    before = model.weight.detach().clone()
    train(model, batches, 1)
    return torch.equal(before, model.weight)


GOOD = {"masking": looks_ahead, "training": trains_wrongly}
WEAK = {
    "masking": (only_the_last, "change every word in turn"),
    "training": (never_trains, "Train on one batch, then on two"),
}
