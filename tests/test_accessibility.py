"""axe, the accessibility checker, finds nothing serious on the pages of the site.

It is taken from node_modules (`npm install axe-core`), from the folder that LABKIT_AXE names, or
from npm's global folder, and is part of nothing that ships.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_live_pages_browser import opened, site

__all__ = ["site"]

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parent.parent
RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160))}`)"""


@cache
def axe() -> str:
    """The source of axe, or a reason to skip."""
    folders = [Path(os.environ.get("LABKIT_AXE", ROOT / "node_modules" / "axe-core"))]
    npm = shutil.which("npm")
    if npm is not None and not (folders[0] / "axe.min.js").is_file():
        asked = subprocess.run([npm, "root", "-g"], capture_output=True, text=True)
        folders.append(Path(asked.stdout.strip()) / "axe-core")
    for folder in folders:
        if (folder / "axe.min.js").is_file():
            return (folder / "axe.min.js").read_text(encoding="utf-8")
    pytest.skip("axe is not installed: npm install axe-core, or name its folder in LABKIT_AXE")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "live", "01_own"])
def test_axe_finds_nothing_serious(browser: Any, site: Path, name: str, scheme: str) -> None:
    source = axe()
    # The policy of the page admits its own scripts alone; the checker comes from outside.
    how = {"bypass_csp": True, "color_scheme": scheme, "reduced_motion": "reduce"}
    page = opened(browser, site / f"{name}.html", **how).page
    try:
        page.add_script_tag(content=source)
        assert page.evaluate(RUN) == []
    finally:
        page.close()
