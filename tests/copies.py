"""Programs as copies of one process, which has imported what takes seconds.

`run(["-c", code])` is `subprocess.run([sys.executable, "-c", code])`, where it does not matter when
torch was imported: the program has a process, an environment and a folder of its own. It is a copy
of the server from which labkit's pools start theirs (`quick_start`). Where a process cannot be
copied safely, Python itself is started.
"""

import atexit
import contextlib
import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kernels import Copy

COPIED = sys.platform == "linux"


def run(
    words: Sequence[object], *, cwd: Path | None = None, env: Mapping[str, str] | None = None,
    input: str = "", timeout: float = 900,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """Run `python words` to its end, and give what it printed."""
    program = [str(word) for word in words]
    if not COPIED:
        return subprocess.run([sys.executable, *program], cwd=cwd, env=env, input=input,
                              timeout=timeout, capture_output=True, text=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, name) for name in ("in", "out", "err")]
        places[0].write_text(input, encoding="utf-8")
        copy = _start(program, cwd, env, *places)
        if copy.wait(timeout) is None:
            copy.kill()
            raise subprocess.TimeoutExpired(program, timeout)
        said = [place.read_text(encoding="utf-8") for place in places[1:]]
        return subprocess.CompletedProcess(program, copy.returncode, *said)


class Program:
    """`python words` while it runs: a line at a time is written to it and read from it."""

    def __init__(
        self, words: Sequence[object], *, cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        program = [str(word) for word in words]
        if not COPIED:
            self.process: Any = subprocess.Popen([sys.executable, *program], cwd=cwd, env=env,
                                                 stdin=-1, stdout=-1, text=True)  # fmt: skip
            self.stdin, self.stdout = self.process.stdin, self.process.stdout
            return
        context = _context()
        (reads, ours), (out, writes) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        self.process = _start(program, cwd, env, reads, writes, None)
        self.stdin = os.fdopen(os.dup(ours.fileno()), "w")
        self.stdout = os.fdopen(os.dup(out.fileno()))
        for end in (reads, ours, out, writes):
            end.close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        """Close its input, and wait for its end."""
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.process.wait()

    def __getattr__(self, name: str) -> Any:
        """What a process has: `pid`, `kill()` and the like."""
        return getattr(self.process, name)


def _context() -> Any:
    from classroom.running.children import quick_start

    return quick_start()


def _start(
    program: list[str], cwd: Path | None, env: Mapping[str, str] | None,
    *streams: Path | Connection | None,
) -> Copy:  # fmt: skip
    given = dict(os.environ if env is None else env)
    return Copy(_context(), _become, program, str(cwd or Path.cwd()), given, streams)


def _become(
    program: Sequence[str], cwd: str, env: Mapping[str, str],
    streams: Sequence[Path | Connection | None],
) -> None:  # fmt: skip
    """Become `python program`, in this process."""
    gc.freeze()  # the collector would write to all the pages that copies share
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, stream in enumerate(streams):
        if isinstance(stream, Path):
            opened = os.open(stream, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        elif stream is not None:
            os.dup2(stream.fileno(), number)
            stream.close()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    others = (place for place in sys.path if place != str(Path(__file__).parent))
    sys.path[:] = ["", *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *others]
    kind, what, *arguments = program
    sys.argv = [kind, *arguments]
    try:
        if kind == "-m":
            sys.modules.pop(what, None)  # what is imported is not run
            sys.argv[0] = what
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(main))
    finally:
        atexit._run_exitfuncs()
