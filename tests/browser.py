"""JupyterLab in a headless Chromium, as a person would use it.

`with jupyterlab(folder) as server: page = opened(browser, server, "name.ipynb"); run_all(page)`.
The folder holds copies of the notebooks; settings and state are private to the server.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from classroom.cli import lab

SETTINGS = {
    # Otherwise outputs outside the window are missing from the page.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
# The "idle" sign shows before there is a kernel, and "run all" is then dropped in silence.
READY = """async () => {
    const panel = jupyterapp.shell.currentWidget;
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""


class Server(NamedTuple):
    """A running JupyterLab."""

    address: str
    token: str


@contextmanager
def jupyterlab(folder: Path, state: Path) -> Iterator[Server]:
    """Run JupyterLab over the folder, with settings and state of its own."""
    for name, settings in SETTINGS.items():
        path = state / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    places = {name: str(state / name.lower()) for name in (
        "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")}  # fmt: skip
    places["JUPYTERLAB_SETTINGS_DIR"] = str(state / "settings")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", "a-token-for-tests")
    words = [*lab.server(folder, port), "--no-browser", "--ServerApp.port_retries=0",
             f"--IdentityProvider.token={server.token}",
             "--LabApp.expose_app_in_browser=True"]  # fmt: skip
    log = state / "log.txt"
    with (
        log.open("w") as record,
        subprocess.Popen(
            [sys.executable, *words], start_new_session=True,
            env={**os.environ, **places}, stdout=record, stderr=record,
        ) as process,
    ):  # fmt: skip
        try:
            wait_for(f"{server.address}/api/status?token={server.token}", process, log)
            yield server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        with suppress(OSError), opener.open(address, timeout=5):
            return
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def opened(browser: Any, server: Server, notebook: str) -> Any:
    """Open a notebook and return the page once its kernel is ready."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(f"{server.address}/doc/tree/{notebook}?token={server.token}&reset")
    page.wait_for_selector(".jp-NotebookPanel")
    page.evaluate(READY)
    return page


def run_all(page: Any) -> bool:
    """Run all cells; say whether none of them raised."""
    return bool(page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')"))
