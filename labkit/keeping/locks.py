"""A lock on a file, which the system frees when the process that holds it ends, however it ends."""

import errno
import os
import sys
import weakref
from pathlib import Path

FAR = 2**30
"""The position of the byte that is locked: on Windows nobody can read what is locked."""


class Lock:
    """Hold `path` until `release`; a `BlockingIOError` says that somebody else holds it.

    A file system without locks (some network disks) is treated as if nobody else were there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, handle)
        try:
            _lock(handle)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode() if hasattr(os, "pread") else ""
            self.release()
            raise BlockingIOError(holder.strip()) from None
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())

    def release(self) -> None:
        """Let others have it."""
        self._close()


def _lock(handle: int) -> None:
    """Lock an open file at once or not at all."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as problem:
            raise BlockingIOError from problem
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BlockingIOError from problem
