"""Prompts: likelihoods against one text at a time, and the exact best for the language."""

import pytest
import torch

from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.world import load_world
from labkit.writing.prompting import log_likelihoods

PROMPTS, ANSWERS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]], [[1], [2, 3], [4, 5, 6]]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return build()


def build() -> LanguageModel:
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(vocabulary=11, width=16, layers=2, heads=2, context=20))
    built = LanguageModel(backbone, NextWord(backbone.token)).eval()
    for parameter in built.parameters():
        parameter.data *= 3
    return built


@pytest.mark.parametrize("answers", [ANSWERS, [[1], [7], [3]]], ids=["texts", "words"])
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_likelihoods_are_those_of_each_text_alone(model, rows, answers):
    found = log_likelihoods(model, PROMPTS, answers, rows=rows)
    for i, prompt in enumerate(PROMPTS):
        for j, answer in enumerate(answers):
            said = model(torch.tensor([prompt + answer]))[0].log_softmax(-1)
            places = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
            expected = sum(said[p, w].item() for p, w in zip(places, answer, strict=True))
            assert found[i, j].item() == pytest.approx(expected, abs=1e-4)


def test_the_exact_best_rises_with_every_shot():
    world = load_world()
    documents = [d for d in world.sample(documents=1500, seed=0) if d.annotations.relation]
    best = []
    for k in (0, 1, 2, 3):
        asked = []
        for words in [list(document.words) for document in documents]:
            colons = [position for position, word in enumerate(words) if word == ":"]
            # Longer documents alone hold k answered questions and one more.
            asked += [(words[: colons[k] + 1], words[colons[k] + 1])] if len(colons) > k else []
        right = [
            world.vocabulary[int(world.next_word(prompt).argmax())] == answer
            for prompt, answer in asked[:120]
        ]
        best.append(sum(right) / len(right))
    assert best[0] < best[1] < 1
    assert best[3] > 0.85


def test_bad_prompts_are_refused(model):
    with pytest.raises(ValueError, match="empty"):
        log_likelihoods(model, [[]], ANSWERS)
    with pytest.raises(ValueError, match="there is no answer"):
        log_likelihoods(model, PROMPTS, [])
    with pytest.raises(ValueError, match="answer 1 is empty"):
        log_likelihoods(model, PROMPTS, [[1], []])
    for wrong in (-1, 11, 1.5):
        for answers in ([[wrong]], [[1, wrong]]):
            with pytest.raises(ValueError, match="answer 0 has the token"):
                log_likelihoods(model, PROMPTS, answers)
        with pytest.raises(ValueError, match="prompt 1 has the token"):
            log_likelihoods(model, [[1], [wrong]], ANSWERS)
    with pytest.raises(ValueError, match="rows is 0"):
        log_likelihoods(model, PROMPTS, ANSWERS, rows=0)
    for answers in (ANSWERS, [[1]]):
        with pytest.raises(ValueError, match="positions for 20"):
            log_likelihoods(model, [[1] * 30], answers)
    bert = BERT(BERTConfig(11, width=8, layers=1, heads=2, context=20))
    with pytest.raises(ValueError, match="BERT would see the answer that it has to predict"):
        log_likelihoods(LanguageModel(bert, NextWord(bert.token)), PROMPTS, ANSWERS)
