"""The Python of the README, docs/researcher.md and docstrings runs as printed, on less text."""

import contextlib
import dataclasses
import inspect
import io
import os
import re
import textwrap
from importlib import import_module
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


STAND_INS = """
import numpy as np
import torch
from labkit.alignment import *
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import *
from labkit.heads import NextWord
from labkit.masking import *
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import *
from labkit.plan import Plan
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate

config = GPTConfig(300, width=16, layers=1, heads=2, context=16, dropout=0.0)
backbone = GPT(config)
model = base = language_model = LanguageModel(backbone, NextWord(backbone.token))
objective, plan = NextToken(), Plan(steps=2, precision="float32", device="cpu")
tokenizer = Tokenizer.bpe(["a dog slept"], size=300)
tokens = tokenize(from_documents(["a dog slept in a house. " * 9] * 9), tokenizer)
batches = Windows(tokens, batch=2, length=8)
batch, held_out, step, seed, folder = batches.at(0), [batches.at(1)], 0, 0, "run"
"""
MINE = {
    "labkit.alignment.exact": """
prompt, answers, rewards = [1, 2], [[3], [4]], np.zeros(3)
""",
    "labkit.alignment.rollouts": """
reference, prompts, end = reference_of(model), [[1], [2]], 0
reward = lambda prompts, answers: [1.0 for _ in answers]
""",
    "labkit.blocks.Backbone": """
tokens_BT = batch.tokens
""",
    "labkit.corpus": "",
    "labkit.costs.bills": """
from labkit.costs.bills import *
""",
    "labkit.fast": """
from labkit import fast
""",
    "labkit.leaks": """
from labkit.leaks import trace
""",
    "labkit.masking": """
T = n = Q = 3
K, pad, tokens, ids, order = 5, 0, torch.ones(2, T), torch.ones(2, T), torch.arange(T)[None]
""",
    "labkit.objectives": """
device, parts, memory = "cpu", [batch], [None]
""",
    "labkit.trainer": "",
    "labkit.transfer.groups": """
from labkit.transfer import *
epoch, texts = 1, from_documents(["a dog", "a house"] * 4, [0, 1] * 4)
batches = Examples(tokenize(texts, tokenizer), batch=2, length=8, framed=False)
""",
    "labkit.weights": """
from labkit.weights import *
save(model, "folder")
""",
    "labkit.weights.published": """
from labkit.weights import published
""",
    "labkit.weights.tensors.WithoutInitialisation": """
from labkit.weights.tensors import WithoutInitialisation
""",
    "labkit.world": """
from labkit.world import *
documents = load_world().sample(documents=2, seed=0)
words = documents[0].words[:40]
texts = [words]
""",
    "labkit.world.answers": """
from labkit.world import *
from labkit.world.answers import list_answers
from labkit.world.optimal import best_policy
""",
    "labkit.world.optimal": """
from labkit.world.optimal import *
from labkit.world.optimal import best_of, frontier
p, reward, beta, betas, n = np.array([0.5, 0.5]), np.array([0.0, 1.0]), 0.3, [0.1, 1.0], 2
""",
    "labkit.world.translation": """
from labkit.world import *
source, target = load_translator().pairs(1, seed=0)[0]
""",
}
NOT_HERE = re.compile(r"python -m|gpt2\"\)|real_encoder|Σ")


def docstring_code(name: str) -> str:
    """The indented code of a docstring, without the words in a column beside it."""
    module, _, part = name.rpartition(".")
    owner = getattr(import_module(module), part) if part[0].isupper() else import_module(name)
    lines = [line for line in (inspect.getdoc(owner) or "").splitlines() if line[:4] == "    "]
    code = [re.split(r"(?<=\S) {3,}", line)[0] for line in lines if not NOT_HERE.search(line)]
    return textwrap.dedent("\n".join(code)).replace(", ...]", "]")


@pytest.mark.parametrize("name", MINE)
def test_the_code_of_a_docstring_runs(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("".join(LINES))
    code = docstring_code(name)
    assert code
    exec(compile(STAND_INS + MINE[name] + code, name, "exec"), {"__name__": "documented"})
