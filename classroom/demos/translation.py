"""Translation, to play with: each step of the decoder beside the exact distribution.

The words that the translation begins with may be forced; from there on the decoder takes its
likeliest word. Read `translation_view`, the pure function.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from classroom.demos.base import Demo, choice, text_box, whole_slider
from classroom.demos.pieces import (
    Beside,
    Chip,
    Chips,
    Heading,
    Note,
    Piece,
    Problem,
    Shades,
    Share,
    Table,
)
from classroom.demos.reading import in_vocabulary
from classroom.demos.rendering import View
from classroom.tasks import translating
from labkit.blocks import evaluating
from labkit.models.transformer import teacher_forced
from labkit.world.translation import Pair

SHOWN = 6
"""Words of a distribution that are listed."""
LONGEST = 24
"""Words of a sentence; longer ones are refused."""
ENDS = "(end)"
MOST_BEAMS = 8
KEPT = 4
"""How many other beginnings of the translation a page without a kernel can choose."""


class Asked(NamedTuple):
    """What is looked at: a step, counted from 1, a layer (0: their mean), and a beam."""

    step: int = 1
    layer: int = 0
    beams: int = 4


def translation_view(sentence: str, begins: str, model: Any, asked: Asked) -> View:
    """The decoder step by step, the alignment, and what a beam finds."""
    tokenizer = translating.tokenizer()
    (source_text, unknown), (begins_text, others) = (
        in_vocabulary(text, tokenizer) for text in (sentence, begins)
    )
    source, forced = source_text.split(), begins_text.split()
    if unknown or others:
        return _problem(f"Not in the vocabulary: {', '.join([*unknown, *others])}.")
    if not 0 < len(source) <= LONGEST or len(forced) > LONGEST:
        return _problem(f"Write a sentence of 1 to {LONGEST} words, such as: the queen fed the cat")
    with evaluating(model):
        words, shares_TV = _written(model, source, forced)
        looks = translating.cross_attention(model, source, words).mean(dim=1)
        found = translating.searched(model, source, beams=asked.beams)
    exact = _translations(source)
    step = min(asked.step, len(words) + 1)
    before = words[: step - 1]
    possible = translating.next_word(source, before, exact)
    pieces: list[Piece] = [
        Heading("The encoder reads"),
        Chips(tuple(Chip(word) for word in source)),
        Heading("The decoder writes"),
        Chips(_chips(words, shares_TV, len(forced))),
        Heading(f"Step {step}: after “{' '.join(before) or '(begin)'}”"),
        _distribution(shares_TV[step - 1], possible),
    ]
    if exact and not possible:
        said = f"No translation begins with “{' '.join(before)}”, so nothing exact is known here."
        pieces.append(Note(said))
    if not exact:
        pieces.append(Note("This language cannot say that sentence, so nothing exact is known."))
    pieces.append(Heading("Where each word looks"))
    shown = looks.mean(dim=0) if asked.layer == 0 else looks[asked.layer - 1]
    pieces.append(_alignment(shown, words, source, exact))
    pieces += [Heading(f"A beam of {asked.beams}"), _beam(model, source, found, exact)]
    return View.of("translation", *pieces)


def _problem(says: str) -> View:
    return View.of("translation", Problem(says))


def _translations(source: Sequence[str]) -> dict[tuple[str, ...], float]:
    """The exact translations; none where the language cannot say the sentence."""
    try:
        return translating.translator().translations(source)
    except ValueError:
        return {}


@torch.no_grad()
def _written(model: Any, source: list[str], forced: list[str]) -> tuple[list[str], Tensor]:
    """The forced words and what follows them, and the distribution at each step and at the end."""
    [words] = translating.greedy(model, [source], begins=forced)
    given_BT = teacher_forced(torch.tensor([translating.numbers(words)]), translating.begin())
    hidden = model.backbone(given_BT, source_BK=torch.tensor([translating.numbers(source)])).hidden
    return words, model.head(hidden)[0].softmax(dim=-1)


def _chips(words: Sequence[str], shares_TV: Tensor, forced: int) -> tuple[Chip, ...]:
    """The target; below each word, how likely the model found it."""
    tokens = translating.numbers(words)
    return tuple(
        Chip(word, "asked" if t < forced else "plain", f"{float(shares_TV[t, token]):.2f}")
        for t, (word, token) in enumerate(zip(words, tokens, strict=False))
    )


def _likeliest(share_V: Tensor, count: int) -> list[int]:
    """The likeliest words and the end; no other special token can occur in a translation."""
    others = {*translating.tokenizer().vocabulary.special} - {translating.end()}
    best = share_V.argsort(descending=True, stable=True).tolist()
    return [token for token in best if token not in others][:count]


def _distribution(share_V: Tensor, exact: dict[str, float]) -> Table:
    """The likeliest words of the model and all possible ones; a click forces one."""
    tokenizer = translating.tokenizer()
    possible = [translating.numbers([word])[0] if word else translating.end() for word in exact]
    listed = dict.fromkeys([*_likeliest(share_V, SHOWN), *possible])
    rows, keys = [], []
    for token in sorted(listed, key=lambda token: -float(share_V[token])):
        word = "" if token == translating.end() else tokenizer.pieces([token])[0]
        p = exact.get(word, 0.0) if exact else None
        rows.append((word or ENDS, Share(float(share_V[token])), Share(p)))
        keys.append(token)
    return Table(
        ("next word", "model", "exact"), tuple(rows), "next", act="write", keys=tuple(keys)
    )


def _alignment(
    looks_TK: Tensor, words: list[str], source: list[str], exact: dict[tuple[str, ...], float]
) -> Beside:
    """Cross-attention, and the exact alignment where the translation is possible."""
    maps = {"cross-attention": looks_TK[: len(words), : len(source)].tolist()}
    if tuple(words) in exact:
        maps["exact alignment"] = translating.translator().alignment(source, words).tolist()
    return Beside(
        tuple(
            Shades(tuple(map(tuple, rows)), tuple(source), tuple(words), title)
            for title, rows in maps.items()
        )
    )


def _beam(
    model: Any,
    source: list[str],
    found: Sequence[list[str]],
    exact: dict[tuple[str, ...], float],
) -> Table:
    """What the search has found, with the probability by the model and the exact one."""
    tokenizer = translating.tokenizer()
    special = {*tokenizer.pieces([*tokenizer.vocabulary.special])}
    # Of a wide beam the last may hold a [CLS], which is no word and has no probability as one.
    found = [words for words in found if special.isdisjoint(words)]
    pairs = [Pair(source, words) for words in found]
    logs = translating.log_probabilities(model, pairs)
    shares = [exact.get(tuple(words), 0.0) if exact else None for words in found]
    rows = tuple(
        (" ".join(words), Share(float(np.exp(log))), Share(p))
        for words, log, p in zip(found, logs, shares, strict=True)
    )
    return Table(("translation", "model", "exact"), rows, "beam")


class TranslationDemo(Demo):
    """The steps end with the translation that is drawn."""

    def refresh(self) -> None:
        """Draw, and let the slider of the steps end where the translation does."""
        super().refresh()
        written = [piece for piece in self.shown.pieces if isinstance(piece, Chips)][1:]
        if written:
            self._steps(len(written[0].chips) + 1)

    def write(self, begins: str, step: int) -> None:
        """Begin with some words, which may make the translation longer."""
        self._steps(LONGEST)
        self.change(begins=begins, step=step)

    def _steps(self, last: int) -> None:
        with self.quietly():
            self.controls["step"].max = last


def translation_demo(model: Any, sentence: str) -> Demo:
    """Translate a sentence step by step; force words, and compare with the exact distribution."""
    demo: TranslationDemo

    def draw(sentence: str, begins: str, step: int, layer: str, beams: int) -> View:
        number = 0 if layer == "mean" else int(layer)
        return translation_view(sentence, begins, model, Asked(step, number, beams))

    def force(token: int) -> None:
        if token == translating.end():
            return
        values, tokenizer = demo.values, translating.tokenizer()
        source, begins = (
            in_vocabulary(values[name], tokenizer)[0].split() for name in ("sentence", "begins")
        )
        with evaluating(model):
            [words] = translating.greedy(model, [source], begins=begins)
        kept = [*words[: values["step"] - 1], *tokenizer.pieces([token])]
        demo.write(" ".join(kept), len(kept) + 1)

    layers = [str(n + 1) for n in range(model.backbone.layers)]
    controls: dict[str, Any] = {
        "sentence": text_box("sentence", sentence),
        "begins": text_box("begin with", "", rows=1),
        "step": whole_slider("step", 1, 1, LONGEST),
        "layer": choice("layer", ["mean", *layers]),
        "beams": whole_slider("beam", 4, 1, MOST_BEAMS),
    }
    kept = {
        "begins": ["", *other_beginnings(model, sentence)],
        "step": range(1, 1 + len(sentence.split()) + 2),
        "layer": ["mean", layers[-1]],
        "beams": [4],
    }
    demo = TranslationDemo("translation", draw, controls, act=force, kept=kept)
    return demo


def other_beginnings(model: Any, sentence: str) -> list[str]:
    """Beginnings of the translation, each of which ends in the second likeliest word."""
    source = in_vocabulary(sentence, translating.tokenizer())[0].split()
    with evaluating(model):
        words, shares_TV = _written(model, source, [])
    found = []
    for step in range(min(len(words), KEPT)):
        _, second = _likeliest(shares_TV[step], 2)
        if second != translating.end():
            found.append(" ".join([*words[:step], *translating.tokenizer().pieces([second])]))
    return found
