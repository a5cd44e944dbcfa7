"""How well the GPT of the addresses predicts all held-out addresses, and what it writes.

    python tests/bench/bench_addresses.py

Six of the 24 are on the model's card, and two of these were looked at while the model was made.
The other 18 took no part in any choice.  A mean is over addresses, which weigh alike, and its
standard error takes them as independent.  Texts are drawn at a temperature of 0.7 from
a nucleus of 0.8, the most readable of four settings.  No person selects a text.  One column has the
first that is drawn.  The other has the choice of a rule: of 32 texts whose first two sentences end
and do not repeat three words, the one that the model finds likeliest (Adiwardana et al. 2020).
Texts at these openings were read when the rule was chosen: three words, not four or five.
"""

import math
import re
import statistics
from collections.abc import Sequence

from classroom.models.shipped import trained
from classroom.tasks import realtext, scores
from classroom.tasks.realtext import repeats
from labkit.sampling import Sample, Sampling, sample

OPENING = 5
"""How many words of a held-out paragraph the model is given."""
SAMPLES = 32
"""How many texts are drawn after them."""


def table() -> list[str]:
    """A row for each address, and the means of those that are on the card and of the others."""
    model, tokenizer = trained("gpt-addresses")
    window = model.backbone.config.context - 1
    tests = [one for one in realtext.addresses() if one.held_out]
    lines = ["| address | GPT, nats per byte | 5-gram | lower by |", "|---|---:|---:|---:|"]
    pairs: dict[str, list[tuple[float, float]]] = {"others": [], "on the card": []}
    for one, other in zip(tests, scores.five_gram_losses(tokenizer, tests), strict=True):
        gpt = realtext.nats_per_byte(model, tokenizer, one.text, window=window)
        where = "on the card" if one.number in scores.MEASURED_ADDRESSES else "others"
        pairs[where].append((gpt, other))
        name = f"{one.number}, {one.president} {one.year}"
        lines.append(f"| {name} | {gpt:.3f} | {other:.3f} | {1 - gpt / other:.1%} |")
    return lines + [_mean(where, found) for where, found in pairs.items() if found]


def _mean(where: str, pairs: list[tuple[float, float]]) -> str:
    """A row with the means, and how much lower the first is, with its standard error."""
    gpt, other = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    ratio = gpt / other
    # The standard error of a ratio of two means.
    rest = [mine - ratio * theirs for mine, theirs in pairs]
    error = statistics.stdev(rest) / math.sqrt(len(rest)) / other
    name = f"mean of {len(pairs)} {where}"
    return f"| {name} | {gpt:.4f} | {other:.4f} | {1 - ratio:.1%} ± {error:.1%} |"


def texts() -> list[str]:
    """Two sentences after the first words of a paragraph in the middle of each held-out address."""
    model, tokenizer = trained("gpt-addresses")
    how = Sampling(length=120, temperature=0.7, top_p=0.8)
    lines = [
        f"| address | first words | the likeliest of {SAMPLES} without repetition | the first |",
        "|---|---|---|---|",
    ]
    for one in realtext.addresses():
        if one.held_out:
            begin = _opening(one.text)
            asked = [tokenizer.encode(f"\n\n{begin}")]
            [drawn] = sample(model, asked, how, samples=SAMPLES)
            said = [_two_sentences(tokenizer.decode(text.tokens)) for text in drawn]
            best = said[_likeliest(drawn, [f"{begin} {text}" for text in said])]
            lines.append(f"| {one.number}, {one.year} | {begin} | {best} | {said[0]} |")
    return lines


def _likeliest(drawn: Sequence[Sample], said: Sequence[str]) -> int:
    """The number of the likeliest text that ends two sentences without repetition; else 0."""
    good = [i for i, text in enumerate(said) if not text.endswith("…") and not repeats(text)]
    return max(good, key=lambda i: drawn[i].log_probability / len(drawn[i].tokens), default=0)


def _opening(text: str) -> str:
    """The first words of the paragraph in the middle of those that have at least 40 words."""
    long = [words for part in text.split("\n\n") if len(words := part.split()) >= 40]
    return " ".join(long[len(long) // 2][:OPENING])


def _two_sentences(text: str) -> str:
    """The text up to the end of its second sentence, on one line, as a cell of a table."""
    said = " ".join(text.replace("|", " ").split())
    ends = [end.end() for end in re.finditer(r"[.!?](?= |$)", said)]
    return said[: ends[1]] if len(ends) > 1 else f"{said} …"


if __name__ == "__main__":
    print("\n".join([*table(), "", *texts()]))
