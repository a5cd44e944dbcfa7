"""One side, two sides side by side, both at once: against enumeration, and how far apart."""

import numpy as np
import pytest
from test_world_exact import TINY, distribution_at
from world_reference import reference_of

from labkit.world import load_world
from labkit.world.floors import choose
from labkit.world.sides import fit_exponents, sides, weighted_product
from labkit.world.world import world_from_text


def test_the_sides_against_enumeration() -> None:
    world = world_from_text({"tiny.txt": TINY})
    reference = reference_of(TINY)
    texts = reference.some(8)
    found = sides(world, texts, rate=0.5, seed=1)
    chosen = choose([world.numbers(words) for words in texts], 0.5, 1)
    for side, losses in (("left", found.left), ("right", found.right), ("both", found.both)):
        exact = []
        for words, positions in list(zip(texts, chosen, strict=True))[1::2]:
            for t in positions:
                number = world.machine.number[words[t]]
                if side == "both":
                    chances = distribution_at(world, reference.like(words, {t}), t)
                    exact.append(-np.log(chances[number]))
                elif side == "left":
                    p = reference.prefix(words[: t + 1]) / reference.prefix(words[:t])
                    exact.append(-np.log(p))
                else:
                    every = world.vocabulary[1:]
                    total = sum(reference.anywhere((w, *words[t + 1 :])) for w in every)
                    exact.append(-np.log(reference.anywhere(words[t:]) / total))
        np.testing.assert_allclose(np.concatenate(losses.losses), exact, atol=1e-10)


def test_the_fit_has_no_better_neighbour() -> None:
    random = np.random.default_rng(0)
    features = np.log(random.dirichlet(np.ones(5), size=(3, 200)))
    truth = np.array([0.8, 0.6, -0.3])
    chances = np.exp(weighted_product(features, truth))
    target = np.array([random.choice(5, p=p) for p in chances])
    found = fit_exponents(features, target)

    def loss(exponents: np.ndarray) -> float:
        return -weighted_product(features, exponents)[np.arange(200), target].mean()

    for step in np.vstack([np.eye(3), -np.eye(3)]) * 1e-3:
        assert loss(found) < loss(found + step)
    np.testing.assert_allclose(found, truth, atol=0.5)


def test_both_at_once_is_better_than_side_by_side() -> None:
    world = load_world()
    found = sides(world, world.sample(documents=12, seed=1), rate=0.03)
    assert found.left.mean > found.side_by_side.mean + 0.2
    assert found.side_by_side.mean > found.both.mean
    with pytest.raises(ValueError, match="at least two"):
        sides(world, world.sample(documents=1))
