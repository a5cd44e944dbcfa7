"""Sampling: filters against the release's, every model with memory against itself without."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.sampling import (
    GREEDY,
    Sampling,
    at_temperature,
    beam,
    draw,
    not_yet,
    nucleus,
    repeat_less,
    sample,
    steps,
    top_k,
)

VOCABULARY = 23


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
    for order in itertools.permutations(filters, 3):
        logits = given_BV
        for change in order:
            logits = change(logits)
        assert logits.amax(dim=-1).isfinite().all()
        assert logits.softmax(dim=-1).isfinite().all()
    assert torch.equal(given_BV, before)


def test_nucleus_is_the_smallest_set_that_holds_the_share():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = {p: int(nucleus(logits, p).isfinite().sum()) for p in (0, 0.4, 0.6, 0.85, 0.97, 1)}
    assert kept == {0: 1, 0.4: 1, 0.6: 2, 0.85: 3, 0.97: 4, 1: 4}


def test_each_row_is_filtered_by_its_own_threshold():
    """A threshold of one row that is applied to another works for a batch of one only."""
    logits = torch.tensor([[1.0, 2.0, 3.0], [10.0, 30.0, 20.0]])
    assert top_k(logits, 1).isfinite().tolist() == [[False, False, True], [False, True, False]]


def test_temperature_zero_is_the_best_word_and_tall_scores_do_not_overflow():
    logits = torch.tensor([[1e30, -1e30, 2e30]])
    assert at_temperature(logits, 0).softmax(-1).tolist() == [[0, 0, 1]]
    assert at_temperature(torch.tensor([[3.0, 1.0]]), 1e-3).softmax(-1).tolist() == [[1, 0]]


def test_draws_follow_the_probabilities():
    shares = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    n = 200_000
    drawn = draw(shares.log().expand(n, -1), Chance(7, 0, torch.arange(n)).uniform("word", 1)[:, 0])
    found = torch.bincount(drawn, minlength=5)
    assert found[4] == 0
    chi_square = ((found[:4] - n * shares[:4]) ** 2 / (n * shares[:4])).sum()
    assert chi_square < 16.3  # 3 degrees of freedom, p = 0.001


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
            torch.testing.assert_close(share_BV.sum(-1), torch.ones(2))
        assert (step.stages["top-k"] > 0).sum(-1).max() <= 9
        drawn = step.stages["nucleus"].gather(-1, step.tokens_B[:, None])
        assert (drawn[step.new_B] > 0).all()
        said = step.stages["model"].gather(-1, step.tokens_B[:, None])[:, 0].log()
        torch.testing.assert_close(step.log_probability_B, said)


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


# ---- beams -------------------------------------------------------------------------------------


def every_text(model, prompt, length, stop):
    """All texts of the length, and all shorter ones that stop, with their log-probabilities."""
    found = {}
    for text in itertools.product(range(model.backbone.config.vocabulary), repeat=length):
        end = next((i + 1 for i, word in enumerate(text) if word in stop), length)
        found[text[:end]] = None
    for text in found:
        said = model(torch.tensor([[*prompt, *text]]))[0].log_softmax(-1)
        found[text] = sum(float(said[len(prompt) - 1 + i, w]) for i, w in enumerate(text))
    return found


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("stop", [(), (2,)])
def test_a_beam_wide_enough_finds_the_best_of_all_texts(stop, penalty):
    model = gpt(vocabulary=4)
    with torch.no_grad():
        everything = every_text(model, [1], 3, stop)
    best = sorted(everything, key=lambda text: -everything[text] / len(text) ** penalty)
    found = beam(model, [1], Sampling(length=3, stop=stop), beams=64, length_penalty=penalty)
    assert [tuple(text.tokens) for text in found[:5]] == best[:5]
    for text in found:
        assert text.log_probability == pytest.approx(everything[tuple(text.tokens)], abs=1e-4)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_beams_equal_the_release(beams, tmp_path):
    from labkit.weights import load

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=None, initializer_range=0.6,
    )  # fmt: skip
    theirs = GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path).eval()
    prompt = torch.tensor([[1, 2, 3]])
    whole = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, num_beams=beams,
        do_sample=False, pad_token_id=0, length_penalty=1.0,
    )  # fmt: skip
    found = beam(ours, [1, 2, 3], Sampling(length=10), beams=beams)
    assert found[0].tokens == whole[0, 3:].tolist()


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 1.2}, "top_p is 1.2"),
        ({"top_k": 0}, "top_k is 0"),
        ({"length": 0}, "length is 0"),
        ({"minimum": 5}, "give the words of `stop`"),
        ({"repetition": 0}, "penalty of repetition is 0"),
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
    with pytest.raises(ValueError, match="0 samples"):
        sample(model, [[1]], GREEDY, samples=0)
    with pytest.raises(ValueError, match="top_k is 24, and the vocabulary has 23"):
        sample(model, [[1]], Sampling(top_k=24))
    with pytest.raises(ValueError, match="token 23, the model knows 0 to 22"):
        sample(model, [[1, 23]], GREEDY)
    with pytest.raises(ValueError, match="token -1, the model knows 0 to 22"):
        sample(model, [[1]], Sampling(stop=(-1,)))


def test_a_beam_refuses_what_sampling_refuses():
    model = gpt()
    for beams in (0, -1):
        with pytest.raises(ValueError, match=f"beam of {beams}"):
            beam(model, [1], GREEDY, beams=beams)
    with pytest.raises(ValueError, match="prompt 0 is empty"):
        beam(model, [], GREEDY)
    with pytest.raises(ValueError, match="positions for 64"):
        beam(model, [1] * 64, GREEDY)
    with pytest.raises(ValueError, match="top_k is 24"):
        beam(model, [1], Sampling(top_k=24))


def test_options_that_do_not_exist_are_named():
    with pytest.raises(TypeError, match="temprature"):
        Sampling(temprature=0.5)
    with pytest.raises(TypeError, match="beam_width"):
        beam(gpt(), [1], GREEDY, beam_width=3)


def test_the_longest_text_that_fits_is_written():
    (text,) = sample(gpt(), [[1] * 60], Sampling(length=5))[0]
    assert len(text.tokens) == 5


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_model_is_named_as_such(broken):
    model = gpt()
    model.backbone.token.weight.data[5] = broken
    with pytest.raises(ValueError, match="NaN or infinite"):
        sample(model, [[1, 5]], Sampling(length=3))


@pytest.mark.parametrize("place", [0, 4])
def test_a_beam_in_which_every_text_has_stopped_ends_there(place):
    """With one allowed word a step the search is greedy: the stop word leaves nothing to go on."""
    model = gpt()
    best = sample(model, [[1]], GREEDY)[0][0].tokens
    stop = best[place]
    end = best.index(stop) + 1
    found = beam(model, [1], Sampling(temperature=0.0, length=8, stop=(stop,)), beams=2)
    assert [(text.tokens, text.stopped) for text in found] == [(best[:end], True)]


def test_a_beam_sums_filtered_scores_and_tells_the_probability_of_the_model():
    """Sharper scores change which text wins, and never how likely the model says it is."""
    model, prompt = gpt(), [1, 2]
    for how in (Sampling(length=6, temperature=0.5, top_k=7), Sampling(length=6, repetition=1.7)):
        for text in beam(model, prompt, how, beams=3):
            said = model(torch.tensor([prompt + text.tokens]))[0].log_softmax(-1).detach()
            each = [float(said[1 + i, token]) for i, token in enumerate(text.tokens)]
            assert text.log_probability == pytest.approx(sum(each), abs=1e-4)
