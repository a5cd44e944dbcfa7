"""The Python of the README and of docs/researcher.md runs as it is printed, on less text."""

import contextlib
import dataclasses
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit import corpus, heads, objectives, weights
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import from_documents, tokenize
from labkit.models import awd_lstm, bert, elmo, gpt, transformer_xl, xlnet
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate

ROOT = Path(__file__).resolve().parent.parent
LINES = [f"On day {n} the {n % 7} dogs slept in the old house.\n\n" for n in range(300)]
SMALLER = {"steps=1000": "steps=100", "size=4000": "size=300", "batch=16": "batch=2",
           "width=128": "width=64"}  # fmt: skip


def blocks(page: str) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


MODELS = (awd_lstm, bert, elmo, gpt, transformer_xl, xlnet)
PARTS = {name: part for module in (corpus, heads, objectives, *MODELS)
         for name, part in vars(module).items()}  # fmt: skip
SIZES = {"width": 16, "layers": 1, "heads": 2, "context": 16, "memory": 16, "inner": 32}


def family_rows() -> list[list[str]]:
    """The rows of the table of families: backbone, head, objective, batches."""
    page = (ROOT / "docs/researcher.md").read_text("utf-8").split("Other families")[1]
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in row] for row in rows if "(…)" in row[0]]


@pytest.mark.parametrize("row", family_rows(), ids=lambda row: row[0].split("(")[0])
def test_each_family_of_the_table_is_trained_and_saved(row: list[str], tmp_path: Path) -> None:
    tokenizer = Tokenizer.bpe(LINES, size=300)
    tokens = tokenize(from_documents(LINES), tokenizer)
    V, width = len(tokenizer), SIZES["width"]
    known = {**PARTS, "V": V, "width": width, "words": tokenizer.vocabulary,
             "pieces": tokenizer.pieces(range(V)), "nn": torch.nn}  # fmt: skip
    backbone, head, objective, batches = row
    config = known[f"{backbone.split('(')[0]}Config"]
    fields = {field.name for field in dataclasses.fields(config)}
    known["few"] = {name: size for name, size in SIZES.items() if name in fields}
    known["B"] = eval(backbone.replace("…", "V, **few"), known)
    model = LanguageModel(known["B"], eval(head, known))
    rows, aim = known[batches](tokens, batch=2, length=16), eval(objective, known)
    plan = Plan(steps=2, precision="float32", device="cpu")
    for _ in Trainer(model, aim, rows, plan, progress=False).run():
        pass
    weights.save(model, tmp_path / "model")
    again, few = weights.load(tmp_path / "model"), [rows.at(step) for step in range(2)]
    assert evaluate(again, aim, few).loss == evaluate(model, aim, few).loss
    assert backbone.split("(")[0] not in {"GPT", "BERT", "XLNet"} or _is_exported(model, tmp_path)


def _is_exported(model: LanguageModel, folder: Path) -> bool:
    """Whether the release of a model is read again as the same weights."""
    weights.save_release(model, folder / "release")
    theirs = weights.load(folder / "release").state_dict()
    return all(torch.equal(one, theirs[name]) for name, one in model.state_dict().items())


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
