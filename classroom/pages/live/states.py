"""Demos with few states: each view is written down, and a page shows the one that is asked for."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from classroom.demos.base import Demo

MOST = 400
"""How many states of a demo are written down."""
Options = Mapping[str, Sequence[Any]]


def kept_values(demo: Demo, options: Options | None = None) -> dict[str, list[Any]]:
    """The values of each control that are written down: evenly thinned, the present one kept.

    `options` lists the values of controls that somebody types into.
    """
    every = {name: choices(control) for name, control in demo.controls.items()}
    every |= {name: list(values) for name, values in (options or {}).items()}
    kept = {name: values for name, values in every.items() if len(values) > 1}
    while math.prod(map(len, kept.values())) > MOST:
        name = max(kept, key=lambda name: len(kept[name]))
        present = demo.values[name]
        fewer = sorted({*kept[name][::2], present}, key=every[name].index)
        kept[name] = fewer if len(fewer) < len(kept[name]) else [present]
    return kept


def choices(control: Any) -> list[Any]:
    """All values of a control; none for what is typed."""
    if hasattr(control, "options"):
        return [one[1] if isinstance(one, tuple) else one for one in control.options]
    if not hasattr(control, "step"):
        return []
    count = round((control.max - control.min) / control.step) + 1
    kind = type(control.value)
    # Of a very fine slider only so many values, and the present one.
    some = range(0, count, -(-count // (2 * MOST)))
    values = {kind(round(control.min + i * control.step, 6)) for i in some}
    return sorted({*values, control.value})


def written_states(demo: Demo, options: Options | None = None) -> dict[str, Any]:
    """The views of all states that are kept; equal views are written once."""
    kept, views, which = kept_values(demo, options), dict[str, int](), []
    for state in itertools.product(*kept.values()):
        view = demo.draw(**{**demo.values, **dict(zip(kept, state, strict=True))})
        pieces = json.dumps([piece.as_data() for piece in view.pieces])
        which.append(views.setdefault(pieces, len(views)))
    sizes = [len(values) for values in kept.values()]
    shown = [json.loads(pieces) for pieces in views]
    return {"name": demo.name, "sizes": sizes, "which": which, "views": shown}


def form(demo: Demo, options: Options | None = None) -> str:
    """The controls of a demo whose views were written down: each slides over its kept values."""
    fields = "".join(
        f"<label>{escape(demo.controls[name].description)} <output></output>"
        f'<input type="range" name="{escape(name)}" min="0" max="{len(values) - 1}" '
        f'value="{values.index(demo.values[name])}" data-said="{escape(json.dumps(values))}">'
        "</label>"
        for name, values in kept_values(demo, options).items()
    )
    return f'<form>{fields}<button type="button" data-does="reset">reset</button></form>'
