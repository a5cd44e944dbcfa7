"""The parameters of the notebooks: each is checked before it is used, with one line for the reader.

The statements that check are taken out of the notebooks and run by themselves.
"""

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from classroom.running import parameters
from classroom.running.notebook import PROFILES
from labkit.keeping.paths import PACKAGE

NOTEBOOKS = sorted((PACKAGE.parent / "notebooks").glob("[0-9]*.ipynb"))
CHECKS = ("check_parameters", "check_ambiguous", "check_bill")


def code(path: Path) -> list[str]:
    """The source of the code cells of a notebook, from its parameters on."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
             if cell["cell_type"] == "code"]  # fmt: skip
    [first] = [
        i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", ())
    ]
    return ["".join(cell["source"]) for cell in cells[first:]]


def statements(path: Path) -> Iterator[ast.stmt]:
    """The statements after the parameters, as far as the first that trains or measures."""
    for source in code(path)[1:]:
        yield from ast.parse(source).body


def names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def given(path: Path, **others: object) -> None:
    """Run the checks of a notebook, with the defaults for what is not given."""
    space: dict[str, Any] = dict(vars(parameters))
    exec(code(path)[0], space)
    space |= others
    checks = [one for one in statements(path) if names(one) & set(CHECKS)]
    assert checks
    exec(compile(ast.Module(checks, []), path.name, "exec"), space)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_parameter_is_checked_before_it_is_used(path: Path) -> None:
    declared = {one.target.id for one in ast.parse(code(path)[0]).body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}  # fmt: skip
    left = declared - {"measure"}  # True or False
    for statement in statements(path):
        if names(statement) & set(CHECKS):
            left -= names(statement)
        assert not names(statement) & left, ast.unparse(statement)
        if not left:
            break
    assert not left


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_defaults_and_each_profile_pass(path: Path) -> None:
    for profile in PROFILES:
        given(path, profile=profile)


ODD: list[tuple[str, dict[str, object], str]] = [
    ("04", {"profile": "big"}, "profile is 'big': choose smoke, laptop or gpu"),
    ("04", {"seed": -1}, "seed is -1: give a whole number from 0 to 2,147,483,648"),
    ("13", {"seed": 10**30}, "000: give a whole number from 0 to 2,147,483,648"),
    ("00", {"seed": True}, "seed is True: give a whole number"),
    ("01", {"reach": 0}, "reach is 0: give a whole number from 1 to 100"),
    ("01", {"reach": 101}, "reach is 101: give"),
    ("02", {"word": "zebra"}, "word is 'zebra': choose bank, bark, bat, "),
    ("02", {"first": ""}, "first is '': give a sentence with the word match, or another word"),
    ("02", {"word": "bank"}, "with the word bank, or another word"),
    ("02", {"second": "zz match"}, "second is 'zz match', which the village's language cannot say"),
    ("03", {"reviews_labelled": 1}, "reviews_labelled is 1: give a whole number from 2 to 1,000"),
    ("05", {"corpus": ""}, "corpus is '': give 'language', "),
    ("05", {"corpus": "/nowhere/a.txt"}, "corpus is '/nowhere/a.txt': give 'language', "),
    ("05", {"corpus": None}, "corpus is of type NoneType: give a text"),
    ("06", {"prompt": ""}, "prompt is '': give the beginning of a text"),
    ("06", {"prompt": "the filmm"}, "no word 'filmm': choose another (near it: film)"),
    ("06", {"length": 0}, "length is 0: give a whole number from 1 to 1,000"),
    ("06", {"temperature": 0}, "temperature is 0: give a number from 0.01 to 100"),
    ("06", {"top_p": 1.01}, "top_p is 1.01: give a number from 0.01 to 1"),
    ("06", {"samples": 0}, "samples is 0: give a whole number from 1 to 100"),
    ("06", {"released": "~nothing"}, "cannot be a name on the hub"),
    ("07", {"name": "zebra"}, "name is 'zebra': choose sara, ben, "),
    ("07", {"beta": 0}, "beta is 0: give a number from 0.03 to 3"),
    ("08", {"mask_rate": math.nan}, "mask_rate is nan: give a number from 0.05 to 0.95"),
    ("09", {"temperature": math.inf}, "temperature is inf: give a number from 0.01 to 100"),
    ("10", {"memory": 0}, "memory is 0: give a whole number from 1 to 1,000"),
    ("11", {"mask_rate": 1.0}, "mask_rate is 1.0: give a number from 0.05 to 0.95"),
    ("12", {"model": "nonsense"}, "no published model is called 'nonsense'"),
    ("12", {"model": "elmo"}, "for elmo the tables have no number of training tokens"),
    ("12", {"gpu": "abacus"}, "there is no device 'abacus': "),
    ("12", {"mfu": 2}, "mfu is 2: it is a share"),
    ("12", {"budget": -5}, "budget is -5: give a finite number above 0"),
    ("12", {"budget": 1e-9}, "too little for any model"),
]


@pytest.mark.parametrize(("number", "odd", "message"), ODD)
def test_what_no_cell_could_use_is_one_line(
    number: str, odd: dict[str, object], message: str
) -> None:
    [path] = [path for path in NOTEBOOKS if path.name.startswith(number)]
    with pytest.raises((ValueError, TypeError, OSError)) as refused:
        given(path, **odd)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds none of tokenizer\.json"):
        parameters.check_parameters("smoke", 0, released=str(tmp_path))


def test_every_ambiguous_word_has_a_sentence_that_passes() -> None:
    sentences = {"first": "he looked at the bank with the boat .",
                 "second": "he looked at the bank with the museum ."}  # fmt: skip
    parameters.check_ambiguous("bank", **sentences)
    with pytest.raises(ValueError, match=r"such as '.* wave ") as refused:
        parameters.check_ambiguous("wave", first="wave wave")
    advised = str(refused.value).rpartition("such as ")[2].strip("'")
    parameters.check_ambiguous("wave", first=advised)
