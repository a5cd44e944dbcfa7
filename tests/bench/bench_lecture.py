"""How many seconds after its first slide a lecture is ready, in Chromium, nothing in the cache:

python -m labkit bench lecture          every notebook, as LABKIT_SHORT=1 opens it
python -m labkit bench lecture 02 05    some of them
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import FLAGS
from playwright.sync_api import sync_playwright
from test_lecture_browser import served

from classroom.cli.doctor import find_chromium
from classroom.cli.notebooks import named_or_all

# What a cell will show stands on its slide as a skeleton until the cell has run.
READY = """() => document.querySelectorAll(".lecture-slide").length > 1
    && !document.querySelector(".voila-skeleton-container")"""


def main() -> None:
    """Print a line for each notebook."""
    path = find_chromium()
    if path is None:
        sys.exit("no Chromium was found: install it, or name its program in LABKIT_CHROMIUM")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for notebook in named_or_all(sys.argv[1:]):
            with tempfile.TemporaryDirectory() as folder:
                os.environ |= {"LABKIT_SHORT": "1", "LABKIT_CACHE": f"{folder}/cache"}
                book = Path(shutil.copy(notebook, folder))
                with served(chromium, book) as lecture:
                    begun = time.perf_counter()
                    lecture.page.wait_for_function(READY, timeout=300_000, polling=100)
                    took = time.perf_counter() - begun
                    lecture.page.close()
            print(f"{notebook.stem:<28} {took:5.1f} s", flush=True)
        chromium.close()


if __name__ == "__main__":
    main()
