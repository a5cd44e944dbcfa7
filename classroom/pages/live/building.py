"""Pages whose demos compute in the page itself: one file each, which asks for nothing.

The first page writes with a GPT; `live.html` has all demos of typed text, and some whose views were
written down.
"""

from functools import cache
from html import escape
from typing import Any

from classroom.demos.base import Demo
from classroom.demos.floors import floors_demo
from classroom.demos.masks import masks_demo
from classroom.demos.reach import reach_demo
from classroom.demos.recording import Options, written_states
from classroom.demos.schedule import schedule_demo
from classroom.demos.vectors import vectors_demo
from classroom.pages.live.forms import (
    PICTURE,
    SAMPLING,
    buttons,
    form_of,
    masking_form,
    sampling_form,
    sliders,
    text_box,
)
from classroom.pages.live.parts import ENGINE, page, scripts_of
from classroom.pages.live.written import Trained, written_language, written_model
from labkit.text.tokenizers import Tokenizer
from labkit.world import World, load_world

TITLES = {
    "floors": "How surprising each word is to a reader who knows the language",
    "vectors": "Neighbours of BERT's word vectors",
    "masks": "Static and dynamic masks",
    "memory-reach": "How far a memory reaches",
    "schedule": "The rate and the frozen layers, step by step",
}


@cache
def village() -> World:
    """The language of the live pages."""
    return load_world("village")


def sentences(count: int) -> list[str]:
    """Sentences of the village."""
    found = []
    for document in village().sample(documents=count, seed=1):
        first, last = document.sentences[0]
        found.append(" ".join(document.words[first:last]))
    return found


@cache
def first_scripts(gpt: Trained) -> list[str]:
    """What the first page computes with."""
    data = {"gpt": written_model(*gpt), "language": written_language(village())}
    return scripts_of(data, ENGINE)


def first_page(title: str, below: str, gpt: Trained) -> str:
    """The first page: a GPT that writes at once, and below it the list of notebooks."""
    opening = " ".join(sentences(1)[0].split()[:3])
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{value}">' for name, *_, value in SAMPLING[1:]
    )
    demo = (
        "<p>A small language model writes below, in your browser. Its language was made up for "
        "this course, so the <b>exact</b> probability of each next word is shown, too. "
        '<b>Tap a word to write it.</b></p><section data-play="sampling" id="sampling" '
        'data-pace="350" data-first="10" '
        'data-only="unknown chips cut distributions ended impossible problem">'
        f"<form>{buttons('another', 'run', 'undo')}{hidden}</form>{PICTURE}"
        f"<form>{text_box('prompt', opening)}{sliders(SAMPLING[:1])}</form></section>"
        '<p><a href="live.html">More live demos</a>: hide words from a BERT, look at attention, '
        "see what each filter leaves.</p>"
    )
    return page(title, f"<h1>{escape(title)}</h1>{demo}{below}", first_scripts(gpt))


@cache
def live_page(gpt: Trained, bert: Trained, quality: str) -> str:
    """The page of all demos, with a GPT and a BERT of the village, and how good they are."""
    given = sentences(40)
    few = [(demo, written_states(demo, options)) for demo, options in few_states(*bert)]
    data = {
        "gpt": written_model(*gpt),
        "bert": written_model(*bert),
        "language": written_language(village()),
        "sentences": given,
        "states": [written for _, written in few],
    }
    prompt = " ".join(given[0].split()[:4])
    body = "".join([
        '<h1>Live demos</h1><p><a href="index.html">All notebooks</a></p>',
        f"<p>Both models read and write the language of the village. {quality}</p>",
        played("sampling", "Write with a GPT, beside the exact language",
               sampling_form(prompt)),
        played("masking", "Hide words, and see what a BERT guesses",
               masking_form(given[0]),
               "Click a word to hide it, or to show it again. “Exact” is the distribution for a "
               "reader who knows the language and what the model knows: which words were chosen, "
               "but not which of them were swapped or kept."),
        played("attention", "Look at attention",
               "<form>" + text_box("text", given[1])
               + '<label>model <select name="model"><option>BERT<option>GPT</select></label>'
               + sliders([("layer", "layer", 1, 2, 1, 1), ("head", "head (0: mean)", 0, 4, 1, 1)])
               + '<label><input type="checkbox" name="every"> all heads</label>'
               + buttons("reset") + "</form>"),
        *(states_section(demo, written) for demo, written in few),
    ])  # fmt: skip
    return page("Live demos", body, scripts_of(data, ENGINE))


def few_states(bert: Any, tokenizer: Tokenizer) -> list[tuple[Demo, Options]]:
    """The demos whose views are written down, and the texts that they are written down for."""
    given, words = sentences(12), ["oak", "yacht", "soup", "anna", "harbour", "film", "she", "was"]
    asked = ["he his she", "tom he anna"]
    return [
        (floors_demo(village(), given[0]), {"text": given}),
        (
            vectors_demo(bert, tokenizer, words[0], asked[0]),
            {"word": words, "question": asked},
        ),
        (masks_demo(given[0], tokenizer), {"text": given[:1]}),
        (reach_demo(), {}),
        (schedule_demo(steps=120, every=20), {}),
    ]


def played(name: str, heading: str, controls: str, note: str = "") -> str:
    """A demo that computes."""
    said = f"<p>{note}</p>" if note else ""
    return (
        f'<section id="{name}" data-play="{name}"><h2>{heading}</h2>{said}'
        f"{controls}{PICTURE}</section>"
    )


def states_section(demo: Demo, written: dict[str, Any]) -> str:
    """A demo whose views were written down; without script, its present one."""
    name = escape(demo.name)
    return (
        f'<section id="{name}" class="labkit-states"><h2>{TITLES[demo.name]}</h2>'
        f"{form_of(written)}"
        f'<div class="view">{demo.shown.html}</div></section>'
    )
