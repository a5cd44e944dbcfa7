"""`labkit publish`: the course's public address, written into every file that shows it.

Its one home is `[project.urls]` in pyproject.toml.  From there come the badges in the README, the
address in the students' page, and the first cell of each notebook, which installs labkit where it
is missing.  As long as there is no address, none of them names one: code is never installed from
an account that somebody else may take.
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classroom.cli.environment import checkout_of
from classroom.cli.notebooks import LARGEST
from classroom.cli.parser import Parser, fail
from labkit.keeping.files import read_json, write_text

HOST = "https://github.com/"
NAMED = re.compile(
    r"(?:https://github\.com/|(?:ssh://)?git@github\.com[:/])?"
    r"([A-Za-z0-9][A-Za-z0-9-]*/[\w-][\w.-]*?)(?:\.git)?/?",
    re.ASCII,
)
BRANCH = "main"
TAG = "install"
BADGES = ("<!-- badges: begin -->", "<!-- badges: end -->")
UNPUBLISHED = (
    "Badges that open a notebook in Colab or Binder are written here by\n"
    "`python -m labkit publish OWNER/NAME`, once this course has a public address."
)
PLACE = "ADDRESS"  # the placeholder in the students' page
STUDENTS = "docs/student.md"

CELL = """\
# Installs labkit where it is missing, as on Colab. Everywhere else this cell does nothing.
import importlib.util
import pathlib

if importlib.util.find_spec("labkit") is None:
    if pathlib.Path("../labkit/__init__.py").is_file():  # the notebook lies in the whole course
        %pip install --quiet ..
    else:
        """
FROM_ADDRESS = "%pip install --quiet git+{address}"
NO_ADDRESS = """\
raise ModuleNotFoundError(
            "labkit is missing in this kernel: run `python -m labkit lab` in the course's folder"
        )"""


def publish(parser: Parser, words: Sequence[str]) -> int:
    """Write the address into pyproject.toml, the README, the students' page and the notebooks."""
    parser.add_argument("name", nargs="?", metavar="OWNER/NAME",
                        help="the repository on GitHub [git's origin]")  # fmt: skip
    name = parser.parse_args(words).name
    root = checkout_of("labkit publish: an address belongs")
    named = NAMED.fullmatch(name or origin(root))
    if named is None:
        said = f"{name} is not a repository" if name else "git's origin is not on GitHub"
        fail(f"labkit publish: {said}: give OWNER/NAME, as in the address of its page")
    address = HOST + named[1]
    # pyproject.toml last: the next call reads there which address the others contain.
    try:
        texts = written(root, address)
    except ValueError as error:
        fail(f"labkit publish: {error}", code=1)
    for path, text in sorted(texts.items(), key=lambda item: item[0].name == "pyproject.toml"):
        if path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            print(path.relative_to(root))
    print(f"{address}: whoever owns this account can run code in every kernel that installs from "
          "it, so push the course there before you hand out the badges")  # fmt: skip
    return 0


def origin(root: Path) -> str:
    """Return the address that git calls origin, or nothing."""
    try:
        asked = ["git", "config", "--get", "remote.origin.url"]
        return subprocess.run(asked, cwd=root, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def address_of(root: Path) -> str:
    """Return the course's public address, or nothing where there is none yet."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", ""))


def written(root: Path, address: str) -> dict[Path, str]:
    """Return the files that contain the address, and their text with this one."""
    before = address_of(root)
    texts = {root / name: (root / name).read_text(encoding="utf-8")
             for name in ("pyproject.toml", "README.md", STUDENTS)}  # fmt: skip
    project, readme, students = texts
    texts[project] = with_address(texts[project], address)
    books = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    texts[readme] = with_badges(texts[readme], address, books)
    if address:
        texts[students] = texts[students].replace(before or PLACE, address)
    for path in books:
        notebook = read_json(path, LARGEST)
        texts[path] = json.dumps(with_cell(notebook, address), indent=1, ensure_ascii=False) + "\n"
    return texts


def with_address(project: str, address: str) -> str:
    """Return the text of pyproject.toml with the address."""
    head, scripts = "[project.urls]\n", "[project.scripts]\n"
    if head not in project:
        project = project.replace(scripts, f"{head}\n{scripts}")
    # The table may hold other addresses, which stay.
    old = r"(\[project\.urls\]\n(?:(?!\[).*\n)*?)Repository = .*\n"
    line = f'Repository = "{address}"\n' if address else ""
    made = re.sub(old, r"\1", project).replace(head, f"{head}{line}")
    return made.replace(f"{head}\n", "")


def with_badges(readme: str, address: str, books: Sequence[Path]) -> str:
    """Return the README with two badges for each notebook."""
    begin, end = BADGES
    before, _, rest = readme.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"README.md needs the lines {begin} and {end}: put back what is missing")
    name = address.removeprefix(HOST)
    lines = ["| notebook | in Google's cloud | on Binder |", "|---|---|---|"]
    lines += [f"| `{book.stem}` | {badges(name, book.name)} |" for book in books]
    return f"{before}{begin}\n{chr(10).join(lines) if address else UNPUBLISHED}\n{end}{after}"


def badges(name: str, book: str) -> str:
    """Return the two badges of one notebook: Colab opens the file, Binder the whole course."""
    colab = f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/notebooks/{book}"
    binder = f"https://mybinder.org/v2/gh/{name}/{BRANCH}?labpath=notebooks%2F{book}"
    return (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab}) | "
        f"[![Open on Binder](https://mybinder.org/badge_logo.svg)]({binder})"
    )


def with_cell(notebook: dict[str, Any], address: str) -> dict[str, Any]:
    """Return a notebook whose first cell of code installs labkit where it is missing."""
    source = CELL + (FROM_ADDRESS.format(address=address) if address else NO_ADDRESS)
    for cell in notebook["cells"]:
        if TAG in cell["metadata"].get("tags", []):
            cell["source"] = source.splitlines(keepends=True)
    return notebook
