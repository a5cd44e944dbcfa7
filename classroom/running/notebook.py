"""One run of a notebook: through papermill, measured, with a place for what it records.

`execute` runs it in a kernel of this process; `run_point` does so in a process of its own, shares
nothing but its argument and its result, and can be sent to another machine.
"""

import ast
import contextlib
import functools
import importlib.metadata
import json
import logging
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from classroom.running.children import THREADS, environment, kill, peak_of_children
from classroom.running.light import light_papermill
from classroom.versions import code_version
from labkit.checks import clipped, in_a_line
from labkit.keeping.files import digest, with_numbers, write_text
from labkit.keeping.paths import PACKAGE
from labkit.keeping.processor import cores

if TYPE_CHECKING:
    from traitlets.config import Config

# The sizes that a notebook can have.
PROFILES = ("smoke", "laptop", "gpu")
# Where the notebook that runs writes what it records: `sweeps.record` reads this name.
RECORD = "LABKIT_RECORD"
# Seconds that a kernel may take to start: many that start together share the cores.
START = 300
# Seconds between two savings of a notebook that runs.
SAVED = 10
# How many kernels are started for one run, where the first ones die before they answer.
STARTS = 3
# The characters of an error that a line shows: comparisons of tensors can fill pages.
LONGEST_ERROR = 1000
_processes: set["subprocess.Popen[bytes]"] = set()


class Run(NamedTuple):
    """The result of one run of a notebook."""

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
            error = clipped(f"cell {found.exec_count}: {said}".rstrip(": "), LONGEST_ERROR)
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
    """A path with its braces escaped: papermill would fill in what is between them."""
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
                progress_bar=progress, config=kernel_settings(), language="python",
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


@contextlib.contextmanager
def ending_at_once(client: Any) -> Iterator[None]:
    """Have a client of Jupyter end its kernel, whatever stops it, without asking the kernel.

    One that is asked while it is busy prints a traceback: its answer finds the connection closed.
    """
    try:
        yield
    except BaseException as error:
        client.shutdown_kernel = "immediate"
        if isinstance(error, KeyboardInterrupt):
            # What waited for the cell would print a traceback, since its kernel has ended.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise


@functools.cache
def _client() -> Any:
    """Return papermill's client, but for how it ends in the middle of a cell, and for its log.

    What the client logs, it raises too.
    """
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from nbformat.v4 import new_output
    from papermill.clientwrap import PapermillNotebookClient

    silent = logging.getLogger("labkit.notebooks")
    silent.setLevel(logging.CRITICAL)

    class Client(PapermillNotebookClient):
        def __init__(self, *given: Any, **how: Any) -> None:
            super().__init__(*given, **how, log=silent)

        def papermill_execute_cells(self) -> None:
            with ending_at_once(self):
                super().papermill_execute_cells()

        def execute_cell(self, cell: Any, *given: Any, **how: Any) -> Any:
            """Mark also a cell that ran too long or ended its kernel; papermill would not."""
            try:
                return super().execute_cell(cell, *given, **how)
            except CellTimeoutError:
                said = f"cell {self.code_cells_executed} took more than {self.timeout} seconds"
                error: Exception = TimeoutError(said)
            except DeadKernelError:
                said = f"the kernel died in cell {self.code_cells_executed}, most often for want of"
                error = DeadKernelError(f"{said} memory: give it more, or choose a smaller profile")
            name, said = type(error).__name__, str(error)
            # A kernel that is ended may still send its KeyboardInterrupt.
            self.process_message = lambda *_: None
            cell.metadata.papermill["status"] = "failed"
            cell.outputs.append(new_output("error", ename=name, evalue=said, traceback=[said]))
            raise error

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


def kernel_settings() -> "Config":
    """Settings of kernels: messages to them are encrypted, since others may listen.

    Jupyter interrupts a kernel before it ends it, and one that has just run its last cell would say
    on the terminal that it was interrupted.
    """
    from traitlets.config import Config

    return Config(
        KernelManager={"transport_encryption": "auto"},
        NotebookClient={"extra_arguments": ["--log-level=CRITICAL"]},
    )


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
        parts = (self.notebook, self._code(), sorted(self.parameters.items()), self.version)
        return digest(repr(parts).encode())[:16]

    @property
    def code_name(self) -> str:
        """The notebook's code, as a hash: the same at all points of a sweep."""
        return digest(repr(self._code()).encode())[:16]

    def _code(self) -> list[tuple[str, list[str] | None]]:
        """The text and the tags of each code cell."""
        return [
            ("".join(cell["source"]), cell["metadata"].get("tags"))
            for cell in json.loads(self.source)["cells"]
            if cell["cell_type"] == "code"
        ]


class Row(NamedTuple):
    """The result of one point: a line of `results.jsonl`."""

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
            "run": str, "notebook": str, "status": str, "parameters": dict, "results": dict,
            "versions": dict,
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
        error = (
            f"the sweep began with labkit {point.version}, and {platform.node()} has {here} now: "
            "install the same version there, or start the sweep again"
        )
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
                [sys.executable, "-m", "classroom.running.notebook", name],
                env={**os.environ, **settings},
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
        versions={"labkit": point.version, "notebook": point.code_name, **versions()},
    )


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on, labkit's own apart."""
    found = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"python": platform.python_version(), **found}


def main(folder: Path) -> None:
    """The process of one point: run it, and end when the parent process ends."""
    threading.Thread(target=_end_with_the_parent, args=[folder], daemon=True).start()
    point = Point(**ast.literal_eval((folder / "point").read_text(encoding="utf-8")))
    source = folder / f"{point.notebook}.ipynb"
    source.write_text(point.source, encoding="utf-8")
    result = execute(source, folder / "run.ipynb", point.parameters, point.timeout)
    write_text(folder / "ended", json.dumps(result._asdict()))


def end_runs() -> None:
    """End the runs that this process started: each leaves when its pipe closes."""
    for process in list(_processes):
        if process.stdin is not None:
            process.stdin.close()


def _end_with_the_parent(folder: Path) -> None:
    """Wait until the pipe from the parent closes, even by kill -9, and leave without a trace."""
    import psutil

    os.read(0, 1)
    kill(psutil.Process().children(recursive=True))
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
