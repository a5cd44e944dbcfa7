"""Arguments of the command line, with errors of one line that name the nearest right word."""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from labkit import checks


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and name the nearest right word."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with exit code 2."""
        known = [word for action in self._actions for word in action.option_strings]
        known += [str(c) for action in self._actions for c in action.choices or ()]
        given = re.findall(r"(?:invalid choice: '|unrecognized arguments: )([^' ]+)", message)
        near = nearest(given[0], known) if given and given[0] not in known else ""
        # Only the error about a choice lists the valid ones.
        of_several = re.search("arguments(: | are required)", message)
        more = f" (all of them: `{self.prog} --help`)" if of_several else ""
        fail(f"{self.prog}: {message}{near}{more}")


def nearest(word: str, known: Sequence[str]) -> str:
    """Return "; did you mean …?" for the known word nearest to `word`, or nothing."""
    near = checks.nearest(word, known, cutoff=0.6)
    return f"; did you mean {near}?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return an error message about an unknown name, with the nearest one and all known ones."""
    names = list(known)
    every = ", ".join(names) or "none"
    return f"there is no {kind} {name}{nearest(name, names)} (the {kind}s: {every})"


def port(word: str) -> int:
    """Return the number of a port, for an argument of that type."""
    return whole(word, 1, 65535)


def positive(word: str) -> int:
    """Return a whole number of 1 or more, for an argument of that type."""
    return whole(word, 1, 2**31)


def from_zero(word: str) -> int:
    """Return a whole number of 0 or more, for an argument of that type."""
    return whole(word, 0, 2**31)


def whole(word: str, low: int, high: int) -> int:
    """Return a whole number within bounds, or refuse it."""
    number = int(word) if re.fullmatch(r"-?\d{1,12}", word) else None
    if number is None or not low <= number <= high:
        large = re.fullmatch(r"\d{10,}", word)
        upper = f" to {high}" if large or high < 2**31 else " or more"
        raise argparse.ArgumentTypeError(f"{word!r}: give a whole number, {low}{upper}")
    return number


def above_zero(word: str, most: float = 1e30, wanted: str = "") -> float:
    """Return a number above 0, for an argument of that type; `wanted` says what to give."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        wanted = wanted or "a finite number above 0, such as 300e9"
        raise argparse.ArgumentTypeError(f"{word!r}: give {wanted}")
    return number


def folder(word: str) -> Path:
    """Return the path of a folder, which need not exist, for an argument of that type."""
    file_or_folder(word)
    if os.path.exists(word) and not os.path.isdir(word):
        raise argparse.ArgumentTypeError(f"{word} is a file: give a folder")
    return Path(word)


def file_or_folder(word: str) -> Path:
    """Return a path, for an argument of that type."""
    if not word:  # an empty path is the current folder
        raise argparse.ArgumentTypeError("'' is not a folder: give one, such as . for this one")
    return Path(word)


def leave_out(who: str, args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Leave with one line if an option is given that would do nothing."""
    for name in names:
        if getattr(args, name) is not None and getattr(args, name) is not False:  # 0 counts
            fail(f"{who}: --{name} {why}: leave it out")


def say(line: str) -> None:
    """Print a line at once, also into a file or a pipe."""
    print(line, flush=True)


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line on standard error and leave."""
    print(" ".join(message.split()), file=sys.stderr)
    raise SystemExit(code)
