"""Each faster version beside the plain function that it replaces, in turn in one process.

    python tests/bench/bench_fast.py [--threads 2] [--rounds 15]

Prints the median milliseconds of both and the median of their ratios.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from labkit import attention, fast, heads, layers, sampling
from labkit.attention import KeysValues
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling, sample
from labkit.writing.beam import beam

Work = Callable[[], object]


def cases() -> Iterator[tuple[str, Work]]:
    """What is measured, with its name."""
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (torch.randn(8, 4, 128, 32, dtype=dtype, requires_grad=True) for _ in range(3))
        for dropout in (0.0, 0.1):

            def attend(q=q, k=k, v=v, dropout=dropout) -> None:
                y = attention.attend(q, k, v, causal=True, dropout=dropout)
                torch.autograd.grad(y, (q, k, v), torch.ones_like(y))

            yield f"attention, {str(dtype)[6:]}, dropout {dropout}", attend
    x = torch.randn(8, 128, 512)
    yield "dropout", lambda: layers.drop(x, 0.1)
    hidden, words = (torch.randn(n, 128, requires_grad=True) for n in (1024, 8000))
    targets = torch.randint(0, 8000, (1024,))
    yield (
        "loss over 8,000 words",
        lambda: torch.autograd.grad(
            heads.losses(hidden, words, None, targets).sum(), (hidden, words)
        ),
    )
    logits = 3.2 * torch.randn(16, 5000)
    yield "nucleus", lambda: sampling.nucleus(logits, 0.9)
    one = KeysValues(*torch.randn(2, 4, 4, 1, 32))

    def grow() -> None:
        known = one
        with torch.no_grad():
            for _ in range(256):
                known = known.extended(*one)

    yield "keys and values of 256 words", grow
    backbone = GPT(GPTConfig(5000, width=128, layers=4, heads=4, context=256))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    how = Sampling(length=64, top_p=0.9)
    yield "64 words of a text", lambda: sample(model, [[1, 2, 3]], how)
    yield "64 words of 16 texts", lambda: sample(model, [[1, 2, 3]], how, samples=16)
    yield "a beam of 4", lambda: beam(model, [1, 2, 3], Sampling(length=64), beams=4)


def seconds(work: Work) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured(work: Work, rounds: int) -> tuple[float, float, float]:
    """Median seconds of the plain and of the faster version, and the median of their ratios."""
    pairs = []
    for turn in range(rounds + 1):
        plain = off(work)
        with fast.enable():
            faster = seconds(work)
        if turn:
            pairs.append((plain, faster))
    plain_s, fast_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return plain_s, fast_s, statistics.median(a / b for a, b in pairs)


def off(work: Work) -> float:
    """Wall-clock time with LABKIT_FAST=0, for functions that enable the faster versions."""
    os.environ["LABKIT_FAST"] = "0"
    try:
        return seconds(work)
    finally:
        del os.environ["LABKIT_FAST"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.rounds}")
    print("\n| | plain | fast | plain / fast |\n|---|---|---|---|")
    for name, work in cases():
        plain, faster, ratio = measured(work, options.rounds)
        print(f"| {name} | {1000 * plain:.2f} ms | {1000 * faster:.2f} ms | {ratio:.2f} |")
