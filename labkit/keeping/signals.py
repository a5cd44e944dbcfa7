"""Signals that stop a run: the first lets it finish the step and save, the second ends it at once.

SIGINT is Ctrl-C and the stop button of a notebook; SIGTERM is what a cluster sends before it takes
a machine away.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)


SOON = 0.1
"""Seconds after which a signal is sent again: an exception while a generator closes is lost."""


class Stop:
    """Whether somebody has asked the run to stop, and how."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self.at_once = self.over = False
        self.before: dict[int, Any] = {}

    @contextlib.contextmanager
    def listening(self, active: bool) -> Iterator[None]:
        """Catch the signals instead of being killed by them; only the main thread of Python can.

        Where the reader's loop is left before the run could stop, the signal is sent again.
        """
        self.asked, self.at_once, self.over = None, False, False
        if not active or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield
        except GeneratorExit:
            if self.promised:
                threading.Timer(SOON, os.kill, (os.getpid(), self.asked)).start()
            raise
        finally:
            self.over = True
            for number in SIGNALS:
                # A run that began later may still be listening; it will restore the handler.
                if signal.getsignal(number) == self._hear:
                    signal.signal(number, self.handler_before(number))

    @property
    def promised(self) -> bool:
        """Whether a message has promised that the step will be finished and saved."""
        return self.asked is not None and not self.at_once

    def handler_before(self, number: int) -> Any:
        """The handler of the signal before this run, and before runs that have ended since."""
        handler = self.before[number]
        earlier = getattr(handler, "__self__", None)
        if isinstance(earlier, Stop) and earlier.over:
            return earlier.handler_before(number)
        # None stands for a handler that was not installed from Python.
        return signal.SIG_DFL if handler is None else handler

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            self.at_once = True
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
