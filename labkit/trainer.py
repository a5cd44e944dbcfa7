"""The trainer: a loop that the reader holds in the hand.

    for report in Trainer(model, objective, batches, plan).resume(folder):
        if report.step % 100 == 0:
            print(report, evaluate(model, objective, held_out))

The loop's body is the callback: print, draw, unfreeze, stop there. What the body does at a step
belongs to that step, and is saved with it.

Read `Trainer._step` first: it is all there is to training; the rest is what keeps a run alive.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from labkit import fast
from labkit.chance import Chance
from labkit.corpus import Batch, sent
from labkit.fast.heap import keep_memory
from labkit.keeping.checkpoints import Found, Saver, newest, read, sweep
from labkit.keeping.computing import (
    Computing,
    check_precision,
    dice,
    memory_explained,
    precision_of,
    width_of,
)
from labkit.keeping.distributed import Wrapped, cut, join, whole, without_weights
from labkit.keeping.health import Health, Later, vanished
from labkit.keeping.reports import Bar, Evaluation, Report, evaluate
from labkit.keeping.resuming import about, check_same, restore, snapshot
from labkit.keeping.signals import Stop
from labkit.keeping.speed import counted_operations, measured_peak
from labkit.objectives import Memory, Objective, Outcome, Questions, combine, total
from labkit.optim import Average, Group, Optimizers, named_groups
from labkit.plan import Batches, Plan

__all__ = ["Evaluation", "Plan", "Report", "Trainer", "evaluate"]

# How often a run may go back before it gives up.
LIVES = 10
# More than there are processes, each of which may ask to stop without a signal.
SIGNAL = 2**20


class Trainer:
    """Trains a model on what an objective asks about batches, as a plan says."""

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
        self.model, self.objective, self.batches, self.plan = model, objective, batches, plan
        self.ranks = join(plan.processes, plan.device)
        self.device = self.ranks.device
        self.progress = sys.stderr.isatty() if progress is None else progress
        named = named_groups(model, groups)
        self.about = about(model, objective, batches, named)
        model.to(self.device)
        if self.device.type == "cpu":
            keep_memory()
        self._uncut = model
        if self.ranks.kind == "fsdp":
            self._uncut = without_weights(model)
            cut(model, self.ranks)
        self.parts = self.ranks.count * plan.accumulate
        self.precision = precision_of(plan, self.device, width_of(model))
        check_precision(model, self.precision, self.device)
        self.optimizers = Optimizers(model, plan, named)
        self.average = Average(model, plan)
        self.health = Health(plan, self.precision == torch.float16, self.device)
        self.step, self.scale = 0, 1.0
        self.notes: dict[str, Any] = {}
        """Of the reader's own, saved with every checkpoint: numbers, texts, lists, by name."""
        self.memory: list[Memory | None] = [None] * plan.accumulate
        self._answer = Wrapped(model, objective, self.ranks)
        self._computing = Computing(model, plan)
        self.measuring = False
        self._operations: dict[int, float] = {}
        self.averaging = False
        self._stop = Stop()
        self.stops: list[Later] = []
        self.troubles: list[Later] = []
        self._lives, self._done, self._ended = LIVES, 0, False
        self._begun = self._step_begun = 0.0

    def resume(
        self, folder: str | Path | None = None, *, changed: Iterable[str] = ()
    ) -> Iterator[Report]:
        """Train, from the newest whole checkpoint of the folder if there is one.

        `changed` names the fields of the plan (or "model", "objective", "batches") that are
        meant to differ from those of the checkpoint. Without a folder nothing is saved.
        """
        if folder is None:
            return self._reports(None)
        folder = Path(folder)
        found = self._find(folder)
        for reason in found.skipped:
            self.say(f"passed over {reason}")
        if found.snapshot is not None:
            check_same(self, found.snapshot, changed, folder)
            restore(self, found.snapshot)
            self.say(f"goes on from {found.path}, the newest whole checkpoint")
        elif found.skipped:
            self.say(f"no checkpoint of {folder} is whole: begins anew")
        if self.ranks.first:
            sweep(folder)
        saver = Saver(folder, self.plan.keep, known=found.path, silent=not self.ranks.first)
        return self._reports(saver)

    def run(self) -> Iterator[Report]:
        """Train from where the model is, without a folder: nothing is saved."""
        return self._reports(None)

    def stop(self) -> None:
        """End the run after this step, which is saved; of several processes, after the next one.

        Early stopping: `if non_monotone(losses): trainer.stop()`, with held-out losses that
        `trainer.notes` keeps. A `break` ends the loop as well, and saves nothing.
        """
        self._ended = True

    def say(self, message: str) -> None:
        """Tell what happens to the run, once for all processes."""
        if self.ranks.first:
            print(f"labkit: {message}", file=sys.stderr, flush=True)

    def measure(self) -> None:
        """Count the operations of a step and measure the machine, so that reports can say MFU."""
        self.measuring = True
        self.operations(self.batches.at(self.step))

    def operations(self, batch: Batch) -> float:
        """How many operations a step with this batch takes; counted once for each length."""
        length = batch.tokens.shape[1]
        if length not in self._operations:
            part = self._parts(batch)[0]
            questions = self.objective.ask(part, Chance(self.plan.seed, self.step, part.rows))
            counted = counted_operations(self._uncut, self.objective, questions)
            self._operations[length] = counted / len(part)
        return self._operations[length] * len(batch)

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

    def _find(self, folder: Path) -> Found:
        """The newest whole checkpoint, the same for all processes."""
        found = newest(folder) if self.ranks.first else None
        told = self.ranks.agreed(None if found is None else (found.path, found.skipped))
        assert told is not None
        path, skipped = told
        if found is None:
            found = Found(None if path is None else read(path), path, skipped)
        return found

    # ---- one step ----------------------------------------------------------------------------

    def _step(self) -> Report:
        """Ask, answer, go back, change the weights."""
        plan = self.plan
        # A reader, or a step that was broken off, may have left some.
        self.optimizers.clear()
        batch = self.batches.at(self.step)
        # All that all processes ask: so each knows the counts by which the loss is divided.
        asked = [
            self.objective.ask(part, Chance(plan.seed, self.step, part.rows))
            for part in self._parts(batch)
        ]
        counts, outcomes, losses = total(asked), [], []
        if not self.model.training:
            self.model.train()
        with self._computing(), dice(self.device) as throw:
            for i, questions in enumerate(self._own(asked)):
                throw(plan.seed, self.step, self.first_part + i)
                with self._answer.part(last=i == plan.accumulate - 1):
                    loss, outcome = self._ask(questions, self.memory[i], counts)
                    (loss * self.health.scale * self._answer.gain).backward()
                self.memory[i] = outcome.memory
                outcomes.append(outcome)
                losses.append(loss.detach())
        loss, metrics = self._totals(torch.stack(losses).sum(), combine(outcomes))
        return self._change(batch, loss, metrics)

    def _parts(self, batch: Batch) -> list[Batch]:
        """The batch as all processes together take it on."""
        return batch.micro(self.parts, together=self.objective.together)

    def _own(self, asked: list[Questions]) -> list[Questions]:
        """The parts that this process answers for."""
        return asked[self.first_part : self.first_part + self.plan.accumulate]

    @property
    def first_part(self) -> int:
        """The number of this process's first part among those of the whole batch."""
        return self.ranks.rank * self.plan.accumulate

    def _ask(
        self, questions: Questions, memory: Memory | None, counts: dict[str, int]
    ) -> tuple[Tensor, Outcome]:
        """The answer to one part, in the precision of the plan."""
        half = self.precision != torch.float32
        with torch.autocast(self.device.type, self.precision, enabled=half):
            return self._answer(questions.to(self.device), memory, counts)

    def _totals(self, loss: Tensor, found: Outcome) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the metrics of all processes together, and whether one is to stop."""
        if self.ranks.count == 1:
            return loss, found.metrics
        names = list(found.terms)
        known = [float(self._wish), *(found.terms[n].count for n in names)]
        own = torch.stack([loss, *(found.terms[name].total.float() for name in names)])
        values = self.ranks.total(torch.cat([own, sent(torch.tensor(known), self.device)]))
        whole_loss, *sums, stop = values[: len(names) + 2].unbind()
        self.stops.append(Later(stop))
        counts = values[len(names) + 2 :].clamp(min=1)
        return whole_loss, {n: s / c for n, s, c in zip(names, sums, counts, strict=True)}

    def _change(
        self,
        batch: Batch,
        loss: Tensor,
        metrics: dict[str, Tensor],
    ) -> Report:
        """Judge the gradients, change the weights, and say what happened."""
        gradients = self.optimizers.gradients()
        zeros = whole(vanished(gradients)) if self.precision == torch.float16 else None
        verdict = self.health.look(loss, whole(get_total_norm(gradients)))
        rate = self.plan.rate * self.plan.share(self.step) * self.scale
        self.optimizers.step(rate, verdict.divisor, verdict.bad)
        self.optimizers.clear()
        if any(part is not None for part in self.memory) and bool(verdict.bad):
            # What is remembered is no number either, and what was known before is of another text.
            self.memory = [None] * self.plan.accumulate
        self.step, self._done = self.step + 1, self._done + 1
        start = self.plan.average_from
        self.averaging |= start is not None and self.step >= start
        if self.averaging:
            self.average.add()
        self.troubles.append(Later(self.health.tensors["bad_in_a_row"]))
        seconds = time.perf_counter() - self._step_begun
        return Report(
            step=self.step,
            steps=self.plan.steps,
            loss=loss,
            metrics=metrics,
            norm=verdict.norm,
            rate=rate,
            tokens=int(batch.real.sum()),
            seconds=seconds,
            left=self._left(),
            skipped=self.health.tensors["skipped"],
            spike=verdict.spike,
            vanished=zeros,
            mfu=self._mfu(batch, seconds),
        )

    def _left(self) -> float:
        """Seconds to the end, at the pace since the run was begun or taken up."""
        pace = (time.perf_counter() - self._begun) / self._done
        return pace * (self.plan.steps - self.step)

    def _mfu(self, batch: Batch, seconds: float) -> float | None:
        if not self.measuring:
            return None
        peak = measured_peak(str(self.device), self.precision) * self.ranks.count
        return self.operations(batch) / seconds / peak

    # ---- a run -------------------------------------------------------------------------------

    def _reports(self, saver: Saver | None) -> Iterator[Report]:
        """Step after step; what the reader does with a report is part of its step."""
        plan = self.plan
        self._done, self._begun, self._ended = 0, time.perf_counter(), False
        self._step_begun = self._begun
        if self.step == plan.steps:
            self.say(f"all {plan.steps} steps are done")
        shown = self.progress and self.ranks.first
        bar, ending = Bar(self.step, plan.steps, shown), contextlib.nullcontext()
        with self._stop.listening(saver is not None), bar, saver or ending:
            if saver is not None and self.step == 0:
                saver.save(snapshot(self))
            while self.step < plan.steps:
                with memory_explained(self), fast.enable():
                    report = self._step()
                bar.show(report)
                yield report
                # What the reader does is not the step's time; to wait for a GPU and to save is.
                self._step_begun = time.perf_counter()
                if self._read(self.troubles) >= plan.patience:
                    self._go_back(saver)
                    continue
                signalled, stopping = self._stopping()
                if saver is not None and (stopping or self._worth_saving()):
                    saver.save(snapshot(self))
                if stopping and saver is not None:
                    saver.wait(last=True)
                    message = f"stopped after step {self.step}, which is saved in {saver.folder}"
                    self.say(message)
                    if signalled:
                        self._stop.leave(message=message)
                if stopping:
                    break
        if self._stop.asked is not None:
            self._stop.leave(message="stopped after the last step")

    def _worth_saving(self) -> bool:
        """At the end, and now and then; but nobody wants to go back to the midst of trouble."""
        regular = self.step % self.plan.save_every == 0 and not self.health.troubled
        return regular or self.step == self.plan.steps

    def _stopping(self) -> tuple[bool, bool]:
        """Whether this process, or any of several, was asked to stop: by a signal, by anyone."""
        asked = self._wish if self.ranks.count == 1 else self._read(self.stops)
        return asked >= SIGNAL, asked > 0

    @property
    def _wish(self) -> float:
        """What this process was asked for: a number, so that those of several can be added."""
        return SIGNAL * (self._stop.asked is not None) + self._ended

    def _read(self, waiting: list[Later]) -> float:
        """The newest number that is there: a GPU is given one step of time, but at the end."""
        lag = 1 if self.device.type == "cuda" and self.step < self.plan.steps else 0
        value = 0.0
        while len(waiting) > lag:
            value = waiting.pop(0).read()
        return value

    def _go_back(self, saver: Saver | None) -> None:
        """Too many bad steps in a row: half the rate from the last checkpoint, or the end."""
        bad, self._lives = self.plan.patience, self._lives - 1
        story = (
            f"step {self.step}: the loss or a gradient was no number {bad} times in a row, "
            f"at {self.scale:g} of the planned rate"
        )
        advice = "lower the rate, raise warmup, or set clip; look at the batches of these steps"
        if saver is None:
            raise FloatingPointError(f"{story}, and there is no folder to go back to: {advice}")
        if self.plan.on_nan == "stop" or self._lives < 0:
            raise FloatingPointError(f"{story}: {advice}")
        saver.wait()
        scale, found = self.scale / 2, self._find(saver.folder)
        for reason in found.skipped:
            self.say(f"passed over {reason}")
        if found.snapshot is None:
            raise FloatingPointError(f"{story}, and no checkpoint is whole: {advice}")
        skipped = self.health.tensors["skipped"]
        restore(self, found.snapshot)
        self.scale, self.health.tensors["skipped"] = scale, skipped
        self.say(f"{story}; back to {found.path}, with {scale:g} of the rate from there")
