"""The live pages in Firefox, from files: they open, play, and ask for nothing.

Firefox is driven by its own protocol, WebDriver BiDi, and needs no driver beside it.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_live_pages_browser import site

__all__ = ["site"]

pytestmark = pytest.mark.browser
# No question, no update, no report: a profile for tests.
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.enabled": False,
    "network.proxy.type": 0,
    "remote.active-protocols": 1,
}
PLAYED = """() => {
    const said = (demo) => document.querySelector(`#${demo} .view`).innerText;
    const set = (demo, name, value) => {
        const field = document.querySelector(`#${demo} [name="${name}"]`);
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const count = (query) => document.querySelectorAll(query).length, found = {};
    const words = count("#sampling [data-position]");
    document.querySelector('#sampling [data-does="step"]').click();
    found.stepped = count("#sampling [data-position]") - words;
    set("masking", "rate", 0);
    document.querySelectorAll("#masking [data-position]")[2].click();
    found.hidden = document.querySelectorAll("#masking [data-position]")[2].dataset.kind;
    document.querySelector("#attention span[data-row='1']").click();
    found.selected = count("#attention [aria-pressed=true]");
    set("attention", "model", "GPT");
    found.head = said("attention").split("\\n")[0];
    const before = said("memory-reach");
    set("memory-reach", "layers", 0);
    found.moved = said("memory-reach") !== before;
    found.wide = document.documentElement.scrollWidth > innerWidth;
    document.querySelector("#sampling [data-key] bdi").focus();
    return JSON.stringify(found);
}"""
THEME = """(scheme) => {
    document.documentElement.style.colorScheme = scheme;
    const { backgroundColor, color } = getComputedStyle(document.body);
    return backgroundColor + color;
}"""


class Firefox:
    """A headless Firefox with one page."""

    def __init__(self, program: str, profile: Path) -> None:
        import websocket

        lines = (f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items())
        (profile / "user.js").write_text("\n".join(lines))
        words = [program, "--headless", "--no-remote", "--profile", str(profile),
                 "--remote-debugging-port", "0", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": str(profile)},
        )  # fmt: skip
        said = profile / "WebDriverBiDiServer.json"
        for _ in range(600):
            if said.exists() and said.read_text().endswith("}"):
                break
            assert self.process.poll() is None, "Firefox has ended"
            time.sleep(0.1)
        place = json.loads(said.read_text())
        address = f"ws://{place['ws_host']}:{place['ws_port']}/session"
        self.socket = websocket.create_connection(
            address, timeout=120, suppress_origin=True, http_no_proxy=["*"]
        )
        self.numbers, self.events = itertools.count(1), list[dict[str, Any]]()
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.page = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command and return its result; events that come meanwhile are kept."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            said = json.loads(self.socket.recv())
            if said.get("id") == number:
                assert said["type"] == "success", said
                return said["result"]
            self.events.append(said)

    def open(self, path: Path) -> None:
        """Open a page and wait until its demos answer."""
        self.ask("browsingContext.navigate", context=self.page, url=path.as_uri(), wait="complete")
        for _ in range(300):
            if self.run("() => document.body.dataset.ready ?? ''") == "yes":
                return
            time.sleep(0.1)
        raise TimeoutError(f"{path.name}: {self.errors}")

    def run(self, code: str, *given: str) -> Any:
        """Call a function of the page."""
        found = self.ask(
            "script.callFunction",
            functionDeclaration=code,
            arguments=[{"type": "string", "value": one} for one in given],
            target={"context": self.page},
            awaitPromise=True,
        )
        assert found["type"] == "success", found
        return found["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("input.performActions", context=self.page,
                 actions=[{"type": "key", "id": "keys", "actions": actions}])  # fmt: skip

    @property
    def errors(self) -> list[str]:
        """What the console has said."""
        return [one["params"]["text"] for one in self.events if one["method"] == "log.entryAdded"]

    @property
    def requests(self) -> list[str]:
        """What the pages have asked for, but for themselves."""
        asked = (one["params"] for one in self.events if one["method"] != "log.entryAdded")
        inside = ("file:", "data:", "blob:", "about:")
        urls = (one["request"]["url"] for one in asked if "request" in one)
        return [url for url in urls if not url.startswith(inside)]

    def close(self) -> None:
        """End the browser that was started, and nothing else."""
        self.socket.close()
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("no Firefox on the PATH: apt-get install firefox-esr")
    browser = Firefox(program, tmp_path_factory.mktemp("firefox"))
    yield browser
    browser.close()


def test_the_live_pages_play_in_firefox(firefox: Firefox, site: Path) -> None:
    firefox.open(site / "live.html")
    found = json.loads(firefox.run(PLAYED))
    assert found == {"stepped": 1, "hidden": "mask", "selected": 1, "moved": True, "wide": False,
                     "head": found["head"]}  # fmt: skip
    assert found["head"].startswith("Layer 1 of 2")
    # By keyboard: the next word of the list, and then it is written.
    words = "() => String(document.querySelectorAll('#sampling [data-position]').length)"
    before = int(firefox.run(words))
    firefox.press("\ue015", "\ue007")
    assert int(firefox.run(words)) == before + 1
    assert len({firefox.run(THEME, scheme) for scheme in ("light", "dark")}) == 2
    for name in ("index", "01_own"):
        firefox.open(site / f"{name}.html")
    assert firefox.errors == []
    assert firefox.requests == []
