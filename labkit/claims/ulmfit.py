"""Claims of notebook 03: order matters, a hundred labels, three tricks, a new language."""

import copy
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from labkit.blocks import Classifier, LanguageModel
from labkit.classifying import right, rows_of
from labkit.corpus import Batch, Examples, Windows, from_documents, tokenize
from labkit.finetuning import Tuning, fine_tune
from labkit.heads import NextWord, Pooled
from labkit.ledger import Claim, Contrast, Measured
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Recurrent,
    RecurrentConfig,
)
from labkit.objectives import Labels, NextToken
from labkit.recipes import CourseText, course_text, plan, trained
from labkit.reports import evaluate
from labkit.tokenizers import Tokenizer
from labkit.trainer import Trainer
from labkit.transfer import classifier, labels_of
from labkit.world import load_world

NOTEBOOK = "03_ulmfit"


@dataclass(frozen=True)
class Size:
    """How large the experiments of a profile are."""

    words: int = 200_000
    """Of general text."""
    width: int = 96
    general: int = 300
    """Steps of the first stage, on general text."""
    target: int = 150
    """Steps of the second stage, on the target's own text."""
    labelled: int = 100
    """Steps of the third stage, on labelled texts."""
    tests: int = 396
    counts: tuple[int, ...] = (9, 99, 999)
    """How many labels are given: 1, 11 and 111 for each of nine relations."""
    reviews: int = 2_000
    encoders: int = 120
    """Steps for each of the encoders that are compared."""
    second: tuple[int, ...] = (40, 80, 160)
    """Steps in the new language after which the loss is measured."""


SIZES = {
    "smoke": Size(),
    "laptop": Size(
        words=300_000, general=800, target=250, labelled=150, counts=(9, 99, 999, 9_999),
        reviews=4_000, encoders=250, second=(50, 100, 200, 400),
    ),
    "gpu": Size(
        words=2_000_000, width=256, general=6_000, target=1_000, labelled=400, tests=1_980,
        counts=(9, 99, 999, 9_999), reviews=20_000, encoders=1_500, second=(100, 400, 1_600, 6_400),
    ),
}  # fmt: skip


# ---- order -------------------------------------------------------------------------------------


def encoders(vocabulary: int, width: int = 48, *, seed: int = 0) -> dict[str, Classifier]:
    """The ways to represent a sentence, each under the plainest head for two labels."""
    torch.manual_seed(seed)
    one_layer = BERTConfig(
        vocabulary, width, 1, max(1, width // 24), context=160, segments=0, dropout=0.0
    )
    each: dict[str, tuple[nn.Module, str]] = {
        "bag of words": (Bag(BagConfig(vocabulary, width)), "mean"),
        "kernels of 1": (Convolutions(ConvolutionsConfig(vocabulary, width, width, (1,))), "max"),
        "kernels of 3, 5, 11": (Convolutions(ConvolutionsConfig(vocabulary, width, 32)), "max"),
        "RNN": (Recurrent(RecurrentConfig(vocabulary, width)), "last"),
        "Transformer": (BERT(one_layer), "max"),
    }
    made = {}
    for name, (backbone, part) in each.items():
        sizes: int = getattr(backbone.config, "out_width", width)  # type: ignore[union-attr]
        made[name] = Classifier(backbone, Pooled(sizes, 2, parts=(part,), inner=None))
    return made


def shuffled(batches: Examples, seed: int) -> list[Batch]:
    """All batches in order, the words of each row in any order; [CLS] and [SEP] stay."""
    found = []
    for step, batch in enumerate(batches.once()):
        found.append(_shuffle(batch, seed * 10_000 + step))
    return found


def _shuffle(batch: Batch, seed: int) -> Batch:
    random = np.random.default_rng([seed, 7])
    tokens = batch.tokens.clone()
    for row, length in enumerate(batch.real.sum(dim=1).tolist()):
        inner = 1 + torch.from_numpy(random.permutation(max(0, length - 2)))
        tokens[row, 1 : length - 1] = batch.tokens[row, inner]
    return Batch.of(tokens, batch.real, labels=_known(batch.labels))


def _known(labels: torch.Tensor | None) -> torch.Tensor:
    assert labels is not None
    return labels


@dataclass(frozen=True, eq=False)
class Shuffled:
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
    tests = rows_of(asked, tokenizer, batch=100, bucketed=False)
    objective, how = Labels(place="pooled"), plan(
        size.encoders, optimizer="adamw", rate=5e-3, seed=seed
    )  # fmt: skip
    made = encoders(len(tokenizer), seed=seed)
    again = encoders(len(tokenizer), seed=seed)
    arms, best = {}, {}
    for name, model in made.items():
        trained(model, objective, train, how)
        arms[name] = right(model, objective, tests.once())
        best[name] = asked.best_accuracy
    for name in ("kernels of 3, 5, 11", "RNN"):
        trained(again[name], objective, Shuffled(train), how)
        arms[f"{name}, words shuffled"] = right(again[name], objective, shuffled(tests, seed))
    return Measured(arms, best)


ORDER_MATTERS = Claim(
    "order-matters",
    "A bag of words is blind to order; a recurrent network reads it, a convolution sees it within "
    "its kernels, a Transformer sees it all at once.",
    "the lecture on transfer learning, slides “How to represent a sentence?”",
    NOTEBOOK,
    "accuracy on reviews: good or bad?",
    order_matters,
    (
        Contrast("an RNN gains on a bag of words", {"RNN": 1, "bag of words": -1}),
        Contrast("an RNN loses without the order", {"RNN": 1, "RNN, words shuffled": -1}),
        Contrast(
            "kernels of several words gain on kernels of one",
            {"kernels of 3, 5, 11": 1, "kernels of 1": -1},
        ),
        Contrast(
            "a Transformer is as good as an RNN, up to 0.03",
            {"Transformer": 1, "RNN": -1},
            above=-0.03,
        ),
    ),
)


def seconds_a_word(lengths: tuple[int, ...] = (16, 64, 256), *, rows: int = 8) -> dict[str, list]:
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


# ---- three stages ------------------------------------------------------------------------------


def fresh(vocabulary: int, width: int, *, seed: int = 0) -> LanguageModel:
    """A small AWD-LSTM that has read nothing; without dropout, for it reads each word only once."""
    torch.manual_seed(seed)
    sizes = AWDLSTMConfig(
        vocabulary, width, width, 2, dropout=0.0, hidden_dropout=0.0, input_dropout=0.0,
        embedding_dropout=0.0, weight_dropout=0.0,
    )  # fmt: skip
    backbone = AWDLSTM(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def general(text: CourseText, profile: str, seed: int) -> LanguageModel:
    """The first stage: a language model of general text."""
    size = SIZES[profile]
    model = fresh(text.vocabulary, size.width, seed=seed)
    batches = text.windows(8, 32, seed=seed)
    trained(model, NextToken(), batches, plan(size.general, rate=2e-2, seed=seed))
    return model


def target_text(text: CourseText, documents: int = 2_000, *, seed: int = 0) -> Windows:
    """Text of the target task without its labels: prompts alone."""
    world = text.world or load_world()
    prompts = itertools.islice(world.documents(seed=seed, having="relation"), documents)
    tokens = tokenize(from_documents(list(prompts)), text.tokenizer)
    return Windows(tokens, batch=8, length=32, seed=seed)


def adapted(text: CourseText, profile: str, seed: int) -> LanguageModel:
    """The first two stages: general text, then text of the target."""
    model = general(text, profile, seed)
    steps = SIZES[profile].target
    how = plan(steps, rate=1e-2, schedule="slanted_triangle", warmup=None, seed=seed)
    trained(model, NextToken(), target_text(text, seed=seed), how)
    return model


def tuned(
    start: LanguageModel,
    rows: Examples,
    *,
    labels: int,
    steps: int,
    seed: int = 0,
    factor: float = 2.6,
    schedule: str = "slanted_triangle",
    gradually: bool = True,
) -> Classifier:
    """The third stage: a classifier, by default with the three tricks of the paper."""
    torch.manual_seed(seed)
    model = classifier(copy.deepcopy(start), labels, dropout=0.1)
    how = plan(steps, rate=1e-2, schedule=schedule, warmup=None, seed=seed)
    every = max(1, steps // 8) if gradually else None
    tuning = Tuning(plan=how, factor=factor, unfreeze_every=every)
    return fine_tune(model, labels_of(model), rows, tuning)


@dataclass(frozen=True)
class Task:
    """Which relation do the pairs of a prompt have?  Nine answers."""

    text: CourseText
    tests: list[Batch]
    best: float
    labels: int

    def rows(self, count: int, seed: int) -> Examples:
        """So many labelled prompts to learn from."""
        assert self.text.world is not None
        labelled = self.text.world.labelled("relation", count, seed=seed)
        return rows_of(labelled, self.text.tokenizer, batch=16, length=64, seed=seed)

    def right(self, model: Classifier) -> list[float]:
        """Which of the tests a classifier gets right."""
        return right(model, labels_of(model), self.tests)


def task(profile: str, seed: int) -> Task:
    """The task, with its general text."""
    size = SIZES[profile]
    text = course_text(words=size.words, held_out=4_000, seed=seed)
    assert text.world is not None
    asked = text.world.labelled("relation", size.tests, seed=seed, split="held_out")
    rows = rows_of(asked, text.tokenizer, batch=100, length=64, bucketed=False)
    return Task(text, list(rows.once()), asked.best_accuracy, len(asked.labels))


def hundred_labels(profile: str, seed: int) -> Measured:
    """The same classifier from pre-trained and from fresh weights, over numbers of labels."""
    size, given = SIZES[profile], task(profile, seed)
    before = adapted(given.text, profile, seed)
    nothing = fresh(given.text.vocabulary, size.width, seed=seed)
    arms: dict[str, list[float]] = {}
    for count in size.counts:
        rows = given.rows(count, seed)
        known = {"labels": given.labels, "steps": size.labelled, "seed": seed}
        arms[f"{count:,} labels, pre-trained"] = given.right(tuned(before, rows, **known))
        # What is new has nothing to lose: the tricks would only hold it back.
        plain = tuned(nothing, rows, factor=1.0, gradually=False, **known)
        arms[f"{count:,} labels, from scratch"] = given.right(plain)
    return Measured(arms, dict.fromkeys(arms, given.best))


HUNDRED_LABELS = Claim(
    "hundred-labels",
    "After pre-training, N labels do what 10 N labels do without it.",
    "Howard and Ruder 2018, section 5, “Low-shot learning” and figure 3",
    NOTEBOOK,
    "accuracy on prompts: which of nine relations?",
    hundred_labels,
    (
        Contrast(
            "9 labels after pre-training against 99 without",
            {"9 labels, pre-trained": 1, "99 labels, from scratch": -1},
            above=-0.02,
        ),
        Contrast(
            "99 labels after pre-training against 999 without",
            {"99 labels, pre-trained": 1, "999 labels, from scratch": -1},
            above=-0.02,
        ),
        Contrast(
            "what pre-training gives to 99 labels",
            {"99 labels, pre-trained": 1, "99 labels, from scratch": -1},
        ),
    ),
)

ABLATION: Mapping[str, dict] = {
    "all three": {},
    "one rate for all layers": {"factor": 1.0},
    "constant rate": {"schedule": "constant"},
    "all layers from the start": {"gradually": False},
    "none of the three": {"factor": 1.0, "schedule": "constant", "gradually": False},
}


def three_tricks(profile: str, seed: int) -> Measured:
    """Fine-tuning with 99 labels, without one of the tricks at a time."""
    given = task(profile, seed)
    before, rows = adapted(given.text, profile, seed), given.rows(99, seed)
    known = {"labels": given.labels, "steps": SIZES[profile].labelled, "seed": seed}
    arms = {
        name: given.right(tuned(before, rows, **known, **changes))
        for name, changes in ABLATION.items()
    }
    return Measured(arms, dict.fromkeys(arms, given.best))


THREE_TRICKS = Claim(
    "three-tricks",
    "Discriminative rates, the slanted triangle and gradual unfreezing each help.",
    "Howard and Ruder 2018, section 5, table 7",
    NOTEBOOK,
    "accuracy on prompts, 99 labels",
    three_tricks,
    tuple(
        Contrast(f"all three against {name}", {"all three": 1, name: -1})
        for name in ABLATION
        if name != "all three"
    ),
)


# ---- a new language ----------------------------------------------------------------------------


def with_new_words(model: LanguageModel, vocabulary: int, *, seed: int = 0) -> LanguageModel:
    """The layers of a language model under new word vectors, for words that it has never seen."""
    new = fresh(vocabulary, model.backbone.config.width, seed=seed)  # type: ignore[union-attr]
    new.backbone.blocks.load_state_dict(model.backbone.blocks.state_dict())  # type: ignore[union-attr]
    return new


def document_losses(model: LanguageModel, tests: list[Batch]) -> list[float]:
    """The mean loss of each document."""
    rows = [batch[i : i + 1] for batch in tests for i in range(len(batch))]
    return [evaluate(model, NextToken(), [row]).loss for row in rows]


def new_language(profile: str, seed: int) -> Measured:
    """The loss in the second language after some steps, from scratch and transferred."""
    size = SIZES[profile]
    first = course_text(words=size.words, held_out=4_000, seed=seed)
    second = course_text("second", words=size.words // 2, held_out=3_000, seed=seed)
    assert second.world is not None
    tests = second.tests(48)
    floor = second.world.floor("next", [words[:48] for words in second.documents])
    best = float(np.mean([losses.mean() for losses in floor.losses]))
    moved = with_new_words(general(first, profile, seed), second.vocabulary, seed=seed)
    starts = {"from scratch": fresh(second.vocabulary, size.width, seed=seed), "transferred": moved}
    batches = second.windows(8, 32, seed=seed)
    how = plan(size.second[-1], rate=2e-2, schedule="constant", seed=seed)
    arms: dict[str, list[float]] = {}
    for way, model in starts.items():
        for report in Trainer(model, NextToken(), batches, how, progress=False).run():
            if report.step in size.second:
                arms[f"{report.step} steps, {way}"] = document_losses(model, tests)
    arms = {name: arms[name] for name in sorted(arms, key=lambda name: int(name.split()[0]))}
    return Measured(arms, dict.fromkeys(arms, best))


# Every profile measures after other numbers of steps; the claim is about early and late ones.
def first_and_last(profile: str, seed: int) -> Measured:
    """The same, the first and the last numbers of steps under names that all profiles share."""
    found, steps = new_language(profile, seed), SIZES[profile].second
    names = {steps[0]: "early", steps[-1]: "late"}
    arms = {}
    for name, losses in found.arms.items():
        count, way = name.split(" steps, ")
        arms[f"{names.get(int(count), f'{count} steps')}, {way}"] = losses
    note = f"early: {steps[0]} steps, late: {steps[-1]} steps"
    return Measured(arms, dict.fromkeys(arms, next(iter(found.best.values()))), note)


NEW_LANGUAGE = Claim(
    "new-language",
    "A model of one language is a head start for another.",
    "the lecture on transfer learning, slide “What if new language?”",
    NOTEBOOK,
    "nats a word of the second language, mean over documents",
    first_and_last,
    (
        Contrast(
            "early, the transferred model is ahead by",
            {"early, from scratch": 1, "early, transferred": -1},
        ),
        Contrast(
            "late, the transferred model is ahead by",
            {"late, from scratch": 1, "late, transferred": -1},
        ),
    ),
)

CLAIMS = (ORDER_MATTERS, HUNDRED_LABELS, THREE_TRICKS, NEW_LANGUAGE)
