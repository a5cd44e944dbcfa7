"""The sizes that were published: one row each, with the parameter count in print and its source.

`build(name)` gives the backbone of a row, by default on the meta device, where even 175 billion
parameters take no memory.  Its count is that of the public release's base model, to the last
parameter: embeddings and, in BERT's family, the pooler are in, heads are not, and a weight that is
used twice counts once.  Where the printed figure is another, the row says why.

    python -m labkit.weights.published            prints the table
    python -m labkit.weights.published --store    writes the counts to data/costs/sizes.csv
    published.build("gpt2-xl")            1,557,611,200 parameters, on the meta device
"""

import contextlib
import csv
import functools
import sys
import textwrap
from dataclasses import dataclass, fields
from typing import Any

import torch

from labkit.blocks import Backbone
from labkit.costs import counting
from labkit.costs.formulas import Shape, short
from labkit.models.awd_lstm import AWDLSTMConfig
from labkit.models.bert import BERTConfig
from labkit.models.elmo import ELMoConfig
from labkit.models.gpt import GPTConfig
from labkit.models.transformer import TransformerConfig
from labkit.models.transformer_xl import TransformerXLConfig
from labkit.models.xlnet import XLNetConfig
from labkit.paths import data_path
from labkit.weights.description import from_config
from labkit.weights.tensors import WithoutInitialisation


@dataclass(frozen=True)
class Published:
    """One published size."""

    name: str
    """As the release is called on the hub, or as the paper calls the model."""
    config: Any
    printed: int | None
    """The parameter count in print; None where none is."""
    source: str
    """Where it is printed, and where the sizes are."""
    note: str = ""
    """Why the built model has another count, and what else a reader should know."""
    checked: str = "primary"
    """Where the printed count was checked, in the words of `labkit.costs.tables.CHECKED`."""


def million(figure: float) -> int:
    """A figure that is printed in millions."""
    return round(figure * 1_000_000)


def _bert(vocabulary: int, width: int, layers: int, heads: int, **more: Any) -> BERTConfig:
    return BERTConfig(vocabulary, width, layers, heads, **{"pooler": True, **more})


def _albert(width: int, layers: int, heads: int) -> BERTConfig:
    # The second version of the release, which is trained without dropout.
    fixed = {"embedding": 128, "shared": True, "activation": "gelu_tanh", "dropout": 0.0}
    return _bert(30_000, width, layers, heads, **fixed)


def _roberta(width: int, layers: int, heads: int) -> BERTConfig:
    fixed = {"segments": 1, "unused_positions": 2, "eps": 1e-5}
    return _bert(50_265, width, layers, heads, **fixed)


def _gpt2(width: int, layers: int, heads: int) -> GPTConfig:
    return GPTConfig(50_257, width, layers, heads, context=1024)


def _gpt3(width: int, layers: int, heads: int) -> GPTConfig:
    return GPTConfig(50_257, width, layers, heads, context=2048)


CUTOFFS = (20_000, 40_000, 200_000)
"""Where the vocabulary of WikiText-103, 267,735 words, is cut: the authors' training scripts."""

GPT2 = "Radford et al. 2019, Table 2"
GPT2_NOTE = "the authors' repository says that the counts in the paper were wrong by mistake"
GPT3 = "Brown et al. 2020, Table 2.1"
GPT3_NOTE = "rounded in print; every other layer sees a band of unprinted width, here all see all"
ALBERT = "Lan et al. 2020, Table 1"
ALBERT_NOTE = "the release's second version; rounded up in print"
TRANSFORMER = "Vaswani et al. 2017, Table 3; vocabulary: section 5.1"
XL = "Dai et al. 2019, Table 1; sizes: the authors' training scripts"
XLNET = "list of pre-trained models in Transformers 2.2; sizes: Yang et al. 2019, appendix A.4"
XLNET_NOTE = (
    "the list repeats BERT's figure; XLNet has no table of positions and no pooler, but a matrix "
    "for distances in each layer"
)

ROWS = (
    Published(
        "elmo",
        ELMoConfig(clip=3.0),
        million(93.6),
        "the authors' page of ELMo's releases; sizes: Peters et al. 2018, section 3.4",
        "without the softmax over words, which the release does not have",
        checked="memory",
    ),
    Published(
        "awd-lstm-wikitext-2",
        AWDLSTMConfig(33_278),
        million(33),
        "Merity et al. 2018, Table 2; sizes: section 5",
        "33.56M with the bias of the head; each LSTM has two biases, as torch keeps them",
    ),
    Published(
        "ulmfit",
        AWDLSTMConfig(238_462, hidden_dropout=0.3, embedding_dropout=0.05),
        None,
        "sizes: Howard and Ruder 2018, section 4.1",
        "no count is printed; the vocabulary is that of the released weights for WikiText-103, of "
        "which the paper's tasks take over the words that they need",
    ),
    Published(
        "transformer-base",
        TransformerConfig(37_000),
        million(65),
        TRANSFORMER,
        "the vocabulary is 'about 37000' in print; 65M would need 40,700 words, 213M of the big "
        "model 35,800: no single vocabulary gives both",
    ),
    Published(
        "transformer-big",
        TransformerConfig(37_000, width=1024, heads=16, inner=4096, dropout=0.3),
        million(213),
        TRANSFORMER,
        "see transformer-base",
    ),
    Published(
        "openai-gpt",
        GPTConfig(40_478, 768, 12, 12, context=512, norm_first=False),
        million(117),
        f"{GPT2}, which calls its smallest model the size of GPT; sizes: Radford et al. 2018, "
        "section 4.1",
        "rounded up in print; the paper of GPT itself prints no count",
    ),
    Published("gpt2", _gpt2(768, 12, 12), million(117), GPT2, GPT2_NOTE),
    Published("gpt2-medium", _gpt2(1024, 24, 16), million(345), GPT2, GPT2_NOTE),
    Published("gpt2-large", _gpt2(1280, 36, 20), million(762), GPT2, GPT2_NOTE),
    Published("gpt2-xl", _gpt2(1600, 48, 25), million(1542), GPT2, GPT2_NOTE),
    Published("gpt-3-small", _gpt3(768, 12, 12), million(125), GPT3, GPT3_NOTE),
    Published("gpt-3-medium", _gpt3(1024, 24, 16), million(350), GPT3, GPT3_NOTE),
    Published("gpt-3-large", _gpt3(1536, 24, 16), million(760), GPT3, GPT3_NOTE),
    Published(
        "gpt-3-xl",
        _gpt3(2048, 24, 16),
        million(1300),
        GPT3,
        "24 heads of 128 are printed, which are not 2048; 16 heads of 128 are; " + GPT3_NOTE,
    ),
    Published("gpt-3-2.7b", _gpt3(2560, 32, 32), million(2700), GPT3, GPT3_NOTE),
    Published("gpt-3-6.7b", _gpt3(4096, 32, 32), million(6700), GPT3, GPT3_NOTE),
    Published(
        "gpt-3-13b",
        _gpt3(5120, 40, 40),
        million(13_000),
        GPT3,
        "a width of 5140 is printed, which 40 heads of 128 do not make; 5120 is; " + GPT3_NOTE,
    ),
    Published("gpt-3-175b", _gpt3(12_288, 96, 96), million(175_000), GPT3, GPT3_NOTE),
    Published(
        "bert-base-uncased",
        _bert(30_522, 768, 12, 12),
        million(110),
        "Devlin et al. 2019, section 3",
        "rounded in print",
    ),
    Published(
        "bert-large-uncased",
        _bert(30_522, 1024, 24, 16),
        million(340),
        "Devlin et al. 2019, section 3",
        "rounded up in print; 336.2M with the heads for words and sentences",
    ),
    Published(
        "roberta-base",
        _roberta(768, 12, 12),
        million(125),
        "the authors' list of releases; sizes: Liu et al. 2019, sections 4 and 4.4",
        "rounded in print",
    ),
    Published(
        "roberta-large",
        _roberta(1024, 24, 16),
        million(355),
        "Liu et al. 2019, section 5",
        "rounded in print",
    ),
    Published("albert-base-v2", _albert(768, 12, 12), million(12), ALBERT, ALBERT_NOTE),
    Published("albert-large-v2", _albert(1024, 24, 16), million(18), ALBERT, ALBERT_NOTE),
    Published("albert-xlarge-v2", _albert(2048, 24, 16), million(60), ALBERT, ALBERT_NOTE),
    Published(
        "albert-xxlarge-v2",
        _albert(4096, 12, 64),
        million(235),
        ALBERT,
        "the release's second version; the sizes in the same table do not give the printed figure",
    ),
    Published(
        "distilbert-base-uncased",
        _bert(30_522, 768, 6, 12, segments=0, pooler=False),
        million(66),
        "Sanh et al. 2019, Table 3",
        "rounded in print",
    ),
    Published(
        "transformer-xl-base",
        TransformerXLConfig(267_735, 410, 16, 10, inner=2100, cutoffs=CUTOFFS),
        million(151),
        XL,
        "151.1M with the biases of the adaptive softmax; here each layer has its own u and v, "
        "which the script shares among all layers (12,300 numbers)",
    ),
    Published(
        "transformer-xl-large",
        TransformerXLConfig(
            267_735, 1024, 18, 16, context=384, memory=384, cutoffs=CUTOFFS, shrink=4, dropout=0.2
        ),
        million(257),
        XL,
        "the script and the release have 18 layers; the printed figure is that of 16 layers",
    ),
    Published(
        "xlnet-base-cased",
        XLNetConfig(32_000, 768, 12, 12),
        million(110),
        XLNET,
        XLNET_NOTE,
        checked="memory",
    ),
    Published(
        "xlnet-large-cased",
        XLNetConfig(32_000, 1024, 24, 16),
        million(340),
        XLNET,
        XLNET_NOTE,
        checked="memory",
    ),
    Published(
        "gpt-4-rumour",
        GPTConfig(100_277, 10_752, 120, 84, context=8192, experts=16, experts_used=2),
        million(1_800_000),
        "a RUMOUR: an unconfirmed report of July 2023 (SemiAnalysis)",
        "what is reported: 120 layers, 16 experts of 111B, 55B of attention, together "
        "16 * 111B + 55B = 1,831B, of which 2 * 111B + 55B = 277B work on each token; the width is "
        "ours, and gives both figures at once",
        checked="secondary",
    ),
)


def row(name: str) -> Published:
    """The row of a name; the papers' way of writing it will do: "GPT-3 2.7B"."""
    key = name.lower().replace(" ", "-")
    for each in ROWS:
        if each.name == key:
            return each
    raise ValueError(
        f"no published size is called {name!r}: there are {', '.join(each.name for each in ROWS)}"
    )


def build(name: str, device: torch.device | str = "meta") -> Backbone:
    """The backbone of a published size, its weights newly drawn; on "meta", it has no numbers."""
    config = row(name).config
    # There is nothing to draw where there are no numbers.
    drawn = (
        WithoutInitialisation() if torch.device(device).type == "meta" else contextlib.nullcontext()
    )
    with torch.device(device), drawn:
        return from_config(config)


@functools.cache
def parameters(name: str) -> int:
    """The exact parameter count of the backbone."""
    return sum(parameter.numel() for parameter in build(name).parameters())


def shape_of(config: Any) -> Shape | None:
    """The sizes that the formulas need, from the config of a stack of equal blocks."""
    sizes = {field.name for field in fields(config)}
    if not {"layers", "heads", "inner", "context"} <= sizes:
        return None
    experts = (config.experts if "experts" in sizes else None) or 1
    return Shape(
        layers=config.layers,
        width=config.width,
        vocabulary=config.vocabulary,
        context=config.context,
        inner=config.inner,
        heads=config.heads,
        experts=experts,
        experts_used=config.experts_used if experts > 1 else 1,
        causal=isinstance(config, GPTConfig | TransformerXLConfig),
        band=config.band if "band" in sizes else None,
    )


def sizes() -> list[dict[str, str]]:
    """The rows of data/costs/sizes.csv: what a bill needs, so that it need not build a model."""
    found = []
    for each in ROWS:
        counted, shape = counting.parameters(build(each.name)), shape_of(each.config)
        row = {"name": each.name, "parameters": counted.total, "active": counted.active}
        row |= {field.name: getattr(shape, field.name, None) for field in fields(Shape)}
        found.append({name: "" if value is None else str(value) for name, value in row.items()})
    return found


def table(columns: int = 100) -> str:
    """All rows, for the eye."""
    lines = [f"{'name':24} {'printed':>9} {'exact':>19}  {'layers':>6} {'width':>6}"]
    for each in ROWS:
        shape = f"{each.config.layers:>6} {each.config.width:>6}"
        figures = f"{short(each.printed):>9} {parameters(each.name):>19,}  {shape}"
        lines.append(f"{each.name:24} {figures}")
        for text in (f"source ({each.checked}): {each.source}", each.note and f"note: {each.note}"):
            lines += [f"    {line}" for line in textwrap.wrap(text, columns - 4)]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--store"]:
        with open(data_path("costs") / "sizes.csv", "w", newline="", encoding="utf-8") as file:
            rows = sizes()
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    else:
        print(table())
