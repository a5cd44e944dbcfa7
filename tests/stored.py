"""What stands on the screen of a lesson: the stored outputs of its notebook."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


@cache
def cells(notebook: str) -> list[Any]:
    """The cells of a notebook, by its number."""
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
    """The number that a pattern finds."""
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in {text!r}"
    return float(found[1])


def above_the_floor(notebook: str, part: str) -> float:
    """How far above its floor the live curve of a cell ends."""
    curve = said(notebook, part)
    return number(r"loss ([\d.]+)", curve) - number(r"lowest possible: ([\d.]+)", curve)


def numbers(name: str, text: str) -> list[float]:
    """The numbers in the only line that begins with a name."""
    lines = [line.strip() for line in text.splitlines()]
    [found] = [line for line in lines if line.startswith(name)]
    return [float(one) for one in re.findall(r"-?\d+\.\d+", found.removeprefix(name))]


def by_reach(told: str) -> dict[str, list[float]]:
    """The mean losses of each reader in a chart by reach, those over all words last."""
    found = re.findall(r"(?:: |; )([a-z0-9 -]+?) ((?:[\d.]+, )+)all words ([\d.]+\d)", told)
    return {name: [*map(float, means.split(", ")[:-1]), float(mean)] for name, means, mean in found}
