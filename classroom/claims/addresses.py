"""Claims of the lectures on real text: addresses of presidents. No floor is known there.

Both sides of a hidden word (08), masks (09), memory across segments (10), size and text (12).
`eras` asks what pre-training is worth in labels (03). The addresses come with the extra `text`;
without it nothing is tested.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from classroom.claims import village
from classroom.claims.transformer_xl import losses
from classroom.ledger import Measured, claim
from classroom.models.recipes import Shuffled, plan, train_once, untrained_transformer_xl
from classroom.models.scaling_runs import BATCH, LENGTH, document_losses, rate_of
from classroom.models.shipped import trained
from classroom.tasks import realtext
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch, Streams, from_documents, tokenize
from labkit.costs.counting import parameters
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import MaskedToken, NextToken
from labkit.text.tokenizers import Tokenizer


class Size(NamedTuple):
    """How large the experiments of a profile are."""

    steps: int
    """Steps of the Transformer-XL."""
    width: int
    letters: int
    """Letters of each address that the Transformer-XL reads."""
    blanks: int
    """Hidden words of each held-out address."""
    widths: tuple[int, ...]
    """Widths of the models whose size is compared."""
    pieces: tuple[int, ...]
    """Pieces of text that these models read."""
    rows: int
    """Rows of the text that is read many times, with masks of several kinds."""


SIZES = {
    "smoke": Size(20, 32, 3_000, 5, (8, 16), (2_000, 4_000), 256),
    "laptop": Size(1_000, 96, 12_000, 40, (16, 32, 64, 128), (40_000, 120_000, 400_000), 10_000),
    "gpu": Size(10_000, 256, 100_000, 200, (64, 128, 256), (250_000, 750_000, 2_500_000), 40_000),
}


# ---- both sides

WORDS = 6_000
"""The vocabulary of the 5-gram: the numbers of five of its words fit into 64 bits."""


def real_both_sides(profile: str, seed: int) -> Measured | None:
    """Words of held-out addresses, guessed by a 5-gram from the left and from both sides."""
    known, asked = (realtext.texts(held_out) for held_out in (False, True))
    if not known:
        return None
    words = Tokenizer.words(known, size=WORDS)
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
    return Measured(arms, note=f"a 5-gram of {WORDS:,} words; {realtext.NO_FLOOR}")


REAL_BOTH_SIDES = claim("real-both-sides", real_both_sides)


# ---- masks

TEXT, ASKED, AT_ONCE = 16, 24, 128
"""Pieces in a row, rows of each held-out address, rows in a batch."""


def real_masks(profile: str, seed: int) -> Measured | None:
    """A BERT that reads rows forty times: with one choice of hidden pieces, ten, or new ones."""
    known, asked = (realtext.texts(held_out) for held_out in (False, True))
    if not known:
        return None
    pieces = trained("bert-addresses")[1]
    rows = evenly([row for text in known for row in framed(pieces, text)], SIZES[profile].rows)
    # In a test each of the chosen pieces is hidden.
    asking = MaskedToken(vocabulary=pieces.vocabulary, shares=(1.0, 0.0, 0.0))
    tests = [Batch.of(torch.tensor(evenly(framed(pieces, text), ASKED))) for text in asked]
    counted = frequencies(rows, len(pieces))
    arms = {"pieces counted": [float(-counted[test.tokens[:, 1:-1]].mean()) for test in tests]}
    for name, kinds in village.MASKS.items():
        # The mask of a row goes by its number, so ten masks are those of ten copies, as in BERT.
        text = Batch.of(torch.tensor(rows * max(1, kinds)))
        model = village.encoder(seed, vocabulary=len(pieces), context=TEXT + 2)
        objective = MaskedToken(vocabulary=pieces.vocabulary, static=kinds > 0)
        how = plan(max(2, village.READINGS * len(rows) // AT_ONCE), seed=seed, rate=village.RATE)
        train_once(model, objective, Shuffled(text, AT_ONCE, seed), how)
        with torch.no_grad():
            each = [asking(model, test, Chance(0, 0, test.rows)).loss for test in tests]
        arms[name] = [float(loss) for loss in each]
    note = f"{village.READINGS} readings of {len(rows)} rows of {TEXT} pieces; {realtext.NO_FLOOR}"
    return Measured(arms, note=note)


def framed(pieces: Tokenizer, text: str) -> list[list[int]]:
    """A text in rows of [CLS] pieces [SEP]; what is left at the end is no row."""
    tokens, marks = pieces.encode(text), pieces.vocabulary
    starts = range(0, len(tokens) - TEXT + 1, TEXT)
    return [[marks.cls or 0, *tokens[start : start + TEXT], marks.sep or 0] for start in starts]


def frequencies(rows: Sequence[list[int]], pieces: int) -> torch.Tensor:
    """The log probability of each piece by its count in the rows, one added to each."""
    inner = torch.tensor(rows)[:, 1:-1]
    counts = torch.bincount(inner.flatten(), minlength=pieces) + 1.0
    return (counts / counts.sum()).log()


def evenly(rows: Sequence[list[int]], count: int) -> list[list[int]]:
    """So many of the rows, evenly spaced; all of them if there are fewer."""
    chosen = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)
    return [rows[i] for i in chosen.tolist()]


REAL_MASKS = claim("real-masks", real_masks)


# ---- memory

SEGMENT, MEMORY, ROW = 32, 64, 1_024


def real_memory(profile: str, seed: int) -> Measured | None:
    """A Transformer-XL on held-out addresses, with its memory and without it."""
    size = SIZES[profile]
    pieces = trained("gpt-addresses")[1]
    known = [text[: size.letters] for text in realtext.texts(held_out=False)]
    if not known:
        return None
    model = untrained_transformer_xl(len(pieces), size.width, SEGMENT, MEMORY, seed=seed)
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


# ---- size and text


def real_scaling(profile: str, seed: int) -> Measured | None:
    """How fast the loss falls with the size of a GPT, and with how much it has read, once."""
    size = SIZES[profile]
    known, asked = (realtext.texts(held_out) for held_out in (False, True))
    if not known:
        return None
    pieces = trained("gpt-addresses")[1]
    order = np.random.default_rng(seed).permutation(len(known))
    text = [token for i in order for token in pieces.encode(known[i])]
    tests = [rows_of(pieces.encode(address)) for address in asked]
    grid = [
        [losses_after(text[:count], width, seed, len(pieces), tests) for count in size.pieces]
        for width in size.widths
    ]
    logs_WCA = np.log(grid)
    sizes = [parameters(small_gpt(width, 0, len(pieces))).total for width in size.widths]
    arms = {
        # The largest model tells what text is worth, the longest text what size is worth.
        "exponent of the text": falls(size.pieces, logs_WCA[-1]),
        "exponent of the size": falls(sizes, logs_WCA[:, -1]),
    }
    return Measured(arms, note=f"items are addresses; {realtext.NO_FLOOR}")


def falls(sizes: Sequence[int], logs_KA: np.ndarray) -> list[float]:
    """The exponent x of loss = constant / size^x, for each address, by least squares."""
    found: list[float] = (-np.polyfit(np.log(sizes), logs_KA, 1)[0]).tolist()
    return found


def rows_of(tokens: Sequence[int]) -> Batch:
    """The beginning of a text in rows of `LENGTH` pieces, each after the one before it."""
    count = min(8, (len(tokens) - 1) // LENGTH)
    starts = range(0, count * LENGTH, LENGTH)
    return Batch.of(torch.tensor([tokens[start : start + LENGTH + 1] for start in starts]))


def small_gpt(width: int, seed: int, vocabulary: int) -> LanguageModel:
    """A GPT of one layer, not yet trained."""
    torch.manual_seed(seed)
    body = GPT(GPTConfig(vocabulary, width, 1, max(1, width // 32), LENGTH + 1, dropout=0.0))
    return LanguageModel(body, NextWord(body.token))


def losses_after(
    text: Sequence[int], width: int, seed: int, vocabulary: int, tests: Sequence[Batch]
) -> list[float]:
    """The loss of each test after one reading of the text."""
    model = small_gpt(width, seed, vocabulary)
    whole = len(text) // (LENGTH + 1)
    rows = torch.tensor(text[: whole * (LENGTH + 1)]).view(whole, LENGTH + 1)
    steps = len(rows) // BATCH
    how = plan(max(2, steps), seed=seed, rate=rate_of(width))
    train_once(model, NextToken(), Shuffled(Batch.of(rows), BATCH, seed), how)
    return [float(np.mean(document_losses(model, [one]))) for one in tests]


REAL_SCALING = claim("real-scaling", real_scaling)

CLAIMS = (REAL_BOTH_SIDES, REAL_MASKS, REAL_MEMORY, REAL_SCALING)
