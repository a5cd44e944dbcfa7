"""From a key or a click to new pixels: demos in JupyterLab in a headless Chromium.

The clock starts at the event itself and stops in the frame after the picture has changed.  Between
two moves there is a pause, so each one finds the page and the kernel at rest.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from browser import FLAGS, jupyterlab, opened, run_all  # noqa: E402

CELLS = (
    f"""import sys
sys.path.insert(0, {str(TESTS.parent)!r})
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
from labkit.blocks import LanguageModel
from classroom.demos import costs_demo, masking_demo, sampling_demo
from labkit.heads import MaskedWord, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world
world = load_world()
documents = [d for d in world.sample(documents=200, seed=0) if len(d) > 100]
tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
short = " ".join(documents[0].words[:20])
long = " ".join(d.text for d in documents)[:4000]
sizes = dict(width=64, layers=2, heads=2, context=512)
bert = BERT(BERTConfig(len(tokenizer), **sizes))
guesser = LanguageModel(bert, MaskedWord(bert.token, 64)).eval()
gpt = GPT(GPTConfig(len(tokenizer), **sizes))
writer = LanguageModel(gpt, NextWord(gpt.token)).eval()""",
    "one = masking_demo(short, tokenizer); one.add_class('case-short'); one",
    "two = masking_demo(short, tokenizer, model=guesser, world=world, start='document')\n"
    "two.add_class('case-exact'); two",
    "three = masking_demo(long, tokenizer); three.add_class('case-long'); three",
    "four = sampling_demo(writer, tokenizer, short, world=world)\n"
    "four.add_class('case-write'); four",
    "five = costs_demo(); five.add_class('case-costs'); five",
    """from classroom.tasks import instructions
from classroom.demos import alignment_demo
from classroom.demos.alignment import Asked
from classroom.models.shipped import trained
from labkit.alignment import policies
asked = instructions.questions()[:1]
[[before], [after]] = [policies(trained(n)[0], asked) for n in ("gpt-tuned", "gpt-rewarded")]
answers = [instructions.spoken(one) for one in asked[0].answers]
about = Asked(answers, asked[0].rewards, before, {"rewarded": after})
six = alignment_demo({"a question": about}); six.add_class("case-policies"); six""",
)
WATCH = """place => {
    window.unwatch?.();
    const found = window.found = [];
    const listening = new AbortController();
    let begun = null;
    const demo = document.querySelector(place);
    for (const kind of ['keydown', 'click', 'change']) {
        demo.addEventListener(kind, event => { begun ??= event.timeStamp; },
            {capture: true, signal: listening.signal});
    }
    const shown = () => {
        const at = begun;
        begun = null;
        if (at === null) return;
        requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = () => found.push(performance.now() - at);
            channel.port2.postMessage(0);
        });
    };
    const picture = demo.querySelector('.labkit-picture');
    const observer = new MutationObserver(shown);
    observer.observe(picture, {childList: true, subtree: true});
    window.unwatch = () => { listening.abort(); observer.disconnect(); };
}"""


class Case(NamedTuple):
    """One way to move one demo."""

    name: str
    demo: str
    move: Callable[[Any, int], None]


def slide(control: str, *, first: str = "Right", back: str = "Left") -> Callable[[Any, int], None]:
    """A slider, four steps one way and four steps back."""

    def move(demo: Any, turn: int) -> None:
        handle = demo.locator(f".labkit-{control} .noUi-handle")
        handle.press(f"Arrow{first if turn // 4 % 2 == 0 else back}")

    return move


def write(demo: Any, turn: int) -> None:
    """One more sign at the end: each is a token of its own."""
    box = demo.locator(".labkit-text textarea")
    if not turn:
        box.press("Control+End")
    box.press(".")


def click(button: str) -> Callable[[Any, int], None]:
    """A button."""
    return lambda demo, turn: demo.locator(f".labkit-{button}").click()


def choose(demo: Any, turn: int) -> None:
    """The objective."""
    names = ("spans", "permutation", "next word", "masked tokens")
    demo.locator(".labkit-objective select").select_option(names[turn % len(names)])


CASES = (
    Case("masking, share predicted", "short", slide("rate")),
    Case("masking, draw again", "short", click("draw-again")),
    Case("masking, another objective", "short", choose),
    Case("masking, a letter typed", "short", write),
    Case("masking, with model and exact distribution", "exact", slide("rate")),
    Case("masking, 512 tokens, share", "long", slide("rate")),
    Case("masking, 512 tokens, draw again", "long", click("draw-again")),
    Case("sampling, temperature", "write", slide("temperature")),
    Case("sampling, top-p", "write", slide("top-p", first="Left", back="Right")),
    Case("sampling, step", "write", click("step")),
    Case("costs, devices", "costs", slide("devices")),
    Case("costs, share of peak", "costs", slide("mfu")),
    Case("policies, beta", "policies", slide("beta")),
)


def measured(page: Any, case: Case, turns: int) -> list[float]:
    """Milliseconds from each move to the picture; the first two moves only warm up."""
    place = f".case-{case.demo}"
    demo = page.locator(place)
    demo.scroll_into_view_if_needed()
    page.evaluate(WATCH, place)
    for turn in range(turns + 2):
        case.move(demo, turn)
        page.wait_for_function("count => window.found.length > count", arg=turn, timeout=20_000)
        # Until the kernel has said that it is at rest, and a hand would move again.
        page.wait_for_timeout(120)
    return [float(one) for one in page.evaluate("() => window.found")][2 : turns + 2]


def latencies(turns: int) -> Iterator[tuple[str, list[float]]]:
    """All cases in one notebook, one after another; nothing where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    from classroom.cli.doctor import find_chromium

    path = find_chromium()
    if path is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="labkit-"))
    try:
        (folder / "notebooks").mkdir()
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(book, folder / "notebooks" / "bench.ipynb")
        with sync_playwright() as playwright, jupyterlab(folder / "notebooks", folder) as server:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            page = opened(browser, server, "bench.ipynb")
            assert run_all(page)
            page.wait_for_selector(".case-costs .labkit-view")
            for case in CASES:
                yield case.name, measured(page, case, turns)
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
