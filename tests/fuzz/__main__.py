"""`python -m tests.fuzz`: the inputs of some kinds, and what was found."""

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from . import run, try_one
from .kinds import KINDS


def main() -> int:
    """Run inputs, print the faults, and fail if there are any."""
    if sys.argv[1:2] == ["--child"]:
        child(float(sys.argv[2]))
    parser = argparse.ArgumentParser(prog="labkit bench fuzz")
    parser.add_argument("kinds", nargs="*", metavar="kind", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=10_000, help="inputs of each kind [10000]")
    parser.add_argument("--first", type=int, default=0, help="the number of the first [0]")
    parser.add_argument("--only", type=int, help="one input, with its traceback")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"there is no kind {min(unknown)}; the kinds: {', '.join(KINDS)}")
    if args.only is not None:
        return alone(args.kinds[0], args.only)
    found = 0
    for kind in args.kinds or KINDS:
        faults = run([kind], range(args.first, args.first + args.count))
        found += len(faults)
        print(f"{kind}: {args.count} inputs, {len(faults)} faults", flush=True)
        for fault in faults[:20]:
            print(f"    {fault.number}: {fault.what}")
    return int(found > 0)


def child(gigabytes: float) -> NoReturn:
    """Run the inputs that the parent asks for, telling it whenever one begins."""
    limit(gigabytes)
    for line in sys.stdin:
        kind, number = line.split()
        print("begin", flush=True)
        fault = try_one(kind, int(number), KINDS[kind])
        if fault is not None:
            print(f"fault {fault.what}", flush=True)
    # What libraries do when a process ends is no part of the last input, nor is its time.
    os._exit(0)


def limit(gigabytes: float) -> None:
    """Let this process have no more memory than so much, where the system can limit it."""
    try:
        import resource
    except ImportError:
        return
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def alone(kind: str, number: int) -> int:
    """Run one input in this process and show where it failed."""
    import random
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        try:
            KINDS[kind](random.Random(f"{kind} {number}"), Path(folder))
        except BaseException:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
