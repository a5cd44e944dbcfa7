"""Mistakes in the exact sums, made on purpose: the comparison with enumeration finds every one."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from test_world_exact import TINY
from world_reference import Reference, all_paths

from labkit.world import World, facts, hidden, sums
from labkit.world.loading import world_from_text
from labkit.world.machine import Machine
from labkit.world.reading import read

REFERENCE = Reference(all_paths(read({"tiny.txt": TINY})))


def check() -> None:
    """Compare some probabilities of every kind with the enumeration."""
    world = world_from_text({"tiny.txt": TINY})
    for words in REFERENCE.some(12):
        forward = world.log_probability(words).sum()
        backward = world.log_probability(words, direction="backward").sum()
        assert math.exp(forward) == pytest.approx(REFERENCE.texts[words], rel=1e-10)
        assert math.exp(backward) == pytest.approx(REFERENCE.anywhere(words), rel=1e-10)
        middle = len(words) // 2
        _check_hidden(world, words, [0, middle], {})
        _check_hidden(world, words, [0, middle], {0: (world.machine.number["anna"], 0.9, 0.01)})
    words = next(words for words in REFERENCE.texts if words[5:7] == ("she", "went"))
    _check_hidden(world, words, [5], {0: (world.machine.number["anna"], 0.9, 0.01)})


def _check_hidden(
    world: World, words: tuple[str, ...], want: list[int], noisy: facts.Noisy
) -> None:
    weights = REFERENCE.like(words, {*want, *noisy})
    for other in weights:
        for t, (shown, keep, noise) in noisy.items():
            weights[other] *= noise + keep * (world.machine.number[other[t]] == shown)
    distributions = world.distributions([(world.numbers(words), want, noisy)], "document")[0]
    for distribution, t in zip(distributions, want, strict=True):
        exact = np.zeros(len(world.vocabulary))
        for other, weight in weights.items():
            exact[world.machine.number[other[t]]] += weight
        np.testing.assert_allclose(distribution, exact / exact.sum(), atol=1e-9)


def test_the_right_sums_pass() -> None:
    check()


def forget_facts(patch: pytest.MonkeyPatch) -> None:
    """Every hero is as likely as not to be the same one again."""
    patch.setattr(facts.Facts, "log_chances", lambda self, words: np.zeros(len(words)))


def forget_the_past_of_facts(patch: pytest.MonkeyPatch) -> None:
    """A hidden hero is drawn anew, whoever was named before."""
    distribution = facts.Facts.distribution
    patch.setattr(
        facts.Facts,
        "distribution",
        lambda self, fact, field, _: distribution(self, fact, field, self.everything),
    )


def one_case(patch: pytest.MonkeyPatch) -> None:
    """A noisy name is believed."""
    patch.setattr(facts, "NEGLIGIBLE", 0.0)


def every_value_explains(patch: pytest.MonkeyPatch) -> None:
    """A noisy name could be that of any hero."""
    make = hidden.NoisyRow
    patch.setattr(hidden, "NoisyRow", lambda s, k, n, f: make(s, k, n, np.ones_like(f)))


def forget_a_scale(patch: pytest.MonkeyPatch) -> None:
    """Only the last scale is kept."""
    scaled = sums._scaled
    patch.setattr(
        sums,
        "_scaled",
        lambda states, owner, value, scale, *arcs: scaled(states, owner, value, 0 * scale, *arcs),
    )


def start_anywhere(patch: pytest.MonkeyPatch) -> None:
    """A document may begin in any state."""
    patch.setattr(Machine, "enter", lambda self, start: np.ones(self.states) / self.states)


def arcs_of_the_wrong_direction(patch: pytest.MonkeyPatch) -> None:
    """From right to left, but over the arcs from left to right."""
    both = Machine._from_state_to_state
    patch.setattr(Machine, "_from_state_to_state", lambda self: (both(self)[0], both(self)[0]))


@pytest.mark.parametrize(
    "mutant",
    [
        forget_facts,
        forget_the_past_of_facts,
        one_case,
        every_value_explains,
        forget_a_scale,
        start_anywhere,
        arcs_of_the_wrong_direction,
    ],
)
def test_a_mutant_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check()
