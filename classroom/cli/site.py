"""All notebooks as a site of files."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from classroom.cli.notebooks import named_or_all
from classroom.cli.parser import Parser, fail, folder
from classroom.exercises.students import BEGIN, SPOKEN
from labkit.checks import counted
from labkit.keeping.files import write_text

OWN = ("index", "live")
"""Pages that every site has."""


def site(parser: Parser, words: Sequence[str]) -> int:
    """Write the site, and print where it is."""
    parser.add_argument("names", nargs="*", help="the notebooks [all]")
    parser.add_argument("--output", type=folder, default=Path("site"), metavar="FOLDER",
                        help="the folder to write [site]")  # fmt: skip
    parser.add_argument("--students", action="store_true", help="leave the solutions out")
    args = parser.parse_args(words)
    books = list(dict.fromkeys(named_or_all(args.names)))
    check_names(books)
    if args.students:
        check_folder(books, args.output)
    args.output.mkdir(parents=True, exist_ok=True)  # if it fails, then before the work
    try:
        pages = write(books, args.output, students=args.students)
    except ValueError as problem:
        fail(f"labkit site: {problem}", code=1)
    print(f"{counted(len(pages), 'notebook')}: open {args.output / 'index.html'}")
    return 0


def check_names(books: Sequence[Path]) -> None:
    """Leave with one line if one page would take the place of another."""
    taken = {*OWN}
    for book in books:
        name = book.stem.lower()  # some file systems ignore case
        if name in taken:
            fail(f"labkit site: {book}: the site has another page {book.stem}.html: "
                 "give the notebook another name")  # fmt: skip
        taken.add(name)


def check_folder(books: Sequence[Path], out: Path) -> None:
    """Leave with one line if the folder has pages of an earlier site that students must not see."""
    replaced = {f"{name}.html" for name in (*OWN, *(book.stem for book in books))}
    for path in (*out.glob("*.html"), *out.glob("files/**/*.ipynb.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        told = BEGIN in text or '"notes"' in text or SPOKEN.search(text)
        if told and path.name not in replaced:
            fail(f"labkit site: {path} holds solutions or speaker's notes: give another folder "
                 "with --output, or delete it")  # fmt: skip


def write(notebooks: Sequence[Path], out: Path, *, students: bool = False) -> Sequence[Any]:
    """Write the pages of the notebooks, the first page with a list of them, and the live page."""
    from classroom.pages.live import building
    from classroom.pages.live.pictures import scripts_for
    from classroom.pages.site import TITLE, build, listed

    gpt, bert = models()
    known = of_page()
    pages = build(
        notebooks, out, students=students, scripts_for=lambda book: scripts_for(book, known)
    )
    first = building.first_page(TITLE, listed(pages), gpt)
    write_text(out / "index.html", first)
    live = building.live_page(gpt, bert, quality())
    write_text(out / "live.html", live)
    return pages


@cache
def models() -> tuple[Any, Any]:
    """The models of the live pages, which ship with the course."""
    from classroom.models.shipped import trained

    return trained("gpt-village"), trained("bert-village")


def of_page() -> Any:
    """What the page of a notebook can compute with."""
    from classroom.demos.masking import masking_demo
    from classroom.demos.sampling import sampling_demo
    from classroom.pages.live import building
    from classroom.pages.live.pictures import OfPage

    return OfPage(*models(), building.village(), sampling_demo, masking_demo)


def quality() -> str:
    """How good the models are, by their cards."""
    from classroom.models.shipped import card

    said = []
    for kind in ("gpt", "bert"):
        known = card(f"{kind}-village")
        said.append(
            f"{kind.upper()} loses {known['held_out']:.3f} {known['unit']} on text that it has "
            f"never read; no model can lose less than {known['floor']:.3f}"
        )
    return f"{'. '.join(said)}. Their weights have 16 bits, here as in the notebooks."
