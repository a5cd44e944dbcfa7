"""Is labkit as fast as before it was rebuilt? An older commit against this checkout.

    python -m labkit bench before
    python tests/bench/bench_before.py [COMMIT] [--only hiding] [--rounds 15]

Two processes with the same work, one for each version, take turns on the same machine; each waits
while the other works. A figure is the median over the rounds of new / old, so below 1 this checkout
is faster. It needs the history of git. The cases stand here, and are not those of the other
benchmarks, since they have to run in both versions.
"""

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "25c9086"
"""The last commit of the first edition, with 53 modules at the root."""

PLACES = {
    "Vocabulary": ("labkit.text.vocabulary", "labkit.tokenizers"),
    "Plan": ("labkit.plan", "labkit.plans"),
    "hiding": ("labkit.objectives", "labkit"),
}
"""Where a name is today, and where it was."""


def find(name: str) -> Any:
    """A thing by its name, in whichever version this process has."""
    for place in PLACES[name]:
        try:
            module = importlib.import_module(place)
            return getattr(module, name, None) or importlib.import_module(f"{place}.{name}")
        except ImportError:
            continue
    raise SystemExit(f"bench_before: no {name} in {' or '.join(PLACES[name])}")


def cases() -> dict[str, Callable[[], object]]:
    """What is timed: a step of training, writing, masking."""
    import torch

    from labkit.blocks import LanguageModel
    from labkit.chance import Chance
    from labkit.corpus import Batch
    from labkit.heads import MaskedWord, NextWord
    from labkit.models.bert import BERT, BERTConfig
    from labkit.models.gpt import GPT, GPTConfig
    from labkit.models.xlnet import XLNet, XLNetConfig
    from labkit.objectives import MaskedToken, NextToken, Permutation
    from labkit.sampling import Sampling, sample
    from labkit.trainer import Trainer

    size = 8_000
    words = find("Vocabulary")(size, mask=4, special=(0, 1, 2, 3, 4))
    hiding = find("hiding")
    choose = getattr(hiding, "choose_tokens", None) or hiding.choose

    class Text:
        """Random words."""

        rows = 8

        def at(self, step: int) -> Any:
            chance = torch.Generator().manual_seed(step)
            return Batch.of(torch.randint(5, size, (8, 128), generator=chance))

    def model(kind: str, dropout: float = 0.0) -> Any:
        torch.manual_seed(0)
        if kind == "GPT":
            gpt = GPT(GPTConfig(size, 256, 4, 8, 257, dropout=dropout))
            return LanguageModel(gpt, NextWord(gpt.token))
        if kind == "BERT":
            bert = BERT(BERTConfig(size, 256, 4, 8, 128, dropout=dropout))
            return LanguageModel(bert, MaskedWord(bert.token, 256))
        xlnet = XLNet(XLNetConfig(size, 256, 4, 8, 128, dropout=dropout))
        return LanguageModel(xlnet, NextWord(xlnet.token, bias=True))

    objectives = {
        "GPT": NextToken(), "BERT": MaskedToken(vocabulary=words),
        "XLNet": Permutation(vocabulary=words),
    }  # fmt: skip

    def steps(kind: str, **how: Any) -> Callable[[], object]:
        plan = find("Plan")(steps=10**6, rate=1e-4, device="cpu", **{"precision": "float32", **how})
        trainer = Trainer(model(kind, 0.1), objectives[kind], Text(), plan, progress=False)
        reports = trainer.resume(None)
        return lambda: next(reports)

    gpt = model("GPT").eval()
    prompts = torch.randint(5, size, (16, 8)).tolist()
    best, drawn = (Sampling(length=48, temperature=t, top_p=p) for t, p in ((0, 1.0), (0.9, 0.9)))

    tokens = torch.randint(5, size, (256, 512), generator=torch.Generator().manual_seed(0))
    batch, chance = Batch.of(tokens), Chance(1, 2, torch.arange(256))

    def hide() -> object:
        found = hiding.ordinary(tokens, batch.real, words)
        return hiding.corrupt(tokens, choose(found, chance, 0.15), chance, words)

    found = hiding.ordinary(tokens, batch.real, words)
    return {
        "a step of GPT": steps("GPT"),
        "a step of GPT, bfloat16": steps("GPT", precision="bfloat16"),
        "a step of BERT": steps("BERT"),
        "a step of XLNet": steps("XLNet"),
        "48 words, best": lambda: sample(gpt, prompts[:1], best),
        "48 words, drawn": lambda: sample(gpt, prompts[:1], drawn),
        "48 words of 16 texts, best": lambda: sample(gpt, prompts, best),
        "48 words of 16 texts, drawn": lambda: sample(gpt, prompts, drawn),
        "hiding 15 % of 256 × 512": hide,
        "orders of 256 × 512": lambda: hiding.order(found, chance, 1 / 6),
    }


def work(threads: int) -> None:
    """One of the two processes: does a case for about a tenth of a second, each time it is told."""
    import torch

    torch.set_num_threads(threads)
    ready = cases()
    print("\t".join(ready), flush=True)
    for line in sys.stdin:
        name, times = line.rstrip("\n").split("\t")
        for _ in range(3 if times == "0" else 0):
            ready[name]()
        begun = time.perf_counter()
        for _ in range(max(1, int(times))):
            ready[name]()
        print((time.perf_counter() - begun) / max(1, int(times)), flush=True)


class Version:
    """A process with one version of the package."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", "--threads", str(threads)], cwd=folder, text=True,
            env={**os.environ, "PYTHONPATH": str(folder)}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self.names = self._answer().split("\t")

    def seconds(self, name: str, times: int) -> float:
        """How long a case takes, over so many times; 0: once, after a few that do not count."""
        assert self.process.stdin
        print(name, times, sep="\t", file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout
        if not (line := self.process.stdout.readline().rstrip("\n")):
            raise SystemExit(f"bench_before: {self.process.args} stopped")
        return line

    def __enter__(self) -> "Version":
        return self

    def __exit__(self, *failed: object) -> None:
        self.process.kill()
        self.process.wait()


def compare(old: Version, new: Version, only: str, rounds: int) -> None:
    """The cases of both whose names begin so, in turn."""
    print("| | before, ms | now, ms | now / before |")
    print("|---|---:|---:|---:|")
    for name in (name for name in new.names if name.startswith(only)):
        times = 1 + int(0.1 / old.seconds(name, 0))
        new.seconds(name, 0)
        pairs = [(old.seconds(name, times), new.seconds(name, times)) for _ in range(rounds)]
        before, now = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"| {name} | {before:.2f} | {now:.2f} | {ratio:.2f} |", flush=True)


def main() -> None:
    """Fetch the older version from git, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("commit", nargs="?", default=BEFORE)
    parser.add_argument("--only", default="", help="cases whose names begin so [all]")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        return work(asked.threads)
    packed = subprocess.run(
        ["git", "archive", asked.commit, "labkit"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        print(f"no commit {asked.commit} here: this benchmark needs the history of git")
        return None
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        with Version(Path(folder), asked.threads) as old, Version(ROOT, asked.threads) as new:
            compare(old, new, asked.only, asked.rounds)


if __name__ == "__main__":
    main()
