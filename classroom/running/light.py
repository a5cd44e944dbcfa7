"""Import Jupyter's libraries without slow dependencies that they do not need.

Jupyter validates notebooks with jsonschema. If rfc3987_syntax is installed, jsonschema imports it,
and it builds a grammar of international addresses: 1.3 s of CPU time in every process that reads a
notebook, for a format that no schema of Jupyter uses. If pyarrow is installed, papermill imports
it, for notebooks that lie in Hadoop: half a second in every process that runs one.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GRAMMAR = "rfc3987_syntax"
HADOOP = "pyarrow"


def light_jsonschema() -> None:
    """Import jsonschema without its grammar of addresses, unless it is imported already."""
    if "jsonschema" not in sys.modules:
        with without(GRAMMAR), suppress(ImportError):
            importlib.import_module("jsonschema")


def light_papermill() -> None:
    """Import papermill without what reads from Hadoop, unless it is imported already."""
    light_jsonschema()
    if "papermill" not in sys.modules:
        with without(HADOOP), suppress(ImportError):
            importlib.import_module("papermill")


@contextmanager
def without(module: str) -> Iterator[None]:
    """Let a module that is not imported yet be missing."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
