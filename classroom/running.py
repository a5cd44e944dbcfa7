"""One run of a notebook: through papermill, measured, with a place for what it records.

`execute` runs it in a kernel of this process; `run_point` does so in a process of its own, shares
nothing but its argument and its result, and can be sent to another machine. `processes` is a pool
for functions, whose processes do not wait for torch to be imported.
"""

import ast
import contextlib
import functools
import importlib.metadata
import itertools
import json
import logging
import math
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from classroom.light import light_papermill
from classroom.versions import code_version
from labkit.checks import in_a_line
from labkit.keeping.files import digest, with_numbers, write_text
from labkit.keeping.paths import PACKAGE
from labkit.keeping.processor import cores

if TYPE_CHECKING:
    from psutil import Process
    from traitlets.config import Config

# Where the notebook that runs writes what it records: `classroom.sweeps.record` reads this name.
RECORD = "LABKIT_RECORD"
# Seconds that a kernel may take to start: many that start together share the cores.
START = 300
# Seconds between two savings of a notebook that runs.
SAVED = 10
# How many kernels are started for one run, where the first ones die before they answer.
STARTS = 3
# Read by the libraries that count: each run gets its share of the cores and no more.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

# What takes seconds to import.
PRELOADED = ["torch._dynamo", "IPython.core.interactiveshell", "classroom.exercises.checking",
             "labkit.models.gpt"]  # fmt: skip

KEPT = ("PATH", "LANG", "SYSTEMROOT", "WINDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "OMP_NUM_THREADS",
        "MKL_NUM_THREADS")  # fmt: skip
"""Variables of the environment that a sandbox gets, with those of the language and of Python."""
NEEDED = ("HOME", "USER", "LOGNAME", "USERPROFILE", "TMPDIR", "TEMP", "TMP")
"""Variables that a process needs to find its user and its folders."""

_starting = threading.Lock()
_processes: set["subprocess.Popen[bytes]"] = set()


class Run(NamedTuple):
    """What came of one run of a notebook."""

    notebook: str
    seconds: float
    peak_bytes: int
    error: str | None

    @property
    def memory(self) -> str:
        """The most memory that it held, for a table."""
        return f"{self.peak_bytes / 2**20:,.0f} MB"


def execute(
    notebook: Path,
    output: Path,
    parameters: dict[str, object],
    timeout: int,
    progress: bool = False,
) -> Run:
    """Run a notebook, measuring time and memory; what it records goes beside the output."""
    light_papermill()
    from papermill import PapermillExecutionError

    output.parent.mkdir(parents=True, exist_ok=True)
    records = output.resolve().with_suffix(".records.json")
    records.unlink(missing_ok=True)
    error = None
    start = time.perf_counter()
    with peak_of_children() as peak, environment({RECORD: str(records)}):
        try:
            _run_cells(notebook, output, parameters, timeout, progress)
        except PapermillExecutionError as found:
            said = " ".join(f"{found.ename}: {found.evalue}".split())
            error = f"cell {found.exec_count}: {said}".rstrip(": ")
        except TimeoutError as found:
            error = f"{found}: give more with `labkit run --timeout`"
        except RuntimeError as found:  # a kernel that died
            error = in_a_line(found)
        except (OSError, UnicodeError):  # a full disk: half a notebook is no use to anybody
            if not is_json(output):
                output.unlink(missing_ok=True)
            raise
    return Run(notebook.stem, time.perf_counter() - start, peak[0], error)


def literal(path: Path) -> str:
    """A path as papermill wants it, which fills in what stands between braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _run_cells(
    notebook: Path, output: Path, parameters: dict[str, object], timeout: int, progress: bool
) -> None:
    """Run a notebook with papermill; start again if the kernel dies before it answers.

    A kernel does so if another program takes one of its ports after Jupyter has chosen them.
    """
    from papermill import execute_notebook

    _write_every_value()
    for left in reversed(range(STARTS)):
        try:
            execute_notebook(
                literal(notebook), literal(output), parameters=parameters, kernel_name="python3",
                engine_name=_engine(), start_timeout=START, execution_timeout=timeout,
                progress_bar=progress, config=encrypted(), language="python",
            )  # fmt: skip
            return
        except RuntimeError as found:
            if not left or "replying to kernel_info" not in str(found):
                raise


@functools.cache
def _write_every_value() -> None:
    """Have papermill write every parameter as Python does.

    It writes tuples and the keys of a dict as texts: `(1, 2)` would arrive as `"(1, 2)"`.
    """
    from papermill.translators import PythonTranslator, papermill_translators

    class Translator(PythonTranslator):
        @classmethod
        def translate(cls, val: object) -> Any:
            # An infinite number has no literal in Python.
            return super().translate(val) if isinstance(val, float) else repr(val)

    papermill_translators.register("python", Translator)


@functools.cache
def _client() -> Any:
    """Return papermill's client, but for how it ends in the middle of a cell, and for its log.

    A kernel that is asked to end while it is busy prints a traceback, since its answer finds the
    connection closed: so it is ended without being asked. What the client logs, it raises too.
    """
    from nbclient.exceptions import CellTimeoutError
    from papermill.clientwrap import PapermillNotebookClient

    silent = logging.getLogger("labkit.notebooks")
    silent.setLevel(logging.CRITICAL)

    class Client(PapermillNotebookClient):
        def __init__(self, *given: Any, **how: Any) -> None:
            super().__init__(*given, **how, log=silent)

        def papermill_execute_cells(self) -> None:
            try:
                super().papermill_execute_cells()
            except CellTimeoutError:
                self.shutdown_kernel = "immediate"
                said = f"cell {self.code_cells_executed} took more than {self.timeout} seconds"
                raise TimeoutError(said) from None
            except BaseException:
                self.shutdown_kernel = "immediate"
                raise

    return Client


@functools.cache
def _engine() -> str:
    """Register papermill's engine with fewer savings, and return its name.

    papermill saves when a cell begins and when it ends. To write a long notebook takes a tenth of a
    second, which is more than most cells take.
    """
    from papermill.engines import NBClientEngine, papermill_engines

    # It warns of parameters whose type it cannot read, such as `int | None`, and passes them all
    # the same; names and types are checked before.
    logging.getLogger("papermill").setLevel(logging.ERROR)

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **how: Any) -> Any:
            save = nb_man.save

            def save_seldom(**_: object) -> None:
                if (nb_man.now() - nb_man.last_save_time).total_seconds() >= SAVED:
                    save()

            nb_man.save = save_seldom
            try:
                return _client()(
                    nb_man, kernel_name=kernel_name, timeout=how["execution_timeout"],
                    startup_timeout=how["start_timeout"], config=how["config"],
                ).execute()  # fmt: skip
            finally:
                nb_man.save = save  # for the last time

    papermill_engines.register("labkit", Engine)
    return "labkit"


def is_json(path: Path) -> bool:
    """Say whether a file holds JSON."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def encrypted() -> "Config":
    """Settings with which messages to kernels are encrypted: others on the machine may listen."""
    from traitlets.config import Config

    return Config(KernelManager={"transport_encryption": "auto"})


@contextlib.contextmanager
def peak_of_children() -> Iterator[list[int]]:
    """Give a list whose only number will be the most memory that the child processes held."""
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
            # To look for processes takes milliseconds, and so does to share out what they share.
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
    """The memory of a process; what it shares with others is shared out, where the system says."""
    import psutil

    with contextlib.suppress(AttributeError, psutil.AccessDenied):
        return int(process.memory_full_info().pss)
    return int(process.memory_info().rss)


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, which a new process inherits, and put them back."""
    before = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name, None)
        os.environ.update(before)


def kept_variables() -> dict[str, str]:
    """The variables of the environment that code which is not trusted may know."""
    return {name: value for name, value in os.environ.items()
            if name in KEPT or name.startswith(("LC_", "PYTHON", "LABKIT_"))}  # fmt: skip


@contextlib.contextmanager
def only_variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Have new processes begin with these variables of the environment and no others.

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
    """Set or delete a variable of the environment that new processes get, but not `os.environ`."""
    if value is None:
        os.unsetenv(name)
    else:
        os.putenv(name, value)


def quick_start() -> Any:
    """How processes start: from a server that has imported torch already, where there is one.

    The server is fresh, and each process is a copy of it: none sees what another did. The server
    gets few variables of the environment: a copy of it can always read those that it began with.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with _starting:  # a server that somebody has ended starts again, from any thread
        needed = {name: os.environ[name] for name in NEEDED if name in os.environ}
        with only_variables({**kept_variables(), **needed, **dict.fromkeys(THREADS, "1")}):
            ensure_running()
    return context


def processes(count: int) -> ProcessPoolExecutor:
    """A pool of processes of one thread each: small models do not fill two cores with one run.

    They have the environment that is set now, and not the one of when the first process began.
    """
    settings = {**os.environ, **dict.fromkeys(THREADS, "1")}
    return ProcessPoolExecutor(count, quick_start(), inherit, (settings,))


def inherit(settings: Mapping[str, str]) -> None:
    """Have these variables in the environment of this process, and no others."""
    os.environ.clear()
    os.environ.update(settings)


@dataclass(frozen=True)
class Point:
    """One point of a grid: all that a machine needs to run it, if it has the same labkit."""

    notebook: str
    source: str
    parameters: dict[str, object]
    timeout: int
    side_by_side: int = 1
    version: str = ""

    @property
    def name(self) -> str:
        """What the result depends on, as a hash: the code, the parameters, the package."""
        cells = json.loads(self.source)["cells"]
        code = [
            ("".join(cell["source"]), cell["metadata"].get("tags"))
            for cell in cells
            if cell["cell_type"] == "code"
        ]
        parts = (self.notebook, code, sorted(self.parameters.items()), self.version)
        return digest(repr(parts).encode())[:16]


class Row(NamedTuple):
    """What came of one point: a line of `results.jsonl`."""

    run: str
    notebook: str
    status: str  # finished or failed
    parameters: dict[str, Any]
    results: dict[str, Any]
    error: str | None
    seconds: float
    peak_bytes: int
    threads: int
    versions: dict[str, str]

    @classmethod
    def of(cls, line: str) -> "Row":
        """Read a row from its line; one that is damaged is a `ValueError`."""
        try:
            row = cls(**json.loads(line))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"not a row of a sweep: {error}") from None
        kinds = {
            "run": str, "status": str, "parameters": dict, "results": dict, "versions": dict,
        }  # fmt: skip
        right = all(isinstance(getattr(row, name), kind) for name, kind in kinds.items())
        if not (right and isinstance(row.seconds, int | float)):
            raise ValueError("not a row of a sweep")
        return row

    @property
    def line(self) -> str:
        """The row as a line of JSON."""
        return json.dumps(spelled(self._asdict()), default=list, allow_nan=False) + "\n"


NOT_FINITE = ("nan", "inf", "-inf")


def spelled(value: Any) -> Any:
    """Return a value with the numbers that JSON does not have as the texts in `NOT_FINITE`."""
    return with_numbers(value, lambda x: x if math.isfinite(x) else str(float(x)))


class Ran(NamedTuple):
    """A row and the executed notebook, as far as it came."""

    row: Row
    notebook: str


def run_point(point: Point) -> Ran:
    """Run one point in a process of its own and return its row and its notebook."""
    here = code_version()
    if point.version != here:
        error = f"the sweep began with labkit {point.version}, here is {here}: start it again"
        return Ran(blank(point, error), "")
    share = str(max(1, cores() // point.side_by_side))
    # The kernel imports the same package as this process, from whatever folder it starts in.
    path = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**dict.fromkeys(THREADS, share), "PYTHONPATH": os.pathsep.join(path)}
    with tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Not JSON, in which a tuple would become a list.
        (folder / "point").write_text(repr(asdict(point)), encoding="utf-8")
        with (
            (folder / "log").open("wb") as log,
            # Ctrl-C is for the sweep, which ends its runs itself: hence a session of their own.
            subprocess.Popen(
                [sys.executable, "-m", "classroom.running", name], env={**os.environ, **settings},
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            _processes.add(process)
            try:
                code = process.wait()
            finally:
                _processes.discard(process)
        return _ran(point, folder, code)


def _ran(point: Point, folder: Path, code: int) -> Ran:
    """Read what the process of a point left in its folder."""
    names = ("run.ipynb", "run.records.json", "ended", "log")
    notebook, records, ended, log = (
        path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for path in (folder / name for name in names)
    )
    said = (log.strip().splitlines() or ["no word"])[-1]
    lost = f"the process of the run ended with code {code}: {said}"
    found = Run(**json.loads(ended)) if ended else Run(point.notebook, 0.0, 0, lost)
    row = blank(point, found.error)
    return Ran(
        row._replace(
            results=json.loads(records or "{}"),
            seconds=round(found.seconds, 3),
            peak_bytes=found.peak_bytes,
        ),
        notebook,
    )


def blank(point: Point, error: str | None) -> Row:
    """Return the row of a point, as yet without results."""
    return Row(
        run=point.name,
        notebook=point.notebook,
        status="failed" if error else "finished",
        parameters=point.parameters,
        results={},
        error=error,
        seconds=0.0,
        peak_bytes=0,
        threads=max(1, cores() // point.side_by_side),
        versions={"labkit": point.version, **versions()},
    )


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on, labkit's own apart."""
    found = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"python": platform.python_version(), **found}


def main(folder: Path) -> None:
    """The process of one point: run it, and end with whoever started it."""
    threading.Thread(target=_end_with_the_parent, args=[folder], daemon=True).start()
    point = Point(**ast.literal_eval((folder / "point").read_text(encoding="utf-8")))
    source = folder / f"{point.notebook}.ipynb"
    source.write_text(point.source, encoding="utf-8")
    result = execute(source, folder / "run.ipynb", point.parameters, point.timeout)
    write_text(folder / "ended", json.dumps(result._asdict()))


def cancel(futures: Iterable[Future[Any]], end: Callable[[], None]) -> None:
    """Cancel what waits, and `end` what runs until nothing does."""
    futures = list(futures)
    for future in futures:
        future.cancel()
    while wait(futures, timeout=0.1).not_done:  # what runs may begin another process
        end()


def end_runs() -> None:
    """End the runs that this process started: each leaves when its pipe closes."""
    for process in list(_processes):
        if process.stdin is not None:
            process.stdin.close()


def end_processes() -> None:
    """End what `processes` has started, and the server too: a run may wait until it is ready."""
    import psutil

    for server in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "multiprocessing.forkserver" in " ".join(server.cmdline()):
                _kill([*server.children(recursive=True), server])
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
        _kill(psutil.Process(process.pid).children(recursive=True))
    process.kill()


def _kill(processes: Iterable["Process"]) -> None:
    """Kill processes, some of which may have ended since they were found."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _end_with_the_parent(folder: Path) -> None:
    """Wait until the pipe from the parent closes, even by kill -9, and leave without a trace."""
    import psutil

    os.read(0, 1)
    _kill(psutil.Process().children(recursive=True))
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
