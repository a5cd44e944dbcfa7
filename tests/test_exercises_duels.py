"""Duels and diagnoses: good tests win, weak ones get a hint, false alarms end the round."""

import itertools
import math
import random
from typing import Any

import pytest
import torch
from solutions_duels import GOOD, WEAK, looks_ahead, only_the_last
from torch import Tensor

from classroom.exercises import diagnose, duel
from classroom.exercises.duels import (
    TOPICS,
    Bug,
    Honest,
    Seen,
    Topic,
    drawn,
    play,
    symptom_of,
    topic_of,
)

ROUNDS = 6


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    random.seed(0)


@pytest.mark.parametrize("name", TOPICS)
def test_a_duel_has_enough_players(name: str) -> None:
    topic = topic_of(name)
    assert len(topic.honest) >= 3
    assert len(topic.bugs) >= 6
    assert all(bug.where and bug.hint for bug in topic.bugs)
    names = [player.name for player in (*topic.honest, *topic.bugs)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", TOPICS)
def test_a_good_test_finds_every_bug(name: str) -> None:
    for _ in range(ROUNDS):
        verdict = play(topic_of(name), GOOD[name])
        assert verdict.right, verdict


def in_doubles(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        one.detach().double() if isinstance(one, Tensor) and one.is_floating_point() else one
        for one in arguments
    )


@pytest.mark.parametrize("name", ["attention", "objectives", "preferences", "sampling"])
def test_honest_players_answer_in_the_precision_of_the_question(name: str) -> None:
    topic = topic_of(name)
    arguments = in_doubles(topic.arguments())
    more = {"sampling": (0.7, 4, 0.8)}.get(name, ())
    first, *others = [player.player(*arguments, *more) for player in topic.honest]
    assert first.dtype == torch.float64
    for other in others:
        torch.testing.assert_close(other, first)


def test_honest_filters_drop_nothing_when_p_is_one() -> None:
    for _ in range(100):
        logits = 2 * torch.randn(3, 8)
        for player in topic_of("sampling").honest:
            assert (player.player(logits, 0.5, 8, 1.0) > 0).all(), player.name


def test_honest_losses_are_finite_at_a_large_beta() -> None:
    for _ in range(100):
        policy, reference, answer, _ = topic_of("preferences").arguments()
        for player in topic_of("preferences").honest:
            assert player.player(policy, reference, answer, 20.0).isfinite(), player.name


@pytest.mark.parametrize("name", TOPICS)
def test_a_weak_test_gets_a_hint_and_not_the_name(name: str) -> None:
    weak, hint = WEAK[name]
    verdict = play(topic_of(name), weak)
    assert not verdict.right
    assert hint in verdict.why
    missed = [row for row in verdict.rows if "→ missed" in row]
    assert missed
    shown = {row[0] for row in verdict.rows} - {"bug", "a bug that survives"}
    hidden = {bug.name for bug in topic_of(name).bugs} - shown
    assert len(hidden) == len(missed)
    assert not any(bug in str(verdict) for bug in hidden)


@pytest.mark.parametrize("name", TOPICS)
def test_a_test_that_accuses_everybody_loses_and_one_that_finds_nothing_finds_nothing(
    name: str,
) -> None:
    assert "a false alarm" in play(topic_of(name), lambda *all: True).why
    assert f"and 0 of {len(topic_of(name).bugs)}" in play(topic_of(name), lambda *all: False).why


def by_assertions(model: Any, tokens: Tensor) -> None:
    assert not only_the_last(model, tokens), "the last word changes something"
    assert not looks_ahead(model, tokens), "any other"


def test_the_picture_says_which_assertion_found_which_bug() -> None:
    verdict = play(topic_of("masking"), by_assertions)
    assert verdict.right
    head, *rows = verdict.rows
    assert head[1].startswith("assert not only_the_last")
    assert head[2].startswith("assert not looks_ahead")
    marks = {row[0]: row[1:3] for row in rows}
    assert marks["no mask at all"] == ("✓", "")
    assert marks["the first three words see each other"] == ("", "✓")
    assert "background:#00795a" in verdict.html


def test_several_tests_have_a_column_each() -> None:
    verdict = play(topic_of("masking"), only_the_last, looks_ahead)
    assert verdict.right
    assert set(verdict.rows[0][1:3]) == {"only_the_last", "looks_ahead"}
    column = verdict.rows[0].index("only_the_last")
    found = {row[0]: row[column] for row in verdict.rows}
    assert found["no mask at all"] == "✓"
    assert found["the first three words see each other"] == ""


def the_whole_output(model: Any, tokens: Tensor) -> bool:
    return not torch.equal(model(tokens), model((tokens + 1) % 9))


def to_the_last_digit(model: Any, tokens: Tensor) -> bool:
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 9
    return not torch.equal(model(tokens)[:, :-1], model(other)[:, :-1])


@pytest.mark.parametrize("answer", [the_whole_output, to_the_last_digit])
def test_a_false_alarm_ends_the_round(answer: Any) -> None:
    verdict = play(topic_of("masking"), answer)
    assert not verdict.right
    assert "a false alarm" in verdict.why
    assert not verdict.rows


def endless(model: Any, tokens: Tensor) -> bool:
    while True:
        pass


def test_a_test_that_stops_or_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("classroom.exercises.duels.SECONDS", 0.2)
    topic = topic_of("masking")
    assert "stops with ZeroDivisionError" in play(topic, lambda m, t: 1 / 0).why
    assert "never end" in play(topic, endless).why
    assert "write the test above" in play(topic, ...).why  # type: ignore[arg-type]
    assert "write the test above" in play(topic).why
    assert "return True or False" in play(topic, lambda m, t: torch.ones(2)).why


def test_a_bug_that_some_inputs_hide_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = itertools.count()
    one, other = (
        Honest("x", lambda x: x),
        Bug("sometimes x + 1", lambda x: x + (x % 3 == 2), "", ""),
    )
    topic = Topic("the same number", [one], [other], lambda: (next(given),))
    assert play(topic, lambda player, x: player(x) != x).right
    monkeypatch.setattr("classroom.exercises.duels.TRIES", 1)
    said = {play(topic, lambda player, x: player(x) != x).right for _ in range(9)}
    assert said == {True, False}


def test_an_unknown_topic_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no duel 'nothing': choose attention"):
        duel("nothing", lambda: True)
    with pytest.raises(ValueError, match="no symptom 'nothing': choose attention"):
        diagnose("nothing")


# ---- from the symptom to the bug


@pytest.mark.parametrize("name", TOPICS)
def test_a_symptom_has_one_cause(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    symptom = symptom_of(name)
    right = [choice for choice in symptom.choices if symptom.verdict(choice).right]
    assert right == [symptom.cause]
    assert len(symptom.others) >= 3
    diagnose(name)
    said = capsys.readouterr().out
    assert all(choice in said for choice in symptom.choices)
    assert "not one of the choices" in symptom.verdict("magic").why


@pytest.mark.parametrize("name", TOPICS)
def test_a_symptom_is_measured_and_drawn(name: str) -> None:
    seen = symptom_of(name).measure()
    assert len(seen.curve) >= 4
    asked = symptom_of(name).verdict(...)
    assert seen.says in asked.why
    assert f'aria-label="{len(seen.curve)} values, from ' in asked.html
    assert seen.says == symptom_of(name).measure().says


def test_a_curve_is_drawn_with_its_floor() -> None:
    picture = drawn(Seen("a curve", [2.0, 1.0, 0.0], "a <step>", floor=1.0))
    assert "lowest possible" in picture
    assert "a &lt;step&gt;" in picture
    assert "M60.0 16.0L304.0 91.0L548.0 166.0" in picture


def test_what_a_symptom_shows_is_there() -> None:
    """Each picture has what its sentence and its choices speak of."""
    curves = {name: list(symptom_of(name).measure().curve) for name in TOPICS}
    assert curves["masking"][0] < 0.5 < 2 < curves["masking"][-1]
    assert curves["training"][-1] < 0.01
    assert sum(curves["attention"]) == pytest.approx(1)
    assert sum(curves["attention"][5:]) > 0.2
    assert curves["objectives"][0] == pytest.approx(math.log(6), abs=0.01)
    assert curves["objectives"][-1] < 0.5
    assert max(curves["streams"][:4]) == 0 < min(curves["streams"][4:])
    assert all(held < p / 10 for p, held in enumerate(curves["sampling"][4:], start=5))
    assert max(curves["memory"][:8]) < 1e-5 < 0.1 < max(curves["memory"][8:])
