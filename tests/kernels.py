"""Kernels that are copies of one process, which has imported what takes seconds.

`pytest -p tests.kernels --nbval notebooks` starts such a kernel for each notebook, and so does
`python -m tests.kernels course`, which is `labkit course`. torch, matplotlib and the course would
take a third of the time otherwise, so they are imported once. A name that a notebook does not
import is as unknown as in a kernel that starts from nothing. Of those, tests/test_packaging.py runs
notebooks with the package installed, and the part `browser` of the suite opens them in JupyterLab.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

CAN_COPY = sys.platform == "linux"
"""Whether this system can copy a process safely."""


def pytest_configure() -> None:
    """Let Jupyter start copies of a server, for a process that starts one kernel after another."""
    if CAN_COPY:
        from jupyter_client.provisioning import local_provisioner

        context = server()
        local_provisioner.launch_kernel = lambda cmd, **how: Kernel(context).become(cmd, **how)


def server() -> Any:
    """How copies of a process that has imported everything are made."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"{__spec__.parent}.kernels_imported"])
    return context


def main(words: Sequence[str]) -> int:
    """Run a command of labkit that runs each notebook in a process of its own."""
    from classroom.cli import main, notebooks

    if CAN_COPY:
        notebooks.ProcessPoolExecutor = pool
    return main(words)


def pool(jobs: int, _: object, **how: Any) -> ProcessPoolExecutor:
    """A pool of processes that are copies, each with a copy of itself as its kernel.

    So the kernel is a child of the process that measures the memory of its children.
    """
    return ProcessPoolExecutor(jobs, server(), keep_one_ready, **how)


def keep_one_ready() -> None:
    """Copy this process while it has no threads, and let Jupyter start the copy."""
    from jupyter_client.provisioning import local_provisioner

    from_nothing = local_provisioner.launch_kernel
    ready = [Kernel(multiprocessing.get_context("fork"))]
    # One that is not used ends with this process.
    Finalize(None, ready.clear, exitpriority=1)

    def launch_kernel(cmd: Sequence[str], **how: Any) -> Any:
        return ready.pop().become(cmd, **how) if ready else from_nothing(cmd, **how)

    local_provisioner.launch_kernel = launch_kernel


class Copy:
    """A copy of a process that does some work, with what a `subprocess.Popen` has."""

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
    """A copy that waits until it becomes a kernel."""

    stdin = stdout = stderr = None

    def __init__(self, context: Any) -> None:
        self.tells, told = context.Pipe()
        super().__init__(context, wait_to_serve, told, self.tells)
        told.close()
        # Jupyter asks for the group of the process, and ends all of it with the kernel.
        self.tells.recv()

    def become(
        self, cmd: Sequence[str], env: dict[str, str], cwd: str | None = None, **_: object
    ) -> "Kernel":
        """Become the kernel of this command."""
        self.tells.send((arguments(cmd), env, cwd))
        return self


def arguments(cmd: Sequence[str]) -> list[str]:
    """What a kernel is told by the command that starts one."""
    return list(cmd[list(cmd).index("-f") :])


def wait_to_serve(told: Connection, tells: Connection) -> None:
    """Become a kernel when told so."""
    tells.close()
    os.setsid()
    told.send(None)
    try:
        words, env, cwd = told.recv()
    except EOFError:
        return
    threading.Thread(target=end_after, args=(told,), daemon=True).start()
    serve(words, env, cwd)


def serve(words: Sequence[str], env: dict[str, str], cwd: str | None) -> None:
    """Become a kernel, as `python -m ipykernel_launcher` does."""
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


def end_after(told: Connection) -> None:
    """End the kernel and what it has started when the process that started it has ended."""
    with contextlib.suppress(EOFError, OSError):
        told.recv()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
