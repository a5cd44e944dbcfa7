"""Writing with a language model: one word after another, each drawn from what the model predicts.

Filters change the scores of the next word before it is drawn, as `Sampling` says. Read `steps`
first. Every draw is a function of (seed, row, position), so what stands in the other rows does not
change a row, unless the model forgets what is far back (Transformer-XL) and the prompts differ in
length.
`labkit.writing.beam` searches for the likeliest text instead.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit import fast
from labkit.chance import Chance
from labkit.checks import check_share, check_type, check_whole, is_number, is_whole, require, shown
from labkit.heads import exact
from labkit.layers import replaceable
from labkit.writing.reader import Reader, rows_of

# ---- filters -------------------------------------------------------------------------------------
#
# Each is a function of scores, so they compose in any order, and none of them leaves a row empty.

NEVER = -math.inf


@replaceable
def best_word(logits_BV: Tensor) -> Tensor:
    """The word with the highest score in each row; of several that are equal, the first."""
    return logits_BV.argmax(dim=-1)


def at_temperature(logits_BV: Tensor, temperature: float) -> Tensor:
    """softmax(scores / temperature): above 1 flatter, below 1 sharper, at 0 the best word only."""
    ok = is_number(temperature) and 0 <= temperature < 1e30
    require(ok, f"temperature is {shown(temperature)}: give 0 (always the best word) or more")
    logits_BV = exact(logits_BV)
    if temperature == 0:
        best_B1 = best_word(logits_BV)[..., None]
        return torch.full_like(logits_BV, NEVER).scatter(-1, best_B1, 0.0)
    if temperature < 1e-3:
        # A softmax does not change when all scores move: with the best at 0 none overflows.
        logits_BV = logits_BV - logits_BV.amax(dim=-1, keepdim=True)
    largest = torch.finfo(logits_BV.dtype)
    return (logits_BV / max(float(temperature), largest.tiny)).clamp(max=largest.max)


def top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Only the k best words of each row, and those that equal the last (Fan et al. 2018)."""
    check_whole("top_k", k, least=1, most=logits_BV.shape[-1])
    least_B1 = logits_BV.topk(int(k), dim=-1).values[..., -1:]
    return logits_BV.masked_fill(logits_BV < least_B1, NEVER)


@replaceable
def nucleus(logits_BV: Tensor, p: float, *, within: bool = False) -> Tensor:
    """Keep the fewest of the most probable words that have at least p together, and ties.

    Holtzman et al. 2020, section 3.1. `within`: as many of the most probable words as have at most
    p together, but at least one, as in GPT-2's release (src/sample.py, top_p_logits).
    """
    check_share("top_p", p)
    share_BV = exact(logits_BV).softmax(dim=-1)
    best_BV = share_BV.sort(dim=-1, descending=True).values
    # What stands above the second word, the third and so on: they stay while that is less than p.
    sums_BV = best_BV.cumsum(dim=-1)
    fits_BV = sums_BV[..., 1:] <= p if within else sums_BV[..., :-1] < p
    last_B1 = (fits_BV | (p == 1)).sum(dim=-1, keepdim=True)
    return logits_BV.masked_fill(share_BV < best_BV.gather(-1, last_B1), NEVER)


def repeat_less(logits_BV: Tensor, seen_BT: Tensor, penalty: float) -> Tensor:
    """Penalise seen words: z / penalty above 0, z * penalty below (Keskar et al. 2019, 4.1)."""
    ok = is_number(penalty) and 1e-3 <= penalty <= 1e3
    require(ok, f"the penalty of repetition is {shown(penalty)}: give 0.001 to 1000, 1 for none")
    logits_BV = exact(logits_BV)
    z_BT = logits_BV.gather(-1, seen_BT)
    less_BT = torch.where(z_BT < 0, z_BT * penalty, z_BT / penalty)
    return logits_BV.scatter(-1, seen_BT, less_BT.clamp(max=torch.finfo(z_BT.dtype).max))


def not_yet(logits_BV: Tensor, words: Sequence[int]) -> Tensor:
    """Forbid these words, unless no other word is allowed."""
    banned_BV = logits_BV.clone()
    banned_BV[..., list(words)] = NEVER
    empty_B1 = (banned_BV == NEVER).all(dim=-1, keepdim=True)
    return torch.where(empty_B1, logits_BV, banned_BV)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to write. The filters are applied in the order in which they are listed here."""

    length: int = 30
    """The largest number of new words."""
    minimum: int = 0
    """The number of new words before which the words of `stop` are not allowed."""
    stop: tuple[int, ...] = ()
    """Words that end a text."""
    repetition: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    top_p_within: bool = False
    """Whether the best words may not exceed top_p, as in GPT-2's release; by default they reach it,
    as the paper has it, so that no word that is likelier than 1 - top_p is ever cut."""

    def __post_init__(self) -> None:
        check_whole("length", self.length, least=1)
        check_whole("minimum", self.minimum, most=self.length)
        words = isinstance(self.stop, tuple | list) and all(map(is_whole, self.stop))
        require(words, f"stop is {shown(self.stop)}: give the numbers of words, such as (2,)")
        require(
            not self.minimum or bool(self.stop),
            "minimum has no effect without words that stop a text: give `stop`, too",
        )
        if self.top_k is not None:
            check_whole("top_k", self.top_k, least=1)
        check_share("top_p", self.top_p)
        one_BV = torch.zeros(1, 1)
        at_temperature(one_BV, self.temperature)
        repeat_less(one_BV, one_BV.long(), self.repetition)

    def stages(
        self, logits_BV: Tensor, seen_BT: Tensor, new_B: Tensor
    ) -> Iterator[tuple[str, Tensor]]:
        """The scores of the model, then those after each filter that is in use.

        `seen_BT` is the text so far, of which new_B words of each row are not of its prompt.
        """
        yield "model", (logits_BV := check_logits(logits_BV))
        if self.minimum:
            held_B1 = (new_B < self.minimum)[:, None]
            logits_BV = torch.where(held_B1, not_yet(logits_BV, self.stop), logits_BV)
            yield "minimum", logits_BV
        if self.repetition != 1:
            yield "repetition", (logits_BV := repeat_less(logits_BV, seen_BT, self.repetition))
        if self.temperature != 1:
            yield "temperature", (logits_BV := at_temperature(logits_BV, self.temperature))
        if self.top_k is not None:
            yield "top-k", (logits_BV := top_k(logits_BV, self.top_k))
        if self.top_p != 1:
            yield "nucleus", nucleus(logits_BV, self.top_p, within=self.top_p_within)


GREEDY = Sampling(temperature=0.0)


def check_logits(logits_BV: Tensor) -> Tensor:
    """Refuse scores from which no word can be drawn."""
    # One number tells: NaN spreads through a maximum, and an empty row has a maximum of -inf.
    require(
        bool(logits_BV.amax(dim=-1).isfinite().all()),
        "the model gave NaN or infinite scores for the next word: its weights are broken or its "
        "training diverged; load an earlier checkpoint",
    )
    return logits_BV


# ---- writing -----------------------------------------------------------------------------------


class Step(NamedTuple):
    """One new word for each row, and how it came about."""

    stages: dict[str, Tensor]
    """Probabilities [B, V] as the model gave them and after each filter, in float64: at a low
    temperature, a word that is kept would otherwise have the 0 of one that is cut."""
    tokens_B: Tensor
    log_probability_B: Tensor
    """Of the words under the model itself, before any filter."""
    filtered_B: Tensor
    """The same after all filters: the chance with which the words were drawn."""
    new_B: Tensor
    """True where the word is new and not one of the prompt."""


class Sample(NamedTuple):
    """A text that was written."""

    tokens: list[int]
    """The new words, without the prompt."""
    log_probability: float
    """Of the new words under the model itself, before any filter."""
    stopped: bool
    """Whether a stop word ended it."""
    filtered_log_probability: float
    """Of the new words after all filters: the chance with which they were drawn."""


def draw(logits_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """One word for each row: the first whose cumulative probability passes a number in [0, 1)."""
    share_BV = logits_BV.softmax(dim=-1).cumsum(dim=-1)
    point_B1 = uniform_B[:, None] * share_BV[:, -1:]
    word_B1 = torch.searchsorted(share_BV, point_B1, right=True)
    return word_B1.clamp(max=logits_BV.shape[-1] - 1)[:, 0]


@torch.no_grad()
def steps(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: Sampling,
    *,
    seed: int = 0,
    explain: bool = True,
) -> Iterator[Step]:
    """Write, and show each word as it comes. The model drops no units while it writes.

    The shortest prompt is read at once; from there on, a row that has prompt left reads it in
    place of a draw. So prompts of any lengths go together, without padding, for every model. A row
    with a shorter prompt goes on until the longest is done: read its first `length` new words.
    """
    check_type("settings", settings, Sampling, "Sampling(length=…)")
    rows = rows_of(model, prompts, settings.length, settings.stop)
    lengths_B = torch.tensor([len(row_T) for row_T in rows], device=rows[0].device)
    text_BT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    text_BT = F.pad(text_BT, (0, settings.length))
    begin, end = int(lengths_B.min()), text_BT.shape[1]
    row_B = torch.arange(len(rows), device=text_BT.device)
    uniform_BT = Chance(seed, 0, row_B).uniform("word", end)
    reader, unread_BT = Reader(model, end), text_BT[:, :begin]
    for position in range(begin, end):
        new_B = lengths_B <= position
        with fast.enable(), reader.evaluating():
            logits_BV = reader.next_word(unread_BT)
            stages = dict(settings.stages(logits_BV, text_BT[:, :position], position - lengths_B))
            *_, last_BV = stages.values()
            # At temperature 0 a single word is left, which needs no draw.
            greedy = settings.temperature == 0
            word_B = best_word(last_BV) if greedy else draw(last_BV, uniform_BT[:, position])
        tokens_B = torch.where(new_B, word_B, text_BT[:, position])
        text_BT[:, position] = tokens_B
        unread_BT = tokens_B[:, None]
        said_B = logits_BV.log_softmax(dim=-1).gather(-1, unread_BT)[:, 0]
        # The scores of a single word, 0 and -inf, are its log probabilities as they are.
        last_BV = last_BV if greedy else last_BV.log_softmax(dim=-1)
        drawn_B = last_BV.gather(-1, unread_BT)[:, 0]
        after = {name: scores.double().softmax(-1) for name, scores in stages.items() if explain}
        yield Step(after, tokens_B, said_B, drawn_B, new_B)


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: Sampling,
    *,
    samples: int = 1,
    seed: int = 0,
) -> list[list[Sample]]:
    """For each prompt, `samples` texts that go on from it."""
    check_whole("samples", samples, least=1)
    many = [prompt for prompt in prompts for _ in range(samples)]
    written: list[list[int]] = [[] for _ in many]
    said, filtered = [0.0] * len(many), [0.0] * len(many)
    stopped, done = [False] * len(many), [False] * len(many)
    for step in steps(model, many, settings, seed=seed, explain=False):
        # All numbers of a step come from a GPU at once: each question waits for it.
        tokens, log_p, drawn, new = torch.stack([part.double() for part in step[1:]]).tolist()
        for row, text in enumerate(written):
            if new[row] and not done[row]:
                text.append(int(tokens[row]))
                said[row] += log_p[row]
                filtered[row] += drawn[row]
                stopped[row] = tokens[row] in settings.stop
                done[row] = stopped[row] or len(text) == settings.length
        if all(done):
            break
    made = [Sample(*parts) for parts in zip(written, said, stopped, filtered, strict=True)]
    return [made[i : i + samples] for i in range(0, len(made), samples)]
