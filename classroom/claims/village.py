"""The small language of the experiments on BERT and its family, and models that learn it fast.

`data/village` is a language like that of the course, with some two hundred words: a masked model of
a hundred thousand parameters comes near its floor within a few hundred steps. Rows are single
sentences (or pairs), so that positions are informative. Read `encoder`, `cloze` and `sense_probe`.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.models.recipes import larger_weights, random_words
from labkit.blocks import LanguageModel
from labkit.corpus import Batch, Document, Examples, from_documents, tokenize
from labkit.heads import MaskedWord
from labkit.models.bert import BERT, BERTConfig
from labkit.objectives import MaskedToken
from labkit.text.tokenizers import Tokenizer
from labkit.world import World, load_world
from labkit.world.sampling import Document as Sampled
from labkit.writing.filling import one_by_one

LONGEST = 40
"""Tokens of the longest row: two sentences and what frames them."""
RATE = 1e-2


@cache
def village() -> World:
    """The small language."""
    return load_world("village")


@cache
def tokenizer() -> Tokenizer:
    """Its words, each a token."""
    return Tokenizer.words([" ".join(village().vocabulary[1:])])


@cache
def documents(split: str, words: int, seed: int = 0) -> tuple[Sampled, ...]:
    """Documents of the language, other ones for each seed."""
    return tuple(village().sample(words=words, split=split, seed=seed))


@cache
def sentences(split: str, words: int, seed: int = 0) -> tuple[tuple[str, ...], ...]:
    """The sentences of these documents."""
    return tuple(
        tuple(document.words[a:z])
        for document in documents(split, words, seed)
        for a, z in document.sentences
    )


def rows(texts: Sequence[Sequence[str]], *, batch: int = 64, seed: int = 0) -> Examples:
    """[CLS] sentence [SEP], a row for each sentence."""
    source = from_documents([" ".join(words) for words in texts])
    return Examples(
        tokenize(source, tokenizer(), end=False), batch=batch, length=LONGEST, seed=seed
    )


def whole(texts: Sequence[Sequence[str]]) -> Batch:
    """The same rows as one batch, in the order of the texts."""
    [batch] = rows(texts, batch=len(texts)).once()
    return batch


READINGS = 40
MASKS = {"one mask": 1, "ten masks": 10, "dynamic": 0}
"""Kinds of masks of a row that is read so many times: BERT made ten and read each four times."""


def masked(**choices: Any) -> MaskedToken:
    """BERT's objective on this language."""
    frequencies = random_words(village(), tokenizer())
    return MaskedToken(vocabulary=tokenizer().vocabulary, frequencies=frequencies, **choices)


def sentence_floor(texts: Sequence[Sequence[str]]) -> float:
    """The lowest loss of a language model on these rows, from the left or from the right.

    Both directions multiply up to the probability of the sentence, which is one number; and both
    have one prediction more than there are words: the end, or the beginning.
    """
    numbers = [village().numbers(words) for words in texts]
    logs = village().log_probabilities(numbers, start="sentence")
    return float(-sum(log.sum() for log in logs) / sum(len(log) + 1 for log in logs))


# ---- models


def encoder(
    seed: int, *, vocabulary: int | None = None, width: int = 64, layers: int = 2, **sizes: Any
) -> LanguageModel:
    """A small BERT with its head for masked words, not yet trained."""
    torch.manual_seed(seed)
    words = vocabulary or len(tokenizer())
    sizes = {"context": LONGEST, **sizes}
    config = BERTConfig(words, width, layers, heads=4, dropout=0.0, **sizes)
    backbone = BERT(config)
    model = LanguageModel(backbone, MaskedWord(backbone.token, width))
    larger_weights(model)
    return model


# ---- what is measured


class Blanks(NamedTuple):
    """Sentences with one word asked of each, and the exact losses of the best model."""

    batch: Batch
    places: Tensor
    """The asked position of each row, [CLS] being position 0."""
    both: np.ndarray
    """-log p(word | all other words)"""
    left: np.ndarray
    """-log p(word | the words before it)"""

    @property
    def words(self) -> Tensor:
        """The words that are asked for, as tokens."""
        return self.batch.tokens[torch.arange(len(self.batch)), self.places]


@cache
def blanks(size: int, seed: int = 0) -> Blanks:
    """The first held-out sentences, each with a word of it (never its full stop)."""
    texts = sentences("held_out", 12 * size, seed)[:size]
    random = np.random.default_rng(seed)
    places = [int(random.integers(len(words) - 1)) for words in texts]
    world = village()
    numbers = [world.numbers(words) for words in texts]
    requests: Any = [(text, [place], {}) for text, place in zip(numbers, places, strict=True)]
    distributions = world.distributions(requests, "sentence")
    both = [
        -np.log(distribution[0, text[place]])
        for distribution, text, place in zip(distributions, numbers, places, strict=True)
    ]
    before = world.log_probabilities(numbers, start="sentence")
    left = [-log[place] for log, place in zip(before, places, strict=True)]
    return Blanks(whole(texts), 1 + torch.tensor(places), np.array(both), np.array(left))


@torch.no_grad()
def cloze(model: Any, asked: Blanks, *, hidden: bool = True) -> list[float]:
    """How surprised a masked model is by the asked word of each sentence.

    Each sentence has one [MASK]; or, without `hidden`, the word itself stands there.
    """
    batch, count = asked.batch, torch.arange(len(asked.batch))
    tokens = batch.tokens.clone()
    if hidden:
        tokens[count, asked.places] = tokenizer().vocabulary.mask or 0
    answers = states(model, tokens, batch.real)[count, asked.places]
    losses: list[float] = model.head.losses_N(answers, asked.words).tolist()
    return losses


@torch.no_grad()
def states(model: Any, tokens: Tensor, real: Tensor, **parts: Tensor) -> Tensor:
    """The last states, padding left out of all."""
    found: Tensor = model.backbone(tokens, mask=real[:, None, None, :], **parts).hidden
    return found


def best_words(model: Any, words: Tokenizer, sentence: str, *, count: int = 3) -> str:
    """The likeliest words for the [MASK] of a sentence, by a masked model."""
    marks: Any = words.vocabulary
    tokens = [marks.cls, *words.encode(sentence, special=True), marks.sep]
    distribution = one_by_one(model, tokens, [tokens.index(marks.mask)], mask=marks.mask)[0]
    likely = distribution.topk(count)
    spelled = words.pieces(likely.indices.tolist())
    return "  ".join(f"{w} {p:.2f}" for w, p in zip(spelled, likely.values.exp(), strict=True))


@torch.no_grad()
def likeness(backbone: Any, words: Tokenizer, texts: Sequence[str]) -> Tensor:
    """The cosines between the mean states of some texts."""
    marks: Any = words.vocabulary
    rows = [torch.tensor([[marks.cls, *words.encode(text), marks.sep]]) for text in texts]
    means = torch.stack([backbone(row).hidden[0].mean(dim=0) for row in rows])
    means = F.normalize(means, dim=-1)
    return means @ means.T


SPAM = (
    "{praise} {dish} and {praise} {fish} in the {shop} .",
    "the {shop} had {praise} {spice} for the {player} .",
    "we had a {praise} {vehicle} for the {shop} .",
    "the {dish} of the {shop} was {praise} and {praise} .",
)


def spam(size: int, seed: int, *, split: str = "train") -> Examples:
    """Short messages: advertising from a few patterns (label 1), ordinary sentences (label 0)."""
    random = np.random.default_rng([seed, split == "train"])
    lists = village().grammar.lists

    def filled(slot: re.Match[str]) -> str:
        fillers = lists[slot[1]]
        return " ".join(t.word for t in fillers[int(random.integers(len(fillers)))].tokens)

    patterns = [SPAM[int(random.integers(len(SPAM)))] for _ in range(size // 2)]
    known = sentences(split, 20_000)
    chosen = random.choice(len(known), size=size - size // 2, replace=False)
    texts = [re.sub(r"{(\w+)}", filled, pattern) for pattern in patterns]
    texts += [" ".join(known[i]) for i in chosen]
    labels = [1] * len(patterns) + [0] * len(chosen)
    found = [Document((text,), label) for text, label in zip(texts, labels, strict=True)]
    tokens = tokenize(from_documents(found), tokenizer(), end=False)
    return Examples(tokens, batch=min(32, size), length=LONGEST, bucketed=False, seed=seed)


class Senses(NamedTuple):
    """Sentences with an ambiguous word, where it stands, and which of its senses is meant."""

    batch: Batch
    places: Tensor
    labels: Tensor
    best: float
    """The accuracy of the best classifier."""


@cache
def senses(split: str, size: int, seed: int = 1) -> Senses:
    """Sentences with an ambiguous word, as many of each sense."""
    drawn = village().labelled("sense", size, seed=seed, split=split)
    places = torch.tensor([1 + (one.position or 0) for one in drawn])
    labels = torch.tensor([drawn.labels.index(one.label) for one in drawn])
    return Senses(whole([one.words for one in drawn]), places, labels, drawn.best_accuracy)


SHOWN, DRAWS = 4, 8
"""A probe learns from so many examples of each sense, and is judged after so many draws of them."""


def sense_probe(model: Any, seed: int = 1, *, asked: int = 400) -> list[float]:
    """How often the sense of each asked word can be read from its frozen state.

    The words stand in plain sentences, without any [MASK]. A linear map learns from a few of them
    and is asked about others; each figure is the mean over several draws of the few.
    """
    kinds = len(sense_labels())
    few, many = senses("train", SHOWN * DRAWS * kinds, seed), senses("held_out", asked, seed)
    known, read = (
        states(model, one.batch.tokens, one.batch.real)[torch.arange(len(one.labels)), one.places]
        for one in (few, many)
    )
    by_label = few.labels.argsort(stable=True).view(kinds, DRAWS, SHOWN)
    draws = [by_label[:, i].flatten() for i in range(DRAWS)]
    each = [probe(known[rows], few.labels[rows], read, many.labels) for rows in draws]
    return np.mean(each, axis=0).tolist()


@cache
def sense_labels() -> tuple[str, ...]:
    """The senses of the ambiguous words."""
    return tuple(village().labelled("sense", 80, seed=1).labels)


def probe(known: Tensor, labels: Tensor, asked: Tensor, right: Tensor) -> list[float]:
    """1 where a linear map, fitted to the labels of known states, is right about others.

    Least squares with a penalty (ridge), solved exactly: nothing is trained, nothing is drawn.
    """
    mean, spread = known.mean(dim=0), known.std(dim=0) + 1e-3
    known, asked = (
        F.pad((part - mean) / spread, (0, 1), value=1.0).double() for part in (known, asked)
    )
    wanted = F.one_hot(labels).double()
    penalty = 0.1 * len(known) * torch.eye(known.shape[1], dtype=torch.double)
    weights = torch.linalg.solve(known.T @ known + penalty, known.T @ wanted)
    found: list[float] = ((asked @ weights).argmax(dim=1) == right).double().tolist()
    return found
