"""The parts of the experiment about names: what is asked, what is seen, and the exact floors."""

import math
from typing import Any

import pytest
import torch

from classroom.claims import xlnet as claims
from classroom.models.recipes import CourseText, course_text
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.world import load_world


@pytest.fixture(scope="module")
def text() -> CourseText:
    return course_text("journey", words=2_000, held_out=1_000)


@pytest.fixture(scope="module")
def model(text: CourseText) -> LanguageModel:
    torch.manual_seed(0)
    backbone = XLNet(XLNetConfig(text.vocabulary, 16, 2, 2, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token, bias=True)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            # Not as near to nothing as a network starts: it shall have opinions.
            weight.mul_(10)
    return model


def test_names_of_two_words_are_those_of_the_files() -> None:
    known = claims.pairs(load_world("journey"))
    assert {("new", "york"), ("los", "angeles"), ("san", "francisco")} <= known
    assert all(len(name) == 2 for name in known)
    assert not any("rio" in name for name in known)


def test_each_window_has_a_name_in_its_middle(text: CourseText) -> None:
    what = claims.names(text.world, text.documents)
    assert len(what.words) > 3
    for words in what.words:
        assert len(words) == claims.LENGTH - 2
        assert (words[what.place], words[what.place + 1]) in claims.pairs(text.world)


def test_in_order_is_the_product_of_two_conditionals(text: CourseText) -> None:
    what, world = claims.names(text.world, text.documents), text.world
    assert world is not None
    found = claims.lowest(world, what)
    for i, words in enumerate(what.words[:3]):
        first, second = (world.numbers(words)[place] for place in what.hidden)
        both = world.conditional(words, what.hidden, start="anywhere")
        after = world.conditional(words, what.hidden[1:], start="anywhere")[0, second]
        assert found["in order"][i] == pytest.approx(-math.log(both[0, first] * after))
        assert found["one by one"][i] == pytest.approx(
            -math.log(both[0, first]) - math.log(both[1, second])
        )


def test_the_gap_of_names_is_the_difference_of_both_floors() -> None:
    world: Any = load_world("journey")
    documents = world.sample(documents=12, seed=3, split=None)
    what = claims.names(world, [document.words for document in documents])
    gaps = [world.gap(words, what.hidden, start="anywhere") for words in what.words]
    assert gaps
    assert claims.gaps_of_names(world, documents) == pytest.approx(gaps)


@pytest.mark.parametrize("ask", [claims.xlnet_losses, claims.bert_losses])
@pytest.mark.parametrize("order", [True, False])
def test_the_second_word_sees_the_first_in_order_only(
    text: CourseText, model: LanguageModel, ask: Any, order: bool
) -> None:
    what = claims.names(text.world, text.documents)
    place = what.place
    other = what._replace(words=[[*w[:place], "paris", *w[place + 1 :]] for w in what.words])
    before, after = ask(text, model, what, order), ask(text, model, other, order)
    same = torch.isclose(before[:, 1], after[:, 1], atol=1e-6)
    assert bool(same.all()) != order
    assert not torch.isclose(before[:, 0], after[:, 0]).any()


@pytest.mark.parametrize("ask", [claims.xlnet_losses, claims.bert_losses])
def test_no_word_sees_itself_or_a_later_one(
    text: CourseText, model: LanguageModel, ask: Any
) -> None:
    what = claims.names(text.world, text.documents)
    place = what.place
    other = what._replace(words=[[*w[: place + 1], "paris", *w[place + 2 :]] for w in what.words])
    before, after = ask(text, model, what, True), ask(text, model, other, True)
    assert torch.allclose(before[:, 0], after[:, 0], atol=1e-6)


def test_both_objectives_teach_the_same_network(text: CourseText) -> None:
    asked = claims.objectives(text, 0.4)
    assert list(asked) == ["XLNet", "BERT"]
    assert getattr(asked["BERT"], "rate") == 0.4  # noqa: B009
