"""Which code and data a result comes from."""

from collections.abc import Collection
from pathlib import Path

from labkit import __version__
from labkit.keeping.files import digest, file_digest
from labkit.keeping.paths import PACKAGE, data_path


def code_version(without: Collection[str] = ()) -> str:
    """Return the version of the package and a hash of its code and data.

    In a checkout both change while the version stays; old results are then not those of the new.
    `without` names modules that do not matter. What was measured (`data/claims`) never does.
    """
    names = []
    classroom = Path(__file__).resolve().parent
    for root, pattern, left_out in (
        (PACKAGE, "*.py", without),
        (classroom, "*.py", without),
        (data_path(), "*", ("claims",)),
    ):
        for path in sorted(root.rglob(pattern)):
            parts = path.relative_to(root).parts
            # Finder and JupyterLab leave hidden files behind.
            hidden = any(part.startswith((".", "__pycache__")) for part in parts)
            if path.is_file() and not hidden and parts[0] not in left_out:
                names.append(f"{path.relative_to(root).as_posix()} {file_digest(path)}")
    return f"{__version__}+{digest(*map(str.encode, names))[:12]}"
