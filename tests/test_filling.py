"""Filling blanks: against the definition, and against what may and may not be seen."""

import re

import pytest
import torch
from pairings import elmo

from labkit.blocks import Classifier, LanguageModel
from labkit.heads import Label, MaskedWord, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.writing.filling import one_by_one

V, MASK = 7, 6


def bert() -> LanguageModel:
    torch.manual_seed(0)
    backbone = BERT(BERTConfig(V, width=16, layers=2, heads=2, context=16))
    return _bold(LanguageModel(backbone, MaskedWord(backbone.token, 16)))


def xlnet() -> LanguageModel:
    torch.manual_seed(0)
    backbone = XLNet(XLNetConfig(V, width=16, layers=2, heads=2))
    return _bold(LanguageModel(backbone, NextWord(backbone.token, bias=True)))


def _bold(model: LanguageModel) -> LanguageModel:
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.3 * torch.randn_like(parameter)
    return model.eval()


MODELS = {"bert": bert, "xlnet": xlnet}
TEXT, BLANKS = [1, 2, 3, 4, 5], (3, 1)


def alone(model, text, position, hidden):
    """One distribution by the definition, position by position."""
    length, row = len(text), torch.tensor([text])
    with torch.no_grad():
        if isinstance(model.backbone, BERT):
            row[0, list(hidden)] = MASK
            return model(row)[0, position].log_softmax(dim=-1)
        places = range(length)
        seen = torch.tensor([[j not in hidden for j in places] for _ in places])
        own = torch.tensor([[j not in hidden or i == j for j in places] for i in places])
        masks = {"mask": own[None, None], "query_mask": seen[None, None]}
        query = model.backbone.two_streams(row, torch.tensor([[position]]), **masks).query
        return model.head(query.hidden)[0, 0].log_softmax(dim=-1)


@pytest.mark.parametrize("name", MODELS)
def test_each_blank_has_its_own_distribution(name):
    model = MODELS[name]()
    found = one_by_one(model, TEXT, BLANKS, mask=MASK)
    for row, position in zip(found, BLANKS, strict=True):
        torch.testing.assert_close(row, alone(model, TEXT, position, BLANKS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_hidden_is_not_seen(name):
    model = MODELS[name]()
    other = [1, 0, 3, 5, 5]
    first, second = (one_by_one(model, text, BLANKS, mask=MASK) for text in (TEXT, other))
    assert torch.equal(first, second)
    seen = one_by_one(model, [2, 2, 3, 4, 5], BLANKS, mask=MASK)
    assert not torch.allclose(first, seen)


@pytest.mark.parametrize("blanks", [(), (5,), (-1,), (2, 2)])
def test_blanks_that_are_not_there_are_refused(blanks):
    with pytest.raises(ValueError, match="different positions from 0 to 4"):
        one_by_one(bert(), TEXT, blanks, mask=MASK)


def test_blanks_may_be_an_array():
    model = bert()
    found = one_by_one(model, TEXT, BLANKS, mask=MASK)
    assert torch.equal(one_by_one(model, TEXT, torch.tensor(BLANKS), mask=MASK), found)


def test_what_is_not_seen_is_not_filled():
    """A causal model would answer without the words that stand behind the blank."""
    backbone = GPT(GPTConfig(V, width=8, layers=1, heads=2, context=9))
    model = LanguageModel(backbone, NextWord(backbone.token))
    with pytest.raises(ValueError, match="GPT sees only what comes before a blank"):
        one_by_one(model, TEXT, (1,), mask=MASK)


def test_what_scores_no_word_at_a_blank_is_refused():
    classifier = Classifier(bert().backbone, Label(16, 2))
    with pytest.raises(ValueError, match="Classifier of BERT has the head Label, which scores no"):
        one_by_one(classifier, TEXT, (1,), mask=MASK)
    with pytest.raises(ValueError, match="ELMo was not trained to fill blanks"):
        one_by_one(elmo(), TEXT, (1,), mask=MASK)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": []}, "the text is empty"),
        ({"tokens": [1, V, 2]}, "the text has the token 7, the model knows 0 to 6"),
        ({"tokens": [1, -1, 2]}, "the text has the token -1"),
        ({"blanks": (1.5,)}, "different positions from 0 to 4"),
        ({"blanks": 1}, "the blanks are 1: give a list of positions, such as [3]"),
        ({"blanks": None}, "the blanks are None: give a list of positions"),
        ({"mask": -1}, "`mask` has the token -1"),
        ({"mask": V}, "`mask` has the token 7"),
        ({"mask": 2.5}, "`mask` has the token 2.5"),
        ({"mask": None}, "`mask` has the token None"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, message):
    given = {"tokens": TEXT, "blanks": (1,), "mask": MASK} | changed
    with pytest.raises(ValueError, match=re.escape(message)):
        one_by_one(bert(), given.pop("tokens"), given.pop("blanks"), **given)
