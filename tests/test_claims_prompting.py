"""The experiments of notebook 06: each figure against the language's own, and each claim runs."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from classroom.claims import prompting
from classroom.ledger import judged, one_seed
from classroom.models.recipes import course_text
from labkit.sampling import Sampling
from labkit.writing.prompting import log_likelihoods


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    tiny = {"steps": 16, "width": 8, "layers": 1, "rate": 1e-2, "tests": 8}
    monkeypatch.setitem(prompting.SIZES, "smoke", tiny)
    monkeypatch.setitem(
        prompting.FEW, "smoke", {"steps": 4, "widths": (8, 16), "documents": 60, "tests": 8}
    )


@pytest.mark.parametrize("claim", prompting.CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_measured_and_its_contrasts_have_arms(claim):
    run = one_seed(claim, "smoke", 0)
    finding = judged(claim, "smoke", [0], [run])
    assert len(finding.contrasts) == len(claim.contrasts)
    assert all(0 <= figure <= 1 for figures in run["arms"].values() for figure in figures)
    # Nobody knows what is best for a model that was tuned, or that is shown wrong answers.
    unknown = {arm for arm in run["arms"] if "wrong" in arm or claim.id == "shots-or-tuning"}
    assert set(run["best"]) == set(run["arms"]) - unknown


def test_the_skill_of_an_exact_reader_is_the_best_possible(world, monkeypatch):
    text = course_text(words=500, held_out=500)

    def exact(model, prompts, answers):
        spelled = [text.tokenizer.pieces(list(answer)) for answer in answers]
        told = world.log_probabilities(spelled, start="sentence")
        return torch.tensor([[max(float(each.sum()), -1e6) for each in told]])

    monkeypatch.setattr(prompting, "log_likelihoods", exact)
    order = world.labelled("order", 200, split="held_out")
    follows = world.labelled("next", 200, split="held_out")
    found = prompting.skill(None, text.tokenizer, order, follows)  # type: ignore[arg-type]
    for right, tests in ((found.order, order), (found.next, follows)):
        assert abs(np.mean(right) - tests.best_accuracy) < 4 * tests.standard_error + 0.02


def test_a_leak_keeps_the_number_of_words_and_holds_each_answer_eight_times():
    text = course_text(words=4_000, held_out=500)
    assert text.world is not None
    tests = text.world.labelled("order", 20, split="held_out")
    answers = [prompting.answer_of(example) for example in tests[:3]]
    read = prompting.with_leak(text, answers, 0)
    assert abs(len(read.train) - len(text.train)) < 500
    tokens = read.windows(1, len(read.train)).at(0).tokens[0].tolist()
    everything = " ".join(text.tokenizer.pieces(tokens))
    for answer in answers:
        assert everything.count(" ".join(answer)) >= prompting.COPIES


def test_the_answer_to_a_question_of_order_is_likelier_than_its_reverse(world):
    tests = world.labelled("order", 40, split="held_out")
    sure = [example for example in tests if max(example.chances.values()) == 1.0]
    assert sure
    for example in sure:
        words, other = prompting.answer_of(example), [*example.words, *(example.second or [])]
        if words == other:
            other = [*(example.second or []), *example.words]
        logs = [world.log_probability(one, start="sentence").sum() for one in (words, other)]
        assert logs[0] > logs[1]


def test_shares_count_sentences_that_can_be_said_and_are_said_once(world):
    held_out = world.documents(seed=1, split="held_out")
    document = next(d for d in held_out if not d.annotations.relation)
    good = list(document.words[: document.words.index(".") + 1])
    bad = ["dog", "the", "the", "."]
    found = prompting.shares([good, [*good, *bad], bad[:2], [*bad, "the"]], world)
    assert found.possible == [1.0, 0.5, 0.0, 0.0]
    assert found.distinct == [0.0, 0.0, 0.0, 0.0]
    once = prompting.shares([good, bad], world)
    assert once == ([1.0, 0.0], [1.0, 1.0], [1.0, 0.0])


def test_real_text_makes_sense(world):
    starts, rest = prompting.openings(world, 12, 0)
    assert all(start[-1] == "." and len(rest[i]) == 30 for i, start in enumerate(starts))
    assert np.mean(prompting.shares(rest, world).possible) == 1.0


def test_what_is_written_goes_on_from_each_beginning_and_holds_no_separator():
    text = prompting.ordinary("smoke", 0)
    model = prompting.reader(text, "smoke", 0)
    starts = [["anna", "lived"], ["the", "dog", "was"]]
    written = prompting.continued(model, text.tokenizer, starts, Sampling(length=9), 0)
    alone = prompting.continued(model, text.tokenizer, starts[:1], Sampling(length=9), 0)
    assert written[0] == alone[0]
    assert all(0 < len(words) <= 9 and "[SEP]" not in words for words in written)


def test_the_floor_of_prompts_is_the_surprise_of_the_language_at_each_word_but_the_first(world):
    prompts = prompting.prompts_of(world, 8, 3)
    surprises = []
    for prompt in prompts:
        for t, word in list(enumerate(prompt.words))[1:12]:
            chances = world.next_word(prompt.words[:t])
            surprises.append(-np.log(chances[world.vocabulary.index(word)]))
            assert t > 1 or surprises[-1] == pytest.approx(0, abs=1e-9)  # the colon is certain
    floor = prompting.prompt_floor(world, 8, 3, length=12)
    assert floor == pytest.approx(np.mean(surprises), abs=1e-6)


def test_answers_are_the_likeliest_words_whatever_stands_beside_them(world):
    tokenizer, read = prompting.prompt_text(world, 100, 0)
    model = prompting.prompted(tokenizer, read, 16, 2, 0)
    prompts = [["canada", ":"], ["egypt", ":", "cairo", ";", "canada", ":"]]
    found = prompting.answers(model, tokenizer, prompts)
    words = range(len(tokenizer))
    codes = [tokenizer.encode(" ".join(prompt)) for prompt in prompts]
    said = log_likelihoods(model, codes, [[word] for word in words])
    assert found == tokenizer.pieces(said.argmax(dim=1).tolist())


def test_the_best_first_word_is_the_law_of_the_language(world):
    tests = world.few_shot(1, 40)
    best = []
    for example in tests:
        law = Counter[str]()
        for answer, chance in example.chances.items():
            law[answer.split()[0]] += chance  # type: ignore[assignment]
        exact = world.next_word(example.words)
        assert max(law.values()) == pytest.approx(float(exact.max()), abs=1e-6)
        best.append(float(exact.max()))
    assert prompting.best_first_word(tests) == pytest.approx(np.mean(best))
