"""Grids and shades of tensors, cut to what a picture has room for."""

from collections.abc import Sequence

import torch

from classroom.demos.pieces import Grid, Shades

DRAWN = 40
"""How many positions a picture of a mask has room for."""
ATTENDS = "a filled square says that the row may attend to the column"


def grid(
    mask: torch.Tensor,
    words: Sequence[str],
    *,
    title: str,
    down: Sequence[str] | None = None,
    filled: str = ATTENDS,
) -> Grid:
    """A mask [Q, K] as squares; the rows are labelled like the columns, or as `down` says."""
    left_out = f" The first {DRAWN} of {len(words)} positions." if len(words) > DRAWN else ""
    levels = mask[:DRAWN, :DRAWN].long().tolist()
    return Grid(
        levels=tuple(map(tuple, levels)),
        across=tuple(words[: min(DRAWN, mask.shape[1])]),
        down=tuple((words if down is None else down)[: len(levels)]),
        title=title,
        said=f"{title}: {filled}.{left_out}",
    )


def shades(
    weights: torch.Tensor,
    words: Sequence[str],
    *,
    title: str,
    memory: Sequence[str] = (),
    selected: int = -1,
    small: bool = False,
) -> Shades:
    """Shares [Q, K] as squares; first come the words of a memory, in brackets."""
    return Shades(
        shares=tuple(map(tuple, weights.tolist())),
        across=(*(f"({word})" for word in memory), *words),
        down=tuple(words),
        title=title,
        selected=selected if selected < len(words) else -1,
        act="" if small else "select",
        small=small,
    )
