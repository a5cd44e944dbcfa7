"""`labkit claims`: measure what the lectures claim."""

import argparse
import contextlib
import datetime
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from classroom.cli.environment import REPEATABLE, checkout_of
from classroom.cli.parameters import MOST
from classroom.cli.parser import Parser, fail, from_zero, leave_out, positive, unknown, whole
from classroom.running.children import cancel, end_processes, processes
from classroom.running.notebook import PROFILES, versions
from classroom.versions import code_version
from labkit.checks import counted
from labkit.keeping.files import digest, read_json, write_json
from labkit.keeping.processor import cores


def command(parser: Parser, words: Sequence[str]) -> int:
    """Measure claims with several seeds, or print the stored findings."""
    add = parser.add_argument
    add("names", nargs="*", help="the claims to measure or print [all]")
    add("--profile", choices=PROFILES, help="the size of the experiments [laptop]")
    add(
        "--seed",
        type=from_zero,
        help="the first seed [0; with --store 100, since seeds below that were used for tuning]",
    )
    add("--seeds", type=partial(whole, low=1, high=MOST), help="the number of seeds [smoke 1, "
        "laptop 3, gpu 5; with --store as many as bounds.toml says]")  # fmt: skip
    add("--jobs", type=positive, help="runs at the same time [one per core]")
    add("--store", action="store_true", help="write the results to data/claims")
    add("--expect", action="store_true", help="store the range in which each figure of a notebook "
        "must lie; needs 5 seeds or more")  # fmt: skip
    add = parser.add_mutually_exclusive_group().add_argument
    add("--kept", action="store_true", help="print the stored results and measure nothing")
    add("--cost", action="store_true", help="print the minutes that each stored claim took")
    args = parser.parse_args(words)
    if args.kept or args.cost:
        option = "--kept" if args.kept else "--cost"
        leave_out("labkit claims", args, ("store", "expect", "seed", "seeds", "profile", "jobs"),
                  f"does nothing beside {option}, which measures nothing")  # fmt: skip
    from classroom import ledger

    # Reading the ledger needs no experiments, which take seconds to import.
    with _damage_in_one_line():
        known = ledger.bounds()
    for name in args.names:
        if name not in known:
            fail(f"labkit claims: {unknown('claim', name, known)}")
    if args.kept or args.cost:
        with _damage_in_one_line():
            kept = [ledger.read(path) for name, path in ledger.files().items()
                    if name in args.names or not args.names]  # fmt: skip
        print(ledger.table(kept) if args.kept else ledger.cost(kept))
        return 0
    args.profile, args.jobs = args.profile or "laptop", args.jobs or cores()
    return measure_and_keep(args, words)


@contextlib.contextmanager
def _damage_in_one_line() -> Iterator[None]:
    """End the command with one line that names a damaged file of the ledger."""
    try:
        yield
    except ValueError as problem:
        fail(f"labkit claims: {problem}", code=1)


def measure_and_keep(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Measure the claims, print the table and, when asked, keep each finding."""
    from classroom import ledger

    usual = ledger.SEEDS[args.profile]
    counts = {
        name: args.seeds or (ledger.bounds()[name]["seeds"] if args.store else usual)
        for name in args.names or ledger.bounds()
    }
    first = (100 if args.store else 0) if args.seed is None else args.seed
    refuse_to_keep(args, min(counts.values()))
    folder = _folder() if args.store or args.expect else None
    chosen = with_experiments(args.names, folder)
    seeds = {name: range(first, first + count) for name, count in counts.items()}
    findings = []
    # Stored one by one: Ctrl-C loses no finished claim.
    for finding, runs in measure_all(chosen, args.profile, seeds, args.jobs):
        findings.append(finding)
        if folder and not finding.arms:
            print(f"{finding.id:<22} is not stored: this size or this machine does not allow it")
            continue
        if args.store and folder:
            store(finding, runs, folder, words)
        # The ranges that notebooks expect are never older than the ledger's measurement.
        renewed = args.store and ledger.expected(finding.id, finding.profile)
        if folder and (args.expect or renewed):
            expect(finding, folder)
    print(ledger.table(findings))
    missing = chosen.keys() - {finding.id for finding in findings}
    if missing:
        print(f"not measured, since a run failed: {', '.join(sorted(missing))}")
    return 1 if missing else 0


def with_experiments(names: Sequence[str], folder: Path | None) -> dict[str, Any]:
    """Return the claims; leave before hours of measuring if anything that they need is missing."""
    from classroom import ledger

    with _damage_in_one_line():
        ledger.expected("", "")
        if folder:
            ledger.records(folder)
            for name in names or ledger.bounds():
                ledger.digest_of_texts(name)
        from classroom.claims import claims  # takes seconds, and reads the bounds

        known = claims()
    for name in names:
        if name not in known:
            fail(f"labkit claims: {name} has no experiment: write one in a module of "
                 "classroom/claims, and list it in CLAIMS there")  # fmt: skip
    return {name: known[name] for name in names or known}


def refuse_to_keep(args: argparse.Namespace, fewest: int) -> None:
    """End the command if its runs are too small or too few for the ledger or for a range."""
    from classroom.judging import FEWEST_SEEDS

    if args.store and args.profile == "smoke":
        fail("labkit claims: --store with --profile smoke: its experiments only show that "
             "everything runs: choose laptop or gpu")  # fmt: skip
    for option in ("store", "expect"):
        if getattr(args, option) and fewest < FEWEST_SEEDS:
            fail(f"labkit claims: --{option} with {counted(fewest, 'seed')}: give --seeds "
                 f"{FEWEST_SEEDS} or more")  # fmt: skip


def measure_all(
    chosen: Mapping[str, Any], profile: str, seeds: Mapping[str, Sequence[int]], jobs: int
) -> Iterator[tuple[Any, list[Any]]]:
    """Run each claim with its seeds, some at a time; yield each finding with its runs when done.

    Print a line for each run, with its error if it fails; such a claim has no finding. After an
    interruption, the next call finds the finished runs in the cache.
    """
    from classroom import ledger

    os.environ.update(REPEATABLE)
    found: dict[str, dict[int, Any]] = {name: {} for name in chosen}
    pool, futures = ThreadPoolExecutor(jobs), dict[Future[Any], tuple[str, int]]()
    try:
        for name, claim in chosen.items():
            for seed in seeds[name]:
                futures[pool.submit(_alone, claim, profile, seed)] = name, seed
        for future in as_completed(futures):
            name, seed = futures[future]
            problem = future.exception()
            if problem is not None:
                print(f"{name:<22} seed {seed}  FAILED: {type(problem).__name__}: {problem}",
                      flush=True)  # fmt: skip
                continue
            found[name][seed] = future.result()
            print(f"{name:<22} seed {seed}  {future.result()['seconds']:6.1f} s", flush=True)
            if len(found[name]) == len(seeds[name]):
                runs = [found[name][one] for one in seeds[name]]
                try:
                    finding = ledger.judged(chosen[name], profile, seeds[name], runs)
                except ValueError as problem:  # the other claims go on
                    print(f"{name:<22} FAILED: {problem}", flush=True)
                    continue
                yield finding, runs
    finally:
        cancel(futures, end_processes)  # as it ends, Python would wait for what still runs
        pool.shutdown()


def _alone(claim: Any, profile: str, seed: int) -> Any:
    """Run one seed in its own process: if it is killed, the other seeds continue."""
    from classroom import ledger

    with processes(1) as pool:
        return pool.submit(ledger.one_seed, claim, profile, seed).result()


def store(finding: Any, runs: Sequence[Any], folder: Path, words: Sequence[str]) -> None:
    """Write one row of the ledger, how it was measured, and the figures of all items."""
    from classroom import ledger

    about = {
        "command": f"python -m labkit claims {' '.join(words)}".strip(),
        "versions": {"labkit": code_version(), **versions()},
    }
    kept = {**ledger.plain(finding), **about}
    del kept["expected"], kept["seconds"], kept["outdated"]
    (folder / "items").mkdir(parents=True, exist_ok=True)
    ledger.write_items(folder / "items" / f"{finding.id}.npz", runs)
    write_json(folder / f"{finding.id}.json", kept)
    # Last: a finding that could not be written must not look new.
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {cores()} cores",
        "seconds": round(finding.seconds),
        "texts": ledger.digest_of_texts(finding.id),
    }
    with _alone_in(folder):
        known = ledger.records(folder) | {finding.id: record}
        write_json(folder / "runs.json", known, sort_keys=True)


def expect(finding: Any, folder: Path) -> None:
    """Store the range in which the figure of each arm of a claim must lie."""
    from classroom import ledger

    path, intervals = folder / "expected.json", ledger.intervals(finding)
    with _alone_in(folder):
        known = read_json(path) if path.is_file() else {}
        known.setdefault(finding.id, {})[finding.profile] = intervals
        write_json(path, known, sort_keys=True)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for other commands that change the files of all claims, so that no record is lost."""
    from filelock import FileLock

    from labkit.keeping import cache

    name = digest(str(folder.resolve()).encode())[:16]
    lock = FileLock(cache.folder() / f"ledger-{name}.lock")
    try:
        cache.folder().mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError):  # where nothing can be locked, nobody waits
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _folder() -> Path:
    folder = checkout_of("labkit claims: the ledger belongs") / "data" / "claims"
    folder.mkdir(exist_ok=True)
    if not os.access(folder, os.W_OK):
        fail(f"labkit claims: {folder} cannot be written: leave --store and --expect out, or "
             "measure in a checkout of your own", code=1)  # fmt: skip
    return folder
