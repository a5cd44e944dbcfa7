"""Kernels that are copies of one process, which has imported what takes seconds.

`pytest -p tests.kernels --nbval notebooks` starts a kernel for each notebook. torch, matplotlib and
the course take a third of the time that most of them run, so they are imported once. A name that a
notebook does not import is as unknown as before. The part `parameters` of the suite runs the same
notebooks in kernels of their own.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any


def pytest_configure() -> None:
    """Let Jupyter start copies, on a system that can copy a process safely."""
    if sys.platform == "linux":
        from jupyter_client.provisioning import local_provisioner

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([f"{__name__}_imported"])
        local_provisioner.launch_kernel = lambda cmd, **how: Kernel(context, cmd, **how)


class Copy:
    """A copy of the server that does some work, with what a `subprocess.Popen` has."""

    def __init__(self, context: Any, work: Any, *given: object) -> None:
        self.process = context.Process(target=work, args=given)
        self.process.start()
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """The code with which it ended; None: it runs."""
        return self.process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        self.process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.terminate()

    def kill(self) -> None:
        """End it."""
        self.process.kill()


class Kernel(Copy):
    """A kernel that is a copy of the server."""

    stdin = stdout = stderr = None

    def __init__(
        self, context: Any, cmd: Sequence[str], env: dict[str, str], cwd: str | None, **_: object
    ) -> None:
        started, starts = context.Pipe(duplex=False)
        super().__init__(context, serve, arguments(cmd), env, cwd, starts.send)
        # Jupyter asks for the group of the process, and ends all of it with the kernel.
        started.recv()


def arguments(cmd: Sequence[str]) -> list[str]:
    """What a kernel is told by the command that starts one."""
    return list(cmd[list(cmd).index("-f") :])


def serve(
    words: Sequence[str],
    env: dict[str, str],
    cwd: str | None,
    started: Callable[[None], object],
) -> None:
    """Become a kernel, as `python -m ipykernel_launcher` does."""
    os.setsid()
    started(None)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or ".")
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, "")

    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(list(words))
