"""The checker of shapes lets honest names pass and catches each kind of lie."""

import sys
import types
from pathlib import Path

import pytest
import torch
from shapes import checked_shapes

HONEST = """
def f(tokens_BT, weight_VD):
    hidden_BTD = weight_VD[tokens_BT]
    bias_1T1 = hidden_BTD.new_zeros(1, tokens_BT.shape[1], 1)
    beta_1 = hidden_BTD
    return [row_TD.sum() for row_TD in hidden_BTD + bias_1T1]
"""
LIES = {
    "rank": ("hidden_BT = weight_VD[tokens_BT]", "hidden_BT has 3 axes"),
    "size": ("tokens_BT, short_T = tokens_BT, tokens_BT[0, 1:]", "T is 5 in tokens_BT and 4"),
    "broadcast": ("bias_1D = weight_VD", "1 is a broadcast axis"),
    "alphabet": ("hidden_BTC = weight_VD[tokens_BT]", "the letter C, not of the alphabet"),
    "closure": ("row_D = weight_VD[0, 1:]\n    g = lambda: row_D\n    g()", "D is 4 in weight_VD"),
}


def call(source: str, folder: Path) -> set[str]:
    """Run `f` of a module in the folder under the checker and return the names it saw."""
    path = folder / "planted.py"
    module = types.ModuleType("planted")
    exec(compile(source, str(path), "exec"), module.__dict__)
    with checked_shapes(str(folder)) as seen:
        module.f(torch.zeros(2, 5, dtype=torch.long), torch.ones(7, 4))
    return seen


def test_honest_names_pass_and_are_seen(tmp_path: Path) -> None:
    seen = call(HONEST, tmp_path)
    assert seen >= {"tokens_BT", "weight_VD", "hidden_BTD", "bias_1T1"}
    assert "beta_1" not in seen


@pytest.mark.parametrize("kind", LIES)
def test_a_planted_lie_is_caught(kind: str, tmp_path: Path) -> None:
    line, message = LIES[kind]
    with pytest.raises(AssertionError, match=message):
        call(f"def f(tokens_BT, weight_VD):\n    {line}\n", tmp_path)


def test_frames_outside_the_package_are_left_alone(tmp_path: Path) -> None:
    with checked_shapes(str(tmp_path)) as seen:
        wrong_BTD = torch.zeros(3)
    assert wrong_BTD.ndim == 1
    assert not seen


def test_the_hook_is_gone_afterwards_even_when_the_code_raises(tmp_path: Path) -> None:
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError), checked_shapes(str(tmp_path)):
        1 / 0  # noqa: B018
    assert sys.getprofile() is before
