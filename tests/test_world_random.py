"""Random small languages against the sum over all of their documents."""

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world_reference import Reference, all_paths

from labkit.world import END
from labkit.world.reading import read
from labkit.world.world import world_from_text

# Few words, so that they meet in every role: fixed, in lists, in names, in answers, as facts.
WORDS = ["a", "b", "c", "o", "a~one", "a~two", "new b", "new c", "b c a"]
FIXED = ["a", "b", "c", "new", "a~one", "b~two"]
weights = st.sampled_from(["", " 2", " 0.3"])


@st.composite
def sentences(draw: st.DrawFn, slots: list[str], depth: int = 1) -> str:
    pieces = [draw(st.sampled_from(FIXED))]
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["word", "slot", "slot", "choice", "tied"]))
        if kind == "word" or depth == 0:
            pieces.append(draw(st.sampled_from(FIXED)))
        elif kind == "slot":
            pieces.append(
                "{" + draw(st.sampled_from(["", "a "])) + draw(st.sampled_from(slots)) + "}"
            )
        else:
            sides = [draw(sentences(slots, depth - 1)), draw(st.sampled_from(["", "b", "new c"]))]
            pieces.append(("({}|{})" if kind == "choice" else "<{}|{}>").format(*sides))
    return " ".join(draw(st.permutations(pieces))) if any(p in FIXED for p in pieces) else "a"


@st.composite
def grammars(draw: st.DrawFn) -> str:
    lines = ["documents", "    story 2 begins with t0", "    other 1 begins with relations, u"]
    facts = draw(st.booleans())
    if facts:
        lines += ["fact h s", "    x y, z y 2, w v", "fact g", "    p, q 3"]
    for name in ("l", "m"):
        chosen = draw(
            st.lists(
                st.sampled_from(WORDS), min_size=1, max_size=4, unique_by=lambda w: w.split("~")[0]
            )
        )
        lines += [f"words {name}" + draw(st.sampled_from(["", " zipf"]))]
        lines += ["    " + word + draw(weights) for word in chosen]
    slots = ["l", "m"] + (["h", "h.s", "g"] if facts else [])
    topics = draw(st.integers(1, 3))
    for i in range(topics):
        after = [f"t{j}" for j in range(i + 1, topics)]
        lines += [
            f"topic t{i}",
            "    leads to " + ", ".join(t + draw(weights) for t in [*after, "end"]),
        ]
        if i:
            lines += [f"    comes after t{i - 1}"]
        for j in range(draw(st.integers(1, 2))):
            lines += [f"stage s{j}"]
            count = draw(st.integers(1, 2))
            lines += [
                "    " + draw(st.sampled_from(["", "2 "])) + draw(sentences(slots)) + " ."
                for _ in range(count)
            ]
    lines += ["topic u", "    leads to end", "    feelings yes no agree 0.7", "stage only"]
    lines += ["    <{l}|{m}> (c|) b .", "    " + draw(sentences(["l", "m"])) + " ."]
    lines += [
        "relation r weight 2 stops 1",
        "    a = b, new c = a",
        "relation s stops 1",
        "    a = b 2, a = c a",
    ]
    return "\n".join(lines)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammars(), st.integers(0, 2**32 - 1))
def test_a_random_language(text: str, seed: int) -> None:
    grammar = read({"random.txt": text})
    reference = Reference(all_paths(grammar))
    world = world_from_text({"random.txt": text})
    random = np.random.default_rng(seed)
    every = sorted(reference.texts)
    for words in (
        every[i] for i in random.choice(len(every), size=min(3, len(every)), replace=False)
    ):
        forward = world.log_probability(words)
        backward = world.log_probability(words, direction="backward")
        near = world.log_probability(words, reach=1)
        assert math.isclose(math.exp(forward.sum()), reference.texts[words], rel_tol=1e-11)
        assert math.isclose(math.exp(backward.sum()), reference.anywhere(words), rel_tol=1e-11)
        if len(words) > 2:
            pair = reference.anywhere(words[-2:]) / reference.anywhere(words[-2:-1])
            assert math.isclose(math.exp(near[-1]), pair, rel_tol=1e-11)
        hidden = np.nonzero(random.random(len(words) - 1) < 0.5)[0].tolist() or [0]
        alike = reference.like(words, hidden)
        assert math.isclose(
            math.exp(world.joint(words, hidden)), alike[words] / sum(alike.values()), rel_tol=1e-11
        )
        others = np.nonzero(world.replacements)[0]
        noisy = {t: (int(random.choice(others)), 0.9, 0.01) for t in hidden[1:]}
        for other in alike:
            for t, (shown, keep, noise) in noisy.items():
                alike[other] *= noise * world.replacements[shown] + keep * (
                    world.machine.number[other[t]] == shown
                )
        distributions = world.distributions([(world.numbers(words), hidden, noisy)], "document")[0]
        for distribution, t in zip(distributions, hidden, strict=True):
            exact = np.zeros(len(world.vocabulary))
            for other, weight in alike.items():
                exact[world.machine.number[other[t]]] += weight
            np.testing.assert_allclose(distribution, exact / exact.sum(), atol=1e-12)
    for document in world.sample(documents=3, seed=seed % 1000, split=None):
        assert tuple(document.words) in reference.texts
        assert document.words[-1] == END
