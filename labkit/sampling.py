"""Writing with a language model: one word after another, each drawn from what the model expects.

`filters.py` changes the scores of the next word before it is drawn, as `Sampling` says.  Read
`steps` first.  Every draw is a function of (seed, row, place), so a row is the same alone and
among others.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit import fast
from labkit.attention import KeysValues
from labkit.chance import Chance
from labkit.fast.decoding import Decoder, can_decode

# ---- filters -------------------------------------------------------------------------------------
#
# Filters change the scores of the next word before it is drawn.
#
# `at_temperature`, `top_k` (Fan et al. 2018), `nucleus` (Holtzman et al. 2020, section 3.1),
# `repeat_less` (Keskar et al. 2019, section 4.1), `not_yet`.  Each is a function of scores, so they
# compose in any order, and none of them ever leaves a row empty.


NEVER = -math.inf
FEW = 32
"""So many of the best words are looked at before all are."""


def at_temperature(logits_BV: Tensor, temperature: float) -> Tensor:
    """softmax(logits / temperature): above 1 flatter, below 1 sharper, at 0 the best word only."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}: give 0 (always the best word) or more")
    if temperature == 0:
        best_B1 = logits_BV.argmax(dim=-1, keepdim=True)
        return torch.full_like(logits_BV, NEVER).scatter(-1, best_B1, 0.0)
    return logits_BV / temperature


def top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Only the k best words of each row, and those that equal the last of them."""
    if not 1 <= k <= logits_BV.shape[-1]:
        raise ValueError(
            f"top_k is {k}, and the vocabulary has {logits_BV.shape[-1]} words: "
            f"give 1 to {logits_BV.shape[-1]}, or None to keep all"
        )
    worst_B1 = logits_BV.topk(k, dim=-1).values[..., -1:]
    return logits_BV.masked_fill(logits_BV < worst_B1, NEVER)


def nucleus(logits_BV: Tensor, p: float) -> Tensor:
    """The smallest set of best words that holds the share p, and those that equal its last."""
    if not 0 <= p <= 1:
        raise ValueError(f"top_p is {p}: it is a share of the probability, give 0 to 1")
    if p == 1:
        return logits_BV
    # So many of the best nearly always hold p; only where they do not, all are sorted.
    least_B1, more_B = last_of_nucleus(logits_BV, p, FEW)
    if bool(more_B.any()):
        least_B1[more_B] = last_of_nucleus(logits_BV[more_B], p, logits_BV.shape[-1])[0]
    return logits_BV.masked_fill(logits_BV < least_B1, NEVER)


def last_of_nucleus(logits_BV: Tensor, p: float, count: int) -> tuple[Tensor, Tensor]:
    """The worst score that stays [B, 1] if the `count` best words hold p, and where more must."""
    if count < logits_BV.shape[-1]:
        best_BK, words_BK = logits_BV.topk(count, dim=-1)
        share_BK = logits_BV.softmax(dim=-1).gather(-1, words_BK)
    else:
        best_BK = falling(logits_BV)
        share_BK = best_BK.softmax(dim=-1)
    # A word stays while those above it hold less than p; the best always does.
    above_BK = share_BK.cumsum(dim=-1) - share_BK
    kept_B1 = (above_BK < p).sum(dim=-1, keepdim=True).clamp(min=1)
    return best_BK.gather(-1, kept_B1 - 1), kept_B1[:, 0] >= count


def falling(scores_BV: Tensor) -> Tensor:
    """The scores of each row, the best first."""
    if scores_BV.device.type == "cpu" and not scores_BV.requires_grad:
        # numpy sorts with the vector units of the processor: up to 30 times faster than torch.
        return torch.from_numpy(np.sort(scores_BV.numpy(), axis=-1)).flip(-1)
    return scores_BV.sort(dim=-1, descending=True).values


def repeat_less(logits_BV: Tensor, seen_BT: Tensor, penalty: float) -> Tensor:
    """Words that were seen lose: scores above 0 are divided by the penalty, others multiplied."""
    if not penalty > 0:
        raise ValueError(f"the penalty of repetition is {penalty}: give more than 0, 1 for none")
    score_BT = logits_BV.gather(-1, seen_BT)
    score_BT = torch.where(score_BT < 0, score_BT * penalty, score_BT / penalty)
    return logits_BV.scatter(-1, seen_BT, score_BT)


def not_yet(logits_BV: Tensor, words: Sequence[int]) -> Tensor:
    """These words are not allowed here, unless nothing else is."""
    banned_BV = logits_BV.clone()
    banned_BV[..., list(words)] = NEVER
    empty_B1 = (banned_BV == NEVER).all(dim=-1, keepdim=True)
    return torch.where(empty_B1, logits_BV, banned_BV)


# ---- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to write. The filters are applied in the order in which they stand here."""

    length: int = 30
    """At most this many new words."""
    minimum: int = 0
    """The words of `stop` are not allowed before this many."""
    stop: tuple[int, ...] = ()
    """Words that end a text."""
    repetition: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.minimum <= self.length:
            raise ValueError(
                f"length is {self.length} and minimum {self.minimum}: give at least one word, "
                "and a minimum that is not above the length"
            )
        if self.minimum and not self.stop:
            raise ValueError("minimum says how early a text may stop: give the words of `stop` too")
        try_BV = torch.zeros(1, max(self.top_k or 1, 1))
        at_temperature(nucleus(try_BV, self.top_p), self.temperature)
        repeat_less(try_BV, torch.zeros(1, 1, dtype=torch.long), self.repetition)
        if self.top_k is not None:
            top_k(try_BV, self.top_k)

    def stages(
        self, logits_BV: Tensor, seen_BT: Tensor, new_B: Tensor
    ) -> Iterator[tuple[str, Tensor]]:
        """The scores before and after each filter that changes something.

        `seen_BT` is the text so far, of which new_B words of each row are not of its prompt.
        """
        yield "model", (logits_BV := check(logits_BV))
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
            yield "nucleus", nucleus(logits_BV, self.top_p)


GREEDY = Sampling(temperature=0.0)


def check(logits_BV: Tensor) -> Tensor:
    """Refuse scores from which no word can be drawn."""
    # One number tells: NaN spreads through a maximum, and an empty row has a maximum of -inf.
    if not bool(logits_BV.amax(dim=-1).isfinite().all()):
        raise ValueError(
            "the model gave NaN or infinite scores for the next word: its weights are broken or "
            "its training diverged; load an earlier checkpoint"
        )
    return logits_BV


# ---- reading with memory -----------------------------------------------------------------------


class Reader:
    """Feeds a model word by word, with its memory: keys and values, segments, or a state."""

    def __init__(self, model: Any, room: int) -> None:
        self.model, self.room = model, room
        self.memory: Any = ()
        self.decoder: Decoder | None = None

    def next_word(self, tokens_BT: Tensor) -> Tensor:
        """Read on, up to `room` words in all, and score the word that comes next [B, V]."""
        if self.memory and tokens_BT.shape[1] == 1 and can_decode(self.model):
            self.decoder, self.memory = Decoder(self.model, self.memory, self.room), ()
        if self.decoder is not None:
            return self.decoder.next_word(tokens_BT[:, 0]).float()
        inputs: dict[str, Any] = {"memory": self.memory} if self.model.backbone.remembers else {}
        if not inputs:
            # Without a memory the text is read again from its beginning.
            tokens_BT = torch.cat([*self.memory, tokens_BT], dim=1)
        with fast.enable():
            states = self.model.backbone(tokens_BT, **inputs)
        self.memory = states.memory if inputs else (tokens_BT,)
        return self.model.head(states.hidden[:, -1]).float()

    def select(self, rows: Tensor, since: int = 0) -> None:
        """Go on with these rows of what was read, alike to those they replace before `since`."""
        decoder = self.decoder
        if decoder is not None and len(rows) == decoder.rows:
            decoder.select(rows, since)
            return
        if decoder is not None:
            self.memory, self.decoder = decoder.memory, None
        self.memory = select(self.memory, rows)


def select(memory: Any, rows: Tensor) -> Any:
    """The same memory for some of the rows, in any order."""
    if isinstance(memory, Tensor):
        return memory[rows]
    if isinstance(memory, KeysValues):
        return KeysValues(memory.k_BHKE[rows], memory.v_BHKE[rows])
    return tuple(select(part, rows) for part in memory)


# ---- writing -----------------------------------------------------------------------------------


class Step(NamedTuple):
    """One new word for each row, and how it came about."""

    stages: dict[str, Tensor]
    """Probabilities [B, V] as the model gave them and after each filter."""
    tokens_B: Tensor
    log_probability_B: Tensor
    """Of the words under the model itself, before any filter."""
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


def draw(logits_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """One word for each row: the first whose cumulative probability passes a number in [0, 1)."""
    share_BV = logits_BV.softmax(dim=-1).cumsum(dim=-1)
    point_B1 = uniform_B[:, None] * share_BV[:, -1:]
    word_B1 = torch.searchsorted(share_BV, point_B1, right=True)
    return word_B1.clamp(max=logits_BV.shape[-1] - 1)[:, 0]


def _as_rows(prompts: Sequence[Sequence[int]], model: Any, settings: Sampling) -> list[Tensor]:
    """The prompts as tensors, checked."""
    if not prompts:
        raise ValueError("there is no prompt: give at least one list of tokens")
    if not (model.backbone.causal or model.backbone.remembers):
        raise ValueError(
            f"{type(model.backbone).__name__} reads a text from both sides and cannot continue "
            "it: use labkit.writing.filling, or a causal model"
        )
    context, vocabulary = model.backbone.context, model.backbone.config.vocabulary
    for i, prompt in enumerate(prompts):
        if not len(prompt):
            raise ValueError(
                f"prompt {i} is empty: start with a token, such as the one that opens a document"
            )
        if context is not None and len(prompt) + settings.length - 1 > context:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens and {settings.length} more are asked, the "
                f"model has positions for {context}: shorten the prompt, or ask for at most "
                f"{max(context + 1 - len(prompt), 0)} tokens"
            )
        wrong = [word for word in (*prompt, *settings.stop) if not 0 <= word < vocabulary]
        if wrong:
            raise ValueError(
                f"prompt {i} or the words of `stop` have the token {wrong[0]}, the model knows "
                f"0 to {vocabulary - 1}: use the tokenizer that the model was trained with"
            )
    where = next(model.parameters()).device
    return [torch.as_tensor(prompt, device=where) for prompt in prompts]


@torch.no_grad()
def steps(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: Sampling,
    *,
    seed: int = 0,
    explain: bool = True,
) -> Iterator[Step]:
    """Write, and show each word as it comes. The model is used as it is: call model.eval() first.

    The shortest prompt is read at once; from there on, a row that has prompt left reads it in
    place of a draw. So prompts of any lengths go together, without padding, for every model.
    """
    rows = _as_rows(prompts, model, settings)
    lengths_B = torch.tensor([len(row) for row in rows], device=rows[0].device)
    shortest, longest = int(lengths_B.min()), int(lengths_B.max())
    text_BT = torch.zeros(len(rows), longest + settings.length, dtype=torch.long).to(rows[0].device)
    for row, tokens in zip(text_BT, rows, strict=True):
        row[: len(tokens)] = tokens
    who = torch.arange(len(rows), device=text_BT.device)
    uniform_BT = Chance(seed, 0, who).uniform("word", text_BT.shape[1])
    reader = Reader(model, text_BT.shape[1])
    # Equal beginnings are read once: those of the samples of one prompt.
    beginnings, alike_B = text_BT[:, :shortest].unique(dim=0, return_inverse=True)
    logits_BV = reader.next_word(beginnings)[alike_B]
    reader.select(alike_B)
    for place in range(shortest, longest + settings.length):
        new_B = lengths_B <= place
        stages = dict(settings.stages(logits_BV, text_BT[:, :place], place - lengths_B))
        last_BV = list(stages.values())[-1]
        # At temperature 0 a single word is left, and needs no draw.
        best = settings.temperature == 0
        drawn_B = last_BV.argmax(dim=-1) if best else draw(last_BV, uniform_BT[:, place])
        tokens_B = torch.where(new_B, drawn_B, text_BT[:, place])
        text_BT[:, place] = tokens_B
        expected_BV = logits_BV.log_softmax(dim=-1)
        said_B = expected_BV.gather(-1, tokens_B[:, None])[:, 0]
        shown = {name: scores.softmax(dim=-1) for name, scores in stages.items() if explain}
        yield Step(shown, tokens_B, said_B, new_B)
        if place + 1 < longest + settings.length:
            logits_BV = reader.next_word(tokens_B[:, None])


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    settings: Sampling,
    *,
    samples: int = 1,
    seed: int = 0,
) -> list[list[Sample]]:
    """For each prompt, `samples` texts that go on from it."""
    if samples < 1:
        raise ValueError(f"{samples} samples were asked for: give at least 1")
    many = [prompt for prompt in prompts for _ in range(samples)]
    written: list[list[int]] = [[] for _ in many]
    said = [0.0] * len(many)
    stopped, done = [False] * len(many), [False] * len(many)
    for step in steps(model, many, settings, seed=seed, explain=False):
        tokens, log_p, new = (part.tolist() for part in step[1:])
        for row, text in enumerate(written):
            if new[row] and not done[row]:
                text.append(tokens[row])
                said[row] += log_p[row]
                stopped[row] = tokens[row] in settings.stop
                done[row] = stopped[row] or len(text) == settings.length
        if all(done):
            break
    made = [Sample(*parts) for parts in zip(written, said, stopped, strict=True)]
    return [made[i : i + samples] for i in range(0, len(made), samples)]


# ---- the best text -----------------------------------------------------------------------------


@torch.no_grad()
def beam(
    model: Any,
    prompt: Sequence[int],
    settings: Sampling,
    *,
    beams: int = 4,
    length_penalty: float = 1.0,
) -> list[Sample]:
    """The best texts that a search `beams` wide finds, the best first.

    Texts are compared by s / length^length_penalty, where s sums the log-probabilities of the words
    after the filters: 0 compares sums, 1 means. The `log_probability` of a text that is found is
    that of the model itself, which is s when no filter is on.
    """
    if beams < 1:
        raise ValueError(f"a beam of {beams} texts finds nothing: give at least 1")
    text_BT = _as_rows([prompt], model, settings)[0][None]
    begin, done = text_BT.shape[1], list[tuple[float, Sample]]()
    reader = Reader(model, begin + settings.length)
    logits_BV = reader.next_word(text_BT)
    score_B, own_B = (torch.zeros(1, device=text_BT.device) for _ in range(2))
    for new in range(1, settings.length + 1):
        *_, (_, last_BV) = settings.stages(logits_BV, text_BT, torch.full_like(score_B, new - 1))
        total_BV = score_B[:, None] + last_BV.log_softmax(dim=-1)
        own_BV = own_B[:, None] + logits_BV.log_softmax(dim=-1)
        # Each text can stop once for each stop word, so `beams` of so many go on, if any can.
        best, where = total_BV.flatten().topk(
            min(beams * (1 + len(settings.stop)), total_BV.numel())
        )
        rows, words = where // total_BV.shape[1], where % total_BV.shape[1]
        texts = torch.cat([text_BT[rows], words[:, None]], dim=1)
        own = own_BV.flatten()[where]
        going = list[int]()
        for i, (score, word) in enumerate(zip(best.tolist(), words.tolist(), strict=True)):
            if score == NEVER or len(going) == beams:
                break
            if word in settings.stop or new == settings.length:
                stopped = word in settings.stop
                found = Sample(texts[i, begin:].tolist(), float(own[i]), stopped)
                done.append((score / new**length_penalty, found))
            if word not in settings.stop:
                going.append(i)
        if not going or new == settings.length:
            break
        _follow(reader, text_BT, texts[going], rows[going])
        text_BT, score_B, own_B = texts[going], best[going], own[going]
        logits_BV = reader.next_word(text_BT[:, -1:])
    return [text for _, text in sorted(done, key=lambda pair: -pair[0])][:beams]


def _follow(reader: Reader, before: Tensor, after: Tensor, rows: Tensor) -> None:
    """Let the memory of the rows that go on take the place of those that were there."""
    if len(before) != len(after):
        reader.select(rows)
        return
    moved = (before != after[:, :-1]).any(dim=0).tolist()
    if any(moved):
        reader.select(rows, since=moved.index(True))
