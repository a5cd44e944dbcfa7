"""Beams: against the best of all texts, and against the release's."""

import itertools
import math

import pytest
import torch
from test_sampling import gpt
from transformers import GPT2Config, GPT2LMHeadModel

from labkit.sampling import GREEDY, Sampling, repeat_less, sample
from labkit.weights import load
from labkit.writing.beam import beam, highest


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


@pytest.mark.parametrize("count", [1, 2, 4, 50])
@pytest.mark.parametrize("words", [5, 40, 1000])
def test_of_equal_texts_the_first_goes_on(count, words):
    score_BV = torch.stack([torch.arange(words) % 2, torch.arange(words) % 3]).float()
    score_BV[0, 0] = -math.inf
    table = [(-float(s), r, w) for r, row in enumerate(score_BV) for w, s in enumerate(row)]
    best, rows, found = highest(score_BV, count)
    three = zip((-best).tolist(), rows.tolist(), found.tolist(), strict=True)
    assert list(three) == sorted(table)[:count]


def test_a_beam_of_one_is_greedy_where_words_are_equal():
    model = gpt(vocabulary=40)
    for weight in model.parameters():
        weight.data.zero_()
    [[greedy]] = sample(model, [[1]], Sampling(temperature=0.0, length=4))
    assert beam(model, [1], Sampling(length=4), beams=1)[0].tokens == greedy.tokens == [0] * 4


def test_a_beam_refuses_what_sampling_refuses():
    model = gpt()
    for beams in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"beams is {beams}"):
            beam(model, [1], GREEDY, beams=beams)
    for penalty in (math.nan, math.inf, 11, "1"):
        with pytest.raises(ValueError, match=f"length_penalty is {penalty!r}"):
            beam(model, [1], GREEDY, length_penalty=penalty)
    with pytest.raises(ValueError, match="prompt 0 is empty"):
        beam(model, [], GREEDY)
    with pytest.raises(ValueError, match="positions for 64"):
        beam(model, [1] * 64, GREEDY)
    with pytest.raises(ValueError, match="top_k is 24"):
        beam(model, [1], Sampling(top_k=24))
    with pytest.raises(ValueError, match="token 23, the model knows 0 to 22"):
        beam(model, [23], GREEDY)
    with pytest.raises(TypeError, match="beam_width"):
        beam(model, [1], GREEDY, beam_width=3)


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


def test_the_length_penalty_counts_the_new_words_alone():
    """A text that stops early wins or loses by its own length, however long its prompt is."""
    model = gpt(vocabulary=4)
    for prompt in ([1], [1] * 40):
        for penalty in (-2.0, 3.0):
            how = Sampling(length=6, stop=(2,))
            found = beam(model, prompt, how, beams=3000, length_penalty=penalty)
            score = [text.log_probability / len(text.tokens) ** penalty for text in found]
            assert score == sorted(score, reverse=True)
            assert len({len(text.tokens) for text in found}) == 6


def test_filters_of_a_beam_see_the_prompt_and_count_new_words_for_the_minimum():
    model, prompt = gpt(), [3, 9, 11, 14, 20]
    logits = model(torch.tensor([prompt]))[:, -1].detach()
    wanted = repeat_less(logits, torch.tensor([prompt]), 3.0)[0].argsort(descending=True)
    found = beam(model, prompt, Sampling(length=1, repetition=3.0), beams=23)
    assert [text.tokens[0] for text in found] == wanted.tolist()
    assert wanted.tolist() != logits[0].argsort(descending=True).tolist()
    late = Sampling(length=6, minimum=3, stop=tuple(range(10)))
    for text in beam(model, prompt, late, beams=5):
        assert all(word >= 10 for word in text.tokens[:3])


def test_a_beam_needs_no_memory():
    """A causal model that keeps no memory reads the whole text each time."""
    model = gpt()
    wanted = beam(model, [1, 2], Sampling(length=6), beams=3)
    model.backbone.remembers = False
    found = beam(model, [1, 2], Sampling(length=6), beams=3)
    assert [text.tokens for text in found] == [text.tokens for text in wanted]


def test_a_beam_ranks_by_the_sum_of_the_filtered_scores() -> None:
    model, prompt = gpt(), [1, 2]
    how = Sampling(length=6, temperature=0.5, top_k=7, repetition=1.7)
    found = beam(model, prompt, how, beams=3)
    for text in found:
        summed = 0.0
        for i, token in enumerate(text.tokens):
            seen = torch.tensor([prompt + text.tokens[:i]])
            *_, (_, last) = how.stages(model(seen)[:, -1].detach(), seen, torch.tensor([i]))
            summed += float(last.log_softmax(-1)[0, token])
        assert text.filtered_log_probability == pytest.approx(summed, abs=1e-4)
    sums = [text.filtered_log_probability for text in found]
    assert sums == sorted(sums, reverse=True)
    assert found[0].filtered_log_probability - found[0].log_probability > 0.1
