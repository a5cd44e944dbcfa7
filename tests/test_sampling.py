"""Sampling: filters against the release's, every model with memory against itself without."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labkit.alignment.choosing import best_of
from labkit.alignment.preferences import answer_log_probs, answer_rows
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.heads import Label, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.sampling import (
    GREEDY,
    Sampling,
    at_temperature,
    draw,
    not_yet,
    nucleus,
    repeat_less,
    sample,
    steps,
    top_k,
)
from labkit.transfer import classifier, span_finder, tagger
from labkit.writing.beam import beam
from labkit.writing.prompting import log_likelihoods

VOCABULARY = 23

# Everything here holds for the formulas and for their faster versions.
pytestmark = pytest.mark.usefixtures("speed")


def gpt(**changed) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"vocabulary": VOCABULARY, "width": 16, "layers": 2, "heads": 2, "context": 64}
    backbone = GPT(GPTConfig(**(sizes | changed)))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    for parameter in model.parameters():  # larger weights: sharper, more various expectations
        parameter.data *= 3
    return model


def transformer_xl() -> LanguageModel:
    torch.manual_seed(1)
    sizes = {"vocabulary": VOCABULARY, "width": 16, "layers": 2, "heads": 2, "memory": 100}
    backbone = TransformerXL(TransformerXLConfig(**sizes))
    return LanguageModel(backbone, NextWord(backbone.token)).eval()


MODELS = {"gpt": gpt, "banded gpt": lambda: gpt(band=3), "transformer-xl": transformer_xl}


def scores(rows: int = 5, words: int = 40, seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(rows, words, generator=torch.Generator().manual_seed(seed))


# ---- filters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("value", [0.01, 0.3, 0.9, 1.0, 2.5])
def test_filters_equal_the_release(value, seed):
    logits, seen = scores(seed=seed), torch.randint(0, 40, (5, 7))
    pairs = [
        (at_temperature(logits, value), TemperatureLogitsWarper(value)(seen, logits)),
        (repeat_less(logits, seen, value), RepetitionPenaltyLogitsProcessor(value)(seen, logits)),
        (nucleus(logits, min(value, 1)), TopPLogitsWarper(min(value, 1.0))(seen, logits)),
        (top_k(logits, 1 + seed), TopKLogitsWarper(1 + seed)(seen, logits)),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 4),
    words=st.integers(1, 12),
    k=st.integers(1, 12),
    p=st.floats(0, 1),
    temperature=st.sampled_from([0.0, 0.1, 1.0, 7.0]),
)
@settings(max_examples=150, deadline=None)
def test_no_filter_in_any_order_leaves_a_row_empty(seed, rows, words, k, p, temperature):
    filters = [
        lambda x: at_temperature(x, temperature),
        lambda x: top_k(x, min(k, words)),
        lambda x: nucleus(x, p),
        lambda x: not_yet(x, range(words)),
    ]
    given_BV = scores(rows, words, seed)
    before = given_BV.clone()

    def in_any_order(logits, left):
        if len(left) == 1:  # three filters have been taken
            assert logits.amax(dim=-1).isfinite().all()
            assert logits.softmax(dim=-1).isfinite().all()
            return
        for i, change in enumerate(left):
            in_any_order(change(logits), left[:i] + left[i + 1 :])

    in_any_order(given_BV, filters)
    assert torch.equal(given_BV, before)


def test_nucleus_is_the_smallest_set_that_holds_the_share():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = {p: int(nucleus(logits, p).isfinite().sum()) for p in (0, 0.4, 0.6, 0.85, 0.97, 1)}
    assert kept == {0: 1, 0.4: 1, 0.6: 2, 0.85: 3, 0.97: 4, 1: 4}


def test_each_row_is_filtered_by_its_own_threshold():
    """A threshold of one row that is applied to another works for a batch of one only."""
    logits = torch.tensor([[1.0, 2.0, 3.0], [10.0, 30.0, 20.0]])
    assert top_k(logits, 1).isfinite().tolist() == [[False, False, True], [False, True, False]]


def test_words_that_equal_the_last_one_stay_with_it():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 0.0, 2.0]])
    assert top_k(logits, 2).isfinite().tolist() == [[False, True, True, True, False, True]]
    assert torch.equal(top_k(logits, 4), top_k(logits, 2))
    best = float(logits.softmax(-1)[0, 1])
    assert torch.equal(nucleus(logits, best + 0.01), top_k(logits, 2))


@pytest.mark.parametrize("words", [4, 64])
def test_a_nucleus_that_holds_exactly_p_takes_no_more(words):
    """Shares that binary numbers can say: 1/2, 1/4, 1/8 and so on."""
    exponents = torch.tensor([[1.0, 2.0, 3.0, 3.0]], dtype=torch.float64)
    logits = torch.full((1, words), -math.inf, dtype=torch.float64)
    logits[:, :4] = -exponents * math.log(2)
    for kept, p in ((1, 0.5), (2, 0.75), (4, 0.875)):
        # The shares as they are computed, in case a logarithm is rounded.
        exactly = float(logits.softmax(dim=-1)[0, :kept].cumsum(0)[-1]) if kept < 4 else p
        assert int(nucleus(logits, exactly).isfinite().sum()) == kept
        more = int(nucleus(logits, exactly + 1e-9).isfinite().sum())
        assert more == {1: 2, 2: 4, 4: 4}[kept]


def test_a_nucleus_of_short_floats_is_that_of_the_same_numbers():
    logits = scores(4, 3000).bfloat16()
    found = nucleus(logits, 0.9)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found.isfinite(), nucleus(logits.float(), 0.9).isfinite())


@pytest.mark.parametrize("temperature", [1e-45, 1e-40, 1e-38, 1e-30, 1e-6])
def test_the_lowest_temperatures_do_not_overflow(temperature):
    logits = torch.tensor([[3.0, 7.0, -2.0, 7.0], [-3e38, 3e38, 0.0, -1.0]])
    share = at_temperature(logits, temperature).softmax(-1)
    assert share.tolist() == [[0, 0.5, 0, 0.5], [0, 1, 0, 0]]
    model, cold = gpt(), Sampling(length=9, temperature=temperature)
    assert sample(model, [[4]], cold)[0][0].tokens == sample(model, [[4]], GREEDY)[0][0].tokens[:9]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_in_16_bits_do_not_overflow(dtype):
    logits, seen = torch.tensor([[-100, 90, 80]], dtype=dtype), torch.tensor([[0, 1, 2]])
    assert at_temperature(logits, 1e-3).softmax(-1).tolist() == [[0, 1, 0]]
    below = torch.full((1, 3), -100, dtype=dtype)
    assert repeat_less(below, seen, 1e3).softmax(-1).isfinite().all()


def test_the_strongest_penalties_do_not_overflow():
    logits, seen = torch.tensor([[1e30, -1e30, 5.0]]), torch.tensor([[0, 1]])
    for penalty in (1e-3, 1e3):
        assert repeat_less(logits, seen, penalty).softmax(-1).isfinite().all()
    both = Sampling(repetition=1e-3, temperature=1e-3)
    *_, (_, last) = both.stages(torch.tensor([[3e38, 1, 2]]), seen, torch.zeros(1))
    assert last.softmax(-1).tolist() == [[1, 0, 0]]


def test_a_filter_sees_the_words_of_the_prompt_of_each_row():
    """Both prompts are of one length; the second row has other words."""
    model, how = gpt(), Sampling(length=1, repetition=1000.0)
    for step in steps(model, [[3, 9], [5, 7]], how):
        for row, seen in enumerate([[3, 9], [5, 7]]):
            before, after = (step.stages[name][row].log() for name in ("model", "repetition"))
            # A softmax divides all words by the same: what is seen changes by another factor.
            changed = after - before
            others = [word for word in range(VOCABULARY) if word not in seen]
            torch.testing.assert_close(changed[others], changed[others[:1]].expand(21))
            assert not torch.isclose(changed[seen], changed[others[0]]).any()


def test_temperature_zero_is_the_best_word_and_tall_scores_do_not_overflow():
    logits = torch.tensor([[1e30, -1e30, 2e30]])
    assert at_temperature(logits, 0).softmax(-1).tolist() == [[0, 0, 1]]
    assert at_temperature(torch.tensor([[3.0, 1.0]]), 1e-3).softmax(-1).tolist() == [[1, 0]]


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_prompts_may_be_the_rows_of_a_tensor_or_an_array(kind):
    """Such rows are new objects each time, and the number of one may be that of an earlier one."""
    model = gpt().eval()
    prompts = [[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9]]
    how = Sampling(length=3)
    wanted = [step.tokens_B.tolist() for step in steps(model, prompts, how)]
    assert [step.tokens_B.tolist() for step in steps(model, kind(prompts), how)] == wanted


def test_draws_follow_the_probabilities():
    shares = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    n = 200_000
    drawn = draw(shares.log().expand(n, -1), Chance(7, 0, torch.arange(n)).uniform("word", 1)[:, 0])
    found = torch.bincount(drawn, minlength=5)
    assert found[4] == 0
    chi_square = ((found[:4] - n * shares[:4]) ** 2 / (n * shares[:4])).sum()
    assert chi_square < 16.3  # 3 degrees of freedom, p = 0.001


def test_a_word_of_no_probability_is_never_drawn():
    logits = torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]).log()
    assert draw(logits, torch.zeros(3)).tolist() == [1, 3, 0]
    highest = 1 - 2.0**-24
    assert draw(logits, torch.full((3,), highest)).tolist() == [2, 3, 0]


# ---- writing -----------------------------------------------------------------------------------


def without_memory(model: LanguageModel, prompt: list[int], length: int) -> list[int]:
    """The best word after the whole text, again and again."""
    text = list(prompt)
    for _ in range(length):
        text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_text_with_memory_and_without(name):
    model = MODELS[name]()
    prompts = [[3], [1, 2, 3, 4, 5, 6, 7], [9, 8, 7], [5]]
    made = sample(model, prompts, Sampling(length=20, temperature=0.0))
    for prompt, (text,) in zip(prompts, made, strict=True):
        assert text.tokens == without_memory(model, prompt, 20)
        assert not text.stopped


@pytest.mark.parametrize("name", MODELS)
def test_log_probability_is_that_of_the_model(name):
    model, prompt = MODELS[name](), [4, 5]
    (text,) = sample(model, [prompt], Sampling(length=9, temperature=0.7, top_p=0.8))[0]
    said = model(torch.tensor([prompt + text.tokens]))[0].log_softmax(-1).detach()
    each = [float(said[1 + i, token]) for i, token in enumerate(text.tokens)]
    assert text.log_probability == pytest.approx(sum(each), abs=1e-4)


def test_a_row_is_the_same_alone_and_among_others():
    model, prompt = gpt(), [4, 5, 6]
    many = sample(model, [prompt, [7] * 9, [1]], Sampling(length=12), seed=3)
    alone = sample(model, [prompt], Sampling(length=12), seed=3)
    assert many[0] == alone[0] or many[0][0].tokens == alone[0][0].tokens
    other = sample(model, [prompt], Sampling(length=12), seed=4)
    assert other[0][0].tokens != alone[0][0].tokens


def test_several_samples_differ_and_repeat():
    made = sample(gpt(), [[1], [2, 3]], Sampling(length=10), samples=3)
    assert [len(texts) for texts in made] == [3, 3]
    assert len({tuple(text.tokens) for text in made[0]}) == 3
    assert made == sample(gpt(), [[1], [2, 3]], Sampling(length=10), samples=3)


def test_stop_words_end_a_text_and_the_minimum_holds_them_back():
    model = gpt()
    free = sample(model, [[1]], Sampling(length=30), samples=40)[0]
    word = free[0].tokens[4]
    halted = sample(model, [[1]], Sampling(length=30, stop=(word,)), samples=40)[0]
    for long, short in zip(free, halted, strict=True):
        assert short.stopped == (word in long.tokens)
        end = long.tokens.index(word) + 1 if short.stopped else 30
        assert short.tokens == long.tokens[:end]
    late = Sampling(length=30, stop=(word,), minimum=10)
    for texts in sample(model, [[1], [1, 2, 3]], late, samples=40):
        for text in texts:
            assert word not in text.tokens[:10]
            assert len(text.tokens) >= 10
        assert any(text.stopped for text in texts)


def test_steps_show_every_filter():
    how = Sampling(length=4, temperature=0.8, top_k=9, top_p=0.7, repetition=1.3)
    for step in steps(gpt(), [[1, 2], [3]], how):
        assert list(step.stages) == ["model", "repetition", "temperature", "top-k", "nucleus"]
        for share_BV in step.stages.values():
            torch.testing.assert_close(share_BV.sum(-1), torch.ones(2).double())
        assert (step.stages["top-k"] > 0).sum(-1).max() <= 9
        drawn = step.stages["nucleus"].gather(-1, step.tokens_B[:, None])
        assert (drawn[step.new_B] > 0).all()
        said = step.stages["model"].gather(-1, step.tokens_B[:, None])[:, 0].log()
        torch.testing.assert_close(step.log_probability_B, said.float())


def test_going_on_twice_from_one_memory_leaves_it_as_it_is():
    """The cache grows in place, and yet a memory is a value: the second to go on must not see
    what the first has written."""
    backbone = gpt().backbone
    with torch.no_grad():
        start = backbone(torch.tensor([[1, 2, 3]]), memory=()).memory
        first = backbone(torch.tensor([[4]]), memory=start)
        again = backbone(torch.tensor([[5]]), memory=first.memory)
        second = backbone(torch.tensor([[6]]), memory=start)
        third = backbone(torch.tensor([[5]]), memory=first.memory)
        whole = backbone(torch.tensor([[1, 2, 3, 6]]))
    assert torch.equal(again.hidden, third.hidden)
    torch.testing.assert_close(second.hidden[:, -1], whole.hidden[:, -1])
    assert start[0].k_BHKE.shape[2] == 3


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 1.2}, "top_p is 1.2"),
        ({"top_k": 0}, "top_k is 0"),
        ({"length": 0}, "length is 0"),
        ({"minimum": 5}, "give `stop`, too"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": math.nan}, "top_p is nan"),
        ({"top_p": "all"}, "top_p is 'all'"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_k": math.nan}, "top_k is nan"),
        ({"length": 2.5}, "length is 2.5"),
        ({"length": math.inf}, "length is inf"),
        ({"length": "9"}, "length is '9'"),
        ({"length": "a" * 2000}, r"length is 'a+ … \(2,002 characters\)"),
        ({"stop": ["a" * 2000]}, r"stop is \['a+ …"),
        ({"length": 10**12}, "from 1 to 10,000,000"),
        ({"length": 3, "minimum": 4, "stop": (1,)}, "minimum is 4"),
        ({"length": 3, "minimum": 1.5, "stop": (1,)}, "minimum is 1.5"),
        ({"minimum": -1}, "minimum is -1"),
        ({"repetition": 0}, "penalty of repetition is 0"),
        ({"repetition": 1e-38}, "penalty of repetition is 1e-38"),
        ({"repetition": math.inf}, "penalty of repetition is inf"),
        ({"repetition": math.nan}, "penalty of repetition is nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**wrong)


def test_prompts_and_sizes_that_make_no_sense_are_refused():
    model = gpt()
    with pytest.raises(ValueError, match="no prompt"):
        sample(model, [], GREEDY)
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        sample(model, [[1], []], GREEDY)
    with pytest.raises(ValueError, match="positions for 64: shorten the prompt, or ask for at mo"):
        sample(model, [[1] * 60], GREEDY)
    for samples in (0, 1.5):
        with pytest.raises(ValueError, match=f"samples is {samples}"):
            sample(model, [[1]], GREEDY, samples=samples)
    with pytest.raises(ValueError, match=r"prompt 0 has the token 1\.5"):
        sample(model, [[1.5]], GREEDY)
    with pytest.raises(ValueError, match="top_k is 24: give a whole number from 1 to 23"):
        sample(model, [[1]], Sampling(top_k=24))
    with pytest.raises(ValueError, match="token 23, the model knows 0 to 22"):
        sample(model, [[1, 23]], GREEDY)
    with pytest.raises(ValueError, match="token -1, the model knows 0 to 22"):
        sample(model, [[1]], Sampling(stop=(-1,)))


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "of type NoneType"), ({"length": 3}, "of type dict"), (Sampling, "the class Sampling")],
)
def test_settings_that_are_none_are_refused(given, said):
    with pytest.raises(TypeError, match=f"settings is {said}: give Sampling"):
        sample(gpt(), [[1]], given)
    with pytest.raises(TypeError, match=f"settings is {said}: give Sampling"):
        beam(gpt(), [1], given)


def test_options_that_do_not_exist_are_named():
    with pytest.raises(TypeError, match="temprature"):
        Sampling(temprature=0.5)


def test_numbers_of_numpy_are_numbers():
    how = Sampling(length=np.int64(3), top_k=np.int32(4), temperature=np.float32(0.5), top_p=0)
    assert len(sample(gpt(), [np.array([1, 2])], how)[0][0].tokens) == 3


def test_a_model_that_sees_both_sides_cannot_write():
    backbone = BERT(BERTConfig(VOCABULARY, width=16, layers=1, heads=2, context=16))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    with pytest.raises(ValueError, match="BERT reads a text from both sides"):
        sample(model, [[1]], GREEDY)


@pytest.mark.parametrize("make", [classifier, tagger, lambda model, labels: span_finder(model)])
@pytest.mark.parametrize(
    "write",
    [
        lambda model: sample(model, [[1]], GREEDY),
        lambda model: beam(model, [1], GREEDY),
        lambda model: best_of(model, [[1]], lambda prompts, answers: [1.0], GREEDY, 1),
        lambda model: log_likelihoods(model, [[1]], [[2], [3]]),
        lambda model: log_likelihoods(model, [[1]], [[2, 3], [3]]),
        lambda model: answer_log_probs(model, answer_rows([[1]], [[2]])),
    ],
)
def test_what_scores_no_words_cannot_write(write, make):
    with pytest.raises(ValueError, match=r"Classifier of GPT .* scores no words: give a LanguageM"):
        write(make(gpt(), 3))
    with pytest.raises(ValueError, match="the model is a bare GPT: put a head on it"):
        write(gpt().backbone)


def test_a_head_for_labels_in_a_language_model_cannot_write():
    model = LanguageModel(gpt().backbone, Label(gpt().backbone.width, 3))
    with pytest.raises(ValueError, match="LanguageModel of GPT has the head Label, which"):
        sample(model, [[1]], GREEDY)


def test_a_head_of_another_vocabulary_is_refused():
    backbone = gpt().backbone
    for words in (VOCABULARY - 1, VOCABULARY + 1):
        with pytest.raises(ValueError, match=f"scores {words} words, and GPT knows {VOCABULARY}: "):
            LanguageModel(backbone, NextWord(nn.Embedding(words, backbone.width)))


def test_a_causal_model_without_memory_reads_the_whole_text_each_time():
    model, prompts, how = gpt(), [[3], [1, 2, 3], [3]], Sampling(length=9)
    wanted = sample(model, prompts, how, samples=2)
    model.backbone.remembers = False
    found = sample(model, prompts, how, samples=2)
    assert [[text.tokens for text in row] for row in found] == [
        [text.tokens for text in row] for row in wanted
    ]


def test_the_longest_text_that_fits_is_written():
    (text,) = sample(gpt(), [[1] * 60], Sampling(length=5))[0]
    assert len(text.tokens) == 5


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_model_is_named_as_such(broken):
    model = gpt()
    model.backbone.token.weight.data[5] = broken
    with pytest.raises(ValueError, match="NaN or infinite"):
        sample(model, [[1, 5]], Sampling(length=3))


@pytest.mark.parametrize("stop", [3, 0.5, "x", ("x",), (1.5,), None])
def test_stop_words_that_are_no_numbers_of_words_are_refused(stop):
    with pytest.raises(ValueError, match=r"stop is .*: give the numbers of words"):
        Sampling(minimum=1, stop=stop)


def test_no_units_are_dropped_while_a_text_is_written():
    model = gpt(dropout=0.5, attention_dropout=0.5)
    settings = Sampling(length=12)
    expected = sample(model, [[1, 2], [3, 4, 5]], settings, samples=2)
    model.train()
    model.backbone.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    assert sample(model, [[1, 2], [3, 4, 5]], settings, samples=2) == expected
    for _ in steps(model, [[1, 2]], settings):
        assert [module.training for module in model.modules()] == modes, "also between two words"
    assert [module.training for module in model.modules()] == modes
