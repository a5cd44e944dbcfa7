"""Mistakes in the exact sums, made on purpose: the comparison with enumeration finds every one."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from test_world_exact import REMEMBERS, TINY
from world_reference import Reference, reference_of

from labkit.world import World, hidden, memory, sums
from labkit.world.builder import _Builder
from labkit.world.machine import Machine
from labkit.world.world import world_from_text

REFERENCES = {text: reference_of(text) for text in (TINY, REMEMBERS)}


def check() -> None:
    """Compare some probabilities of every kind with the enumeration."""
    for text, reference in REFERENCES.items():
        world = world_from_text({"tiny.txt": text})
        for words in reference.some(12):
            forward = world.log_probability(words).sum()
            assert math.exp(forward) == pytest.approx(reference.texts[words], rel=1e-10)
            before = world.log_probability(words[:-3], direction="backward").sum()
            assert math.exp(before) == pytest.approx(reference.anywhere(words[:-3]), rel=1e-10)
            middle, anna = len(words) // 2, world.machine.number["anna"]
            _check_hidden(world, reference, words, [0, middle], {})
            _check_hidden(world, reference, words, [0, middle], {0: (anna, 0.9, 0.01)})
            alike = reference.like(words, [0, middle])
            joint = math.exp(world.joint(words, [0, middle]))
            assert joint == pytest.approx(alike[words] / sum(alike.values()), rel=1e-10)
            number = world.numbers(words)
            noisy = {t: (int(number[t]), 0.6, 0.3) for t in range(1, len(words) - 1)}
            _check_hidden(world, reference, words, [middle], noisy)


def _check_hidden(
    world: World,
    reference: Reference,
    words: tuple[str, ...],
    want: list[int],
    noisy: hidden.Noisy,
) -> None:
    weights = reference.like(words, {*want, *noisy})
    # All documents side by side: there are thousands.
    true_DT = np.array([[world.machine.number[word] for word in other] for other in weights])
    weight_D = np.array([*weights.values()])
    for t, (shown, keep, noise) in noisy.items():
        weight_D *= noise * world.replacements[shown] + keep * (true_DT[:, t] == shown)
    if not weight_D.any():
        return  # these words cannot be shown
    distributions = world.distributions([(world.numbers(words), want, noisy)], "document")[0]
    for distribution, t in zip(distributions, want, strict=True):
        exact = np.bincount(true_DT[:, t], weight_D, minlength=len(world.vocabulary))
        np.testing.assert_allclose(distribution, exact / exact.sum(), atol=1e-9)


def test_the_right_sums_pass() -> None:
    check()


def forget_what_was_drawn(patch: pytest.MonkeyPatch) -> None:
    """Every hero is as likely as not to be the same one again."""
    chances = memory.GroupMemory.log_chances
    patch.setattr(memory.GroupMemory, "log_chances", lambda self, words: 0 * chances(self, words))


def draw_without_a_memory(patch: pytest.MonkeyPatch) -> None:
    """A hidden hero is drawn anew, whoever was named before."""
    draws = memory.GroupMemory.distributions
    patch.setattr(memory.GroupMemory, "distributions", lambda self, words: draws(self, words[:0]))


def forget_the_styles(patch: pytest.MonkeyPatch) -> None:
    """No document prefers a synonym."""
    patch.setattr("labkit.world.builder.PREFERENCE", 1.0)


def one_style_for_every_word(patch: pytest.MonkeyPatch) -> None:
    """The style is drawn anew for every word."""

    def log_chances(self: memory.GroupMemory, words: np.ndarray) -> np.ndarray:
        totals = [self.log_chance(words[:t]) for t in range(len(words) + 1)]
        alone = [self.log_chance(words[t : t + 1]) for t in range(len(words))]
        return totals[0] + np.concatenate([[totals[0] * 0], np.cumsum(alone, axis=0)])

    patch.setattr(memory.GroupMemory, "log_chances", log_chances)


def forget_the_new_weight(patch: pytest.MonkeyPatch) -> None:
    """An urn without alpha below the line."""
    next_draw = memory.next_draw

    def wrong(drawn: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share, whole = next_draw(drawn, alpha)
        return share, np.where(drawn > 0, whole - alpha, whole)

    patch.setattr(memory, "next_draw", wrong)


def every_class_says_every_word(patch: pytest.MonkeyPatch) -> None:
    """A path may go on in the past when it began in the present."""
    patch.setattr(
        Machine,
        "says",
        lambda self, symbols, states: (
            says(self, symbols, states)[0],
            np.full(len(states), self.every_class),
        ),
    )


says = Machine.says


def forget_the_classes_from_the_right(patch: pytest.MonkeyPatch) -> None:
    """The words behind a position do not tell its tense."""
    steps = sums.backward

    def backward(machine: Machine, rows: list, steps_: list):
        for t, beta, scale in steps(machine, rows, steps_):
            yield t, np.broadcast_to(beta.max(axis=1, keepdims=True), beta.shape), scale

    patch.setattr(sums, "backward", backward)


def variables_are_drawn_anew(patch: pytest.MonkeyPatch) -> None:
    """What a sentence has chosen is forgotten before its last mention."""
    items = _Builder._items

    def forgetful(self, some, frontier, scope=frozenset()):
        out = frontier
        for item in some:
            merged: dict = {}
            for values, nodes in items(self, (item,), out, frozenset()).items():
                merged.setdefault(tuple(v for v in values if v[0] in ("", "X")), {}).update(nodes)
            out = merged
        return out

    patch.setattr(_Builder, "_items", forgetful)


def a_remembered_word_may_be_noise(patch: pytest.MonkeyPatch) -> None:
    """A name that is shown is believed no more than any other word."""

    def row(memory_, request, shown):
        found = noisy_row(memory_, request, shown)
        for t, (_, _, other) in request.noisy.items():
            found.noise[1, t] = other
        return found

    patch.setattr(hidden, "_row", row)


noisy_row = hidden._row


def forget_what_is_wrong(patch: pytest.MonkeyPatch) -> None:
    """A state that says another word in some classes is dropped, as if no word were ever wrong."""
    emit = sums._emit

    def sure(machine, shown, *states):
        found = emit(machine, shown, *states)
        kept = found.classes & machine.says(shown.symbols[found.owner], found.states)[1] > 0
        return sums._Said(*(column[kept] for column in found))

    patch.setattr(sums, "_emit", sure)


def count_what_is_shown_twice(patch: pytest.MonkeyPatch) -> None:
    """What a noisy position shows counts in the sums and once more in its distribution."""
    patch.setattr(sums, "_shares", lambda machine, row, t, step, span: 1.0)


def forget_a_scale(patch: pytest.MonkeyPatch) -> None:
    """Only the last scale is kept."""
    scaled = sums._scaled
    patch.setattr(
        sums,
        "_scaled",
        lambda step, shown: scaled(step._replace(log_scale=0 * step.log_scale), shown),
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
        forget_what_was_drawn,
        draw_without_a_memory,
        forget_the_styles,
        one_style_for_every_word,
        forget_the_new_weight,
        every_class_says_every_word,
        forget_the_classes_from_the_right,
        variables_are_drawn_anew,
        a_remembered_word_may_be_noise,
        forget_what_is_wrong,
        count_what_is_shown_twice,
        forget_a_scale,
        start_anywhere,
        arcs_of_the_wrong_direction,
    ],
)
def test_a_mutant_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check()
