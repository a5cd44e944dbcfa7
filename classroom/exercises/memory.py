"""Exercises of notebook 10: what is kept of a segment, who sees it, the reach, distances."""

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def with_memory(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """What a layer looks at [B, M + T, D], and the last `length` positions of it, to be kept."""
    source = torch.cat([memory, states], dim=1)
    kept = source[:, max(source.shape[1] - length, 0) :]
    return source, kept.detach()


def memory_mask(length: int, memory: int) -> Tensor:
    """True [T, M + T] where a query of the segment may look at a key: all of memory, no future."""
    return torch.ones(length, memory + length, dtype=torch.bool).tril(diagonal=memory)


def furthest(position: int, segment: int, memory: int, layers: int) -> int:
    """The first position of the text that a prediction at `position` depends on."""
    for _ in range(layers):
        begins = position // segment * segment
        position = max(begins - memory, 0)
    return position


def relative_shift(scores: Tensor, keys: int) -> Tensor:
    """From scores [Q, K + Q - 1] of distances K - 1 ... 1 - Q to scores [Q, K] of the keys."""
    queries = len(scores)
    rows = [scores[i, queries - 1 - i : queries - 1 - i + keys] for i in range(queries)]
    return torch.stack(rows)


# ---- inputs -----------------------------------------------------------------------------------


def _layer(rng: torch.Generator) -> tuple[Tensor, Tensor, int]:
    rows, width = between(1, 3, rng), between(1, 4, rng)
    memory = torch.randn(rows, between(0, 4, rng), width, generator=rng)
    states = torch.randn(rows, between(1, 5, rng), width, generator=rng).requires_grad_()
    return memory, states, between(0, 7, rng)


def _reach(rng: torch.Generator) -> tuple[int, int, int, int]:
    return between(0, 60, rng), between(1, 9, rng), between(0, 12, rng), between(1, 4, rng)


def _scores(rng: torch.Generator) -> tuple[Tensor, int]:
    queries = between(1, 5, rng)
    keys = queries + between(0, 4, rng)
    return torch.randn(queries, keys + queries - 1, generator=rng).requires_grad_(), keys


# ---- mistakes ---------------------------------------------------------------------------------


def _keeps_all_of_zero(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    source = torch.cat([memory, states], dim=1)
    return source, source[:, -length:].detach()


def _unclamped(position: int, segment: int, memory: int, layers: int) -> int:
    for _ in range(layers):
        position = position // segment * segment - memory
    return position


EXERCISES: dict[str, Exercise] = {
    "10.memory": Function(
        "a pair: what the layer looks at, [memory, states], and its last `length` positions, "
        "detached",
        with_memory,
        _layer,
        (
            ("memory comes before the states: the queries are the last of the keys",
             lambda memory, states, length:
             (torch.cat([states, memory], dim=1), with_memory(memory, states, length)[1])),
            ("memory comes before the states, in what is kept as well",
             lambda memory, states, length: with_memory(states, memory, length)),
            ("keep the last positions of memory *and* states, even where the segment is shorter"
             " than the memory",
             lambda memory, states, length:
             (with_memory(memory, states, length)[0],
              with_memory(states[:, :0], states, length)[1])),
            ("those are the first positions: keep the last ones",
             lambda memory, states, length:
             (with_memory(memory, states, length)[0],
              with_memory(memory, states, length)[0][:, :length].detach())),
            ("with length 0 nothing is kept, but [-0:] is everything", _keeps_all_of_zero),
        ),
        properties=(
            ("a gradient flows into what is kept: detach it, or the next segment learns through "
             "all segments before it", lambda kept, *_: not kept[1].requires_grad),
        ),
        learned="a memory of states",
    ),
    "10.mask": Function(
        "a boolean [T, M + T]: a query may look at all of the memory, and at its segment up to "
        "itself",
        memory_mask,
        lambda rng: (between(1, 6, rng), between(0, 5, rng)),
        (
            ("the memory's columns come first: the diagonal begins that many columns further right",
             lambda length, memory:
             torch.ones(length, memory + length, dtype=torch.bool).tril()),
            ("a position may look at itself, too",
             lambda length, memory: memory_mask(length, memory).tril(diagonal=memory - 1)),
            ("the memory comes first: its columns are the left ones",
             lambda length, memory: memory_mask(length, memory).roll(length, dims=1)),
            ("True means that a query may look; that marks what is forbidden",
             lambda *given: ~memory_mask(*given)),
            ("that lets the segment see its own future",
             lambda length, memory: torch.ones(length, memory + length, dtype=torch.bool)),
        ),
        learned="queries are the last of the keys",
        hint="Query i is at key M + i and may look at the keys up to there.",
    ),
    "10.reach": Function(
        "the first position, counted from 0, that a prediction at `position` depends on",
        furthest,
        _reach,
        (
            ("a layer looks back from the beginning of the segment, not from the position itself",
             lambda position, segment, memory, layers: max(position - layers * memory, 0)),
            ("that is the reach of one layer: the layer below has looked back as well",
             lambda position, segment, memory, layers: furthest(position, segment, memory, 1)),
            ("nothing comes before position 0", _unclamped),
            ("a remembered state has seen its own segment from the beginning: go to the "
             "beginning of its segment in each layer",
             lambda position, segment, memory, layers:
             max(position // segment * segment - layers * memory, 0)),
        ),
        minutes=10,
        learned="reach grows with depth",
        hint="Layer by layer: where does the segment begin, and where does its memory?",
    ),
    "10.shift": Function(
        "the scores [Q, K] of each query and key: key j is K − Q + i − j before query i",
        relative_shift,
        _scores,
        (
            ("nothing was shifted: each query finds a distance in another column",
             lambda scores, keys: scores[:, :keys]),
            ("the rows move the wrong way: the later the query, the further away the first key is",
             lambda scores, keys:
             torch.stack([scores[i, i : i + keys] for i in range(len(scores))])),
            ("the columns begin with the largest distance, K − 1, not with the smallest",
             lambda scores, keys: relative_shift(scores.flip(1), keys)),
            ("that is one column too far to the right: the last query finds key 0 in column 0",
             lambda scores, keys: relative_shift(scores.roll(-1, dims=1), keys)),
        ),
        minutes=15,
        learned="relative positions without a loop",
    ),
}  # fmt: skip
