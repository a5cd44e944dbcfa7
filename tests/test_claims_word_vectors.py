"""The experiments of notebook 01: what they ask, and that they can come out either way."""

import pytest
import torch
from torch import nn

from classroom.claims import word_vectors as claims
from classroom.models import recipes
from classroom.models.recipes import CourseText
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.objectives import CBOW, SkipGram
from labkit.transfer import classifier
from labkit.transfer.finetuning import one_way
from labkit.world import load_world

TINY = {"words": 4_000, "steps": 4, "width": 8, "small": 12, "large": 24, "tests": 24, "tuning": 3}


@pytest.fixture(scope="module")
def text() -> CourseText:
    return recipes.course_text(words=4_000, held_out=500)


def start(text: CourseText, width: int = 8) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(WordVectors(WordVectorsConfig(text.vocabulary, width)), nn.Identity())


def test_a_classifier_is_right_where_its_best_label_is(text: CourseText) -> None:
    found = load_world().labelled("topic", 24, seed=3)
    tests = claims.examples(found, text.tokenizer, 7, seed=0)
    model = classifier(start(text), len(found.labels))
    nn.init.zeros_(model.head.labels.weight)
    nn.init.constant_(model.head.labels.bias, 0.0)
    model.head.labels.bias.data[4] = 1.0
    expected = [float(example.label == found.labels[4]) for example in found]
    assert claims.right(model, tests) == expected
    assert sum(expected) == 2


def test_frozen_vectors_stay_and_tuned_ones_move_where_they_are_met(text: CourseText) -> None:
    found = load_world().labelled("topic", 12, seed=3)
    batches = claims.examples(found, text.tokenizer, 12, seed=0)
    model = start(text)
    before = model.backbone.token.weight.clone()
    met = torch.zeros(text.vocabulary, dtype=torch.bool)
    batch = batches.at(0)
    met[batch.tokens[batch.real]] = True
    plan = claims.tuning(2, 0)
    frozen = one_way(model, "frozen", batches, labels=12, plan=plan).backbone.token.weight
    tuned = one_way(model, "fine-tuned", batches, labels=12, plan=plan).backbone.token.weight
    assert torch.equal(frozen, before)
    assert torch.equal((tuned != before).any(dim=1), met)
    assert torch.equal(model.backbone.token.weight, before)


def test_the_two_languages_share_the_full_stop_alone() -> None:
    ours, theirs = (load_world(name).vocabulary[1:] for name in ("language", "foreign"))
    assert set(ours) & set(theirs) == {"."}


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
def test_the_recipe_asks_for_neighbours_of_one_document_only(
    kind: type[SkipGram] | type[CBOW], text: CourseText
) -> None:
    batch = text.windows(4, 250, apart=True).at(0)
    objective = kind(counts=recipes.counts(text), reach=5, threshold=None)
    chance = Chance(0, 0, batch.rows)
    found = objective.around(batch, chance)
    documents = batch.documents.flatten()
    centres, near = documents[found.centres_N], documents[found.context_NK]
    assert bool((near == centres[:, None])[found.present_NK].all())
    assert len(documents.unique()) > 1
    # And the objective takes such a batch: nobody has to be kept from looking.
    assert objective(start(text), batch, chance).count > 0


def test_the_experiment_has_the_arms_of_its_contrasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(claims.SIZES, "smoke", TINY)
    found = claims.four_quadrants("smoke", 0)
    named = {name for contrast in claims.FOUR_QUADRANTS.contrasts for name in contrast.weights}
    assert named <= set(found.arms)
    assert set(found.best) == set(found.arms)
    assert {len(items) for items in found.arms.values()} == {TINY["tests"]}
    assert all(set(items) <= {0.0, 1.0} for items in found.arms.values())
    assert not found.shared


def test_both_tasks_of_the_quadrants_are_asked_about_known_words(text: CourseText) -> None:
    """A word without a vector from pre-training would make "different" the same as "untrained"."""
    seen = recipes.counts(recipes.course_text(words=100_000, held_out=100))
    for task in claims.TASKS.values():
        tests = load_world().labelled(task, 48, seed=0)
        words = [text.tokenizer[word] for example in tests for word in example.words]
        assert float((seen[words] > 0).float().mean()) > 0.97
