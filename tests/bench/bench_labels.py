"""A hundred labels of a table that is not the course's language: how good, and in what time.

    python tests/bench/bench_labels.py [--labels 100] [--backbones ulmfit gpt real]

The table is made of what the installed libraries say of themselves: each text is the beginning of
a docstring, its label is the library that it is from, whose name is taken out of the text.  It is
real English, it is on every machine that has the course, and nobody wrote it for this.  Then
`examples/your_labels.py` runs as a user would run it, in a process of its own.
"""

import argparse
import csv
import inspect
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "examples" / "your_labels.py"
LIBRARIES = ("matplotlib", "numpy", "torch")
TEXTS, WORDS = 1000, 60
# Parts that start something when they are imported, or that only tests have.
SKIPPED = re.compile(r"test|backend|_inductor|onnx|distributed|conftest|setup|__main__|\b_")


def modules(library: str) -> Iterator[ModuleType]:
    """A library and its parts, in the order of their names."""
    whole = import_module(library)
    yield whole
    for found in sorted(pkgutil.iter_modules(whole.__path__, f"{library}."), key=lambda f: f.name):
        if not SKIPPED.search(found.name):
            try:
                yield import_module(found.name)
            except (ImportError, RuntimeError, OSError):
                continue


def docstrings(library: str) -> list[str]:
    """What a library says of its functions and classes, once each, without its name."""
    texts = dict[str, None]()
    for module in modules(library):
        for name in sorted(vars(module)):
            thing = getattr(module, name)
            own = str(getattr(thing, "__module__", "")).startswith(library)
            things = [thing] if own and callable(thing) else []
            if own and inspect.isclass(thing):
                things += [vars(thing)[key] for key in sorted(vars(thing)) if key[:1] != "_"]
            for each in things:
                words = re.findall(r"[a-z]+|[.,;:()=\[\]]", str(each.__doc__ or "").lower())
                # The names that people import the libraries by would tell as much.
                said = [w for w in words if w not in ("np", "plt", "mpl", library)][:WORDS]
                if len(said) >= 12:
                    texts[" ".join(said)] = None
    return list(texts)


def write_table(path: Path) -> dict[str, int]:
    """The table as a file; how many texts each library gave."""
    counts = {}
    with warnings.catch_warnings(), path.open("w", newline="") as file:
        warnings.simplefilter("ignore")
        rows = csv.writer(file, delimiter="\t")
        rows.writerow(["text", "label"])
        for library in LIBRARIES:
            texts = docstrings(library)[:TEXTS]
            counts[library] = len(texts)
            rows.writerows((text, library) for text in texts)
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--backbones", nargs="+", default=["ulmfit", "gpt", "real"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "docstrings.tsv"
        counts = write_table(table)
        print(f"texts: {', '.join(f'{name} {count}' for name, count in counts.items())}\n")
        print("| backbone | what it said | whole command |\n|---|---|---|")
        for backbone in given.backbones:
            command = [sys.executable, SCRIPT, table, "--backbone", backbone]
            start = time.perf_counter()
            done = subprocess.run(
                [*map(str, command), "--labels", str(given.labels)],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            said = next(one for one in done.stdout.splitlines() if one.startswith(backbone))
            said = said.removeprefix(backbone).strip()
            print(f"| {backbone} | {said} | {time.perf_counter() - start:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
