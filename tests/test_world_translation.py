"""Translations: exact sums against every derivation written out, and the file's mistakes."""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from labkit.world import WorldError, translation
from labkit.world.foreign import foreign_text
from labkit.world.grammar import Choice, Slot, Tied, Token
from labkit.world.lexicon import Lexicon, read_lexicon
from labkit.world.translation import Translator, load_translator
from labkit.world.world import world_from_text

SMALL = """
endings
    adj o a
words noun noun
    dog = hund m, bank~money = kontor m, bank~river = rivi f, ice cream = gelat f
    house = dom m 0.75 / kas f 0.25, watch~clock = horol m
words adj adjective
    big = grand, good = bon 0.8 / bel 0.2
words verb verb
    saw = vid, saw = seg, went back = ritorn ad
patterns
    2 the ({adj1}|2 ) {noun} {verb} the {noun2}
        = <noun: ro|ra> {noun} {adj1^noun} (2 |wa) <noun2: ro|ra> {noun2} {verb}
    the {noun} watch the {noun2}
        = {noun2} gard@watch {noun} (tu ve|)
"""


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return read_lexicon("small.txt", SMALL)


@pytest.fixture(scope="module")
def translator(lexicon: Lexicon) -> Translator:
    return Translator(lexicon)


@pytest.mark.parametrize("weights", [[1.0], [3, 2], [0.75, 0.25], [0.2, 0.0, 0.5, 0.3]])
def test_a_choice_draws_what_numpy_draws(weights: list[float]) -> None:
    ours, theirs = np.random.default_rng(0), np.random.default_rng(0)
    chances = np.array(weights) / sum(weights)
    for _ in range(500):
        drawn = translation.choice(ours, weights)
        assert drawn == theirs.choice(len(chances), p=chances)


def sayings(lexicon, items):
    """Every way to say the items: its chance, and (name, filler or word) in order."""
    if not items:
        yield 1.0, ()
        return
    first, rest = items[0], items[1:]
    if isinstance(first, Choice):
        for weight, option in zip(first.weights, first.options, strict=True):
            for p, said in sayings(lexicon, option + rest):
                yield p * weight / sum(first.weights), said
        return
    if isinstance(first, Token):
        options = [(1.0, ("@" + first.word, first.word))]
    else:
        fillers = lexicon.lists[first.name.rstrip("0123456789")]
        options = [(1 / len(fillers), (first.name, filler)) for filler in fillers]
    for q, pair in options:
        for p, said in sayings(lexicon, rest):
            yield p * q, (pair, *said)


def written_out(lexicon):
    """{(source, target): [(chance, links, parts of speech, senses)]} of all that can be drawn."""
    out = defaultdict(list)
    total = sum(weight for weight, *_ in lexicon.patterns)
    for weight, source, target in lexicon.patterns:
        for p, said in sayings(lexicon, source):
            words, where, parts, senses = [], {}, [], []
            for name, filler in said:
                new = [filler] if isinstance(filler, str) else list(filler.words)
                where[name] = range(len(words), len(words) + len(new))
                words += new
                fixed = isinstance(filler, str)
                part = "other" if fixed else lexicon.parts[name.rstrip("0123456789")]
                parts += [part] * len(new)
                senses += ["" if fixed else filler.sense] * len(new)
            fillers = dict(said)
            names = [name for name, filler in said if not isinstance(filler, str)]
            for ways in itertools.product(*(fillers[name].ways for name in names)):
                chosen = dict(zip(names, ways, strict=True))
                q = p * weight / total * math.prod(way.chance for way in ways)
                for r, spoken in target_of(lexicon, target, chosen, where):
                    key = tuple(words), tuple(word for word, _ in spoken)
                    out[key].append((q * r, [list(s) for _, s in spoken], parts, senses))
    return out


def target_of(lexicon, items, chosen, where):
    """Every target of one derivation: its chance, and (word, source positions)."""
    if not items:
        yield 1.0, ()
        return
    first, rest = items[0], items[1:]
    gender = {"m": 0, "f": 1}
    if isinstance(first, Tied):
        first = first.options[gender[chosen[first.variables[0]].gender]][0]
    if isinstance(first, Choice):
        for weight, option in zip(first.weights, first.options, strict=True):
            for p, said in target_of(lexicon, option + rest, chosen, where):
                yield p * weight / sum(first.weights), said
        return
    if isinstance(first, Token):
        word, _, origin = first.word.partition("@")
        new = [(word, where["@" + origin] if origin else ())]
    else:
        assert isinstance(first, Slot)
        name, _, head = first.name.partition("^")
        new = []
        if name in chosen:
            new = [(word, where[name]) for word in chosen[name].words]
            if head:
                ending = lexicon.endings[name.rstrip("0123456789")][gender[chosen[head].gender]]
                new[-1] = (new[-1][0] + ending, new[-1][1])
    for p, said in target_of(lexicon, rest, chosen, where):
        yield p, (*new, *said)


def test_every_probability_against_all_derivations(lexicon, translator) -> None:
    table = written_out(lexicon)
    assert sum(row[0] for rows in table.values() for row in rows) == pytest.approx(1, abs=1e-12)
    sources = defaultdict(float)
    for (source, _), rows in table.items():
        sources[source] += sum(row[0] for row in rows)
    for (source, target), rows in table.items():
        joint = sum(row[0] for row in rows)
        found = translator.log_probability(source, target)
        assert math.exp(found) == pytest.approx(joint / sources[source], abs=1e-12)
    some = list(table)[:: max(1, len(table) // 60)]
    for source, target in some:
        rows = table[source, target]
        joint = sum(row[0] for row in rows)
        exact = np.zeros((len(target), len(source)))
        for p, links, _, _ in rows:
            for t, origin in enumerate(links):
                for s in origin:
                    exact[t, s] += p / joint / len(origin)
        np.testing.assert_allclose(translator.alignment(source, target), exact, atol=1e-12)
    for source in list(sources)[:: max(1, len(sources) // 60)]:
        mine = {t: sum(r[0] for r in rows) for (s, t), rows in table.items() if s == source}
        exact = {target: p / sources[source] for target, p in mine.items()}
        assert translator.translations(source) == pytest.approx(exact, abs=1e-12)
        assert translator.entropy(source) == pytest.approx(
            -sum(p * math.log(p) for p in exact.values()), abs=1e-12
        )
        assert exact[tuple(translator.best(source))] == pytest.approx(max(exact.values()))
        for label, column in (("parts", 2), ("senses", 3)):
            posterior = [defaultdict(float) for _ in source]
            for (s, _), rows in table.items():
                for row in rows if s == source else ():
                    for t, name in enumerate(row[column]):
                        if name:
                            posterior[t][name] += row[0] / sources[source]
            for one, other in zip(getattr(translator, label)(source), posterior, strict=True):
                assert one == pytest.approx(dict(other), abs=1e-12)


def test_a_word_of_two_parts_of_speech(translator) -> None:
    """ "watch" is a verb of the second pattern, and a noun of both."""
    noun = translator.parts(["the", "dog", "watch", "the", "watch"])
    assert noun[2] == {"other": pytest.approx(1)}
    assert noun[4] == {"noun": pytest.approx(1)}


def test_drawn_pairs_follow_the_probabilities(translator) -> None:
    pairs = translator.pairs(4000, seed=1)
    losses = [-translator.log_probability(*pair) for pair in pairs]
    entropy = np.mean([translator.entropy(pair.source) for pair in pairs])
    error = np.std(losses) / math.sqrt(len(losses))
    assert abs(np.mean(losses) - entropy) < 4 * error
    assert translator.pairs(5, seed=1) == pairs[:5]


def without_the_gender(patch: pytest.MonkeyPatch) -> None:
    """Every noun takes the first gender."""
    patch.setattr(translation, "_gender", lambda name, said, ways: "m")


def without_readings(patch: pytest.MonkeyPatch) -> None:
    """Neighbours agree with the first translation of a noun, whichever is taken."""
    patch.setattr(translation, "_ways", lambda derivation: iter([(1.0, {})]))


def one_derivation(patch: pytest.MonkeyPatch) -> None:
    """The likeliest derivation stands for all."""
    chances = Translator._chances
    patch.setattr(
        Translator,
        "_chances",
        lambda self, source: [(max(chances(self, source), key=lambda found: found[1])[0], 1.0)],
    )


def without_the_chances_of_words(patch: pytest.MonkeyPatch) -> None:
    """All translations of a derivation are as likely as its first."""
    readings = Translator._readings

    def alike(self, source):
        firsts: dict = {}
        for chance, options in readings(self, source):
            yield firsts.setdefault(tuple(o.sources for o in options), chance), options

    patch.setattr(Translator, "_readings", alike)


def fixed_words_from_nowhere(patch: pytest.MonkeyPatch) -> None:
    """The words of a pattern come from no word of the source."""
    fixed = translation._fixed
    patch.setattr(translation, "_fixed", lambda *parts: fixed(*parts)._replace(sources=()))


@pytest.mark.parametrize(
    "mutant",
    [
        without_the_gender,
        without_readings,
        one_derivation,
        without_the_chances_of_words,
        fixed_words_from_nowhere,
    ],
)
def test_a_mutant_is_killed(mutant, lexicon, translator, monkeypatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test_every_probability_against_all_derivations(lexicon, translator)


MISTAKES = [
    ("dog = hund m", "dog = hund", 5, "its gender, m or f"),
    ("dog = hund m", "dog hund m", 5, "word = translation"),
    ("dog = hund m", "dog = hund m / ", 5, "its gender, m or f"),
    ("dog = hund m", "dog = 0.5", 5, "its gender, m or f"),
    ("bank~money", "~money", 5, 'before "=", not "~money"'),
    ("bank~money", "bank~", 5, "or word~sense"),
    ("big = grand", "big = grand /", 8, "expected a word behind"),
    ("big = grand", "big = 1", 8, "expected a word behind"),
    ("big = grand", "big = grand .5", 8, "do not add up to 1"),
    ("big = grand", "big = grand -0.5", 8, "at least 0.000001 and at most 1"),
    ("words verb verb", "words none noun\nwords verb verb", 9, "is empty: write its words"),
    ("0.25,", "0.35,", 6, "do not add up to 1"),
    ("kas f 0.25", "kas f 1.25", 6, "at most 1"),
    ("{noun} {verb}", "{nuon} {verb}", 12, 'did you mean "noun"'),
    ("{adj1^noun}", "{adj1^nuon}", 13, 'did you mean "noun"'),
    ("{noun} {verb}", "[run] {verb}", 12, "(choices) only"),
    ("{adj1^noun}", "{verb^noun}", 13, 'a list with endings, not "verb"'),
    ("{adj1^noun}", "{adj1^verb}", 13, 'a noun that the sentence always says, not "verb"'),
    ("<noun2: ro|ra>", "<verb: ro|ra>", 13, 'always says, not "verb"'),
    ("<noun2: ro|ra>", "<nuon2: ro|ra>", 13, 'did you mean "noun2"?'),
    ("<noun2: ro|ra>", "<noun+noun2: ro|ra>", 13, 'not "noun+noun2"'),
    ("<noun2: ro|ra>", "<ro|ra>", 13, 'always says, not ""'),
    ("<noun2: ro|ra>", "<noun2: ro>", 13, "expected `<noun2: a|b>`"),
    ("<noun2: ro|ra>", "<noun2~0.9: ro|ra>", 13, "expected `<noun2: a|b>`"),
    ("<noun2: ro|ra>", "<noun2: {verb}|ra>", 13, "(a|b) or <noun: a|b> of words only"),
    ("<noun2: ro|ra>", "[run]", 13, "(a|b) or <noun: a|b> of words only"),
    ("2 the ({adj1}|2 ) {noun}", "2 the ({adj1} {noun}|2 )", 13, 'did you mean "noun2"?'),
    ("gard@watch", "gard@wach", 15, 'did you mean "watch"?'),
    ("{noun} watch", "{noun} (watch|see)", 15, 'always says, not "watch": There are: the'),
    ("        = {noun2} gard", "        {noun2} gard", 14, "needs a line"),
    ("adj o a", "adj o", 3, "two endings"),
    ("words verb verb", "word verb verb", 9, "expected a block"),
    ("patterns\n", "patterns all\n", 11, 'not "patterns all": did you mean "patterns"?'),
    ("endings\n", "endings all\n", 2, 'not "endings all": did you mean "endings"?'),
    ("words verb", "words noun noun\n    cat = kat f\nwords verb", 9, "first is in bad.txt:4"),
    ("adj o a", "adj o a\n    adj i e", 4, "first is in bad.txt:3"),
    ("adj o a", "adj o a\n    ajd i e", 4, 'did you mean "adj"?'),
    ("endings", "letters\n    a b, c d, a e\nendings", 3, 'second letter for "a"'),
    ("{verb} the {noun2}", "{verb} the {noun}", 12, "number them, {noun1} and {noun2}"),
    ("({adj1}|2 ) {noun}", "({adj1} {adj1}|2 ) {noun}", 12, "number them, {adj1} and {adj2}"),
    ("({adj1}|2 ) {noun}", "(big|{noun}) {noun}", 12, "{noun} occurs twice"),
    ("watch the {noun2}", "watch {a noun2}", 14, "{noun2}, not {a noun2}"),
    ("= {noun2} gard", "= {a noun2} gard", 15, "{noun2}, not {a noun2}"),
    ("{noun} watch", "{noun} watch~see", 14, 'without a sense, not "watch~see"'),
    ("gard@watch", "gard~look@watch", 15, 'without a sense, not "gard~look@watch"'),
]


@pytest.mark.parametrize(("old", "new", "line", "says"), MISTAKES)
def test_a_mistake_is_refused_with_its_line(old: str, new: str, line: int, says: str) -> None:
    assert old in SMALL
    with pytest.raises(WorldError) as caught:
        read_lexicon("bad.txt", SMALL.replace(old, new, 1))
    assert str(caught.value).startswith(f"bad.txt:{line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", SMALL.split("    2 the")[0], SMALL.split("patterns")[0]])
def test_a_file_without_sentences_is_refused(text: str) -> None:
    with pytest.raises(WorldError, match=r"^bad\.txt:1: no sentences: write them"):
        read_lexicon("bad.txt", text)


def test_options_of_a_choice_may_say_the_same_slot(lexicon: Lexicon) -> None:
    text = SMALL.replace("({adj1}|2 )", "({adj1}|{adj1} too|)")
    assert len(read_lexicon("a.txt", text).patterns) == len(lexicon.patterns)


def test_patterns_may_stand_above_what_they_need(translator: Translator) -> None:
    above, patterns = SMALL.split("patterns\n")
    turned = read_lexicon("a.txt", f"patterns\n{patterns}{above}")
    source = ["the", "big", "dog", "saw", "the", "house"]
    assert Translator(turned).translations(source) == translator.translations(source)


def test_sentences_of_another_language_are_refused(translator) -> None:
    with pytest.raises(ValueError, match="cannot say"):
        translator.translations(["hund"])
    with pytest.raises(ValueError, match="no translation"):
        translator.alignment(["the", "dog", "watch", "the", "dog"], ["hund"])
    assert translator.log_probability(["the", "dog", "watch", "the", "dog"], ["hund"]) == -math.inf


def test_the_translation_that_ships() -> None:
    """Verb last, adjectives behind their nouns, two senses, one word for two and two for one."""
    shipped = load_translator()
    words: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for fillers in shipped.lexicon.lists.values():
        for filler in fillers:
            words[filler.words] |= {way.words for way in filler.ways}
    assert sum(len(ways) > 1 for ways in words.values()) >= 20
    assert words["library",] == {("libro", "domu")}
    assert words["ice", "cream"] == {("gelat",)}
    source = ["yesterday", "the", "old", "teacher", "saw", "the", "lamp"]
    assert shipped.best(source)[-1].startswith("vid")
    target = shipped.best(["the", "old", "teacher", "chased", "the", "fox"])
    assert target == ["ro", "magis", "velho", "ra", "vulp", "kasir"]
    senses = shipped.senses(["the", "sailor", "went", "to", "the", "bank", "in", "new", "york"])
    assert senses[5] == {"money": pytest.approx(0.5), "river": pytest.approx(0.5)}
    latin = Counter("".join(shipped.best(["the", "old", "teacher", "chased", "the", "fox"])))
    assert not set(latin) & set("".join(shipped.in_letters(target)))


@pytest.fixture(scope="module")
def shipped() -> Translator:
    return load_translator()


def test_thirty_words_have_two_parts_of_speech_that_the_sentence_decides(
    shipped: Translator,
) -> None:
    """Each is met as both, and the context alone tells which it is in most sentences."""
    shares: dict[str, Counter[str]] = defaultdict(Counter)
    decided = []
    sources = [pair.source for pair in shipped.pairs(4000, seed=2)]
    for source in sources:
        for word, chances in zip(source, shipped.parts(source), strict=True):
            assert sum(chances.values()) == pytest.approx(1)
            shares[word].update({part: p for part, p in chances.items() if part != "other"})
    two = {word for word, found in shares.items() if sum(p > 1 for p in found.values()) > 1}
    assert len(two) >= 30
    assert {"watch", "light", "plant"} <= two
    for source in sources:
        for word, chances in zip(source, shipped.parts(source), strict=True):
            decided += [max(chances.values())] if word in two else []
    assert np.mean(decided) > 0.97


@pytest.mark.parametrize(
    ("sentence", "at", "part"),
    [
        ("butter and salt the bread", 0, "verb"),
        ("butter and salt stood near the bar", 0, "noun"),
        ("the antique light of the judge stood near the park", 1, "adjective"),
        ("the antique of the judge stood near the park", 1, "noun"),
        ("the nurse will nurse the duck", 1, "noun"),
        ("the nurse will nurse the duck", 3, "verb"),
        ("yesterday the patient saw the saw", 2, "noun"),
        ("yesterday the patient queen saw the saw", 2, "adjective"),
    ],
)
def test_the_part_of_speech_may_be_decided_by_a_later_word(
    shipped: Translator, sentence: str, at: int, part: str
) -> None:
    assert shipped.parts(sentence.split())[at] == {part: pytest.approx(1)}


def test_a_sentence_that_leaves_the_part_of_speech_open(shipped: Translator) -> None:
    """ "We saw her duck": one animal of ten, or one deed of eight."""
    found = shipped.parts(["yesterday", "we", "saw", "her", "duck"])[-1]
    assert found == {"noun": pytest.approx(8 / 18), "verb": pytest.approx(10 / 18)}
    assert len(shipped.translations(["yesterday", "we", "saw", "her", "duck"])) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("dom m 0.75 / kas f 0.25", "dom m 0.7500001234 / kas f 0.2499998766"),
        ("(2 |wa)", "(0.00001 |wa)"),
        ("({adj1}|2 )", "(0.00001 {adj1}|2 )"),
    ],
)
def test_the_target_as_a_language_of_its_own_is_the_sum_over_all_sources(
    old: str, new: str
) -> None:
    lexicon = read_lexicon("small.txt", SMALL.replace(old, new))
    targets: dict[tuple[str, ...], float] = defaultdict(float)
    for (_, target), ways in written_out(lexicon).items():
        targets[target] += sum(way[0] for way in ways)
    foreign = world_from_text({"small.txt": foreign_text(Translator(lexicon))})
    texts = [[*target, "."] for target in targets]
    logs = foreign.log_probabilities(texts, start="sentence")
    np.testing.assert_allclose([np.exp(log.sum()) for log in logs], [*targets.values()], rtol=1e-10)
    assert sum(targets.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.log_probability("the dog", ["a"]),
        lambda one: one.log_probability(["the"], "a"),
        lambda one: one.translations("the dog"),
        lambda one: one.alignment(["the"], "a"),
        lambda one: one.pairs(10**30),
        lambda one: one.pairs(math.nan),
        lambda one: one.pairs(1, seed="x"),
    ],
)
def test_what_is_no_list_of_words_is_refused(ask, translator) -> None:
    with pytest.raises(ValueError, match="give a"):
        ask(translator)
