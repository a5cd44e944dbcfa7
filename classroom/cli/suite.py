"""Everything that CI runs, part by part, with the time of each."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from classroom.cli.environment import (
    COMPILED,
    REPEATABLE,
    THIS,
    VERSIONS,
    checkout_of,
    ready_python,
)
from classroom.cli.parser import Parser, fail, unknown
from labkit.keeping.paths import checkout

PYTEST = ("-m", "pytest", "-q")
# nbval takes a second to import, even where no outputs are compared.
PLAIN = (*PYTEST, "-p", "no:nbval")
# The files that hold browser tests: importing all the others takes 20 s.
BROWSER = ("accessibility", "browser", "demos_browser", "firefox_browser", "lecture_browser",
           "live_pages_browser", "pages")  # fmt: skip
# A test that ends its worker would end the next worker as well.
TWO_AT_A_TIME = ("-n", "2", "--dist", "loadfile", "--max-worker-restart=0")
# In the order that tests/conftest.py sets: the longest files first.
IN_ORDER = (*TWO_AT_A_TIME, "--no-loadscope-reorder")
PARTS: dict[str, tuple[str, ...]] = {
    "format": ("-m", "ruff", "format", "--check", "."),
    "lint": ("-m", "ruff", "check", "."),
    "types": ("-m", "mypy"),
    "tests": (*PLAIN, "tests", "-m", "not browser and not bench", *IN_ORDER),
    "outputs": (*PYTEST, "-p", "tests.kernels", "--nbval", "notebooks", "--nbval-current-env",
                "--nbval-cell-timeout=600", "--nbval-sanitize-with=tests/nbval.cfg",
                *TWO_AT_A_TIME),
    "parameters": ("-m", "tests.kernels", "course", "--profile", "smoke", "-p", "seed", "1",
                   "--where-known", "corpus", "README.md", "--where-known", "mask_rate", "0.3",
                   "--unsolved", "--output", "runs/test", "--jobs", "2"),
    "browser": (*PLAIN, *(f"tests/test_{name}.py" for name in BROWSER), "-m", "browser",
                *IN_ORDER),
    # By another version of Python, in an environment of its own.
    "second": ("-m", "labkit", "test", "quick", "--venv"),
}  # fmt: skip
# These leave a core idle now and then: they run, one after another, beside the others.
ASIDE = ("types", "second", "browser")
# Where versions of Python differ: the grammar, its tools, code objects, the command line.
QUICK = ("attention", "cache", "chance", "cli", "demos", "exercises", "ledger", "masking", "pages",
         "setup", "tokenizers", "world_files")  # fmt: skip
ON_REQUEST: dict[str, tuple[str, ...]] = {
    "quick": (*PLAIN, *(f"tests/test_{name}.py" for name in QUICK),
              "-m", "not slow and not browser and not bench", *IN_ORDER),
    # Set up the environment, and do nothing in it.
    "setup": ("-c", ""),
}  # fmt: skip

# Stored outputs of cells that train in view are not compared, so these cells only have to run.
# IPython runs the file in each kernel: a cell that is silent for too long fails.
SILENCE = Path(__file__).parents[2] / "tests" / "silence.py"
# Unless LABKIT_SHORT is set, notebook 13 trains in full in every profile.
MORE = {"outputs": {"LABKIT_SHORT": "1", "PYTHONSTARTUP": str(SILENCE)},
        "parameters": {"LABKIT_SHORT": "1"}}  # fmt: skip


class Part(NamedTuple):
    """The result of one part."""

    name: str
    seconds: float
    code: int
    last_line: str


def test(parser: Parser, words: Sequence[str]) -> int:
    """Run all parts, even if some fail, and print the result of each."""
    add = parser.add_argument
    known = {**PARTS, **ON_REQUEST}
    add("parts", nargs="*", help=f"any of {', '.join(known)} [all but {', '.join(ON_REQUEST)}]")
    add("--here", action="store_true", help="use this Python, not .venv (conda)")
    add("--venv", default=".venv", metavar="FOLDER",
        help="the environment, a folder in the checkout [.venv]")  # fmt: skip
    args = parser.parse_args(words)
    for name in args.parts:
        if name not in known:
            fail(f"labkit test: {unknown('part', name, known)}")
    checkout_of("labkit test: the tests belong")
    python = ready_python(args.here, args.venv)
    parts = args.parts or list(PARTS)
    start = time.perf_counter()
    aside = [name for name in parts if name in ASIDE and len(parts) > 1]

    def run(name: str) -> Part:
        if name == "second":
            return run_second(aside=name in aside)
        return run_part(name, [python, *known[name]], aside=name in aside)

    with ThreadPoolExecutor(max_workers=1) as pool:
        later = {name: pool.submit(run, name) for name in aside}
        ran = {name: run(name) for name in parts if name not in aside}
        done = [ran.get(name) or later[name].result() for name in parts]
    print("\n" + "\n".join(part.last_line for part in done if part.last_line))
    for part in done:
        print(f"{part.name:<12} {part.seconds:7.1f} s  {'FAILED' if part.code else 'ok'}")
    failed = [part.name for part in done if part.code]
    total = time.perf_counter() - start
    print(f"{'all':<12} {total:7.1f} s  {'FAILED: ' + ', '.join(failed) if failed else 'ok'}")
    return 1 if failed else 0


def run_second(aside: bool) -> Part:
    """Run the quick part of the suite on another version of Python, where there is one."""
    found = second_python()
    if found is None:
        versions = " or ".join(VERSIONS)
        return Part("second", 0.0, 0, f"second: skipped, there is no other Python {versions} here")
    version, python = found
    return run_part("second", [python, *PARTS["second"], f".venv-{version}"], aside)


def second_python() -> tuple[str, str] | None:
    """Return the version and the path of another Python, the newest that can set up .venv."""
    for version in VERSIONS:
        for path in installed(version) if version != THIS else ():
            # A name on the PATH may be a stand-in of pyenv's that leads nowhere.
            asked = [path, "-c", "import ensurepip, venv, sys; print(*sys.version_info[:2])"]
            with contextlib.suppress(OSError):  # it cannot be executed
                said = subprocess.run(asked, capture_output=True, text=True)
                if said.stdout.split() == version.split("."):
                    return version, path
    return None


def installed(version: str) -> Iterator[str]:
    """Yield the paths at which a version of Python may be: on the PATH, and among pyenv's."""
    on_the_path = shutil.which(f"python{version}")
    if on_the_path:
        yield on_the_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def run_part(name: str, command: Sequence[str], aside: bool = False) -> Part:
    """Run one part, showing what it prints, and keep the line that sums it up.

    The output of a part that runs aside is shown when the part ends.
    """
    start = time.perf_counter()
    lines: list[str] = []
    settings = {**os.environ, **COMPILED, **REPEATABLE, **MORE.get(name, {})}
    write = partial(print, end="", flush=True)
    show = lines.append if aside else write
    show(f"\n--- {name}: {' '.join(command[1:])}\n")
    last = ""
    with (
        # Models in the cache must not hide faults of the code that is tested.
        tempfile.TemporaryDirectory(prefix="labkit-cache-") as empty,
        subprocess.Popen(
            command, cwd=checkout(),
            env={**settings, "LABKIT_CACHE": empty, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            encoding="utf-8", errors="replace",
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            show(line)
            last = line.strip() or last
    write("".join(lines))
    return Part(name, time.perf_counter() - start, process.returncode, last)


def bench(parser: Parser, words: Sequence[str]) -> int:
    """Run benchmarks, one after another: each is a program of its own in tests/bench."""
    parser.add_argument(
        "names",
        nargs="*",
        help="the benchmarks, such as awd_lstm [all]; a single name may be followed by "
        "the options of that benchmark, as in minute village --seconds 60",
    )
    parser.add_argument(
        "--page", action="store_true", help="also write the results to docs/benchmarks.md"
    )
    root = checkout_of("labkit bench: benchmarks belong")
    scripts = {path.stem.removeprefix("bench_"): path
               for path in sorted((root / "tests" / "bench").glob("bench_*.py"))}  # fmt: skip
    names = list(takewhile(lambda word: word in scripts, words))
    # The words after a single name are options of that benchmark.
    count = 1 if len(names) == 1 else len(words)
    args, more = parser.parse_args(words[:count]), words[count:]
    for name in args.names:
        if name not in scripts:
            fail(f"labkit bench: {unknown('benchmark', name, scripts)}")
    # A Python in which labkit is not installed finds it too.
    path = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    if args.page:
        page = root / "tests" / "bench" / "page.py"
        return subprocess.call([sys.executable, str(page), *args.names], cwd=root, env=settings)
    failed = []
    for name in args.names or scripts:
        print(f"\n--- {name}", flush=True)
        if subprocess.call([sys.executable, str(scripts[name]), *more], cwd=root, env=settings):
            failed.append(name)
    if failed:
        fail(f"labkit bench: failed: {', '.join(failed)}", code=1)
    return 0
