"""Marks for a class: `grade` runs its notebooks, `speedrun` its models."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from classroom.cli.notebooks import every_notebook
from classroom.cli.parser import Parser, fail, file_or_folder, folder, positive, say
from classroom.exercises import asked
from classroom.grading import handed_in, marking, marks
from classroom.grading.sandbox import MB, Limits
from labkit.checks import counted
from labkit.keeping.files import write_text
from labkit.keeping.paths import PACKAGE
from labkit.keeping.processor import cores


def grade(parser: Parser, words: Sequence[str]) -> int:
    """Mark a folder of notebooks and write a table, and a page for each student."""
    add = parser.add_argument
    add(
        "folder",
        type=folder,
        help="the folder with NAME.ipynb or NAME/LESSON.ipynb of each student",
    )
    add("--csv", type=Path, default=Path("marks.csv"), metavar="FILE",
        help="the table to write [marks.csv]")  # fmt: skip
    add("--pages", type=folder, metavar="FOLDER",
        help="the folder of the pages [marks, beside the table]")  # fmt: skip
    add("--seconds", type=positive, default=300,
        help="seconds for each of the two runs of a notebook [300]")  # fmt: skip
    add("--memory", type=positive, default=3000, metavar="MB", help="MB for a notebook [3000]")
    add("--jobs", type=positive, default=cores(), help="notebooks at the same time [one per core]")
    args = parser.parse_args(words)
    if not args.folder.is_dir():
        fail(f"labkit grade: there is no folder {args.folder}: give the one with the notebooks")
    if not marking.submissions(args.folder):
        fail(f"labkit grade: {args.folder} holds no .ipynb file: give the class's folder")
    from classroom.charts.live import SHORT

    if args.pages is None and not args.csv.suffix:
        fail(f"labkit grade: --csv {args.csv} has no ending, so the folder of pages would "
             f"have the same name: give {args.csv}.csv, or a folder with --pages")  # fmt: skip
    pages = args.pages or args.csv.with_suffix("")
    if pages.resolve() == args.folder.resolve():
        fail(f"labkit grade: the pages would be among the notebooks in {pages}: give another "
             "folder with --pages, or another name with --csv")  # fmt: skip
    pages.mkdir(parents=True, exist_ok=True)
    # Absolute paths, since a child runs in another folder; and none that holds its own Python.
    every = [args.folder, args.csv, pages, *(book.parent for book in every_notebook()[:1])]
    own = (PACKAGE, Path(sys.prefix).resolve())
    hidden = [path for path in map(Path.resolve, every)
              if not any(one.is_relative_to(path) for one in own)]  # fmt: skip
    limits = Limits(args.seconds, args.memory * MB, hidden, settings={SHORT: "1"})
    try:
        rows = marking.grade(args.folder, args.csv, pages, released, limits, args.jobs, say)
    except ValueError as error:
        fail(f"labkit grade: {error}")
    except KeyboardInterrupt as error:
        fail(f"labkit grade: {str(error) or 'stopped'}", code=130)
    print(f"{counted(len(rows), 'student')}: {args.csv}, and a page for each in {pages}")
    if other := marking.passed_over(args.folder, [args.csv, pages]):
        print(f"not marked, because there is no .ipynb file: {named_few(other)}")
    print_lessons(rows)
    return 0


def print_lessons(rows: Sequence[dict[str, str]]) -> None:
    """Print how many students solved each exercise, and who handed in another lesson."""
    if len(handed := marks.lessons(rows)) > 1:
        print(
            f"these notebooks are of {len(handed)} lessons, so do not compare their points: "
            + "; ".join(f"{number} ({named_few(who)})" for number, who in sorted(handed.items()))
        )
    for name in filter(marks.is_asked, dict.fromkeys(key for row in rows for key in row)):
        print(f"  {name:<24} {sum(row.get(name) == '1' for row in rows)} right")


def named_few(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def speedrun(parser: Parser, words: Sequence[str]) -> int:
    """Train what a file defines, or each file of a folder, for a minute, and show the board."""
    add = parser.add_argument
    add("path", type=file_or_folder, help="my_model.py with train(...), or a folder of files")
    add("--seconds", type=positive, default=60, help="seconds of training [60]")
    add("--language", choices=("village", "language"), default="village",
        help="the language of the text [village]")  # fmt: skip
    add("--words", type=positive, default=500_000, help="words of training text [500000]")
    add("--threads", type=positive, default=cores(), help="threads for each model [one per core]")
    add("--board", type=Path, default=Path("board.md"), metavar="FILE",
        help="the ranking to write, with a picture beside it [board.md]")  # fmt: skip
    args = parser.parse_args(words)
    if args.board.suffix.lower() == ".png":
        fail(f"labkit speedrun: --board {args.board} would be the picture, which is written beside "
             f"the table: give a table such as {args.board.with_suffix('.md')}")  # fmt: skip
    from classroom.grading import contest

    paths = sorted(args.path.glob("*.py")) if args.path.is_dir() else [args.path]
    if not paths or not all(path.is_file() and path.suffix == ".py" for path in paths):
        wrong = "is not a .py file or a folder of them" if args.path.exists() else "does not exist"
        fail(f"labkit speedrun: {args.path} {wrong}: give one that defines train(tokens, "
             f"vocabulary, seconds), such as {contest.RECIPE}")  # fmt: skip
    args.board.parent.mkdir(parents=True, exist_ok=True)
    if args.board.is_dir() or not os.access(args.board.parent, os.W_OK):
        fail(f"labkit speedrun: {args.board} cannot be written: give another --board")
    task = contest.draw(args.language, args.words, held_out=8_000)
    results: list[contest.Result] = []

    def keep(found: Sequence[contest.Result]) -> None:
        results[:] = found
        write_text(args.board, contest.table(results))

    picture = args.board.with_suffix(".png")
    try:
        contest.race(paths, task, args.seconds, say, args.threads, keep)
    except KeyboardInterrupt:
        kept = f"{args.board} keeps the results so far" if results else "there is no result yet"
        fail(f"labkit speedrun: stopped: {kept}", code=130)
    finally:
        if results:
            picture.write_bytes(contest.picture(results).png())
    print(f"the board: {args.board} and {picture}")
    return int(len(paths) == 1 and any(one.refused for one in results))


def released(number: str) -> list[str]:
    """The exercises of the course's own notebook with this number, in order."""
    for path in every_notebook():
        if path.name.startswith(number):
            cells = handed_in.code_of(json.loads(path.read_text(encoding="utf-8")))
            return list(dict.fromkeys(name for cell in cells for name in asked(cell)))
    raise ValueError(f"the course has no notebook {number}")
