"""What one step, one average and one evaluation are, each against its formula."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from crash.tiny import WORDS, Text, bert, gpt
from torch import Tensor, nn

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.keeping.health import Health
from labkit.objectives import MaskedToken, NextToken, Targets
from labkit.plan import Plan
from labkit.text.tokenizers import Vocabulary
from labkit.trainer import Trainer, evaluate

SPECIAL = Vocabulary(WORDS, pad=0, mask=4, special=(0, 1, 2, 3, 4))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def trained(carry: bool = False, **plan: Any) -> dict[str, Tensor]:
    given = {"steps": 4, "optimizer": "sgd", "rate": 0.1, "device": "cpu", **plan}
    model = gpt(dropout=0.0)
    list(Trainer(model, NextToken(carry=carry), Text(rows=6, streams=carry), Plan(**given)).run())
    return weights(model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_weights_become_what_they_become_on_a_processor() -> None:
    here = trained(precision="float32")
    there = {name: w.cpu() for name, w in trained(precision="float32", device="cuda").items()}
    assert farthest(here, there) < 1e-5
    assert farthest(here, trained(steps=3)) > 1e-3


def farthest(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_short_gradients_are_not_stretched() -> None:
    assert farthest(trained(clip=1000.0), trained(clip=None)) < 1e-7
    assert farthest(trained(clip=0.01), trained(clip=None)) > 1e-3


def test_a_long_gradient_is_clipped_to_its_length() -> None:
    model = gpt(dropout=0.0)
    before = weights(model)
    plan = Plan(
        steps=1, optimizer="sgd", rate=1.0, clip=0.01, decay=0.0, schedule="constant", device="cpu",
    )  # fmt: skip
    (report,) = Trainer(model, NextToken(), Text(), plan).run()
    step = torch.cat([(before[n] - p.detach()).flatten() for n, p in model.named_parameters()])
    assert float(report.norm) > 0.1
    assert float(step.norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("average", ["ema", "mean"])
def test_averages_are_their_formulas(average: str) -> None:
    plan = Plan(steps=6, rate=1e-2, average=average, average_from=2, ema_decay=0.75)  # type: ignore[arg-type]
    made, mean, count = Trainer(gpt(), NextToken(), Text(), plan), {}, 0
    for report in made.run():
        now = weights(made.model)
        if report.step < 2:
            continue
        count += 1
        keep = (0.75 if average == "ema" else 1 - 1 / count) if mean else 0.0
        mean = {n: keep * mean.get(n, 0) + (1 - keep) * now[n] for n in now}
    last = weights(made.model)
    with made.averaged():
        assert farthest(weights(made.model), mean) < 1e-6
        assert farthest(weights(made.model), last) > 1e-4
    assert farthest(weights(made.model), last) == 0


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_a_layer_that_is_frozen_on_the_way_stands_still(optimizer: str) -> None:
    """Momentum and decay move a weight whose gradient is zero, but not one that has none."""
    model = gpt(dropout=0.0)
    momentum = {"momentum": 0.9} if optimizer == "sgd" else {}
    plan = Plan(steps=6, rate=1e-2, optimizer=optimizer, decay=0.5, **momentum)  # type: ignore[arg-type]
    frozen: dict[str, Tensor] = {}
    for report in Trainer(model, NextToken(), Text(), plan).run():
        if report.step == 3:
            model.backbone.blocks[0].requires_grad_(False)  # type: ignore[union-attr, index]
            frozen = weights(model.backbone.blocks[0])  # type: ignore[union-attr, index, arg-type]
    assert farthest(frozen, weights(model.backbone.blocks[0])) == 0  # type: ignore[union-attr, index, arg-type]


@pytest.mark.parametrize("parts", [2, 4, 5])
def test_each_part_goes_on_from_the_memory_of_its_own_rows(parts: int) -> None:
    whole = trained(carry=True)
    assert farthest(whole, trained(carry=True, accumulate=parts)) < 1e-6
    assert farthest(whole, trained()) > 1e-5


class Noting(MaskedToken):
    """Notes what is hidden."""

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        found = super().targets(batch, chance)
        NOTED.append(found.predicted["masked"])
        return found


NOTED: list[Any] = []


def test_evaluation_hides_other_words_in_each_batch_and_the_same_in_each_call() -> None:
    batch = Text(rows=8).at(0)
    NOTED.clear()
    for _ in range(2):
        evaluate(bert(), Noting(vocabulary=SPECIAL, rate=0.5), [batch, batch])
    hidden = [list(zip(n.rows_N.tolist(), n.positions_N.tolist(), strict=True)) for n in NOTED]
    assert hidden[0] != hidden[1]
    assert hidden[:2] == hidden[2:]


def test_evaluation_switches_dropout_off_and_back() -> None:
    model, batches = gpt(dropout=0.5), [Text().at(0)]
    model.train()
    found = {evaluate(model, NextToken(), batches).loss for _ in range(3)}
    assert len(found) == 1
    assert model.training


def test_steps_hide_other_words_each_time() -> None:
    class Same(Text):
        def at(self, step: int) -> Batch:
            return super().at(0)

    NOTED.clear()
    objective = Noting(vocabulary=SPECIAL, rate=0.5)
    list(Trainer(bert(), objective, Same(rows=8), Plan(steps=3)).run())
    assert len({tuple(noted.positions_N.tolist()) for noted in NOTED}) == 3


def hidden(shares: tuple[float, float, float]) -> tuple[Tensor, Tensor]:
    """What stands at the positions that are predicted, and what stood there."""
    vocabulary = Vocabulary(105, pad=0, mask=4, special=(0, 1, 2, 3, 4))
    tokens = torch.full((200, 200), 50)
    batch = Batch.of(tokens)
    objective = MaskedToken(vocabulary=vocabulary, rate=0.15, shares=shares)
    targets = objective.targets(batch, Chance(1, 0, batch.rows))
    rows_N, positions_N, targets_N = targets.predicted["masked"]
    return targets.inputs.tokens[rows_N, positions_N], targets_N


def test_random_words_do_not_depend_on_what_chose_their_positions() -> None:
    words, _ = hidden((0.0, 1.0, 0.0))
    counts = torch.bincount(words, minlength=105)[5:].double()
    expected = len(words) / 100
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 99 degrees of freedom: 5.8 standard deviations above their mean.
    assert chi_square < 180


def test_what_happens_to_a_word_does_not_depend_on_what_chose_its_position() -> None:
    words, was = hidden((0.8, 0.1, 0.1))
    masked_, kept = (words == 4).double().mean(), (words == was).double().mean()
    # About 6,000 predictions: a standard error of half a percent.
    assert float(masked_) == pytest.approx(0.8, abs=0.025)
    assert float(kept) == pytest.approx(0.101, abs=0.02)


def test_a_long_evaluation_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    evaluate(gpt(), NextToken(), [Text().at(0)])
    assert capsys.readouterr().err == "", "for two seconds there is no bar"

    def slow() -> Iterator[Batch]:
        for step in range(3):
            time.sleep(0.8)
            yield Text().at(step)

    evaluate(gpt(), NextToken(), slow())
    assert "batch" in capsys.readouterr().err


@pytest.mark.parametrize("clip", [None, 0.5])
def test_sgd_with_momentum_and_decay_is_the_loop_that_one_would_write_by_hand(
    clip: float | None,
) -> None:
    ours, theirs = gpt(dropout=0.0), gpt(dropout=0.0)
    plan = Plan(
        steps=8, optimizer="sgd", rate=0.1, momentum=0.9, decay=0.01, clip=clip, device="cpu"
    )
    list(Trainer(ours, NextToken(), Text(), plan).run())
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for step in range(8):
        tokens = Text().at(step).tokens
        logits = theirs(tokens)[:, :-1]
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * plan.share(step)
        optimizer.step()
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    assert max(float((p - q).detach().abs().max()) for p, q in pairs) < 1e-5


def test_eps_is_that_of_the_plan() -> None:
    model = gpt()
    made = Trainer(model, NextToken(), Text(), Plan(steps=1, eps=1e-3))
    assert {group["eps"] for group in made.optimizers.all[0].param_groups} == {1e-3}


def test_padding_is_no_text_that_was_read() -> None:
    text = Text(padded=True)
    run = Trainer(gpt(), NextToken(), text, Plan(steps=4)).run()
    found = [report.tokens for report in run]
    assert found == [int(text.at(step).real.sum()) for step in range(4)]
    assert max(found) < text.rows * text.length


def test_another_seed_of_an_evaluation_hides_other_words() -> None:
    batch = Text(rows=8).at(0)
    NOTED.clear()
    for seed in (0, 1, 1):
        evaluate(bert(), Noting(vocabulary=SPECIAL, rate=0.5), [batch], seed=seed)
    hidden = [list(zip(n.rows_N.tolist(), n.positions_N.tolist(), strict=True)) for n in NOTED]
    assert hidden[0] != hidden[1] == hidden[2]


def test_the_scale_is_halved_by_a_bad_step_and_doubled_after_many_good_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("labkit.keeping.health.PATIENT", 3)
    plan = Plan(steps=1, precision="float16", loss_scale=8.0)
    health = Health(plan, True, torch.device("cpu"))
    scales = []
    for bad in (0, 1, 0, 0, 0, 0, 0, 0, 1):
        health.look(torch.tensor(1.0), [torch.full((2,), torch.inf if bad else 1.0)])
        scales.append(float(health.scale))
    assert scales == [8, 4, 4, 4, 8, 8, 8, 16, 8]
