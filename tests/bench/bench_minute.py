"""What is learned in a minute: labkit's recipe beside nanoGPT's, tuned in the same run.

    python -m labkit bench minute [language] [village] [--seconds 60] [--picture docs/minute.png]

The peer gets the same seconds with each of three rates; then, with the best of them, as many
operations as ours did, whatever time they take: the first swings with the machine, the second does
not.  The village, which is small, gets a third of the seconds.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from bench_trainer import (
    NEAR,
    Language,
    Size,
    Steps,
    Windows,
    bare_loop,
    language,
    machine,
    trained,
)
from torch import Tensor, nn

from classroom.cli.parser import above_zero
from classroom.models import recipes
from labkit.costs.counting import counted_flop
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import evaluate

RATES = (1e-3, 3e-3, 1e-2)
"""Those of the peer; the first is nanoGPT's for a small model."""
PEER: dict[str, Any] = {"schedule": "cosine", "betas": (0.9, 0.95), "decay": 0.1, "clip": 1.0}
SHARE = {"language": 1.0, "village": 1 / 3}
"""Which share of the seconds a language gets."""
TOLERANCE = 0.1
"""By which share of its seconds a run may end early or late."""


class FromBeginnings(Windows):
    """Every other row begins at the start of a document, as the tests do.

    A row that begins at a random position has missed the names before it, which no model can guess.
    If all rows began with a document, no model would read the ends of long ones.
    """

    @cached_property
    def separators(self) -> Tensor:
        """The position of the separator before each document."""
        return (self.text[: -self.length - 1] == 0).nonzero()[:, 0]

    def tokens(self, step: int) -> Tensor:
        """The tokens of one step [B, T + 1]: each but the last predicts the next."""
        tokens = super().tokens(step)
        chance = torch.Generator().manual_seed(step)
        drawn = torch.randint(len(self.separators), (self.rows // 2, 1), generator=chance)
        tokens[1::2] = self.text[self.separators[drawn] + torch.arange(self.length + 1)]
        return tokens


class Recipe(NamedTuple):
    """A model with its batches, and how it is trained."""

    name: str
    size: Size
    start: Callable[[nn.Module, Windows, Plan], Steps]
    plan: Plan
    windows: type[Windows] = Windows
    copies: bool = False
    """Whether attention starts by copying."""

    def model(self) -> nn.Module:
        """A fresh model."""
        model = self.size.model()
        if self.copies:
            recipes.copying_start(model)
        return model

    @property
    def flop(self) -> int:
        """Operations of one step: those of all matrix products, forward and backward."""
        tokens = torch.zeros(self.size.batch, self.size.context, dtype=torch.long)
        return counted_flop(self.model(), tokens)

    def rows(self, known: Language) -> Windows:
        """The batches of a text."""
        return self.windows(known.text, self.size.batch, self.size.context)


class Minute(NamedTuple):
    """A recipe that had its time."""

    recipe: Recipe
    equal: str
    """What it has in common with the first one: the seconds or the operations."""
    model: nn.Module
    times: list[float]
    losses: list[float]
    loss: float
    """On held-out documents."""

    @property
    def flop(self) -> int:
        """Operations of all steps."""
        return len(self.times) * self.recipe.flop


def recipes_for(vocabulary: int) -> tuple[Recipe, list[Recipe]]:
    """Our recipe, and nanoGPT's in a bare loop, with each of three rates."""
    # In one layer each head can look for one thing, and with rotary positions it soon finds it.
    ours = Size(
        recipes.LAYERS, recipes.WIDTH // 16, recipes.WIDTH, recipes.LENGTH, recipes.BATCH,
        vocabulary, rotary=True,
    )  # fmt: skip
    theirs = Size(3, 4, 128, 128, 16, vocabulary)
    peers = [
        Recipe(f"nanoGPT's, rate {rate:g}", theirs, bare_loop, Plan(steps=50, rate=rate, **PEER))
        for rate in RATES
    ]
    plan = Plan(**recipes.MINUTE, steps=50)
    return Recipe("labkit", ours, trained, plan, FromBeginnings, copies=True), peers


def run(recipe: Recipe, equal: str, known: Language, steps: int) -> Minute:
    """Train by a recipe for so many steps, and test."""
    model, plan = recipe.model(), on_this_processor(recipe.plan, steps)
    text = recipe.rows(known)
    begun, times, losses = time.perf_counter(), [], []
    for found in recipe.start(model, text, plan):
        times.append(time.perf_counter() - begun)
        loss = found if isinstance(found, Tensor) else found.loss
        losses.append(float(loss.detach()))
    held_out = evaluate(model, NextToken(), known.held_out).loss
    return Minute(recipe, equal, model, times, losses, held_out)


def on_this_processor(plan: Plan, steps: int) -> Plan:
    """The plan for so many steps, of which a twentieth warm up."""
    return replace(plan, device="cpu", steps=steps, warmup=steps // 20)


def steps_in(seconds: float, recipe: Recipe, known: Language) -> int:
    """How many steps of a recipe fit into the time, measured on some of them."""
    text = recipe.rows(known)
    steps = recipe.start(recipe.model(), text, on_this_processor(recipe.plan, 10**6))
    for _ in range(5):
        next(steps)
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < max(min(3.0, seconds), seconds / 20):
        next(steps)
        done += 1
    return max(50, int(seconds * done / (time.perf_counter() - begun)))


def run_for(seconds: float, recipe: Recipe, equal: str, known: Language) -> Minute:
    """Train for so many seconds; run again if the machine was faster or slower than measured."""
    found = run(recipe, equal, known, steps_in(seconds, recipe, known))
    for _ in range(2):
        if abs(found.times[-1] / seconds - 1) > TOLERANCE:
            steps = round(len(found.times) * seconds / found.times[-1])
            found = run(recipe, equal, known, steps)
    return found


def compared(known: Language, seconds: float) -> list[Minute]:
    """Ours, the peer with each rate after equal seconds, and the best after equal operations."""
    recipe, peers = recipes_for(known.vocabulary)
    ours = run_for(seconds, recipe, "", known)
    tuned = [run_for(seconds, peer, "seconds", known) for peer in peers]
    best = min(tuned, key=lambda one: one.loss).recipe
    same = run(best, "operations", known, max(1, round(ours.flop / best.flop)))
    return [ours, *tuned, same]


def table(runs: Sequence[Minute], known: Language) -> Iterator[str]:
    """A row for each run; then what share of the tuned peer's gap is left of ours."""
    yield "| recipe | equal | model | steps | seconds | 10¹² operations | above the floor |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for one in runs:
        yield (
            f"| {one.recipe.name} | {one.equal} | {one.recipe.size} | {len(one.times):,} "
            f"| {one.times[-1]:.0f} | {one.flop / 1e12:.1f} | {one.loss - known.floor:.4f} |"
        )
    yield ""
    ours, *tuned, same = (one.loss - known.floor for one in runs)
    yield (
        f"gap of labkit / gap of the tuned peer: {ours / min(tuned):.2f} after equal seconds, "
        f"{ours / same:.2f} after equal operations (aim: at most 0.20)"
    )


def minute(names: Sequence[str], seconds: float, picture: str | None = None) -> Iterator[str]:
    """For each language the table, which words the gap is made of, and the curves."""
    found = []
    for name in names:
        known = language(name, recipes.LENGTH)
        given = SHARE[name] * seconds
        runs = compared(known, given)
        yield (
            f"{name}: {known.vocabulary} words, floor {known.floor:.4f} nats, {given:.0f} s each"
        )
        yield ""
        yield from table(runs, known)
        pair = [runs[0], min(runs[1:-1], key=lambda one: one.loss)]
        yield ""
        yield from what_remains(pair, known)
        yield ""
        found.append((name, pair, known.floor))
    if picture is not None:
        draw(found, picture)
        yield f"drawn: {picture}"


@torch.no_grad()
def losses_of(model: nn.Module, known: Language) -> Tensor:
    """What a model loses on each word of the held-out documents."""
    model.eval()
    found = []
    for batch in known.held_out:
        hidden_BTD = model.backbone(batch.tokens[:, :-1]).hidden
        losses_N = model.head.losses_N(hidden_BTD.flatten(0, 1), batch.tokens[:, 1:].flatten())
        found.append(losses_N.view(len(batch), -1)[batch.real[:, 1:]])
    return torch.cat(found).double()


def what_remains(runs: Sequence[Minute], known: Language) -> Iterator[str]:
    """Which words the gap is made of: what is left to learn after a minute."""
    far = known.near - known.losses > 0.5
    likely, rare = known.losses < math.log(2), known.losses > math.log(50)
    classes = {
        f"told by words more than {NEAR} back": far,
        "else, likely (1/2 or more)": ~far & likely,
        "else, one of several": ~far & ~likely & ~rare,
        "else, rare (less than 1/50)": ~far & rare,
        "all": torch.ones_like(far),
    }
    names = " | ".join(f"{run.recipe.name}: above the floor, share of the gap" for run in runs)
    yield f"| words | share of the words | floor | {names} |"
    yield "|---|---|---|" + "---|" * len(runs)
    gaps = [losses_of(run.model, known) - known.losses for run in runs]
    for name, these in classes.items():
        cells = [f"{gap[these].mean():.3f}, {gap[these].sum() / gap.sum():.0%}" for gap in gaps]
        floor = known.losses[these].mean()
        yield f"| {name} | {these.double().mean():.1%} | {floor:.3f} | {' | '.join(cells)} |"


def draw(found: Sequence[tuple[str, Sequence[Minute], float]], path: str) -> None:
    """For each language the losses on the way, at the end those on held-out text, and the floor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, columns = pyplot.subplots(
        1, len(found), figsize=(9, 4.4), dpi=120, sharey=True, squeeze=False
    )
    for axes, (name, runs, floor) in zip(columns[0], found, strict=True):
        for run, color in zip(runs, ("#0b5394", "#777777"), strict=True):
            each = max(1, len(run.losses) // 100)
            ends = range(each, len(run.losses) + 1, each)
            means = [statistics.mean(run.losses[end - each : end]) for end in ends]
            label = f"{run.recipe.name}: {run.loss:.2f}"
            axes.plot([run.times[end - 1] for end in ends], means, color=color, label=label)
            axes.plot([run.times[-1]], [run.loss], "o", color=color)
        axes.axhline(floor, color="#990000", linestyle="--", label=f"floor: {floor:.2f}")
        axes.set(title=f"the {name}", xlabel="seconds", ylim=(0, 4))
        # Below the axes: a slow peer's curve would run behind it.
        axes.legend(frameon=False, title="on held-out text", loc="upper center",
                    bbox_to_anchor=(0.5, -0.16))  # fmt: skip
        axes.spines[["top", "right"]].set_visible(False)
    columns[0, 0].set_ylabel("loss (nats per word)")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(words: Sequence[str]) -> int:
    """Print the tables of the chosen languages."""
    parser = argparse.ArgumentParser(description="What is learned in a minute.")
    parser.add_argument("languages", nargs="*", help=f"which of: {', '.join(SHARE)} [both]")
    parser.add_argument("--seconds", type=above_zero, default=60.0, help="time for each run [60]")
    parser.add_argument("--picture", help="a file for the curves")
    given = parser.parse_args(words)
    unknown = [name for name in given.languages if name not in SHARE]
    if unknown:
        parser.error(f"invalid choice: '{unknown[0]}' (choose from {', '.join(SHARE)})")
    print(f"{machine()}\n")
    for line in minute(given.languages or list(SHARE), given.seconds, given.picture):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
