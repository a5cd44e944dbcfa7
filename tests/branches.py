"""Programs that begin alike: one process runs the beginning, copies of it run the ends.

    with Trunk() as trunk:
        trunk.run("import torch")                       # once, for all branches
        trunk.branch("print(torch.ones(2)); exit(3)").returncode

A branch knows what the trunk has run, and nothing of other branches. Where a process cannot be
copied, each branch begins with all that the trunk has run.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Of the standard library alone: it also runs where only the wheel is, or nothing.
TRUNK = """
import json, os, sys, tempfile, traceback, types

def run(code):
    exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))

def value(code):
    return eval(code, vars(sys.modules["__main__"]))

def in_the_branch(code):
    status = 1
    try:
        run(code)
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
        finally:
            os._exit(status)

def branch(code):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            in_the_branch(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
        return status, *said

kinds = {"run": run, "value": value, "branch": branch}
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.modules["__main__"] = types.ModuleType("__main__")
for line in iter(sys.stdin.readline, ""):
    kind, code = json.loads(line)
    try:
        answer = [True, kinds[kind](code)]
    except BaseException:
        answer = [False, traceback.format_exc()]
    print(json.dumps(answer), file=answers, flush=True)
"""
Ended = subprocess.CompletedProcess[str]
COPIED = hasattr(os, "fork")


class Trunk:
    """A Python that waits to be told what to do."""

    def __init__(
        self,
        *python: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(word) for word in (*(python or (sys.executable,)), "-c")]
        self.where = {"cwd": cwd, "env": env, "text": True}
        self.begun, self.lock = "", threading.Lock()
        if COPIED:
            self.process = subprocess.Popen([*self.command, TRUNK], stdin=-1, stdout=-1,
                                            **self.where)  # fmt: skip

    def __enter__(self) -> "Trunk":
        return self

    def __exit__(self, *_: object) -> None:
        if COPIED:
            self.process.communicate()

    def ask(self, kind: str, code: str) -> Any:
        """Let the trunk do something; what came of it."""
        with self.lock:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps([kind, code]) + "\n")
            self.process.stdin.flush()
            done, answer = json.loads(self.process.stdout.readline())
        assert done, answer
        return answer

    def run(self, code: str) -> None:
        """Run code in the trunk itself."""
        self.begun += f"{code}\n"
        if COPIED:
            self.ask("run", code)

    def value(self, code: str) -> Any:
        """The value of an expression in the trunk, where processes can be copied."""
        return self.ask("value", code)

    def branch(self, code: str) -> Ended:
        """Run code in a copy of the trunk, and give how it ended and what it printed."""
        if COPIED:
            return Ended(self.command, *self.ask("branch", code))
        return subprocess.run([*self.command, self.begun + code], capture_output=True, **self.where)


def command(words: Sequence[object]) -> str:
    """The code for `python -m labkit words`."""
    return (
        f"import runpy, sys; sys.argv = ['labkit', *{[str(word) for word in words]!r}]\n"
        "runpy.run_module('labkit', run_name='__main__', alter_sys=True)"
    )
