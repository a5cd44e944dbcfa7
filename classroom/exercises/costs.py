"""Exercises of notebook 12: what a Transformer has, computes and keeps, and what that costs."""

import math

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def parameters(layers: int, width: int, vocabulary: int, context: int) -> int:
    """The entries of all matrices of a GPT: 12 d² a block, and the tables of words, positions."""
    return 12 * layers * width**2 + (vocabulary + context) * width


def training_flop(layers: int, width: int, vocabulary: int, context: int, tokens: float) -> float:
    """The operations of training on so many tokens, attention included."""
    matrices = 12 * layers * width**2 + vocabulary * width
    attention = 4 * layers * context * width
    return 3.0 * tokens * (2 * matrices + attention)


def cache_bytes(layers: int, width: int, context: int, batch: int) -> int:
    """The bytes of the keys and values of full contexts, in 16 bits."""
    return 2 * 2 * batch * layers * context * width


def training_days(flop: float, peak: float, mfu: float, devices: int) -> float:
    """The days that so many devices need, each reaching the share `mfu` of its peak."""
    return flop / (peak * mfu * devices) / 86_400


def best_size(flop: float, a: float, b: float, alpha: float, beta: float) -> float:
    """The N with the lowest a / N^alpha + b / D^beta, where 6 N D = flop."""
    ratio = (alpha * a / (beta * b)) ** (1 / (alpha + beta))
    return float(ratio * (flop / 6) ** (beta / (alpha + beta)))


def route(scores: Tensor, used: int) -> Tensor:
    """The weight of each expert [N, E]: softmax over the best `used` of each row, else 0."""
    best = scores.topk(used, dim=-1)
    return torch.zeros_like(scores).scatter(-1, best.indices, best.values.softmax(dim=-1))


# ---- inputs -----------------------------------------------------------------------------------


def _sizes(rng: torch.Generator) -> tuple[int, int, int, int]:
    layers, width = between(1, 25, rng), 32 * between(1, 33, rng)
    return layers, width, between(1_000, 60_000, rng), between(16, 4_097, rng)


def _run(rng: torch.Generator) -> tuple[int, int, int, int, float]:
    return *_sizes(rng), 1e6 * between(1, 400_000, rng)


def _texts(rng: torch.Generator) -> tuple[int, int, int, int]:
    layers, width, _, context = _sizes(rng)
    return layers, width, context, between(2, 65, rng)


def _machines(rng: torch.Generator) -> tuple[float, float, float, int]:
    peak, mfu = 1e12 * between(10, 1_000, rng), between(15, 61, rng) / 100
    return 1e18 * between(1, 10**6, rng), peak, mfu, between(2, 2_000, rng)


def _budget(rng: torch.Generator) -> tuple[float, float, float, float, float]:
    alpha, beta = between(28, 40, rng) / 100, between(28, 40, rng) / 100
    flop = 10.0 ** between(18, 26, rng)
    return flop, 1.0 * between(200, 500, rng), 1.0 * between(300, 2_500, rng), alpha, beta


def _scores(rng: torch.Generator) -> tuple[Tensor, int]:
    experts = between(3, 9, rng)
    scores = torch.randn(between(1, 6, rng), experts, generator=rng)
    return scores.requires_grad_(), between(1, experts + 1, rng)


# ---- known mistakes ---------------------------------------------------------------------------


def _scores_alone(layers: int, width: int, vocabulary: int, context: int, tokens: float) -> float:
    matrices = 12 * layers * width**2 + vocabulary * width
    return 3.0 * tokens * (2 * matrices + 2 * layers * context * width)


EXERCISES: dict[str, Exercise] = {
    "12.parameters": Function(
        "the entries of all matrices: those of L blocks, the table of V words and of T positions",
        parameters,
        _sizes,
        (
            ("that is attention alone: the feed-forward has 2 · d · 4d entries more",
             lambda layers, width, v, t: 4 * layers * width**2 + (v + t) * width),
            ("attention has 4 d² entries and the feed-forward 8 d²: one matrix up to 4d, one down",
             lambda layers, width, v, t: 8 * layers * width**2 + (v + t) * width),
            ("the table of positions is missing",
             lambda layers, width, v, t: 12 * layers * width**2 + v * width),
            ("the embeddings are missing",
             lambda layers, width, v, t: 12 * layers * width**2),
            ("the head shares the table of the words: it counts once",
             lambda layers, width, v, t: 12 * layers * width**2 + (2 * v + t) * width),
            ("each of the layers has its own matrices",
             lambda layers, width, v, t: 12 * width**2 + (v + t) * width),
        ),
        learned="where the parameters are",
        hint="Attention has four matrices d × d, the feed-forward two of d × 4d.",
    ),
    "12.flop": Function(
        "for each token 2 · (entries of all matrices) + 4 L T d forward, and twice that backward",
        training_flop,
        _run,
        (
            ("that is the forward pass: the backward pass takes twice as much again",
             lambda *given: training_flop(*given) / 3),
            ("an entry multiplies and adds: two operations",
             lambda layers, width, v, t, n: 3.0 * n * (12 * layers * width**2 + v * width
                                                       + 4 * layers * t * width)),
            ("attention is missing: 4 L T d for each token",
             lambda layers, width, v, t, n: 6.0 * n * (12 * layers * width**2 + v * width)),
            ("attention costs 4 L T d for each token: two products, each with all T keys",
             _scores_alone),
            ("the head is missing: its matrix is d × V",
             lambda layers, width, v, t, n: 3.0 * n * (24 * layers * width**2
                                                       + 4 * layers * t * width)),
        ),
        learned="6 N D, and what it leaves out",
        hint="Forward: 2 for each entry, and 4 L T d. The backward pass costs twice the forward.",
    ),
    "12.cache": Function(
        "the bytes of the keys and values of `batch` full contexts, at 2 bytes a number",
        cache_bytes,
        _texts,
        (
            ("a factor of 2 is missing: a key and a value for each feature, and 2 bytes a number",
             lambda layers, width, context, batch: 2 * batch * layers * context * width),
            ("each of the layers keeps its own",
             lambda layers, width, context, batch: 4 * batch * context * width),
            ("each text of the batch keeps its own",
             lambda layers, width, context, batch: 4 * layers * context * width),
            ("16 bits are two bytes, not four",
             lambda layers, width, context, batch: 8 * batch * layers * context * width),
            ("scores are not kept: the memory grows with T, not with T²",
             lambda layers, width, context, batch: 4 * batch * layers * context**2 * width),
        ),
        learned="why generating from a long context is expensive",
        hint="A key and a value, of d numbers each, for each position of each layer and text.",
    ),
    "12.days": Function(
        "the days that all devices together need for these operations",
        training_days,
        _machines,
        (
            ("that is at the full peak: multiply the peak by the MFU",
             lambda flop, peak, mfu, devices: flop / (peak * devices) / 86_400),
            ("those are seconds: a day has 86,400",
             lambda flop, peak, mfu, devices: flop / (peak * mfu * devices)),
            ("those are hours: a day has 24",
             lambda flop, peak, mfu, devices: flop / (peak * mfu * devices) / 3_600),
            ("the devices share the work",
             lambda flop, peak, mfu, devices: flop / (peak * mfu) / 86_400),
            ("a low MFU takes longer: divide by it",
             lambda flop, peak, mfu, devices: flop * mfu / (peak * devices) / 86_400),
        ),
        learned="from operations to days",
        hint="The devices together do devices · peak · MFU operations in a second.",
    ),
    "12.best_size": Function(
        "the N with the lowest a / N^α + b / D^β for D = C / (6 N)",
        best_size,
        _budget,
        (
            ("those are the tokens D: the parameters N are asked for",
             lambda flop, a, b, alpha, beta: flop / 6 / best_size(flop, a, b, alpha, beta)),
            ("the 6 is missing: C = 6 N D",
             lambda flop, a, b, alpha, beta: best_size(6 * flop, a, b, alpha, beta)),
            ("N and D do not share the operations equally, unless both terms fall alike",
             lambda flop, a, b, alpha, beta: math.sqrt(flop / 6)),
            ("at the optimum the slopes are equal, α a / N^α = β b / D^β, not the terms",
             lambda flop, a, b, alpha, beta: (a / b) ** (1 / (alpha + beta))
             * (flop / 6) ** (beta / (alpha + beta))),
        ),
        minutes=10,
        seconds=30.0,  # for a search
        learned="the best model for a budget",
    ),
    "12.route": Function(
        "weights [N, E]: softmax over the best `used` scores of each row, and 0 for the others",
        route,
        _scores,
        (
            ("the weights of the experts in use do not add up to 1: divide by their sum",
             lambda scores, used: torch.zeros_like(scores).scatter(
                 -1, scores.topk(used).indices,
                 scores.softmax(dim=-1).gather(-1, scores.topk(used).indices))),
            ("all experts are at work: only the best `used` of each row may be",
             lambda scores, used: scores.softmax(dim=-1)),
            ("one expert alone is at work in each row",
             lambda scores, used: route(scores, 1)),
            ("the softmax runs over the tokens: each row chooses on its own",
             lambda scores, used: route(scores.T, min(used, len(scores))).T),
            ("the experts in use are not weighted alike: the better one counts more",
             lambda scores, used: torch.zeros_like(scores).scatter(
                 -1, scores.topk(used).indices, 1 / used)),
        ),
        minutes=8,
        learned="a mixture of experts",
        hint="`topk` gives scores and indices: softmax the scores, `scatter` them into zeros.",
    ),
}  # fmt: skip
