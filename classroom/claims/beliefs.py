"""A claim of notebook 05 that only a known language allows: what do the states of a GPT hold?

Whoever predicts as well as possible has to know how likely each hidden state of the language is,
given all words so far: the *belief*. A linear probe finds it in a GPT's states, if it is there
(Shai et al. 2024). Read `beliefs` and `told` first.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.ledger import Measured, claim
from classroom.models import recipes
from classroom.models.recipes import CourseText, course_text
from classroom.tasks.classifying import regression
from labkit.corpus import pad_rows
from labkit.heads import pool
from labkit.world import World
from labkit.world.sums import Symbols

LENGTH, WORDS_BEFORE = 32, 4
PENALTY = 5e-4


class Size(NamedTuple):
    """How large the experiment of a profile is."""

    steps: tuple[int, ...]
    """Steps of pre-training, each number for a run of its own."""
    prefixes: int
    """Beginnings of documents that the map learns from, and as many to test it."""
    width: int = 64
    words: int = 400_000


SIZES = {
    "smoke": Size((20, 100), 500, 32, 50_000),
    "laptop": Size((50, 200, 800, 2_000), 3_000),
    "gpu": Size((200, 2_000, 10_000), 20_000, 128, 4_000_000),
}


def prefixes(world: World, count: int, seed: int, split: str) -> list[np.ndarray]:
    """Beginnings of documents, of a random length."""
    random = np.random.default_rng([seed, 5])
    found = []
    for document in world.documents(seed=seed, split=split):
        if len(document) > LENGTH:
            found.append(document.numbers[: random.integers(WORDS_BEFORE, LENGTH)])
        if len(found) == count:
            break
    return found


def beliefs(world: World, texts: list[np.ndarray]) -> Tensor:
    """The exact posterior [N, S] over kinds of hidden states, after the last word of each text."""
    rows, wanted = [Symbols(text) for text in texts], [[len(text) - 1] for text in texts]
    kinds = kinds_of(world)
    belief_NS = torch.zeros(len(texts), 1 + int(kinds.max()))
    for n, found in enumerate(world.states_at(rows, "document", wanted)):
        [(states, weights, _)] = found.values()
        chances = torch.from_numpy(weights / weights.sum()).float()
        belief_NS[n].index_add_(0, kinds[states], chances)
    return belief_NS


def kinds_of(world: World) -> Tensor:
    """The kind of each hidden state: the section of the document and the pattern of the sentence.

    There are about as many kinds as a small GPT's states have numbers.
    """
    machine = world.machine
    both = np.stack([machine.section, machine.pattern], axis=1)
    return torch.from_numpy(np.unique(both, axis=0, return_inverse=True)[1].ravel())


@torch.no_grad()
def layers(model: Any, text: CourseText, texts: list[np.ndarray]) -> tuple[Tensor, ...]:
    """The state [N, D] of the last word of each text, in each layer of a GPT."""
    names, end = text.language.vocabulary, text.tokenizer.vocabulary.sep or 0
    rows = [[end, *text.numbers([names[i] for i in one])] for one in texts]
    tokens_BT, real_BT = pad_rows(rows)
    return tuple(pool(layer, real_BT, "last") for layer in model.backbone(tokens_BT).layers)


def last_words(texts: list[np.ndarray], vocabulary: int, count: int) -> Tensor:
    """Which words the last ones are: [N, count * vocabulary], ones and zeros."""
    words_NK = torch.from_numpy(np.stack([text[-count:] for text in texts]))
    return F.one_hot(words_NK, vocabulary).flatten(1).float()


def told(known: Tensor, truth: Tensor, asked: Tensor, right: Tensor) -> list[float]:
    """The share of each belief that a probe recovers: 1 - KL(right || probe) / KL(right || mean).

    The probe is a softmax regression with a small penalty, learned from `known`. `mean` is the mean
    of the known beliefs; its KL is that of all asked ones together.
    """
    mean, spread = known.mean(dim=0), known.std(dim=0) + 1e-3
    known, asked = (known - mean) / spread, (asked - mean) / spread
    probe = regression(known, truth, truth.shape[1], 2 * len(known) * PENALTY, steps=200)
    with torch.no_grad():
        own_N = torch.special.entr(right).sum(dim=1)
        apart_N = F.cross_entropy(probe(asked), right, reduction="none") - own_N
        rows, kinds = truth.shape
        mean_S = (truth.sum(dim=0) + 1 / kinds) / (rows + 1)  # no kind has the chance 0
        before = F.cross_entropy(mean_S.log().expand_as(right), right) - own_N.mean()
        found: list[float] = (1 - apart_N / before).tolist()
    return found


def posterior_in_states(profile: str, seed: int) -> Measured:
    """The share of the exact belief that is read from each layer, as training goes on."""
    size = SIZES[profile]
    text = course_text("village", words=size.words, held_out=1_000, seed=seed)
    both = [prefixes(text.language, size.prefixes, seed, split) for split in ("train", "held_out")]
    known, right = (beliefs(text.language, texts) for texts in both)
    arms: dict[str, list[float]] = {}
    for count in (1, WORDS_BEFORE):
        seen = [last_words(texts, len(text.language.vocabulary), count) for texts in both]
        arms[f"last {count} words" if count > 1 else "last word"] = told(
            seen[0], known, seen[1], right
        )
    sizes: Any = {"seed": seed, "width": size.width, "layers": 2, "length": LENGTH}
    for steps in (0, *size.steps):
        if steps:
            model, _ = recipes.gpt(text, steps, **sizes, batch=32, rate=1e-2)
        else:
            model = recipes.untrained_gpt(text, **sizes)
        named = {0: "untrained", size.steps[0]: "early", size.steps[-1]: "trained"}
        name = named.get(steps, f"{steps} steps")
        read = [layers(model, text, texts) for texts in both]
        for layer, (few, many) in enumerate(zip(*read, strict=True)):
            arms[f"layer {layer}, {name}"] = told(few, known, many, right)
    note = (
        f"early: {size.steps[0]} steps, trained: {size.steps[-1]}; {text.language.machine.states} "
        f"hidden states of {known.shape[1]} kinds"
    )
    return Measured(arms, dict.fromkeys(arms, 1.0), note, shared=False)


POSTERIOR_IN_STATES = claim("posterior-in-states", posterior_in_states)

CLAIMS = (POSTERIOR_IN_STATES,)
