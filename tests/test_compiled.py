"""Every model under torch.compile: the same states and the same gradients as without.

The attention models beside BERT are compiled in test_attention_models.py, GPT-2 all the way down
to machine code. Here the compiler's capture and its way back are checked, without code generation.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

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
from labkit.models.word_vectors import WordVectors, WordVectorsConfig

V = 12
WORDS = [chr(97 + i) * (1 + i % 4) for i in range(V)]
KERNELS = ((1, 4), (2, 4))

# One layer, which the compiler follows as it would the next one; two where they differ.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "BERT": lambda: BERT(BERTConfig(V, width=8, layers=1, heads=2, context=16)),
    "RoBERTa": lambda: BERT(
        BERTConfig(V, width=8, layers=1, heads=2, context=16, segments=1, unused_positions=2)
    ),
    "DistilBERT": lambda: BERT(BERTConfig(V, width=8, layers=1, heads=2, context=16, segments=0)),
    "GPT": lambda: GPT(GPTConfig(V, width=8, layers=1, heads=2, context=16, norm_first=False)),
    "GPT-3": lambda: GPT(GPTConfig(V, width=8, layers=2, heads=2, context=16, band=3)),
    "rotary": lambda: GPT(GPTConfig(V, width=8, layers=1, heads=2, context=16, rotary=True)),
    "experts": lambda: GPT(GPTConfig(V, width=8, layers=1, heads=2, context=16, experts=3)),
    "word vectors": lambda: WordVectors(WordVectorsConfig(V, width=8)),
    "bag of words": lambda: Bag(BagConfig(V, width=8)),
    "CNN": lambda: Convolutions(ConvolutionsConfig(V, width=8)),
    "Elman": lambda: Recurrent(RecurrentConfig(V, width=8, cell="elman")),
    "GRU": lambda: Recurrent(RecurrentConfig(V, width=8, cell="gru")),
    "LSTM": lambda: Recurrent(RecurrentConfig(V, width=8, cell="lstm")),
    "AWD-LSTM": lambda: AWDLSTM(AWDLSTMConfig(V, width=8, inner=10, layers=2)),
    "ELMo": lambda: ELMo(
        ELMoConfig(V, longest=8, letter_width=4, kernels=KERNELS, width=6, inner=9), WORDS
    ),
}


def states_and_gradients(
    model: nn.Module, read: Callable[..., Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The hidden states, and the gradient of their squares by each parameter."""
    hidden = read()
    hidden.square().mean().backward()
    named = model.named_parameters()
    return hidden.detach(), {name: p.grad for name, p in named if p.grad is not None}


def check(model: nn.Module, read: Callable[[nn.Module], Tensor]) -> None:
    """The same with the compiler and without."""
    torch.compiler.reset()
    model.eval()
    other = copy.deepcopy(model)
    compiled = torch.compile(lambda: read(other), backend="aot_eager")
    mine, theirs = (
        states_and_gradients(model, lambda: read(model)),
        states_and_gradients(other, compiled),
    )
    torch.testing.assert_close(theirs[0], mine[0], atol=1e-5, rtol=1e-4)
    assert mine[1]
    assert theirs[1].keys() == mine[1].keys()
    for name, gradient in mine[1].items():
        torch.testing.assert_close(theirs[1][name], gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_compiled_it_is_the_same(name: str) -> None:
    torch.manual_seed(0)
    tokens_BT = torch.randint(0, V, (2, 7))
    check(MODELS[name](), lambda model: model(tokens_BT).hidden)


@pytest.mark.slow
def test_a_compiled_translator_is_the_same() -> None:
    torch.manual_seed(0)
    config = TransformerConfig(V, width=8, layers=1, heads=2)
    source_BK, tokens_BT = torch.randint(0, V, (2, 5)), torch.randint(0, V, (2, 4))
    check(Transformer(config), lambda model: model(tokens_BT, source_BK=source_BK).hidden)
