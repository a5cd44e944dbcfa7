"""Several processes: the same losses however many there are, and checkpoints that any can read."""

import json
import os
from pathlib import Path
from typing import Any

import copies
import pytest
import torch
from crash.several import last_weights
from crash.tiny import Text, gpt

from labkit import trainer
from labkit.keeping import computing, distributed
from labkit.keeping.processes import Processes
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
NAMES = ("parts-ddp-2", "parts-ddp-4", "parts-fsdp-2", "parts-fsdp-4")
REMEMBERING = ("memory-ddp-2", "memory-fsdp-2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that `tests.crash.several` measures, by one process and its children."""
    program = ["-m", "tests.crash.several", tmp_path_factory.mktemp("several")]
    done = copies.run(program, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def farthest(a: dict[str, list[float]], b: dict[str, list[float]]) -> float:
    assert a.keys() == b.keys()
    return max(abs(x - y) for name in a for x, y in zip(a[name], b[name], strict=True))


@pytest.mark.parametrize("name", [*NAMES, *REMEMBERING])
def test_losses_do_not_depend_on_the_number_of_processes(runs: dict[str, Any], name: str) -> None:
    alone = runs[f"{name.split('-')[0]}-single-1"]
    for what in ("losses", "words", "norms", "held out"):
        assert runs[name][what] == pytest.approx(alone[what], abs=1e-5), what
    assert len(alone["losses"]) == 8
    assert len(set(alone["losses"])) == 8
    assert farthest(runs[name]["weights"], alone["weights"]) < 1e-4


@pytest.mark.parametrize("name", ["parts", "memory"])
def test_a_checkpoint_of_many_is_read_by_few(runs: dict[str, Any], name: str) -> None:
    """Saved by four shares, resumed by one process, by two copies, by three shares."""
    alone, changing = runs[f"{name}-single-1"], runs[f"{name}-changing"]
    lives = changing["losses"]
    assert [len(life) for life in lives] == [3, 3, 3, 2], "each resumed from the last even step"
    for life, start in zip(lives, (0, 2, 4, 6), strict=True):
        assert life == pytest.approx(alone["losses"][start : start + len(life)], abs=1e-5)
    assert farthest(changing["weights"], alone["weights"]) < 1e-4


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_what_is_counted_is_of_the_whole_model(kind: str, runs: dict[str, Any]) -> None:
    alone = runs["counted-single"]
    assert runs[f"counted-{kind}"]["operations"] == alone["operations"]
    assert 0 < alone["vanished"] < 1
    assert runs[f"counted-{kind}"]["vanished"] == pytest.approx(alone["vanished"], abs=0.02)
    assert runs[f"unused-{kind}"] == pytest.approx(runs["unused-single"], abs=1e-5)


def test_what_one_process_asks_for_all_do(runs: dict[str, Any]) -> None:
    assert runs["stopped-single"] == [1, 2, 3]
    assert runs["stopped-ddp"] == runs["stopped-fsdp"] == [1, 2, 3]


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_nothing_is_lost(
    runs: dict[str, Any], tmp_path: Path
) -> None:
    """By torchrun's command: each worker is a Python of its own."""
    program = [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3",
        "--monitor-interval=0.1", "-m", "tests.crash.elastic", "ddp", tmp_path, "5",
    ]  # fmt: skip
    done = copies.run(program, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "done after 1 deaths" in done.stdout
    assert "resuming from" in done.stderr
    assert last_weights(tmp_path) == runs["undisturbed-ddp"], "not a bit differs"


def test_a_killed_worker_that_holds_shards_is_started_again(runs: dict[str, Any]) -> None:
    """By torchrun's agent, whose workers are copies of a process that has imported torch."""
    ends, said = runs["killed-fsdp"]
    assert ends == "done after 1 deaths"
    assert "resuming from" in said
    assert runs["weights-killed-fsdp"] == runs["undisturbed-fsdp"], "not a bit differs"


def test_one_process_is_refused_what_needs_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="4 processes were started and the plan says"):
        Trainer(gpt(), NextToken(), Text(), Plan(steps=1))


def test_a_weight_that_is_one_number_is_not_sharded() -> None:
    model = gpt()
    model.head.scale = torch.nn.Parameter(torch.ones(()))
    several = Processes("fsdp", 0, 2, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"the weight head\.scale is a single number"):
        distributed.wrapped(model, NextToken(), several)


def test_a_plan_for_several_also_runs_alone() -> None:
    """The same script without torchrun."""
    for kind in ("ddp", "fsdp"):
        plan = Plan(steps=2, processes=kind)  # type: ignore[arg-type]
        assert len(list(Trainer(gpt(), NextToken(), Text(), plan).run())) == 2


class Second(Processes):
    """A process whose first one has chosen bfloat16."""

    def agreed(self, value: Any) -> Any:
        return torch.bfloat16 if isinstance(value, torch.dtype) else value


def test_all_processes_compute_in_the_precision_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each would measure for itself which one is faster, and they might find different ones."""
    monkeypatch.setattr(trainer, "join", lambda *_: Second("single", 0, 1, torch.device("cpu")))
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: True)
    monkeypatch.setattr(computing, "bfloat16_pays", lambda: False)
    made = Trainer(gpt(width=128), NextToken(), Text(), Plan(steps=1))
    assert made.computing.precision == torch.bfloat16
