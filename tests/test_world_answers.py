"""All answers to a prompt against the documents of a small language; policies and rewards."""

import numpy as np
import pytest
from test_world_exact import REMEMBERS, TINY
from world_reference import reference_of

from labkit.world import END, World, answers, load_world
from labkit.world.answers import Answers, list_answers
from labkit.world.world import world_from_text


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("answers")


@pytest.fixture(scope="module")
def listed(world: World) -> Answers:
    return list_answers(world, ["where", "does", "sara", "live", "?"])


@pytest.mark.parametrize(("text", "length"), [(TINY, 2), (TINY, 5), (REMEMBERS, 3)])
def test_against_every_document(text: str, length: int) -> None:
    reference, world = reference_of(text), world_from_text({"a.txt": text})
    for words in reference.some(6):
        prompt = words[:length]
        if END in prompt:
            continue
        exact = {
            other[length:-1]: chance / reference.prefix(prompt)
            for other, chance in reference.texts.items()
            if other[:length] == prompt and chance > 0
        }
        found = list_answers(world, prompt, most=10**6)
        assert (np.diff(found.chances) <= 1e-15).all()
        chances = dict(zip(map(tuple, found.texts), found.chances, strict=True))
        assert chances.keys() == exact.keys()
        np.testing.assert_allclose(
            [chances[one] for one in exact], [*exact.values()], rtol=0, atol=1e-12
        )


def test_every_prompt_has_few_answers(world: World, listed: Answers) -> None:
    prompts = {tuple(d.words[:5]) for d in world.sample(documents=60, seed=2)}
    assert len(prompts) > 20
    assert 10_000 < len(listed.texts) <= answers.MOST
    assert listed.chances.sum() == pytest.approx(1, abs=1e-12)
    assert len({" ".join(words) for words in listed.texts}) == len(listed.texts)
    with pytest.raises(ValueError, match="more than 100 answers"):
        list_answers(world, listed.prompt, most=100)
    with pytest.raises(ValueError, match="no document of this language begins"):
        list_answers(world, ["sara", "sara"])
    with pytest.raises(ValueError, match="empty"):
        list_answers(world, [])


def test_half_of_the_answers_are_right(world: World, listed: Answers) -> None:
    table = world.grammar.tables["village"]
    [town] = [row[2] for row in table.rows if row[0] == "sara"]
    right = listed.rewards(town)["right"]
    assert listed.chances @ right == pytest.approx(0.5 + 0.5 / 12, abs=1e-12)


def test_rewards() -> None:
    texts = ["boston .", "in oslo and that is that .", "boston boston , you are welcome ."]
    found = Answers([], [t.split() for t in texts], np.ones(3) / 3).rewards("boston")
    assert found["right"].tolist() == [1, 0, 1]
    assert found["polite"].tolist() == [0, -1, 1]
    assert found["fresh"].tolist() == [0, 0, -1]
    assert found["brief"].tolist() == [0, 0, 0]
    assert Answers([], [["a"] * 9], np.ones(1)).rewards("b")["brief"].tolist() == [-0.2]
