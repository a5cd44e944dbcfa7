"""The experiments on BERT's family: exact counts, students and their teachers, arms."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from classroom.claims import family, journey, village
from classroom.ledger import Claim, one_seed


def test_a_student_begins_as_every_other_layer_of_its_teacher() -> None:
    teacher = village.encoder(3, layers=4)
    student = family.student_of(teacher, 7)
    assert len(student.backbone.blocks) == 2
    for mine, theirs in ((0, 0), (1, 2)):
        pairs = zip(
            student.backbone.blocks[mine].parameters(),
            teacher.backbone.blocks[theirs].parameters(),
            strict=True,
        )
        assert all(torch.equal(a, b) for a, b in pairs)
    tokens = village.blanks(5).batch.tokens
    assert torch.equal(student.backbone(tokens).layers[0], teacher.backbone(tokens).layers[0])
    assert student.head.words.weight is student.backbone.token.weight


def test_the_published_ratios() -> None:
    assert family.published_ratio("parameters") == pytest.approx(109_482_240 / 66_362_880)
    assert family.published_ratio("operations") == pytest.approx(2.0)


@pytest.mark.parametrize("claim", family.CLAIMS, ids=lambda claim: claim.id)
def test_experiments_give_the_arms_that_their_contrasts_weigh(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setitem(family.STEPS, "smoke", 2)
    monkeypatch.setitem(family.WORDS, "smoke", 2_000)
    monkeypatch.setattr(family, "TESTS", 40)
    monkeypatch.setitem(family.SMALL_TEXT, "smoke", 300)
    monkeypatch.setattr(family.village, "READINGS", 2)
    monkeypatch.setattr(family, "MORE_STEPS", 2)
    monkeypatch.setitem(family.SUBWORDS, "smoke", (2, 60))
    tiny = replace(journey.SIZES["smoke"], steps=2, words=2_000, held_out=6_000)
    monkeypatch.setitem(journey.SIZES, "smoke", tiny)
    found = one_seed(claim, "smoke", 0)
    assert {name for one in claim.contrasts for name in one.weights} <= set(found["arms"])
    assert all(np.isfinite(items).all() and len(items) for items in found["arms"].values())


def test_half_of_the_layers_are_faster() -> None:
    assert family.times_faster(width=64, repeats=3) > 1.2
