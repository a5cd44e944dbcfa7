"""Formulas as MathML, which a browser draws by itself: no script, no font and no network.

The usual way, MathJax from elsewhere, leaves dollar signs where there is no network.
"""

import re
from html import escape, unescape

TEXT = re.compile(r"(<mtext[^>]*>)(.*?)(?=</mtext>)", re.DOTALL)


def mathml(tex: str, *, block: bool = False) -> str:
    """A formula of TeX as MathML; one that cannot be read is shown as it was written."""
    from latex2mathml.converter import convert

    # The converter knows aligned lines by one of their two names.
    known = tex.strip().replace("{aligned}", "{align*}")
    try:
        made = str(convert(known, display="block" if block else "inline"))
        # The converter leaves a text as it is, also where it looks like a tag.
        made = TEXT.sub(lambda found: found[1] + escape(unescape(found[2]), quote=False), made)
        # HTML needs no name space, and what rewrites headings would make a prefix of it.
        return made.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    except Exception:  # the converter's errors have no class in common
        return f'<code class="labkit-tex">{escape(tex)}</code>'


def wide(html: str, what: str) -> str:
    """What may be wider than the screen: it scrolls by itself, and the keyboard reaches it."""
    # A formula may be inside a paragraph, which has no room for a div.
    tag = "div" if what == "table" else "span"
    label = f'role="group" aria-label="{what}" tabindex="0"'
    return f'<{tag} class="labkit-wide" {label}>{html}</{tag}>'


def with_mathml(renderer: type) -> type:
    """The renderer of Markdown with formulas that need nothing but the page."""

    class Renderer(renderer):
        """Markdown, its formulas in MathML."""

        def block_math(self, body: str) -> str:
            """A formula on a line of its own."""
            return wide(mathml(body, block=True), "formula")

        def inline_math(self, body: str) -> str:
            """A formula within a sentence."""
            return mathml(body)

        def latex_environment(self, name: str, body: str) -> str:
            """Several aligned lines, or a matrix."""
            tex = f"\\begin{{{name}}}{body}\\end{{{name}}}"
            return wide(mathml(tex, block=True), "formula")

        def table(self, text: str) -> str:
            """A table, which may be wider than a phone."""
            return wide(f"<table>\n{text}</table>\n", "table")

    return Renderer
