"""All notebooks as a site of files."""

from collections.abc import Sequence
from pathlib import Path

from classroom.cli.notebooks import every_notebook, find
from classroom.cli.parser import Parser


def site(parser: Parser, words: Sequence[str]) -> int:
    """Write the site, and say where it is."""
    parser.add_argument("names", nargs="*", help="which notebooks [all]")
    parser.add_argument("--out", type=Path, default=Path("site"), help="the folder [site]")
    parser.add_argument("--students", action="store_true", help="leave the solutions out")
    args = parser.parse_args(words)
    from classroom.pages.site import build

    pages = build(
        [find(name) for name in args.names] or every_notebook(), args.out, students=args.students
    )
    print(f"{len(pages)} notebooks: open {args.out / 'index.html'}")
    return 0
