"""Faster versions of the lesson's functions, which compute the same.

    with fast.enable():
        ...

The trainer and the sampler do this by themselves. LABKIT_FAST=0 in the environment switches it
off. Each version has a test that it equals the plain one (`tests/test_fast.py`) and a row in
`python -m labkit bench fast`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from labkit.layers import replacements

_lock, _uses = Lock(), 0


@cache
def versions() -> dict[str, Callable[..., Any]]:
    """Every faster version, by the full name of the function that it replaces."""
    from labkit.fast import attention, decoding, dropout, keys_values, nucleus, softmax

    return {
        "labkit.attention.attend": attention.attend,
        "labkit.attention.KeysValues.extended": keys_values.extended,
        "labkit.layers.drop": dropout.drop,
        "labkit.heads.losses": softmax.losses,
        "labkit.sampling.best_word": nucleus.best_word,
        "labkit.sampling.nucleus": nucleus.nucleus,
        "labkit.writing.reader.Reader.next_word": decoding.next_word,
        "labkit.writing.reader.select": decoding.select,
    }


@cache
def _prepare() -> None:
    """What is done once for the whole process."""
    from labkit.fast.heap import keep_memory

    keep_memory()


@contextmanager
def enable() -> Iterator[None]:
    """Use the faster versions inside of this, in all threads: a backward pass may have its own."""
    global _uses
    if os.environ.get("LABKIT_FAST", "1") == "0":
        yield
        return
    _prepare()
    with _lock:
        _uses += 1
        if _uses == 1:
            replacements.update(versions())
    try:
        yield
    finally:
        with _lock:
            _uses -= 1
            if not _uses:
                replacements.clear()
