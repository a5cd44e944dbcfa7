"""The experiments of notebook 03: what they compare is what they say."""

import numpy as np
import pytest
import torch

from classroom.claims import order, ulmfit
from classroom.models.recipes import CourseText, course_text, untrained_awd_lstm
from classroom.models.scaling_runs import document_losses
from classroom.tasks.classifying import openings, right, rows_of
from labkit.blocks import LanguageModel
from labkit.objectives import Labels
from labkit.text.tokenizers import Tokenizer
from labkit.world import World


@pytest.fixture(scope="module")
def tokenizer(world: World) -> Tokenizer:
    return Tokenizer.words([" ".join(world.vocabulary[1:])])


@pytest.fixture(scope="module")
def text() -> CourseText:
    return course_text(words=3_000, held_out=500)


def test_shuffled_words_are_the_same_words_in_another_order(world, tokenizer):
    rows = rows_of(world.labelled("feeling", 8, seed=0), tokenizer, batch=4)
    plain = list(rows.once())
    for before, after in zip(plain, order.shuffled(rows, 0), strict=True):
        assert torch.equal(before.tokens.sort(dim=1).values, after.tokens.sort(dim=1).values)
        assert not torch.equal(before.tokens, after.tokens)
        assert torch.equal(before.tokens[:, 0], after.tokens[:, 0])
        assert torch.equal(before.tokens[~before.real], after.tokens[~before.real])
        assert torch.equal(before.labels, after.labels)


@pytest.mark.parametrize(
    ("name", "blind"),
    [("bag of words", True), ("kernels of 1", True), ("kernels of 3, 5, 11", False),
     ("RNN", False), ("Transformer", False)],
)  # fmt: skip
def test_who_is_blind_to_order(world, tokenizer, name, blind):
    rows = rows_of(world.labelled("feeling", 4, seed=0), tokenizer, batch=4)
    model, objective = order.encoders(len(tokenizer))[name].eval(), Labels(position="pooled")
    found = []
    for batch in (next(rows.once()), order.shuffled(rows, 0)[0]):
        targets = objective.targets(batch, None)  # type: ignore[arg-type]
        states, _ = objective.forward(model, targets)
        found.append(objective.scores(model, states, targets)["label"])
    assert torch.allclose(*found, atol=1e-5) == blind


def test_an_opening_has_the_exact_chances_of_its_words(world):
    """What the short prompts' chances say is what the language says of any text."""
    short = openings(world, world.labelled("relation", 90, seed=0), 2)
    assert max(sum(word in (";", ".") for word in example.words) for example in short) == 2
    for example in short:
        assert sum(example.chances.values()) == pytest.approx(1)
        assert example.chances.get(example.label, 0) > 0
    longer = openings(world, world.labelled("relation", 90, seed=0), 4)
    means = [np.mean([np.log(e.chances[e.label]) for e in some]) for some in (short, longer)]
    assert means[0] < means[1]
    chances = np.array([max(example.chances.values()) for example in short])
    hits = [max(e.chances, key=e.chances.get) == e.label for e in short]
    assert abs(np.mean(hits) - chances.mean()) < 4 * short.standard_error + 1e-9


def test_right_counts_what_the_labels_say(world, tokenizer):
    rows = rows_of(world.labelled("feeling", 20, seed=0), tokenizer, batch=7)
    model, objective = order.encoders(len(tokenizer))["bag of words"], Labels(position="pooled")
    with torch.no_grad():
        model.head.labels.weight.zero_()
        model.head.labels.bias.copy_(torch.tensor([1.0, 0.0]))
    first = [float(label == 0) for batch in rows.once() for label in batch.labels.tolist()]
    assert right(model, objective, rows.once()) == first
    assert sum(first) == 10


def test_a_new_language_gets_the_layers_and_not_the_words(text):
    old = untrained_awd_lstm(text.vocabulary, 8, seed=1)
    new = ulmfit.with_new_words(old, 50, seed=2)
    for before, after in zip(
        old.backbone.blocks.parameters(), new.backbone.blocks.parameters(), strict=True
    ):
        assert torch.equal(before, after)
    assert new.backbone.token.weight.shape == (50, 8)
    assert new.head.words.weight is new.backbone.token.weight


def test_document_losses_are_means_of_documents(text):
    model: LanguageModel = untrained_awd_lstm(text.vocabulary, 8)
    with torch.no_grad():
        model.backbone.token.weight.zero_()
    losses = document_losses(model, text.tests(8))
    assert len(losses) == len(text.documents)
    assert losses == pytest.approx([np.log(text.vocabulary)] * len(losses))


def test_the_arms_of_the_ablation_differ_in_one_thing():
    whole = {"factor": 2.6, "schedule": "slanted_triangle", "gradually": True}
    changed = [set((whole | dict(changes)).items()) - set(whole.items())
               for changes in ulmfit.ABLATION.values()]  # fmt: skip
    assert [len(each) for each in changed] == [0, 1, 1, 1, 3]


@pytest.mark.parametrize("claim", ulmfit.CLAIMS, ids=lambda claim: claim.id)
def test_contrasts_name_arms_that_every_profile_has(claim):
    counts = {profile: size.counts for profile, size in ulmfit.SIZES.items()}
    if claim.id == "hundred-labels":
        for contrast in claim.contrasts:
            for arm in contrast.weights:
                number = int(arm.removeprefix("times: ").split()[0].replace(",", ""))
                assert all(number in each for each in counts.values())
    assert claim.notebook == "03_ulmfit"
    absolute = [c for c in claim.contrasts if sum(c.weights.values()) != 0]
    assert all("times" in arm for contrast in absolute for arm in contrast.weights)


def test_how_many_more_labels_are_needed_is_read_off_the_curve():
    counts = (10, 100, 1_000)
    assert ulmfit.more_labels(counts, (0.2, 0.4, 0.8), 0, 0.4) == pytest.approx(1.0)
    assert ulmfit.more_labels(counts, (0.2, 0.4, 0.8), 1, 0.4) == pytest.approx(0.0)
    assert ulmfit.more_labels(counts, (0.2, 0.4, 0.8), 0, 0.6) == pytest.approx(1.5)
    # What is never reached counts as the most that was tried, and a dip is no gain.
    assert ulmfit.more_labels(counts, (0.2, 0.4, 0.8), 0, 0.9) == pytest.approx(2.0)
    assert ulmfit.more_labels(counts, (0.4, 0.3, 0.8), 0, 0.4) == pytest.approx(1.0)


def test_the_last_layers_are_more_and_more_of_them():
    layers = [dict(ways).get("layers") for ways in ulmfit.LAST.values()]
    assert layers == [1, 2, 3, None]


def test_all_encoders_are_summarised_alike():
    heads = [model.head for model in order.encoders(9).values()]
    assert len({head.parts for head in heads}) == 1


def test_seconds_are_measured_for_each_encoder():
    seconds = order.seconds_a_word((4, 8), rows=2)
    assert list(seconds) == list(order.encoders(9))
    assert all(time > 0 for times in seconds.values() for time in times)
