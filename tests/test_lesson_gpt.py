"""What notebook 05 says that one can see is on the screen: its stored outputs are read."""

import re

import numpy as np
import pytest
from stored import above_the_floor, by_reach, cells, number, said

from classroom.exercises.duels import topic_of
from classroom.findings import kept, sentence, unmeasured
from classroom.models.recipes import course_text
from classroom.tasks.reach import reach_of_words


def test_our_gpt_is_labkits() -> None:
    assert "the same states" in said("05", "assert_close(mine.states(drawn)")


def test_the_loss_comes_down_towards_the_floor_in_view() -> None:
    assert 0 < above_the_floor("05", "live = LiveCurve(steps, floor)") < 0.15
    before = said("05", 'print(f"before training')
    assert number(r"training: ([\d.]+)", before) == pytest.approx(5.32, abs=0.05)


def test_the_shipped_model_is_at_the_floor_and_writes_sentences() -> None:
    held_out = said("05", 'card("gpt-village")["command"]')
    assert abs(number(r"out: ([\d.]+)", held_out) - number(r"possible: ([\d.]+)", held_out)) < 0.03
    assert number(r"(\d+)% of", said("05", "village.world.are_sentences(")) >= 95


def test_attention_looks_up_what_a_state_has_lost() -> None:
    readers = by_reach(said("05", "chart_by_reach(reach, losses)"))
    lowest, short, lstm, gpt = (
        readers[name]
        for name in ("lowest possible", "remembering 16 words", "awd-course", "gpt-course")
    )
    assert all(best < ours <= other for best, ours, other in zip(lowest, gpt, lstm, strict=True))
    assert all(gpt[i] < lstm[i] for i in (1, 2, 3))
    assert all(gpt[i] + 0.3 < short[i] for i in (2, 3))
    assert all(gpt[i] > lowest[i] + 0.2 for i in (2, 3))


def test_pretraining_is_worth_labels() -> None:
    says = said("05", "axes.semilogx")
    scratch, shipped = (eval_list(says, name) for name in ("from scratch", "gpt-village"))
    assert shipped[2] > scratch[2] + 0.2  # thirty labels
    assert shipped[3] > 0.9
    assert all(a > b for a, b in zip(shipped, scratch, strict=True))


def eval_list(text: str, name: str) -> list[float]:
    found = re.search(rf"'{name}': \[([\d., ]+)\]", text)
    assert found
    return [float(one) for one in found[1].split(",")]


@pytest.mark.parametrize(
    ("part", "question", "at_least"),
    [
        ("follows = fine_tune(", "follow", 0.8),
        ("similar = alike", "topic", 0.8),
        ("chooser(tokens, real).view", "next", 0.6),
    ],
)
def test_the_other_three_inputs_are_trained(part: str, question: str, at_least: float) -> None:
    assert number(rf"{question}\? ([\d.]+)", said("05", part)) >= at_least


def test_the_resumed_run_is_the_run_without_an_accident() -> None:
    resumed = said("05", 'folder = 27, Path("runs", "killed")')
    assert "resumed after step 20" in resumed
    assert "without an accident: 0" in resumed


def test_what_is_said_of_the_claims_is_in_the_ledger() -> None:
    for claim in {"auxiliary-objective", "half-precision"} - unmeasured():
        assert sentence(kept(claim)) in said("05", f'show_finding("{claim}"')


def test_the_duel_is_as_large_as_the_text_says() -> None:
    words = {5: "five", 9: "nine"}
    topic = topic_of("masking")
    prose = "".join("".join(c["source"]) for c in cells("05") if c["cell_type"] == "markdown")
    size = f"{words[len(topic.honest)]} honest models and {words[len(topic.bugs)]} that leak"
    assert size in prose


def test_the_reach_of_words_is_what_it_says() -> None:
    text = course_text("language", words=200, held_out=800)
    reach = reach_of_words(text, 120)
    documents = [words[:120] for words in text.documents]
    assert max(map(len, documents)) > 80
    assert len(reach.everything) == sum(map(len, documents))
    # By definition: the smallest number that tells as much as the whole text.
    needed = np.full(len(reach.everything), 120)
    for span in (64, 16, 4):
        log_p = np.concatenate(text.world.log_probabilities(documents, reach=span))
        needed[abs(reach.everything - log_p) < 0.1] = span
    np.testing.assert_array_equal(reach.needed, needed)
    assert set(needed) == {4, 16, 64, 120}
