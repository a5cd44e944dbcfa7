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
# The contrast of a text is told by its font and by what is behind it. Thousands of words of code
# are alike in both, and would take most of the time: only the first of each kind is on the page
# while axe reads the contrast.
RUN = """async () => {
    const read = async (rules) =>
        (await axe.run(document, { resultTypes: ["violations"], ...rules })).violations
        .filter(({ impact }) => ["serious", "critical"].includes(impact))
        .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((n) => n.html.slice(0, 160))}`);
    const contrast = "color-contrast";
    // The other rules read no colours: code is one text for them.
    const simple = (element) => element.matches("span") && [...element.attributes]
        .every(({ name }) => name === "class");
    const code = [...document.querySelectorAll("pre")]
        .filter((pre) => [...pre.querySelectorAll("*")].every(simple));
    const coloured = code.map((pre) => {
        const words = document.createDocumentFragment();
        words.append(...pre.childNodes);
        pre.textContent = words.textContent;
        return words;
    });
    const found = await read({ rules: { [contrast]: { enabled: false } } });
    code.forEach((pre, number) => pre.replaceChildren(coloured[number]));
    const behind = new Map([[null, ""]]), kinds = new Map(), needed = new Set(), alike = [];
    const styles = (element, ...names) => {
        const style = getComputedStyle(element);
        return names.map((name) => style[name]).join();
    };
    for (const element of document.querySelectorAll("html, body, body *")) {
        behind.set(element, behind.get(element.parentElement) + styles(element, "backgroundColor",
            "backgroundImage", "opacity", "filter", "position", "zIndex", "display"));
        const kind = element.checkVisibility() + behind.get(element)
            + styles(element, "color", "fontSize", "fontWeight", "textShadow", "visibility");
        const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if ((words || "value" in element) && !kinds.has(kind)) kinds.set(kind, element);
    }
    for (let element of kinds.values())
        for (; element; element = element.parentElement) needed.add(element);
    for (const element of document.querySelectorAll("body *"))
        if (!needed.has(element) && needed.has(element.parentElement)) alike.push(element);
    const places = alike.map((element) => {
        const place = document.createComment("");
        element.replaceWith(place);
        return place;
    });
    found.push(...await read({ runOnly: [contrast] }));
    places.forEach((place, number) => place.replaceWith(alike[number]));
    return found;
}"""
FAULTS = """<html lang="en"><title>Faults</title><main><h1>A page</h1><p>Words
<span>alike</span> <span>alike</span> <span style="color: #999">weak</span> <span>alike</span></p>
<p style="opacity: 0.4"><span>behind</span> a veil</p><button></button>
<pre><span class="k">for</span> x</pre>
<pre><span class="k">in</span> <a href="#x"></a></pre></main>"""


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


def test_axe_notices_the_one_word_that_is_weak(browser: Any) -> None:
    """Also among words that are alike, and the page is the same afterwards."""
    page = browser.new_page()
    page.set_content(FAULTS)
    page.add_script_tag(content=axe())
    whole = page.content()
    unnamed, link, contrast = page.evaluate(RUN)
    assert unnamed == "button-name: <button></button>"
    assert link == 'link-name: <a href="#x"></a>'
    assert contrast.startswith('color-contrast: <span style="color: #999">weak</span>,<')
    assert "behind" in contrast
    assert "alike" not in contrast
    assert page.content() == whole
    page.close()
