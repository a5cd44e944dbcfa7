"""Exercises of notebook 03: slanted triangle, rates by layer, unfreezing, weight drop, pooling."""

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def triangle(step: int, steps: int) -> float:
    """The share of the highest rate: up in a tenth of the steps, down to 1/32 at the end."""
    cut = steps // 10
    p = step / cut if step < cut else 1 - (step - cut) / (steps - cut)
    return (1 + p * (32 - 1)) / 32


def layer_rates(layers: int, rate: float) -> list[float]:
    """The rate of each layer, from the lowest up; each is 2.6 times slower than the next above."""
    return [rate / 2.6 ** (layers - 1 - i) for i in range(layers)]


def learning(step: int, layers: int, every: int) -> list[bool]:
    """Whether each layer learns, from the lowest up: first the top, one more `every` steps."""
    awake = min(layers, 1 + step // every)
    return [i >= layers - awake for i in range(layers)]


def weight_drop(weight: Tensor, draws: Tensor, rate: float) -> Tensor:
    """The weights without those whose draw is below the rate; the others grow in return."""
    return weight * (draws >= rate) / (1 - rate)


def pooled(states: Tensor, real: Tensor) -> Tensor:
    """The last, the largest and the mean state of each text: [B, T, D] to [B, 3 D]."""
    count = real.sum(dim=1, keepdim=True)
    last = states[torch.arange(len(states)), count[:, 0] - 1]
    largest = states.masked_fill(~real[..., None], -torch.inf).amax(dim=1)
    mean = (states * real[..., None]).sum(dim=1) / count
    return torch.cat([last, largest, mean], dim=1)


# ---- inputs -----------------------------------------------------------------------------------


def _step(rng: torch.Generator) -> tuple[int, int]:
    steps = between(20, 300, rng)
    return between(0, steps, rng), steps


def _unfreezing(rng: torch.Generator) -> tuple[int, int, int]:
    layers, every = between(2, 6, rng), between(2, 9, rng)
    return between(0, every * (layers + 2), rng), layers, every


def _weights(rng: torch.Generator) -> tuple[Tensor, Tensor, float]:
    rows, columns = between(2, 6, rng), between(2, 6, rng)
    weight = torch.randn(rows, columns, generator=rng).requires_grad_()
    draws = torch.rand(rows, columns, generator=rng)
    return weight, draws, (0.2, 0.4, 0.7)[between(0, 3, rng)]


def _states(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    rows, length, width = between(1, 4, rng), between(3, 7, rng), between(2, 5, rng)
    states = torch.randn(rows, length, width, generator=rng)
    lengths = torch.randint(1, length + 1, (rows,), generator=rng)
    lengths[0] = length - 1
    real = torch.arange(length) < lengths[:, None]
    # At padding there may be anything, here often more than at the words.
    return torch.where(real[..., None], states - 1, states + 1).requires_grad_(), real


# ---- mistakes ---------------------------------------------------------------------------------


def _last_column(states: Tensor, real: Tensor) -> Tensor:
    right = pooled(states, real)
    return torch.cat([states[:, -1], right[:, states.shape[2] :]], dim=1)


def _zero_may_win(states: Tensor, real: Tensor) -> Tensor:
    last, _, mean = pooled(states, real).chunk(3, dim=1)
    return torch.cat([last, (states * real[..., None]).amax(dim=1), mean], dim=1)


def _mean_over_all(states: Tensor, real: Tensor) -> Tensor:
    last, largest, _ = pooled(states, real).chunk(3, dim=1)
    return torch.cat([last, largest, (states * real[..., None]).mean(dim=1)], dim=1)


EXERCISES: dict[str, Exercise] = {
    "03.triangle": Function(
        "the share of the highest rate at this step",
        triangle,
        _step,
        (
            ("that is p: the share is (1 + p (32 - 1)) / 32, which is never 0",
             lambda step, steps: step / (steps // 10) if step < steps // 10
             else 1 - (step - steps // 10) / (steps - steps // 10)),
            ("on the way down, count from the cut: (step - cut) / (steps - cut)",
             lambda step, steps: triangle(step, steps) if step < steps // 10
             else (1 + (1 - step / steps) * 31) / 32),
            ("the way up is missing: before the cut, p = step / cut",
             lambda step, steps: (1 + (1 - step / steps) * 31) / 32),
            ("the way down divides by all steps: it is steps - cut long",
             lambda step, steps: triangle(step, steps) if step < steps // 10
             else (1 + (1 - (step - steps // 10) / steps) * 31) / 32),
            ("the way down is steps - cut long; the paper's 9 cut is that where 10 divides steps",
             lambda step, steps: triangle(step, steps) if step < steps // 10
             else (1 + (1 - (step - steps // 10) / (9 * (steps // 10))) * 31) / 32),
            ("the cut is a whole step, steps // 10",
             lambda step, steps: (1 + min(10 * step / steps, (1 - step / steps) / 0.9) * 31) / 32),
            ("the ratio is 32: at the first step the share is 1/32",
             lambda step, steps: (1 + (32 * triangle(step, steps) - 1) / 31 * 9) / 10),
        ),
        minutes=10,
        learned="the slanted triangle",
        hint="p is 0 at the ends, 1 at the peak; the share is 1/32 for p = 0, 1 for p = 1.",
    ),
    "03.rates": Function(
        "the rate of each layer from the lowest up; the top one has `rate`",
        layer_rates,
        lambda rng: (between(2, 7, rng), (0.01, 0.02, 0.1)[between(0, 3, rng)]),
        (
            ("the list begins with the top: the lowest layer comes first",
             lambda *given: layer_rates(*given)[::-1]),
            ("the rate of the top layer is divided, too: it has the full rate",
             lambda *given: [one / 2.6 for one in layer_rates(*given)]),
            ("the lower layers learn faster in your version: divide, not multiply",
             lambda layers, rate: [rate * 2.6 ** (layers - 1 - i) for i in range(layers)]),
            ("each layer is divided by 2.6 once more than the one above it: powers, not multiples",
             lambda layers, rate: [rate / max(1.0, 2.6 * (layers - 1 - i))
                                   for i in range(layers)]),
        ),
        learned="discriminative rates",
        hint="The top layer has `rate`; divide once more by 2.6 for each layer below it.",
    ),
    "03.unfreeze": Function(
        "whether each layer learns at this step, from the lowest up",
        learning,
        _unfreezing,
        (
            ("the lowest layer learns first in your version: begin at the top, which is the last",
             lambda *given: learning(*given)[::-1]),
            ("one step too late: at the steps every, 2 every, … the next layer learns already",
             lambda step, layers, every: learning(max(step - 1, 0), layers, every)),
            ("at step 0 nothing learns: the head does from the beginning",
             lambda step, layers, every: [i >= layers - step // every for i in range(layers)]),
            ("only one layer learns at a time: what is unfrozen stays so",
             lambda step, layers, every: [i == max(0, layers - 1 - step // every)
                                          for i in range(layers)]),
            ("one step too early: one more layer is added at the steps every, 2 every, …",
             lambda step, layers, every: learning(step + 1, layers, every)),
        ),
        properties=(
            ("give Python's True or False for each layer, as bool(…) returns them: not a "
             "number, and not a boolean of NumPy or PyTorch",
             lambda found, *_: all(isinstance(one, bool) for one in found)),
        ),
        learned="gradual unfreezing",
        hint="One layer learns at first. How many more have been added after `step` steps?",
    ),
    "03.drop": Function(
        "the weights, zero where the draw is below the rate, the others divided by 1 − rate",
        weight_drop,
        _weights,
        (
            ("the kept weights have to grow: divide by 1 - rate, so that sums stay as large",
             lambda weight, draws, rate: weight * (draws >= rate)),
            ("the wrong ones were kept: a weight is dropped where its draw is below the rate",
             lambda weight, draws, rate: weight * (draws < rate) / (1 - rate)),
            ("divide by the share that is kept, 1 - rate",
             lambda weight, draws, rate: weight * (draws >= rate) / rate),
            ("whole rows were dropped: DropConnect draws for each weight",
             lambda weight, draws, rate: weight * (draws[:, :1] >= rate) / (1 - rate)),
            ("1 - rate is a factor for use, where nothing is dropped; in training, divide by it",
             lambda weight, draws, rate: weight * (draws >= rate) * (1 - rate)),
        ),
        learned="AWD-LSTM's weight drop",
        hint="What is kept has to make up for what is dropped, so that the mean stays the same.",
    ),
    "03.pool": Function(
        "the last, the largest and the mean state of each text side by side: [B, 3 D]",
        pooled,
        _states,
        (
            ("the last column may be padding: the last state is that of the last real word",
             _last_column),
            ("padding may win the maximum when it is set to 0: set it to −∞", _zero_may_win),
            ("padding takes part in the maximum and in the mean",
             lambda states, real: torch.cat([pooled(states, real)[:, : states.shape[2]],
                                             states.amax(dim=1), states.mean(dim=1)], dim=1)),
            ("padding takes part in all three: in the last state, the maximum and the mean",
             lambda states, real: torch.cat([states[:, -1], states.amax(dim=1),
                                             states.mean(dim=1)], dim=1)),
            ("the mean is divided by the longest text: divide by each text's own length",
             _mean_over_all),
            ("the order is last, largest, mean",
             lambda *given: torch.cat(pooled(*given).chunk(3, dim=1)[::-1], dim=1)),
        ),
        minutes=10,
        learned="concat pooling",
        hint="Padding must win no maximum: fill it with −∞. The mean counts real words only.",
    ),
}  # fmt: skip
