"""Child processes: their environment variables, how they start quickly, and how they are ended.

`processes` is a pool for functions, whose processes do not wait for torch to be imported.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import resource_tracker
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psutil import Process

# Numerical libraries read these: each run gets its share of the cores and no more.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

# What takes seconds to import.
PRELOADED = ["torch._dynamo", "IPython.core.interactiveshell", "classroom.exercises.checking",
             "labkit.models.gpt"]  # fmt: skip

KEPT = ("PATH", "LANG", "SYSTEMROOT", "WINDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "OMP_NUM_THREADS",
        "MKL_NUM_THREADS")  # fmt: skip
"""Environment variables that a sandbox gets, with those of the language and of Python."""
NEEDED = ("HOME", "USER", "LOGNAME", "USERPROFILE", "TMPDIR", "TEMP", "TMP")
"""Variables that a process needs to find its user and its folders."""

_starting = threading.Lock()


@contextlib.contextmanager
def peak_of_children() -> Iterator[list[int]]:
    """Yield a list whose only entry will be the peak memory of the child processes."""
    import psutil

    peak, done, me = [0], threading.Event(), psutil.Process()

    def total(of: Callable[["Process"], int], children: Sequence["Process"]) -> int:
        sizes = 0
        for child in children:
            with contextlib.suppress(psutil.Error):
                sizes += of(child)
        return sizes

    def watch() -> None:
        largest, children = 0, list[psutil.Process]()
        for turn in itertools.count():
            if done.wait(0.2):
                return
            # Finding the processes takes milliseconds, and so does dividing their shared memory.
            if turn % 5 == 0 or not children:
                children = me.children(recursive=True)
            resident = total(lambda child: int(child.memory_info().rss), children)
            if resident > 1.01 * largest:
                largest = resident
                peak[0] = max(peak[0], total(held_by, children))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def held_by(process: "Process") -> int:
    """The memory of a process; shared memory is divided among its users, where the system can."""
    import psutil

    with contextlib.suppress(AttributeError, psutil.AccessDenied):
        return int(process.memory_full_info().pss)
    return int(process.memory_info().rss)


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which new processes inherit, and restore them at the end."""
    before = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name, None)
        os.environ.update(before)


def kept_variables() -> dict[str, str]:
    """The environment variables that untrusted code may see."""
    return {name: value for name, value in os.environ.items()
            if name in KEPT or name.startswith(("LC_", "PYTHON", "LABKIT_"))}  # fmt: skip


@contextlib.contextmanager
def only_variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Start new processes with these environment variables and no others.

    `os.environ` stays as it is: another thread may read it at any time.
    """
    names = {*os.environ, *settings}
    for name in names:
        _set_variable(name, settings.get(name))
    try:
        yield
    finally:
        for name in names:
            _set_variable(name, os.environ.get(name))


def _set_variable(name: str, value: str | None) -> None:
    """Set or delete an environment variable for new processes, without changing `os.environ`."""
    if value is None:
        os.unsetenv(name)
    else:
        os.putenv(name, value)


def quick_start() -> Any:
    """Return how processes start: from a server that has already imported torch, where possible.

    The server is fresh, and each process is a copy of it: none sees what another did. The server
    gets few environment variables, since its copies can always read those that it began with.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with _starting:  # a server that somebody has ended starts again, from any thread
        needed = {name: os.environ[name] for name in NEEDED if name in os.environ}
        settings = {**kept_variables(), **needed, **dict.fromkeys(THREADS, "1")}
        with only_variables(settings), without_ctrl_c():
            ensure_running()
    return context


@contextlib.contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Make a server and its copies ignore Ctrl-C: each would print a traceback."""
    resource_tracker.ensure_running()  # starting it with the server would undo what follows
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


@contextlib.contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes of one thread each: small models do not fill two cores with one run.

    They have the current environment, not the one in which the first process began. Ctrl-C
    reaches the process that waits for them, which ends them all.
    """
    settings = {**os.environ, **dict.fromkeys(THREADS, "1")}
    with ProcessPoolExecutor(count, quick_start(), inherit, (settings,)) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            end_processes()
            raise


def inherit(settings: Mapping[str, str]) -> None:
    """Replace the environment variables of this process by these."""
    os.environ.clear()
    os.environ.update(settings)
    from tqdm import tqdm

    # It would make a semaphore for all processes, which is left behind by one that is killed.
    tqdm.set_lock(threading.RLock())


def cancel(futures: Iterable[Future[Any]], end: Callable[[], None]) -> None:
    """Cancel the futures that wait, and call `end` until none is running."""
    futures = list(futures)
    for future in futures:
        future.cancel()
    while wait(futures, timeout=0.1).not_done:  # what runs may begin another process
        end()


def end_processes() -> None:
    """End what `processes` has started, and the server too: a run may wait until it is ready."""
    import psutil

    for server in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "multiprocessing.forkserver" in " ".join(server.cmdline()):
                kill([*server.children(recursive=True), server])
                # Python would ask a server that is still ending for new processes. Nobody reaps it
                # here: Python looks for its end itself.
                while server.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.01)
    for process in multiprocessing.active_children():  # where there is no server
        kill_with_children(process)


def kill_with_children(process: BaseProcess) -> None:
    """Kill a process and all that it has started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        kill(psutil.Process(process.pid).children(recursive=True))
    process.kill()


def kill(processes: Iterable["Process"]) -> None:
    """Kill processes, some of which may have ended since they were found."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
