"""Open the course in JupyterLab, on this machine alone."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classroom.cli.environment import become, ready_python
from classroom.cli.parser import Parser, fail, port
from labkit.keeping.paths import checkout, to_install

NO_UPDATES = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
# A plugin of the page.
SHARE = Path(__file__).resolve().parent.parent / "pages" / "share" / "labextensions"
START = "notebooks/00_start_here.ipynb"
# The kernel in the metadata of every stored notebook, which `contents` preserves.
METADATA: dict[str, Any] = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def lab(parser: Parser, words: Sequence[str]) -> int:
    """Start JupyterLab on the loopback address, with its token, at the first notebook."""
    parser.add_argument("--port", type=port, default=8888, help="the first port to try [8888]")
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument("--here", action="store_true", help="use this Python, not .venv (conda)")
    args = parser.parse_args(words)
    python = ready_python(args.here)
    if python == sys.executable and importlib.util.find_spec("jupyterlab") is None:
        fail(f"labkit lab: jupyterlab is not installed in {python}: {to_install('lab')}")
    command = [python, *server(checkout() or Path.cwd(), args.port)]
    if args.no_browser:
        command.append("--no-browser")
    return become(command)


def server(root: Path, port: int) -> list[str]:
    """Return the arguments with which Python starts JupyterLab in `root`."""
    words = [
        "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={root}",
        # Others on the machine may listen: messages to kernels are encrypted
        # (`classroom.running.notebook`).
        "--KernelManager.transport_encryption=auto",
        # Pages of other sites cannot make a browser send the cookie along.
        "--IdentityProvider.cookie_options=samesite=Strict",
        # Nothing is fetched. The page would still ask to show news; the plugin prevents it.
        "--LabApp.news_url=None", f"--LabApp.check_for_updates_class={NO_UPDATES}",
        f"--LabApp.extra_labextensions_path={SHARE}",
        "--ServerApp.contents_manager_class=classroom.cli.contents.CleanNotebooks",
    ]  # fmt: skip
    if (root / START).is_file():
        words.append(f"--LabApp.default_url=/lab/tree/{START}")
    if getattr(os, "geteuid", lambda: 1)() == 0:  # in a container one often is root
        words.append("--allow-root")
    return words
