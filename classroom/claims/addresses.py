"""Claims of the lectures on real text: addresses of presidents. No floor is known there.

Both sides of a hidden word (08), memory across segments (10). `eras` asks what pre-training is
worth in labels (03). The addresses come with the extra `text`; without it nothing is tested.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from classroom import realtext
from classroom.claims.transformer_xl import losses
from classroom.ledger import Measured, claim
from classroom.recipes import plan, train_once
from classroom.shipped import trained
from labkit.blocks import LanguageModel
from labkit.corpus import Streams, from_documents, tokenize
from labkit.heads import NextWord
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import NextToken
from labkit.text.tokenizers import Tokenizer


class Size(NamedTuple):
    """How large the experiments of a profile are."""

    steps: int
    """Of the Transformer-XL."""
    width: int
    letters: int
    """Of each address that is read by it."""
    blanks: int
    """Hidden words of each held-out address."""


SIZES = {
    "smoke": Size(20, 32, 3_000, 5),
    "laptop": Size(1_000, 96, 12_000, 40),
    "gpu": Size(10_000, 256, 100_000, 200),
}


# ---- both sides


def real_both_sides(profile: str, seed: int) -> Measured | None:
    """Words of held-out addresses, guessed by a 5-gram from the left and from both sides."""
    known, asked = (realtext.texts(held_out) for held_out in (False, True))
    if not known:
        return None
    words = Tokenizer.words(known, size=8_000)
    five = realtext.KneserNey([words.encode(text) for text in known], len(words))
    random = np.random.default_rng(seed)
    arms: dict[str, list[float]] = {"left side": [], "both sides": []}
    for text in asked:
        tokens = words.encode(text)
        left = five.log_probabilities(tokens)
        room = range(realtext.AROUND, len(tokens) - realtext.AROUND)
        hidden = random.choice(room, size=SIZES[profile].blanks, replace=False).tolist()
        both = [-float(five.both_sides(tokens, one)[tokens[one]]) for one in hidden]
        # An address is one item: its words say much about each other.
        arms["left side"].append(-float(left[hidden].mean()))
        arms["both sides"].append(float(np.mean(both)))
    return Measured(arms, note=f"a 5-gram of 8,000 words; {realtext.NO_FLOOR}")


REAL_BOTH_SIDES = claim("real-both-sides", real_both_sides)


# ---- memory

SEGMENT, MEMORY, ROW = 32, 64, 1_024


def real_memory(profile: str, seed: int) -> Measured | None:
    """A Transformer-XL on held-out addresses, with its memory and without it."""
    size = SIZES[profile]
    pieces = trained("gpt-addresses")[1]
    known = [text[: size.letters] for text in realtext.texts(held_out=False)]
    if not known:
        return None
    torch.manual_seed(seed)
    sizes = TransformerXLConfig(
        len(pieces), size.width, 2, 4, SEGMENT, MEMORY, inner=2 * size.width, dropout=0.0
    )
    body: Any = TransformerXL(sizes)
    model = LanguageModel(body, NextWord(body.token))
    rows = Streams(tokenize(from_documents(known), pieces), batch=16, length=SEGMENT, seed=seed)
    train_once(model, NextToken(carry=True), rows, plan(size.steps, seed=seed, rate=1e-2))
    asked = [pieces.encode(text)[: ROW + 1] for text in realtext.texts(held_out=True)]
    tokens = torch.tensor([row for row in asked if len(row) == ROW + 1])
    arms = {
        # The first segment has nothing to remember.
        f"memory of {length}": losses(model, tokens, length, SEGMENT)[:, SEGMENT:].mean(1).tolist()
        for length in (0, MEMORY)
    }
    return Measured(arms, note=f"segments of {SEGMENT} pieces of bytes; {realtext.NO_FLOOR}")


REAL_MEMORY = claim("real-memory", real_memory)

CLAIMS = (REAL_BOTH_SIDES, REAL_MEMORY)
