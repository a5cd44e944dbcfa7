"""What the text beside a finding says in figures is what the ledger says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from classroom.ledger import Finding, rows

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
SHOWN = re.compile(r'show_finding\("([\w-]+)"')
FIGURE = re.compile(r"(?<![\w.,$§/])[-−]?\d+\.\d+(?![\w.]*\d)")
SENTENCE = re.compile(r"(?<=[.?!:;)]) |\n")
OTHERS = re.compile(r"section|table|paper|et al\.|figure \d|appendix")
"""A sentence that cites somebody has that source's figures."""
KNOWN: dict[str, set[str]] = {
    "claim-small": {"1.3"},  # billions of parameters of InstructGPT
    "real-masks-text": {"8.3"},  # log 4000
    "rows-asked": {"0.005", "0.01"},  # rates
    "real-scaling-text": {"1.5", "0.095", "0.076", "1.69", "0.28", "0.34"},  # Kaplan, Hoffmann
    "b1896569": {"0.3", "0.5"},  # shares of a peak
}
"""Figures that are not the ledger's, by cell."""
DIFFERENCES = {
    "narrow-asked": [("words, unseen", "words, known"), ("BPE, unseen", "BPE, known")],
    "batches-look": [("narrow, shared: loss", "narrow embeddings: loss")],
}
"""Two arms whose difference the text of a cell gives."""


def beside_findings(cells: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    """Each text below a finding: its cell, its words up to the next heading, the claims around."""
    for i, cell in enumerate(cells):
        if cell["cell_type"] != "markdown" or "notes" in cell["metadata"].get("tags", ()):
            continue
        before = next((c for c in cells[i::-1] if c["cell_type"] == "code"), None)
        after = next((c for c in cells[i + 1 : i + 3] if c["cell_type"] == "code"), None)
        claims = [claim for c in (before, after) if c for claim in SHOWN.findall(source(c))]
        if before is not None and SHOWN.search(source(before)):
            text = re.split(r"\n##+ |\n\*\*References", source(cell))[0]
            yield cell["id"], text, claims


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def strangers(name: str, text: str, found: list[Finding]) -> list[str]:
    """The figures of a text that none of these rows of the ledger has."""
    known = [value for row in found for value in figures(row)]
    for one, other in DIFFERENCES.get(name, ()):
        arms = {arm: value.mean for row in found for arm, value in row.arms.items()}
        known.append(abs(arms[one] - arms[other]))
    said = [figure for sentence in SENTENCE.split(text) if not OTHERS.search(sentence)
            for figure in FIGURE.findall(sentence)]  # fmt: skip
    return [figure for figure in said if figure not in KNOWN.get(name, ())
            and not any(rounds_to(value, figure) for value in known)]  # fmt: skip


def figures(row: Finding) -> Iterator[float]:
    for arm in row.arms.values():
        yield from (arm.mean, 1 - arm.mean, arm.low, arm.high)
        yield from () if arm.best is None else (arm.best,)
    for one in row.contrasts:
        several = (one.value, one.low, one.high, one.above, one.below)
        yield from (abs(value) for value in several if value is not None)


def rounds_to(value: float, figure: str) -> bool:
    written, places = abs(float(figure.replace("−", "-"))), len(figure.split(".")[1])
    return abs(abs(value) - written) <= 0.5001 * 10**-places


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_beside_a_finding_are_those_of_the_ledger(path: Path) -> None:
    ledger = {row.id: row for row in rows()}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    wrong = {name: odd for name, text, claims in beside_findings(cells)
             if (odd := strangers(name, text, [ledger[claim] for claim in claims]))}  # fmt: skip
    assert not wrong, f"no row of the ledger has these figures: {wrong}"


def test_many_figures_are_compared_and_a_wrong_one_is_found() -> None:
    ledger = {row.id: row for row in rows()}
    compared = 0
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for name, text, claims in beside_findings(cells):
            found = [ledger[claim] for claim in claims]
            for figure in {*FIGURE.findall(text)} - KNOWN.get(name, set()):
                wrong = f"{float(figure.replace('−', '-')) + 77:.{len(figure.split('.')[1])}f}"
                changed = strangers(name, text.replace(figure, wrong), found)
                compared += wrong in changed
    assert compared > 30
