"""What can befall a run in a notebook or on a cluster, and what it must not lose by it."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crash.tiny import WORDS, Failing, Text, alike, awd_lstm, gpt, transformer_xl
from torch import Tensor, nn

from labkit.blocks import Backbone, LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch, Stages
from labkit.heads import NextWord, WordHead
from labkit.keeping import computing, distributed, running
from labkit.keeping.checkpoints import Saver, Snapshot, copied, listed, newest
from labkit.keeping.processes import join
from labkit.keeping.reports import Evaluation
from labkit.keeping.speed import Operations
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import (
    Balanced,
    Both,
    Distillation,
    Labels,
    Memory,
    NextToken,
    Outcome,
    Sum,
    Targets,
    auxiliary,
    combine,
)
from labkit.objectives.base import Term
from labkit.optim import decays, matrices
from labkit.plan import Plan, non_monotone
from labkit.trainer import Trainer, evaluate


def trainer(model: nn.Module | None = None, objective: Any = None, **plan: Any) -> Trainer:
    given = {"steps": 12, "rate": 1e-2, "schedule": "constant", **plan}
    model = gpt(dropout=0.0) if model is None else model
    return Trainer(model, objective or NextToken(), Text(), Plan(**given))


def losses(made: Trainer, folder: Path | None = None) -> list[float]:
    return [float(report.loss) for report in made.resume(folder)]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


# ---- what is evaluated -----------------------------------------------------------------------


class Even(Backbone):
    """A model without parameters: all words are equally likely."""

    causal, attends = True, False

    def forward(self, tokens_BT: Tensor, *, mask: Any = None) -> States:
        return States((torch.zeros(*tokens_BT.shape, self.config.vocabulary),))


class Same(WordHead):
    def forward(self, hidden_ND: Tensor) -> Tensor:
        return hidden_ND


def test_a_model_without_parameters_is_evaluated() -> None:
    model = LanguageModel(Even(GPTConfig(WORDS, width=16, layers=1, heads=2, context=8)), Same())
    assert evaluate(model, NextToken(), [Text().at(0)]).loss == pytest.approx(math.log(WORDS))


@pytest.mark.parametrize("batches", [Text(), Stages((0, Text()))])
def test_batches_without_an_end_are_not_evaluated(batches: Any) -> None:
    said = f"batches is a {type(batches).__name__}, which has no end: give a corpus"
    with pytest.raises(TypeError, match=said):
        evaluate(gpt(), NextToken(), batches)


# ---- gradients that are left over ------------------------------------------------------------


def test_gradients_of_the_readers_own_do_not_leak_into_the_first_step() -> None:
    model = gpt(dropout=0.0)
    NextToken()(model, Text().at(50), Chance(0, 0, torch.arange(4))).loss.backward()
    assert losses(trainer(model, optimizer="sgd")) == losses(trainer(optimizer="sgd"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Interrupted(NextToken):
    """Somebody presses Ctrl-C twice at one of the answers."""

    calls: list[int]
    at: int

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        self.calls.append(1)
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return super().loss(model, targets, memory)


def test_a_run_that_was_broken_off_between_parts_goes_on_as_if_it_was_not(tmp_path: Path) -> None:
    made = trainer(objective=Interrupted(calls=[], at=12), accumulate=2, save_every=1)
    with pytest.raises(KeyboardInterrupt):
        losses(made, tmp_path)
    tail = losses(made, tmp_path)
    whole = trainer(accumulate=2)
    assert losses(whole)[-len(tail) :] == tail
    assert same(made.model, whole.model)


# ---- states --------------------------------------------------------------------------------


def test_a_state_that_was_kept_is_not_changed_by_later_steps() -> None:
    """Not the weights, nor the notes; and it can be loaded more than once."""
    made = trainer(average="mean", average_from=2)
    kept = None
    for report in made.run():
        made.notes.setdefault("steps", []).append(report.step)
        if report.step == 5:
            kept = made.state()
    assert kept is not None
    end = made.state()
    for _ in range(2):
        made.load(kept)
        assert made.notes == {"steps": [1, 2, 3, 4, 5]}
        for report in made.run():
            made.notes["steps"].append(report.step)
        assert alike(end, made.state()) == []


def test_a_run_that_began_without_a_folder_saves_where_it_is_taken_up(tmp_path: Path) -> None:
    made = trainer(save_every=100)
    for report in made.run():
        if report.step == 2:
            break
    next(made.resume(tmp_path))
    assert [path.name for path in listed(tmp_path)] == ["step-00000002"]


def test_an_evaluation_keeps_no_memory_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    combined = []

    def watched(outcomes: Any) -> Outcome:
        combined.extend(outcomes)
        return combine(outcomes)

    monkeypatch.setattr("labkit.trainer.combine", watched)
    text = Text(streams=True)
    evaluate(transformer_xl(), NextToken(carry=True), [text.at(i) for i in (1, 2, 3)])
    assert [outcome.memory for outcome in combined] == [None, None, None]


# ---- signals ---------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[threading.Event]:
    """Set when SIGTERM reaches what handled it before the run."""
    event = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *given: event.set())
    yield event
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("how", ["break", "error"])
def test_a_signal_is_obeyed_also_where_the_loop_is_left(
    how: str, heard: threading.Event, tmp_path: Path
) -> None:
    made = trainer()
    try:
        for report in made.resume(tmp_path):
            if report.step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
                assert how == "break", "an error of the reader"
                break
    except AssertionError as problem:
        assert "of the reader" in str(problem)  # noqa: PT017
    assert heard.wait(20)
    found = newest(tmp_path).snapshot
    assert found is not None
    assert found.step == 3


@pytest.mark.parametrize("steps", [(2, 4), (4, 2)])
def test_runs_side_by_side_leave_the_signals_as_they_were(
    steps: tuple[int, int], tmp_path: Path
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    one, other = (trainer(steps=count).resume(tmp_path / str(count)) for count in steps)
    next(one)
    next(other)
    assert signal.getsignal(signal.SIGINT) != before[signal.SIGINT]
    list(one if steps[0] < steps[1] else other)
    assert signal.getsignal(signal.SIGINT) != before[signal.SIGINT], "the longer one still listens"
    list(other if steps[0] < steps[1] else one)
    assert {number: signal.getsignal(number) for number in before} == before


# ---- what the reader notes -------------------------------------------------------------------


@pytest.mark.parametrize("note", [{1: 0.5}, (1, 2), [{"a": (1,)}], {"a": {None: 1}}])
def test_a_note_that_would_come_back_as_something_else_is_refused(
    note: Any, tmp_path: Path
) -> None:
    made = trainer(save_every=4)
    with pytest.raises(TypeError, match=r"trainer.notes cannot be saved: 'kept' holds a tuple, or"):  # noqa: PT012
        for _ in made.resume(tmp_path):
            made.notes["kept"] = note


def test_notes_come_back_as_they_were(tmp_path: Path) -> None:
    made = trainer(save_every=1)
    for report in made.resume(tmp_path):
        made.notes.setdefault("losses", {})[f"{report.step}"] = float(report.loss)
        made.notes["others"] = [float("nan"), None, True, "text", 2]
    found = newest(tmp_path)
    assert found.skipped == ()
    assert found.snapshot is not None
    assert len(found.snapshot.facts["notes"]["losses"]) == 12
    assert found.snapshot.facts["notes"]["others"][1:] == [None, True, "text", 2]


def test_a_note_that_no_file_can_hold_is_an_error_where_it_is_saved(tmp_path: Path) -> None:
    made = trainer(save_every=4)
    with pytest.raises(TypeError, match=r"trainer.notes cannot be saved: .*Tensor.* float\(…\)"):  # noqa: PT012
        for report in made.resume(tmp_path):
            made.notes["best"] = report.loss


def test_the_reader_may_change_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    for _ in trainer(save_every=4).resume("run"):
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert newest(tmp_path / "run").path == tmp_path / "run" / "step-00000012"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("average", ["none", "ema"])
def test_weights_that_lie_otherwise_in_memory_go_on_as_if_nothing_was(
    average: str, tmp_path: Path
) -> None:
    given = None if average == "none" else 2

    def turned() -> Trainer:
        model = gpt(dropout=0.0)
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.data = weight.data.t().contiguous().t()
        return trainer(model, save_every=4, average=average, average_from=given)

    whole, half, rest = turned(), turned(), turned()
    assert not whole.model.backbone.token.weight.is_contiguous()
    losses(whole)
    for report in half.resume(tmp_path):
        if report.step == 9:
            break
    losses(rest, tmp_path)
    assert same(rest.model, whole.model)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_model_in_float64_learns_and_goes_on(optimizer: str, tmp_path: Path) -> None:
    whole, half, rest = (
        trainer(gpt(dropout=0.0).double(), save_every=4, optimizer=optimizer) for _ in range(3)
    )
    found = losses(whole)
    assert found[-1] < found[0]
    for report in half.resume(tmp_path):
        if report.step == 9:
            break
    losses(rest, tmp_path)
    assert same(rest.model, whole.model)
    assert {weight.dtype for weight in rest.model.parameters()} == {torch.float64}


def test_any_error_of_the_writer_is_heard(tmp_path: Path, monkeypatch: Any) -> None:
    def fails(folder: Path, snapshot: Snapshot) -> Path:
        raise MemoryError("no room to write")

    monkeypatch.setattr("labkit.keeping.checkpoints.write", fails)
    with pytest.raises(MemoryError, match="no room to write"):
        losses(trainer(save_every=2), tmp_path)


# ---- stopping --------------------------------------------------------------------------------


def test_the_reader_stops_early_and_goes_on_later(tmp_path: Path) -> None:
    made, done = trainer(save_every=100), []
    for report in made.resume(tmp_path):
        done.append(report.step)
        falling = made.notes.setdefault("held out", [])
        falling.append(min(report.step, 4) * -1.0)
        if non_monotone([*falling, 0.0], interval=5):
            made.stop()
    assert done == [1, 2, 3, 4, 5, 6]
    found = newest(tmp_path).snapshot
    assert found is not None
    assert found.step == 6
    again = trainer(save_every=100)
    assert losses(again, tmp_path) == losses(trainer())[6:]
    assert len(again.notes["held out"]) == 6


def test_without_a_folder_a_stop_is_the_end_of_the_loop() -> None:
    made, done = trainer(), []
    for report in made.run():
        done.append(report.step)
        if report.step == 3:
            made.stop()
    assert done == [1, 2, 3]
    assert len(list(made.run())) == 9


def test_at_once_does_not_wait_for_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    begun, may = threading.Event(), threading.Event()

    class Slow(Saver):
        def _write(self, snapshot: Snapshot, ready: Any) -> None:
            begun.set()
            may.wait(30)
            super()._write(snapshot, ready)

    def stop_now() -> None:
        with Slow(tmp_path, keep=1) as saver:
            saver.save(Snapshot(1, {}, {"weights": {"a": torch.zeros(2)}}))
            assert begun.wait(30)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_now()
    (writer,) = [t for t in threading.enumerate() if "_write" in t.name]
    assert writer.daemon
    may.set()
    writer.join(30)
    assert [path.name for path in listed(tmp_path)] == ["step-00000001"]


def test_what_a_crash_left_unfinished_is_swept_away(tmp_path: Path) -> None:
    left = tmp_path / ".unfinished-step-00000003-abc"
    left.mkdir()
    losses(trainer(), tmp_path)
    assert not left.exists()


# ---- losses that are no numbers --------------------------------------------------------------


def test_a_memory_that_is_no_number_is_forgotten() -> None:
    made = Trainer(
        gpt(dropout=0.0),
        Failing(at=(3,), clock=[0], where="memory", carry=True),
        Text(streams=True),
        Plan(steps=8),
    )
    found = losses(made)
    assert [loss != loss for loss in found] == [n == 4 for n in range(1, 9)]


def test_after_float16_a_run_in_another_precision_still_notices_trouble(tmp_path: Path) -> None:
    losses(trainer(steps=4, precision="float16", save_every=2), tmp_path)
    made = trainer(
        steps=40, objective=Failing(at=tuple(range(40)), clock=[0]), on_nan="stop", save_every=2
    )
    changed = {"precision", "steps", "objective", "on_nan"}
    with pytest.raises(FloatingPointError, match="not finite 5 times in a row"):
        list(made.resume(tmp_path, changed=changed))


def test_float16_after_another_precision_begins_with_the_scale_of_the_plan(tmp_path: Path) -> None:
    losses(trainer(steps=4, save_every=2), tmp_path)
    made = trainer(steps=6, precision="float16")
    list(made.resume(tmp_path, changed={"precision", "steps"}))
    assert float(made.health.scale) > 1000


def test_trouble_in_the_last_steps_is_seen_also_when_numbers_arrive_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "arrives_late", lambda device: True)
    steps: list[int] = []
    made = trainer(steps=10, objective=Failing(at=(7, 8, 9), clock=[0]), patience=3, save_every=2)
    for report in made.resume(tmp_path):
        steps.append(report.step)
    assert steps == [*range(1, 11), 7, 8, 9, 10], "it went back"
    assert bool(report.loss.isfinite())
    assert int(report.skipped) == 3, "what was skipped before going back counts too"


def test_going_back_says_why_newer_checkpoints_were_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer(
        steps=12, objective=Failing(at=(8, 9, 10), clock=[0]), patience=3, save_every=2,
        device="cpu",
    )  # fmt: skip
    for report in made.resume(tmp_path):
        weights = tmp_path / "step-00000008" / "weights.safetensors"
        if report.step == 9:
            while not weights.exists():  # it is written while training goes on
                time.sleep(0.01)
            weights.write_bytes(b"")
    said = capsys.readouterr().err
    assert "passed over step-00000008: weights.safetensors has 0 bytes" in said
    assert "back to" in said
    assert "step-00000006" in said


# ---- exact sums ------------------------------------------------------------------------------


def test_a_mean_over_very_many_predictions_is_exact() -> None:
    one = Outcome({"word": Term(torch.tensor(3.3 * 512), 512)})
    found = combine([one] * 20_000)
    exact = float(torch.tensor(3.3 * 512)) / 512
    assert abs(float(found.loss) - exact) < 1e-12


def test_what_is_above_the_floor_is_the_loss_of_words_alone() -> None:
    text = [Text().at(0)]
    plain = evaluate(awd_lstm(), NextToken(), text, floor=1.0)
    fined = evaluate(awd_lstm(), NextToken(ar=2, tar=1), text, floor=1.0)
    assert fined.loss > plain.loss
    assert str(fined).split(", ")[-1] == str(plain).split(", ")[-1]
    assert f"word {plain.loss:.4f}" in str(fined)
    assert str(Evaluation(2.0, 3, {}, 1.0)).endswith("1.0000 above the floor of 1.0000")


# ---- another run -----------------------------------------------------------------------------


def test_another_optimizer_begins_with_nothing_to_remember(tmp_path: Path) -> None:
    losses(trainer(steps=4, optimizer="muon", average="mean", average_from=1), tmp_path)
    made = trainer(steps=8, optimizer="adamw")
    changed = {"optimizer", "steps", "average", "average_from"}
    assert len(list(made.resume(tmp_path, changed=changed))) == 4
    assert not any(key.endswith("momentum_buffer") for key in made.optimizers.tensors())
    assert made.average.count == 0


@pytest.mark.parametrize("kinds", [("ema", "mean"), ("mean", "ema")])
def test_another_kind_of_average_begins_anew(kinds: tuple[Any, Any], tmp_path: Path) -> None:
    losses(trainer(steps=4, average=kinds[0], average_from=1), tmp_path)
    made = trainer(steps=6, average=kinds[1], average_from=1)
    assert len(list(made.resume(tmp_path, changed={"steps", "average"}))) == 2
    assert made.average.count == 2


@pytest.mark.parametrize("formats", [("float16", "bfloat16"), ("bfloat16", "float16")])
@pytest.mark.filterwarnings("ignore:precision is 'bfloat16'")
def test_a_memory_in_16_bits_serves_a_run_in_others(
    formats: tuple[Any, Any], tmp_path: Path
) -> None:
    def made(steps: int, precision: Any) -> Trainer:
        plan = Plan(steps=steps, precision=precision, device="cpu")
        return Trainer(gpt(), NextToken(carry=True), Stream(4, seed=1), plan)

    losses(made(2, formats[0]), tmp_path)
    run = made(4, formats[1])
    assert len(list(run.resume(tmp_path, changed={"steps", "precision"}))) == 2
    assert run.memory[0] is not None
    assert run.memory[0].known.shape[1] == 4 * 8


def test_other_rates_of_layers_and_other_stages_are_another_run(tmp_path: Path) -> None:
    def made(factor: float, second: int) -> Trainer:
        model = gpt(dropout=0.0)
        groups = [(model.backbone.parameters(), factor)]
        batches = Stages((0, Text()), (second, Text(rows=6)))
        return Trainer(model, NextToken(), batches, Plan(steps=4), groups=groups)

    list(made(1.0, 2).resume(tmp_path))
    for other in (made(0.1, 2), made(1.0, 3)):
        with pytest.raises(ValueError, match=r"groups was .*1 of .* and is .*0.1 of|batches was"):
            other.resume(tmp_path)


# ---- what is computed where ------------------------------------------------------------------


def test_the_share_of_the_peak_follows_the_length_of_the_texts() -> None:
    made = Trainer(
        gpt(dropout=0.0), NextToken(), Stages((0, Text(length=5)), (1, Text())), Plan(steps=2)
    )
    short, long = (made.operations(made.batches.at(step)) for step in range(2))
    assert long > 1.5 * short
    made.measure()
    assert all(report.mfu for report in made.run())


def test_a_copy_to_count_with_has_shapes_and_no_values() -> None:
    model = gpt()
    copy = distributed.without_weights(model)
    assert all(p.device.type == "meta" for p in copy.parameters())
    assert len(list(copy.parameters())) == len(list(model.parameters())), "what is tied stays tied"
    made = trainer(model)
    batch = made.batches.at(0)
    known = made.operations(batch)
    assert Operations(copy, made.objective, made.parts)(batch) == known


def test_a_copy_for_the_disk_is_a_copy_wherever_the_tensor_is() -> None:
    for tensor in (torch.ones(3, 2).t(), torch.ones(4)):
        other = copied(tensor)
        assert other.is_contiguous()
        other += 1
        assert bool((tensor == 1).all())


def test_advice_for_too_little_memory_can_be_followed() -> None:
    def advice(**plan: Any) -> str:
        made = trainer(device="cpu", **plan)
        with (
            pytest.raises(MemoryError) as found,
            computing.memory_explained(
                made.plan,
                partial(made.batches.at, 0),
                processes=1,
                together=made.objective.together,
                choices=computing.smaller(made.plan, made.model, made.computing.precision),
            ),
        ):
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")
        return str(found.value).split("Change to ")[1]

    assert advice() == (
        "accumulate=2 (2 rows at once, the same result), checkpointing=True, "
        "precision='bfloat16', or make the model, the batch or its texts smaller"
    )
    assert advice(accumulate=3).startswith("accumulate=4 (1 rows at once")
    smallest = advice(accumulate=4, checkpointing=True, precision="bfloat16")
    assert smallest == "or make the model, the batch or its texts smaller"


def test_rows_of_one_question_stay_together() -> None:
    batch = Batch.of(torch.zeros(6, 2, dtype=torch.long))
    assert [len(part) for part in batch.micro(2, together=2)] == [2, 4]
    with pytest.raises(
        ValueError, match="6 rows in groups of 2 cannot be split into 4 parts: give 1 to 3"
    ):
        batch.micro(4, together=2)


def test_every_objective_says_which_rows_stay_together() -> None:
    choices = Labels(choices=3, position="last")
    assert NextToken().together == 1
    for made in (
        choices,
        auxiliary(0.5, label=choices),
        Sum(parts=(NextToken(), choices)),
        Distillation(task=choices, teacher=nn.Identity()),
        Balanced(objective=choices),
    ):
        assert made.together == 3
    pairs = Both(parts=(choices, Labels(choices=2)))
    assert pairs.together == 6, "whole questions of both"


def test_a_model_learns_where_new_numbers_have_64_bits() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        losses = [float(report.loss) for report in trainer(gpt(dropout=0.0)).run()]
    finally:
        torch.set_default_dtype(before)
    assert losses[-1] < losses[0]


def test_float16_is_refused_where_torch_has_none() -> None:
    with pytest.raises(ValueError, match="recurrent networks do not know on a CPU"):
        trainer(awd_lstm(), precision="float16", device="cpu")


def test_bfloat16_is_refused_where_torchs_recurrent_networks_lack_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(computing, "has_bfloat16", lambda device: False)
    with pytest.raises(ValueError, match="networks do not know on this CPU: choose 'float32'"):
        trainer(awd_lstm(), precision="bfloat16", device="cpu")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"rate": None}, "rate is None: give a number"),
        ({"rate": "1"}, "rate is '1': give a number"),
        ({"eps": None}, "eps is None: give a number"),
        ({"seed": "x"}, "seed is 'x': give a whole number"),
        ({"warmup": 0.5}, "warmup is 0.5: give a whole number$"),
        ({"seed": np.int64(1)}, r"seed is np.int64\(1\): give a whole number, as a Python number$"),
        ({"average": "mean", "average_from": True}, "average_from is True: give a whole number"),
        ({"betas": 0.9}, "betas are 0.9: give two numbers"),
        ({"betas": (0.9, "x")}, "betas are"),
        ({"device": "gpu"}, "device is 'gpu': give auto, cpu, cuda"),
        ({"device": None}, "device is None: give its name"),
        ({"device": "mps"}, "device is 'mps', which has no 64-bit numbers .*: give auto, cpu"),
        ({"device": "mps:0"}, "give auto, cpu, cuda or"),
        (
            {"device": "xpu"},
            "device is 'xpu', which labkit does not support: give auto, cpu, cuda or",
        ),
    ],
)
def test_every_field_of_a_plan_is_checked(field: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**{"steps": 3, **field})


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError, match=r"device is 'cuda:1', and torch .* finds no such GPU here"
    ):
        join("single", "cuda:1")
    assert join("single", "auto").device == torch.device("cpu")


def test_processes_that_nothing_tells_where_to_meet_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name in told:
        monkeypatch.delenv(name, raising=False)
    for missing in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        with monkeypatch.context() as patch:
            for name in told.keys() - {missing}:
                patch.setenv(name, told[name])
            with pytest.raises(ValueError, match=f"WORLD_SIZE is 2, but {missing} is not set: sta"):
                join("ddp", "cpu")


def test_biases_of_relative_attention_do_not_decay_and_heads_are_not_muons() -> None:
    backbone = TransformerXL(TransformerXLConfig(9, width=8, layers=1, heads=2, inner=8))
    model = LanguageModel(backbone, NextWord(backbone.token))
    whole = {name for name, p in model.named_parameters() if p.ndim > 1 and not decays(name, p)}
    assert {"u_HE", "v_HE"} <= {name.split(".")[-1] for name in whole}
    bert = BERT(BERTConfig(9, width=8, layers=1, heads=2, context=8))
    pair = LanguageModel(bert, nn.Linear(8, 9))
    pair.pair = nn.Linear(8, 2)
    assert matrices(pair)
    assert all(name.startswith("backbone.") for name in matrices(pair))


def test_an_interrupted_step_keeps_the_memory_that_it_began_with() -> None:
    """The repeated step reads its segment with the memory of the one before it."""
    made = Trainer(
        gpt(dropout=0.0), NextToken(carry=True), Text(streams=True), Plan(steps=4, rate=1e-2)
    )
    whole = Trainer(
        gpt(dropout=0.0), NextToken(carry=True), Text(streams=True), Plan(steps=4, rate=1e-2)
    )
    wanted = [float(whole.train_step().loss) for _ in range(4)]
    found = [float(made.train_step().loss) for _ in range(2)]
    step, made.optimizers.step = made.optimizers.step, interrupted
    with pytest.raises(KeyboardInterrupt):
        made.train_step()
    made.optimizers.step = step
    found += [float(made.train_step().loss) for _ in range(2)]
    assert found == wanted


def interrupted(*given: Any) -> None:
    raise KeyboardInterrupt


def test_going_back_leaves_out_what_another_optimizer_remembers(tmp_path: Path) -> None:
    losses(trainer(steps=4, optimizer="muon", save_every=2), tmp_path)
    made = trainer(
        steps=12, optimizer="adamw", save_every=50, patience=2,
        objective=Failing(at=(1, 2), clock=[0]),
    )  # fmt: skip
    changed = {"optimizer", "steps", "save_every", "objective", "patience"}
    reports = list(made.resume(tmp_path, changed=changed))
    assert reports[-1].step == 12


@pytest.mark.parametrize("rows", [4, 2])
def test_a_run_goes_on_with_another_text_without_the_memory_of_the_first(
    rows: int, tmp_path: Path
) -> None:
    def made(batches: Any) -> Trainer:
        torch.manual_seed(0)
        plan = Plan(steps=6, save_every=3, precision="float32", device="cpu")
        return Trainer(transformer_xl(), NextToken(carry=True), batches, plan)

    run = made(Stream(4, seed=1)).resume(tmp_path)
    for _ in range(4):
        next(run)
    run.close()
    other = made(Stream(rows, seed=2))
    run = other.resume(tmp_path, changed=["batches"])
    assert other.step == 3
    assert other.memory == [None]
    assert math.isfinite(next(run).loss)
    run.close()
    same_text = made(Stream(4, seed=1))
    same_text.resume(tmp_path).close()
    assert same_text.memory != [None]


class Stream:
    """A text that goes on from batch to batch, another one for each seed."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.seed = rows, seed

    def at(self, step: int) -> Batch:
        random = torch.Generator().manual_seed(100 * self.seed + step)
        tokens = torch.randint(0, WORDS, (self.rows, 9), generator=random)
        return Batch.of(tokens, fresh=torch.full((self.rows,), step == 0))


def test_what_is_given_in_the_place_of_another_thing_is_named() -> None:
    class Bare:
        def at(self, step: int) -> Tensor:
            return torch.ones(2, 3).long()

    model, text, plan = gpt(), Text(), Plan(steps=1)
    for wrong, said in (
        (lambda: Trainer(model, NextToken, text, plan), "objective is the class NextToken: give"),  # type: ignore[arg-type]
        (lambda: evaluate(model, NextToken, [text.at(0)]), "objective is the class NextToken"),  # type: ignore[arg-type]
        (lambda: Trainer(model, NextToken(), text, 100), "plan is of type int: give Plan"),  # type: ignore[arg-type]
        (lambda: Trainer(model, NextToken(), Bare(), plan), r"at\(0\) is of type Tensor: give a B"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=said):
            wrong()


def test_a_step_alone_has_no_pace_to_tell() -> None:
    said = str(trainer().train_step())
    assert said.startswith("step 1/12")
    assert "left" not in said


def test_a_model_of_which_nothing_learns_is_refused() -> None:
    frozen = gpt(dropout=0.0).requires_grad_(False)
    with pytest.raises(ValueError, match="nothing would learn: unfreeze some"):
        losses(trainer(frozen))
