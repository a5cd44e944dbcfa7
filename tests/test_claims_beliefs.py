"""Beliefs are exact, and a map finds what is there and no more."""

import numpy as np
import pytest
import torch

from classroom.claims import beliefs
from classroom.models.recipes import course_text
from labkit.world import load_world


def test_a_belief_predicts_the_next_word_as_the_language_does() -> None:
    """From the last section on, the topics of the belief are the exact ones."""
    world = load_world("village")
    texts = beliefs.prefixes(world, 5, seed=0, split="held_out")
    belief_NS = beliefs.beliefs(world, texts)
    assert belief_NS.sum(dim=1).tolist() == pytest.approx([1.0] * 5)
    topics = {
        kind: world.machine.sections[section].topic
        for kind, section in zip(
            beliefs.kinds_of(world).tolist(), world.machine.section, strict=True
        )
    }
    for belief_S, text in zip(belief_NS, texts, strict=True):
        words = [world.vocabulary[i] for i in text]
        exact = world.posterior(words, "topic", position=len(words) - 1)
        found = dict.fromkeys(exact, 0.0)
        for kind in belief_S.nonzero()[:, 0].tolist():
            found[topics[kind]] = found.get(topics[kind], 0.0) + float(belief_S[kind])
        for topic, chance in exact.items():
            assert found[topic] == pytest.approx(chance, abs=1e-5)


def test_beliefs_that_follow_from_the_states_are_told_and_noise_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    known, asked = (torch.randn(400, 6, generator=generator) for _ in range(2))
    turn = torch.randn(6, 3, generator=generator)
    noise = torch.randn(400, 6, generator=generator)
    truth, right = ((x @ turn).softmax(dim=1) for x in (known, asked))
    assert np.mean(beliefs.told(known, truth, asked, right)) > 0.99
    assert np.mean(beliefs.told(noise, truth, noise, right)) < 0.05


def test_the_last_words_are_the_last_ones() -> None:
    seen = beliefs.last_words([np.array([3, 1, 2]), np.array([0, 0, 1])], 4, 2)
    assert seen.tolist() == [[0, 1, 0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 1, 0, 0]]


def test_the_state_that_is_read_is_that_of_the_last_word() -> None:
    from classroom.models.recipes import untrained_gpt

    text = course_text("village", words=2_000, held_out=500)
    model = untrained_gpt(text, width=32, layers=2, length=beliefs.LENGTH)
    assert text.world is not None
    texts = beliefs.prefixes(text.world, 3, seed=0, split="held_out")
    found = beliefs.layers(model, text, texts)
    assert len(found) == 3
    end = text.tokenizer.vocabulary.sep
    for n, one in enumerate(texts):
        row = torch.tensor([[end, *text.numbers([text.world.vocabulary[i] for i in one])]])
        with torch.no_grad():
            alone = model.backbone(row).hidden[0, -1]
        assert torch.allclose(found[-1][n], alone, atol=1e-5)


def test_the_experiment_has_the_arms_of_its_contrasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setitem(beliefs.SIZES, "smoke", beliefs.Size((2, 3), 20, 32, 2_000))
    found = beliefs.posterior_in_states("smoke", 0)
    contrasts = beliefs.POSTERIOR_IN_STATES.contrasts
    assert {name for one in contrasts for name in one.weights} <= set(found.arms)
    assert {len(items) for items in found.arms.values()} == {20}
