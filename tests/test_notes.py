"""The speaker's notes call the controls of the demos by the names that stand on them.

In a note, bold is the name of a control or of one of its options, except at the head of an item
(**Click**, **They ask**); code is a name in the cells.
"""

import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from test_demo_alignment import ASKED
from test_demos import bert, gpt

from classroom.models.shipped import trained
from labkit.text.tokenizers import Tokenizer

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("[0-9]*.ipynb"))
TEXT = "the cat sat"
TOKENIZER = Tokenizer.words(TEXT.split())
# The arguments of each demo, as small as they can be: labels do not depend on them.
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "alignment": lambda: ({"where?": ASKED},),
    "attention": lambda: (gpt(TOKENIZER), TOKENIZER, TEXT),
    "costs": lambda: ("GPT-3 175B", "a100"),
    "ledger": lambda: (),
    "masking": lambda: (TEXT,),
    "masks": lambda: (TEXT,),
    "orders": lambda: (TEXT,),
    "reach": lambda: (),
    "sampling": lambda: (gpt(TOKENIZER), TOKENIZER, TEXT),
    "schedule": lambda: (),
    "senses": lambda: (bert(TOKENIZER), TOKENIZER, [torch.nn.Linear(16, 2)] * 3, ["a", "b"],
                       [TEXT, TEXT], "cat"),
    "translation": lambda: (trained("translation")[0], "the bank of paris was light"),
    "vectors": lambda: (torch.eye(len(TOKENIZER)), TOKENIZER, "cat", "the cat sat"),
}  # fmt: skip


def labels(demo: str) -> set[str]:
    """What stands on the controls of a demo, without what a label adds in brackets."""
    make = getattr(import_module(f"classroom.demos.{demo}"), f"{demo}_demo")
    found, left = set(), [make(*ARGUMENTS[demo]())]
    while left:
        widget = left.pop()
        left += getattr(widget, "children", ())
        names = [getattr(widget, "description", ""), *getattr(widget, "options", ())]
        found |= {re.sub(r" \(.*\)$", "", name) for name in names if isinstance(name, str)}
    return found


class Note(NamedTuple):
    """A note, the code of its notebook, and the demos that it may speak of."""

    text: str
    code: str
    demos: list[str]


def notes(path: Path) -> Iterator[Note]:
    """A note below a demo speaks of that one; any other may speak of all in the notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    code = "\n".join(s for s, c in zip(sources, cells, strict=True) if c["cell_type"] == "code")
    demos = [
        re.findall(r"^(\w+)_demo\(", source, re.MULTILINE) if cell["cell_type"] == "code" else []
        for source, cell in zip(sources, cells, strict=True)
    ]
    for i, cell in enumerate(cells):
        if "notes" in cell["metadata"].get("tags", ()):
            yield Note(sources[i], code, demos[i - 1] or sorted({d for one in demos for d in one}))


def problems(path: Path) -> list[str]:
    """What a lecturer would look for in vain."""
    found = []
    for note in notes(path):
        below_the_heads = re.sub(r"^\* \*\*.+?\*\*", "*", note.text, flags=re.MULTILINE)
        for name in re.findall(r"\*\*(.+?)\*\*", below_the_heads):
            own = any(name in labels(demo) for demo in note.demos)
            # The options of some controls come from the notebook.
            if not own and f'"{name}"' not in note.code:
                found.append(f"{name!r} is no control of {note.demos}")
        for name in re.findall(r"`(\w+)`", note.text):
            if not re.search(rf"\b{name}\b", note.code):
                found.append(f"{name!r} is no name in the cells")
        for sentence in re.split(r"(?<=[.!?:])\s", below_the_heads):
            uses = re.search(r"\b([Pp]ress|[Dd]rag|slider|button)\b", sentence)
            if uses and "**" not in sentence:
                found.append(f"no control is named in bold: {sentence!r}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_controls_that_notes_name_are_there(path: Path) -> None:
    assert not problems(path)


def test_every_demo_of_the_lessons_is_known_here() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    assert set(re.findall(r'"(\w+)_demo\(', sources)) == set(ARGUMENTS)
