"""What follows every prefix of a text, in one pass: the same as one question at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_world_exact import GRAMMARS

from classroom.models.knowing import KnownWords, known_words
from classroom.models.recipes import CourseText, course_text, untrained_elmo
from labkit.chance import Chance
from labkit.world import World, following, load_world
from labkit.world.following import Following
from labkit.world.world import world_from_text

PARTS = ("forward from the beginning", "forward", "backward", "over an end mark")


def dense(world: World, found: Following, prefix: int) -> np.ndarray:
    """The distribution after so many words."""
    return found.after(prefix, len(world.vocabulary))


def word_before(world: World, text: np.ndarray) -> np.ndarray:
    """The distribution of the word before a text, by the log-probability of each."""
    texts = [np.insert(text, 0, word) for word in range(len(world.vocabulary))]
    logs = world.log_probabilities(texts, direction="backward")
    chances = np.exp([log[0] for log in logs])
    # Within one text nothing follows an end mark.
    chances[0] = 1 - chances[1:].sum()
    return chances


def check_follows(world: World, part: str) -> None:
    """Compare all prefixes of some documents with one question for each."""
    texts = [world.numbers(document) for document in world.sample(documents=6, seed=1)]
    if part.startswith("forward"):
        start = "document" if part.endswith("beginning") else "anywhere"
        cut = [text[0 if start == "document" else 2 : 40] for text in texts]
        for text, found in zip(cut, world.following(cut, start=start), strict=True):
            for n in range(1, len(text)):
                expected = world.next_word(text[:n], start=start)
                np.testing.assert_allclose(dense(world, found, n), expected, atol=1e-12)
    elif part == "backward":
        cut = [text[a : a + 40] for a, text in enumerate(texts)]
        found_in = world.following(cut, direction="backward")
        for text, found in zip(cut, found_in, strict=True):
            for n in range(1, len(text) + 1):
                expected = word_before(world, text[len(text) - n :])
                np.testing.assert_allclose(dense(world, found, n), expected, atol=1e-12)
    else:
        # A document and the next one: neither tells anything of the other.
        first, second = texts[0][-8:], texts[1][:8]
        whole = np.concatenate([first, second])
        (found,) = world.following([whole], start="anywhere")
        for n in range(1, len(whole)):
            own = (whole[:n], "anywhere") if n < len(first) else (whole[len(first) : n], "document")
            expected = world.next_word(own[0], start=own[1])
            np.testing.assert_allclose(dense(world, found, n), expected, atol=1e-12)
        (found,) = world.following([whole], direction="backward")
        for n in range(1, len(whole) + 1):
            later = whole[len(whole) - n : len(first) if n > len(second) else None]
            expected = word_before(world, later)
            np.testing.assert_allclose(dense(world, found, n), expected, atol=1e-12)


@pytest.fixture(scope="module", params=GRAMMARS)
def tiny(request: pytest.FixtureRequest) -> World:
    return world_from_text({"tiny.txt": GRAMMARS[request.param]})


@pytest.mark.parametrize("part", PARTS)
def test_it_is_the_next_word_of_every_prefix(tiny: World, part: str) -> None:
    check_follows(tiny, part)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_words_of_the_course_have_their_chances(direction: str) -> None:
    world = load_world()
    texts = [world.numbers(one)[3:60] for one in world.sample(documents=30, seed=2)]
    logs = world.log_probabilities(texts, direction=direction, start="anywhere")
    found = world.following(texts, direction=direction, start="anywhere")
    for text, log, one in zip(texts, logs, found, strict=True):
        read, log = (text, log) if direction == "forward" else (text[::-1], log[::-1])
        said = [dense(world, one, n)[read[n]] for n in range(1, len(read))]
        np.testing.assert_allclose(np.log(said), log[1:], rtol=1e-9, atol=1e-9)


def test_a_group_without_states_may_have_any_chance() -> None:
    """Three words come alike for a long time, and what has no memory of them cannot overflow."""
    text = "documents\n    k 1 begins with t\ntopic t\n    leads to t 9, end 1\n"
    text += "stage s\n    {h} .\nwords h urn 2\n    x, y, z\n"
    world, words = world_from_text({"long.txt": text}), ["x", ".", "y", ".", "z", "."] * 1000
    with np.errstate(over="raise"):
        chances = world.next_word(words)
    alike = [chances[world.machine.number[word]] for word in "xyz"]
    assert alike == pytest.approx([0.3] * 3, abs=1e-12)


def test_unlikely_words_can_be_left_out() -> None:
    world = load_world()
    text = world.numbers(world.sample(documents=1, seed=3)[0])[:20]
    (every,), (some,) = world.following([text]), world.following([text], least=0.05)
    for words in (0, len(every.start)):
        with pytest.raises(ValueError, match=f"words is {words}: give a whole number from 1"):
            every.after(words, len(world.vocabulary))
    assert len(some.word) < len(every.word)
    for n in range(1, len(text)):
        likely = dense(world, every, n)
        likely[likely < min(0.05, likely.max())] = 0.0
        np.testing.assert_allclose(dense(world, some, n), likely / likely.sum(), atol=1e-12)


def test_a_wrong_direction_is_refused(tiny: World) -> None:
    with pytest.raises(ValueError, match="direction is 'up': choose forward or backward"):
        tiny.following([["."]], direction="up")


# ── mistakes that the comparison must find ───────────────────────────────────────────────────────


def forget_the_counts(patch: pytest.MonkeyPatch) -> None:
    """A word that was drawn from an urn is no likelier the next time."""
    urn = following.Drawn._urn

    def anew(self: following.Drawn, *at: np.ndarray) -> tuple[np.ndarray, ...]:
        seen, share, whole = urn(self, *at)
        return 0 * seen, share, whole

    patch.setattr(following.Drawn, "_urn", anew)


def forget_what_was_drawn(patch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered."""
    patch.setattr(following.Drawn, "add", lambda self, words: None)


def forget_the_document_before(patch: pytest.MonkeyPatch) -> None:
    """Before a document's first word stands no end mark."""
    way = following.direction_over
    patch.setattr(
        "labkit.world.exact.direction_over", lambda *parts: way(*parts)._replace(over=0 * parts[-1])
    )


def remember_over_the_end(patch: pytest.MonkeyPatch) -> None:
    """Two documents are read as one."""
    patch.setattr("labkit.world.exact.documents_of", lambda text: [text])


def let_all_states_be_as_likely(patch: pytest.MonkeyPatch) -> None:
    """Backward, the states before a word count the same."""
    way = following.direction_over

    def same(*parts: Any) -> following.Direction:
        machine, read, over = parts
        return way(machine, read._replace(prior=np.ones_like(read.prior)), over)

    patch.setattr("labkit.world.exact.direction_over", same)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    forget_the_counts, forget_what_was_drawn, forget_the_document_before, remember_over_the_end,
    let_all_states_be_as_likely,
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_finds_a_mistake(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    world = world_from_text({"tiny.txt": GRAMMARS["remembers"]})
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_all(world)


def check_all(world: World) -> None:
    for part in PARTS:
        check_follows(world, part)


# ── the objective ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def text() -> CourseText:
    return course_text("language", words=2_000, held_out=500)


@pytest.fixture(scope="module")
def known(text: CourseText) -> KnownWords:
    return known_words(text, torch.cat([batch.tokens for batch in text.windows(4, 16).once()]))


def test_the_loss_is_the_mean_over_all_words(text: CourseText, known: KnownWords) -> None:
    assert text.world is not None
    batch = text.windows(4, 16).at(3)
    model = untrained_elmo(text, width=8)
    token = torch.tensor(text.numbers(text.world.vocabulary))
    number = {int(t): n for n, t in enumerate(token)}
    expected = []
    with torch.no_grad():
        found = known(model, batch, Chance(0, 0, batch.rows))
        left, right = model.backbone(batch.tokens).hidden.chunk(2, dim=-1)
        for row, tokens in enumerate(batch.tokens):
            words = np.array([number[int(one)] for one in tokens])
            sides = zip(("forward", "backward"), (words, words[::-1]), (left, right), strict=True)
            for direction, read, states in sides:
                ended = 0
                for n in range(1, 16):
                    ended = n if read[n - 1] == 0 and direction == "forward" else ended
                    later = read[:n] if direction == "forward" else cut_at_end(read[:n])
                    start = "document" if ended else "anywhere"
                    chances = (
                        text.world.next_word(later[ended:], start=start)
                        if direction == "forward"
                        else text.world.next_word(later[::-1], direction="backward")
                    )
                    state = states[row, n - 1 if direction == "forward" else 16 - n]
                    logs = model.head(state[None])[0].log_softmax(-1)[token].numpy()
                    expected.append(-(chances * logs).sum())
    assert float(found.loss) == pytest.approx(np.mean(expected), abs=1e-3)


def cut_at_end(read: np.ndarray) -> np.ndarray:
    """What is read from the right, without the documents after the end mark read last."""
    ends = np.nonzero(read == 0)[0]
    return read[ends[-1] :] if len(ends) else read


def test_its_parts_add_up(text: CourseText, known: KnownWords) -> None:
    batch = text.windows(4, 16).at(1)
    model = untrained_elmo(text, width=8)
    whole = known(model, batch, Chance(0, 1, batch.rows))
    parts = [known(model, part, Chance(0, 1, part.rows)) for part in batch.micro(2)]
    counts = {name: term.count for name, term in whole.terms.items()}
    total = sum(part.over(counts) for part in parts)
    torch.testing.assert_close(torch.as_tensor(total), whole.loss)
