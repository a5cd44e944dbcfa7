"""Recurrent cells and what surrounds them, written from the papers as loops over words.

A text is a list of vectors, `p` the parameters of a model by name. Nothing here is labkit's code.
"""

import torch
from torch import Tensor, nn

PAPER = "loops from the paper"
"""What these references are called in the table."""

Vector = Tensor
Parameters = dict[str, Tensor]


def random_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with weights large enough that a mistake shows."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64) * 0.4)
    return model.eval()


def drop(x: Vector, rate: float = 0.1) -> Vector:
    """Where the paper drops out: nothing in evaluation; `training.py` puts a marker here."""
    return x


def sigmoid(x: Vector) -> Vector:
    return 1 / (1 + (-x).exp())


def relu(x: Vector) -> Vector:
    return x * (x > 0)


def softmax(scores: Vector) -> Vector:
    return scores.exp() / scores.exp().sum()


def elman(p: Parameters, name: str, text: list[Vector], h: Vector, bend=sigmoid):
    """The lectures: h_t = f(W_h h_(t-1) + W_e e_t + b_1)."""
    states = []
    for e in text:
        h = bend(p[f"{name}.state.weight"] @ h + p[f"{name}.word.weight"] @ e
                 + p[f"{name}.word.bias"])  # fmt: skip
        states.append(h)
    return states, (h,)


def lstm(p: Parameters, name: str, text: list[Vector], h: Vector, c: Vector):
    """Gers et al. 2000; with a projection of the state, Sak et al. 2014."""
    states = []
    for x in text:
        gates = p[f"{name}.weight_ih_l0"] @ x + p[f"{name}.weight_hh_l0"] @ h
        gates = gates + p[f"{name}.bias_ih_l0"]
        if f"{name}.bias_hh_l0" in p:
            gates = gates + p[f"{name}.bias_hh_l0"]
        n = len(c)
        enter, forget, show = (sigmoid(gates[k * n : (k + 1) * n]) for k in (0, 1, 3))
        c = forget * c + enter * torch.tanh(gates[2 * n : 3 * n])
        h = show * torch.tanh(c)
        if f"{name}.weight_hr_l0" in p:
            h = p[f"{name}.weight_hr_l0"] @ h
        states.append(h)
    return states, (h, c)


def gru(p: Parameters, name: str, text: list[Vector], h: Vector):
    """Cho et al. 2014, with the reset gate applied after the product, as cuDNN has it."""
    states, n = [], len(h)
    for x in text:
        word = p[f"{name}.weight_ih_l0"] @ x + p[f"{name}.bias_ih_l0"]
        state = p[f"{name}.weight_hh_l0"] @ h + p[f"{name}.bias_hh_l0"]
        reset, update = (sigmoid((word + state)[k * n : (k + 1) * n]) for k in (0, 1))
        new = torch.tanh(word[2 * n :] + reset * state[2 * n :])
        h = (1 - update) * new + update * h
        states.append(h)
    return states, (h,)


def surprise(scores: Vector, target: int) -> Tensor:
    """-log softmax(scores)[target]"""
    return -(scores[target].exp() / scores.exp().sum()).log()


def mean_loss(rows: list[list[Vector]], targets: Tensor, scores_of) -> Tensor:
    """The mean surprise over all words of all rows."""
    losses = [
        surprise(scores_of(h), int(targets[row, place]))
        for row, text in enumerate(rows)
        for place, h in enumerate(text)
    ]
    return sum(losses) / len(losses)


def flat(rows: list[list[Vector]]) -> Tensor:
    """All vectors of all rows, one below the other [N, D]."""
    return torch.stack([h for text in rows for h in text])
