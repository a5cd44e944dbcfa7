"""Parameters of a notebook, checked before it runs.

papermill only logs a message when a name is misspelt, and runs with the defaults.  The mistake
might show after an hour, or never; so names and types are checked first.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from classroom.cli.parser import fail, unknown
from labkit.checks import clipped, shown

MOST = 10_000
"""The most values of one parameter, and the most runs of one sweep."""
# What text that is not a value can raise, also text of too many brackets or signs.
LITERAL_ERRORS = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)
OPTIONS = ("-p", "--parameter", "--where-known")
"""The options whose argument is a parameter and what it is set to."""
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of the wrong type."""


def with_equals(words: Sequence[str]) -> list[str]:
    """Return the words of a command with each `-p NAME VALUE` as `-p NAME=VALUE`."""
    found, left = list[str](), list(words)
    while left:
        found.append(left.pop(0))
        if found[-1] not in OPTIONS or len(left) < 2:
            continue
        # In `-p seed --list` the value is missing.
        if re.fullmatch("[^-=][^=]*", left[0]) and not re.match("--?[A-Za-z]", left[1]):
            found.append(f"{left.pop(0)}={left.pop(0)}")
    return found


def pair(word: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE, for an argument of that type."""
    name, equals, words = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(
            f"{shown(word)} is not NAME=VALUE: give a name and a value, as in seed=3"
        )
    return name, words


def once(who: str, args: Any, advice: str = "give one value") -> dict[str, str]:
    """Return the words of each parameter and of --profile; leave if one is given twice."""
    given: dict[str, str] = {}
    profile = [("profile", args.profile)] if args.profile else []
    for name, words in [*args.parameter, *profile]:
        if name in given:
            fail(f"{who}: {name} is given twice: {advice}")
        given[name] = words
    return given


def checked(notebook: Path, given: Mapping[str, str]) -> dict[str, object]:
    """Return the given words as values of the types that the notebook's parameters have."""
    rows = known(notebook, given)
    return {name: typed(name, word, rows[name]) for name, word in given.items()}


def checked_grid(notebook: Path, given: Mapping[str, str]) -> dict[str, list[object]]:
    """Return the values of each parameter that words such as `0.1,0.2` or `0:5` stand for."""
    rows = known(notebook, given)
    grid = {}
    for name, words in given.items():
        row = rows[name]
        texts = fits("", annotation(kind_of(row["inferred_type_name"], row["default"])))
        found = [typed(name, word, row) for word in listed(name, words, ranges=not texts)]
        # Compared by how they are written: True is not 1, and a list has no hash.
        grid[name] = list({repr(value): value for value in found}.values())
    return grid


def known(notebook: Path, given: Iterable[str]) -> dict[str, Any]:
    """Return the notebook's parameters as papermill finds them, if the given names are there."""
    rows = declared(notebook)
    for name in given:
        if name not in rows:
            raise ParameterError(unknown("parameter", name, rows))
        default = rows[name]["default"]
        if not kind_of(rows[name]["inferred_type_name"], default):
            raise ParameterError(
                f"parameter {name}: {clipped(default, 60)} does not show its type: annotate it in "
                f"the notebook, as in {name}: int = …"
            )
    return rows


def declared(notebook: Path) -> dict[str, dict[str, str]]:
    """Return the type, default and comment of each parameter of a notebook, by name.

    `papermill.inspect_notebook` finds the same, but papermill takes two seconds to import.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
        source = "".join(tagged[0]["source"]) if tagged else ""
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ParameterError(
            f"the cell tagged parameters is not plain Python: line {error.lineno}: {error.msg} "
            "(magics such as %matplotlib belong in another cell)"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ParameterError(f"{notebook} is not a notebook: {error}") from None
    # papermill writes the given values below the first such cell; a second one would undo them.
    if len(tagged) > 1 or any(cell["cell_type"] != "code" for cell in tagged):
        raise ParameterError("give the tag parameters to one code cell, and to no other cell")
    lines, rows = re.split(r"\r\n|\r|\n", source), {}  # as `ast` counts lines
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if not isinstance(target, ast.Name):
            continue
        kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else "None"
        after = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :]
        rows[target.id] = {
            "inferred_type_name": kind,
            "default": ast.get_source_segment(source, node.value) or "",
            "help": after.decode().partition("#")[2].strip(),
        }
    return rows


def typed(name: str, word: str, row: Mapping[str, str]) -> object:
    """Return the word as a value of the type that a parameter has."""
    default = row["default"]
    try:
        return value(word, kind_of(row["inferred_type_name"], default))
    except ValueError as error:
        raise ParameterError(f"parameter {name}: {error} (its default is {default})") from None


def listed(name: str, words: str, ranges: bool) -> list[str]:
    """Split words such as `a,b,c` at commas outside brackets; `0:3` means 0,1,2 in `ranges`."""
    found: list[str] = []
    for word in pieces(words):
        ends = re.fullmatch(r"(-?\d{1,18}):(-?\d{1,18})", word) if ranges else None
        if ends is None:
            found.append(word)
        elif int(ends[2]) - int(ends[1]) > MOST:
            raise ParameterError(
                f"parameter {name}: {clipped(word, 60)} has more than {MOST:,} values"
            )
        elif int(ends[1]) < int(ends[2]):
            found += map(str, range(int(ends[1]), int(ends[2])))
        else:
            raise ParameterError(
                f"parameter {name}: {clipped(word, 60)} is empty, since the end is excluded"
            )
    if not words:
        raise ParameterError(f"parameter {name}: give a value after the =")
    if not all(found):
        raise ParameterError(f"parameter {name}: a value is missing in {shown(words)}")
    return found


def pieces(words: str) -> list[str]:
    """Split at the commas that are outside all brackets."""
    found, depth = [""], 0
    for letter in words:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return [word.strip() for word in found]


def kind_of(annotation: str, default: str) -> str:
    """Return the type of a parameter: as annotated, else as its default shows, or nothing."""
    if annotation and annotation != "None":
        return annotation
    try:
        found = ast.literal_eval(default)
    except LITERAL_ERRORS:
        return ""
    return "str | None" if found is None else type(found).__name__


def value(word: str, kind: str) -> object:
    """Return the word as a value of a type such as `int`, `float | None` or `list[int]`."""
    wanted = annotation(kind)
    if fits(None, wanted) and word == "None":
        return None
    if fits(word, wanted):
        return word
    if fits(True, wanted) and word.lower() in BOOLEANS:
        return BOOLEANS[word.lower()]
    try:
        found = ast.literal_eval(word)
    except LITERAL_ERRORS:
        found = word
    if not fits(found, wanted):
        raise ValueError(f"{shown(word)} is not of type {kind}")
    try:
        found = float(found) if kind == "float" else found
        json.dumps(found, allow_nan=False)  # the notebook's file keeps the values
    except OverflowError:
        raise ValueError(f"{shown(word)} is too large for type {kind}") from None
    except (TypeError, ValueError):
        raise ValueError(
            f"{shown(word)} cannot be stored in a notebook: give finite numbers, texts, or lists, "
            "tuples and dicts of them"
        ) from None
    return found


def annotation(kind: str) -> ast.expr:
    """Return the parsed annotation of a type."""
    try:
        return ast.parse(kind.strip(), mode="eval").body
    except LITERAL_ERRORS:
        raise ParameterError(f"its type {kind!r} cannot be read: correct the notebook") from None


def fits(found: object, wanted: ast.expr) -> bool:
    """Return whether a value has the type of an annotation."""
    match wanted:
        case ast.BinOp(left=left, right=right):  # a | b
            return fits(found, left) or fits(found, right)
        case ast.Constant(value=None):
            return found is None
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return found is None or fits(found, inner)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            return repr(found) in map(ast.unparse, _parts(inner))
        case ast.Subscript(value=whole, slice=inner):
            parts = _parts(inner)
            items = found if isinstance(found, list | tuple | set) else ()
            known = [part for part in parts if ast.unparse(part) != "..."]
            return fits(found, whole) and all(any(fits(x, p) for p in known) for x in items)
        case ast.Name(id="float"):
            return type(found) in (int, float)
        case ast.Name(id=name):
            return type(found).__name__ == name
    return False


def _parts(inner: ast.expr) -> list[ast.expr]:
    """Return the types in the brackets of a type."""
    return inner.elts if isinstance(inner, ast.Tuple) else [inner]
