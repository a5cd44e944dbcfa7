"""The rate and the layers, to look at: how fast each layer learns, and which are frozen.

ULMFiT, Howard and Ruder 2018: section 3.2 (slanted triangle, a rate for each layer), section 3.3
(gradual unfreezing).  The course's own schedules and `transfer` decide.  Read `schedule_view`.
"""

from functools import lru_cache

from torch import nn

from classroom.demos.base import Demo, choice, slider, whole_slider
from classroom.demos.pieces import Curve, Heading, Note, Share, Table
from classroom.demos.rendering import View
from labkit.checks import check_choice
from labkit.models.gpt import GPT, GPTConfig
from labkit.plan import SCHEDULES
from labkit.transfer import classifier, discriminative, layer_groups, unfreeze_from_top

DRAWN = 140


@lru_cache(maxsize=16)
def stack(layers: int) -> nn.Module:
    """A classifier with so many layers, as small as can be: only its groups are asked for."""
    return classifier(GPT(GPTConfig(2, width=2, layers=layers, heads=1, context=2)), 2)


@lru_cache(maxsize=64)
def learning(layers: int, awake: int | None) -> list[bool]:
    """Whether each layer learns where the top `awake` do (None: all), the embeddings first."""
    model = stack(layers)
    groups = layer_groups(model)
    unfreeze_from_top(model, len(groups) if awake is None else awake)
    found = [all(parameter.requires_grad for parameter in group) for group in groups]
    unfreeze_from_top(model, len(groups))
    return found


@lru_cache(maxsize=64)
def slowness(layers: int, factor: float) -> list[float]:
    """How much slower each layer learns than the head, the embeddings first."""
    return [times for _, times in discriminative(stack(layers), factor)]


def schedule_view(
    step: int, steps: int, schedule: str, layers: int, factor: float, every: int
) -> View:
    """The rate at a step, for each layer; every `every` steps one more is unfrozen (0: all are)."""
    check_choice("schedule", schedule, *SCHEDULES)
    if not 0 <= step < steps:
        raise ValueError(f"step is {step}: give a whole number from 0 to {steps - 1}")
    share = SCHEDULES[schedule](step, steps, None)
    slower = slowness(layers, factor)
    learns = learning(layers, 1 + step // every if every else None)
    names = ["embeddings", *(f"layer {n + 1}" for n in range(layers)), "head"]
    rows = [
        (
            name,
            "learns" if one else "frozen",
            f"{times:.3g}",
            Share(share * times if one else 0.0),
        )
        for name, one, times in zip(names, learns, slower, strict=True)
    ]
    return View.of(
        "schedule",
        Heading(f"{schedule.replace('_', ' ')}: the rate at each step, as a share of the highest"),
        curve(schedule, steps, step, share),
        Heading(f"Step {step}: {sum(learns)} of {len(learns)} layers learn"),
        Table(("layer", "", "rate of this layer", "rate now"), tuple(rows[::-1]), "layers"),
        Note(f"Rate now = share of the schedule ÷ {factor:g}^(number of layers above).", "formula"),
    )


def curve(schedule: str, steps: int, step: int, share: float) -> Curve:
    """The schedule as a line, with a mark at the step."""
    some = sorted({*range(0, steps, max(1, steps // DRAWN)), steps - 1})
    return Curve(
        points=tuple((n, SCHEDULES[schedule](n, steps, None)) for n in some),
        said=f"At step {step} of {steps} the rate is {share:.4f} of the highest.",
        name=schedule,
        low="0",
        high="1",
        last=f"step {steps - 1}",
        mark=(step, share),
        frame=(0, steps - 1, 0.0, 1.0),
    )


def schedule_demo(
    steps: int = 400, layers: int = 3, schedule: str = "slanted_triangle", *, every: int = 60
) -> Demo:
    """Slide through the steps of a fine-tuning and see which layers learn, and how fast."""

    def draw(step: int, shape: str, layers: int, factor: float, every: int) -> View:
        return schedule_view(step, steps, shape, layers, factor, every)

    controls = {
        "step": whole_slider("step", 0, 0, steps - 1),
        "shape": choice("schedule", list(SCHEDULES), schedule),
        "layers": whole_slider("layers", layers, 1, max(12, layers)),
        "factor": slider("factor", 2.6, 1.0, 5.0, 0.1),
        "every": whole_slider("unfreeze every", every, 0, max(steps, every)),
    }
    kept = {
        "step": sorted({*range(0, steps, max(1, steps // 20)), steps - 1}),
        "layers": [layers],
        "factor": [1.0, 2.6],
        "every": sorted({0, every}),
    }
    return Demo("schedule", draw, controls, kept=kept)
