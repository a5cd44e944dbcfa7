"""The claims of notebook 04: each experiment gives the arms that its contrasts compare."""

import math

import pytest
import torch

from classroom.claims import translation
from classroom.findings import show_finding
from classroom.ledger import Claim
from classroom.tasks import translating
from labkit.chance import Chance

TINY = translation.Size(pairs=120, steps=4, tests=9, few=64)


@pytest.mark.parametrize("claim", translation.CLAIMS, ids=lambda claim: claim.id)
def test_an_experiment_gives_a_figure_for_each_arm_of_its_contrasts(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(translation.SIZES, "smoke", TINY)
    found = claim.experiment("smoke", 3)
    assert found is not None
    for contrast in claim.contrasts:
        assert set(contrast.weights) <= set(found.arms)
    for name, figures in found.arms.items():
        assert len(figures) >= 3
        assert all(math.isfinite(figure) for figure in figures)
        if claim.unit == "nats per word" and name in found.best:
            assert sum(figures) / len(figures) > found.best[name]
        elif name in found.best:
            assert sum(figures) / len(figures) <= found.best[name] + 1e-9


def test_hidden_words_are_words_and_differ_between_epochs() -> None:
    pairs = translating.pairs("train", 40)
    rows = translating.pair_batches(pairs, batch=40)
    hidden = translation.Hidden(rows, batch=40)
    mask = translating.tokenizer().vocabulary.mask
    examples, before = torch.arange(40), rows.source.clone()
    first, again, other = (
        hidden.rows_of(examples, Chance(0, step, examples)) for step in (0, 0, 1)
    )
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(rows.source, before)
    changed = first.tokens != rows.rows_of(examples, Chance(0, 0, examples)).tokens
    assert bool((first.tokens[changed] == mask).all())
    assert 0.08 < float(changed[first.real].float().mean()) < 0.2
    assert not bool(changed[~first.real].any())
    ends = (first.tokens == translating.end()).sum(dim=1)
    assert bool((ends == 1).all())


def test_a_claim_that_was_never_measured_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("classroom.findings.unmeasured", lambda: {"beam-search"})
    show_finding("beam-search")
    assert "Not in the ledger yet" in capsys.readouterr().out
