"""A broken environment gets one clear line with the remedy; a sound one is set up only once."""

import ast
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from classroom.cli import COMMANDS, environment, main, suite

ROOT = Path(__file__).resolve().parent.parent
OLD_PYTHONS = ("python3.10", "python3.9", "python3.8", "python3.7", "python2.7")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a copy of the checkout in which nothing is set up."""
    root = tmp_path / "copy"
    for package in ("labkit", "classroom"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    for name in environment.INPUTS:
        shutil.copy(ROOT / name, root / name)
    (root / "notebooks").mkdir()
    return root


def python(root: Path, code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run code in the copy, with no pip settings but those given."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, env={**inherited, **settings},
        capture_output=True, text=True,
    )  # fmt: skip


def test_an_old_python_is_told_what_is_needed(checkout: Path) -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 8, 18); sys.argv = ['labkit', 'lab']; "
        "runpy.run_module('labkit', run_name='__main__')"
    )
    done = python(checkout, code)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer, and this is Python 3.8" in done.stderr
    assert "make lab PYTHON=" in done.stderr


def test_a_real_old_python_too(checkout: Path) -> None:
    found = [path for name in OLD_PYTHONS if (path := shutil.which(name))]
    working = [
        p for p in found if subprocess.run([p, "-c", "0"], capture_output=True).returncode == 0
    ]
    if not working:
        pytest.skip(f"none of {', '.join(OLD_PYTHONS)} on this machine")
    for path in working:
        done = subprocess.run([path, "-m", "labkit", "test"], cwd=checkout, capture_output=True)
        assert done.returncode != 0
        assert done.stderr.count(b"\n") == 1
        assert b"labkit needs Python 3.11 or newer" in done.stderr


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_what_an_old_python_reads_first_has_no_new_grammar(name: str) -> None:
    ast.parse((ROOT / "labkit" / name).read_text(encoding="utf-8"), feature_version=(3, 7))


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
@pytest.mark.parametrize("command", ["lab", "test"])
def test_without_the_venv_module(module: str, command: str, checkout: Path) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from classroom.cli import main\nsys.exit(main([{command!r}]))"
    )
    done = python(checkout, code)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"has no module {module}" in done.stderr
    assert "apt-get install python3." in done.stderr


@pytest.mark.parametrize("command", ["lab", "test"])
def test_a_folder_that_nobody_may_write_names_the_option(command: str, checkout: Path) -> None:
    code = (
        "import os, sys; os.access = lambda path, mode: False\n"
        f"from classroom.cli import main\nsys.exit(main([{command!r}]))"
    )
    done = python(checkout, code)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{checkout} cannot be written" in done.stderr
    assert "--here" in done.stderr
    assert not (checkout / ".venv").exists()


def test_without_a_network(checkout: Path) -> None:
    # Nobody listens on port 9 of this machine: every connection is refused at once.
    settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    code = "import sys; from classroom.cli import main; sys.exit(main(['lab', '--no-browser']))"
    done = python(checkout, code, **settings)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the package index cannot be reached: connect to the network" in done.stderr
    assert "Connection refused" in (checkout / ".venv" / "install.log").read_text()
    assert not (checkout / ".venv" / "labkit-stamp.txt").exists(), "half a setup is not a setup"


def bare(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call a command of the copy with the standard library alone."""
    code = (
        f"import importlib.util, sys; sys.path.insert(0, {str(root)!r})\n"
        "assert importlib.util.find_spec('numpy') is None, sys.path\n"
        "sys.modules['venv'] = None\n"  # so that the set-up ends before it has begun
        f"from classroom.cli import main; sys.exit(main({list(words)!r}))"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=root, capture_output=True, text=True
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_needs_only_the_standard_library_to_speak(
    command: str, checkout: Path
) -> None:
    helped = bare(checkout, command, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(f"usage: labkit {command}")
    called = bare(checkout, command)
    if command in ("lab", "test"):
        assert (called.returncode, called.stdout) == (1, "Setting up .venv (about 2 GB; a few "
                                                      "minutes, this once) ...\n")  # fmt: skip
        assert called.stderr.startswith("this Python has no module venv")
        assert called.stderr.count("\n") == 1
    elif command == "doctor":
        assert (called.returncode, called.stderr) == (0, "")
        [line] = [line for line in called.stdout.splitlines() if line.startswith("torch")]
        assert "`make lab`" in line
    else:
        assert (called.returncode, called.stderr.count("\n")) == (2, 1)
        assert called.stderr.startswith(f"labkit {command}: ")
        assert "`make lab`" in called.stderr


def test_the_parts_of_the_suite_need_only_the_standard_library(checkout: Path) -> None:
    said = bare(checkout, "test", "tets").stderr
    assert said.startswith("labkit test: there is no part tets; did you mean tests?")


def test_the_part_of_the_browser_has_all_of_its_files() -> None:
    mark = re.compile(r"pytest\.mark\.browser\b")
    paths = sorted(Path(__file__).parent.rglob("test_*.py"))
    marked = [path for path in paths if mark.search(path.read_text(encoding="utf-8"))]
    assert [path.stem.removeprefix("test_") for path in marked] == list(suite.BROWSER)
    assert {path.parent for path in marked} == {Path(__file__).parent}


def test_a_second_python_is_another_version_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    this = environment.THIS
    other, another = [name for name in environment.VERSIONS if name != this][:2]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert suite.second_python() is None
    assert suite.run_second(aside=False)[2:] == (
        0, f"second: skipped, there is no other Python {' or '.join(environment.VERSIONS)} here"
    )  # fmt: skip

    def stand_in(path: Path, said: str) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {said}\n")
        path.chmod(0o755)
        return str(path)

    stand_in(tmp_path / f"python{this}", this.replace(".", " "))
    assert suite.second_python() is None, "this version is no second one"
    stand_in(tmp_path / f"python{other}", "command not found")
    assert suite.second_python() is None, "a name that leads nowhere"
    by_path = stand_in(tmp_path / f"python{another}", another.replace(".", " "))
    assert suite.second_python() == (another, by_path)
    place = tmp_path / "pyenv" / "versions" / f"{other}.9" / "bin" / "python"
    place.parent.mkdir(parents=True)
    place.write_text("cannot be executed")
    assert suite.second_python() == (another, by_path)
    of_pyenv = stand_in(place, other.replace(".", " "))
    assert suite.second_python() == (other, of_pyenv)
    place.write_text("#!/bin/sh\n[ $1 = -c ] && echo " + other.replace(".", " ") + " || echo $@\n")
    part = suite.run_second(aside=False)
    assert (part.name, part.code) == ("second", 0)
    assert part.last_line == f"-m labkit test quick --venv .venv-{other}"


@pytest.mark.skipif(os.name == "nt", reason="the second Python is a shell script")
def test_the_second_python_is_tested_while_other_parts_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log, second = tmp_path / "log", tmp_path / "python"
    second.write_text(f"#!/bin/sh\necho $@ >> {log}\necho its tests passed\n")
    second.chmod(0o755)
    monkeypatch.setattr(suite, "second_python", lambda: ("3.99", str(second)))
    waits = f"import os\nwhile not os.path.exists({str(log)!r}): pass\nprint('first passed')"
    monkeypatch.setattr(suite, "PARTS", {"first": ("-c", waits), "second": suite.PARTS["second"]})
    assert main(["test", "--here"]) == 0
    assert log.read_text() == "-m labkit test quick --venv .venv-3.99\n"
    closing = capfd.readouterr().out.splitlines()[-5:-3]
    assert closing == ["first passed", "its tests passed"]


def test_other_failures_of_pip_name_the_log(tmp_path: Path) -> None:
    lines = ["Collecting x", "ERROR: x has an invalid wheel", "ERROR: more"]
    said = environment.diagnosis(lines, tmp_path / "install.log")
    assert "(ERROR: x has an invalid wheel)" in said
    assert str(tmp_path / "install.log") in said
    full = environment.diagnosis(["OSError: [Errno 28] No space left on device"], tmp_path / "log")
    assert "the disk is full" in full


# What pip 26.3 and older ones print where PyTorch has no wheel for a Python.
NO_WHEEL = (
    """
    ERROR: Cannot install None because these package versions have conflicting dependencies.

    The conflict is caused by:
    labkit 0.1.0 depends on torch>=2.9
    The user requested (constraint) torch==2.13.0

    Additionally, some packages in these conflicts have no matching distributions available \
for your environment:
    torch

    To fix this you could try to:
    1. loosen the range of package versions you've specified
""",
    """
    ERROR: Could not find a version that satisfies the requirement torch (from versions: none)
    ERROR: No matching distribution found for torch
""",
)


@pytest.mark.parametrize("said", NO_WHEEL)
@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("3.16", "use Python 3.11 to 3.15, as in `make lab PYTHON=python3.14` (on Windows `py "),
        ("3.13", "docs/student.md names other ways"),
    ],
)
def test_a_python_without_packages_is_told_which_have_them(
    version: str, remedy: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "THIS", version)
    lines = [line.strip() for line in said.splitlines()]
    told = environment.diagnosis(lines, tmp_path / "install.log")
    assert f"pip finds no torch package for Python {version} on this machine (" in told
    assert remedy in told
    assert "\n" not in told


@pytest.mark.parametrize("page", ["README.md", "docs/student.md", "classroom/pages/site.py"])
def test_pages_name_the_versions_that_have_packages(page: str) -> None:
    newest, *_, oldest = environment.VERSIONS
    assert f"Python {oldest} to {newest}" in (ROOT / page).read_text(encoding="utf-8")


def test_packages_that_do_not_work_are_no_setup(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = checkout / "install.log"
    environment.import_once(Path(sys.executable), log)
    assert not log.exists()
    monkeypatch.setattr(environment, "IMPORTED", ("json", "labkit_lacks_this"))
    with pytest.raises(environment.SetupError, match=r"do not work \(ModuleNotFoundError: .*lacks"):
        environment.import_once(Path(sys.executable), log)
    assert "Traceback" in log.read_text()


def test_what_is_imported_is_compiled_whatever_the_image_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each process would compile thousands of modules anew."""
    (tmp_path / "of_a_lesson.py").touch()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(environment, "IMPORTED", ("of_a_lesson",))
    environment.import_once(Path(sys.executable), tmp_path / "log")
    assert len(list(tmp_path.glob("__pycache__/of_a_lesson.*.pyc"))) == 1
    writes = ("-c", "import sys; print(not sys.dont_write_bytecode)")
    assert suite.run_part("one", [sys.executable, *writes]).last_line == "True"


def test_the_second_call_starts_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    def start(command: list[str], *_: object) -> None:
        started.append(command)

    own = environment.venv_python(checkout)
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(environment, "create", lambda *_: None)
    monkeypatch.setattr(environment, "import_once", lambda *_: None)
    monkeypatch.setattr(environment, "install", start)
    assert environment.prepare(checkout) == own
    assert len(started) == 2
    assert environment.prepare(checkout) == own
    assert len(started) == 2, "the stamp says that it is done"
    assert environment.venv_python(checkout, ".venv-3.9") == checkout / ".venv-3.9" / (
        own.relative_to(checkout / ".venv")
    )
    for name in environment.INPUTS:
        before = len(started)
        with (checkout / name).open("a") as file:
            file.write("\n# changed\n")
        environment.prepare(checkout)
        assert len(started) == before + 2, f"a change of {name} installs again"


def test_a_setup_that_was_broken_off_starts_again(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = environment.venv_python(checkout)
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(environment, "create", lambda *_: None)
    monkeypatch.setattr(environment, "import_once", lambda *_: None)
    monkeypatch.setattr(environment, "install", lambda *_: None)
    environment.prepare(checkout)

    def broken(*_: object) -> None:
        raise environment.SetupError("no network")

    monkeypatch.setattr(environment, "install", broken)
    (checkout / "constraints.txt").write_text("")
    for _ in range(2):
        with pytest.raises(environment.SetupError, match="no network"):
            environment.prepare(checkout)


def test_commands_find_the_environment_or_say_how_to_make_it(checkout: Path) -> None:
    without_torch = (
        "import sys; sys.modules['torch'] = None\n"
        "from classroom.cli import main\nsys.exit(main(['run', '00', '--list']))"
    )
    done = python(checkout, without_torch)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "`make lab`" in done.stderr
    own = environment.venv_python(checkout)
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "$@"\n')
    own.chmod(0o755)
    if os.name != "nt":
        assert python(checkout, without_torch).stdout == "-m labkit run 00 --list\n"


def test_an_environment_that_was_never_finished_does_not_call_itself(checkout: Path) -> None:
    """Its Python lacks torch, finds `.venv` and would start itself without end."""
    own = environment.venv_python(checkout)
    without_torch = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.prefix = {str(checkout / '.venv')!r}\n"
        "from classroom.cli import main\nsys.exit(main(['run', '00', '--list']))"
    )
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho again\n")
    own.chmod(0o755)
    done = python(checkout, without_torch)
    assert "again" not in done.stdout
    assert "torch is not installed" in done.stderr


def test_two_commands_set_up_one_after_the_other(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, started = environment.venv_python(checkout), []
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    monkeypatch.setattr(environment, "create", lambda *_: time.sleep(0.3))
    monkeypatch.setattr(environment, "import_once", lambda *_: None)
    monkeypatch.setattr(environment, "install", lambda *_: started.append(1))
    both = [threading.Thread(target=environment.prepare, args=(checkout,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(started) == 2, "the second finds what the first has made"
    # The one that waits may say so before the other has said what it does.
    other, first = sorted(capsys.readouterr().out.splitlines())
    assert first.startswith("Setting up .venv")
    assert other == "Another command is setting up .venv: waiting for it ..."


def test_an_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    """As when `python -m venv` was stopped on the way."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    own = environment.venv_python(tmp_path, "v")
    environment.create(tmp_path / "v", own)
    subprocess.run([own, "-c", "import pip._internal.cli.main"], check=True)
