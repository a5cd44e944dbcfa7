"""Run notebooks: one with parameters of your own, all of them, or to store their outputs."""

import argparse
import copy
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from classroom.cli.environment import REPEATABLE, checkout_of
from classroom.cli.lab import METADATA
from classroom.cli.parameters import (
    ParameterError,
    checked,
    declared,
    kind_of,
    once,
    pair,
    with_equals,
)
from classroom.cli.parser import Parser, fail, folder, positive, unknown
from classroom.cli.results import OPENED, index_of, write_table
from classroom.demos.recording import KEY, STORE
from classroom.exercises import asked, proving, solved_cells, students_version
from classroom.running.children import THREADS, cancel, end_processes, environment
from classroom.running.light import light_jsonschema
from classroom.running.notebook import PROFILES, Run, ending_at_once, execute, kernel_settings
from labkit.checks import counted, in_a_line
from labkit.keeping.files import digest, write_json, write_text
from labkit.keeping.paths import checkout
from labkit.keeping.processor import cores

LARGEST = 100 * 10**6  # bytes of a notebook
# Seconds that one cell may take: a cell that hangs ends with an error.
TIMEOUT = {"smoke": 300, "laptop": 1800, "gpu": 24 * 3600}
LIMITS = "[smoke {smoke}, laptop or no profile {laptop}, gpu {gpu}]".format(**TIMEOUT)
NOT_COMPARED = "nbval-ignore-output"
KEPT_CELL_METADATA = ("tags", "jupyter", "slideshow", "editable", "deletable")


def run(parser: Parser, words: Sequence[str]) -> int:
    """Run one notebook with parameters, after checking their names and types."""
    parser.add_argument("notebook", help="a path, or the beginning of a name, such as 00")
    add_parameters(parser, "the notebook's own")
    parser.add_argument("--output", type=ipynb, metavar="FILE", help="the notebook to write "
                        "[runs/NAME-….ipynb, named after the parameters]")  # fmt: skip
    parser.add_argument("--timeout", type=positive, metavar="SECONDS",
                        help=f"the most that one cell may take {LIMITS}")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the parameters and exit")
    args = parser.parse_args(with_equals(words))
    notebook = find(args.notebook)
    parameters = parameters_or_fail(notebook, once("labkit run", args))
    if args.list:
        print(listing(notebook))
        return 0
    timeout = args.timeout or TIMEOUT[str(parameters.get("profile", "laptop"))]
    output = args.output or Path("runs", f"{notebook.stem}-{named_after(parameters)}.ipynb")
    if output.exists() and output.samefile(notebook):
        fail(f"labkit run: {output} is the notebook that is run: give another name with --output")
    result = execute(notebook, output, parameters, timeout, progress=os.isatty(2))
    print(f"{output}: {result.seconds:.1f} s, {result.memory}")
    if result.error:
        fail(f"labkit run: {notebook.name} failed: {result.error} (marked in {output})", code=1)
    return 0


def course(parser: Parser, words: Sequence[str]) -> int:
    """Run every notebook and, when asked, write the measured table into the README."""
    add_parameters(parser, "laptop")
    parser.add_argument("--jobs", type=positive, default=1, help="notebooks at the same time [1]")
    parser.add_argument(
        "--table",
        action="store_true",
        help="measure all columns of the table in README.md, or with --profile one, and write it",
    )
    parser.add_argument("--output", type=folder, default=Path("runs"), metavar="FOLDER",
                        help="the folder to write [runs]")  # fmt: skip
    parser.add_argument("--where-known", type=pair, action="append", default=[],
                        metavar="NAME=VALUE",
                        help="like -p, but only for notebooks with this parameter")  # fmt: skip
    parser.add_argument(
        "--unsolved",
        action="store_true",
        help="also check that each exercise fails without its solution",
    )
    args = parser.parse_args(with_equals(words))
    if args.table:
        checkout_of("labkit course: the table belongs")
    books = every_notebook()
    kinds = ["smoke", "laptop", OPENED] if args.table else ["laptop"]
    given = once("labkit course", args)
    if "profile" in given:
        kinds = [given["profile"]]
    refuse_unused(args.where_known, books)
    asked = {}
    for kind in kinds:
        wanted = given | {"profile": "laptop" if kind == OPENED else kind}
        asked[kind] = [parameters_or_fail(book, wanted, args.where_known) for book in books]
    chosen = [to_prove(book, args.output) for book in books] if args.unsolved else books
    measured, outputs = dict[str, list[Run]](), list[Path]()
    for kind in kinds:
        named = [args.output / f"{book.stem}-{kind}.ipynb" for book in books]
        measured[kind] = run_kind(kind, chosen, named, asked[kind], args)
        outputs += named
    runs = [run for some in measured.values() for run in some]
    failed = [f"{run.notebook} ({run.error})" for run in runs if run.error]
    index = args.output / "index.md"
    write_text(index, index_of(outputs, runs))
    print(f"{counted(len(runs) - len(failed), 'notebook')} ran, {len(failed)} failed"
          f"{': ' if failed else ''}{'; '.join(failed)}; what they found: {index}")  # fmt: skip
    if args.table and not failed:
        write_table(books, measured, args.jobs)
    return 1 if failed else 0


def refuse_unused(where_known: Sequence[tuple[str, str]], books: Sequence[Path]) -> None:
    """Leave with one line if no notebook has a parameter of --where-known."""
    known = sorted({name for book in books for name in declared(book)})
    for name, _ in where_known:
        if name not in known:
            fail(f"labkit course: --where-known: {unknown('parameter', name, known)}")


def run_kind(
    kind: str,
    books: Sequence[Path],
    outputs: Sequence[Path],
    parameters: Sequence[dict[str, object]],
    args: Any,
) -> list[Run]:
    """Run notebooks in a profile, or as a lecture opens them."""
    if kind != OPENED:
        return run_all(books, outputs, parameters, kind, args.jobs, afresh=args.table)
    from classroom.charts.live import SHORT

    with environment({SHORT: "1"}):
        return run_all(books, outputs, parameters, "laptop", args.jobs, afresh=args.table)


def run_all(
    books: Sequence[Path],
    outputs: Sequence[Path],
    parameters: Sequence[dict[str, object]],
    profile: str,
    jobs: int,
    *,
    afresh: bool,
) -> list[Run]:
    """Run notebooks in parallel and print a line for each; `afresh`: with an empty cache."""
    empty = tempfile.TemporaryDirectory(prefix="labkit-cache-") if afresh else nullcontext()
    results = []
    with empty as cache:
        # Models in the cache must not make the measured times shorter.
        settings = {"LABKIT_CACHE": cache} if cache else {}
        if jobs > 1:  # threads that wait for a busy core make each other many times slower
            threads = str(max(1, cores() // jobs))
            settings |= {name: os.environ.get(name, threads) for name in THREADS}
        with environment(settings), ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(_alone, *given, TIMEOUT[profile])
                       for given in zip(books, outputs, parameters, strict=True)]  # fmt: skip
            try:
                for future in futures:
                    result = future.result()
                    state = f"FAILED: {result.error}" if result.error else "ok"
                    print(f"{result.notebook:<28} {result.seconds:6.1f} s "
                          f"{result.memory:>9}  {state}", flush=True)  # fmt: skip
                    results.append(result)
            finally:  # after Ctrl-C, the waiting notebooks would still run
                cancel(futures, end_processes)
    return results


def _alone(*given: Any) -> Run:
    """Run a notebook in a process of its own, so that only its memory is measured."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(execute, *given).result()


def notebooks(parser: Parser, words: Sequence[str]) -> int:
    """Execute notebooks from a clean kernel and store their outputs, normalised."""
    parser.add_argument("names", nargs="*", help="the notebooks [all]")
    args = parser.parse_args(words)
    if checkout() is None and not args.names:
        fail("labkit notebooks: the notebooks of an installed package stay as they are: "
             "`labkit copy FOLDER` first, and name the copies")  # fmt: skip
    light_jsonschema()
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    with environment({**REPEATABLE, STORE: "1"}):
        for path in named_or_all(args.names):
            notebook = nbformat.read(path, as_version=4)
            folder = {"metadata": {"path": str(path.parent)}}
            client = NotebookClient(
                notebook, timeout=TIMEOUT["laptop"], resources=folder, config=kernel_settings()
            )
            try:
                execute_cells(client)
            except (CellExecutionError, RuntimeError, TimeoutError) as error:  # or a kernel died
                said = in_a_line(error)
                if isinstance(error, CellExecutionError):  # its message is the whole traceback
                    said = f"{error.ename}: {error.evalue}"
                fail(f"labkit notebooks: {path} is as it was: cell {client.code_cells_executed} "
                     f"failed: {said}", code=1)  # fmt: skip
            write_text(path, dumps(normalised(notebook)))
            print(f"{path.name}: stored", flush=True)
    return 0


def execute_cells(client: Any) -> None:
    """Execute every cell; at Ctrl-C, `client.execute` would end with an error of its own."""
    client.reset_execution_trackers()
    with client.setup_kernel(), ending_at_once(client):
        for place, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, place, execution_count=client.code_cells_executed + 1)


def add_parameters(parser: Parser, usual: str) -> None:
    """Add the options that `run` and `course` share; `usual` is the profile if none is named."""
    parser.add_argument("-p", "--parameter", type=pair, action="append", default=[],
                        metavar="NAME=VALUE",
                        help="a parameter of the notebook, also as NAME VALUE")  # fmt: skip
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help=f"the size of the run: the same as -p profile=... [{usual}]",
    )


def to_prove(notebook: Path, folder: Path) -> Path:
    """Write a copy of a notebook in which each exercise is tried unsolved first."""
    (folder / "unsolved").mkdir(parents=True, exist_ok=True)
    copied = folder / "unsolved" / notebook.name
    write_notebook(copied, proving(json.loads(notebook.read_text(encoding="utf-8"))))
    return copied


def students(parser: Parser, words: Sequence[str]) -> int:
    """Write every notebook without its solutions, for a class to solve."""
    parser.add_argument("names", nargs="*", help="the notebooks [all]")
    parser.add_argument("--output", type=folder, default=Path("runs/students"),
                        metavar="FOLDER", help="the folder to write [runs/students]")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true",
                        help="replace notebooks that may hold answers")  # fmt: skip
    args = parser.parse_args(words)
    args.output.mkdir(parents=True, exist_ok=True)
    books = named_or_all(args.names)
    if any(args.output.resolve() == path.parent.resolve() for path in books):
        fail(f"labkit students: {args.output} holds the notebooks with their solutions: "
             "give another folder with --output")  # fmt: skip
    known = [path.name for path in books if (args.output / path.name).exists()]
    if known and not args.overwrite:
        fail(f"labkit students: {args.output} already has {', '.join(known)}: give another folder "
             "with --output, or --overwrite, which discards the answers in them")  # fmt: skip
    for path in books:
        solved = json.loads(path.read_text(encoding="utf-8"))
        write_notebook(args.output / path.name, students_version(solved))
        cells = ["".join(solved["cells"][i]["source"]) for i in solved_cells(solved)]
        free = sum(not asked(cell) for cell in cells)
        count = counted(len(cells), "exercise") + (f", {free} of them ungraded" if free else "")
        print(f"{args.output / path.name}: {count}", flush=True)
    return 0


def ipynb(word: str) -> Path:
    """Return the path of a notebook that can be written, for an argument of that type."""
    if not word.endswith(".ipynb") or Path(word).is_dir():
        raise argparse.ArgumentTypeError(f"{word}: give the name of a file that ends in .ipynb")
    return Path(word)


def named_after(parameters: Mapping[str, object]) -> str:
    """Return a part of a file name that differs between runs with different parameters."""
    rest = [f"{name}={value}" for name, value in parameters.items() if name != "profile"]
    words = "-".join([str(parameters.get("profile", "as-is")), *sorted(rest)])
    plain = re.sub(r"[^A-Za-z0-9_.=-]", "_", words)[:80]
    # A value may be too long for a file name, or have characters that none can have.
    return plain if plain == words else f"{plain}-{digest(words.encode())[:8]}"


def parameters_or_fail(
    notebook: Path, given: Mapping[str, str], where_known: Sequence[tuple[str, str]] = ()
) -> dict[str, object]:
    """Return the parameters of the command line, with their types, or leave with one line."""
    if where_known:
        names = declared(notebook)
        given = {**given, **{name: value for name, value in where_known if name in names}}
    profile = given.get("profile", "smoke")
    if profile not in PROFILES:
        fail(f"labkit: {unknown('profile', profile, PROFILES)}")
    try:
        return checked(notebook, given)
    except ParameterError as error:
        fail(f"labkit: {notebook.name}: {error}")


def every_notebook() -> list[Path]:
    """Return the notebooks of the course, in order."""
    return sorted(notebooks_folder().glob("[0-9]*.ipynb"))


def notebooks_folder() -> Path:
    """Return the folder of the notebooks, in a checkout or in the installed package."""
    root = checkout()
    return root / "notebooks" if root else Path(__file__).resolve().parent.parent / "notebooks"


def named_or_all(names: Sequence[str]) -> list[Path]:
    """Return the notebooks of these names; without names, all of the course."""
    return [find(name) for name in names] or every_notebook()


def find(name: str) -> Path:
    """Return the notebook with this path, or the only one whose name begins with it."""
    path = Path(name)
    if name.endswith(".ipynb") and path.is_file():
        check_notebook(path)
        return path
    books = every_notebook()
    if path.parent.name not in ("", "notebooks"):
        fail(f"labkit: there is no file {name} (the beginning of a name, such as 05, is enough)")
    found = [book for book in books if book.name.startswith(path.name)]
    if len(found) > 1:
        fits = ", ".join(book.stem for book in found)
        fail(f"labkit: {name!r} matches {fits}: write more of the name")
    if not found:
        fail(f"labkit: {unknown('notebook', path.stem, [book.stem for book in books])}")
    return found[0]


def check_notebook(path: Path) -> None:
    """Leave with one line if a file is not a notebook."""
    if path.stat().st_size > LARGEST:
        fail(f"labkit: {path} has more than {LARGEST // 10**6} MB: a notebook of that size is not "
             "read; clear its outputs")  # fmt: skip
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        wanted = {"cell_type": str, "metadata": dict, "source": str | list}
        sound = all(isinstance(cell[name], kind)
                    for cell in found["cells"] for name, kind in wanted.items())  # fmt: skip
        if found["nbformat"] != 4 or not sound:
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        fail(f"labkit: {path} is not a Jupyter notebook of version 4: give a valid .ipynb file")


def listing(notebook: Path) -> str:
    """Return the name, type, default and meaning of each parameter of a notebook."""
    rows = [
        f"{name}: {kind_of(row['inferred_type_name'], row['default']) or '?'} = {row['default']}"
        f"    {row['help']}".rstrip()
        for name, row in declared(notebook).items()
    ]
    return "\n".join(rows) or f"{notebook.name} has no parameters"


def normalised(notebook: Any) -> Any:
    """Return the notebook without what differs from run to run or cannot live in a file."""
    notebook = json.loads(json.dumps(notebook))
    notebook["metadata"] = copy.deepcopy(METADATA)
    for cell in notebook["cells"]:
        kept = {key: cell["metadata"][key] for key in KEPT_CELL_METADATA if key in cell["metadata"]}
        cell["metadata"] = kept
        if "train" in kept.get("tags", ()) and NOT_COMPARED not in kept["tags"]:
            # The results of training in view differ from processor to processor.
            kept["tags"].append(NOT_COMPARED)
        if cell["cell_type"] == "code":
            shown = [static(output) for output in joined(cell["outputs"])]
            cell["outputs"] = [output for output in shown if output.get("data") != {}]
    return notebook


def static(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output without its widget, which lives only as long as its kernel."""
    if "data" in output:
        widget = "application/vnd.jupyter.widget-view+json"
        output["data"] = {kind: data for kind, data in output["data"].items() if kind != widget}
        known = output.get("metadata", {})
        # With the recording of a demo, a page can play it.
        output["metadata"] = {KEY: known[KEY]} if KEY in known else {}
    return output


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs with neighbouring pieces of one stream joined: timing splits them."""
    whole: list[dict[str, Any]] = []
    for output in outputs:
        if whole and "text" in output and whole[-1].get("name") == output["name"]:
            whole[-1]["text"] = "".join(whole[-1]["text"]) + "".join(output["text"])
        else:
            whole.append(output)
    return whole


def write_notebook(path: Path, notebook: dict[str, Any]) -> None:
    """Write the JSON of a notebook as nbformat does, without the time to import nbformat."""
    for cell in notebook["cells"]:
        if isinstance(cell["source"], str):
            cell["source"] = cell["source"].splitlines(keepends=True)
    write_json(path, notebook, sort_keys=True)


def dumps(notebook: Any) -> str:
    """Return an executed notebook as the text of its file."""
    import nbformat

    return nbformat.writes(nbformat.from_dict(notebook), version=4) + "\n"
