"""Parameters of a notebook, checked before it runs.

papermill only logs a message when a name is misspelt, and runs with the defaults.  An hour later
one reads the result of a run that was never asked for; so names and types are checked first.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from labkit.cli import nearest

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
    kinds = [part.strip() for part in kind.replace("Optional[", "None | ").rstrip("]").split("|")]
    if "None" in kinds and word == "None":
        return None
    for part in kinds:
        try:
            return plain_value(word, part.split("[")[0])
        except (ValueError, SyntaxError, KeyError):
            continue
    raise ValueError(f"{word!r} is not of type {kind}")


def plain_value(word: str, kind: str) -> object:
    """Return the word as a value of one plain type."""
    match kind:
        case "str":
            return word
        case "bool":
            return BOOLEANS[word.lower()]
        case "int":
            return int(word)
        case "float":
            return float(word)
        case "list" | "tuple" | "dict" | "set":
            found = ast.literal_eval(word)
            if type(found).__name__ != kind:
                raise ValueError(f"{word!r} is a {type(found).__name__}")
            return found
    raise ValueError(f"values of type {kind} cannot be given on the command line")
