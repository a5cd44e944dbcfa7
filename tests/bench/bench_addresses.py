"""How well the GPT of the addresses predicts addresses that were not looked at while it was made.

    python tests/bench/bench_addresses.py

All 24 held-out addresses, with the 5-gram beside it.  Six of them are on the model's card, and were
measured on the way to it; the other 18 had not been measured before this benchmark was written.
The mean is over addresses, which weigh alike, and its standard error takes them as independent.
"""

import math
import statistics

from classroom import realtext, shipped

MODEL = "gpt-addresses"


def table(numbers: set[int] | None = None) -> list[str]:
    """The lines of the table; only addresses with these numbers, where some are given."""
    model, tokenizer = shipped.trained(MODEL)
    window = model.backbone.config.context - 1
    read = [tokenizer.encode(text) for text in realtext.texts(held_out=False)]
    five = realtext.KneserNey(read, len(tokenizer))
    lines = [
        "| address | GPT, nats per byte | 5-gram | lower by |",
        "|---|---:|---:|---:|",
    ]
    new: list[tuple[float, float]] = []
    card: list[tuple[float, float]] = []
    for one in realtext.addresses():
        if not one.held_out or (numbers and one.number not in numbers):
            continue
        gpt = realtext.nats_per_byte(model, tokenizer, one.text, window=window)
        logs = five.log_probabilities(tokenizer.encode(one.text))
        other = -float(logs.sum()) / len(one.text.encode())
        on_card = one.number in shipped.MEASURED_ADDRESSES
        (card if on_card else new).append((gpt, other))
        what = f"{one.number}, {one.president} {one.year}" + (", on the card" if on_card else "")
        lines.append(f"| {what} | {gpt:.3f} | {other:.3f} | {1 - gpt / other:.1%} |")
    for name, pairs in (("not looked at", new), ("on the card", card)):
        if pairs:
            lines.append(_mean(f"mean of the {len(pairs)} {name}", pairs))
    return lines


def _mean(name: str, pairs: list[tuple[float, float]]) -> str:
    """A row with the means, and how much lower the first is, with its standard error."""
    gpt, other = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    # The error of a ratio of means.
    ratio = gpt / other
    rest = [mine - ratio * theirs for mine, theirs in pairs]
    error = math.sqrt(sum(r * r for r in rest) / max(1, len(rest) - 1) / len(rest)) / other
    return f"| {name} | {gpt:.4f} | {other:.4f} | {1 - ratio:.1%} ± {error:.1%} |"


if __name__ == "__main__":
    print("\n".join(table()))
