"""The live page in a browser, from a file: it computes, and nothing else runs or is fetched."""

from pathlib import Path
from typing import Any

import pytest

from classroom.demos import sampling_view
from classroom.demos.sampling import next_step, text_of
from classroom.pages.live import building
from classroom.shipped import trained
from labkit.sampling import Sampling

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "live.html"
    building.write(path)
    return path


def words(text: str) -> list[str]:
    return text.split()


def test_the_page_computes_from_a_file(browser: Any, live: Path) -> None:
    assert live.stat().st_size < 2e6
    page, errors, requests = browser.new_page(viewport={"width": 390, "height": 800}), [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(live.as_uri())
    chips = page.locator("#sampling [data-position]")
    assert chips.count() == 5
    page.locator('#sampling [data-act="step"]').click()
    model, tokenizer = trained("gpt-village")
    prompt = page.locator("#sampling textarea").input_value()
    [drawn] = next_step(model, text_of(prompt, [], tokenizer).tokens, Sampling(), 0).tokens_B
    view = sampling_view(prompt, [int(drawn)], Sampling(), model, tokenizer)
    shown = page.evaluate("() => document.querySelector('#sampling .view').innerText")
    assert words(view.text)[:7] == words(shown)[:7]
    # A row writes its word, by the keyboard as well.
    row = page.locator("#sampling [data-key]").nth(2)
    row.focus()
    page.keyboard.press("Enter")
    assert chips.count() == 7
    page.locator('#sampling [data-act="undo"]').click()
    assert chips.count() == 6
    reach = page.locator("#memory-reach .labkit-view")
    before = reach.inner_text()
    page.locator("#memory-reach input[name=layers]").press("ArrowRight")
    assert reach.inner_text() != before
    page.locator("#sampling textarea").fill("<img src=x onerror='window.ran = 1'> the")
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.ran = 2';
        document.body.append(script);
    }""")
    assert page.evaluate("() => window.ran") is None
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390
    page.close()
