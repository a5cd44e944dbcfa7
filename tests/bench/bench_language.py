"""How long the language takes: `python tests/bench/bench_language.py` prints a table.

Wall-clock and processor seconds, on whatever cores numpy is given.
"""

import time
from collections.abc import Callable

from labkit.world import load_world
from labkit.world.floors import BERT

WORDS = 20_000


def main() -> None:
    """Time loading, sampling, and every floor on the same held-out words."""
    rows: list[tuple[str, str, float, float]] = []

    def timed(name: str, work: Callable[[], object], say: Callable[[object], str] = str) -> object:
        wall, processor = time.perf_counter(), time.process_time()
        found = work()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        rows.append((name, say(found), wall, processor))
        print(f"{name:<34} {wall:7.2f} s {processor:7.2f} s   {rows[-1][1]}", flush=True)
        return found

    print(f"{'':<34} {'clock':>9} {'processor':>9}")
    world = timed("load", load_world, lambda w: f"{w.machine.states:,} states")
    timed(
        "sample a million words",
        lambda: world.sample(words=1_000_000),
        lambda d: f"{len(d):,} documents",
    )
    sample = timed(
        f"sample {WORDS:,} held-out words",
        lambda: world.sample(words=WORDS, split="held_out"),
        lambda d: f"{len(d):,} documents",
    )
    for objective in ("next", "previous", "masked", "permutation"):
        timed(f"floor: {objective}", lambda o=objective: world.floor(o, sample))
    timed("floor: masked, 80/10/10", lambda: world.floor("masked", sample, channel=BERT))
    timed("floor: cloze, every 20th word", lambda: world.floor("cloze", sample, rate=0.05))
    for reach in (1, 4, 16, 64):
        timed(
            f"floor: next, {reach} words back", lambda k=reach: world.floor("next", sample, reach=k)
        )
    for task in ("feeling", "topic", "sense", "relation", "order", "next"):
        timed(
            f"labelled: {task}, 1,000",
            lambda t=task: world.labelled(t, 1000),
            lambda s: f"best accuracy {s.best_accuracy:.3f} ± {s.standard_error:.3f}",
        )
    for shots in range(5):
        timed(
            f"prompts: {shots} shots, 2,000",
            lambda k=shots: world.few_shot(k, 2000),
            lambda s: f"best accuracy {s.best_accuracy:.3f} ± {s.standard_error:.3f}",
        )


if __name__ == "__main__":
    main()
