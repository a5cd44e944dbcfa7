"""The course in a browser: a notebook opens, runs to its end, and shows what it should."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from browser import jupyterlab, opened, run_all

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"

pytestmark = pytest.mark.browser


def test_the_first_notebook_runs_in_the_browser(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", folder)
    with jupyterlab(folder, tmp_path) as server:
        page = opened(browser, server, "00_start_here.ipynb")
        assert run_all(page)
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
    notebook["cells"] = [notebook["cells"][0], {**code, "source": "1 / 0"}]
    (folder / "broken.ipynb").write_text(json.dumps(notebook))
    with jupyterlab(folder, tmp_path) as server:
        assert not run_all(opened(browser, server, "broken.ipynb"))
