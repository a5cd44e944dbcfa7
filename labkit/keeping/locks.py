"""One holder of a file at a time; the system frees it when the process ends, however it ends."""

import contextlib
import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


def hold(path: Path) -> FileLock:
    """Hold `path` until the lock is released; a `BlockingIOError` says which process holds it.

    A file system without locks (some network disks) is treated as if nobody else were there.
    """
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = ""
        with contextlib.suppress(OSError):
            holder = path.read_text(encoding="utf-8").strip()
        raise BlockingIOError(holder) from None
    except (NotImplementedError, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno not in NO_LOCKS:
            raise
    with contextlib.suppress(OSError):  # Windows lets nobody write what is locked
        path.write_text(str(os.getpid()), encoding="utf-8")
    return lock
