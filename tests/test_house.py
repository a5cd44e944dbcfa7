"""The rules of the house that a machine can see."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import (
    FILES,
    LINES,
    ROOT,
    cycles,
    edges,
    graph,
    levels,
    private_imports,
    repository,
    table,
    tree_of,
    trees,
    without_git,
)

MOST_LEVELS = 12
HEAVY = ("IPython", "jupyterlab", "jupyter_server", "ipywidgets", "matplotlib", "papermill",
         "huggingface_hub", "datasets", "transformers", "dask", "pandas")  # fmt: skip

PICKLERS = ("pickle", "cloudpickle", "dill", "shelve", "marshal")


def test_there_is_no_circle_of_imports() -> None:
    assert cycles(graph()) == []


def test_the_levels_are_few() -> None:
    print(table())
    assert max(levels(graph()).values()) <= MOST_LEVELS


def test_labkit_never_imports_the_classroom() -> None:
    up = {
        module: sorted(other for other in others if other.startswith("classroom"))
        for module, others in graph().items()
        if module.startswith("labkit") and module != "labkit.__main__"
    }
    assert {module: others for module, others in up.items() if others} == {}


def test_no_module_imports_a_private_name_of_another() -> None:
    assert private_imports() == {}


def test_no_model_imports_another_model() -> None:
    models = [module for module in FILES if re.match(r"labkit\.models\.\w", module)]
    crossed = {m: [o for o in graph()[m] if o.startswith("labkit.models.")] for m in models}
    assert {model: others for model, others in crossed.items() if others} == {}


SHARED = {
    "Document": "a document of the language is one that `from_documents` takes as it is",
    "best_of": "the best of n answers that a policy writes, and the distribution of that answer",
    "frontier": "the best policies of several questions, and those of one",
    "parameters": "the number of parameters, of a model and of a published size",
}
"""Names that two modules of labkit define, and why: both mean the same of unlike things."""


def test_a_public_name_has_one_meaning() -> None:
    defined: dict[str, set[str]] = {}
    for module, tree in trees():
        # A faster version has the name of what it replaces.
        if module.startswith("labkit.") and not module.startswith("labkit.fast"):
            for node in tree.body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    defined.setdefault(node.name, set()).add(module)
    twice = {name for name, modules in defined.items() if len(modules) > 1 and name[0] != "_"}
    assert twice == SHARED.keys()


def given_twice(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module gives to two things: the second would replace the first."""
    seen = set()
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for name in [*names, *(target.id for target in targets if isinstance(target, ast.Name))]:
            if name in seen:
                yield name
            seen.add(name)


@pytest.mark.parametrize("module", FILES)
def test_a_module_gives_each_name_once(module: str) -> None:
    assert not list(given_twice(tree_of(module)))


def test_the_structure_is_computed_rightly() -> None:
    upward = ast.parse("from classroom.cli import main\ndef f():\n  import classroom.cli.lab")
    assert edges("labkit.keeping.paths", upward) == {"classroom.cli", "classroom.cli.lab"}
    typing = ast.parse("if TYPE_CHECKING:\n  from labkit.trainer import Trainer\nimport torch")
    assert edges("labkit.x", typing) == {"labkit.trainer"}
    relative = ast.parse("from . import checks\nfrom .models import gpt")
    assert edges("labkit.x", relative) == {"labkit.checks", "labkit.models.gpt"}
    exported = ast.parse("from labkit.corpus import Batch")
    assert edges("labkit.x", exported) == {"labkit.corpus.batch"}
    circle = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert cycles(circle) == [["b", "c"]]
    assert levels(circle) == {"b": 1, "c": 1, "a": 2, "d": 3}


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Yield the public functions, classes and methods that have no docstring."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, defined) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    public = isinstance(inner, defined) and not inner.name.startswith("_")
                    if public and not ast.get_docstring(inner):
                        yield f"{node.name}.{inner.name}"


@pytest.mark.parametrize("module", FILES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    tree = tree_of(module)
    assert ast.get_docstring(tree) or not tree.body, f"{module} does not say what it is"
    assert not list(undocumented(tree))


def unsafe_loads(tree: ast.AST) -> Iterator[str]:
    """Yield what could run the code of a stranger's file."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (f"import {name}" for name in names if name.split(".")[0] in PICKLERS)
        if isinstance(node, ast.Call):
            name, words = ast.unparse(node.func), {k.arg: k.value for k in node.keywords}
            if name == "torch.load" and ast.unparse(words.get("weights_only", node)) != "True":
                yield "torch.load without weights_only=True"
            if "allow_pickle" in words and ast.unparse(words["allow_pickle"]) != "False":
                yield f"{name} with allow_pickle"
            if name in ("yaml.load", "eval", "exec", "pandas.read_pickle", "pd.read_pickle"):
                yield name


@pytest.mark.parametrize("module", FILES)
def test_no_file_of_a_stranger_can_run_code(module: str) -> None:
    assert not list(unsafe_loads(tree_of(module)))


def test_the_rules_catch_what_they_are_for() -> None:
    loads = ("import pickle", "from dill import loads", "torch.load(f)", "eval(x)",
             "torch.load(f, weights_only=False)", "np.load(f, allow_pickle=True)")  # fmt: skip
    for source in loads:
        assert list(unsafe_loads(ast.parse(source))), source
    assert not list(unsafe_loads(ast.parse("torch.load(f, weights_only=True); np.load(f)")))
    bare = ast.parse("def f(): ...\nclass C:\n  'x'\n  def g(self): ...\n  def _h(self): ...")
    assert list(undocumented(bare)) == ["f", "C.g"]
    again = ast.parse("A = 1\nB: int = 2\ndef f(): A = 2\nA, B = 3, 4\nA = 5\ndef f(): ...")
    assert list(given_twice(again)) == ["A", "f"]


def tracked() -> list[Path]:
    """Return the files of the repository."""
    return [ROOT / name for name in repository()]


def test_the_files_are_found_without_git_too() -> None:
    """In the zip that a host offers."""
    found = set(without_git())
    assert set(repository()) <= found
    assert {"Makefile", ".ci/run", ".gitignore", "data/language/README.md"} <= found
    assert not [name for name in found if name.startswith((".git/", ".venv", "site/", "runs/"))]
    assert not [name for name in found if "__pycache__" in name]


def machine_paths(text: str) -> list[str]:
    """Return the absolute paths of somebody's machine that stand in the text."""
    # Written in pieces, or this file would be the first to break the rule.
    places = ["/" + "home/", "/" + "root/", "/" + "Users/", "C:" + r"\\+Users", "/" + "tmp/"]
    own = [re.escape(str(path)) + r"(?![\w-])" for path in (ROOT, Path(sys.prefix), Path.home())
           if len(path.parts) > 1]  # fmt: skip
    return re.findall(r"(?<![\w.~>-])(?:" + "|".join(places + own) + ")", text)


def test_no_path_of_a_machine_stands_in_the_repository() -> None:
    found = {}
    for path in tracked():
        hits = machine_paths(path.read_text(encoding="utf-8", errors="ignore"))
        if hits:
            found[str(path.relative_to(ROOT))] = sorted(set(hits))
    assert not found


def test_machine_paths_are_recognised() -> None:
    for text in ("open('/" + "home/me/x')", f"# see {ROOT}/notes", "C:" + "\\Users\\me"):
        assert machine_paths(text), text
    inside = "/" + "home/x "
    assert not machine_paths("data/language" + inside + "https://example.org" + inside)


def fresh_python(code: str) -> str:
    """Run code in a Python of its own and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


EACH_FIRST = """
import functools, importlib.machinery, sys
loader = importlib.machinery.SourceFileLoader
loader.get_code = functools.cache(loader.get_code)  # each file is compiled once
for module in {modules}:
    # What it imports is imported anew; but labkit imports no classroom, for which it may stay.
    for name in [name for name in sys.modules if name.split(".")[0] == module.split(".")[0]]:
        del sys.modules[name]
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, error)
"""


def test_every_module_can_be_imported_first() -> None:
    """A circle of a package and what it re-exports is an error for those who start inside it."""
    modules = [module for module in FILES if not module.endswith(".__main__")]
    assert fresh_python(EACH_FIRST.format(modules=modules)) == ""


def test_the_trainer_imports_no_compiler() -> None:
    """It takes two seconds and 70 MB, and torch's own optimizers import it."""
    code = """
import sys
from labkit.trainer import Plan, Trainer
from labkit.objectives import NextToken
from tests.crash.tiny import Text, gpt
for name in ("adamw", "muon", "sgd"):
    list(Trainer(gpt(), NextToken(), Text(), Plan(steps=2, rate=1e-2, optimizer=name)).run())
    print(name, "torch._dynamo" in sys.modules)
"""
    assert fresh_python(code).split("\n") == ["adamw False", "muon False", "sgd False"]


def test_importing_the_package_is_cheap() -> None:
    # CPU seconds of the process, and the best of three: what else the machine does matters little.
    code = "import labkit, time; print(time.process_time())"
    assert min(float(fresh_python(code)) for _ in range(3)) <= 1.5


def test_a_module_brings_only_what_it_needs() -> None:
    """What is large is imported where it is used: sympy comes with torch's compiler and shards."""
    brings = {
        "classroom.demos": "torch ipywidgets numpy",
        "labkit.trainer, classroom.models.recipes": "sympy torch.distributed.tensor ipywidgets",
        "classroom.demos.masking": "sympy matplotlib classroom.demos.ledger labkit.alignment",
    }
    # One after the other in one process, which takes seconds to start: what one of them brings is
    # there for the next, so each is held to more than its own.
    code = "\n".join(f"import {modules}\nprint(*sys.modules)" for modules in brings)
    after_each = fresh_python(f"import sys\n{code}").splitlines()
    for (modules, others), loaded in zip(brings.items(), after_each, strict=True):
        assert not {*others.split()} & {*loaded.split()}, modules


def test_what_runs_notebooks_does_not_read_from_hadoop() -> None:
    code = "import sys\nfrom classroom.running.light import light_papermill\nlight_papermill()\n"
    loaded = {*fresh_python(f"{code}print(*sys.modules)").split()}
    assert "papermill.iorw" in loaded
    assert not {"pyarrow", "rfc3987_syntax"} & loaded


def test_each_demo_is_where_its_package_says() -> None:
    import classroom.demos as demos

    for name in demos.__all__:
        found = getattr(demos, name)
        assert found.__name__ == name
        assert name in dir(demos)
    with pytest.raises(AttributeError, match=r"'classroom\.demos' has no attribute 'nothing'"):
        _ = demos.nothing


def test_labkit_does_not_drag_in_jupyter_plots_or_the_hub() -> None:
    modules = [module for module in FILES if module.startswith("labkit")]
    modules.remove("labkit.__main__")
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(*sys.modules)"
    loaded = {name.split(".")[0] for name in fresh_python(code).split()}
    assert "labkit" in loaded
    assert not loaded & {*HEAVY, "classroom"}


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    from classroom.cli import COMMANDS

    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE)) <= targets
    assert set(re.findall(r"python -m labkit ([a-z]+)", text)) <= set(COMMANDS)
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    links += re.findall(r"<img[^>]* src=\"(?!https?:)([^\"]+)\"", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") <= 150
    assert {"lab", "test"} <= set(re.findall(r"(?:`|^)make ([a-z]+)", readme, re.MULTILINE))


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    for requirement in project["dependencies"]:
        name = re.split(r"[\[<>=]", requirement)[0]
        assert re.search(rf"^\| {name} \|", page, re.MULTILINE), f"{name} has no row"
    for extra in project["optional-dependencies"]:
        assert re.search(rf"^\| `\[{extra}\]` \|", page, re.MULTILINE), f"{extra} has no row"


def sizes() -> str:
    """Return a line about the long files and the long functions of both packages."""
    long_files = [f"{name} ({count})" for name, count in LINES.items() if count > 300]
    functions = [(module, node) for module, tree in trees() for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]  # fmt: skip
    long_functions = [
        f"{module}.{node.name} ({length})"
        for module, node in functions
        if (length := (node.end_lineno or 0) - node.lineno + 1) > 40
    ]
    return (
        f"sizes: {sum(LINES.values())} lines in {len(LINES)} files; over 300 lines: "
        f"{', '.join(long_files) or 'none'}; functions over 40 lines: "
        f"{', '.join(long_functions) or 'none'}"
    )


def test_sizes_are_reported(record_property: Callable[[str, str], None]) -> None:
    said = sizes()
    assert re.match(r"sizes: \d+ lines in \d+ files; over 300 lines: ", said)
    record_property("sizes", said)  # which the end of the run shows
