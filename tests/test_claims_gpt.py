"""The experiments of notebook 05: the auxiliary objective, and half precision."""

import pytest
import torch

from classroom.claims import gpt as claims
from classroom.models.recipes import CourseText, course_text, gpt
from labkit.chance import Chance
from labkit.objectives import NextToken


@pytest.fixture(scope="module")
def text() -> CourseText:
    return course_text(words=3_000, held_out=500)


@pytest.fixture(scope="module")
def model(text, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return gpt(text, 2, width=16, layers=1, length=16, batch=2)[0]


def test_a_part_of_a_step_has_its_part_of_the_gradient(text, model):
    batch = text.windows(2, 16).at(0)
    whole = NextToken()(model, batch, Chance(0, 0, batch.rows)).loss.detach()
    part = claims.PartOfStep(share=1 / 64)(model, batch, Chance(0, 0, batch.rows)).loss.detach()
    assert float(part) == pytest.approx(float(whole) / 64, rel=1e-5)


def test_without_a_share_there_are_no_words_in_the_loss(text, model, monkeypatch, tmp_path):
    """λ = 0 is L2 alone; any other trains the head for words as well."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    seen = []

    class Noted:
        def __init__(self, model, objective, *rest, **choices):
            seen.append(objective)

        def run(self):
            return iter(())

    monkeypatch.setattr(claims, "Trainer", Noted)
    for share in claims.SHARES:
        list(claims.tuned(model, None, labels=2, share=share, steps=3))  # type: ignore[arg-type]
    assert not hasattr(seen[0], "weights")
    assert tuple(seen[1].weights) == (1.0, 0.5)


def test_the_contrasts_are_sums_of_arms():
    arms = {claims.arm(count, share) for count in (claims.FEW, claims.MANY)
            for share in claims.SHARES}  # fmt: skip
    for contrast in claims.AUXILIARY_OBJECTIVE.contrasts:
        assert set(contrast.weights) <= arms
        assert sum(contrast.weights.values()) == 0
    more = claims.AUXILIARY_OBJECTIVE.contrasts[1].weights
    assert more[claims.arm(claims.FEW, 0.0)] == 1
    assert more[claims.arm(claims.MANY, 0.0)] == -1


def test_a_restarted_run_ends_like_one_that_was_never_stopped():
    found = claims.restart("smoke", 0).arms
    assert found["stopped and restarted"] == found["never stopped"]
    assert sum(found["stopped"]) > sum(found["never stopped"])


def test_half_precision_keeps_less_for_the_backward_pass():
    found = claims.half_the_memory("smoke", 0)
    assert found is not None
    [share] = found.arms["memory, bfloat16 / float32"]
    assert 0.3 < share < 0.8


def test_half_precision_is_not_timed_where_it_is_emulated(monkeypatch):
    monkeypatch.setattr(claims, "has_bfloat16", lambda device: False)
    assert claims.half_the_memory("laptop", 100) is None


def test_float16_loses_what_scaling_keeps():
    tiny = torch.tensor(2.0**-30)
    assert tiny.half() == 0
    assert (tiny * 2**16).half() == 2.0**-14
