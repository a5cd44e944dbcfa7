"""Prompts with k solved examples against the best that is possible, after a minute of training.

    python tests/bench/bench_prompts.py [--steps 2500] [--tests 2000] [--threads 2] [--seed 0]

A small GPT reads documents of the language, of which a share (`--share`, by documents) are lists of
pairs of one relation, and the others ordinary stories and reviews.  No document begins like a test
prompt that has two solved pairs or more: the model must put together what it has read.  Shorter
prompts are too few to be held out: without the commonest of them, the text would be of another
language, with other chances and another best.

Prints, for each k, the share of right first words of the answers, the exact best, and their
difference; then three texts that go on from "the most beautiful place", written by a model that has
read stories and reviews (`--story-steps`; 0 leaves it out).
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import torch

from classroom.models import recipes
from labkit.blocks import LanguageModel
from labkit.corpus import Examples, from_documents, tokenize
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer
from labkit.world import World, load_world
from labkit.world.examples import LabelledSet
from labkit.writing.prompting import log_likelihoods

SHOTS, LENGTH, ROWS = (0, 1, 2, 3, 4), 40, 32


def reading(
    world: World, tests: Sequence[LabelledSet], share: float, seed: int
) -> Iterator[list[str]]:
    """Documents without end, none of which begins like a test prompt with two solved pairs."""
    asked = {tuple(example.words) for prompts in tests for example in prompts}
    asked = {prompt for prompt in asked if prompt.count(";") > 1}
    lengths = sorted({len(prompt) for prompt in asked})
    lists, others = world.documents(seed=seed, having="relation"), world.documents(seed=seed + 1)
    random = torch.Generator().manual_seed(seed)
    while True:
        many = float(torch.rand((), generator=random)) < share
        words = list(next(lists if many else others).words)
        if not any(tuple(words[:length]) in asked for length in lengths):
            yield words[:LENGTH]


def trained(world: World, tests: Sequence[LabelledSet], given: argparse.Namespace) -> tuple:
    """The model, its tokenizer, and the seconds that training took."""
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    documents = islice(reading(world, tests, given.share, given.seed), ROWS * given.steps)
    read = tokenize(from_documents([" ".join(words[:-1]) for words in documents]), tokenizer)
    torch.manual_seed(given.seed)
    backbone = GPT(
        GPTConfig(len(tokenizer), given.width, given.layers, max(1, given.width // 32), 64,
                  dropout=0.0)
    )  # fmt: skip
    model = LanguageModel(backbone, NextWord(backbone.token))
    batches = Examples(read, batch=ROWS, length=LENGTH, framed=False, seed=given.seed)
    plan = recipes.plan(given.steps, rate=given.rate, seed=given.seed)
    start = time.perf_counter()
    for _ in Trainer(model, NextToken(), batches, plan).run():
        pass
    return model.eval(), tokenizer, time.perf_counter() - start


def right(model: torch.nn.Module, tokenizer: Tokenizer, tests: LabelledSet) -> float:
    """The share of prompts whose likeliest first word is that of the right answer."""
    words = sorted({label.split()[0] for label in tests.labels})
    answers = [tokenizer.encode(word) for word in words]
    prompts = [tokenizer.encode(" ".join(example.words)) for example in tests]
    chosen = log_likelihoods(model, prompts, answers).argmax(dim=1).tolist()
    pairs = zip(chosen, tests, strict=True)
    return sum(words[i] == example.label.split()[0] for i, example in pairs) / len(tests)


def best(tests: LabelledSet) -> float:
    """The exact best share: answers that begin alike count together."""
    total = 0.0
    for example in tests:
        first: Counter[str] = Counter()
        for answer, chance in example.chances.items():
            first[answer.split()[0]] += chance  # type: ignore[assignment]
        total += max(first.values())
    return total / len(tests)


def few_shots(given: argparse.Namespace) -> None:
    """Print the curve."""
    world = load_world()
    tests = [world.few_shot(k, given.tests, seed=given.seed + 7) for k in SHOTS]
    model, tokenizer, seconds = trained(world, tests, given)
    print(f"{given.steps} steps in {seconds:.0f} s, width {given.width}, layers {given.layers}")
    print(f"{given.share:.0%} of the documents are lists of pairs")
    print(f"{'shots':>6} {'model':>7} {'best':>7} {'below':>7}")
    for k, asked in zip(SHOTS, tests, strict=True):
        found, limit = right(model, tokenizer, asked), best(asked)
        print(f"{k:>6} {found:>7.3f} {limit:>7.3f} {limit - found:>7.3f}")


def beautiful(given: argparse.Namespace) -> None:
    """Print three texts that go on from the prompt."""
    prompt = "the most beautiful place"
    text = recipes.course_text(words=300_000, held_out=2_000, seed=given.seed)
    torch.manual_seed(given.seed)
    backbone = GPT(GPTConfig(text.vocabulary, 128, 2, 4, 129, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token))
    plan = recipes.plan(given.story_steps, seed=given.seed)
    start = time.perf_counter()
    for _ in Trainer(model, NextToken(), text.windows(8, 128, seed=given.seed), plan).run():
        pass
    print(f"\n{given.story_steps} steps in {time.perf_counter() - start:.0f} s; then, with length "
          "30, temperature 0.9, top-p 0.9:")  # fmt: skip
    how = Sampling(length=30, temperature=0.9, top_p=0.9)
    begin = [text.tokenizer.vocabulary.sep, *text.tokenizer.encode(prompt)]
    for written in sample(model.eval(), [begin], how, samples=3, seed=given.seed)[0]:
        print(f"* {prompt} {text.tokenizer.decode(written.tokens)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--story-steps", type=int, default=1500)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--share", type=float, default=0.95)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.2e-2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads")
    few_shots(options)
    if options.story_steps:
        beautiful(options)
