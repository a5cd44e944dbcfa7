"""What notebook 04 says that one can see is on the screen: its stored outputs are read."""

import re

import pytest
from stored import numbers, said


def test_what_is_built_by_hand_is_labkits() -> None:
    assert "the same numbers as labkit's Attention" in said(
        "04", "assert_close(multi_head(x, other, every)"
    )
    assert "in that order" in said("04", "x[:, order]")
    assert "the same states of" in said("04", "theirs = labkits.encode")
    assert "the same scores as labkit's Transformer" in said("04", "theirs[wanted] @ labkits.token")
    assert "all at once and word by word" in said("04", "torch.cat(one_by_one, dim=1)")


def test_the_encoder_tags_as_well_as_is_possible() -> None:
    shown = said("04", "def tag_shares(tagger)")
    bag, rnn, encoder, alone, best = (
        numbers(name, shown)
        for name in ("bag", "RNN", "encoder", "best, word alone", "best, sentence")
    )
    assert bag[1] == pytest.approx(alone[1], abs=0.02)
    assert bag[1] < rnn[1] < encoder[1] <= best[1]
    assert encoder[1] == pytest.approx(best[1], abs=0.02)
    assert best[1] < 0.97


def test_the_translator_comes_near_its_floor_in_view() -> None:
    curve = said("04", "learn(mine, lambda batch")
    loss, floor = (
        float(x) for x in re.findall(r"step 300 .* loss ([\d.]+); .*: ([\d.]+)", curve)[0]
    )
    assert floor < loss < floor + 0.15


def test_the_shipped_model_is_at_the_best_possible() -> None:
    shown = said("04", "found[name] = translating.judged(model, held_out, written[name])")
    best, trained, shipped = (
        numbers(name, shown) for name in ("best possible", "trained above", "shipped")
    )
    assert shipped[0] == pytest.approx(best[0], abs=0.01)
    for i in (1, 2):
        assert trained[i] <= shipped[i] <= best[i]
        assert shipped[i] == pytest.approx(best[i], abs=0.01)
    assert shipped[3] > trained[3]


def test_the_trained_models_make_few_mistakes_which_are_their_own() -> None:
    shown = said("04", "translating.searched(models[name], source, beams=beams)")
    rows = re.findall(r"(.*), beam of (\d): (\d+) of 100 wrong: (\d+) search errors", shown)
    wrong = {(name, int(beams)): (int(all_), int(lost)) for name, beams, all_, lost in rows}
    young = "a third of the steps"
    assert wrong[young, 4][1] < wrong[young, 1][1]
    assert wrong[young, 4][0] > 0.7 * wrong[young, 1][0]
    for beams in (1, 4):
        assert wrong["shipped", beams][0] <= 2
        assert wrong["trained above", beams][0] < 25
    assert wrong["trained above", 4][1] <= 1


def test_one_vector_falls_faster_than_attention() -> None:
    shown = said("04", 'f"Token accuracy of texts of 1, 2, 3')
    one, many = (
        [float(x) for x in re.search(rf"'{name}': \[([^\]]+)\]", shown)[1].split(",")]  # type: ignore[index]
        for name in ("one vector", "attention")
    )
    assert one[0] - one[2] > many[0] - many[2] + 0.05


def test_cross_attention_finds_much_of_the_alignment() -> None:
    shown = said("04", "rights[name] += translating.aligned(seen, exact)")
    [second], [same] = (numbers(name, shown) for name in ("layer 2", "same position"))
    assert second > 0.7 > 0.5 > same


def test_free_running_is_never_better_than_teacher_forcing() -> None:
    shown = said("04", "translating.possible_after_right_words(model, held_out)")
    for name in ("a third of the steps", "trained above", "shipped"):
        forced, free = (
            float(x) for x in re.findall(rf"{name} .*forcing ([\d.]+) .*free ([\d.]+)", shown)[0]
        )
        assert free <= forced + 0.005
