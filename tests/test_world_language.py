"""The language that ships: its size, its splits, its samples against its own probabilities."""

import math
from collections import Counter

import numpy as np
import pytest

from labkit.world import END, World, load_world
from labkit.world.floors import BERT, mean_of
from labkit.world.labelled import TASKS, example_split
from labkit.world.loading import world_from_text
from labkit.world.sampling import split_of


@pytest.fixture(scope="module")
def world() -> World:
    return load_world()


def test_the_language_is_as_large_as_promised(world: World) -> None:
    machine = world.machine
    assert len(world.vocabulary) >= 1500
    positions = {
        str(position) for position in machine.patterns if not position.file.startswith("relations")
    }
    assert len(positions) >= 150
    assert len({section.topic for section in machine.sections} - {"end", "relations"}) >= 10
    assert len(world.grammar.relations) >= 6
    senses: dict[int, set[str]] = {}
    for (_, word), sense in machine.senses.items():
        senses.setdefault(word, set()).add(sense)
    ambiguous = {world.vocabulary[word] for word, names in senses.items() if len(names) > 1}
    named = {"stick", "bank", "bat", "spring", "match", "light", "park", "ring", "watch", "wave"}
    assert len(ambiguous) >= 15
    assert named <= ambiguous
    assert min(len(world.grammar.lists["praise"]), len(world.grammar.lists["blame"])) >= 100
    names = {
        " ".join(t.word for t in row.tokens)
        for rows in world.grammar.lists.values()
        for row in rows
    }
    assert {
        "new york",
        "los angeles",
        "san francisco",
        "new orleans",
        "san diego",
        "ice cream",
    } <= names


def test_sampling_is_repeatable_and_does_not_depend_on_how_much_is_drawn(world: World) -> None:
    few, many = world.sample(documents=5, seed=3), world.sample(documents=700, seed=3)
    assert [d.text for d in few] == [d.text for d in many[:5]]
    assert [d.text for d in few] != [d.text for d in world.sample(documents=5, seed=4)]
    assert sum(map(len, world.sample(words=5000, seed=3))) >= 5000


def test_no_document_is_in_both_splits(world: World) -> None:
    held_out = {d.text for d in world.sample(documents=300, seed=0, split="held_out")}
    for seed in range(3):
        train = [d.text for d in world.sample(documents=1000, seed=seed)]
        assert not held_out & set(train)
        assert all(split_of(text) == "train" for text in train)


def test_short_documents_do_meet_in_a_split_that_is_only_drawn_by_seed(world: World) -> None:
    """The mutant: splits by seed alone share prompts, so the test above can fail."""
    one = {d.text for d in world.sample(documents=2000, seed=0, split=None)}
    other = {d.text for d in world.sample(documents=2000, seed=1, split=None)}
    assert one & other


def test_held_out_forms_are_never_in_training_text(world: World) -> None:
    new = set(world.grammar.held_out)
    seen = Counter(word for d in world.sample(words=150_000) for word in d.words)
    assert not new & set(seen)
    other = world.new_forms
    assert other.vocabulary == world.vocabulary
    assert new & {word for d in other.sample(words=100_000) for word in d.words}
    assert not world.is_sentence(
        ["he", "planted", "tulips", "and", "carrots", "next", "to", "the", "oak", "."]
    )
    assert other.is_sentence(
        ["he", "planted", "tulips", "and", "carrots", "next", "to", "the", "oak", "."]
    )


def test_documents_and_their_annotations(world: World) -> None:
    for document in world.sample(documents=200, seed=1):
        notes = document.annotations
        assert document.words[-1] == END
        assert END not in document.text
        assert document.sentences[-1][1] == len(document) - 1
        counts = {len(notes.topics), len(notes.patterns), len(notes.sides), len(document.sentences)}
        assert len(counts) == 1
        for sense in notes.senses:
            assert document.words[sense.position] == sense.word
        if notes.facts:
            assert (
                set(notes.facts) == {"hero", "home", "pet", "friend"} or len(document.sentences) < 9
            )
            assert all(value in document.words for value in notes.facts.values())
        assert (notes.feeling is None) or set(notes.topics) <= {"film", "hotel", "dinner", "novel"}


def test_facts_are_named_early_and_needed_late(world: World) -> None:
    late = 0
    for document in world.sample(documents=200, seed=2):
        hero = document.annotations.facts.get("hero")
        if hero:
            positions = [i for i, word in enumerate(document.words) if word == hero]
            assert positions[0] < 40
            late += positions[-1] > 150
    assert late > 20


def test_the_mean_loss_is_the_entropy_of_what_is_sampled(world: World) -> None:
    """Two samples agree within their errors; and both directions say how likely a document is."""
    one, two = (world.floor("next", world.sample(words=15_000, seed=s, split=None)) for s in (0, 1))
    assert abs(one.mean - two.mean) < 4 * math.hypot(one.standard_error, two.standard_error)
    sample = world.sample(words=15_000, seed=0, split=None)
    forward, backward = (
        world.log_probabilities(sample),
        world.log_probabilities(sample, direction="backward"),
    )
    # Backward also says that a document ends here; and a prompt may be the end of a longer one.
    stream = math.log(world.stationary[world.machine.ends].sum())
    for document, f, b in zip(sample, forward, backward, strict=True):
        if document.annotations.relation:
            assert f.sum() + stream < b.sum()
        else:
            assert f.sum() + stream == pytest.approx(b.sum(), abs=1e-7)


def test_next_word_is_a_law_and_calibrated(world: World) -> None:
    """Of the words that are given 70 %, 70 % are right."""
    given, right = [], []
    for document in world.sample(documents=8, seed=5, split="held_out"):
        chances = np.exp(world.log_probability(document))
        assert chances.max() <= 1 + 1e-12
        for t in range(0, min(len(document), 60), 3):
            distribution = world.next_word(document.words[:t])
            assert distribution.sum() == pytest.approx(1, abs=1e-12)
            assert distribution[document.numbers[t]] == pytest.approx(chances[t], abs=1e-12)
            given.append(distribution.max())
            right.append(distribution.argmax() == document.numbers[t])
    given, right = np.array(given), np.array(right)
    for low, high in [(0.0, 0.4), (0.4, 0.8), (0.8, 0.999), (0.999, 1.1)]:
        inside = (given >= low) & (given < high)
        error = math.sqrt((given[inside] * (1 - given[inside]).clip(0)).sum()) / max(
            inside.sum(), 1
        )
        assert abs(given[inside].mean() - right[inside].mean()) < 4 * error + 1e-9


def test_objectives_in_the_order_of_what_they_know(world: World) -> None:
    sample = world.sample(words=1200, seed=6, split="held_out")
    floors = {k: world.floor("next", sample, reach=k).mean for k in (1, 4, 16)}
    assert floors[1] > floors[4] > floors[16] > world.floor("next", sample).mean
    masked, joint = world.floor("masked", sample), world.floor("permutation", sample)
    assert masked.total > joint.total
    assert world.floor("masked", sample, channel=BERT).mean < masked.mean
    assert world.floor("cloze", sample[:4], rate=0.1).mean < world.floor("next", sample[:4]).mean


@pytest.mark.parametrize("task", TASKS)
def test_labelled_sets(world: World, task: str) -> None:
    train = world.labelled(task, 240, seed=0)
    assert max(Counter(e.label for e in train).values()) == len(train) // len(train.labels)
    assert len({e.label for e in train}) == len(train.labels)
    assert all(example_split(e) == "train" for e in train)
    for e in train:
        assert sum(e.chances.values()) == pytest.approx(1, abs=1e-9)
        assert e.chances[e.label] > 0
    right = np.array([max(e.chances, key=e.chances.__getitem__) == e.label for e in train])
    assert abs(right.mean() - train.best_accuracy) < 4 * train.standard_error + 0.01
    again = world.labelled(task, 240, seed=0)
    assert [e.words for e in again] == [e.words for e in train]


def test_labelled_splits_share_no_example(world: World) -> None:
    for task in ("topic", "order"):
        train, held_out = (
            world.labelled(task, 100, seed=0, split=s) for s in ("train", "held_out")
        )
        assert not {" ".join(e.words) + " ".join(e.second or []) for e in train} & {
            " ".join(e.words) + " ".join(e.second or []) for e in held_out
        }


def test_few_shot_prompts_agree_with_the_sums_over_paths(world: World) -> None:
    best = []
    for shots in range(4):
        prompts = world.few_shot(shots, 60, seed=shots)
        best.append(world.few_shot(shots, 1500, seed=9).best_accuracy)
        for example in prompts[:8]:
            distribution = world.next_word(example.words)
            first: dict[str, float] = {}
            for answer, chance in example.chances.items():
                first[answer.split()[0]] = first.get(answer.split()[0], 0.0) + chance
            for word, chance in first.items():
                assert distribution[world.machine.number[word]] == pytest.approx(chance, abs=1e-12)
    assert best[0] < 0.7 < best[2] < best[3]
    with pytest.raises(ValueError, match="choose 0 to"):
        world.few_shot(99, 1, seed=0)


def test_order_decides_what_a_bag_of_words_cannot_tell(world: World) -> None:
    good = ["the", "good", "scenes", "outweigh", "the", "bad", "ones", "."]
    bad = ["the", "bad", "scenes", "outweigh", "the", "good", "ones", "."]
    assert sorted(good) == sorted(bad)
    assert world.posterior(good, "feeling", start="sentence")["good"] == pytest.approx(
        0.8, abs=0.02
    )
    assert world.posterior(bad, "feeling", start="sentence")["good"] == pytest.approx(0.2, abs=0.02)
    assert world.is_sentence(
        ["the", "dog", "bit", "the", "teacher", ",", "and", "everybody", "was", "happy", "."]
    )
    assert world.is_sentence(
        ["the", "teacher", "bit", "the", "dog", ",", "and", "everybody", "was", "happy", "."]
    )


def test_agreement_at_a_distance(world: World) -> None:
    start = ["the", "rake", "that", "stood", "behind", "the", "oaks"]
    distribution = world.next_word(start, start="sentence")
    assert distribution[world.machine.number["was"]] == pytest.approx(1, abs=1e-12)
    distribution = world.next_word(["the", "rakes", *start[2:]], start="sentence")
    assert distribution[world.machine.number["were"]] == pytest.approx(1, abs=1e-12)


def test_names_of_several_words_depend_on_each_other(world: World) -> None:
    words = "{} is a city with three churches and dark parks ."
    text = words.format("new york").split()
    assert world.gap(text, [0, 1], start="sentence") > 0.5
    assert world.gap(text, [0, 6], start="sentence") < 0.2


def test_the_second_language_shares_names_and_little_else(world: World) -> None:
    second = load_world("second")
    common = set(world.vocabulary) & set(second.vocabulary)
    assert "york" not in common
    assert "anna" in common
    assert len(common) < 0.1 * len(world.vocabulary)
    there = second.sample(documents=50, seed=0)
    assert {t for d in there for t in d.annotations.topics} <= set(world.grammar.topics) | {
        "relations"
    }
    here = world.floor("next", world.sample(words=5000))
    assert second.floor("next", there).mean == pytest.approx(here.mean, rel=0.3)


def test_a_second_language_runs_the_other_way() -> None:
    text = """
documents
    story 1 begins with talk
topic talk
    leads to end
stage only
    the {beast.s} {bite.ed} (the|{a x}) bank~money , not the bank~river .
nouns beast
    dog
verbs bite
    bite/bit
words x
    egg
translate
    the = ka, not = nai, dog = wuf, bite = gnam
endings
    s = nim, ed = tavi
syllables
    zo
"""
    world = world_from_text({"small.txt": text})
    texts = {tuple(d.words[:-1]) for d in world.sample(documents=50, split=None)}
    assert len(texts) == 2
    for words in texts:
        river, ka, nai, comma, money, *rest = words
        assert (ka, nai, comma) == ("ka", "nai", ",")
        assert rest[-4:] == ["gnamtavi", "wufnim", "ka", "."]
        assert set(river + money) == set("zo")
        assert river != money


def test_the_crawl_is_the_clean_language_and_noise(world: World) -> None:
    crawl = load_world("crawl")
    assert set(world.vocabulary) <= set(crawl.vocabulary)
    topics = Counter(d.annotations.topics[0] for d in crawl.sample(documents=1000))
    noise = topics["page"] + topics["salad"] + topics["codes"]
    assert 0.4 < noise / 1000 < 0.6
    clean = world.sample(documents=3, seed=1)[0].words
    assert crawl.log_probability(clean).sum() > -math.inf
    assert (
        world.floor("next", world.sample(words=5000)).mean
        < crawl.floor("next", crawl.sample(words=5000)).mean
    )


def test_standard_errors_are_those_of_documents() -> None:
    random = np.random.default_rng(0)
    means, errors = [], []
    for _ in range(300):
        losses = [
            random.normal(random.normal(1, 1), 0.1, size=random.integers(5, 15)) for _ in range(40)
        ]
        found = mean_of(losses)
        means.append(found.mean)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)


def test_arguments_are_checked(world: World) -> None:
    with pytest.raises(ValueError, match="choose one of train, held_out"):
        world.sample(documents=1, split="test")
    with pytest.raises(ValueError, match="how much to draw"):
        world.sample()
    with pytest.raises(ValueError, match="choose one of next"):
        world.floor("bert", world.sample(documents=1))
    with pytest.raises(ValueError, match="choose one of feeling"):
        world.labelled("mood", 10)
    with pytest.raises(ValueError, match="more than 0"):
        world.floor("masked", world.sample(documents=1), rate=0)
    with pytest.raises(FileNotFoundError, match="one of world, second, crawl"):
        load_world("nowhere")
