"""What a beam finds ahead of a text, and how much of a text a model has room for."""

from dataclasses import replace
from typing import Any

from classroom.demos.drawing import View, table
from classroom.demos.reading import evaluating, labels
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.writing.beam import beam

AHEAD = 8
"""How many words a beam looks ahead: more would make a hand wait."""


def within(tokens: list[int], model: Any, more: int = 1) -> list[int]:
    """The last tokens, as many as leave room for `more` where a model has no more positions."""
    if model.backbone.context is None:
        return tokens
    room = model.backbone.context + 1 - more
    return tokens[-room:]


def found_by_beam(
    model: Any, tokens: list[int], settings: Sampling, beams: int, tokenizer: Tokenizer
) -> View:
    """The best ways on that a search finds, with log p of all their words and of each."""
    length = min(settings.length, AHEAD)
    stop = () if tokenizer.vocabulary.sep is None else (tokenizer.vocabulary.sep,)
    asked = replace(settings, length=length, stop=stop)
    with evaluating(model):
        made = beam(model, within(tokens, model, length), asked, beams=beams)
    rows = [
        [
            " ".join(labels(tokenizer, one.tokens)),
            f"{one.log_probability:.3f}",
            f"{one.log_probability / len(one.tokens):.3f}",
        ]
        for one in made
    ]
    return table([f"the next {length} words, or to the end", "log p", "a word"], rows, name="beam")
