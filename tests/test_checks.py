"""Sizes and rates that make no sense are refused in one line, before anything is built."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from crash.tiny import Text
from torch import nn

from labkit import checks
from labkit.blocks import Backbone, LanguageModel
from labkit.heads import NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import Convolutions, ConvolutionsConfig, Recurrent, RecurrentConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer

TINY = GPTConfig(vocabulary=11, width=8, layers=1, heads=2, context=5)


def test_what_is_counted_is_in_the_plural_unless_it_is_one() -> None:
    assert [checks.counted(n, "run") for n in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]


@pytest.mark.parametrize(
    "change",
    [
        {"layers": -1},
        {"layers": 0},
        {"layers": 10**30},
        {"layers": 2.0},
        {"layers": True},
        {"width": 0},
        {"heads": 0},
        {"vocabulary": "11"},
        {"context": 10**9},
        {"inner": -4},
        {"dropout": float("nan")},
        {"dropout": 1.5},
        {"dropout": "0.1"},
        {"eps": float("nan")},
        {"eps": -1e-5},
        {"layers": None},
    ],
)
def test_a_config_out_of_range_is_refused_at_once(change):
    with pytest.raises(ValueError, match=rf"^{next(iter(change))} is .*: give a") as caught:
        GPT(dataclasses.replace(TINY, **change))
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    "build",
    [
        lambda: BERT(BERTConfig(11, 8, 0, 2, 5, shared=True)),
        lambda: TransformerXL(TransformerXLConfig(11, 8, 0, 2)),
        lambda: XLNet(XLNetConfig(11, 8, 0, 2)),
        lambda: Recurrent(RecurrentConfig(11, 8, 0, both_ways=True)),
    ],
)
def test_a_model_without_layers_is_refused(build):
    with pytest.raises(ValueError, match="layers is 0: give a whole number from 1 to 10,000"):
        build()


def test_sound_configs_of_all_kinds_pass():
    GPT(dataclasses.replace(TINY, inner=None, dropout=0, eps=0.0))
    BERT(BERTConfig(11, 8, 1, 2, 5, segments=0))
    ELMo(ELMoConfig(longest=7, width=8, inner=16, layers=1))
    TransformerXL(TransformerXLConfig(61, 16, 2, 4, cutoffs=(10, 30), shrink=2))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Convolutions(ConvolutionsConfig(11, channels=0)), "channels is 0: give a whole"),
        (lambda: ConvolutionsConfig(11, kernels=(3, 0)), r"kernels\[1\] is 0: give a whole number"),
        (
            lambda: ConvolutionsConfig(11, kernels=(2.0,)),
            r"kernels\[0\] is 2.0: give a whole number",
        ),
        (lambda: ConvolutionsConfig(11, kernels=3), r"kernels is 3: give a tuple\[int, \.\.\.\]$"),
        (lambda: ELMoConfig(11, kernels=((1, 4), (0, 4))), r"kernels\[1\]\[0\] is 0: give a whole"),
        (lambda: ELMoConfig(11, kernels=((1, True),)), r"kernels\[0\]\[1\] is True: give a whole"),
        (
            lambda: ELMoConfig(11, kernels=((1,),)),
            r"kernels\[0\] is \(1,\): give a tuple\[int, int\]",
        ),
        (lambda: ELMoConfig(11, kernels=(3, 4)), r"kernels\[0\] is 3: give a tuple\[int, int\]"),
        (lambda: ELMo(ELMoConfig(11, letter_width=0)), "letter_width is 0: give a whole number"),
        (lambda: cut(0), r"cutoffs\[0\] is 0: give a whole number from 1"),
        (lambda: cut(3, 5.5), r"cutoffs\[1\] is 5\.5: give a whole number from 1"),
        (lambda: cut(True, 5), r"cutoffs\[0\] is True: give a whole number from 1"),
        (lambda: cut(7, 3), r"cutoffs \(7, 3\) do not cut a vocabulary of 11 words"),
        (lambda: cut(11), r"cutoffs \(11,\) do not cut a vocabulary of 11 words"),
    ],
)
def test_sizes_in_a_tuple_are_checked_by_their_place(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}"):
        build()


def cut(*cutoffs: Any) -> TransformerXL:
    return TransformerXL(TransformerXLConfig(11, 8, 1, 2, cutoffs=cutoffs))


def test_whole_numbers():
    checks.check_whole("n", 3, 3, 3)
    for given in (2, 4, 3.0, True, "3", None):
        with pytest.raises(ValueError, match="give a whole number from 3 to 3"):
            checks.check_whole("n", given, 3, 3)


def test_numbers_from_zero():
    checks.check_not_negative(ar=2, tar=0.0, weight=np.float64(2))
    for given in (-1, np.float64(-1), np.float64("nan"), float("inf"), True, "2", None):
        with pytest.raises(ValueError, match=r"^ar is .*: give a number of at least 0$"):
            checks.check_not_negative(ar=given)


def test_nearest():
    assert checks.nearest("sede", ["seed", "steps"]) == "seed"
    assert checks.nearest("xyz", ["seed", "steps"]) is None


def test_a_rate_of_dropout_is_below_one() -> None:
    with pytest.raises(ValueError, match=r"dropout is 1\.0: give a number from 0 up to, not"):
        GPT(GPTConfig(20, 8, 1, 2, 8, dropout=1.0))


@dataclasses.dataclass(frozen=True)
class OwnConfig:
    """A config of a reader, with fields of many kinds."""

    vocabulary: int = 20
    width: int = 8
    base: float = 10000.0
    shift: float | None = -3.0
    dropout: float = 0.1
    embedding_dropout: float | None = None
    at: list[int] = dataclasses.field(default_factory=lambda: [1, 2])
    norm: int | str = "none"
    kind: Any = torch.float32
    activation: Callable[..., Any] = torch.tanh
    rates: tuple[float, ...] = (-1.0,)
    names: tuple[str, int] = ("a", 1)


def test_only_sizes_and_rates_are_checked() -> None:
    checks.check_config(OwnConfig())
    checks.check_config(OwnConfig(embedding_dropout=0.5, shift=None))
    for change in ({"dropout": 1.0}, {"embedding_dropout": -0.1}, {"base": float("nan")}):
        with pytest.raises(ValueError, match=rf"^{next(iter(change))} is .*: give a number"):
            checks.check_config(OwnConfig(**change))


class OwnModel(Backbone):
    """A model of a reader, with that config."""

    config: OwnConfig
    causal, attends = True, False

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList()


def test_a_config_that_json_does_not_know_is_described() -> None:
    found = []
    for config in (
        OwnConfig(),
        OwnConfig(kind=torch.float64),
        OwnConfig(activation=torch.relu),
    ):
        body = OwnModel(config)
        model = LanguageModel(body, NextWord(body.token))
        found.append(Trainer(model, NextToken(), Text(), Plan(steps=1)).about)
    assert found[0]["kind"] == "torch.float32"
    assert found[0] != found[1]
    assert found[0] != found[2]
