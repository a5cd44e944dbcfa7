"""What a beam finds ahead of a text, and how much of a text a model has room for."""

from typing import Any

from classroom.demos.pieces import Table
from classroom.demos.reading import labels
from labkit.blocks import evaluating
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.writing.beam import beam

AHEAD = 8
"""How many words a beam looks ahead: more would take too long for a slider."""


def within(tokens: list[int], model: Any, more: int = 1) -> list[int]:
    """The last tokens, so few that `more` still fit into the positions of the model."""
    if model.backbone.context is None:
        return tokens
    room = model.backbone.context + 1 - more
    return tokens[max(0, len(tokens) - room) :]


def found_by_beam(
    model: Any, tokens: list[int], settings: Sampling, beams: int, tokenizer: Tokenizer
) -> Table:
    """The best continuations that a search finds, with log p of all their words and of each."""
    length = min(settings.length, AHEAD)
    stop = () if tokenizer.vocabulary.sep is None else (tokenizer.vocabulary.sep,)
    # The filters of a draw are left out: a search looks for what the model itself finds likeliest.
    asked = Sampling(length=length, stop=stop, minimum=min(settings.minimum, length))
    with evaluating(model):
        made = beam(model, within(tokens, model, length), asked, beams=beams)
    rows = tuple(
        (
            " ".join(labels(tokenizer, one.tokens)),
            f"{one.log_probability:z.3f}",
            f"{one.log_probability / len(one.tokens):z.3f}",
        )
        for one in made
    )
    return Table((f"the next {length} words, or to the end", "log p", "per word"), rows, "beam")
