"""Demos with few states: each view is written down, and a page shows the one that is asked for.

A stored picture of a notebook becomes live where its cell can be read without being run: a call of
a demo whose arguments are plain values.  The notebook itself is never run.
"""

import ast
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any

from classroom.demos import (
    Demo,
    costs_demo,
    ledger_demo,
    masks_demo,
    orders_demo,
    reach_demo,
    schedule_demo,
)

MOST = 400
"""How many states of a demo are written down."""
# The demos that need no model: a notebook's call of one is made again from its plain arguments.
MAKERS: dict[str, Callable[..., Demo]] = {
    "costs_demo": costs_demo,
    "ledger_demo": ledger_demo,
    "masks_demo": masks_demo,
    "orders_demo": orders_demo,
    "reach_demo": reach_demo,
    "schedule_demo": schedule_demo,
}
PICTURE = re.compile('class="labkit-view[^>]* data-demo="([^"]*)"')
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


# ---- the demos of a notebook ---------------------------------------------------------------------


def states_of(book: Any) -> Iterator[dict[str, Any]]:
    """The written states of each picture of a notebook that can be made live, with its controls.

    A picture stays a picture where the demo made anew would not show the same.
    """
    known, seen = constants(book), Counter[str]()
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            stored = output.get("data", {})
            for name in PICTURE.findall("".join(stored.get("text/html", ""))):
                nth, seen[name] = seen[name], seen[name] + 1
                demo = made_again(cell.source, known)
                told = "".join(stored.get("text/plain", ""))
                if demo is None or (demo.name, demo.shown.text) != (name, told):
                    continue
                written = written_states(demo)
                if len(written["views"]) > 1:
                    yield {**written, "nth": nth, "form": form(demo)}


def made_again(source: str, known: Mapping[str, Any]) -> Demo | None:
    """The demo that a cell calls and sets, or None where that cannot be read."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        [(maker, call)] = [(MAKERS[name_of(call.func)], call) for call in calls
                           if name_of(call.func) in MAKERS]  # fmt: skip
        demo = maker(*(value_of(one, known) for one in call.args), **keywords_of(call, known))
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "change":
                demo.change(**keywords_of(call, known))
    except Exception:  # A foreign notebook may give a demo anything: then its picture stays.
        return None
    return demo


def constants(book: Any) -> dict[str, Any]:
    """The names that a notebook sets once to a plain value."""
    found: dict[str, list[Any]] = {}
    for cell in book.cells:
        for node in ast.walk(parsed(cell)):
            for name, value in assigned(node):
                found.setdefault(name, []).append(value)
    once = {name: values[0] for name, values in found.items() if len(values) == 1}
    plain = {}
    for name, value in once.items():
        with suppress(Exception):
            plain[name] = ast.literal_eval(value)
    return plain


def assigned(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What a statement gives a value."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, getattr(node, "value", None)


def parsed(cell: Any) -> ast.Module:
    """The statements of a cell; none of what is no Python."""
    try:
        return ast.parse(cell.source if cell.cell_type == "code" else "")
    except SyntaxError:
        return ast.Module([], [])


def keywords_of(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments of a call."""
    return {str(word.arg): value_of(word.value, known) for word in call.keywords}


def value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A plain value, or that of a name; ValueError for what would have to be run."""
    return known[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def name_of(node: ast.expr) -> str:
    """The name that stands for a value; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else ""
