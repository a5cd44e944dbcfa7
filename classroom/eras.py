"""Which era is a paragraph from? A language model that has read such text, and one that has not.

ULMFiT's plan (Howard and Ruder 2018) on real text, with the GPT that ships as the language model:
concat pooling, discriminative rates, the slanted triangle and gradual unfreezing. From scratch all
layers learn from the start, at one rate, for random layers must not stay as they are.
`python -m classroom.eras` measures all and writes `data/eras.json`, which notebook 03 shows.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from classroom import realtext
from classroom.realtext import ERAS, Paragraph
from classroom.shipped import trained
from labkit.blocks import Classifier, LanguageModel
from labkit.corpus import Batch, pad_rows
from labkit.heads import NextWord, Pooled
from labkit.models.gpt import GPT
from labkit.objectives import Labels
from labkit.paths import data_path
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.transfer.finetuning import Tuning, fine_tune

SIZES, SEEDS, ASKED, LENGTH, BATCH = (100, 1000), (0, 1, 2), 500, 64, 16
ARMS = ("pre-trained", "from scratch", "words counted")


def rows(texts: Sequence[Paragraph], tokenizer: Tokenizer) -> Batch:
    """The first pieces of each paragraph, with its era as the label."""
    start = tokenizer.vocabulary.sep or 0
    pieces = [[start, *tokenizer.encode(one.text)][:LENGTH] for one in texts]
    return Batch.of(*pad_rows(pieces), labels=torch.tensor([one.era for one in texts]))


class Shuffled:
    """Batches of labelled rows, in another order each time round."""

    def __init__(self, whole: Batch, seed: int) -> None:
        self.whole, self.seed = whole, seed

    def at(self, step: int) -> Batch:
        """The batch of that step."""
        each = len(self.whole) // BATCH
        order = torch.randperm(
            len(self.whole), generator=torch.Generator().manual_seed(self.seed + step // each)
        )
        return self.whole[order[BATCH * (step % each) :][:BATCH]]


def one_run(arm: str, size: int, seed: int) -> float:
    """The share of held-out paragraphs that are put into the right era."""
    model, tokenizer = trained("gpt-addresses")
    torch.manual_seed(seed)
    if arm == "words counted":
        return counted(size, seed, tokenizer)
    scratch = arm == "from scratch"
    if scratch:
        gpt = GPT(model.backbone.config)
        model = LanguageModel(gpt, NextWord(gpt.token))
    built = Classifier(model.backbone, Pooled(model.backbone.width, len(ERAS), dropout=0.1))
    known = rows(realtext.paragraphs(size, held_out=False, seed=seed), tokenizer)
    asked = rows(realtext.paragraphs(ASKED, held_out=True, seed=seed), tokenizer)
    steps = 40 if size <= 100 else 2 * size // BATCH
    plan = Plan(
        steps=steps, rate=1e-3 if scratch else 4e-3, schedule="slanted_triangle",
        optimizer="adamw", seed=seed, precision="float32", device="cpu", decay=0.01,
    )  # fmt: skip
    slowly = Tuning(plan=plan, factor=2.6, unfreeze_every=max(1, steps // 12))
    tuning = Tuning(plan=plan) if scratch else slowly
    fine_tune(built, Labels(position="pooled"), Shuffled(known, seed), tuning)
    built.eval()
    with torch.no_grad():
        said = [built.head(built.backbone(part.tokens).hidden, part.real).argmax(dim=1)
                for part in (asked[at : at + 100] for at in range(0, ASKED, 100))]  # fmt: skip
    assert asked.labels is not None
    return float((torch.cat(said) == asked.labels).double().mean())


def counted(size: int, seed: int, tokenizer: Tokenizer) -> float:
    """The same from the logarithms of counts of pieces, and a linear layer."""
    parts = (realtext.paragraphs(size, held_out=False, seed=seed),
             realtext.paragraphs(ASKED, held_out=True, seed=seed))  # fmt: skip
    counts = [
        torch.stack([torch.bincount(torch.tensor(tokenizer.encode(one.text)),
                                    minlength=len(tokenizer)) for one in part]).float().log1p()
        for part in parts
    ]  # fmt: skip
    known, asked = (part - counts[0].mean(dim=0) for part in counts)
    spread = known.std()
    eras = [torch.tensor([one.era for one in part]) for part in parts]
    answer = nn.Linear(len(tokenizer), len(ERAS))
    optimizer = torch.optim.AdamW(answer.parameters(), lr=0.02, weight_decay=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(answer(known / spread), eras[0]).backward()
        optimizer.step()
    return float((answer(asked / spread).argmax(dim=1) == eras[1]).double().mean())


def stored() -> dict[str, Any]:
    """What was measured: for each arm and size the accuracy of each seed."""
    found: dict[str, Any] = json.loads(data_path("eras.json").read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Measure all and write them."""
    found: dict[str, Any] = {arm: {} for arm in ARMS}
    for size in SIZES:
        for arm in ARMS:
            found[arm][str(size)] = [round(one_run(arm, size, seed), 3) for seed in SEEDS]
            print(size, arm, found[arm][str(size)], flush=True)
    (data_path("models").parent / "eras.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
