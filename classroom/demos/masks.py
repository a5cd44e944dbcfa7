"""Static and dynamic masks, to look at: which words are asked for, epoch after epoch.

BERT's data were masked once, before training, in ten copies; RoBERTa hides other words each time
(Liu et al. 2019, section 4.1).  Read `masks_view`, the pure function.
"""

from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from classroom.demos.base import Demo, slider, text_box, whole_slider
from classroom.demos.pieces import Beside, Heading, Note, Table
from classroom.demos.reading import (
    as_batch,
    asked_in,
    cut_or_unknown,
    in_vocabulary,
    labels,
    nothing_to_hide,
    ordinary_in,
    written,
)
from classroom.demos.rendering import View
from classroom.demos.squares import grid
from labkit.chance import Chance
from labkit.checks import counted
from labkit.corpus import Batch
from labkit.objectives import MaskedToken
from labkit.text.tokenizers import Tokenizer

LONGEST = 40


def asked_by_epoch(
    batch: Batch, epochs: int, rate: float, copies: int, tokenizer: Tokenizer
) -> Tensor:
    """True [epochs, T] where a word is asked; with 0 copies each epoch draws anew."""
    if copies:
        objective = MaskedToken(vocabulary=tokenizer.vocabulary, rate=rate, static=True)
        # The copies are examples of their own, which come back in turn: one batch of all epochs.
        given = replace(
            batch[torch.zeros(epochs, dtype=torch.long)], examples=torch.arange(epochs) % copies
        )
        return asked_in(objective.targets(given, Chance(0, 0, given.rows)))
    return torch.cat([asked_anew(batch, n, rate, tokenizer) for n in range(epochs)])


@lru_cache(maxsize=1 << 12)
def asked_anew(batch: Batch, epoch: int, rate: float, tokenizer: Tokenizer) -> Tensor:
    """True [1, T] where a word is asked in that epoch, which other sliders do not change."""
    objective = MaskedToken(vocabulary=tokenizer.vocabulary, rate=rate)
    return asked_in(objective.targets(batch, Chance(0, epoch, batch.rows)))


def masks_view(text: str, epochs: int, rate: float, copies: int, tokenizer: Tokenizer) -> View:
    """Both ways side by side, and how many of the words have been asked for at least once."""
    text, unknown = in_vocabulary(text, tokenizer)
    batch = as_batch(text, tokenizer, LONGEST)
    words = 0 if batch is None else int(ordinary_in(batch, tokenizer).sum())
    if batch is None or not words:
        return View.of("masks", nothing_to_hide(unknown))
    static = asked_by_epoch(batch, epochs, rate, copies, tokenizer)
    dynamic = asked_by_epoch(batch, epochs, rate, 0, tokenizer)
    names = labels(tokenizer, batch.tokens[0].tolist())
    down = [f"epoch {n + 1}" for n in range(epochs)]
    filled = "a filled square says that the word is predicted in this epoch"
    copied = f"Static, {copies} {'copy' if copies == 1 else 'copies'}"
    return View.of(
        "masks",
        *cut_or_unknown(unknown, len(tokenizer.encode(written(text))), batch, tokenizer),
        Beside(
            (
                grid(static, names, title=copied, down=down, filled=filled),
                grid(dynamic, names, title="Dynamic", down=down, filled=filled),
            )
        ),
        Heading(f"After {counted(epochs, 'epoch')}"),
        Table(
            ("masks", "words predicted at least once", "different masks", "expected share"),
            (
                told("static", static, words, 1 - (1 - rate) ** min(copies, epochs)),
                told("dynamic", dynamic, words, 1 - (1 - rate) ** epochs),
            ),
            "asked",
        ),
        Note("Expected share: 1 − (1 − rate)^n for n different draws.", "formula"),
    )


def told(name: str, asked: Tensor, words: int, share: float) -> tuple[str, ...]:
    """One way in numbers."""
    seen = int(asked.any(dim=0).sum())
    return name, f"{seen} of {words}", str(len(asked.unique(dim=0))), f"{share:.3f}"


def masks_demo(text: str, tokenizer: Tokenizer | None = None, *, rate: float = 0.15) -> Demo:
    """Slide through epochs and copies; the two pictures differ in nothing but the chance."""
    tokenizer = Tokenizer.words([text]) if tokenizer is None else tokenizer
    controls = {
        "text": text_box("text", text),
        "epochs": whole_slider("epochs", 10, 1, 40),
        "rate": slider("share predicted", rate, 0.0, 1.0, 0.05),
        "copies": whole_slider("static copies", 1, 1, 10),
    }
    return Demo("masks", partial(masks_view, tokenizer=tokenizer), controls)
