"""The structure of the two packages, computed from their source: who imports whom, on which level.

Every import counts, also those under TYPE_CHECKING and inside functions: a circle that only the
type checker or a late call can see is a circle for the reader, too. `from package import name`
is followed to the module that defines the name where the package only re-exports it.
"""

import ast
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("labkit", "classroom")
Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    """Return the dotted name of a file below the root."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(p): p for name in PACKAGES for p in sorted((ROOT / name).rglob("*.py"))}
LINES = {name: path.read_text(encoding="utf-8").count("\n") for name, path in FILES.items()}


@functools.cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module; to parse all of them takes seconds."""
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module with its syntax tree."""
    for module in FILES:
        yield module, tree_of(module)


def base_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of what stands behind `from`."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def imports(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for everything that a module imports; the name of a whole is ""."""
    is_package = module in FILES and FILES[module].name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, module, is_package)
            yield from ((base, alias.name) for alias in node.names)


def exports() -> dict[tuple[str, str], tuple[str, str]]:
    """Return where the names come from that a package's __init__ re-exports."""
    found = {}
    for module, tree in trees():
        if FILES[module].name == "__init__.py":
            for node in tree.body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        source = (base_of(node, module, True), alias.name)
                        found[module, alias.asname or alias.name] = source
    return found


EXPORTS = exports()

MADE = re.compile(r"\.(?!ci$|github$).+|__pycache__|build|dist|runs|site|artifacts|.+\.egg-info")
"""The folders that no repository holds, as in .gitignore."""
MADE_FILE = re.compile(r"\.git|\.venv.*\.lock")
"""The same of files: the link of a work tree, and the lock of a set-up."""


def repository() -> list[str]:
    """Return the files of the repository; in a zip without .git, all that nothing has made."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return without_git()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def without_git() -> list[str]:
    """Return the files of the checkout but those that are made."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not MADE.fullmatch(name)]
        kept = [name for name in names if not MADE_FILE.fullmatch(name)]
        found += [Path(folder, name).relative_to(ROOT).as_posix() for name in kept]
    return sorted(found)


def defining(module: str, name: str) -> str | None:
    """Return the module of ours that defines what is imported; None: it is not ours."""
    seen = set()
    while (module, name) in EXPORTS and (module, name) not in seen:
        seen.add((module, name))
        module, name = EXPORTS[module, name]
    return next((m for m in (f"{module}.{name}", module) if m in FILES), None)


def edges(module: str, tree: ast.Module) -> set[str]:
    """Return the modules of ours that a module imports, anywhere in its source."""
    found = {defining(base, name) for base, name in imports(module, tree)}
    return {other for other in found if other is not None and other != module}


@functools.cache
def graph() -> Graph:
    """Return who imports whom."""
    return {module: edges(module, tree) for module, tree in trees()}


def groups(of: Graph) -> list[list[str]]:
    """Return the strongly connected parts, the lowest first (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(v: str) -> None:
        order[v] = low[v] = len(order)
        stack.append(v)
        for w in sorted(of.get(v, ())):
            if w not in order:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], order[w])
        if low[v] == order[v]:
            start = stack.index(v)
            found.append(sorted(stack[start:]))
            del stack[start:]

    for v in of:
        if v not in order:
            visit(v)
    return found


def cycles(of: Graph) -> list[list[str]]:
    """Return the groups of modules that import one another."""
    return [group for group in groups(of) if len(group) > 1]


def levels(of: Graph) -> dict[str, int]:
    """Return the level of each module: one above the highest that it imports."""
    level: dict[str, int] = {}
    for group in groups(of):
        below = {w for v in group for w in of.get(v, ()) if w not in group}
        level |= dict.fromkeys(group, 1 + max((level[w] for w in below), default=0))
    return level


def closure(start: str) -> set[str]:
    """Return what importing a module loads: itself, its packages, and what those import."""
    found: set[str] = set()
    todo = [start]
    while todo:
        module = todo.pop()
        if module in FILES and module not in found:
            found.add(module)
            parts = module.split(".")
            todo += [".".join(parts[:i]) for i in range(1, len(parts))]
            todo += edges(module, _eager(tree_of(module)))
    return found


def _eager(tree: ast.Module) -> ast.Module:
    """Return the module without what does not run when it is imported."""

    class Lazy(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None: ...
        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None: ...
        def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
            return ast.Constant(None)

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)

    return Lazy().visit(ast.parse(ast.unparse(tree)))


def private_imports() -> dict[str, list[str]]:
    """Return which modules import a name that begins with an underscore from another module."""
    found: dict[str, list[str]] = {}
    for module, tree in trees():
        for base, name in imports(module, tree):
            private = name.startswith("_") and not name.startswith("__")
            if private and base.split(".")[0] in PACKAGES:
                found.setdefault(module, []).append(f"{base}.{name}")
    return found


def table() -> str:
    """Return the lines of each place, the levels, and what importing the main modules loads."""
    places: dict[str, list[int]] = {}
    for module, count in LINES.items():
        parts = FILES[module].relative_to(ROOT).parts
        place = "/".join(parts[:2]) + "/" if len(parts) > 2 else f"{parts[0]} (root)"
        places.setdefault(place, []).append(count)
    rows = [f"{sum(n):7,} lines  {len(n):3} modules  {place}"
            for place, n in sorted(places.items(), key=lambda row: -sum(row[1]))]  # fmt: skip
    for package in PACKAGES:
        total = sum(n for name, n in LINES.items() if name.split(".")[0] == package)
        rows.append(f"{total:7,} lines in {package}")
    by_level: dict[int, list[str]] = {}
    for module, level in sorted(levels(graph()).items()):
        by_level.setdefault(level, []).append(module)
    rows += [f"level {level:2}: {', '.join(names)}" for level, names in sorted(by_level.items())]
    for start in ("labkit.models.gpt", "labkit.trainer", "classroom.demos"):
        loaded = closure(start)
        lines = sum(LINES[name] for name in loaded)
        rows.append(f"importing {start} loads {len(loaded)} modules, {lines:,} lines")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
