"""The source of the package, in a notebook: `show(masking.causal)`.

Code on a slide is never copied: what is shown is what runs.
"""

import inspect
import io
import keyword
import tokenize
from typing import Any, NamedTuple

from classroom.demos.drawing import clean, safe

# Weight and slant tell the kinds apart as well as colours do.
STYLES = {
    "keyword": "font-weight:bold;color:var(--jp-mirror-editor-keyword-color,#006b18)",
    "string": "color:var(--jp-mirror-editor-string-color,#9d1a1a)",
    "comment": "font-style:italic;color:var(--jp-mirror-editor-comment-color,#3f6b6b)",
    "name": "font-weight:bold",
}
PANEL = (
    "background:var(--jp-layout-color1,#ffffff);color:var(--jp-content-font-color1,#1b1f24);"
    "border-left:4px solid currentColor;padding:4px 12px;overflow-x:auto;margin:0"
)


class Source(NamedTuple):
    """Some source code, which a notebook shows coloured and a terminal as it is."""

    title: str
    code: str

    def _repr_html_(self) -> str:
        return (
            f'<div class="labkit-source tex2jax_ignore mathjax_ignore">'
            f"<div><small>{safe(self.title)}</small></div>"
            f'<pre tabindex="0" aria-label="{safe(self.title)}" style="{PANEL}">'
            f'<code style="background:none">{coloured(self.code)}</code></pre></div>'
        )

    def __repr__(self) -> str:
        return f"# {self.title}\n{clean(self.code)}"


def show(thing: Any) -> Source:
    """The source of a function, a class or a module, to end a cell with."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not any(map_(thing) for map_ in SHOWN):
        thing = type(thing)
    try:
        code = inspect.getsource(thing)
    except (OSError, TypeError) as error:
        name = getattr(thing, "__name__", repr(thing))
        raise ValueError(
            f"there is no Python source of {name}: give a function, class or module of a package"
        ) from error
    if inspect.ismodule(thing):
        return Source(thing.__name__, code.rstrip())
    return Source(
        f"{thing.__module__}.{thing.__qualname__}", inspect.cleandoc("\n" + code).rstrip()
    )


SHOWN = (inspect.ismodule, inspect.isclass, inspect.isroutine)


def coloured(code: str) -> str:
    """The code as HTML, escaped, with its keywords, strings and comments marked."""
    lines = code.splitlines(keepends=True)
    html, at = [], (1, 0)
    before = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            html.append(safe(between(lines, at, token.start)))
            kind = kind_of(token, before)
            shown = safe(between(lines, token.start, token.end))
            html.append(
                f'<span data-kind="{kind}" style="{STYLES[kind]}">{shown}</span>' if kind else shown
            )
            at, before = token.end, token.string
    except (tokenize.TokenError, IndentationError):
        # Not Python, or a piece of it: what is left is shown as it is.
        pass
    return "".join(html) + safe(between(lines, at, (len(lines) + 1, 0)))


def kind_of(token: tokenize.TokenInfo, before: str) -> str | None:
    """What a token is, as far as it has a style of its own."""
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
        return "string"
    if token.type == tokenize.NAME:
        if keyword.iskeyword(token.string):
            return "keyword"
        return "name" if before in ("def", "class") else None
    return None


def between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """What stands between two places, (line, column), lines counted from 1."""
    (first, left), (last, right) = start, end
    if first > len(lines) or start >= end:
        return ""
    if first == last:
        return lines[first - 1][left:right]
    tail = lines[last - 1][:right] if last <= len(lines) else ""
    return lines[first - 1][left:] + "".join(lines[first : last - 1]) + tail
