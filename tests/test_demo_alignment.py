"""The demo of policies: exact numbers, on the screen and as text."""

import itertools

import numpy as np
import pytest

from classroom.demos import alignment_demo, alignment_view
from classroom.demos.alignment import Asked, line
from classroom.demos.pieces import Curve
from labkit.world import optimal

P = np.array([0.5, 0.3, 0.15, 0.05])
REWARDS = np.array([0.0, 1.0, 0.5, -1.0])
ASKED = Asked(
    ["in oslo .", "in naples .", "in <b> ."], REWARDS, P,
    {"RLOO": optimal.best_policy(P, REWARDS, 0.5), "DPO": np.array([0.2, 0.5, 0.1, 0.2])},
)  # fmt: skip


def test_the_view_shows_exact_numbers() -> None:
    view = alignment_view(ASKED, 0.5, "RLOO")
    best = optimal.best_policy(P, REWARDS, 0.5)
    first = next(row for row in view.text.splitlines() if "in naples" in row)
    assert f"{best[1]:.4f}" in first
    assert f"{0.5 * optimal.log_partition(P, REWARDS, 0.5):.3f}" in view.text
    assert "<b>" not in view.html
    rloo = [row for row in view.text.splitlines() if row.strip().startswith("RLOO")]
    assert "0.000" in rloo[-1]  # nothing is left to the ceiling of this beta
    with pytest.raises(ValueError, match="no policy 'PPO': choose RLOO, DPO"):
        alignment_view(ASKED, 0.5, "PPO")


def test_a_policy_off_the_line_is_still_in_the_picture() -> None:
    bad = np.array([0.05, 0.05, 0.05, 0.85])
    view = alignment_view(ASKED._replace(policies={"bad": bad}), 0.5, "bad")
    [curve] = [piece for piece in view.pieces if isinstance(piece, Curve)]
    assert curve.mark is not None
    assert curve.frame is not None
    left, right, low, high = curve.frame
    assert left <= curve.mark[0] <= right
    assert low <= curve.mark[1] <= high
    assert (curve.low, curve.high) == (f"{low:.2f}", f"{high:.2f}")


def test_a_policy_that_says_what_the_reference_never_says_has_no_place() -> None:
    never = ASKED._replace(reference=np.array([0.6, 0.3, 0.1, 0.0]))
    view = alignment_view(never, 0.5, "DPO")
    assert "DPO gives answers that the tuned model never gives" in view.text
    assert "nan" not in view.html
    one = Asked(["yes ."], np.ones(2), np.full(2, 0.5), {"same": np.full(2, 0.5)})
    assert "-0.000" not in alignment_view(one, 0.3, "same").text


def test_a_policy_that_is_the_tuned_model_but_for_rounding_is_shown() -> None:
    near = P * (1 - 3e-16)
    assert near @ (np.log(near) - np.log(P)) < 0
    asked = ASKED._replace(policies={"same": near}, rewards=np.full(4, -1e-9))
    text = alignment_view(asked, 0.5, "same").text
    assert "divergence of 0.000 nats" in text
    assert "-0.000" not in text.split("\n\n", 2)[2]


def test_no_point_lies_above_the_line() -> None:
    points = line(ASKED)
    assert points[0] == (0.0, pytest.approx(P @ REWARDS))
    assert all(a[1] <= b[1] + 1e-9 for a, b in itertools.pairwise(points))
    for policy in ASKED.policies.values():
        away = optimal.divergence(policy, P)
        assert policy @ REWARDS <= optimal.highest_reward(P, REWARDS, away) + 1e-9


def test_the_widget_follows_its_controls() -> None:
    demo = alignment_demo({"where?": ASKED}, beta=0.5)
    assert "at beta 0.50" in demo.shown.text
    demo.change(beta=0.1, policy="DPO")
    assert "at beta 0.10" in demo.shown.text
    assert "where DPO stands" in demo.shown.text


def test_all_questions_have_the_same_policies() -> None:
    fewer = ASKED._replace(policies={"DPO": P})
    with pytest.raises(ValueError, match=r"RLOO, DPO, but 'who\?' has DPO: give every question"):
        alignment_demo({"where?": ASKED, "who?": fewer})
    turned = ASKED._replace(policies=dict(reversed(ASKED.policies.items())))
    assert "where RLOO stands" in alignment_demo({"where?": ASKED, "who?": turned}).shown.text
    with pytest.raises(ValueError, match="no question"):
        alignment_demo({})


@pytest.mark.parametrize("beta", [0.01, 3.0])
def test_any_beta_can_be_the_first(beta: float) -> None:
    assert alignment_demo({"where?": ASKED}, beta=beta).values["beta"] == beta
