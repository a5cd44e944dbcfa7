"""Your turn: a check that knows the likely mistakes, and the student's version of a notebook.

A solution stands between two lines, as in nbgrader:

    ### BEGIN SOLUTION
    share = 0.15 * 0.8
    ### END SOLUTION
    check("share", share, 0.12, {0.8: "that is the share of the hidden words alone"})

The student's version has `share = ...` there instead; `check` then says what is missing.
"""

import ast
import copy
import re
import textwrap
from collections.abc import Mapping
from typing import Any

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
FENCED = re.compile(
    rf"^([ \t]*){BEGIN}[^\n]*\n(.*?)^[ \t]*{END}[^\n]*(\n|\Z)", re.DOTALL | re.MULTILINE
)


class NotYet(AssertionError):  # noqa: N818
    """An answer that is missing or not right."""

    def _render_traceback_(self) -> list[str]:
        """Only the message: a student needs no traceback."""
        return [f"Not yet: {self}"]


def check(
    name: str,
    answer: Any,
    right: Any,
    mistakes: Mapping[Any, str] | None = None,
    *,
    tolerance: float = 1e-3,
) -> None:
    """Say that an answer is right, or raise with the likely mistake behind it.

    `mistakes` maps wrong answers to what probably led there. Numbers, arrays and tensors are
    compared up to the tolerance, relative to the right one; all others must be equal.
    """
    if answer is ...:
        raise NotYet(f"{name} is still `...`: write your answer where the three dots are")
    problem = _unlike(answer, right)
    if problem:
        raise NotYet(f"{name} is {problem}")
    if _same(answer, right, tolerance):
        print(f"{name}: right")
        return
    for wrong, why in (mistakes or {}).items():
        if not _unlike(answer, wrong) and _same(answer, wrong, tolerance):
            raise NotYet(f"{name} is {_short(answer)}: {why}")
    raise NotYet(f"{name} is {_short(answer)}, which is not right")


def _unlike(answer: Any, right: Any) -> str:
    """What kind of thing was given, where another kind is wanted."""
    import numpy as np

    if isinstance(right, str | bool | set | frozenset):
        wanted = type(right)
        fits = isinstance(answer, wanted) or (wanted is frozenset and isinstance(answer, set))
        return "" if fits else f"a {type(answer).__name__}: a {wanted.__name__} is asked for"
    try:
        given, asked = np.asarray(answer), np.asarray(right)
    except (ValueError, TypeError, RuntimeError):
        return f"a {type(answer).__name__}, which is no array"
    if given.dtype == object and asked.dtype != object:
        return f"a {type(answer).__name__}: {_kind(asked)} is asked for"
    if given.dtype.kind in "US" and asked.dtype.kind not in "US":
        return f"a text: {_kind(asked)} is asked for"
    if given.shape != asked.shape:
        return f"of shape {given.shape}: {asked.shape} is asked for"
    return ""


def _kind(asked: Any) -> str:
    return "a number" if asked.ndim == 0 else f"an array of shape {asked.shape}"


def _same(answer: Any, right: Any, tolerance: float) -> bool:
    import numpy as np

    if isinstance(right, str | bool | set | frozenset):
        return bool(answer == right)
    given, asked = np.asarray(answer), np.asarray(right)
    if asked.dtype.kind in "fiucb" and given.dtype.kind in "fiucb":
        return bool(np.allclose(given, asked, rtol=tolerance, atol=1e-9))
    return bool(np.array_equal(given, asked))


def _short(answer: Any) -> str:
    return textwrap.shorten(repr(answer), 60, placeholder=" …")


# ---- the student's version


def unsolved(source: str) -> str:
    """Return the source of a cell with `name = ...` where its solutions stand."""

    def empty(found: re.Match[str]) -> str:
        indent, solution = found[1], textwrap.dedent(found[2])
        names = list(dict.fromkeys(_assigned(ast.parse(solution))))
        return "".join(f"{indent}{name} = ...  # your turn\n" for name in names)

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
        if isinstance(node, ast.FunctionDef):
            found.append(node.name)
    return found


def solved_cells(notebook: Mapping[str, Any]) -> list[int]:
    """Return which cells hold a solution."""
    cells = notebook["cells"]
    return [
        i
        for i, cell in enumerate(cells)
        if cell["cell_type"] == "code" and BEGIN in "".join(cell["source"])
    ]


def students_version(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook without its solutions, and without what they printed."""
    copied: dict[str, Any] = copy.deepcopy(dict(notebook))
    for i in solved_cells(copied):
        cell = copied["cells"][i]
        cell["source"] = unsolved("".join(cell["source"])).rstrip("\n")
        cell["outputs"], cell["execution_count"] = [], None
    return copied


UNSOLVED = """\
from classroom.exercises import NotYet

try:
{source}
except NotYet as found:
    print("unsolved, it says:", found)
else:
    raise AssertionError("this exercise passes without its solution")
"""


def proving(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook in which each exercise is tried unsolved first, and must fail."""
    copied: dict[str, Any] = copy.deepcopy(dict(notebook))
    for i in reversed(solved_cells(copied)):
        source = unsolved("".join(copied["cells"][i]["source"]))
        tried = UNSOLVED.format(source=textwrap.indent(source, "    "))
        cell = {**copy.deepcopy(copied["cells"][i]), "id": f"unsolved-{i}", "source": tried}
        copied["cells"].insert(i, {**cell, "outputs": [], "execution_count": None, "metadata": {}})
    return copied
