"""The stored pictures of a notebook, made live from what was recorded beside them.

Nothing of the notebook runs. A demo with few states brought their views with it; one of typed text
is played by the page's own engine, if the models of the page show the very same picture; the curve
of a training is played again.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from classroom.demos.base import Demo
from classroom.demos.recording import KEY, unpacked, written_states
from classroom.demos.training import replay
from classroom.pages.live.forms import PICTURE, form_of, masking_form, sampling_form
from classroom.pages.live.parts import ENGINE, SHOWN, scripts_of
from classroom.pages.live.written import Trained, written_language, written_model
from labkit.world import World

DEMO = re.compile('class="labkit-view[^>]* data-demo="([^"]*)"')


class OfPage(NamedTuple):
    """What a page can compute with."""

    gpt: Trained
    bert: Trained
    language: World
    sampling: Callable[..., Demo]
    masking: Callable[..., Demo]


def scripts_for(book: Any, of_page: OfPage) -> list[str]:
    """The scripts of the page of a notebook; none where nothing was recorded.

    The picture of a training becomes one that can be played again.
    """
    entries = list(live(book, of_page))
    played = {entry["name"] for entry in entries if "play" in entry}
    data: dict[str, Any] = {"states": entries}
    if "sampling" in played:
        data["gpt"] = written_model(*of_page.gpt)
    if "masking" in played:
        data["bert"] = written_model(*of_page.bert)
    if played:
        data["language"] = written_language(of_page.language)
    return scripts_of(data, ENGINE if played else SHOWN) if entries else []


def live(book: Any, of_page: OfPage) -> Iterator[dict[str, Any]]:
    """For each picture that can be made live, what the page needs; `nth` counts equal names."""
    seen = Counter[str]()
    for output in (output for cell in book.cells for output in cell.get("outputs", ())):
        entry = None
        # A foreign notebook may contain anything: then its picture stays a picture.
        with suppress(Exception):
            made = entry_of(output, of_page)
            json.dumps(made, allow_nan=False)  # a page reads no NaN
            entry = made
        names = DEMO.findall("".join(output.get("data", {}).get("text/html", "")))
        if entry is not None and names == [entry["name"]]:
            yield {**entry, "nth": seen[entry["name"]]}
        seen.update(names)


def entry_of(output: Any, of_page: OfPage) -> dict[str, Any] | None:
    """What was recorded beside an output, with the controls for it."""
    if KEY not in output.get("metadata", {}):
        return None
    recorded = unpacked(output.metadata[KEY])
    if "points" in recorded:
        demo = replay(recorded["points"], recorded["floor"], recorded["unit"])
        output["data"] = demo.stored
        recorded = written_states(demo)
    elif "play" in recorded:
        values = recorded["play"]
        form, text = PLAYS[recorded["name"]](values, recorded.get("texts", []), of_page)
        if "".join(output.data["text/plain"]) != text:
            return None
        return {**recorded, "form": f"{form}{PICTURE}"}
    return {**recorded, "form": form_of(recorded)} if len(recorded["views"]) > 1 else None


def sampling(values: dict[str, Any], texts: list[str], of_page: OfPage) -> tuple[str, str]:
    """The form of a GPT that writes, and the text of its first view."""
    demo = of_page.sampling(*of_page.gpt, values["prompt"], world=of_page.language)
    demo.change(**values)
    given = {"topK": values["top-k"], "topP": values["top-p"]}
    return sampling_form(values["prompt"], {**values, **given}), demo.shown.text


def masking(values: dict[str, Any], texts: list[str], of_page: OfPage) -> tuple[str, str]:
    """The form of a BERT that guesses, and the text of its first view."""
    model, tokenizer = of_page.bert
    demo = of_page.masking(
        values["text"], tokenizer, texts=texts, model=model, world=of_page.language
    )
    demo.change(**values)
    return masking_form(values["text"], values), demo.shown.text


PLAYS = {"sampling": sampling, "masking": masking}
