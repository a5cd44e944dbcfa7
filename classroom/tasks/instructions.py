"""Instructions in the village: plain text, conversations, questions with exact rewards.

The language of `data/instructions` has facts, lists of questions, and quizzes, which a base model
reads. In conversations a user asks and a model answers. Notebook 07 is built on this file.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from labkit.alignment import Question, gold
from labkit.alignment.preferences import answer_rows
from labkit.chance import shuffled
from labkit.corpus import Batch
from labkit.corpus.batches import in_turn
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer
from labkit.world import World, load_world
from labkit.world.answers import list_answers
from labkit.world.optimal import preferred
from labkit.world.sampling import Document

Tokens = list[int]
USER, MODEL = "user", "model"
LONGEST = 18
"""The number of tokens of the longest answer, with its end."""
WEIGHTS = {"right": 1.0, "polite": 0.5, "brief": 1.0}
"""The desired properties of an answer, and the weight of each."""
BETA = 0.3
"""What a nat of divergence from the tuned model costs."""
NONSENSE = -1.0
"""The reward of an answer that the language cannot give."""
DOCUMENTS = 40_000
CONTEXT = 96
"""The number of words of a document that a base model is measured on."""
ASKED = (("sara", "town"), ("victor", "town"), ("eva", "craft"), ("hugo", "craft"))
"""The questions whose answers are all listed: each has 1,152 or 576 of them."""


@cache
def world() -> World:
    """The language."""
    return load_world("instructions")


@cache
def tokenizer() -> Tokenizer:
    """A tokenizer with a token for each word of the language."""
    return Tokenizer.words([" ".join(world().vocabulary[1:])])


def end() -> int:
    """The token that begins and ends a text."""
    separator = tokenizer().vocabulary.sep
    assert separator is not None
    return separator


@cache
def documents(split: str, count: int = DOCUMENTS, seed: int = 0) -> tuple[Document, ...]:
    """Documents of all kinds, always the same ones."""
    return tuple(world().sample(documents=count, split=split, seed=seed))


def plain(split: str, count: int = DOCUMENTS) -> list[Document]:
    """What a base model reads: facts, lists of questions, quizzes; nobody is spoken to."""
    return [one for one in documents(split, count) if one.words[0] != USER]


def parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A conversation as its prompt, up to the answer, and the answer without the end mark."""
    start = list(words).index(MODEL) + 2
    return list(words[:start]), [word for word in words[start:] if word != world().vocabulary[0]]


def encoded(prompt: Sequence[str], answer: Sequence[str]) -> tuple[Tokens, Tokens]:
    """The tokens of a prompt, after the one that begins a text, and of its answer with its end."""
    numbers = tokenizer().encode
    return [end(), *numbers(" ".join(prompt))], [*numbers(" ".join(answer)), end()]


@cache
def conversations(
    split: str, count: int = DOCUMENTS, seed: int = 0
) -> tuple[tuple[Tokens, Tokens], ...]:
    """Prompts and answers, in tokens."""
    spoken = [one for one in documents(split, count, seed) if one.words[0] == USER]
    return tuple(encoded(*parted(one.words)) for one in spoken)


@dataclass(frozen=True)
class Rows:
    """Batches of prompts and answers; with pairs, the chosen answer of each stands first.

    A row of `texts` is a prompt and its answers: one, or a chosen and a rejected one.
    """

    texts: Sequence[tuple[Tokens, ...]]
    batch: int
    seed: int = 0
    labels: Sequence[float] | None = None

    def at(self, step: int) -> Batch:
        """Each row once in an epoch, in an order of its own for each."""
        count = len(self.texts)
        order = partial(shuffled, count, self.seed, "rows")
        numbers = in_turn(step, self.batch, count, order).tolist()
        rows = [(self.texts[n][0], answer) for n in numbers for answer in self.texts[n][1:]]
        batch = answer_rows([prompt for prompt, _ in rows], [answer for _, answer in rows])
        if self.labels is None:
            return batch
        each = torch.tensor([self.labels[n] for n in numbers], dtype=torch.float32)
        return replace(batch, labels=each.repeat_interleave(len(self.texts[0]) - 1))


# ---- questions whose answers are all listed -----------------------------------------------------


def row_of(name: str) -> dict[str, str]:
    """The facts about one of the people."""
    table = world().grammar.tables["village"]
    [row] = [row for row in table.rows if row[0] == name]
    return dict(zip(table.columns, row, strict=True))


def plain_question(name: str, what: str) -> str:
    """The question where somebody lives ("town") or what they do ("craft"), in plain text."""
    return f"where does {name} live ?" if what == "town" else f"what does {name} do ?"


def asking(name: str, what: str) -> list[str]:
    """The prompt of a conversation with this question."""
    return f"{USER} : {plain_question(name, what)} {MODEL} :".split()


@cache
def question(name: str, what: str) -> Question:
    """A question with all of its answers and their rewards."""
    found = list_answers(world(), asking(name, what))
    parts = found.rewards(row_of(name)[what])
    rewards = sum(weight * parts[part] for part, weight in WEIGHTS.items())
    prompt, _ = encoded(asking(name, what), [])
    answers = [encoded([], words)[1] for words in found.texts]
    return Question(prompt, answers, np.append(rewards, NONSENSE))


def questions(asked: Sequence[tuple[str, str]] = ASKED) -> list[Question]:
    """The questions of the notebook."""
    return [question(*one) for one in asked]


def answering(temperature: float = 1.0) -> Sampling:
    """How answers are drawn: from all words, up to the token that ends a text."""
    return Sampling(length=LONGEST, stop=(end(),), temperature=temperature)


def other_rewards(asked: Sequence[Question], rewards: Sequence[np.ndarray]) -> list[Question]:
    """The same questions with other rewards, such as those of a reward model."""
    pairs = zip(asked, rewards, strict=True)
    return [replace(one, rewards=np.append(found, NONSENSE)) for one, found in pairs]


def length_rewards(asked: Sequence[Question]) -> list[np.ndarray]:
    """The baseline that a reward model has to beat: the shorter, the better."""
    return [-np.array([len(answer) for answer in one.answers], float) for one in asked]


def preference_floor(asked: Sequence[Question], policies: Sequence[np.ndarray]) -> float:
    """The lowest loss of a reward model: how unsure the judgements are, over all drawn pairs."""
    found = []
    for one, p in zip(asked, policies, strict=True):
        rewards, level = np.unique(one.rewards, return_inverse=True)
        mass = np.bincount(level, p)
        chance = preferred(rewards[:, None], rewards[None, :])
        found.append(mass @ -(chance * np.log(chance)) @ mass * 2)
    return float(np.mean(found))


@dataclass(frozen=True)
class Preferences:
    """Pairs of answers, the preferred one first, and how sure people are of each pair."""

    texts: list[tuple[Tokens, ...]]
    chances: list[float]


def written(
    model: Any, asked: Sequence[Question], count: int, *, seed: int = 0
) -> list[list[Tokens]]:
    """What a model answers to each question, `count` times."""
    prompts = [one.prompt for one in asked]
    drawn = sample(model, prompts, answering(), samples=count, seed=seed)
    return [[list(text.tokens) for text in some] for some in drawn]


def preferences(
    asked: Sequence[Question], answers: Sequence[Sequence[Tokens]], count: int, *, seed: int = 0,
    exact: bool = False,
) -> Preferences:  # fmt: skip
    """Pairs of these answers to each question, judged by somebody with the true reward.

    With `exact`, the judgement is not drawn: `chances` says how often the first is preferred.
    """
    random, reward = np.random.default_rng(seed), gold(asked)
    rewards = [
        reward([one.prompt] * len(some), some) for one, some in zip(asked, answers, strict=True)
    ]
    texts: list[tuple[Tokens, ...]] = []
    chances: list[float] = []
    for _ in range(count):
        n = int(random.integers(len(asked)))
        first, second = random.integers(len(answers[n]), size=2)
        chance = float(preferred(rewards[n][first], rewards[n][second]))
        if not exact:
            first, second = (first, second) if random.random() < chance else (second, first)
            chance = 1.0
        texts.append((list(asked[n].prompt), list(answers[n][first]), list(answers[n][second])))
        chances.append(chance)
    return Preferences(texts, chances)


# ---- two questions in one -----------------------------------------------------------------------


def hops(asked: bool, *, explained: bool) -> list[tuple[Tokens, str]]:
    """Where friends live: prompts, and the right towns. In training nobody asks about all people.

    `asked`: those whose friends were asked about; `explained`: the step is written out.
    """
    found = []
    for row in world().grammar.tables["village"].rows:
        own = row_of(row[0])
        if (own["asked"] == "yes") == asked:
            words = f"explain where the friend of {row[0]} lives ."
            plainly = f"where does the friend of {row[0]} live ?"
            prompt = f"{USER} : {words if explained else plainly} {MODEL} :".split()
            found.append((encoded(prompt, [])[0], row_of(own["friend"])["town"]))
    return found


def spoken(numbers: Sequence[int]) -> str:
    """Tokens as words, without the one that ends a text."""
    return " ".join(tokenizer().pieces([n for n in numbers if n != end()]))


# ---- the lowest possible losses -----------------------------------------------------------------


def plain_floor(some: Sequence[Document]) -> float:
    """Nats per word of a reader who knows the language and that this is not a conversation."""
    begins = world().grammar.kinds["prompt"].begins
    weights = {topic: weight for topic, (weight, _) in begins.items()}
    share = sum(weights[t] for t in ("facts", "sheet", "quiz")) / sum(weights.values())
    texts = [one.words[:CONTEXT] for one in some]
    logs = [log.sum() - math.log(share) for log in world().log_probabilities(texts)]
    return float(-sum(logs) / sum(map(len, texts)))


def answer_floor(some: Sequence[Document]) -> float:
    """Nats per token of the answers, for a reader who knows the language."""
    every = world().log_probabilities(list(some))
    logs = [log[len(parted(one.words)[0]) :] for one, log in zip(some, every, strict=True)]
    return float(-np.concatenate(logs).mean())


def answer_tests(count: int) -> tuple[Batch, float]:
    """New conversations as one batch, and the lowest possible loss of their answers.

    They are drawn anew, from the questions that training may ask. The others need two facts at
    once, and notebook 07 looks at them separately.

    The loss is that of a reader who knows the language. One text of eight is held out, so a reader
    who knew which ones would come about 0.015 nats per token below it.
    """
    texts = conversations("train", count, seed=1)
    batch = answer_rows([prompt for prompt, _ in texts], [answer for _, answer in texts])
    return batch, answer_floor([d for d in documents("train", count, 1) if d.words[0] == USER])


def beginning(document: Document) -> Tokens:
    """The first words of a document as tokens, without the one that begins it."""
    return encoded([], document.words[:-1])[1][:CONTEXT]


def base_rows(batch: int, *, seed: int = 0) -> Rows:
    """Plain text to mix into the tuning: a prompt of one token, and all that follows it."""
    texts = [([end()], beginning(one)) for one in plain("train", 4_000)]
    return Rows(texts, batch, seed)


def base_tests(some: Sequence[Document]) -> list[Batch]:
    """The first words of documents, each with the token that begins it."""
    rows: list[Any] = [beginning(one) for one in some]
    return [answer_rows([[end()]] * len(rows[i : i + 64]), rows[i : i + 64])
            for i in range(0, len(rows), 64)]  # fmt: skip
