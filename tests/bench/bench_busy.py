"""How long a training step takes on an idle machine, and with one core left by other programs.

python -m labkit bench busy              a small GPT, such as that of notebook 05
python -m labkit bench busy --steps 10   a quick look

OpenMP's threads share each product of matrices, and then wait for each other. A thread that waits
spins before it sleeps. If both share one core, this delays the thread that still has work to do.
`GOMP_SPINCOUNT` limits how long a thread spins; `labkit` sets it for all programs that it starts.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from classroom.cli import SPINS

WAYS = (("one thread", 1, {}), ("two threads", 2, {}), ("two, as labkit sets them", 2, SPINS))


def main() -> None:
    """Print a table: milliseconds of a step, on an idle machine and beside busy programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, help="measure here, and print milliseconds")
    args = parser.parse_args()
    if args.threads:
        print(step_time(args.threads, args.steps))
        return
    idle = {says: measured(threads, args.steps, how) for says, threads, how in WAYS}
    with busy(max(1, (os.cpu_count() or 2) - 1)):
        beside = {says: measured(threads, args.steps, how) for says, threads, how in WAYS}
    print("| ms per step | idle | one core left |\n|---|---:|---:|")
    for says in idle:
        print(f"| {says} | {idle[says]:.0f} | {beside[says]:.0f} |")


def measured(threads: int, steps: int, settings: dict[str, str]) -> float:
    """Measure in a process of its own: OpenMP reads its settings once."""
    command = [sys.executable, __file__, "--steps", str(steps), "--threads", str(threads)]
    usual = {name: value for name, value in os.environ.items() if name not in SPINS}
    done = subprocess.run(command, env={**usual, **settings}, capture_output=True, check=True)
    return float(done.stdout)


def step_time(threads: int, steps: int) -> float:
    """The mean milliseconds of a training step of a small GPT."""
    import torch
    import torch.nn.functional as F

    from labkit.models.gpt import GPT, GPTConfig

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT(GPTConfig(250, width=128, layers=2, heads=4, context=128))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens = torch.randint(250, (16, 128))
    for step in range(3 + steps):
        if step == 3:  # the first steps set up what the others use
            start = time.perf_counter()
        logits = model(tokens).hidden[:, :-1] @ model.token.weight.T
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return 1e3 * (time.perf_counter() - start) / steps


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep that many cores busy."""
    forever = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(forever) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
