"""Memory that a step has freed stays with the process."""

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's names for them, in malloc.h


def keep_memory() -> None:
    """Let this process keep what a step has freed for the next one, where it can be told to.

    Linux's C library gives large tensors back to the system, and the next step gets pages that the
    system has to find and to fill with zeros first: ten thousand of them in a step of a small GPT.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other systems, other libraries
        mallopt = ctypes.CDLL(None).mallopt
        # Older ones refuse more than 32 MiB.
        if mallopt(M_MMAP_THRESHOLD, 2**30) or mallopt(M_MMAP_THRESHOLD, 2**25):
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
