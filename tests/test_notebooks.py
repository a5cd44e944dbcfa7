"""A committed notebook has outputs that the tests compare: stripped ones would pass in silence."""

import ast
import json
import os
import re
import symtable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from classroom.cli import main
from classroom.cli.notebooks import dumps, normalised, run_all
from classroom.demos.recording import KEY, unpacked
from classroom.exercises import solved_cells
from classroom.exercises.students import unsolved
from classroom.running.notebook import PROFILES

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 15
LONGEST_LABEL = 17
"""Characters of the label beside a control that are shown."""
LONGEST_LINE = 126
"""Characters that fit beside each other where JupyterLab is 1,280 pixels wide."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip"}


def problems(notebook: dict[str, Any]) -> list[str]:
    """Return what is wrong with a committed notebook."""
    found = []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found += [f"cell {cell['id']} has {size} lines: at most {MOST_LINES}" for cell in code
              if (size := lines(cell)) > MOST_LINES]  # fmt: skip
    counts = [cell["execution_count"] for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"the cells were not run once, in order: {counts}")
    if any(output["output_type"] == "error" for cell in code for output in cell["outputs"]):
        found.append("a cell raised")
    learned = [cell for cell in code if "train" in cell["metadata"].get("tags", ())]
    if 3 * len(learned) > len(code):
        found.append(f"{len(learned)} cells of {len(code)} train in view")
    install = [cell for cell in code if "install" in cell["metadata"].get("tags", ())]
    code = [cell for cell in code if cell not in learned and cell not in install]
    ignored = [cell for cell in code if NOT_COMPARED & set(cell["metadata"].get("tags", ()))]
    if len(ignored) > max(2, len(code) // 5):
        found.append(f"{len(ignored)} cells of {len(code)} are not compared")
    shown = [cell for cell in code if cell not in ignored and compared(cell)]
    if 2 * len(shown) < len(code):
        found.append(f"only {len(shown)} code cells of {len(code)} have an output to compare")
    long = [line for cell in code for line in printed(cell) if len(line) > LONGEST_LINE]
    found += [f"wrap the line of {len(line)} characters: {line[:40]} …" for line in long]
    if "widgets" in notebook["metadata"]:
        found.append("the state of widgets is stored")
    if len(dumps(notebook)) > 500_000:
        found.append("larger than 500 kB")
    if normalised(notebook) != notebook:
        found.append("not normalised: `make notebooks` stores it as it should be")
    found += [
        f"a dollar sign begins a formula: write `$` or dollars: {text}"
        for cell in notebook["cells"] if cell["cell_type"] == "markdown"
        for text in dollars("".join(cell["source"]))
    ]  # fmt: skip
    return found + parameter_problems(code)


def dollars(markdown: str) -> list[str]:
    """Return the texts that JupyterLab would take for formulas, although they are prose.

    It sets what stands between two dollar signs as a formula, even where they are escaped.
    """
    text = re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$", "", markdown, flags=re.DOTALL)
    found = re.findall(r"\\\$.*", text)
    for formula in re.findall(r"(?<!\\)\$(.*?)\$", text, flags=re.DOTALL):
        bare = re.sub(r"\\\w+(\{[^}]*\})?", "", formula)
        if re.search(r"[a-z]{3}[,.]?\s+[a-z]{2}|\n", bare):
            found.append(formula)
    return found


def lines(cell: dict[str, Any]) -> int:
    """Return how many lines a cell has besides imports; a solution may have any number."""
    source = "".join(cell["source"])
    counted = [line for line in source.splitlines()
               if line.strip() and not line.startswith(("import ", "from "))]  # fmt: skip
    return 0 if "### BEGIN SOLUTION" in source else len(counted)


def compared(cell: dict[str, Any]) -> bool:
    """Say whether a cell has an output that can differ: pictures are not compared."""
    kinds = [kind for output in cell["outputs"] for kind in output.get("data", {"text": ""})]
    return any(not kind.startswith("image/") for kind in kinds)


def printed(cell: dict[str, Any]) -> list[str]:
    """Return the lines that a cell has printed."""
    return [line for output in cell["outputs"] if output["output_type"] == "stream"
            for line in "".join(output["text"]).splitlines()]  # fmt: skip


def rebound(cells: list[str]) -> list[str]:
    """Return which cells cannot be run again once all have run: a later cell binds their names."""
    tables = [symtable.symtable(cell, "cell", "exec") for cell in cells]
    bound = [
        {
            name.get_name()
            for name in table.get_symbols()
            if name.is_assigned() or name.is_imported()
        }
        for table in tables
    ]
    return [
        f"cell {number} reads {name}, which a later cell binds again"
        for number, table in enumerate(tables)
        for name in sorted(globals_read(table) - bound[number])
        if any(name in names for names in bound[:number])
        and any(name in names for names in bound[number + 1 :])
    ]


def globals_read(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the notebook that a cell, or a function in it, reads."""
    top = table.get_type() == "module"
    names = {name.get_name() for name in table.get_symbols()
             if name.is_referenced() and (top or name.is_global())}  # fmt: skip
    return names.union(*map(globals_read, table.get_children()))


def schedules_of_others(cells: list[str]) -> list[str]:
    """Return which cells step a learning-rate schedule that another cell has made.

    Such a cell cannot be run again: after its last step a falling rate is below zero.
    """
    made = [set(re.findall(r"^(\w+) = torch\.optim\.lr_scheduler\.", cell, re.M)) for cell in cells]
    return [
        f"cell {number} steps {name}, which another cell has made"
        for number, cell in enumerate(cells)
        for name in sorted(set().union(*made) - made[number])
        if f"{name}.step()" in cell
    ]


def plain_code(path: Path) -> list[str]:
    """Return the code cells of a notebook, the one with commands of IPython left out."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in code
            if "install" not in cell["metadata"].get("tags", ())]  # fmt: skip


def parameter_problems(code: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the cell of the parameters."""
    cells = [cell for cell in code if "parameters" in cell["metadata"].get("tags", ())]
    if len(cells) != 1:
        return [f"{len(cells)} cells are tagged parameters"]
    source = "".join(cells[0]["source"])
    found = [f"the parameter {name} is missing, or has no type" for name in ("profile", "seed")
             if not re.search(rf"^{name}: ", source, re.MULTILINE)]  # fmt: skip
    profile = re.search(r"^profile: .*?= [\"'](\w+)[\"']", source, re.MULTILINE)
    if profile and profile[1] not in PROFILES:
        found.append(f"there is no profile {profile[1]}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_sound(path: Path) -> None:
    assert not problems(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_summary_is_html_where_signs_of_markdown_would_be_seen(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        for said in re.findall("<summary>(.*?)</summary>", "".join(cell["source"]), re.DOTALL):
            assert not re.search("[*`]", said), said


def test_storing_what_fails_says_why_and_leaves_all_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    path = tmp_path / "00_wrong.ipynb"
    nbformat.write(book, path)
    before = dict(os.environ), path.read_bytes()
    with pytest.raises(SystemExit):
        main(["notebooks", str(path)])
    said = f"{path} is as it was: cell 1 failed: ZeroDivisionError: division by zero\n"
    assert capsys.readouterr().err == f"labkit notebooks: {said}"
    assert (dict(os.environ), path.read_bytes()) == before


def test_running_leaves_the_environment_as_it_was() -> None:
    before = dict(os.environ)
    assert run_all([], [], [], "smoke", 2, afresh=True) == []
    assert dict(os.environ) == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_labels_of_controls_are_not_cut(path: Path) -> None:
    outputs = [output for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
               for output in cell.get("outputs", ())]  # fmt: skip
    recorded = [unpacked(one["metadata"][KEY]) for one in outputs if KEY in one.get("metadata", ())]
    said = [control["said"] for one in recorded for control in one.get("controls", ())]
    assert not [label for label in said if len(label) > LONGEST_LABEL]


def test_there_are_notebooks() -> None:
    assert (ROOT / "notebooks" / "00_start_here.ipynb") in NOTEBOOKS


def sound() -> dict[str, Any]:
    """Return a small notebook with nothing wrong."""
    sources = ['profile: str = "smoke"\nseed: int = 0\nprint(seed)', "print(1)", "print(2)"]
    cells = [
        {
            "cell_type": "code", "id": f"c{number}", "execution_count": number, "source": source,
            "metadata": {"tags": ["parameters"]} if number == 1 else {},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": f"{number}\n"}],
        }
        for number, source in enumerate(sources, start=1)
    ]  # fmt: skip
    return normalised({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_the_guard_lets_a_sound_notebook_pass() -> None:
    assert problems(sound()) == []


def prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "prose", "metadata": {}, "source": text}


def strip(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        cell["outputs"] = []


def only_pictures(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        cell["outputs"] = [
            {"output_type": "display_data", "metadata": {}, "data": {"image/png": "x"}}
        ]


SPOILERS = {
    "output to compare": strip,
    "have an output": only_pictures,
    "in order": lambda cells: cells[0].update(execution_count=7),
    "raised": lambda cells: cells[1]["outputs"].append(
        {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}
    ),
    "not compared": lambda cells: [
        c["metadata"].setdefault("tags", []).append("nbval-skip") for c in cells
    ],
    "train in view": lambda cells: [
        c["metadata"].setdefault("tags", []).append("train") for c in cells
    ],
    "cell c2 has 17 lines": lambda cells: cells[1].update(source="\n\n".join(17 * ["1"])),
    "500 kB": lambda cells: cells[2].update(source="x" * 600_000),
    "tagged parameters": lambda cells: cells[0].update(metadata={}),
    "parameter seed": lambda cells: cells[0].update(source='profile: str = "smoke"'),
    "no profile tiny": lambda cells: cells[0].update(source='profile: str = "tiny"\nseed: int = 0'),
    "begins a formula: write `$` or dollars: \\$8": lambda cells: cells.append(
        prose("It costs \\$8 an hour, not \\$2.")
    ),
    "begins a formula: write `$` or dollars: 8 an hour": lambda cells: cells.append(
        prose("It costs $8 an hour, not $2.")
    ),
    "not normalised": lambda cells: cells[0]["metadata"].update(execution={"start": "now"}),
}


@pytest.mark.parametrize("message", SPOILERS)
def test_the_guard_catches(message: str) -> None:
    notebook = sound()
    SPOILERS[message](notebook["cells"])
    assert any(message in problem for problem in problems(notebook))


def test_formulas_and_code_are_no_prose() -> None:
    fine = r"a `$` and $p_{\text{the model}}$, $x \le 3$ or $\mathrm{norm}(W_e\,x + b)$"
    assert dollars(fine + "\n\n$$ the long sum of $$") == []


def test_the_guard_catches_stored_widgets() -> None:
    notebook = sound()
    notebook["metadata"]["widgets"] = {}
    assert "the state of widgets is stored" in problems(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_exercise_hands_its_answer_to_the_check_as_it_is(path: Path) -> None:
    """An answer that is still missing must reach the check: float(...) of it would raise before."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for number in solved_cells({"cells": cells}):
        tree = ast.parse(unsolved("".join(cells[number]["source"])))
        missing = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            and node.value.value is ...
            for target in node.targets
            if isinstance(target, ast.Name)
        }  # fmt: skip
        for node in tree.body:
            uses = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} & missing
            is_check = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            if uses and not isinstance(node, ast.Assign):
                assert is_check, f"cell {number} uses {uses} before its check"
                answers = [arg.id for arg in node.value.args if isinstance(arg, ast.Name)]
                assert uses <= set(answers), f"cell {number}: hand over {uses} as it is"
                break


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_any_cell_can_be_run_again(path: Path) -> None:
    """A student goes back to an exercise, or trains once more, after all cells have run."""
    cells = plain_code(path)
    assert not rebound(cells) + schedules_of_others(cells)


def test_a_cell_that_cannot_be_run_again_is_found() -> None:
    cells = ["x, y = 1, 2", "def f():\n    return x\nprint(f(), y)", "x = 3"]
    assert rebound(cells) == ["cell 1 reads x, which a later cell binds again"]
    assert not rebound(["x = 1", "x = 2\nprint(x)", "x = 3"])
    made = "slope = torch.optim.lr_scheduler.LambdaLR(optimizer, share)"
    step = "for _ in live:\n    slope.step()"
    assert schedules_of_others([made, step]) == ["cell 1 steps slope, which another cell has made"]
    assert not schedules_of_others([f"{made}\n{step}"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_is_solved(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if "exercise" in cell["metadata"].get("tags", ()):
            texts = ["".join(o.get("data", {}).get("text/plain", "")) for o in cell["outputs"]]
            assert any(text.startswith("Right") for text in texts), "".join(cell["source"])
