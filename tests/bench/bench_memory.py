"""Evaluating Transformer-XL with memory against a window that slides over the same text.

    python tests/bench/bench_memory.py [--threads 2] [--rounds 3]

The window reads the last `context` words anew for each word that it scores, as a model without
memory must; its rows are read in batches.  With memory, each segment of `context` words is read
once and looks back to `context` words before it, so that every word is scored after at least as
many words as in the window (Dai et al. 2019, section 3.2 and table 9).

Prints words scored a second of both and their ratio.  The losses cannot be equal everywhere, since
memory reaches further; where a word has no more words before it than the window holds, both see
all of them, and there the losses must agree: the largest difference is printed and checked.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor

from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig

VOCABULARY, SCORED, ROWS = 5000, 64, 16


def with_memory(model: LanguageModel, text: Tensor, context: int) -> Tensor:
    """-log p of every word but the first, the text read once in segments."""
    losses, memory = [], None
    for start in range(0, len(text) - 1, context):
        end = min(start + context, len(text) - 1)
        states = model.backbone(text[None, start:end], memory=memory)
        memory = states.memory
        losses.append(model.head.losses_N(states.hidden[0], text[start + 1 : end + 1]))
    return torch.cat(losses)


def by_window(model: LanguageModel, text: Tensor, context: int, words: range) -> Tensor:
    """-log p of these words, each after the `context` words before it, read anew for each."""
    windows = torch.stack([text[word - context : word] for word in words])
    losses = []
    for rows, targets in zip(windows.split(ROWS), text[list(words)].split(ROWS), strict=True):
        hidden = model.backbone(rows).hidden[:, -1]
        losses.append(model.head.losses_N(hidden, targets))
    return torch.cat(losses)


def seconds_a_word(work: object, words: int, rounds: int) -> float:
    """The median time of some rounds, after one to warm up."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()  # type: ignore[operator]
        times.append((time.perf_counter() - start) / words)
    return statistics.median(times[1:])


@torch.inference_mode()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.rounds}")
    print("Transformer-XL, width 128, 4 layers, words scored a second")
    print(f"{'context':>8} {'window':>8} {'memory':>9} {'ratio':>7}   losses differ by at most")
    for context in (64, 128, 256, 512):
        sizes = TransformerXLConfig(
            VOCABULARY, width=128, layers=4, heads=4, context=context, memory=context
        )
        backbone = TransformerXL(sizes)
        model = LanguageModel(backbone, NextWord(backbone.token)).eval()
        text = torch.randint(0, VOCABULARY, (8 * context + 1,))
        after = range(4 * context, 4 * context + SCORED)
        slow = seconds_a_word(
            lambda m=model, t=text, c=context, w=after: by_window(m, t, c, w),
            SCORED,
            options.rounds,
        )
        fast = seconds_a_word(
            lambda m=model, t=text, c=context: with_memory(m, t, c), len(text) - 1, options.rounds
        )
        # The word after `context` words is the last one for which a window holds all before it.
        read = with_memory(model, text, context // 4)
        whole = [by_window(model, text, n, range(n, n + 1)) for n in range(1, context + 1, 7)]
        apart = (torch.cat(whole) - read[:context:7]).abs().max().item()
        assert apart < 1e-3, f"the losses differ by {apart}"
        print(f"{context:>8} {1 / slow:>8.0f} {1 / fast:>9.0f} {slow / fast:>7.0f}   {apart:.1e}")


if __name__ == "__main__":
    main()
