"""Leaks, to look at: what each prediction of a model depends on, beside what it may."""

from functools import partial
from typing import Any

from classroom.demos.base import Demo, text_box
from classroom.demos.pieces import Grid, Heading, Note, Problem
from classroom.demos.reading import as_read, labels
from classroom.demos.rendering import View
from labkit.blocks import evaluating
from labkit.checks import counted
from labkit.leaks import Dependence, trace
from labkit.objectives import Objective
from labkit.text.tokenizers import Tokenizer

LONGEST = 14


def leaks_view(text: str, model: Any, objective: Objective, tokenizer: Tokenizer) -> View:
    """Every prediction about a short text, traced back to each of its words."""
    batch, notes = as_read(text, model, tokenizer, LONGEST)
    if batch is None:
        return View.of("leaks", Problem("There is nothing to predict: write some words."))
    try:
        with evaluating(model):
            found = trace(model, objective, batch)
    except ValueError as error:
        return View.of("leaks", Problem(str(error)))
    words = labels(tokenizer, batch.tokens[0, : found.widths[0]].tolist())
    leaks = [str(leak) for leak in found.leaks]
    verdict = f"{counted(len(leaks), 'leak')}: {leaks[0]}" if leaks else "Nothing leaks."
    return View.of(
        "leaks",
        *notes,
        Note(verdict, "verdict"),
        Heading("What each prediction depends on"),
        dependence(found, words),
        Note("\n".join(in_lines(found, words)), "lines"),
    )


def dependence(found: Dependence, words: list[str]) -> Grid:
    """A row for each prediction, a column for each word: filled where one depends on the other."""
    by = (found.by_gradient | found.by_word)[:, 0]
    wrong = (found.by_gradient & ~found.positions_allowed) | (found.by_word & ~found.words_allowed)
    levels = by.long() + wrong[:, 0].long()
    return Grid(
        levels=tuple(map(tuple, levels.tolist())),
        across=tuple(words),
        down=tuple(f"{term} at {words[position]}" for term, _, position in found.predictions),
        title="leaks",
        said="a filled square says that the prediction depends on the word; ✗ marks a leak",
    )


def in_lines(found: Dependence, words: list[str]) -> list[str]:
    """What each prediction depends on, in words."""
    lines = []
    for n, (term, _, position) in enumerate(found.predictions):
        by = (found.by_gradient | found.by_word)[n, 0].nonzero()[:, 0].tolist()
        said = ", ".join(f"{i} {words[i]}" for i in by) or "nothing"
        lines.append(f"{term} at {position} {words[position]} depends on {said}")
    return lines


def leaks_demo(model: Any, objective: Objective, tokenizer: Tokenizer, text: str) -> Demo:
    """Trace the predictions of a model on a text of yours."""
    draw = partial(leaks_view, model=model, objective=objective, tokenizer=tokenizer)
    return Demo("leaks", draw, {"text": text_box("text", text)})
