"""What is claimed of Transformer-XL: its memory is worth having, and distances reach further.

Both are measured in the language of `data/journey`, of a hundred words, in which heroes, pets and
towns are named once and needed again and again: a small model learns it in seconds.
Read `remembering`, then `stretching`.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classroom.claims.journey import SIZES, journeys
from classroom.ledger import Measured, claim
from classroom.models.recipes import CourseText, plan, train_once, untrained_transformer_xl
from labkit.attention import sinusoids
from labkit.blocks import LanguageModel
from labkit.corpus import Batches, Streams
from labkit.costs.counting import products
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken

SEGMENT = 16
MEMORY = 32
RATE = 1e-2
"""Higher than the recipe's: the models are half as wide."""
READ = 8 * SEGMENT
"""How many words of each held-out document are read."""


def transformer_xl(text: CourseText, profile: str, seed: int, memory: int) -> LanguageModel:
    """A small Transformer-XL that has read segments of the text, each alone with `memory=0`."""
    size = SIZES[profile]
    model = untrained_transformer_xl(text.vocabulary, size.width, SEGMENT, memory, seed=seed)
    batches: Batches = (
        Streams(text.train, batch=size.batch, length=SEGMENT, seed=seed)
        if memory
        else text.windows(size.batch, SEGMENT + 1, seed=seed)
    )
    train_once(model, NextToken(carry=memory > 0), batches, plan(size.steps, seed=seed, rate=RATE))
    return model


# ---- long-memory -------------------------------------------------------------------------------


def documents(text: CourseText, length: int = READ) -> tuple[Tensor, list[list[str]]]:
    """Held-out documents that are long enough: separator and words as tokens, and the words."""
    separator = text.tokenizer.vocabulary.sep
    words = [one[:length] for one in text.documents if len(one) > length]
    rows = [[separator, *text.numbers(one)] for one in words]
    return torch.tensor(rows), words


@torch.no_grad()
def losses(model: Any, tokens: Tensor, memory: int, segment: int = SEGMENT) -> Tensor:
    """The loss of each word of each document [B, T - 1], read segment by segment."""
    head, backbone = model.head, model.backbone
    past, found = None, []
    with memory_of(backbone, memory):
        for start in range(0, tokens.shape[1] - 1, segment):
            inputs = tokens[:, start : start + segment + 1]
            states = backbone(inputs[:, :-1], memory=past)
            past = states.memory
            asked = states.hidden.flatten(0, 1), inputs[:, 1:].flatten()
            found.append(head.losses_N(*asked).view(len(tokens), -1))
    return torch.cat(found, dim=1)


@contextlib.contextmanager
def memory_of(backbone: Any, positions: int) -> Iterator[None]:
    """Inside the block the model remembers this many positions."""
    before, backbone.memory_length = backbone.memory_length, positions
    try:
        yield
    finally:
        backbone.memory_length = before


def fragmented(text: CourseText, words: Sequence[list[str]], segment: int = SEGMENT) -> np.ndarray:
    """The lowest loss of each word for a reader who forgets after each segment: exact."""
    rows = []
    for one in words:
        cut = [one[start : start + segment] for start in range(0, len(one), segment)]
        first = text.language.log_probability(cut[0])
        # A segment is read with the word before it, as the models are: it is what they are asked.
        known = [one[start - 1 : start + segment] for start in range(segment, len(one), segment)]
        rest = text.language.log_probabilities(known, start="anywhere")
        rows.append(-np.concatenate([first, *(log[1:] for log in rest)]))
    return np.stack(rows)


def floors(text: CourseText, words: Sequence[list[str]]) -> np.ndarray:
    """The lowest loss of each word for a reader who remembers everything."""
    return np.stack([-log for log in text.language.log_probabilities(words)])


def operations(backbone: Any, segment: int, memory: int) -> float:
    """Operations of reading one segment, whose layers remember so many positions.

    Layers are alike: one of them is counted, and then what a second one adds.
    """
    one, two = (counted(backbone, layers, segment, memory) for layers in (1, 2))
    return one + (backbone.config.layers - 1) * (two - one)


def counted(backbone: Any, layers: int, segment: int, memory: int) -> float:
    """The same with so many of its layers; nothing is computed."""
    config = replace(backbone.config, layers=layers)
    with torch.device("meta"), torch.no_grad(), products() as counter:
        tokens = torch.zeros(1, segment, dtype=torch.long)
        past = (torch.zeros(1, memory, config.width),) * layers if memory else None
        type(backbone)(config)(tokens, memory=past)
    return float(counter.get_total_flops())


def times_fewer(backbone: Any, length: int, segment: int | None = None) -> float:
    """By how much a memory of `length` beats a window of it that slides on word by word."""
    segment = length if segment is None else segment
    return operations(backbone, length, 0) / (operations(backbone, segment, length) / segment)


def seconds_a_word(model: LanguageModel, length: int, tries: int = 3) -> tuple[float, float]:
    """How long a word takes: with a window that slides, and with as long a memory."""
    tokens = torch.zeros(1, length, dtype=torch.long, device=next(model.parameters()).device)
    backbone: Any = model.backbone
    best = [math.inf, math.inf]
    with torch.no_grad(), memory_of(backbone, length):
        past = backbone(tokens).memory
        for _ in range(tries):
            for i, memory in enumerate((None, past)):
                start = time.perf_counter()
                hidden = backbone(tokens, memory=memory).hidden
                # The window is read for its last word alone.
                float(model.head(hidden[:, -1:] if memory is None else hidden).sum())
                best[i] = min(best[i], time.perf_counter() - start)
    return best[0], best[1] / length


def floors_by_position(text: CourseText) -> dict[str, list[float]]:
    """The lowest losses at each position of a segment, without memory and with all of it: exact."""
    if text.world is None:
        return {}
    words = documents(text)[1]
    lines = {"lowest, no memory": fragmented(text, words), "lowest": floors(text, words)}
    return {
        name: list(found[:, SEGMENT:].reshape(-1, SEGMENT).mean(axis=0))
        for name, found in lines.items()
    }


def remembering(profile: str, seed: int) -> Measured:
    """The same model with memory and without it, and what is possible without it."""
    text = journeys(profile, seed)
    tokens, words = documents(text)
    alone = transformer_xl(text, profile, seed, 0)
    recalls = transformer_xl(text, profile, seed, MEMORY)
    without, whole = fragmented(text, words).mean(axis=1), floors(text, words).mean()
    arms = {
        "no memory": losses(alone, tokens, 0).mean(dim=1).tolist(),
        "lowest without memory": without.tolist(),
        f"memory of {MEMORY}": losses(recalls, tokens, MEMORY).mean(dim=1).tolist(),
        f"memory of {2 * MEMORY}": losses(recalls, tokens, 2 * MEMORY).mean(dim=1).tolist(),
        "speed, powers of ten": [math.log10(times_fewer(recalls.backbone, 512))],
    }
    best = {"no memory": without.mean()}
    best |= dict.fromkeys((f"memory of {MEMORY}", f"memory of {2 * MEMORY}"), whole)
    note = f"{len(words)} documents of {READ} words, segments of {SEGMENT}"
    return Measured(arms, best, note, shared=False)


LONG_MEMORY = claim("long-memory", remembering)


# ---- relative-positions ------------------------------------------------------------------------


def gpt(text: CourseText, profile: str, seed: int, waves: bool) -> LanguageModel:
    """A small GPT with a position for each word: learned, or the sinusoid of the position."""
    size = SIZES[profile]
    torch.manual_seed(seed)
    backbone = GPT(GPTConfig(text.vocabulary, size.width, 2, 4, 4 * SEGMENT, dropout=0.0))
    if waves:
        assert backbone.position is not None
        table = sinusoids(torch.arange(4 * SEGMENT), size.width)
        # As long as the vectors of words are; what is given is not learned.
        backbone.position.weight.data.copy_(0.02 * table / table.std())
        backbone.position.weight.requires_grad_(False)
    model = LanguageModel(backbone, NextWord(backbone.token))
    batches = text.windows(size.batch, SEGMENT + 1, seed=seed)
    train_once(model, NextToken(), batches, plan(size.steps, seed=seed, rate=RATE))
    return model


@torch.no_grad()
def last_words(model: Any, tokens: Tensor, length: int) -> list[float]:
    """For each document the loss of the same words, after `length` words were read."""
    head, backbone = model.head, model.backbone
    found = []
    for end in ENDS:
        hidden = backbone(tokens[:, end - length : end]).hidden[:, -SCORED:]
        targets = tokens[:, end - SCORED + 1 : end + 1]
        loss = head.losses_N(hidden.flatten(0, 1), targets.flatten())
        found.append(loss.view(len(tokens), SCORED))
    return torch.cat(found, dim=1).mean(dim=1).tolist()


SCORED = SEGMENT // 2
ENDS = tuple(range(4 * SEGMENT + 1, READ, SCORED))


def lowest(text: CourseText, words: Sequence[list[str]], length: int) -> float:
    """The floor of the same words, for a reader of as many words before them: exact."""
    known = [one[end - length - 1 : end] for one in words for end in ENDS]
    logs = text.language.log_probabilities(known, start="anywhere")
    return -float(np.mean([log[-SCORED:] for log in logs]))


def stretching(profile: str, seed: int) -> Measured:
    """Models that were trained on short segments read once, twice, four times as much."""
    text = journeys(profile, seed)
    tokens, words = documents(text)
    models = {
        "distances": transformer_xl(text, profile, seed, 0),
        "sinusoids": gpt(text, profile, seed, waves=True),
        "learned places": gpt(text, profile, seed, waves=False),
    }
    arms, best = {}, {}
    for name, model in models.items():
        for times in (1, 2, 4):
            arms[f"{name}, {times}×"] = last_words(model, tokens, times * SEGMENT)
            best[f"{name}, {times}×"] = lowest(text, words, times * SEGMENT)
    note = f"the same {SCORED * len(ENDS)} words of {len(words)} documents, for all lengths"
    return Measured(arms, best, note, shared=False)


RELATIVE_POSITIONS = claim("relative-positions", stretching)

CLAIMS = (LONG_MEMORY, RELATIVE_POSITIONS)
