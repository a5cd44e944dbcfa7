"""What was found on this machine, and how fast it is: the first thing to read in a bug report."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence

from classroom.cli.parser import Parser
from labkit import __version__
from labkit.keeping.paths import checkout

# The shell is Chromium without windows: the same pages need a quarter less of the processor.
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
            "google-chrome-stable", "chrome")  # fmt: skip
GIB = 2**30


def doctor(parser: Parser, words: Sequence[str]) -> int:
    """Print one line for each thing that the course depends on."""
    parser.parse_args(words)
    for name, finding in findings():
        print(f"{name:<12} {finding}", flush=True)
    return 0


def findings() -> Iterator[tuple[str, str]]:
    """Yield what was found, a name and a finding at a time."""
    yield "labkit", f"{__version__}, {'a checkout' if checkout() else 'an installed package'}"
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if importlib.util.find_spec("torch") is None:
        yield "torch", f"not installed in {sys.executable}: `make lab` sets up .venv"
    else:
        yield from machine()
    yield "Jupyter", version_of("jupyterlab")
    yield "Chromium", chromium_found()
    for extra, names in requirements().items():
        missing = [name for name in names if version_of(name) == "not installed"]
        yield f"[{extra}]", f"lacks {', '.join(missing)}" if missing else "installed"


def machine() -> Iterator[tuple[str, str]]:
    """Yield what torch says about this machine."""
    import psutil
    import torch

    from labkit.keeping.computing import fast_precision, has_bfloat16, measured_peak
    from labkit.keeping.processor import threads

    yield "torch", torch.__version__
    memory = psutil.virtual_memory()
    yield "memory", f"{memory.total / GIB:.1f} GB, {memory.available / GIB:.1f} GB of it free"
    count, why = threads()
    yield "threads", f"{count} of {os.cpu_count()} cores: {why}"
    device = "cpu"
    if torch.cuda.is_available():
        device = "cuda"
        gpu = torch.cuda.get_device_properties(0)
        free, _ = torch.cuda.mem_get_info()
        yield "GPU", f"{gpu.name}, {gpu.total_memory / GIB:.1f} GB, {free / GIB:.1f} GB of it free"
    else:
        yield "GPU", "none; everything in the course also runs without one"
    precision, why = fast_precision(torch.device(device))
    yield "precision", f"{precision}, unless a plan says otherwise: {why}".removeprefix("torch.")
    emulated = not has_bfloat16(torch.device(device))
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        if dtype == torch.bfloat16 and emulated:
            yield name, f"the {device} only emulates such products, many times slower than float32"
        else:
            speed = measured_peak(device, dtype) / 1e9
            yield name, f"{speed:,.0f} GFLOP/s in a product of matrices on the {device}"


def find_chromium() -> str | None:
    """Return the Chromium (or Chrome) of this machine; LABKIT_CHROMIUM names another."""
    named = os.environ.get("LABKIT_CHROMIUM")
    return named or next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def chromium_found() -> str:
    """Return the version of Chromium, or what its absence means."""
    path = find_chromium()
    if path is None:
        return "none on the PATH: the browser tests are skipped (LABKIT_CHROMIUM names one)"
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError as error:
        return f"{path} cannot be run: {error.strerror} (LABKIT_CHROMIUM names another)"
    return f"{said or 'of an unknown version'} ({path})"


def version_of(name: str) -> str:
    """Return the installed version of a distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def requirements() -> dict[str, list[str]]:
    """Return the distributions that each extra requires."""
    root = checkout()
    if root is not None:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project["optional-dependencies"]
        return {extra: [plain_name(line) for line in lines] for extra, lines in extras.items()}
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("labkit") or ():
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if extra:
            found.setdefault(extra[1], []).append(plain_name(line))
    return found


def plain_name(requirement: str) -> str:
    """Return the name in a requirement such as `dask[distributed]>=2025.1`."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]
