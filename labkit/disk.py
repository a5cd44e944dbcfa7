"""What is written, made to last."""

import os
import sys
from pathlib import Path


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, survive a loss of power."""
    if path.is_dir() and sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
