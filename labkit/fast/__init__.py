"""Faster versions of the lesson's functions, which compute the same.

    with fast.enable():
        ...

The trainer and the sampler do this by themselves. LABKIT_FAST=0 in the environment switches them
off. Each version has a test that it equals the plain one (`tests/test_fast.py`) and a row in
`python -m labkit bench fast`.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from functools import cache
from threading import Lock
from typing import Any

from labkit.layers import replacements

_lock, _uses = Lock(), 0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's names for them, in malloc.h


@cache
def versions() -> dict[str, Callable[..., Any]]:
    """Every faster version, by the full name of the function that it replaces."""
    from labkit.fast import attention, decoding, dropout, nucleus, softmax

    return {
        "labkit.attention.attend": attention.attend,
        "labkit.attention.KeysValues.extended": attention.extended,
        "labkit.layers.drop": dropout.drop,
        "labkit.heads.losses": softmax.losses,
        "labkit.sampling.best_word": nucleus.best_word,
        "labkit.sampling.nucleus": nucleus.nucleus,
        "labkit.writing.reader.Reader.next_word": decoding.next_word,
        "labkit.writing.reader.select": decoding.select,
    }


def keep_memory() -> None:
    """Keep the memory that a step frees for the next step, where the C library allows it.

    By default, glibc returns the memory of large tensors to the system, which has to find new pages
    for the next step and fill them with zeros: ten thousand pages in a step of a small GPT.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other systems, other libraries
        mallopt = ctypes.CDLL(None).mallopt
        # Older ones refuse more than 32 MiB.
        if mallopt(M_MMAP_THRESHOLD, 2**30) or mallopt(M_MMAP_THRESHOLD, 2**25):
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


_keep_memory_once = cache(keep_memory)


@contextlib.contextmanager
def enable() -> Iterator[None]:
    """Use the faster versions in this block, in all threads: backward may run in another."""
    global _uses
    if os.environ.get("LABKIT_FAST", "1") == "0":
        yield
        return
    with _lock:
        _uses += 1
        if _uses == 1:
            _keep_memory_once()
            replacements.update(versions())
    try:
        yield
    finally:
        with _lock:
            _uses -= 1
            if not _uses:
                replacements.clear()
