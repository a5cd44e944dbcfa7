"""Memory and reach, to look at: how far back a position can reach, layer by layer.

Transformer-XL, Dai et al. 2019, section 3.2 and figure 2: each layer looks `memory` positions
beyond its segment, at states that have themselves looked back.  Read `reach_view`.
"""

import ipywidgets as widgets
import torch
from torch import Tensor

from classroom.demos.base import Demo, whole_slider
from classroom.demos.pieces import Heading, Note, Table
from classroom.demos.rendering import View
from classroom.demos.squares import grid


def attended(segment: int, memory: int, length: int) -> Tensor:
    """True [T, T] where, within one layer, a position of a long text attends to another one."""
    position = torch.arange(length)
    begins = position // segment * segment
    back = (begins - memory).clamp(min=0)
    return (position <= position[:, None]) & (position >= back[:, None])


def heard(segment: int, memory: int, layers: int, position: int) -> Tensor:
    """True [layers + 1, T]: what the top state of a position depends on, the top first.

    The last row is the words: the furthest one on the left is the reach.
    """
    length = (position // segment + 1) * segment
    mask = attended(segment, memory, length)
    row = torch.zeros(length, dtype=torch.bool)
    row[position] = True
    rows = [row]
    for _ in range(layers):
        # A state is made of all that its layer attends to.
        row = mask[row].any(dim=0)
        rows.append(row)
    return torch.stack(rows)


def reach_view(segment: int, memory: int, layers: int, segments: int, position: int) -> View:
    """What a position of the last segment (from 1) can depend on, with memory and without."""
    if not 1 <= position <= segment:
        raise ValueError(f"position {position}: a segment has the positions 1 to {segment}")
    at = (segments - 1) * segment + position - 1
    found = heard(segment, memory, layers, at)
    alone = heard(segment, 0, layers, at)
    names = [f"{n // segment + 1}.{n % segment + 1}" for n in range(found.shape[1])]
    down = [f"layer {n}" if n else "words" for n in range(layers, -1, -1)]
    filled = f"a filled square says that layer {layers} at {names[at]} depends on it"
    rows = tuple(
        (name, str(int(words_T.sum())), str(at - int(words_T.nonzero()[0])))
        for name, words_T in (("with memory", found[-1]), ("without", alone[-1]))
    )
    return View.of(
        "memory-reach",
        Heading("Segment.position across, layers down to the words"),
        grid(found, names, title=f"A memory of {memory}", down=down, filled=filled),
        grid(alone, names, title="No memory", down=down, filled=filled),
        Table(("", "words within reach", "furthest word back"), rows, "reach"),
        Note(
            f"Each layer reaches {memory} positions back beyond its segment. States are not "
            f"recomputed, so the reach is at most {most(segment, memory, layers)} before the "
            "segment.",
            "rule",
        ),
    )


def most(segment: int, memory: int, layers: int) -> str:
    """How far back of its segment a state can hear, as a sum or product.

    A remembered state has heard all of its own segment: a layer below begins at that one's start.
    """
    whole = -(-memory // segment) * segment
    if memory == whole or layers == 1:
        return f"{layers} × {memory}"
    return f"{memory} + {layers - 1} × {whole}"


def reach_demo(segment: int = 4, memory: int = 4, layers: int = 3) -> Demo:
    """Slide the sizes of a Transformer-XL and see how far it can look back."""

    def draw(segment: int, memory: int, layers: int, segments: int, position: int) -> View:
        return reach_view(segment, memory, layers, segments, min(position, segment))

    longest = max(8, segment)
    controls = {
        "segment": whole_slider("segment", segment, 1, longest),
        "memory": whole_slider("memory", memory, 0, max(16, memory)),
        "layers": whole_slider("layers", layers, 1, max(6, layers)),
        "segments": whole_slider("segments", 5, 1, 5),
        "position": whole_slider("position", segment, 1, segment),
    }
    widgets.dlink((controls["segment"], "value"), (controls["position"], "max"))
    return Demo("memory-reach", draw, controls, kept={"position": range(1, longest + 1)})
