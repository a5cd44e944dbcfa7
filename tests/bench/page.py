"""docs/benchmarks.md: a question, its table and what it means; below folds, all that was printed.

python -m labkit bench --page           runs every benchmark and writes the page
python -m labkit bench --page sampling  runs one; of the others stays what the page holds
"""

import datetime
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


class Question(NamedTuple):
    """What a benchmark answers, what its numbers mean, and which of its rows say it."""

    asks: str
    means: str
    rows: str


class Printed(NamedTuple):
    """What a benchmark printed, and where and when."""

    where: str
    text: str


QUESTIONS = {
    "models": Question(
        "Is a training step faster than the reference's?",
        "`transformers` on PyTorch, the same sizes and weights; above 1, ours is faster. The means "
        "are over all sizes, which are listed below.",
        r"\| 256 \| 8,000|^(Geometric|ratio: )",
    ),
    "trainer": Question(
        "Is it faster than a step of transformers' Trainer?",
        "Milliseconds per step; in brackets, the speed relative to theirs in float32, and for "
        "`auto` also to theirs in bfloat16.",
        r"ms \([\d.]+ ×\)",
    ),
    "minute": Question(
        "What is learned in a minute?",
        "Nats above the lowest possible loss; the peer is nanoGPT's recipe with the best "
        "of three rates. The runs of equal seconds are listed below.",
        r"^(language|village): |^gap of|^\| labkit \|| \| operations \|",
    ),
    "sampling": Question(
        "Is writing faster than `generate`?",
        "Words a second with the same weights; above 1, ours is faster. The upper limit is "
        "the speed of the matrix products alone.",
        r"model  prompts| 256 x 8 +\d+ +(best|drawn)",
    ),
    "gpu": Question(
        "How fast is a GPU?",
        "GPT-2 124M, trained and writing in bfloat16, beside nanoGPT's model in the same loop and "
        "`generate` with a static cache, which compiles itself.",
        r"^\| (nanoGPT|labkit's)|^labkit / nano|^\| (1|16) \| (best|drawn)",
    ),
    "memory": Question(
        "What does a memory of segments save?",
        "Words a second: a window is computed anew for each word, a memory is not.",
        r"context   window|^ +(64|512) +\d+ +\d+ +\d+ ",
    ),
    "fast": Question(
        "What do the faster versions of `labkit.fast` bring?",
        "The lesson's formulas beside the faster versions. The machine was busy, so only the ratio "
        "is meaningful.",
        r"^\| (attention, bfloat16|nucleus|64 words of 16)",
    ),
    "labels": Question(
        "How good is a classifier after a hundred labels?",
        "Beginnings of docstrings of three libraries, to be told apart: the share that is right, "
        "and the seconds until the answer.",
        r"^\| (ulmfit|gpt|real) ",
    ),
    "demos": Question(
        "Does a demo respond at once?",
        "Time from a key press or a click to new pixels; a delay below 100 ms goes unnoticed.",
        r"^\| (masking, 512 tokens, draw|sampling, temp)",
    ),
    "kernels": Question(
        "What does a class on one server need?",
        "The last of ten kernels that run notebook 08 and stay open; [server.md](server.md) says "
        "more.",
        r"^\| 10 |^each further|^10 students|^first:",
    ),
    "busy": Question("Are two threads slower than one beside another program?", "", ""),
    "awd_lstm": Question("What does AWD-LSTM cost beside a bare `nn.LSTM`?", "", ""),
    "before": Question("Is this version as fast as the first edition?", "", ""),
    "muon": Question("What does Muon cost where products in bfloat16 are emulated?", "", ""),
    "masking": Question("How fast are words hidden, ordered and paired?", "", ""),
    "corpus": Question("How fast does text become batches?", "", ""),
    "language": Question("What is in the course's language?", "", ""),
    "fuzz": Question("How many damaged files are refused in one line?", "", ""),
    "checks": Question("What do the checks of a model's inputs cost?", "", ""),
    "pages": Question("How large are the pages of the site?", "", ""),
    "lecture": Question("How many seconds after its first slide is a lecture ready?", "", ""),
    "addresses": Question("How well does a GPT predict English, and what does it write?", "", ""),
    "prompts": Question("What does a prompt tell after a minute of training?", "", ""),
}
FOLD = re.compile(
    r"<details><summary>.*? \(<code>bench (\w+)</code>\)</summary>\n\n\*(.*?)\*\n\n(.*?)\n\n"
    r"</details>",
    re.DOTALL,
)


def parsed(page: str) -> dict[str, Printed]:
    """Return what a page holds of each benchmark."""
    return {
        name: Printed(where, re.sub(r"\A```\n(.*)\n```\Z", r"\1", text, flags=re.DOTALL))
        for name, where, text in FOLD.findall(page)
    }


def composed(found: Mapping[str, Printed]) -> str:
    """Return the page."""
    machines = sorted({printed.where for printed in found.values()})
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m labkit bench --page`; `bench --page NAME` measures one again, and",
        "`bench NAME` only prints it. The two sides of a ratio take turns on the same machine.",
        "Times are medians, and so are ratios that were taken in each turn. The *floor* is the",
        "lowest possible loss. Dates and machines are in the sections that unfold below.",
        "",
        *dict.fromkeys(f"* {where.partition(': ')[2]}" for where in machines),
        "",
    ]
    for name, question in QUESTIONS.items():
        printed = found.get(name)
        rows = headline(printed.text, question.rows) if printed and question.rows else []
        if rows:
            lines += [f"**{question.asks}** {question.means}", "", *rows, ""]
    lines += ["## Full output", ""]
    for name, printed in sorted(found.items()):
        body = [printed.text] if "|---" in printed.text else ["```", printed.text, "```"]
        title = f"{QUESTIONS[name].asks} (<code>bench {name}</code>)"
        lines += [f"<details><summary>{title}</summary>", "", f"*{printed.where}*", "", *body, "",
                  "</details>", ""]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def headline(text: str, rows: str) -> list[str]:
    """Return the lines that a pattern finds, each table of Markdown with its head."""
    found: list[str] = []
    lines, head = text.splitlines(), 0
    for number, line in enumerate(lines):
        if line.startswith("|---"):
            head = number
        elif re.search(rows, line):
            if not line.startswith("|"):
                found += ["", line, ""]
            elif head:
                found += ["", *lines[head - 1 : head + 1], line]
                head = 0
            else:
                found.append(line)
    if "|---" in text:
        return re.sub(r"\n{3,}", "\n\n", "\n".join(found)).strip().splitlines()
    return ["```", *filter(None, found), "```"] if found else []


def here() -> str:
    """Return the day and the machine."""
    import psutil
    import torch

    from labkit.keeping.computing import processor
    from labkit.keeping.processor import cores

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{datetime.date.today()}: {processor()}, {cores()} cores, {memory:.0f} GB, {gpu}, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def printed_by(script: Path) -> str:
    """Run a benchmark, show what it prints, and return it."""
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        encoding="utf-8", env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line.rstrip())
    if process.returncode:
        sys.exit(f"labkit bench: {script.stem} failed: the page stays as it is")
    return "\n".join(lines).strip()


def main(names: Sequence[str]) -> None:
    """Run benchmarks and write the page."""
    found = parsed(PAGE.read_text(encoding="utf-8"))
    for name in names or list(QUESTIONS):
        found[name] = Printed(here(), printed_by(Path(__file__).with_name(f"bench_{name}.py")))
        PAGE.write_text(composed(found), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
