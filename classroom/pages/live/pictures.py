"""The stored pictures of a notebook that can be made live, without running the notebook.

A picture becomes live where its cell can be read: a call of a demo with plain values.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from classroom.demos.base import Demo
from classroom.demos.costs import costs_demo
from classroom.demos.ledger import ledger_demo
from classroom.demos.masks import masks_demo
from classroom.demos.orders import orders_demo
from classroom.demos.reach import reach_demo
from classroom.demos.schedule import schedule_demo
from classroom.pages.live.states import form, written_states

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
