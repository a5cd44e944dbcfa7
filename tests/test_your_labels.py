"""The script for your own labels, on a table that is nothing like the course's language."""

import csv
import json
import random
import runpy
import sys
from pathlib import Path

import pytest

from labkit.weights import WeightsError, real_encoder

SCRIPT = Path(__file__).parents[1] / "examples" / "your_labels.py"
WORDS = {
    "good": ["sturdy", "reliable", "flawless", "handy", "quick", "excellent", "durable", "quiet"],
    "bad": ["flimsy", "faulty", "clumsy", "slow", "dreadful", "fragile", "noisy", "useless"],
}
THINGS = ["kettle", "backpack", "headset", "router", "lamp", "blender", "keyboard", "charger"]
FORMS = (
    "I ordered this {thing} last week, and it is {one} and {two}!",
    "The {thing} arrived on Monday. It feels {one}; the parts are {two}.",
    "Third {thing} this year... {one}, really {two}.",
)


def rows(count: int, labelled: int) -> list[tuple[str, str]]:
    """Reviews, the first of them with a label."""
    draw, made = random.Random(1), []
    for number in range(count):
        label = draw.choice(sorted(WORDS))
        one, two = draw.sample(WORDS[label], 2)
        text = draw.choice(FORMS).format(thing=draw.choice(THINGS), one=one, two=two)
        made.append((text, label if number < labelled else ""))
    return made


def write(path: Path, table: list[tuple[str, str]]) -> None:
    """As a table of the kind that the name says."""
    with path.open("w", newline="") as file:
        if path.suffix == ".jsonl":
            for text, label in table:
                file.write(json.dumps({"review": text, "stars": label or None}) + "\n")
        else:
            marks = {"delimiter": "\t"} if path.suffix == ".tsv" else {}
            csv.writer(file, **marks).writerows([("review", "stars"), *table])


def run(monkeypatch, path: Path, *words: str) -> dict:
    """The names of the script when it has ended."""
    columns = ["--text", "review", "--label", "stars"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(path), *columns, *words])
    return runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.mark.parametrize(
    ("kind", "backbone"), [("csv", "gpt"), ("tsv", "gpt"), ("jsonl", "ulmfit")]
)
def test_a_table_of_yours_teaches_a_classifier(monkeypatch, tmp_path, capsys, kind, backbone):
    write(tmp_path / f"t.{kind}", rows(300, 100))
    steps = {"gpt": "30", "ulmfit": "150"}[backbone]
    few = ["--steps", steps, "--labels", "60", "--backbone", backbone]
    names = run(monkeypatch, tmp_path / f"t.{kind}", *few)
    assert len(names["test"]) == 20
    assert names["few"].size == 60
    assert {row.text for row in names["rest"]}.isdisjoint(row.text for row in names["test"])
    read = {row.text for row in names["texts"]}
    assert not read & {row.text for row in names["test"]}
    assert names["accuracy"] >= 0.8 > names["most"]
    assert f"accuracy {names['accuracy']:.3f}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_real_encoder_learns_from_the_same_table(monkeypatch, tmp_path):
    try:
        real_encoder()
    except WeightsError as error:
        pytest.skip(str(error))
    write(tmp_path / "t.csv", rows(60, 60))
    names = run(monkeypatch, tmp_path / "t.csv", "--backbone", "real", "--labels", "32")
    assert names["accuracy"] > names["most"]


def test_a_table_with_too_few_labels_is_refused(monkeypatch, tmp_path, capsys):
    write(tmp_path / "t.csv", rows(30, 5))
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path / "t.csv")
    assert "5 rows of" in capsys.readouterr().err
