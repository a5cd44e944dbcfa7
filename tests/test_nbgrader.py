"""nbgrader itself generates an assignment from the students' version, and gives the same points.

LABKIT_NBGRADER names its program; without it and without nbgrader on the PATH, this is skipped.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from classroom.exercises.students import BEGIN, END, students_version
from classroom.grading import marking as grading
from classroom.grading.sandbox import MB, Limits
from labkit.keeping.paths import PACKAGE

NBGRADER = os.environ.get("LABKIT_NBGRADER") or shutil.which("nbgrader")
CELLS = (
    "from classroom.exercises import check",
    f'{BEGIN}\nfactor = 2**6\n{END}\nfactor = check("05.factor", factor)',
    f"def last_state(states, real):\n    {BEGIN}\n"
    f"    return states[range(len(states)), real.sum(dim=1) - 1]\n    {END}\n\n\n"
    'last_state = check("05.last", last_state)',
)
ASKED = ["05.factor", "05.last"]


def code(number: int, source: str) -> dict[str, object]:
    return {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": [],
            "execution_count": None, "source": source}  # fmt: skip


def nbgrader(*words: str, folder: Path) -> str:
    kernel = folder / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    path = os.pathsep.join([str(Path(str(NBGRADER)).parent), os.environ["PATH"]])
    settings = {"JUPYTER_PATH": str(folder / "jupyter"), "LABKIT_STRICT": "1", "PATH": path,
                "PYTHONPATH": str(PACKAGE.parent)}  # fmt: skip
    done = subprocess.run([str(NBGRADER), *words], cwd=folder, env={**os.environ, **settings},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


@pytest.mark.skipif(NBGRADER is None, reason="nbgrader is not installed: name it: LABKIT_NBGRADER")
def test_nbgrader_gives_the_points_that_grade_gives(tmp_path: Path) -> None:
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.root = '.'\n")
    cells = [code(number, source) for number, source in enumerate(CELLS)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    source = tmp_path / "source" / "hw" / "05.ipynb"
    source.parent.mkdir(parents=True)
    source.write_text(json.dumps(students_version(whole)))
    nbgrader("generate_assignment", "hw", folder=tmp_path)

    released = json.loads((tmp_path / "release" / "hw" / "05.ipynb").read_text())
    answers = {"anna": ("factor = 2**6", CELLS[2].replace(BEGIN, "").replace(END, "")),
               "ben": ("factor = 2**6", None), "carl": (None, None)}  # fmt: skip
    for name, (one, other) in answers.items():
        solved = json.loads(json.dumps(released))
        for cell in solved["cells"]:
            text = "".join(cell["source"])
            if text.startswith("factor = ...") and one:
                cell["source"] = one
            if text.startswith("def last_state") and other:
                cell["source"] = other.split("\n\n\n")[0]
        path = tmp_path / "submitted" / name / "hw" / "05.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(solved))
    nbgrader("autograde", "hw", "--create", folder=tmp_path)
    nbgrader("export", "--to", "grades.csv", folder=tmp_path)

    with (tmp_path / "grades.csv").open(newline="") as file:
        theirs = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    ours = {
        name: grading.mark(name, tmp_path / "submitted" / name / "hw" / "05.ipynb",
                           lambda number: ASKED, Limits(120, 2000 * MB)).points
        for name in answers
    }  # fmt: skip
    assert theirs == ours == {"anna": 2, "ben": 1, "carl": 0}
