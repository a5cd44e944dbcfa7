"""A notebook as slides, and the site of files, in a real browser."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import psutil
import pytest
from test_accessibility import RUN, axe

ROOT = Path(__file__).resolve().parent.parent
ARTIFACTS = ROOT / "artifacts"
TEXT = "The cat sat on the mat. Then the dog came in."
MARKDOWN, CODE = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
CELLS = [
    MARKDOWN("# First slide\n\nThe loss is $-\\log q(w_{t+1} \\mid w_t)$ & <em>less</em>.\n\n"
             "[On to the third](#Third-slide)\n\n"
             "<!-- notes: Say *this* first. -->"),
    CODE("print('one ' + 'output')"),
    MARKDOWN("Still the first.\n\n## Second slide\n\n$$ \\frac{a}{b} = \\sum_i x_i $$\n\n"
             "### No slide of its own\n\n## Third slide"),
    MARKDOWN("The answer is forty-two.", metadata={"tags": ["notes"]}),
    CODE(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
         f"from classroom.demos import masking_demo\nmasking_demo(text={TEXT!r})"),
    MARKDOWN("## Last slide"),
    CODE("import ipywidgets\nipywidgets.Text('typed here')"),
    CODE("# what installs labkit", metadata={"tags": ["install"]}),
]  # fmt: skip

pytestmark = pytest.mark.browser


class Lecture(NamedTuple):
    """Slides that are served, a page that shows them, and what went wrong in it."""

    link: str
    page: Any
    errors: list[str]
    requests: list[str]
    server: int


def outside(requests: list[str]) -> list[str]:
    """The requests that leave this machine."""
    inside = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file://", "about:")
    return [url for url in requests if not url.startswith(inside)]


def watched(browser: Any, **settings: Any) -> tuple[Any, list[str], list[str]]:
    """A new page, its errors and its requests."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, **settings)
    page.set_default_timeout(60_000)
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("websocket", lambda socket: requests.append(socket.url))
    return page, errors, requests


@contextmanager
def served(browser: Any, book: Path) -> Iterator[Lecture]:
    """Serve the slides of a notebook, and open them."""
    folder = book.parent
    state = {"JUPYTER_CONFIG_DIR": str(folder), "IPYTHONDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "labkit", "lecture", str(book), "--no-browser", "--port", "8910"]
    with (
        (folder / "log.txt").open("w") as log,
        subprocess.Popen(
            words, cwd=ROOT, env={**os.environ, **state}, stdout=subprocess.PIPE, stderr=log,
            text=True, start_new_session=True,
        ) as server,
    ):  # fmt: skip
        try:
            assert server.stdout is not None
            said = iter(server.stdout)
            link = next(found[0] for line in said if (found := re.search(r"http://\S+", line)))
            page, errors, requests = watched(browser)
            page.goto(link)
            page.wait_for_selector(".lecture-slide:not([hidden]) h1")
            ARTIFACTS.mkdir(exist_ok=True)
            yield Lecture(link, page, errors, requests, server.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def lecture(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lecture]:
    path = tmp_path_factory.mktemp("lecture") / "talk.ipynb"
    book = nbformat.v4.new_notebook(cells=CELLS)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, path)
    with served(browser, path) as opened:
        yield opened


def answer(address: str) -> int:
    """The status of a request without a cookie, its redirections not followed."""

    class Still(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *given: Any) -> None:
            return None

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Still)
    try:
        with opener.open(address, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def shown(lecture: Lecture) -> str:
    """The text of the slide that is shown; there is one."""
    [slide] = lecture.page.locator(".lecture-slide:not([hidden])").all()
    return str(slide.inner_text())


def turn(lecture: Lecture, *keys: str) -> str:
    """Press keys, and return the number of the slide that is shown then."""
    for key in keys:
        lecture.page.keyboard.press(key)
    return str(lecture.page.locator(".lecture-bar output").inner_text())


def test_without_the_token_nothing_is_told(lecture: Lecture) -> None:
    home, token = lecture.link.split("?token=")
    assert len(token) == 32
    assert home.startswith("http://127.0.0.1:")
    for path in ("", "?token=wrong", "voila/render/talk.ipynb", "voila/tree/"):
        assert answer(home + path) in (302, 403, 404), path
    kernel = next(url for url in lecture.requests if "/api/kernels/" in url)
    kernel = kernel.replace("ws://", "http://").split("?")[0].removesuffix("/channels")
    for path in ("", "/channels"):
        assert answer(kernel + path) in (302, 401, 403), path
    assert answer(home + "voila/files/talk.ipynb") in (302, 403, 404)
    assert answer(lecture.link) == 200


def test_no_other_site_can_use_the_cookie(lecture: Lecture) -> None:
    cookies = {one["name"]: one["sameSite"] for one in lecture.page.context.cookies()}
    [name] = [name for name in cookies if name.startswith("username-")]
    assert cookies[name] == "Strict"


def test_slides_begin_at_headings_and_keys_turn_them(lecture: Lecture) -> None:
    assert turn(lecture, "Home") == "1 / 4"
    lecture.page.wait_for_selector(".lecture-slide:not([hidden]) >> text=one output")
    first = shown(lecture)
    assert "First slide" in first
    assert "Still the first." in first
    assert "less" in first
    assert "Second" not in first
    assert turn(lecture, "ArrowRight") == "2 / 4"
    second = shown(lecture)
    assert "Second slide" in second
    assert "No slide of its own" in second
    assert "Third" not in second
    assert turn(lecture, "PageDown", "Shift+ArrowRight", "ArrowRight") == "4 / 4"
    assert lecture.page.url.endswith("#4")
    assert turn(lecture, "ArrowLeft", "PageUp") == "2 / 4"
    assert turn(lecture, "End") == "4 / 4"
    assert turn(lecture, "Home", "Space") == "2 / 4"
    lecture.page.get_by_role("button", name="previous slide").click()
    assert turn(lecture) == "1 / 4"


def test_a_link_and_the_address_lead_to_a_slide(lecture: Lecture) -> None:
    page, shows = lecture.page, "document.querySelector('.lecture-bar output').value"
    turn(lecture, "Home")
    for _ in range(2):  # the link leads on when it is pressed again too
        page.get_by_role("link", name="On to the third").click()
        page.wait_for_function(f"{shows} === '3 / 4'")
        assert "Third slide" in shown(lecture)
        turn(lecture, "Home")
    page.evaluate("location.hash = '#2'")
    page.wait_for_function(f"{shows} === '2 / 4'")
    page.evaluate("location.hash = '#nowhere'")
    page.wait_for_timeout(100)
    assert turn(lecture) == "2 / 4"


def test_the_cell_that_installs_is_on_no_slide(lecture: Lecture) -> None:
    turn(lecture, "End")
    [cell] = lecture.page.locator(".celltag_install").all()
    assert cell.bounding_box() is None, "also when the code of all cells is shown"
    lecture.page.evaluate("document.body.toggleAttribute('data-code')")
    assert "import ipywidgets" in shown(lecture)
    assert "what installs labkit" not in shown(lecture)
    lecture.page.evaluate("document.body.toggleAttribute('data-code')")


def test_formulas_are_drawn_without_a_script(lecture: Lecture) -> None:
    turn(lecture, "Home", "ArrowRight")
    size = lecture.page.evaluate(
        "() => { const box = document.querySelector('.lecture-slide:not([hidden]) math mfrac')"
        ".getBoundingClientRect(); return [box.width, box.height]; }"
    )
    assert size[0] > 5
    assert size[1] > 20
    assert "$" not in shown(lecture)
    assert "\\frac" not in shown(lecture)


def test_code_is_folded_until_asked_for(lecture: Lecture) -> None:
    turn(lecture, "Home")
    code = lecture.page.locator(".lecture-slide:not([hidden]) .jp-InputArea-editor")
    assert code.count() == 1
    assert not code.is_visible()
    turn(lecture, "c")
    assert code.is_visible()
    assert "print(" in code.inner_text()
    turn(lecture, "c")
    assert not code.is_visible()
    button = lecture.page.locator(".lecture-slide:not([hidden]) .lecture-code")
    button.click()
    assert code.is_visible()
    assert button.get_attribute("aria-expanded") == "true"
    # A button keeps the space bar for itself.
    assert turn(lecture, "Space") == "1 / 4"
    assert not code.is_visible()
    turn(lecture, "Escape")


def test_tab_reaches_what_is_on_the_slide_that_is_turned_to(lecture: Lecture) -> None:
    link = lecture.page.get_by_role("link", name="On to the third")
    turn(lecture, "End", "Home", "Tab")
    assert link.evaluate("e => e === document.activeElement")
    lecture.page.get_by_role("button", name="next slide").focus()
    assert turn(lecture, "Enter", "Enter") == "3 / 4", "the button keeps the focus"
    turn(lecture, "Escape")


def test_long_code_can_be_read_on_a_narrow_screen(lecture: Lecture) -> None:
    page = lecture.page
    page.set_viewport_size({"width": 390, "height": 600})
    turn(lecture, "Home", "Shift+ArrowRight", "Shift+ArrowRight", "c")
    scrolled = "e => { e.scrollLeft = 9; return e.scrollLeft; }"
    code = page.locator(".lecture-slide:not([hidden]) .highlight")
    assert code.evaluate(scrolled) == 9
    turn(lecture, "c")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_notes_are_for_the_speaker(lecture: Lecture) -> None:
    page = lecture.page
    panel = page.locator(".lecture-notes")
    turn(lecture, "Home")
    assert not panel.is_visible()
    assert "Say" not in shown(lecture)
    turn(lecture, "n")
    assert panel.inner_text() == "Say *this* first."
    turn(lecture, "ArrowRight")
    assert "No notes" in panel.inner_text()
    turn(lecture, "ArrowRight")
    assert "forty-two" not in shown(lecture)
    assert panel.inner_text() == "The answer is forty-two."
    turn(lecture, "n")
    assert not panel.is_visible()
    with page.expect_popup() as popup:
        turn(lecture, "w")
    assert "forty-two" in popup.value.locator("body").inner_text()
    turn(lecture, "Home")
    assert "Say *this* first." in popup.value.locator("body").inner_text()
    assert "First slide" in popup.value.locator("body").inner_text()
    popup.value.close()


def test_a_widget_is_alive_and_keeps_its_arrows(lecture: Lecture) -> None:
    page = lecture.page
    assert turn(lecture, "Home", "ArrowRight", "ArrowRight") == "3 / 4"
    page.wait_for_selector(".labkit-masking .labkit-view")
    before = page.locator(".labkit-masking .labkit-view").inner_text()
    page.locator(".labkit-masking .labkit-rate .noUi-handle").focus()
    assert turn(lecture, "ArrowRight", "ArrowRight", "ArrowRight") == "3 / 4"
    page.wait_for_function(
        "before => document.querySelector('.labkit-masking .labkit-view').innerText !== before",
        arg=before,
    )
    page.screenshot(path=ARTIFACTS / "lecture.png")
    assert turn(lecture, "Escape", "Shift+ArrowRight") == "4 / 4"
    box = page.locator(".lecture-slide:not([hidden]) input[type=text]")
    box.fill("")
    box.focus()
    assert turn(lecture, "n", "c", "ArrowLeft", "Space") == "4 / 4"
    assert box.input_value() == "n c"


def test_the_arrow_of_a_dropdown_is_seen_in_the_dark(lecture: Lecture) -> None:
    page = lecture.page
    arrow = """e => [getComputedStyle(e).appearance,
        getComputedStyle(e).backgroundImage.split('(')[0], getComputedStyle(e).colorScheme]"""
    dropdown = page.locator(".labkit-masking select").first
    assert dropdown.evaluate(arrow) == ["none", "url", "light"]
    page.evaluate("document.body.classList.replace('theme-light', 'theme-dark')")
    assert dropdown.evaluate(arrow) == ["auto", "none", "dark"]
    page.evaluate("document.body.classList.replace('theme-dark', 'theme-light')")


def test_a_word_that_is_chosen_from_the_keyboard_keeps_the_focus(lecture: Lecture) -> None:
    page = lecture.page
    assert turn(lecture, "Escape", "Home", "Shift+ArrowRight", "Shift+ArrowRight") == "3 / 4"
    page.locator(".labkit-words button").nth(2).focus()
    at = "[...document.querySelectorAll('.labkit-words button')].indexOf(document.activeElement)"
    for _ in range(2):
        before = page.locator(".labkit-words").inner_text()
        turn(lecture, "Enter")
        page.wait_for_function(
            f"before => document.querySelector('.labkit-words').innerText !== before && {at} === 2",
            arg=before,
        )
    turn(lecture, "Escape")
    page.locator(".labkit-masking .labkit-reset").click()
    turn(lecture, "Escape")


# Chrome lends a page the key Esc in full screen; the browser of the tests keeps none for itself.
LENDS = """Object.defineProperty(navigator, 'keyboard',
    { value: { lock: async (keys) => { window.lent = keys; } } })"""


def test_esc_leaves_a_slider_and_only_then_the_full_screen(lecture: Lecture) -> None:
    page = lecture.page
    page.evaluate(LENDS)
    turn(lecture, "Escape", "Home", "Shift+ArrowRight", "Shift+ArrowRight", "f")
    page.wait_for_function("document.fullscreenElement && window.lent?.join() === 'Escape'")
    handle = page.locator(".labkit-masking .labkit-rate .noUi-handle")
    handle.focus()
    turn(lecture, "Escape")
    assert not handle.evaluate("e => e === document.activeElement")
    assert page.evaluate("Boolean(document.fullscreenElement)")
    turn(lecture, "Escape")
    page.wait_for_function("!document.fullscreenElement")


EDGES = """() => {
    document.querySelector(".lecture-more").hidden = false;
    return ["bar", "more", "help", "notes"].map((name) => {
        const box = document.querySelector(`.lecture-${name}`).getBoundingClientRect();
        return [box.top, box.bottom];
    });
}"""


@pytest.mark.parametrize(("width", "height"), [(683, 384), (390, 844)])
def test_the_bar_covers_nothing_on_a_small_screen(
    lecture: Lecture, width: int, height: int
) -> None:
    """Nor does what is wide: it scrolls by itself."""
    page = lecture.page
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("document.activeElement.blur()")  # a field would take the keys
    turn(lecture, "Home", "ArrowRight", "?", "n")
    # All at once: whether there is more is found out again when the size has changed.
    bar, *others = page.evaluate(EDGES)
    assert [top < bottom <= bar[0] for top, bottom in others] == [True] * 3
    _, keys, notes = others
    assert keys[1] <= notes[0]
    ground = "e => getComputedStyle(e).backgroundColor"
    assert page.locator(".lecture-bar").evaluate(ground) == "rgb(255, 255, 255)"
    style = "e => [getComputedStyle(e).display, getComputedStyle(e).overflowX]"
    assert page.locator(".labkit-wide").first.evaluate(style) == ["block", "auto"]
    turn(lecture, "?", "n")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_wide_picture_scrolls_by_itself_and_its_labels_are_large(lecture: Lecture) -> None:
    page = lecture.page
    turn(lecture, "Home", "Shift+ArrowRight", "Shift+ArrowRight")
    page.wait_for_selector(".labkit-masking .labkit-view")
    view = page.locator(".labkit-masking .labkit-view")
    assert view.locator("table[role=img]").evaluate("e => getComputedStyle(e).zoom") == "1.35"
    page.set_viewport_size({"width": 250, "height": 600})
    # JupyterLab lays its page out again some time after the window has changed.
    page.wait_for_function("document.querySelector('.labkit-masking').clientWidth <= 250")
    width, inside, room = view.evaluate(
        "e => [e.clientWidth, e.scrollWidth, e.closest('.labkit-masking').clientWidth]"
    )
    assert width <= room < inside
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_large_projector_shows_large_letters(lecture: Lecture) -> None:
    page = lecture.page
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.evaluate("document.activeElement.blur()")
    turn(lecture, "Home")
    assert not page.locator(".lecture-more").is_visible(), "a short slide does not scroll"
    size = "e => parseFloat(getComputedStyle(e).fontSize) * e.currentCSSZoom"
    for query in ("p", ".jp-OutputArea-output pre", ".lecture-code"):
        seen = page.locator(f".lecture-slide:not([hidden]) {query}").first
        assert seen.evaluate(size) >= 18, query
    printed = page.locator(".lecture-slide:not([hidden]) .jp-OutputArea-output pre")
    assert printed.evaluate("e => getComputedStyle(e).wordBreak") == "normal"
    # A slider goes where the mouse clicks.
    turn(lecture, "Shift+ArrowRight", "Shift+ArrowRight")
    slider = page.locator(".labkit-masking .labkit-rate")
    box = slider.locator(".noUi-base").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert abs(float(slider.locator(".widget-readout").inner_text()) - 0.5) < 0.02
    handle = slider.locator(".noUi-handle")
    colours = "e => [getComputedStyle(e).borderTopColor, getComputedStyle(document.body).color]"
    border, ink = handle.evaluate(colours)
    assert border == ink, "it is seen on white"
    turn(lecture, "Escape")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_all_slides_are_printed_and_one_is_left_on_the_screen(lecture: Lecture) -> None:
    page = lecture.page
    page.keyboard.press("Home")
    page.keyboard.press("n")  # the notes are not printed
    slides = page.locator(".lecture-slide").count()
    printed = page.pdf()
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    (ARTIFACTS / "slides.pdf").write_bytes(printed)
    assert slides <= pages <= 2 * slides
    for event in ("beforeprint", "afterprint"):
        page.evaluate(f"window.dispatchEvent(new Event('{event}'))")
    assert page.locator(".lecture-slide:not([hidden])").count() == 1
    page.keyboard.press("n")


def test_the_token_leaves_the_address_bar_and_sliders_have_names(lecture: Lecture) -> None:
    page = lecture.page
    assert "token" in lecture.link
    assert "token" not in page.url
    page.wait_for_selector(".noUi-handle", state="attached")
    handles = page.locator(".noUi-handle")
    assert handles.count()
    assert all(one.get_attribute("aria-label") for one in handles.all())


def test_a_page_that_is_left_ends_its_kernel(lecture: Lecture) -> None:
    """Beside those of the other tests: one for this page, however often it is loaded."""

    def kernels() -> int:
        count = 0
        for child in psutil.Process(lecture.server).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                count += "ipykernel" in " ".join(child.cmdline())
        return count

    def become(count: int) -> None:
        end = time.monotonic() + 30
        while kernels() != count and time.monotonic() < end:
            time.sleep(0.1)
        assert kernels() == count

    before = kernels()
    context = lecture.page.context.browser.new_context()  # it outlives its page, as a browser does
    page = context.new_page()
    alive = ".labkit-masking .labkit-view"  # then the page knows its kernel
    page.goto(lecture.link)
    page.wait_for_selector(alive, state="attached")
    become(before + 1)
    page.reload()
    page.wait_for_selector(alive, state="attached")
    become(before + 1)
    page.close(run_before_unload=True)
    become(before)
    context.close()


def test_no_slide_asks_for_anything_outside(lecture: Lecture) -> None:
    # The last test of the lecture: what happened in all of those before.
    assert lecture.errors == []
    assert any(url.startswith("ws://") for url in lecture.requests)
    assert outside(lecture.requests) == []


# ---- the site ----------------------------------------------------------------------------------

READ = """() => ({
    text: document.body.innerText,
    drawn: [...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().width),
    links: [...document.querySelectorAll('a[href]')].map(a => a.href),
    scripts: document.scripts.length,
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from classroom.cli.site import write as build

    folder = tmp_path_factory.mktemp("site")
    own = folder / "99_own.ipynb"
    picture = '<div class="labkit-view">the fallback of a widget</div>'
    widget = {"version_major": 2, "version_minor": 0, "model_id": "0"}
    shown = {
        "application/vnd.jupyter.widget-view+json": widget,
        "text/html": picture,
        "text/plain": "x",
    }
    outputs = [
        nbformat.v4.new_output("display_data", shown),
        nbformat.v4.new_output("display_data", {"text/latex": "$\\sqrt{x}$", "text/plain": "r"}),
    ]
    cells = [*CELLS[:4], CODE("demo", outputs=outputs, execution_count=1)]
    cells[0] = MARKDOWN(CELLS[0].source + "\n\n[costs](12_cost_tables.ipynb#x) [code](source.py)")
    nbformat.write(nbformat.v4.new_notebook(cells=cells), own)
    (folder / "source.py").write_text("x = 1\n")
    books = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    # A link in the notebook of the test leads to where that notebook would stand.
    for name in ("12_cost_tables.ipynb",):
        (folder / name).symlink_to(ROOT / "notebooks" / name)
    pages = build([*books, own], folder / "out")
    assert [page.file for page in pages] == [f"{book.stem}.html" for book in [*books, own]]
    return folder / "out"


@pytest.fixture(scope="module")
def grounds(browser: Any, site: Path) -> dict[str, list[int]]:
    """How light each page of the site is in either scheme, after a walk that fetches nothing."""
    page, errors, requests = watched(browser, offline=True)
    page.goto((site / "index.html").as_uri())
    listed = page.evaluate(READ)["links"]
    # All notebooks, the notebook of this test, and the page of all demos.
    assert len(listed) == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb"))) + 2
    seen: dict[str, list[int]] = {"light": [], "dark": []}
    for link in listed:
        page.goto(link)
        found = page.evaluate(READ)
        assert len(found["text"]) > 100
        # Only pages with live pictures have scripts: the site's own, admitted by their digests.
        assert found["scripts"] == page.content().count("'sha256-")
        local = [to.split("#")[0] for to in found["links"] if to.startswith("file:")]
        missing = [to for to in local if not Path(to.removeprefix("file://")).exists()]
        assert missing == []
        for scheme, lightness in seen.items():
            page.emulate_media(color_scheme=scheme)
            ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
            lightness.append(max(int(part) for part in re.findall(r"\d+", ground)[:3]))
            page.screenshot(path=ARTIFACTS / f"site-{scheme}.png")
    page.close()
    assert errors == []
    assert outside(requests) == []
    return seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_opens_from_a_file_and_fetches_nothing(
    grounds: dict[str, list[int]], scheme: str
) -> None:
    assert {ground > 128 for ground in grounds[scheme]} == {scheme == "light"}


def test_a_page_has_formulas_fallbacks_and_no_notes(browser: Any, site: Path) -> None:
    page, _, _ = watched(browser, offline=True)
    page.goto((site / "99_own.html").as_uri())
    found = page.evaluate(READ)
    assert len(found["drawn"]) == 3
    assert min(found["drawn"]) > 5
    assert "$" not in found["text"]
    assert "the fallback of a widget" in found["text"]
    assert "Say" not in page.content()
    assert "forty-two" not in page.content()
    targets = {link.rsplit("/", 1)[-1] for link in found["links"]}
    assert {"index.html", "12_cost_tables.html#x", "source.py.txt"} <= targets
    page.goto((site / "12_cost_tables.html").as_uri())
    printed = page.locator(".jp-OutputArea-output pre").first
    assert printed.evaluate("e => getComputedStyle(e).wordBreak") == "normal"
    page.close()


SCREENS = {"phone": ("light", 390, 844), "hall": ("dark", 1366, 768)}


@pytest.fixture(scope="module")
def readings(browser: Any, site: Path) -> dict[tuple[str, str], tuple[list[str], int]]:
    """What axe finds on each lesson and how wide it is, on a phone and on a projector."""
    source, found = axe(), {}
    for file in sorted(site.glob("[01]*.html")):
        # The policy of the page admits its own scripts alone; the checker comes from outside.
        page = browser.new_page(bypass_csp=True)
        page.goto(file.as_uri())
        page.add_script_tag(content=source)
        for screen, (scheme, width, height) in SCREENS.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            serious = page.evaluate(RUN)
            wide = page.evaluate("document.documentElement.scrollWidth")
            found[screen, file.name] = serious, wide
        page.close()
    return found


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious_on_the_lessons(screen: str, readings: Any) -> None:
    """Nothing serious, and no page that is wider than the screen."""
    lessons = {name: said for (where, name), said in readings.items() if where == screen}
    assert len(lessons) == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    for name, (serious, wide) in lessons.items():
        assert serious == [], name
        assert wide <= SCREENS[screen][1], name


def test_axe_finds_nothing_serious_in_a_lecture(lecture: Lecture) -> None:
    """Slide by slide, widgets included."""
    source, page = axe(), lecture.page
    turn(lecture, "Home")
    page.evaluate(source)
    last = ""
    while (here := turn(lecture)) != last:
        last = here
        assert page.evaluate(RUN) == [], here
        turn(lecture, "Shift+ArrowRight")
    page.set_viewport_size({"width": 390, "height": 640})
    turn(lecture, "?", "n")
    assert page.locator(".lecture-help").evaluate("e => e.scrollHeight > e.clientHeight")
    assert page.evaluate(RUN) == [], "the list of keys"
    turn(lecture, "?", "n")
    page.set_viewport_size({"width": 1280, "height": 800})


# ---- slides of the lessons -----------------------------------------------------------------------

LESSONS = ("04_transformer", "06_sampling_and_prompting")
# Instead of running a cell, its stored outputs are shown: slides of the same height at once.
SHOW = """import json
from pathlib import Path
from IPython.display import display
stored = json.loads(Path("outputs.json").read_text())
def show(number):
    for one in stored[number]:
        if "data" in one:
            display(one["data"], raw=True)
        else:
            print("".join(one["text"]), end="")"""
# All slides, turned by the key alone: how many there are, how many are higher than the screen, and
# what cannot be seen.
OVER = """async () => {
    const page = document.querySelector('#rendered_cells'), lost = [], wide = page.clientWidth;
    const counter = document.querySelector('.lecture-bar output');
    const more = document.querySelector('.lecture-more');
    const frames = () => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)));
    const press = async (key) => {
        document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        await frames();
    };
    const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX)
        || scrolls(e.parentElement.closest('.lecture-slide *')));
    await press('Home');
    let slides = 0, high = 0;
    for (let here = ''; here !== counter.value; slides += 1) {
        here = counter.value;
        let seen = 0, screens = 0;
        const slide = document.querySelector('.lecture-slide:not([hidden])');
        for (const e of slide.querySelectorAll('*')) {
            const box = e.getBoundingClientRect();
            if (box.width && box.right > wide + 1 && !scrolls(e)) lost.push([here, e.outerHTML]);
        }
        const height = page.scrollHeight;
        do {
            if (page.scrollTop > seen) lost.push([here, `${seen} to ${page.scrollTop}`]);
            seen = page.scrollTop + page.clientHeight;
            if (more.hidden !== (height - seen < 8)) lost.push([here, 'the mark is wrong']);
            await press('ArrowRight');
        } while (counter.value === here && ++screens < 20 && seen < height - 8);
        if (seen < height - 8) lost.push([here, `${height - seen} pixels below the last screen`]);
        high += screens > 0;
        const install = [...slide.querySelectorAll('.celltag_install')];
        if (install.some((e) => e.checkVisibility())) lost.push([here, 'installs']);
    }
    return [slides, high, lost.map(([slide, what]) => `${slide}: ${what.slice(0, 200)}`)];
}"""


def test_nothing_of_a_lesson_is_out_of_reach(browser: Any, tmp_path: Path) -> None:
    """At 1366 × 768: what does not fit comes before the next slide, and a mark says so."""
    cells, outputs = [], {}
    for name in LESSONS:
        for cell in nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                install = "install" in cell.metadata.get("tags", ())
                outputs[len(outputs)] = cell.outputs
                cell.source = SHOW if install else f"show({len(outputs) - 1!r})"
                cell.outputs = []
            cell.id = f"cell-{len(cells)}"
            cells.append(cell)
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, tmp_path / "lesson.ipynb")
    (tmp_path / "outputs.json").write_text(json.dumps([*outputs.values()]))
    with served(browser, tmp_path / "lesson.ipynb") as lecture:
        page = lecture.page
        page.set_viewport_size({"width": 1366, "height": 768})
        # The last cell that has something to show has shown it.
        page.wait_for_function("() => !document.querySelector('.voila-skeleton-container')")
        slides, high, lost = page.evaluate(OVER)
        assert slides > 20
        assert high > 2
        assert lost == []
