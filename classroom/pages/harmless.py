"""Pages without script: what a notebook brings is cleaned by nh3, which parses as browsers do.

A notebook from somebody else may contain scripts in its Markdown, its outputs and its formulas.
What is kept is what Markdown, tables, formulas and pictures are made of.
"""

import re
from urllib.parse import unquote

# Of MathML all that draws, and nothing that holds other markup (`annotation-xml`, `semantics`).
OF_MATH = """
    math menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts
    mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none
"""
MATH = frozenset(OF_MATH.split())
OF_FORMULAS = """
    accent accentunder align columnalign columnlines columnspacing depth display displaystyle fence
    form height largeop linethickness lspace mathbackground mathcolor mathsize mathvariant maxsize
    minsize movablelimits notation rowalign rowlines rowspacing rspace scriptlevel separator
    stretchy symmetric voffset width
"""
MATH_ATTRIBUTES = frozenset(OF_FORMULAS.split())
TAGS = frozenset({"figcaption", "figure", "main", "nav", "section"})
ATTRIBUTES = frozenset({"class", "dir", "id", "lang", "role", "style", "tabindex", "title"})
# A style that fetches a file, or may hide that it does so, goes as a whole.
FETCHES = re.compile(
    r"\\|/\*|@|url|import|expression|\b(src|image|image-set|cross-fade|element|paint)\s*\(",
    re.IGNORECASE,
)
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml)[;,]", re.IGNORECASE)


def harmless(html: str) -> str:
    """Return a piece of a page without anything that could run."""
    import nh3

    from classroom.demos.reading import written

    attributes = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
    attributes |= {tag: set(MATH_ATTRIBUTES) for tag in MATH}
    attributes["*"] = set(ATTRIBUTES)
    return str(
        nh3.clean(
            written(html),
            tags=nh3.ALLOWED_TAGS | TAGS | MATH,
            attributes=attributes,
            attribute_filter=kept,
            generic_attribute_prefixes={"aria-", "data-"},
            url_schemes={"http", "https", "mailto", "data"},
            link_rel=None,
        )
    )


def kept(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None where it is left out."""
    if name == "data-play":  # only the course's own pages have demos that play by themselves
        return None
    if name == "style" and FETCHES.search(value):
        return None
    if name not in ("href", "src", "cite"):
        return value
    # What a browser ignores in an address must not hide the scheme.
    address = re.sub(r"[\s\x00-\x20]", "", value).lower()
    if re.match(r"[\\/]{2}", unquote(address)):
        # Of another machine: on Windows, a page that was opened from a disk would ask it.
        return None
    if address.startswith("data:"):
        return value if (tag, name) == ("img", "src") and PICTURE.match(address) else None
    return value


def harmless_page(page: str) -> str:
    """Return a page with its `main` part cleaned; all around it is the template's own."""
    start, end = page.index("<main"), page.rindex("</main>") + len("</main>")
    return page[:start] + harmless(page[start:end]) + page[end:]
