"""The course in a browser: a notebook opens, runs to its end, and shows what it should."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from browser import jupyterlab, opened, run_all

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"

pytestmark = pytest.mark.browser

# The longest time in which the cell that runs shows nothing new, in milliseconds, and that cell.
WATCH = """() => {
    const waits = (cell) => cell.inputArea?.promptNode?.textContent.includes('*');
    let last = '', since = Date.now();
    window.silence = [0, ''];
    setInterval(() => {
        const running = jupyterapp.shell.currentWidget.content.widgets.find(waits);
        const now = running ? running.model.id + running.outputArea.node.innerHTML : '';
        if (now !== last) { last = now; since = Date.now(); }
        const silent = Date.now() - since;
        if (running && silent > silence[0]) silence = [silent, running.model.sharedModel.source];
    }, 100);
}"""
MOST_SILENT = 2_500
"""On a processor of its own; tests run side by side."""


def processor() -> float:
    """The seconds that the kernels started here have had of a processor."""
    kernels = [one for one in psutil.Process().children(recursive=True)
               if any("ipykernel" in word for word in one.cmdline())]  # fmt: skip
    return sum(sum(kernel.cpu_times()[:2]) for kernel in kernels)


def test_the_first_notebook_runs_in_the_browser(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", folder)
    with jupyterlab(folder, tmp_path) as server:
        page = opened(browser, server, "00_start_here.ipynb")
        page.evaluate(WATCH)
        begun, had = time.monotonic(), processor()
        assert run_all(page)
        # How many times longer the cells took than they would alone.
        slow = max(1, (time.monotonic() - begun) / (processor() - had))
        silent, source = page.evaluate("() => silence")
        assert 0 < silent < MOST_SILENT * slow, source
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


def test_a_cell_that_raises_is_noticed(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text())
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    notebook["cells"] = [
        notebook["cells"][0],
        {**code, "source": "import time; time.sleep(1.5); 1 / 0"},
    ]
    (folder / "broken.ipynb").write_text(json.dumps(notebook))
    with jupyterlab(folder, tmp_path) as server:
        page = opened(browser, server, "broken.ipynb")
        page.evaluate(WATCH)
        assert not run_all(page)
        silent, source = page.evaluate("() => silence")
        assert silent > 1_000
        assert "sleep" in source
