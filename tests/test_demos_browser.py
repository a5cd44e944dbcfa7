"""Demos in JupyterLab, moved by keyboard and by mouse: the page shows what the function says."""

import io
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
import torch
from browser import READY, Server, jupyterlab, opened, run_all
from PIL import Image
from test_accessibility import RUN, axe

from classroom.demos import Masking, View, masking_view, orders_view, sampling_view
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
TEXT = "The cat sat on the mat. Then the <b>dog</b> came in & barked!"
PROMPT = "The cat"
# The same lines run in the notebook and here.
SETUP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
from classroom import demos
from labkit.blocks import LanguageModel
from classroom.demos import *
from classroom.demos.senses import reader
from labkit.heads import NextWord
from classroom.ledger import Arm, Finding, Seen
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import NextToken
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world
torch.set_num_threads(1)
tokenizer = Tokenizer.words([{TEXT!r}])
torch.manual_seed(0)
backbone = GPT(GPTConfig(len(tokenizer), width=16, layers=2, heads=2, context=64))
model = LanguageModel(backbone, NextWord(backbone.token)).eval()
torch.manual_seed(1)
other = XLNet(XLNetConfig(len(tokenizer), width=16, layers=2, heads=3 + 1, memory=4))
xlnet = LanguageModel(other, NextWord(other.token)).eval()
vectors = torch.randn(len(tokenizer), 8)
probes = [torch.nn.Linear(16, 2).requires_grad_(False) for _ in range(3)]
world = load_world()
said = " ".join(world.sample(documents=1, seed=1)[0].words[:6])
points = [demos.training.Point(n, 5.0 / n, 1e-3, 2.0) for n in range(1, 30)]
def claim(name, verdict):
    arms = {{"with": Arm(0.8, 0.75, 0.85, [0.8], 0.9), "without": Arm(0.5, 0.4, 0.6, [0.5])}}
    seen = Seen("more with", 0.3, 0.2, 0.4, 0.0, None, verdict)
    return Finding(name, "It helps <b>a lot</b>.", "lecture 3", "03", "accuracy", "laptop", [0],
                   verdict, arms, [seen], 3.0)
findings = [claim("helps", "holds"), claim("hurts", "not significant")]
from classroom.models.shipped import trained
translator, _ = trained("translation")
sentence = "the bank of paris was light"
p, rewards = torch.tensor([0.5, 0.3, 0.2]).numpy(), torch.tensor([0.0, 1.0, -1.0]).numpy()
policies = {{"RLOO": p[[1, 0, 2]], "DPO": p[[2, 1, 0]]}}
asked = demos.alignment.Asked(["in oslo .", "in <b> ."], rewards, p, policies)
"""
SHOWN = {
    "masking": f"masking_demo(text={TEXT!r}, tokenizer=tokenizer)",
    "sampling": f"sampling_demo(model, tokenizer, {PROMPT!r}, settings=Sampling(length=5))",
    "orders": "orders_demo('New York is a city', '2 1 3 5 4')",
    "floors": "floors_demo(world, said)",
    "attention": "attention_demo(xlnet, tokenizer, 'the cat sat', before='the dog came')",
    "costs": "costs_demo('GPT-3 175B', 'a100')",
    "vectors": "vectors_demo(vectors, tokenizer, 'cat', 'cat dog mat')",
    "leaks": "leaks_demo(model, NextToken(), tokenizer, 'The cat sat')",
    "training": "live = training_demo(floor=0.1)\nlive.points += points\nlive.refresh()\nlive",
    "masks": f"masks_demo({TEXT!r}, tokenizer)",
    "memory-reach": "reach_demo()",
    "schedule": "schedule_demo()",
    "senses": "senses_demo(model, tokenizer, probes, ['a', 'b'], ['the cat sat', 'a cat'], 'cat')",
    "translation": "translation_demo(translator, sentence)",
    "alignment": "alignment_demo({'where?': asked}, beta=0.5)",
    "ledger": "ledger_demo(findings)",
}
CHART = """from classroom.charts.style import chart, lowest
figure, axes = chart(says='The loss falls.')
axes.plot([3, 2, 1.5], label='trained')
lowest(axes, 1.0)
axes.legend()
figure"""
CELLS = (SETUP, *SHOWN.values(), CHART)
# A small notebook of the same server, to be loaded again.
SMALL = (f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom classroom.demos import reach_demo",
         "reach_demo()")  # fmt: skip
# The masking demo without a model: the language alone knows what is likely.
EXACT = (f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from classroom.demos import Masking, masking_demo
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world
world = load_world("village")
tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])""",
         "masking_demo(text='she saw a wave near the boat .', tokenizer=tokenizer, world=world, "
         "setting=Masking(rate=0.5))")  # fmt: skip
LESSON = ROOT / "notebooks" / "08_bert.ipynb"
# Wait until nothing has changed for so long: the first change may be a frame between. To ask for
# the text again and again, which is laid out each time, would keep the browser busy.
STILL = """async ([selector, before]) => {
    const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    let since = Date.now();
    const seen = new MutationObserver(() => { since = Date.now(); });
    seen.observe(jupyterapp.shell.currentWidget.node,
                 { subtree: true, childList: true, characterData: true });
    for (const start = since; Date.now() - start < 60000;) {
        if (kernel.status !== 'idle') since = Date.now();
        if (Date.now() - since > 400) {
            const now = document.querySelector(selector).innerText;
            if (now !== before) { seen.disconnect(); return now; }
        }
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
    server: Server
    folder: Path


@pytest.fixture(scope="module")
def notebook(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    state = tmp_path_factory.mktemp("demos")
    (state / "notebooks").mkdir()
    for name, cells in (("demos", CELLS), ("small", SMALL), ("exact", EXACT)):
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        # Without a name the page asks which kernel is meant, and waits for an answer.
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(book, state / "notebooks" / f"{name}.ipynb")
    shutil.copy(LESSON, state / "notebooks")
    with jupyterlab(state / "notebooks", state) as server:
        page = opened(browser, server, "demos.ipynb")
        seen = Opened(page, [], [], server, state / "notebooks")
        # High enough for a whole demo, so that its picture is whole.
        page.set_viewport_size({"width": 1280, "height": 1600})
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        assert run_all(page)
        page.wait_for_selector(".labkit-ledger .labkit-view")
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


def click(page: Any, demo: str, number: int) -> None:
    """Click a word of a demo, and wait until the demo has answered."""
    before = shown(page, demo)
    page.locator(f".labkit-{demo} .labkit-words button").nth(number).click()
    still(page, demo, before)


def test_a_word_that_is_clicked_is_hidden_and_comes_back(notebook: Opened) -> None:
    page, (tokenizer, _) = notebook.page, toy()
    plain = masking_view(TEXT, Masking(), tokenizer)
    assert same(page, "masking", plain)
    assert plain.clickable is not None
    _, position = plain.clickable.choices[2]
    clicked = masking_view(TEXT, Masking(clicked=(position,)), tokenizer)
    assert clicked.text != plain.text
    for wanted in (clicked, plain):
        click(page, "masking", 2)
        assert same(page, "masking", wanted)


def test_a_word_that_is_clicked_is_written_and_undone(notebook: Opened) -> None:
    page, (tokenizer, model) = notebook.page, toy()
    plain = sampling_view(PROMPT, [], Sampling(), model, tokenizer)
    assert same(page, "sampling", plain)
    assert plain.clickable is not None
    _, word = plain.clickable.choices[1]
    click(page, "sampling", 1)
    assert same(page, "sampling", sampling_view(PROMPT, [word], Sampling(), model, tokenizer))
    before = shown(page, "sampling")
    page.locator(".labkit-sampling .labkit-undo").click()
    still(page, "sampling", before)
    assert same(page, "sampling", plain)


def test_words_are_chosen_from_the_keyboard_one_after_another(notebook: Opened) -> None:
    page, (tokenizer, model) = notebook.page, toy()
    new: list[int] = []
    page.locator(".labkit-sampling .labkit-words button").nth(1).focus()
    for _ in range(2):
        table = sampling_view(PROMPT, new, Sampling(), model, tokenizer).clickable
        assert table is not None
        new.append(table.choices[1][1])
        before = shown(page, "sampling")
        page.keyboard.press("Enter")
        still(page, "sampling", before)
        assert same(page, "sampling", sampling_view(PROMPT, new, Sampling(), model, tokenizer))
    page.evaluate("document.activeElement.blur()")
    before = shown(page, "sampling")
    page.locator(".labkit-sampling .labkit-reset").click()
    still(page, "sampling", before)
    assert page.evaluate("document.activeElement.className").endswith("labkit-reset")


SEEN = """cells => cells.filter(cell => cell.textContent).map(cell => {
    const range = document.createRange(), cut = cell.getBoundingClientRect();
    range.selectNodeContents(cell.lastChild);
    const word = range.getBoundingClientRect();
    if (word.top >= cut.bottom - 1) return 'not seen';
    return word.right <= cut.right + 1 ? 'whole' : 'cut';
})"""


def test_a_word_of_the_bar_is_seen_whole_or_not_at_all(notebook: Opened) -> None:
    cells = notebook.page.locator(".labkit-sampling [data-lot] [style*=flex] > [title]")
    assert set(cells.evaluate_all(SEEN)) == {"whole", "not seen"}


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
    assert not page.locator(".labkit-masking .labkit-words").is_visible(), "none can be clicked"
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


# ---- every other demo ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """What the first cell of the notebook makes, made here."""
    names: dict[str, Any] = {}
    exec(compile(SETUP, "setup", "exec"), names)
    return names


def typed(control: str, text: str) -> Callable[[Any, str], None]:
    """Write into a text box from the keyboard."""

    def act(page: Any, demo: str) -> None:
        box = page.locator(f".labkit-{demo} .labkit-{control} textarea")
        box.focus()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)

    return act


def key(control: str, name: str, times: int = 1) -> Callable[[Any, str], None]:
    """Press a key on a slider."""
    return lambda page, demo: press(page, demo, control, name, times)


def end(control: str) -> Callable[[Any, str], None]:
    """Click on the right end of a slider."""

    def act(page: Any, demo: str) -> None:
        bar = page.locator(f".labkit-{demo} .labkit-{control} .noUi-base")
        bar.scroll_into_view_if_needed()
        box = bar.bounding_box()
        page.mouse.click(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)

    return act


def take(control: str, name: str) -> Callable[[Any, str], None]:
    """Choose from a list."""

    def act(page: Any, demo: str) -> None:
        page.locator(f".labkit-{demo} .labkit-{control} select").select_option(name)

    return act


def clicked(control: str, text: str) -> Callable[[Any, str], None]:
    """Point at a text box and write at its end."""

    def act(page: Any, demo: str) -> None:
        page.locator(f".labkit-{demo} .labkit-{control} textarea").click()
        page.keyboard.press("Control+End")
        page.keyboard.insert_text(text)

    return act


def forced(names: dict[str, Any], step: int, number: int) -> str:
    """The beginning of a translation whose last word was clicked at a step."""
    view = names["translation_view"](
        names["sentence"], "", names["translator"], names["demos"].translation.Asked(step)
    )
    table, chips = view.clickable, [piece for piece in view.pieces if piece.kind == "chips"]
    before = [chip.token for chip in chips[1].chips[: step - 1]]
    return " ".join([*before, table.choices[number][0]])


class Moves(NamedTuple):
    """What a demo shows at first, after a move of the keyboard, and after one of the mouse too."""

    first: str
    by_key: Callable[[Any, str], None]
    then: str
    by_mouse: Callable[[Any, str], None]
    at_last: str


def chosen(number: int) -> Callable[[Any, str], None]:
    """Click one of the words that are offered."""

    def act(page: Any, demo: str) -> None:
        page.locator(f".labkit-{demo} .labkit-words button").nth(number).click()

    return act


MOVES = {
    "translation": Moves(
        "translation_view(sentence, '', translator, demos.translation.Asked())",
        key("step", "ArrowRight"),
        "translation_view(sentence, '', translator, demos.translation.Asked(2))", chosen(1),
        "translation_view(sentence, forced(2, 1), translator, demos.translation.Asked(3))",
    ),
    "alignment": Moves(
        "alignment_view(asked, 0.5, 'RLOO', demos.alignment.line(asked))",
        key("beta", "ArrowRight", 2),
        "alignment_view(asked, 0.6, 'RLOO', demos.alignment.line(asked))", take("policy", "DPO"),
        "alignment_view(asked, 0.6, 'DPO', demos.alignment.line(asked))",
    ),
    "floors": Moves(
        "floors_view(said, 2, world)", key("reach", "ArrowRight", 2),
        "floors_view(said, 4, world)", end("reach"), "floors_view(said, 12, world)",
    ),
    "attention": Moves(
        "attention_view('the cat sat', 1, 1, xlnet, tokenizer, Asked('the dog came'))",
        key("layer", "ArrowRight"),
        "attention_view('the cat sat', 2, 1, xlnet, tokenizer, Asked('the dog came'))",
        take("stream", "query stream"),
        "attention_view('the cat sat', 2, 1, xlnet, tokenizer, "
        "Asked('the dog came', 'query stream'))",
    ),
    "costs": Moves(
        "costs_view('GPT-3 175B', 'a100', 1024)", key("devices", "ArrowLeft", 2),
        "costs_view('GPT-3 175B', 'a100', 256)", end("mfu"),
        "costs_view('GPT-3 175B', 'a100', 256, 1.0)",
    ),
    "vectors": Moves(
        "vectors_view('cat', 'cat dog mat', vectors, tokenizer)", typed("word", "dog"),
        "vectors_view('dog', 'cat dog mat', vectors, tokenizer)", clicked("question", "x"),
        "vectors_view('dog', 'cat dog matx', vectors, tokenizer)",
    ),
    "leaks": Moves(
        "leaks_view('The cat sat', model, NextToken(), tokenizer)", typed("text", "The cat"),
        "leaks_view('The cat', model, NextToken(), tokenizer)", clicked("text", " sat on"),
        "leaks_view('The cat sat on', model, NextToken(), tokenizer)",
    ),
    "masks": Moves(
        f"masks_view({TEXT!r}, 10, 0.15, 1, tokenizer)", key("epochs", "ArrowRight", 3),
        f"masks_view({TEXT!r}, 13, 0.15, 1, tokenizer)", end("copies"),
        f"masks_view({TEXT!r}, 13, 0.15, 10, tokenizer)",
    ),
    "memory-reach": Moves(
        "reach_view(4, 4, 3, 5, 4)", key("memory", "ArrowLeft", 2), "reach_view(4, 2, 3, 5, 4)",
        end("layers"), "reach_view(4, 2, 6, 5, 4)",
    ),
    "schedule": Moves(
        "schedule_view(0, 400, 'slanted_triangle', 3, 2.6, 60)", key("layers", "ArrowRight", 1),
        "schedule_view(0, 400, 'slanted_triangle', 4, 2.6, 60)", end("factor"),
        "schedule_view(0, 400, 'slanted_triangle', 4, 5.0, 60)",
    ),
    "senses": Moves(
        "senses_view(['the cat sat', 'a cat'], 'cat', reader(model, tokenizer), probes, "
        "['a', 'b'])",
        typed("second", "the dog & the cat"),
        "senses_view(['the cat sat', 'the dog & the cat'], 'cat', reader(model, tokenizer), probes,"
        " ['a', 'b'])",
        clicked("first", " dog"),
        "senses_view(['the cat sat dog', 'the dog & the cat'], 'cat', reader(model, tokenizer), "
        "probes, ['a', 'b'])",
    ),
    "ledger": Moves(
        "ledger_view(findings)", take("verdict", "holds"),
        "ledger_view(findings, verdict='holds')", take("claim", "helps"),
        "ledger_view(findings, verdict='holds', claim='helps')",
    ),
}  # fmt: skip


@pytest.mark.parametrize("demo", MOVES)
def test_a_demo_follows_keyboard_and_mouse(
    notebook: Opened, here: dict[str, Any], demo: str
) -> None:
    page, moves = notebook.page, MOVES[demo]
    here["Asked"] = here["demos"].attention.Asked
    here["forced"] = lambda step, n: forced(here, step, n)
    page.locator(f".labkit-{demo}").scroll_into_view_if_needed()
    assert same(page, demo, eval(moves.first, here))
    for act, wanted in ((moves.by_key, moves.then), (moves.by_mouse, moves.at_last)):
        before = shown(page, demo)
        act(page, demo)
        still(page, demo, before)
        assert same(page, demo, eval(wanted, here))
    page.locator(f".labkit-{demo}").screenshot(path=ARTIFACTS / f"{demo}.png")


def test_training_is_drawn(notebook: Opened, here: dict[str, Any]) -> None:
    assert same(notebook.page, "training", here["training_view"](here["points"], 0.1))


DRAGS = """() => {
    window.drags = [];
    for (const name of ['dragstart', 'dragover']) {
        const note = event => window.drags.push(`${name} ${event.target.innerText}`);
        document.addEventListener(name, note, true);
    }
}"""


def dragged(page: Any, word: Any, onto: Any) -> None:
    """Drag a word onto another by mouse: a busy browser does not notice every move."""
    page.evaluate(DRAGS)
    word.hover()
    page.mouse.down()
    for event, over in (("dragstart", word), ("dragover", onto)):
        noticed = f"{event} {over.inner_text()}"
        for x in (3, 6) * 50:
            over.hover(position={"x": x, "y": 5})
            if noticed in page.evaluate("window.drags"):
                break
            page.wait_for_timeout(20)
        assert noticed in page.evaluate("window.drags")
    page.mouse.up()


def test_an_order_is_dragged_by_mouse_and_moved_by_keyboard(notebook: Opened) -> None:
    page = notebook.page
    page.locator(".labkit-orders").scroll_into_view_if_needed()
    text = "New York is a city"
    assert same(page, "orders", orders_view(text, "2 1 3 5 4"))
    tags = page.locator(".labkit-orders .labkit-drag [draggable=true]")
    assert tags.count() == 5
    before = shown(page, "orders")
    dragged(page, tags.nth(4), tags.nth(0))
    still(page, "orders", before)
    assert same(page, "orders", orders_view(text, "4 2 1 3 5"))
    before = shown(page, "orders")
    chosen = page.locator(".labkit-orders .labkit-chosen select")
    chosen.focus()
    page.keyboard.press("End")
    # The next thing that Tab reaches is the button that moves the word.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    still(page, "orders", before)
    assert same(page, "orders", orders_view(text, "4 2 1 5 3"))
    page.locator(".labkit-orders").screenshot(path=ARTIFACTS / "orders.png")


def test_nobody_is_asked_about_news_of_jupyter(notebook: Opened) -> None:
    assert notebook.page.get_by_text("official Jupyter news").count() == 0


def test_the_keys_of_a_list_are_no_commands_of_the_notebook(notebook: Opened) -> None:
    page = notebook.page
    chosen = page.locator(".labkit-masking select").first
    chosen.scroll_into_view_if_needed()
    before = chosen.input_value()
    chosen.focus()
    page.keyboard.press("ArrowDown")
    after = chosen.input_value()
    assert after != before
    page.keyboard.press("x")  # cuts a cell, where it is a command
    assert chosen.input_value() == after
    page.keyboard.press("ArrowUp")
    assert chosen.input_value() == before
    assert chosen.evaluate("select => select === document.activeElement")


HOSTILE = {
    "script": "<img src=x onerror=window.ran=1> <script>window.ran = 1</script> </div></table>",
    "quotes": "\"double\" 'single' &amp; &lt;b&gt; \\\\ $x^2$",
    "right to left": "שלום עולם مرحبا 😀 👩‍👩‍👧",
    "long": "x" * 10_000,
    "empty": "",
    "plain, as before": "the cat",
}
WIDER = """demo => {
    const view = document.querySelector(`.labkit-${demo} .labkit-view`);
    const cell = view.closest('.jp-OutputArea-output');
    return view.getBoundingClientRect().right - cell.getBoundingClientRect().right;
}"""
TEXTS = ("masking", "sampling", "orders", "floors", "attention", "vectors", "leaks", "masks",
         "senses")  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_shown_and_breaks_nothing(notebook: Opened, kind: str) -> None:
    page = notebook.page
    for demo in TEXTS:
        boxes = page.locator(f".labkit-{demo} textarea")
        for place in range(boxes.count()):
            boxes.nth(place).fill(HOSTILE[kind])
    # One wait for all of them: until nothing of the notebook moves, and its kernel rests.
    page.evaluate(STILL, [".jp-NotebookPanel", ""])
    for demo in TEXTS:
        assert page.locator(f".labkit-{demo} .labkit-view :is(img, script, a)").count() == 0
        assert page.evaluate(WIDER, demo) <= 1, demo
    assert page.evaluate("() => window.ran") is None
    assert page.locator(".jp-OutputArea-output[data-mime-type$='stderr']").count() == 0


NAMED = """demo => {
    const root = document.querySelector(`.labkit-${demo}`);
    const able = [...root.querySelectorAll('textarea, select, button, .noUi-handle')]
        .filter(element => element.offsetParent);
    return able.map(element => {
        const box = element.closest('.widget-inline-hbox') ?? element;
        const label = box.querySelector('.widget-label')?.innerText ?? element.innerText;
        return [element.className + element.tagName, label.trim(), element.tabIndex >= 0];
    });
}"""
REACHED = """() => {
    const on = document.activeElement;
    const able = [...document.querySelectorAll(
        'textarea, select, button, .noUi-handle')].filter(e => e.closest('[class*=labkit-]'));
    return able.indexOf(on);
}"""


@pytest.mark.parametrize("demo", [demo for demo in SHOWN if demo != "training"])
def test_every_control_has_a_label_and_tab_reaches_it(notebook: Opened, demo: str) -> None:
    page = notebook.page
    named = page.evaluate(NAMED, demo)
    assert named
    for element, label, can in named:
        assert label, f"{element} has no label"
        assert can, f"Tab does not reach {label}"
    page.locator(f".labkit-{demo} :is(textarea, select, .noUi-handle)").first.focus()
    reached = {page.evaluate(REACHED)}
    for _ in range(2 * len(named)):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(REACHED))
    assert len(reached - {-1}) >= len(named)


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
        // A square of a mask is a picture: its sign is for those who see no styles.
        if (!own || element.closest('[data-grid] td')) continue;
        const style = getComputedStyle(element), behind = ground(element);
        const colour = element instanceof SVGElement ? style.fill : style.color;
        const [r, g, b, alpha = 1] = numbers(colour);
        const ink = [r, g, b].map((c, i) => c * alpha + behind[i] * (1 - alpha));
        const [low, high] = [light(ink), light(behind)].sort((a, b) => a - b);
        found.push((high + 0.05) / (low + 0.05));
    }
    return [found.length, Math.min(...found)];
}"""


def contrast_of(png: bytes) -> float:
    """The contrast of the letters of a chart to the page behind it, which shines through."""

    def light(colour: tuple[int, ...]) -> float:
        parts = [part / 255 for part in colour[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # The page is the most frequent colour, the letters are the next grey one.
    counted = sorted(picture.getcolors(picture.width * picture.height) or [], reverse=True)
    page = counted[0][1]
    ink = next(c for _, c in counted[1:] if max(c) - min(c) < 8 and abs(c[0] - page[0]) > 60)
    low, high = sorted((light(page), light(ink)))
    return (high + 0.05) / (low + 0.05)


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
    assert contrast_of(page.locator(".jp-RenderedImage img").last.screenshot()) >= 4
    name = theme.split()[-1].lower()
    for demo in SHOWN:
        page.locator(f".labkit-{demo}").screenshot(path=ARTIFACTS / f"{demo}-{name}.png")


def test_a_square_shows_its_number_and_a_row_its_bars_under_the_pointer(notebook: Opened) -> None:
    page = notebook.page
    page.locator(".labkit-attention .labkit-reset").click()
    page.evaluate(STILL, [".labkit-attention .labkit-view", ""])
    squares = page.locator(".labkit-attention [data-shades] tr[data-row] td")
    titles = [squares.nth(n).get_attribute("title") for n in range(squares.count())]
    rows = page.locator(".labkit-attention [data-shades] tr[data-row]").count()
    across = squares.count() // rows
    shares = [float(title.rpartition(": ")[2]) for title in titles]
    for row in range(rows):
        assert sum(shares[row * across : (row + 1) * across]) == pytest.approx(1, abs=0.01)
    squares.last.hover()
    bars = page.locator(".labkit-attention [data-shades] span").evaluate_all(
        "spans => spans.map(span => parseFloat(getComputedStyle(span).borderBottomWidth))"
    )
    # A bar is as high as the share of its word in that row, in pixels.
    assert bars == pytest.approx([24 * share for share in shares[-across:]], abs=1.1)


def test_all_heads_are_seen_at_a_glance(notebook: Opened) -> None:
    page = notebook.page
    heads = page.locator(".labkit-attention svg[aria-label^='head']")
    assert heads.count() == 0
    before = shown(page, "attention")
    take("heads", "all")(page, "attention")
    still(page, "attention", before)
    assert [head.get_attribute("aria-label") for head in heads.all()] == [
        f"head {n}" for n in (1, 2, 3, 4)
    ]
    boxes = [head.bounding_box() for head in heads.all()]
    assert len({box["y"] for box in boxes}) == 1
    before = shown(page, "attention")
    take("heads", "one")(page, "attention")
    still(page, "attention", before)


def test_a_demo_says_that_the_kernel_is_busy(notebook: Opened) -> None:
    page, sign = notebook.page, page_sign("reach")
    assert page.evaluate(sign) == "hidden"
    page.evaluate(
        "() => { jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({code: 'import time; time.sleep(3)'}); }"
    )
    page.wait_for_function(f"() => ({sign})() === 'visible'", timeout=2_500)
    page.wait_for_function(f"() => ({sign})() === 'hidden'")


def page_sign(demo: str) -> str:
    """A function of the page: whether the sign of a demo can be seen."""
    return (
        f"() => getComputedStyle(document.querySelector('.labkit-memory-{demo} .labkit-busy'))"
        ".visibility"
    )


def test_axe_finds_nothing_serious_in_the_demos(notebook: Opened) -> None:
    page = notebook.page
    page.evaluate(axe())
    assert page.evaluate(RUN.replace("run(document", "run('.labkit-live'")) == []


def test_a_picture_says_what_it_shows(notebook: Opened) -> None:
    picture = notebook.page.locator(".jp-RenderedImage img").last
    assert picture.get_attribute("alt") == "The loss falls."


def test_a_demo_lives_through_a_reload_and_leaves_its_picture_after_a_restart(
    browser: Any, notebook: Opened
) -> None:
    page = opened(browser, notebook.server, "small.ipynb")
    view, stored = ".labkit-memory-reach .labkit-view", page.locator(".labkit-stored")
    assert run_all(page)
    page.wait_for_selector(view)
    page.evaluate("() => jupyterapp.shell.currentWidget.context.save()")
    page.reload()
    page.wait_for_selector(view)
    page.evaluate(READY)
    before = shown(page, "memory-reach")
    assert not stored.is_visible()
    press(page, "memory-reach", "memory", "ArrowLeft", 2)
    still(page, "memory-reach", before)
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.reload()
    stored.wait_for(state="visible")
    assert "A memory of 4" in stored.inner_text()
    page.close()


def test_a_word_that_is_not_in_the_vocabulary_is_named(notebook: Opened) -> None:
    page = notebook.page
    for word, named in (("zebra", True), ("cat", False)):
        before = shown(page, "vectors")
        typed("word", word)(page, "vectors")
        still(page, "vectors", before)
        assert ("zebra" in shown(page, "vectors")) == named


def test_the_language_alone_shows_what_is_likely(browser: Any, notebook: Opened) -> None:
    page = opened(browser, notebook.server, "exact.ipynb")
    assert run_all(page)
    page.wait_for_selector(".labkit-masking .labkit-view")
    told = shown(page, "masking")
    assert "p exact" in told
    assert "p by the model" not in told
    page.close()


def test_a_lesson_that_was_opened_stays_as_it_was(browser: Any, notebook: Opened) -> None:
    """No mark of a change, and nothing for git to see, also after it was saved."""
    page = opened(browser, notebook.server, LESSON.name)
    page.wait_for_timeout(500)
    assert not page.evaluate("() => jupyterapp.shell.currentWidget.context.model.dirty")
    page.evaluate("() => jupyterapp.shell.currentWidget.context.save()")
    assert (notebook.folder / LESSON.name).read_bytes() == LESSON.read_bytes()
    page.close()


def test_nothing_raised_and_nothing_was_fetched_from_elsewhere(notebook: Opened) -> None:
    # The last test of the file: what happened in all of those before.
    assert notebook.errors == []
    outside = [url for url in notebook.requests
               if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))]  # fmt: skip
    assert notebook.requests
    assert outside == []
