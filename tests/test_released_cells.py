"""Cells that ask a released model run with a folder that the reference library wrote."""

from pathlib import Path
from typing import Any

import pytest
import torch
from releases import write_release
from stored import cells

from classroom.claims import village
from labkit import sampling
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.weights import WeightsError

TEXT = ["Washington is the capital of the US.", "The most beautiful place in Austria is here."]


def ask(notebook: str, part: str, **names: Any) -> None:
    """Run the one cell of a notebook with these words."""
    [cell] = [one for one in cells(notebook) if part in "".join(one["source"])]
    exec("".join(cell["source"]), {"torch": torch, **names})


@pytest.mark.parametrize("shards", ["5GB", "6KB"])
def test_the_real_gpt_2_answers_where_it_is(
    shards: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    tokenizer = Tokenizer.bpe(TEXT, 300)
    theirs = write_release("GPT2LMHeadModel", tmp_path, vocab_size=len(tokenizer))
    if shards != "5GB":
        (tmp_path / "model.safetensors").unlink()
        theirs.save_pretrained(tmp_path, max_shard_size=shards)
    tokenizer.save(tmp_path / "tokenizer.json")
    names = {"sampling": sampling, "how": Sampling(length=4), "samples": 2, "seed": 0}
    ask("06", "real_gpt, real_pieces", released=str(tmp_path), **names)
    said = capsys.readouterr().out
    assert said.count("Washington is the capital of ...") == 2
    assert said.count("The most beautiful place in Austria is ...") == 2
    ask("06", "real_gpt, real_pieces", released="", **names)
    said = capsys.readouterr().out
    assert said == 'The real GPT-2 is not loaded: set released = "gpt2" to ask it.\n'


def test_the_real_bert_fills_in_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    tokenizer = Tokenizer.word_pieces(TEXT, 80)
    write_release("BertForMaskedLM", tmp_path, vocab_size=len(tokenizer))
    tokenizer.save(tmp_path / "tokenizer.json")
    ask("08", "real_bert, real_pieces", released=str(tmp_path), village=village)
    assert "Washington is the [MASK] of the US." in capsys.readouterr().out
    ask("08", "real_bert, real_pieces", released="", village=village)
    said = 'the real BERT: not asked: set released = "bert-base-uncased"\n'
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("notebook", ["06", "08"])
def test_a_release_that_cannot_be_had_fails_the_run_that_asked_for_it(
    notebook: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match="there is no folder"):
        ask(notebook, ", real_pieces = ", released=str(tmp_path / "none"))
