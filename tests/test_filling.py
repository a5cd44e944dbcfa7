"""Filling blanks: against enumeration, and against what may and may not be seen."""

import itertools
import re

import pytest
import torch

from labkit.blocks import LanguageModel
from labkit.heads import MaskedWord, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.writing import filling
from labkit.writing.filling import fill, log_probabilities, one_by_one

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
    """One distribution by the definition, one row at a time."""
    row = torch.tensor([text])
    blind = torch.zeros_like(row, dtype=torch.bool)
    blind[0, list(hidden)] = True
    with torch.no_grad():
        return log_probabilities(model, row, torch.tensor([position]), blind, MASK)[0]


@pytest.mark.parametrize("name", MODELS)
def test_alone_each_blank_has_its_own_distribution(name):
    model = MODELS[name]()
    found = one_by_one(model, TEXT, BLANKS, mask=MASK)
    for row, position in zip(found, BLANKS, strict=True):
        torch.testing.assert_close(row, alone(model, TEXT, position, BLANKS), atol=1e-5, rtol=0)
    best = fill(model, TEXT, BLANKS, mask=MASK, jointly=False, keep=V * V)
    for way in best:
        # Words come in the order of the text, blanks in the order in which they are filled.
        expected = found[0, way.words[1]] + found[1, way.words[0]]
        assert way.log_probability == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_jointly_is_the_chain_over_every_pair(name):
    model = MODELS[name]()
    expected = {}
    for first, second in itertools.product(range(V), repeat=2):
        text = list(TEXT)
        start = alone(model, text, 3, (3, 1))[first]
        text[3] = first
        expected[second, first] = float(start + alone(model, text, 1, (1,))[second])
    found = fill(model, TEXT, BLANKS, mask=MASK, keep=V * V, rows=3)
    assert [way.words for way in found] == sorted(expected, key=lambda w: -expected[w])
    for way in found:
        assert way.log_probability == pytest.approx(expected[way.words], abs=1e-4)
    total = sum(torch.tensor(way.log_probability).exp() for way in found)
    assert float(total) == pytest.approx(1, abs=1e-4)


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
        fill(bert(), TEXT, blanks, mask=MASK)


def test_what_is_not_seen_is_not_filled():
    """A causal model would answer without the words that stand behind the blank."""
    backbone = GPT(GPTConfig(V, width=8, layers=1, heads=2, context=9))
    model = LanguageModel(backbone, NextWord(backbone.token))
    for ask in (fill, one_by_one):
        with pytest.raises(ValueError, match="GPT sees only what stands before a blank"):
            ask(model, TEXT, (1,), mask=MASK)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": []}, "the text is empty"),
        ({"tokens": [1, V, 2]}, "the text has the token 7, the model knows 0 to 6"),
        ({"tokens": [1, -1, 2]}, "the text has the token -1"),
        ({"blanks": (1.5,)}, "different positions from 0 to 4"),
        ({"keep": 0}, "keep is 0"),
        ({"width": 2.5}, "width is 2.5"),
        ({"rows": -1}, "rows is -1"),
        ({"mask": -1}, "`mask` has the token -1"),
        ({"mask": V}, "`mask` has the token 7"),
        ({"mask": 2.5}, "`mask` has the token 2.5"),
        ({"mask": None}, "`mask` has the token None"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, message):
    given = {"tokens": TEXT, "blanks": (1,), "mask": MASK} | changed
    with pytest.raises(ValueError, match=re.escape(message)):
        fill(bert(), given.pop("tokens"), given.pop("blanks"), **given)


@pytest.mark.parametrize("width", [1, 3])
def test_a_narrow_search_goes_on_from_the_best_alone(width) -> None:
    model, blanks = bert(), (0, 2, 4)
    ways = [((), 0.0)]
    for i, position in enumerate(blanks):
        grown = []
        for words, score in ways:
            text = list(TEXT)
            for blank, word in zip(blanks, words, strict=False):
                text[blank] = word
            log_p = alone(model, text, position, blanks[i:])
            grown += [((*words, word), score + float(log_p[word])) for word in range(V)]
        ways = sorted(grown, key=lambda way: -way[1])[: width if i < 2 else 4]
    found = fill(model, TEXT, blanks, mask=MASK, keep=4, width=width)
    assert [way.words for way in found] == [words for words, _ in ways]
    assert [way.log_probability for way in found] == pytest.approx([s for _, s in ways], abs=1e-4)


@pytest.mark.parametrize("keep", [1, 4, 50])
@pytest.mark.parametrize("tied", [False, True])
def test_alone_the_best_combinations_are_those_of_all_that_there_are(keep, tied, monkeypatch):
    model, blanks = bert(), (4, 0, 2)
    if tied:  # many words of many blanks are equally likely
        rounded = filling.one_by_one
        monkeypatch.setattr(filling, "one_by_one", lambda *a, **k: rounded(*a, **k).round())
    log_p = filling.one_by_one(model, TEXT, blanks, mask=MASK)
    every = {}
    for words in itertools.product(range(V), repeat=3):
        first, second, third = (log_p[i, word] for i, word in enumerate(words))
        every[words[1], words[2], words[0]] = float((first + second) + third)
    kept, sizes = filling.highest, []

    def counting(score_BV, count):
        sizes.append(len(score_BV))
        return kept(score_BV, count)

    monkeypatch.setattr(filling, "highest", counting)
    found = fill(model, TEXT, blanks, mask=MASK, jointly=False, keep=keep)
    best = sorted(every.values(), reverse=True)[:keep]
    assert [way.log_probability for way in found] == best
    assert all(every[way.words] == way.log_probability for way in found)
    assert len({way.words for way in found}) == keep
    assert max(sizes) <= keep, "no more combinations are kept than are asked for"
