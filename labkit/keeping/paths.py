"""Where the package finds its files: in a checkout and in an installed wheel alike.

The texts of `data/` stand at the root of the checkout, where a reader looks for them, and travel
inside the wheel as `labkit/data`.  `data_path` finds them in both, from any working directory.
"""

import functools
import os
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """Return the root of the checkout that the package runs from, or None in an installed wheel."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "notebooks").is_dir() else None


def to_install(extra: str) -> str:
    """Return the command that installs an extra: in a checkout, by the checkout's own path.

    By its name alone, pip would look for a labkit that is not installed on PyPI, where the name
    belongs to another project.
    """
    root = checkout()
    # Double quotes: the shells of Windows do not know single ones.
    return f'pip install "labkit[{extra}]"' if root is None else f'pip install -e "{root}[{extra}]"'


def data_path(*parts: str) -> Path:
    """Return the path of a file or folder of `data/`, such as `data_path("costs", "cells.csv")`."""
    installed = PACKAGE / "data"
    folder = installed if installed.is_dir() else PACKAGE.parent / "data"
    path = folder.joinpath(*parts)
    if not path.exists():
        near = path.parent
        names = ", ".join(sorted(p.name for p in near.iterdir())) if near.is_dir() else "nothing"
        raise FileNotFoundError(
            f"there is no {'/'.join(('data', *parts))}: {near} holds {names or 'nothing'}; "
            "give a name that is there, or install labkit again if its data are missing"
        )
    return path


@functools.cache
def instead_of_home() -> Path:
    """Return a folder for a user without a home folder, which nobody else can have filled."""
    # On Windows each user has a temporary folder of their own, and st_uid is always 0.
    me = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"labkit-{me}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        ours = not folder.is_symlink() and folder.stat().st_uid == me
    except OSError:
        ours = False
    return folder if ours else Path(tempfile.mkdtemp(prefix="labkit-"))
