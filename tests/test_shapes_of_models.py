"""Every backbone runs under the checker of shapes: no name of a tensor lies.

All sizes are different, so that no two letters can be mistaken for one another.
"""

import pytest
import torch
from shapes import checked_shapes
from torch import Tensor, nn

from labkit.masking import causal, real
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
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
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig

B, T, S, D, H, F, V = 3, 7, 4, 12, 2, 20, 23
SIZES = {"vocabulary": V, "width": D}
ATTENTION = {**SIZES, "heads": H, "layers": 2, "inner": F}
BACKBONES: dict[str, nn.Module] = {
    "WordVectors": WordVectors(WordVectorsConfig(**SIZES)),
    "Bag": Bag(BagConfig(**SIZES)),
    "Recurrent": Recurrent(RecurrentConfig(**SIZES, layers=2, both_ways=True)),
    "Elman": Recurrent(RecurrentConfig(**SIZES, cell="elman")),
    "Convolutions": Convolutions(ConvolutionsConfig(**SIZES, channels=6)),
    "ELMo": ELMo(ELMoConfig(**SIZES, inner=F), map(str, range(SIZES["vocabulary"]))),
    "AWDLSTM": AWDLSTM(AWDLSTMConfig(**SIZES, inner=F)),
    "GPT": GPT(GPTConfig(**ATTENTION, context=11)),
    "GPT, narrow": GPT(GPTConfig(**ATTENTION, context=11, band=3)),
    "GPT, experts": GPT(GPTConfig(**ATTENTION, context=11, experts=5)),
    "GPT, rotary": GPT(GPTConfig(**ATTENTION, context=11, rotary=True)),
    "BERT": BERT(BERTConfig(**ATTENTION, context=11)),
    "BERT, rotary": BERT(BERTConfig(**ATTENTION, context=11, rotary=True)),
    "ALBERT": BERT(BERTConfig(**ATTENTION, context=11, embedding=5, shared=True)),
    "Transformer": Transformer(TransformerConfig(**ATTENTION)),
    "TransformerXL": TransformerXL(TransformerXLConfig(**ATTENTION, context=T, memory=4)),
    "XLNet": XLNet(XLNetConfig(**ATTENTION, context=T, memory=4)),
}
TOKENS = torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(0))


def words(name: str) -> dict[str, Tensor]:
    """Return what this backbone is given beside the tokens."""
    return {"source_BK": TOKENS[:, :S]} if name == "Transformer" else {}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", BACKBONES)
def test_no_name_lies(name: str, training: bool) -> None:
    backbone = BACKBONES[name].train(training)
    with checked_shapes() as seen:
        states = backbone(TOKENS, **words(name))
        states.hidden.sum().backward()
    assert states.hidden.shape[:2] == (B, T)
    assert "tokens_BT" in seen
    assert len(seen) > 1


@pytest.mark.parametrize("name", BACKBONES)
def test_no_name_lies_with_padding(name: str) -> None:
    padded = TOKENS.clone()
    padded[0, 5:] = 0
    mask = real(padded, 0)
    if name in ("Transformer", "TransformerXL") or name.startswith("GPT"):
        mask = mask & causal(T)
    with checked_shapes() as seen:
        BACKBONES[name].train(False)(padded, mask=mask, **words(name))
    assert "tokens_BT" in seen


@pytest.mark.parametrize(
    "name", ["AWDLSTM", "ELMo", "GPT", "Transformer", "TransformerXL", "XLNet"]
)
def test_no_name_lies_with_memory(name: str) -> None:
    backbone = BACKBONES[name].train(False)
    # Attention keeps keys and values only when asked to, with memory=().
    start = {"memory": ()} if name in ("GPT", "Transformer") else {}
    with checked_shapes() as seen:
        first = backbone(TOKENS[:, :5], **words(name), **start)
        again = backbone(TOKENS[:, 5:], memory=first.memory, **words(name))
    assert first.memory
    assert again.hidden.shape[:2] == (B, T - 5)
    assert "tokens_BT" in seen
