"""How likely a text is: by a model, and by the language itself."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from classroom.demos.pieces import Note, Piece, Table
from classroom.demos.reading import words_in
from labkit.text.tokenizers import Tokenizer
from labkit.world import END, World


class Text(NamedTuple):
    """What the model has before it, token by token."""

    begin: list[int]
    """The token that opens a document, where the vocabulary has one."""
    prompt: list[int]
    new: list[int]

    @property
    def tokens(self) -> list[int]:
        """All tokens, one after the other."""
        return [*self.begin, *self.prompt, *self.new]


def likelihoods(
    text: Text, said: list[float | None], tokenizer: Tokenizer, world: World | None, start: str
) -> list[Piece]:
    """log p of the prompt, of the new words, and of both: by the model and by the language."""
    old = len(text.begin) + len(text.prompt)
    rows: list[tuple[str, ...]] = [("model", *sums(said, old))]
    notes: list[Piece] = []
    if (left := sum(log is None for log in said) - 1) > 0:
        notes.append(
            Note(f"The model's sums leave out the first {left} tokens after the beginning, which "
                 "it has no room for; the language's count all words.", "left-out")
        )  # fmt: skip
    if world is not None:
        before = spoken(text.prompt, tokenizer)
        words = spoken([*text.prompt, *text.new], tokenizer)
        logs: list[float | None] = [*_exact(world, words, start)]
        rows.append(("language", *sums(logs, len(before))))
        impossible = next((w for w, log in zip(words, logs, strict=True) if log == -math.inf), None)
        if impossible is not None:
            cannot = f"The language cannot go on with “{impossible}”."
            notes.append(Note(cannot, "impossible"))
    return [Table(("", "prompt", "new", "both"), tuple(rows), "likelihoods"), *notes]


def _exact(world: World, words: list[str], start: str) -> np.ndarray:
    """log p of each word by the language; once a word is impossible, all after it are."""
    logs = world.log_probability(words, start=start) if words else np.zeros(0)
    return np.where(np.isnan(logs), -np.inf, logs)


def sums(logs: Sequence[float | None], old: int) -> list[str]:
    """Three sums: up to a position, from it on, and all; what is not known does not count."""
    parts = [[log for log in part if log is not None] for part in (logs[:old], logs[old:], logs)]
    return [f"{sum(part):z.3f}" if part else "–" for part in parts]


def spoken(tokens: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """The words of tokens as the language counts them; the token that parts documents ends one."""
    words: list[str] = []
    rest: list[int] = []
    # An unknown word is one word, whatever signs its name has.
    names = {one: tokenizer.pieces([one])[0] for one in tokenizer.vocabulary.special}
    if tokenizer.vocabulary.sep is not None:
        names[tokenizer.vocabulary.sep] = END
    for token in tokens:
        if token in names:
            words += [*words_in(tokenizer.decode(rest)), names[token]]
            rest = []
        else:
            rest.append(token)
    return words + words_in(tokenizer.decode(rest))
