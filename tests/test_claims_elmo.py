"""The experiments of notebook 02 against counting by hand, and against the exact language."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classroom.claims import elmo as claims
from classroom.claims.elmo import Meant
from classroom.models import recipes
from classroom.models.recipes import CourseText
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.world import World, load_world

TINY = {"words": 4_000, "steps": 3, "width": 8, "documents": 60}


@pytest.fixture(scope="module")
def text() -> CourseText:
    return recipes.course_text(words=4_000, held_out=500)


@pytest.fixture(scope="module")
def world() -> World:
    return load_world().new_forms


@pytest.fixture(scope="module")
def model(text: CourseText) -> LanguageModel:
    return recipes.untrained_elmo(text, width=8)


def twins(world: World) -> list[claims.Twins]:
    return claims.twins(world, world.sample(documents=100, seed=5, split="held_out"), seed=0)


def test_twins_differ_in_one_word_which_is_unseen_in_one_of_them(world: World) -> None:
    found = twins(world)
    assert len(found) > 20
    for twin in found:
        differ = [i for i, pair in enumerate(zip(twin.unseen, twin.known, strict=True))
                  if pair[0] != pair[1]]  # fmt: skip
        assert differ == [twin.place]
        assert twin.unseen[twin.place] in world.grammar.held_out
        assert not set(twin.known) & set(world.grammar.held_out)
        assert world.is_sentence(twin.unseen)
        assert world.is_sentence(twin.known)


def test_the_words_beside_a_place_are_asked_from_the_right_sides(
    world: World, text: CourseText, model: LanguageModel
) -> None:
    found = twins(world)[:6]
    sentences, places = [twin.unseen for twin in found], [twin.place for twin in found]
    whole = claims.beside(model, sentences, places, text.tokenizer)
    for i, (words, place) in enumerate(zip(sentences, places, strict=True)):
        # Each side is shown no more than it may know.
        before, after = words[: place + 1], words[place:]
        (left, _) = claims.states(model.backbone, [before], text.tokenizer).hidden[0, -1].chunk(2)
        (_, right) = claims.states(model.backbone, [after], text.tokenizer).hidden[0, 0].chunk(2)
        asked = [text.tokenizer[words[place + 1]], text.tokenizer[words[place - 1]]]
        scores = model.head(torch.stack([left, right]))
        torch.testing.assert_close(
            torch.tensor(whole.losses[i]), F.cross_entropy(scores, torch.tensor(asked))
        )
        assert whole.right[i] == (scores.argmax(dim=-1) == torch.tensor(asked)).float().mean()


def test_the_floor_beside_a_place_is_that_of_the_laws_of_the_language(world: World) -> None:
    (twin,) = twins(world)[:1]
    place, words = twin.place, twin.known
    ahead = world.conditional(words[: place + 2], [place + 1], start="sentence")[0]
    back = world.next_word(words[place:], direction="backward")
    number = world.machine.number
    expected = -np.log([ahead[number[words[place + 1]]], back[number[words[place - 1]]]]).mean()
    assert claims.floor_beside(world, [words], [place]) == pytest.approx(expected)


def test_unread_words_are_unknown_and_still_asked_for(text: CourseText) -> None:
    batch = text.windows(64, 16).at(0)
    objective = claims.WithUnseen(unknown=1, rate=0.25)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    unread = targets.inputs.tokens != batch.tokens
    assert 0.2 < unread.float().mean() < 0.3
    assert set(targets.inputs.tokens[unread].tolist()) == {1}
    assert torch.equal(targets.predicted["next"].targets_N, batch.tokens[:, 1:].flatten())


def test_an_elmo_without_kernels_looks_words_up(text: CourseText) -> None:
    backbone = recipes.untrained_elmo(text, width=8, kernels=()).backbone
    tokens = text.windows(2, 5).at(0).tokens
    left, right = backbone(tokens).layers[0].chunk(2, dim=-1)
    assert torch.equal(left, backbone.token.weight[tokens])
    assert torch.equal(left, right)
    with pytest.raises(ValueError, match="no kernels"):
        backbone(None, characters=torch.zeros(1, 2, 9, dtype=torch.long))


def test_a_probe_finds_what_is_there_and_the_mix_says_where() -> None:
    generator = torch.Generator().manual_seed(0)
    senses_N = torch.arange(200) % 4
    blind = torch.randn(200, 6, generator=generator)
    telling = F.one_hot(senses_N, 6) + 0.1 * torch.randn(200, 6, generator=generator)
    even = torch.arange(200) % 8 < 4

    def probed(*layers: torch.Tensor) -> claims.Probed:
        train, tests = (Meant(tuple(x[rows] for x in layers), senses_N[rows])
                        for rows in (even, ~even))  # fmt: skip
        return claims.probe(train, tests, 4)

    assert np.mean(probed(telling).right) == 1.0
    assert np.mean(probed(blind).right) < 0.5
    mixed = probed(blind, telling)
    assert np.mean(mixed.right) > 0.95
    assert mixed.shares[1] > 0.6


def test_one_vector_per_word_is_right_for_one_sense_at_most(text: CourseText) -> None:
    vectors = recipes.word_vectors(text, 2, width=8)[0].backbone
    found = load_world().labelled("sense", 76, seed=1)
    known = claims.meant(vectors, found, text.tokenizer)
    right = claims.probe(known, known, len(found.labels)).right
    words = {label.split("~")[0] for label in found.labels}
    assert np.mean(right) <= len(words) / len(found.labels) + 1e-9


def test_company_is_the_mean_of_the_sentence(text: CourseText) -> None:
    vectors = recipes.word_vectors(text, 2, width=8)[0].backbone
    found = load_world().labelled("sense", 38, seed=1)
    (layer,) = claims.with_company(vectors, found, text.tokenizer).layers
    for row, example in zip(layer, found, strict=True):
        each = vectors.token.weight[[text.tokenizer[word] for word in example.words]]
        torch.testing.assert_close(row, torch.cat([each[example.position], each.mean(dim=0)]))


def test_the_experiments_have_the_arms_of_their_contrasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setitem(claims.SIZES, "smoke", TINY)
    monkeypatch.setitem(claims.SENSES, "smoke", {"words": 3_000, "steps": 2, "tests": 40})
    monkeypatch.setattr(claims, "DRAWS", 2)
    for claim in claims.CLAIMS:
        found = claim.experiment("smoke", 0)
        assert {name for contrast in claim.contrasts for name in contrast.weights} <= set(
            found.arms
        )
        assert len({len(items) for items in found.arms.values()}) == 1
        assert set(found.best) <= set(found.arms)


def test_a_sentence_with_an_unknown_word_is_refused_with_its_words() -> None:
    with pytest.raises(ValueError, match=r"the \[unknown\] stick"):
        load_world().posterior(["the", "quux", "stick"], "sense", start="sentence")
