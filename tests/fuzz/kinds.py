"""The kinds of input: what is made of random numbers, and what must come of it."""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import os
import random
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F

from classroom.cli import parameters
from classroom.running import sweeps
from labkit import weights
from labkit.attention import attend
from labkit.blocks import LanguageModel
from labkit.corpus import (
    Batch,
    Examples,
    Pairs,
    Streams,
    Windows,
    from_documents,
    from_files,
    from_table,
    tokenize,
)
from labkit.heads import NextWord
from labkit.keeping import cache
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import Recurrent, RecurrentConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.sampling import Sampling, draw
from labkit.text.documents import sentences
from labkit.text.tokenizers import Tokenizer
from labkit.writing.prompting import log_likelihoods

from . import VALUES, Attempt, changed, damaged

TEXTS = ["The dog bit the man's hat. Again!\nAnd again.", "lower lowest newer wider. Slow slower."]
LETTERS = "ab .!?,\n\t\"'\u2028\x0cé☃[]0"


def some_text(rng: random.Random, longest: int = 60) -> str:
    """A text of words, signs and odd characters."""
    words = ["".join(rng.choice(LETTERS) for _ in range(rng.randrange(6))) for _ in range(longest)]
    return rng.choice((" ", "", "\n")).join(words[: rng.randrange(longest)])


@functools.cache
def tokenizers() -> dict[str, Tokenizer]:
    """One tokenizer of each kind."""
    return {
        "characters": Tokenizer.characters(TEXTS),
        "words": Tokenizer.words(TEXTS),
        "bpe": Tokenizer.bpe(TEXTS, 280),
        "pieces": Tokenizer.word_pieces(TEXTS, 60),
    }


@functools.cache
def files_of_tokenizers() -> dict[str, bytes]:
    """What the tokenizers are as files."""
    return {name: one.library.to_str().encode() for name, one in tokenizers().items()}


def tokenizer_json(rng: random.Random, folder: Path) -> None:
    """A tokenizer.json of which one part is another, or some bytes are."""
    raw = files_of_tokenizers()[rng.choice(list(tokenizers()))]
    if rng.random() < 0.6:
        content = json.loads(raw)
        part = rng.choice((None, "model", "model", "added_tokens", "pre_tokenizer", "decoder"))
        new = changed(content if part is None else content[part], rng)
        raw = json.dumps(new if part is None else content | {part: new}).encode()
    else:
        raw = damaged(raw, rng)
    (folder / "tokenizer.json").write_bytes(raw)
    _use(Tokenizer.load(folder), rng)


def word_lists(rng: random.Random, folder: Path) -> None:
    """A vocab.txt, or a vocab.json with its merges.txt."""
    model = json.loads(files_of_tokenizers()["bpe"])["model"]
    merges = "#version: 0.2\n" + "\n".join(" ".join(merge) for merge in model["merges"])
    files = {
        "vocab.json": json.dumps(model["vocab"]).encode(),
        "merges.txt": merges.encode(),
        "tokenizer_config.json": b'{"add_prefix_space": true}',
    }
    if rng.random() < 0.5:
        pieces = json.loads(files_of_tokenizers()["pieces"])["model"]["vocab"]
        files = {"vocab.txt": "\n".join(sorted(pieces, key=pieces.get)).encode()}
        files["tokenizer_config.json"] = b'{"do_lower_case": true, "strip_accents": false}'
    which = rng.choice(list(files))
    for name, raw in files.items():
        (folder / name).write_bytes(damaged(raw, rng) if name == which else raw)
    _use(Tokenizer.load(folder), rng)


def _use(tokenizer: Tokenizer, rng: random.Random) -> None:
    """A tokenizer that was loaded gives tokens of its vocabulary for any text."""
    assert len(tokenizer) < 10_000
    tokens = tokenizer.encode(some_text(rng), special=rng.random() < 0.5)
    assert all(0 <= token < len(tokenizer) for token in tokens)
    assert isinstance(tokenizer.decode(tokens), str)
    assert len(tokenizer.pieces(tokens)) == len(tokens)


def token_ids(rng: random.Random, folder: Path) -> None:
    """Ids for a tokenizer, of which some are no tokens."""
    tokenizer = tokenizers()[rng.choice(list(tokenizers()))]
    wild = (-1, len(tokenizer), 2**31, 2**63, 10**30)
    tokens = [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(5))]
    tokens += [rng.choice(wild)] * rng.randrange(2)
    assert isinstance(tokenizer.decode(tokens, special=rng.random() < 0.5), str)
    assert all(0 <= token < len(tokenizer) for token in tokens), "one of them is no token"


def tables(rng: random.Random, folder: Path) -> None:
    """A table with labels."""
    kind = rng.choice((".csv", ".tsv", ".jsonl"))
    rows = [
        {"text": some_text(rng, 8).strip() or "a", "label": rng.choice("abc")} for _ in range(4)
    ]
    if kind == ".jsonl":
        some = [changed(row, rng) if rng.random() < 0.2 else row for row in rows]
        text = "\n".join(json.dumps(row) for row in some)
    else:
        mark = "," if kind == ".csv" else "\t"
        quote = '"{}"'.format if kind == ".csv" else "{}".format
        text = "\n".join(
            mark.join((quote(row["text"].replace('"', '""').replace("\t", " ")), row["label"]))
            for row in [{"text": "text", "label": "label"}, *rows]
        )
    path = folder / f"table{kind}"
    path.write_bytes(damaged(text.encode(), rng) if rng.random() < 0.8 else text.encode())
    found = list(from_table(path, header=rng.random() < 0.9, text="text"))
    assert all(isinstance(one.text, str) and (one.label is None or one.label >= 0) for one in found)


def text_files(rng: random.Random, folder: Path) -> None:
    """A text file: its documents are its lines, and their sentences are the documents."""
    raw = some_text(rng, 200).encode()
    (folder / "text.txt").write_bytes(damaged(raw, rng) if rng.random() < 0.8 else raw)
    ends = rng.choice(("blank line", "line", "file"))
    for document in from_files(folder / "text.txt", ends):
        assert document.text.strip()
        assert sentences(document.text) == document.parts
        assert "".join(document.parts) == document.text


def world_files(rng: random.Random, folder: Path) -> None:
    """The files of a small language, one of them damaged."""
    files = {
        str(path.relative_to(village())): path.read_bytes() for path in village().rglob("*.txt")
    }
    which = rng.choice(list(files))
    files[which] = damaged(files[which], rng)
    for name, raw in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    from labkit.world.world import load_world

    load_world(folder)


def village() -> Path:
    """The files of the smallest language."""
    from labkit.keeping.paths import data_path

    return data_path("village")


# ---- weights, caches, results


@functools.cache
def saved_models() -> Path:
    """A folder of ours and a release."""
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="labkit-fuzz-models-"))
    backbone = GPT(GPTConfig(23, 8, 2, 2, 9))
    model = LanguageModel(backbone, NextWord(backbone.token))
    weights.save(model, folder / "ours")
    weights.save_release(model, folder / "gpt2")
    bert = BERT(BERTConfig(23, 8, 2, 2, 9, pooler=True))
    weights.save_release(bert, folder / "bert")
    return folder


def weights_folders(rng: random.Random, folder: Path) -> None:
    """A folder of a model of which one file is damaged: refused, or the model works."""
    kind = rng.choice(("ours", "gpt2", "bert"))
    source = saved_models() / kind
    shutil.copytree(source, folder / "model")
    path = rng.choice(sorted((folder / "model").iterdir()))
    if path.suffix == ".json" and rng.random() < 0.7:
        content = changed(json.loads(path.read_bytes()), rng)
        if kind == "ours" and isinstance(content, dict) and rng.random() < 0.7:
            from labkit.weights.ours import _hash

            content.pop("checksum", None)
            content = {**content, "checksum": _hash(content)}
        path.write_text(json.dumps(content))
    elif path.suffix != ".json" and rng.random() < 0.5:
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.dumps(changed(json.loads(raw[8 : 8 + length]), rng)).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])
    else:
        path.write_bytes(damaged(path.read_bytes(), rng))
    model = weights.load(folder / "model")
    if kind == "ours":
        right = weights.load(source).state_dict()
        assert all(torch.equal(tensor, right[k]) for k, tensor in model.state_dict().items())
    tokens = torch.zeros(1, 1, dtype=torch.long)
    assert getattr(model, "backbone", model)(tokens).hidden.isfinite().all()


def token_caches(rng: random.Random, folder: Path) -> None:
    """A cache of tokens that is damaged: the tokens are those of a clean run."""
    documents, tokenizer = from_documents(TEXTS), tokenizers()["bpe"]
    with patch("labkit.keeping.files.to_disk"):  # nobody pulls the plug here
        tokenize(documents, tokenizer, cache=folder)
    (cached,) = folder.iterdir()
    path = rng.choice(sorted(cached.iterdir()))
    match rng.randrange(3):
        case 0:
            path.unlink()
        case 1 if path.suffix == ".json":
            path.write_text(json.dumps(changed(json.loads(path.read_bytes()), rng)))
        case _:
            path.write_bytes(damaged(path.read_bytes(), rng))
    with warnings.catch_warnings(), patch("labkit.keeping.files.to_disk"):
        warnings.simplefilter("ignore")
        again = tokenize(documents, tokenizer, cache=folder)
    clean = tokenize(documents, tokenizer)
    assert all(map(np.array_equal, again.arrays, clean.arrays))


def cache_entries(rng: random.Random, folder: Path) -> None:
    """A result that is kept and damaged: what is given back is right."""
    right = {"loss": [1.5, 0.25], "name": "a", "steps": 7}
    told = contextlib.redirect_stderr(io.StringIO())
    folder_of_ours = patch.dict(os.environ, LABKIT_CACHE=str(folder))
    with folder_of_ours, told, patch("labkit.keeping.files.to_disk"):
        cache.kept_json("key", lambda: right)
        path = next(path for path in sorted(folder.rglob("*")) if path.is_file())
        if rng.random() < 0.5:
            path.write_text(json.dumps(changed(json.loads(path.read_bytes()), rng)))
        else:
            path.write_bytes(damaged(path.read_bytes(), rng))
        assert cache.kept_json("key", lambda: right) == right


ROW = {
    "run": "0123", "notebook": "05", "status": "finished", "parameters": {"seed": 1},
    "results": {"loss": 2.5}, "error": None, "seconds": 3.5, "peak_bytes": 10**9, "threads": 1,
    "versions": {"python": "3.11"},
}  # fmt: skip


def sweep_rows(rng: random.Random, folder: Path) -> None:
    """A folder of results with a damaged line: the others are read and shown."""
    given = [ROW | {"run": f"{n}", "parameters": {"seed": n}} for n in range(3)]
    lines = [json.dumps(row).encode() for row in given]
    hurt = damaged(lines[1], rng)
    if rng.random() < 0.6:
        hurt = json.dumps(changed(json.loads(lines[1]), rng)).encode()
    (folder / "results.jsonl").write_bytes(b"\n".join((lines[0], hurt, lines[2])) + b"\n")
    rows = sweeps.results(folder)
    assert {"0", "2"} <= {row.run for row in rows}
    assert isinstance(sweeps.table(rows), str)


# ---- settings

KIND_NAMES = ("int", "float", "str", "bool", "int | None", "list[int]", "tuple[int, ...]", "")
WORDS = (
    "1", "0.5", "a", "None", "True", "[1, 2]", "(1,)", "1e999", "nan", "-1", "0:3", "1,2", "0:9",
    "0:10000000000", "9" * 5000, "[" * 500, "(" * 3000, "-" * 3000 + "1", "é", "'", "\\", "1;2",
    "", "{}", "__import__('os')", "lambda: 1", "1 if 1 else 2", "[1,[2,[3]]]", "3:1",
)  # fmt: skip


def notebook_parameters(rng: random.Random, folder: Path) -> None:
    """Words for the parameters of a notebook."""
    kind, words = rng.choice(KIND_NAMES), rng.choice(WORDS)
    if rng.random() < 0.3:
        words = damaged(words.encode(), rng).decode("utf-8", "replace")
    row = {"inferred_type_name": kind, "default": rng.choice(("1", "0.5", "'a'", "None", "[1]"))}
    found = parameters.listed("p", words, ranges=rng.random() < 0.5)
    assert len(found) <= 10**6
    for word in found[:5]:
        parameters.typed("p", word, row)


def sampler_settings(rng: random.Random, folder: Path) -> None:
    """Settings of the sampler, used on ordinary scores: a word that may be drawn is drawn."""
    names = [field.name for field in dataclasses.fields(Sampling)]
    chosen = {name: _setting(name, rng) for name in rng.sample(names, rng.randrange(1, 4))}
    settings = Sampling(**chosen)
    logits_BV = torch.randn(2, 11, generator=torch.Generator().manual_seed(rng.randrange(9)))
    seen_BT = torch.zeros(2, 3, dtype=torch.long)
    stages = list(settings.stages(logits_BV, seen_BT, torch.zeros(2, dtype=torch.long)))
    last_BV = stages[-1][1]
    assert not last_BV.isnan().any()
    words = draw(last_BV, torch.tensor([0.0, 0.999]))
    assert ((words >= 0) & (words < 11)).all()
    assert all(last_BV[row, word] > -torch.inf for row, word in enumerate(words))


def _setting(name: str, rng: random.Random) -> Any:
    if rng.random() < 0.5:
        return rng.choice(VALUES)
    ordinary = {"length": 5, "minimum": 0, "stop": (3,), "repetition": 1.2, "temperature": 0.7,
                "top_k": 3, "top_p": 0.9}  # fmt: skip
    return ordinary.get(name, 1)


def masks(rng: random.Random, folder: Path) -> None:
    """A mask of any kind and shape: refused, or the answer is that of the formula."""
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    b, h, q, k = (rng.choice((1, 2, 3)) for _ in range(4))
    shape = rng.choice(((q, k), (b, 1, q, k), (b, h, q, k), (1, 1, 1, k), (k, q), (b, q, k), (k,)))
    shape = tuple(n + (rng.random() < 0.1) for n in shape)
    mask = torch.rand(shape, generator=generator) < 0.7
    if rng.random() < 0.3:
        mask = mask.to(rng.choice((torch.float32, torch.int64, torch.uint8, torch.float16)))
    q_, k_, v_ = (torch.randn(b, h, n, 4, generator=generator) for n in (q, k, k))
    found = attend(q_, k_, v_, mask=mask)
    assert mask.dtype == torch.bool, "a mask that is not boolean was taken"
    scores = (q_ @ k_.transpose(-1, -2) / 2).masked_fill(~mask, -torch.inf)
    weights_BHQK = torch.nan_to_num(F.softmax(scores, dim=-1))
    torch.testing.assert_close(found, weights_BHQK @ v_, atol=1e-5, rtol=1e-4)


@functools.cache
def models() -> dict[str, Any]:
    """One small model of some families."""
    torch.manual_seed(0)
    made = {
        "gpt": GPT(GPTConfig(11, 8, 1, 2, 6)),
        "bert": BERT(BERTConfig(11, 8, 1, 2, 6)),
        "xlnet": XLNet(XLNetConfig(11, 8, 1, 2, 6)),
        "lstm": Recurrent(RecurrentConfig(11, 8)),
    }
    return {name: model.eval() for name, model in made.items()}


def model_inputs(rng: random.Random, folder: Path) -> None:
    """Token ids of any range and shape for a model."""
    model = models()[rng.choice(list(models()))]
    shape = [rng.choice((0, 1, 2, 5, 5, 7)) for _ in range(rng.choice((2, 2, 2, 2, 1, 3)))]
    high = rng.choice((11, 11, 11, 12, 10**9))
    generator = torch.Generator().manual_seed(rng.randrange(99))
    tokens = torch.randint(rng.choice((0, 0, 0, -1)), high, shape, generator=generator)
    with torch.no_grad():
        found = model(tokens).hidden
    assert list(found.shape) == [*shape, 8]
    assert tokens.numel() > 0, "an empty batch was taken"
    assert 0 <= tokens.min() <= tokens.max() < 11, "an id out of range was taken"


def scored_answers(rng: random.Random, folder: Path) -> None:
    """Prompts and answers to score, some with ids out of range, some empty."""
    model = LanguageModel(models()["gpt"], NextWord(models()["gpt"].token)).eval()
    texts = [
        [rng.choice((1, 2, 3, 10, 10, 11, -1)) for _ in range(rng.randrange(4))] for _ in "abc"
    ]
    cut = rng.randrange(4)
    found = log_likelihoods(model, texts[:cut], texts[cut:])
    assert all(0 <= token < 11 for text in texts for token in text), "an id out of range was taken"
    assert found.shape == (cut, 3 - cut)
    assert (found <= 0).all()


def batches(rng: random.Random, folder: Path) -> None:
    """Settings of batches: refused, or the first batches have whole rows of the vocabulary."""
    tokens = corpus()
    numbers = (0, 1, 2, 3, 5, 9, 40, 2.5, -1, True, None, "3", 10**30, float("nan"))
    length, batch, seed = (rng.choice(numbers) for _ in range(3))
    kind = rng.randrange(4)
    match kind:
        case 0:
            made = Windows(tokens, length, batch=batch, seed=seed, framed=rng.random() < 0.5)
        case 1:
            stride = rng.choice(numbers)
            made = Streams(tokens, length, stride, batch=batch, seed=seed)
            length += 1
        case 2:
            made = Examples(tokens, length, batch=batch, seed=seed, bucketed=rng.random() < 0.5)
        case _:
            made = Pairs(tokens, length, rng.choice(("next", "order")), batch=batch, seed=seed)
    first = made.at(rng.choice((0, 1, 7, 10**6)))
    assert len(first) == batch or kind == 2
    assert 0 <= first.tokens.min() <= first.tokens.max() < tokens.vocabulary.size
    assert first.tokens.shape[1] <= length
    assert Batch.of(first.tokens).real.all()


@functools.cache
def corpus() -> Any:
    """The tokens of some documents."""
    texts = [". ".join(itertools.islice(itertools.cycle(TEXTS), n)) for n in range(1, 9)]
    return tokenize(from_documents(texts), tokenizers()["bpe"])


KINDS: dict[str, Attempt] = {
    "tokenizers": tokenizer_json,
    "word-lists": word_lists,
    "token-ids": token_ids,
    "tables": tables,
    "texts": text_files,
    "worlds": world_files,
    "weights": weights_folders,
    "token-caches": token_caches,
    "cache": cache_entries,
    "sweeps": sweep_rows,
    "parameters": notebook_parameters,
    "sampling": sampler_settings,
    "masks": masks,
    "model-inputs": model_inputs,
    "answers": scored_answers,
    "batches": batches,
}
