"""What an objective allows: its masks, composed layer by layer.

A position knows what those know that it looks at, and itself. Nothing here asks the model what it
does: the masks are written down again from what the objective says, so that a model which does not
keep to them is found out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.objectives import (
    CBOW,
    Both,
    BothDirections,
    Labels,
    MaskedToken,
    Objective,
    Permutation,
    SkipGram,
    SpanEnds,
    Targets,
)


def allow(backbone: Any, objective: Objective, asked: Sequence[Targets]) -> Tensor:
    """Which words of all segments each prediction may depend on: [N, B, K]."""
    last = asked[-1]
    rows, width = last.inputs.tokens.shape
    looks = look(backbone, objective, asked)
    found = []
    for part, own, name in terms_of(objective, last):
        targets = own.predicted[name]
        through = look_for(looks, part, name)
        reach = compose(backbone, through, query=isinstance(part, Permutation))
        offset = reach.shape[-1] - width
        positions_N = targets.positions_N
        if last.queries is not None:
            positions_N = last.queries[targets.rows_N, positions_N]
        seen = reach[targets.rows_N, offset + positions_N]
        pooled = isinstance(part, Labels) and part.position == "pooled"
        if pooled or isinstance(part, SpanEnds):
            real = torch.zeros(rows, reach.shape[-1], dtype=torch.bool)
            real[:, offset : offset + own.inputs.real.shape[1]] = own.inputs.real
            seen = (reach & real[:, :, None]).any(dim=1)[targets.rows_N]
        if isinstance(part, CBOW):
            near = own.sampled[0][:, :, None] == last.inputs.tokens[targets.rows_N][:, None]
            seen = (near & own.sampled[1][:, :, None]).any(dim=1)
        own_row = torch.arange(rows) == targets.rows_N[:, None]
        table = own_row[:, :, None] & seen[:, None, :]
        choices = choices_of(part)
        found.append(table.unflatten(0, (-1, choices)).any(dim=1) if len(table) else table)
    return torch.cat(found)


def terms_of(objective: Objective, targets: Targets) -> Iterator[tuple[Objective, Targets, str]]:
    """Each term, in the order of the scores, with the objective that asks for it and its targets.

    Of several objectives at once it is one of their parts.
    """
    if isinstance(objective, Both):
        for part, own in zip(objective.parts, targets.parts, strict=True):
            yield from terms_of(part, own)
    else:
        for name in targets.predicted:
            yield objective, targets, name


def choices_of(objective: Objective) -> int:
    """How many rows are the choices of one question."""
    return objective.choices if isinstance(objective, Labels) else 1


class Looks(NamedTuple):
    """Who may look at whom in one layer, over all segments: [B, K, K]."""

    content: Tensor
    query: Tensor | None = None


def look(backbone: Any, objective: Objective, asked: Sequence[Targets]) -> Looks:
    """The rule of one layer, from the masks of the objective."""
    widths = [targets.inputs.tokens.shape[1] for targets in asked]
    length, rows = sum(widths), len(asked[-1].inputs)
    both = torch.zeros(2, rows, length, length, dtype=torch.bool)
    for i, targets in enumerate(asked):
        start, end = sum(widths[:i]), sum(widths[: i + 1])
        here = slice(start, end)
        for stream, mask in enumerate(masks(backbone, objective, targets)):
            both[stream, :, here, here] = mask.expand(rows, 1, end - start, end - start)[:, 0]
        both[:, :, here, :start] = from_memory(backbone, objective, asked[: i + 1], start)[:, None]
    return Looks(*both)


def look_for(looks: Looks, objective: Objective, term: str) -> Looks:
    """The same, where a term is predicted from less: from one direction, or from a word alone."""
    length = looks.content.shape[-1]
    if isinstance(objective, BothDirections):
        left = not_later(length)
        return Looks(looks.content & (left if term == "next" else left.T))
    if isinstance(objective, SkipGram | CBOW):
        return Looks(torch.eye(length, dtype=torch.bool).expand_as(looks.content))
    return looks


def masks(backbone: Any, objective: Objective, targets: Targets) -> list[Tensor]:
    """The masks within a segment: that of the content, and that of XLNet's queries."""
    seen = targets.inputs
    if isinstance(objective, Permutation):
        assert targets.order is not None
        rank = targets.order.rank
        # Of each query, as a row, and of each key, as a column: the key is not later, or earlier.
        of_query, of_key = rank[:, None, :, None], rank[:, None, None, :]
        found = [of_key <= of_query, of_key < of_query]
    else:
        length = seen.tokens.shape[1]
        left = targets.causal or backbone.causal
        found = [not_later(length) if left else torch.ones(length, length, dtype=torch.bool)]
    if seen.documents is not None:
        same = seen.documents[:, None, :, None] == seen.documents[:, None, None, :]
        found = [mask & same for mask in found]
    return [mask & seen.real[:, None, None, :] for mask in found]


def from_memory(
    backbone: Any, objective: Objective, asked: Sequence[Targets], start: int
) -> Tensor:
    """Which of the `start` words before the last segment its rows may look at: [B, K]."""
    fresh = asked[-1].fresh
    past = torch.zeros(len(fresh), 0, dtype=torch.bool)
    if not objective.remembers or not start:
        return past.new_zeros(len(fresh), start)
    for targets in asked[:-1]:
        past = torch.cat([past & ~targets.fresh[:, None], targets.inputs.real], dim=1)
    # Of each segment, memory holds the first `reuse` words, where the objective says so.
    reuse = objective.reuse if isinstance(objective, Permutation) else None
    widths = [targets.inputs.real.shape[1] for targets in asked[:-1]]
    stored = torch.cat([torch.arange(width) < (reuse or width) for width in widths])
    from_the_end = stored.flip(0).cumsum(0).flip(0)
    kept = start if backbone.memory_length is None else backbone.memory_length
    return past & ~fresh[:, None] & stored & (from_the_end <= kept)


def compose(backbone: Any, looks: Looks, query: bool = False) -> Tensor:
    """What each position may know after all layers: what those know that it looks at: [B, K, K]."""
    length = looks.content.shape[-1]
    know = torch.eye(length, dtype=torch.bool).expand_as(looks.content)
    guess = torch.zeros_like(know)
    for layer in range(backbone.layers):
        band = backbone.band(layer)
        near = torch.ones(length, length, dtype=torch.bool)
        if band is not None:
            near = near.triu(1 - band).tril(band - 1)
        if query:
            assert looks.query is not None
            guess = guess | known_through(looks.query & near, know)
        know = know | known_through(looks.content & near, know)
    return guess if query else know


def not_later(length: int) -> Tensor:
    """True where a key stands where the query stands, or before it."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def known_through(looks: Tensor, know: Tensor) -> Tensor:
    """Who knows what through those that it looks at."""
    return looks.float() @ know.float() > 0


def readable(objective: Objective, batch: Batch, targets: Targets, chance: Chance) -> Tensor:
    """True [B, T] where the model may read which word stands there: not where it was hidden.

    Of the words that a masked language model predicts, it may read those that chance kept.
    """
    width = targets.inputs.tokens.shape[1]
    may_read = torch.ones(len(batch), width, dtype=torch.bool)
    while isinstance(objective, Both):
        objective = objective.parts[0]
    if isinstance(objective, MaskedToken):
        chance = Chance.of_examples(chance.seed, batch.examples) if objective.static else chance
        asked = targets.predicted["masked"]
        kept = chance.uniform("fate", width) >= objective.shares[0] + objective.shares[1]
        may_read[asked.rows_N, asked.positions_N] = kept[asked.rows_N, asked.positions_N]
    return may_read
