"""Every probability of a small language, against the sum over all of its documents."""

import itertools
import math
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from world_reference import Reference, reference_of

from labkit.world import END, World, labelled, load_world, memory, sampling, sums
from labkit.world.floors import choose, floor
from labkit.world.world import world_from_text

TINY = """
documents
    story 3 begins with opening
    review 1 begins with film
    prompt 1 begins with relations

fact hero she her
    anna she her 2, clara she her, ben he him

fact home
    oslo, rome 3

words position
    park~green 2, new york, new delhi 3, river bank~water

words money
    bank~money, shop

words fruit
    apple 2, pear, ice cream

words praise zipf
    good, great, moving

words blame zipf
    bad, dull, moving

topic opening
    leads to walk 2, end 1

stage begin
    2 {hero} lived in {home} .
    in {home} lived {hero} .

topic walk
    leads to end

stage begin
    {hero} (and {hero.her} friend|) went to the {position} .
    {hero.she} went to the {money} and ate {a fruit} .

stage last
    the <key|keys> (near the {money}|) <is|are> in {home} .

topic film
    feelings good bad agree 0.8
    leads to end

stage only
    not <{blame}|{praise}> .
    2 it was <{praise}|{blame}> in the park~green .

relation capital weight 2 stops 1
    italy = rome, norway = oslo

relation food stops 1
    italy = ice cream, norway = fish 2
"""


# What a document remembers, variables, phrases, tables, the tense.
REMEMBERS = """
documents
    story 1 begins with walk, tale

fact hero he
    she: anna 2, eva
    he: adam

words big styled urn 0.8
    big, great
nouns tree urn 2 zipf
    oak, pine, elm
words mood
    glad, calm 2
verbs like styled
    like, enjoy

table village name town mother asked
    leo oslo ida yes
    ida rome leo no

phrase greeting
    <X: hello|bye>
    (3 well|) <v: now|then> <v: now|then>

topic walk
    leads to end

stage one
    2 {hero} [see] {a tree} <x: so|but> <x+y: and|or|nor> <y: the|no> {tree} .
    {hero.he} <f=3,1> [{like}] the {tree.s} <f~0.8: here|there> .

stage two
    the {big} {tree} [be+] <z=1,1> <x: {mood}|old> <g=x+z> or <g+z: now|then> .
    they [{like}+] the {big} {hero} .

topic tale
    leads to end

stage only
    {greeting} , <X: sir|madam> .
    {village.name} [live] in {village.town} , {hero} .
    who is {village!asked.name} ? {village!asked.mother.town} <a|b> {greeting} .
"""
GRAMMARS = {"tiny": TINY, "remembers": REMEMBERS}


@pytest.fixture(scope="module", params=GRAMMARS)
def text(request: pytest.FixtureRequest) -> str:
    return GRAMMARS[request.param]


@pytest.fixture(scope="module")
def world(text: str) -> World:
    return world_from_text({"tiny.txt": text})


@pytest.fixture(scope="module")
def reference(text: str) -> Reference:
    return reference_of(text)


@pytest.fixture(scope="module")
def tiny() -> World:
    return world_from_text({"tiny.txt": TINY})


@pytest.fixture(scope="module")
def tiny_reference() -> Reference:
    return reference_of(TINY)


@pytest.fixture(scope="module")
def texts(reference: Reference) -> list[tuple[str, ...]]:
    return reference.some(25)


def test_the_reference_is_a_law(reference: Reference) -> None:
    assert sum(reference.texts.values()) == pytest.approx(1, abs=1e-12)


def test_forward(world: World, reference: Reference, texts: list[tuple[str, ...]]) -> None:
    for words, logs in zip(texts, world.log_probabilities(texts), strict=True):
        for t in range(len(words)):
            exact = reference.prefix(words[: t + 1]) / reference.prefix(words[:t])
            assert math.exp(logs[t]) == pytest.approx(exact, abs=1e-12)


def test_backward(world: World, reference: Reference, texts: list[tuple[str, ...]]) -> None:
    for words in texts:
        logs = world.log_probability(words, direction="backward")
        for t in range(len(words)):
            rest = reference.anywhere(words[t + 1 :]) if t + 1 < len(words) else 1.0
            exact = reference.anywhere(words[t:]) / rest
            assert math.exp(logs[t]) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_reach(
    world: World, reference: Reference, texts: list[tuple[str, ...]], reach: int
) -> None:
    for words in texts[::3]:
        logs = world.log_probability(words, reach=reach)
        back = world.log_probability(words, reach=reach, direction="backward")
        for t in range(len(words)):
            before, after = words[max(0, t - reach) : t], words[t + 1 : t + 1 + reach]
            if t <= reach:
                exact = reference.prefix(words[: t + 1]) / reference.prefix(words[:t])
            else:
                # A word that is no end mark is always followed by another.
                exact = reference.anywhere((*before, words[t])) / reference.anywhere(before)
            assert math.exp(logs[t]) == pytest.approx(exact, abs=1e-12)
            exact = reference.anywhere((words[t], *after)) / (
                reference.anywhere(after) if after else 1.0
            )
            assert math.exp(back[t]) == pytest.approx(exact, abs=1e-12)


def test_next_word_both_ways(tiny: World, tiny_reference: Reference) -> None:
    world, reference = tiny, tiny_reference
    for words in [("anna", "lived", "in"), (), ("italy", ":"), ("in", "rome", "lived", "ben", ".")]:
        distribution = world.next_word(words)
        assert distribution.sum() == pytest.approx(1, abs=1e-12)
        whole = reference.prefix(words)
        for number, word in enumerate(world.vocabulary):
            exact = reference.prefix((*words, word)) / whole
            assert distribution[number] == pytest.approx(exact, abs=1e-12)
    for words in [
        ("park", ".", END),
        ("went", "to", "the"),
        ("is", "in", "oslo", "."),
        ("anna", "lived"),
    ]:
        distribution = world.next_word(words, direction="backward")
        assert distribution.sum() == pytest.approx(1, abs=1e-12)
        whole = reference.anywhere(words)
        begins = reference.prefix(words) / reference.length
        assert distribution[0] == pytest.approx(begins / whole, abs=1e-12)
        for number, word in enumerate(world.vocabulary[1:], start=1):
            assert distribution[number] == pytest.approx(
                reference.anywhere((word, *words)) / whole, abs=1e-12
            )


def hidden_sets(words: tuple[str, ...], random: np.random.Generator) -> list[list[int]]:
    """One word alone, some words, and all but the end mark."""
    last = len(words) - 1
    some = random.choice(last, size=min(3, last), replace=False)
    return [[int(random.integers(last))], sorted(some.tolist()), list(range(last))]


def test_hidden_words(world: World, reference: Reference, texts: list[tuple[str, ...]]) -> None:
    random = np.random.default_rng(0)
    for words in texts[::2]:
        for hidden in hidden_sets(words, random):
            alike = reference.like(words, hidden)
            seen = sum(alike.values())
            distributions = world.conditional(words, hidden)
            alone = 0.0
            for distribution, t in zip(distributions, hidden, strict=True):
                exact = distribution_at(world, alike, t)
                np.testing.assert_allclose(distribution, exact, atol=1e-12)
                alone += math.log(exact[world.machine.number[words[t]]])
            together = math.log(alike[words] / seen)
            assert world.joint(words, hidden) == pytest.approx(together, abs=1e-12)
            assert world.gap(words, hidden) == pytest.approx(together - alone, abs=1e-11)


def distribution_at(world: World, weights: dict[tuple[str, ...], float], t: int) -> np.ndarray:
    """The distribution of the word at t when documents have these weights."""
    exact = np.zeros(len(world.vocabulary))
    for words, weight in weights.items():
        exact[world.machine.number[words[t]]] += weight
    return exact / exact.sum()


def test_hidden_words_of_a_text_cut_off(tiny: World, tiny_reference: Reference) -> None:
    world, reference = tiny, tiny_reference
    words, hidden = ("anna", "lived", "in", "rome", ".", "anna", "went"), [0, 3, 4]
    alike = {
        other: chance
        for other, chance in reference.texts.items()
        if len(other) > len(words)
        and all(i in hidden or other[i] == word for i, word in enumerate(words))
    }
    for distribution, t in zip(world.conditional(words, hidden), hidden, strict=True):
        np.testing.assert_allclose(distribution, distribution_at(world, alike, t), atol=1e-12)


def test_noisy_words(world: World, reference: Reference, texts: list[tuple[str, ...]]) -> None:
    """A channel keeps or replaces words; hidden and noisy positions are asked for."""
    random = np.random.default_rng(1)
    size, others = len(world.vocabulary), np.nonzero(world.replacements)[0]
    for words in texts[::3]:
        text = world.numbers(words)
        noisy = {}
        for t in range(len(words) - 1):
            if random.random() < 0.7:
                shown = int(random.choice(others)) if random.random() < 0.3 else int(text[t])
                noisy[t] = (shown, 0.8, 0.2 / (size - 1))
        free = [t for t in range(len(words) - 1) if t not in noisy][:1]
        want = free + list(noisy)[:2]
        if not want:
            continue
        weights = reference.like(words, {*free, *noisy})
        for other in weights:
            for t, (shown, keep, noise) in noisy.items():
                # A word that documents remember is never shown by mistake.
                by_chance = noise * world.replacements[shown]
                weights[other] *= by_chance + keep * (world.machine.number[other[t]] == shown)
        distributions = world.distributions([(text, want, noisy)], "document")[0]
        for distribution, t in zip(distributions, want, strict=True):
            np.testing.assert_allclose(distribution, distribution_at(world, weights, t), atol=1e-12)


def test_many_words_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sentences that no document has in a row, one is full of wrong words."""
    village = load_world("village")
    text = "we saw a star near the museum . hugo was hungry and looked for soup ."
    numbers = village.numbers(text.split())
    noisy = {t: (int(number), 0.98, 1e-4) for t, number in enumerate(numbers) if t}
    found = village.distributions([(numbers, [0], noisy)], "sentence")
    monkeypatch.setattr(sums, "SMALLEST", 0.0)
    exact = village.distributions([(numbers, [0], noisy)], "sentence")
    np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.parametrize(
    ("of", "where"),
    [("topic", "topics"), ("feeling", "feelings"), ("relation", "relations"), ("sense", "senses")],
)
def test_meanings(
    world: World, reference: Reference, texts: list[tuple[str, ...]], of: str, where: str
) -> None:
    positions = [(words, t) for words in texts for t in range(len(words))]
    for (words, t), found in zip(positions, world.posteriors(positions, of), strict=True):
        exact: dict[str, float] = {}
        for path in reference.paths[words]:
            label = getattr(path, where)[t]
            if label is not None and path.chance:
                exact[label] = exact.get(label, 0.0) + path.chance / reference.texts[words]
        assert found == pytest.approx(exact, abs=1e-12)


def test_sentences(world: World, reference: Reference) -> None:
    starts: dict[tuple[str, ...], float] = {}
    for path in (path for same in reference.paths.values() for path in same):
        if "relations" not in path.topics:
            stops = [i + 1 for i, word in enumerate(path.words) if word == "."]
            for a, z in zip([0, *stops], stops, strict=False):
                starts[path.words[a:z]] = starts.get(path.words[a:z], 0.0) + path.chance
    total = sum(starts.values())
    for words, weight in starts.items():
        log_probability = world.log_probability(words, start="sentence").sum()
        assert log_probability == pytest.approx(math.log(weight / total), abs=1e-11)
    assert not world.is_sentence(("anna", "lived", "in", "rome"))
    assert not world.is_sentence(("anna", "lived", "in", "keys", "."))
    assert not world.is_sentence(("anna", "lives", "in", "rome", "."))
    said = ("anna", "lived", "in", "rome", ".")
    texts = [said, (), said[:-1], said[-2:]]
    assert world.are_sentences(texts) == [world.is_sentence(text) for text in texts]


def test_pairs_of_sentences(world: World, reference: Reference) -> None:
    pairs: dict[tuple, float] = defaultdict(float)
    first: dict[tuple, float] = defaultdict(float)
    second: dict[tuple, float] = defaultdict(float)
    for words, chance in reference.texts.items():
        stops = [i + 1 for i, word in enumerate(words) if word == "."]
        sentences = [words[a:z] for a, z in zip([0, *stops], stops, strict=False)]
        for a, b in itertools.pairwise(sentences):
            pairs[a, b] += chance
            first[a] += chance
            second[b] += chance
    total = sum(pairs.values())
    some = list(pairs)[:: max(1, len(pairs) // 100)]
    some += [(a, b) for (a, _), (_, b) in itertools.pairwise(some)]
    for (a, b), follows, order in zip(
        some, world.next_odds(some), world.order_odds(some), strict=True
    ):
        there, back = pairs.get((a, b), 0.0), pairs.get((b, a), 0.0)
        assert math.exp(follows) == pytest.approx(there * total / first[a] / second[b], abs=1e-11)
        expected = 0.0 if there == back == 0 else _log(there) - _log(back)
        assert order == pytest.approx(expected, abs=1e-11)
    with pytest.raises(ValueError, match="not of this language"):
        world.next_odds([(("anna", "."), ("anna", "."))])
    known = next(pair for pair, chance in pairs.items() if chance > 0)
    for pair in ((known[0][:2], known[1]), (known[0], known[1][:2])):  # no whole sentence
        with pytest.raises(ValueError, match="not of this language"):
            world.next_odds([pair])


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def test_floors_are_the_means_of_the_exact_losses(
    world: World, reference: Reference, texts: list[tuple[str, ...]]
) -> None:
    exact = [
        -math.log(reference.prefix(w[: t + 1]) / reference.prefix(w[:t]))
        for w in texts
        for t in range(len(w))
    ]
    assert floor(world, "next", texts).mean == pytest.approx(np.mean(exact), abs=1e-12)
    assert floor(world, "next", texts).count == len(exact)
    masked, permuted = (
        floor(world, name, texts, rate=0.5, seed=3) for name in ("masked", "permutation")
    )
    assert masked.count == permuted.count
    assert masked.total > permuted.total


def test_visits_are_the_expected_words(world: World, reference: Reference) -> None:
    states = world.visits[: world.machine.states]
    assert states.sum() == pytest.approx(reference.length, abs=1e-10)


def test_an_impossible_text_has_no_probability(tiny: World) -> None:
    world = tiny
    assert world.log_probability(("anna", "lived", "in", "paris")).tolist()[-1] == -math.inf
    two_heroes = ("anna", "lived", "in", "rome", ".", "clara", "went")
    assert world.log_probability(two_heroes)[5] == -math.inf
    with pytest.raises(ValueError, match="no text of this language"):
        world.conditional(("anna", "rome", "."), [1])


def test_questions_that_have_no_answer_are_refused(tiny: World) -> None:
    with pytest.raises(ValueError, match="choose forward or backward"):
        tiny.next_word(("anna",), direction="back")
    for position in (99, -3):
        with pytest.raises(ValueError, match="choose -2 to 1"):
            tiny.posterior(("anna", "lived"), "topic", position=position)
    with pytest.raises(ValueError, match="no text of this language"):
        tiny.joint(("anna", "lived", "in", "atlantis"), [0])
    with pytest.raises(ValueError, match="a document has no words"):
        tiny.floor("next", [[]])
    for words in (math.nan, -1, math.inf):
        with pytest.raises(ValueError, match="give a whole number"):
            tiny.sample(words=words)


@pytest.mark.parametrize("channel", [(0.8, 0.1, 0.1), (0.0, 1.0, 0.0), (0.5, 0.0, 0.5)])
def test_the_floor_of_masked_words_under_the_channel(
    world: World, reference: Reference, channel: tuple[float, float, float]
) -> None:
    """The loss of the best guesser that knows the channel, from its definition."""
    hide, replace, keep = channel
    rate, seed, others = 0.4, 5, np.nonzero(world.replacements)[0]
    texts = [words for words in reference.some(8) if len(words) > 4]
    chosen = choose([world.numbers(words) for words in texts], rate, seed)
    random = np.random.default_rng([seed, 2])
    losses = []
    for words, positions in zip(texts, chosen, strict=True):
        text = world.numbers(words)
        shown = dict(enumerate(text.tolist()))
        for t in positions:
            draw = random.random()
            if draw < hide:
                shown[t] = None
            elif draw < hide + replace:
                shown[t] = int(random.choice(others))
        like = reference.like(words, set(range(len(words) - 1)))
        # All of these documents side by side: there are thousands.
        true_DT = np.array([[world.machine.number[word] for word in other] for other in like])
        chance_D = np.array([*like.values()])
        for t, word in list(shown.items())[:-1]:
            same_D, random_word = true_DT[:, t] == word, replace * (word in others) / len(others)
            if t not in positions:
                chance_D *= (1 - rate) * same_D + rate * (keep * same_D + random_word)
            elif word is not None:
                chance_D *= keep * same_D + random_word
        for t in positions:
            right = chance_D[true_DT[:, t] == text[t]].sum() / chance_D.sum()
            losses.append(-math.log(right))
    found = floor(world, "masked", texts, rate=rate, channel=channel, seed=seed)
    np.testing.assert_allclose(np.concatenate(found.losses), losses, rtol=1e-10, atol=1e-12)


def test_standard_errors_are_those_of_a_ratio(tiny: World, tiny_reference: Reference) -> None:
    """Two documents: the deviations of their sums from the mean rate, over the count of words."""
    found = floor(tiny, "next", tiny_reference.some(9))
    sums = np.array([loss.sum() for loss in found.losses])
    counts = np.array([len(loss) for loss in found.losses])
    off = sums - counts * sums.sum() / counts.sum()
    n = len(sums)
    error = math.sqrt(n / (n - 1) * (off**2).sum()) / counts.sum()
    assert found.standard_error == pytest.approx(error, rel=1e-12)
    assert math.isnan(floor(tiny, "next", tiny_reference.some(9)[:1]).standard_error)


@pytest.mark.parametrize(
    "ask",
    [
        lambda world, words: world.posterior(words, "topic", position=2.5),
        lambda world, words: world.posterior(words, "topic", position="x"),
        lambda world, words: world.joint(words, [99]),
        lambda world, words: world.joint(words, [0.5]),
        lambda world, words: world.conditional(words, [99]),
        lambda world, words: world.conditional(words, 3),
        lambda world, words: world.joint(words, 3),
        lambda world, words: world.gap(words, np.int64(3)),
        lambda world, words: world.joint([], []),
        lambda world, words: world.log_probability(words, reach=math.nan),
        lambda world, words: world.log_probability(words, reach=-1),
        lambda world, words: world.sample(words="x"),
        lambda world, words: world.sample(words=10**30),
        lambda world, words: world.sample(documents=1.5),
        lambda world, words: world.next_word(" ".join(words)),
        lambda world, words: world.next_word([1, 2]),
        lambda world, words: world.next_word(["atlantis"], direction="backward"),
        lambda world, words: world.next_word(np.array([1.5])),
        lambda world, words: world.next_word(np.array([-1])),
        lambda world, words: world.next_word(np.array([10**9])),
        lambda world, words: world.next_word(np.array([[1]])),
        lambda world, words: world.joint(words, [True]),
        lambda world, words: world.joint(words, [1, 1]),
        lambda world, words: world.gap(words, [1, 1 - len(words)]),
        lambda world, words: world.labelled("topic", math.nan),
        lambda world, words: world.labelled("topic", 10**30),
        lambda world, words: world.labelled("order", 20, seed=-1),
        lambda world, words: floor(world, "next", [["atlantis"]]),
        lambda world, words: floor(world, "masked", [["atlantis", "."]]),
        lambda world, words: world.sample(documents=1, seed="x"),
        lambda world, words: world.sample(documents=1, seed=-1),
        lambda world, words: world.sample(documents=1, seed=2.5),
        lambda world, words: floor(world, "next", [words], reach=math.nan),
        lambda world, words: floor(world, "cloze", [words], reach=-1),
        lambda world, words: floor(world, "masked", [words], rate="x"),
        lambda world, words: floor(world, "masked", [words], seed=None),
        lambda world, words: floor(world, "masked", [words], channel=(math.nan, 0.0, 1.0)),
        lambda world, words: floor(world, "masked", [words], channel=(1.0,)),
        lambda world, words: floor(world, "permutation", [words], channel=(0.8, 0.1, 0.1)),
        lambda world, words: floor(world, "previous", [words], start="bogus"),
        lambda world, words: world.log_probability(words, direction="backward", start="bogus"),
        lambda world, words: world.next_word(words, direction="backward", start="bogus"),
        lambda world, words: world.following([words], direction="backward", start="bogus"),
    ],
)
def test_what_a_language_cannot_answer_is_refused_in_one_line(ask):
    world = load_world("village")
    words = list(world.sample(documents=1)[0].text.split())
    with pytest.raises(ValueError, match=r"give|choose|leave|must|check|only") as error:
        ask(world, words)
    assert "\n" not in str(error.value)


def test_a_document_of_another_language_is_read_by_its_words(tiny: World) -> None:
    village = load_world("village")
    document = village.sample(documents=1)[0]
    assert (tiny.numbers(document) == tiny.numbers(document.words)).all()
    assert village.numbers(document) is document.numbers


def test_numbers_of_few_bits_are_read_like_others() -> None:
    """They have none for the symbol of a hidden word."""
    village = load_world("village")
    text = next(d.numbers for d in village.documents() if d.numbers.max() < 128)
    few = text.astype(np.int8)
    assert np.array_equal(village.conditional(few, [1]), village.conditional(text, [1]))
    assert village.joint(few, [1]) == village.joint(text, [1])


def test_nothing_hidden_has_no_distributions(tiny: World) -> None:
    words = tiny.sample(documents=1)[0].words
    assert tiny.conditional(words, []).shape == (0, len(tiny.vocabulary))
    # Positions count from the end where they are negative.
    assert np.array_equal(tiny.conditional(words, [-1]), tiny.conditional(words, [len(words) - 1]))
    assert tiny.gap(words, []) == 0


def test_what_a_small_language_does_not_have_is_not_looked_for_without_end(
    tiny: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A language keeps the documents that it drew last, with their splits, and all tests share
    # the village.
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "split_of", lambda text: "train")
        patch.setattr(sampling, "TRIES", 2)
        with pytest.raises(ValueError, match="give split=None"):
            tiny.sample(documents=1, split="held_out")
    world = load_world("village")
    monkeypatch.setattr(labelled, "example_split", lambda example: "held_out")
    monkeypatch.setattr(labelled, "TRIES", 100)
    with pytest.raises(ValueError, match="ask for fewer"):
        world.labelled("topic", 20)


def test_floors_of_both_sides_against_enumeration(
    world: World, reference: Reference, texts: list[tuple[str, ...]]
) -> None:
    some = texts[::3]
    ahead, back = [], []
    for words in some:
        prefixes = [reference.prefix(words[:t]) for t in range(len(words) + 1)]
        rests = [*(reference.anywhere(words[t:]) for t in range(len(words))), 1.0]
        ahead.append(-np.diff(np.log(prefixes)))
        back.append(np.diff(np.log(rests)))
    for objective, exact in (
        ("previous", back),
        ("both", [np.concatenate(pair) for pair in zip(ahead, back, strict=True)]),
    ):
        found = floor(world, objective, some)
        np.testing.assert_allclose(
            np.concatenate(found.losses), np.concatenate(exact), atol=1e-11, rtol=0
        )


@pytest.mark.parametrize("reach", [None, 1, 2])
def test_the_floor_of_the_cloze_against_enumeration(
    world: World, reference: Reference, texts: list[tuple[str, ...]], reach: int | None
) -> None:
    some, every = texts[::3], world.vocabulary[1:]
    chosen = choose([world.numbers(words) for words in some], 0.5, 4)
    exact = []
    for words, positions in zip(some, chosen, strict=True):
        for t in positions:
            if reach is None:
                like = reference.like(words, {t})
                exact.append(-math.log(reference.texts[words] / sum(like.values())))
                continue
            a, z = max(0, t - reach), t + reach + 1
            chance = reference.prefix if t <= reach else reference.anywhere
            known = sum(chance((*words[a:t], word, *words[t + 1 : z])) for word in every)
            exact.append(-math.log(chance(words[a:z]) / known))
    found = floor(world, "cloze", some, reach=reach, rate=0.5, seed=4)
    np.testing.assert_allclose(np.concatenate(found.losses), exact, atol=1e-10, rtol=0)


def test_several_threads_may_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = memory.next_draw

    def slow(drawn: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.05)
        return quick(drawn, alpha)

    language = world_from_text({"tiny.txt": REMEMBERS})
    urn = next(one for one in language.memory.groups if one.alpha.any())
    often = next(w for w, v in enumerate(urn.value_of) if v >= 0 and urn.alpha[urn.family_of[v]])
    texts = [np.full(count, often) for count in (300, 200, 100, 5)]
    alone = [language.memory.log_chance(text) for text in texts]
    assert len({chance.min() for chance in alone}) == len(texts)
    fresh = World(language.grammar).memory
    monkeypatch.setattr(memory, "next_draw", slow)  # all of them ask while the first one counts
    with ThreadPoolExecutor(len(texts)) as pool:
        found = list(pool.map(fresh.log_chance, texts))
    assert all(map(np.array_equal, found, alone))
