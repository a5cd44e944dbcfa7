"""From your own table of texts, of which few have a label, to a classifier: three ways, compared.

    python -m labkit train classifier --text reviews.csv --column review --label stars
    python examples/your_labels.py reviews.csv --column review --label stars --backbone gpt

* `gpt`: the GPT that ships, which has read addresses of presidents.
* `ulmfit`: the same after it has read the texts of the table; lower layers learn more slowly.
* `real`: a small encoder that has seen a billion sentences (the extra `real`).

The baseline of each way is a logistic regression on its frozen, normalised mean vectors.
Fine-tuning begins with that regression (Kumar et al. 2022, section 4), and cross-validation on the
given labels chooses how many blocks learn, and how fast. It is kept only where it is better than
the baseline by more than two standard errors. A row whose label is empty is text without a label.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.models.recipes import Shuffled, plan
from classroom.models.shipped import card, trained
from classroom.models.training import make_writable
from classroom.tasks.classifying import regression
from classroom.versions import CARD
from labkit.blocks import Classifier, LanguageModel, evaluating
from labkit.corpus import Batch, Windows, from_documents, from_table, pad_rows, tokenize
from labkit.heads import Pooled, pool
from labkit.keeping.files import write_json
from labkit.masking import real_keys
from labkit.models.bert import BERT
from labkit.objectives import Labels, NextToken
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer
from labkit.transfer.finetuning import Tuning, fine_tune
from labkit.weights import WeightsError, load, load_tokenizer, real_encoder, save

WAYS = ("gpt", "ulmfit", "real")
LENGTH, BATCH, FOLDS, EPOCHS = 96, 16, 3, 4
PENALTIES = (0.01, 0.1, 1.0)
"""Penalties on the squared weights, divided by the number of labels; libraries begin with 1."""
READING = 200
"""Steps in which `ulmfit` reads the texts of the table."""


class Depth(NamedTuple):
    """How many blocks learn, from the top, and at which rate; with 0, only the head learns."""

    blocks: int
    rate: float

    def __str__(self) -> str:
        return f"{self.blocks} blocks, rate {self.rate:g}" if self.blocks else "frozen"


FROZEN = Depth(0, 0.0)
DEPTHS = (Depth(1, 1e-4), Depth(1, 5e-4), Depth(99, 3e-5), Depth(99, 2e-4))


@dataclass(frozen=True)
class Task:
    """A table, split: the labelled rows to learn from, those that are asked, and all other text."""

    classes: tuple[str, ...]
    known: list[tuple[str, int]]
    asked: list[tuple[str, int]]
    texts: list[str]


@dataclass(frozen=True)
class Outcome:
    """The result of one way on the held-out part."""

    way: str
    chosen: Depth
    model: Classifier
    tokenizer: Tokenizer
    said: list[int]
    expected: float
    """The share right in the cross-validation on the given labels, by which ways are compared."""
    baseline: float
    right: float
    seconds: float


def task_of(file: str, text: str, label: str, labels: int) -> Task:
    """Hold out a fifth of the labelled texts, and learn from `labels` of the others.

    Repeated texts do not count, so that no held-out text is learned from.
    """
    if labels < FOLDS:
        raise ValueError(f"labels is {labels}: give a whole number from {FOLDS}")
    table = from_table(file, text, label)
    labelled = [(row.text, row.label) for row in table if row.label is not None]
    rows = list({_words(row[0]): row for row in labelled}.values())
    if len(rows) < 10 or not 2 <= len(table.classes) <= len(rows) // 2:
        raise ValueError(
            f"{len(rows)} different texts of {file} have a label, of {len(table.classes)} kinds: "
            "give at least 10 texts, 2 kinds, and twice as many texts as kinds"
        )
    random.Random(0).shuffle(rows)
    asked, known = rows[: len(rows) // 5], rows[len(rows) // 5 :][:labels]
    if len({number for _, number in known}) < 2:
        [only] = {table.classes[number] for _, number in known}
        raise ValueError(
            f"the {len(known)} labels of {file} to learn from are all {only!r}: give rows of the "
            "other kinds, or a larger --labels"
        )
    kept = {_words(text) for text, _ in asked}
    texts = [row.text for row in table if _words(row.text) not in kept]
    return Task(table.classes, known, asked, texts)


def _words(text: str) -> str:
    """The form of a text by which its copies are found: white space does not count."""
    return " ".join(text.split())


# ---- one way


def encoder_of(way: str, task: Task) -> tuple[Any, Tokenizer]:
    """The pre-trained encoder of a way and its tokenizer."""
    if way == "real":
        return load(real_encoder()), load_tokenizer(real_encoder())
    model, tokenizer = trained("gpt-addresses")
    if way == "ulmfit":
        _read_on(model, tokenizer, task.texts)
    return model.backbone, tokenizer


def _read_on(model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """ULMFiT's second stage: the language model reads the texts of the task."""
    tokens = tokenize(from_documents(texts), tokenizer)
    length = min(128, len(tokens))
    steps = max(1, min(READING, 20 * len(tokens) // (8 * length)))
    how = plan(
        steps, rate=1e-3, optimizer="adamw", schedule="slanted_triangle", warmup=None, device="cpu"
    )
    batches = Windows(tokens, batch=8, length=length)
    for _ in Trainer(model, NextToken(), batches, how, progress=False).run():
        pass


def labelled_rows(rows: Sequence[tuple[str, int]], tokenizer: Tokenizer, *, framed: bool) -> Batch:
    """A row for each text, with its label; longer texts are cut."""
    marks: Any = tokenizer.vocabulary
    pieces = [tokenizer.encode(text)[: LENGTH - 2] for text, _ in rows]
    whole = [[marks.cls, *one, marks.sep] if framed else [marks.sep or 0, *one] for one in pieces]
    return Batch.of(*pad_rows(whole), labels=torch.tensor([label for _, label in rows]))


@torch.no_grad()
def vectors(encoder: Any, rows: Batch) -> Tensor:
    """The mean state of each text, of length one [N, D]."""
    found = []
    with evaluating(encoder):
        for start in range(0, len(rows), 50):
            part = rows[start : start + 50]
            mask = real_keys(part.real) if isinstance(encoder, BERT) else None
            states = encoder(part.tokens, mask=mask).hidden
            found.append(F.normalize(pool(states, part.real, "mean"), dim=-1))
    return torch.cat(found)


def built(encoder: Any, linear: nn.Linear, rows: Batch, choice: Depth, way: str) -> Classifier:
    """A classifier that begins as the regression and learns as was chosen."""
    head = Pooled(
        linear.in_features, linear.out_features, parts=("mean",), inner=None, normalised=True
    )
    head.labels.load_state_dict(linear.state_dict())
    if not choice.blocks:
        return Classifier(encoder, head)
    model = Classifier(copy.deepcopy(encoder), head)
    batches = Shuffled(rows, BATCH)
    steps = max(2, EPOCHS * batches.steps)
    how = plan(steps, rate=choice.rate, optimizer="adamw", device="cpu", decay=0.01)
    layers = min(1 + choice.blocks, 2 + len(encoder.blocks))
    slower = 2.6 if way == "ulmfit" else 1.0
    tuning = Tuning(plan=how, layers=layers, factor=slower)
    return fine_tune(model, Labels(position="pooled"), batches, tuning)


def answers(model: Classifier, rows: Batch) -> Tensor:
    """The likeliest label of each row [N]; the head is linear in the vectors."""
    with torch.no_grad():
        said: Tensor = model.head.labels(vectors(model.backbone, rows)).argmax(dim=-1)  # type: ignore[operator]
    return said


def classified(folder: str | Path, texts: Sequence[str]) -> list[str]:
    """The label that a saved classifier gives each text."""
    if isinstance(texts, str) or not texts:
        raise ValueError(f"the texts are {texts!r}: give a list of at least one")
    classes = card(folder).get("classes")
    if classes is None:
        raise ValueError(f"{folder} holds no classifier: train one with `labkit train classifier`")
    model, tokenizer = trained(folder)
    framed = isinstance(model.backbone, BERT)
    rows = labelled_rows([(text, 0) for text in texts], tokenizer, framed=framed)
    return [classes[number] for number in answers(model, rows).tolist()]


def folds_of(count: int) -> list[tuple[Tensor, Tensor]]:
    """The rows to learn from and the rows to predict, in each fold of the cross-validation."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    parts = order.chunk(FOLDS)
    return [(torch.cat([*parts[:i], *parts[i + 1 :]]), part) for i, part in enumerate(parts)]


def cross_validated(
    encoder: Any, rows: Batch, classes: int, way: str
) -> tuple[float, Depth, float]:
    """The penalty, what is fine-tuned, and the share right, by cross-validation on the labels."""
    x_ND = vectors(encoder, rows)
    labels = rows.labels
    assert labels is not None
    folds = folds_of(len(rows))

    def frozen(penalty: float) -> Tensor:
        return torch.cat([
            regression(x_ND[known], labels[known], classes, penalty)(x_ND[asked]).argmax(dim=-1)
            == labels[asked]
            for known, asked in folds
        ]).double()  # fmt: skip

    hits = {penalty: frozen(penalty) for penalty in PENALTIES}
    penalty = max(hits, key=lambda each: float(hits[each].mean()))
    best, chosen = 0.0, FROZEN
    for choice in DEPTHS:
        found = []
        for known, asked in folds:
            linear = regression(x_ND[known], labels[known], classes, penalty)
            model = built(encoder, linear, rows[known], choice, way)
            found.append(answers(model, rows[asked]) == labels[asked])
        gains = torch.cat(found).double() - hits[penalty]
        gain, error = float(gains.mean()), float(gains.std()) / math.sqrt(len(gains))
        if gain > max(best, 2 * error):
            best, chosen = gain, choice
    return penalty, chosen, float(hits[penalty].mean()) + best


def run_way(way: str, task: Task) -> Outcome:
    """Choose, train on all given labels, and predict the held-out part once."""
    begun = time.perf_counter()
    torch.manual_seed(0)
    encoder, tokenizer = encoder_of(way, task)
    framed = isinstance(encoder, BERT)
    known, asked = (
        labelled_rows(part, tokenizer, framed=framed) for part in (task.known, task.asked)
    )
    classes = len(task.classes)
    penalty, chosen, expected = cross_validated(encoder, known, classes, way)
    assert known.labels is not None
    assert asked.labels is not None
    linear = regression(vectors(encoder, known), known.labels, classes, penalty)
    baseline = answers(built(encoder, linear, known, FROZEN, way), asked)
    model = built(encoder, linear, known, chosen, way)
    said = answers(model, asked)
    return Outcome(
        way, chosen, model, tokenizer, said.tolist(), expected,
        float((baseline == asked.labels).double().mean()),
        float((said == asked.labels).double().mean()), time.perf_counter() - begun,
    )  # fmt: skip


# ---- what is said of it


def interval(right: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's method, which suits few texts."""
    from scipy.stats import binomtest

    found = binomtest(round(right * count), count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def confusion(task: Task, said: Sequence[int]) -> str:
    """A row for each label, a column for each answer."""
    names = task.classes
    width = max(8, *(len(name) + 2 for name in names))
    lines = ["right \\ said".ljust(width + 6) + "".join(name.rjust(width) for name in names)]
    for label, name in enumerate(names):
        answered = [one for one, (_, right) in zip(said, task.asked, strict=True) if right == label]
        lines.append(
            name.ljust(width + 6)
            + "".join(str(answered.count(one)).rjust(width) for one in range(len(names)))
        )
    return "\n".join(lines)


def report(task: Task, found: Sequence[Outcome]) -> str:
    """Each way with its interval beside its baseline; the chosen one with its confusion table."""
    count = len(task.asked)
    labels = [label for _, label in task.asked]
    most = max(labels.count(label) for label in set(labels)) / count
    lines = [f"{len(task.known)} labels known, {count} texts asked; the most frequent label has "
             f"{most:.3f}"]  # fmt: skip
    for one in found:
        low, high = interval(one.right, count)
        lines.append(
            f"{one.way:7}accuracy {one.right:.3f} [{low:.3f}, {high:.3f}]  {one.chosen}; "
            f"regression on frozen vectors {one.baseline:.3f}; {one.seconds:.0f} s"
        )
    best = best_of(found)
    lines.append(f"best by cross-validation on the known labels: {best.way} ({best.expected:.3f})")
    seen = {label for _, label in task.known}
    if never := [name for number, name in enumerate(task.classes) if number not in seen]:
        lines.append(f"in no known text, and so never an answer: {', '.join(never)}")
    return "\n".join([*lines, confusion(task, best.said)])


def best_of(found: Sequence[Outcome]) -> Outcome:
    """The way that did best in cross-validation; the held-out part does not affect the choice."""
    return max(found, key=lambda one: one.expected)


def compare(
    task: Task, ways: Sequence[str] = WAYS, say: Callable[[str], None] = print
) -> list[Outcome]:
    """Run all ways that are possible here."""
    found = []
    for way in ways:
        try:
            found.append(run_way(way, task))
        except WeightsError as problem:
            if len(ways) == 1:
                raise
            say(f"{way}: left out, {problem}")
    return found


def train_classifier(
    file: str, text: str, label: str, folder: Path, labels: int, say: Callable[[str], None]
) -> str:
    """Compare the ways on a table, write the best one's folder, and return the report."""
    task = task_of(file, text, label, labels)
    make_writable(folder)
    found = compare(task, say=say)
    best = best_of(found)
    (folder / CARD).unlink(missing_ok=True)
    save(best.model, folder)
    best.tokenizer.save(folder / "tokenizer.json")
    said = report(task, found)
    card = {"name": folder.as_posix(), "way": best.way, "classes": task.classes,
            "held_out": round(best.right, 4), "unit": "share right", "report": said}  # fmt: skip
    write_json(folder / CARD, card)
    return said
