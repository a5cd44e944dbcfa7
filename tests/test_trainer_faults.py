"""What is wrong from the beginning is said in one line, before anything is trained or changed."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from errno import EACCES, EEXIST, ENOSPC, EROFS
from math import inf, nan
from pathlib import Path
from typing import Any

import copies
import pytest
import torch
from crash.tiny import Text, alike, gpt
from torch import Tensor, nn

from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import Label, NextWord
from labkit.keeping import checkpoints
from labkit.keeping.checkpoints import MANIFEST, Snapshot, advice, newest, write
from labkit.keeping.locks import hold
from labkit.keeping.processes import Processes
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import (
    CBOW,
    Balanced,
    Both,
    Distillation,
    Labels,
    Memory,
    NextToken,
    SkipGram,
    Sum,
    combine,
    total,
)
from labkit.plan import SCHEDULES, Plan
from labkit.trainer import Trainer

ROOT = Path(__file__).parents[1]


def trainer(model: nn.Module | None = None, objective: Any = None, **plan: Any) -> Trainer:
    given = {"steps": 6, "rate": 1e-2, "schedule": "constant", "save_every": 2, **plan}
    return Trainer(model or gpt(dropout=0.0), objective or NextToken(), Text(), Plan(**given))


# ---- folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (EROFS, "choose a folder that you may write to"),
        (EACCES, "choose a folder that you may write to"),
        (EEXIST, "remove the file that is in the way"),
        (ENOSPC, "make room"),
    ],
)
def test_a_first_checkpoint_that_cannot_be_written_ends_the_run_before_its_first_step(
    number: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(folder: Path, snapshot: Snapshot) -> Path:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(checkpoints, "write", refuses)
    steps = []
    with pytest.raises(OSError, match=said) as caught:
        steps.extend(trainer().resume(tmp_path))
    assert steps == []
    assert str(tmp_path) in str(caught.value)
    assert caught.value.errno == number
    assert "\n" not in str(caught.value)


def test_a_file_where_the_folder_should_be_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    for folder in (tmp_path / "runs", tmp_path / "runs" / "one"):
        with pytest.raises(OSError, match="remove the file that is in the way"):
            trainer().resume(folder)


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuses(path: Any, *given: Any) -> int:
        if Path(path).name == ".lock":
            raise OSError(EROFS, "Read-only file system")
        return real(path, *given)

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(OSError, match="Read-only file system: choose a folder that you may write"):
        trainer().resume(tmp_path)


def test_every_kind_of_refusal_has_its_advice(tmp_path: Path) -> None:
    assert "make room" in advice(OSError("I/O error"), tmp_path / "not" / "there")
    assert "MiB are free" in advice(OSError(ENOSPC, "full"), tmp_path)
    assert "MiB" not in advice(OSError(EROFS, "read-only"), tmp_path)


HOLDS = """
import sys
from crash.tiny import Text, gpt
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer
for report in Trainer(gpt(dropout=0.0), NextToken(), Text(), Plan(steps=6)).resume(sys.argv[1]):
    print(report.step, flush=True)
    sys.stdin.readline()
"""


def test_two_trainers_do_not_share_a_folder(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    with copies.Program(["-c", HOLDS, tmp_path], env=env) as other:
        assert other.stdout.readline() == "1\n"
        with pytest.raises(RuntimeError, match=rf"another trainer \(process {other.pid}\)"):
            trainer().resume(tmp_path)
        other.kill()
    changed = {"rate", "schedule"}
    assert len(list(trainer().resume(tmp_path, changed=changed))) == 6, "a dead one holds nothing"


def test_a_folder_is_free_again_however_a_run_ends(tmp_path: Path) -> None:
    first = trainer().resume(tmp_path)
    next(first)
    with pytest.raises(RuntimeError, match="choose another folder"):
        trainer().resume(tmp_path)
    first.close()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="holds a different run") as caught:
        trainer(rate=0.5).resume(tmp_path)
    # The traceback still holds the run that was refused.
    assert caught.value.__traceback__ is not None
    for _ in trainer().resume(tmp_path):
        break
    trainer().resume(tmp_path)
    assert len(list(trainer().resume(tmp_path))) == 6


def test_a_lock_says_who_holds_it(tmp_path: Path) -> None:
    lock = hold(tmp_path / "lock")
    with pytest.raises(BlockingIOError, match=str(os.getpid())):
        hold(tmp_path / "lock")
    lock.release()
    hold(tmp_path / "lock").release()


def test_fewer_steps_than_are_done_are_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(trainer().resume(tmp_path))
    assert list(trainer(steps=4).resume(tmp_path, changed=["steps"])) == []
    assert "6 steps are done and the plan has steps=4: nothing is left" in capsys.readouterr().err


# ---- checkpoints that are as they were written, and wrong ------------------------------------


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the newest manifest, with a right checksum."""
    path = checkpoints.listed(folder)[-1] / MANIFEST
    content = json.loads(path.read_bytes())["content"]
    change(content)
    path.write_bytes(checkpoints._manifest(content))


def test_a_manifest_of_another_version_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    changes = {"1": lambda c: c.pop("format"), "99": lambda c: c.update(format=99)}
    for name, change in changes.items():
        folder = tmp_path / name
        list(trainer().resume(folder))
        rewritten(folder, change)
        before = sorted(folder.iterdir())
        with pytest.raises(ValueError, match=f"was written in format {name}, and this version"):
            trainer().resume(folder)
        assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", nan), ("scale", inf), ("scale", -1.0), ("scale", 0), ("scale", "1"),
        ("notes", []), ("averaging", 1), ("averaged", -1), ("averaged", 1.5), ("learning", None),
        ("plan", {}), ("about", None),
    ],
)  # fmt: skip
def test_facts_that_no_run_has_written_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    list(trainer().resume(tmp_path))
    rewritten(tmp_path, lambda content: content["facts"].update({name: value}))
    made = trainer(gpt(3, dropout=0.0))
    before = made.state()
    before = replace(before, tensors={"weights": copied(before.tensors["weights"])})
    with pytest.raises(ValueError, match=f"says that {name} is .*remove it to continue"):
        made.resume(tmp_path)
    after = replace(made.state(), tensors={"weights": made.state().tensors["weights"]})
    assert alike(before, after) == [], "nothing was touched"


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("optimizer", lambda t: t.update({"no.weight|exp_avg": torch.zeros(2)}), "fit no weight"),
        ("optimizer", lambda t: t.update({k: torch.zeros(7) for k in t}), "fit no weight"),
        ("average", lambda t: t.update({"nothing": torch.zeros(1)}), "fit no weight"),
        ("health", lambda t: t.update(seen=torch.zeros(3)), "more than one number for seen"),
        ("health", lambda t: t.clear(), "holds no health"),
        ("memory", lambda t: t.update({"0.states.0": torch.zeros(4, 2)}), "unlike rows"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_is_touched(
    kind: str, change: Callable[[dict[str, Tensor]], None], said: str, tmp_path: Path
) -> None:
    list(trainer().resume(tmp_path))
    saved = newest(tmp_path).snapshot
    assert saved is not None
    own = dict(saved.tensors.get(kind, {}))
    change(own)
    tensors = {k: v for k, v in {**saved.tensors, kind: own}.items() if v}
    write(tmp_path, replace(saved, tensors=tensors))
    made = trainer(gpt(3, dropout=0.0))
    before = copied(made.state().tensors["weights"])
    with pytest.raises(ValueError, match=said):
        made.resume(tmp_path)
    assert all(torch.equal(before[n], t) for n, t in made.state().tensors["weights"].items())
    assert made.step == 0


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "parts", "together"), [(7, 3, 1), (10, 3, 2), (6, 2, 2)])
def test_a_part_gets_the_memory_of_its_own_rows(rows: int, parts: int, together: int) -> None:
    """Also where the rows do not divide, and where some of them stay together."""
    batch = Batch.of(torch.arange(rows)[:, None].expand(rows, 4))
    cut = batch.micro(parts, together=together)
    state = [(torch.zeros(1),) for _ in cut]
    for i, part in enumerate(cut):
        state[i] = (part.tokens[:, 0].float(),)
    memory = [
        Memory((own,), torch.ones(len(part), 0, dtype=torch.bool))
        for own, part in zip(state, cut, strict=True)
    ]
    alone = Processes("single", 0, 1, torch.device("cpu"))
    found = alone.divided(alone.joined(memory), parts, together)
    for part, own in zip(cut, found, strict=True):
        assert own is not None
        assert torch.equal(own.layers[0][0], part.tokens[:, 0].float())


# ---- plans and schedules ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_of_one_step_takes_it_at_the_full_rate(name: str) -> None:
    assert Plan(steps=1, schedule=name).share(0) == 1.0  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [nan, -1.0, inf, "fast"])
def test_factors_of_groups_are_numbers(factor: Any) -> None:
    model = gpt()
    with pytest.raises(ValueError, match="the factor of a group is"):
        Trainer(model, NextToken(), Text(), Plan(steps=1), groups=[(model.parameters(), factor)])


# ---- objectives ------------------------------------------------------------------------------

COUNTS = torch.ones(11)


@pytest.mark.parametrize("number", [nan, inf, -1.0, "much"])
@pytest.mark.parametrize(
    "made",
    [
        lambda x: NextToken(ar=x),
        lambda x: NextToken(tar=x),
        lambda x: Sum(parts=(NextToken(), Labels()), weights=(1.0, x)),
        lambda x: Both(parts=(NextToken(), Labels()), weights=(x, 1.0)),
        lambda x: Distillation(task=NextToken(), teacher=nn.Identity(), temperature=x),
        lambda x: Distillation(task=NextToken(), teacher=nn.Identity(), soft=x),
        lambda x: Balanced(objective=NextToken(), weight=x),
        lambda x: SkipGram(counts=COUNTS, threshold=x),
        lambda x: CBOW(counts=COUNTS, reach=x),
    ],
)
def test_what_is_no_number_is_refused_by_objectives(made: Any, number: Any) -> None:
    with pytest.raises(ValueError, match=r": give a (number of at least|whole number from)"):
        made(number)


def mixture() -> LanguageModel:
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(11, width=16, layers=2, heads=2, context=32, dropout=0.0, experts=4))
    return LanguageModel(backbone, NextWord(backbone.token))


def half_empty() -> Batch:
    """Two rows of text, then two rows of padding: the second of two parts is padding alone."""
    tokens = Text().at(0).tokens
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[2:] = False
    return Batch.of(tokens, real)


def test_a_part_that_is_all_padding_has_no_balance() -> None:
    objective, batch = Balanced(objective=NextToken(), weight=0.5), half_empty()
    found, gradients = [], []
    for parts in (1, 2):
        model = mixture()
        every = [objective.targets(p, Chance(0, 0, p.rows)) for p in batch.micro(parts)]
        outcomes = [objective.loss(model, targets) for targets in every]
        torch.stack([outcome.over(total(every)) for outcome in outcomes]).sum().backward()
        found.append({k: float(v) for k, v in combine(outcomes).metrics.items()})
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    for whole, parted in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, parted, atol=1e-6, rtol=1e-4)

    class Fixed:
        def at(self, step: int) -> Batch:
            return half_empty()

    plan = Plan(steps=3, accumulate=2)
    *_, report = Trainer(mixture(), objective, Fixed(), plan).run()
    assert int(report.skipped) == 0


def choosing() -> LanguageModel:
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(11, width=16, layers=2, heads=2, context=32, dropout=0.0))
    return LanguageModel(backbone, Label(16, 1))


@pytest.mark.parametrize("choices", [2, 3])
def test_a_question_with_an_empty_choice_is_left_out_as_a_whole(choices: int) -> None:
    rows = 3 * choices
    tokens = Text(rows=rows).at(0).tokens
    real = torch.ones_like(tokens, dtype=torch.bool)
    # An empty row in the first and in the second question: together they would seem to be one.
    real[0], real[choices + 1] = False, False
    labels = torch.tensor([0, 1, 1]).repeat_interleave(choices)
    batch, model, objective = Batch.of(tokens, real, labels=labels), choosing(), Labels(
        choices=choices, position="last"
    )  # fmt: skip
    outcome = objective(model, batch, Chance(0, 0, batch.rows))
    last = batch[slice(2 * choices, None)]
    expected = objective(model, last, Chance(0, 0, last.rows))
    assert outcome.count == expected.count == 1
    torch.testing.assert_close(outcome.loss, expected.loss)


def test_students_and_teachers_that_cannot_be_compared_are_refused() -> None:
    def sized(vocabulary: int, width: int) -> LanguageModel:
        backbone = GPT(GPTConfig(vocabulary, width=width, layers=1, heads=2, context=32))
        return LanguageModel(backbone, NextWord(backbone.token))

    batch, student = Text().at(0), sized(11, 16)
    chance = Chance(0, 0, batch.rows)
    wide, rich = sized(11, 32).eval(), sized(13, 16).eval()
    with pytest.raises(ValueError, match=r"the student is 16 wide and the teacher 32.* cosine=0"):
        Distillation(task=NextToken(), teacher=wide)(student, batch, chance)
    assert Distillation(task=NextToken(), teacher=wide, cosine=0)(student, batch, chance).loss > 0
    with pytest.raises(ValueError, match="among 11 answers and the teacher among 13"):
        Distillation(task=NextToken(), teacher=rich)(student, batch, chance)


def test_a_memory_of_another_number_of_rows_is_refused() -> None:
    model, objective, batch = gpt(dropout=0.0), NextToken(carry=True), Text(streams=True).at(1)
    memory = objective(model, batch, Chance(0, 0, batch.rows)).memory
    fewer = batch[slice(0, 3)]
    with pytest.raises(ValueError, match="the memory has 4 rows, the batch 3"):
        objective(model, fewer, Chance(0, 0, fewer.rows), memory)


def test_padding_has_no_share_in_the_balance() -> None:
    objective, tokens = Balanced(objective=NextToken(), weight=0.5), Text().at(0).tokens
    real = torch.arange(2 * tokens.shape[1]).expand(len(tokens), -1) < tokens.shape[1]
    padded = Batch.of(torch.cat([tokens, torch.zeros_like(tokens)], dim=1), real)
    found = [objective(mixture(), batch, Chance(0, 0, batch.rows)) for batch in (
        Batch.of(tokens), padded,
    )]  # fmt: skip
    torch.testing.assert_close(found[0].metrics["balance"], found[1].metrics["balance"])


@pytest.mark.parametrize(
    "weights",
    [torch.zeros(1).expand(8), torch.zeros(8, 16)[:, :8], torch.zeros(16)[::2]],
    ids=["expanded", "columns", "every second"],
)
def test_a_parameter_that_is_a_view_with_gaps_is_refused(weights: Tensor) -> None:
    """torch's fused AdamW reads and writes as if the values lay side by side: it may crash."""
    model = gpt()
    model.extra = nn.Parameter(weights)
    with pytest.raises(ValueError, match=r"extra is part of another tensor.*contiguous\(\)"):
        Trainer(model, NextToken(), Text(), Plan(steps=1), progress=False)


@pytest.mark.parametrize(
    "weights",
    [torch.zeros(3, 5).T, torch.zeros(2, 3, 4).permute(2, 0, 1), torch.zeros(()),
     torch.zeros(0, 5), torch.zeros(8, 5)[2:6], torch.zeros(1, 8)[:, :4]],
    ids=["transposed", "permuted", "number", "empty", "rows", "of one row"],
)  # fmt: skip
def test_a_parameter_whose_values_lie_side_by_side_is_taken(weights: Tensor) -> None:
    model = gpt()
    model.extra = nn.Parameter(weights)
    Trainer(model, NextToken(), Text(), Plan(steps=1), progress=False)
