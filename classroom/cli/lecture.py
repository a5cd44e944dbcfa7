"""A notebook as slides with live widgets, by default on this machine only."""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classroom.cli.notebooks import find
from classroom.cli.parser import Parser, fail, port
from classroom.running.light import light_jsonschema

SHARE = Path(__file__).resolve().parent.parent / "pages" / "share"
EVERYWHERE = ("0.0.0.0", "::")
KERNEL = 450 * 10**6
"""Bytes that the kernel of one browser takes; in docs/server.md, notebook 08 takes 350 MB."""


def lecture(parser: Parser, words: Sequence[str]) -> int:
    """Serve the slides of a notebook, and print the link that opens them."""
    parser.add_argument("notebook", help="a path, or the beginning of a name, such as 06")
    parser.add_argument("--port", type=port, default=8866, help="the first port to try [8866]")
    parser.add_argument(
        "--ip",
        default="127.0.0.1",
        help="the address to listen on; 0.0.0.0 lets "
        "other machines in, and the link is sent unencrypted [127.0.0.1]",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light",
                        help="the theme of the slides [light]")  # fmt: skip
    parser.add_argument(
        "--no-browser",
        action="store_true",
        help="only print the link; other users of the machine can see the link of a "
        "browser that the command opens",
    )
    args = parser.parse_args(words)
    notebook = find(args.notebook)
    args.ip = "0.0.0.0" if args.ip in ("", "*") else args.ip
    number, token = free_port(args.ip, args.port), secrets.token_hex(16)
    host = socket.gethostname() if args.ip in EVERYWHERE else args.ip
    host = f"[{host}]" if ":" in host else host
    link = f"http://{host}:{number}/?token={token}"
    print(f"{notebook.name}: starting ...", flush=True)
    told = (args.ip, number, f"{notebook.name} as slides, at", link, not args.no_browser)
    threading.Thread(target=announce, args=told, daemon=True).start()
    serve(notebook.resolve(), args.ip, number, token, args.theme)
    return 0


def announce(ip: str, port: int, said: str, link: str, browse: bool) -> None:
    """Wait until the server listens; then print the link and, if `browse`, open it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, ip)
    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection((here, port), timeout=1):
            break
        time.sleep(0.1)
    print(
        f"{said}\n\n    {link}\n\nPress Ctrl-C to stop, or ? on a slide for the keys. {room()}",
        flush=True,
    )
    if browse:
        webbrowser.open(link)


def room() -> str:
    """Say how many browsers the free memory suffices for: each has a kernel of its own."""
    import psutil

    count = max(1, int(psutil.virtual_memory().available // KERNEL))
    return f"Each browser has a kernel of its own; there is memory for about {count}."


def serve(notebook: Path, ip: str, port: int, token: str, theme: str) -> None:
    """Run Voilà in this process, so that the token is not in the list of processes."""
    # Here Voilà finds the template of the slides, and the plugin that JupyterLab has too.
    path = [str(SHARE), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(path)
    light_jsonschema()
    from traitlets.config import Config
    from voila.app import Voila
    from voila.exporter import VoilaMarkdownRenderer

    from classroom.pages.formulas import with_mathml
    from classroom.running.notebook import kernel_settings

    config = kernel_settings()
    config.Voila = Config(
        ip=ip, port=port, port_retries=0, token=token, open_browser=False,
        log_level=logging.WARNING,
    )  # fmt: skip
    # Pages of other sites cannot make a browser send the cookie along.
    config.IdentityProvider.cookie_options = {"samesite": "Strict"}
    config.VoilaConfiguration = Config(
        template="lecture", theme=theme, strip_sources=False, file_allowlist=[],
        allow_template_override="NO", allow_theme_override="NO", show_tracebacks=True,
        progressive_rendering=True, prelaunch_hook=give_xsrf,
    )  # fmt: skip
    # This ends the kernel of a browser that has vanished; an open page keeps its kernel.
    config.MappingKernelManager = Config(cull_idle_timeout=600, cull_interval=60)
    config.VoilaExporter.markdown_renderer_class = with_mathml(VoilaMarkdownRenderer)
    app = Voila(config=config)
    app.initialize([str(notebook)])
    app.start()


def give_xsrf(handler: Any, *_: Any, **__: Any) -> None:
    """Give the browser the cookie without which the server refuses to end its kernel.

    A page requests this when it is left. Voilà itself never sets the cookie; reading it does.
    """
    _ = handler.xsrf_token


def free_port(ip: str, first: int) -> int:
    """The first port from `first` on that is free."""
    last = min(first + 49, 65535)
    for number in range(first, last + 1):
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as sock:
            if os.name != "nt":  # on Windows it would let two servers share a port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((ip, number))
            except OSError as error:
                if number == last:
                    fail(f"labkit lecture: no port from {first} to {last} is free on {ip}: "
                         f"{error.strerror}; give another --port or --ip")  # fmt: skip
                continue
        return number
    raise AssertionError("the last port has failed above")
