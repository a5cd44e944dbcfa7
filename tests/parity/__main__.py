"""Print the table of parity and keep it in docs/parity.md."""

from pathlib import Path

import torch

from . import TOLERANCE, cases

INTRODUCTION = """# Parity

The table compares each model of `labkit` with a reference that has the same random weights. It
shows the largest difference between the hidden states of every layer, between the losses, and
between the gradients of every parameter, in float32 (tolerance 1e-5) and in float64 (tolerance
1e-10). In rows marked "in training", both models are in training mode, and the same deterministic
function replaces every dropout layer of both. `python -m tests.parity` writes the table.

"""


def table() -> str:
    """One row for each case."""
    precisions = list(TOLERANCE)
    names = [str(precision).removeprefix("torch.") for precision in precisions]
    kinds = ("layers", "loss", "gradients")
    columns = [f"{kind} {name}" for kind in kinds for name in names]
    lines = [
        "| model | what | reference | " + " | ".join(columns) + " |",
        "|---|---|---|" + "---:|" * len(columns),
    ]
    for case in cases():
        found = [case.compare(precision) for precision in precisions]
        cells = [f"{each[kind]:.0e}" if kind in each else "" for kind in kinds for each in found]
        lines.append(f"| {case.model} | {case.what} | {case.reference} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(__file__).parents[2] / "docs" / "parity.md"
    # The second part of the page is written by hand.
    _, heading, rules = target.read_text(encoding="utf-8").partition("\n## Rules around the models")
    page = INTRODUCTION + table() + heading + rules
    target.write_text(page, encoding="utf-8")
    print(f"\nwritten to {target.relative_to(Path.cwd())}")
