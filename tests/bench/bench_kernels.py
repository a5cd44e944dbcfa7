"""A class on one machine: the memory and the seconds of each further kernel.

    python tests/bench/bench_kernels.py [--notebook 08] [--kernels 10] [--profile smoke]

Kernels are started one after another, and each runs the notebook and stays, as in a class.  Memory
is PSS: what kernels share, such as torch's libraries and models that are mapped from a file, is
shared out among them.  Fails where a further kernel needs more than the bound.
"""

import argparse
import contextlib
import time
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from classroom.cli.notebooks import find
from classroom.running import encrypted, held_by

BOUND = 350  # MB for each further kernel of notebook 08


def started(path: Path, profile: str) -> NotebookClient:
    """Return a client of a notebook in a profile, whose kernel is yet to start."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source += f'\nprofile = "{profile}"'
    return NotebookClient(
        book, timeout=3600, resources={"metadata": {"path": str(path.parent)}}, config=encrypted()
    )


def held() -> float:
    """Return the megabytes that all kernels of this process hold."""
    return sum(held_by(child) for child in psutil.Process().children(recursive=True)) / 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebook", default="08", help="a path, or the beginning of a name [08]")
    parser.add_argument("--kernels", type=int, default=10)
    parser.add_argument("--profile", default="smoke")
    options = parser.parse_args()
    path = find(options.notebook)
    print(f"{path.stem}, {options.profile}: after each further kernel has run it and stays open")
    print(f"{'kernels':>8} {'all, MB':>9} {'further, MB':>12} {'seconds':>8}", flush=True)
    total = [0.0]
    with contextlib.ExitStack() as stack:
        for number in range(1, options.kernels + 1):
            client, start = started(path, options.profile), time.perf_counter()
            stack.enter_context(client.setup_kernel())
            for place, cell in enumerate(client.nb.cells):
                client.execute_cell(cell, place)
            total.append(held())
            print(f"{number:>8} {total[-1]:>9,.0f} {total[-1] - total[-2]:>12,.0f} "
                  f"{time.perf_counter() - start:>8.0f}", flush=True)  # fmt: skip
    if options.kernels > 1:
        further = (total[-1] - total[1]) / (options.kernels - 1)
        print(f"each further kernel: {further:,.0f} MB (at most {BOUND})")
        assert further <= BOUND or options.notebook != "08", "a further kernel needs too much"


if __name__ == "__main__":
    main()
