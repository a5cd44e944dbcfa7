"""A class on one machine: the memory and the seconds of each student's kernel.

    python -m labkit bench kernels [--notebook 08] [--kernels 10] [--profile smoke]

First the kernels are started one after another; each runs the notebook and stays.  Memory is PSS:
what kernels share, such as torch's libraries and models that are mapped from a file, is shared out
among them.  Then the lesson begins: as many students open the notebook in the same moment.  The
first result is what the first cell shows; "of a core" are the seconds that the kernel computes.
"""

import argparse
import contextlib
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
from nbclient import NotebookClient

from classroom.cli.notebooks import find
from classroom.running.children import held_by
from classroom.running.notebook import kernel_settings
from labkit.keeping.processor import cores

BOUND = 350  # MB for each further kernel of notebook 08


def started(path: Path, profile: str) -> NotebookClient:
    """Return a client of a notebook in a profile, whose kernel is yet to start."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source += f'\nprofile = "{profile}"'
    return NotebookClient(
        book,
        timeout=3600,
        resources={"metadata": {"path": str(path.parent)}},
        config=kernel_settings(),
    )


class Wait(NamedTuple):
    """Seconds from the start of a kernel, by the clock and of a core."""

    first: float
    first_of_a_core: float
    whole: float
    whole_of_a_core: float


def lesson(path: Path, profile: str, stack: contextlib.ExitStack) -> Wait:
    """Run a notebook in a kernel that stays, and return how long its user waits."""
    client, start, seconds = started(path, profile), time.perf_counter(), []
    stack.enter_context(client.setup_kernel())
    kernel = psutil.Process(client.km.provisioner.process.pid)

    def now() -> tuple[float, float]:
        used = kernel.cpu_times()
        return time.perf_counter() - start, used.user + used.system

    for position, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, position)
        if not seconds and cell.get("outputs"):
            seconds = [*now()]
    return Wait(*seconds, *now())


def held() -> float:
    """Return the megabytes that all kernels of this process hold."""
    return sum(held_by(child) for child in psutil.Process().children(recursive=True)) / 2**20


def one_after_another(path: Path, profile: str, kernels: int) -> float:
    """Print a row for each kernel; return the megabytes of each further one."""
    columns = ("kernels", "all, MB", "this one, MB", "first result, s", "of a core, s",
               "whole notebook, s", "of a core, s")  # fmt: skip
    print("|", " | ".join(columns), "|\n|" + "---:|" * len(columns), flush=True)
    total = [0.0]
    with contextlib.ExitStack() as stack:
        for number in range(1, kernels + 1):
            wait = lesson(path, profile, stack)
            total.append(held())
            row = [
                f"{total[-1]:,.0f}",
                f"{total[-1] - total[-2]:,.0f}",
                *map("{:.1f}".format, wait),
            ]
            print("|", " | ".join([str(number), *row]), "|", flush=True)
    return (total[-1] - total[1]) / max(kernels - 1, 1)


def together(path: Path, profile: str, kernels: int) -> None:
    """Print how long the students wait who all begin in the same moment."""
    with ThreadPoolExecutor(kernels) as pool, contextlib.ExitStack() as stack:
        waits = list(pool.map(lambda _: lesson(path, profile, stack), range(kernels)))
    for name in ("first", "whole"):
        seconds = [getattr(wait, name) for wait in waits]
        print(f"{name}: {statistics.median(seconds):.0f} s, at most {max(seconds):.0f} s")


def main() -> None:
    """Print the table, and what a class waits for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebook", default="08", help="a path, or the beginning of a name [08]")
    parser.add_argument("--kernels", type=int, default=10)
    parser.add_argument("--profile", default="smoke")
    options = parser.parse_args()
    path = find(options.notebook)
    print(f"{path.stem}, {options.profile}, {cores()} cores\n")
    further = one_after_another(path, options.profile, options.kernels)
    missed = ": missed" if options.notebook == "08" and further > BOUND else ""
    print(f"\neach further kernel: {further:,.0f} MB (aim: at most {BOUND}{missed})\n")
    print(f"{options.kernels} students who begin in the same moment:")
    together(path, options.profile, options.kernels)


if __name__ == "__main__":
    main()
