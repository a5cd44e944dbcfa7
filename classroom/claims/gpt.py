"""Claims of notebook 05: the auxiliary objective of fine-tuning, half precision, and restarts."""

import copy
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from classroom.ledger import Measured, claim
from classroom.models.recipes import CourseText, course_text, gpt, plan, untrained_gpt
from classroom.models.scaling_runs import document_floors, document_losses
from classroom.tasks.classifying import right, rows_of
from labkit.blocks import Classifier, LanguageModel, States
from labkit.corpus import Examples
from labkit.heads import NextWord
from labkit.keeping.computing import has_bfloat16
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken, Objective, Targets, Term, auxiliary
from labkit.objectives.sums import weighted
from labkit.trainer import Trainer
from labkit.transfer import classifier, labels_of
from labkit.world import load_world

LENGTH, BATCH = 64, 4


@dataclass(frozen=True)
class Size:
    """How large the experiments of a profile are."""

    words: int = 150_000
    width: int = 64
    layers: int = 1
    rate: float = 2.5e-2
    steps: int = 300
    """Of pre-training."""
    labelled: int = 120
    """Steps of fine-tuning."""
    tests: int = 396
    draws: int = 1
    """How many sets of labels are drawn for one pre-trained model."""
    half: int = 40
    """Steps of each run in half precision."""


SIZES = {
    "smoke": Size(),
    "laptop": Size(words=400_000, steps=1_500, labelled=240, tests=1_992, draws=2, half=200),
    "gpu": Size(
        words=2_000_000, width=256, layers=4, rate=4e-3, steps=6_000, labelled=400, tests=1_980,
        draws=8, half=1_000,
    ),
}  # fmt: skip


# ---- L3 = L2 + λ L1 ----------------------------------------------------------------------------


def tuned(
    start: LanguageModel,
    rows: Examples,
    *,
    labels: int,
    share: float,
    steps: int,
    seed: int = 0,
    stops: Sequence[int] = (),
) -> Iterator[Classifier]:
    """A classifier that keeps on predicting words with this share λ of the loss.

    It is given at each of the stops, and at the end.
    """
    torch.manual_seed(seed)
    start = copy.deepcopy(start)
    model: Any = classifier(start, labels, dropout=0.1)
    model.words = start.head
    label = labels_of(model)
    objective: Objective = auxiliary(share, label=label) if share else label
    how = plan(steps, rate=1e-2, seed=seed)
    for report in Trainer(model, objective, rows, how, progress=False).run():
        if report.step in (*stops, steps):
            yield model


FEW, MANY = 96, 960
SHARES = (0.0, 0.5)


def auxiliary_objective(profile: str, seed: int) -> Measured:
    """Accuracy with and without the language model in fine-tuning, on a small and a large set."""
    size, world = SIZES[profile], load_world()
    text, start = pretrained(profile, seed)
    asked = world.labelled("topic", size.tests, seed=seed, split="held_out")
    tests = rows_of(asked, text.tokenizer, batch=100)
    found: dict[str, list[list[float]]] = {}
    early = size.labelled // 6
    for count in (FEW, MANY):
        for draw in range(size.draws):
            labelled = world.labelled("topic", count, seed=1_000 * draw + seed)
            rows = rows_of(labelled, text.tokenizer, batch=16, seed=seed)
            for share in SHARES:
                known = {"labels": len(asked.labels), "steps": size.labelled, "seed": seed}
                models = tuned(start, rows, share=share, stops=(early,), **known)
                for when, model in zip((", early", ""), models, strict=True):
                    items = right(model, labels_of(model), tests.once())
                    found.setdefault(arm(count, share) + when, []).append(items)
    arms = {name: np.mean(each, axis=0).tolist() for name, each in found.items()}
    note = f"the topics of sentences, {size.draws} draws of labels; early: after {early} steps"
    return Measured(arms, dict.fromkeys(arms, asked.best_accuracy), note, shared=False)


def arm(count: int, share: float) -> str:
    """The name of what is measured with so many labels and this λ."""
    return f"{count} labels, λ = {share:g}"


AUXILIARY_OBJECTIVE = claim("auxiliary-objective", auxiliary_objective)
AUXILIARY_FASTER = claim("auxiliary-faster", auxiliary_objective)


# ---- half precision ----------------------------------------------------------------------------

WORDS_A_STEP = 2**19
"""Half a million words in a step of GPT-3 small (Brown et al. 2020, table 2.1)."""
Precision = Literal["float32", "float16", "bfloat16"]
WAYS: dict[str, tuple[Precision, float | None]] = {
    "float32": ("float32", None),
    "float16": ("float16", None),
    "float16, scaled": ("float16", 2.0**16),
    "bfloat16": ("bfloat16", None),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PartOfStep(NextToken):
    """Next words, as one part of a step of many more: its loss is the mean over all of them."""

    share: float = 1.0

    def terms(self, model: Any, states: States, questions: Targets) -> dict[str, Term]:
        """The surprise, counted as the part that it is."""
        return weighted(super().terms(model, states, questions), self.share)


def pretrained(profile: str, seed: int) -> tuple[CourseText, LanguageModel]:
    """A small GPT that has read general text."""
    size = SIZES[profile]
    text = course_text(words=size.words, held_out=2_000, seed=seed)
    model, _ = gpt(
        text, size.steps, seed=seed, width=size.width, layers=size.layers, length=LENGTH,
        batch=BATCH, rate=size.rate,
    )  # fmt: skip
    return text, model


def half_precision(profile: str, seed: int) -> Measured:
    """The share of gradients that are zero, and the loss, in each precision.

    GPT-3 small learns from half a million words in each step. So many are too many here, but the
    gradients of a part of such a step are as small as there. The model that has learned nothing
    more is the control: it says whether a loss was kept or spoiled.
    """
    size = SIZES[profile]
    text, start = pretrained(profile, seed)
    tests = text.tests(48)
    best = float(np.mean(document_floors(text, 48)))
    batches = text.windows(BATCH, LENGTH, seed=seed + 1)
    objective = PartOfStep(share=BATCH * LENGTH / WORDS_A_STEP)
    zeros: dict[str, list[float]] = {}
    losses = {"loss: before": document_losses(start, tests)}
    for way, (precision, scale) in WAYS.items():
        model = copy.deepcopy(start)
        # A gradient that is zero is no step, and a small one a small step: plain gradient descent
        # shows it. Adam and Muon would make a full step of what rounding has left.
        how = plan(
            size.half, optimizer="sgd", rate=0.1 / objective.share, clip=None, decay=0.0,
            precision=precision, loss_scale=scale, seed=seed,
        )  # fmt: skip
        reports = Trainer(model, objective, batches, how, progress=False).run()
        share = [float(one.vanished) for one in reports if one.vanished is not None]
        if share:
            zeros[f"zero: {way}"] = share
        losses[f"loss: {way}"] = document_losses(model, tests)
    return Measured({**zeros, **losses}, dict.fromkeys(losses, best), shared=False)


HALF_PRECISION = claim("half-precision", half_precision)


# ---- what half precision saves, and what a restart costs --------------------------------------


def kept_for_backward(model: LanguageModel, tokens: torch.Tensor, precision: torch.dtype) -> float:
    """The bytes of all tensors that a forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    half = precision != torch.float32
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", precision, enabled=half):
            loss = model(tokens).float().logsumexp(dim=-1).sum()
        del loss
    return float(sum(size for place, size in kept.items() if place not in weights))


def seconds_of(model: LanguageModel, tokens: torch.Tensor, precision: torch.dtype) -> float:
    """The best of several times of a pass forwards and backwards."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            loss = model(tokens).float().logsumexp(dim=-1).sum()
        loss.backward()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def half_the_memory(profile: str, seed: int) -> Measured | None:
    """Bytes and time of one pass in bfloat16, as a share of those in float32.

    Not where products in bfloat16 are emulated: the time would be that of the emulation.
    """
    if profile != "smoke" and not has_bfloat16(torch.device("cpu")):
        return None
    width, rows, length = (64, 1, 128) if profile == "smoke" else (512, 4, 256)
    torch.manual_seed(seed)
    backbone = GPT(GPTConfig(1_000, width, 4, 8, length, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token))
    tokens = torch.randint(1_000, (rows, length))
    arms = {}
    for what, measure in (("memory", kept_for_backward), ("time", seconds_of)):
        full, half = (measure(model, tokens, one) for one in (torch.float32, torch.bfloat16))
        arms[f"{what}, bfloat16 / float32"] = [half / full]
    note = f"GPT of 4 layers of width {width} on {rows} x {length} tokens"
    return Measured(arms, note=note, shared=False)


HALF_MEMORY = claim("half-memory", half_the_memory)


def restart(profile: str, seed: int) -> Measured:
    """The loss of a run that ended half-way and was taken up from its checkpoint by another model,
    and of one that was never stopped.
    """
    text, steps = course_text("village", words=20_000, held_out=2_000, seed=seed), 60
    batches, how = text.windows(BATCH, LENGTH, seed=seed), plan(steps, seed=seed, rate=1e-2)

    def trainer(first: int) -> Trainer:
        model = untrained_gpt(text, seed=first, width=32, length=LENGTH)
        return Trainer(model, NextToken(), batches, how, progress=False)

    whole, half, rest = trainer(seed), trainer(seed), trainer(seed + 1)
    for _ in whole.run():
        pass
    with tempfile.TemporaryDirectory() as folder:
        for report in half.resume(folder):
            if report.step == steps // 2:
                half.stop()
        for _ in rest.resume(folder):
            pass
    runs = {"never stopped": whole, "stopped": half, "stopped and restarted": rest}
    tests = text.tests(48)
    arms = {name: document_losses(run.model, tests) for name, run in runs.items()}
    return Measured(arms, note=f"{steps} steps, stopped after {steps // 2}", shared=False)


RESTART = claim("restart", restart)

CLAIMS = (AUXILIARY_OBJECTIVE, AUXILIARY_FASTER, HALF_PRECISION, HALF_MEMORY, RESTART)
