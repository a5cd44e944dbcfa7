"""Many runs of one notebook, one for each point of a grid of parameters.

`notebook.run_point` runs a point in a process of its own.  Any executor that has `submit` takes
it: threads on this machine, each of which only waits for its process, or a Dask cluster.
Only this module writes into the folder of results, so machines need no folder in common and a run
that is killed leaves nothing half written.  Read `record` and `sweep` first.
"""

import itertools
import json
import os
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classroom.running.children import cancel
from classroom.running.notebook import (
    NOT_FINITE,
    RECORD,
    Point,
    Ran,
    Row,
    blank,
    end_runs,
    run_point,
    spelled,
)
from classroom.versions import code_version
from labkit.checks import in_a_line, is_number
from labkit.keeping.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = "results.jsonl"

_recorded: dict[str, object] = {}


def record(**values: object) -> None:
    """Remember results of this notebook; in a run or a sweep, also write them beside the run."""
    for name, value in values.items():
        plain = value.tolist() if hasattr(value, "tolist") else value
        try:
            json.dumps(plain)
        except (TypeError, ValueError):
            raise TypeError(
                f"record({name}=…) was given {type(value).__name__}: give a number, a text, "
                "True or False, None, or a list or dict of them"
            ) from None
        _recorded[name] = plain
    if RECORD in os.environ:
        text = json.dumps(spelled(_recorded), indent=1, allow_nan=False)
        write_text(Path(os.environ[RECORD]), text + "\n")


def recorded() -> dict[str, object]:
    """Return what this notebook has recorded so far."""
    return dict(_recorded)


def points(
    notebook: Path,
    grid: Mapping[str, Sequence[object]],
    timeout: int = 1800,
    side_by_side: int = 1,
) -> list[Point]:
    """Return every combination of the values, the last name changing fastest."""
    source, version = notebook.read_text(encoding="utf-8"), code_version()
    every = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    return [Point(notebook.stem, source, one, timeout, side_by_side, version) for one in every]


def sweep(points: Sequence[Point], out: Path, executor: Executor) -> Generator[Row, None, None]:
    """Run the points that are not finished and yield each row once it is safely in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    known = {(row.run, row.status) for row in _known(out)}
    done = finished(points, out)
    for row in done.values():
        if (row.run, row.status) not in known:  # stopped between the two writings of `keep`
            _append(out / RESULTS, row)
    left = [point for point in points if point.name not in done]  # or failed before
    futures = {executor.submit(run_point, point): point for point in left}
    try:
        for future in as_completed(list(futures)):
            ran = _outcome(future, futures.pop(future))
            keep(ran, out)
            yield ran.row
    finally:
        # On a cluster a run ends by itself, and is dropped.
        cancel(futures, end_runs)


def _outcome(future: "Future[Ran]", point: Point) -> Ran:
    """Return what a point came to, also when the executor lost it."""
    try:
        return future.result()
    except (Exception, CancelledError) as error:
        return Ran(blank(point, in_a_line(error)), "")


def keep(ran: Ran, out: Path) -> None:
    """Write the notebook, then the row that makes a run finished, then the line of results."""
    folder = out / ran.row.run
    folder.mkdir(parents=True, exist_ok=True)
    if ran.notebook:
        write_text(folder / "run.ipynb", ran.notebook)
    write_text(folder / "row.json", ran.row.line)
    _append(out / RESULTS, ran.row)


def _append(path: Path, row: Row) -> None:
    """Append one line; what a killed sweep left of its last one stays a line of its own."""
    with path.open("a+b") as file:
        torn = b""
        if file.tell():
            file.seek(-1, os.SEEK_END)
            torn = b"" if file.read(1) == b"\n" else b"\n"
        file.write(torn + row.line.encode())


def finished(points: Sequence[Point], out: Path) -> dict[str, Row]:
    """Return the rows of the points that are finished, by the names of their runs."""
    found = {}
    for point in points:
        path = out / point.name / "row.json"
        if path.is_file():
            try:
                row = Row.of(path.read_text(encoding="utf-8"))
            except ValueError:  # it is run again, which writes it anew
                continue
            if row.status == "finished" and row.run == point.name:
                found[row.run] = row
    return found


def results(out: Path) -> list[Row]:
    """Return the newest row of each run in a folder of results, and warn where code has changed."""
    rows = _known(out)
    parts = ("notebook", "labkit")
    codes = {(row.notebook, *(str(row.versions.get(part)) for part in parts)) for row in rows}
    if len(codes) > len({row.notebook for row in rows}):
        warnings.warn(
            f"the rows of one notebook in {out} come from different code, as row.versions says: "
            "the same sweep command runs the older ones again",
            stacklevel=2,
        )
    return rows


def _known(out: Path) -> list[Row]:
    path = out / RESULTS
    return read_rows(path) if path.is_file() else []


def read_rows(path: Path) -> list[Row]:
    """Return the newest row of each run in a file of results.

    A run of the same parameters with newer code takes the place of the older one.
    """
    rows = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            row = Row.of(line.decode())
        except ValueError:  # a damaged line, or one that a killed sweep did not finish
            continue
        rows[repr((row.notebook, sorted(row.parameters.items())))] = row
    return list(rows.values())


def varied(rows: Sequence[Row]) -> list[str]:
    """Return the parameters that are not the same in all rows."""
    names = dict.fromkeys(name for row in rows for name in row.parameters)
    return [name for name in names if len({repr(row.parameters.get(name)) for row in rows}) > 1]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table: what varies, what was recorded, seconds, status."""
    names = varied(rows)
    measured = list(dict.fromkeys(name for row in rows for name in row.results))
    lines = [["run", *names, *measured, "seconds", "status"]]
    for row in rows:
        values = [row.parameters.get(name, "") for name in names]
        values += [row.results.get(name, "") for name in measured]
        lines.append([row.run, *map(_cell, values), f"{row.seconds:.1f}", row.status])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _cell(value: object) -> str:
    text = f"{value:.5g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= 24 else text[:23] + "…"


def plot(results: Sequence[Row], *, x: str, y: str) -> "Figure":
    """Draw a recorded number over a parameter: finished runs as dots, means of equal runs as lines.

    Runs that differ in `seed` alone are equal; every other combination is a line of its own.
    """
    from matplotlib import pyplot

    rows = [row for row in results if row.status == "finished" and x in row.parameters]
    rows = [row for row in rows
            if is_number(row.results.get(y)) or row.results.get(y) in NOT_FINITE]  # fmt: skip
    if not rows:
        raise ValueError(f"no finished run has a parameter {x} and a recorded number {y}")
    others = [name for name in varied(rows) if name not in (x, "seed")]
    words = not all(is_number(row.parameters[x]) for row in rows)
    labels = _labels(rows, others)
    lines: dict[str, dict[Any, list[float]]] = {}
    for row, label in zip(rows, labels, strict=True):
        at = str(row.parameters[x]) if words else row.parameters[x]
        # A run that diverged leaves a gap: without it, the mean of the others would look fine.
        lines.setdefault(label, {}).setdefault(at, []).append(float(row.results[y]))
    if not any(is_number(row.results[y]) for row in rows):
        raise ValueError(f"no finished run recorded a finite number {y}")
    figure = pyplot.figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y)
    for marker, (label, values) in zip(itertools.cycle("osD^vPX*"), lines.items(), strict=False):
        places = list(values) if words else sorted(values)
        means = [sum(values[at]) / len(values[at]) for at in places]
        [line] = axes.plot(places, means, label=label)
        dots = [(at, value) for at in places for value in values[at]]
        axes.plot(*zip(*dots, strict=True), marker, color=line.get_color(), alpha=0.5)
    if others:
        axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    # The caller shows the figure; pyplot must not show it again.
    pyplot.close(figure)
    return figure


def _labels(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return what each row is called; values are written in full where short ones look the same."""

    def written(row: Row, write: Callable[[object], str]) -> str:
        return ", ".join(f"{name} = {write(row.parameters.get(name))}" for name in names)

    exact, short = ([written(row, write) for row in rows] for write in (repr, _cell))
    meant: dict[str, set[str]] = {}
    for brief, full in zip(short, exact, strict=True):
        meant.setdefault(brief, set()).add(full)
    return [brief if len(meant[brief]) == 1 else full
            for brief, full in zip(short, exact, strict=True)]  # fmt: skip
