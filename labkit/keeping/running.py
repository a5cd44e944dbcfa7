"""What keeps a run alive: checkpoints, signals, and the way back from losses that are not finite.

A run needs no more of a trainer than `Trains` lists: its steps, its state, and a way to restore it.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from filelock import FileLock
from torch import Tensor, nn

from labkit.corpus import Batches, sent
from labkit.heads import exact
from labkit.keeping.checkpoints import (
    Found,
    Saver,
    Snapshot,
    advice,
    newest,
    read_checkpoint,
    sweep,
)
from labkit.keeping.computing import Computing, measured_peak, memory_explained, smaller
from labkit.keeping.description import check_notes, check_same, check_sound, plain
from labkit.keeping.health import Later
from labkit.keeping.locks import hold
from labkit.keeping.processes import Processes, gathered
from labkit.keeping.reports import Report, bar_of_steps
from labkit.keeping.signals import Stop
from labkit.objectives.base import Objective
from labkit.plan import Plan

LOCK = ".lock"
RETRIES = 10
"""How many times a run may go back before it gives up."""


class Trains(Protocol):
    """What a run needs to know of a trainer."""

    model: nn.Module
    objective: Objective
    batches: Batches
    plan: Plan
    processes: Processes
    computing: Computing
    about: dict[str, Any]
    """The description of the run by `labkit.keeping.description`."""
    step: int
    stopped: bool
    """Whether somebody asked to end the run after this step."""

    def steps(self) -> Iterator[Report]:
        """Train, a step at a time, to the end of the plan."""

    def live_state(self) -> Snapshot:
        """The state of the run, which the next step changes; every process must call this."""

    def load(self, state: Snapshot) -> None:
        """Restore a state that was saved."""


class Run:
    """The steps of a trainer, saved in a folder if there is one."""

    def __init__(
        self, trainer: Trains, folder: Path | None, changed: Iterable[str], progress: bool
    ) -> None:
        self.trainer, self.plan, self.processes = trainer, trainer.plan, trainer.processes
        self.progress = progress and self.processes.first
        self.stop, self.retries = Stop(), RETRIES
        self.late = arrives_late(self.processes.device)
        self.bad: list[Later] = []
        self.asked: list[Later] = []
        self.saver: Saver | None = None
        self.lock: FileLock | None = None
        if folder is not None:
            try:
                self._hold(folder)
                self._take_up(folder, changed)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Release the folder for other trainers."""
        if self.lock is not None:
            self.lock.release()

    def reports(self) -> Iterator[Report]:
        """Step after step; what the reader does with a report is part of its step."""
        trainer, plan, saver = self.trainer, self.plan, self.saver
        trainer.stopped = False
        self._say_what_is_done()
        with (
            contextlib.closing(self),
            self.stop.listening(saver is not None),
            bar_of_steps(trainer.step, plan.steps, self.progress) as bar,
            saver or contextlib.nullcontext(),
        ):
            if saver is not None and (trainer.step == 0 or not saver.good):
                saver.save(self.snapshot())
                # What cannot be written now will not be written later: better to know it at once.
                saver.wait(last=True)
            begun = step_begun = time.perf_counter()
            for done, report in enumerate(self._explained(), start=1):
                now = time.perf_counter()
                timed = self._timed(report, now - step_begun, (now - begun) / done)
                if bar.update(report.step - bar.n):
                    bar.set_postfix_str(f"loss {float(report.loss):.4f}")
                try:
                    yield timed
                except GeneratorExit:
                    self._keep_promise()
                    raise
                # What the reader does is not the step's time, unless the reader may have waited for
                # the GPU; to save is.
                step_begun = now if self.late else time.perf_counter()
                if self._bad_in_a_row(report) >= plan.patience:
                    self._go_back(report)
                    continue
                signalled, stopping = self._stopping()
                if saver is not None and (stopping or self._worth_saving(report)):
                    saver.save(self.snapshot())
                if stopping:
                    self._end(signalled)
                    break
        if self.stop.asked is not None:
            self.stop.leave(message="stopped after the last step")

    def say(self, message: str) -> None:
        """Print a message about the run, once for all processes."""
        if self.processes.first:
            print(f"labkit: {message}", file=sys.stderr, flush=True)

    def _say_what_is_done(self) -> None:
        """Print a message if nothing is left to train."""
        done, steps = self.trainer.step, self.plan.steps
        if done == steps:
            self.say(f"all {steps} steps are done")
        elif done > steps:
            self.say(
                f"{done} steps are done and the plan has steps={steps}: nothing is left to train; "
                "give more steps, or another folder to begin anew"
            )

    def snapshot(self) -> Snapshot:
        """The state of the trainer and what it trains; the first process gets the tensors."""
        state = self.trainer.live_state()
        facts = plain(state.facts | self._known())
        check_notes(state.facts["notes"], facts["notes"])
        tensors = {kind: gathered(own, self.processes) for kind, own in state.tensors.items()}
        return Snapshot(state.step, facts, tensors)

    def _known(self) -> dict[str, Any]:
        """What tells this run from another."""
        return plain({"about": self.trainer.about, "plan": asdict(self.plan)})

    # ---- taking up ---------------------------------------------------------------------------

    def _hold(self, folder: Path) -> None:
        """Keep the folder for this run alone, and see that it can be written."""
        if not self.processes.first:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = hold(folder / LOCK)
        except BlockingIOError as problem:
            holder = f" (process {problem})" if str(problem) else ""
            raise RuntimeError(
                f"another trainer{holder} is at work in {folder}: wait for it or end it, or "
                "choose another folder"
            ) from None
        except OSError as problem:
            raise OSError(
                problem.errno,
                f"no checkpoint can be written to {folder}: {problem}: {advice(problem, folder)}",
            ) from problem

    def _ours(self, saved: Snapshot) -> Snapshot:
        """A checkpoint without the state of an optimizer, average or text that has been changed."""
        before = saved.facts["plan"]
        foreign = {
            "optimizer": before["optimizer"] != self.plan.optimizer,
            "average": before["average"] != self.plan.average,
            "memory": saved.facts["about"].get("batches") != self.trainer.about["batches"],
        }
        own = {kind: part for kind, part in saved.tensors.items() if not foreign.get(kind)}
        if "memory" in own and before["precision"] != self.plan.precision:
            # torch cannot concatenate bfloat16 and float16, but either of them with float32.
            memory = own["memory"].items()
            own["memory"] = {n: exact(t) if t.is_floating_point() else t for n, t in memory}
        return replace(saved, tensors=own)

    def _take_up(self, folder: Path, changed: Iterable[str]) -> None:
        """Go on from the newest whole checkpoint of the folder, if there is one."""
        trainer = self.trainer
        found = self._find(folder)
        if found.snapshot is not None:
            saved = found.snapshot
            own = trainer.live_state().tensors["weights"]
            check_sound(saved, found.path)
            check_same(saved, self._known(), own, changed, folder)
            trainer.load(self._ours(saved))
            self.say(f"resuming from {found.path}, the newest whole checkpoint")
        elif found.skipped:
            self.say(f"no checkpoint in {folder} is complete: starting from scratch")
        if self.processes.first:
            sweep(folder)
        silent = not self.processes.first
        self.saver = Saver(folder, self.plan.keep, known=found.path, silent=silent)

    def _find(self, folder: Path) -> Found:
        """The newest whole checkpoint, the same for all processes."""
        found = newest(folder) if self.processes.first else None
        told = self.processes.agreed(None if found is None else (found.path, found.skipped))
        assert told is not None
        path, skipped = told
        for reason in skipped:
            self.say(f"passed over {reason}")
        return found or Found(None if path is None else read_checkpoint(path), path, skipped)

    # ---- after a step ------------------------------------------------------------------------

    def _explained(self) -> Iterator[Report]:
        """The steps of the trainer; one that needs too much memory says what to change."""
        trainer, plan = self.trainer, self.plan
        steps = trainer.steps()
        choices = smaller(plan, trainer.model, trainer.computing.precision)
        together, count = trainer.objective.together, self.processes.count
        while True:
            if not any(parameter.requires_grad for parameter in trainer.model.parameters()):
                raise ValueError(
                    "no parameter of the model has requires_grad, so nothing would learn: unfreeze "
                    "some, for example with labkit.transfer.unfreeze_from_top(model, 1)"
                )
            batch = partial(trainer.batches.at, trainer.step)
            with memory_explained(plan, batch, count, together, choices):
                report = next(steps, None)
            if report is None:
                return
            yield report

    def _timed(self, report: Report, seconds: float, pace: float) -> Report:
        """The report with its times, at the pace since the run was begun or taken up."""
        mfu = None
        if report.operations is not None:
            device, precision = self.processes.device, self.trainer.computing.precision
            peak = measured_peak(str(device), precision) * self.processes.count
            mfu = report.operations / seconds / peak
        left = pace * (report.steps - report.step)
        return replace(report, seconds=seconds, left=left, mfu=mfu)

    def _bad_in_a_row(self, report: Report) -> float:
        """How many steps in a row were not taken, as far as is known by now."""
        assert report.bad_in_a_row is not None
        self.bad.append(Later(report.bad_in_a_row))
        found = self._read(self.bad)
        return 0.0 if found is None else float(found)

    def _worth_saving(self, report: Report) -> bool:
        """Every `save_every` steps, unless the last ones were bad, and at the end."""
        regular = report.step % self.plan.save_every == 0 and not bool(report.bad_in_a_row)
        return regular or report.step == self.plan.steps

    def _stopping(self) -> tuple[bool, bool]:
        """Whether any process was asked to stop by a signal, and whether in any way."""
        own = (self.stop.asked is not None, self.trainer.stopped)
        if self.processes.count > 1:
            asked = sent(torch.tensor(own, dtype=torch.float), self.processes.device)
            self.asked.append(Later(self.processes.total(asked)))
            found = self._read(self.asked)
            own = (False, False) if found is None else (bool(found[0]), bool(found[1]))
        return own[0], any(own)

    def _read(self, waiting: list[Later]) -> Tensor | None:
        """The newest numbers that have arrived: a GPU has a step of time for each but the last."""
        lag = 1 if self.late and self.trainer.step < self.plan.steps else 0
        found = None
        while len(waiting) > lag:
            found = waiting.pop(0).read()
        return found

    def _end(self, signalled: bool) -> None:
        """Print where the run was saved, and end as the signal would have."""
        if self.saver is None:
            return
        self.saver.wait(last=True)
        message = f"stopped after step {self.trainer.step}, which is saved in {self.saver.folder}"
        self.say(message)
        if signalled:
            self.stop.leave(message=message)

    def _keep_promise(self) -> None:
        """Save if the reader's loop was left after a signal, whose message promised to save."""
        # Other processes may not have left theirs, and to save they would all have to take part.
        if self.saver is not None and self.stop.promised and self.processes.count == 1:
            self.saver.save(self.snapshot())
            self._end(signalled=False)

    def _go_back(self, report: Report) -> None:
        """Too many bad steps in a row: half the rate from the last checkpoint, or the end."""
        self.retries -= 1
        state = self.trainer.live_state()
        scale = state.facts["scale"]
        story = (
            f"step {report.step}: the loss or a gradient was not finite {self.plan.patience} times "
            f"in a row, at {scale:g} of the planned rate"
        )
        hint = "lower the rate, raise warmup, or set clip; look at the batches of these steps"
        if self.saver is None:
            raise FloatingPointError(f"{story}, and there is no folder to go back to: {hint}")
        if self.plan.on_nan == "stop" or self.retries < 0:
            raise FloatingPointError(f"{story}: {hint}")
        self.saver.wait()
        found = self._find(self.saver.folder)
        if found.snapshot is None:
            raise FloatingPointError(f"{story}, and no checkpoint is whole: {hint}")
        saved = self._ours(found.snapshot)
        health = saved.tensors["health"] | {"skipped": state.tensors["health"]["skipped"]}
        self.trainer.load(
            replace(
                saved,
                facts=saved.facts | {"scale": scale / 2},
                tensors=saved.tensors | {"health": health},
            )
        )
        self.bad.clear()
        self.asked.clear()
        self.say(f"{story}; back to {found.path}, with {scale / 2:g} of the rate from there")


def arrives_late(device: torch.device) -> bool:
    """Whether reading a number from this device at once would have to wait for it."""
    return device.type == "cuda"
