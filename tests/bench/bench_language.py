"""What the course's language is like, against bounds that were written down first.

`python -m labkit bench language [PART …]` prints tables: `entropy`, `distance`, `sides` and `times`
take about a minute; `tasks` trains a small model of the text, which is kept; `reviews` trains
classifiers from scratch on 1,000 and on 20,000 reviews. Without a name it runs them all.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from classroom.claims.order import encoders
from classroom.models import recipes
from classroom.models.recipes import plan, train_once
from classroom.tasks.classifying import right, rows_of
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.gpt import GPT
from labkit.objectives import Labels
from labkit.text.tokenizers import Tokenizer
from labkit.world import END, World, load_world
from labkit.world.examples import Example, LabelledSet
from labkit.world.floors import BERT, mean_of
from labkit.world.labelled import TASKS
from labkit.world.sides import sides
from labkit.world.world import _of_the_course

WORDS = 20_000
SAMPLES = range(3, 9)
"""Seeds of the texts of the cloze: one text is too short to tell 0.05 nats from chance."""
# What was asked for before it was measured: at least (">") or at most ("<").
BOUNDS = {
    "entropy": (">", 1.2),
    "beyond 16 words": (">", 0.15),
    "left - side by side": (">", 0.05),
    "side by side - both": (">", 0.05),
    "compile": ("<", 1.0),
    "load": ("<", 1.0),
    "sample a million words": ("<", 5.0),
    "floor": ("<", 10.0),
    "sense, bag": ("<", 0.55),
    "sense, untrained": ("<", 0.55),
    "sense, best": (">", 0.9),
    "passages, best": (">", 0.9),
    "below the best after 1,000": (">", 0.08),
    "below the best after 20,000": ("<", 0.02),
}


def say(name: str, value: float, rest: str = "", bound: str = "") -> None:
    """Print a number, and whether it keeps its bound."""
    sign, limit = BOUNDS.get(bound or name, ("", 0.0))
    kept = "" if not sign else "kept" if (value > limit) == (sign == ">") else "MISSED"
    asked = f"{sign} {limit:g} {kept}" if sign else ""
    print(f"{name:<34} {value:9.4f}  {asked:<14} {rest}", flush=True)


def entropy(world: World) -> None:
    """Nats per word, in all and by kind of document; how many words are certain or wide open."""
    sample = world.sample(words=5 * WORDS, seed=1)
    floor = world.floor("next", sample)
    say("entropy", floor.mean, f"± {floor.standard_error:.4f} over {floor.count:,} words")
    losses = np.concatenate(floor.losses)
    say("nearly certain, p > 0.9", float((losses < -math.log(0.9)).mean()))
    say("wide open, p < 0.1", float((losses > -math.log(0.1)).mean()))
    kinds: dict[str, list[np.ndarray]] = {}
    for document, loss in zip(sample, floor.losses, strict=True):
        kinds.setdefault(document.annotations.topics[0], []).append(loss)
    for kind, found in sorted(kinds.items()):
        each = np.concatenate(found)
        share = len(each) / floor.count
        say(f"  begins with {kind}", float(each.mean()), f"{share:.1%} of the words")


def distance(world: World) -> None:
    """What is told by words so far back."""
    sample = world.sample(words=WORDS, seed=2)
    whole = world.floor("next", sample).mean
    for reach in (4, 16, 64):
        gain = world.floor("next", sample, reach=reach).mean - whole
        say(f"beyond {reach} words", gain, "nats per word")


def both_sides(world: World) -> None:
    """A cloze from the left, from two sides side by side, and from both at once."""
    samples = [world.sample(words=WORDS, seed=seed, split="held_out") for seed in SAMPLES]
    found = [sides(world, sample, seed=seed) for seed, sample in zip(SAMPLES, samples, strict=True)]
    left, pool, both = (
        [losses for one in found for losses in getattr(one, name).losses]
        for name in ("left", "side_by_side", "both")
    )
    for name, losses in (("left", left), ("side by side", pool), ("both", both)):
        mean = mean_of(losses)
        say(name, mean.mean, f"± {mean.standard_error:.3f} over {mean.count:,} words")
    for name, ones, others in (
        ("left - side by side", left, pool),
        ("side by side - both", pool, both),
    ):
        apart = mean_of([one - other for one, other in zip(ones, others, strict=True)])
        say(name, apart.mean, f"± {apart.standard_error:.3f}")


def times(world: World) -> None:
    """Seconds of one processor."""

    def timed(name: str, work: Callable[[], object], bound: str = "") -> None:
        begun = time.process_time()
        found = work()
        said = "" if isinstance(found, World | list) else str(found)
        say(name, time.process_time() - begun, said, bound)

    timed("compile", lambda: World(world.grammar))
    # As a process does that finds the compiled language in the cache.
    timed("load", lambda: _of_the_course.__wrapped__("language"))
    timed("sample a million words", lambda: world.sample(words=1_000_000))
    sample = world.sample(words=WORDS, split="held_out")
    for objective in ("next", "previous", "masked", "permutation"):
        timed(f"floor: {objective}", lambda o=objective: world.floor(o, sample), "floor")
    timed("floor: 80/10/10", lambda: world.floor("masked", sample, channel=BERT), "floor")
    timed("floor: cloze", lambda: world.floor("cloze", sample, rate=0.05), "floor")
    for reach in (4, 16, 64):
        timed(f"floor: {reach} words back", lambda k=reach: world.floor("next", sample, reach=k))


# ── labelled tasks ───────────────────────────────────────────────────────────────────────────────

LABELS, TESTS, STEPS, LENGTH = 2_000, 1_000, 2_000, 128


def tasks(world: World) -> None:
    """For every labelled task: a bag of words, an untrained and a trained model, the exact best."""
    text = recipes.course_text(words=1_000_000, held_out=2_000)
    trained = recipes.gpt(text, STEPS, length=LENGTH, layers=2)[0]
    torch.manual_seed(0)
    backbone = GPT(trained.backbone.config)
    untrained = LanguageModel(backbone, NextWord(backbone.token))
    for task in TASKS:
        found = [
            world.labelled(task, size, split=split)
            for size, split in ((LABELS, "train"), (TESTS, "held_out"))
        ]
        for name, features in (
            ("bag", lambda e: bag(world, e)),
            ("untrained", lambda e: read(untrained, text, e)),
            ("trained", lambda e: read(trained, text, e)),
        ):
            say(f"{task}, {name}", accuracy(features, *found))
        say(f"{task}, best", found[1].best_accuracy)


def bag(world: World, examples: Sequence[Example]) -> torch.Tensor:
    """How often each word stands in each text, those of a second text apart."""
    size = len(world.vocabulary)
    counts = torch.zeros(len(examples), 2 * size)
    for row, example in enumerate(examples):
        for n, words in enumerate((example.words, example.second or [])):
            for number in world.numbers(words):
                counts[row, n * size + int(number)] += 1
    return counts


@torch.no_grad()
def read(
    model: LanguageModel, text: recipes.CourseText, examples: Sequence[Example]
) -> torch.Tensor:
    """The state of the asked word (or the last one) beside the mean of all states."""
    found = []
    for example in examples:
        words = [END, *example.words, *(example.second or [])][-LENGTH:]
        states = model.backbone(torch.tensor([text.numbers(words)])).hidden[0]
        at = -1 if example.position is None else example.position + 1
        found.append(torch.cat([states[at], states.mean(dim=0)]))
    return torch.stack(found)


def accuracy(
    features: Callable[[Sequence[Example]], torch.Tensor], train: LabelledSet, tests: LabelledSet
) -> float:
    """Of a linear classifier; of a word with two senses it chooses between the two."""
    train_ND, tests_ND = features(train), features(tests)
    mean, spread = train_ND.mean(dim=0), train_ND.std(dim=0) + 1e-3
    train_ND, tests_ND = (train_ND - mean) / spread, (tests_ND - mean) / spread
    labels_N = torch.tensor([train.labels.index(e.label) for e in train])
    torch.manual_seed(0)
    probe = torch.nn.Linear(train_ND.shape[1], len(train.labels))
    optimizer = torch.optim.AdamW(probe.parameters(), 1e-2, weight_decay=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(probe(train_ND), labels_N).backward()
        optimizer.step()
    scores_NK = probe(tests_ND).detach()
    possible = torch.ones_like(scores_NK, dtype=torch.bool)
    if tests.task == "sense":
        words = [label.split("~")[0] for label in tests.labels]
        possible = torch.tensor([[w == e.label.split("~")[0] for w in words] for e in tests])
    guesses = scores_NK.masked_fill(~possible, -torch.inf).argmax(dim=1).tolist()
    right = [tests.labels[g] == e.label for g, e in zip(guesses, tests, strict=True)]
    return sum(right) / len(right)


def reviews(world: World) -> None:
    """The accuracy of classifiers that have seen labelled reviews and nothing else."""
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    asked = world.labelled("feeling", TESTS, split="held_out")
    tests = rows_of(asked, tokenizer, batch=100)
    objective = Labels(position="pooled")
    say("reviews, best", asked.best_accuracy)
    for size, steps in ((1_000, 300), (20_000, 2_000)):
        rows = rows_of(world.labelled("feeling", size), tokenizer)
        for name in ("kernels of 3, 5, 11", "Transformer"):
            model = encoders(len(tokenizer))[name]
            train_once(model, objective, rows, plan(steps, optimizer="adamw", rate=5e-3))
            found = right(model, objective, tests.once())
            share = sum(found) / len(found)
            say(f"reviews, {name}", share, f"after {size:,} labels")
            say(f"below the best after {size:,}", asked.best_accuracy - share, name)


PARTS: dict[str, Callable[[World], None]] = {
    "entropy": entropy,
    "distance": distance,
    "sides": both_sides,
    "times": times,
    "tasks": tasks,
    "reviews": reviews,
}


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    for name in parser.parse_args().parts or PARTS:
        print(f"── {name}")
        PARTS[name](load_world())


if __name__ == "__main__":
    main()
