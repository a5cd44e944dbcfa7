"""From what somebody typed to a batch, and from tokens back to what a person reads."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from classroom.demos.pieces import Note, Problem
from labkit.blocks import vocabulary_of
from labkit.chance import Chance
from labkit.corpus import Batch, Examples, from_documents, tokenize
from labkit.objectives import Targets
from labkit.objectives.hiding import ordinary
from labkit.text.tokenizers import WORD, Tokenizer
from labkit.world import World

LONGEST = 512
"""Tokens of a text that a demo reads; of a longer one it reads the beginning."""


def written(text: str) -> str:
    """The text with a sign in place of halves of characters, which no tokenizer reads."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


@lru_cache(maxsize=64)
def as_batch(
    text: str, tokenizer: Tokenizer, longest: int = LONGEST, opened: bool = False
) -> Batch | None:
    """The text as a batch of one row, framed where the vocabulary can; None if nothing is there.

    `opened`: only the separator stands before it, as in the texts that language models read.
    """
    text = written(text)
    if not (known := tokenizer.encode(text)):
        return None
    vocabulary = tokenizer.vocabulary
    if opened and vocabulary.sep is not None:
        return Batch.of(torch.tensor([[vocabulary.sep, *known][:longest]]))
    tokens = tokenize(from_documents([text]), tokenizer, end=False)
    framed = vocabulary.cls is not None and vocabulary.sep is not None
    rows = Examples(tokens, batch=1, length=max(longest, 5), bucketed=False, framed=framed)
    first = torch.zeros(1, dtype=torch.long)
    return rows.rows_of(first, Chance(0, 0, first))


def ordinary_in(batch: Batch, tokenizer: Tokenizer) -> Tensor:
    """True [B, T] where a token is real and not special."""
    return ordinary(batch.tokens, batch.real, tokenizer.vocabulary)


def asked_in(targets: Targets) -> Tensor:
    """True [B, T] where a hidden word is asked for."""
    [asked] = targets.predicted.values()
    found = torch.zeros(targets.inputs.tokens.shape, dtype=torch.bool)
    found[asked.rows_N, asked.positions_N] = True
    return found


def longest_for(model: Any, most: int = LONGEST) -> int:
    """How many tokens of a text a model has positions for."""
    context = None if model is None else model.backbone.context
    return most if context is None else min(most, context)


def check_fits(model: Any, tokenizer: Tokenizer) -> None:
    """Refuse a model that was trained with another vocabulary: its numbers are other words."""
    known = vocabulary_of(model)
    if known not in (0, len(tokenizer)):
        raise ValueError(
            f"the model knows {known:,} tokens and the tokenizer {len(tokenizer):,}: give the "
            "tokenizer that the model was trained with"
        )


@lru_cache(maxsize=1 << 16)
def label(tokenizer: Tokenizer, token: int) -> str:
    """A token as a person reads it; a space that belongs to it is shown."""
    spelled = tokenizer.decode([token], special=True)
    # Bytes that are no character on their own are left as the vocabulary spells them.
    if not spelled.strip() or "\ufffd" in spelled:
        spelled = tokenizer.pieces([token])[0]
    return spelled.replace(" ", "␣").replace("\n", "⏎")


def labels(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """Several tokens as a person reads them."""
    return [label(tokenizer, token) for token in tokens]


# ---- words that the vocabulary does not have -----------------------------------------------------

NEAR = 1 / 3
"""The share of the letters that may differ between an unknown word and one that is suggested."""


def in_vocabulary(text: str, tokenizer: Tokenizer) -> tuple[str, list[str]]:
    """The text with words in lower case where only that is known, and a line for each other one.

    A vocabulary of pieces or bytes can spell every word, so nothing is unknown to it.
    """
    unknown: dict[str, None] = {}

    def known(found: re.Match[str]) -> str:
        word = found[0]
        if not _is_unknown(word, tokenizer):
            return word
        if not _is_unknown(word.lower(), tokenizer):
            return word.lower()
        unknown[word] = None
        return word

    if tokenizer.vocabulary.unk is None:
        return text, []
    fitted = re.sub(WORD, known, written(text))
    # A hint takes a look at every word that is known, so only those that are shown are looked for.
    said = [f"“{word[:40]}”{near(word.lower(), tokenizer)}" for word in list(unknown)[:5]]
    return fitted, [*said, *([f"and {len(unknown) - 5} more"] if len(unknown) > 5 else [])]


def unknown_note(unknown: Sequence[str]) -> list[Note]:
    """The words that are unknown, if there are any."""
    return [Note(f"Not in the vocabulary: {', '.join(unknown)}.", "unknown")] if unknown else []


def nothing_to_hide(unknown: Sequence[str]) -> Problem:
    """The problem of a text that has no word of the vocabulary."""
    why = f"not in the vocabulary: {', '.join(unknown)}" if unknown else "write some words"
    return Problem(f"There is nothing to hide: {why}.")


def cut_or_unknown(
    unknown: Sequence[str], tokens: int, batch: Batch, tokenizer: Tokenizer
) -> list[Note]:
    """Notes on unknown words, and on a text that is too long."""
    notes = unknown_note(unknown)
    edges = (tokenizer.vocabulary.cls, tokenizer.vocabulary.sep)
    read = sum(token not in edges for token in batch.tokens[0].tolist())
    if tokens > read:
        notes.append(Note(f"The text has {tokens:,} tokens; shown are the first {read}.", "cut"))
    return notes


def as_read(
    text: str, model: Any, tokenizer: Tokenizer, most: int, opened: bool = False
) -> tuple[Batch | None, list[Note]]:
    """What a model reads of a text, if anything is there, and what became of the rest."""
    check_fits(model, tokenizer)
    text, unknown = in_vocabulary(text, tokenizer)
    longest = longest_for(model, most)
    batch = as_batch(text, tokenizer, longest, opened)
    if batch is None:
        return None, []
    return batch, cut_or_unknown(unknown, len(tokenizer.encode(written(text))), batch, tokenizer)


@lru_cache(maxsize=1 << 12)
def _is_unknown(word: str, tokenizer: Tokenizer) -> bool:
    return tokenizer.vocabulary.unk in tokenizer.encode(word)


@lru_cache(maxsize=1 << 10)
def near(word: str, tokenizer: Tokenizer) -> str:
    """The known words that differ in the fewest letters, as a hint; empty if none is near."""
    special = tokenizer.vocabulary.special
    known = [label(tokenizer, n) for n in range(len(tokenizer)) if n not in special]
    most = len(word) * NEAR if len(word) <= 40 else 0
    far = {one: letters_apart(word, one) for one in known if abs(len(one) - len(word)) <= most}
    best = sorted((one for one in far if far[one] <= most), key=far.__getitem__)[:3]
    return f" (near: {', '.join(best)})" if best else ""


def letters_apart(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed to make one word of the other."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one):
        above, row = row, [i + 1]
        for j, b in enumerate(other):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (a != b)))
    return row[-1]


# ---- the words of the language -----------------------------------------------------------------


def words_in(text: str) -> list[str]:
    """The words and signs of a text, as the language counts them."""
    return re.findall(WORD, text)


def first_words(text: str, most: int) -> tuple[list[str], list[Note]]:
    """The words of a text that there is room for, and a note if there are more."""
    every = words_in(text)
    cut = [Note(f"The first {most} of {len(every)} words.", "cut")] if len(every) > most else []
    return every[:most], cut


class Words(NamedTuple):
    """The words of a batch's row, and which of them each position belongs to (-1: to none)."""

    words: list[str]
    of_position: list[int]


def words_of(batch: Batch, tokenizer: Tokenizer) -> Words:
    """Put the pieces of each word together; of the special tokens, only an unknown word is one."""
    assert batch.words is not None
    tokens, numbers = batch.tokens[0].tolist(), batch.words[0].tolist()
    known = ordinary_in(batch, tokenizer)[0].tolist()
    unknown = tokenizer.vocabulary.unk
    is_word = [ok or token == unknown for ok, token in zip(known, tokens, strict=True)]
    groups: dict[int, list[int]] = {}
    for token, number, counts in zip(tokens, numbers, is_word, strict=True):
        if counts:
            groups.setdefault(number, []).append(token)
    order = {number: position for position, number in enumerate(groups)}
    of_position = [order[n] if counts else -1 for n, counts in zip(numbers, is_word, strict=True)]
    spelled = [tokenizer.decode(group, special=True).strip() for group in groups.values()]
    return Words(spelled, of_position)


def next_distribution(world: World, words: Sequence[str], start: str) -> np.ndarray | None:
    """The exact distribution of the next word, or None where the language cannot have begun so."""
    try:
        return world.next_word(list(words), start=start)
    except ValueError:
        return None


def best(probabilities: np.ndarray, names: Sequence[str]) -> str:
    """The three likeliest names with their probabilities, in a line; of equal ones the first."""
    # What differs in the last digits of a float is equal: the order must not depend on them.
    order = np.argsort(-np.round(probabilities, 9), kind="stable")[:3]
    return ", ".join(f"{names[i]} {probabilities[i]:.3f}" for i in order)
