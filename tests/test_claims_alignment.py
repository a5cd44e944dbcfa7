"""The experiments of notebook 07: each claim runs, and its figures are what they say."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from classroom.claims import alignment as claims
from classroom.ledger import judged, one_seed
from classroom.tasks import instructions as village
from labkit import alignment


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    tiny = {"tune": 2, "policy": 2, "pairs": 8, "answers": 8, "rewards": 2, "draws": 1}
    monkeypatch.setitem(claims.SIZES, "smoke", tiny)
    drawn = village.documents
    few = lambda split, count=600, seed=0: drawn(split, min(count, 600), seed)  # noqa: E731
    monkeypatch.setattr(village, "documents", few)
    village.conversations.cache_clear()
    monkeypatch.setattr(village, "ASKED", (("eva", "craft"),))
    monkeypatch.setattr(village.questions, "__defaults__", ((("eva", "craft"),),))
    yield
    village.conversations.cache_clear()


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_measured_and_its_contrasts_have_arms(claim):
    run = one_seed(claim, "smoke", 0)
    finding = judged(claim, "smoke", [0], [run])
    assert len(finding.contrasts) == len(claim.contrasts)
    assert all(np.isfinite(figures).all() for figures in run["arms"].values())


def test_a_proxy_that_is_the_truth_is_followed_to_the_end() -> None:
    asked = village.questions()
    uniform = [np.full(len(one.rewards), 1 / len(one.rewards)) for one in asked]
    whole = claims.true_rewards(asked, uniform, asked)
    random = np.random.default_rng(0)
    noise = [one.rewards[:-1] + 3 * random.normal(size=len(one.answers)) for one in asked]
    proxies = village.other_rewards(asked, noise)
    earned = claims.true_rewards(asked, uniform, proxies)
    assert max(earned) > earned[-1] + 0.01
    assert whole == sorted(whole)
    assert whole[-1] > max(earned)
    best = alignment.frontier(uniform, asked, [0.02])[0]
    assert whole[-1] == pytest.approx(best.reward, abs=1e-6)


def test_pairs_are_judged_as_bradley_and_terry_say() -> None:
    [one] = village.questions()
    drawn = village.preferences([one], [one.answers], 400, seed=1)
    reward = alignment.gold([one])
    gaps = [
        reward([prompt], [chosen])[0] - reward([prompt], [rejected])[0]
        for prompt, chosen, rejected in drawn.texts
    ]
    apart = np.array([gap for gap in gaps if gap])
    sure = 1 / (1 + np.exp(-np.abs(apart)))
    error = np.sqrt((sure * (1 - sure)).sum()) / len(apart)
    assert abs(np.mean(apart > 0) - sure.mean()) < 4 * error
    nonsense = village.encoded([], ["in", "in"])[1]
    answers = [*one.answers[:9], nonsense]
    exact = village.preferences([one], [answers], 50, seed=1, exact=True)
    assert any(nonsense in texts for texts in exact.texts)
    for (prompt, first, second), chance in zip(exact.texts, exact.chances, strict=True):
        gap = reward([prompt], [first])[0] - reward([prompt], [second])[0]
        assert chance == pytest.approx(1 / (1 + np.exp(-gap)))


def test_the_floors_are_what_the_models_come_to() -> None:
    assert 0 < village.preference_floor(village.questions(), [np.full(577, 1 / 577)]) < np.log(2)
    batch, floor = village.answer_tests(40)
    assert 0.2 < floor < 0.6
    assert batch.segments is not None


def test_an_epoch_shows_each_row_once() -> None:
    texts = [([1, n], [n, 3]) for n in range(4, 10)]
    rows = village.Rows(texts, batch=3, seed=1)
    for epoch in (0, 1):
        seen = torch.cat([rows.at(2 * epoch + part).tokens[:, 1] for part in (0, 1)])
        assert sorted(seen.tolist()) == [4, 5, 6, 7, 8, 9]
    assert not torch.equal(rows.at(0).tokens, rows.at(2).tokens)
    assert torch.equal(rows.at(1).tokens, rows.at(1).tokens)
