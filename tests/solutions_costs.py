"""The exercises of notebook 12, each solved in two ways that are not the course's own."""

import math

import torch
from torch import Tensor

from labkit.costs import formulas
from labkit.costs.formulas import Shape
from labkit.costs.training import ScalingLaw
from labkit.costs.training import training_days as days


def parameters_by_parts(layers: int, width: int, vocabulary: int, context: int) -> int:
    attention, feed_forward = 4 * width * width, 2 * width * (4 * width)
    return layers * (attention + feed_forward) + vocabulary * width + context * width


def parameters_by_shape(layers: int, width: int, vocabulary: int, context: int) -> int:
    shape = Shape(layers, width, vocabulary, context)
    return shape.matrices(1) + (vocabulary + context) * width


def flop_by_parts(layers: int, width: int, vocabulary: int, context: int, tokens: float) -> float:
    block = 8 * width**2 + 16 * width**2 + 4 * context * width
    forward = layers * block + 2 * width * vocabulary
    return forward * tokens + 2 * forward * tokens


def flop_by_formula(layers: int, width: int, vocabulary: int, context: int, tokens: float) -> float:
    return tokens * formulas.formula_flop_per_token(Shape(layers, width, vocabulary, context))


def cache_by_parts(layers: int, width: int, context: int, batch: int) -> int:
    keys = batch * context * width
    return layers * (keys + keys) * 2


def cache_by_formula(layers: int, width: int, context: int, batch: int) -> float:
    return formulas.cache_bytes(Shape(layers, width, 10, context), batch=batch)


def days_by_hours(flop: float, peak: float, mfu: float, devices: int) -> float:
    per_hour = peak * mfu * devices * 3_600
    return flop / per_hour / 24


def days_by_formula(flop: float, peak: float, mfu: float, devices: int) -> float:
    return days(flop, peak_flop_per_second=peak, mfu=mfu, count=devices)


def best_by_search(flop: float, a: float, b: float, alpha: float, beta: float) -> float:
    low, high = 0.0, math.log(flop)
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        loss = [
            a / math.exp(n) ** alpha + b / (flop / 6 / math.exp(n)) ** beta for n in (left, right)
        ]
        low, high = (low, right) if loss[0] < loss[1] else (left, high)
    # A search sees the loss, which is flat at its lowest point: one step of Newton's mends that.
    n = (low + high) / 2
    slope, bend = 0.0, 0.0
    for sign, size, power in ((-1, a, alpha), (1, b * (6 / flop) ** beta, beta)):
        term = size * math.exp(sign * power * n)
        slope, bend = slope + sign * power * term, bend + power**2 * term
    return math.exp(n - slope / bend)


def best_by_law(flop: float, a: float, b: float, alpha: float, beta: float) -> float:
    return ScalingLaw("mine", 0.0, a, b, alpha, beta).optimum(flop).parameters


def route_by_masking(scores: Tensor, used: int) -> Tensor:
    worst = scores.sort(dim=-1, descending=True).values[:, used - 1 : used]
    return scores.masked_fill(scores < worst, -math.inf).softmax(dim=-1)


def route_by_dividing(scores: Tensor, used: int) -> Tensor:
    p = scores.softmax(dim=-1)
    chosen = torch.zeros_like(p).scatter(-1, p.topk(used).indices, 1.0)
    return p * chosen / (p * chosen).sum(dim=-1, keepdim=True)


RIGHT = {
    "12.parameters": (parameters_by_parts, parameters_by_shape),
    "12.flop": (flop_by_parts, flop_by_formula),
    "12.cache": (cache_by_parts, cache_by_formula),
    "12.days": (days_by_hours, days_by_formula),
    "12.best_size": (best_by_search, best_by_law),
    "12.route": (route_by_masking, route_by_dividing),
}
