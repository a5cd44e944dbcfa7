"""`labkit copy`: the notebooks of an installed package in a folder where they can be worked on."""

from collections.abc import Sequence

from classroom.cli.notebooks import notebooks_folder
from classroom.cli.parser import Parser, folder
from labkit.checks import counted
from labkit.keeping.files import replacing


def copy(parser: Parser, words: Sequence[str]) -> int:
    """Copy the notebooks; a file that is already there is left as it is."""
    parser.add_argument(
        "folder", type=folder, metavar="FOLDER", help="the folder to write, created if missing"
    )
    place = parser.parse_args(words).folder
    source = notebooks_folder()
    copied, there = 0, 0
    for path in sorted(source.rglob("*.ipynb")):
        target = place / path.relative_to(source)
        if ".ipynb_checkpoints" in path.parts:
            continue
        if target.exists():
            there += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as draft:  # never half of a notebook
            draft.write_bytes(path.read_bytes())
        copied += 1
    left = f"; left as found: {there}" if there else ""
    print(f"{place}: {counted(copied, 'notebook')}{left}; open them with `jupyter lab`")
    return 0
