"""Which layer knows which sense: one word in two sentences, seen by a probe on each layer.

A probe is a small classifier that was trained on the vectors of one layer (ELMo, Peters et al.
2018, section 5.3).  Read `senses_view`, the pure function.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from classroom.demos.base import Demo, text_box
from classroom.demos.pieces import Chip, Chips, Heading, Note, Piece, Problem, Share, Table
from classroom.demos.reading import as_read, labels, words_in
from classroom.demos.rendering import View
from labkit.blocks import evaluating
from labkit.checks import require
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

LONGEST = 40
Read = Callable[[str], tuple[list[str], list[Tensor]]]
Probe = Callable[[Tensor], Tensor]


def reader(model: Any, tokenizer: Tokenizer) -> Read:
    """What a model makes of a text: its tokens, and the vectors [T, D] of each of its layers."""

    @torch.no_grad()
    def found(text: str) -> tuple[list[str], list[Tensor]]:
        batch, _ = as_read(text, model, tokenizer, LONGEST)
        if batch is None:
            return [], []
        with evaluating(model):
            states = model.backbone(batch.tokens.to(next(model.parameters()).device))
        names = labels(tokenizer, batch.tokens[0].tolist())
        return names, [layer[0].float().cpu() for layer in states.layers]

    return found


def senses_view(
    texts: Sequence[str],
    word: str,
    vectors: Read,
    probes: Sequence[Probe],
    senses: Sequence[str],
    exact: Sequence[Mapping[str, float] | None] = (),
) -> View:
    """For each text and layer, how likely each sense of the word is to the probe of that layer.

    `probes[layer](vector [D])` gives a score for each of the senses. `exact` may give the
    language's own chances for each text.
    """
    pieces: list[Piece] = []
    for number, text in enumerate(texts):
        names, layers = vectors(text)
        place = next((n for n, name in enumerate(names) if alike(name, word)), None)
        if place is None:
            said = (
                f"The word “{word[:40]}” is not among the first {len(names)} tokens of text "
                f"{number + 1}: write it near the beginning."
            )
            pieces.append(Problem(said if word.strip() else "Write the word to look at."))
            continue
        shown = tuple(
            Chip(name, "asked" if n == place else "plain") for n, name in enumerate(names)
        )
        rows: list[tuple[str | Share, ...]] = []
        for n, (layer, probe) in enumerate(zip(layers, probes, strict=True)):
            shares = probe(layer[place]).softmax(dim=-1).tolist()
            rows.append((f"layer {n}" if n else "embeddings", *map(Share, shares)))
        known = exact[number] if number < len(exact) else None
        if known is not None:
            rows.append(("exact", *(Share(known.get(sense, 0.0)) for sense in senses)))
        pieces += [
            Heading(f"Text {number + 1}"),
            Chips(shown),
            Table(("layer", *senses), tuple(rows), f"senses-{number + 1}"),
        ]
    pieces.append(
        Note("Embeddings depend on the word and at most its position, not on the sentence.", "rule")
    )
    return View.of("senses", *pieces)


def alike(token: str, word: str) -> bool:
    """Whether a token is this word, whatever its case and the space that belongs to it."""
    return token.strip("␣ ").lower() == word.strip().lower() != ""


def senses_demo(
    model: Any,
    tokenizer: Tokenizer,
    probes: Sequence[Probe],
    senses: Sequence[str],
    texts: Sequence[str],
    word: str,
    *,
    world: World | None = None,
) -> Demo:
    """Write two sentences with one word, and see in which layer its two senses part.

    A page without a kernel can choose among all `texts`; the first two are shown at once.
    """
    require(len(texts) > 1, f"senses_demo compares two texts, not {len(texts)}: give at least two")
    vectors = reader(model, tokenizer)

    def draw(first: str, second: str, word: str) -> View:
        both = (first, second)
        exact = [chances(world, text, word) for text in both] if world is not None else []
        return senses_view(both, word, vectors, probes, senses, exact)

    controls = {
        "first": text_box("first", texts[0], rows=1),
        "second": text_box("second", texts[1], rows=1),
        "word": text_box("word", word, rows=1),
    }
    return Demo("senses", draw, controls, kept={"first": texts, "second": texts})


def chances(world: World, text: str, word: str) -> dict[str, float] | None:
    """The language's own chances of the senses, or None where it cannot say the text."""
    words = words_in(text)
    place = next((n for n, one in enumerate(words) if alike(one, word)), None)
    if place is None:
        return None
    try:
        return world.posterior(words, "sense", position=place, start="sentence")
    except ValueError:
        return None
