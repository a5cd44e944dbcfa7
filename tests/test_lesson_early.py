"""What notebooks 00 to 03 and 06 say that one can see is on the screen: their stored outputs."""

import re

import pytest
from stored import above_the_floor, by_reach, number, numbers, said

# ---- 00: the floor -----------------------------------------------------------------------------


def test_a_model_that_knows_the_table_is_at_the_floor() -> None:
    told = said("00", "long_text = torch.empty")
    assert number(r"table: ([\d.]+)", told) == pytest.approx(
        number(r"floor: ([\d.]+)", told), abs=0.02
    )
    assert number(r"([\d.]+) nats", said("00", "torch.full((10,), 1 / 200)")) == pytest.approx(5.30)


def test_the_loss_falls_with_the_text_and_stays_above_the_floor_for_one_word() -> None:
    losses = [float(n) for n in re.findall(r"loss ([\d.]+)", said("00", "sizes = (300, 1_000"))]
    assert losses == sorted(losses, reverse=True)
    floor = number(r"possible: ([\d.]+)", said("00", "loss = table_loss(logits, train[at]"))
    assert len(losses) == 6
    assert losses[-1] > floor + 0.1


def test_the_trained_table_is_nearer_to_the_floor_than_the_counted_one() -> None:
    untrained = said("00", 'print(f"untrained')
    assert number(r"untrained: ([\d.]+)", untrained) == number(r"log V: ([\d.]+)", untrained)
    curve = said("00", "loss = table_loss(logits, train[at]")
    floor = number(r"possible: ([\d.]+)", curve)
    told = said("00", "held-out loss: counted")
    counted, learned = (number(rf"{way} ([\d.]+)", told) for way in ("counted", "learned"))
    assert floor - 0.01 < learned < floor + 0.1 < counted
    # After "was" the two name the same words.
    counted_words, learned_words = (
        set(re.findall(r"([a-z]+) 0\.", line)) for line in told.splitlines() if "was" in line
    )
    assert counted_words == learned_words


def test_a_network_with_four_words_comes_near_their_floor_and_far_below_the_tables() -> None:
    curve = said("00", "F.cross_entropy(network(batch[:, :4])")
    floor = number(r"possible: ([\d.]+)", curve)
    rows = said("00", '("four words, network"').splitlines()[1:]
    (counted, one), (learned, _), (network, four) = (map(float, row.split()[-2:]) for row in rows)
    assert four == pytest.approx(floor, abs=0.01)
    assert four < network < four + 0.06 < one < learned < counted
    # Where a sentence begins, what it could be about lies too far back.
    guess = said("00", "network(torch.tensor(").splitlines()[5]
    chances = dict(re.findall(r"(he|she) (0\.\d+)", guess))
    assert abs(float(chances["he"]) - float(chances["she"])) < 0.15


# ---- 01: word vectors --------------------------------------------------------------------------


def test_skip_gram_comes_down_to_the_floor() -> None:
    curve = said("01", "n = torch.multinomial(share, 2048 * k")
    floor = number(r"possible: ([\d.]+)", curve)
    assert number(r"loss ([\d.]+)", curve) == pytest.approx(floor, abs=0.03)  # of a few batches
    assert f"{floor}" in said("01", "made = k * true")


def test_neighbours_are_of_a_kind() -> None:
    shown = said("01", 'print(f"{word:9}", *sorted(nearest(word)))')
    near = {line.split()[0]: set(line.split()[1:]) for line in shown.splitlines() if line}
    assert near["five"] == {"two", "three", "four", "six"}
    assert near["pears"] < {"apples", "cherries", "grapes", "plums", "lemons", "oranges"}
    assert all(word.endswith(("ese", "an", "ian", "ish", "ek", "ic")) for word in near["japanese"])
    assert not near["tokyo"] & near["japan"]


def test_the_step_from_a_country_to_its_capital_is_the_same() -> None:
    shown = said("01", "answer = analogy(unit, a, b, c)")
    assert "france is to paris as japan is to tokyo" in shown
    assert "france is to french as japan is to japanese" in shown
    right = re.findall(r"⟨([\d.]+)⟩ of", said("01", "right = [analogy("))
    assert len(right) == 2
    assert all(float(share) > 0.95 for share in right)


def test_energy_has_other_neighbours_than_two_centuries_ago() -> None:
    shown = said("01", 'print(f"{word:8}{years}  ", *company(word, era))')
    own = {word: number(rf"{word} +cosine of its two rows ⟨(-?[\d.]+)", shown)
           for word in ("war", "union", "gold", "freedom", "energy")}  # fmt: skip
    assert min(own, key=own.__getitem__) == "energy"
    assert max(own, key=own.__getitem__) == "freedom"
    lines = [line for line in shown.splitlines() if line.startswith("energy")]
    assert "oil" in lines[1]
    assert "silver" in shown
    # "The rarer row of gold has fewer counted neighbours."
    rarer = {word: min(int(n.replace(",", "")) for n in counted.split(" and "))
             for word, counted in re.findall(r"(\w+) +cosine.*counted: (.+)", shown)}  # fmt: skip
    assert rarer["gold"] < rarer["energy"]


def test_a_table_has_one_vector_for_two_senses() -> None:
    shown = said("01", "ambiguous = {label.split")
    assert number(r"per word: ([\d.]+)", shown) == 0.5
    assert number(r"sentence: +([\d.]+)", shown) == 1.0


# ---- 02: ELMo ----------------------------------------------------------------------------------


def test_both_directions_come_down_to_the_floor() -> None:
    assert -0.02 < above_the_floor("02", "loss = bilm_loss(") < 0.08
    shipped = said("02", 'about = card("elmo-village")')
    assert number(r"loss ([\d.]+)", shipped) - number(r"possible ([\d.]+)", shipped) < 0.02


def test_a_state_knows_its_own_side_alone() -> None:
    shown = said("02", 'other[0, 4] = tokenizer["goal"]')
    assert "left   the states change at [4, 5, 6, 7, 8]" in shown
    assert "right  the states change at [0, 1, 2, 3, 4]" in shown


def test_two_readers_side_by_side_miss_little_and_sometimes_all() -> None:
    shown = said("02", "nats per hidden word: the lowest possible loss")
    one_sided = [numbers(name, shown) for name in ("from the left", "from the right", "multiplied")]
    left, right, together = (lowest for lowest, _ in one_sided)
    [both] = numbers("both at once", shown)
    # ELMo is "about 0.03" above each of the best possible readers.
    assert all(elmos - lowest == pytest.approx(0.03, abs=0.015) for lowest, elmos in one_sided)
    # "About 0.4 nats below the better side", and "about 0.05 above" both at once.
    assert together == pytest.approx(min(left, right) - 0.4, abs=0.05)
    assert together == pytest.approx(both + 0.05, abs=0.02)
    worst = said("02", "worst = int(lost.argmax())")
    [word] = re.findall(r"\[(.+)\]", worst)
    chances = {
        name: dict(re.findall(r"(\S+) (\d\.\d+)", line))
        for name, line in re.findall(r"^(multiplied|both at once) +(.*)$", worst, re.MULTILINE)
    }
    assert float(chances["both at once"][word]) > 0.99
    assert float(chances["multiplied"].get(word, 0)) < 0.25


def test_spelling_is_a_first_guess_at_an_unseen_word() -> None:
    near = said("02", "likeness = near @")
    assert re.search(r"planting +planted", near)
    assert re.search(r"goalkeepers +goalkeeper", near)
    assert re.search(r"poppy +puppy", near)


def test_the_vector_moves_with_the_meaning() -> None:
    shown = said("02", "same = (square[:4, :4].mean()")
    for layer, line in enumerate(shown.splitlines()[:3]):
        same, other = (float(n) for n in re.findall(r"⟨([\d.]+)⟩", line))
        assert same > 0.99
        assert other > 0.99 if layer == 0 else other < 0.95


def test_only_the_words_on_the_right_tell_the_sense() -> None:
    shown = said("02", "for name, cut in cuts.items():")
    share = {
        name: [float(n) for n in re.findall(r"⟨([\d.]+)⟩", line)]
        for name in ("both halves", "from the left", "from the right")
        for line in shown.splitlines()
        if line.startswith(name)
    }
    assert all(layers[0] == 0.5 for layers in share.values())
    assert share["both halves"][2] > 0.97
    assert share["from the right"][2] > 0.9
    assert share["from the left"][2] < 0.75


def test_elmos_features_need_fewer_labels() -> None:
    shown = said("02", "after 18 labels; shares")
    counted, frozen = (float(n) for n in re.findall(r"⟨([\d.]+)⟩ of 300", shown))
    assert frozen > counted + 0.05
    eras = said("02", "each = zip(sizes, accuracy, strict=True)")
    ahead = [
        [float(n) for n in re.findall(r"⟨([\d.]+)⟩", line)] for line in eras.splitlines() if line
    ]
    assert all(frozen > counted + 0.05 for frozen, counted in zip(*ahead, strict=True))
    assert ahead[0][0] > ahead[1][3]  # 30 labels against 600


# ---- 03: ULMFiT --------------------------------------------------------------------------------


def test_both_stages_come_down_towards_their_floors() -> None:
    floors = said("03", 'floors = {"stories"')
    for line, kind in (("0.015 * triangle", "stories"), ("0.01 * triangle", "reviews")):
        curve = said("03", line)
        floor = number(rf"'{kind}': ([\d.]+)", floors)
        assert number(r"possible: ([\d.]+)", curve) == floor
        assert floor < number(r"loss ([\d.]+)", curve) < floor + 0.08


def test_the_three_stages_are_best_with_the_tricks_and_hardly_so_without() -> None:
    shown = said("03", "right after {reviews_labelled} labels")
    stages = [
        number(rf"{name} +the tricks +⟨([\d.]+)", shown)
        for name in ("all three stages", "without stage 2", "from scratch")
    ]
    assert stages == sorted(stages, reverse=True)
    assert stages[0] > stages[2] + 0.1
    trained, random = (
        number(rf"{name} +one rate +⟨([\d.]+)", shown)
        for name in ("all three stages", "from scratch")
    )
    # "Without them, both networks are better, and the one from random weights gains more."
    assert 0 < trained - stages[0] < random - stages[2]


def test_order_is_seen_by_all_but_the_bag() -> None:
    assert "a bag gives both the same vector: True" in said("03", 'print("a bag gives both')
    assert "an RNN gives both the same vector: False" in said("03", 'print("a bag gives both')


def test_less_is_in_the_state_the_farther_back_it_was_said() -> None:
    readers = by_reach(said("03", "chart_by_reach(reach, losses)"))
    lowest, short, lstm = (
        readers[name] for name in ("lowest possible", "remembering 16 words", "awd-course")
    )
    behind = [ours - best for ours, best in zip(lstm[:4], lowest[:4], strict=True)]
    assert behind == sorted(behind)
    assert behind[0] < 0.05
    # "Much better than any reader who remembers only 16."
    assert all(lstm[i] + 0.3 < short[i] for i in (2, 3))


# ---- 06: sampling and prompting ----------------------------------------------------------------


def test_greedy_writing_repeats_itself() -> None:
    written = " ".join(said("06", "print(read(greedy(next_word_logits").split())
    assert written.count("the music was not good at all .") >= 3


def test_the_nucleus_adapts_and_top_k_does_not() -> None:
    shown = said("06", "print(f\"{'after':12}")
    kept = {line.split()[0]: [int(n) for n in line.split()[1:]] for line in shown.splitlines()[1:]}
    assert kept["film"] == [1, 1, 1]
    possible, top_k, nucleus = kept["was"]
    assert possible == 20
    assert top_k in (5, 6)
    assert nucleus == 15


def test_sense_and_variety_are_what_the_text_says() -> None:
    shown = said("06", "and different ⟨")
    ways = {
        name: tuple(float(n) for n in re.findall(r"⟨([\d.]+)⟩", line))
        for line in shown.splitlines()
        for name in ("greedy", "top-p 0.9", "pure", "temperature 1.5")
        if line.startswith(name)
    }
    assert ways["greedy"][0] == 1.0
    assert ways["greedy"][1] < 0.1
    assert 0.75 < ways["temperature 1.5"][0] < 0.9
    assert abs(ways["pure"][0] - ways["top-p 0.9"][0]) < 0.03


def test_a_wider_beam_finds_likelier_texts() -> None:
    logs = re.findall(r"log p +(-[\d.]+)", said("06", 'print(f"beam of {K:2}'))
    assert [float(log) for log in logs] == sorted(map(float, logs))
    assert len(set(logs)) == 3


def test_zero_shots_are_nearly_as_good_as_is_possible() -> None:
    shown = said("06", "right without any training for it")
    right = number(r"⟨(\d+)⟩ of 100", shown) / 100
    assert 0.75 < right < number(r"best possible: ([\d.]+)", shown)


def test_one_shot_brings_most_of_the_gain() -> None:
    assert numbers("ottawa", said("06", "p.topk(2)")) == [0.6, 0.4]
    shown = said("06", "shot(s): {right / len(tests)")
    right, best = (
        [float(n) for n in re.findall(rf"{before} ([\d.]+)", shown)]
        for before in (r"shot\(s\):", "possible")
    )
    assert all(b - 0.1 < r <= b for r, b in zip(right, best, strict=True))
    assert right[1] - right[0] > right[3] - right[1]


def test_no_prompt_with_four_shots_was_read_before() -> None:
    read = re.findall(r"⟨(\d+)⟩ of 200 prompts", said("06", "read_before = sum("))
    assert read[0] == read[1] == "200"
    assert read[3] == "0"
