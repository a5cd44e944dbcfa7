"""Parameters of a notebook, checked before it runs.

papermill only logs a message when a name is misspelt, and runs with the defaults.  An hour later
one reads the result of a run that was never asked for; so names and types are checked first.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from labkit.cli.parser import nearest

BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of the wrong type."""


def checked(notebook: Path, given: Mapping[str, str]) -> dict[str, object]:
    """Return the given words as values of the types that the notebook's parameters have."""
    import papermill

    known = papermill.inspect_notebook(str(notebook))
    values: dict[str, object] = {}
    for name, word in given.items():
        if name not in known:
            raise ParameterError(
                f"there is no parameter {name}{nearest(name, list(known))} "
                f"(the parameters: {', '.join(known) or 'none'})"
            )
        kind, default = known[name]["inferred_type_name"], known[name]["default"]
        try:
            values[name] = value(word, kind_of(kind, default))
        except ValueError as error:
            raise ParameterError(f"parameter {name}: {error} (its default is {default})") from None
    return values


def kind_of(annotation: str, default: str) -> str:
    """Return the type of a parameter: as annotated, else as its default shows."""
    if annotation and annotation != "None":
        return annotation
    try:
        found = ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return "str"
    return "str | None" if found is None else type(found).__name__


def value(word: str, kind: str) -> object:
    """Return the word as a value of a type such as `int`, `float | None` or `list[int]`."""
    wanted = ast.parse(kind.strip(), mode="eval").body
    if fits(None, wanted) and word == "None":
        return None
    if fits("", wanted):
        return word
    if fits(True, wanted) and word.lower() in BOOLEANS:
        return BOOLEANS[word.lower()]
    try:
        found = ast.literal_eval(word)
    except (ValueError, SyntaxError):
        found = word
    if not fits(found, wanted):
        raise ValueError(f"{word!r} is not of type {kind}")
    return float(found) if kind == "float" else found


def fits(found: object, wanted: ast.expr) -> bool:
    """Say whether a value is of the type that an annotation asks for."""
    match wanted:
        case ast.BinOp(left=left, right=right):  # a | b
            return fits(found, left) or fits(found, right)
        case ast.Constant(value=None):
            return found is None
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return found is None or fits(found, inner)
        case ast.Subscript(value=whole, slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            items = found if isinstance(found, list | tuple | set) else ()
            known = [part for part in parts if ast.unparse(part) != "..."]
            return fits(found, whole) and all(any(fits(x, p) for p in known) for x in items)
        case ast.Name(id="float"):
            return type(found) in (int, float)
        case ast.Name(id=name):
            return type(found).__name__ == name
    return False
