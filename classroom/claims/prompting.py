"""The claims of notebook 06: what a language model can do without training for a task.

Zero shots: Radford et al. 2019, section 3. Few shots: Brown et al. 2020, section 3. Nucleus:
Holtzman et al. 2020. Leaked tests: Brown et al. 2020, section 4. Read `skill` and `answers` first.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from classroom.ledger import Measured, claim
from classroom.models import recipes
from classroom.models.recipes import CourseText
from labkit.alignment.preferences import AnswerTokens, answer_rows
from labkit.blocks import LanguageModel
from labkit.corpus import Batch, Examples, Tokens, from_documents, pad_rows, tokenize
from labkit.heads import NextWord, pool
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer
from labkit.world import END, Document, World, load_world
from labkit.world.examples import Example, LabelledSet
from labkit.writing.prompting import log_likelihoods

Words = Sequence[str]

# Small batches at a high rate: the most that was found to be learned from so few words.
LENGTH, BATCH = 64, 4
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 400, "width": 64, "layers": 1, "rate": 2.5e-2, "tests": 300},
    "laptop": {"steps": 2_000, "width": 64, "layers": 1, "rate": 2.5e-2, "tests": 1_000},
    "gpu": {"steps": 16_000, "width": 256, "layers": 4, "rate": 4e-3, "tests": 2000},
}
SHOTS = (0, 1, 2, 4)
FEW: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 180, "widths": (32, 64), "documents": 5_000, "tests": 300},
    "laptop": {"steps": 500, "widths": (24, 48), "documents": 10_000, "tests": 1_000},
    "gpu": {"steps": 6_000, "widths": (32, 64, 128, 256), "documents": 100_000, "tests": 2_000},
}
COPIES = 8
"""How often a leaked test occurs in the text."""


# ---- a model that was pre-trained on ordinary text


def ordinary(profile: str, seed: int) -> CourseText:
    """Text for one reading of it by `reader`."""
    words = SIZES[profile]["steps"] * LENGTH * BATCH
    return recipes.course_text(words=words, held_out=2_000, seed=seed)


def reader(text: CourseText, profile: str, seed: int, *, share: float = 1.0) -> LanguageModel:
    """A GPT that has read a share of the text, by the recipe of a run of that length."""
    sizes = SIZES[profile]
    steps = max(2, round(share * sizes["steps"]))
    model, _ = recipes.gpt(
        text, steps, seed=seed, width=sizes["width"], layers=sizes["layers"], length=LENGTH,
        batch=BATCH, rate=sizes["rate"],
    )  # fmt: skip
    return model


# ---- zero shots


class Skill(NamedTuple):
    """Whether each question was answered right."""

    order: list[float]
    next: list[float]


def skill(
    model: nn.Module, tokenizer: Tokenizer, order: Sequence[Example], follows: Sequence[Example]
) -> Skill:
    """Two tasks that a language model can do as it is, by comparing likelihoods.

    Which of two sentences came first: p(A B) against p(B A).  Whether B follows A, or is from
    elsewhere: p(B | A) against p(B), both after a full stop.
    """
    [stop] = tokenizer.encode(".")

    def codes(words: Words | None) -> list[int]:
        return tokenizer.encode(" ".join(words or ()))

    def log_p(texts: list[list[int]]) -> Tensor:
        return log_likelihoods(model, [[stop]], texts)[0]

    def right(gains: Tensor, examples: Sequence[Example], label: str) -> list[float]:
        pairs = zip(gains.tolist(), examples, strict=True)
        return [float((gain > 0) == (example.label == label)) for gain, example in pairs]

    both = [(codes(e.words), codes(e.second)) for e in order]
    there, back = log_p([a + b for a, b in both]), log_p([b + a for a, b in both])
    pairs = [(codes(e.words), codes(e.second)) for e in follows]
    whole = log_p([a + b for a, b in pairs])
    first, alone = log_p([a for a, _ in pairs]), log_p([b for _, b in pairs])
    return Skill(right(there - back, order, "right"), right(whole - first - alone, follows, "next"))


def zero_shot(profile: str, seed: int) -> Measured:
    """Accuracy of two tasks after a sixteenth, a quarter and all of the pre-training."""
    text = ordinary(profile, seed)
    order = text.language.labelled("order", SIZES[profile]["tests"], seed=seed, split="held_out")
    follows = text.language.labelled("next", SIZES[profile]["tests"], seed=seed, split="held_out")
    arms: dict[str, list[float]] = {}
    best: dict[str, float] = {}
    for name, share in (("1/16", 1 / 16), ("1/4", 1 / 4), ("all", 1.0)):
        found = skill(reader(text, profile, seed, share=share), text.tokenizer, order, follows)
        for task, right, tests in (
            ("order", found.order, order),
            ("next", found.next, follows),
        ):
            arms[f"{task}, {name} of the text"] = right
            best[f"{task}, {name} of the text"] = tests.best_accuracy
    return Measured(dict(sorted(arms.items(), reverse=True)), best, shared=False)


# ---- a test that leaked


def leaked(profile: str, seed: int) -> Measured:
    """The same test with a model that read half of its answers before, and with one that did not.

    A question is which of two sentences came first; the answer, the two in their order, stands
    some times among the documents that are read.
    """
    text = ordinary(profile, seed)
    tests = text.language.labelled("order", SIZES[profile]["tests"], seed=seed, split="held_out")
    known, unknown = tests[: len(tests) // 2], tests[len(tests) // 2 :]
    read = with_leak(text, [answer_of(example) for example in known], seed)
    models = {
        "clean": reader(text, profile, seed),
        "leaked": reader(read, profile, seed),
    }
    arms, best = {}, {}
    for name, model in models.items():
        for half, examples in (("half that leaks", known), ("other half", unknown)):
            arm = f"{name} text, {half}"
            arms[arm] = skill(model, text.tokenizer, examples, examples[:2]).order
            best[arm] = replace(tests, examples=list(examples)).best_accuracy
    return Measured(arms, best, shared=False)


def answer_of(example: Example) -> list[str]:
    """The two sentences of a question about their order, as they were in the document."""
    first, second = example.words, example.second or []
    return [*first, *second] if example.label == "right" else [*second, *first]


def with_leak(text: CourseText, answers: Iterable[Words], seed: int) -> CourseText:
    """The same number of words, among them some copies of the answers."""
    extra = [list(answer) for answer in answers for _ in range(COPIES)]
    words = len(text.train) - sum(len(answer) + 1 for answer in extra)
    documents = [d.text for d in text.language.sample(words=max(words, 1), seed=seed)]
    documents += [" ".join(answer) for answer in extra]
    order = np.random.default_rng(seed).permutation(len(documents))
    mixed = from_documents([documents[i] for i in order])
    return replace(text, train=tokenize(mixed, text.tokenizer))


# ---- few shots


def prompts_of(world: World, count: int, seed: int) -> list[Document]:
    """So many documents such as "france : paris ; japan : tokyo ." of the language."""
    return list(islice(world.documents(seed=seed, having="relation"), count))


def prompt_text(world: World, count: int, seed: int) -> tuple[Tokenizer, Tokens]:
    """So many prompts, in a vocabulary of their own.

    In the ordinary text one word in a hundred is in such a document: a model of this size would
    have to read for an hour to learn from them.
    """
    documents = prompts_of(world, count, seed)
    known = sorted({word for document in documents for word in document.words} - {END})
    tokenizer = Tokenizer.words([" ".join(known)])
    return tokenizer, tokenize(from_documents(documents), tokenizer)


def prompt_floor(world: World, count: int, seed: int, length: int) -> float:
    """The lowest loss of the next word in the first words of so many prompts.

    The first word is not asked for. It gives away that the document is a prompt: the second one, a
    colon, is certain in all of the language, so the floor of the language is that of prompts.
    """
    lowest = world.floor("next", prompts_of(world, count, seed))
    losses = [each[1:length] for each in lowest.losses]
    return float(np.concatenate(losses).mean())


def mixed_text(world: World, count: int, seed: int) -> tuple[Tokenizer, Tokens]:
    """As many prompts as ordinary documents: lists are a part of what is read, not all of it."""
    documents = [
        document.text
        for having in ("relation", None)
        for document in islice(world.documents(seed=seed, having=having), count // 2)
    ]
    order = np.random.default_rng(seed).permutation(len(documents))
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    return tokenizer, tokenize(from_documents([documents[i] for i in order]), tokenizer)


def prompted(
    tokenizer: Tokenizer, read: Tokens, width: int, steps: int, seed: int
) -> LanguageModel:
    """A GPT of one layer that has read prompts."""
    torch.manual_seed(seed)
    sizes = GPTConfig(len(tokenizer), width, 1, max(1, width // 32), context=64, dropout=0.0)
    backbone = GPT(sizes)
    model = LanguageModel(backbone, NextWord(backbone.token))
    batches = Examples(read, batch=32, length=40, framed=False, seed=seed)
    recipes.train_once(model, NextToken(), batches, recipes.plan(steps, rate=1.2e-2, seed=seed))
    return model


@torch.no_grad()
def answers(model: Any, tokenizer: Tokenizer, prompts: Sequence[Words]) -> list[str]:
    """The likeliest next word of each prompt."""
    text_BT, real_BT = pad_rows([tokenizer.encode(" ".join(words)) for words in prompts])
    hidden_ND = pool(model.backbone(text_BT).hidden, real_BT, "last")
    return tokenizer.pieces(model.head(hidden_ND).argmax(dim=-1).tolist())


def best_first_word(tests: LabelledSet) -> float:
    """The accuracy of the best guesses of the first word of the answers, as `best_accuracy`."""
    found = []
    for example in tests:
        chances: Counter[str] = Counter()
        for answer, chance in example.chances.items():
            chances[answer.split()[0]] += chance  # type: ignore[assignment]
        found.append(max(chances.values()))
    return float(np.mean(found))


def few_shot(profile: str, seed: int) -> Measured:
    """Accuracy with 0, 1, 2 and 4 solved pairs in the prompt, by models of several widths.

    The control has as many pairs, whose answers have changed places: it shows the form alone.
    """
    sizes, world = FEW[profile], load_world()
    tokenizer, read = mixed_text(world, sizes["documents"], seed)
    tests = {k: world.few_shot(k, sizes["tests"], seed=seed) for k in SHOTS}
    arms, best = {}, {}
    for width in sizes["widths"]:
        model = prompted(tokenizer, read, width, sizes["steps"], seed)
        name = {sizes["widths"][0]: "narrow", sizes["widths"][-1]: "wide"}.get(width, f"{width}")
        asked = {
            f"{k} shot{'' if k == 1 else 's'}": (k, [e.words for e in tests[k]]) for k in SHOTS
        }
        asked["4 wrong shots"] = (4, [wrong_shots(e.words) for e in tests[4]])
        for shown, (k, prompts) in asked.items():
            arms[f"{name}, {shown}"] = hits(answers(model, tokenizer, prompts), tests[k])
            if "wrong" not in shown:
                best[f"{name}, {shown}"] = best_first_word(tests[k])
    widths = f"narrow is {sizes['widths'][0]} wide, wide is {sizes['widths'][-1]}"
    return Measured(arms, best, note=f"{widths}; half of the text are lists", shared=False)


def hits(said: Sequence[str], asked: Iterable[Example]) -> list[float]:
    """1 where the first word of the answer was said."""
    return [float(word == e.label.split()[0]) for word, e in zip(said, asked, strict=True)]


def wrong_shots(words: Words) -> list[str]:
    """The same prompt, in which each shot has the answer of the next one."""
    *shots, asked = " ".join(words).split(" ; ")
    pairs = [shot.split(" : ") for shot in shots]
    moved = [answer for _, answer in pairs[1:] + pairs[:1]]
    wrong = [f"{question} : {answer}" for (question, _), answer in zip(pairs, moved, strict=True)]
    return " ; ".join([*wrong, asked]).split()


@dataclass(frozen=True, eq=False)
class Always:
    """The same few rows at every step."""

    batch: Batch

    def at(self, step: int) -> Batch:
        """All of them."""
        return self.batch


PAIRS = (4, 10)
"""As many pairs as there are shots, and more."""


def shots_or_tuning(profile: str, seed: int) -> Measured:
    """One relation at a time: pairs in the prompt of a model that stays as it is, or to tune it."""
    sizes, world = FEW[profile], load_world()
    tokenizer, read = mixed_text(world, sizes["documents"], seed)
    model = prompted(tokenizer, read, sizes["widths"][-1], sizes["steps"], seed)
    random = np.random.default_rng(seed)
    arms: dict[str, list[float]] = {}
    for relation in world.grammar.relations.values():
        pairs = [
            (question[0].word, answer.tokens[0].word)
            for question, answer in relation.pairs
            if len(question) == len(answer.tokens) == 1
        ]
        pairs = [pairs[i] for i in random.permutation(len(pairs))]
        asked = pairs[max(PAIRS) :]
        shown = " ; ".join(f"{question} : {answer}" for question, answer in pairs[:4]).split()
        ways: dict[str, tuple[Any, list[str]]] = {
            "no shot": (model, []), "4 shots": (model, [*shown, ";"])
        }  # fmt: skip
        for count in PAIRS:
            tuned = tuned_on(model, tokenizer, pairs[:count], seed)
            ways[f"tuned with {count} pairs"] = (tuned, [])
        for way, (answering, before) in ways.items():
            prompts = [[*before, question, ":"] for question, _ in asked]
            said = answers(answering, tokenizer, prompts)
            right = [float(word == answer) for word, (_, answer) in zip(said, asked, strict=True)]
            arms.setdefault(way, []).extend(right)
    return Measured(arms, note="nine relations; the pairs that are asked are in no prompt",
                    shared=False)  # fmt: skip


def tuned_on(
    model: LanguageModel, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], seed: int
) -> LanguageModel:
    """A copy of a model that has learned from pairs, each without any other before it."""
    model = copy.deepcopy(model)
    batch = answer_rows(
        [tokenizer.encode(f"{question} :") for question, _ in pairs],
        [tokenizer.encode(answer) for _, answer in pairs],
    )
    # Twice the rate makes the model forget pairs that it knows; half the rate does about as well.
    how = recipes.plan(20, optimizer="adamw", rate=1e-3, decay=0.0, seed=seed)
    recipes.train_once(model, AnswerTokens(), Always(batch), how)
    return model


# ---- ways to write

WAYS = {
    "greedy": Sampling(temperature=0.0),
    "nucleus 0.9": Sampling(top_p=0.9),
    "pure": Sampling(),
}


class Shares(NamedTuple):
    """The shares of the sentences of each text that was written."""

    possible: list[float]
    """Sentences that the language can say."""
    distinct: list[float]
    """Sentences that occur in no other text, and only once in this one."""
    both: list[float]


def sentences(words: Words) -> list[tuple[str, ...]]:
    """The whole sentences of a text, full stops included."""
    found: list[tuple[str, ...]] = []
    start = 0
    for place, word in enumerate(words):
        if word == ".":
            found.append(tuple(words[start : place + 1]))
            start = place + 1
    return found


def shares(texts: Sequence[Words], world: World) -> Shares:
    """How much of some texts makes sense, and how much is said once only.

    A text without one whole sentence counts as none of it.
    """
    parts = [sentences(words) for words in texts]
    times = Counter(sentence for text in parts for sentence in text)
    can = dict(zip(times, world.are_sentences(times), strict=True))

    def of(good: Any) -> list[float]:
        return [float(np.mean([good(s) for s in text])) if text else 0.0 for text in parts]

    return Shares(
        of(lambda s: can[s]),
        of(lambda s: times[s] == 1),
        of(lambda s: can[s] and times[s] == 1),
    )


def openings(world: World, count: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """First sentences of stories that were held out, and the 30 words that went on from each."""
    starts, rest = [], []
    for document in world.documents(seed=seed, split="held_out"):
        words = list(document.words)
        place = words.index(".") + 1 if "." in words else len(words)
        if place <= 20 and len(words) > place + 30:
            starts.append(words[:place])
            rest.append(words[place : place + 30])
        if len(starts) == count:
            break
    return starts, rest


def continued(
    model: nn.Module, tokenizer: Tokenizer, starts: Sequence[Words], how: Sampling, seed: int
) -> list[list[str]]:
    """What the model writes after each beginning, as words."""
    end = tokenizer.vocabulary.sep
    assert end is not None
    prompts = [[end, *tokenizer.encode(" ".join(words))] for words in starts]
    how = replace(how, stop=(end,))
    written = sample(model, prompts, how, seed=seed)
    return [tokenizer.pieces([t for t in text.tokens if t != end]) for [text] in written]


def ways_to_write(profile: str, seed: int) -> Measured:
    """Sense and variety of texts written greedily, from the nucleus, and by pure sampling."""
    text = ordinary(profile, seed)
    model = reader(text, profile, seed)
    starts, truth = openings(text.language, SIZES[profile]["tests"] // 2, seed)
    real = shares(truth, text.language)
    arms, best = {}, {}
    for way, how in WAYS.items():
        found = shares(continued(model, text.tokenizer, starts, how, seed), text.language)
        for name, items, ceiling in zip(Shares._fields, found, real, strict=True):
            arms[f"{name}, {way}"] = items
            best[f"{name}, {way}"] = float(np.mean(ceiling))
    order = sorted(arms, key=lambda arm: Shares._fields.index(arm.split(",")[0]))
    return Measured({arm: arms[arm] for arm in order}, best, shared=False)


# ---- the claims

ZERO_SHOT = claim("zero-shot-grows", zero_shot)
FEW_SHOT = claim("few-shot", few_shot)
SHOTS_OR_TUNING = claim("shots-or-tuning", shots_or_tuning)
NUCLEUS = claim("nucleus", ways_to_write)
CONTAMINATION = claim("contamination", leaked)
CLAIMS = (ZERO_SHOT, FEW_SHOT, SHOTS_OR_TUNING, NUCLEUS, CONTAMINATION)
