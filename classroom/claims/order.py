"""A claim of notebook 03: who sees the order of words, and how fast?

Read `encoders` first: five ways to represent a sentence.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from classroom.ledger import Measured, claim
from classroom.models.recipes import larger_weights, plan, train_once
from classroom.tasks.classifying import right, rows_of
from labkit.blocks import Backbone, Classifier
from labkit.corpus import Batch, Examples
from labkit.heads import Pooled
from labkit.models.bert import BERT, BERTConfig
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Recurrent,
    RecurrentConfig,
)
from labkit.objectives import Labels
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world


@dataclass(frozen=True)
class Size:
    """How large the experiment of a profile is."""

    reviews: int = 1_600
    """To learn from."""
    steps: int = 110
    tests: int = 396


SIZES = {
    "smoke": Size(),
    "laptop": Size(reviews=8_000, steps=2_000, tests=990),
    "gpu": Size(reviews=20_000, steps=5_000, tests=1_980),
}
RATES = {"Transformer": 5e-3}
"""Learning rates of the encoders that do not learn best at 0.01. Each was tried at 0.002, 0.005 and
0.01, with the seeds 0 and 1."""


def encoders(vocabulary: int, width: int = 48, *, seed: int = 0) -> dict[str, Classifier]:
    """The ways to represent a sentence, each under the plainest head for two labels."""
    torch.manual_seed(seed)
    one_layer = BERTConfig(
        vocabulary, width, 1, max(1, width // 24), context=160, segments=0, dropout=0.0
    )
    each: dict[str, Backbone] = {
        "bag of words": Bag(BagConfig(vocabulary, width)),
        "kernels of 1": Convolutions(ConvolutionsConfig(vocabulary, width, width, (1,))),
        "kernels of 3, 5, 11": Convolutions(ConvolutionsConfig(vocabulary, width, 32)),
        "RNN": Recurrent(RecurrentConfig(vocabulary, width)),
        "Transformer": BERT(one_layer),
    }
    made = {}
    for name, backbone in each.items():
        # The same summary for all: with another one, the summaries would be compared.
        head = Pooled(backbone.width, 2, parts=("max", "mean"), inner=None)
        made[name] = Classifier(backbone, head)
    larger_weights(made["Transformer"])
    return made


def shuffled(batches: Examples, seed: int) -> list[Batch]:
    """All batches in order, the words of each row in any order; [CLS] and [SEP] stay."""
    return [_shuffle(batch, seed * 10_000 + step) for step, batch in enumerate(batches.once())]


def _shuffle(batch: Batch, seed: int) -> Batch:
    random = np.random.default_rng([seed, 7])
    tokens = batch.tokens.clone()
    for row, length in enumerate(batch.real.sum(dim=1).tolist()):
        inner = 1 + torch.from_numpy(random.permutation(max(0, length - 2)))
        tokens[row, 1 : length - 1] = batch.tokens[row, inner]
    assert batch.labels is not None
    return Batch.of(tokens, batch.real, labels=batch.labels)


@dataclass(frozen=True, eq=False)
class WithoutOrder:
    """Batches whose rows have lost the order of their words, anew at each step."""

    batches: Examples

    def at(self, step: int) -> Batch:
        """The batch of a step, shuffled."""
        return _shuffle(self.batches.at(step), step)


def order_matters(profile: str, seed: int) -> Measured:
    """Is it a good review?  Bag, RNN, convolution and Transformer, with and without the order."""
    size, world = SIZES[profile], load_world()
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    train = rows_of(world.labelled("feeling", size.reviews, seed=seed), tokenizer, seed=seed)
    asked = world.labelled("feeling", size.tests, seed=seed, split="held_out")
    tests = rows_of(asked, tokenizer, batch=100)
    objective = Labels(position="pooled")

    def how(name: str) -> Plan:
        return plan(size.steps, optimizer="adamw", rate=RATES.get(name, 1e-2), seed=seed)

    made = encoders(len(tokenizer), seed=seed)
    again = encoders(len(tokenizer), seed=seed)
    arms, best = {}, {}
    for name, model in made.items():
        train_once(model, objective, train, how(name))
        arms[name] = right(model, objective, tests.once())
        best[name] = asked.best_accuracy
    for name in ("kernels of 3, 5, 11", "RNN"):
        train_once(again[name], objective, WithoutOrder(train), how(name))
        arms[f"{name}, words shuffled"] = right(again[name], objective, shuffled(tests, seed))
    return Measured(arms, best, shared=False)


ORDER_MATTERS = claim("order-matters", order_matters)


def seconds_a_word(lengths: tuple[int, ...], *, rows: int = 8) -> dict[str, list]:
    """Seconds for a word, reading and learning, of each encoder at each length of text."""
    vocabulary = 2_000
    found: dict[str, list] = {}
    for name, model in encoders(vocabulary, 64).items():
        if name == "Transformer":
            model.backbone = BERT(BERTConfig(vocabulary, 64, 1, 2, max(lengths), dropout=0.0))
        found[name] = [_seconds(model, rows, length) / (rows * length) for length in lengths]
    return found


def _seconds(model: Classifier, rows: int, length: int) -> float:
    """The best of three times, forwards and backwards."""
    tokens_BT = torch.arange(rows * length).view(rows, length) % 2_000
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        model(tokens_BT).sum().backward()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def speed_of_encoders(profile: str, seed: int) -> Measured:
    """How long a word takes, as powers of ten of seconds, in short and in long texts."""
    lengths = (16, 64, 256)
    found = seconds_a_word(lengths)
    arms = {
        f"{name}, {length} words": [float(np.log10(seconds))]
        for name, each in found.items()
        for length, seconds in zip(lengths, each, strict=True)
    }
    return Measured(arms, note="forwards and backwards, eight texts at a time", shared=False)


SPEED_OF_ENCODERS = claim("speed-of-encoders", speed_of_encoders)
