"""Pages whose demos compute in the page itself: one file each, which asks for nothing.

The first page writes with a GPT; `live.html` has all demos of typed text, and some whose views were
written down.
"""

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from classroom.demos.base import Demo
from classroom.demos.floors import floors_demo
from classroom.demos.masks import masks_demo
from classroom.demos.reach import reach_demo
from classroom.demos.schedule import schedule_demo
from classroom.demos.vectors import vectors_demo
from classroom.pages.live.parts import ENGINE, page, scripts_of
from classroom.pages.live.states import Options, form, written_states
from classroom.pages.live.written import written_language, written_model
from classroom.recipes import course_text
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

SAMPLING = (("temperature", "temperature", 0, 3, 0.05, 1), ("topK", "top-k (0: all)", 0, 50, 1, 0),
            ("topP", "top-p", 0, 1, 0.01, 1), ("seed", "seed", 0, 1000, 1, 0))  # fmt: skip
MASKING = (("rate", "share predicted", 0, 1, 0.05, 0.15),
           ("mask", "of it [MASK]", 0, 1, 0.05, 0.8), ("random", "of it random", 0, 1, 0.05, 0.1),
           ("draw", "draw", 0, 1000, 1, 0))  # fmt: skip
SAID = {"run": "run / stop", "another": "another text"}
TITLES = {
    "floors": "How surprising each word is to one who knows the language",
    "vectors": "Neighbours of BERT's word vectors",
    "masks": "Static and dynamic masks",
    "memory-reach": "How far a memory reaches",
    "schedule": "The rate and the frozen layers, step by step",
}
Trained = tuple[Any, Tokenizer]
Slider = tuple[str, str, float, float, float, float]


@cache
def village() -> World:
    """The language of the live pages."""
    world = course_text("village").world
    assert world is not None
    return world


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
    """The first page: a GPT that writes at once, and then what the site has."""
    opening = " ".join(sentences(1)[0].split()[:3])
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{value}">'
        for name, _, _, _, _, value in SAMPLING[1:]
    )
    demo = (
        '<p>A small language model writes below, in your browser. Its language was made up for '
        "this course, so the <b>exact</b> probability of each next word is known: compare. "
        '<b>Tap a word to write it.</b></p><section data-play="sampling" id="sampling" '
        'data-pace="350" data-first="10" data-only="chips distributions ended problem">'
        f"<form>{buttons('another', 'run', 'undo')}{hidden}</form>{PICTURE}"
        f"<form>{text_box('prompt', opening)}{sliders(SAMPLING[:1])}</form></section>"
        '<p><a href="live.html">More live demos</a>: hide words from a BERT, look at attention, '
        "see what each filter leaves.</p>"
    )  # fmt: skip
    return page(title, f"<h1>{escape(title)}</h1>{demo}{below}", first_scripts(gpt))


@cache
def live_page(gpt: Trained, bert: Trained, quality: str) -> str:
    """The page of all demos, with a GPT and a BERT of the village, and how good they are."""
    given = sentences(40)
    few = few_states(*bert)
    data = {
        "gpt": written_model(*gpt),
        "bert": written_model(*bert),
        "language": written_language(village()),
        "sentences": given,
        "states": [written_states(demo, options) for demo, options in few],
    }
    prompt = " ".join(given[0].split()[:4])
    body = "".join([
        '<h1>Live demos</h1><p><a href="index.html">All notebooks</a></p>',
        f"<p>Both models read and write the language of the village. {quality}</p>",
        played("sampling", "Write with a GPT, beside the exact language",
               text_box("prompt", prompt) + sliders(SAMPLING)
               + buttons("step", "run", "undo", "reset")),
        played("masking", "Hide words, and see what a BERT guesses",
               text_box("text", given[0]) + sliders(MASKING)
               + buttons("draw", "another", "reset"),
               "Click a word to hide it, or to show it again. “Exact” is the distribution for one "
               "who knows the language, and knows no more than the model: which words were chosen, "
               "but not which of them were swapped or kept."),
        played("attention", "Look at attention",
               text_box("text", given[1])
               + '<label>model <select name="model"><option>BERT<option>GPT</select></label>'
               + sliders([("layer", "layer", 1, 2, 1, 1), ("head", "head (0: mean)", 0, 4, 1, 1)])
               + '<label><input type="checkbox" name="every"> all heads</label>'
               + buttons("reset")),
        *(states_section(demo, options) for demo, options in few),
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


PICTURE = '<p class="said" role="status"></p><div class="view"></div>'


def played(name: str, heading: str, controls: str, note: str = "") -> str:
    """A demo that computes."""
    said = f"<p>{note}</p>" if note else ""
    return (
        f'<section id="{name}" data-play="{name}" data-pace="60"><h2>{heading}</h2>{said}'
        f"<form>{controls}</form>{PICTURE}</section>"
    )


def states_section(demo: Demo, options: Options) -> str:
    """A demo whose views were written down; without script, its present one."""
    name = escape(demo.name)
    return (
        f'<section id="{name}" class="labkit-states"><h2>{TITLES[demo.name]}</h2>'
        f"{form(demo, options)}"
        f'<div class="view">{demo.shown.html}</div></section>'
    )


def text_box(name: str, text: str) -> str:
    """A box to write in."""
    return (
        f'<label>{name} <textarea name="{name}" rows="2" maxlength="2000">{escape(text)}'
        "</textarea></label>"
    )


def sliders(asked: Sequence[Slider]) -> str:
    """Numbers to slide; what each stands at is written beside it."""
    return "".join(
        f'<label>{said} <output></output><input type="range" name="{name}" min="{low}" '
        f'max="{high}" step="{step}" value="{value}"></label>'
        for name, said, low, high, step, value in asked
    )


def buttons(*names: str) -> str:
    """Buttons by what they do."""
    return "".join(
        f'<button type="button" data-does="{name}">{SAID.get(name, name)}</button>'
        for name in names
    )
