"""How fast text becomes tokens and tokens become batches, and how much memory that takes.

    python tests/bench/bench_corpus.py                      # a few megabytes of text
    python tests/bench/bench_corpus.py --megabytes 1000     # a larger file, for the memory

Limits: tokenizing no slower than half the speed of the bare `tokenizers` call in the same run; at
least 20 million tokens a second assembled on one core; less than 500 MB of resident memory.
Speeds of batches are tokens per second of the CPU time of one thread, all work included: the median
of some stretches of steps, each far longer than what is laid out at one go.
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from labkit.chance import Chance
from labkit.corpus import (
    Batches,
    Examples,
    Pairs,
    Streams,
    Tokens,
    Windows,
    from_documents,
    from_files,
    tokenize,
)
from labkit.text.tokenizers import Tokenizer

MEGABYTES = 4
SIZES = ((256, 512), (32, 128), (16, 64))
# Tokens that are assembled for one figure: those of all the steps that are laid out at one go.
CHUNK = 2**19


def write_text(path: Path, megabytes: int) -> None:
    """Words of a made-up language, with the frequencies of a real one."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(20_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    blocks = []
    for _ in range(200):
        sentences = [
            " ".join(draw.choices(words, weights, k=draw.randint(4, 25))).capitalize() + "."
            for _ in range(40)
        ]
        blocks.append(" ".join(sentences) + "\n\n")
    with path.open("w") as file:
        size = 0
        while size < megabytes * 1_000_000:
            # Each document differs from the others, so that they are all tokenized.
            size += file.write(f"Chapter {size}. " + draw.choice(blocks))


def seconds(*works: Callable[[], object], repeats: int = 3) -> list[float]:
    """The best of some runs of each, in seconds on the clock; they take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def tokens_per_second(batches: Batches, stretches: int = 9) -> float:
    """Tokens, padding included, per second of one core."""
    batches.at(0)
    step, rates = 1, []
    for _ in range(stretches):
        start, tokens = time.thread_time(), 0
        while tokens < CHUNK:
            tokens += batches.at(step).tokens.numel()
            step += 1
        rates.append(tokens / (time.thread_time() - start))
    return statistics.median(rates)


def tokenizing(path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    """The library's own call against all that `tokenize` does, reading the file included."""
    print(f"\n{'tokenizing, MB/s':30}{'bare call':>12}{'tokenize':>12}{'ratio':>8}")
    texts = [document.text for document in from_files(path)]
    size = path.stat().st_size / 1e6
    for name, tokenizer in tokenizers.items():
        bare, ours = seconds(
            lambda t=tokenizer: t.library.encode_batch(texts, add_special_tokens=False),
            lambda t=tokenizer: tokenize(from_files(path), t),
        )
        print(f"{name:30}{size / bare:12.1f}{size / ours:12.1f}{bare / ours:8.2f}")


def assembling(tokens: Tokens, mapped: Tokens, tokenizer: Tokenizer) -> None:
    """All kinds of batches, of a large size and two small ones."""
    torch.set_num_threads(1)
    sizes = "".join(f"{f'{B} x {T}':>12}" for B, T in SIZES)
    print(f"\n{'assembling, million tokens/s':30}{sizes}")
    labelled = {}
    for name, longest in (("short", 60), ("long", 600)):
        texts = [" ".join(["bada"] * (n % longest + 1)) for n in range(20_000)]
        labelled[name] = tokenize(from_documents(texts, [n % 2 for n in range(20_000)]), tokenizer)
    kinds = {
        "windows": lambda B, T: Windows(tokens, T, batch=B),
        "windows from a file": lambda B, T: Windows(mapped, T, batch=B),
        "windows, [CLS] … [SEP], apart": lambda B, T: Windows(
            tokens, T, framed=True, apart=True, batch=B
        ),
        "streams": lambda B, T: Streams(tokens, T, batch=B),
        "labelled, 1 to 60 words": lambda B, T: Examples(labelled["short"], T, batch=B),
        "labelled, 1 to 600 words": lambda B, T: Examples(labelled["long"], T, batch=B),
        "next sentence": lambda B, T: Pairs(tokens, T, "next", batch=B),
        "sentence order": lambda B, T: Pairs(tokens, T, "order", batch=B),
    }
    for name, make in kinds.items():
        speeds = [tokens_per_second(make(B, T)) / 1e6 for B, T in SIZES]
        print(f"{name:30}" + "".join(f"{speed:12.1f}" for speed in speeds))


def drawing() -> None:
    """Random numbers for a batch of 256 x 512, on one core."""
    print(f"\n{'drawing for 256 x 512':30}{'ms':>12}")
    chance = Chance(0, 0, torch.arange(256))
    for name, work in (
        ("uniform numbers", lambda: chance.uniform("hide", 512)),
        ("whole numbers below 30,000", lambda: chance.integers("word", 512, 30_000)),
        ("orders", lambda: chance.bits("order", 512).argsort(dim=1, stable=True)),
    ):
        print(f"{name:30}{1000 * seconds(work, repeats=50)[0]:12.2f}")


def remembering(folder: Path, path: Path) -> None:
    """The peak of a process of its own that tokenizes a file and trains on some of it."""
    print(f"\n{'resident memory, MB':30}{'peak':>12}")
    for name, what in (("after import", "nothing"), ("tokenize, 1000 steps", "all")):
        command = [sys.executable, __file__, "--child", what, str(folder), str(path)]
        start = time.perf_counter()
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        took = time.perf_counter() - start
        size = path.stat().st_size / 1e6
        print(f"{name:30}{output.strip():>12}   ({size:.0f} MB of text, {took:.0f} s)")


def peak_bytes() -> int:
    """The most memory that this process has held.

    Linux counts the memory of the parent in ru_maxrss of a child, and not in VmHWM.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(what: str, folder: Path, path: Path) -> None:
    """What `remembering` measures."""
    if what == "all":
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        tokens = tokenize(from_files(path), tokenizer, cache=folder / "memory")
        batches = Windows(tokens, 128, batch=32)
        for step in range(1000):
            batches.at(step)
    print(peak_bytes() // 10**6)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="text for the memory")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        what, folder, path = given.child
        child(what, Path(folder), Path(path))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "text.txt"
        write_text(path, MEGABYTES)
        some = list(from_files(path).texts)[:300]
        bpe = Tokenizer.bpe(some, 8000)
        kinds = {
            "byte-level BPE": bpe,
            "WordPiece": Tokenizer.word_pieces(some, 8000),
            "words": Tokenizer.words(some),
            "characters": Tokenizer.characters(some),
        }
        tokenizing(path, kinds)
        mapped = tokenize(from_files(path), bpe, cache=folder / "cache")
        assembling(tokenize(from_files(path), bpe), mapped, bpe)
        drawing()
        bpe.save(folder / "tokenizer.json")
        if given.megabytes != MEGABYTES:
            write_text(path, given.megabytes)
        remembering(folder, path)


if __name__ == "__main__":
    main()
