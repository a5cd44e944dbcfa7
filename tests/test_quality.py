"""Quality: texts of the language itself are all possible and as likely as the floor says."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from labkit.blocks import Backbone, LanguageModel, States
from labkit.sampling import GREEDY, Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world import END
from labkit.writing.quality import judge, judge_model


def first_sentences(world, count, seed):
    for document in world.sample(documents=count, seed=seed, split=None):
        words = list(document.words)
        yield words[: words.index(".") + 1]


def test_texts_of_the_language_are_possible_and_as_likely_as_the_floor(world):
    """Of one sample the likelihood, of another one the floor: apart by their standard errors."""
    found = judge(world, [list(d.words) for d in world.sample(documents=150, seed=1, split=None)])
    floor = world.floor("next", world.sample(documents=150, seed=2, split=None))
    assert found.possible == 1
    error = math.hypot(found.surprise.standard_error, floor.standard_error)
    assert abs(found.surprise.mean - floor.mean) < 3 * error
    assert 0 < error < 0.1


def test_what_the_language_cannot_say_is_counted_out(world):
    texts = list(first_sentences(world, 30, seed=3))
    broken = [text[::-1] for text in texts[:10]] + [[*texts[0][:-1], "not-a-word", "."]]
    found = judge(world, [*texts, *broken])
    assert found.possible == 30 / 41
    assert found.surprise.mean == judge(world, texts).surprise.mean
    assert judge(world, texts * 3).distinct == judge(world, texts).distinct / 3
    nothing = judge(world, broken)
    assert nothing.possible == 0
    assert math.isnan(nothing.surprise.mean)


def test_a_prompt_counts_as_known(world):
    [text] = first_sentences(world, 1, seed=4)
    whole, rest = judge(world, [text]), judge(world, [text[3:]], prompt=text[:3])
    begin = -world.log_probability(text)[:3].sum()
    total = whole.surprise.mean * len(text) - begin
    assert rest.surprise.mean * (len(text) - 3) == pytest.approx(total)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a language."""

    vocabulary: int
    width: int


class Language(Backbone):
    """The language itself as a model: its scores of the next word are the exact ones."""

    def __init__(self, world, tokenizer) -> None:
        super().__init__(Sizes(len(tokenizer), len(tokenizer)))
        self.remembers, self.causal, self.world = True, True, world
        self.words = [END if t == tokenizer.vocabulary.sep else tokenizer.pieces([t])[0]
                      for t in range(len(tokenizer))]  # fmt: skip
        self.columns = [world.machine.number.get(word, -1) for word in self.words]
        self.device = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens_BT, *, memory):
        memory = memory or (torch.zeros(len(tokens_BT), 0, dtype=torch.long),)
        text_BT = torch.cat([memory[0], tokens_BT], dim=1)
        laws: dict[tuple[int, ...], torch.Tensor] = {}
        for row in map(tuple, text_BT.tolist()):
            if row not in laws:
                # A row that has ended is read on while others write: any law will do.
                words = [self.words[token] for token in row[1:]]
                words = [] if {".", END} & set(words) else words
                laws[row] = torch.tensor(np.append(self.world.next_word(words), 0.0))
        law_BV = torch.stack([laws[row] for row in map(tuple, text_BT.tolist())])[:, self.columns]
        return States((law_BV.clamp(min=1e-30).log()[:, None],), (text_BT,))


def test_a_perfect_model_writes_sense_with_the_entropy_of_the_language(world):
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    model = LanguageModel(Language(world, tokenizer), torch.nn.Identity()).eval()
    found = judge_model(model, tokenizer, world, Sampling(length=120), samples=15)
    assert found.possible == 1
    assert found.entropy is not None
    error = math.hypot(found.surprise.standard_error, found.entropy.standard_error)
    assert abs(found.surprise.mean - found.entropy.mean) < 3 * error
    narrow = judge_model(model, tokenizer, world, Sampling(length=120, top_p=0.5), samples=15)
    best = judge_model(model, tokenizer, world, Sampling(length=120, temperature=0), samples=4)
    assert narrow.possible == best.possible == 1
    assert best.entropy.mean == 0 < narrow.entropy.mean < found.entropy.mean
    assert best.distinct == 1 / 4
    assert narrow.surprise.mean < found.surprise.mean


def test_a_text_that_does_not_end_is_no_sentence(world):
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    model = LanguageModel(Language(world, tokenizer), torch.nn.Identity()).eval()
    assert judge_model(model, tokenizer, world, Sampling(length=2), samples=5).possible == 0


def test_what_makes_no_sense_is_refused(world):
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    model = LanguageModel(Language(world, tokenizer), torch.nn.Identity()).eval()
    with pytest.raises(ValueError, match="no text"):
        judge(world, [])
    with pytest.raises(ValueError, match="an empty one"):
        judge(world, [["the"], []])
    with pytest.raises(ValueError, match="cannot say the prompt 'dog the the'"):
        judge(world, [["."]], prompt=["dog", "the", "the"])
    with pytest.raises(ValueError, match="samples is 0"):
        judge_model(model, tokenizer, world, GREEDY, samples=0)
    with pytest.raises(ValueError, match="none for a full stop"):
        judge_model(model, Tokenizer.words(["a b"]), world, GREEDY)
