"""The harder language of data/language: its entropy, and what each kind of text can ask."""

import math

import numpy as np
import pytest

from labkit.paths import data_path
from labkit.world import World, load_world
from labkit.world.loading import world_from_text


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("language")


def test_it_is_harder_than_one_nat_a_word(world: World) -> None:
    """Few words are nearly certain, many are wide open."""
    floor = world.floor("next", world.sample(words=12_000, seed=1))
    assert floor.mean > 1.15
    losses = np.concatenate(floor.losses)
    assert (losses < -math.log(0.9)).mean() < 0.5
    assert (losses > -math.log(0.1)).mean() > 0.2


def test_the_distribution_sums_to_one_at_the_least_certain_words(world: World) -> None:
    """And it agrees with trying every word: a remembered word that stands elsewhere breaks this."""
    size = len(world.vocabulary)
    for document in world.sample(documents=4, seed=4):
        words = document.numbers[:120]
        [logs] = world.log_probabilities([words])
        for t in np.argsort(logs)[:2]:
            distribution = world.next_word(words[:t])
            assert distribution.sum() == pytest.approx(1, abs=1e-12)
            trials = [np.append(words[:t], word) for word in range(size)]
            tried = [log[-1] for log in world.log_probabilities(trials)]
            np.testing.assert_allclose(distribution, np.exp(tried), atol=1e-12)


def test_the_same_text_from_both_sides(world: World) -> None:
    for document in world.sample(documents=6, seed=2):
        words = document.numbers[:-1]
        forward = world.log_probability(words, start="anywhere").sum()
        backward = world.log_probability(words, direction="backward").sum()
        assert forward == pytest.approx(backward, rel=1e-10)


def test_samples_follow_their_own_distribution(world: World) -> None:
    """Two samples have the same mean loss within their errors."""
    one, two = (world.floor("next", world.sample(words=12_000, seed=s, split=None)) for s in (5, 6))
    assert abs(one.mean - two.mean) < 4 * math.hypot(one.standard_error, two.standard_error)


def test_what_is_far_back_is_still_worth_something(world: World) -> None:
    sample = world.sample(words=1500, seed=3)
    whole = world.floor("next", sample).mean
    assert world.floor("next", sample, reach=16).mean > whole + 0.05


def question(world: World, words: str) -> float:
    """The chance of the last word, after the others."""
    return float(np.exp(world.log_probability(words.split())[-1]))


def test_facts_are_asked_in_another_form_than_told(world: World) -> None:
    """One hop and two hops, and questions that training never asks but the new forms do."""
    table = world.grammar.tables["village"]
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    for asked in ("yes", "no"):
        people = [row for row in rows.values() if row["asked"] == asked]
        assert len(people) > 8
        for person in people[:3]:
            town = f"where does {person['name']} live ? in {person['town']}"
            mother = rows[person["mother"]]
            two_hops = f"where does the mother of {person['name']} live ? in {mother['town']}"
            for text in (town, two_hops):
                assert question(world.new_forms, text) == pytest.approx(1, abs=1e-12)
                words = text.split()
                possible = world.log_probability(words)[-1] > -math.inf
                assert possible == (asked == "yes")


def test_facts_of_a_letter_are_asked_far_away(world: World) -> None:
    letter = "tess came to the village on a rainy monday . "
    letter += "the niece of tess lived far away , in lyon . "
    letter += "the niece had sent a kite . "
    letter += "on friday it was cold , and nobody spoke to tess . " * 12
    for text in (
        "from where had the kite been sent ? from lyon",
        "where had tess been born ? in lyon",
    ):
        assert question(world, letter + text) == pytest.approx(1, abs=1e-12)


def test_reviews_need_more_than_a_bag_of_words(world: World) -> None:
    """The same words in another order are of the other feeling."""
    good = "we found the room lovely , although my sister , whatever my uncle may write , "
    good += "had called it awful ."
    bad = good.replace("lovely", "x").replace("awful", "lovely").replace("x", "awful")
    assert sorted(good.split()) == sorted(bad.split())
    chances = [world.posterior(t.split(), "feeling", start="sentence") for t in (good, bad)]
    assert chances[0]["good"] == pytest.approx(0.92, abs=0.01)
    assert chances[1]["good"] == pytest.approx(0.08, abs=0.01)
    best = world.labelled("feeling", 200, seed=0)
    assert best.best_accuracy > 0.93


def test_the_readme_teaches_a_topic_that_works() -> None:
    folder = data_path("language")
    blocks = (folder / "README.md").read_text("utf-8").split("```")[1::2]
    topic = next(block for block in blocks if block.lstrip("\n").startswith("topic "))
    files = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    world = world_from_text(files | {"bakery.txt": topic.lstrip("\n")})
    topics = {t for d in world.sample(documents=150) for t in d.annotations.topics}
    assert "bakery" in topics
