"""Demos in JupyterLab, moved by keyboard and by mouse: the page shows what the function says."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
import torch
from browser import jupyterlab, opened, run_all

from labkit.blocks import LanguageModel
from labkit.demos import Masking, View, masking_view, sampling_view
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling, sample
from labkit.tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
TEXT = "The cat sat on the mat. Then the <b>dog</b> came in & barked!"
PROMPT = "The cat"
# The same lines run in the notebook and here.
SETUP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling
from labkit.tokenizers import Tokenizer
torch.manual_seed(0)
torch.set_num_threads(1)
tokenizer = Tokenizer.words([{TEXT!r}])
backbone = GPT(GPTConfig(len(tokenizer), width=16, layers=2, heads=2, context=64))
model = LanguageModel(backbone, NextWord(backbone.token)).eval()
"""
CELLS = (
    SETUP,
    f"from labkit.demos import masking_demo\nmasking_demo(text={TEXT!r}, tokenizer=tokenizer)",
    "from labkit.demos import sampling_demo\n"
    f"sampling_demo(model, tokenizer, {PROMPT!r}, settings=Sampling(length=5))",
)
# Wait until the picture has been the same for so long: the first change may be a frame between.
STILL = """async ([selector, before]) => {
    const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    let last = null, since = 0;
    for (const start = Date.now(); Date.now() - start < 60000;) {
        const now = document.querySelector(selector).innerText;
        if (now !== last || kernel.status !== 'idle') { last = now; since = Date.now(); }
        if (now !== before && Date.now() - since > 400) return now;
        await new Promise(done => setTimeout(done, 50));
    }
    throw new Error('the picture did not change');
}"""

pytestmark = pytest.mark.browser


class Opened(NamedTuple):
    """A notebook that has run, and what went wrong in its page."""

    page: Any
    errors: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def notebook(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    state = tmp_path_factory.mktemp("demos")
    (state / "notebooks").mkdir()
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    # Without a name the page asks which kernel is meant, and waits for an answer.
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, state / "notebooks" / "demos.ipynb")
    with jupyterlab(state / "notebooks", state) as server:
        page = opened(browser, server, "demos.ipynb")
        seen = Opened(page, [], [])
        # High enough for a whole demo, so that its picture is whole.
        page.set_viewport_size({"width": 1280, "height": 1600})
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        assert run_all(page)
        page.wait_for_selector(".labkit-sampling .labkit-view")
        ARTIFACTS.mkdir(exist_ok=True)
        yield seen


def still(page: Any, demo: str, before: str = "") -> None:
    """Wait until a demo shows something other than before, and has stopped to change."""
    page.evaluate(STILL, [f".labkit-{demo} .labkit-view", before])


def shown(page: Any, demo: str) -> str:
    """The text of a demo as the page shows it."""
    return str(page.locator(f".labkit-{demo} .labkit-view").inner_text())


class Words(HTMLParser):
    """The words of HTML, whatever the layout."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def same(page: Any, demo: str, view: View) -> bool:
    """Whether the page shows the words of a view, in their order, and its elements."""
    html = str(page.locator(f".labkit-{demo} .labkit-picture .labkit-view").inner_html())
    wanted = view.html[view.html.index(">") + 1 :]
    counts = all(
        html.count(mark) == wanted.count(mark) for mark in ("<tr", "<td", "<svg", "<path", "<bdi")
    )
    return Words(html).words == Words(wanted).words and counts


def press(page: Any, demo: str, control: str, key: str, times: int) -> None:
    """Move a slider from the keyboard, a step at a time."""
    place = f".labkit-{demo} .labkit-{control}"
    page.locator(f"{place} .noUi-handle").focus()
    for _ in range(times):
        # What is written beside it; the handle's own number is rounded to one digit.
        before = page.locator(f"{place} .widget-readout").inner_text()
        page.keyboard.press(key)
        page.wait_for_function(
            "([place, before]) => document.querySelector(place).innerText !== before",
            arg=[f"{place} .widget-readout", before],
            timeout=20_000,
        )


def toy() -> tuple[Tokenizer, LanguageModel]:
    """The tokenizer and the model of the notebook."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.words([TEXT])
    backbone = GPT(GPTConfig(len(tokenizer), width=16, layers=2, heads=2, context=64))
    return tokenizer, LanguageModel(backbone, NextWord(backbone.token)).eval()


def test_masking_by_keyboard_and_mouse(notebook: Opened) -> None:
    page, (tokenizer, _) = notebook.page, toy()
    assert same(page, "masking", masking_view(TEXT, Masking(), tokenizer))
    before = shown(page, "masking")
    press(page, "masking", "rate", "ArrowRight", 3)
    still(page, "masking", before)
    assert same(page, "masking", masking_view(TEXT, Masking(rate=0.3), tokenizer))
    before = shown(page, "masking")
    page.locator(".labkit-masking .labkit-draw-again").click()
    still(page, "masking", before)
    assert same(page, "masking", masking_view(TEXT, Masking(rate=0.3, draw=1), tokenizer))
    before = shown(page, "masking")
    page.locator(".labkit-masking .labkit-objective select").select_option("permutation")
    still(page, "masking", before)
    asked = Masking(objective="permutation", rate=0.3, draw=1)
    assert same(page, "masking", masking_view(TEXT, asked, tokenizer))
    page.locator(".labkit-masking").screenshot(path=ARTIFACTS / "masking.png")


def test_what_is_typed_is_shown_and_never_run(notebook: Opened) -> None:
    page, (tokenizer, _) = notebook.page, toy()
    box = page.locator(".labkit-masking .labkit-text textarea")
    hostile = '<img src=x onerror="window.ran = 1"> the <script>window.ran = 1</script> שלום 😀 cat'
    before = shown(page, "masking")
    box.fill(hostile)
    still(page, "masking", before)
    box.press("Tab")
    asked = Masking(objective="permutation", rate=0.3, draw=1)
    assert same(page, "masking", masking_view(hostile, asked, tokenizer))
    assert page.evaluate("() => window.ran") is None
    assert page.locator(".labkit-masking .labkit-view img").count() == 0


def test_sampling_by_keyboard_and_mouse(notebook: Opened) -> None:
    page, (tokenizer, model) = notebook.page, toy()
    assert same(page, "sampling", sampling_view(PROMPT, [], Sampling(), model, tokenizer))
    before = shown(page, "sampling")
    press(page, "sampling", "temperature", "ArrowLeft", 4)
    press(page, "sampling", "top-k", "ArrowRight", 5)
    still(page, "sampling", before)
    settings = Sampling(temperature=0.8, top_k=5, length=5)
    assert same(page, "sampling", sampling_view(PROMPT, [], settings, model, tokenizer))
    before = shown(page, "sampling")
    page.locator(".labkit-sampling .labkit-run").click()
    still(page, "sampling", before)
    begin = tokenizer.vocabulary.sep or 0
    asked = [begin, *tokenizer.encode(PROMPT)]
    stopped = Sampling(temperature=0.8, top_k=5, length=5, stop=(begin,))
    new = sample(model, [asked], stopped)[0][0].tokens
    assert same(page, "sampling", sampling_view(PROMPT, new, settings, model, tokenizer))
    page.locator(".labkit-sampling").screenshot(path=ARTIFACTS / "sampling.png")
    before = shown(page, "sampling")
    page.locator(".labkit-sampling .labkit-undo").focus()
    page.keyboard.press("Enter")
    still(page, "sampling", before)
    assert same(page, "sampling", sampling_view(PROMPT, [], settings, model, tokenizer))


CONTRAST = """() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const colour = numbers(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const element of document.querySelectorAll('.labkit-view, .labkit-view *')) {
        const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
        if (!own) continue;
        const style = getComputedStyle(element), behind = ground(element);
        const colour = element instanceof SVGElement ? style.fill : style.color;
        const [r, g, b, alpha = 1] = numbers(colour);
        const ink = [r, g, b].map((c, i) => c * alpha + behind[i] * (1 - alpha));
        const [low, high] = [light(ink), light(behind)].sort((a, b) => a - b);
        found.push((high + 0.05) / (low + 0.05));
    }
    return [found.length, Math.min(...found)];
}"""


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_all_text_is_readable_in_both_themes(notebook: Opened, theme: str) -> None:
    page = notebook.page
    # The promise is not waited for: what counts is what the page looks like.
    page.evaluate(
        "theme => { jupyterapp.commands.execute('apputils:change-theme', {theme}); }", theme
    )
    light = "false" if "Dark" in theme else "true"
    page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached", timeout=30_000)
    page.wait_for_timeout(500)
    count, worst = page.evaluate(CONTRAST)
    assert count > 50
    assert worst >= 4.5
    name = theme.split()[-1].lower()
    page.locator(".labkit-sampling").screenshot(path=ARTIFACTS / f"sampling-{name}.png")
    page.locator(".labkit-masking").screenshot(path=ARTIFACTS / f"masking-{name}.png")


def test_nothing_raised_and_nothing_was_fetched_from_elsewhere(notebook: Opened) -> None:
    # The last test of the file: what happened in all of those before.
    assert notebook.errors == []
    outside = [url for url in notebook.requests
               if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))]  # fmt: skip
    assert notebook.requests
    assert outside == []
