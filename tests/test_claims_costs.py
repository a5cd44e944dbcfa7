"""The experiments of notebook 12: counts against the whole model, losses against the floor."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from classroom.claims import costs
from classroom.ledger import judged, one_seed
from classroom.models.recipes import course_text, gpt
from classroom.models.scaling_runs import (
    Point,
    document_floors,
    document_losses,
    read,
    scaling_run,
    shipped,
)
from labkit.costs import counting, formulas, scaling
from labkit.costs import tables as cost_tables
from labkit.keeping.paths import data_path
from labkit.objectives import NextToken
from labkit.trainer import evaluate
from labkit.weights import published


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setitem(costs.GRID, "smoke", {"widths": (4, 8, 16), "words": (600, 1_200, 2_400)})
    monkeypatch.setitem(costs.EXPERTS, "smoke", {"steps": 3, "width": 8, "experts": 4})
    sizes = {"steps": 3, "clean": (600, 1_000), "dirty": 1_500, "width": 8}
    monkeypatch.setitem(costs.CURATED, "smoke", sizes)


@pytest.mark.parametrize("claim", costs.CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_measured_and_its_contrasts_have_arms(claim):
    run = one_seed(claim, "smoke", 0)
    finding = judged(claim, "smoke", [0], [run])
    assert len(finding.contrasts) == len(claim.contrasts)
    for name, best in run["best"].items():
        assert np.mean(run["arms"][name]) > best, "a model below the floor"


@pytest.mark.parametrize("name", ["gpt-3-small", "bert-base-uncased"])
def test_two_layers_tell_what_all_of_them_do(name):
    config = published.row(name).config
    whole = costs.built(name, config.layers)
    text = torch.zeros(1, config.context, dtype=torch.long, device="meta")
    rule, counted = costs.operations(name)
    assert counted == counting.counted_flop(whole, text)
    assert rule == 6 * published.parameters(name) * config.context


def test_the_share_of_attention_is_what_the_matrices_leave():
    name = "gpt-3-small"
    config = published.row(name).config
    _, counted = costs.operations(name)
    shape = formulas.Shape(config.layers, config.width, config.vocabulary, config.context)
    assert costs.attention_part(name, counted) == pytest.approx(formulas.attention_share(shape))


def test_table_d1_follows_from_its_columns():
    ratios = [costs.by_rule(row) / float(row["flop"]) for row in cost_tables.read_table("table_d1")]
    assert len(ratios) == 17
    assert np.allclose(ratios, 1, atol=0.02)


def test_experts_have_more_parameters_and_no_more_work_but_for_the_router():
    dense, experts = (costs.mixture(32, 100, count) for count in (None, 8))
    text = torch.zeros(1, 16, dtype=torch.long)
    more = counting.counted_flop(experts, text) - counting.counted_flop(dense, text)
    assert more == 16 * 6 * 32 * 8  # the router: width x experts, six operations each
    assert counting.parameters(experts).total > 2 * counting.parameters(dense).total


def test_losses_and_floors_of_documents_add_up_to_those_of_all_words():
    text = course_text(words=2_000, held_out=2_000)
    model, _ = gpt(text, 2, width=8, layers=1, length=32)
    tests = text.tests(32)
    counts = [int(real) - 1 for batch in tests for real in batch.real.sum(dim=1)]
    whole = evaluate(model, NextToken(), tests)
    assert np.average(document_losses(model, tests), weights=counts) == pytest.approx(
        whole.loss, rel=1e-5
    )
    floor = np.average(document_floors(text, 32), weights=counts)
    assert floor == pytest.approx(text.floor("next", 32))


def test_a_run_counts_what_it_did():
    point = scaling_run(8, 1_000, held_out=1_000)
    assert point.tokens == 3 * 4 * 64
    assert point.excess > 0
    rule = formulas.rule_flop(point.parameters, point.tokens)
    assert point.operations / rule == pytest.approx(1, abs=0.15)


def test_the_runs_that_ship_follow_a_power_law():
    points = shipped()
    assert 12 <= len(points) <= 20
    assert all(isinstance(point, Point) and point.excess > 0 for point in points)
    assert len({point.floor for point in points}) == 1, "measured on the same documents"
    law = scaling.fit([point.run for point in points], resamples=20)
    assert law.error < 0.15
    runs = [point.run for point in points]
    power, other = (
        np.mean(scaling.held_out_errors(runs, each)) for each in ("power", "exponential")
    )
    assert power < other


@pytest.mark.parametrize(
    ("old", "new"),
    [('"loss"', '"los"'), ('"loss": ', '"loss": "nan", "y": '), ('"finished"', '"failed"')],
)
def test_damaged_runs_of_the_scaling_laws_are_named(old: str, new: str, tmp_path: Path) -> None:
    line, *_ = data_path("claims", "scaling_runs.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "results.jsonl"
    path.write_text(line)
    assert read(path) == shipped()[:1]
    path.write_text(line.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"results\.jsonl is not a record of runs"):
        read(path)


def test_runs_of_the_scaling_laws_are_those_of_one_version_and_a_torn_line_is_passed_over(
    tmp_path: Path,
) -> None:
    lines = data_path("claims", "scaling_runs.jsonl").read_text().splitlines(keepends=True)
    version = json.loads(lines[0])["versions"]["labkit"]
    older = [line.replace(version, "0.0.9").replace('"run": "', '"run": "x') for line in lines[:3]]
    path = tmp_path / "results.jsonl"
    path.write_text("".join([*older, lines[0][:60] + "\n", *lines]))
    assert read(path) == shipped()
    assert len(shipped()) == len(lines)
