"""Draws what four models may see, and one that sees too much, for docs/leaks.md.

python tests/draw_leaks.py
"""

from pathlib import Path

from pairings import Pairing, named
from picture_of_leaks import picture
from test_leaks import PLANTED, segments, traced

FOLDER = Path(__file__).parents[1] / "docs"
PICTURES = {
    "gpt": ("GPT, next word", "GPT: each prediction depends on the words before it."),
    "bert": (
        "BERT, masked",
        "BERT: each prediction depends on all words that were not hidden. Of a hidden "
        "word it knows the position, but not the word.",
    ),
    "transformer_xl": (
        "Transformer-XL, next word",
        "Transformer-XL: the words before, and those of the segment before.",
    ),
    "xlnet": (
        "XLNet, all permuted",
        "XLNet: each prediction depends on the words that are earlier in a random order.",
    ),
}


def names(pairing: Pairing) -> list[str]:
    """What stands in the first row, segment after segment: special tokens, and letters."""
    rows = [part.tokens[0].tolist() for part in segments(pairing.batch(), pairing.objective())]
    if not pairing.objective().__dict__.get("carry"):
        return label(rows[0])
    return [f"{word}'" for word in label(rows[0])[:-1]] + label(rows[1])


def label(row: list[int]) -> list[str]:
    """Names of the tokens of a row."""
    special = {2: "[CLS]", 3: "[SEP]"}
    return [special.get(token, chr(ord("a") + place)) for place, token in enumerate(row)]


def pages() -> dict[Path, str]:
    """The page and its pictures."""
    lines = [
        "# What a prediction depends on",
        "",
        "Measured with `labkit.leaks.trace`, by gradients and by exchanging words, on small models",
        "with random weights. Each line is a prediction, each column a token of the text. Blue is",
        "what the prediction depends on; red is what it may not depend on, but does. Drawn by",
        "`python tests/draw_leaks.py`.",
    ]
    pictures = {}
    for name, (pairing, text) in PICTURES.items():
        found = traced(named(pairing))
        assert not found.leaks
        pictures[name] = text, picture(found, names(named(pairing)))
    pairing, _, put = PLANTED["queries that see their own word"]
    with put():
        found = traced(named(pairing))
    text = f"An XLNet whose queries see their own word: {len(found.leaks)} leaks are found."
    pictures["xlnet_leaking"] = text, picture(found, names(named(pairing)))
    for name, (text, _) in pictures.items():
        lines += ["", text, "", f"![{name}](leaks/{name}.svg)"]
    # A file on its own has no page to take its colours from.
    paper = '<svg style="background:#ffffff;color:#1b1f24" '
    pictures = {
        name: (text, svg.replace("<svg ", paper, 1)) for name, (text, svg) in pictures.items()
    }
    files = {FOLDER / "leaks" / f"{name}.svg": svg + "\n" for name, (_, svg) in pictures.items()}
    return {FOLDER / "leaks.md": "\n".join(lines) + "\n"} | files


def main() -> None:
    """Write the page and its pictures."""
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(FOLDER.parent)}")


if __name__ == "__main__":
    main()
