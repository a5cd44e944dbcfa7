"""The language that ships: its size, its splits, its samples against its own probabilities."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from labkit.world import END, World, load_world, sampling
from labkit.world.floors import BERT, mean_of
from labkit.world.forms import takes_an
from labkit.world.labelled import TASKS, example_split, priors
from labkit.world.sampling import split_of
from labkit.world.world import world_from_text


def test_a_language_that_all_share_cannot_be_changed() -> None:
    shared = load_world("village")
    assert isinstance(shared.vocabulary, tuple)
    for kept in (shared.visits, shared.stationary, shared.begin, shared.replacements,
                 shared.sentence_distribution):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 0


def test_the_language_is_as_large_as_promised(world: World) -> None:
    machine = world.machine
    assert len(world.vocabulary) >= 1500
    assert len({str(position) for position in machine.patterns}) >= 150
    assert len({section.topic for section in machine.sections} - {"end", "relations"}) >= 10
    assert len(world.grammar.relations) >= 6
    senses: dict[int, set[str]] = {}
    for (_, word), sense in machine.senses.items():
        senses.setdefault(word, set()).add(sense)
    ambiguous = {world.vocabulary[word] for word, names in senses.items() if len(names) > 1}
    assert len(ambiguous) >= 15
    assert {"stick", "bank", "bat"} <= ambiguous
    assert min(len(world.grammar.lists["praise"]), len(world.grammar.lists["blame"])) >= 90


def test_sampling_is_repeatable_and_does_not_depend_on_how_much_is_drawn(world: World) -> None:
    few, many = world.sample(documents=5, seed=3), world.sample(documents=700, seed=3)
    assert [d.text for d in few] == [d.text for d in many[:5]]
    assert [d.text for d in few] != [d.text for d in world.sample(documents=5, seed=4)]
    assert sum(map(len, world.sample(words=5000, seed=3))) >= 5000


def test_documents_that_are_kept_are_those_that_are_drawn(world: World) -> None:
    fresh, again = world_from_text({"tiny.txt": UNEQUAL}), world_from_text({"tiny.txt": UNEQUAL})
    first = [d.text for d in fresh.sample(documents=600, seed=1, split="train")]
    for seed in range(sampling.KEPT):  # what was drawn longest ago is drawn anew
        assert fresh.sample(documents=5, seed=seed, split=None)
    # What one reader does with the words of a document, no other one sees.
    fresh.sample(documents=1, seed=1)[0].words.append("x")
    assert [d.text for d in fresh.sample(documents=600, seed=1, split="train")] == first
    other = [d.text for d in again.sample(documents=90, seed=1, split="held_out")]
    assert other == [d.text for d in fresh.sample(documents=90, seed=1, split="held_out")]
    assert fresh._sampler._chunk.cache_info().currsize <= sampling.KEPT
    with pytest.raises(ValueError, match="read-only"):
        fresh.sample(documents=1)[0].numbers[0] = 0


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
    new = ["anna", "put", "some", "keys", "by", "the", "old", "chair", "."]
    assert not world.is_sentence(new)
    assert other.is_sentence(new)


def test_documents_and_their_annotations(world: World) -> None:
    for document in world.sample(documents=200, seed=1):
        notes = document.annotations
        assert document.words[-1] == END
        assert END not in document.text
        assert document.sentences[-1][1] == len(document) - 1
        counts = {len(notes.topics), len(notes.patterns), len(document.sentences)}
        assert len(counts) == 1
        for sense in notes.senses:
            assert document.words[sense.position] == sense.word
        if notes.facts:
            assert {"hero", "home"} <= set(notes.facts) or "opening" not in notes.topics
            assert all(value in document.words for value in notes.facts.values())
        assert (notes.feeling is None) or set(notes.topics) == {"hotel"}


def test_articles_fit_their_words_and_no_word_is_doubled(world: World) -> None:
    for name in ("language", "crawl", "answers", "instructions"):
        documents = load_world(name).sample(words=25_000, seed=8)
        words = [
            word
            for d in documents
            if set(d.annotations.topics).isdisjoint({"salad", "codes", "relations"})
            for word in d.words
        ]
        pairs = list(itertools.pairwise(words))
        assert not [pair for pair in pairs if pair[0] in ("a", "an") and pair[1] in ("a", "an")]
        articles = {pair for pair in pairs if pair[0] in ("a", "an") and pair[1].isalpha()}
        assert not {pair for pair in articles if (pair[0] == "an") != takes_an(pair[1])}
        assert not {one for one, other in pairs if one == other and one.isalpha()}
    assert takes_an("honest")
    assert takes_an("unusual")
    assert not takes_an("useful")


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
    # Backward also says that a document ends here; and questions may be the end of a longer text.
    stream = math.log(world.stationary[world.machine.ends].sum())
    for document, f, b in zip(sample, forward, backward, strict=True):
        if set(document.annotations.topics) <= {"questions", "relations", "told"}:
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
    train = world.labelled(task, 152, seed=0)
    assert max(Counter(e.label for e in train).values()) == len(train) // len(train.labels)
    assert len({e.label for e in train}) == len(train.labels)
    assert all(example_split(e) == "train" for e in train)
    for e in train:
        assert sum(e.chances.values()) == pytest.approx(1, abs=1e-9)
        assert e.chances[e.label] > 0
    right = np.array([max(e.chances, key=e.chances.__getitem__) == e.label for e in train])
    assert abs(right.mean() - train.best_accuracy) < 4 * train.standard_error + 0.01
    again = world.labelled(task, 152, seed=0)
    assert [e.words for e in again] == [e.words for e in train]


UNEQUAL = """
documents
    talk 3 begins with sun
    note 1 begins with rain

words day
    monday, tuesday, wednesday, thursday, friday, saturday, sunday, today

topic sun
    leads to end

stage only
    3 on {day} it came .
    on {day} it went .

topic rain
    leads to end

stage only
    on {day} it came .
    3 on {day} it went .
"""


def test_chances_of_labels_do_not_depend_on_how_frequent_they_are() -> None:
    """P(came | sun) = 3/4 and P(came | rain) = 1/4: of equally many of both, 3/4 are of sun.

    With the frequencies of the language it would be 9/10, since three of four texts are of sun.
    """
    world = world_from_text({"tiny.txt": UNEQUAL})
    assert priors(world, "topic") == pytest.approx({"sun": 0.75, "rain": 0.25})
    found = world.labelled("topic", 40, seed=0)
    assert Counter(e.label for e in found) == {"sun": 20, "rain": 20}
    for e in found:
        sun = 3 / 4 if "came" in e.words else 1 / 4
        assert e.chances == pytest.approx({"sun": sun, "rain": 1 - sun}, abs=1e-12)
    assert found.best_accuracy == pytest.approx(3 / 4)


def test_labelled_splits_share_no_example(world: World) -> None:
    for task in ("topic", "order"):
        train, held_out = (
            world.labelled(task, 100, seed=0, split=s) for s in ("train", "held_out")
        )
        assert not {" ".join(e.words) + " ".join(e.second or []) for e in train} & {
            " ".join(e.words) + " ".join(e.second or []) for e in held_out
        }


def test_the_order_of_passages_can_be_known(world: World) -> None:
    """Of single sentences it is often open."""
    found = {task: world.labelled(task, 200, split="held_out") for task in ("order", "passages")}
    best = {task: rows.best_accuracy for task, rows in found.items()}
    assert best["order"] < 0.85 < 0.9 < best["passages"]
    for row in found["passages"]:
        ends = {".", "?", "!", ";"}
        assert all(sum(word in ends for word in text) >= 6 for text in (row.words, row.second))
    short = "documents\n story 1 begins with a\ntopic a\n leads to end\nstage one\n a .\n b .\n"
    with pytest.raises(ValueError, match="too short"):
        world_from_text({"a.txt": short}).labelled("passages", 20)


@pytest.mark.parametrize("task", ["order", "passages", "next"])
@pytest.mark.parametrize("name", ["answers", "crawl"])
def test_sentences_with_a_full_stop_inside_make_no_pairs(name: str, task: str) -> None:
    """Their texts cannot be cut into sentences, so the chances would be wrong."""
    with pytest.raises(ValueError, match=f'"{task}" needs a language in which every "." ends'):
        load_world(name).labelled(task, 20)


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
    with pytest.raises(ValueError, match="from 0 to"):
        world.few_shot(99, 1, seed=0)
    with pytest.raises(ValueError, match="seed is -1: give a whole number from 0"):
        world.few_shot(1, 5, seed=-1)


def test_order_decides_the_sense(world: World) -> None:
    """The same words in another order, and another role in the same order: the other sense."""
    text = "the {} met the {} at the station , and the {} spoke of the bank ."
    senses = {}
    for people in (("banker", "diver"), ("diver", "banker")):
        for role in ("former", "latter"):
            words = text.format(*people, role).split()
            found = world.posterior(words, "sense", position=-2, start="sentence")
            senses[people[0], role] = max(found, key=found.__getitem__)
            assert max(found.values()) == pytest.approx(1, abs=1e-12)
    assert senses == {
        ("banker", "former"): "money",
        ("banker", "latter"): "water",
        ("diver", "former"): "water",
        ("diver", "latter"): "money",
    }


def test_a_bag_of_words_is_at_chance_about_senses(world: World) -> None:
    """Every bag stands with both senses equally often, so no function of it does better."""
    found = world.labelled("sense", 190, seed=0)
    assert found.best_accuracy > 0.9
    people = {sense: set(_words_of(world, f"of_{sense}")) for sense in _senses(world)}
    everyone = set().union(*people.values())
    swapped = []
    for e in found:
        word, sense = e.label.split("~")
        senses = {label.split("~")[1] for label in found.labels if label.startswith(f"{word}~")}
        assert sense in senses
        assert senses == {s for s, names in people.items() if names & set(e.words)}
        # The two people in the other order: the same bag, as likely, the other sense.
        first, second = (t for t, w in enumerate(e.words) if w in everyone)
        other = list(e.words)
        other[first], other[second] = e.words[second], e.words[first]
        swapped.append((other, e.position or 0))
    one = world.log_probabilities([e.words for e in found], start="sentence")
    two = world.log_probabilities([words for words, _ in swapped], start="sentence")
    np.testing.assert_allclose([x.sum() for x in one], [x.sum() for x in two], atol=1e-9)
    for e, chances in zip(found, world.posteriors(swapped, "sense", start="sentence"), strict=True):
        assert chances.get(e.label.split("~")[1], 0.0) < 1e-12


def _senses(world: World) -> set[str]:
    return set(world.machine.senses.values())


def _words_of(world: World, name: str) -> list[str]:
    return [row.tokens[0].word for row in world.grammar.lists[name]]


def test_agreement_at_a_distance(world: World) -> None:
    """The tense of the first sentence and the gender of the hero hold for the whole document."""
    start = "anna worked as a baker in oslo and owned a tiny kitten . {}"
    for words, possible in (
        ("every monday anna met max", True),
        ("every monday anna meets max", False),
        ("her best friend", True),
        ("his best friend", False),
    ):
        text = start.format(words).split()
        assert (world.log_probability(text).sum() > -math.inf) == possible


def test_the_foreign_language_shares_no_word(world: World) -> None:
    foreign = load_world("foreign")
    assert set(world.vocabulary) & set(foreign.vocabulary) == {END, "."}
    letters = set("".join(foreign.vocabulary[1:])) - {"."}
    assert not letters & set("abcdefghijklmnopqrstuvwxyz")
    one, two = (foreign.floor("next", foreign.sample(words=9000, seed=s)) for s in (0, 1))
    assert abs(one.mean - two.mean) < 4 * math.hypot(one.standard_error, two.standard_error)


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
    for document in world.sample(documents=3, seed=4):
        words = document.numbers[:60]
        [logs] = world.log_probabilities([words])
        for t in np.argsort(logs)[:1]:
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


def test_standard_errors_are_those_of_documents() -> None:
    random = np.random.default_rng(0)
    means, errors = [], []
    # The deviation of 400 means is known to one part in 28: 0.15 is more than four times that.
    for _ in range(400):
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
    with pytest.raises(ValueError, match="choose next, previous"):
        world.floor("bert", world.sample(documents=1))
    with pytest.raises(ValueError, match="choose feeling, topic"):
        world.labelled("mood", 10)
    with pytest.raises(ValueError, match="more than 0"):
        world.floor("masked", world.sample(documents=1), rate=0)
    with pytest.raises(FileNotFoundError, match="one of language, crawl, foreign"):
        load_world("nowhere")
