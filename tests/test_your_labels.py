"""The script for your own labels, on a table that is nothing like the course's language."""

import copy
import csv
import json
import random
import runpy
import sys
from pathlib import Path

import pytest
import torch

from classroom.cli import main
from classroom.models.shipped import card, trained
from labkit.corpus import Batch
from labkit.keeping.paths import data_path
from labkit.models.gpt import GPT, GPTConfig
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
    columns = ["--column", "review", "--label", "stars"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(path), *columns, *words])
    return runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.fixture
def quick(monkeypatch):
    """Two folds, one thing to choose, little reading."""
    from classroom.tasks import own_labels

    monkeypatch.setattr(own_labels, "FOLDS", 2)
    monkeypatch.setattr(own_labels, "DEPTHS", (own_labels.Depth(1, 1e-4),))
    monkeypatch.setattr(own_labels, "EPOCHS", 1)
    monkeypatch.setattr(own_labels, "READING", 3)
    return own_labels


@pytest.mark.parametrize(("kind", "backbone"), [("csv", "gpt"), ("jsonl", "ulmfit")])
def test_a_table_of_yours_teaches_a_classifier(
    monkeypatch, tmp_path, capsys, quick, kind, backbone
):
    made = rows(300, 100)
    count = len({text for text, label in made if label}) // 5
    write(tmp_path / f"t.{kind}", made)
    names = run(monkeypatch, tmp_path / f"t.{kind}", "--labels", "60", "--backbone", backbone)
    task, [found] = names["task"], names["found"]
    assert (len(task.known), len(task.asked)) == (60, count)
    asked = {text for text, _ in task.asked}
    assert asked.isdisjoint(task.texts)
    assert asked.isdisjoint(text for text, _ in task.known)
    right = [said == label for said, (_, label) in zip(found.said, task.asked, strict=True)]
    assert found.right == sum(right) / count
    assert found.right >= max(0.8, found.baseline)
    said = capsys.readouterr().out
    low, high = quick.interval(found.right, count)
    assert f"accuracy {found.right:.3f} [{low:.3f}, {high:.3f}]" in said
    assert f"best by cross-validation on the known labels: {backbone} (" in said
    counts = [list(map(int, line.split()[1:])) for line in said.splitlines()[-2:]]
    assert counts[0][0] + counts[1][1] == sum(right)
    assert sum(map(sum, counts)) == count


def test_fine_tuning_begins_as_the_regression_and_is_kept_only_if_it_is_better(quick, monkeypatch):
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(50, 32, 2, 1, context=12, dropout=0.0)).eval()
    tokens = torch.randint(1, 50, (40, 8))
    batch = Batch.of(tokens, labels=(tokens == 7).any(dim=1).long())
    x = quick.vectors(gpt, batch)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(40))
    linear = quick.regression(x, batch.labels, 2, 1.0)
    frozen = quick.built(gpt, linear, batch, quick.FROZEN, "gpt")
    assert torch.equal(quick.answers(frozen, batch), linear(x).argmax(dim=1))
    before = copy.deepcopy(gpt.state_dict())
    still = quick.built(gpt, linear, batch, quick.Depth(1, 1e-12), "gpt")
    assert torch.equal(quick.answers(still, batch), linear(x).argmax(dim=1))
    tuned = quick.built(gpt, linear, batch, quick.Depth(1, 1e-2), "gpt")
    assert all(torch.equal(one, before[name]) for name, one in gpt.state_dict().items())
    for block, learns in ((0, False), (1, True)):
        weights = (part.blocks[block].state_dict().values() for part in (tuned.backbone, gpt))
        same = [torch.equal(one, two) for one, two in zip(*weights, strict=True)]
        assert all(same) != learns, "only the last block learns"
    # What spoils the encoder is not chosen.
    monkeypatch.setattr(quick, "DEPTHS", (quick.Depth(99, 1e3),))
    assert quick.cross_validated(gpt, batch, 2, "gpt")[1] == quick.FROZEN


def test_the_held_out_part_has_no_say_in_which_way_is_saved(quick):
    ways = [quick.Outcome(way, quick.FROZEN, None, None, [], expected, 0.5, right, 1.0)
            for way, expected, right in (("gpt", 0.7, 0.9), ("ulmfit", 0.8, 0.6))]  # fmt: skip
    assert quick.best_of(ways).way == "ulmfit"


def test_the_penalty_shrinks_the_weights_of_a_regression(quick):
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 0] > 0).long()
    found = [quick.regression(x, labels, 2, each).weight.detach() for each in (0.1, 1, 10)]
    sizes = [float(weight.norm()) for weight in found]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_intervals_are_wilsons(quick):
    assert quick.interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-3)
    low, high = quick.interval(1.0, 20)
    assert low == pytest.approx(0.8389, abs=1e-3)
    assert high == pytest.approx(1.0)


def test_the_command_writes_a_folder_that_is_loaded(tmp_path, monkeypatch, capsys, quick):
    write(tmp_path / "t.csv", rows(100, 60))
    monkeypatch.setattr(quick, "real_encoder", missing)
    words = ["train", "classifier", "--text", str(tmp_path / "t.csv"), "--column", "review",
             "--label", "stars", "--output", str(tmp_path / "mine")]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "real: left out" in said
    model, _ = trained(tmp_path / "mine")
    assert model.head.normalised
    known = card(tmp_path / "mine")
    assert known["report"] in said
    assert known["classes"] == ["bad", "good"]
    texts = [FORMS[0].format(thing="lamp", one=one, two=two)
             for one, two in (("sturdy", "quick"), ("faulty", "slow"))]  # fmt: skip
    assert quick.classified(tmp_path / "mine", texts) == ["good", "bad"]
    with pytest.raises(ValueError, match="give a list of at least one"):
        quick.classified(tmp_path / "mine", "a text")
    with pytest.raises(ValueError, match="holds no classifier"):
        quick.classified(data_path("models", "gpt-village"), texts)
    with pytest.raises(SystemExit):
        main([*words[:4], "--label", "nothing", *words[5:6]])
    assert capsys.readouterr().err.count("\n") == 1


def missing() -> Path:
    """No package with an encoder."""
    raise WeightsError("it is not installed")


@pytest.mark.slow
def test_the_real_encoder_learns_from_the_same_table(monkeypatch, tmp_path, quick):
    try:
        real_encoder()
    except WeightsError as error:
        pytest.skip(str(error))
    write(tmp_path / "t.csv", rows(60, 60))
    names = run(monkeypatch, tmp_path / "t.csv", "--backbone", "real", "--labels", "32")
    [found] = names["found"]
    assert found.right >= found.baseline > 0.5


def test_a_table_with_too_few_labels_is_refused(monkeypatch, tmp_path, capsys):
    write(tmp_path / "t.csv", rows(30, 5))
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, tmp_path / "t.csv")
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("your_labels.py: 5 different texts of")
    assert said.count("\n") == 1


def table_of(path, made):
    """A table of these texts and labels."""
    write(path / "t.csv", made)
    return str(path / "t.csv"), "review", "stars"


def test_a_text_that_comes_again_counts_once(tmp_path, quick):
    """Copies would be known and asked, or leave too few texts that are known."""
    copies = [(f" text  {n % 20} ", "good" if n % 2 else "bad") for n in range(100)]
    task = quick.task_of(*table_of(tmp_path, copies), labels=100)
    assert (len(task.known), len(task.asked)) == (16, 4)
    asked = {" ".join(text.split()) for text, _ in task.asked}
    assert len(asked) == 4
    assert asked.isdisjoint(" ".join(text.split()) for text in task.texts)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["good"] * 40, "40 different texts of .* have a label, of 1 kinds"),
        ([f"{n / 7:.3f}" for n in range(40)], "of 40 kinds: .* twice as many texts as kinds"),
        (["bad", *["good"] * 39], "the 5 labels of .* to learn from are all 'good'"),
    ],
)
def test_labels_that_teach_nothing_are_refused(tmp_path, quick, labels, says):
    made = [(f"text {n}", label) for n, label in enumerate(labels)]
    with pytest.raises(ValueError, match=says):
        quick.task_of(*table_of(tmp_path, made), labels=5)


def test_a_label_that_no_known_text_has_is_named(quick):
    task = quick.Task(("bad", "good", "odd"), [("a", 0), ("b", 1)], [("c", 2)], [])
    found = quick.Outcome("gpt", quick.FROZEN, None, None, [0], 0.5, 0.0, 0.0, 1.0)
    assert "in no known text, and so never an answer: odd\n" in quick.report(task, [found])
