"""A call with a limit of time, in any kernel on any system.

The call runs in a thread of its own. When its time is over, an exception is raised inside of the
thread, which ends any loop that is written in Python; a call that stays inside of one operation of
a library is left behind, and the notebook goes on without it.
"""

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SECONDS_TO_END = 1.0


class OutOfTime(BaseException):
    """Raised in the thread of a call that takes too long; no `except Exception` catches it."""


@dataclass(frozen=True)
class Outcome:
    """What a call returned, or what stopped it."""

    value: Any = None
    error: BaseException | None = None


def limited(call: Callable[[], Any], seconds: float) -> Outcome:
    """Call a function; its error is `OutOfTime` when it has not returned after so many seconds."""
    found: list[Outcome] = []

    def run() -> None:
        with suppress(OutOfTime):  # a second one, while the first is dealt with
            try:
                found.append(Outcome(call()))
            except BaseException as error:  # a student's `exit()` must not end the kernel, either
                found.append(Outcome(error=error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        if thread.is_alive():
            _end(thread)
    return found[0] if found else Outcome(error=OutOfTime())


def _end(thread: threading.Thread) -> None:
    """Raise OutOfTime in a thread, more than once: a bare `except` catches the first."""
    for _ in range(20):
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(OutOfTime))
        thread.join(SECONDS_TO_END / 20)
        if not thread.is_alive():
            return
