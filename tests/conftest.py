"""What all tests share: one thread, examples, their order, fixtures, and a report of sizes."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import pytest
import torch

from classroom.cli import SPINS
from classroom.running.light import light_jsonschema
from labkit import fast
from labkit.world import World, load_world

light_jsonschema()
# `main` sets these: where they are set, no command that is tested changes the environment.
os.environ.update(SPINS)

# Until all tests are collected: thousands of them are made, and all stay.
gc.disable()
torch.set_num_threads(1)
# A shell that runs the tests in the background has Ctrl-C ignored, also by what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The same examples on every machine: a failure in CI is a failure at home. To explain a failure,
# Hypothesis would run the test line by line, again and again, also where a mutant has to fail.
hypothesis.settings.register_profile(
    "labkit", deadline=None, derandomize=True, database=None,
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
)  # fmt: skip
hypothesis.settings.load_profile("labkit")


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Give a headless Chromium; without one, skip with the reason, or fail where CI requires it."""
    from classroom.cli.doctor import find_chromium

    path = find_chromium()
    if path is None:
        reason = "no Chromium on the PATH: apt-get install chromium, or name one in LABKIT_CHROMIUM"
        if os.environ.get("LABKIT_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    from browser import FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def world() -> World:
    """Give the language of the course."""
    return load_world()


@pytest.fixture(params=["plain", "fast"])
def speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute by the formulas, and then by their faster versions."""
    monkeypatch.setenv("LABKIT_FAST", "1" if request.param == "fast" else "0")
    with fast.enable():
        yield


# First the files that wait, as other parts of the suite run beside them; then those that take
# longest; and the files of the part `browser`, the longest first.
HEAVY = ("cli", "exercises_kit", "distributed", "ledger", "fuzz", "packaging", "mutants", "shipped",
         "live_pages", "windows", "attention_models", "sweeps", "setup", "mutants_of_pages",
         "world_language", "your_labels", "judging", "outputs", "crash", "claims_beliefs",
         "compiled", "world_sides", "world_exact", "world_answers", "grading", "weights",
         "alignment", "demos_browser", "lecture_browser", "browser",
         "live_pages_browser")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the heavy files first, so that neither worker is left alone with one at the end."""
    place = {f"test_{name}.py": number for number, name in enumerate(HEAVY)}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (place.get(item.path.name, len(HEAVY)), -counts[item.path]))


def pytest_collection_finish() -> None:
    """Take what is imported by now from the garbage collector's sight: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the sizes of the package's files and functions wherever the house rules ran."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, said in report.user_properties:
            if name == "sizes":
                terminalreporter.write_line(said)
