"""A step of our Muon beside one of torch's, for the matrices of blocks of some widths.

    python tests/bench/bench_muon.py

torch multiplies in bfloat16 on every processor, and ours in float32 where bfloat16 is emulated. On
a processor that has bfloat16 both do the same. The two take turns.
"""

import argparse
import copy
import statistics
import time

import torch
from torch import nn

from labkit.keeping.computing import has_bfloat16
from labkit.optim import Muon


def matrices(width: int, blocks: int) -> list[nn.Parameter]:
    """The matrices of attention and feed-forward, with gradients."""
    torch.manual_seed(0)
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)] * blocks
    made = [nn.Parameter(torch.randn(*shape)) for shape in shapes]
    for matrix in made:
        matrix.grad = torch.randn_like(matrix)
    return made


def main() -> None:
    """Print the milliseconds of a step and their ratio for each width."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    bits = "products in bfloat16" if has_bfloat16(torch.device("cpu")) else "bfloat16 is emulated"
    print(
        f"torch {torch.__version__}, {options.threads} threads, medians of {options.steps}; {bits}"
    )
    print("\n| blocks × width | torch's | labkit's | torch's / labkit's |\n|---|---:|---:|---:|")
    for blocks, width in ((2, 64), (1, 128), (4, 256)):
        own = matrices(width, blocks)
        theirs = copy.deepcopy(own)
        for mine, other in zip(own, theirs, strict=True):
            other.grad = mine.grad
        both: list[torch.optim.Optimizer] = [
            torch.optim.Muon(theirs, lr=1e-3, adjust_lr_fn="match_rms_adamw"),
            Muon(own, lr=1e-3),
        ]
        taken: list[list[float]] = [[], []]
        for turn in range(options.steps + 1):
            for optimizer, times in zip(both, taken, strict=True):
                start = time.perf_counter()
                optimizer.step()
                if turn:  # the first step warms up
                    times.append(1000 * (time.perf_counter() - start))
        torchs, ours = (statistics.median(times) for times in taken)
        print(f"| {blocks} × {width} | {torchs:.1f} ms | {ours:.1f} ms | {torchs / ours:.1f} |")


if __name__ == "__main__":
    main()
