"""Asked to stop: finish the step, save, and go; asked again, go at once.

SIGINT is Ctrl-C and the stop button of a notebook; SIGTERM is what a cluster sends before it takes
a machine away.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether somebody has asked the run to stop, and how."""

    def __init__(self) -> None:
        self.asked: int | None = None

    @contextlib.contextmanager
    def listening(self, active: bool) -> Iterator[None]:
        """Catch the signals instead of being killed by them; only the main thread of Python can."""
        self.asked = None
        if not active or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None stands for a handler that was not installed from Python.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            self.leave(number)
        self.asked = number
        # Not print: it might have been interrupted in the middle of printing.
        name = signal.Signals(number).name
        os.write(2, f"\n{name}: finishing the step and saving; once more stops at once\n".encode())

    def leave(self, number: int | None = None, message: str = "stopped") -> NoReturn:
        """End as the signal would have: an interrupt for Ctrl-C, exit code 143 for SIGTERM."""
        # A signal that another process received counts as SIGTERM.
        number = number or self.asked or signal.SIGTERM
        if number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt(message)
