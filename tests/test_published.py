"""The published sizes: exact counts, against the reference's classes and against formulas."""

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch import nn

from labkit.costs import tables as cost_tables
from labkit.heads import Label, MaskedWord
from labkit.models.transformer_xl import AdaptiveWord, TransformerXL
from labkit.weights import published
from labkit.weights.release_model import read_config

NAMES = [
    "elmo",
    "awd-lstm-wikitext-2",
    "ulmfit",
    "transformer-base",
    "transformer-big",
    "openai-gpt",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt-3-small",
    "gpt-3-medium",
    "gpt-3-large",
    "gpt-3-xl",
    "gpt-3-2.7b",
    "gpt-3-6.7b",
    "gpt-3-13b",
    "gpt-3-175b",
    "bert-base-uncased",
    "bert-large-uncased",
    "roberta-base",
    "roberta-large",
    "albert-base-v2",
    "albert-large-v2",
    "albert-xlarge-v2",
    "albert-xxlarge-v2",
    "distilbert-base-uncased",
    "transformer-xl-base",
    "transformer-xl-large",
    "xlnet-base-cased",
    "xlnet-large-cased",
    "gpt-4-rumour",
]

BERT = {"vocab_size": 30522}
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
ROBERTA = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
ALBERT = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
}


def albert(width: int, layers: int, heads: int) -> dict[str, Any]:
    """What the config.json of an ALBERT says."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**ALBERT, **sizes, "intermediate_size": 4 * width}


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    """What the config.json of a GPT-2 says."""
    return {"vocab_size": 50257, "n_embd": width, "n_layer": layers, "n_head": heads}


RELEASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "openai-gpt": ("OpenAIGPT", 116_534_784, {"vocab_size": 40478}),
    "gpt2": ("GPT2", 124_439_808, gpt2(768, 12, 12)),
    "gpt2-medium": ("GPT2", 354_823_168, gpt2(1024, 24, 16)),
    "gpt2-large": ("GPT2", 774_030_080, gpt2(1280, 36, 20)),
    "gpt2-xl": ("GPT2", 1_557_611_200, gpt2(1600, 48, 25)),
    "bert-base-uncased": ("Bert", 109_482_240, BERT),
    "bert-large-uncased": ("Bert", 335_141_888, BERT | LARGE),
    "roberta-base": ("Roberta", 124_645_632, ROBERTA),
    "roberta-large": ("Roberta", 355_359_744, ROBERTA | LARGE),
    "albert-base-v2": ("Albert", 11_683_584, albert(768, 12, 12)),
    "albert-large-v2": ("Albert", 17_683_968, albert(1024, 24, 16)),
    "albert-xlarge-v2": ("Albert", 58_724_864, albert(2048, 24, 16)),
    "albert-xxlarge-v2": ("Albert", 222_595_584, albert(4096, 12, 64)),
    "distilbert-base-uncased": ("DistilBert", 66_362_880, {"vocab_size": 30522}),
    "xlnet-base-cased": (
        "XLNet",
        116_718_336,
        {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072, "mem_len": None},
    ),
    "xlnet-large-cased": (
        "XLNet",
        360_268_800,
        {"d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096, "mem_len": None},
    ),
}
"""Class of the reference, parameters of the release's base model, what its config.json says."""


def count(model: nn.Module) -> int:
    """All parameters, those that are used twice once."""
    return sum(parameter.numel() for parameter in model.parameters())


@functools.cache
def built(name: str) -> nn.Module:
    """The model of a row, built once for all tests."""
    return published.build(name)


def exact(name: str) -> int:
    """The count of a row."""
    return count(built(name))


def test_every_size_has_one_row() -> None:
    assert [row.name for row in published.ROWS] == NAMES
    with pytest.raises(dataclasses.FrozenInstanceError):
        published.ROWS[0].printed = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_has_its_count_to_the_last_parameter(name: str) -> None:
    assert exact(name) == RELEASES[name][1]


@pytest.mark.parametrize("name", RELEASES)
def test_the_reference_has_the_same_count_and_sizes(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="there is no reference")
    kind, counted, says = RELEASES[name]
    config = getattr(transformers, f"{kind}Config")(**says)
    with torch.device("meta"):
        reference = getattr(transformers, f"{kind}Model")(config)
    assert count(reference) == counted
    ours = published.row(name).config
    read = read_config(config.model_type, config.to_dict(), "config.json")
    same = {"inner": None, "pooler": True}
    same = {field: value for field, value in same.items() if hasattr(ours, field)}
    assert read.inner in (None, 4 * read.width)
    assert dataclasses.replace(read, **same) == dataclasses.replace(ours, **same)


@pytest.mark.parametrize("name", NAMES)
def test_all_are_built_without_memory(name: str) -> None:
    model = built(name)
    assert all(t.is_meta for t in [*model.parameters(), *model.buffers()])
    assert model.config == published.row(name).config


def test_a_size_can_be_built_for_real() -> None:
    model = published.build("albert-base-v2", device="cpu").eval()
    with torch.no_grad():
        hidden_BTD = model(torch.tensor([[2, 7, 9, 3]])).hidden
    assert hidden_BTD.shape == (1, 4, 768)
    assert hidden_BTD.isfinite().all()


def lstm(given: int, inner: int, out: int, biases: int) -> int:
    """Four gates from what is given and from the state, and the projection of the state."""
    projection = inner * out if out != inner else 0
    return 4 * inner * (given + out) + biases * 4 * inner + projection


def layer_norm(width: int) -> int:
    """A scale and a shift for each feature."""
    return 2 * width


def linear(given: int, made: int) -> int:
    """A matrix and a bias."""
    return (given + 1) * made


def test_elmo_by_formula() -> None:
    kernels = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    found = sum(features for _, features in kernels)
    characters = 261 * 16 + sum(linear(16 * letters, n) for letters, n in kernels)
    characters += 2 * 2 * linear(found, found) + linear(found, 512)
    assert exact("elmo") == characters + 2 * 2 * lstm(512, 4096, 512, biases=1)


def test_awd_lstm_by_formula() -> None:
    layers = lstm(400, 1150, 1150, 2) + lstm(1150, 1150, 1150, 2) + lstm(1150, 400, 400, 2)
    assert exact("awd-lstm-wikitext-2") == layers + 33_278 * 400
    assert exact("ulmfit") == layers + 238_462 * 400
    assert round((exact("awd-lstm-wikitext-2") + 33_278) / 1e6, 2) == 33.56


def transformer(width: int, inner: int, vocabulary: int) -> int:
    """Six layers each, of the encoder and of the decoder, and the words' vectors."""
    attention = 4 * linear(width, width)
    mlp = linear(width, inner) + linear(inner, width)
    encoder = attention + mlp + 2 * layer_norm(width)
    decoder = 2 * attention + mlp + 3 * layer_norm(width)
    return 6 * (encoder + decoder) + vocabulary * width


def test_the_transformer_by_formula() -> None:
    assert exact("transformer-base") == transformer(512, 2048, 37_000)
    assert exact("transformer-big") == transformer(1024, 4096, 37_000)
    # The vocabularies that the printed figures would need.
    assert round((65e6 - transformer(512, 2048, 0)) / 512, -2) == 40_700
    assert round((213e6 - transformer(1024, 4096, 0)) / 1024, -2) == 35_800


def gpt(width: int, layers: int, vocabulary: int, context: int) -> int:
    """The blocks of GPT-2 and GPT-3, their embeddings, and the last norm."""
    mlp = linear(width, 4 * width) + linear(4 * width, width)
    block = linear(width, 3 * width) + linear(width, width) + mlp + 2 * layer_norm(width)
    return layers * block + (vocabulary + context) * width + layer_norm(width)


@pytest.mark.parametrize(
    ("name", "width", "layers"),
    [
        ("gpt-3-small", 768, 12),
        ("gpt-3-medium", 1024, 24),
        ("gpt-3-large", 1536, 24),
        ("gpt-3-xl", 2048, 24),
        ("gpt-3-2.7b", 2560, 32),
        ("gpt-3-6.7b", 4096, 32),
        ("gpt-3-13b", 5120, 40),
        ("gpt-3-175b", 12288, 96),
    ],
)
def test_gpt3_by_formula(name: str, width: int, layers: int) -> None:
    row = published.row(name)
    assert exact(name) == gpt(width, layers, 50257, 2048)
    assert row.printed == pytest.approx(exact(name), rel=0.02)
    assert row.config.width % row.config.heads == 0


def test_transformer_xl_by_formula() -> None:
    for name, mlp, words in [
        ("transformer-xl-base", 2100, 267_735 * 410),
        ("transformer-xl-large", 4096, None),
    ]:
        c = published.row(name).config
        d, edges = c.width, (0, *c.cutoffs, c.vocabulary)
        if words is None:
            pieces = [(edges[i + 1] - edges[i], d // 4**i) for i in range(4)]
            words = sum(size * narrow + narrow * d for size, narrow in pieces)
        attention = 5 * d * d + 2 * d
        block = attention + linear(d, mlp) + linear(mlp, d) + 2 * layer_norm(d)
        assert exact(name) == words + c.layers * block
        if name == "transformer-xl-large":
            assert round((exact(name) - 2 * block) / 1e6) == 257, "16 layers are the printed figure"
        else:
            assert 15 * 2 * d == 12_300, "what the script shares among the layers"


def test_transformer_xl_with_its_softmax() -> None:
    backbone = published.build("transformer-xl-base")
    assert isinstance(backbone, TransformerXL)
    with torch.device("meta"):
        head = AdaptiveWord(backbone.token)
    whole = nn.ModuleList([backbone, head])
    assert round(count(whole) / 1e6, 1) == 151.1
    assert round((count(whole) - 12_300) / 1e6) == 151


def test_bert_with_its_heads() -> None:
    backbone: Any = published.build("bert-large-uncased")
    with torch.device("meta"):
        heads = [MaskedWord(backbone.token, 1024), Label(1024, 2, pool=backbone.pooler)]
    assert round(count(nn.ModuleList([backbone, *heads])) / 1e6, 1) == 336.2


def test_the_rumour_by_formula() -> None:
    c = published.row("gpt-4-rumour").config
    each = c.layers * (linear(c.width, 4 * c.width) + linear(4 * c.width, c.width))
    attention = c.layers * (linear(c.width, 3 * c.width) + linear(c.width, c.width))
    assert round(each / 1e9) == 111
    assert round(attention / 1e9) == 55
    assert 16 * 111 + 55 == 1831
    assert 2 * 111 + 55 == 277
    assert exact("gpt-4-rumour") == pytest.approx(1.831e12, rel=0.002)
    row = published.row("gpt-4-rumour")
    assert "RUMOUR" in row.source


def test_a_row_says_why_another_figure_is_in_print() -> None:
    for row in published.ROWS:
        assert row.source, row.name
        if row.printed is None or abs(row.printed - exact(row.name)) > 0.001 * row.printed:
            assert row.note, f"{row.name}: {row.printed} is printed, {exact(row.name)} is built"


def test_names_as_the_papers_write_them() -> None:
    assert published.row("GPT-3 2.7B").name == "gpt-3-2.7b"
    assert published.row("Transformer-XL Large").name == "transformer-xl-large"
    with pytest.raises(ValueError, match=r"'gpt5'.*there are elmo, .*gpt2-xl"):
        published.build("gpt5")


def test_the_file_of_sizes_is_what_is_built() -> None:
    """`python -m labkit.weights.published --store` writes it."""
    assert cost_tables.read_table("sizes") == published.sizes()


def test_counts_in_short() -> None:
    figures = {None: "-", 93_600_000: "93.6M", 117_000_000: "117M", 1_300_000_000: "1.3B"}
    figures |= {175_000_000_000: "175B", 1_800_000_000_000: "1.8T"}
    figures |= {999_940_000: "999.9M", 999_999_999: "1B", 999_999_999_999: "1T"}
    assert {count: published.short(count) for count in figures} == figures


def test_the_count_of_a_name() -> None:
    assert published.parameters("gpt2") == exact("gpt2")
    assert published.parameters("ALBERT-base-v2") == 11_683_584


def test_the_table_shows_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "parameters", exact)
    shown = published.table()
    words = shown.split()
    assert all(row.name in words for row in published.ROWS)
    assert "124,439,808" in words
    assert max(map(len, shown.splitlines())) <= 100
    whole = " ".join(words)
    assert all(text in whole for row in published.ROWS for text in (row.source, row.note))
