"""Marks for a class: each submission runs in its own sandbox, and reports what it got right.

A notebook is run as it was handed in, cell by cell, with limits; `check`, `duel` and `diagnose`
decide what is right. They run in the submission's process. To find a student who patches them, the
judge is compared with what it was before, and the notebook's imports are read. This stops the usual
tricks, but not a determined attacker, whose page a lecturer reads anyway.
"""

import contextlib
import functools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from classroom.exercises.verdicts import Verdict
from classroom.grading.handed_in import (
    JUDGE,
    LARGEST,
    answers,
    code_of,
    needed,
    notebook_in,
    number_of,
    reaches_in,
    read,
    refuse_too_much,
)
from classroom.grading.marks import (
    BOM,
    Mark,
    added,
    already,
    as_csv,
    earlier,
    lessons,
    no_formula,
    page,
    safe,
)
from classroom.grading.sandbox import MB, Child, Limits, Stopped, end_children, fingerprint
from classroom.running.children import cancel
from classroom.versions import code_version
from labkit.keeping.files import digest, write_text

CELL = 60
"""Seconds that one cell may take."""
LARGEST_REPORT = 4 * MB
"""The most bytes in a child's report on a cell."""
SAID = 2000
"""The most characters of a reason that are kept."""


# ---- in the submission's process ----------------------------------------------------------------


class CellOutOfTime(BaseException):
    """Raised in a cell that takes too long; no `except Exception` catches it."""


def run_submission(
    pipe: Connection, enforced: Sequence[str], cells: Sequence[str], seconds: float
) -> None:
    """Run the cells of a notebook in this process and report after each of them."""
    import torch
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from classroom.exercises import checking, comparing, duels, limits, verdicts

    quiet = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "NoColor"})
    shell = InteractiveShell.instance(config=quiet)
    judge = (sys.modules[JUDGE], checking, comparing, duels, limits, verdicts)
    sys.path.insert(0, "")  # as in Jupyter, for a module that a cell writes
    used = {"torch.allclose": torch.allclose, "torch.equal": torch.equal}
    before, heard = fingerprint(judge), verdicts.HEARD
    for number, cell in enumerate(cells, start=1):
        if not cell:
            continue
        begun = len(heard)
        with _time_for_a_cell(seconds):
            result = shell.run_cell(cell, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        _report(pipe, cell=number, error=comparing.told(error)[:SAID] if error else "",
                heard=[_plain(*one) for one in heard[begun:]])  # fmt: skip
    after = fingerprint(judge)
    patched = [name for name, value in before.items() if after.get(name) != value]
    patched += [f"torch.{name}" for name in ("allclose", "equal")
                if getattr(torch, name) is not used[f"torch.{name}"]]  # fmt: skip
    _report(pipe, done=True, patched=patched[:5], enforced=list(enforced))


def _report(pipe: Connection, **words: Any) -> None:
    pipe.send_bytes(json.dumps(words).encode())


def _plain(name: str, verdict: Verdict) -> dict[str, Any]:
    rows = [[cell[:SAID] for cell in row] for row in verdict.rows]
    return {"name": name, "right": verdict.right, "why": verdict.why[:SAID], "rows": rows,
            "header": verdict.header}  # fmt: skip


@contextlib.contextmanager
def _time_for_a_cell(seconds: float) -> Iterator[None]:
    """Raise CellOutOfTime again and again after so many seconds; Windows has no such alarm."""
    if sys.platform == "win32":
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise CellOutOfTime(f"not done after {seconds:g} s")

    signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
        yield
    except CellOutOfTime:  # it came between the cell's end and here
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# ---- in the judge's process ---------------------------------------------------------------------


def mark(
    student: str, path: Path, released: Callable[[str], Sequence[str]], limits: Limits
) -> Mark:
    """Run one submission; whatever it does, there is a mark."""
    found = Mark(student, path.name, "", ())
    begun = time.monotonic()
    try:
        text = read(path)
        found.digest = _digest(path)
        cells = code_of(notebook_in(text))
        refuse_too_much(cells)
        found.of = released(number_of(cells, path))
        found.code = answers(cells)
        if reaches := reaches_in(cells):
            raise ValueError(f"refused: it reaches into the judge ({reaches})")
        some = needed(cells)
        _collect(found, some, limits)
        if some != cells and _may_lack_a_cell(found):
            _collect_all(found, cells, limits)
    except Exception as error:  # what a child reports may be anything
        found.status = " ".join(str(error).split())[:200] or "this is not a notebook"
        if isinstance(error, OSError):  # the machine's fault: a later run tries it again
            found.status = f"stopped: {found.status}"
    found.seconds = time.monotonic() - begun
    return found


def _may_lack_a_cell(found: Mark) -> bool:
    """Whether a cell that was left out may have been needed after all: a cell may change anything.

    A cell may also call `check` by another name, so an answer without a verdict counts, too.
    """
    if found.status != "finished":
        return any(error.startswith("NameError") for _, error in found.errors)
    return bool(found.errors) or found.points < len(found.of)


def _collect_all(found: Mark, cells: Sequence[str], limits: Limits) -> None:
    """Run all cells, and keep the better of both verdicts on each answer."""
    first, errors, status = found.verdicts, found.errors, found.status
    found.status = "finished"
    _collect(found, cells, limits)
    if found.status.startswith("refused"):
        return
    if found.status != "finished":  # a cell that no exercise needs may stop the others
        found.errors, found.status = errors, status
    right = {name: one for name, one in first.items() if one.right}
    found.verdicts = first | found.verdicts | right


def _collect(found: Mark, cells: Sequence[str], limits: Limits) -> None:
    """Run cells in a child and record its reports until it ends."""
    found.verdicts, found.errors = {}, []
    with Child(run_submission, cells, CELL, limits=limits) as child:
        try:
            for left in range(len(cells), -1, -1):
                told = child.said(largest=LARGEST_REPORT)
                if told.get("done"):
                    break
                if not left:
                    raise Stopped("it reports more than it has cells")
                if told["error"]:
                    found.errors.append((int(told["cell"]), str(told["error"])[:SAID]))
                for one in told["heard"]:
                    if one["name"] in found.of and not found.got(one["name"]):
                        found.verdicts[one["name"]] = _heard(one)
        except Stopped as why:
            found.status = f"stopped: {why}"
            return
    found.enforced = [str(one)[:SAID] for one in told["enforced"][:10]]
    if told["patched"]:
        found.verdicts.clear()
        names = ", ".join(map(str, told["patched"][:5]))[:SAID]
        found.status = f"refused: it changes the judge ({names})"


def _heard(one: Mapping[str, Any]) -> Verdict:
    """A verdict that a child reports, cut to a size that a page can show."""
    rows = [[str(cell)[:SAID] for cell in row[:20]] for row in one["rows"][:100]]
    return Verdict(bool(one["right"]), str(one["why"])[:SAID], rows, bool(one["header"]))


# ---- a class ------------------------------------------------------------------------------------


def submissions(folder: Path) -> dict[str, Path]:
    """The notebooks of a class by student: FOLDER/NAME.ipynb, or FOLDER/NAME/…/LESSON.ipynb.

    A student's first notebook has the student's name: 05_gpt comes before 05_gpt-Copy1.
    """
    found: dict[str, Path] = {}
    every = folder.rglob("*")
    for path in sorted(every, key=lambda one: (one.parent == folder, one.parent, one.stem)):
        inner = path.relative_to(folder)
        hidden = any(part[0] == "." for part in inner.parts)
        if path.suffix.lower() == ".ipynb" and not hidden and not path.is_dir():
            first = inner.parts[0] if len(inner.parts) > 1 else inner.stem
            names = (first, str(inner.with_suffix("")), str(inner))
            found[next(name for name in names if name not in found)] = path
    return found


def passed_over(folder: Path, own: Iterable[Path]) -> list[str]:
    """The names in a class's folder that hold no notebook, without the grader's own files."""
    known = {path.relative_to(folder).parts[0] for path in submissions(folder).values()}
    ours = {path.resolve() for path in own}
    return [one.name for one in sorted(folder.iterdir())
            if one.name not in known and one.name[0] != "." and one.resolve() not in ours
            and not any(path.is_relative_to(one.resolve()) for path in ours)]  # fmt: skip


def refuse_another_lesson(
    table: Path, rows: Iterable[dict[str, str]], paths: Iterable[Path]
) -> None:
    """Refuse a table of other lessons: new marks would replace the marks in it."""
    known, found = lessons(rows), dict[str, None]()
    for path in paths if known else ():
        with contextlib.suppress(ValueError, OSError):
            number = number_of(code_of(notebook_in(read(path))), path)
            if number in known:
                return
            found[number] = None
    if found:
        raise ValueError(f"{table} has marks of notebook {', '.join(known)}, and what is handed in "
                         f"is of {', '.join(found)}: name another table with --csv")  # fmt: skip


def grade(
    folder: Path, table: Path, pages: Path, released: Callable[[str], Sequence[str]],
    limits: Limits, jobs: int, say: Callable[[str], None],
) -> list[dict[str, str]]:  # fmt: skip
    """Mark a class, continuing where an earlier run stopped; return the rows of its students.

    A mark is written as soon as it is known; Ctrl-C ends the children whose marks are not. Rows of
    students who have nothing in the folder stay in the table.
    """
    todo = submissions(folder)
    digests = {name: _digest(path) for name, path in todo.items()}
    rows = already(before := earlier(table), digests)
    done = {row["student"] for row in rows}
    left = {name: path for name, path in todo.items() if no_formula(name) not in done}
    refuse_another_lesson(table, before, todo.values())
    here = set(map(no_formula, todo))
    others = [row for row in before if row["student"] not in here]
    comments = {row["student"]: added(row) for row in before}
    again = set(map(no_formula, left))
    # Until a notebook is marked again, its old row stays: a run that is stopped loses no comment.
    waits = {"status": "stopped: not marked again yet"}
    old = {row["student"]: row | waits for row in before if row["student"] in again}
    if done:
        say(f"{len(done)} of {len(todo)} were marked before")
    begun = time.monotonic()

    def one_mark(item: tuple[str, Path]) -> Mark:
        return mark(*item, released, limits)

    with ThreadPoolExecutor(jobs) as pool:
        marks = [pool.submit(one_mark, item) for item in left.items()]
        try:
            for number, known in enumerate(as_completed(marks), start=1):
                one = known.result()
                rows.append(one.row | comments.get(one.row["student"], {}))
                old.pop(one.row["student"], None)
                write_text(pages / f"{safe(one.student)}.html", page(one))
                write_text(table, BOM + as_csv([*rows, *old.values(), *others]))
                more = (time.monotonic() - begun) / number * (len(left) - number)
                took = f"{one.seconds:.0f} s; about {more / 60:.0f} min left"
                right = f"{one.points} of {len(one.of)}"
                say(f"[{number}/{len(left)}] {one.student}: {right}, {one.status}, {took}")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped: {table} keeps the marks that are known; the same command goes on"
            ) from None
        finally:  # after Ctrl-C or an error, do not wait for the rest of the class
            cancel(marks, end_children)
    return sorted(rows, key=lambda row: row["student"])


def _digest(path: Path) -> str:
    """A digest of the submission and the judge; empty for a submission that cannot be read."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= LARGEST:
            return digest(path.read_bytes(), judge_version().encode())[:16]
    return ""


@functools.cache
def judge_version() -> str:
    """The version of all that marks depend on, read once: a class has many notebooks."""
    return code_version()
