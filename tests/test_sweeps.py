"""Sweeps: typed before anything runs, the same in parallel, and nothing finished is ever lost."""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import nbformat
import psutil
import pytest
import torch

from classroom.cli import main
from classroom.cli.parameters import ParameterError, checked_grid, listed
from classroom.cli.sweeps import summary
from classroom.running import children
from classroom.running.notebook import RECORD, Point, Ran, Row, blank, run_point
from classroom.running.sweeps import (
    finished,
    keep,
    plot,
    points,
    record,
    recorded,
    results,
    sweep,
    table,
    varied,
)
from classroom.versions import code_version
from labkit.keeping.processor import cores

ROOT = Path(__file__).resolve().parent.parent
PARAMETERS = """
seed: int = 0
rate: float = 0.5
sizes: list[int] = [1]
text: str = "plain"
folder: str = "."
profile: str = "smoke"
"""
# Each run signs a file.  All but seed 0 wait for the file `go`; 13 raises, 99 kills its process.
WORK = """
import os, signal, time
from pathlib import Path
from unittest.mock import patch
from classroom.running.sweeps import record
from labkit.keeping.processor import cores
with open(Path(folder, f"begun-{seed}"), "a") as file:
    file.write(f"{os.getpid()}\\n")
while seed and not Path(folder, "go").exists():
    time.sleep(0.02)
record(loss=rate * seed)
if seed == 13:
    raise ValueError("an unlucky number")
if seed == 99:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
record(threads=int(os.environ["OMP_NUM_THREADS"]))
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """Write a notebook of two cells."""
    cells = [
        nbformat.v4.new_code_cell(PARAMETERS.strip(), metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(WORK.strip()),
    ]
    path = tmp_path / "tiny.ipynb"
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def begun(folder: Path, seed: int) -> list[int]:
    """Return the kernels in which the run of a seed began."""
    path = folder / f"begun-{seed}"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None
) -> None:
    """Wait until something holds, while a process lives."""
    end = time.monotonic() + 600
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        if time.monotonic() > end:
            if process is not None:
                process.kill()
            pytest.fail(f"it did not happen in time: {process and process.communicate()}")
        time.sleep(0.05)


def gone(pids: list[int]) -> bool:
    """Say whether processes have ended within some seconds."""
    end = time.monotonic() + 120
    while any(map(runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def runs(pid: int) -> bool:
    """Say whether a process has not ended; one that nobody has asked about is still listed."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_in_parallel_as_one_by_one_and_a_failed_run_stops_no_other(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # which the share of the cores replaces
    (tmp_path / "go").touch()
    grid = {"seed": [2, 13, 99], "folder": [str(tmp_path)]}
    every = points(notebook, grid, timeout=600, side_by_side=cores())
    alone = run_point(every[0]).row
    out = tmp_path / "out"
    with ThreadPoolExecutor(2) as executor:
        rows = {row.parameters["seed"]: row for row in sweep(every, out, executor)}
    assert alone.results == rows[2].results == {"loss": 1.0, "threads": 1}
    assert rows[2]._replace(seconds=0, peak_bytes=0) == alone._replace(seconds=0, peak_bytes=0)
    assert {seed: row.status for seed, row in rows.items()} == {
        2: "finished", 13: "failed", 99: "failed"
    }  # fmt: skip
    assert rows[13].error == "cell 3: ValueError: an unlucky number"
    assert rows[13].results == {"loss": 6.5}
    assert "unlucky" in (out / rows[13].run / "run.ipynb").read_text()
    assert "ended with code -9" in str(rows[99].error)
    assert gone(begun(tmp_path, 99))
    # What is in the folder is what was yielded, and only the failed ones are left to do.
    assert {row.run: row for row in results(out)} == {row.run: row for row in rows.values()}
    assert finished(every, out).keys() == {every[0].name}
    assert rows[2].versions["labkit"] == code_version()
    assert rows[2].peak_bytes > 10 * 2**20


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_sweep_goes_on_after_ctrl_c_and_after_kill_9(
    notebook: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    words = [sys.executable, "-m", "labkit", "sweep", str(notebook), "-p", "seed=0:3", "-p"]
    words += [f"folder={tmp_path}", "--workers", "2", "--output", str(out)]
    words += ["--plot", "seed", "loss"]

    def start() -> "subprocess.Popen[str]":
        settings = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(words, cwd=ROOT, text=True, stdout=-1, stderr=-1, env=settings)
        request.addfinalizer(process.kill)
        return process

    first = start()
    wait_for(lambda: len(results(out)) == 1 and begun(tmp_path, 1) and begun(tmp_path, 2), first)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=900)
    assert first.returncode == 130
    assert "stopped with 1 of 3 runs finished" in said
    assert "Traceback" not in said
    assert gone([*begun(tmp_path, 1), *begun(tmp_path, 2)])

    second = start()
    wait_for(lambda: len(begun(tmp_path, 1)) == len(begun(tmp_path, 2)) == 2, second)
    second.kill()
    second.communicate()
    # A sweep that is killed cannot tidy up: its runs notice, or they would run beside the next.
    assert gone([*begun(tmp_path, 1), *begun(tmp_path, 2)])
    wait_for(lambda: not list(temporary.glob("labkit-*")))
    assert [row.parameters["seed"] for row in results(out)] == [0]

    (tmp_path / "go").touch()
    third = start()
    printed, said = third.communicate(timeout=600)
    assert third.returncode == 0, said
    assert "3 runs, 1 of them finished before" in printed
    assert [len(begun(tmp_path, seed)) for seed in range(3)] == [1, 3, 3]
    lines = (out / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert sorted((row["parameters"]["seed"], row["results"]["loss"]) for row in rows) == [
        (0, 0.0), (1, 0.5), (2, 1.0)
    ]  # fmt: skip
    assert {row["results"]["threads"] for row in rows} == {max(1, cores() // 2)}
    assert (out / "loss-by-seed.png").read_bytes().startswith(b"\x89PNG")


def test_one_that_has_ended_does_not_save_the_others() -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    ended, other = (subprocess.Popen(words) for _ in range(2))
    listed = [psutil.Process(ended.pid), psutil.Process(other.pid)]
    ended.kill()
    ended.wait()
    children.kill(listed)
    assert other.wait(timeout=60) != 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Start a Dask scheduler and two workers on this machine, as a user does."""
    pytest.importorskip("distributed")
    place, started = tmp_path / "scheduler.json", []
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    common = ["--scheduler-file", str(place), "--no-dashboard"]
    hosts = ["--host", "127.0.0.1"]

    def start(*words: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / f"dask-{len(started)}.txt").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, *hosts, *common],
                env=settings, cwd=tmp_path, stdout=log, stderr=log,
            )  # fmt: skip
        started.append(process)
        return process

    try:
        start("scheduler", "--port", "0")
        workers = [start("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
        for _ in range(600):
            if place.exists() and place.read_text():
                break
            time.sleep(0.1)
        yield json.loads(place.read_text())["address"], workers
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_cluster_survives_the_loss_of_a_worker(
    notebook: Path,
    tmp_path: Path,
    cluster: tuple[str, list["subprocess.Popen[bytes]"]],
    request: pytest.FixtureRequest,
) -> None:
    address, workers = cluster
    out = tmp_path / "out"
    words = [sys.executable, "-m", "labkit", "sweep", str(notebook), "-p", "seed=1:4", "-p"]
    words += [f"folder={tmp_path}", "--cluster", address, "--output", str(out)]
    ours = subprocess.Popen(words, cwd=ROOT, text=True, stdout=-1, stderr=-1)
    request.addfinalizer(ours.kill)
    wait_for(lambda: sum(len(begun(tmp_path, seed)) for seed in (1, 2, 3)) == 2, ours)
    kernels = [pid for seed in (1, 2, 3) for pid in begun(tmp_path, seed)]
    lost = [pid for pid in kernels if workers[0].pid in map(pid_of, ancestors(pid))]
    assert len(lost) == 1
    workers[0].kill()
    assert gone(lost)
    (tmp_path / "go").touch()
    _, said = ours.communicate(timeout=600)
    assert ours.returncode == 0, said
    rows = sorted(results(out), key=lambda row: row.parameters["seed"])
    assert [(row.status, row.results["loss"]) for row in rows] == [
        ("finished", 0.5), ("finished", 1.0), ("finished", 1.5)
    ]  # fmt: skip
    assert sorted(len(begun(tmp_path, seed)) for seed in (1, 2, 3)) == [1, 1, 2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_a_cluster_with_certificates(
    notebook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed")
    for name in ("ours", "foreign"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=labkit", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
    files = {"tls_ca_file": "ours.pem"}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": "ours.pem", f"tls_{role}_key": "ours.key"}
    security = distributed.security.Security(
        **{role: str(tmp_path / name) for role, name in files.items()}, require_encryption=True
    )
    (tmp_path / "go").touch()
    words = ["sweep", str(notebook), "-p", "seed=1", "-p", f"folder={tmp_path}"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, protocol="tls", security=security,
        host="127.0.0.1", dashboard_address=None,
    ) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        assert address.startswith("tls://")

        def call(name: str) -> int:
            tls = [f"--tls-{part}={tmp_path / name}.{end}" for part, end in
                   (("ca-file", "pem"), ("cert", "pem"), ("key", "key"))]  # fmt: skip
            out = str(tmp_path / f"out-{name}")
            return main([*words, "--cluster", address, *tls, "--output", out])

        assert call("ours") == 0
        with pytest.raises(SystemExit) as left:
            call("foreign")
        assert left.value.code == 1
        assert f"there is no scheduler at {address}" in capsys.readouterr().err
    [row] = results(tmp_path / "out-ours")
    assert (row.status, row.results["loss"]) == ("finished", 0.5)


@pytest.mark.parametrize(
    ("answer", "has"),
    [("0.0+older", "has labkit 0.0+older"), (ImportError("no labkit"), "cannot use labkit (no ")],
)
def test_a_worker_with_other_code_is_named_before_anything_runs(
    answer: object, has: str, notebook: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    distributed = pytest.importorskip("distributed")

    class Client(contextlib.nullcontext["Client"]):
        def __init__(self, *_: object, **how: object) -> None:
            super().__init__(self)

        def run(self, asked: Callable[[], str], on_error: str) -> dict[str, object]:
            return {"tcp://1.2.3.4:5": asked(), "tcp://1.2.3.4:6": answer}

    monkeypatch.setattr(distributed, "Client", Client)
    out = tmp_path / "out"
    words = ["-p", "seed=0:2", "--cluster", "tcp://1.2.3.4:1", "--output", str(out)]
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(notebook), *words])
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (1, 1)
    assert said.startswith(f"labkit sweep: the worker tcp://1.2.3.4:6 {has}")
    assert f"this machine has {code_version()} (of 2 workers, 1 differ)" in said
    assert not out.exists()


def ancestors(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).parents()


def pid_of(process: psutil.Process) -> int:
    return process.pid


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "sede=0:5"], "there is no parameter sede; did you mean seed?"),
        (["-p", "seed=0,one"], "parameter seed: 'one' is not of type int"),
        (["-p", "seed=0.5"], "parameter seed: '0.5' is not of type int"),
        (["-p", "seed=5:5"], "parameter seed: 5:5 is empty, since the end is excluded"),
        (["-p", "seed=1,,2"], "parameter seed: a value is missing in '1,,2'"),
        (["-p", "seed"], "-p/--parameter: 'seed' is not NAME=VALUE: give a name and a value"),
        (["-p", "seed=1", "-p", "seed=2"], "seed is given twice: write all its values in one list"),
        (["-p", "seed=1", "-p", "sizes=[1],['a']"], "is not of type list[int]"),
        (["-p", "profile=smoke,laptpo"], "there is no profile laptpo; did you mean laptop?"),
        (["-p", "rate=1", "--plot", "rte", "loss"], "rte is not given with -p; did you mean rate?"),
        (["--workers", "0"], "--workers: '0': give a whole number, 1 or more"),
        (["--timeout", "long"], "--timeout: 'long': give a whole number, 1 or more"),
        (["--cluster", "locl"], "did you mean local?"),
        (["--cluster", "tcp://127.0.0.1:1", "--workers", "2"], "--workers is for this machine"),
        (["--cluster", "tls://127.0.0.1:1", "--tls-ca-file", "x"], "--tls-key go together"),
        (
            [
                "--cluster",
                "tcp://127.0.0.1:1",
                "--tls-ca-file",
                "x",
                "--tls-cert",
                "x",
                "--tls-key",
                "x",
            ],
            "go together, with --cluster tls://",
        ),
        (
            [
                "--cluster",
                "tls://127.0.0.1:1",
                "--tls-ca-file",
                "x",
                "--tls-cert",
                "x",
                "--tls-key",
                "x",
            ],
            "--tls-ca-file: there is no file x",
        ),
        (
            ["-p", "seed=1", "--cluster", "tls://127.0.0.1:1"],
            "tls://127.0.0.1:1 needs certificates: give",
        ),
        (["--wrkers", "2"], "did you mean --workers?"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(
    words: list[str],
    message: str,
    notebook: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(notebook), "--output", str(tmp_path / "out"), *words])
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (2, 1)
    assert message in said
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("begun-*"))


def test_without_dask_a_cluster_is_refused(
    notebook: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(notebook), "-p", "seed=0:2", "--cluster", "local"])
    assert left.value.code == 2
    assert "needs Dask, which the extra `cluster` brings" in capsys.readouterr().err


def test_values_have_the_types_of_the_parameters(notebook: Path) -> None:
    words = {"seed": "0:3,7", "rate": "1,0.5", "sizes": "[1, 2],[3]", "text": "0:3,a"}
    grid = checked_grid(notebook, words)
    assert grid == {
        "seed": [0, 1, 2, 7], "rate": [1.0, 0.5], "sizes": [[1, 2], [3]], "text": ["0:3", "a"]
    }  # fmt: skip
    assert {type(value) for value in grid["seed"]} == {int}
    assert {type(value) for value in grid["rate"]} == {float}
    assert checked_grid(notebook, {"seed": "1,1,0:2"}) == {"seed": [1, 0]}
    every = points(notebook, grid)
    assert len(every) == len({point.name for point in every}) == 4 * 2 * 2 * 2
    assert [point.parameters["text"] for point in every[:3]] == ["0:3", "a", "0:3"]
    with pytest.raises(ParameterError, match="empty"):
        listed("seed", "3:0", ranges=True)
    assert listed("seed", "-2:1", ranges=True) == ["-2", "-1", "0"]


def test_the_name_of_a_run_is_what_its_result_depends_on(notebook: Path) -> None:
    [point] = points(notebook, {"seed": [1]})
    whole = nbformat.read(notebook, as_version=4)

    def name(**changes: object) -> str:
        return Point(**{**vars(point), **changes}).name

    assert name() == point.name == points(notebook, {"seed": [1]})[0].name
    assert name(timeout=1, side_by_side=9) == point.name
    assert len({name(), name(parameters={"seed": 2}), name(parameters={"seed": True}),
                name(version="0"), name(notebook="other")}) == 5  # fmt: skip
    whole.cells.append(nbformat.v4.new_markdown_cell("Prose"))
    whole.cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]
    assert name(source=nbformat.writes(whole)) == point.name
    whole.cells[1].source += "\n"
    assert name(source=nbformat.writes(whole)) != point.name


def test_another_labkit_on_a_machine_is_noticed(notebook: Path) -> None:
    [point] = points(notebook, {"seed": [0]})
    ran = run_point(Point(**{**vars(point), "version": "0.0.1+old"}))
    assert ran.row.status == "failed"
    assert "the sweep began with labkit 0.0.1+old" in str(ran.row.error)
    assert f"{platform.node()} has {code_version()} now" in str(ran.row.error)


def test_the_summary_names_no_notebook_that_a_run_did_not_leave(
    notebook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = points(notebook, {"seed": [0, 1]})
    for point, executed in zip(every, ("{}", ""), strict=True):
        keep(Ran(blank(point, "it failed"), executed), tmp_path)
    assert summary(every, tmp_path, None) == 1
    left, lost = capsys.readouterr().out.splitlines()[-2:]
    assert left.endswith(f"it failed ({tmp_path / every[0].name / 'run.ipynb'})")
    assert lost.endswith("seed=1: FAILED: it failed")


def row(seed: int, rate: float, loss: object, status: str = "finished") -> Row:
    """Return the row of a run that never was."""
    parameters = {"seed": seed, "rate": rate, "text": "x"}
    return Row(f"{seed}-{rate}", "n", status, parameters, {"loss": loss}, None, 1.0, 0, 1, {})


def test_the_newest_row_of_a_run_counts_and_a_torn_line_does_no_harm(
    notebook: Path, tmp_path: Path
) -> None:
    [point] = points(notebook, {"seed": [0]})
    good = row(0, 0.5, 2.0)._replace(run=point.name)
    torn = good._replace(status="failed").line + row(1, 0.5, 1.0).line[:40]
    (tmp_path / "results.jsonl").write_text(torn)
    (tmp_path / point.name).mkdir()
    (tmp_path / point.name / "row.json").write_text(good.line)
    # As if it had been killed after the row was safe and before its line was whole.
    with ThreadPoolExecutor(1) as executor:
        assert list(sweep([point], tmp_path, executor)) == []
    assert results(tmp_path) == [good]
    assert finished([point], tmp_path) == {point.name: good}
    assert (tmp_path / "results.jsonl").read_text().count("\n") == 3


def test_newer_code_takes_the_place_of_older_in_the_results(notebook: Path, tmp_path: Path) -> None:
    """Otherwise a mean over seeds would mix both, and nothing would show it."""
    changed = tmp_path / "changed" / notebook.name
    changed.parent.mkdir()
    changed.write_text(notebook.read_text("utf-8").replace("seed", "seed ", 1), "utf-8")
    before, after = (points(book, {"seed": [0, 1]}) for book in (notebook, changed))
    assert len({point.name for point in (*before, *after)}) == 4
    for some in (before, after, before):
        with ThreadPoolExecutor(1) as executor, patch("classroom.running.sweeps.run_point", unrun):
            list(sweep(some, tmp_path / "out", executor))
        assert {row.run for row in results(tmp_path / "out")} == {point.name for point in some}


def test_results_warn_of_rows_that_older_code_left(notebook: Path, tmp_path: Path) -> None:
    """A sweep that was stopped halfway after a change holds both."""
    older = points(notebook, {"seed": [0, 1]})
    notebook.write_text(notebook.read_text("utf-8").replace("rate * seed", "rate + seed"), "utf-8")
    newer, other = points(notebook, {"seed": [0, 1]}), tmp_path / "other.ipynb"
    shutil.copy(notebook, other)
    for point in (*older, newer[0], *points(other, {"seed": [0]})):
        keep(unrun(point), tmp_path)
    with pytest.warns(UserWarning, match="one notebook in .* come from different code"):
        assert len(results(tmp_path)) == 3
    keep(unrun(newer[1]), tmp_path)
    with warnings.catch_warnings(action="error"):
        assert len(results(tmp_path)) == 3


def unrun(point: Point) -> Ran:
    """Return the row of a run that never was."""
    return Ran(blank(point, None), "")


DAMAGED = ["", "{", "[]", "1", "null", '{"run": 1}', "[" * 100_000, "\xff"]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_row_is_run_again_and_no_end(
    damaged: str, notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [point] = points(notebook, {"seed": [0]})
    good = row(0, 0.5, 2.0)._replace(run=point.name)
    (tmp_path / point.name).mkdir()
    wrong_kind = json.dumps({**good._asdict(), "parameters": 1}, default=list)
    for text in (damaged, wrong_kind, row(1, 0.5, 1.0).line):
        (tmp_path / point.name / "row.json").write_bytes(text.encode("latin-1"))
        (tmp_path / "results.jsonl").write_bytes((text + "\n" + good.line).encode("latin-1"))
        assert finished([point], tmp_path) == {}
        assert good in results(tmp_path)
    monkeypatch.setattr("classroom.running.sweeps.run_point", lambda point: Ran(good, ""))
    with ThreadPoolExecutor(1) as executor:
        assert list(sweep([point], tmp_path, executor)) == [good]
    assert finished([point], tmp_path) == {point.name: good}


def test_the_table_shows_what_varies() -> None:
    rows = [row(0, 0.5, 2.0), row(1, 0.5, 1.25)]
    assert varied(rows) == ["seed"]
    assert [line.split() for line in table(rows).splitlines()] == [
        ["run", "seed", "loss", "seconds", "status"],
        ["0-0.5", "0", "2", "1.0", "finished"],
        ["1-0.5", "1", "1.25", "1.0", "finished"],
    ]
    said = rows[0]._replace(results={"said": "two\nlines"})
    assert table([said]).splitlines()[1].split() == ["0-0.5", "two", "lines", "1.0", "finished"]


def test_the_plot_shows_every_run_and_the_means() -> None:
    rows = [row(0, 0.5, 2.0), row(1, 0.5, 1.0), row(0, 0.1, 4.0), row(1, 0.1, None)]
    rows.append(row(2, 0.5, 9.0, status="failed"))
    mean, dots = plot(rows, x="rate", y="loss").axes[0].lines
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([0.1, 0.5], [4.0, 1.5])
    assert sorted(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == [
        (0.1, 4.0), (0.5, 1.0), (0.5, 2.0)
    ]  # fmt: skip
    by_seed = plot(rows, x="seed", y="loss").axes[0]
    assert [text.get_text() for text in by_seed.get_legend().get_texts()] == [
        "rate = 0.5", "rate = 0.1"
    ]  # fmt: skip
    assert plot(rows, x="text", y="loss").axes[0].lines
    mixed = [one._replace(parameters={"x": at}) for one, at in zip(rows, (None, 1), strict=False)]
    assert list(plot(mixed, x="x", y="loss").axes[0].lines[0].get_ydata()) == [2.0, 1.0]
    with pytest.raises(ValueError, match="no finished run has a parameter rate and"):
        plot(rows, x="rate", y="los")
    with pytest.raises(ValueError, match="no finished run recorded a finite number loss"):
        plot([row(0, 0.5, "nan"), row(1, 0.5, "inf")], x="rate", y="loss")


def test_runs_whose_values_look_the_same_when_shortened_are_lines_of_their_own() -> None:
    long = "texts/of/many/years/and/of/more/"
    for one, other in (("0.001", "0.00100001"), (f"'{long}a.txt'", f"'{long}b.txt'"), ("1", "'1'")):
        rows = [row(0, 0.5, 2.0)._replace(parameters={"x": 1, "y": json.loads(y.replace("'", '"'))})
                for y in (one, other)]  # fmt: skip
        axes = plot(rows, x="x", y="loss").axes[0]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == [
            f"y = {float(y) if '.0' in y else y}" for y in (one, other)
        ]


def test_what_is_not_finite_is_written_as_text_that_any_reader_of_json_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON")

    place = tmp_path / "run.records.json"
    monkeypatch.setattr("classroom.running.sweeps._recorded", {})
    monkeypatch.setenv(RECORD, str(place))
    record(loss=float("nan"), curve=[1.0, float("inf")])
    found = json.loads(place.read_text(), parse_constant=refuse)
    assert found == {"loss": "nan", "curve": [1.0, "inf"]}
    diverged = row(0, 0.5, float("nan"))
    kept = json.loads(diverged.line, parse_constant=refuse)
    assert kept["results"] == {"loss": "nan"}
    rows = [Row.of(diverged.line), row(1, 0.5, 1.0), row(0, 0.1, 3.0)]
    assert table(rows).splitlines()[1].split()[3] == "nan"
    # A mean over the runs that did not diverge would hide the one that did.
    low, high = plot(rows, x="rate", y="loss").axes[0].lines[0].get_ydata()
    assert (low, high != high) == (3.0, True)


def test_the_summary_lists_what_failed_and_says_so_in_the_exit_code(
    notebook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = points(notebook, {"seed": [0, 1]})
    good, bad = (blank(point, error) for point, error in zip(every, (None, "boom"), strict=True))
    good = good._replace(results={"loss": 1.0, "loss/all": 1.0})
    for one in (good, bad):
        keep(Ran(one, "{}"), tmp_path)
    assert summary(every, tmp_path, ["seed", "loss"]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 runs failed" in said
    assert f"{bad.run} seed=1: FAILED: boom ({tmp_path / bad.run / 'run.ipynb'})" in said
    assert (tmp_path / "loss-by-seed.png").is_file()
    assert summary(every, tmp_path, ["seed", "loss/all"]) == 1
    assert (tmp_path / "loss_all-by-seed.png").is_file()
    with pytest.raises(SystemExit):
        summary(every, tmp_path, ["seed", "los"])
    assert "no run recorded los; did you mean loss?" in capsys.readouterr().err
    assert summary(every[:1], tmp_path, None) == 0


def test_record_remembers_and_writes_only_inside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("classroom.running.sweeps._recorded", {})
    monkeypatch.delenv(RECORD, raising=False)
    monkeypatch.chdir(tmp_path)
    record(loss=torch.tensor(0.5), curve=torch.tensor([1, 2]))
    record(loss=0.25)
    assert recorded() == {"loss": 0.25, "curve": [1, 2]}
    assert list(tmp_path.iterdir()) == []
    place = tmp_path / "run.records.json"
    monkeypatch.setenv(RECORD, str(place))
    record(verdict="holds")
    assert json.loads(place.read_text()) == {"loss": 0.25, "curve": [1, 2], "verdict": "holds"}
    with pytest.raises(TypeError, match=r"record\(model=…\) was given object: give a number"):
        record(model=object())
    assert [path.name for path in tmp_path.iterdir()] == ["run.records.json"]
