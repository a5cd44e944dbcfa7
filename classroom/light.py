"""Import Jupyter's libraries without a slow dependency that they do not need.

Jupyter validates notebooks with jsonschema. If rfc3987_syntax is installed, jsonschema imports it,
and it builds a grammar of international addresses: 1.3 s of CPU time in every process that reads a
notebook, for a format that no schema of Jupyter uses.
"""

import importlib
import sys
from contextlib import suppress

GRAMMAR = "rfc3987_syntax"


def light_jsonschema() -> None:
    """Import jsonschema without its grammar of addresses, unless it is imported already."""
    if "jsonschema" in sys.modules or GRAMMAR in sys.modules:
        return
    sys.modules[GRAMMAR] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):
            importlib.import_module("jsonschema")
    finally:
        del sys.modules[GRAMMAR]
