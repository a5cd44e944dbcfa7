"""The controls of demos in a page, as HTML."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

SAMPLING = (("temperature", "temperature", 0, 3, 0.05, 1), ("topK", "top-k (0: all)", 0, 50, 1, 0),
            ("topP", "top-p", 0, 1, 0.01, 1), ("seed", "seed", 0, 1000, 1, 0))  # fmt: skip
MASKING = (("rate", "share predicted", 0, 1, 0.05, 0.15),
           ("mask", "of these, [MASK]", 0, 1, 0.05, 0.8),
           ("random", "of these, random", 0, 1, 0.05, 0.1),
           ("draw", "draw", 0, 10_000, 1, 0))  # fmt: skip
SAID = {"run": "run / stop", "another": "another text", "play": "play / stop"}
# A screen reader has the slider's own value.  An <output> would take the label from the slider.
SHOWN = '<span class="shown" aria-hidden="true"></span>'
PICTURE = '<p class="said" role="status"></p><div class="view"></div>'
Slider = tuple[str, str, float, float, float, float]


def form_of(recorded: Mapping[str, Any]) -> str:
    """The controls of a demo whose views were written down: each moves over its kept values."""
    fields = "".join(map(_field, recorded["controls"]))
    names = ("play", "reset") if recorded["name"] == "training" else ("reset",)
    return f"<form>{fields}{buttons(*names)}</form>"


def _field(control: Mapping[str, Any]) -> str:
    """A slider over numbers, a list of names."""
    name, said, values = escape(control["name"]), escape(control["said"]), control["values"]
    if isinstance(values[0], str):
        options = "".join(
            f'<option value="{n}"{" selected" if n == control["at"] else ""}>'
            f"{escape(value or '(empty)')}</option>"
            for n, value in enumerate(values)
        )
        return f'<label>{said} <select name="{name}">{options}</select></label>'
    return (
        f'<label>{said} {SHOWN}<input type="range" name="{name}" min="0" '
        f'max="{len(values) - 1}" value="{int(control["at"])}" '
        f'data-said="{escape(json.dumps(values))}"></label>'
    )


def sampling_form(prompt: str, values: Mapping[str, float] | None = None) -> str:
    """The controls of a GPT that writes."""
    given = text_box("prompt", prompt) + sliders(SAMPLING, values)
    return f"<form>{given}{buttons('step', 'run', 'undo', 'reset')}</form>"


def masking_form(text: str, values: Mapping[str, float] | None = None) -> str:
    """The controls of a BERT that guesses hidden words."""
    given = text_box("text", text) + sliders(MASKING, values)
    return f"<form>{given}{buttons('draw', 'another', 'reset')}</form>"


def text_box(name: str, text: str) -> str:
    """A box for text, from left to right or from right to left, as the text is."""
    return (
        f'<label>{name} <textarea name="{name}" dir="auto" rows="2" maxlength="2000">'
        f"{escape(text)}</textarea></label>"
    )


def sliders(asked: Sequence[Slider], values: Mapping[str, float] | None = None) -> str:
    """Sliders for numbers; the value of each is written beside it."""
    return "".join(
        f'<label>{said} {SHOWN}<input type="range" name="{name}" min="{low}" '
        f'max="{high}" step="{step_of(now, low, step)}" value="{now}"></label>'
        for name, said, low, high, step, value in asked
        for now in [(values or {}).get(name, value)]
    )


def step_of(value: float, low: float, step: float) -> str:
    """The step of a slider; a value between two steps, which a browser would round, takes any."""
    steps = (value - low) / step
    return f"{step}" if abs(steps - round(steps)) < 1e-6 else "any"


def buttons(*names: str) -> str:
    """Buttons by what they do."""
    return "".join(
        f'<button type="button" data-does="{name}">{SAID.get(name, name)}</button>'
        for name in names
    )
