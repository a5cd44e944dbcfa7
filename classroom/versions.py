"""Which code and data a result comes from."""

import os
import platform
import time
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

from labkit import __version__
from labkit.keeping.files import digest, file_digest
from labkit.keeping.paths import PACKAGE, data_path

CARD = "card.json"
"""The file in a model's folder that says how it was trained, and how good it is."""
# Files and folders that do not affect the result of an experiment, or how a model is trained.
NOT_MEASURING = ("charts", "cli", "demos", "exercises", "grading", "judging.py", "ledger.py",
                 "pages", "running")  # fmt: skip
NOT_TRAINING = (*NOT_MEASURING, "claims", "leaks")
SETTLED = 10.0
"""Seconds after which a change of a file shows in its times, on any file system."""


def code_version(without: Collection[str] = ()) -> str:
    """Return the version of the package and a hash of its code and data.

    In a checkout both change while the version stays; old results are then not those of the new.
    `without` names modules that do not matter. What was measured (`data/claims`) never does.
    """
    names = []
    classroom = Path(__file__).resolve().parent
    for root, end, left_out in (
        (PACKAGE, ".py", without),
        (classroom, ".py", without),
        (data_path(), "", ("claims",)),
    ):
        for parts in sorted(_files(root)):
            if parts[-1].endswith(end) and parts[0] not in left_out:
                names.append(f"{'/'.join(parts)} {_content(root.joinpath(*parts))}")
    return f"{__version__}+{digest(*map(str.encode, names))[:12]}"


def result_version(without: Collection[str] = ()) -> str:
    """Return what a result depends on besides its inputs: the code, the data, the libraries.

    The number of threads, too: more of them add up in another order.
    """
    import numpy as np
    import torch

    libraries = (
        f"python {platform.python_version()} torch {torch.__version__} numpy {np.__version__}"
    )
    return f"{code_version(without)} {libraries} threads {torch.get_num_threads()}"


def _files(root: Path) -> Iterator[tuple[str, ...]]:
    """The files below a folder, as the parts of their paths from there."""
    for folder, inner, files in os.walk(root):
        # Finder and JupyterLab leave hidden files behind.
        inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
        parts = Path(folder).relative_to(root).parts
        for name in files:
            if not name.startswith((".", "__pycache__")) and Path(folder, name).is_file():
                yield (*parts, name)


def _content(path: Path) -> str:
    """The digest of a file; each training asks for those of hundreds that nobody has changed."""
    found = path.stat()
    when = max(found.st_mtime, found.st_ctime)
    if time.time() - when < SETTLED:
        return file_digest(path)
    return _known(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=1 << 12)
def _known(path: Path, *state: int) -> str:
    return file_digest(path)
