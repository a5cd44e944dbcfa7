"""The claims of notebook 02: words in context, and words never seen.

Peters et al. 2018, "Deep contextualized word representations", sections 3.1 to 3.3, 5.1 and 5.3.
Read `senses` first, then `forms`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.ledger import Measured, claim
from classroom.models import recipes
from classroom.models.recipes import CourseText
from classroom.versions import NOT_MEASURING, result_version
from labkit.blocks import LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch, pad_rows
from labkit.keeping import cache
from labkit.keeping.fingerprints import fingerprint
from labkit.masking import real_keys
from labkit.models.elmo import WeightedSum
from labkit.objectives import BothDirections, Objective
from labkit.objectives.base import Targets
from labkit.text.tokenizers import Tokenizer
from labkit.world import Document, World, load_world
from labkit.world.examples import LabelledSet

SIZES: dict[str, dict[str, int]] = {
    "smoke": {"words": 100_000, "steps": 200, "width": 32, "documents": 1_200},
    "laptop": {"words": 300_000, "steps": 600, "width": 48, "documents": 2_000},
    "gpu": {"words": 3_000_000, "steps": 8_000, "width": 128, "documents": 20_000},
}


def course_text(profile: str, seed: int) -> CourseText:
    """The text that all models of the notebook read."""
    return recipes.course_text(words=SIZES[profile]["words"], held_out=2_000, seed=seed)


def reader(text: CourseText, profile: str, seed: int, **choices: Any) -> LanguageModel:
    """The ELMo of the notebook."""
    sizes = {"width": SIZES[profile]["width"]} | choices.pop("sizes", {})
    return recipes.elmo(text, SIZES[profile]["steps"], seed=seed, sizes=sizes, **choices)[0]


# ---- senses


class Meant(NamedTuple):
    """What is known of ambiguous words in sentences: their vectors in each layer, their senses."""

    layers: tuple[Tensor, ...]
    senses_N: Tensor


@torch.no_grad()
def states(backbone: Any, texts: Sequence[Sequence[str]], tokenizer: Tokenizer) -> States:
    """What a model says of texts that are given as words; unknown ones are [UNK]."""
    rows = [[_number(word, tokenizer) for word in words] for words in texts]
    tokens_BT, real_BT = pad_rows(rows, tokenizer.vocabulary.pad or 0)
    found: States = backbone(tokens_BT, mask=real_keys(real_BT))
    return found


def _number(word: str, tokenizer: Tokenizer) -> int:
    number = tokenizer.library.token_to_id(word)
    return int(number if number is not None else tokenizer.vocabulary.unk or 0)


def vectors_of(
    backbone: Any, texts: Sequence[Sequence[str]], places: Sequence[int], tokenizer: Tokenizer
) -> tuple[Tensor, ...]:
    """For each layer the vectors [N, D] of one word of each text."""
    layers = states(backbone, texts, tokenizer).layers
    rows = torch.arange(len(texts))
    return tuple(layer[rows, torch.tensor(places)] for layer in layers)


def meant(backbone: Any, found: LabelledSet, tokenizer: Tokenizer) -> Meant:
    """The vectors of each ambiguous word where it stands."""
    texts, places = [e.words for e in found], [e.position or 0 for e in found]
    senses_N = torch.tensor([found.labels.index(example.label) for example in found])
    return Meant(vectors_of(backbone, texts, places, tokenizer), senses_N)


def with_company(backbone: Any, found: LabelledSet, tokenizer: Tokenizer) -> Meant:
    """Static vectors with a context: the word's vector beside the mean of its sentence."""
    (x_BTD,) = states(backbone, [example.words for example in found], tokenizer).layers
    own = meant(backbone, found, tokenizer)
    lengths_B1 = torch.tensor([[len(example.words)] for example in found])
    return Meant((torch.cat([own.layers[0], x_BTD.sum(dim=1) / lengths_B1], dim=-1),), own.senses_N)


class Probed(NamedTuple):
    """Whether each test was answered rightly, and how much of each layer was in the mix."""

    right: list[float]
    shares: list[float]


def learned(train: Meant, senses: int, *, seed: int) -> tuple[WeightedSum, nn.Linear]:
    """A probe: ELMo's weighted sum of the layers that are given, and one linear layer on top."""
    torch.manual_seed(seed)
    mix = WeightedSum(len(train.layers), normalise=True)
    answer = nn.Linear(train.layers[0].shape[-1], senses)
    weights = [*mix.parameters(), *answer.parameters()]
    optimizer = torch.optim.AdamW(weights, 0.03, weight_decay=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(answer(mix(train.layers)), train.senses_N).backward()
        optimizer.step()
    return mix, answer


def probe(train: Meant, tests: Meant, senses: int, *, seed: int = 0) -> Probed:
    """Learn senses from vectors, the same way for all kinds of them, and ask about others."""
    mix, answer = learned(train, senses, seed=seed)
    with torch.no_grad():
        guesses_N = answer(mix(tests.layers)).argmax(dim=-1)
    return Probed((guesses_N == tests.senses_N).float().tolist(), mix.shares.tolist())


SHOTS, DRAWS = 1, 8
"""Examples of each sense, and how often they are drawn anew for one trained model."""
SENSES: dict[str, dict[str, int]] = {
    "smoke": {"words": 50_000, "steps": 150, "tests": 400},
    "laptop": {"words": 300_000, "steps": 800, "tests": 4_000},
    "gpu": {"words": 2_000_000, "steps": 4_000, "tests": 8_000},
}
"""On the village: there a small model learns what tells the senses, and an untrained one does not
know it. On the course's language it takes far more text. One example of each sense: with four, all
that know the sentence are right. The neighbours alone tell these senses too, without their order:
the mean of a sentence's word vectors is shown as a control."""


def senses(profile: str, seed: int) -> Measured:
    """Which sense of the ambiguous words is meant, from a few examples of each."""
    key = fingerprint(result_version(NOT_MEASURING), "senses", profile, seed)
    return Measured(**cache.kept_json(key, lambda: _senses(profile, seed)))


def _senses(profile: str, seed: int) -> dict[str, Any]:
    sizes = SENSES[profile]
    text = recipes.course_text("village", words=sizes["words"], held_out=1_000, seed=seed)
    tests = text.language.labelled("sense", sizes["tests"], seed=seed, split="held_out")
    kinds = len(tests.labels)
    drawn = [
        text.language.labelled("sense", kinds * SHOTS, seed=1_000 * draw + seed)
        for draw in range(DRAWS)
    ]
    width = {"width": SIZES[profile]["width"]}
    vectors = recipes.word_vectors(text, sizes["steps"], seed=seed, reach=3)[0].backbone
    trained = recipes.elmo(text, sizes["steps"], seed=seed, sizes=width)[0].backbone
    untrained = untrained_reader(text, profile, seed)

    def score(find: Any, backbone: Any, layers: slice) -> list[float]:
        def part(found: LabelledSet) -> Meant:
            one = find(backbone, found, text.tokenizer)
            return Meant(one.layers[layers], one.senses_N)

        asked = part(tests)
        each = [probe(part(one), asked, kinds, seed=seed).right for one in drawn]
        return np.mean(each, axis=0).tolist()

    arms = {
        "word vectors": score(meant, vectors, slice(None)),
        "word vectors and the mean of the sentence": score(with_company, vectors, slice(None)),
        "layer 0: characters": score(meant, trained, slice(0, 1)),
        "layer 1": score(meant, trained, slice(1, 2)),
        "layer 2": score(meant, trained, slice(2, 3)),
        "mix of layers": score(meant, trained, slice(None)),
        "mix of layers, untrained": score(meant, untrained, slice(None)),
    }
    # One vector for each word, whatever is done with it, is right for one of the word's senses.
    static = len({label.split("~")[0] for label in tests.labels}) / kinds
    best = dict.fromkeys(arms, tests.best_accuracy)
    best |= dict.fromkeys(("word vectors", "layer 0: characters"), static)
    note = f"{kinds} senses, {SHOTS} example of each to learn from, drawn {DRAWS} times"
    return {"arms": arms, "best": best, "note": note, "shared": False}


def untrained_reader(text: CourseText, profile: str, seed: int) -> Any:
    """The same ELMo before it has read anything."""
    return recipes.untrained_elmo(text, seed=seed, width=SIZES[profile]["width"]).backbone


# ---- unseen forms


class Twins(NamedTuple):
    """A sentence with a form that no training text shows, and one with a known word instead."""

    unseen: list[str]
    known: list[str]
    place: int


def twins(world: World, documents: Sequence[Document], seed: int) -> list[Twins]:
    """Sentences with one unseen form, and the same with a known word that fits the same slot."""
    machine, new = world.machine, world.grammar.held_out
    random, found = np.random.default_rng(seed), []
    for document in documents:
        for start, end in document.sentences:
            words = document.words[start:end]
            places = [place for place, word in enumerate(words) if word in new]
            if len(places) != 1 or places[0] == 0:
                continue
            emission = machine.emission[document.states[start + places[0]]]
            span = slice(machine.emissions.start[emission], machine.emissions.start[emission + 1])
            fits, weights = machine.emissions.word[span], machine.emissions.weight[span].copy()
            weights[[world.vocabulary[word] in new for word in fits]] = 0.0
            if weights.sum() > 0:
                other = world.vocabulary[random.choice(fits, p=weights / weights.sum())]
                known = [*words[: places[0]], other, *words[places[0] + 1 :]]
                found.append(Twins(words, known, places[0]))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Unread(Objective):
    """Some words are read as [UNK], so that its vector learns what unknown means."""

    unknown: int
    rate: float = 0.02

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The same questions about a text in which some words cannot be read."""
        unread = chance.uniform("unseen", batch.tokens.shape[1]) < self.rate
        tokens = torch.where(unread, self.unknown, batch.tokens)
        return replace(super().targets(batch, chance), inputs=replace(batch, tokens=tokens))


@dataclass(frozen=True, kw_only=True, eq=False)
class WithUnseen(Unread, BothDirections):
    """Both directions, with some words unread."""


class Beside(NamedTuple):
    """How the words on both sides of a position were predicted: mean loss and number right."""

    losses: list[float]
    right: list[float]


@torch.no_grad()
def beside(
    model: LanguageModel,
    texts: Sequence[Sequence[str]],
    places: Sequence[int],
    tokenizer: Tokenizer,
) -> Beside:
    """Ask for the word after each position from the left, and for the one before from the right."""
    hidden_BTD = states(model.backbone, texts, tokenizer).hidden
    rows = torch.arange(len(texts))
    left, right = hidden_BTD[rows, torch.tensor(places)].chunk(2, dim=-1)
    losses, hits = torch.zeros(len(texts)), torch.zeros(len(texts))
    for state, step in ((left, 1), (right, -1)):
        words = [text[place + step] for text, place in zip(texts, places, strict=True)]
        targets_N = torch.tensor([_number(word, tokenizer) for word in words])
        scores_NV = model.head(state)
        losses += F.cross_entropy(scores_NV, targets_N, reduction="none") / 2
        hits += (scores_NV.argmax(dim=-1) == targets_N) / 2
    return Beside(losses.tolist(), hits.tolist())


def floor_beside(world: World, texts: Sequence[list[str]], places: Sequence[int]) -> float:
    """The lowest mean loss of these predictions by one who reads the sentence alone."""
    ahead = world.log_probabilities(texts, start="sentence")
    back = world.log_probabilities(texts, direction="backward")
    each = zip(ahead, back, places, strict=True)
    return float(np.mean([-(one[place + 1] + other[place - 1]) / 2 for one, other, place in each]))


def forms(profile: str, seed: int) -> dict[str, Any]:
    """Losses and hits beside forms that were never seen, for letters and for whole words."""
    key = fingerprint(result_version(NOT_MEASURING), "forms", profile, seed)
    return dict(cache.kept_json(key, lambda: _forms(profile, seed)))


def _forms(profile: str, seed: int) -> dict[str, Any]:
    text, world = course_text(profile, seed), load_world().new_forms
    tokenizer, sizes = text.tokenizer, SIZES[profile]
    documents = world.sample(documents=sizes["documents"], seed=seed, split="held_out")
    pairs = twins(world, documents, seed)
    places = [pair.place for pair in pairs]
    known, unseen = [pair.known for pair in pairs], [pair.unseen for pair in pairs]
    letters = reader(text, profile, seed)
    unknown = WithUnseen(unknown=tokenizer["[UNK]"])
    whole = reader(text, profile, seed, sizes={"kernels": ()}, objective=unknown)
    unread = [
        [*words[:place], "[UNK]", *words[place + 1 :]]
        for words, place in zip(unseen, places, strict=True)
    ]
    found = {
        "characters, known word": beside(letters, known, places, tokenizer),
        "characters, unseen form": beside(letters, unseen, places, tokenizer),
        "whole words, known word": beside(whole, known, places, tokenizer),
        "whole words, unseen form": beside(whole, unread, places, tokenizer),
    }
    floors = {f"{name} {kind}": floor_beside(world, texts, places)
              for name in ("characters,", "whole words,")
              for kind, texts in (("known word", known), ("unseen form", unseen))}  # fmt: skip
    return {
        "losses": {name: one.losses for name, one in found.items()},
        "right": {name: one.right for name, one in found.items()},
        "floors": floors,
    }


def characters(profile: str, seed: int) -> Measured:
    """The loss of the words beside an unseen form, and beside a known word instead of it."""
    found = forms(profile, seed)
    note = "items are sentences; the words before and after the form are predicted"
    return Measured(found["losses"], found["floors"], note, shared=False)


def characters_right(profile: str, seed: int) -> Measured:
    """How many of the same words are guessed rightly."""
    right = forms(profile, seed)["right"]
    return Measured(right, note="the same predictions, as right or wrong", shared=False)


# ---- the claims

STATIC_VECTORS = claim("static-vectors", senses)
CHARACTERS = claim("characters", characters)
CHARACTERS_RIGHT = claim("characters-right", characters_right)
MIXED_LAYERS = claim("mixed-layers", senses)
CLAIMS = (STATIC_VECTORS, CHARACTERS, CHARACTERS_RIGHT, MIXED_LAYERS)
