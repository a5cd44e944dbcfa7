"""`labkit sweep`: one notebook at every point of a grid, on this machine or on a Dask cluster."""

import contextlib
import importlib.util
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from classroom.cli.notebooks import LIMITS, TIMEOUT, find
from classroom.cli.parameters import MOST, ParameterError, checked_grid, once, pair, with_equals
from classroom.cli.parser import Parser, fail, folder, nearest, positive, unknown
from classroom.running.notebook import PROFILES, Point, Row
from classroom.running.sweeps import RESULTS, finished, plot, points, sweep, table
from classroom.versions import code_version
from labkit.checks import counted, first_line
from labkit.keeping.paths import to_install
from labkit.keeping.processor import cores

# The certificates of tls://, in the words of Dask's own commands: their names in
# `distributed.security.Security`, and what they are.
TLS = {
    "ca-file": ("tls_ca_file", "the certificates of trusted authorities"),
    "cert": ("tls_client_cert", "the certificate of this machine"),
    "key": ("tls_client_key", "its private key"),
}


def command(parser: Parser, words: Sequence[str]) -> int:
    """Check every name and type, run what is not finished, and sum up."""
    add = parser.add_argument
    add("notebook", help="a path, or the beginning of a name, such as 00")
    add("-p", "--parameter", type=pair, action="append", default=[], metavar="NAME=VALUES",
        help="the values of a parameter: a list such as 0.1,0.2, or a range such as 0:5 for "
        "0,1,2,3,4; all combinations of the values are run")  # fmt: skip
    add("--profile", choices=PROFILES,
        help="the size of each run: the same as -p profile=... [the notebook's own]")  # fmt: skip
    add("--workers", type=positive, help="runs at the same time, which share the cores evenly "
        "[one per core; with the profile gpu 1]")  # fmt: skip
    add("--cluster", metavar="ADDRESS",
        help="tls://HOST:PORT or tcp://HOST:PORT of a Dask scheduler, or local to start one "
        "here; anyone who can reach an open tcp:// scheduler can run code on its "
        "workers")  # fmt: skip
    for part, (_, what) in TLS.items():
        add(f"--tls-{part}", type=Path, metavar="FILE", help=f"{what}, as for `dask worker`")
    add("--output", type=folder, metavar="FOLDER",
        help="the folder of the results [runs/sweep-NAME]")  # fmt: skip
    add("--plot", nargs=2, metavar=("X", "Y"), help="plot the recorded Y against the parameter X")
    add("--timeout", type=positive, metavar="SECONDS",
        help=f"the most that one cell may take {LIMITS}")  # fmt: skip
    args = parser.parse_args(with_equals(words))
    notebook = find(args.notebook)
    grid = grid_or_fail(notebook, args)
    check_options(args, grid)
    tls = tls_of(args)
    count = math.prod(len(values) for values in grid.values())
    if not grid:
        fail("labkit sweep: there is nothing to vary: give -p NAME=VALUES, such as -p seed=0:5")
    if count > MOST:
        fail(f"labkit sweep: these are {count:,} runs; give a grid of at most {MOST:,}")
    out = args.output or Path("runs", f"sweep-{notebook.stem}")
    profiles = [str(profile) for profile in grid.get("profile", ["laptop"])]
    timeout = args.timeout or max(TIMEOUT[profile] for profile in profiles)
    workers = min(args.workers or (1 if "gpu" in profiles else cores()), count)
    with executor_of(args.cluster, workers, tls) as (executor, side_by_side):
        every = points(notebook, grid, timeout, side_by_side)
        run_all(every, out, executor)
    return summary(every, out, args.plot)


def grid_or_fail(notebook: Path, args: Any) -> dict[str, list[object]]:
    """Return the values of each parameter, with their types, or leave with one line."""
    given = once("labkit sweep", args, "write all its values in one list")
    try:
        grid = checked_grid(notebook, given)
    except ParameterError as error:
        fail(f"labkit sweep: {notebook.name}: {error}")
    for named in map(str, grid.get("profile", ())):
        if named not in PROFILES:
            fail(f"labkit sweep: {unknown('profile', named, PROFILES)}")
    return grid


def check_options(args: Any, grid: Mapping[str, object]) -> None:
    """Leave with one line if an option makes no sense, before anything runs."""
    if args.plot and args.plot[0] not in grid:
        near = nearest(args.plot[0], list(grid))
        fail(f"labkit sweep: --plot: {args.plot[0]} is not given with -p{near} "
             f"(given: {', '.join(grid) or 'none'})")  # fmt: skip
    if args.cluster is None:
        return
    if args.cluster != "local" and "://" not in args.cluster:
        fail(f"labkit sweep: --cluster {args.cluster}: give tls://HOST:PORT or tcp://HOST:PORT of "
             f"a scheduler, or local{nearest(args.cluster, ['local'])}")  # fmt: skip
    if args.workers and args.cluster != "local":
        fail("labkit sweep: --workers is for this machine: a cluster has the workers that were "
             "started with `dask worker`")  # fmt: skip
    if importlib.util.find_spec("distributed") is None:
        fail("labkit sweep: --cluster needs Dask, which the extra `cluster` brings: "
             f"{to_install('cluster')}")  # fmt: skip


def tls_of(args: Any) -> dict[str, str]:
    """Return the certificates that are given, by their names in Dask."""
    given = {part: getattr(args, f"tls_{part.replace('-', '_')}") for part in TLS}
    named = {part: path for part, path in given.items() if path is not None}
    if not named:
        return {}
    if not str(args.cluster).startswith("tls://") or len(named) < len(TLS):
        fail(f"labkit sweep: {', '.join(f'--tls-{part}' for part in TLS)} go together, with "
             "--cluster tls://HOST:PORT")  # fmt: skip
    for part, path in named.items():
        if not path.is_file():
            fail(f"labkit sweep: --tls-{part}: there is no file {path}")
    return {TLS[part][0]: str(path) for part, path in named.items()}


@contextlib.contextmanager
def executor_of(
    cluster: str | None, workers: int, tls: Mapping[str, str]
) -> Iterator[tuple[Executor, int]]:
    """Give an executor, and how many runs at most share the cores of one machine."""
    if cluster is None:
        with ThreadPoolExecutor(workers) as threads:
            yield threads, workers
        return
    from distributed import Client, LocalCluster
    from distributed.security import Security

    with contextlib.ExitStack() as stack:
        where: Any = cluster
        if cluster == "local":
            where = stack.enter_context(LocalCluster(
                n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
            ))  # fmt: skip
        try:
            # Dask reads the rest from its configuration files or environment variables.
            security = Security(**tls, require_encryption=cluster.startswith("tls://"))
            client = stack.enter_context(Client(where, timeout=20, security=security))
        except TypeError:
            fail(f"labkit sweep: {cluster} needs certificates: give --tls-ca-file, --tls-cert and "
                 "--tls-key, or name them in the configuration of Dask")  # fmt: skip
        except (OSError, ValueError) as error:  # wrong certificates raise an OSError
            fail(f"labkit sweep: there is no scheduler at {cluster}: {first_line(error)}", code=1)
        check_workers(client)
        slots = Counter[str]()
        for worker in client.scheduler_info(n_workers=-1)["workers"].values():
            slots[worker["host"]] += worker["nthreads"]
        if not slots:
            print(f"no workers yet: the runs wait for `dask worker {cluster}`", flush=True)
        yield client.get_executor(pure=False), max(slots.values(), default=1)


def check_workers(client: Any) -> None:
    """Leave with one line if a worker has other code: it would take most runs and fail them all."""
    ours = code_version()
    answers = client.run(code_version, on_error="return")
    others = {worker: said for worker, said in answers.items() if said != ours}
    if others:
        worker, said = next(iter(others.items()))
        failed = isinstance(said, Exception)
        has = f"cannot use labkit ({first_line(said)})" if failed else f"has labkit {said}"
        fail(f"labkit sweep: the worker {worker} {has}, and this machine has {ours} (of "
             f"{counted(len(answers), 'worker')}, {len(others)} differ): install the same version "
             "there, or end that worker", code=1)  # fmt: skip


def run_all(every: Sequence[Point], out: Path, executor: Executor) -> None:
    """Run what is not finished, with a line for each run and a bar of progress."""
    from tqdm import tqdm

    before = len(finished(every, out))
    print(f"{counted(len(every), 'run')}, {before} of them finished before: {out}", flush=True)
    try:
        with (
            contextlib.closing(sweep(every, out, executor)) as rows,
            tqdm(total=len(every), initial=before, unit="run", disable=None) as bar,
        ):
            for row in rows:
                bar.update()
                bar.write(told(row), file=sys.stdout)
                sys.stdout.flush()
    except KeyboardInterrupt:
        done = f"{len(finished(every, out))} of {counted(len(every), 'run')}"
        fail(f"labkit sweep: stopped with {done} finished, which are kept in {out}: the same "
             "command goes on", code=130)  # fmt: skip


def told(row: Row) -> str:
    """Return the line about one run."""
    given = " ".join(f"{name}={value}" for name, value in row.parameters.items())
    return f"{row.run} {given}: {f'FAILED: {row.error}' if row.error else f'{row.seconds:.1f} s'}"


def summary(every: Sequence[Point], out: Path, axes: Sequence[str] | None) -> int:
    """Print the table, list what failed, draw the plot, and return the exit code."""
    rows = [Row.of((out / point.name / "row.json").read_text("utf-8")) for point in every]
    failed = [row for row in rows if row.status != "finished"]
    print(f"\n{table(rows)}\n\n{out / RESULTS}")
    if failed:
        print(f"\n{len(failed)} of {counted(len(rows), 'run')} failed; the same command tries "
              "again:")  # fmt: skip
        for row in failed:
            executed = out / row.run / "run.ipynb"
            print(f"  {told(row)}" + (f" ({executed})" if executed.exists() else ""))
    if axes:
        draw(rows, out, *axes)
    return 1 if failed else 0


def draw(rows: Sequence[Row], out: Path, x: str, y: str) -> None:
    """Write the figure of a recorded number over a parameter."""
    names = sorted({name for row in rows for name in row.results})
    if y not in names:
        fail(f"labkit sweep: --plot: no run recorded {y}{nearest(y, names)} "
             f"(recorded: {', '.join(names) or 'nothing'})", code=1)  # fmt: skip
    # What is recorded may have any name.
    picture = out / re.sub(r"[^\w.=-]", "_", f"{y}-by-{x}.png")
    try:
        plot(rows, x=x, y=y).savefig(picture, dpi=150)
    except ValueError as error:
        fail(f"labkit sweep: --plot: {error}", code=1)
    print(picture)
