"""The best policy for a reward: by a list, by messages, by brute force, and by drawing."""

import itertools
import math

import numpy as np
import pytest
from tilted import tilted

from labkit.world import World, load_world, optimal
from labkit.world.answers import Answers, list_answers
from labkit.world.optimal import best_policy, divergence
from labkit.world.world import world_from_text

WORDS = {"welcome": 1.0, "well": -0.4, "away": -1.0, "lives": 0.25}


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("instructions")


@pytest.fixture(scope="module")
def listed(world: World) -> Answers:
    return list_answers(world, ["user", ":", "where", "does", "sara", "live", "?", "model", ":"])


@pytest.fixture(scope="module")
def reward(listed: Answers) -> np.ndarray:
    return np.array([sum(WORDS.get(word, 0) for word in words) for words in listed.texts])


def value(policy: np.ndarray, p: np.ndarray, reward: np.ndarray, beta: float) -> float:
    """J = E[reward] - beta * KL(policy | reference)."""
    return float(policy @ reward) - beta * divergence(policy, p)


def test_the_best_policy_has_no_better_neighbour(listed: Answers, reward: np.ndarray) -> None:
    """Its value is β log Z, and every step towards another policy loses its divergence from it."""
    random, beta, p = np.random.default_rng(0), 0.3, listed.chances
    reward = reward + random.normal(size=len(p))
    policy = best_policy(p, reward, beta)
    ceiling = value(policy, p, reward, beta)
    assert policy.sum() == pytest.approx(1, abs=1e-12)
    assert ceiling == pytest.approx(beta * math.log(p @ np.exp(reward / beta)), abs=1e-10)
    assert ceiling == pytest.approx(beta * optimal.log_partition(p, reward, beta), abs=1e-12)
    for other in (p, best_policy(p, reward, 0.2), optimal.best_of(p, reward, 4)):
        mixed = 0.9 * policy + 0.1 * other
        lost = beta * divergence(mixed, policy)
        assert value(mixed, p, reward, beta) == pytest.approx(ceiling - lost, abs=1e-10)
        assert lost > 0
    for beta in (0, math.inf):
        with pytest.raises(ValueError, match=f"beta is {beta}: give a finite number above 0"):
            best_policy(p, reward, beta)
    with pytest.raises(ValueError, match="give at least 0"):
        optimal.highest_reward(p, reward, -1.0)
    with pytest.raises(ValueError, match="n is 0: give a whole number"):
        optimal.best_of_bound(0)


def test_the_best_of_n_is_what_drawing_gives(listed: Answers) -> None:
    p, reward = listed.chances, listed.rewards("boston")["polite"]
    random = np.random.default_rng(0)
    measured = reward[random.choice(len(p), size=(20_000, 3), p=p)].max(axis=1)
    policy = optimal.best_of(p, reward, 3)
    assert policy.sum() == pytest.approx(1, abs=1e-12)
    error = measured.std() / math.sqrt(len(measured))
    assert abs(policy @ reward - measured.mean()) < 4 * error
    np.testing.assert_allclose(optimal.best_of(p, reward, 1), p, atol=1e-15)
    for n in (0, 1.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"n is {n}: give a whole number"):
            optimal.best_of(p, reward, n)


def test_brute_force_on_a_tiny_case() -> None:
    """All pairs and triples of four answers, two of which have the same reward."""
    p, reward = np.array([0.1, 0.2, 0.3, 0.4]), np.array([2.0, -1.0, 0.5, -1.0])
    best = np.zeros(4)
    for drawn in itertools.product(range(4), repeat=3):
        top = [i for i in drawn if reward[i] == max(reward[list(drawn)])]
        for i in top:
            best[i] += np.prod(p[list(drawn)]) / len(top)
    np.testing.assert_allclose(optimal.best_of(p, reward, 3), best, atol=1e-12)
    # With ties the divergence stays below the formula, which is for different rewards.
    assert divergence(best, p) < optimal.best_of_bound(3)
    fine = np.linspace(0, 1, 20_000)
    many = optimal.best_of(np.full(20_000, 1 / 20_000), fine, 3)
    assert divergence(many, np.full(20_000, 1 / 20_000)) == pytest.approx(
        optimal.best_of_bound(3), abs=1e-3
    )
    other, wins, right = np.array([0.4, 0.3, 0.2, 0.1]), 0.0, 0.0
    for i, j in itertools.product(range(4), repeat=2):
        wins += other[i] * p[j] * (1 if reward[i] > reward[j] else 0.5 * (reward[i] == reward[j]))
        chance = 1 / (1 + math.exp(reward[j] - reward[i]))
        right += p[i] * p[j] * max(chance, 1 - chance)
    assert optimal.win_rate(other, p, reward) == pytest.approx(wins, abs=1e-12)
    assert optimal.win_rate(p, p, reward) == pytest.approx(0.5, abs=1e-12)
    assert optimal.best_accuracy(p, reward) == pytest.approx(right, abs=1e-12)
    assert optimal.accuracy(p, reward, 3 * reward - 1) == pytest.approx(right, abs=1e-12)
    assert optimal.accuracy(p, reward, -reward) == pytest.approx(1 - right, abs=1e-12)


@pytest.mark.parametrize("beta", [0.1, 0.5, 3.0])
def test_messages_agree_with_the_list(
    world: World, listed: Answers, reward: np.ndarray, beta: float
) -> None:
    found = tilted(world, listed.prompt, WORDS, beta)
    [point] = optimal.frontier(listed.chances, reward, [beta])
    assert found.log_partition == pytest.approx(point.value / beta, abs=1e-9)
    assert found.reward == pytest.approx(point.reward, abs=1e-9)
    assert found.divergence == pytest.approx(point.divergence, abs=1e-9)


LOOP = """
documents
    prompt 1 begins with talk
topic talk
    leads to end
stage only again 0.5
    (3 good|bad) .
"""


def test_messages_go_where_no_list_ends() -> None:
    """After one sentence, k more follow with 2^-k-1: a geometric series that can be summed."""
    loop = world_from_text({"a.txt": LOOP})
    found = tilted(loop, ["good", "."], {"good": 1.0}, 2.0)
    each = 0.75 * math.exp(0.5) + 0.25
    assert found.log_partition == pytest.approx(math.log(0.5 / (1 - 0.5 * each)), abs=1e-9)
    slope = 0.5 * 0.75 * math.exp(0.5) / (1 - 0.5 * each)
    assert found.reward == pytest.approx(slope, abs=1e-8)
    with pytest.raises(ValueError, match="larger beta"):
        tilted(loop, ["good", "."], {"good": 1.0}, 0.5)
    with pytest.raises(ValueError, match="remember"):
        tilted(load_world("village"), ["anna"], {}, 1.0)


def test_nothing_lies_above_the_frontier(listed: Answers, reward: np.ndarray) -> None:
    p, random = listed.chances, np.random.default_rng(1)
    points = optimal.frontier(p, reward, [3.0, 1.0, 0.3, 0.1])
    for before, after in itertools.pairwise(points):
        assert after.reward > before.reward
        assert after.divergence > before.divergence
    for point in points:
        highest = optimal.highest_reward(p, reward, point.divergence)
        assert highest == pytest.approx(point.reward, abs=1e-6)
    for sharpness in (0.1, 0.5, 2.0):
        policy = p * np.exp(sharpness * random.normal(size=len(p)) + sharpness * reward)
        policy /= policy.sum()
        assert policy @ reward < optimal.highest_reward(p, reward, divergence(policy, p))
    for n in (2, 4, 16):
        policy = optimal.best_of(p, reward, n)
        below = optimal.highest_reward(p, reward, divergence(policy, p))
        assert policy @ reward <= below + 1e-9
    assert optimal.highest_reward(p, reward, 50.0) == reward.max()


@pytest.mark.parametrize("answers", [6, 13, 15, 22])
def test_rounding_does_not_keep_the_highest_reward_out_of_reach(answers: int) -> None:
    """Added up, these probabilities are 1 - 1e-16, and -log of that is more than 0."""
    p = np.full(answers, 1 / answers)
    assert optimal.highest_reward(p, np.zeros(answers), 0.0) == 0


def test_what_is_not_listed_is_one_more_answer() -> None:
    np.testing.assert_allclose(optimal.with_rest(np.array([0.5, 0.3])), [0.5, 0.3, 0.2])
    for most in (1 - 1e-9, 1.0, 1 + 1e-6):
        assert 0 < optimal.with_rest(np.array([most]))[-1] < 2e-7
    with pytest.raises(ValueError, match="list each answer once"):
        optimal.with_rest(np.array([0.7, 0.7]))


@pytest.mark.parametrize("of_two", [[0.5, 0.2], [0.9, 0.9], [math.nan, 1.0]])
@pytest.mark.parametrize(
    "ask",
    [
        lambda p, reward: best_policy(p, reward, 1.0),
        lambda p, reward: optimal.log_partition(p, reward, 1.0),
        lambda p, reward: optimal.frontier(p, reward, [1.0]),
        lambda p, reward: optimal.highest_reward(p, reward, 9.0),
        lambda p, reward: optimal.best_of(p, reward, 2),
        lambda p, reward: optimal.best_accuracy(p, reward),
        lambda p, reward: optimal.accuracy(p, reward, reward),
    ],
)
def test_probabilities_that_are_not_those_of_all_answers_are_refused(ask, of_two) -> None:
    with pytest.raises(ValueError, match=r"add up to .*, not to 1: list all answers, or .* with_r"):
        ask(np.array(of_two), np.array([1.0, 0.0]))


def test_rewards() -> None:
    texts = ["boston .", "in oslo , so go away .", "boston boston , and you are welcome ."]
    found = Answers([], [t.split() for t in texts], np.ones(3) / 3).rewards("boston")
    assert found["right"].tolist() == [1, 0, 1]
    assert found["polite"].tolist() == [0, -1, 1]


def test_every_question_of_a_user_has_few_answers(world: World) -> None:
    prompts = set()
    for document in world.sample(documents=300, seed=2, split=None):
        words = list(document.words)
        if words[0] == "user":
            prompts.add(tuple(words[: words.index("model") + 2]))
    assert len(prompts) > 60
    for prompt in sorted(prompts)[::8]:
        assert 1 <= len(list_answers(world, prompt, most=1_200).texts) <= 1_200


def test_a_length_controlled_win_rate_compares_answers_of_one_length() -> None:
    p, reward = np.array([0.1, 0.2, 0.3, 0.4]), np.array([2.0, -1.0, 0.5, -1.0])
    length, policy = np.array([3, 3, 5, 5]), np.array([0.4, 0.3, 0.2, 0.1])
    wins = compared = 0.0
    for i, j in itertools.product(range(4), repeat=2):
        if length[i] == length[j]:
            won = 1 if reward[i] > reward[j] else 0.5 * (reward[i] == reward[j])
            wins, compared = wins + policy[i] * p[j] * won, compared + policy[i] * p[j]
    controlled = optimal.win_rate(policy, p, reward, length)
    assert controlled == pytest.approx(wins / compared, abs=1e-12)
    # A policy that has only become briefer wins more, but not among answers of one length.
    briefer = p * np.where(length == 3, 2.0, 1.0)
    briefer /= briefer.sum()
    liked = np.array([2.0, 1.0, 0.5, 0.0])
    assert optimal.win_rate(briefer, p, liked) > 0.55
    assert optimal.win_rate(briefer, p, liked, length) == pytest.approx(0.5, abs=1e-12)
    with pytest.raises(ValueError, match="no answers of the two policies are alike"):
        optimal.win_rate(np.array([1.0, 0, 0, 0]), np.array([0, 0, 1.0, 0]), reward, length)
