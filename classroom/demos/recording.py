"""What a demo stores beside its picture, so that a page without a kernel can play it.

A demo with few states writes down the views of all of them, or of some of each control.  This takes
time, so it is done only where LABKIT_STORE is set: when the outputs of a notebook are stored.
"""

import base64
import gzip
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.keeping.files import with_numbers

MOST = 400
"""The most states of a demo that are stored."""
STORE = "LABKIT_STORE"
KEY = "labkit"
"""The key of the metadata of an output that holds what was recorded."""
DIGITS = 7
"""The digits that are stored of the numbers of a view: some more than are ever shown."""
LARGEST = 50_000_000
"""Bytes of a recording; those of the course have a few hundred thousand."""
Options = Mapping[str, Sequence[Any]]


def metadata(recorded: Callable[[], dict[str, Any]]) -> dict[str, str]:
    """The metadata of an output: what was recorded, where outputs are being stored."""
    return {KEY: packed(recorded())} if os.environ.get(STORE) else {}


def packed(data: Any) -> str:
    """Plain data as a short text; a reader's text may hold a lone surrogate."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    encoded = text.encode(errors="surrogatepass")
    return base64.b64encode(gzip.compress(encoded, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """The data that `packed` was given; a foreign notebook may bring any amount of it."""
    with gzip.open(io.BytesIO(base64.b64decode(text))) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"what was recorded has more than {LARGEST:,} bytes: it is not played")
    return json.loads(data)


def kept_values(demo: Any, options: Options | None = None) -> dict[str, list[Any]]:
    """The values of each control that are written down: evenly thinned, the present one kept.

    `options`, and `demo.kept`, list the values of some of the controls.
    """
    every = {name: choices(control) for name, control in demo.controls.items()}
    for name, values in {**demo.kept, **(options or {})}.items():
        present = demo.values[name]
        every[name] = list(values) if present in values else [present, *values]
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


def written_states(demo: Any, options: Options | None = None) -> dict[str, Any]:
    """The views of all states that are kept, and the controls.

    A view is a list of numbers of pieces; equal pieces are written once.
    """
    kept, known, views = kept_values(demo, options), dict[str, int](), []
    for state in itertools.product(*kept.values()):
        view = demo.draw(**{**demo.values, **dict(zip(kept, state, strict=True))})
        pieces = (
            with_numbers(piece.as_data(), lambda x: round(x, DIGITS)) for piece in view.pieces
        )
        written = map(json.dumps, pieces)
        views.append([known.setdefault(piece, len(known)) for piece in written])
    controls = [
        {
            "name": name,
            "said": demo.controls[name].description,
            "values": values,
            "at": values.index(demo.values[name]),
        }
        for name, values in kept.items()
    ]
    loaded = [json.loads(piece) for piece in known]
    return {"name": demo.name, "controls": controls, "views": views, "pieces": loaded}
