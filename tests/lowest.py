"""Print the oldest packages that pyproject.toml allows, as constraints for pip.

python tests/lowest.py > lowest.txt && pip install -c lowest.txt -e ".[lab]"
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def oldest(extra: str = "lab") -> list[str]:
    """The lower bound of each package that the course needs to run."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"][extra]]
    return [re.sub(r"\[.*\]|>=", lambda found: "==" * (found[0] == ">="), each) for each in needed]


if __name__ == "__main__":
    print("\n".join(oldest()))
