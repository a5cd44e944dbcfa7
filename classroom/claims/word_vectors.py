"""The claims of notebook 01: when to freeze what was pre-trained, and when to tune it.

The four quadrants: lecture 003. Word vectors: Mikolov et al. 2013.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom import recipes
from classroom.ledger import Measured, claim
from classroom.recipes import CourseText
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Examples, from_documents, tokenize
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.transfer import labels_of
from labkit.transfer.finetuning import Way, one_way
from labkit.world import World, load_world
from labkit.world.examples import LabelledSet

TASK = "topic"
LENGTH = 32
TUNED: tuple[Way, ...] = ("frozen", "fine-tuned")

SIZES: dict[str, dict[str, int]] = {
    "smoke": {"words": 100_000, "steps": 250, "width": 48, "small": 96, "large": 1_920,
              "tests": 576, "tuning": 120},
    "laptop": {"words": 300_000, "steps": 800, "width": 64, "small": 96, "large": 5_760,
               "tests": 960, "tuning": 300},
    "gpu": {"words": 3_000_000, "steps": 6_000, "width": 128, "small": 96, "large": 57_600,
            "tests": 3_840, "tuning": 2_000},
}  # fmt: skip


# ---- analogies


def analogies(
    vectors_VD: Tensor, tokenizer: Tokenizer, world: World, *, top: int = 5
) -> dict[str, float]:
    """For each relation of the language: how often the answer is among the nearest words.

    "france is to paris as japan is to …" for all pairs of pairs whose parts are single words.
    """
    unit_VD = F.normalize(vectors_VD, dim=-1)
    found = {}
    for name, relation in world.grammar.relations.items():
        pairs = [(question[0].word, answer.tokens[0].word) for question, answer in relation.pairs
                 if len(question) == len(answer.tokens) == 1]  # fmt: skip
        known = torch.tensor([[tokenizer[word] for word in pair] for pair in pairs])
        hits = [_hit(unit_VD, known[i], known[j], top)
                for i in range(len(known)) for j in range(len(known)) if i != j]  # fmt: skip
        found[name] = sum(hits) / len(hits)
    return found


def _hit(unit_VD: Tensor, pair: Tensor, asked: Tensor, top: int) -> bool:
    """Whether b - a + c is near the right word; the three words of the question do not count."""
    query_D = unit_VD[pair[1]] - unit_VD[pair[0]] + unit_VD[asked[0]]
    near_V = unit_VD @ query_D
    near_V[[*pair.tolist(), int(asked[0])]] = -torch.inf
    return bool(int(asked[1]) in near_V.topk(top).indices.tolist())


# ---- four quadrants


def both_languages(words: int, seed: int) -> tuple[CourseText, CourseText]:
    """A text of the language and one of the foreign language, under one vocabulary.

    The two share nothing but the full stop.
    """
    ours, theirs = load_world(), load_world("foreign")
    known = sorted({*ours.vocabulary[1:], *theirs.vocabulary[1:]})
    tokenizer = Tokenizer.words([" ".join(known)])
    return _text(ours, tokenizer, words, seed), _text(theirs, tokenizer, words, seed)


def _text(world: World, tokenizer: Tokenizer, words: int, seed: int) -> CourseText:
    drawn = world.sample(words=words, seed=seed, split="train")
    tokens = tokenize(from_documents(drawn), tokenizer)
    return CourseText(tokenizer, tokens, tokens, [], world)


def examples(found: LabelledSet, tokenizer: Tokenizer, batch: int, seed: int) -> Examples:
    """A labelled set as batches: a row for each text."""
    texts = from_documents([" ".join(e.words) for e in found], [e.label for e in found])
    tokens = tokenize(texts, tokenizer)
    return Examples(tokens, batch=batch, length=LENGTH, framed=False, seed=seed)


@torch.no_grad()
def right(model: Any, tests: Examples) -> list[float]:
    """For each text, 1 where the classifier's best label is the right one."""
    objective, found = labels_of(model), []
    model.eval()
    for batch in tests.once():
        targets = objective.targets(batch, Chance(0, 0, batch.rows))
        states, _ = objective.forward(model, targets)
        guesses = objective.scores(model, states, targets)[objective.name].argmax(dim=-1)
        found += (guesses == targets.predicted[objective.name].targets_N).float().tolist()
    return found


def four_quadrants(profile: str, seed: int) -> Measured:
    """Topics of sentences from few and from many labels, with vectors of this and that language."""
    sizes = SIZES[profile]
    similar, different = both_languages(sizes["words"], seed)
    world = load_world()
    tests = world.labelled(TASK, sizes["tests"], seed=seed, split="held_out")
    asked = examples(tests, similar.tokenizer, 64, seed)
    torch.manual_seed(seed)
    vectors = WordVectors(WordVectorsConfig(similar.vocabulary, sizes["width"]))
    blank = LanguageModel(vectors, nn.Identity())
    starts = {
        name: recipes.word_vectors(text, sizes["steps"], seed=seed, width=sizes["width"])[0]
        for name, text in (("similar", similar), ("different", different))
    }
    arms = {}
    for size in ("small", "large"):
        labelled = world.labelled(TASK, sizes[size], seed=seed)
        batches = examples(labelled, similar.tokenizer, 32, seed)
        plan = tuning(sizes["tuning"] * (1 if size == "small" else 2), seed)

        chosen = [(f"{size}, {name}, {way}", start, way) for name, start in starts.items()
                  for way in TUNED]  # fmt: skip
        for name, start, way in [*chosen, (f"{size}, from scratch", blank, "from scratch")]:
            torch.manual_seed(seed)
            built = one_way(start, way, batches, labels=len(tests.labels), plan=plan)
            arms[name] = right(built, asked)
    note = f"{TASK} of a sentence; {sizes['small']} or {sizes['large']:,} labelled sentences"
    return Measured(arms, dict.fromkeys(arms, tests.best_accuracy), note)


def tuning(steps: int, seed: int) -> Plan:
    """How all classifiers of the quadrants learn."""
    return recipes.plan(steps, seed=seed, optimizer="adamw", rate=3e-2, decay=0.0)


FOUR_QUADRANTS = claim("four-quadrants", four_quadrants)
CLAIMS = (FOUR_QUADRANTS,)
