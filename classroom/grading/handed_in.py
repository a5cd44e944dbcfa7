"""The cells of a submitted notebook: what they check, what they need, what they try to reach.

Nothing is run here. The notebooks are not trusted, so their size is limited.
"""

import ast
import contextlib
import json
import pkgutil
import re
import symtable
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import classroom.exercises
from classroom.exercises.students import asked

LARGEST = 20 * 10**6
"""The most bytes of a notebook."""
MOST_CODE, MOST_CELLS, MOST_CHECKS = 200_000, 1000, 200
"""The most characters of code, code cells and checks in a notebook: reading them takes time."""
SHOWN = 20_000
"""The most characters of an answer's code that its page shows."""
JUDGE = "classroom.exercises"
PARTS = [one.name for one in pkgutil.iter_modules(classroom.exercises.__path__)]
"""The modules of the judge and of its answers, which no notebook needs."""
LISTED = r"[^\n(]{0,1000}|\s*\([^)]{0,1000}"
"""The names that an import lists, on one line or between brackets."""
INSIDE = re.compile(
    rf"{JUDGE}\.\w+|\bHEARD\b|exercises\s+import\b(?:{LISTED})\b(?:{'|'.join(PARTS)})\b"
)
"""What reaches into the judge, in text that is not a program."""
PROFILE = re.compile(r"^profile *(?::[^=\n]*)?=(?!=)", re.MULTILINE)
"""Where a notebook says how large everything is."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python raises for a cell that it cannot parse."""


def refuse_too_much(cells: Sequence[str]) -> None:
    """Refuse a notebook whose code would keep the judge itself busy."""
    checks = sum(len(asked(cell)) for cell in cells)
    for what, count, most in (("characters of code", sum(map(len, cells)), MOST_CODE),
                              ("code cells", len(cells), MOST_CELLS),
                              ("checks", checks, MOST_CHECKS)):  # fmt: skip
        if count > most:
            raise ValueError(f"refused: it has {count:,} {what}, and at most {most:,} are marked")


def read(path: Path) -> str:
    """The text of a notebook that is not too large."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"the file has more than {LARGEST // 10**6} MB: clear its outputs and "
                         "save it again")  # fmt: skip
    return path.read_text(encoding="utf-8-sig", errors="replace")


def notebook_in(text: str) -> dict[str, Any]:
    """Parse a notebook; a `ValueError` if the text is not one, or is one of another version."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("this is not a notebook: the file is not JSON") from None
    if not (isinstance(found, dict) and isinstance(found.get("cells"), list)
            and all(_is_cell(cell) for cell in found["cells"])):  # fmt: skip
        raise ValueError("this is not a notebook of version 4: save it again with JupyterLab")
    return found


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("metadata", {}), dict):
        return False
    source, tags = cell.get("source"), cell.get("metadata", {}).get("tags", [])
    lines = source if isinstance(source, list) else [source]
    return "cell_type" in cell and isinstance(tags, list) and all(isinstance(a, str) for a in lines)


def code_of(notebook: Mapping[str, Any]) -> list[str]:
    """The code cells of a notebook, with `profile` set to "smoke"."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = cell["source"]
            text = source if isinstance(source, str) else "".join(source)
            # Recognised by its text: some programs save a notebook without its tags.
            if PROFILE.search(text):
                text += '\nprofile = "smoke"'
            cells.append(text)
    return cells


def needed(cells: Sequence[str]) -> list[str]:
    """The cells that check something and those that define what they use; all others are empty.

    It goes backwards: a name is wanted from its use to the cell that defines it.
    """
    wanted: set[str] = set()
    kept = [""] * len(cells)
    for number in range(len(cells) - 1, -1, -1):
        uses, defines, changes = _names(cells[number])
        if asked(cells[number]) or wanted & (defines | changes) or "*" in defines:
            kept[number] = cells[number]
            wanted = (wanted - defines) | uses
    return kept


def answers(cells: Sequence[str]) -> list[tuple[str, str]]:
    """The names of what is checked, in order, and the code of each answer."""
    made, found = [_made(cell) for cell in cells], list[tuple[str, str]]()
    for number, cell in enumerate(cells):
        if names := asked(cell):
            code = _answer_in(cells, made, number)
            found += [(name, code) for name in names]
    return found


def _answer_in(cells: Sequence[str], made: Sequence[set[str]], number: int) -> str:
    """The cell that checks an answer, after the cells that define the names in it."""
    wanted, parts = _names(cells[number])[0], [cells[number]]
    for cell, names in zip(reversed(cells[:number]), reversed(made[:number]), strict=True):
        if wanted & names and not asked(cell):
            parts.insert(0, cell)
        wanted -= names
    code = "\n\n".join(parts)
    return code if len(code) <= SHOWN else f"{code[:SHOWN]}\n…"


def _made(cell: str) -> set[str]:
    """The names that a cell gives a value to, those of imports left out."""
    try:
        symbols = symtable.symtable(plain(cell), "cell", "exec").get_symbols()
    except UNREADABLE:
        return set()
    return {one.get_name() for one in symbols if one.is_assigned() and not one.is_imported()}


def plain(cell: str) -> str:
    """The cell as Python: commands of IPython are left out."""
    return re.sub(r"^( *)([%!].*)$", r"\1pass  # \2", cell, flags=re.MULTILINE)


def _names(cell: str) -> tuple[set[str], set[str], set[str]]:
    """The names that a cell uses, defines for good, and changes; "*" where this is unknown."""
    try:
        tree, table = ast.parse(plain(cell)), symtable.symtable(plain(cell), "cell", "exec")
    except UNREADABLE:
        return set(), {"*"}, set()
    defines: set[str] = set()
    changes = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            changes |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):  # words.sort()
            owner = getattr(node.value.func, "value", None)
            if owner is not None:
                changes |= {one.id for one in ast.walk(owner) if isinstance(one, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defines.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defines |= {(one.asname or one.name).split(".")[0] for one in node.names}
        elif isinstance(node, ast.Assign):
            targets = [one for target in node.targets for one in ast.walk(target)]
            names = [one for one in targets if isinstance(one, ast.Name)]
            defines |= {one.id for one in names if isinstance(one.ctx, ast.Store)}
    return _used(table), defines, changes


def _used(table: symtable.SymbolTable, top: bool = True) -> set[str]:
    """The names of the notebook that a cell looks up, also from inside of its functions."""
    own = {symbol.get_name() for symbol in table.get_symbols()
           if symbol.is_referenced() and (top or symbol.is_global())}  # fmt: skip
    return own.union(*(_used(inner, False) for inner in table.get_children()))


def number_of(cells: Sequence[str], path: Path) -> str:
    """The number of the lesson, from the names of its exercises, else from the file's name."""
    names = [name for cell in cells for name in asked(cell)]
    numbers = Counter(name[:2] for name in names if re.match(r"\d\d\.", name))
    named = re.findall(r"\d\d(?=[_-])", path.name)
    if not (numbers or named):
        raise ValueError("no exercise of the course is in this notebook")
    return numbers.most_common(1)[0][0] if numbers else str(named[0])


def reaches_in(cells: Sequence[str]) -> str:
    """The code in a notebook that reaches into the judge; empty if there is none.

    Code that an IPython command such as `%time` runs is searched as text.
    """
    for cell in cells:
        commands = "\n".join(re.findall(r"^ *[%!].*", cell, flags=re.MULTILINE))
        if cell.lstrip().startswith("%%"):
            commands = cell
        if found := INSIDE.search(commands):
            return found[0]
    nodes = [node for cell in cells for node in _nodes(cell)]
    own = _aliases(nodes)
    return next(filter(None, (_reaches_in(node, own) for node in nodes)), "")


def _nodes(cell: str) -> list[ast.AST]:
    """The nodes of a cell as a program; none where Python cannot parse it."""
    with contextlib.suppress(*UNREADABLE):
        return list(ast.walk(ast.parse(plain(cell))))
    return []


def _aliases(nodes: Iterable[ast.AST]) -> set[str]:
    """The names by which a notebook may call the judge's package."""
    package = JUDGE.split(".")[-1]
    named = [one for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
             for one in node.names if one.name in (JUDGE, package)]  # fmt: skip
    return {package, *(one.asname for one in named if one.asname)}


def _reaches_in(node: ast.AST, own: Collection[str]) -> str:
    """The part of the judge that a node names; `own` are names of its package. Empty for none."""
    if isinstance(node, ast.ImportFrom) and node.module == JUDGE:
        return next((f"{JUDGE}.{one.name}" for one in node.names if one.name in PARTS), "")
    if isinstance(node, ast.Attribute | ast.Name) and _name(node) == "HEARD":
        return "HEARD"
    if isinstance(node, ast.Attribute) and node.attr in PARTS:
        owner = node.value
        if isinstance(owner, ast.Attribute | ast.Name) and _name(owner) in own:
            return f"{JUDGE}.{node.attr}"
    named = getattr(node, "module", None) or getattr(node, "name", None) or ""
    text = node.value if isinstance(node, ast.Constant) else named
    return text if isinstance(text, str) and text.startswith(f"{JUDGE}.") else ""


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id
