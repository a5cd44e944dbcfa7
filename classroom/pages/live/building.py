"""The live page: its demos, its data and its scripts in one file that asks for nothing."""

import base64
import hashlib
import itertools
import json
import math
from html import escape
from pathlib import Path
from typing import Any

from classroom.demos import Demo, floors_demo, reach_demo, schedule_demo
from classroom.pages.live.written import written_language, written_model
from classroom.recipes import course_text
from classroom.shipped import trained

FOLDER = Path(__file__).resolve().parent
MOST = 200
"""How many states of a demo are written down."""
SLIDERS = (("temperature", 0, 3, 0.05, 1), ("topK", 0, 50, 1, 0), ("topP", 0, 1, 0.01, 1),
           ("seed", 0, 1000, 1, 0))  # fmt: skip
SAID = {"topK": "top-k (0: all)", "topP": "top-p"}


def write(path: Path) -> None:
    """Write the live page, with the village's GPT that ships with the course."""
    model, tokenizer = trained("gpt-village")
    world = course_text("village").world
    assert world is not None
    demos = [reach_demo(), schedule_demo(steps=120, every=20), floors_demo(world)]
    data = {
        "gpt": written_model(model, tokenizer),
        "language": written_language(world),
        "states": [written_states(demo) for demo in demos],
    }
    # "</script>" cannot stand in a script, whatever the data hold.
    given = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    names = ("render", "engine", "views", "page")
    sources = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names]
    scripts = [f"const DATA = {given};", *sources]
    prompt = " ".join(world.sample(documents=1, seed=1)[0].words[:4])
    body = "".join([sampling_form(prompt), *map(states_form, demos)])
    path.write_text(page(body, scripts), encoding="utf-8")


def page(body: str, scripts: list[str]) -> str:
    """A page whose policy admits its own inline scripts by their digests, and nothing else."""
    digests = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    run = "".join(f"<script>{script}</script>" for script in scripts)
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Live demos</title><style>{style}</style></head><body><main><h1>Live demos</h1>"
        '<p><a href="index.html">All notebooks</a></p>'
        "<noscript><p>These demos need script; the notebooks do not.</p></noscript>"
        f"{body}</main>{run}</body></html>\n"
    )


def digest(script: str) -> str:
    """The digest by which a policy admits a script."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


def sampling_form(prompt: str) -> str:
    """The controls of the sampling demo."""
    sliders = "".join(
        f"<label>{SAID.get(name, name)} <output></output>"
        f'<input type="range" name="{name}" min="{low}" max="{high}" step="{step}" '
        f'value="{value}"></label>'
        for name, low, high, step, value in SLIDERS
    )
    buttons = "".join(
        f'<button type="button" data-act="{act}">{act}</button>'
        for act in ("step", "run", "undo", "reset")
    )
    return (
        '<section id="sampling"><h2>Write with a GPT, beside the exact language</h2><form><label>'
        f'prompt <textarea name="prompt" rows="2">{escape(prompt)}</textarea></label>'
        f'{sliders}{buttons}</form><div class="view" aria-live="polite"></div></section>'
    )


# ---- views that were written down ----------------------------------------------------------------


def kept_values(demo: Demo) -> dict[str, list[Any]]:
    """The values of each control that are written down: evenly thinned, the present one kept."""
    every = {name: choices(control) for name, control in demo.controls.items()}
    kept = {name: values for name, values in every.items() if values}
    while math.prod(map(len, kept.values())) > MOST:
        name = max(kept, key=lambda name: len(kept[name]))
        present = demo.values[name]
        fewer = sorted({*kept[name][::2], present}, key=every[name].index)
        kept[name] = fewer if len(fewer) < len(kept[name]) else [present]
    return kept


def choices(control: Any) -> list[Any]:
    """All values of a control; none for what is typed."""
    if hasattr(control, "options"):
        return [one[1] if isinstance(one, tuple) else one for one in control.options]
    if not hasattr(control, "step"):
        return []
    count = round((control.max - control.min) / control.step) + 1
    kind = type(control.value)
    return [kind(round(control.min + i * control.step, 6)) for i in range(count)]


def written_states(demo: Demo) -> dict[str, Any]:
    """The views of all states that are kept; equal views are written once."""
    kept, views, which = kept_values(demo), dict[str, int](), []
    for state in itertools.product(*kept.values()):
        view = demo.draw(**{**demo.values, **dict(zip(kept, state, strict=True))})
        pieces = json.dumps([piece.as_data() for piece in view.pieces])
        which.append(views.setdefault(pieces, len(views)))
    sizes = [len(values) for values in kept.values()]
    shown = [json.loads(pieces) for pieces in views]
    return {"name": demo.name, "sizes": sizes, "which": which, "views": shown}


def states_form(demo: Demo) -> str:
    """The controls of a demo whose views were written down: each slides over its kept values."""
    fields = "".join(
        f"<label>{escape(demo.controls[name].description)} <output></output>"
        f'<input type="range" name="{escape(name)}" min="0" max="{len(values) - 1}" '
        f'value="{values.index(demo.values[name])}" data-said="{escape(json.dumps(values))}">'
        "</label>"
        for name, values in kept_values(demo).items()
    )
    return (
        f'<section id="{escape(demo.name)}"><h2>{escape(demo.name)}</h2><form>{fields}</form>'
        f'<div class="view">{demo.shown.html}</div></section>'
    )
