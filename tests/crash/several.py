"""Runs of several processes, forked from one parent that has imported everything.

`python -m tests.crash.several FOLDER` prints, as JSON, the losses and the last weights of runs of
the same plan by 1, 2 and 4 processes, and of runs that were resumed by another number of them.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import NextWord
from labkit.keeping.checkpoints import newest
from labkit.objectives import Both, NextToken, Targets
from labkit.plan import Plan
from labkit.trainer import Trainer

from . import elastic
from .tiny import Case, Text, gpt

STEPS = 8
CASES = {
    "parts": Case(gpt, NextToken(), Text(rows=8, padded=True), {"accumulate": 2}),
    "memory": Case(
        gpt,
        NextToken(carry=True),
        Text(rows=6, streams=True),
        {"average": "ema", "average_from": 2},
    ),
}


def train(
    case: Case, kind: str, folder: Path, stop: int = STEPS, save_every: int = 4
) -> dict[str, Any]:
    """Train to a step, and give the losses, the predictions of a test, and the norms."""
    torch.set_num_threads(1)
    plan = {"steps": STEPS, "rate": 3e-3, "save_every": save_every, "processes": kind, **case.plan}
    made = Trainer(gpt(dropout=0.0), case.objective, case.text, Plan(**plan))
    found: dict[str, Any] = {"losses": [], "words": [], "norms": [], "held out": []}
    for report in made.resume(folder):
        found["losses"].append(float(report.loss))
        found["words"].append(float(report.metrics["word"]))
        found["norms"].append(float(report.norm))
        if report.step == 3:
            held_out = made.evaluate([case.text.at(i) for i in (90, 91)])
            found["held out"].append(held_out.loss)
        if report.step == stop < STEPS:
            break
    return found


def counted(kind: str) -> dict[str, float]:
    """What float16 loses and what a step costs: of the whole model, whoever holds its shares."""
    torch.set_num_threads(1)
    # Without help for small gradients, many of them are zero.
    plan = Plan(steps=2, precision="float16", loss_scale=None, clip=None, processes=kind)
    made = Trainer(gpt(dropout=0.0), NextToken(), Text(rows=8), plan)
    reports = list(made.run())
    return {
        "operations": made.operations(made.batches.at(0)),
        "vanished": float(reports[0].vanished),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class Second(NextToken):
    """The next word once more, under another name and from another head."""

    head: str = "second"

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        targets = super().targets(batch, chance)
        names = {
            "predicted": {"second": targets.predicted["word"]},
            "counts": {"second": targets.counts["word"]},
        }
        return replace(targets, **names)


def unused(kind: str) -> list[float]:
    """Losses where a second head predicts but has no weight."""
    torch.set_num_threads(1)
    model = gpt(dropout=0.0)
    model.second = NextWord(model.backbone.token)
    both = Both(parts=(NextToken(), Second()), weights=(1.0, 0.0))
    made = Trainer(model, both, Text(rows=8), Plan(steps=3, processes=kind))
    return [float(report.loss) for report in made.run()]


def stopped(kind: str, folder: Path) -> list[int]:
    """The steps of a run that one process ends, after its third step."""
    torch.set_num_threads(1)
    made = Trainer(gpt(dropout=0.0), NextToken(), Text(rows=8), Plan(steps=9, processes=kind))
    steps = []
    for report in made.resume(folder):
        steps.append(report.step)
        if report.step == 3 and made.processes.rank == made.processes.count - 1:
            made.stop()
    return steps


def together(count: int, work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Do all of the work in so many processes that know of each other; what the first one gives."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    read, write = os.pipe()
    children = []
    for rank in range(count):
        number = os.fork()
        if number:
            children.append(number)
            continue
        try:
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            result = {name: each() for name, each in work.items()}
            if rank == 0:
                os.write(write, json.dumps(result).encode())
            if dist.is_initialized():
                dist.destroy_process_group()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    if any(os.waitpid(number, 0)[1] for number in children):
        raise RuntimeError(f"one of {count} processes failed")
    return dict(json.loads(said))


def last_weights(folder: Path) -> dict[str, list[float]]:
    """The weights of the newest checkpoint."""
    found = newest(folder).snapshot
    assert found is not None
    names = [name for name in found.tensors if name != "health"]
    return {
        f"{file} {name}": tensor.double().flatten().tolist()
        for file in names
        for name, tensor in found.tensors[file].items()
    }


def restarted(kind: str, folder: Path, fatal: list[int]) -> list[str]:
    """What torchrun's workers end with and what is said, where some die at these steps.

    The agent is torchrun's, with its options; its workers are copies of this process.
    """
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    options = ["--nproc-per-node=2", "--max-restarts=3", "--monitor-interval=0.1",
               "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={kind}",
               "--start-method=fork", "-m", elastic.__name__]  # fmt: skip
    config, *_ = config_from_args(parse_args(options))
    with (folder.parent / f"{folder.name}.txt").open("w+") as said:
        os.dup2(said.fileno(), 2)
        ends = elastic_launch(config, elastic.train)(kind, folder, fatal)
        said.seek(0)
        return [ends[0], said.read()]


def run(folder: Path) -> dict[str, Any]:
    """All runs; those of as many processes follow each other in the same ones."""
    found: dict[str, Any] = {}
    changed = {name: replace(case, plan={**case.plan, "accumulate": 1})
               for name, case in CASES.items()}  # fmt: skip

    def life(name: str, kind: str, stop: int) -> Callable[[], Any]:
        return lambda: train(changed[name], kind, folder / f"{name}-changing", stop, 2)

    def weights(*names: str) -> None:
        for name in names:
            found[name]["weights"] = last_weights(folder / name)

    for kind, count in [("single", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 2), ("fsdp", 4)]:
        # Six rows with a memory are not divided by four.
        names = {f"{name}-{kind}-{count}": case for name, case in CASES.items()
                 if count < 4 or name == "parts"}  # fmt: skip
        work: dict[str, Callable[[], Any]] = {
            name: partial(train, case, kind, folder / name) for name, case in names.items()
        }
        if count < 4:
            work[f"counted-{kind}"] = partial(counted, kind)
            work[f"unused-{kind}"] = partial(unused, kind)
            work[f"stopped-{kind}"] = partial(stopped, kind, folder / f"stopped-{kind}")
        if count == 2:
            place = folder / f"undisturbed-{kind}"
            work[place.name] = partial(elastic.train, kind, place, [])
        if (kind, count) == ("fsdp", 4):
            work["parts"] = life("parts", kind, 3)
        found |= together(count, work)
        weights(*names)
    # Saved by four shares, or by three; then one process, then two copies, then three shares.
    lives = [{"parts": found.pop("parts")}, together(3, {"memory": life("memory", "fsdp", 3)})]
    for kind, count, stop in [("single", 1, 5), ("ddp", 2, 7), ("fsdp", 3, 8)]:
        lives.append(together(count, {name: life(name, kind, stop) for name in CASES}))
    for name in CASES:
        losses = [each[name]["losses"] for each in lives if name in each]
        found[f"{name}-changing"] = {"losses": losses}
        weights(f"{name}-changing")
    for kind in ("single", "ddp", "fsdp"):
        saved = newest(folder / f"stopped-{kind}").snapshot
        assert saved is not None
        assert saved.step == found[f"stopped-{kind}"][-1]
    for kind in ("ddp", "fsdp"):
        found[f"undisturbed-{kind}"] = last_weights(folder / f"undisturbed-{kind}")
    place = folder / "killed-fsdp"
    found |= together(1, {place.name: partial(restarted, "fsdp", place, [5])})
    found["weights-killed-fsdp"] = last_weights(place)
    return found


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
