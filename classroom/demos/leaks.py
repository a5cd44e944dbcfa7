"""Leaks, to look at: what each prediction of a model depends on, beside what it may."""

from typing import Any

from classroom.demos.base import Demo, text_box
from classroom.demos.drawing import View, heading, note, page, problem
from classroom.demos.reading import evaluating, labels, longest_for, read
from labkit.leaks import Dependence, trace
from labkit.objectives import Objective
from labkit.text.tokenizers import Tokenizer

LONGEST = 14


def leaks_view(text: str, model: Any, objective: Objective, tokenizer: Tokenizer) -> View:
    """Every prediction about a short text, traced back to each of its words."""
    batch = read(text, tokenizer, longest_for(model, LONGEST))
    if batch is None:
        return page("leaks", problem("There is nothing to predict: write some words."))
    try:
        with evaluating(model):
            found = trace(model, objective, batch)
    except ValueError as error:
        return page("leaks", problem(str(error)))
    words = labels(tokenizer, batch.tokens[0, : found.widths[0]].tolist())
    leaks = [str(leak) for leak in found.leaks]
    verdict = f"{len(leaks)} leaks: {leaks[0]}" if leaks else "Nothing leaks."
    return page("leaks", note(verdict, "verdict"), drawn(found, words))


def drawn(found: Dependence, words: list[str]) -> View:
    """The picture of the trace, and the same in lines."""
    lines = []
    for n, (term, _, place) in enumerate(found.predictions):
        by = (found.by_gradient | found.by_word)[n, 0].nonzero()[:, 0].tolist()
        said = ", ".join(f"{i} {words[i]}" for i in by) or "nothing"
        lines.append(f"{term} at {place} {words[place]} depends on {said}")
    html = f'<div style="overflow-x:auto">{found.picture(0, [w[:12] for w in words])}</div>'
    title = heading("What each prediction depends on")
    return View(title.html + html, "\n".join([title.text, *lines]))


def leaks_demo(model: Any, objective: Objective, tokenizer: Tokenizer, text: str) -> Demo:
    """Trace the predictions of a model on a text of yours."""

    def draw(text: str) -> View:
        return leaks_view(text, model, objective, tokenizer)

    return Demo("leaks", draw, {"text": text_box("text", text)})
