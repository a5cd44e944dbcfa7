"""The command line: a table of commands, each one a function of its parser and the words after it.

A command adds its own arguments to the parser, parses the words and returns the exit code.  Only
the module of the command that was called is imported, so `--help` answers at once, also on a
machine where nothing is installed yet.
"""

import errno
import importlib
import importlib.util
import io
import locale
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from classroom.cli.environment import become, venv_python
from classroom.cli.parser import Parser, fail, unknown
from labkit import __version__
from labkit.keeping.paths import checkout, instead_of_home, to_install

# name: (module of this package, function, what it does).  `function(parser, words) -> exit code`
COMMANDS: dict[str, tuple[str, str, str]] = {
    "lab": ("lab", "lab", "set up what is missing and open the course in JupyterLab"),
    "test": ("suite", "test", "set up what is missing and run everything that CI runs"),
    "doctor": ("doctor", "doctor", "print what is installed on this machine, and how fast it is"),
    "run": ("notebooks", "run", "run one notebook with parameters of your own"),
    "sweep": ("sweeps", "command", "run one notebook with every combination of values"),
    "claims": ("claims", "command", "measure what the lectures claim, or print the ledger"),
    "course": ("notebooks", "course", "run every notebook, and measure time and memory"),
    "notebooks": ("notebooks", "notebooks", "execute notebooks and store their outputs"),
    "lecture": ("lecture", "lecture", "show a notebook as slides with live widgets"),
    "site": ("site", "site", "write all notebooks as pages that need no server or network"),
    "bench": ("suite", "bench", "run the benchmarks, all or some"),
    "students": ("notebooks", "students", "write the notebooks without their solutions"),
    "grade": ("grading", "grade", "run the notebooks of a class and write their marks"),
    "speedrun": ("grading", "speedrun", "train models of a class for a minute each and rank them"),
    "train": ("models", "train",
              "train a model on your own text or labels, or retrain one that ships"),
    "copy": ("copying", "copy", "copy the notebooks into a folder of your own"),
    "cache": ("caching", "command",
              "show, clear or fill the cache of measured claims"),
    "costs": ("costs", "costs", "print what it costs to train a model, or what a budget buys"),
    "publish": ("publish", "publish",
                "write the course's public address into every file that shows it"),
    "pins": ("environment", "pins", "write constraints.txt from pyproject.toml"),
}  # fmt: skip
# What a command imports besides the libraries that labkit always brings, and the extra with it.
NEEDED: dict[str, tuple[str, tuple[str, ...]]] = {
    "run": ("lab", ("papermill", "ipykernel")),
    "sweep": ("lab", ("papermill", "ipykernel")),
    "course": ("lab", ("papermill", "ipykernel")),
    "notebooks": ("lab", ("nbformat", "nbclient", "ipykernel")),
    "lecture": ("lecture", ("voila", "latex2mathml")),
    "site": ("lecture", ("nbconvert", "latex2mathml", "nh3")),
}
# These set up `.venv` themselves, or need nothing of it; the others need what is installed there.
NEED_NOTHING = ("lab", "test", "pins")

EXAMPLES = """examples:
  python -m labkit lab                           open the course
  python -m labkit doctor                        check this machine
  python -m labkit run 00 -p seed=3              run a notebook with seed 3
  python -m labkit sweep my.ipynb -p seed=0:5    run a notebook with five seeds
  python -m labkit run --help                    print the options of a command"""

# A thread of torch that waits for another one spins for milliseconds before it sleeps. If another
# program uses the second core, this delays the very thread that it waits for. A shorter spin costs
# nothing on an idle machine (`labkit bench busy`). Kernels inherit this setting.
SPINS = {"GOMP_SPINCOUNT": "10000"}

# The option that names another place for the output of a command.
WHERE = {"run": "--output", "course": "--output", "students": "--output", "train": "--output",
         "site": "--output", "sweep": "--output", "copy": "`labkit copy FOLDER`", "grade": "--csv",
         "speedrun": "--board"}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the words name and return its exit code.

    An error of the system, such as a folder that cannot be written, is printed in one line.
    """
    words = list(sys.argv[1:] if words is None else words)
    with_streams()
    who = " ".join(["labkit", *words[:1]])
    for stream in (sys.stdout, sys.stderr):
        # The encoding of a file or a pipe on Windows may lack some characters.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for name, value in SPINS.items():
        os.environ.setdefault(name, value)
    try:
        with_a_home()
        return called(words)
    except KeyboardInterrupt:
        fail(f"{who}: stopped", code=130)
    except BrokenPipeError:  # the reader of the output, such as `head`, has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except UnicodeEncodeError as error:
        if "surrogates" not in error.reason:
            raise
        fail(f"{who}: a name has characters that this locale ({locale.getencoding()}) cannot "
             "encode: set PYTHONUTF8=1", code=1)  # fmt: skip
    except OSError as error:
        of_a_file = error.filename is not None or error.errno == errno.ENOSPC
        unread = os.path.isfile(error.filename or "") and not os.access(error.filename, os.R_OK)
        option = WHERE.get(words[0] if words else "") if of_a_file and not unread else None
        advice = f": name another place with {option}" if option else ""
        fail(f"{who}: {error}{advice}", code=1)


def with_streams() -> None:
    """Open standard input, output or error if it is closed: a file would get its number.

    A kernel cannot start without them, and its output would be written into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(number, True)


def with_a_home() -> None:
    """Give a user without a home folder another one, since kernels write into it."""
    try:
        if os.access(Path.home(), os.W_OK):
            return
        # The settings in a home that cannot be written are still read.
        os.environ.setdefault("JUPYTER_RUNTIME_DIR", str(instead_of_home() / "runtime"))
        os.environ.setdefault("IPYTHONDIR", str(instead_of_home() / "ipython"))
    except RuntimeError:
        os.environ["HOME"] = str(instead_of_home())
        print(f"labkit: there is no home folder: {instead_of_home()} is used instead (HOME "
              "names another)", file=sys.stderr)  # fmt: skip


def called(words: list[str]) -> int:
    """Find the command, check that its libraries are installed, and run it."""
    if words[:1] == ["help"]:  # `labkit help run` is `labkit run --help`
        words = [*words[1:2], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"labkit {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        fail(f"labkit: {unknown('command', name, COMMANDS)}")
    asks_for_help = any(word in ("-h", "--help") for word in words[1:])
    if name not in NEED_NOTHING and not asks_for_help and importlib.util.find_spec("torch") is None:
        root = checkout()
        python = venv_python(root) if root else None
        # If a set-up was interrupted, this may be that very Python, still without torch.
        if python and python.exists() and not Path(sys.prefix).samefile(python.parents[1]):
            return become([str(python), "-m", "labkit", *words])
        if name != "doctor":
            fail(f"labkit {name}: torch is not installed in {sys.executable}: `make lab` (without "
                 "make: `python -m labkit lab`) sets up .venv with everything in it")  # fmt: skip
    extra, libraries = NEEDED.get(name, ("", ()))
    for library in libraries if not asks_for_help else ():
        if importlib.util.find_spec(library) is None:
            fail(f"labkit {name}: {library} is not installed: {to_install(extra)}")
    module, function, summary = COMMANDS[name]
    parser = Parser(prog=f"labkit {name}", description=summary[0].upper() + summary[1:] + ".")
    command = getattr(importlib.import_module(f"classroom.cli.{module}"), function)
    return int(command(parser, words[1:]))


def overview() -> str:
    """Return the help of the whole command line."""
    rows = "\n".join(f"  {name:<10} {summary}" for name, (_, _, summary) in COMMANDS.items())
    return (
        "usage: python -m labkit COMMAND [...]\n\n"
        "A course and lab kit on pre-training and transfer learning in NLP.\n\n"
        f"commands:\n{rows}\n\n{EXAMPLES}"
    )
