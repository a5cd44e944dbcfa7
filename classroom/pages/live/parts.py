"""A page that is complete in itself: data and scripts are inline, and a policy admits no others."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from classroom.demos.recording import packed

FOLDER = Path(__file__).resolve().parent
ENGINE = ("render", "engine", "views", "page")
"""The scripts of a page that computes."""
SHOWN = ("render", "page")
"""The scripts of a page whose views were written down."""


def page(title: str, body: str, scripts: Sequence[str] = ()) -> str:
    """A page with its scripts inside; without any, nothing in it can run."""
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    if scripts:
        style += style_of_demos()
        body += "<noscript><p>These demos need JavaScript; the notebooks do not.</p></noscript>"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{policy(scripts)}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main>{inline(scripts)}</body></html>\n"
    )


def scripts_of(data: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The data, packed, and the scripts of these names."""
    sources = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return [f'const PACKED = "{packed(data)}";', *sources]


def policy(scripts: Sequence[str]) -> str:
    """A policy that admits these inline scripts by their digests, and nothing that is fetched."""
    digests = " ".join(f"'sha256-{digest(script)}'" for script in scripts) or "'none'"
    said = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; "
        "img-src 'self' file: data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{said}">'


def digest(script: str) -> str:
    """The digest by which a policy admits a script."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


def inline(scripts: Sequence[str]) -> str:
    """The scripts as elements."""
    return "".join(f"<script>{script}</script>" for script in scripts)


def style_of_demos() -> str:
    """The style of demos, for any page."""
    return (FOLDER / "demos.css").read_text(encoding="utf-8")
