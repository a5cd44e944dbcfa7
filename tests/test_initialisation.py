"""What the weights of each family are before training: the rule of its release, with its source."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from labkit.blocks import Backbone
from labkit.heads import MaskedWord
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import Recurrent, RecurrentConfig
from labkit.models.transformer import Transformer, TransformerConfig
from labkit.models.transformer_xl import AdaptiveEmbedding, TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig

V, D, L, F, H = 400, 96, 3, 256, 4


class Rule:
    """A distribution of mean zero, unless said otherwise."""

    def __init__(self, std: float, *, mean: float = 0.0, largest: float = math.inf) -> None:
        self.std, self.mean, self.largest = std, mean, largest


def normal(std: float, mean: float = 0.0) -> Rule:
    """A normal distribution, whose largest of some 100,000 numbers is 3 to 6 deviations away."""
    return Rule(std, mean=mean)


def uniform(limit: float) -> Rule:
    """From -limit to limit: the deviation is limit / sqrt(3)."""
    return Rule(limit / math.sqrt(3), largest=limit)


def constant(value: float) -> Rule:
    """The same everywhere."""
    return Rule(0.0, mean=value, largest=abs(value))


def xavier(rows: int, columns: int) -> Rule:
    """Glorot and Bengio 2010: uniform, with a variance of 2 / (rows + columns)."""
    return uniform(math.sqrt(6 / (rows + columns)))


ZERO, ONE = constant(0.0), constant(1.0)
SMALL = {"norm.weight": ONE, "norm.bias": ZERO, ".bias": ZERO}
"""Norms of one, biases of zero: the same in all Transformers."""
SCALED = normal(0.02 / math.sqrt(2 * L))

# Endings of names and their rules; of several that fit, the first counts.
RULES: dict[str, tuple[Callable[[], Backbone], dict[str, Rule]]] = {
    # Radford et al. 2019, section 2.3: "we scale the weights of residual layers at initialization
    # by a factor of 1/sqrt(N) where N is the number of residual layers"; 0.02 is that of the
    # release (gpt-2/src/model.py: w_init_stdev=0.02, wte 0.02; its wpe has 0.01) and, for all
    # weights, of transformers (modeling_gpt2.py, _init_weights).
    "GPT-2": (
        lambda: GPT(GPTConfig(V, D, L, H, 64, F)),
        SMALL | {"attention.out.weight": SCALED, "mlp.down.weight": SCALED, "": normal(0.02)},
    ),
    # The same rule where a block has several feed-forwards, of which each writes into the stream.
    "GPT-2 with experts": (
        lambda: GPT(GPTConfig(V, D, L, H, 64, F, experts=3)),
        SMALL | {"attention.out.weight": SCALED, "down.weight": SCALED, "": normal(0.02)},
    ),
    # Radford et al. 2018, section 4.1: "a simple weight initialization of N(0, 0.02)".
    "GPT": (
        lambda: GPT(GPTConfig(V, D, L, H, 64, F, norm_first=False)),
        SMALL | {"": normal(0.02)},
    ),
    # bert/modeling.py, initializer_range=0.02 (there cut off at two deviations, which PyTorch's
    # releases, modeling_bert.py and RoBERTa's fairseq init_bert_params, do not do).
    "BERT": (
        lambda: BERT(BERTConfig(V, D, L, H, 64, F, pooler=True)),
        SMALL | {"": normal(0.02)},
    ),
    # albert/modeling.py: the same, for the narrow embeddings and the matrix behind them as well.
    "ALBERT": (
        lambda: BERT(BERTConfig(V, D, L, H, 64, F, embedding=64, shared=True)),
        SMALL | {"": normal(0.02)},
    ),
    # xlnet/xlnet.py, RunConfig: init="normal", init_std=0.02, for u, v, s and the query's start,
    # too (modeling.py, relative_positional_encoding).
    "XLNet": (
        lambda: XLNet(XLNetConfig(V, D, L, H, inner=F)),
        SMALL | {"": normal(0.02)},
    ),
    # transformer-xl/pytorch/train.py, weights_init: init_std=0.02, proj_init_std=0.01 for the
    # matrices behind the narrower embeddings, norms from N(1, 0.02), biases zero.
    "Transformer-XL": (
        lambda: TransformerXL(
            TransformerXLConfig(V, D, L, H, inner=F, cutoffs=(100, 200), shrink=2)
        ),
        {"norm.weight": normal(0.02, mean=1.0), "norm.bias": ZERO, ".bias": ZERO}
        | {"token.up.*": normal(0.01), "": normal(0.02)},
    ),
    # The Annotated Transformer (Rush 2018), make_model: xavier_uniform for every matrix; the
    # embeddings, which the paper's section 3.4 multiplies by sqrt(D), have unit variance then.
    "Transformer": (
        lambda: Transformer(TransformerConfig(V, D, L, H, F)),
        SMALL
        | {"token.weight": normal(D**-0.5), "query_key_value.weight": xavier(D, D)}
        | {"out.weight": xavier(D, D), "": xavier(D, F)},
    ),
    # awd-lstm-lm/model.py, init_weights: initrange = 0.1; the rest is nn.LSTM's own rule.
    "AWD-LSTM": (
        lambda: AWDLSTM(AWDLSTMConfig(V, D, F, 2)),
        {"token.weight": uniform(0.1), "blocks.0.*": uniform(F**-0.5), "": uniform(D**-0.5)},
    ),
    # bilm-tf/bilm/training.py: letters uniform(-1, 1), kernels uniform(-0.05, 0.05), highways and
    # the projection normal(sqrt(1 / features)), carry bias -2; the LSTM's kernel over [input,
    # state] is tf.get_variable's own rule, Glorot's, for all gates as one matrix, forget_bias=1.
    "ELMo": (
        lambda: ELMo(ELMoConfig(0, 12, 16, ((1, 32), (3, 64)), 2, D, F, 2)),
        {"letter.weight": uniform(1.0), "gate.bias": constant(-2.0), "change.bias": ZERO}
        | {f"kernels.{i}.weight": uniform(0.05) for i in range(2)}
        | {f"kernels.{i}.bias": ZERO for i in range(2)}
        | {"token.out.bias": ZERO, "weight_hr_l0": xavier(F, D)}
        | {"token.out.weight": normal(96**-0.5), "gate.weight": normal(96**-0.5)}
        | {"change.weight": normal(96**-0.5), "bias_ih_l0": Rule(math.sqrt(3) / 4, mean=0.25)}
        | {"": xavier(2 * D, 4 * F)},
    ),
    # word2vec.c, InitNet: syn0 uniform in (-0.5, 0.5) / D, syn1neg zero.
    "word vectors": (
        lambda: WordVectors(WordVectorsConfig(V, D)),
        {"token.weight": uniform(0.5 / D), "": ZERO},
    ),
    # No release: PyTorch's own rule for nn.LSTM, and for nn.Embedding.
    "LSTM": (
        lambda: Recurrent(RecurrentConfig(V, D)),
        {"token.weight": normal(1.0), "": uniform(D**-0.5)},
    ),
    # The Elman network follows nn.RNN's rule.
    "Elman": (
        lambda: Recurrent(RecurrentConfig(V, D, cell="elman")),
        {"token.weight": normal(1.0), "": uniform(D**-0.5)},
    ),
}


def rule_of(name: str, rules: dict[str, Rule]) -> Rule:
    """The first rule that fits the name: by its end, or by its beginning if it ends in a star."""
    fits = (
        rule
        for part, rule in rules.items()
        if (name.startswith(part[:-1]) if part.endswith("*") else name.endswith(part))
    )
    return next(fits)


def check(name: str, weight: Tensor, rule: Rule) -> None:
    """Mean and deviation within what chance allows: some five standard errors of each."""
    numbers = weight.detach().double().flatten()
    assert float(numbers.abs().max()) <= rule.largest * (1 + 1e-6), name
    error = rule.std / math.sqrt(len(numbers))
    assert float(numbers.mean()) == pytest.approx(rule.mean, abs=5 * error + 1e-12), name
    assert float(numbers.std(correction=0)) == pytest.approx(rule.std, abs=4 * error + 1e-12), name
    if rule.largest == math.inf and len(numbers) > 5000:
        # A normal distribution has tails: beyond two deviations lie 4.6 % of it.
        beyond = float(((numbers - rule.mean).abs() > 2 * rule.std).double().mean())
        assert beyond == pytest.approx(0.0455, abs=0.015), name


@pytest.mark.parametrize("family", RULES)
def test_every_weight_follows_the_rule_of_its_release(family: str) -> None:
    make, rules = RULES[family]
    torch.manual_seed(0)
    for name, weight in make().named_parameters():
        check(name, weight, rule_of(name, rules))


@pytest.mark.parametrize("family", RULES)
def test_a_wrong_scale_would_be_seen(family: str) -> None:
    """Ten times the deviation, or a tenth more, in any matrix: the check is not too wide."""
    make, rules = RULES[family]
    torch.manual_seed(0)
    for name, weight in make().named_parameters():
        rule = rule_of(name, rules)
        if rule.std and weight.numel() > 5000:
            for factor in (0.1, 0.9, 1.1, 10.0):
                with pytest.raises(AssertionError):
                    check(name, weight * factor, rule)


def test_the_residual_stream_does_not_grow_with_the_depth() -> None:
    """What the rule of GPT-2 is for: the sum over all blocks is as large as two writes alone."""
    found = []
    for layers in (2, 12):
        torch.manual_seed(0)
        model = GPT(GPTConfig(V, D, layers, H, 64, F, dropout=0.0))
        tokens_BT = torch.randint(0, V, (4, 64))
        first, last = model(tokens_BT).layers[0], model(tokens_BT).layers[-2]
        found.append(float((last - first).detach().std()))
    assert found[1] < 1.5 * found[0]


def test_the_head_of_bert() -> None:
    """bert/run_pretraining.py, get_masked_lm_output: 0.02 for the layer before, a bias of zero."""
    torch.manual_seed(0)
    head = MaskedWord(nn.Embedding(V, D))
    check("dense", head.dense.weight, normal(0.02))
    assert not head.dense.bias.any()
    assert not head.words.bias.any()


def test_a_head_leaves_the_embedding_as_it_is() -> None:
    embedding = nn.Embedding(V, D)
    before = embedding.weight.clone()
    MaskedWord(embedding)
    assert embedding.weight.equal(before)


def test_pieces_of_an_embedding_have_one_rule() -> None:
    torch.manual_seed(0)
    token = TransformerXL(
        TransformerXLConfig(V, D, 1, H, inner=F, cutoffs=(100, 200), shrink=2)
    ).token
    assert isinstance(token, AdaptiveEmbedding)
    for piece in token.pieces:
        check("piece", piece.weight, normal(0.02))  # type: ignore[arg-type]
