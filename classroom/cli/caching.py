"""`labkit cache`: show or clear the cache of measured claims; `warm` fills it before a class."""

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from classroom.cli.parser import Parser, fail
from labkit.checks import counted


def command(parser: Parser, words: Sequence[str]) -> int:
    """Show what the cache holds, clear it, or fill it by running notebooks."""
    parser.add_argument("action", nargs="?", choices=("show", "clear", "warm"), default="show",
                        help="print the folder and size, clear it, or fill it [show]")  # fmt: skip
    parser.add_argument("names", nargs="*", help="with warm: the notebooks [all]")
    parser.add_argument("--profile", choices=("smoke", "laptop", "gpu"),
                        help="with warm: the size of the runs [the notebooks' own]")  # fmt: skip
    args = parser.parse_args(words)
    from labkit.keeping import cache

    if args.action != "warm" and (args.names or args.profile):
        fail(f"labkit cache {args.action}: names and --profile are for `labkit cache warm`")
    try:
        cache.limit()
    except ValueError as problem:
        fail(f"labkit cache: {problem}")
    above = next(path for path in (cache.folder(), *cache.folder().parents) if path.exists())
    if not above.is_dir():
        fail(f"labkit cache: {above} is not a folder, so nothing is kept: name one in LABKIT_CACHE")
    if args.action == "warm":
        return warm(args.names, args.profile)
    if args.action == "clear":
        print(f"{cache.shrink(0) / 1e6:,.1f} MB removed from {cache.folder()}")
        if left := cache.files():
            fail(f"labkit cache: {counted(len(left), 'file')} cannot be removed: a user who may "
                 f"write in {cache.folder()} can clear it", code=1)  # fmt: skip
        return 0
    print(held())
    shared = cache.shared()
    if shared:
        state = "read as well" if shared.is_dir() else "not read, since there is no such folder"
        print(f"{shared}: {state} (LABKIT_CACHE_SHARED)")
    return 0


def held() -> str:
    """Return the size of the cache and its limit."""
    from labkit.keeping import cache

    files = cache.files()
    size = sum(stat.st_size for _, stat in files)
    return (f"{cache.folder().resolve()}: {counted(len(files), 'file')}, {size / 1e6:,.1f} MB of "
            f"{cache.limit() / 1e6:,.0f} MB")  # fmt: skip


def warm(names: Sequence[str], profile: str | None) -> int:
    """Run notebooks one after another, so that others find their claims in the cache."""
    from classroom.cli.notebooks import TIMEOUT, named_or_all
    from classroom.cli.parameters import ParameterError, declared
    from classroom.running.notebook import execute
    from labkit.keeping import cache

    place, failed = cache.folder().resolve(), 0
    place.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, object] = {"measure": True, "profile": profile}
    for book in named_or_all(names):
        try:
            given = {name: wanted[name] for name in declared(book) if wanted.get(name)}
        except ParameterError as error:
            fail(f"labkit cache: {error}")
        with tempfile.TemporaryDirectory(prefix="labkit-warm-") as folder:
            run = execute(book, Path(folder, book.name), given, TIMEOUT[profile or "laptop"])
        failed += run.error is not None
        state = f"FAILED: {run.error}" if run.error else "ok"
        print(f"{book.stem:<28} {run.seconds:6.1f} s  {state}", flush=True)
    private = [path for path, stat in cache.files() if not stat.st_mode & 4]
    if private and os.name != "nt":
        print(f"{counted(len(private), 'file')} can be read by you or your group only: "
              f"chmod -R o+rX {shlex.quote(str(place))}")  # fmt: skip
    # If the limit is too small, the first files are already gone: the numbers show it.
    print(held())
    print(f"for all to read it: export LABKIT_CACHE_SHARED={shlex.quote(str(place.parent))}")
    return 1 if failed else 0
