"""A model that labkit has never seen does all that the others do, with no edit elsewhere.

The model is that of docs/adding_a_model.md, whose code is run here from first to last.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit import weights
from labkit.blocks import Backbone, LanguageModel, States
from labkit.corpus import Batch
from labkit.costs.counting import counted_flop, parameters
from labkit.heads import Label, NextWord, Pooled
from labkit.leaks import trace
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.sampling import Sampling, sample
from labkit.trainer import Trainer
from labkit.transfer import classifier, discriminative, labels_of, layer_groups, unfreeze_from_top

PAGE = Path(__file__).resolve().parent.parent / "docs" / "adding_a_model.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All names that the code of the page defines, after it has run."""
    names: dict[str, Any] = {"__name__": "adding_a_model"}
    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("page"))
    torch.manual_seed(0)
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        os.chdir(here)
    return names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda states: states.hidden, r"Wrong.forward gave a Tensor: give States"),
        (lambda states: States(()), r"Wrong.forward gave a States: give States"),
        (lambda states: moved(states, 1), r"of shape \[2, 6, 32\] for tokens of shape \[2, 5\]"),
        (lambda states: moved(states, -1), r"of shape \[2, 4, 32\] for tokens of shape \[2, 5\]"),
    ],
    ids=["tensor", "none", "longer", "shorter"],
)
def test_states_that_do_not_belong_to_the_tokens_are_refused(
    page: dict[str, Any], change: Callable[[States], Any], message: str
) -> None:
    class Wrong(page["Means"]):  # type: ignore[misc]
        def forward(self, tokens_BT: torch.Tensor, *, mask: torch.Tensor | None = None) -> Any:
            return change(super().forward(tokens_BT, mask=mask))

    with pytest.raises(ValueError, match=message):
        Wrong(page["MeansConfig"](vocabulary=30))(torch.zeros(2, 5).long())


def moved(states: States, more: int) -> States:
    """States with one position more in front, as a token of the model's own, or one fewer."""
    return States(tuple(torch.nn.functional.pad(h, (0, 0, more, 0)) for h in states.layers))


def test_every_promise_is_in_the_table() -> None:
    promised = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert promised == set(Backbone.__annotations__)


def test_it_learns(page: dict[str, Any]) -> None:
    assert page["after"] < 0.5 * page["before"]


def test_it_writes_what_it_has_learned(page: dict[str, Any]) -> None:
    assert page["text"].tokens[:3] == [6, 7, 8]


def test_what_it_writes_is_as_likely_as_it_says(page: dict[str, Any]) -> None:
    """Read again as a whole: what is fed word by word is the same text."""
    settings = Sampling(length=5)
    [[one], [two]] = sample(page["model"], [[1], [2, 3, 4]], settings, seed=3)
    for prompt, written in (([1], one), ([2, 3, 4], two)):
        row = torch.tensor([prompt + written.tokens])
        log_BTV = page["model"](row[:, :-1]).detach().log_softmax(dim=-1)
        each = log_BTV[0, len(prompt) - 1 :].gather(1, row[0, len(prompt) :, None])
        assert written.log_probability == pytest.approx(float(each.sum()), abs=1e-4)


def test_it_comes_back_from_its_folder(page: dict[str, Any], tmp_path: Path) -> None:
    for model in (page["model"], page["tuned"], page["model"].backbone):
        weights.save(model, tmp_path / type(model).__name__)
        again = weights.load(tmp_path / type(model).__name__)
        assert type(again) is type(model)
        for name, tensor in model.state_dict().items():
            assert tensor.equal(again.state_dict()[name]), name
    assert weights.load(tmp_path / "Means").config == page["model"].backbone.config


@pytest.mark.parametrize("learning", range(5))
def test_its_layers_are_frozen_and_have_their_own_rates(
    page: dict[str, Any], learning: int
) -> None:
    torch.manual_seed(1)
    model = classifier(page["Means"](page["MeansConfig"](vocabulary=30)), 2)
    unfreeze_from_top(model, learning)
    groups = discriminative(model, 2.0)
    assert [factor for _, factor in groups] == [0.125, 0.25, 0.5, 1.0]
    before = [[p.clone() for p in layer] for layer in layer_groups(model)]

    class Task:
        def at(self, step: int) -> Batch:
            tokens = page["Counting"]().at(step).tokens
            return Batch.of(tokens, labels=(tokens[:, 0] < 10).long())

    plan = Plan(steps=3, rate=1e-2, decay=0.0, precision="float32")
    if learning:
        for _ in Trainer(model, labels_of(model), Task(), plan, groups=groups).run():
            pass
    for height, layer in enumerate(reversed(layer_groups(model))):
        for old, new in zip(before[-1 - height], layer, strict=True):
            assert old.equal(new) != (height < learning)


@pytest.mark.parametrize(
    ("summary", "position", "head"),
    [(0, "first", Label), (-1, "last", Label), (None, "pooled", Pooled)],
)
def test_a_classifier_reads_where_the_model_says(
    page: dict[str, Any], summary: int | None, position: str, head: type
) -> None:
    backbone = page["Means"](page["MeansConfig"](vocabulary=30))
    backbone.summary = summary
    model = classifier(backbone, 3)
    assert type(model.head) is head
    assert labels_of(model).position == position


def test_its_leaks_are_found(page: dict[str, Any]) -> None:
    assert page["leaks"] == []

    class Leaky(page["Means"]):  # type: ignore[misc]
        def forward(self, tokens_BT: torch.Tensor, **inputs: Any) -> Any:
            states = super().forward(tokens_BT, **inputs)
            return states._replace(layers=(*states.layers, states.hidden.flip(1)))

    backbone = Leaky(page["MeansConfig"](vocabulary=30))
    model = LanguageModel(backbone, NextWord(backbone.token))
    assert trace(model, NextToken(), Batch.of(torch.tensor([[3, 1, 4, 15, 9, 2]]))).leaks


def test_it_is_counted(page: dict[str, Any]) -> None:
    width, tokens = 32, 16 * 8
    matrices = 2 * 2 * width * 4 * width
    assert page["numbers"] == matrices + 2 * 5 * width + 30 * width
    assert parameters(page["model"]).feed_forward == matrices + 2 * 5 * width
    assert page["operations"] == 3 * 2 * tokens * (matrices + 30 * width)
    text = page["Counting"]().at(0).tokens
    assert counted_flop(page["model"], text, training=False) == page["operations"] / 3


def test_a_class_that_is_not_defined_is_named(page: dict[str, Any], tmp_path: Path) -> None:
    class Gone(page["Means"]):  # type: ignore[misc]
        pass

    Gone.__annotations__["config"] = page["MeansConfig"]

    weights.save(Gone(page["MeansConfig"](vocabulary=30)), tmp_path)
    Gone.__name__ = "Other"
    with pytest.raises(weights.WeightsError, match=r"no model 'Gone'.*defined before"):
        weights.load(tmp_path)
    Gone.__name__ = "Means"
    # A name means one class: the one that was defined last.
    with pytest.raises(weights.WeightsError, match="the latest of its name"):
        weights.save(page["model"].backbone, tmp_path / "old")
    Gone.__name__ = "GPT"
    with pytest.raises(weights.WeightsError, match="the latest of its name"):
        weights.save(Gone(page["MeansConfig"](vocabulary=30)), tmp_path / "own")
