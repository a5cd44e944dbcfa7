"""The site in a browser, from files: its demos compute, and nothing else runs or is fetched."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from classroom.charts.live import LiveCurve
from classroom.cli.site import write as build
from classroom.demos import (
    Masking,
    View,
    attention_demo,
    attention_view,
    masking_view,
    reach_demo,
    recording,
    sampling_demo,
    sampling_view,
)
from classroom.demos.attention import Asked
from classroom.demos.sampling import next_step, text_of
from classroom.models.shipped import trained
from classroom.pages.live import building
from labkit.sampling import Sampling

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='document.body.dataset.ran = 1'><script>1</script> &amp; the"
DEMOS = ("sampling", "masking", "attention")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one notebook: few states, a map, a curve, a model that writes."""
    folder = tmp_path_factory.mktemp("site")
    gpt, curve = trained("gpt-village"), LiveCurve(60, floor=0.0326)
    curve.losses = [4 - step / 20 for step in range(60)]
    demos = [reach_demo(2), attention_demo(*gpt, "the film was good")]
    demos.append(sampling_demo(*gpt, "the film", world=building.village()))
    kept = [(demo.stored, demo.recorded()) for demo in demos]
    kept.append((curve.view(60)._repr_mimebundle_(), curve.recorded()))
    outputs = [
        nbformat.v4.new_output("display_data", shown, metadata={recording.KEY: packed})
        for shown, packed in ((shown, recording.packed(found)) for shown, found in kept)
    ]
    code = f"reach_demo(2)  # {'wide ' * 16}"
    folded = "<details><summary>Why?</summary><p>So.</p></details>"
    told = f"# A notebook\n\nIts first sentence.\n\n{folded}"
    wide = {"text/html": f"<table><td>{'wide' * 15}</td></table>"}
    outputs.append(nbformat.v4.new_output("display_data", wide))
    cells = [nbformat.v4.new_markdown_cell(told), nbformat.v4.new_code_cell(code, outputs=outputs)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "01_own.ipynb")
    build([folder / "01_own.ipynb"], folder / "out")
    return folder / "out"


class Opened(NamedTuple):
    """A page of the site, with what went wrong and what it asked for."""

    page: Any
    errors: list[str]
    requests: list[str]

    def said(self, demo: str) -> str:
        """What a demo tells, in one line."""
        return " ".join(self.page.locator(f"#{demo} .view").inner_text().split())

    def set(self, demo: str, name: str, value: object) -> None:
        """Set a control, as a hand would."""
        self.page.evaluate(
            """([demo, name, value]) => {
                const field = document.querySelector(`#${demo} [name="${name}"]`);
                field.value = value;
                field.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            [demo, name, value],
        )


def opened(browser: Any, path: Path, **how: Any) -> Opened:
    page = browser.new_page(**{"viewport": {"width": 390, "height": 844}, "offline": True, **how})
    found = Opened(page, [], [])
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("console", lambda said: found.errors.append(said.text))
    page.on("request", lambda request: found.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    return found


@pytest.fixture
def live(browser: Any, site: Path) -> Iterator[Opened]:
    """The page of all demos; afterwards, it has asked for nothing and nothing went wrong."""
    found = opened(browser, site / "live.html")
    yield found
    assert found.errors == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    found.page.close()


def alike(view: View, said: str) -> bool:
    """Whether a page says what a view says, but for white space and signs of pictures."""
    number = re.compile(r"\d+\.\d+")
    told = [word for word in number.sub("#", view.text).split() if word.isalpha()]
    shown = set(number.sub("#", said).split())
    return all(word in shown for word in told)


def test_sampling_writes_what_python_writes(live: Opened) -> None:
    page, chips = live.page, live.page.locator("#sampling [data-position]")
    assert chips.count() == 5
    page.locator('#sampling [data-does="step"]').click()
    model, tokenizer = trained("gpt-village")
    prompt = page.locator("#sampling textarea").input_value()
    [drawn] = next_step(model, text_of(prompt, [], tokenizer).tokens, Sampling(), 0).tokens_B
    view = sampling_view(prompt, [int(drawn)], Sampling(), model, tokenizer)
    assert live.said("sampling").split()[:7] == view.text.split()[:7]
    # A click on a row writes its word, whatever was drawn.
    forced = page.locator("#sampling [data-key]").nth(2)
    word = forced.locator("bdi").first.inner_text()
    forced.click()
    assert chips.count() == 7
    assert chips.last.locator("bdi").inner_text() == word.replace("→ ", "")
    said = page.locator("#sampling .said")
    assert said.inner_text() == f"written: {word}"
    page.locator('#sampling [data-does="undo"]').click()
    assert said.inner_text() == f"taken back: {word}"
    assert chips.count() == 6
    page.locator('#sampling [data-does="run"]').click()
    chips.nth(11).wait_for()
    page.locator('#sampling [data-does="run"]').click()
    stopped = chips.count()
    page.wait_for_timeout(300)
    assert chips.count() == stopped
    page.locator('#sampling [data-does="reset"]').click()
    assert chips.count() == 5
    assert said.inner_text() == ""


def test_masking_hides_and_shows_the_words_that_are_clicked(live: Opened) -> None:
    page, words = live.page, live.page.locator("#masking [data-position]")
    text = page.locator("#masking textarea").input_value()
    model, tokenizer = trained("bert-village")

    def in_python(**setting: Any) -> View:
        return masking_view(
            text, Masking(**setting), tokenizer, model=model, world=building.village()
        )

    assert alike(in_python(), live.said("masking"))
    live.set("masking", "rate", 0)
    assert words.locator("nth=2").get_attribute("data-kind") == "plain"
    words.nth(2).click()
    assert words.nth(2).get_attribute("data-kind") == "mask"
    assert alike(in_python(rate=0.0, clicked=(2,)), live.said("masking"))
    assert page.locator("#masking .said").inner_text().startswith("1 of ")
    words.nth(0).click()
    words.nth(2).click()
    assert [words.nth(n).get_attribute("data-kind") for n in (0, 2)] == ["special", "plain"]
    # One share gives way to the other; another draw forgets the clicks.
    live.set("masking", "random", 1)
    assert page.locator("#masking [name=mask]").input_value() == "0"
    words.nth(3).click()
    page.locator('#masking [data-does="draw"]').click()
    assert words.nth(3).get_attribute("data-kind") == "plain"
    page.locator('#masking [data-does="another"]').click()
    assert page.locator("#masking textarea").input_value() != text


def test_attention_follows_the_pointer_and_the_click(live: Opened) -> None:
    page = live.page
    bars = """() => [...document.querySelectorAll('#attention span[data-row]')]
        .map((word) => parseFloat(getComputedStyle(word).borderBottomWidth))"""
    text = page.locator("#attention textarea").input_value()
    assert max(page.evaluate(bars)) == 0
    page.locator("#attention tr[data-row='3']").first.hover()
    pointed = page.evaluate(bars)
    assert max(pointed) > 0
    square = page.locator("#attention tr[data-row='3'] td").nth(2)
    assert re.search(r"→ .*: 0\.\d{3}$", square.get_attribute("title"))
    page.locator("#attention span[data-row='3']").click()
    page.locator("#masking h2").hover()
    assert page.evaluate(bars) == pointed
    # The pointer shows another row as it would without the click.
    other = page.locator("#attention tr[data-row='6']").first
    other.hover()
    over = page.evaluate(bars)
    page.locator("#attention span[data-row='3']").click()
    other.hover()
    assert page.evaluate(bars) == over != pointed
    page.locator("#attention span[data-row='3']").click()
    assert "attends most to" in page.locator("#attention .said").inner_text()
    page.locator("#attention [name=every]").check()
    assert page.locator("#attention svg").count() == 4
    page.locator("#attention [name=model]").select_option("GPT")
    live.set("attention", "layer", 2)
    live.set("attention", "head", 3)
    view = attention_view(text, 2, 3, *trained("gpt-village"), Asked(every=True, selected=3))
    assert alike(view, live.said("attention"))


def test_all_of_it_by_keyboard(live: Opened) -> None:
    page = live.page
    focused = "() => document.activeElement.closest('section')?.id"
    reached = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(focused))
    assert {*DEMOS, "floors"} <= reached
    page.locator("#sampling [data-key] bdi").first.focus()
    page.keyboard.press("ArrowDown")
    word = page.evaluate("() => document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert page.locator("#sampling [data-position] bdi").last.inner_text() in word
    page.locator("#masking [data-position]").nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    assert page.locator("#masking [data-position]").nth(2).get_attribute("aria-pressed") == "true"
    assert page.evaluate("() => document.activeElement.dataset.position") == "2"
    page.locator("#attention span[data-row]").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#attention span[data-row]").nth(1).get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("name", ["index", "live", "01_own"])
def test_every_control_has_its_label(browser: Any, site: Path, name: str) -> None:
    """As the browser tells a screen reader: what is labelled first in a label takes it."""
    page = opened(browser, site / f"{name}.html").page
    fields = page.locator("form [name]:not([type=hidden])")
    assert fields.count() >= 2
    assert fields.evaluate_all("(all) => all.filter((one) => !one.labels.length).length") == 0
    assert page.get_by_role("slider", name="temperature").count() == 1
    page.close()


@pytest.mark.parametrize("text", ["", HOSTILE, "the " * 5000, "😀\u202e\x07𝔘", "[MASK] [SEP]"])
def test_odd_texts_run_nothing_and_break_nothing(live: Opened, text: str) -> None:
    page = live.page
    for demo in DEMOS:
        page.locator(f"#{demo} textarea").fill(text)
        assert page.locator(f"#{demo} .labkit-view").count() == 1
        assert len(live.said(demo)) > 20
    page.locator('#sampling [data-does="step"]').click()
    assert page.evaluate("() => document.body.dataset.ran") is None
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_a_phone_has_room_for_curves_tables_and_fingers(live: Opened) -> None:
    page = live.page
    curve = page.locator("#schedule svg").bounding_box()
    assert curve["x"] + curve["width"] <= 390
    rows = page.locator("#sampling tr[data-key]").all()
    assert all(row.bounding_box()["height"] >= 24 for row in rows)
    fits = "(view) => view.scrollWidth <= view.clientWidth"
    assert page.locator("#floors .labkit-view").evaluate(fits)


def test_the_first_page_says_why_nothing_exact_is_known(browser: Any, site: Path) -> None:
    found = opened(browser, site / "index.html", reduced_motion="reduce")
    found.page.locator("#sampling textarea").fill("of the of")
    assert "The language cannot go on with “of”." in found.said("sampling")
    found.page.close()


def test_the_policy_stops_other_scripts(browser: Any, site: Path) -> None:
    found = opened(browser, site / "live.html")
    found.page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "document.body.dataset.ran = 2";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "https://example.org/x.png";
        document.body.append(image);
    }""")
    found.page.wait_for_timeout(200)
    assert found.page.evaluate("() => document.body.dataset.ran") is None
    assert len(found.errors) == 2
    assert all("Content Security Policy" in error for error in found.errors)
    found.page.close()


def test_views_that_were_written_down_follow_their_sliders(live: Opened) -> None:
    names = [demo.name for demo, _ in building.few_states(*trained("bert-village"))]
    for name in names:
        before = live.said(name)
        fields = live.page.locator(f"#{name} [name]")
        for field in fields.all():
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(index=1)
            else:
                field.press("Home")
                field.press("ArrowRight")
        assert live.said(name) != before, name
        live.page.locator(f'#{name} [data-does="reset"]').click()
        assert live.said(name) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1366])
def test_the_first_page_writes_at_once(browser: Any, site: Path, scheme: str, width: int) -> None:
    view = {"width": width, "height": 844 if width == 390 else 768}
    found = opened(browser, site / "index.html", viewport=view, color_scheme=scheme)
    page, chips = found.page, "#sampling [data-kind='new']"
    page.locator(chips).nth(1).wait_for()
    # Without scrolling: what it is, what was written, and the likeliest words.
    for query in ("h1", chips, "#sampling [data-key]"):
        below = "(query) => document.querySelector(query).getBoundingClientRect().bottom"
        assert page.evaluate(below, query) < view["height"]
    page.locator("#sampling [data-key]").first.click()
    count = page.locator(chips).count()
    page.wait_for_timeout(800)
    assert page.locator(chips).count() == count
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    light = max(int(part) for part in re.findall(r"\d+", ground)[:3]) > 128
    assert light == (scheme == "light")
    assert {"live.html", "01_own.html"} <= {
        link.get_attribute("href") for link in page.locator("a").all()
    }
    assert found.errors == []
    page.close()


def test_a_page_that_asks_for_less_motion_stands_still(browser: Any, site: Path) -> None:
    found = opened(browser, site / "index.html", reduced_motion="reduce")
    found.page.wait_for_timeout(800)
    assert found.page.locator("#sampling [data-kind='new']").count() == 0
    found.page.close()


def play_the_notebook(page: Any) -> None:
    """Operate each demo of the notebook's page, and see that it answers."""

    def at(name: str, query: str = ".view") -> Any:
        return page.locator(f'.labkit-states:has([data-demo="{name}"]) {query}')

    def said(name: str) -> str:
        return " ".join(at(name).inner_text().split())

    before = said("memory-reach")
    assert before.startswith(reach_demo(2).shown.text.split("\n")[0])
    at("memory-reach", "[name=layers]").press("ArrowRight")
    assert said("memory-reach") != before
    at("memory-reach", '[data-does="reset"]').click()
    assert said("memory-reach") == before
    # A word of a map can be selected, and a list of names can be chosen from.
    at("attention", "span[data-row]").nth(2).click()
    assert at("attention", "span[data-row]").nth(2).get_attribute("aria-pressed") == "true"
    at("attention", "[name=heads]").select_option("all")
    assert at("attention", "svg").count() == 4
    at("sampling", '[data-does="step"]').click()
    assert at("sampling", "[data-kind=new]").count() == 1
    # The training again, from its beginning to its end.
    assert "between steps 10 and 60" in said("training")
    at("training", "[name=shown]").press("Home")
    assert "between steps 10 and 10" in said("training")
    at("training", '[data-does="play"]').click()
    page.wait_for_function(
        "() => document.querySelector('[data-demo=training]').innerText.includes('and 60')"
    )


def test_the_stored_pictures_of_a_notebook_are_live(browser: Any, site: Path) -> None:
    found = opened(browser, site / "01_own.html", viewport={"width": 1366, "height": 768})
    play_the_notebook(found.page)
    assert found.errors == []
    found.page.close()


def test_long_code_scrolls_and_tab_stops_only_where_something_does(
    browser: Any, site: Path
) -> None:
    page = opened(browser, site / "01_own.html").page
    code = page.locator(".highlight")
    code.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.highlight').scrollLeft > 0")
    page.set_viewport_size({"width": 1366, "height": 768})
    page.wait_for_function(
        "() => !document.querySelector(':is(.highlight, .jp-OutputArea-output)[tabindex]')"
    )
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 390, "height": 768})
    assert code.evaluate("e => e.scrollWidth <= e.clientWidth"), "all of it is printed"
    seen = "e => e.checkVisibility({ contentVisibilityAuto: true }) && e.offsetHeight > 0"
    assert page.get_by_text("So.", exact=True).evaluate(seen), "nobody can unfold it on paper"
    page.close()


CUT = """() => {
    const cut = [];
    for (const one of document.querySelectorAll(".jp-OutputArea-child")) {
        if (one.scrollWidth > one.clientWidth) cut.push(one.innerText);
    }
    for (const one of document.querySelectorAll("[data-curve] svg text")) {
        const drawing = one.closest("svg"), left = one.getBoundingClientRect().left;
        const clipped = getComputedStyle(drawing).overflow === "hidden";
        const room = clipped ? drawing : one.closest(".labkit-view");
        if (left < room.getBoundingClientRect().left) cut.push(one.textContent);
    }
    return cut;
}"""


def test_a_phone_cuts_no_output_off(browser: Any, site: Path) -> None:
    """What is too wide scrolls by itself."""
    page = opened(browser, site / "01_own.html").page
    assert page.evaluate(CUT) == []
    page.close()


def test_without_script_all_is_there_but_the_play(browser: Any, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "01_own.html").as_uri())
    assert page.locator(".labkit-view").count() == 4
    page.goto((site / "index.html").as_uri())
    assert "A notebook" in page.inner_text("main")
    assert "need JavaScript" in page.inner_text("main")
    context.close()


def test_a_slow_press_writes_the_word_and_the_view_stays_where_it_was(
    browser: Any, site: Path
) -> None:
    """While words come by themselves: what is pressed must still be there when it is let go."""
    found = opened(browser, site / "index.html", viewport={"width": 390, "height": 844})
    page, chips = found.page, "#sampling [data-kind='new']"
    page.locator(chips).nth(1).wait_for()
    # In one script: the next word may replace what a locator has found before it is measured.
    word = "document.querySelector('#sampling [data-key] td bdi')"
    box = page.evaluate(f"() => {word}.getBoundingClientRect().toJSON()")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    count, word = page.locator(chips).count(), page.locator("#sampling [data-key] td bdi").first
    pressed = word.inner_text().removeprefix("→ ")
    page.wait_for_timeout(900)
    page.mouse.up()
    assert page.locator(chips).count() == count + 1
    assert pressed in page.locator(chips).last.inner_text()
    # A table that is wider than the screen stays where it was scrolled to.
    scrolls = "() => document.querySelector('#sampling .labkit-view').scrollLeft"
    page.evaluate(f"{scrolls[:-11]}.scrollLeft = 40")
    before = page.evaluate(scrolls)
    page.locator("#sampling [name=temperature]").press("ArrowRight")
    assert page.evaluate(scrolls) == before


def test_tab_comes_back_to_the_word_that_the_arrows_reached(browser: Any, site: Path) -> None:
    page = opened(browser, site / "live.html").page
    words = page.locator("#masking .view [role=button]")
    words.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    stops = "(all) => all.map((word) => word.tabIndex)"
    assert words.evaluate_all(stops)[:4] == [-1, -1, 0, -1]
