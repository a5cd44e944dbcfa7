"""The version of a notebook for students, without its solutions.

A solution stands between two lines, as in nbgrader:

    def causal_mask(length):
        ### BEGIN SOLUTION
        return torch.ones(length, length, dtype=torch.bool).tril()
        ### END SOLUTION

The student finds `...` there, or `name = ...` for each name that a solution outside of a function
gives a value to.
"""

import ast
import contextlib
import copy
import re
import textwrap
from collections.abc import Mapping
from typing import Any

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
FENCED = re.compile(
    rf"^([ \t]*){BEGIN}[^\n]*\n(.*?)^[ \t]*{END}[^\n]*(\n|\Z)", re.DOTALL | re.MULTILINE
)
SPOKEN = re.compile(r"<!--\s*notes:.*?-->", re.DOTALL | re.IGNORECASE)
"""A speaker's note inside of a text, as a comment."""
BODY = re.compile(r"^(def|class) [^\n]*(\n[ \t]+[^\n]*|\n[ \t]*)*\Z", re.MULTILINE)
"""The lines before a solution that is in the body of a function."""
CHECKED = re.compile(r"^(?:\w+ = )?(?:check|duel|diagnose)\(", re.MULTILINE)
"""Where the answer ends and its check begins."""
ASKED = re.compile(r"\b(check|duel|diagnose)\(\s*[\"']([\w.-]+)[\"']")


def unsolved(source: str) -> str:
    """Return the source of a cell with `name = ...` where its solutions stand."""

    def empty(found: re.Match[str]) -> str:
        indent, solution = found[1], textwrap.dedent(found[2])
        if not (indent and BODY.search(source[: found.start()].rstrip("\n"))):
            with contextlib.suppress(SyntaxError):  # of a command of IPython, such as %time
                names = dict.fromkeys(_assigned(ast.parse(solution)))
                return "".join(f"{indent}{name} = ...  # your turn\n" for name in names)
        return f"{indent}...  # your turn\n"

    return FENCED.sub(empty, source)


def _assigned(tree: ast.Module) -> list[str]:
    """The names that a solution gives a value to, in order."""
    found = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            found += [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
    return found


def solved_cells(notebook: Mapping[str, Any]) -> list[int]:
    """Return which cells hold a solution."""
    return [i for i, cell in enumerate(notebook["cells"])
            if cell["cell_type"] == "code" and BEGIN in "".join(cell["source"])]  # fmt: skip


def students_version(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook without its solutions, what they printed, and the speaker's notes.

    The check of an answer is in a cell of its own, which is locked and graded in nbgrader.
    """
    copied: dict[str, Any] = copy.deepcopy(dict(notebook))
    copied["cells"] = [
        cell for cell in copied["cells"] if "notes" not in cell["metadata"].get("tags", [])
    ]
    for cell in copied["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = SPOKEN.sub("", "".join(cell["source"]))
    solved, cells = set(solved_cells(copied)), []
    for i, cell in enumerate(copied["cells"]):
        if i not in solved:
            cells.append(cell)
            continue
        cell["outputs"], cell["execution_count"] = [], None
        source = unsolved("".join(cell["source"])).rstrip("\n")
        cut = CHECKED.search(source)
        answer, check = (source[: cut.start()], source[cut.start() :]) if cut else (source, "")
        if answer.strip():
            cells.append({**cell, "source": answer.rstrip("\n")})
        if check:
            metadata = {**cell["metadata"], "nbgrader": graded(check)}
            name = f"{str(cell.get('id', i))[:58]}-check"  # an id has at most 64 characters
            own = {"id": name, "source": check, "metadata": metadata}
            cells.append({**copy.deepcopy(cell), **own})
    return {**copied, "cells": cells}


def asked(source: str) -> list[str]:
    """What a cell checks: "05.mask" for an exercise, "duel masking", "diagnose training"."""
    return [name if what == "check" else f"{what} {name}" for what, name in ASKED.findall(source)]


def graded(source: str) -> dict[str, Any]:
    """What nbgrader wants to know of a cell that checks an answer: it raises where it is wrong."""
    names = asked(source)
    return {
        "grade": True, "grade_id": re.sub(r"[^A-Za-z0-9]+", "-", "-".join(names)).strip("-"),
        "locked": True, "points": max(1, len(names)), "schema_version": 3,
        "solution": False, "task": False, "cell_type": "code",
    }  # fmt: skip


UNSOLVED = """\
import os
from classroom.exercises import NotYet

os.environ["LABKIT_STRICT"] = "1"
try:
{source}
except NotYet as _said:
    print("unsolved, it says:", _said)
else:
    raise AssertionError("this exercise passes without its solution")
finally:
    del os.environ["LABKIT_STRICT"]
"""


def proving(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook in which each exercise is tried unsolved first, and must fail.

    A cell with the tag `open` has no right answer and is left as it is.
    """
    copied: dict[str, Any] = copy.deepcopy(dict(notebook))
    for i in reversed(solved_cells(copied)):
        if "open" in copied["cells"][i]["metadata"].get("tags", []):
            continue
        source = unsolved("".join(copied["cells"][i]["source"]))
        tried = UNSOLVED.format(source=textwrap.indent(source, "    "))
        cell = {**copy.deepcopy(copied["cells"][i]), "id": f"unsolved-{i}", "source": tried}
        copied["cells"].insert(i, {**cell, "outputs": [], "execution_count": None, "metadata": {}})
    return copied
