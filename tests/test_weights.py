"""Folders of models: what is read equals the reference, and what is damaged is refused by name."""

import json
import os
import re
import resource
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import copies
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from releases import CASES, answers, our_answers, reference, write_release
from safetensors.torch import load_file, save_file
from torch import nn

import labkit.weights as weights
from labkit.blocks import Backbone, Classifier, LanguageModel, States
from labkit.heads import Label, MaskedWord, NextWord, Pooled, Span
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig, WeightedSum
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Recurrent,
    RecurrentConfig,
)
from labkit.models.transformer import Transformer, TransformerConfig
from labkit.models.transformer_xl import AdaptiveWord, TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.text.tokenizers import Tokenizer
from labkit.transfer.mixed import Mixed
from labkit.weights import WeightsError, ours

pytest.importorskip("transformers", reason="the reference implementation is not installed")

# Numbers that no family takes for padding, whose places RoBERTa would not count.
TOKENS = torch.tensor([[5, 11, 60, 7, 33, 2, 8], [9, 9, 3, 12, 41, 55, 6]])


def tiny_gpt() -> LanguageModel:
    """A small language model of our own."""
    torch.manual_seed(3)
    backbone = GPT(GPTConfig(vocabulary=61, width=16, layers=2, heads=4, context=40))
    return LanguageModel(backbone, NextWord(backbone.token))


def same(a: nn.Module, b: nn.Module) -> bool:
    """Whether two models have the same tensors, bit for bit, with the same ties."""
    one, two = a.state_dict(), b.state_dict()
    return (
        one.keys() == two.keys()
        and all(torch.equal(one[name], two[name]) for name in one)
        and [name for name, _ in a.named_parameters()] == [name for name, _ in b.named_parameters()]
    )


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking memory for a model is a failure."""

    def refuse(*_: Any) -> None:
        raise AssertionError("memory of the model's size was taken before the file was checked")

    monkeypatch.setattr(weights, "_build", refuse)


# Releases


@pytest.mark.parametrize("name", CASES)
def test_a_release_gives_the_answers_of_the_reference(name: str, tmp_path: Path) -> None:
    theirs = write_release(name, tmp_path)
    ours = weights.load(tmp_path)
    for ours_said, theirs_said in zip(
        our_answers(ours, TOKENS), answers(theirs, TOKENS), strict=True
    ):
        torch.testing.assert_close(ours_said, theirs_said, atol=1e-5, rtol=1e-5)
    assert not ours.training
    count = sum(p.numel() for p in theirs.parameters())
    assert sum(p.numel() for p in ours.parameters()) == count


@pytest.mark.parametrize("name", CASES)
def test_a_release_written_back_is_the_same_bit_for_bit(name: str, tmp_path: Path) -> None:
    import transformers

    theirs = write_release(name, tmp_path / "theirs")
    weights.save_release(weights.load(tmp_path / "theirs"), tmp_path / "ours")
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "ours" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    again, report = getattr(transformers, name).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(again).__name__ == name
    for one, two in zip(answers(theirs, TOKENS), answers(again.eval(), TOKENS), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForPreTraining", "XLNetLMHeadModel"])
def test_a_release_in_several_files(name: str, tmp_path: Path) -> None:
    theirs = reference(name)
    theirs.save_pretrained(tmp_path, max_shard_size="6KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    (said, *_), (known, *_) = our_answers(weights.load(tmp_path), TOKENS), answers(theirs, TOKENS)
    torch.testing.assert_close(said, known, atol=1e-5, rtol=1e-5)
    (tmp_path / sorted(p.name for p in tmp_path.glob("*.safetensors"))[1]).unlink()
    with pytest.raises(WeightsError, match=r"model-00002.*missing"):
        weights.load(tmp_path)


def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    reference("GPT2Model").save_pretrained(tmp_path / "model", max_shard_size="6KB")
    index = tmp_path / "model" / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    key = next(iter(table["weight_map"]))
    for bad in ("../secret.safetensors", "/etc/passwd", "..", "model.bin"):
        table["weight_map"][key] = bad
        index.write_text(json.dumps(table))
        with pytest.raises(WeightsError, match="not a safetensors file in this folder"):
            weights.load(tmp_path / "model")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the tensors of a release."""
    path = folder / "model.safetensors"
    save_file({k: v.clone() for k, v in change(load_file(path)).items()}, path)


def old_style(found: dict[str, Any]) -> dict[str, Any]:
    """How the first releases say it: gamma and beta, tables that are no weights, tied copies."""
    new = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in found.items()
    }
    new["bert.embeddings.position_ids"] = torch.arange(40)[None]
    new["cls.predictions.decoder.weight"] = found["bert.embeddings.word_embeddings.weight"]
    new["cls.predictions.decoder.bias"] = found["cls.predictions.bias"]
    return new


def test_names_of_the_first_releases(tmp_path: Path) -> None:
    theirs = write_release("BertForPreTraining", tmp_path)
    rewrite(tmp_path, old_style)
    for said, known in zip(
        our_answers(weights.load(tmp_path), TOKENS), answers(theirs, TOKENS), strict=True
    ):
        torch.testing.assert_close(said, known, atol=1e-5, rtol=1e-5)


def test_a_head_without_prefix_and_with_masks(tmp_path: Path) -> None:
    """As gpt2 stands on the hub: no prefix, a mask in each layer, the head in `architectures`."""
    theirs = write_release("GPT2LMHeadModel", tmp_path)

    def change(found: dict[str, Any]) -> dict[str, Any]:
        new = {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
        masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(2)}
        return new | masks | {"h.0.attn.masked_bias": torch.tensor(-1e4)}

    rewrite(tmp_path, change)
    ours = weights.load(tmp_path)
    assert isinstance(ours, LanguageModel)
    assert ours.head.words.weight is ours.backbone.token.weight
    torch.testing.assert_close(
        our_answers(ours, TOKENS)[0], answers(theirs, TOKENS)[0], atol=1e-5, rtol=1e-5
    )


# A flipped bit of an exponent makes a weight of 1e37, whose products overflow.
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e37, -1e37])
def test_numbers_that_are_not_finite_are_refused(bad: float, tmp_path: Path) -> None:
    write_release("GPT2LMHeadModel", tmp_path)
    name = "transformer.h.1.ln_2.bias"

    def change(found: dict[str, Any]) -> dict[str, Any]:
        found[name][3] = bad
        return found

    rewrite(tmp_path, change)
    with pytest.raises(WeightsError, match=rf"'{name}' in .*model\.safetensors .* not finite"):
        weights.load(tmp_path)


def test_a_description_has_a_limit_of_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_release("GPT2LMHeadModel", tmp_path)
    monkeypatch.setattr("labkit.weights.tensors.LARGEST_JSON", 100)
    with pytest.raises(WeightsError, match=r"config\.json has [\d,]+ bytes: at most 100 are read"):
        weights.load(tmp_path)


def test_a_tied_copy_must_be_a_copy(tmp_path: Path) -> None:
    write_release("GPT2LMHeadModel", tmp_path)

    def copy(found: dict[str, Any]) -> dict[str, Any]:
        return found | {"lm_head.weight": found["transformer.wte.weight"].clone()}

    rewrite(tmp_path, copy)
    weights.load(tmp_path)

    def other(found: dict[str, Any]) -> dict[str, Any]:
        found["lm_head.weight"][3, 3] += 1
        return found

    rewrite(tmp_path, other)
    with pytest.raises(WeightsError, match=r"'lm_head.weight'.*model.safetensors.*tied"):
        weights.load(tmp_path)


@pytest.mark.parametrize("name", ["OpenAIGPTLMHeadModel", "GPT2LMHeadModel", "XLNetLMHeadModel"])
def test_a_head_that_is_not_tied(name: str, tmp_path: Path) -> None:
    theirs = write_release(name, tmp_path / "theirs", tie_word_embeddings=False)
    ours = weights.load(tmp_path / "theirs")
    assert isinstance(ours, LanguageModel)
    assert ours.head.words.weight is not ours.backbone.token.weight
    torch.testing.assert_close(
        our_answers(ours, TOKENS)[0], answers(theirs, TOKENS)[0], atol=1e-5, rtol=1e-5
    )
    weights.save_release(ours, tmp_path / "ours")
    assert same(weights.load(tmp_path / "ours"), ours)
    files = [load_file(tmp_path / who / "model.safetensors") for who in ("theirs", "ours")]
    assert files[0].keys() == files[1].keys()
    weights.save(ours, tmp_path / "own")
    assert same(weights.load(tmp_path / "own"), ours)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept_unless_another_is_asked(dtype: torch.dtype, tmp_path: Path) -> None:
    reference("BertForMaskedLM").to(dtype).save_pretrained(tmp_path / "theirs")
    ours = weights.load(tmp_path / "theirs")
    assert {p.dtype for p in ours.parameters()} == {dtype}
    wide = weights.load(tmp_path / "theirs", dtype=torch.float64)
    assert all(
        torch.equal(w, o.double())
        for w, o in zip(wide.parameters(), ours.parameters(), strict=True)
    )
    weights.save_release(ours, tmp_path / "ours")
    assert same(weights.load(tmp_path / "ours"), ours)
    assert torch.get_default_dtype() == torch.float32


def test_an_xlnet_is_a_release_whatever_its_segments_in_training_were(tmp_path: Path) -> None:
    import transformers

    backbone = XLNet(XLNetConfig(61, 16, 2, 4, context=24))
    model = LanguageModel(backbone, NextWord(backbone.token, bias=True)).eval()
    weights.save_release(model, tmp_path)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).eval()
    tokens_BT = torch.arange(10)[None]
    scores = model.head(backbone(tokens_BT).hidden)
    assert torch.allclose(theirs(tokens_BT).logits, scores, atol=1e-5)


def test_a_folder_of_checkpoints_says_how_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"does not hold a model.* are read by Trainer.*resume"):
        weights.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="save the tokenizer beside the weights"):
        weights.load_tokenizer(tmp_path)


def test_what_a_release_cannot_say_is_refused(tmp_path: Path) -> None:
    c = GPTConfig(vocabulary=61, width=16, layers=2, heads=4, context=40)
    cases: list[tuple[nn.Module, str]] = [
        (GPT(GPTConfig(61, 16, 2, 4, 40, band=3)), "band=3"),
        (GPT(GPTConfig(61, 16, 2, 4, 40, experts=4)), "experts=4"),
        (GPT(GPTConfig(61, 16, 2, 4, 40, rotary=True)), "rotary=True"),
        (GPT(GPTConfig(61, 16, 2, 4, 40, inner=24, norm_first=False)), "inner=24"),
        (BERT(BERTConfig(61, 16, 2, 4, 40, shared=True)), "embedding=None"),
        (Bag(BagConfig(61)), "Bag"),
    ]
    gpt, bert = GPT(c), BERT(BERTConfig(61, 16, 2, 4, 40))
    xlnet = XLNet(XLNetConfig(61, 16, 2, 4))
    cases += [
        (LanguageModel(gpt, NextWord(gpt.token, bias=True)), "head.bias=True"),
        (LanguageModel(bert, MaskedWord(bert.token, 16, activation="relu")), "head.activation"),
        (Classifier(gpt, Label(16, 2)), "a head for label"),
        (Classifier(bert, Label(16, 2)), r"bert family has a pooler .* BERTConfig\(pooler=True\)"),
        (Classifier(bert, Label(16, 2, pooled=False)), r"none .*or its backbone alone with save_"),
        (LanguageModel(xlnet, NextWord(xlnet.token)), "xlnet family cannot say head.bias=False"),
        (nn.Linear(16, 2), "no public release of the kind of Linear"),
    ]
    for model, words in cases:
        with pytest.raises(WeightsError, match=words):
            weights.save_release(model, tmp_path / "never")
        assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel"])
def test_generation_stops_at_the_separator_of_the_tokenizer(name: str, tmp_path: Path) -> None:
    import transformers

    text = "the king sees [SEP] the queen"
    tokenizer = Tokenizer.words([text])
    norm_first = name == "GPT2LMHeadModel"
    backbone = GPT(GPTConfig(len(tokenizer), 16, 1, 4, 40, norm_first=norm_first))
    model = LanguageModel(backbone, NextWord(backbone.token, tied=False))
    with torch.no_grad():
        # The state of every position is all ones, and only the separator looks for that.
        norm = backbone.norm if norm_first else backbone.blocks[0].mlp_norm
        norm.weight.zero_()
        norm.bias.fill_(1.0)
        model.head.words.weight.zero_()
        model.head.words.weight[tokenizer.vocabulary.sep] = 1.0
    weights.save_release(model, tmp_path, tokenizer=tokenizer)
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path)
    given = pieces(text, return_tensors="pt")
    # Segments would be added as embeddings of words.
    assert set(given) == {"input_ids", "attention_mask"}
    assert given["input_ids"][0].tolist() == tokenizer.encode(text, special=True)
    said = theirs.generate(**given, max_new_tokens=9, do_sample=False)
    assert said[0].tolist() == [*tokenizer.encode(text, special=True), tokenizer["[SEP]"]]
    assert theirs.config.pad_token_id == pieces.pad_token_id == tokenizer["[PAD]"]
    assert weights.load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    with torch.no_grad():
        ours = weights.load(tmp_path).head(backbone(given["input_ids"]).hidden)
        torch.testing.assert_close(theirs(**given).logits, ours, atol=1e-5, rtol=1e-5)


def test_a_vocabulary_of_ones_own_does_not_end_at_the_token_of_gpt2(tmp_path: Path) -> None:
    import transformers

    weights.save_release(tiny_gpt(), tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.bos_token_id is config.eos_token_id is None
    assert transformers.GPT2Config().eos_token_id == 50256


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.words(["the king sees the queen"])
    size = len(tokenizer)
    small = GPT(GPTConfig(size - 1, 16, 2, 4, 40))
    with pytest.raises(WeightsError, match=rf"has {size} tokens, the model {size - 1}: give"):
        weights.save_release(small, tmp_path / "never", tokenizer=tokenizer)
    roberta = BERT(BERTConfig(size, 16, 2, 4, 40, segments=1, unused_positions=2))
    with pytest.raises(WeightsError, match="roberta family cannot say pad=0, its padding is tok"):
        weights.save_release(roberta, tmp_path / "never", tokenizer=tokenizer)
    assert not (tmp_path / "never").exists()


def test_an_albert_without_an_activation_has_that_of_its_family(tmp_path: Path) -> None:
    theirs = write_release("AlbertModel", tmp_path, hidden_act="gelu_new")
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in values.items() if k != "hidden_act"}))
    (said,), (known,) = our_answers(weights.load(tmp_path), TOKENS), answers(theirs, TOKENS)
    torch.testing.assert_close(said, known, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("GPT2Model", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("GPT2Model", {"activation_function": "silu"}, "activation_function='silu'"),
        ("BertModel", {"hidden_act": "silu"}, "hidden_act='silu'"),
        ("BertModel", {"model_type": "llama"}, "'llama'"),
        ("BertModel", {"vocab_size": "many"}, "vocab_size: 'many'"),
        ("BertModel", {"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ("BertModel", {"num_hidden_layers": 10**6}, "says 1000000 layers"),
        ("BertModel", {"num_attention_heads": 3}, "does not divide"),
        ("BertModel", {"max_position_embeddings": None}, "describes no model"),
        ("RobertaModel", {"pad_token_id": 0}, "pad_token_id=0"),
        # Its tensors are called as those of a label of the whole text.
        (
            "BertForSequenceClassification",
            {"architectures": ["BertForTokenClassification"]},
            "says architectures='BertForTokenClassification', a head for a label of every word",
        ),
        ("XLNetModel", {"attn_type": "uni"}, "attn_type='uni'"),
        ("XLNetModel", {"d_head": 8}, "d_head=8, labkit's xlnet has 4 or None only"),
        ("XLNetForSequenceClassification", {"summary_type": "mean"}, "summary_type='mean'"),
        ("XLNetForSequenceClassification", {"summary_activation": "relu"}, "has 'tanh' only"),
        ("XLNetForSequenceClassification", {"summary_use_proj": False}, "summary_use_proj=False"),
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_a_release_that_we_do_not_have(
    name: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_release(name, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(WeightsError, match=words):
        weights.load(tmp_path)


def test_how_much_a_release_remembers(tmp_path: Path) -> None:
    write_release("XLNetModel", tmp_path / "theirs", mem_len=9)
    model = weights.load(tmp_path / "theirs")
    assert isinstance(model, XLNet)
    assert model.config.memory == 9
    weights.save_release(model, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["mem_len"] == 9


def test_a_folder_of_another_model_is_not_overwritten(tmp_path: Path) -> None:
    model = tiny_gpt()
    weights.save_release(model, tmp_path)
    with torch.no_grad():
        model.backbone.token.weight += 1
    weights.save_release(model, tmp_path)
    assert same(weights.load(tmp_path), model)
    other = BERT(BERTConfig(61, 16, 2, 4, 40))
    with pytest.raises(WeightsError, match="another model"):
        weights.save_release(other, tmp_path)
    assert same(weights.load(tmp_path), model)
    weights.save(model, tmp_path / "own")
    with pytest.raises(WeightsError, match="another model"):
        weights.save_release(model, tmp_path / "own")


@pytest.mark.parametrize("on_weights", [None, 0.1, 0.3])
def test_a_release_says_how_often_attention_weights_are_dropped(
    tmp_path: Path, on_weights: float | None
) -> None:
    sizes = GPTConfig(20, 8, 1, 2, 6, dropout=0.1, attention_dropout=on_weights)
    gpt = GPT(sizes)
    [block] = gpt.blocks
    assert (block.attention.dropout, gpt.dropout.p) == (on_weights or 0.1, 0.1)
    weights.save_release(gpt, tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert (said["attn_pdrop"], said["resid_pdrop"]) == (on_weights or 0.1, 0.1)
    again = weights.load(tmp_path)
    # Equal rates are one rate.
    assert again.config.attention_dropout == (0.3 if on_weights == 0.3 else None)


@pytest.mark.parametrize(
    ("name", "key", "main"),
    [
        ("BertModel", "attention_probs_dropout_prob", "hidden_dropout_prob"),
        ("GPT2Model", "embd_pdrop", "resid_pdrop"),
        ("DistilBertModel", "attention_dropout", "dropout"),
    ],
)
def test_rates_of_dropout_that_a_model_has_not_are_named(
    name: str, key: str, main: str, tmp_path: Path
) -> None:
    write_release(name, tmp_path, **{key: 0.3})
    with pytest.warns(UserWarning, match=rf"{key}=0\.3, .* has {main}=0\.1 there") as found:
        model = weights.load(tmp_path)
    assert len(found) == 1
    assert found[0].filename == __file__
    assert isinstance(model, nn.Module)
    assert model.config.dropout == 0.1


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("Model")])
def test_no_release_with_the_rates_of_its_family_is_warned_of(name: str, tmp_path: Path) -> None:
    """The defaults of the reference are the sizes of the first release of each family."""
    write_release(name, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights.load(tmp_path)


# Our own format


def our_models() -> dict[str, nn.Module]:
    """One of each class that can be saved."""
    torch.manual_seed(5)
    gpt = GPT(GPTConfig(61, 16, 2, 4, 40, band=3, experts=3))
    bert = BERT(BERTConfig(61, 16, 2, 4, 40, embedding=8, shared=True, pooler=True))
    both = LanguageModel(bert, MaskedWord(bert.token, 16, activation="relu", eps=1e-3))
    both.pair = Label(16, 2, pool=bert.pooler)
    xl = TransformerXL(TransformerXLConfig(61, 16, 2, 4, cutoffs=(10, 30), shrink=2))
    rnn = Recurrent(RecurrentConfig(61, 8, both_ways=True))
    awd = AWDLSTM(AWDLSTMConfig(61, 8, 12))
    elmo = ELMo(
        ELMoConfig(vocabulary=3, longest=8, kernels=((1, 4), (3, 4)), width=6, inner=8),
        ["the", "cat", "sat"],
    )
    elmo_mix = WeightedSum(3, normalise=True)
    return {
        "gpt": LanguageModel(gpt, NextWord(gpt.token, bias=True)),
        "untied": LanguageModel(gpt, NextWord(gpt.token, tied=False)),
        "bert": both,
        "label": Classifier(bert, Label(16, 3, pooled=False, activation="relu", dropout=0.2)),
        "span": Classifier(bert, Span(16)),
        "transformer_xl": LanguageModel(xl, AdaptiveWord(xl.token)),
        "xlnet": XLNet(XLNetConfig(61, 16, 2, 4)),
        "transformer": Transformer(TransformerConfig(61, 16, 2, 4, 24)),
        "rnn": Classifier(rnn, Pooled(16, 3, parts=("mean", "last"), dropout=0.1)),
        "convolutions": Convolutions(ConvolutionsConfig(61, 8, 4, kernels=(3, 5))),
        "bag": Bag(BagConfig(61, 8)),
        "vectors": WordVectors(WordVectorsConfig(61, 8)),
        "awd_lstm": LanguageModel(awd, NextWord(awd.token, bias=True)),
        "elmo": LanguageModel(elmo, NextWord(nn.Embedding(3, 6), tied=False)),
        "elmo mixed": Classifier(Mixed(elmo, elmo_mix), Pooled(12, 2, inner=None)),
    }


@pytest.mark.parametrize("name", our_models())
def test_every_model_comes_back(name: str, tmp_path: Path) -> None:
    model = our_models()[name]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    weights.save(model, tmp_path)
    again = weights.load(tmp_path)
    assert same(again, model)
    assert repr(again.eval()) == repr(model.eval())
    assert ours.describe(again) == ours.describe(model)
    distinct = [{id(t) for t in m.state_dict(keep_vars=True).values()} for m in (model, again)]
    assert len(distinct[0]) == len(distinct[1])


def test_models_that_came_back_answer_the_same(tmp_path: Path) -> None:
    for name, model in our_models().items():
        if name == "transformer":
            continue
        model.eval()
        weights.save(model, tmp_path / name)
        again = weights.load(tmp_path / name)
        tokens = TOKENS % 3 if "elmo" in name else TOKENS
        backbones = (getattr(m, "backbone", m) for m in (model, again))
        one, two = (backbone(tokens).hidden for backbone in backbones)
        assert torch.equal(one, two), name


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    model = tiny_gpt()
    weights.save(model, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    assert "head.words.weight" not in load_file(file)
    numbers = sum(p.numel() for p in model.parameters())
    assert 4 * numbers < file.stat().st_size < 4 * numbers + 10_000


def rounded_gpt() -> tuple[LanguageModel, dict[str, float]]:
    """A model in float16 whose matrices, but one, are whole multiples of 1/64."""
    model, steps = tiny_gpt(), {}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "position" not in name:
                weight.copy_((weight * 64).round() / 64)
                steps[name] = 1 / 64
    return model.half(), steps


def test_multiples_of_a_step_take_a_byte_each_and_come_back(tmp_path: Path) -> None:
    model, steps = rounded_gpt()
    with torch.no_grad():
        model.backbone.token.weight[0, :3] = torch.tensor([-0.0, 127 / 64, -127 / 64])
    weights.save(model, tmp_path / "two")
    weights.save(model, tmp_path / "one", steps=steps)
    both = [weights.load(tmp_path / name) for name in ("one", "two")]
    assert all(same(again, model) for again in both)
    assert {p.dtype for p in both[0].parameters()} == {torch.float16}
    whole = weights.load(tmp_path / "one", dtype=torch.float32)
    assert same(whole, model.float())
    one, two = (next((tmp_path / name).glob("*.safetensors")) for name in ("one", "two"))
    saved = sum(weight.numel() for name, weight in model.named_parameters() if name in steps)
    # A header has no fixed size.
    assert abs(two.stat().st_size - one.stat().st_size - saved) < 300
    assert one.name != two.name
    # A whole number is a step, too.
    with torch.no_grad():
        model.half().backbone.token.weight.mul_(0)
    weights.save(model, tmp_path / "three", steps={"backbone.token.weight": 1})
    assert same(weights.load(tmp_path / "three"), model)


def test_other_numbers_are_in_another_file(tmp_path: Path) -> None:
    """A crash between the two files of a model leaves the old one whole."""
    model, steps = rounded_gpt()
    weights.save(model, tmp_path, steps=steps)
    before = next(tmp_path.glob("*.safetensors")).name
    with torch.no_grad():
        model.backbone.token.weight[0, 0] += 1 / 64
    weights.save(model, tmp_path, steps=steps)
    assert next(tmp_path.glob("*.safetensors")).name != before


@pytest.mark.parametrize("number", [128 / 64, -128 / 64, 1 / 128, float("nan"), float("inf")])
def test_what_is_no_multiple_of_its_step_is_refused(number: float, tmp_path: Path) -> None:
    model, steps = rounded_gpt()
    with torch.no_grad():
        model.backbone.token.weight[3, 1] = number
    with pytest.raises(ValueError, match=r"'backbone\.token\.weight' is not made of .* 0\.015625"):
        weights.save(model, tmp_path, steps=steps)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="float16"):
        weights.save(rounded_gpt()[0].float(), tmp_path, steps=steps)
    with pytest.raises(ValueError, match=r"no tensor 'backbone\.token\.weights' .*token\.weight'"):
        weights.save(model, tmp_path, steps={"backbone.token.weights": 1.0})


@pytest.mark.parametrize("steps", [[1], {"backbone.token.weight": "1"}])
def test_steps_that_are_no_numbers_are_refused(steps: Any, tmp_path: Path) -> None:
    model, known = rounded_gpt()
    weights.save(model, tmp_path, steps=known)
    path = tmp_path / "labkit.json"
    seal(path, json.loads(path.read_text()) | {"steps": steps})
    with pytest.raises(WeightsError, match="numbers by names"):
        weights.load(tmp_path)


def test_another_step_or_none_is_found(tmp_path: Path) -> None:
    model, known = rounded_gpt()
    weights.save(model, tmp_path, steps=known)
    path = tmp_path / "labkit.json"
    whole = json.loads(path.read_text())
    for steps in ({name: 2 * step for name, step in known.items()}, {}):
        seal(path, whole | {"steps": steps})
        with pytest.raises(WeightsError, match=r"numbers are not those|holds torch\.int8"):
            weights.load(tmp_path)


def test_letters_take_two_bytes_in_a_file(tmp_path: Path) -> None:
    """In older folders they take eight, and so do numbers that are larger than any letter."""
    elmo = our_models()["elmo"].backbone
    for added, dtype in ((0, torch.int16), (2**16, torch.int64)):
        elmo.spelling += added
        weights.save(elmo, tmp_path)
        [file] = tmp_path.glob("*.safetensors")
        assert load_file(file)["spelling"].dtype == dtype
        for wanted in (None, torch.float32):
            again = weights.load(tmp_path, dtype=wanted)
            assert again.spelling.dtype == torch.int64
            assert torch.equal(again.spelling, elmo.spelling)


def test_mixed_dtypes_come_back(tmp_path: Path) -> None:
    model = tiny_gpt().bfloat16()
    model.backbone.norm.float()
    weights.save(model, tmp_path)
    again = weights.load(tmp_path)
    assert same(again, model)
    kinds = [{name: t.dtype for name, t in m.state_dict().items()} for m in (model, again)]
    assert kinds[0] == kinds[1]
    assert {p.dtype for p in weights.load(tmp_path, dtype=torch.float64).parameters()} == {
        torch.float64
    }


def test_nothing_is_drawn_that_the_file_overwrites(tmp_path: Path) -> None:
    for name, model in our_models().items():
        weights.save(model, tmp_path / name)
        torch.manual_seed(0)
        weights.load(tmp_path / name)
        drawn = torch.rand(3)
        torch.manual_seed(0)
        assert torch.equal(drawn, torch.rand(3)), name


def test_a_description_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    weights.save(tiny_gpt(), tmp_path / "model")
    path = tmp_path / "model" / "labkit.json"
    whole = json.loads(path.read_text())
    for bad in ("../weights-a.safetensors", "/etc/passwd", None, ["a"], "weights-0.safetensors"):
        seal(path, whole | {"weights": bad})
        with pytest.raises(WeightsError, match="which is not in"):
            weights.load(tmp_path / "model")
    for name in ("weights", "model", "checksums"):
        seal(path, {key: value for key, value in whole.items() if key != name})
        with pytest.raises(WeightsError):
            weights.load(tmp_path / "model")
    seal(path, whole | {"format": 2})
    with pytest.raises(WeightsError, match="the format 2"):
        weights.load(tmp_path / "model")


def test_a_model_that_its_config_does_not_describe_is_refused(tmp_path: Path) -> None:
    model = tiny_gpt()
    model.backbone.blocks[0].mlp.up = nn.Linear(16, 65)
    with pytest.raises(WeightsError, match=r"backbone\.blocks\.0\.mlp\.up"):
        weights.save(model, tmp_path)
    with pytest.raises(WeightsError, match="cannot describe a Linear"):
        weights.save(nn.Linear(2, 2), tmp_path)
    with pytest.raises(WeightsError, match="cannot describe a head Linear"):
        weights.save(LanguageModel(tiny_gpt().backbone, nn.Linear(16, 2)), tmp_path)


@dataclass(frozen=True)
class OwnConfig:
    """A config of a reader's own."""

    vocabulary: int = 61
    width: int = 8
    held: Any = None
    sizes: list[int] | None = None
    by_name: dict[str, list[int]] | None = None
    pairs: tuple[list[int], ...] = ()


class Own(Backbone):
    """A backbone whose tensors are of every kind, some in a dtype of their own."""

    config: OwnConfig

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.token, self.blocks = nn.Embedding(61, 8), nn.ModuleList()
        self.gain = nn.Parameter(torch.ones(8, dtype=torch.float32))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("steps", torch.arange(8, dtype=torch.int32))
        self.register_buffer("none", torch.zeros(0, 3))
        kept = torch.arange(8).float() / 7
        self.register_buffer("frequencies", kept, persistent=False)
        seed = torch.Generator().manual_seed(1)
        # On "meta", no seed is of use.
        if not kept.is_meta:
            kept = torch.empty(8).normal_(generator=seed)
        self.register_buffer("drawn", kept, persistent=False)

    def forward(self, tokens_BT: torch.Tensor, *, mask: Any = None) -> States:
        return States((self.token(tokens_BT) * self.gain * self.frequencies + self.drawn,))


def own_model(**config: Any) -> LanguageModel:
    backbone = Own(OwnConfig(**config))
    return LanguageModel(backbone, NextWord(backbone.token))


@pytest.mark.parametrize(
    "config",
    [
        {"held": (1, ("two", 3.0), None, True)},
        {"held": {"a": (1, 2), "b": {"c": None}}},
        {"held": float("inf")},
        {"held": "\ud800"},
        {"sizes": [3, 4]},
        {"by_name": {"a": [3, 4]}},
        {"pairs": ([3, 4], [5])},
        {"held": None, "sizes": None},
    ],
)
def test_a_config_of_ones_own_comes_back(config: dict[str, Any], tmp_path: Path) -> None:
    weights.save(own_model(**config), tmp_path)
    assert weights.load(tmp_path).backbone.config == OwnConfig(**config)


def test_a_list_comes_back_as_a_tuple_where_no_list_is_annotated(tmp_path: Path) -> None:
    weights.save(own_model(held=[3, [4]]), tmp_path)
    assert weights.load(tmp_path).backbone.config.held == (3, (4,))


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("held", {1: 4}),
        ("held", {"a": {None: 1}}),
        ("held", torch.relu),
        ("held", torch.float32),
        ("held", torch.ones(2)),
        ("held", BagConfig(61)),
        ("held", {1, 2}),
        ("held", CIRCLE),
    ],
)
def test_a_field_that_would_come_back_as_something_else_is_named(
    field: str, value: Any, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=f"OwnConfig cannot be saved: its field '{field}' is ."):
        weights.save(own_model(**{field: value}), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_class_whose_annotations_cannot_be_read_hinders_no_other(tmp_path: Path) -> None:
    """As those of a class inside of a function, under `from __future__ import annotations`."""

    class Late(type):
        """What Python 3.14 does with a name that is not defined."""

        @property
        def __annotations__(cls) -> Any:
            raise NameError("name 'Nowhere' is not defined")

    late = Late("LateConfig", (Own,), {})
    lost = type("Lost", (Own,), {"__annotations__": {"config": "Nowhere"}})
    assert {late, lost} <= set(Own.__subclasses__())
    weights.save_release(tiny_gpt(), tmp_path / "release")
    weights.load(tmp_path / "release")
    with pytest.raises(WeightsError, match=r"annotations of Lost .* 'Nowhere' .* top level of a"):
        weights.save(lost(OwnConfig()), tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_head_with_two_names_comes_back_with_both(tmp_path: Path) -> None:
    for bias in (False, True):
        model = tiny_gpt()
        model.head = NextWord(model.backbone.token, bias=bias)
        model.words = model.head
        weights.save(model, tmp_path)
        again = weights.load(tmp_path)
        assert again.words is again.head
        assert same(again, model)
        with pytest.raises(
            WeightsError, match=r"cannot say head\.bias|cannot say words\.as='head'"
        ):
            weights.save_release(model, tmp_path / "release")


def test_heads_come_back_in_their_order(tmp_path: Path) -> None:
    """The names of the parameters, by which an optimizer counts them, have that order, too."""
    model = tiny_gpt()
    for name in "qwertyuiop":
        model.add_module(name, Span(16))
    weights.save(model, tmp_path)
    assert same(weights.load(tmp_path), model)


def test_weights_that_are_tied_in_another_way_are_refused(tmp_path: Path) -> None:
    model = tiny_gpt()
    one, two = Span(16), Span(16)
    two.ends = one.ends
    model.one, model.two = one, two
    with pytest.raises(WeightsError, match=r"'two\.ends\.weight': it has .* tied to one\.ends"):
        weights.save(model, tmp_path)
    # Tied to the other of two heads: not one name of a tensor is another.
    bert = BERT(BERTConfig(61, 16, 2, 4, 40, pooler=True))
    model = Classifier(bert, Label(16, 16, pool=bert.pooler))
    model.other = Label(16, 16)
    model.other.pool = model.head.labels
    with pytest.raises(
        WeightsError, match=r"'other\.pool\.weight': it has .* tied to head\.labels"
    ):
        weights.save(model, tmp_path)


SAVES = [weights.save, weights.save_release]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.int8])
def test_a_dtype_that_could_not_be_read_is_refused(
    save: Any, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = tiny_gpt()
    model.backbone.position.weight.requires_grad_(False)
    model.backbone.position.weight.data = model.backbone.position.weight.data.to(dtype)
    with pytest.raises(WeightsError, match=rf"'(backbone\.position|wpe)\.weight'.* of {dtype}"):
        save(model, tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("save", SAVES)
def test_tensors_that_are_no_tensors_of_their_own_are_refused(save: Any, tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = tiny_gpt()
    with pytest.raises(WeightsError, match='is on the device "meta": it has no numbers'):
        save(empty, tmp_path / "never")
    model = tiny_gpt()
    model.head.words.weight = nn.Parameter(model.backbone.token.weight.data)
    with pytest.raises(WeightsError, match=r"weight' share their memory, .*\.data\.clone\(\)$"):
        save(model, tmp_path / "never")
    model = tiny_gpt()
    model.temperature = nn.Parameter(torch.ones(1))
    with pytest.raises(WeightsError, match=r"at 'temperature': it has \[1\], a model of that"):
        save(model, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_release_with_numbers_that_could_not_be_read_is_refused(tmp_path: Path) -> None:
    for bad in (float("nan"), 1e37):
        model = tiny_gpt()
        with torch.no_grad():
            model.backbone.norm.bias[2] = bad
        with pytest.raises(WeightsError, match=r"'ln_f\.bias' has numbers that are not finite, or"):
            weights.save_release(model, tmp_path / "never")
        assert not (tmp_path / "never").exists()


def test_an_activation_without_a_name_is_refused(tmp_path: Path) -> None:
    model = Classifier(tiny_gpt().backbone, Label(16, 2))
    model.head.activation = torch.sigmoid
    with pytest.raises(WeightsError, match=r"activation .*sigmoid.* choose gelu, .* or tanh$"):
        weights.save(model, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_kind_of_tensor_comes_back(dtype: torch.dtype, tmp_path: Path) -> None:
    model = own_model().to(dtype).eval()
    weights.save(model, tmp_path)
    for again in (weights.load(tmp_path), weights.load(tmp_path, dtype=dtype)):
        for one, two in ((model.state_dict(), again.state_dict()), all_buffers(model, again)):
            assert {name: t.dtype for name, t in one.items()} == {
                n: t.dtype for n, t in two.items()
            }
            assert all(torch.equal(one[name], two[name]) for name in one)
        with torch.no_grad():
            assert torch.equal(model(TOKENS), again(TOKENS))


def all_buffers(*models: nn.Module) -> list[dict[str, torch.Tensor]]:
    """The buffers of models, also those that no file holds."""
    return [dict(model.named_buffers()) for model in models]


def test_a_state_that_is_no_tensor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "get_extra_state", lambda self: {"seen": 3})
    with pytest.raises(WeightsError, match=r"'backbone\._extra_state' is a dict: only tensors"):
        weights.save(own_model(), tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("name", ["count", "steps"])
def test_whole_numbers_of_another_kind_are_refused(name: str, tmp_path: Path) -> None:
    model = own_model()
    setattr(model.backbone, name, getattr(model.backbone, name).to(torch.int16))
    with pytest.raises(WeightsError, match=rf"'backbone\.{name}': it has .* of torch\.int16, a"):
        weights.save(model, tmp_path)


def test_a_model_of_a_class_derived_from_a_whole_is_refused(tmp_path: Path) -> None:
    class Own(LanguageModel):
        """A language model that may compute something else."""

    model = tiny_gpt()
    with pytest.raises(WeightsError, match=r"cannot describe a Own; .* in LanguageModel or Class"):
        weights.save(Own(model.backbone, model.head), tmp_path)


def test_a_name_in_a_file_imports_and_runs_nothing(tmp_path: Path) -> None:
    weights.save(tiny_gpt(), tmp_path)
    path = tmp_path / "labkit.json"
    for name in ("os.system", "Linear", "__import__('os')", "labkit.models.gpt.GPT"):
        whole = json.loads(path.read_text())
        whole["model"]["backbone"]["class"] = name
        seal(path, whole)
        with pytest.raises(WeightsError, match="there is no model"):
            weights.load(tmp_path)


def seal(path: Path, whole: dict[str, Any]) -> None:
    """Write a description as a program that means harm would: with a right checksum."""
    whole.pop("checksum", None)
    path.write_text(json.dumps({**whole, "checksum": ours._hash(whole)}))


@pytest.mark.parametrize(
    "change",
    [
        {"width": -1},
        {"width": "16"},
        {"width": None},
        {"heads": 0},
        {"heads": 5},
        {"unknown": 1},
        {"vocabulary": [1, 2]},
        {"width": 17},
        {"layers": 1},
        {"layers": 3},
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_a_config_that_builds_another_model_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    weights.save(tiny_gpt(), tmp_path)
    path = tmp_path / "labkit.json"
    whole = json.loads(path.read_text())
    whole["model"]["backbone"]["config"] |= change
    seal(path, whole)
    with pytest.raises(WeightsError):
        weights.load(tmp_path)


# Damage


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the numbers behind it."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def with_header(path: Path, header: Any, numbers: bytes) -> None:
    """A safetensors file with any header."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


KEY = "transformer.h.0.mlp.c_fc.weight"


def damage(kind: str, path: Path) -> None:
    """Damage a file of GPT-2."""
    header, numbers = header_of(path)
    raw, at = path.read_bytes(), header[KEY]["data_offsets"]
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "truncated header":
            path.write_bytes(raw[:100])
        case "truncated numbers":
            path.write_bytes(raw[: len(raw) - len(numbers) + at[1] - 1])
        case "longer":
            path.write_bytes(raw + b"\0")
        case "missing":
            rewrite(path.parent, lambda found: {k: v for k, v in found.items() if k != KEY})
        case "extra":
            rewrite(path.parent, lambda found: found | {"surprise": torch.zeros(2)})
        case "shape":
            rewrite(path.parent, lambda found: found | {KEY: torch.zeros(16, 65)})
        case "turned":
            rewrite(path.parent, lambda found: found | {KEY: found[KEY].T.contiguous()})
        case "integers":
            rewrite(path.parent, lambda found: found | {KEY: found[KEY].int()})
        case "dtype":
            with_header(path, header | {KEY: header[KEY] | {"dtype": "F8"}}, numbers)
        case "size":
            with_header(path, header | {KEY: header[KEY] | {"shape": [16, 63]}}, numbers)
        case "negative":
            with_header(path, header | {KEY: header[KEY] | {"shape": [-16, -64]}}, numbers)
        case "huge":
            with_header(path, header | {KEY: header[KEY] | {"shape": [2**62, 2**62]}}, numbers)
        case "overlap":
            moved = header[KEY] | {"data_offsets": [at[0] - 4, at[1] - 4]}
            with_header(path, header | {KEY: moved}, numbers)
        case "twice":
            entry = json.dumps(header[KEY] | {"data_offsets": [at[0] - 4, at[1] - 4]})
            text = json.dumps(header)[:-1] + f', "{KEY}": {entry}}}'
            path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + numbers)
        case "no table":
            with_header(path, [1, 2], numbers)
        case "deep":
            path.write_bytes(struct.pack("<Q", 200_000) + b"[" * 200_000)
        case "no json":
            path.write_bytes(raw[:8] + b"\xff" + raw[9:])
        case "pickle":
            torch.save({"weight": torch.zeros(2)}, path)
        case "pointer":
            path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
        case "page":
            path.write_text("<!DOCTYPE html><html>not found</html>")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "no safetensors file"),
        ("truncated header", "truncated"),
        ("truncated numbers", "damaged or truncated"),
        ("longer", "damaged or truncated"),
        ("missing", "tensor 'h.0.mlp.c_fc.weight'.*missing"),
        ("extra", "'surprise'"),
        ("shape", rf"'{KEY}'.*\[16, 65\].*\[16, 64\]"),
        ("turned", rf"'{KEY}'.*\[64, 16\].*\[16, 64\]"),
        ("integers", f"'{KEY}'.*int32"),
        ("dtype", r"model\.safetensors.*F8"),
        ("size", "damaged or truncated"),
        ("negative", "damaged or truncated"),
        ("huge", "damaged or truncated"),
        ("overlap", "damaged or truncated"),
        ("twice", "damaged or truncated"),
        ("no table", "damaged"),
        ("deep", "damaged"),
        ("no json", "damaged"),
        ("pickle", "pickle"),
        ("pointer", "Git LFS"),
        ("page", "web page"),
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_a_damaged_release_names_file_and_tensor(kind: str, words: str, tmp_path: Path) -> None:
    write_release("GPT2LMHeadModel", tmp_path)
    damage(kind, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=words) as caught:
        weights.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of our own."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(1)
    model = GPT(GPTConfig(7, 4, 1, 2, 5))
    with torch.no_grad():
        model.token.weight.copy_((model.token.weight * 512).round().clamp(-127, 127) / 512)
    weights.save(model.half(), folder, steps={"token.weight": 1 / 512})
    return folder


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_flipped_bit_of_our_folders_is_found(data: st.DataObject, saved: Path) -> None:
    path = data.draw(st.sampled_from(sorted(saved.iterdir())))
    raw = path.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    flipped = bytearray(raw)
    flipped[bit // 8] ^= 1 << bit % 8
    good = weights.load(saved)
    try:
        path.write_bytes(flipped)
        try:
            again = weights.load(saved)
        except WeightsError as error:
            said = str(error)
        else:
            said = str(saved)
            # What the numbers do not depend on: the metadata, blanks between words.
            assert same(again, good)
            assert ours.describe(again) == ours.describe(good)
    finally:
        path.write_bytes(raw)
    assert str(saved) in said


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0, 1, exclude_max=True), which=st.integers(0, 1))
def test_every_truncated_file_of_ours_is_found(share: float, which: int, saved: Path) -> None:
    path = sorted(saved.iterdir())[which]
    raw = path.read_bytes()
    cut = raw[: int(share * len(raw))]
    try:
        path.write_bytes(cut)
        # The last byte of the JSON is the end of a line.
        if path.suffix == ".json" and cut.rstrip().endswith(b"}") and len(cut) == len(raw) - 1:
            return
        with pytest.raises(WeightsError, match=str(saved)):
            weights.load(saved)
    finally:
        path.write_bytes(raw)


def test_a_description_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Not every change gives another shape: this one would only train differently."""
    weights.save(tiny_gpt(), tmp_path)
    path = tmp_path / "labkit.json"
    path.write_text(path.read_text().replace('"dropout": 0.1', '"dropout": 0.9'))
    with pytest.raises(WeightsError, match=r"labkit\.json is damaged or was edited"):
        weights.load(tmp_path)


@pytest.mark.usefixtures("no_memory")
def test_a_flipped_number_is_found_before_memory_is_taken(tmp_path: Path) -> None:
    weights.save(tiny_gpt(), tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    header, numbers = header_of(path)
    name = "backbone.blocks.1.attention.out.weight"
    at = path.stat().st_size - len(numbers) + header[name]["data_offsets"][0] + 5
    raw = bytearray(path.read_bytes())
    raw[at] ^= 16
    path.write_bytes(raw)
    with pytest.raises(WeightsError, match=rf"'{name}' in .*{path.name} is damaged"):
        weights.load(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what /proc tells")
def test_memory_stays_small_until_the_file_is_checked(tmp_path: Path) -> None:
    """A header that promises 40 GB is refused by a process that may use little memory."""
    write_release("GPT2Model", tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"n_embd": 40_000}))

    def load() -> None:
        # On top of what the tests before have left in this process.
        used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
        assert used is not None
        most = (int(used[1]) << 10) + (4 << 30)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        with pytest.raises(WeightsError, match=r"shape \[61, 16\].*\[61, 40000\]"):
            weights.load(tmp_path)

    assert os.waitstatus_to_exitcode(in_a_child(load)) == 0


# Writing


@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_save_that_fails_leaves_the_old_folder_whole(
    call: int, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tiny_gpt(), tiny_gpt()
    with torch.no_grad():
        new.backbone.norm.bias += 1
    weights.save(old, tmp_path)
    real, calls = getattr(os, function), []

    def fail(*given: Any) -> None:
        calls.append(given)
        if len(calls) > 2 * call if function == "fsync" else len(calls) > call:
            raise OSError(28, "No space left on device")
        real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="No space"):
            weights.save(new, tmp_path)
    assert same(weights.load(tmp_path), old)
    weights.save(new, tmp_path)
    assert same(weights.load(tmp_path), new)
    assert len(list(tmp_path.iterdir())) == 2, "what the failed save left behind is gone"


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a child of this process, which may be killed; its wait status."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        torch.set_num_threads(1)
        try:
            work()
        except OSError:
            os._exit(1)
        except BaseException:  # a child must never go on with the tests of its parent
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_a_full_disk_leaves_the_old_folder_whole(tmp_path: Path) -> None:
    old, new = tiny_gpt(), tiny_gpt()
    weights.save(old, tmp_path)
    with torch.no_grad():
        new.backbone.norm.bias += 1

    def save() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
        try:
            weights.save(new, tmp_path)
        except Exception as error:
            raise OSError(str(error)) from error

    assert os.waitstatus_to_exitcode(in_a_child(save)) == 1
    assert same(weights.load(tmp_path), old)


@pytest.mark.parametrize("after", ["write_tensors", "write_json"])
def test_a_killed_save_leaves_a_whole_folder(after: str, tmp_path: Path) -> None:
    """The process is killed just after one of the two files is in its place."""
    old, new = tiny_gpt(), tiny_gpt()
    weights.save(old, tmp_path)
    with torch.no_grad():
        new.backbone.norm.bias += 1

    def save() -> None:
        real = getattr(ours, after)

        def write(*given: Any) -> None:
            real(*given)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(ours, after, write)
        weights.save(new, tmp_path)

    assert os.waitstatus_to_exitcode(in_a_child(save)) == -signal.SIGKILL
    assert same(weights.load(tmp_path), old if after == "write_tensors" else new)
    # What a process leaves that is killed while it writes.
    left = tmp_path / ".unfinished-labkit.json-0123abcd"
    left.write_text("half")
    os.utime(left, (0, 0))
    weights.save(old, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


# Places


def test_what_is_no_folder_and_no_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="is a file"):
        weights.load(tmp_path / "file")
    for source in (tmp_path / "none", "./none", "a/b/c", "~/model", ""):
        with pytest.raises(WeightsError, match=r"there is no|config\.json"):
            weights.load(source)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json"):
        weights.load(tmp_path)
    write_release("GPT2Model", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"does not read pytorch_model\.bin"):
        weights.load(tmp_path)


class FakeHub:
    """The hub as a library: it hands out a folder, or fails."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def snapshot_download(self, name: str, **given: Any) -> str:
        self.asked = name, given
        if self.folder is None:
            raise OSError("cannot reach the hub\nand more lines")
        return str(self.folder)


def test_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_release("GPT2Model", tmp_path)
    hub = FakeHub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert isinstance(weights.load("someone/a-model"), GPT)
    name, given = hub.asked
    assert name == "someone/a-model"
    assert all(
        pattern.endswith((".json", ".safetensors", ".txt")) for pattern in given["allow_patterns"]
    )


def test_the_hub_is_never_asked_for_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub(None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    paths = [tmp_path / "none", str(tmp_path / "none"), Path("gpt2"), "./none", "../none"]
    for path in (*paths, "~/model", "a/b/c", "none/"):
        with pytest.raises(WeightsError, match="there is no folder"):
            weights.load(path)
    for read in (weights.load, weights.load_tokenizer):
        with pytest.raises(WeightsError, match=r"no folder runs.gpt in runs: .* the hub is not"):
            read("runs/gpt")
    assert "asked" not in vars(hub)
    with pytest.raises(WeightsError, match=r"no folder 'other/gpt', and .* from the hub"):
        weights.load("other/gpt")
    assert hub.asked[0] == "other/gpt"


def test_the_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(None))
    with pytest.raises(WeightsError, match=r"no folder 'gpt2'.*cannot reach the hub .*online"):
        weights.load("gpt2")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(WeightsError, match=r"not installed.*\[hub\]"):
        weights.load("gpt2")


def test_the_real_library_offline(tmp_path: Path) -> None:
    """What was fetched once is found; what was not gives one clear message."""
    pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    cache = tmp_path / "hub" / "models--someone--tiny"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("0123")
    write_release("GPT2Model", cache / "snapshots" / "0123")
    program = """
import labkit.weights as w
print(type(w.load("someone/tiny")).__name__)
try:
    w.load("gpt2")
except w.WeightsError as error:
    print(error)
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = copies.run(["-c", program], env=os.environ | offline)
    said = run.stdout.splitlines()
    assert said[0] == "GPT", run.stderr
    assert "there is no folder 'gpt2', and it cannot be fetched" in said[1]


def test_the_tokenizer_beside_the_weights(tmp_path: Path) -> None:
    tokenizer = Tokenizer.words(["the cat sat on the mat"])
    weights.save(tiny_gpt(), tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = weights.load_tokenizer(tmp_path)
    assert again.encode("the mat sat") == tokenizer.encode("the mat sat")
    weights.save(tiny_gpt(), tmp_path)
    assert (tmp_path / "tokenizer.json").exists()
