"""The claims of notebook 12: what size, text and operations buy.

Scaling laws: Kaplan et al. 2020; Hoffmann et al. 2022. 6 N D: Brown et al. 2020, appendix D.
Experts: Shazeer et al. 2017. Curated text: Radford et al. 2019, section 2.1.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from classroom.ledger import Measured, claim
from classroom.models import recipes
from classroom.models.scaling_runs import (
    BATCH,
    LENGTH,
    Point,
    document_floors,
    document_losses,
    rate_of,
    scaling_run,
)
from labkit.blocks import LanguageModel
from labkit.corpus import from_documents, tokenize
from labkit.costs import counting, formulas, scaling
from labkit.costs import tables as cost_tables
from labkit.heads import MaskedWord, NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import Balanced, NextToken, Objective
from labkit.weights import published
from labkit.weights.description import from_config

Sizes = dict[str, dict[str, Any]]

# ---- a scaling law

GRID: Sizes = {
    "smoke": {"widths": (8, 16, 32), "words": (5_000, 10_000, 20_000)},
    "laptop": {"widths": (16, 32, 64, 128), "words": (20_000, 50_000, 120_000, 300_000)},
    "gpu": {"widths": (32, 64, 128, 256), "words": (100_000, 400_000, 1_600_000, 6_400_000)},
}


def grid(profile: str, seed: int) -> list[Point]:
    """A run for each size of the model and of the text."""
    sizes = GRID[profile]
    return [
        scaling_run(width, words, seed) for words in sizes["words"] for width in sizes["widths"]
    ]


def scaling_law(profile: str, seed: int) -> Measured:
    """How far a power law and an exponential are off for runs that they were not fitted to."""
    runs = [point.run for point in grid(profile, seed)]
    found = scaling.fit(runs, resamples=2)
    arms = {
        "power law": scaling.held_out_errors(runs),
        "exponential law": scaling.held_out_errors(runs, "exponential"),
    }
    exponents = f"alpha {found.alpha:.2f}, beta {found.beta:.2f} with seed {seed}"
    note = f"items are runs, each predicted from the others; {exponents}"
    return Measured(arms, note=note, shared=False)


# ---- six operations for each parameter and token

COUNTED = (
    "bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large", "gpt-3-small",
    "gpt-3-medium", "gpt-3-large", "gpt-3-xl", "gpt-3-2.7b", "gpt-3-6.7b", "gpt-3-13b",
    "gpt-3-175b",
)  # fmt: skip
"""The models of Table D.1 of which the package has the sizes: all but the five T5s."""


def built(name: str, layers: int) -> LanguageModel:
    """A published model with so many of its layers and its head over words, without its numbers."""
    config = replace(published.row(name).config, layers=layers)
    with torch.device("meta"):
        backbone = from_config(config)
        head = NextWord if isinstance(backbone, GPT) else MaskedWord
        return LanguageModel(backbone, head(backbone.token))


@cache
def operations(name: str, context: int | None = None) -> tuple[float, float]:
    """6 N D of a text of the model's context, and the operations that are counted.

    Layers are alike: one of them and the head are counted, and then what a second one adds.
    """
    config = published.row(name).config
    length = context or config.context
    text = torch.zeros(1, length, dtype=torch.long, device="meta")
    one, two = (counting.counted_flop(built(name, layers), text) for layers in (1, 2))
    rule = formulas.rule_flop(published.parameters(name), length)
    return rule, one + (config.layers - 1) * (two - one)


def attention_part(name: str, counted: float) -> float:
    """The share of the counted operations that two products of attention take: 12 L T D a token."""
    config = published.row(name).config
    return 12 * config.layers * config.context**2 * config.width / counted


def six_n_d(profile: str, seed: int) -> Measured:
    """The rule against the count for the models of Table D.1, and against its 17 printed rows."""
    both = {name: operations(name) for name in COUNTED}
    rows = cost_tables.read_table("table_d1")
    ratios = [by_rule(row) / float(row["flop"]) for row in rows]
    arms = {
        "6 N D / counted": [rule / counted for rule, counted in both.values()],
        "attention's share": [attention_part(name, both[name][1]) for name in both],
        "Table D.1: computed / printed": ratios,
    }
    return Measured(arms, note="items are models; nothing is drawn, the interval is over models")


def by_rule(row: dict[str, str]) -> float:
    """Operations per parameter and token (6, or 3 where half of a model works), times N and D."""
    each = float(row["flop_per_parameter_and_token"])
    return each * float(row["parameters_million"]) * 1e6 * float(row["tokens_billion"]) * 1e9


# ---- a mixture of experts

EXPERTS: Sizes = {
    "smoke": {"steps": 250, "width": 32, "experts": 8},
    "laptop": {"steps": 1_600, "width": 64, "experts": 8},
    "gpu": {"steps": 8000, "width": 256, "experts": 8},
}


def mixture(width: int, vocabulary: int, experts: int | None) -> LanguageModel:
    """A GPT of one layer, or one whose feed-forward is two of so many experts of half the width."""
    inner = 4 * width if experts is None else 2 * width
    config = GPTConfig(
        vocabulary, width, 1, max(1, width // 32), LENGTH + 1, inner=inner, experts=experts,
        experts_used=2, dropout=0.0,
    )  # fmt: skip
    backbone = GPT(config)
    return LanguageModel(backbone, NextWord(backbone.token))


def experts(profile: str, seed: int) -> Measured:
    """The loss of a dense model and of a mixture that does the same work for each word."""
    sizes = EXPERTS[profile]
    words = sizes["steps"] * LENGTH * BATCH
    text = recipes.course_text(words=words, held_out=20_000, seed=seed)
    best = document_floors(text, LENGTH)
    arms, floors, note = {}, {}, []
    for name, count in (("dense", None), ("experts", sizes["experts"])):
        torch.manual_seed(seed)
        model = mixture(sizes["width"], text.vocabulary, count)
        objective: Objective = NextToken() if count is None else Balanced(objective=NextToken())
        how = recipes.plan(sizes["steps"], rate=rate_of(sizes["width"]), seed=seed)
        recipes.train_once(model, objective, text.windows(BATCH, LENGTH, seed=seed), how)
        arms[name] = document_losses(model, text.tests(LENGTH))
        floors[name] = sum(best) / len(best)
        work = counting.counted_flop(model, torch.zeros(1, LENGTH, dtype=torch.long)) / LENGTH
        all_of_them = counting.parameters(model).total
        note.append(f"{name}: {all_of_them:,} parameters, {work:,.0f} operations a word")
    return Measured(arms, floors, note="; ".join(note), shared=False)


# ---- curated text

CURATED: Sizes = {
    "smoke": {"steps": 300, "clean": (5_000, 20_000), "dirty": 80_000, "width": 32},
    "laptop": {"steps": 1_600, "clean": (25_000, 100_000), "dirty": 400_000, "width": 64},
    "gpu": {"steps": 8000, "clean": (100_000, 500_000), "dirty": 2_000_000, "width": 256},
}


def curated(profile: str, seed: int) -> Measured:
    """The loss on clean text after as many steps on a crawl, or on less text without its rubbish.

    The larger of the two clean texts is as long as a quarter of the crawl, of which half of the
    documents are clean.
    """
    sizes = CURATED[profile]
    crawl = recipes.course_text("crawl", words=sizes["dirty"], held_out=1_000, seed=seed)
    clean = recipes.course_text(words=1_000, held_out=40_000, seed=seed)
    # One vocabulary for all: that of the crawl, which holds all words of the clean language.
    tests = replace(crawl, documents=clean.documents)
    texts = {"crawl": crawl}
    for name, words in zip(("clean, few words", "clean"), sizes["clean"], strict=True):
        documents = clean.language.sample(words=words, seed=seed)
        read = tokenize(from_documents(documents), crawl.tokenizer)
        texts[name] = replace(crawl, train=read)
    floors = document_floors(clean, LENGTH)
    arms: dict[str, Sequence[float]] = {}
    for name, text in texts.items():
        model, _ = recipes.gpt(
            text, sizes["steps"], seed=seed, width=sizes["width"], layers=1, length=LENGTH,
            batch=BATCH, rate=rate_of(sizes["width"]),
        )  # fmt: skip
        arms[name] = document_losses(model, tests.tests(LENGTH))
    read_words = sizes["steps"] * LENGTH * BATCH
    few, more = sizes["clean"]
    note = (
        f"all read {read_words:,} words: of a crawl of {sizes['dirty']:,}, or again and again of "
        f"{more:,} (few: {few:,}) clean ones"
    )
    best = sum(floors) / len(floors)
    return Measured(arms, dict.fromkeys(arms, best), note=note, shared=False)


# ---- the claims

SCALING_LAW = claim("scaling-law", scaling_law)
SIX_N_D = claim("six-n-d", six_n_d)
MIXTURE = claim("experts", experts)
CURATED_TEXT = claim("curated-text", curated)
CLAIMS = (SCALING_LAW, SIX_N_D, MIXTURE, CURATED_TEXT)
