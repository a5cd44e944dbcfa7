"""The trainer: exact sums, exact resumption, and what it says when something is wrong."""

import copy
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pairings
import pytest
import torch
import torch.nn.functional as F
from crash.tiny import WORDS, Case, Failing, Text, alike, awd_lstm, bert, cases, gpt, masked
from torch import Tensor, nn

from labkit import optim
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch, Stages, Windows, from_documents, tokenize
from labkit.costs.counting import counted_flop, products
from labkit.heads import NextWord
from labkit.keeping import checkpoints, computing
from labkit.keeping.checkpoints import Snapshot, newest
from labkit.keeping.description import named
from labkit.keeping.health import Health
from labkit.keeping.speed import counted_operations
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import (
    BothDirections,
    Labels,
    MaskedToken,
    Memory,
    NextToken,
    Objective,
    Outcome,
    Similarity,
    Sum,
    Targets,
    total,
)
from labkit.optim import decays, matrices
from labkit.plan import Plan, non_monotone
from labkit.text.tokenizers import Tokenizer
from labkit.text.vocabulary import Vocabulary
from labkit.trainer import Report, Trainer, evaluate

CASES = cases()


def trainer(model: nn.Module | None = None, **plan: Any) -> Trainer:
    """A trainer of a tiny GPT."""
    given = {"steps": 12, "rate": 1e-2, "schedule": "constant", **plan}
    return Trainer(gpt() if model is None else model, NextToken(), Text(), Plan(**given))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def farthest(a: nn.Module, b: nn.Module) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


# ---- one step is what it should be -----------------------------------------------------------


def test_it_is_the_loop_that_one_would_write_by_hand() -> None:
    """Twenty steps with AdamW, decay, clipping and a schedule, against plain torch."""
    ours, theirs = gpt(dropout=0.0), gpt(dropout=0.0)
    plan = Plan(
        steps=20, rate=1e-2, warmup=5, clip=0.5, betas=(0.9, 0.99), decay=0.3, device="cpu",
    )  # fmt: skip
    losses = [float(r.loss) for r in Trainer(ours, NextToken(), Text(), plan).run()]
    matrices_ = [p for p in theirs.parameters() if p.ndim >= 2]
    rest = [p for p in theirs.parameters() if p.ndim < 2]
    groups = [{"params": matrices_, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.99), fused=False)
    for step in range(20):
        tokens = Text().at(step).tokens
        logits = theirs(tokens)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        assert losses[step] == pytest.approx(float(loss.detach()), abs=2e-5)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * plan.share(step)
        optimizer.step()
    assert farthest(ours, theirs) < 2e-4


def gradients(parts: int, mean_of_means: bool = False) -> list[Tensor]:
    """The gradients of one batch with rows of unequal length, cut into parts."""
    model, objective = gpt(dropout=0.0), NextToken()
    batch = Text(rows=6, padded=True).at(3)
    asked = [objective.targets(part, Chance(0, 0, part.rows)) for part in batch.micro(parts)]
    assert parts == 1 or len({targets.counts["word"] for targets in asked}) > 1
    for targets in asked:
        outcome = objective.loss(model, targets)
        (outcome.loss / parts if mean_of_means else outcome.over(total(asked))).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def gap(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("parts", [2, 3, 5, 6])
def test_accumulation_is_exact_for_unequal_parts(parts: int) -> None:
    assert gap(gradients(1), gradients(parts)) < 1e-6
    assert gap(gradients(1), gradients(parts, mean_of_means=True)) > 1e-4, "the mutant is caught"


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_a_run_does_not_depend_on_how_its_batches_are_cut(name: str) -> None:
    ends, losses = [], []
    for parts in (1, 2, 5):
        model = gpt(dropout=0.0) if name == "gpt" else bert()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for module in model.modules():
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.0
        objective = NextToken() if name == "gpt" else masked()
        # SGD: Adam would blow up differences of rounding where a gradient is almost zero.
        plan = Plan(steps=5, optimizer="sgd", rate=0.1, accumulate=parts, device="cpu")
        run = Trainer(model, objective, Text(rows=5, padded=True), plan).run()
        losses.append([float(report.loss) for report in run])
        ends.append(model)
    for other in (1, 2):
        assert losses[other] == pytest.approx(losses[0], abs=1e-6)
        assert farthest(ends[0], ends[other]) < 1e-6


def test_only_matrices_decay() -> None:
    model = gpt()
    names = [name for name, p in model.named_parameters() if decays(name, p)]
    assert names
    assert all("norm" not in name and "bias" not in name for name in names)
    made = trainer(model, decay=0.5).optimizers.all[0].param_groups
    assert [group["weight_decay"] for group in made] == [0.5, 0.0]
    assert all(p.ndim >= 2 for p in made[0]["params"])
    assert all(p.ndim < 2 for p in made[1]["params"])
    assert sum(len(group["params"]) for group in made) == len(list(model.parameters()))


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_an_optimizer_of_ours_steps_as_torchs(name: str) -> None:
    made = []
    for module in (optim, torch.optim):
        weight = nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))
        optimizer = getattr(module, name)([weight], lr=0.1, weight_decay=0.1)
        for step in range(3):
            weight.grad = torch.full_like(weight, step + 0.5)
            optimizer.step()
        made.append(weight)
    assert torch.equal(*made)


def test_muon_takes_the_matrices_between_hidden_states() -> None:
    model = gpt()
    hidden = matrices(model)
    assert hidden == {
        f"backbone.blocks.{i}.{part}.weight"
        for i in (0, 1)
        for part in ("attention.query_key_value", "attention.out", "mlp.up", "mlp.down")
    }
    adam, muon = trainer(model, optimizer="muon").optimizers.all
    assert isinstance(muon, torch.optim.Muon)
    assert sum(len(group["params"]) for group in muon.param_groups) == len(hidden)
    both = sum(len(g["params"]) for o in (adam, muon) for g in o.param_groups)
    assert both == len(list(model.parameters())), "each parameter has one optimizer"


def test_groups_may_leave_one_of_two_optimizers_without_weights() -> None:
    model = gpt(dropout=0.0)
    inside, plan = matrices(model), Plan(steps=1, rate=1e-2, optimizer="muon")
    for wanted, kind in ((True, optim.Muon), (False, optim.AdamW)):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_((name in inside) == wanted)
        before = weights(model)
        groups = [([p for p in model.parameters() if p.requires_grad], 1.0)]
        made = Trainer(model, NextToken(), Text(), plan, groups=groups)
        assert [type(one) for one in made.optimizers.all] == [kind]
        list(made.run())
        moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert moved == {name for name in before if (name in inside) == wanted}
    with pytest.raises(ValueError, match="no parameter is in a group, so nothing would learn"):
        Trainer(model.requires_grad_(False), NextToken(), Text(), plan, groups=[])


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_muon_is_torchs_in_a_precision_that_the_processor_has(
    has_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "has_bfloat16", lambda device: has_bfloat16)
    shapes = [(24, 8), (8, 8), (8, 32)]
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(*shape)) for shape in shapes]
    theirs = copy.deepcopy(ours)
    group = {"lr": 0.02, "weight_decay": 0.1}
    steps = [
        optim.Muon([{"params": ours, **group}]),
        torch.optim.Muon([{"params": theirs, **group}], adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in steps:
            optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other) == has_bfloat16
        torch.testing.assert_close(mine, other, atol=3e-3, rtol=0)
    assert steps[0].state_dict()["state"].keys() == steps[1].state_dict()["state"].keys()


def test_muons_update_is_nearly_orthogonal_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "has_bfloat16", lambda device: False)
    torch.manual_seed(0)
    found = optim.orthogonal(torch.randn(6, 16), (3.4445, -4.7750, 2.0315))
    assert found.dtype == torch.float32
    lengths = torch.linalg.svdvals(found)
    assert 0.6 < lengths.min() <= lengths.max() < 1.3


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
def test_every_optimizer_learns(optimizer: str) -> None:
    rate = {"adamw": 1e-2, "muon": 1e-2, "sgd": 0.5}[optimizer]
    run = trainer(gpt(dropout=0.0), steps=40, optimizer=optimizer, rate=rate).run()
    losses = [float(report.loss) for report in run]
    # Half of the words follow from the one before by adding one, half by adding two or none. With
    # five seeds each the loss falls by 0.6 to 1.2.
    assert losses[-1] < losses[0] - 0.4


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_model_trains(name: str) -> None:
    case = CASES[name]
    plan = Plan(**{"steps": 40, "rate": 1e-2, **case.plan})
    losses = [float(r.loss) for r in Trainer(case.model(0), case.objective, case.text, plan).run()]
    # AWD-LSTM's falls by 0.5, with three seeds each, and the others' by more than 2.8.
    assert sum(losses[-10:]) < sum(losses[:10]) - 0.3


# ---- nothing is lost -------------------------------------------------------------------------


def built(case: Case, seed: int = 0, **more: Any) -> Trainer:
    plan = {"steps": 13, "rate": 1e-2, "save_every": 3, "seed": 7, **case.plan, **more}
    return Trainer(case.model(seed), case.objective, case.text, Plan(**plan))


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    """Every kind of state: dropout, parts, dynamic masks, memory, averages, scales."""
    whole = built(CASES[name])
    reports = [(float(r.loss), float(r.norm), r.rate) for r in whole.resume(tmp_path / "whole")]
    chance = random.Random(name)
    again: dict[int, tuple[float, float, float]] = {}
    for stop in (*sorted(chance.sample(range(1, 13), 3)), 99):
        # Another seed: what the new model begins with must not matter once there is a checkpoint.
        part = built(CASES[name], seed=0 if not again else stop)
        torch.manual_seed(stop)
        for report in part.resume(tmp_path / "parts"):
            again[report.step] = (float(report.loss), float(report.norm), report.rate)
            if report.step == stop:
                break
    assert alike(whole.state(), part.state()) == []
    assert [again[step] for step in sorted(again)] == reports


def test_the_bits_depend_on_everything_that_is_saved(tmp_path: Path) -> None:
    """Mutants: a resumption that forgets one kind of state does not end with the same bits."""
    case = CASES["gpt"]
    case = replace(case, objective=NextToken(carry=True), text=Text(streams=True))
    whole = built(case)
    list(whole.resume(tmp_path / "whole"))
    for report in built(case).resume(tmp_path / "part"):
        if report.step == 10:
            break
    for file in ("optimizer", "average", "memory"):
        shutil.copytree(tmp_path / "part", tmp_path / file)
        forgetful = built(case)
        found = newest(tmp_path / file).snapshot
        assert found is not None
        assert file in found.tensors
        run = forgetful.resume(tmp_path / file)
        if file == "optimizer":
            forgetful.optimizers.load({})
        elif file == "average":
            forgetful.average.count = 0
        else:
            forgetful.memory = [None] * 3
        list(run)
        assert alike(whole.state(), forgetful.state()) != [], file


def test_a_full_disk_is_no_reason_to_stop_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full: set[int] = set()

    def write(folder: Path, shot: Snapshot) -> Path:
        if shot.step in full:
            raise OSError(28, "No space left on device")
        return real(folder, shot)

    real = checkpoints.write
    monkeypatch.setattr(checkpoints, "write", write)
    full |= {6, 9}
    made = trainer(save_every=3)
    with pytest.warns(UserWarning, match=r"No space left .* still step-00000003: make room"):
        assert len(list(made.resume(tmp_path / "a"))) == 12
    assert newest(tmp_path / "a").path == tmp_path / "a" / "step-00000012"
    full |= {12}
    made = trainer(save_every=3)
    with (
        pytest.warns(UserWarning, match="No space left"),
        pytest.raises(OSError, match="is still step-00000003: make room"),
    ):
        list(made.resume(tmp_path / "b"))
    full.clear()
    again = trainer(gpt(4), save_every=3)
    assert [report.step for report in again.resume(tmp_path / "b")] == list(range(4, 13))
    assert equal(weights(made.model), weights(again.model))


def test_what_the_readers_loop_does_is_saved_with_its_step(tmp_path: Path) -> None:
    """Unfreezing, the reader's own notes, and the start of an average."""

    def run(folder: Path, stops: list[int]) -> Trainer:
        for stop in [*stops, 99]:
            model = gpt()
            for parameter in model.backbone.blocks[0].parameters():  # type: ignore[union-attr]
                parameter.requires_grad_(False)
            plan = Plan(steps=16, rate=1e-2, save_every=2, average="mean")
            made = Trainer(model, NextToken(), Text(), plan)
            for report in made.resume(folder):
                made.notes.setdefault("losses", []).append(float(report.loss))
                if report.step == 5:
                    for parameter in model.parameters():
                        parameter.requires_grad_(True)
                if report.step == 6:
                    made.start_average()
                    made.scale = 0.5
                if report.step == stop:
                    break
        return made

    whole, parts = run(tmp_path / "a", []), run(tmp_path / "b", [3, 6, 7, 11])
    assert alike(whole.state(), parts.state()) == []
    assert len(parts.notes["losses"]) == 16
    assert whole.average.count == 11


def test_the_readers_own_randomness_is_left_alone() -> None:
    quiet = trainer()
    expected = [float(r.loss) for r in quiet.run()]
    torch.manual_seed(3)
    numbers = torch.rand(12)
    noisy, drawn, losses = trainer(), [], []
    torch.manual_seed(3)
    for report in noisy.run():
        drawn.append(torch.rand(1))
        losses.append(float(report.loss))
    assert torch.equal(torch.cat(drawn), numbers)
    assert losses == expected
    assert equal(weights(quiet.model), weights(noisy.model))


def test_dropout_differs_from_step_to_step_and_from_part_to_part() -> None:
    """The same rows in each part and each step: only dropout can make a difference."""

    class Same(NextToken):
        def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
            outcome = super().loss(model, targets, memory)
            seen.append(float(outcome.loss.detach()))
            return outcome

    class Copies:
        def at(self, step: int) -> Batch:
            return Batch.of(Text(rows=1).at(0).tokens.repeat(4, 1))

    seen: list[float] = []
    plan = Plan(steps=3, rate=1e-12, accumulate=2, decay=0.0)
    list(Trainer(gpt(dropout=0.5), Same(), Copies(), plan).run())
    assert len(set(seen)) == 6


def test_a_run_that_is_done_does_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trainer()
    list(first.resume(tmp_path))
    second = trainer(gpt(5))
    assert list(second.resume(tmp_path)) == []
    assert "all 12 steps are done" in capsys.readouterr().err
    assert equal(weights(first.model), weights(second.model))


def test_it_says_which_checkpoint_it_takes_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = trainer(save_every=4)
    list(whole.resume(tmp_path))
    (tmp_path / "step-00000012" / "weights.safetensors").write_bytes(b"")
    again = trainer(save_every=4)
    steps = [report.step for report in again.resume(tmp_path)]
    said = capsys.readouterr().err
    assert "passed over step-00000012: weights.safetensors has 0 bytes" in said
    assert "resuming from" in said
    assert "step-00000008" in said
    assert steps == [9, 10, 11, 12]
    assert alike(whole.state(), again.state()) == []


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
@pytest.mark.parametrize("where", ["in the loop", "in a step"])
def test_asked_to_stop_it_finishes_the_step_and_saves(
    number: int, ends: type[BaseException], where: str, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    class Asked(Text):
        def at(self, step: int) -> Batch:
            if step == 6 and where == "in a step" and armed:
                os.kill(os.getpid(), number)
            return super().at(step)

    whole = trainer()
    list(whole.run())
    armed = True
    stopped = Trainer(gpt(), NextToken(), Asked(), whole.plan)
    with pytest.raises(ends) as caught:  # noqa: PT012
        for report in stopped.resume(tmp_path):
            if report.step == 7 and where == "in the loop":
                os.kill(os.getpid(), number)
    assert ends is not SystemExit or caught.value.code == 143  # type: ignore[attr-defined]
    assert "stopped after step 7, which is saved" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    armed = False
    again = Trainer(gpt(9), NextToken(), Asked(), whole.plan)
    assert [report.step for report in again.resume(tmp_path)] == [8, 9, 10, 11, 12]
    assert equal(weights(whole.model), weights(again.model))


def test_asked_twice_it_stops_at_once(tmp_path: Path) -> None:
    made, steps = trainer(), []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for report in made.resume(tmp_path):
            steps.append(report.step)
            if report.step == 3:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
                steps.append(99)
    assert steps == [1, 2, 3]
    found = newest(tmp_path)
    assert found.skipped == ()
    assert found.snapshot is not None
    assert found.snapshot.step == 0, "nothing was saved on the way out, and nothing was broken"


# ---- losses that go wrong --------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("first", [0, 4])
def test_a_step_that_is_no_number_is_skipped_counted_and_reported(
    optimizer: str, where: str, first: int
) -> None:
    model = gpt()
    objective = Failing(at=(first, first + 1), clock=[0], where=where, carry=True)
    momentum = {"momentum": 0.9} if optimizer == "sgd" else {}
    plan = Plan(steps=9, optimizer=optimizer, **momentum)
    made = Trainer(model, objective, Text(streams=True), plan)
    before, changes, skipped = weights(model), [], []
    for report in made.run():
        changes.append(not equal(before, weights(model)))
        skipped.append(int(report.skipped))
        before = weights(model)
        assert ("skipped" in str(report)) == (report.step > first)
    assert changes == [step not in (first, first + 1) for step in range(9)]
    assert skipped == [sum(bad <= step for bad in (first, first + 1)) for step in range(9)]
    assert all(p.isfinite().all() for p in model.parameters())
    state = made.optimizers.tensors()
    assert all(tensor.isfinite().all() for tensor in state.values())


def test_too_many_in_a_row_lead_back_with_half_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Batches are counted as they are asked: 6, 7 and 8 fail, and are asked again later as 9 to 13.
    objective = Failing(at=(6, 7, 8), clock=[0])
    # On a GPU the loss is looked at a step later, and the run goes back a step later.
    plan = Plan(
        steps=12, rate=1e-2, schedule="constant", save_every=4, patience=3, device="cpu",
    )  # fmt: skip
    made = Trainer(gpt(), objective, Text(), plan)
    reports = list(made.resume(tmp_path))
    steps = [report.step for report in reports]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 10, 11, 12]
    assert [report.rate for report in reports] == [1e-2] * 9 + [5e-3] * 8
    said = capsys.readouterr().err
    assert "step 9: the loss or a gradient was not finite 3 times in a row" in said
    assert "step-00000004, with 0.5 of the rate" in said


def test_a_run_that_cannot_be_saved_ends_with_advice(tmp_path: Path) -> None:
    everything = tuple(range(1000))
    plan = Plan(steps=12, rate=1e-2, save_every=4, patience=2, device="cpu")
    with pytest.raises(FloatingPointError, match=r"at 0\.000976562 of the planned rate: lower"):
        list(Trainer(gpt(), Failing(at=everything, clock=[0]), Text(), plan).resume(tmp_path))
    with pytest.raises(FloatingPointError, match="no folder to go back to"):
        list(Trainer(gpt(), Failing(at=everything, clock=[0]), Text(), plan).run())
    stop = replace(plan, on_nan="stop")
    with pytest.raises(FloatingPointError, match=r"step 2: .* 2 times in a row"):
        list(Trainer(gpt(), Failing(at=everything, clock=[0]), Text(), stop).resume(tmp_path / "b"))


def test_a_spike_is_reported_and_noise_is_not() -> None:
    health = Health(Plan(steps=1), False, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    falling = 2 + 3 * torch.exp(-torch.arange(400) / 80)
    losses = falling + 0.05 * torch.randn(400, generator=generator)
    losses[250] += 0.8
    spikes = [
        step for step, loss in enumerate(losses) if health.look(loss, [torch.ones(1)]).spike > 0
    ]
    assert spikes == [250]


def test_half_precision_computes_in_half_precision() -> None:
    for precision, expected in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        model, kinds = gpt(), set()
        model.backbone.blocks[0].mlp.up.register_forward_hook(  # type: ignore[union-attr]
            lambda module, given, made, kinds=kinds: kinds.add(made.dtype)
        )
        [report] = trainer(model, steps=1, precision=precision).run()
        assert f" tokens/s in {precision} · " in str(report)
        assert kinds == {expected}
        assert all(p.dtype == torch.float32 for p in model.parameters())


def test_gradients_that_vanish_in_half_precision_are_measured_and_scaling_saves_them() -> None:
    shares = {}
    for scale in (None, 2.0**16):
        plan = Plan(steps=1, precision="float16", loss_scale=scale)
        model = gpt(dropout=0.0)
        with torch.no_grad():
            # Small weights above make small gradients below, as in a deep model.
            model.backbone.norm.weight.fill_(1e-3)  # type: ignore[union-attr]
        (report,) = Trainer(model, NextToken(), Text(), plan).run()
        assert report.vanished is not None
        shares[scale] = float(report.vanished)
        assert "of the gradients are zero" in str(report)
    exact = gpt(dropout=0.0)
    with torch.no_grad():
        exact.backbone.norm.weight.fill_(1e-3)  # type: ignore[union-attr]
    NextToken()(exact, Text().at(0), Chance(0, 0, torch.arange(4))).loss.backward()
    grads = [p.grad for p in exact.parameters() if p.grad is not None]
    zero = sum(int((g == 0).sum()) for g in grads) / sum(g.numel() for g in grads)
    assert shares[None] > 2 * zero + 0.1, "without scaling, many gradients are too small"
    assert shares[2.0**16] < zero + 0.05, "with it, hardly any"


def test_the_scale_comes_down_when_gradients_overflow_and_the_run_goes_on() -> None:
    made = trainer(steps=30, precision="float16", loss_scale=2.0**40, patience=3)
    reports = list(made.run())
    assert 10 < int(reports[-1].skipped) < 30
    assert float(made.health.scale) < 2.0**30
    assert float(reports[-1].loss) < float(reports[0].loss)
    assert reports[-1].norm.isfinite()


def test_float16_steps_are_those_of_float32_within_its_precision() -> None:
    ends = []
    for precision in ("float32", "float16"):
        made = trainer(gpt(dropout=0.0), steps=10, precision=precision, optimizer="sgd", rate=0.1)
        list(made.run())
        ends.append(made.model)
    assert 0 < farthest(*ends) < 1e-3


# ---- averages, groups, stages ----------------------------------------------------------------


def test_the_average_is_the_mean_of_the_weights() -> None:
    made, seen = trainer(average="mean", average_from=8), []
    for report in made.run():
        if report.step >= 8:
            seen.append(weights(made.model))
    own = weights(made.model)
    with made.averaged():
        for name, parameter in made.model.named_parameters():
            mean = torch.stack([each[name] for each in seen]).mean(dim=0)
            torch.testing.assert_close(parameter.detach(), mean, rtol=1e-5, atol=1e-6)
    assert equal(own, weights(made.model))
    with pytest.raises(ValueError, match="no weights have been averaged yet"), trainer().averaged():
        pass
    with pytest.raises(ValueError, match="average='none'"):
        trainer().start_average()


def test_nt_asgd_begins_to_average_when_the_held_out_loss_stops_falling() -> None:
    plan = Plan(
        steps=70, optimizer="sgd", rate=3.0, schedule="constant", clip=0.25, average="mean",
        decay=0.0,
    )  # fmt: skip
    made = Trainer(awd_lstm(), NextToken(), Text(), plan)
    held_out = [Text().at(10_000 + i) for i in range(4)]
    started = None
    for report in made.run():
        if report.step % 5 == 0:
            losses = made.notes.setdefault("held out", [])
            losses.append(evaluate(made.model, NextToken(), held_out).loss)
            if started is None and non_monotone(losses, 3):
                made.start_average()
                started = report.step
    assert started is not None
    assert made.average.count == 70 - started + 1
    last = evaluate(made.model, NextToken(), held_out).loss
    with made.averaged():  # better by 0.07 to 0.09, with five seeds
        assert evaluate(made.model, NextToken(), held_out).loss < last


def test_groups_learn_at_their_own_rate() -> None:
    model = gpt(dropout=0.0)
    blocks = list(model.backbone.blocks.parameters())  # type: ignore[union-attr]
    rest = [p for p in model.parameters() if all(p is not q for q in blocks)]
    made = Trainer(
        model, NextToken(), Text(),
        Plan(steps=1, optimizer="sgd", rate=0.1, clip=None, decay=0.0, device="cpu"),
        groups=[(blocks, 0.25), (rest, 1.0)],
    )  # fmt: skip
    before = weights(model)
    plain = gpt(dropout=0.0)
    NextToken()(plain, Text().at(0), Chance(0, 0, torch.arange(4))).loss.backward()
    list(made.run())
    for (name, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        factor = 0.25 if "blocks" in name else 1.0
        assert other.grad is not None
        expected = before[name] - 0.1 * factor * other.grad
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


def test_groups_must_name_each_parameter_once() -> None:
    model = gpt()
    everything = list(model.parameters())
    with pytest.raises(ValueError, match=r"1 parameters are in no group, backbone.token.weight"):
        Trainer(model, NextToken(), Text(), Plan(steps=1), groups=[(everything[1:], 1.0)])
    with pytest.raises(ValueError, match="or is in two groups"):
        Trainer(
            model, NextToken(), Text(), Plan(steps=1),
            groups=[(everything, 1.0), (everything[:1], 1.0)],
        )  # fmt: skip
    everything[0].requires_grad_(False)
    Trainer(model, NextToken(), Text(), Plan(steps=1), groups=[(everything[1:], 1.0)])


def test_groups_in_the_form_of_torch_are_refused() -> None:
    model = gpt()
    for group, kind in (({"params": model.parameters(), "lr": 1.0}, "dict"),
                        (next(model.parameters()), "Parameter")):  # fmt: skip
        with pytest.raises(ValueError, match=f"a group is a {kind}: give pairs of parameters"):
            Trainer(model, NextToken(), Text(), Plan(steps=1), groups=[group])


def test_batches_may_change_on_the_way() -> None:
    stages = Stages((0, Text(rows=8, length=5)), (3, Text(rows=2, length=20)))
    run = Trainer(gpt(), NextToken(carry=True), stages, Plan(steps=6)).run()
    assert [report.tokens for report in run] == [40, 40, 40, 40, 40, 40]


# ---- how it is computed ----------------------------------------------------------------------


def test_gradient_checkpointing_changes_nothing_but_memory() -> None:
    plain, thrifty = gpt(), gpt()
    a = [float(r.loss) for r in trainer(plain).run()]
    made = trainer(thrifty, checkpointing=True)
    kept: list[int] = []
    b = []
    for report in made.run():
        b.append(float(report.loss))
        kept.append(sum("forward" in vars(module) for module in thrifty.modules()))
    assert b == a
    assert equal(weights(plain), weights(thrifty))
    assert kept == [0] * 12, "nothing stays patched between steps"


def test_a_block_that_stands_several_times_is_checkpointed_too() -> None:
    losses = []
    for on in (False, True):
        model: Any = gpt(dropout=0.0)
        model.backbone.blocks = nn.ModuleList([model.backbone.blocks[0]] * 3)
        made = trainer(model, checkpointing=on, steps=3)
        losses.append([float(report.loss) for report in made.run()])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_gradient_checkpointing_keeps_less_for_the_way_back() -> None:
    stored = {}
    for on in (False, True):
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        made = trainer(checkpointing=on, steps=1)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            list(made.run())
        stored[on] = sum(sizes.values())
    assert stored[True] < stored[False]


def test_a_copy_made_in_the_loop_computes_with_its_own_weights() -> None:
    """A patched forward or a closure in a module would go on using the original's."""
    made = trainer(gpt(dropout=0.0), checkpointing=True, device="cpu")
    for report in made.run():
        if report.step == 3:
            copied = copy.deepcopy(made.model)
            with torch.no_grad():
                for parameter in copied.parameters():
                    parameter.zero_()
            assert not copied(Text().at(0).tokens).any()
            assert made.model(Text().at(0).tokens).any()


def test_a_compiled_model_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the last stage, which writes C++ and takes a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    ends, operations = [], []
    for on in (False, True):
        made = trainer(gpt(dropout=0.0), steps=3, compile=on, checkpointing=on, optimizer="sgd")
        batch = made.batches.at(0)
        operations.append(made.operations(batch))
        list(made.run())
        made.operations.known.clear()
        operations.append(made.operations(batch))
        assert "losses_N" not in vars(made.model.head)
        ends.append(made.model)
    torch._dynamo.reset()
    assert farthest(*ends) < 1e-5
    assert len(set(operations)) == 1


def test_operations_are_counted_as_the_costs_count_them() -> None:
    model, text = gpt(), Text(rows=4, length=9)
    made = Trainer(model, NextToken(), text, Plan(steps=2))
    drawn = torch.get_rng_state()
    computing.measured_peak.cache_clear()
    made.measure()
    assert torch.equal(torch.get_rng_state(), drawn), "the reader's random numbers stay"
    assert computing.measured_peak.cache_info().currsize == 1, "no step waits for it"
    (report, _) = made.run()
    assert report.mfu is not None
    assert 0 < report.mfu < 1
    assert "of the peak" in str(report)
    # The objective reads all words but the last of each row.
    expected = counted_flop(model, text.at(0).tokens[:, :-1])
    assert made.operations(text.at(0)) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("flop_per_second", "sizes"), [(1e9, [256]), (1e11, [256, 1024])])
def test_a_large_product_is_not_measured_where_it_would_take_seconds(
    flop_per_second: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def measured(device: str, dtype: torch.dtype, size: int) -> float:
        asked.append(size)
        return flop_per_second

    monkeypatch.setattr(computing, "_measured", measured)
    assert computing.measured_peak.__wrapped__("cpu", torch.bfloat16) == flop_per_second
    assert asked == sizes


def test_a_report_reads_no_number_before_it_is_asked() -> None:
    report = next(trainer().run())
    kinds = {name: type(value) for name, value in vars(report).items()}
    assert all(kinds[name] is Tensor for name in ("loss", "norm", "skipped", "spike"))
    assert all(isinstance(value, Tensor) for value in report.metrics.values())


def test_the_time_of_a_step_is_not_that_of_the_readers_loop() -> None:
    """Nor is it a reading of the clock."""
    seconds, begun = [], time.perf_counter()
    for report in trainer().run():
        seconds.append(report.seconds)
        time.sleep(0.02)
    whole = time.perf_counter() - begun
    assert 0 < sum(seconds) < whole - 12 * 0.02
    assert report.tokens_per_second == pytest.approx(36 / seconds[-1])
    assert report.left == 0


def test_a_report_says_it_in_one_line() -> None:
    zero = torch.tensor(0.0)
    report = Report(
        step=20, steps=1000, loss=torch.tensor(1.25), metrics={}, norm=zero, rate=1e-3,
        tokens=1000, skipped=torch.tensor(2.0), spike=torch.tensor(1.0), seconds=0.5, left=3725.0,
    )  # fmt: skip
    assert str(report) == (
        "step 20/1000 · loss 1.2500 · rate 1.00e-03 · 2,000 tokens/s · 1 h 02 min left · "
        "a spike · 2 steps skipped"
    )


# ---- evaluate --------------------------------------------------------------------------------


def test_evaluate_is_the_mean_over_all_predictions() -> None:
    """And not the mean of the batches' means."""
    model = gpt(dropout=0.5)
    batches = [Text(rows=rows, padded=True).at(rows) for rows in (1, 7, 3)]
    with torch.no_grad():
        model.eval()
        losses = []
        for batch in batches:
            for row, real in zip(batch.tokens, batch.real, strict=True):
                text = row[real]
                scores = model(text[None, :-1])[0]
                losses.append(F.cross_entropy(scores, text[1:], reduction="none"))
        model.train()
    every = torch.cat(losses)
    found = evaluate(model, NextToken(), batches, floor=1.0)
    assert found.loss == pytest.approx(float(every.mean()), abs=1e-6)
    assert found.count == len(every)
    means = [evaluate(model, NextToken(), [batch]).loss for batch in batches]
    assert abs(sum(means) / 3 - found.loss) > 1e-4, "the mutant is caught"
    assert str(found) == (
        f"loss {found.loss:.4f} over {len(every)} predictions, "
        f"{found.loss - 1:.4f} above the floor of 1.0000"
    )
    with pytest.raises(ValueError, match="no batches"):
        evaluate(model, NextToken(), [])


def test_evaluate_carries_memory_from_batch_to_batch() -> None:
    """Two halves of a text with memory are as good as the whole; without, the second is worse."""
    model = gpt(dropout=0.0)
    text = Text(rows=3, length=12).at(0)
    real = torch.ones(3, 7, dtype=torch.bool)
    first = replace(text[:], tokens=text.tokens[:, :7], real=real)
    # The last word of a batch is only predicted, so the next one begins with it.
    second = replace(
        first, tokens=text.tokens[:, 6:], real=real[:, :6], fresh=torch.zeros(3, dtype=torch.bool)
    )
    whole = evaluate(model, NextToken(), [text]).loss
    assert evaluate(model, NextToken(carry=True), [first, second]).loss == pytest.approx(
        whole, abs=1e-6
    )
    assert abs(evaluate(model, NextToken(), [first, second]).loss - whole) > 1e-5


def test_evaluate_reads_a_corpus_once() -> None:
    documents = from_documents(["a b c d e", "b c d", "c d e f g h"] * 3)
    tokenizer = Tokenizer.words(documents.texts)
    held_out = Windows(tokenize(documents, tokenizer), length=5, batch=2)
    model = model_of(vocabulary=tokenizer.vocabulary.size)
    once = list(held_out.once())
    found = evaluate(model, NextToken(), held_out)
    assert found == evaluate(model, NextToken(), once)
    assert found.count == sum(
        NextToken().targets(b, Chance(0, 0, b.rows)).counts["word"] for b in once
    )


@pytest.mark.parametrize("name", CASES)
def test_evaluating_in_the_loop_leaves_training_as_it_was(name: str) -> None:
    case, ends = CASES[name], []
    for looks in (False, True):
        made = built(case)
        last = list(made.model.modules())[-1]
        last.eval()
        for _ in made.run():
            if looks:
                a = evaluate(made.model, case.objective, [case.text.at(i) for i in (0, 1)])
                b = evaluate(made.model, case.objective, [case.text.at(i) for i in (0, 1)])
                assert a == b
                assert made.model.training
                assert not last.training
        ends.append(made.state())
    assert alike(*ends) == []


# ---- pictures --------------------------------------------------------------------------------


# ---- what is wrong is said -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "steps is 0: give a whole number of at least 1"),
        ({"steps": 2.5}, "steps is 2.5: give a whole number"),
        ({"rate": -1.0}, "rate is -1.0: give a number above 0"),
        ({"rate": float("nan")}, "rate is nan: give a number above 0"),
        ({"clip": 0}, "clip is 0: give a number above 0"),
        ({"schedule": "cosinus"}, "schedule is 'cosinus': choose constant, linear, cosine"),
        ({"precision": "fp16"}, "precision is 'fp16': choose auto, float32, bfloat16"),
        ({"compile": "yes"}, "compile is 'yes': give True or False"),
        ({"warmup": 10}, "a warm-up of 10 steps does not fit a run of 10"),
        ({"betas": (0.9,)}, "give two numbers"),
        ({"decay": -0.1}, "decay is -0.1: give 0 to below inf"),
        ({"average_from": 3}, "average_from is 3 but average is 'none'"),
        ({"average": "mean", "average_from": 10}, "average_from is 10 in a run of 10 steps"),
        ({"momentum": 0.9}, "momentum is 0.9 but the optimizer is 'adamw'"),
        ({"optimizer": "muon", "processes": "fsdp"}, "Muon needs whole matrices"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Plan(**{"steps": 10, **fields})


def model_of(**sizes: int) -> nn.Module:
    given = {"vocabulary": WORDS, "width": 16, "layers": 2, "heads": 2, "context": 32, **sizes}
    backbone = GPT(GPTConfig(**given))
    return LanguageModel(backbone, NextWord(backbone.token))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0.5}, "rate was 0.01 and is 0.5"),
        ({"steps": 20}, "steps was 12 and is 20"),
        ({"betas": (0.9, 0.9)}, r"betas was \[0.9, 0.95\] and is \[0.9, 0.9\]"),
        ({"model": model_of(width=32)}, "width was 16 and is 32"),
        ({"model": model_of(layers=3)}, "layers was 2 and is 3"),
        ({"model": bert()}, "model was 'LanguageModel of GPT' and is 'LanguageModel of BERT'"),
        ({"objective": NextToken(carry=True)}, "objective was .*carry=False.* and is .*carry=True"),
        ({"text": Text(rows=5)}, r"batches was '\[4, 9\] tokens .* and is '\[5, 9\] tokens"),
    ],
)
def test_a_folder_of_another_run_is_refused_with_both_values(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    list(trainer().resume(tmp_path))
    model = change.pop("model", None) or gpt()
    objective, text = change.pop("objective", NextToken()), change.pop("text", Text())
    plan = replace(trainer().plan, **change)
    made = Trainer(model, objective, text, plan)
    before = weights(model)
    with pytest.raises(ValueError, match=message) as caught:
        made.resume(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "Choose another folder, or call resume(folder, changed=" in str(caught.value)
    assert equal(before, weights(model)), "the model is left as it was"


@dataclass(frozen=True)
class Marked:
    """The usual text, with a part of its batches beside the tokens."""

    part: str
    value: Tensor

    def at(self, step: int) -> Batch:
        return replace(Text().at(step), **{self.part: self.value})


@pytest.mark.parametrize(
    ("part", "before", "after"),
    [
        ("labels", torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 0])),
        ("documents", torch.zeros(4, 9).long(), torch.ones(4, 9).long().cumsum(1) // 5),
    ],
)
def test_the_same_text_with_other_labels_or_documents_is_another_run(
    part: str, before: Tensor, after: Tensor, tmp_path: Path
) -> None:
    plan = trainer(steps=2).plan
    list(Trainer(gpt(), NextToken(), Marked(part, before), plan).resume(tmp_path))
    changed = Trainer(gpt(), NextToken(), Marked(part, after), plan)
    with pytest.raises(ValueError, match=f"batches was .* {part} with checksum"):
        changed.resume(tmp_path)
    assert list(changed.resume(tmp_path, changed={"batches"})) == []


def test_a_model_without_a_config_is_told_apart_by_its_shapes(tmp_path: Path) -> None:
    list(trainer().resume(tmp_path))
    made = trainer(model_of(inner=40))
    with pytest.raises(ValueError, match=r"has the shape \[64, 16\], here \[40, 16\]"):
        made.resume(tmp_path, changed={"inner", "dropout"})


def test_names_that_may_have_changed_are_a_list_of_known_ones(tmp_path: Path) -> None:
    list(trainer().resume(tmp_path))
    with pytest.raises(TypeError, match=r"changed is 'steps': .* changed=\['steps'\]"):
        trainer(steps=20).resume(tmp_path, changed="steps")
    with pytest.raises(ValueError, match=r"names 'step', which no run has: .* rate, .*, steps, "):
        trainer(steps=20).resume(tmp_path, changed=["steps", "step"])
    once = iter(["steps", "rate"])
    assert len(list(trainer(steps=14, rate=1e-3).resume(tmp_path, changed=once))) == 2


def test_only_batches_with_something_to_predict_are_evaluated() -> None:
    with pytest.raises(TypeError, match="a batch is of type Tensor: give a corpus"):
        evaluate(gpt(), NextToken(), torch.zeros(2, 3, 4).long())  # type: ignore[arg-type]
    single = replace(Text().at(0), tokens=Text().at(0).tokens[:, :1], real=Text().at(0).real[:, :1])
    with pytest.raises(ValueError, match="predicts nothing in these batches"):
        evaluate(gpt(), NextToken(), [single])


def test_a_plan_may_change_when_it_is_meant_to(tmp_path: Path) -> None:
    list(trainer().resume(tmp_path))
    longer = trainer(steps=20, rate=1e-3, save_every=5, accumulate=2)
    reports = list(longer.resume(tmp_path, changed={"steps", "rate"}))
    assert [report.step for report in reports] == list(range(13, 21))
    assert reports[0].rate == 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Greedy(Objective):
    """Wants more memory than there is."""

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        return NextToken().targets(batch, chance)

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        torch.empty(2**52)
        raise AssertionError("unreachable")


def test_a_batch_that_does_not_fit_is_explained_with_numbers() -> None:
    made = Trainer(gpt(), Greedy(), Text(rows=6), Plan(steps=1, accumulate=2))
    with pytest.raises(MemoryError) as caught:
        list(made.run())
    said = str(caught.value)
    assert "3 rows of 9 tokens at once" in said
    assert "accumulate=4 (2 rows at once, the same result)" in said
    assert "18014398509481984 bytes" in said, "what was asked for"


def test_more_parts_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="4 rows cannot be split into 5 parts"):
        list(trainer(accumulate=5).run())


def test_the_bar_is_off_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    list(trainer().run())
    assert capsys.readouterr() == ("", "")
    shown = Trainer(gpt(), NextToken(), Text(), Plan(steps=12), progress=True)
    list(shown.run())
    assert "12" in capsys.readouterr().err


MASKED = Vocabulary(9, pad=0, mask=1, special=(0, 1))


@dataclass(frozen=True, slots=True)
class Settings:
    """A part of an objective whose values stand in slots."""

    rate: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Own(NextToken):
    """An objective of a reader, with a field of any kind."""

    own: Any


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class InSlots(NextToken):
    """An objective of a reader whose values stand in slots."""

    rate: float = 0.0


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (MaskedToken(vocabulary=MASKED), MaskedToken(vocabulary=MASKED, shares=(1.0, 0.0, 0.0))),
        (
            MaskedToken(vocabulary=MASKED, frequencies=torch.ones(9)),
            MaskedToken(vocabulary=MASKED, frequencies=torch.arange(9.0)),
        ),
        (
            Sum(parts=(NextToken(), BothDirections()), weights=(1.0, 1.0)),
            Sum(parts=(NextToken(), BothDirections()), weights=(1.0, 0.5)),
        ),
        (
            Sum(parts=(NextToken(), BothDirections())),
            Sum(parts=(NextToken(ar=2.0), BothDirections())),
        ),
        (Own(own={"a": 1, "b": [2]}), Own(own={"a": 1, "b": [3]})),
        (Own(own={1, 2}), Own(own={1, 3})),
        (Own(own=F.relu), Own(own=F.gelu)),
        (Own(own=Settings(1.0)), Own(own=Settings(2.0))),
        (InSlots(), InSlots(rate=1.0)),
    ],
)
def test_another_objective_is_noticed_whatever_differs(was, now):
    assert named(was) == named(was)
    assert named(was) != named(now)


def test_an_objective_is_told_as_in_earlier_runs():
    """A run that was saved before must go on: the words for its objective stay as they are."""
    weighted = Sum(parts=(NextToken(ar=2.0), Labels()), weights=(1.0, 0.5))
    told = "NextToken(head='head', carry=False, "
    assert named(weighted).startswith(f"Sum(head='head', parts=[{told}")
    assert named(weighted).endswith("weights=[1.0, 0.5])")
    assert named(Similarity()) == "Similarity(head='head', position='first')"
    assert named(Own(own={"b": 1, "a": 2})) == named(Own(own={"a": 2, "b": 1}))


def test_auto_takes_16_bits_on_a_cpu_for_wide_models_only(monkeypatch):
    from labkit.keeping import computing

    cpu, auto = torch.device("cpu"), Plan(steps=1)
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: True)
    monkeypatch.setattr(computing, "bfloat16_pays", lambda: True)
    assert computing.precision_of(auto, cpu, 64) == torch.float32
    assert computing.precision_of(auto, cpu, 128) == torch.bfloat16
    monkeypatch.setattr(computing, "bfloat16_pays", lambda: False)
    assert computing.precision_of(auto, cpu, 128) == torch.float32
    assert computing.precision_of(Plan(steps=1, precision="float32"), cpu, 256) == torch.float32
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: False)
    assert computing.precision_of(auto, cpu, 256) == torch.float32
    backbone = GPT(GPTConfig(9, width=256, layers=1, heads=4, context=8))
    assert computing.width_of(LanguageModel(backbone, NextWord(backbone.token))) == 256


def test_a_mixture_of_experts_can_be_measured_too():
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(20, width=16, layers=1, heads=2, context=16, dropout=0.0, experts=4))
    model = LanguageModel(backbone, NextWord(backbone.token))
    batch = Batch.of(torch.randint(0, 20, (2, 9)))
    targets = NextToken().targets(batch, Chance(0, 0, batch.rows))
    counted = counted_operations(model, NextToken(), targets)
    assert counted == counted_flop(copy.deepcopy(model), batch.tokens[:, :-1])
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="give training=False"):
        counted_flop(model.requires_grad_(False), batch.tokens)
    assert counted_flop(model, batch.tokens, training=False) > 0


@pytest.mark.parametrize(
    "name", ["XLNet, permuted, memory", "Transformer-XL, next word", "GPT, next word, memory"]
)
def test_a_padded_batch_is_counted_where_memory_is_carried(name):
    pairing = pairings.named(name)
    model, objective, given = pairing.make().train(), pairing.objective(), pairing.batch()
    targets = objective.targets(given, Chance(0, 0, given.rows))
    assert targets.padded
    with products() as counter:
        objective.loss(model, targets).loss.backward()
    assert counted_operations(model, objective, targets) == counter.get_total_flops()


@pytest.mark.parametrize("name", ["LSTM both ways, label", "AWD-LSTM, next word"])
def test_a_recurrent_model_computes_padding_as_well(name):
    pairing = pairings.named(name)
    model, objective, given = pairing.make(), pairing.objective(), pairing.batch()
    whole = Batch.of(given.tokens, labels=given.labels)
    both = [objective.targets(one, Chance(0, 0, one.rows)) for one in (given, whole)]
    padded, full = (counted_operations(model, objective, targets) for targets in both)
    # The head scores the words that are there, and goes back twice as far.
    fewer, more = (len(next(iter(t.predicted.values())).targets_N) for t in both)
    assert padded == full - (more - fewer) * 6 * pairings.D * pairings.V


def test_a_teacher_is_counted_and_stays_what_it_is():
    pairing = pairings.named("DistilBERT, distilled")
    model, given = pairing.make(), pairing.batch()
    teacher = pairings.bert().eval()
    objective = replace(pairing.objective(), teacher=teacher)
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    targets = objective.targets(given, Chance(0, 0, given.rows))
    counted = counted_operations(model, objective, targets)
    assert all(weight.equal(before[name]) for name, weight in teacher.state_dict().items())
    assert all(weight.requires_grad for weight in teacher.parameters())
    teacher.requires_grad_(False)
    with products() as counter:
        objective.loss(model, targets).loss.backward()
    assert counted == counter.get_total_flops()


def test_models_that_look_words_up_by_the_text_can_be_measured_too():
    sizes = TransformerXLConfig(20, width=16, layers=1, heads=2, dropout=0.0, cutoffs=(6, 12))
    spelled = ELMoConfig(20, width=8, inner=12, longest=6, kernels=((2, 4),), letter_width=4)
    words = [f"w{n}" for n in range(20)]
    for backbone in (TransformerXL(sizes), ELMo(spelled, words)):
        model = LanguageModel(backbone, NextWord(nn.Embedding(20, backbone.width)))
        batch = Batch.of(torch.randint(0, 20, (2, 9)))
        targets = NextToken().targets(batch, Chance(0, 0, batch.rows))
        assert counted_flop(model, batch.tokens) > counted_flop(model, batch.tokens, training=False)
        if backbone.causal:
            assert counted_operations(model, NextToken(), targets) > 0
