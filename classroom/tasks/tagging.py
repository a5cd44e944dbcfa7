"""Tagging on a language whose every probability is known (notebook 04).

Read `tag_chances`, `tagged` and `tagger` first.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from classroom.tasks.translating import Labelled, known_pairs, numbers, tokenizer, translator
from labkit.blocks import Backbone, Classifier
from labkit.corpus import pad_rows
from labkit.heads import Label
from labkit.models.bert import BERT, BERTConfig
from labkit.models.rnn import Bag, BagConfig, Recurrent, RecurrentConfig
from labkit.world.translation import choice


@cache
def _senses() -> dict[tuple[str, str], str]:
    """The part of speech of each sense of the words that have several."""
    lexicon = translator().lexicon
    found = {
        (word, filler.sense): lexicon.parts[name]
        for name, fillers in lexicon.lists.items()
        for filler in fillers
        for word in filler.words
        if filler.sense
    }
    many = {word for word, _ in found if sum(word == other for other, _ in found) > 1}
    return {key: part for key, part in found.items() if key[0] in many}


@cache
def tags() -> tuple[str, ...]:
    """Parts of speech; a word with several senses has a tag for each, such as "noun: animal"."""
    parts = {*translator().lexicon.parts.values(), "other"}
    return tuple(sorted(parts | {f"{part}: {sense}" for (_, sense), part in _senses().items()}))


def tag_chances(source: Sequence[str]) -> list[dict[str, float]]:
    """The exact chances of the tags of each word, given the whole sentence."""
    found = []
    both = zip(source, translator().parts(source), translator().senses(source), strict=True)
    for word, parts, senses in both:
        left = dict(parts)
        chances = {}
        for sense, p in senses.items():
            if part := _senses().get((word, sense)):
                chances[f"{part}: {sense}"] = p
                left[part] -= p
        found.append(chances | {part: p for part, p in left.items() if p > 1e-9})
    return found


def tagged(sentences: Sequence[Sequence[str]], *, batch: int = 64, seed: int = 0) -> Labelled:
    """Batches of sentences with a tag for each word, drawn from its exact chances."""
    rng, number = np.random.default_rng([seed, 9]), {tag: i for i, tag in enumerate(tags())}
    rows, labels = [], []
    for words in sentences:
        rows.append(numbers(words)[:-1])
        chances = [list(one.items()) for one in tag_chances(words)]
        labels.append([number[one[choice(rng, [p for _, p in one])][0]] for one in chances])
    tokens, real = pad_rows(rows)
    labels_BT, _ = pad_rows(labels, -1)
    return Labelled(tokens, real, labels_BT, batch=batch, seed=seed)


def tag_accuracy(
    sentences: Sequence[Sequence[str]], found: Sequence[Sequence[str]]
) -> tuple[float, float]:
    """The expected share of right tags: of all words, and of the ambiguous ones."""
    rights = [
        (word, chances.get(tag, 0.0))
        for words, own in zip(sentences, found, strict=True)
        for word, chances, tag in zip(words, tag_chances(words), own, strict=True)
    ]
    every = [p for _, p in rights]
    some = [p for word, p in rights if word in ambiguous()]
    return sum(every) / len(every), sum(some) / len(some)


def best_tags(sentences: Sequence[Sequence[str]]) -> tuple[float, float]:
    """The accuracies of the best tagger, which sees the whole sentence."""
    likeliest = [[max(p, key=p.__getitem__) for p in tag_chances(words)] for words in sentences]
    return tag_accuracy(sentences, likeliest)


def word_alone(sentences: Sequence[Sequence[str]]) -> tuple[float, float]:
    """The accuracies of the best tagger that sees one word at a time."""
    likeliest = {word: max(p, key=p.__getitem__) for word, p in _shares_of_tags().items()}
    return tag_accuracy(sentences, [[likeliest[word] for word in words] for words in sentences])


@cache
def ambiguous() -> frozenset[str]:
    """Words that have more than one tag."""
    return frozenset(word for word, shares in _shares_of_tags().items() if len(shares) > 1)


@cache
def _shares_of_tags() -> dict[str, dict[str, float]]:
    """How often each word has each tag: the mean of the exact chances over many sentences."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for pair in known_pairs():
        for word, chances in zip(pair.source, tag_chances(pair.source), strict=True):
            for tag, p in chances.items():
                found[word][tag] += p
    return {word: dict(shares) for word, shares in found.items()}


def tag_floor(batches: Labelled, sentences: Sequence[Sequence[str]]) -> float:
    """-log p(tag | sentence), the mean over the words: no tagger has a lower loss on these tags."""
    losses = [
        -math.log(chances[tags()[label]])
        for words, row in zip(sentences, batches.labels.tolist(), strict=True)
        for chances, label in zip(tag_chances(words), row, strict=False)
    ]
    return sum(losses) / len(losses)


def tagger(kind: str, seed: int, *, width: int = 64) -> Classifier:
    """A network that gives each word a tag: "bag", "RNN", "RNN, both ways" or "Transformer"."""
    torch.manual_seed(seed)
    words = len(tokenizer())
    made: dict[str, Backbone] = {
        "bag": Bag(BagConfig(words, width)),
        "RNN": Recurrent(RecurrentConfig(words, width)),
        "RNN, both ways": Recurrent(RecurrentConfig(words, width // 2, both_ways=True)),
        "Transformer": BERT(
            BERTConfig(words, width, 2, heads=4, context=16, segments=0, dropout=0.0)
        ),
    }
    return Classifier(made[kind], Label(made[kind].width, len(tags())))
