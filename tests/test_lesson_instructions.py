"""What notebook 07 says that one can see is on the screen: its stored outputs are read."""

import re

import pytest
from stored import numbers, said


def test_the_base_model_asks_back_and_the_tuned_one_answers() -> None:
    texts = said("07", 'bare = f"where does {name} live ?"')
    assert re.search(r"live \? -> (what|who|where)", texts)
    counts = said("07", 'print(f"{says:16} {counted')
    base, shots, tuned = (
        numbers(name, counts) for name in ("base, no shot", "base, two shots", "tuned, no shot")
    )
    assert base[0] < 0.8 < shots[0]
    assert tuned[0] > 0.95
    assert tuned[1] < shots[1]  # it imitates people who are wrong


def test_the_step_helps_with_new_people() -> None:
    found = said("07", "def right_town(")
    at_once = numbers("answered at once", found)
    written = numbers("the step is written out", found)
    assert min(at_once[0], written[0]) > 0.9
    assert written[1] > at_once[1]


def test_more_pairs_make_a_better_reward_model() -> None:
    found = said("07", "def agreement(guessed)")
    agrees = {n: numbers(f"{n} pairs", found)[0] for n in (100, 4000)}
    length, best = numbers("length alone", found)
    assert agrees[100] < agrees[4000] < best
    assert agrees[4000] > length


@pytest.mark.parametrize(
    "method",
    ["RLOO", "PPO", "GRPO", "GRPO, no bias", "DPO, 500 pairs", "DPO, 4000 pairs", "DPO, exact"],
)
def test_nothing_is_above_the_ceiling(method: str) -> None:
    table = said("07", """print(f"{'':18} reward""")
    reward, divergence, value, _, outside = numbers(f"{method}  ", table)
    [ceiling] = numbers("ceiling", table)
    assert value <= ceiling + 0.006
    assert value == pytest.approx(reward - 0.3 * divergence, abs=0.02)
    assert 0 <= outside < 1


@pytest.mark.parametrize(("method", "bound"), [("RLOO", 0.05), ("PPO", 0.05), ("DPO, exact", 0.10)])
def test_little_of_the_way_to_the_ceiling_is_left(method: str, bound: float) -> None:
    table = said("07", """print(f"{'':18} reward""")
    assert 0 <= numbers(f"{method}  ", table)[3] <= bound


def test_a_policy_that_is_only_briefer_wins_nothing_at_equal_length() -> None:
    found = said("07", "rivals = {")
    assert numbers("only briefer", found)[1] == 0.5
    for which in ("RLOO", "PPO"):
        assert min(numbers(which, found)) > 0.6


def test_the_rewarded_model_is_at_the_ceiling() -> None:
    found = numbers("rewarded", said("07", "rewarded, _ = trained"))
    assert found[2] == pytest.approx(found[3], abs=0.02)


def test_plain_text_in_the_tuning_is_the_cure() -> None:
    found = said("07", '(("conversations alone", False)')
    [alone], [mixed] = (numbers(how, found) for how in ("conversations alone", "with plain text"))
    assert mixed < alone - 0.3
