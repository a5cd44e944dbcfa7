"""Sizes and latencies of the live pages, measured in Chromium:  python tests/bench/bench_pages.py

For each page its size, and the time until its demos answer; for each demo the least and the median
time of a move of a slider, computed and drawn.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import FLAGS
from playwright.sync_api import sync_playwright

from classroom.cli.doctor import find_chromium
from classroom.cli.site import write

MOVED = """async ([demo, name]) => {
    const field = document.querySelector(`#${demo} [name="${name}"]`), times = [];
    for (let n = 0; n < 20; n++) {
        field.value = Number(field.min) + (n % 7 + 1) / 8 * (field.max - field.min);
        const begun = performance.now();
        field.dispatchEvent(new Event("input", { bubbles: true }));
        document.body.getBoundingClientRect();
        times.push(performance.now() - begun);
        await new Promise((done) => setTimeout(done, 5));
    }
    return times.sort((a, b) => a - b);
}"""
SLIDERS = (("sampling", "temperature"), ("masking", "rate"), ("attention", "head"),
           ("floors", "reach"), ("masks", "rate"), ("memory-reach", "layers"),
           ("schedule", "step"))  # fmt: skip


def main() -> None:
    """Print a line for each page and for each slider."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write([], Path(folder))
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for name in ("index.html", "live.html"):
            path, page = Path(folder, name), chromium.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-ready]")
            opened = page.evaluate("() => performance.now()")
            print(f"{name:12} {path.stat().st_size / 1e6:.2f} MB, open in {opened:,.0f} ms")
        for demo, slider in SLIDERS:
            times = page.evaluate(MOVED, [demo, slider])
            print(f"{demo:12} {slider:12} least {times[0]:5.1f} ms, median {times[10]:5.1f} ms")
        chromium.close()


if __name__ == "__main__":
    main()
