"""The trainer, a loop that yields a report after each step.

    for report in Trainer(model, objective, batches, plan).resume(folder):
        if report.step % 100 == 0:
            print(report, evaluate(model, objective, held_out))

The loop's body is the callback: print, draw, unfreeze, stop there. What the body does at a step
belongs to that step, and is saved with it.

Read `Trainer.train_step` first: it is all there is to training. `labkit.keeping` wraps it from
outside with checkpoints, signals, and the return to an earlier state when a loss is not finite.
"""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit import fast
from labkit.blocks import evaluating, vocabulary_of
from labkit.chance import Chance
from labkit.checks import check_type
from labkit.corpus import Batch, Batches, Epochs
from labkit.keeping.checkpoints import Snapshot
from labkit.keeping.computing import Computing, measured_peak, precision_of, width_of
from labkit.keeping.description import about
from labkit.keeping.distributed import Loss, combined, without_weights, wrapped
from labkit.keeping.health import Health
from labkit.keeping.processes import join, shard_like
from labkit.keeping.reports import Evaluation, Report, with_progress
from labkit.keeping.running import Run
from labkit.keeping.speed import Operations
from labkit.objectives import Memory, Objective, Targets, combine, total
from labkit.optim import Average, Group, Optimizers, named_groups
from labkit.plan import Plan
from labkit.tensor_checks import check_tokens


class Trainer:
    """Trains a model by an objective on batches, as a plan says."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        batches: Batches,
        plan: Plan,
        *,
        groups: Sequence[Group] | None = None,
        progress: bool | None = None,
    ) -> None:
        _check_given(objective, batches, plan)
        self.model, self.objective, self.batches, self.plan = model, objective, batches, plan
        self.progress = sys.stderr.isatty() if progress is None else progress
        named = named_groups(model, groups)
        self.about = about(model, objective, batches, named)
        self.processes = join(plan.processes, plan.device)
        self.device = self.processes.device
        model.to(self.device)
        self.parts = self.processes.count * plan.accumulate
        fewest = getattr(batches, "fewest", None)
        if fewest is not None and fewest // objective.together < self.parts:
            raise ValueError(
                f"the smallest batch has {fewest} rows, which cannot be divided among "
                f"accumulate={plan.accumulate} and {self.processes.count} process(es): lower "
                "accumulate, change batch, or build the corpus with bucketed=False"
            )
        unsharded = without_weights(model) if self.processes.kind == "fsdp" else model
        self.operations = Operations(unsharded, objective, self.parts)
        # Each process may measure another one to be the faster, so the first decides for all.
        precision = self.processes.agreed(precision_of(plan, self.device, width_of(model)))
        self.computing = Computing(model, plan, self.device, precision)
        self.loss = wrapped(model, objective, self.processes)
        self.optimizers = Optimizers(model, plan, named)
        self.average = Average(model, plan)
        self.health = Health(plan, self.computing.precision == torch.float16, self.device)
        self.step, self.scale = 0, 1.0
        self.notes: dict[str, Any] = {}
        """Values of your own, saved with every checkpoint: numbers, texts, lists and dicts."""
        self.memory: list[Memory | None] = [None] * plan.accumulate
        self.averaging = self.stopped = self.measuring = False

    def train_step(self) -> Report:
        """One step: hide, predict, compare, backpropagate, clip, change the weights."""
        plan, batch = self.plan, self.batches.at(self.step)
        # What the model sees and what it has to predict: decided for all parts of the batch, ...
        parts = [
            self.objective.targets(part, Chance(plan.seed, self.step, part.rows))
            for part in batch.micro(self.parts, together=self.objective.together)
        ]
        # ... since the loss is a mean over all predictions, and each part divides by their count.
        counts, losses, outcomes = total(parts), [], []
        # An interrupted step may have left gradients.
        self.optimizers.clear()
        if not self.model.training:
            self.model.train()
        # An interrupted step is repeated with the memory that it began with.
        memory = list(self.memory)
        for i, number in enumerate(self.processes.own(range(self.parts))):
            with self.loss.part(last=i == plan.accumulate - 1):
                targets = on_device(parts[number], self.model, self.device)
                with self.computing(plan.seed, self.step, number):
                    loss, outcome = self.loss(targets, memory[i], counts)
                (loss * self.health.scale * self.loss.gain).backward()
            memory[i] = outcome.memory
            losses.append(loss.detach())
            outcomes.append(outcome)
        loss, metrics = combined(self.processes, torch.stack(losses).sum(), combine(outcomes))
        verdict = self.health.look(loss, self.optimizers.gradients())
        rate = plan.rate * plan.share(self.step) * self.scale
        # The divisor undoes the scale of the loss and clips a long gradient; a bad step is skipped.
        self.optimizers.step(rate, verdict.divisor, verdict.bad)
        self.optimizers.clear()
        if any(part is not None for part in memory) and bool(verdict.bad):
            # The memory may not be finite, and the one before belongs to an earlier segment.
            memory = [None] * plan.accumulate
        self.memory, self.step = memory, self.step + 1
        if self.averaging or (plan.average_from is not None and self.step >= plan.average_from):
            self.averaging = True
            self.average.add()
        return Report(
            step=self.step,
            steps=plan.steps,
            loss=loss,
            metrics=metrics,
            norm=verdict.norm,
            rate=rate,
            tokens=int(batch.real.sum()),
            skipped=self.health.tensors["skipped"],
            bad_in_a_row=self.health.tensors["bad_in_a_row"],
            spike=verdict.spike,
            vanished=verdict.vanished,
            precision=f"{self.computing.precision}".removeprefix("torch."),
            operations=self.operations(batch) if self.measuring else None,
        )

    def steps(self) -> Iterator[Report]:
        """Every step from where the trainer is to the end of the plan, and nothing else."""
        while self.step < self.plan.steps:
            with fast.enable():
                report = self.train_step()
            yield report

    def resume(
        self, folder: str | Path | None = None, *, changed: Iterable[str] = ()
    ) -> Iterator[Report]:
        """Train, from the newest whole checkpoint of the folder if there is one.

        `changed` names the fields of the plan (or "model", "objective", "batches") that are
        meant to differ from those of the checkpoint. Without a folder nothing is saved.
        """
        where = None if folder is None else Path(folder)
        if isinstance(changed, str):
            raise TypeError(f"changed is {changed!r}: give a list of names, changed=[{changed!r}]")
        return Run(self, where, changed, self.progress).reports()

    def run(self) -> Iterator[Report]:
        """Train from where the model is, without a folder: nothing is saved."""
        return self.resume()

    def stop(self) -> None:
        """End the run after this step, which is saved.

        Early stopping: `if non_monotone(losses): trainer.stop()`, with held-out losses that
        `trainer.notes` keeps. A `break` ends the loop as well, and saves nothing.
        """
        self.stopped = True

    def state(self) -> Snapshot:
        """A copy of the state, from which `load` continues; every process must call this."""
        return self.live_state().copy()

    def live_state(self) -> Snapshot:
        """The state itself, which the next step changes; every process must call this."""
        facts = {
            "scale": self.scale,
            "notes": self.notes,
            "averaging": self.averaging,
            "averaged": self.average.count,
            "learning": [n for n, p in self.model.named_parameters() if p.requires_grad],
        }
        tensors = {
            "weights": weights(self.model),
            "optimizer": self.optimizers.tensors(),
            "average": self.average.averages,
            "health": self.health.tensors,
            "memory": self.processes.joined(self.memory),
        }
        return Snapshot(self.step, facts, {kind: own for kind, own in tensors.items() if own})

    @torch.no_grad()
    def load(self, state: Snapshot) -> None:
        """Restore what `state` returned; what is missing there starts afresh.

        Which weights learn is part of it: those that were frozen when it was saved are again, and
        no others.
        """
        facts, tensors = state.facts, state.tensors
        for name, tensor in weights(self.model).items():
            tensor.copy_(shard_like(tensor, tensors["weights"][name]))
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in facts["learning"])
        self.optimizers.load(tensors.get("optimizer", {}))
        self.averaging = facts["averaging"] and self.plan.average != "none"
        mean = tensors.get("average", {}) if self.averaging else {}
        self.average.load(facts["averaged"] if mean else 0, mean)
        self.health.load(tensors["health"])
        self.memory = self.processes.divided(
            tensors.get("memory", {}), self.plan.accumulate, self.objective.together
        )
        self.step, self.scale = state.step, facts["scale"]
        # First a copy: they may be these very notes, and what is noted later is no part of `state`.
        notes = copy.deepcopy(facts["notes"])
        self.notes.clear()
        self.notes.update(notes)

    def measure(self) -> None:
        """Count the operations of a step and measure the machine, so that reports can say MFU."""
        self.measuring = True
        # The result is kept, so that no step has to wait for it.
        measured_peak(str(self.device), self.computing.precision)

    def start_average(self) -> None:
        """From here on the weights are averaged: NT-ASGD, when `non_monotone` says so."""
        if self.plan.average == "none":
            raise ValueError("the plan says average='none': choose average='mean' or 'ema'")
        if not self.averaging:
            self.averaging = True
            self.average.add()

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the mean of its weights inside the block, and its own after it."""
        if not self.average.count:
            raise ValueError(
                "no weights have been averaged yet: give the plan average_from, or call "
                "start_average()"
            )
        self.average.swap()
        try:
            yield
        finally:
            self.average.swap()

    def evaluate(
        self,
        batches: Iterable[Batch] | Epochs,
        *,
        floor: float | None = None,
        seed: int = 0,
    ) -> Evaluation:
        """The same as `evaluate(model, objective, batches)`; each process evaluates all batches."""
        return mean_loss(self.loss, self.model, self.objective, batches, floor, seed)


def _check_given(objective: Any, batches: Any, plan: Any) -> None:
    """Refuse what is no objective, no batches or no plan."""
    check_type("objective", objective, Objective, "an objective, such as NextToken()")
    check_type("plan", plan, Plan, "Plan(steps=…)")
    if not hasattr(batches, "at"):
        raise TypeError(
            f"batches is a {type(batches).__name__}: give a corpus, such as Windows, or an object "
            "with at(step)"
        )


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights and what else the model keeps, each once, however many names it has."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):
            named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def evaluate(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch] | Epochs,
    *,
    floor: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """The exact mean over all predictions of all batches, however they are split.

    A model with memory carries it from batch to batch. What the objective hides is the same at
    each call. Training goes on afterwards as if there had been no evaluation. `batches` is a
    corpus, all of which is read once, or a list of batches.
    """
    check_type("objective", objective, Objective, "an objective, such as NextToken()")
    return mean_loss(Loss(model, objective), model, objective, batches, floor, seed)


def on_device(targets: Targets, model: nn.Module, device: torch.device) -> Targets:
    """The targets on the device of the model; tokens are checked before, for a clear message."""
    if device.type != "cpu":
        check_tokens(targets.inputs.tokens, vocabulary_of(model))
    return targets.to(device)


@torch.no_grad()
def mean_loss(
    loss: Callable[..., Any],
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch] | Epochs,
    floor: float | None,
    seed: int,
) -> Evaluation:
    """The mean of what `loss` gives for all batches, with the model in eval mode."""
    # A model that counts, for instance, may have no parameters.
    device = next(chain(model.parameters(), model.buffers()), torch.empty(0)).device
    memory, outcomes = None, []
    every = batches.once() if isinstance(batches, Epochs) else batches
    every = [every] if isinstance(every, Batch) else every
    if not isinstance(every, Iterable):
        raise TypeError(
            f"batches is a {type(batches).__name__}, which has no end: give a corpus that can be "
            "read once, such as Windows, or a list of batches"
        )
    with evaluating(model):
        for i, batch in enumerate(with_progress(every, "batch")):
            check_type("a batch", batch, Batch, "a corpus, such as Windows, or a list of batches")
            targets = objective.targets(batch, Chance(seed, i, batch.rows))
            counts, targets = total([targets]), on_device(targets, model, device)
            if memory is not None and len(memory.known) != len(batch):
                memory = None
            with fast.enable():
                _, outcome = loss(targets, memory, counts)
            memory = outcome.memory
            # The next batch needs the memory, and the mean does not.
            outcomes.append(replace(outcome, memory=None))
    if not outcomes:
        raise ValueError("there are no batches to evaluate on: give at least one")
    everything = combine(outcomes)
    if not any(term.count for term in everything.terms.values()):
        raise ValueError(
            "the objective predicts nothing in these batches, so there is no mean loss: give more "
            "or longer texts"
        )
    metrics = {name: float(mean) for name, mean in everything.metrics.items()}
    return Evaluation(float(everything.loss), everything.count, metrics, floor)
