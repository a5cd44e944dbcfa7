"""What a thousand draws of one text hide, beside what was asked for."""

from dataclasses import replace

import torch
from torch import Tensor

from classroom.demos.pieces import Note, Piece, Table
from classroom.demos.reading import asked_in, ordinary_in
from labkit.chance import Chance
from labkit.corpus import Batch, Pairs
from labkit.objectives import MaskedToken, Objective, Permutation, Targets
from labkit.text.tokenizers import Tokenizer

DRAWS = 1000
Found = tuple[str, float, float, float]


def statistics(objective: Objective, batch: Batch, tokenizer: Tokenizer) -> Piece:
    """Shares over 1,000 draws: as set, as found, and how far off chance may put them."""
    many = repeated(batch, DRAWS)
    # Draws of their own, which do not move when the one that is shown is drawn again.
    targets = objective.targets(many, Chance(1, 0, many.rows))
    words = ordinary_in(many, tokenizer)
    if isinstance(objective, MaskedToken):
        rows = masked(objective, many, targets, words, tokenizer)
    elif isinstance(objective, Permutation):
        rows = permuted(objective, targets, words)
    else:
        return Note("Nothing is drawn: every token after the first is predicted.", "fixed")
    shown = tuple(
        (name, f"{asked:.4f}", f"{found:.4f}", f"± {error:.4f}")
        for name, asked, found, error in rows
    )
    return Table(("share", "set", "found", "2 standard errors"), shown, "statistics")


def answers_no(pairs: Pairs, own: int) -> Note:
    """How often the answer about a pair of this text is no."""
    count = torch.arange(DRAWS)
    labels = pairs.rows_of(count % own, Chance(1, 0, count)).labels
    assert labels is not None
    share, error = ratio(labels[:, None], torch.ones_like(labels)[:, None])
    said = f"asked 0.5000, found {share:.4f} ± {error:.4f}"
    return Note(f"Pairs whose answer is no: {said}.", "no")


def repeated(batch: Batch, times: int) -> Batch:
    """The first row so many times, each with a number of its own; nothing is copied."""
    count = torch.arange(times)
    first = batch[:1]
    wide = {
        name: value.expand(times, *value.shape[1:])
        for name in ("tokens", "real", "segments", "documents", "labels", "words", "fresh")
        if (value := getattr(first, name)) is not None
    }
    return replace(first, **wide, rows=count, examples=count)


def masked(
    objective: MaskedToken, many: Batch, targets: Targets, words: Tensor, tokenizer: Tokenizer
) -> list[Found]:
    """How much is predicted, and what became of it."""
    predicted = asked_in(targets)
    seen, mask = targets.inputs.tokens, tokenizer.vocabulary.mask
    hidden = predicted & (seen == (-1 if mask is None else mask))
    same = predicted & (seen == many.tokens)
    swapped = predicted & ~hidden & ~same
    # A random word is now and then the word itself.
    again = objective.shares[1] / max(1, len(tokenizer) - len(tokenizer.vocabulary.special))
    fates = zip(
        ("of these [MASK]", "of these another word", "of these the word itself"),
        (objective.shares[0], objective.shares[1] - again, objective.shares[2] + again),
        (hidden, swapped, same),
        strict=True,
    )
    return [
        ("predicted", objective.rate, *ratio(predicted, words)),
        *((name, share, *ratio(part, predicted)) for name, share, part in fates),
    ]


def permuted(objective: Permutation, targets: Targets, words: Tensor) -> list[Found]:
    """How much is predicted, and how often a word may look at the one to its right."""
    assert targets.order is not None
    rank, predicted = targets.order
    count = int(words[0].sum())
    # As many as the order's end has room for, at least one.
    wanted = max(round(objective.share * count), 1 if objective.share else 0)
    both = words[:, 1:] & words[:, :-1]
    right = both & (rank[:, 1:] < rank[:, :-1])
    found: list[Found] = [("predicted", wanted / count, *ratio(predicted, words))]
    if bool(both.any()):
        found.append(("sees the word to its right", 0.5, *ratio(right, both)))
    return found


def ratio(part: Tensor, whole: Tensor) -> tuple[float, float]:
    """The share of a whole over all rows, and two standard errors of it: rows are independent."""
    of_part, of_whole = part.sum(dim=1).double(), whole.sum(dim=1).double()
    total = float(of_whole.sum())
    if not total:
        return 0.0, 0.0
    share = float(of_part.sum()) / total
    spread = float(((of_part - share * of_whole) ** 2).sum())
    return share, 2 * spread**0.5 / total
