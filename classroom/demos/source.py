"""The source of the package, in a notebook: `show(masking.causal)`.

Code on a slide is never copied: what is shown is what runs.
"""

import inspect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Operator, String

from classroom.demos.rendering import clean, safe

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
            f'<pre role="group" tabindex="0" aria-label="{safe(self.title)}" style="{PANEL}">'
            f'<code style="background:none">{coloured(self.code)}</code></pre></div>'
        )

    def __repr__(self) -> str:
        return f"# {self.title}\n{clean(self.code)}"


def show(thing: Any) -> Source:
    """The source of a function, a class or a module, to end a cell with."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not (inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isroutine(thing)):
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


def coloured(code: str) -> str:
    """The code as HTML, escaped, with its keywords, strings and comments marked.

    Pygments has a grammar of its own, so the picture is the same under every version of Python.
    """
    return "".join(
        f'<span data-kind="{kind}" style="{STYLES[kind]}">{safe(text)}</span>'
        if kind
        else safe(text)
        for kind, text in joined(code)
    )


def joined(code: str) -> Iterator[tuple[str | None, str]]:
    """Yield the kinds of code and their texts; neighbours of one kind come as one piece."""
    before = ""
    kinds = []
    # The unprocessed tokens hold every letter of the code, also at its ends.
    for _, token, text in PythonLexer().get_tokens_unprocessed(code):
        kinds.append((kind_of(token, before), text))
        before = text.strip() or before
    for kind, pieces in itertools.groupby(kinds, key=lambda piece: piece[0]):
        yield kind, "".join(text for _, text in pieces)


def kind_of(token: Any, before: str) -> str | None:
    """What a token is, as far as it has a style of its own."""
    if token in Comment:
        return "comment"
    if token in String:
        return "string"
    if token in Keyword or token in Operator.Word:
        return "keyword"
    return "name" if before in ("def", "class") and token in Name else None
