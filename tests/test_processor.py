"""What the processor offers: cores within a quota, one rule of threads, the faster precision."""

import json
import math
import os
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from classroom.running import notebook as running
from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.heads import NextWord
from labkit.keeping import computing, processor
from labkit.keeping.processor import bfloat16_pays, cores, quota, threads
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(processor, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    for name in (*processor.CHOSEN, *processor.TOLD):
        monkeypatch.delenv(name, raising=False)
    bfloat16_pays.cache_clear()
    yield
    bfloat16_pays.cache_clear()


@pytest.mark.parametrize(
    ("said", "share", "count"),
    [("max 100000", math.inf, 64), ("200000 100000", 2.0, 2), ("150000 100000", 1.5, 2),
     ("5000 100000", 0.05, 1), ("-1 100000", math.inf, 64), ("", math.inf, 64),
     ("a b", math.inf, 64), ("100 0", math.inf, 64)],
)  # fmt: skip
def test_the_quota_of_a_container_is_respected(tmp_path, said, share, count):
    (tmp_path / "cpu.max").write_text(said)
    assert quota() == share
    assert cores() == running.cores() == count


def test_the_older_kind_of_quota_too(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert (quota(), cores()) == (3.0, 3)
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cores() == 64


def test_without_affinity_there_are_the_cores_of_the_machine(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_one_rule_of_threads(tmp_path, monkeypatch):
    assert threads() == (4, "of 64 cores; more do not help models of the course's sizes")
    (tmp_path / "cpu.max").write_text("200000 100000")
    assert threads()[0] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads() == (torch.get_num_threads(), "OMP_NUM_THREADS says so")


def test_the_notebooks_take_it_and_what_the_user_sets_stays():
    code = "import classroom.models.recipes, torch; print(torch.get_num_threads())"
    for chosen in (None, "1"):
        env = {name: word for name, word in os.environ.items() if name not in processor.CHOSEN}
        env |= {} if chosen is None else {"OMP_NUM_THREADS": chosen}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "1" if chosen else 1 <= int(done.stdout) <= 4


def test_a_smaller_number_that_was_set_before_stays(tmp_path, monkeypatch):
    numbers = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    processor.set_threads()
    assert numbers[-1] == 4
    numbers.append(1)
    processor.set_threads()
    assert numbers[-1] == 1


def measured(monkeypatch, float32, bfloat16):
    """Pretend that products take so many seconds; return which were measured."""
    asked = []

    def seconds(dtype):
        asked.append(dtype)
        return bfloat16 if dtype == torch.bfloat16 else float32

    monkeypatch.setattr(processor, "seconds", seconds)
    return asked


@pytest.mark.parametrize(("float32", "bfloat16"), [(1.0, 0.5), (1.0, 2.0), (1.0, 1.0)])
def test_the_faster_one_is_taken_and_remembered(tmp_path, monkeypatch, float32, bfloat16):
    asked = measured(monkeypatch, float32, bfloat16)
    for _ in range(2):
        assert bfloat16_pays() == (bfloat16 < float32)
    assert len(asked) == 2
    bfloat16_pays.cache_clear()  # another process of the same machine
    measured(monkeypatch, bfloat16, float32)
    assert bfloat16_pays() == (bfloat16 < float32), "it does not measure again"
    bfloat16_pays.cache_clear()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # this makes it another machine
    asked = measured(monkeypatch, 1.0, 9.0)
    assert not bfloat16_pays()
    assert len(asked) == 2
    assert len(json.loads((tmp_path / "cache" / "processor.json").read_text())) == 2


@pytest.mark.parametrize("damage", ["", "[1]", "{", '{"x": 1}'])
def test_a_damaged_memory_is_made_anew(tmp_path, monkeypatch, damage):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "processor.json").write_text(damage)
    measured(monkeypatch, 1.0, 0.5)
    assert bfloat16_pays()
    bfloat16_pays.cache_clear()
    assert measured(monkeypatch, 1.0, 9.0) == []
    assert bfloat16_pays()


def test_where_nothing_can_be_remembered_it_is_measured(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    measured(monkeypatch, 1.0, 0.5)
    assert bfloat16_pays()


@pytest.mark.parametrize("lacks", [r"a C\+\+ compiler", "the headers of Python"])
def test_without_a_compiler_nothing_is_compiled_and_this_is_said(lacks, monkeypatch, tmp_path):
    rows = Batch.of(torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0)))
    batches = type("Rows", (), {"at": lambda self, step: rows})()
    losses = []
    for chosen in (False, True):
        if lacks.startswith("a C"):
            monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
        else:
            monkeypatch.setenv("CXX", sys.executable)
            monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
        torch.manual_seed(0)
        backbone = GPT(GPTConfig(9, width=8, layers=1, heads=2, context=8))
        model = LanguageModel(backbone, NextWord(backbone.token))
        how = Plan(steps=2, compile=chosen)
        said = rf"compile=True needs {lacks}, and there is no.*: the model is not compiled"
        with pytest.warns(UserWarning, match=said) if chosen else nullcontext():
            trainer = Trainer(model, NextToken(), batches, how)
        losses.append([float(report.loss) for report in trainer.run()])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("has", [True, False])
def test_a_precision_that_is_only_emulated_brings_a_warning(monkeypatch, has):
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: has)
    body, cpu = GPT(GPTConfig(20, width=16, layers=1, heads=2, context=8)), torch.device("cpu")
    model = LanguageModel(body, NextWord(body.token))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        computing.check_precision(model, torch.float32, cpu)
        assert not said
        computing.check_precision(model, torch.bfloat16, cpu)
    assert ["only emulates" in str(one.message) for one in said] == ([] if has else [True])


def test_products_are_timed():
    assert 0 < processor.seconds(torch.float32) < 10


def test_the_reason_for_a_precision_is_said(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: False)
    assert computing.fast_precision(cpu) == (
        torch.float32, "the cpu lacks products of 16-bit numbers"
    )  # fmt: skip
    monkeypatch.setattr(computing, "_cpu_has_bfloat16", lambda: True)
    measured(monkeypatch, 1.0, 0.5)
    assert computing.fast_precision(cpu) == (
        torch.bfloat16, "a product in bfloat16 was measured to be faster"
    )  # fmt: skip
    bfloat16_pays.cache_clear()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    measured(monkeypatch, 1.0, 8.0)
    precision, why = computing.fast_precision(cpu)
    assert precision == computing.precision_of(Plan(steps=1), cpu) == torch.float32
    assert why.endswith("no faster with ONEDNN_MAX_CPU_ISA=AVX2")
