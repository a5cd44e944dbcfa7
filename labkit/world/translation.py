"""A second language as a translation of the first, with p(target | source) known exactly.

A *derivation* of a source sentence is a pattern with its choices and fillers; few fit a sentence.
Given a derivation, the translation is a chain of pieces in the order of the other language, each of
which says a few words with known chances.  So

    p(target | source) = Σ over derivations d  p(d | source) · p(target | d)

A sentence has few translations, so all of them are listed: that gives their chances, the best one,
the entropy and the alignment.  Read `Translator.translations` first.

    translator = load_translator()
    translator.pairs(1000, seed=0)                  sentences, each with a drawn translation
    translator.log_probability(source, target)      log p(target | source)
    translator.translations(source)                 every translation and its chance
    translator.alignment(source, target)            chances that target word t comes from s: [t, s]
    translator.parts(source)                        chances of each word's part of speech
    translator.senses(source)                       chances of each word's sense
"""

import bisect
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labkit.checks import check_seed, check_whole, check_words
from labkit.keeping.files import read_text
from labkit.keeping.paths import data_path
from labkit.world.grammar import Choice, Item, Slot, Tied, Token
from labkit.world.lexicon import (
    GENDERS,
    Lexicon,
    TranslatedFiller,
    Way,
    Words,
    list_of,
    read_lexicon,
)


class Said(NamedTuple):
    """A filler or a fixed word of a sentence, and where it stands there."""

    name: str
    filler: TranslatedFiller | None
    start: int
    end: int


class Derivation(NamedTuple):
    """One way to build a sentence: the number of its pattern and what stands in it."""

    pattern: int
    log_chance: float
    said: tuple[Said, ...]


class Option(NamedTuple):
    """An option of a piece of the target: words, their chance, and the source words behind them."""

    words: Words
    chance: float
    sources: tuple[int, ...]


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: list[str]
    target: list[str]


LARGEST_FILE = 1_000_000
"""Bytes of a file of a translation."""


def load_translator(path: str | Path | None = None) -> "Translator":
    """Load the translation of the course, or a file of your own."""
    path = Path(path or data_path("translation") / "translation.txt")
    return Translator(read_lexicon(path.name, read_text(path, LARGEST_FILE)))


class Translator:
    """Two languages and the exact chance of every translation."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.total = sum(weight for weight, _, _ in lexicon.patterns)
        self.starting: dict[str, dict[str, list[TranslatedFiller]]] = {}
        for name, fillers in lexicon.lists.items():
            self.starting[name] = defaultdict(list)
            for filler in fillers:
                self.starting[name][filler.words[0]].append(filler)
        # Models are judged on the same few hundred sentences, one after another.
        self._derivations = functools.lru_cache(maxsize=1024)(self._all_derivations)

    # ── what can be asked ────────────────────────────────────────────────────────────────────────

    def log_probability(self, source: Sequence[str], target: Sequence[str]) -> float:
        """log p(target | source)."""
        check_words(target)
        chance = self.translations(source).get(tuple(target), 0.0)
        return math.log(chance) if chance > 0 else -math.inf

    def translations(self, source: Sequence[str]) -> dict[Words, float]:
        """Every translation with its chance, the likeliest first."""
        out: dict[Words, float] = defaultdict(float)
        for chance, options in self._readings(source):
            out[_said(options)] += chance
        return dict(sorted(out.items(), key=lambda found: -found[1]))

    def best(self, source: Sequence[str]) -> list[str]:
        """The likeliest translation."""
        return list(next(iter(self.translations(source))))

    def entropy(self, source: Sequence[str]) -> float:
        """The entropy of the translations of a sentence in nats: no translator has a lower loss."""
        return -sum(p * math.log(p) for p in self.translations(source).values())

    def alignment(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        """Chances that a target word comes from a source word, given both: [target, source]."""
        check_words(target)
        out, total = np.zeros((len(target), len(source))), 0.0
        for chance, options in self._readings(source):
            if _said(options) != tuple(target):
                continue
            total += chance
            # Source words that are translated together share the target words equally.
            for t, sources in enumerate(o.sources for o in options for _ in o.words):
                for s in sources:
                    out[t, s] += chance / len(sources)
        if not total:
            raise ValueError("this is no translation of the sentence: see `translations`")
        return out / total

    def parts(self, source: Sequence[str]) -> list[dict[str, float]]:
        """Chances of the part of speech of every source word, given the sentence."""
        parts = self.lexicon.parts
        return self._labels(source, lambda said: parts.get(list_of(said.name), "other"))

    def senses(self, source: Sequence[str]) -> list[dict[str, float]]:
        """Chances of the sense of every source word that has one, given the sentence."""
        return self._labels(source, lambda said: said.filler.sense if said.filler else "")

    def pairs(self, count: int, seed: int = 0) -> list[Pair]:
        """Draw sentences with their translations."""
        check_whole("count", count)
        check_seed(seed)
        random = np.random.default_rng([seed, 6])
        return [self._pair(random) for _ in range(count)]

    def in_letters(self, words: Sequence[str]) -> list[str]:
        """The words in the letters of the target language."""
        letters = str.maketrans(self.lexicon.letters)
        return [word.translate(letters) for word in words]

    # ── derivations of a source sentence ─────────────────────────────────────────────────────────

    def _all_derivations(self, words: Words) -> list[Derivation]:
        return [
            Derivation(n, chance + math.log(weight / self.total), said)
            for n, (weight, items, _) in enumerate(self.lexicon.patterns)
            for end, chance, said in self._match(items, words, 0)
            if end == len(words)
        ]

    def _match(
        self, items: tuple[Item, ...], words: Words, at: int
    ) -> Iterator[tuple[int, float, tuple[Said, ...]]]:
        """Every way to match words from `at` on: where it ends, its log chance, and its parts."""
        if not items:
            yield at, 0.0, ()
            return
        item, rest = items[0], items[1:]
        if isinstance(item, Choice):
            for weight, option in zip(item.weights, item.options, strict=True):
                for end, chance, said in self._match(option + rest, words, at):
                    yield end, chance + math.log(weight / sum(item.weights)), said
            return
        for first, share in self._beginnings(item, words, at):
            for end, chance, said in self._match(rest, words, first.end):
                yield end, chance + math.log(share), (first, *said)

    def _beginnings(self, item: Item, words: Words, at: int) -> Iterator[tuple[Said, float]]:
        if at >= len(words):
            return
        if isinstance(item, Token):
            if words[at] == item.word:
                yield Said("@" + item.word, None, at, at + 1), 1.0
            return
        assert isinstance(item, Slot)
        name = list_of(item.name)
        for filler in self.starting[name].get(words[at], ()):
            end = at + len(filler.words)
            if words[at:end] == filler.words:
                yield Said(item.name, filler, at, end), 1 / len(self.lexicon.lists[name])

    def _chances(self, source: Sequence[str]) -> list[tuple[Derivation, float]]:
        """The derivations with their chances, given the sentence."""
        check_words(source)
        found = self._derivations(tuple(source))
        if not found:
            raise ValueError(f'the source language cannot say "{" ".join(source)}"')
        logs = np.array([d.log_chance for d in found])
        chances = np.exp(logs - np.logaddexp.reduce(logs))
        return list(zip(found, chances.tolist(), strict=True))

    def _labels(
        self, source: Sequence[str], label: Callable[[Said], str]
    ) -> list[dict[str, float]]:
        out: list[dict[str, float]] = [defaultdict(float) for _ in source]
        for derivation, chance in self._chances(source):
            for said in derivation.said:
                if name := label(said):
                    for t in range(said.start, said.end):
                        out[t][name] += chance
        return [dict(chances) for chances in out]

    # ── pieces of the target ─────────────────────────────────────────────────────────────────────

    def _readings(self, source: Sequence[str]) -> Iterator[tuple[float, tuple[Option, ...]]]:
        """Every way to translate a sentence: its chance, and the options that it takes in order."""
        for derivation, chance in self._chances(source):
            for share, ways in _ways(derivation):
                for options in itertools.product(*self._pieces(derivation, ways)):
                    yield chance * share * math.prod(o.chance for o in options), options

    def _pieces(self, derivation: Derivation, ways: dict[str, Way]) -> list[list[Option]]:
        said = {each.name: each for each in derivation.said}
        pieces = [self._piece(i, said, ways) for i in self.lexicon.patterns[derivation.pattern][2]]
        return [piece for piece in pieces if piece]

    def _piece(self, item: Item, said: dict[str, Said], ways: dict[str, Way]) -> list[Option]:
        if isinstance(item, Token):
            return [_fixed([item], said, 1.0)]
        if isinstance(item, Tied):
            option = item.options[GENDERS.index(_gender(item.variables[0], said, ways))]
            return [_fixed(option, said, 1.0)]
        if isinstance(item, Choice):
            total = sum(item.weights)
            options = zip(item.weights, item.options, strict=True)
            return [_fixed(option, said, weight / total) for weight, option in options]
        assert isinstance(item, Slot)
        name, _, head = item.name.partition("^")
        if name not in said:
            return []  # an optional slot that was left out
        ending = ""
        if head:
            ending = self.lexicon.endings[list_of(name)][GENDERS.index(_gender(head, said, ways))]
        filler, sources = said[name].filler, tuple(range(said[name].start, said[name].end))
        assert filler is not None
        chosen = [ways[name]._replace(chance=1.0)] if name in ways else filler.ways
        return [Option(way.with_ending(ending), way.chance, sources) for way in chosen]

    def _pair(self, random: np.random.Generator) -> Pair:
        number = choice(random, [weight for weight, _, _ in self.lexicon.patterns])
        said: list[Said] = []
        words: list[str] = []
        for name, filler, new in self._drawn(self.lexicon.patterns[number][1], random):
            said.append(Said(name, filler, len(words), len(words) + len(new)))
            words += new
        derivation = Derivation(number, 0.0, tuple(said))
        readings = list(_ways(derivation))
        _, chosen = readings[choice(random, [share for share, _ in readings])]
        target: list[str] = []
        for piece in self._pieces(derivation, chosen):
            target += piece[choice(random, [option.chance for option in piece])].words
        return Pair(words, target)

    def _drawn(
        self, items: tuple[Item, ...], random: np.random.Generator
    ) -> Iterator[tuple[str, TranslatedFiller | None, Words]]:
        """Draw what the items of a sentence say: the name, the filler and the words of each."""
        for item in items:
            if isinstance(item, Choice):
                yield from self._drawn(item.options[choice(random, item.weights)], random)
            elif isinstance(item, Slot):
                fillers = self.lexicon.lists[list_of(item.name)]
                filler = fillers[int(random.integers(len(fillers)))]
                yield item.name, filler, filler.words
            else:
                assert isinstance(item, Token)
                yield "@" + item.word, None, (item.word,)


def choice(random: np.random.Generator, weights: Sequence[float]) -> int:
    """Draw the index of one of a few options by their weights.

    The draws are those of `random.choice`, without its arrays, which take longer than the draw.
    """
    sums = list(itertools.accumulate(weights))
    return bisect.bisect_right(sums, random.random() * sums[-1], hi=len(sums) - 1)


def _ways(derivation: Derivation) -> Iterator[tuple[float, dict[str, Way]]]:
    """The choices of a translation that decide a gender, with their chances.

    A noun with translations of two genders changes its neighbours too.
    """
    split = [s for s in derivation.said if s.filler and len({w.gender for w in s.filler.ways}) > 1]
    names = [said.name for said in split]
    for ways in itertools.product(*(s.filler.ways for s in split if s.filler)):
        yield math.prod(way.chance for way in ways), dict(zip(names, ways, strict=True))


def _fixed(items: Sequence[Item], said: dict[str, Said], chance: float) -> Option:
    """Words of a pattern; `andira@went` comes from the source word `went`."""
    words: list[str] = []
    sources: list[int] = []
    for item in items:
        assert isinstance(item, Token)
        word, _, origin = item.word.partition("@")
        words.append(word)
        if origin:
            sources += range(said["@" + origin].start, said["@" + origin].end)
    return Option(tuple(words), chance, tuple(sources))


def _gender(name: str, said: dict[str, Said], ways: dict[str, Way]) -> str:
    filler = said[name].filler
    assert filler is not None
    return (ways[name] if name in ways else filler.ways[0]).gender


def _said(options: Sequence[Option]) -> Words:
    return tuple(word for option in options for word in option.words)
