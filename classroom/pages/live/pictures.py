"""The stored pictures of a notebook, made live from what was recorded beside them.

Nothing of the notebook runs. A demo with few states brought their views with it; one of typed text
is played by the page's own engine, if the models of the page show the very same picture; the curve
of a training is played again.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from classroom.demos.masking import Masking, masking_demo
from classroom.demos.sampling import sampling_demo
from classroom.demos.training import replay
from classroom.pages.live.building import PICTURE, Trained, village
from classroom.pages.live.forms import form_of, masking_form, sampling_form
from classroom.pages.live.parts import ENGINE, SHOWN, scripts_of
from classroom.pages.live.written import written_language, written_model
from classroom.recording import KEY, unpacked, written_states
from labkit.sampling import Sampling

DEMO = re.compile('class="labkit-view[^>]* data-demo="([^"]*)"')


def scripts_for(book: Any, gpt: Trained, bert: Trained) -> list[str]:
    """The scripts of the page of a notebook; none where nothing was recorded.

    The picture of a training becomes one that can be played again.
    """
    entries = list(live(book, gpt, bert))
    played = {entry["name"] for entry in entries if "play" in entry}
    data: dict[str, Any] = {"states": entries}
    if "sampling" in played:
        data["gpt"] = written_model(*gpt)
    if "masking" in played:
        data["bert"] = written_model(*bert)
    if played:
        data["language"] = written_language(village())
    return scripts_of(data, ENGINE if played else SHOWN) if entries else []


def live(book: Any, gpt: Trained, bert: Trained) -> Iterator[dict[str, Any]]:
    """For each picture that can be made live, what the page needs; `nth` counts equal names."""
    seen = Counter[str]()
    for output in (output for cell in book.cells for output in cell.get("outputs", ())):
        entry = None
        # A foreign notebook may bring anything: then its picture stays a picture.
        with suppress(Exception):
            entry = entry_of(output, gpt, bert)
        names = DEMO.findall("".join(output.get("data", {}).get("text/html", "")))
        if entry is not None and names == [entry["name"]]:
            yield {**entry, "nth": seen[entry["name"]]}
        seen.update(names)


def entry_of(output: Any, gpt: Trained, bert: Trained) -> dict[str, Any] | None:
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
        form, text = PLAYS[recorded["name"]](values, recorded.get("texts", []), gpt, bert)
        if "".join(output.data["text/plain"]) != text:
            return None
        return {**recorded, "form": f"{form}{PICTURE}"}
    return {**recorded, "form": form_of(recorded)} if len(recorded["views"]) > 1 else None


def sampling(
    values: dict[str, Any], texts: list[str], gpt: Trained, bert: Trained
) -> tuple[str, str]:
    """The controls of a GPT that writes, and what it says at first."""
    settings = Sampling(
        temperature=values["temperature"], top_k=values["top-k"] or None, top_p=values["top-p"]
    )
    demo = sampling_demo(*gpt, values["prompt"], settings=settings, world=village())
    demo.change(seed=values["seed"])
    given = {"topK": values["top-k"], "topP": values["top-p"]}
    return sampling_form(values["prompt"], {**values, **given}), demo.shown.text


def masking(
    values: dict[str, Any], texts: list[str], gpt: Trained, bert: Trained
) -> tuple[str, str]:
    """The controls of a BERT that guesses, and what it says at first."""
    model, tokenizer = bert
    setting = Masking(**{name: value for name, value in values.items() if name != "text"})
    demo = masking_demo(
        values["text"], tokenizer, texts=texts, model=model, world=village(), setting=setting
    )
    return masking_form(values["text"], values), demo.shown.text


PLAYS = {"sampling": sampling, "masking": masking}
