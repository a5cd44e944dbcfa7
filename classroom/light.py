"""Jupyter's libraries without what only makes them slow to import.

They check notebooks with jsonschema, which builds a grammar of international addresses as it is
imported, if there is one to build: 1.3 s of a processor, in every process that reads a notebook,
for a format that no schema of Jupyter's names.
"""

import importlib
import sys
from contextlib import suppress

GRAMMAR = "rfc3987_syntax"


def light_jsonschema() -> None:
    """Import jsonschema, if it is there and not yet imported, without its grammar of addresses."""
    if "jsonschema" in sys.modules or GRAMMAR in sys.modules:
        return
    sys.modules[GRAMMAR] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):
            importlib.import_module("jsonschema")
    finally:
        del sys.modules[GRAMMAR]
