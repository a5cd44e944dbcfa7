"""The course in a browser: a notebook opens, runs to its end, and shows what it should."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from browser import Server, jupyterlab, opened, run_all

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"

pytestmark = pytest.mark.browser

# Each stretch in which the cell that runs shows nothing new: its beginning, its end, and the cell.
WATCH = """() => {
    const waits = (cell) => cell.inputArea?.promptNode?.textContent.includes('*');
    let last = '';
    window.silences = [];
    setInterval(() => {
        const running = jupyterapp.shell.currentWidget.content.widgets.find(waits);
        const now = running ? running.model.id + running.outputArea.node.innerHTML : '';
        if (running && now !== last)
            silences.push([Date.now(), Date.now(), running.model.sharedModel.source]);
        else if (running) silences.at(-1)[1] = Date.now();
        last = now;
    }, 100);
}"""
MOST_SILENT = 0.25
"""The share of the notebook's work in which nothing new is shown: about two seconds of a processor
of today.  A share is the same on a slow machine, and beside other tests."""


def processor() -> float:
    """The seconds that the kernels started here have had of a processor."""
    kernels = [one for one in psutil.Process().children(recursive=True)
               if any("ipykernel" in word for word in one.cmdline())]  # fmt: skip
    return sum(sum(kernel.cpu_times()[:2]) for kernel in kernels)


@contextmanager
def worked() -> Iterator[Callable[[float], float]]:
    """Yield a function from a time, in milliseconds, to the seconds that kernels had worked."""
    times, works, over = [time.time() * 1_000], [processor()], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            with suppress(psutil.NoSuchProcess):
                works.append(processor())
                times.append(time.time() * 1_000)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield lambda at: float(np.interp(at, times, works))
    finally:
        over.set()
        looker.join()


SILENT = """from time import process_time
begun = process_time()
while process_time() < begun + 3:
    pass
1 / 0"""


def close(page: Any) -> None:
    """End the kernel of a notebook, so that what the next one works is its own, and leave it."""
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """JupyterLab over the first notebook and over one that raises."""
    state = tmp_path_factory.mktemp("lab")
    folder = state / "notebooks"
    folder.mkdir()
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", folder)
    notebook = json.loads((folder / "00_start_here.ipynb").read_text())
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    notebook["cells"] = [notebook["cells"][0], {**code, "source": SILENT}]
    (folder / "broken.ipynb").write_text(json.dumps(notebook))
    with pytest.MonkeyPatch.context() as patch:
        # On several threads, the seconds of a processor would pass faster than those of the clock.
        for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            patch.setenv(variable, "1")
        with jupyterlab(folder, state) as server:
            yield server, folder


def test_the_first_notebook_runs_in_the_browser(browser: Any, served: tuple[Server, Path]) -> None:
    server, folder = served
    page = opened(browser, server, "00_start_here.ipynb")
    page.evaluate(WATCH)
    with worked() as work:
        assert run_all(page)
        silences = page.evaluate("() => silences")
    assert len(silences) > 10
    whole = work(silences[-1][1]) - work(silences[0][0])
    for begun, ended, source in silences:
        assert work(ended) - work(begun) < MOST_SILENT * whole, source
    code = [cell for cell in json.loads((folder / "00_start_here.ipynb").read_text())["cells"]
            if cell["cell_type"] == "code"]  # fmt: skip
    last = f".jp-CodeCell:has-text('[{len(code)}]:')"
    page.wait_for_selector(last)
    assert page.locator(".jp-OutputArea-output[data-mime-type$='stderr']").count() == 0
    picture = page.locator(".jp-OutputArea-output img").first
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("image => image.naturalWidth") > 200
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / "00_start_here.png")
    close(page)


def test_a_cell_that_raises_is_noticed(browser: Any, served: tuple[Server, Path]) -> None:
    page = opened(browser, served[0], "broken.ipynb")
    page.evaluate(WATCH)
    with worked() as work:
        assert not run_all(page)
        # A second one may follow, after the traceback.
        begun, ended, source = page.evaluate("() => silences[0]")
    assert work(ended) - work(begun) > 2
    assert "process_time" in source
    close(page)
