"""The Python of the README and of docs/researcher.md runs as it is printed, on less text."""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit.chance import Chance
from labkit.trainer import Trainer, evaluate

ROOT = Path(__file__).resolve().parent.parent
LINES = [f"On day {n} the {n % 7} dogs slept in the old house.\n\n" for n in range(300)]
SMALLER = {"steps=1000": "steps=100", "size=4000": "size=300", "batch=16": "batch=2",
           "width=128": "width=64"}  # fmt: skip


def blocks(page: str) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is defined and printed by the code of the README and for objectives and texts."""
    folder, here = tmp_path_factory.mktemp("page"), Path.cwd()
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text("".join(LINES))
    [readme] = blocks("README.md")
    for whole, small in SMALLER.items():
        assert whole in readme
        readme = readme.replace(whole, small)
    mine = [one for one in blocks("docs/researcher.md") if 'load("gpt2")' not in one]
    assert len(mine) == 2
    found: dict[str, Any] = {"__name__": "documented"}
    said = io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(said):
            for block in (readme, *mine):
                exec(compile(block, "documented", "exec"), found)
    finally:
        os.chdir(here)
    return {**found, "said": said.getvalue().splitlines()}


def test_the_example_of_the_readme_says_how_far_it_is(names: dict[str, Any]) -> None:
    [report, *_] = names["said"]
    assert report.startswith("step 100")


def test_what_was_trained_and_saved_writes_again(names: dict[str, Any]) -> None:
    assert len(names["text"].tokens) == 40
    assert not names["model"].training
    assert names["tokenizer"].decode(names["tokenizer"].encode("It was")) == "It was"


def test_an_objective_of_ones_own_is_learned(names: dict[str, Any]) -> None:
    objective, model, text = names["AfterNext"](), names["model"], names["train"]
    batch = text.at(0)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    assert torch.equal(targets.predicted["word"].targets_N[:5], batch.tokens[0, 2:7])
    before = evaluate(model, objective, [batch]).loss
    plan = names["Plan"](steps=60, rate=1e-3, precision="float32", device="cpu")
    for _ in Trainer(model, objective, text, plan, progress=False).run():
        pass
    assert evaluate(model, objective, [batch]).loss < 0.5 * before
