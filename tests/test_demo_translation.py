"""The widget of notebook 04: what it shows is what the model and the language say."""

import pytest

from classroom.demos import translation_demo, translation_view
from classroom.demos.pieces import Beside, Chips, Problem, Shades, Table
from classroom.demos.translation import ENDS, SHOWN, Asked
from classroom.models.shipped import trained
from classroom.tasks import translating
from labkit.world.translation import Pair

SENTENCE = "the bank of paris was light"


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    return trained("translation")[0]


def table(view, name: str) -> Table:  # type: ignore[no-untyped-def]
    [found] = [p for p in view.pieces if isinstance(p, Table) and p.name == name]
    return found


def test_a_step_stands_beside_the_exact_distribution(model) -> None:  # type: ignore[no-untyped-def]
    view = translation_view(SENTENCE, "", model, Asked(step=3))
    read, written = [p for p in view.pieces if isinstance(p, Chips)]
    assert [chip.token for chip in read.chips] == SENTENCE.split()
    words = [chip.token for chip in written.chips]
    exact = translating.next_word(SENTENCE.split(), words[:2])
    assert len(exact) == 2  # the article of either bank
    shown = {row[0]: (row[1].value, row[2].value) for row in table(view, "next").rows}  # type: ignore[union-attr]
    for word, p in exact.items():
        assert shown[word or ENDS] == pytest.approx((p, p), abs=0.05)
    [maps] = [p for p in view.pieces if isinstance(p, Beside)]
    attention, alignment = maps.pieces
    assert isinstance(attention, Shades)
    assert isinstance(alignment, Shades)
    assert alignment.shares == tuple(
        map(tuple, translating.translator().alignment(SENTENCE.split(), words).tolist())
    )


def test_the_beam_finds_the_likeliest_translations(model) -> None:  # type: ignore[no-untyped-def]
    view = translation_view(SENTENCE, "", model, Asked(beams=4))
    known = translating.translator().translations(SENTENCE.split())
    rows = table(view, "beam").rows
    assert len(rows) == 4
    for text, own, exact in rows:
        assert exact.value == pytest.approx(known[tuple(str(text).split())])  # type: ignore[union-attr]
        pair = Pair(SENTENCE.split(), str(text).split())
        [log] = translating.log_probabilities(model, [pair])
        assert own.value == pytest.approx(2.718281828**log, abs=1e-4)  # type: ignore[union-attr]


def test_a_wide_beam_lists_only_words(model) -> None:  # type: ignore[no-untyped-def]
    view = translation_view("frame the nail of the teacher", "", model, Asked(beams=8))
    rows = table(view, "beam").rows
    assert "[" not in " ".join(str(row[0]) for row in rows)
    own = [row[1].value for row in rows]  # type: ignore[union-attr]
    assert own == sorted(own, reverse=True)


def test_a_click_forces_a_word_and_the_decoder_goes_on_from_it(model) -> None:  # type: ignore[no-untyped-def]
    demo = translation_demo(model, SENTENCE)
    demo.change(step=4)
    words = [c.token for c in demo.shown.pieces[3].chips]  # type: ignore[union-attr]
    other = "rivi" if "kontor" in words else "kontor"
    demo.change(step=3)
    article = "ra" if other == "rivi" else "ro"
    assert demo.act is not None
    demo.act(translating.numbers([article])[0])
    assert demo.values["begins"].split() == [*words[:2], article]
    assert demo.values["step"] == 4
    chips = demo.shown.pieces[3].chips  # type: ignore[union-attr]
    assert [c.token for c in chips][:4] == [*words[:2], article, other]
    assert [c.kind for c in chips[:4]] == ["asked"] * 3 + ["plain"]
    demo.reset()
    assert demo.values["begins"] == ""


def test_the_steps_end_with_the_translation(model) -> None:  # type: ignore[no-untyped-def]
    demo = translation_demo(model, SENTENCE)
    step = demo.controls["step"]
    for sentence in (SENTENCE, "the queen fed the cat"):
        demo.change(sentence=sentence)
        words = [c.token for c in demo.shown.pieces[3].chips]  # type: ignore[union-attr]
        step.value = 24
        assert step.value == step.max == len(words) + 1
        assert f"Step {step.value}: after “{' '.join(words)}”" in demo.shown.text
        # A word that is written after the end is drawn too.
        assert demo.act is not None
        demo.act(translating.numbers([words[0]])[0])
        assert demo.values["begins"].split() == [*words, words[0]]
        assert step.value == len(words) + 2 <= step.max
        demo.reset()


def test_a_click_reads_the_sentence_as_the_view_does(model) -> None:  # type: ignore[no-untyped-def]
    demo = translation_demo(model, SENTENCE.title())
    demo.change(step=3)
    words = [c.token for c in demo.shown.pieces[3].chips]  # type: ignore[union-attr]
    assert demo.act is not None
    demo.act(translating.numbers([words[2]])[0])
    assert demo.values["begins"].split() == words[:3]
    demo.act(translating.end())  # the end is no word: nothing is forced
    assert demo.values["begins"].split() == words[:3]


def test_an_impossible_beginning_is_named(model) -> None:  # type: ignore[no-untyped-def]
    view = translation_view(SENTENCE, "kontor kontor", model, Asked(step=3))
    assert "No translation begins with “kontor kontor”" in view.text


@pytest.mark.parametrize("sentence", ["", "the xyzzy", "the " * 40])
def test_what_cannot_be_read_is_said(model, sentence: str) -> None:  # type: ignore[no-untyped-def]
    view = translation_view(sentence, "", model, Asked())
    [problem] = view.pieces
    assert isinstance(problem, Problem)


def test_a_sentence_that_the_language_cannot_say_has_nothing_exact(model) -> None:  # type: ignore[no-untyped-def]
    view = translation_view("the dog dog the in", "", model, Asked(step=99))
    assert "nothing exact is known" in view.text
    assert all(row[2].value is None for row in table(view, "next").rows)  # type: ignore[union-attr]


def test_no_special_token_but_the_end_is_offered(model) -> None:  # type: ignore[no-untyped-def]
    special = {*translating.tokenizer().vocabulary.special} - {translating.end()}
    for begins in ("", "ra flegin ro klosar"):
        view = translation_view("the queen fed the cat", begins, model, Asked(step=5))
        keys = table(view, "next").keys
        assert len(keys) >= SHOWN
        assert not special & {*keys}


def test_a_click_on_the_end_changes_nothing_and_leaves_no_button_pressed(model) -> None:  # type: ignore[no-untyped-def]
    demo = translation_demo(model, SENTENCE)
    demo.controls["step"].value = 24
    before = demo.values
    demo.clickable.index = [word for word, _ in demo.clickable.options].index(ENDS)
    assert demo.clickable.index is None
    assert demo.values == before
