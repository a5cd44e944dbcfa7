"""Which era, which party? A language model that has read such text, and one that has not.

ULMFiT's plan (Howard and Ruder 2018) on real text, with the GPT that ships as the language model:
concat pooling, discriminative rates, the slanted triangle and gradual unfreezing. From scratch, all
layers learn from the start at one rate, since no layer may stay random, and they take five to eight
times as many steps, since random weights have farther to go.
`python -m classroom.claims.eras` measures all and writes `data/eras.json`, which notebook 03 shows.
What stands there already is not measured again, unless `gpt-addresses` has been trained anew.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from classroom.judging import Estimate, estimate
from classroom.ledger import Measured, claim
from classroom.models.recipes import Shuffled
from classroom.models.shipped import card, trained
from classroom.tasks import realtext
from classroom.tasks.realtext import TASKS, Paragraph
from labkit.blocks import Classifier, LanguageModel
from labkit.corpus import Batch, pad_rows
from labkit.heads import NextWord, Pooled
from labkit.keeping.files import read_json, write_json
from labkit.keeping.paths import data_path
from labkit.models.gpt import GPT
from labkit.objectives import Labels
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.transfer.finetuning import Tuning, fine_tune

SIZES, SEEDS, ASKED, LENGTH, BATCH = (100, 1000), (0, 1, 2), 500, 64, 16
ARMS = ("pre-trained", "from scratch", "words counted")
EACH = 20
"""How many paragraphs of each held-out address the claim asks about, at most."""


def rows(texts: Sequence[Paragraph], tokenizer: Tokenizer) -> Batch:
    """The first pieces of each paragraph, with its label."""
    start = tokenizer.vocabulary.sep or 0
    pieces = [[start, *tokenizer.encode(one.text)][:LENGTH] for one in texts]
    return Batch.of(*pad_rows(pieces), labels=torch.tensor([one.label for one in texts]))


def right(
    arm: str,
    size: int,
    seed: int,
    task: str = "era",
    asked_texts: Sequence[Paragraph] | None = None,
) -> list[float]:
    """Whether each held-out paragraph gets the right label: 1 or 0."""
    model, tokenizer = trained("gpt-addresses")
    torch.manual_seed(seed)
    texts = realtext.paragraphs(size, held_out=False, seed=seed, task=task)
    if asked_texts is None:
        asked_texts = realtext.paragraphs(ASKED, held_out=True, seed=seed, task=task)
    if arm == "words counted":
        return counted(texts, asked_texts, tokenizer)
    scratch = arm == "from scratch"
    if scratch:
        gpt = GPT(model.backbone.config)
        model = LanguageModel(gpt, NextWord(gpt.token))
    built = Classifier(model.backbone, Pooled(model.backbone.width, len(TASKS[task]), dropout=0.1))
    known, asked = rows(texts, tokenizer), rows(asked_texts, tokenizer)
    few = size <= 100
    steps = (300 if few else 600) if scratch else (40 if few else 2 * size // BATCH)
    plan = Plan(
        steps=steps, rate=1e-3 if scratch else 4e-3, schedule="slanted_triangle",
        optimizer="adamw", seed=seed, precision="float32", device="cpu", decay=0.01,
    )  # fmt: skip
    slowly = Tuning(plan=plan, factor=2.6, unfreeze_every=max(1, steps // 12))
    tuning = Tuning(plan=plan) if scratch else slowly
    fine_tune(built, Labels(position="pooled"), Shuffled(known, BATCH, seed), tuning)
    built.eval()
    with torch.no_grad():
        parts = [asked[at : at + 100] for at in range(0, len(asked_texts), 100)]
        said = [built.head(built.backbone(part.tokens).hidden, part.real).argmax(dim=1)
                for part in parts]  # fmt: skip
    assert asked.labels is not None
    return (torch.cat(said) == asked.labels).double().tolist()


def counted(
    texts: Sequence[Paragraph], asked_texts: Sequence[Paragraph], tokenizer: Tokenizer
) -> list[float]:
    """The same from the logarithms of counts of the same pieces, and a linear layer."""
    parts = (texts, asked_texts)
    read = [[tokenizer.encode(one.text)[: LENGTH - 1] for one in part] for part in parts]
    counts = [
        torch.stack([torch.bincount(torch.tensor(one), minlength=len(tokenizer)) for one in part])
        .float().log1p()
        for part in read
    ]  # fmt: skip
    known, asked = (part - counts[0].mean(dim=0) for part in counts)
    spread = known.std()
    labels = [torch.tensor([one.label for one in part]) for part in parts]
    answer = nn.Linear(len(tokenizer), 1 + int(labels[0].max()))
    optimizer = torch.optim.AdamW(answer.parameters(), lr=0.02, weight_decay=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(answer(known / spread), labels[0]).backward()
        optimizer.step()
    return (answer(asked / spread).argmax(dim=1) == labels[1]).double().tolist()


def stored() -> dict[str, Any]:
    """What was measured: by task, arm and size the accuracy of each seed."""
    return read_json(data_path("eras.json"))


def gain(by_arm: dict[str, dict[str, list[float]]], over: str, size: int) -> Estimate:
    """By how much pre-training is better than another arm; the seeds are compared in pairs."""
    runs = [
        {"pre-trained": [ours], over: [other]}
        for ours, other in zip(
            by_arm["pre-trained"][str(size)], by_arm[over][str(size)], strict=True
        )
    ]
    return estimate(runs, {"pre-trained": 1, over: -1}, shared=False)


def main() -> None:
    """Measure what is missing; each run is written at once, so an interrupted command goes on."""
    path = data_path("models").parent / "eras.json"
    model = card("gpt-addresses")["held_out"]
    found = stored() if path.is_file() else {}
    if found.get("model") != model:
        found = {"model": model}
    for task in TASKS:
        for size in SIZES:
            for arm in ARMS:
                by_seed = found.setdefault(task, {}).setdefault(arm, {}).setdefault(str(size), [])
                for seed in SEEDS[len(by_seed) :]:
                    hits = right(arm, size, seed, task)
                    by_seed.append(round(sum(hits) / len(hits), 3))
                    write_json(path, found)
                print(task, size, arm, by_seed, flush=True)


def worth_of_labels(profile: str, seed: int) -> Measured | None:
    """From which era a paragraph is: pre-trained, from scratch, and a linear model of counts."""
    asked = realtext.asked_of_each(EACH, seed=seed)
    if not asked:
        return None
    flat = [one for texts in asked for one in texts]
    arms = {}
    for size in SIZES:
        for arm in ARMS:
            hits = torch.tensor(right(arm, size, seed, asked_texts=flat), dtype=torch.float64)
            # An address is one item: its paragraphs say much about each other.
            of_each = hits.split([len(texts) for texts in asked])
            arms[f"{size} labels, {arm}"] = [float(one.mean()) for one in of_each]
    return Measured(arms, note=f"items are addresses; {realtext.NO_FLOOR}")


REAL_LABELS = claim("real-labels", worth_of_labels)

CLAIMS = (REAL_LABELS,)

if __name__ == "__main__":
    main()
