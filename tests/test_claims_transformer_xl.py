"""The parts of the experiments about memory and distances, against slower ways to the same."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from classroom.claims import transformer_xl as claims
from classroom.models.recipes import CourseText, course_text
from labkit.blocks import Backbone, LanguageModel, States
from labkit.heads import NextWord
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectorsConfig


@pytest.fixture(scope="module")
def text() -> CourseText:
    return course_text("journey", words=2_000, held_out=2_000)


def small(vocabulary: int, memory: int = 0) -> LanguageModel:
    torch.manual_seed(0)
    config = TransformerXLConfig(vocabulary, 16, 2, 2, memory=memory, inner=48, dropout=0.0)
    backbone: Any = TransformerXL(config)
    return LanguageModel(backbone, NextWord(backbone.token)).eval()


def test_the_floor_without_memory_knows_the_segment_and_the_word_before_it(
    text: CourseText,
) -> None:
    _, words = claims.documents(text)
    world: Any = text.world
    found = claims.fragmented(text, words[:1])[0]
    for place in (0, 5, 15, 16, 17, 40, 127):
        start = place // claims.SEGMENT * claims.SEGMENT
        begins = "anywhere" if start else "document"
        law = world.next_word(words[0][max(0, start - 1) : place], start=begins)
        assert found[place] == pytest.approx(-math.log(law[world.numbers(words[0])[place]]))


def test_one_long_segment_is_no_fragment(text: CourseText) -> None:
    _, words = claims.documents(text)
    whole, cut = claims.floors(text, words), claims.fragmented(text, words)
    assert np.allclose(claims.fragmented(text, words, segment=claims.READ), whole)
    assert cut.mean() > whole.mean() + 0.1


def test_losses_with_memory_are_those_of_one_reading(text: CourseText) -> None:
    tokens, _ = claims.documents(text)
    model, tokens = small(text.vocabulary), tokens[:3]
    at_once = claims.losses(model, tokens, 0, segment=claims.READ)
    assert torch.allclose(claims.losses(model, tokens, claims.READ), at_once, atol=1e-4)
    assert not torch.allclose(claims.losses(model, tokens, 0), at_once, atol=1e-4)


def test_the_memory_of_a_model_stays_as_it_was(text: CourseText) -> None:
    model = small(text.vocabulary, memory=7)
    claims.losses(model, claims.documents(text)[0][:2], 3)
    claims.seconds_a_word(model, 8, tries=1)
    backbone: Any = model.backbone
    assert backbone.memory_length == 7


def by_hand(segment: int, memory: int, width: int, inner: int, layers: int) -> int:
    """Products of a Transformer-XL: 2 operations for each entry of a matrix and each vector."""
    keys = segment + memory
    far = 2 * segment + memory - 1
    mixing = segment * width**2 * 2 + keys * 2 * width**2 + far * width**2
    scores = segment * far * width + 2 * segment * keys * width
    return layers * 2 * (mixing + scores + 2 * segment * width * inner)


@pytest.mark.parametrize(("segment", "memory"), [(8, 0), (8, 24), (16, 16)])
def test_operations_are_those_counted_by_hand(segment: int, memory: int) -> None:
    backbone = small(50).backbone
    assert claims.operations(backbone, segment, memory) == by_hand(segment, memory, 16, 48, 2)


def test_every_layer_takes_as_many_operations() -> None:
    backbone = small(50).backbone
    deep = type(backbone)(replace(backbone.config, layers=5))
    assert claims.operations(deep, 8, 24) == claims.counted(deep, 5, 8, 24)


def test_a_window_costs_as_often_as_it_is_long() -> None:
    backbone = small(50).backbone
    window, segment = by_hand(64, 0, 16, 48, 2), by_hand(16, 64, 16, 48, 2)
    assert claims.times_fewer(backbone, 64, 16) == pytest.approx(window / (segment / 16))


class Deaf(Backbone):
    """Knows the last word alone, so that more context changes nothing."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__(WordVectorsConfig(vocabulary, 8))
        self.token = nn.Embedding(vocabulary, 8)

    def forward(self, tokens: torch.Tensor) -> States:
        return States((self.token(tokens),))


def test_the_same_words_are_asked_at_each_length(text: CourseText) -> None:
    torch.manual_seed(0)
    backbone = Deaf(text.vocabulary)
    model = LanguageModel(backbone, NextWord(backbone.token, tied=False))
    tokens, _ = claims.documents(text)
    lengths = [claims.SEGMENT * times for times in (1, 2, 4)]
    found = [claims.last_words(model, tokens, length) for length in lengths]
    assert found[0] == pytest.approx(found[1], abs=1e-4)
    assert found[0] == pytest.approx(found[2], abs=1e-4)
    assert len(set(np.round(found[0], 6))) > 1


def test_floors_of_the_same_words_fall_with_context(text: CourseText) -> None:
    _, words = claims.documents(text)
    world: Any = text.world
    found = [claims.lowest(text, words[:2], length) for length in (16, 32, 64)]
    assert found[0] > found[1] > found[2]
    by_word = []
    for one in words[:2]:
        for end in claims.ENDS:
            for place in range(end - claims.SCORED, end):
                law = world.next_word(one[end - 16 - 1 : place], start="anywhere")
                by_word.append(-math.log(law[world.numbers(one)[place]]))
    assert found[0] == pytest.approx(np.mean(by_word))


def test_a_text_of_ones_own_has_no_floors(text: CourseText) -> None:
    own = CourseText(text.tokenizer, text.train, text.held_out, text.documents, None)
    assert claims.floors_by_position(own) == {}
    assert set(claims.floors_by_position(text)) == {"lowest, no memory", "lowest"}
