"""The pictures of the docs: demos in JupyterLab, a slide, and an output of each notebook.

    python -m tests.screenshots [start] [demos] [slide] [gallery]

Look at them before you commit them.
"""

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import sync_playwright

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))
DOCS = TESTS.parent / "docs"

from browser import FLAGS, jupyterlab, opened, run_all  # noqa: E402

from classroom.charts.style import small  # noqa: E402
from classroom.cli.doctor import find_chromium  # noqa: E402

SETUP = f"""import sys
sys.path.insert(0, {str(TESTS.parent)!r})
from classroom.demos import *
from classroom.demos import Masking
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world
import torch
from labkit.blocks import LanguageModel
from labkit.corpus import Windows, from_documents, tokenize
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer
torch.manual_seed(0)
world = load_world()
documents = [document.text for document in world.sample(words=60_000, seed=0)]
tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
backbone = GPT(GPTConfig(len(tokenizer), width=64, layers=2, heads=2, context=64))
model = LanguageModel(backbone, NextWord(backbone.token))
train = Windows(tokenize(from_documents(documents), tokenizer), batch=16, length=64)
for report in Trainer(model, NextToken(), train, Plan(steps=400, rate=3e-3)).run():
    pass
stories = (one for one in documents if ":" not in one)
text = " ".join(next(stories).split()[:16])"""
MASKING = "masking_demo(text, tokenizer, setting=Masking(rate=0.3, draw=3))"
ORDER = "masking_demo(text, tokenizer, setting=Masking(objective='permutation', rate=0.3))"
SAMPLING = (
    "writer = sampling_demo(model, tokenizer, ' '.join(text.split()[:7]), world=world,\n"
    "    settings=Sampling(temperature=0.8, top_k=20, top_p=0.9, length=5))\n"
    "writer.change(beams=3)\nwriter"
)
SLIDE = (
    "## What BERT sees, and what it must predict\n\n"
    "Of the words $\\mathcal{M}$ that are predicted, most become [MASK], some another word, some "
    "stay: $L = -\\frac{1}{|\\mathcal{M}|} \\sum_{t \\in \\mathcal{M}} \\log q(w_t \\mid "
    "\\tilde w_1 \\dots \\tilde w_T)$."
)
WIDE = {"width": 1180, "height": 760}
GALLERY = {
    "00_start_here": "e3d09584",
    "01_word_vectors": "8a0e6179",
    "02_elmo": "20a8e4f6",
    "03_ulmfit": "80dc1f85",
    "04_transformer": "transformer-71",
    "05_gpt": "gpt-81",
    "06_sampling_and_prompting": "a1f4d1e2",
    "07_instructions": "8a509faa",
    "08_bert": "6b694fb7",
    "09_bert_family": "3f71d8bf",
    "10_transformer_xl": "5c5a754f",
    "11_xlnet": "1f899b3e",
    "12_cost_tables": "d69f693a",
    "13_claims": "cell-17",
}
"""The cell of each notebook whose output docs/gallery.md shows."""
TALLEST = 480


def notebook(path: Path, *cells: Any) -> None:
    """Write a notebook of these cells."""
    book = nbformat.v4.new_notebook(cells=list(cells))
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, path)


def start(browser: Any, folder: Path) -> None:
    """The first notebook in JupyterLab, at its first picture."""
    (folder / "course").mkdir()
    book = "00_start_here.ipynb"
    shutil.copy(TESTS.parent / "notebooks" / book, folder / "course")
    cells = nbformat.read(folder / "course" / book, as_version=4).cells
    place = next(i for i, cell in enumerate(cells) if "axes.semilogx(sizes, losses" in cell.source)
    with jupyterlab(folder / "course", folder) as server:
        page = opened(browser, server, book)
        page.set_viewport_size({"width": 1100, "height": 800})
        page.evaluate("i => jupyterapp.shell.currentWidget.content.scrollToItem(i, 'end')", place)
        page.wait_for_timeout(2500)
        page.screenshot(path=DOCS / "start.png")
        page.close()


def demos(browser: Any, folder: Path) -> None:
    """Two demos in JupyterLab, the second one in the dark."""
    (folder / "books").mkdir()
    code = nbformat.v4.new_code_cell
    notebook(folder / "books" / "demos.ipynb", *map(code, (SETUP, ORDER, SAMPLING)))
    with jupyterlab(folder / "books", folder) as server:
        page = opened(browser, server, "demos.ipynb")
        page.set_viewport_size({"width": 1250, "height": 1500})
        assert run_all(page)
        page.wait_for_selector(".labkit-sampling .labkit-view")
        page.wait_for_timeout(1500)
        page.locator(".labkit-masking").screenshot(path=DOCS / "masking.png")
        page.evaluate("() => { jupyterapp.commands.execute('apputils:change-theme', "
                      "{theme: 'JupyterLab Dark'}); }")  # fmt: skip
        page.wait_for_selector("body[data-jp-theme-light='false']", state="attached")
        page.wait_for_timeout(1500)
        page.locator(".labkit-sampling").screenshot(path=DOCS / "sampling.png")
        page.close()


@contextmanager
def lecture(book: Path) -> Iterator[str]:
    """Serve the slides of a notebook; give their link."""
    words = [sys.executable, "-m", "labkit", "lecture", str(book), "--no-browser"]
    with subprocess.Popen(
        words, cwd=TESTS.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            lines = iter(server.stdout)
            yield next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)


def slide(browser: Any, folder: Path) -> None:
    """A slide with a live demo."""
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    notebook(folder / "talk.ipynb", text("# BERT"), code(SETUP), text(SLIDE), code(MASKING))
    with lecture(folder / "talk.ipynb") as link:
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(180_000)
        page.goto(link)
        page.wait_for_selector(".lecture-bar")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".labkit-masking .labkit-view")
        page.wait_for_timeout(1500)
        page.screenshot(path=DOCS / "lecture.png")
        page.close()


def gallery(browser: Any, folder: Path) -> None:
    """An output of each notebook, as the pages of the site show it."""
    written = folder / "site"
    words = [sys.executable, "-m", "labkit", "site", "--output", str(written)]
    subprocess.run(words, cwd=TESTS.parent, check=True, stdout=subprocess.DEVNULL)
    (DOCS / "gallery").mkdir(exist_ok=True)
    page = browser.new_page(viewport={"width": 820, "height": 900})
    for name, cell in GALLERY.items():
        page.goto((written / f"{name}.html").as_uri())
        page.add_style_tag(content=".jp-OutputPrompt { display: none }")
        page.wait_for_timeout(500)
        shown = page.locator(f"[id='cell-id={cell}'] .jp-Cell-outputWrapper .jp-OutputArea-output")
        whole = Image.open(io.BytesIO(shown.first.screenshot()))
        part = whole.crop((0, 0, whole.width, min(whole.height, TALLEST)))
        (DOCS / "gallery" / f"{name}.png").write_bytes(small(part.convert("RGBA")))
    page.close()


PICTURES = {"start": start, "demos": demos, "slide": slide, "gallery": gallery}


def main() -> None:
    """Draw the pictures that are named anew, or all."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the docs.")
    parser.add_argument("which", nargs="*", choices=[*PICTURES, []], help="[all]")
    asked = parser.parse_args().which or PICTURES
    path = find_chromium()
    assert path is not None, "no Chromium on the PATH"
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        for one in asked:
            PICTURES[one](browser, Path(name))
        browser.close()
    for picture in sorted(DOCS.rglob("*.png")):
        print(f"{picture.relative_to(DOCS.parent)}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
