"""How long a hand waits for a demo: in the browser, and for the pure functions alone.

    python -m labkit bench demos
    python tests/bench/bench_demos.py [--turns 40]

First from a key or a click to new pixels, in JupyterLab in a headless Chromium (medians, and what
19 of 20 moves stay below).  Then the processor's own time from state to HTML, on one core.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from latency import latencies

from classroom.demos import (
    Masking,
    attention_view,
    costs_view,
    floors_view,
    masking_view,
    orders_view,
    sampling_view,
)
from classroom.demos.masking import OBJECTIVES, over_draws
from labkit.blocks import LanguageModel
from labkit.heads import MaskedWord, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    world = load_world()
    documents = [d for d in world.sample(documents=200, seed=0) if len(d) > 100]
    tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
    short, others = " ".join(documents[0].words[:40]), [d.text for d in documents[1:9]]
    long = " ".join(d.text for d in documents)[:4000]
    torch.manual_seed(0)
    sizes = {"width": 64, "layers": 2, "heads": 2, "context": 512}
    gpt, bert = GPT(GPTConfig(len(tokenizer), **sizes)), BERT(BERTConfig(len(tokenizer), **sizes))
    writer = LanguageModel(gpt, NextWord(gpt.token)).eval()
    guesser = LanguageModel(bert, MaskedWord(bert.token, 64)).eval()
    filters = Sampling(temperature=0.9, top_k=40, top_p=0.9)
    found: dict[str, Callable[[], object]] = {}
    for objective in OBJECTIVES:
        setting = Masking(objective=objective)
        for name, text in (("40 words", short), ("512 tokens", long)):
            found[f"masking, {objective}, {name}"] = lambda text=text, setting=setting: (
                # As after a slider: nothing of another setting can be used again.
                over_draws.cache_clear(),
                masking_view(text, setting, tokenizer, others=others),
            )
    found["masking, model and exact, 40 words"] = lambda: masking_view(
        short, Masking(), tokenizer, model=guesser, world=world, start="document"
    )
    found["sampling, exact too, 40 words"] = lambda: sampling_view(
        short, [], filters, writer, tokenizer, world=world
    )
    found["sampling, exact too, 512 tokens"] = lambda: sampling_view(
        long, [], filters, writer, tokenizer, world=world
    )
    found["attention, 32 tokens"] = lambda: attention_view(long, 1, 1, writer, tokenizer)
    found["orders, 40 words"] = lambda: orders_view(short, "")
    found["floors, 40 words"] = lambda: floors_view(short, 2, world, "document")
    found["costs"] = lambda: costs_view("gpt-3-175b", "a100", 1024)
    return found


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    print("from a key or a click to new pixels, in ms        moves    p50    p95")
    for name, found in latencies(turns):
        low = statistics.median(found)
        high = statistics.quantiles(found, n=20, method="inclusive")[-1]
        print(f"{name:<48} {len(found):6d} {low:6.0f} {high:6.0f}", flush=True)
    print("\nfrom state to HTML, the processor's own time")
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    for name, act in cases().items():
        act()
        seconds = []
        for _ in range(min(turns, 9)):
            begun = time.process_time()
            act()
            seconds.append(time.process_time() - begun)
        print(f"{name:<42} {1e3 * statistics.median(seconds):7.1f} ms")


if __name__ == "__main__":
    main()
