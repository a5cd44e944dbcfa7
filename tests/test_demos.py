"""Demos: what they show is what the objectives, the models and the language say, as text."""

import itertools
import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import ipywidgets
import pytest
import torch

from classroom.demos import (
    Demo,
    Masking,
    View,
    attention_demo,
    attention_view,
    base,
    costs_demo,
    floors_view,
    leaks_demo,
    leaks_view,
    ledger_demo,
    ledger_view,
    masking_demo,
    masking_view,
    masks_demo,
    masks_view,
    orders_demo,
    orders_view,
    reach_demo,
    reach_view,
    sampling_demo,
    sampling_view,
    schedule_demo,
    schedule_view,
    senses_demo,
    senses_view,
    show,
    training_demo,
    training_view,
    vectors_demo,
    vectors_view,
)
from classroom.demos.attention import order_of as order_of_text
from classroom.demos.attention import weights
from classroom.demos.base import TOOLTIP
from classroom.demos.masking import OBJECTIVES, PAIRS
from classroom.demos.masks import asked_by_epoch
from classroom.demos.pieces import (
    Beside,
    Chip,
    Chips,
    Curve,
    Grid,
    Heading,
    Interval,
    Intervals,
    Lot,
    Note,
    Piece,
    Problem,
    Shades,
    Share,
    Table,
)
from classroom.demos.reach import heard
from classroom.demos.reading import as_batch, in_vocabulary, label, letters_apart, written
from classroom.demos.rendering import COLOURS, as_images, clean
from classroom.demos.senses import reader
from classroom.demos.source import coloured
from classroom.demos.squares import grid
from classroom.demos.training import Point
from classroom.ledger import Arm, Finding, Seen
from classroom.models.shipped import trained
from labkit.attention import merge_heads
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.heads import MaskedWord, NextWord
from labkit.keeping.reports import Report
from labkit.masking import causal
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import MaskedToken, NextToken
from labkit.sampling import Sampling, steps
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

TEXT = "The cat sat on the mat. Then the dog came in and barked!"
OTHERS = ["A cow ran home. It was late.", "Bread is good. We eat it."]
HOSTILE = {
    "script": "<script>alert('x')</script> <img src=x onerror=alert(1)> </div></table>",
    "quotes": """"double" 'single' `back` &amp; &lt; &#39; & \\ $x^2$""",
    "right to left": "שלום עולם. مرحبا بالعالم. \u202ereversed\u202c",
    "emoji": "👩‍👩‍👧 🇫🇷 😀. e\u0301\u0301 \U0001f9d1\U0001f3fd",
    "control": "a\x00b\x07c\ud800d\u2028e",
    "long": "word " * 2000,
    "one long word": "x" * 10_000,
    "empty": "",
    "blank": " \n\t ",
    "special": "[MASK] [CLS] [SEP] [PAD]",
}
VOID = {"br", "path", "rect"}


class Page(HTMLParser):
    """What a browser makes of a page: its elements, its text, and whether they are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def having(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if name in attrs]


ALLOWED = {"div", "span", "bdi", "small", "br", "table", "thead", "tbody", "tr", "th", "td",
           "svg", "path", "text", "rect", "circle", "title", "code", "pre", "style"}  # fmt: skip


def harmless(view: Any) -> Page:
    """The page of a view, after a look at what could run or be fetched."""
    found = Page(view.html)
    assert {tag for tag, _ in found.elements} <= ALLOWED
    for _, attrs in found.elements:
        assert not [name for name in attrs if name.startswith("on") or name in ("src", "href")]
        assert "url(" not in (attrs.get("style") or "")
    assert view.text.strip()
    view.html.encode()
    view.text.encode()
    return found


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.words([TEXT, *OTHERS])


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return Tokenizer.word_pieces([TEXT, *OTHERS], size=60)


@pytest.fixture(scope="module")
def of_world(world: World) -> Tokenizer:
    return Tokenizer.words([" ".join(world.vocabulary[1:])])


def gpt(tokenizer: Tokenizer, context: int = 64) -> LanguageModel:
    torch.manual_seed(1)
    model = GPT(GPTConfig(len(tokenizer), width=16, layers=2, heads=2, context=context))
    return LanguageModel(model, NextWord(model.token)).eval()


def bert(tokenizer: Tokenizer, context: int = 64) -> LanguageModel:
    torch.manual_seed(2)
    model = BERT(BERTConfig(len(tokenizer), width=16, layers=2, heads=2, context=context))
    return LanguageModel(model, MaskedWord(model.token, 16)).eval()


def beginning(world: World, seed: int, count: int) -> list[str]:
    """The first words of a document that goes on after them."""
    found = (d.words for d in world.documents(seed=seed) if len(d.words) > count + 1)
    return list(next(found)[:count])


# ---- pieces ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", COLOURS.values(), ids=COLOURS)
def test_text_stands_out_from_its_background(pair: tuple[str, str]) -> None:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted(map(light, pair))
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_a_background_never_comes_without_its_text_colour() -> None:
    html = View.of("x", *every_piece("a")).html
    # In a bar, something empty stands before the word.
    styled = re.findall(r'style="([^"]*)"[^>]*>(?:<span[^>]*></span><bdi>)?([^<]*)<', html)
    grounds = [style for style, text in styled if "background:" in style and text.strip()]
    assert len(grounds) > 3
    assert all(re.search(r"(?<![\w-])color:", style) for style in grounds)


def every_piece(text: str) -> list[Piece]:
    """One piece of each kind, about a text."""
    shares = ((1.0, 0.0), (0.25, 0.75))
    return [
        Heading(text), Note(text, text), Problem(text),
        Chips((Chip(text, "mask", text), Chip("b")), "hide"),
        Table((text, "p"), ((text, Share(0.5)), ("b", Share(None))), text, 0, "write", (7, 8)),
        Grid(((1, 0), (2, 1)), (text, "b"), (text, "b"), text, text),
        Shades(shares, (text, "b"), (text, "b"), text, 1, "select"),
        Beside((Shades(shares, (text, "b"), (text, "b"), text, small=True),)),
        Curve(((0, 1.5), (3, 0.5)), text, text, text, text, text, (0.25, text), (3, 0.5)),
        Intervals((Interval(text, 0.1, 0.2, 0.4, 0.3, text),), text),
        Lot(((text, 0.25), ("b", 0.75)), 0.5, 1, 0.25),
        Shades(shares, (text, "b"), ("c", "d"), text),
    ]  # fmt: skip


def test_every_kind_of_piece_is_drawn_and_told() -> None:
    kinds = {piece.kind for piece in every_piece("a")}
    assert kinds == {kind.kind for kind in Piece.__subclasses__()}
    for piece in every_piece("a"):
        view = View.of("one", piece)
        harmless(view)
        assert view.as_data() == json.loads(json.dumps(view.as_data()))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_piece_shows_a_text_as_text(text: str) -> None:
    found = harmless(View.of(text, *every_piece(text)))
    assert "".join(found.words).count(clean(text)) >= 6


def test_a_mask_is_drawn_square_by_square() -> None:
    mask = torch.rand(7, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    down = [f"row {i}" for i in range(7)]
    view = View.of("m", grid(mask, [str(i) for i in range(9)], title="m", down=down))
    lines = view.text.splitlines()[1:]
    assert [[c == "■" for c in line.split("  ")[-1]] for line in lines] == mask.tolist()
    rows = view.html.split("<tr data-row")[1:]
    assert [[cell == "■" for cell in re.findall("[■·]", row)] for row in rows] == mask.tolist()
    filled = [row.count("background:#2f6fb3") for row in rows]
    assert filled == mask.sum(dim=1).tolist()


def test_a_wrong_square_has_a_sign_of_its_own() -> None:
    view = View.of("m", Grid(((0, 1, 2),), ("a", "b", "c"), ("d",), "m", "said"))
    assert view.text == "said\nd  ·■✗"
    assert "".join(harmless(view).words) == "saidabcd·■✗"


def test_a_long_text_does_not_make_a_huge_picture() -> None:
    checker = (torch.arange(512)[:, None] + torch.arange(512)) % 2 == 0
    view = View.of("m", grid(checker, ["w"] * 512, title="m"))
    assert len(view.html) < 100_000
    assert "first 40 of 512" in view.text


def test_words_do_not_run_together_without_styles() -> None:
    view = View.of("x", *every_piece("a"))
    for part in (Chips((Chip("one"), Chip("two"))), every_piece("a")[6]):
        bare = re.sub("<[^>]*>", "", re.sub("<style>.*?</style>", "", View.of("x", part).html))
        assert " " in bare
    assert "onetwo" not in re.sub("<[^>]*>", "", view.html)


def test_pointing_at_a_row_raises_the_bars_of_its_words() -> None:
    shares = ((1.0, 0.0), (0.25, 0.75))
    rule = r':has\((\w*\[data-row="\d)"\]:hover\)\{([^}]*)\}'
    html = View.of("x", Shades(shares, ("a", "b"), ("a", "b"), "m")).html
    assert re.findall(rule, html) == [
        ('[data-row="0', "--h0:1.00"), ('[data-row="1', "--h0:0.25;--h1:0.75"),
    ]  # fmt: skip
    # The words of another text stand for no rows.
    across = View.of("x", Shades(shares, ("c", "d"), ("a", "b"), "m")).html
    assert [where for where, _ in re.findall(rule, across)] == ['tr[data-row="0', 'tr[data-row="1']
    # A selected row gives way to the one under the pointer, as a whole.
    html = View.of("x", Shades(shares, ("a", "b"), ("a", "b"), "m", 1)).html
    assert re.findall(rule, html)[0][1] == "--h0:1.00!important;--h1:0.00!important"
    assert 'style="--h0:0.25;--h1:0.75"' in html
    assert 'title="b → a: 0.250"' in html
    other = View.of("x", Shades(shares[::-1], ("a", "b"), ("a", "b"), "m")).html
    assert re.findall('id="([^"]*)"', html) != re.findall('id="([^"]*)"', other)


def test_the_bar_shows_on_which_word_the_number_falls() -> None:
    view = View.of("x", Lot((("a", 0.25), ("b", 0.5), ("c", 0.25)), 0.5, 1, 0.25))
    assert "number drawn is 0.5000: it falls on “b”, which has 0.2500 to 0.7500" in view.text
    assert re.findall(r"width:([\d.]+)%", view.html) == ["50.0", "25.00", "50.00", "25.00"]


# ---- masking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_masking_takes_any_text(tokenizer: Tokenizer, objective: str, text: str) -> None:
    harmless(masking_view(text, Masking(objective=objective), tokenizer, others=OTHERS))


def test_what_is_shown_is_what_the_objective_hides(tokenizer: Tokenizer) -> None:
    setting = Masking(rate=0.5, mask=0.4, random=0.3, draw=5)
    batch = as_batch(TEXT, tokenizer)
    assert batch is not None
    chance = Chance(0, 5, torch.zeros(1, dtype=torch.long))
    objective = MaskedToken(vocabulary=tokenizer.vocabulary, rate=0.5, shares=setting.shares)
    targets = objective.targets(batch, chance)
    view = masking_view(TEXT, setting, tokenizer)
    shown = harmless(view).having("data-position")
    asked = targets.predicted["masked"].positions_N.tolist()
    assert asked
    assert [
        int(a["data-position"]) for a in shown if a["data-kind"] in ("mask", "random", "kept")
    ] == asked
    kinds = {place: shown[place]["data-kind"] for place in asked}
    for place, kind in kinds.items():
        token, was = int(targets.inputs.tokens[0, place]), int(batch.tokens[0, place])
        mask = tokenizer.vocabulary.mask
        assert kind == ("mask" if token == mask else "kept" if token == was else "random")
    assert set(kinds.values()) == {"mask", "random", "kept"}
    said = view.text.split("What it must predict")[1]
    for place in asked:
        assert f"{place}: {tokenizer.pieces(batch.tokens[0, place : place + 1])[0]} (" in said


def statistics_of(view: View) -> dict[str, tuple[float, float, float]]:
    lines = view.text.split("share")[-1].splitlines()[1:]
    cells = [re.split(r"\s{2,}", line) for line in lines if "±" in line and "  " in line]
    return {name: (float(a), float(f), float(e[1:])) for name, a, f, e in cells}


@pytest.mark.parametrize("objective", ["masked tokens", "whole words", "spans"])
def test_shares_over_many_draws_are_those_asked_for(pieces: Tokenizer, objective: str) -> None:
    setting = Masking(objective=objective, rate=0.3, mask=0.5, random=0.3)
    found = statistics_of(masking_view(TEXT, setting, pieces))
    assert len(found) == 4
    assert found["predicted"][0] == 0.3
    for asked, share, error in found.values():
        assert 0 < error < 0.05
        assert abs(share - asked) < 2 * error


def test_statistics_hold_still_while_draws_change(tokenizer: Tokenizer) -> None:
    first, second = (masking_view(TEXT, Masking(draw=n), tokenizer) for n in (0, 1))
    assert statistics_of(first) == statistics_of(second)
    assert first.text != second.text


def test_pieces_of_a_word_are_hidden_together(pieces: Tokenizer) -> None:
    batch = as_batch(TEXT, pieces)
    assert batch is not None
    assert batch.words is not None
    words = batch.words[0].tolist()
    assert len(set(words)) < len(words)
    whole = 0
    for draw in range(20):
        view = masking_view(TEXT, Masking(objective="whole words", rate=0.4, draw=draw), pieces)
        shown = harmless(view).having("data-position")
        fates: dict[int, set[bool]] = {}
        for word, attrs in zip(words, shown, strict=True):
            fates.setdefault(word, set()).add(attrs["data-kind"] in ("mask", "random", "kept"))
        assert all(len(both) == 1 for both in fates.values())
        whole += sum(True in both for both in fates.values())
    assert whole


def test_the_next_word_is_asked_everywhere_and_nothing_is_hidden(tokenizer: Tokenizer) -> None:
    view = masking_view(TEXT, Masking(objective="next word"), tokenizer)
    shown = harmless(view).having("data-position")
    assert [a["data-kind"] for a in shown] == ["special"] + ["asked"] * (len(shown) - 1)
    assert "[MASK]" not in view.text
    rows = [line.split("  ")[-1].strip() for line in view.text.splitlines() if "■" in line]
    assert rows == ["■" * (i + 1) + "·" * (len(rows) - i - 1) for i in range(len(rows))]


def test_an_order_shows_both_streams(tokenizer: Tokenizer) -> None:
    view = masking_view(TEXT, Masking(objective="permutation", rate=0.3), tokenizer)
    content, query = (part.splitlines() for part in view.text.split("stream: ")[1:])
    squares = [
        [line.split("  ")[-1].strip() for line in lines[1:] if re.search("[■·]", line)]
        for lines in (content, query)
    ]
    assert len(squares[0]) == len(squares[1]) > 10
    for place, (h, g) in enumerate(zip(*squares, strict=True)):
        # Content sees its own word; the query sees the same others, and never its own word.
        assert (h[place], g[place]) == ("■", "·")


@pytest.mark.parametrize("objective", PAIRS)
def test_a_pair_has_its_answer(tokenizer: Tokenizer, objective: str) -> None:
    answers = set()
    for draw in range(12):
        view = masking_view(
            TEXT, Masking(objective=objective, rate=0.0, draw=draw), tokenizer, others=OTHERS
        )
        seen = " ".join(view.text.split("\n\n")[1].split())
        straight = seen.startswith("[CLS] The cat sat on the mat . [SEP] Then the dog came in")
        yes = "follows A" in view.text or "stand in their order" in view.text
        assert straight == yes
        answers.add(yes)
    assert answers == {True, False}
    asked, found, error = re.findall(r"asked ([\d.]+), found ([\d.]+) ± (\d\.\d+)", view.text)[0]
    assert abs(float(found) - float(asked)) < 2 * float(error)


def test_a_pair_of_one_sentence_says_what_to_do(tokenizer: Tokenizer) -> None:
    demo = masking_demo(text="One sentence", tokenizer=tokenizer, texts=OTHERS)
    demo.change(objective="next sentence")
    assert "two sentences" in demo.shown.text
    assert 'role="status"' in demo.picture.value


def test_guesses_are_those_of_the_model(tokenizer: Tokenizer) -> None:
    model = bert(tokenizer)
    view = masking_view(TEXT, Masking(rate=0.4, mask=1.0, random=0.0), tokenizer, model=model)
    batch = as_batch(TEXT, tokenizer)
    assert batch is not None
    lines = re.findall(r"^(\d+): \S+\s+(0\.\d{4})", view.text.split("p by the model")[1], re.M)
    assert lines
    seen = batch.tokens.clone()
    seen[0, [int(place) for place, _ in lines]] = tokenizer.vocabulary.mask or 0
    with torch.no_grad():
        law = model(seen).softmax(dim=-1)[0]
    for place, said in lines:
        right = int(batch.tokens[0, int(place)])
        assert float(said) == pytest.approx(float(law[int(place), right]), abs=1e-4)


@pytest.mark.parametrize("objective", ["next word", "masked tokens", "permutation"])
def test_exact_probabilities_are_those_of_the_language(
    world: World, of_world: Tokenizer, objective: str
) -> None:
    from labkit.models.xlnet import XLNet, XLNetConfig

    words = beginning(world, 3, 9)
    model = gpt(of_world) if objective == "next word" else bert(of_world)
    if objective == "permutation":
        backbone = XLNet(XLNetConfig(len(of_world), width=16, layers=1, heads=2))
        model = LanguageModel(backbone, NextWord(backbone.token))
    view = masking_view(
        " ".join(words), Masking(objective=objective, rate=0.4, mask=1.0, random=0.0, draw=1),
        of_world, model=model, world=world, start="document",
    )  # fmt: skip
    rows = table_of(view, "guesses")
    found = {int(row[0].split(":")[0]) - 1: float(row[3].strip()) for row in rows if row[3] != "–"}
    assert found
    if objective == "next word":
        exact = world.log_probability(words).tolist()
        assert found == {p: pytest.approx(2.718281828 ** exact[p], abs=1e-4) for p in range(9)}
    elif objective == "masked tokens":
        hidden = sorted(found)
        law = world.conditional(words, hidden)
        for row, place in zip(law, hidden, strict=True):
            assert found[place] == pytest.approx(row[world.numbers(words)[place]], abs=1e-4)
    else:
        # One after the other in the order, the asked words have their joint probability.
        joint = torch.tensor(list(found.values())).log().sum()
        assert float(joint) == pytest.approx(world.joint(words, sorted(found)), abs=2e-2)


def table_of(view: View, name: str) -> list[list[str]]:
    """The cells of a table of a page."""
    html = view.html.split(f'<table data-table="{name}"')[1].split("</table>")[0]
    rows = html.split("<tbody>")[1].split("</tr>")[:-1]
    return [["".join(Page(c + "</td>").words).strip() for c in re.findall(r"(<td.*?)</td>", row)]
            for row in rows]  # fmt: skip


def test_exact_is_given_what_bert_is_given_and_not_which_words_are_wrong(
    world: World, of_world: Tokenizer
) -> None:
    """The same requests as those of the floor of masked words with BERT's channel."""
    words = beginning(world, 4, 12)
    setting = Masking(rate=0.6, mask=0.3, random=0.4, draw=2)
    view = masking_view(" ".join(words), setting, of_world, world=world, start="document")
    shown = harmless(view).having("data-position")
    kinds = {int(a["data-position"] or 0) - 1: a["data-kind"] for a in shown[1:-1]}
    assert set(kinds.values()) == {"plain", "mask", "random", "kept"}
    numbers, others = world.numbers(words), int(world.replacements.sum())
    seen = view.text.split("\n\n")[1].split()[1:-1]
    channel = {}
    for place, (kind, word) in enumerate(zip(kinds.values(), seen, strict=True)):
        believed = 0.3 if kind != "plain" else 1 - 0.6 + 0.6 * 0.3
        wrong = (0.4 if kind != "plain" else 0.6 * 0.4) / others
        number = world.machine.number.get(word, 0)
        if kind == "plain" or (kind != "mask" and world.replacements[number]):
            channel[place] = (number, believed, wrong)
    asked = [place for place, kind in kinds.items() if kind != "plain"]
    [fair] = world.distributions([(numbers, asked, channel)], "document")
    found = [float(row[1]) for row in table_of(view, "guesses")]
    exact = fair[range(len(asked)), numbers[asked]]
    assert found == pytest.approx(exact.tolist(), abs=1e-4)
    # That some of the asked words are seen tells more than if all of them were hidden.
    hidden = masking_view(" ".join(words), Masking(rate=0.6, mask=1.0, random=0.0, draw=2),
                          of_world, world=world, start="document")  # fmt: skip
    alone = [float(row[1]) for row in table_of(hidden, "guesses")]
    assert sum(found) > sum(alone) + 0.5


def test_a_world_alone_says_what_is_likely(world: World, of_world: Tokenizer) -> None:
    words = beginning(world, 4, 8)
    demo = masking_demo(" ".join(words), of_world, world=world, start="document")
    demo.change(rate=0.5)
    assert re.search(r"word +p exact +the most probable", demo.shown.text)
    assert table_of(demo.shown, "guesses")


def test_entropy_and_divergence_stand_beside_the_guesses(world: World, of_world: Tokenizer) -> None:
    words = beginning(world, 4, 8)
    model, setting = bert(of_world), Masking(rate=0.5, mask=1.0, random=0.0)
    text = " ".join(words)
    view = masking_view(text, setting, of_world, model=model, world=world, start="document")
    [[by_model, exact, divergence]] = table_of(view, "nats")
    rows = table_of(view, "guesses")
    p, q = (torch.tensor([float(row[n]) for row in rows]) for n in (1, 3))
    assert float(by_model) == pytest.approx(float(-p.log().mean()), abs=0.2)
    assert float(exact) == pytest.approx(float(-q.log().mean()), abs=0.05)
    hidden = sorted(int(row[0].split(":")[0]) - 1 for row in rows)
    given = torch.from_numpy(world.conditional(words, hidden))
    seen = torch.tensor(
        [[of_world.vocabulary.cls, *of_world.encode(text), of_world.vocabulary.sep]]
    )
    seen[0, [place + 1 for place in hidden]] = of_world.vocabulary.mask or 0
    with torch.no_grad():
        guessed = model(seen)[0].softmax(dim=-1).double()[[place + 1 for place in hidden]]
    tokens = [of_world.vocabulary.sep, *(of_world[word] for word in world.vocabulary[1:])]
    ratio = torch.where(given > 0, given.log() - guessed[:, tokens].log(), 0.0)
    assert float(divergence) == pytest.approx(float((given * ratio).sum(1).mean()), abs=1e-3)


def test_a_click_hides_a_word_and_another_one_shows_it(tokenizer: Tokenizer) -> None:
    demo = masking_demo(TEXT, tokenizer)
    model = bert(tokenizer)
    kinds = [a["data-kind"] for a in harmless(demo.shown).having("data-position")]
    plain, asked = kinds.index("plain"), next(
        n for n, kind in enumerate(kinds) if kind in ("mask", "random", "kept")
    )  # fmt: skip
    options = [key for _, key in demo.clickable.options]
    assert options == list(range(1, len(kinds) - 1))
    for place, wanted in ((plain, "mask"), (asked, "plain")):
        before = demo.shown
        demo.clickable.index = options.index(place)
        assert demo.clickable.index is None
        shown = harmless(demo.shown).having("data-position")[place]
        assert shown["data-kind"] == wanted
        again = masking_view(TEXT, Masking(clicked=(place,)), tokenizer, model=model)
        assert harmless(again).having("data-position")[place]["data-kind"] == wanted
        demo.clickable.index = options.index(place)
        assert demo.shown == before
    demo.clickable.index = options.index(plain)
    assert f"{plain}: " in demo.shown.text.split("What it must predict")[1].split("\n\n")[1]
    demo.controls["draw"].value = 1
    assert demo.shown == masking_view(TEXT, Masking(draw=1), tokenizer)


def test_reset_sets_everything_back(tokenizer: Tokenizer) -> None:
    demo = masking_demo(TEXT, tokenizer)
    first = demo.shown
    demo.change(rate=0.7, objective="spans", draw=4)
    demo.clickable.index = 0
    demo.buttons["reset"].click()
    assert demo.shown == first
    writing = sampling_demo(gpt(tokenizer), tokenizer, PROMPT)
    first = writing.shown
    writing.buttons["step"].click()
    writing.change(temperature=0.3)
    writing.buttons["reset"].click()
    assert (writing.new, writing.shown) == ([], first)


def test_unknown_words_are_named_with_near_ones() -> None:
    tokenizer = Tokenizer.words(["the cat sat on the mat near paris ."])
    fitted, unknown = in_vocabulary("Paris ist the cst , Zebra !", tokenizer)
    assert fitted == "paris ist the cst , Zebra !"
    assert unknown == ["“ist”", "“cst” (near: cat)", "“,”", "“Zebra”", "“!”"]
    pairs = ("cat cst", "a abc", "abc a", "sat at")
    assert [letters_apart(*two.split()) for two in pairs] == [
        1, 2, 2, 1,
    ]  # fmt: skip
    view = masking_view("Paris is the cst", Masking(), tokenizer)
    assert "Not in the vocabulary: “is”, “cst” (near: cat)." in view.text
    assert "paris" in view.text
    for text, why in (("ist cst", "not in the vocabulary: “ist”, “cst” (near: cat)"),
                      ("", "write some words")):  # fmt: skip
        shown = masking_view(text, Masking(), tokenizer).text
        assert f"There is nothing to hide: {why}." in shown
    assert (
        "Not in the vocabulary"
        in sampling_view("dog", [], Sampling(), gpt(tokenizer), tokenizer).text
    )
    # A vocabulary of pieces spells every word.
    pieces = Tokenizer.bpe(["the cat sat"], 300)
    assert in_vocabulary("Zebra", pieces) == ("Zebra", [])


def test_half_of_a_character_is_no_sign_that_somebody_wrote() -> None:
    assert written("a\ud800 ?\udfff") == "a\ufffd ?\ufffd"
    assert written("👩 a?") == "👩 a?"


def test_only_the_unknown_words_that_are_shown_are_compared_with_all_words(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    monkeypatch.setattr(
        "classroom.demos.reading.near", lambda word, _: compared.append(word) or " (near: x)"
    )
    _, said = in_vocabulary(" ".join(f"q{n}" for n in range(50)), tokenizer)
    assert compared == [f"q{n}" for n in range(5)]
    assert said[4:] == ["“q4” (near: x)", "and 45 more"]


def test_a_text_with_more_words_than_buttons_says_so(tokenizer: Tokenizer) -> None:
    demo = masking_demo("the " * 48, tokenizer)
    assert demo.clickable.description == base.ACTS["hide"]
    demo.change(text="the " * 60)
    assert len(demo.clickable.options) == base.MOST_WORDS
    assert demo.clickable.description.endswith("(the first 48 of 60 words)")


def test_a_text_that_the_language_cannot_say_is_no_error(world: World, of_world: Tokenizer) -> None:
    view = masking_view(
        "york york <b> .", Masking(rate=0.9), of_world, model=bert(of_world), world=world
    )
    exact = [row[4] for row in table_of(view, "guesses")]
    assert exact
    assert set(exact) == {"the language cannot say this"}


def test_a_text_longer_than_the_model_is_cut_and_says_so(tokenizer: Tokenizer) -> None:
    view = masking_view("the cat " * 50, Masking(), tokenizer, model=bert(tokenizer, context=16))
    assert "100 tokens; shown are the first 14" in view.text


# ---- the widget --------------------------------------------------------------------------------


def follows(demo: Demo) -> None:
    """Live and static, a demo shows the same."""
    live, still = outputs(demo)
    assert demo.picture.value == demo.shown.html
    assert "application/vnd.jupyter.widget-view+json" in live
    assert as_images(demo.shown.html) in still["text/html"]
    assert still["text/plain"] == demo.shown.text


def outputs(demo: Demo) -> list[dict[str, str]]:
    """What a cell that ends with a demo leaves in the notebook: the widget, then its picture."""
    shown: list[dict[str, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "display", lambda data, **_: shown.append(data))
        demo._ipython_display_()
    return shown


@pytest.mark.parametrize("text", [TEXT, HOSTILE["script"], HOSTILE["right to left"]])
def test_what_is_stored_shows_its_drawing_where_no_svg_is_allowed(text: str) -> None:
    demo = ledger_demo([found_claim(text, text)])
    demo.controls["claim"].value = text
    html = outputs(demo)[1]["text/html"].removeprefix(base.STORED)
    drawings = re.findall("<svg .*?</svg>", demo.shown.html, flags=re.DOTALL)
    images = re.findall('<img alt="([^"]*)" [^>]*base64,([^"]*)">', html)
    assert drawings
    assert "<svg" not in html
    for drawing, (said, data) in zip(drawings, images, strict=True):
        assert f'aria-label="{said}"' in drawing
        root = ElementTree.fromstring(b64decode(data).decode())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "".join(root.itertext()).split() == "".join(Page(drawing).words).split()


@pytest.mark.parametrize("given", ["a text", None, [1]])
def test_what_is_drawn_must_be_a_view(given: object) -> None:
    with pytest.raises(TypeError, match=rf"draw returned {re.escape(repr(given))}: return a View"):
        base.Demo("own", lambda: given, {})  # type: ignore[arg-type, return-value]


def test_a_fault_of_a_drawing_stands_in_its_place() -> None:
    def draw(rate: float) -> View:
        return View.of("own", Problem(f"{1 / rate:.2f} steps"))

    demo = base.Demo("own", draw, {"rate": base.slider("rate", 1, 0, 2, 0.5)})
    assert "1.00 steps" in demo.picture.value
    with pytest.raises(ZeroDivisionError):  # for the log of Jupyter
        demo.controls["rate"].value = 0.0
    assert "ZeroDivisionError: " in demo.picture.value
    assert "1.00 steps" not in demo.picture.value
    demo.controls["rate"].value = 0.5
    assert "2.00 steps" in demo.picture.value


def test_moving_a_control_draws_what_the_pure_function_says(tokenizer: Tokenizer) -> None:
    demo = masking_demo(text=TEXT, tokenizer=tokenizer, texts=OTHERS)
    follows(demo)
    demo.controls["rate"].value = 0.6
    demo.controls["objective"].value = "spans"
    follows(demo)
    asked = Masking(objective="spans", rate=0.6)
    assert demo.shown == masking_view(TEXT, asked, tokenizer, others=OTHERS)
    demo.buttons["draw again"].click()
    assert demo.values["draw"] == 1
    assert demo.shown == masking_view(
        TEXT, Masking(objective="spans", rate=0.6, draw=1), tokenizer, others=OTHERS
    )
    demo.buttons["another text"].click()
    assert demo.values["text"] == OTHERS[0]
    follows(demo)


def test_two_shares_cannot_be_more_than_the_whole(tokenizer: Tokenizer) -> None:
    demo = masking_demo(text=TEXT, tokenizer=tokenizer)
    for name, value in (("mask", 1.0), ("random", 0.7), ("mask", 0.95), ("mask", 0.0)):
        demo.controls[name].value = value
        assert demo.values["mask"] + demo.values["random"] <= 1 + 1e-9
        assert demo.values[name] == value
        assert 'role="status"' not in demo.picture.value


def test_every_control_has_a_name_and_a_place_to_be_found(tokenizer: Tokenizer) -> None:
    demo = masking_demo(text=TEXT, tokenizer=tokenizer)
    assert "labkit-masking" in demo._dom_classes
    for name, control in demo.controls.items():
        assert f"labkit-{name}" in control._dom_classes
        assert control.description
        assert getattr(control, TOOLTIP)


def test_one_line_is_enough() -> None:
    demo = masking_demo(text="Some words of mine.")
    assert "Some" in demo.shown.text
    with pytest.raises(ValueError, match="no text"):
        masking_demo()


# ---- sampling ----------------------------------------------------------------------------------


PROMPT = "The cat sat"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_sampling_takes_any_prompt(tokenizer: Tokenizer, world: World, text: str) -> None:
    settings = Sampling(temperature=0.7, top_k=4, top_p=0.8)
    model = gpt(tokenizer)
    harmless(sampling_view(text, [], settings, model, tokenizer, world=world))
    every = list(range(len(tokenizer)))
    harmless(sampling_view(text, every, settings, model, tokenizer, world=world))


def test_bars_are_the_stages_of_the_sampler(tokenizer: Tokenizer) -> None:
    settings = Sampling(temperature=0.5, top_k=6, top_p=0.7, length=1)
    model = gpt(tokenizer)
    view = sampling_view(PROMPT, [], settings, model, tokenizer, seed=3)
    tokens = [tokenizer.vocabulary.sep or 0, *tokenizer.encode(PROMPT)]
    step = next(steps(model, [tokens], settings, seed=3))
    rows = table_of(view, "distributions")
    assert re.findall(r"→ drawn +(.*)", view.text)[0].split() == list(step.stages)
    for row in rows:
        token = tokenizer[row[0].removeprefix("→ ")]
        exact = [float(law[0, token]) for law in step.stages.values()]
        assert [float(cell) for cell in row[1:]] == pytest.approx(exact, abs=1e-4)
    drawn = [row[0] for row in rows if row[0].startswith("→")]
    assert drawn == ["→ " + tokenizer.pieces(step.tokens_B)[0]]
    widths = re.findall(r"height:10px;width:([\d.]+)%", view.html)
    numbers = [float(cell) for row in rows for cell in row[1:]]
    assert [float(w) / 100 for w in widths] == pytest.approx(numbers, abs=1e-3)


def test_the_numbers_of_the_formulas_add_up(tokenizer: Tokenizer) -> None:
    settings = Sampling(temperature=0.6, top_k=9, top_p=0.6)
    view = sampling_view(PROMPT, [], settings, gpt(tokenizer), tokenizer)
    lines = [line for line in view.text.splitlines() if " = " in line]
    assert [line.split(":")[0] for line in lines] == ["model", "temperature", "top-k", "nucleus"]
    first = table_of(view, "distributions")[0]
    for line, cell in zip(lines, first[1:], strict=True):
        assert float(line.split(" = ")[-1]) == pytest.approx(float(cell), abs=2e-4)
    for line in lines[1:]:
        above, below, result = map(float, re.findall(r"([\d.]+) / ([\d.]+) = ([\d.]+)$", line)[0])
        assert above / below == pytest.approx(result, abs=2e-3)
    assert "9 words hold" in lines[2]
    greedy = sampling_view(PROMPT, [], Sampling(temperature=0.0), gpt(tokenizer), tokenizer)
    assert table_of(greedy, "distributions")[0][2] == "1.0000"
    assert "the best word alone" in greedy.text


def test_the_likelihoods_are_those_of_the_model_and_of_the_language(
    world: World, of_world: Tokenizer
) -> None:
    words = next(world.documents(seed=5)).words
    prompt, new = words[:6], words[6:11]
    model = gpt(of_world)
    tokens = of_world.encode(" ".join(new))
    view = sampling_view(" ".join(prompt), tokens, Sampling(), model, of_world, world=world)
    rows = {row[0]: [float(cell) for cell in row[1:]] for row in table_of(view, "likelihoods")}
    exact = world.log_probability(words[:11])
    assert rows["language"] == pytest.approx(
        [exact[:6].sum(), exact[6:].sum(), exact.sum()], abs=2e-3
    )
    read = torch.tensor([[of_world.vocabulary.sep or 0, *of_world.encode(" ".join(words[:11]))]])
    with torch.no_grad():
        law = model(read)[0].log_softmax(dim=-1)
    logs = law[:-1].gather(-1, read[0, 1:, None])[:, 0]
    assert rows["model"] == pytest.approx(
        [float(logs[:6].sum()), float(logs[6:].sum()), float(logs.sum())], abs=2e-3
    )


def test_a_whole_document_ends_with_the_mark_of_the_language(
    world: World, of_world: Tokenizer
) -> None:
    document = min(world.sample(documents=20, seed=1), key=len)
    end = of_world.vocabulary.sep or 0
    model = gpt(of_world, context=256)
    view = sampling_view(document.text, [end], Sampling(), model, of_world, world=world)
    rows = {row[0]: row[1:] for row in table_of(view, "likelihoods")}
    assert float(rows["language"][2]) == pytest.approx(
        float(world.log_probability(document).sum()), abs=2e-3
    )
    assert "has ended" in view.text
    assert 'data-table="distributions"' not in view.html


def test_a_word_that_the_language_cannot_say_is_named(world: World, of_world: Tokenizer) -> None:
    view = sampling_view("york york york", [], Sampling(), gpt(of_world), of_world, world=world)
    assert "cannot go on with “york”" in view.text
    assert table_of(view, "likelihoods")[1][1] == "-inf"
    # An unknown word is one word, and not the three signs of its name.
    unknown = sampling_view("xyzzy york", [], Sampling(), gpt(of_world), of_world, world=world)
    assert "cannot go on with “[UNK]”" in unknown.text


def test_the_one_best_word_is_told_as_one(tokenizer: Tokenizer) -> None:
    view = sampling_view(PROMPT, [], Sampling(top_k=1), gpt(tokenizer), tokenizer)
    assert "top-k: the best word: 1 word holds" in view.text


def test_a_cold_formula_divides_no_zeros(tokenizer: Tokenizer) -> None:
    model = gpt(tokenizer)
    view = sampling_view(PROMPT, [], Sampling(temperature=0.05), model, tokenizer)
    [line] = re.findall("temperature: .*", view.text)
    above, below, share = map(float, re.findall(r"\d\.\d+(?:e-\d+)?(?= /| =|$)", line)[-3:])
    assert 0 < above < 0.001
    assert above / below == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("context", [64, 12])
def test_a_run_is_so_many_steps_and_both_can_be_undone(tokenizer: Tokenizer, context: int) -> None:
    demo = sampling_demo(
        gpt(tokenizer, context), tokenizer, PROMPT, settings=Sampling(length=9, temperature=1.3)
    )
    follows(demo)
    before = demo.shown
    for seed in range(4):
        demo.change(seed=seed)
        for _ in range(9):
            demo.buttons["step"].click()
        steps_taken, stepped = len(demo.past), list(demo.new)
        for _ in range(steps_taken):
            demo.buttons["undo"].click()
        demo.buttons["run"].click()
        assert demo.new == stepped
        follows(demo)
        demo.buttons["undo"].click()
        assert demo.new == []
    demo.buttons["undo"].click()
    demo.change(seed=0)
    assert demo.shown == before


def short_memory(tokenizer: Tokenizer) -> LanguageModel:
    torch.manual_seed(0)
    sizes = TransformerXLConfig(len(tokenizer), 16, 2, 2, context=8, memory=2)
    backbone = TransformerXL(sizes)
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    for parameter in model.parameters():
        parameter.data *= 4
    return model


@pytest.mark.parametrize("make", [gpt, short_memory])
def test_a_run_draws_from_what_the_steps_show(
    tokenizer: Tokenizer, make: Callable[[Tokenizer], LanguageModel]
) -> None:
    model, sep = make(tokenizer), tokenizer.vocabulary.sep
    assert sep is not None
    # So likely is the end that nothing else would come without the minimum.
    model.head.words.bias = torch.nn.Parameter(torch.zeros(len(tokenizer)))
    model.head.words.bias.data[sep] = 20.0
    settings = Sampling(length=6, minimum=5, stop=(sep,), temperature=1.3)
    demo = sampling_demo(model, tokenizer, PROMPT, settings=settings)
    assert "minimum: words to come before the text may end: 5; p = " in demo.shown.text
    for seed in range(4):
        demo.change(seed=seed)
        for _ in range(6):
            demo.buttons["step"].click()
        stepped = list(demo.new)
        assert stepped.index(sep) == 5
        demo.forget()
        demo.buttons["step"].click()
        demo.settings = replace(settings, length=5)
        demo.buttons["run"].click()
        assert demo.new == stepped
        demo.settings = settings
        demo.forget()


def test_the_rule_of_a_nucleus_is_the_one_in_use(tokenizer: Tokenizer) -> None:
    for within, rule in ((False, "until they hold 0.4"), (True, "while they hold at most 0.4")):
        settings = Sampling(top_p=0.4, top_p_within=within)
        view = sampling_view(PROMPT, [], settings, gpt(tokenizer), tokenizer)
        assert f"nucleus: the best words {rule}: " in view.text


def test_the_sliders_of_sampling_move_the_law(tokenizer: Tokenizer) -> None:
    model = gpt(tokenizer)
    demo = sampling_demo(model, tokenizer, PROMPT)
    demo.change(**{"temperature": 0.5, "top-k": 3, "top-p": 0.9, "seed": 2})
    settings = Sampling(temperature=0.5, top_k=3, top_p=0.9)
    assert demo.shown == sampling_view(PROMPT, [], settings, model, tokenizer, seed=2)
    demo.buttons["step"].click()
    assert demo.shown == sampling_view(PROMPT, demo.new, settings, model, tokenizer, seed=2)
    demo.controls["prompt"].value = "A cow"
    assert demo.new == []
    assert demo.shown == sampling_view("A cow", [], settings, model, tokenizer, seed=2)


def test_a_click_writes_a_word(tokenizer: Tokenizer) -> None:
    demo = sampling_demo(gpt(tokenizer), tokenizer, PROMPT)
    words = [label.removeprefix("→ ") for label, _ in demo.clickable.options]
    assert words == [row[0].removeprefix("→ ") for row in table_of(demo.shown, "distributions")]
    token = demo.clickable.options[3][1]
    demo.clickable.index = 3
    assert demo.new == [token]
    assert demo.clickable.index is None
    follows(demo)
    demo.buttons["undo"].click()
    assert demo.new == []


def test_a_click_that_comes_late_means_the_word_that_was_shown(tokenizer: Tokenizer) -> None:
    """The page sends a second click as soon as the first one is answered."""
    demo = sampling_demo(gpt(tokenizer), tokenizer, PROMPT)
    first_row = demo.clickable
    for _ in range(3):
        row = demo.clickable
        (_, first), (_, second) = row.options[1], row.options[2]
        row.index = 1
        assert demo.clickable.options != row.options
        row.index = 2
        assert demo.new[-2:] == [first, second]
    # The rows that are long gone are closed.
    assert [row.comm is None for row in (first_row, demo.clickable)] == [True, False]


def test_the_number_that_was_drawn_falls_on_the_word_that_was_drawn(tokenizer: Tokenizer) -> None:
    model, settings = gpt(tokenizer), Sampling(temperature=0.8, top_k=9)
    fell = set()
    for seed in range(30):
        view = sampling_view(PROMPT, [], settings, model, tokenizer, seed=seed)
        [lot] = [piece for piece in view.pieces if isinstance(piece, Lot)]
        word, share = lot.parts[lot.drawn]
        assert lot.before - 1e-6 <= lot.number <= lot.before + share + 1e-6
        assert f"→ {word} " in view.text
        fell.add(word)
    assert len(fell) > 3


def test_the_exact_distribution_stands_beside_the_models(world: World, of_world: Tokenizer) -> None:
    words = beginning(world, 5, 6)
    model = gpt(of_world)
    view = sampling_view(" ".join(words), [], Sampling(), model, of_world, world=world)
    exact = world.next_word(words)
    for row in table_of(view, "distributions"):
        number = world.machine.number.get(row[0].removeprefix("→ "), 0)
        if row[0].removeprefix("→ ") in world.vocabulary:
            assert float(row[1]) == pytest.approx(exact[number], abs=1e-4)
    read = torch.tensor([[of_world.vocabulary.sep, *of_world.encode(" ".join(words))]])
    with torch.no_grad():
        guessed = model(read)[0, -1].softmax(dim=-1).double()
    tokens = [of_world.vocabulary.sep, *(of_world[word] for word in world.vocabulary[1:])]
    given, likely = torch.from_numpy(exact), torch.from_numpy(exact) > 0
    ratio = (given[likely] / guessed[tokens][likely]).log()
    wanted = [
        -float((given[likely] * given[likely].log()).sum()),
        -float((guessed * guessed.log()).sum()),
        float((given[likely] * ratio).sum()),
    ]
    [found] = table_of(view, "nats")
    assert [float(cell) for cell in found] == pytest.approx(wanted, abs=1e-3)


def test_a_model_is_left_as_it_was(tokenizer: Tokenizer) -> None:
    model = gpt(tokenizer).train()
    model.head.eval()
    demo = sampling_demo(model, tokenizer, PROMPT)
    demo.run()
    masking_view(TEXT, Masking(objective="next word"), tokenizer, model=model)
    assert model.training
    assert not model.head.training


# ---- orders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_orders_take_anything(text: str) -> None:
    harmless(orders_view(text, ""))
    harmless(orders_view("New York is", text))
    harmless(orders_view(text, text))


def test_an_order_decides_what_each_prediction_is_given() -> None:
    view = orders_view("New York is large", "3 1 4 2")
    assert table_of(view, "given") == [
        ["1", "3 is", "nothing"],
        ["2", "1 New", "is"],
        ["3", "4 large", "New is"],
        ["4", "2 York", "New is large"],
    ]
    masks = [
        [line.split()[-1] for line in part.splitlines()[1:5]]
        for part in re.split("stream .*: a filled", view.text)[1:]
    ]
    assert masks == [["■·■·", "■■■■", "··■·", "■·■■"], ["··■·", "■·■■", "····", "■·■·"]]


@pytest.mark.parametrize(
    ("order", "said"),
    [("1 2", "misses 3"), ("1 2 3 4", "no word for 4"), ("1 2 3 3", "twice 3"), ("1 x 3", "“x”")],
)
def test_a_wrong_order_says_what_is_wrong(order: str, said: str) -> None:
    view = orders_view("New York is", order)
    assert said in view.text
    assert "1 to 3" in view.text
    assert "<svg" not in view.html


def test_orders_are_turned_round_and_drawn() -> None:
    demo = orders_demo("New York is", order="2 1 3")
    follows(demo)
    demo.buttons["turn round"].click()
    assert demo.values["order"] == "3 1 2"
    demo.buttons["left to right"].click()
    assert demo.shown == orders_view("New York is", "1 2 3") == orders_view("New York is", "")
    orders = set()
    for _ in range(12):
        demo.buttons["draw an order"].click()
        orders.add(demo.values["order"])
        assert sorted(demo.values["order"].split()) == ["1", "2", "3"]
        follows(demo)
    assert len(orders) > 3


def test_without_words_to_drag_as_in_ipywidgets_7_the_buttons_move_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("ipywidgets.TagsInput", raising=False)
    demo = orders_demo("New York is", order="2 1 3")
    demo.chosen.index = 0
    demo.buttons["later"].click()
    assert demo.values["order"] == "2 3 1"
    follows(demo)


def test_every_other_widget_is_one_of_ipywidgets_7() -> None:
    known = {"Box", "Button", "Dropdown", "FloatSlider", "HTML", "IntSlider", "Layout", "Textarea",
             "ToggleButtons", "VBox", "Widget"}  # fmt: skip
    root = Path(__file__).resolve().parent.parent
    code = "".join(path.read_text(encoding="utf-8") for path in root.glob("classroom/**/*.py"))
    assert set(re.findall(r"\bwidgets\.([A-Z]\w+)", code)) == known | {"TagsInput"}


def test_with_ipywidgets_7_the_picture_is_stored_too() -> None:
    """Version 7 displays itself, has no `_repr_mimebundle_`, and names the tooltip otherwise."""
    code = """
from ipywidgets import FloatSlider, Widget
from IPython.core.formatters import DisplayFormatter
Widget._ipython_display_ = lambda self, **words: print("displayed by itself")
if hasattr(Widget, "_repr_mimebundle_"):
    del Widget._repr_mimebundle_
known = "tooltip" if hasattr(FloatSlider, "tooltip") else "description_tooltip"
FloatSlider.class_trait_names = lambda: ["description_tooltip"]
from classroom.demos import base
assert base.TOOLTIP == "description_tooltip"
base.TOOLTIP = known
demo = base.Demo("x", lambda **_: base.View.of("x", base.Problem("drawn")),
                 {"a": base.slider("a", 1, 0, 2, 0.1)})
base.display = lambda data, **_: print(sorted(data.items()))
formats = DisplayFormatter()
formats.ipython_display_formatter.enabled = True
formats.format(demo)
print(demo.model_id)
"""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    live, still, model = done.stdout.splitlines()
    assert model in live
    assert "application/vnd.jupyter.widget-view+json" in live
    assert "('text/plain', 'drawn')" in still
    assert "by itself" not in done.stdout


# ---- source ------------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [causal, GPT, Sampling, Masking, show, coloured, GPT.forward])
def test_the_source_is_shown_as_it_is(thing: object) -> None:
    import inspect

    shown = show(thing)
    assert shown.code == inspect.cleandoc("\n" + inspect.getsource(thing)).rstrip()  # type: ignore[arg-type]
    found = harmless(SimpleNamespace(html=shown._repr_html_(), text=repr(shown)))
    assert "".join(found.words) == shown.title + shown.code
    assert repr(shown).endswith(shown.code)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_code_is_escaped(text: str) -> None:
    code = f'def f():\n    """{text}"""\n    return f"<b>{{1}}</b>"  # <i> {text}\n'
    for one in (code, text):
        assert "".join(Page(f"<pre>{coloured(one)}</pre>").words) == clean(one)


def test_kinds_of_code_are_told_apart() -> None:
    found = dict(
        re.findall(r'data-kind="(\w+)"[^>]*>([^<]+)<', coloured("def f(): return 'x'  # y"))
    )
    assert found == {"keyword": "return", "name": "f", "string": "&#x27;x&#x27;", "comment": "# y"}


def test_code_looks_the_same_under_every_python() -> None:
    """Pythons from 3.12 on cut an f-string into pieces, older ones do not."""
    code = 'async def f():\n    return f"a {x!r:>{w}} b" if x is not None else super().__init__()'
    plain = re.sub(r'<span data-kind="(\w+)"[^>]*>([^<]*)</span>', r"<\1 \2>", coloured(code))
    assert plain == (
        "<keyword async> <keyword def> <name f>():\n    <keyword return> <string f&quot;a {>x"
        "<string !r:&gt;{>w<string }} b&quot;> <keyword if> x <keyword is> <keyword not> "
        "<keyword None> <keyword else> super().__init__()"
    )


def test_what_has_no_source_says_so() -> None:
    with pytest.raises(ValueError, match="no Python source of len"):
        show(len)
    assert show(gpt).code.startswith("def gpt(")


# ---- floors, attention, costs, vectors, leaks, training ------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_other_demos_take_any_text(tokenizer: Tokenizer, world: World, text: str) -> None:
    vectors = torch.randn(len(tokenizer), 4, generator=torch.Generator().manual_seed(0))
    harmless(floors_view(text, 2, world))
    harmless(attention_view(text, 1, 0, gpt(tokenizer), tokenizer))
    harmless(vectors_view(text, text, vectors, tokenizer))


@pytest.mark.parametrize("text", ["", HOSTILE["script"], HOSTILE["emoji"], HOSTILE["control"]])
def test_leaks_take_any_text(tokenizer: Tokenizer, text: str) -> None:
    harmless(leaks_view(text, gpt(tokenizer), NextToken(), tokenizer))


def test_floors_are_those_of_the_language(world: World) -> None:
    words = beginning(world, 7, 12)
    view = floors_view(" ".join(words), 3, world, "document")
    [means] = table_of(view, "floors")
    exact = (
        world.floor("next", [words]).mean,
        world.floor("next", [words], reach=3).mean,
        world.floor("cloze", [words], rate=1.0).mean,
    )
    assert [float(mean) for mean in means] == pytest.approx(exact, abs=1e-4)
    shown = [float(row[1]) for row in table_of(view, "words")]
    exact_shown = world.log_probability(words)
    assert shown == pytest.approx([2.718281828**log for log in exact_shown], abs=1e-4)
    assert "cannot be word 2" in floors_view("the <b> the", 3, world).text


def test_attention_is_that_of_the_model(tokenizer: Tokenizer) -> None:
    for model, seen in ((gpt(tokenizer), causal(16)), (bert(tokenizer), torch.ones(17, 17) > 0)):
        batch = as_batch(TEXT, tokenizer, opened=model.backbone.causal)
        assert batch is not None
        length = len(seen)
        found = weights(model, batch.tokens)["as an encoder"]
        assert [tuple(layer.shape) for layer in found] == [(1, 2, length, length)] * 2
        assert torch.allclose(found[0].sum(dim=-1), torch.ones(1, 2, length))
        assert bool(((found[0] > 0) == seen).all())
        attention = model.backbone.blocks[0].attention
        x_BTD = model.backbone(batch.tokens).layers[0]
        if isinstance(model.backbone, GPT):
            x_BTD = model.backbone.blocks[0].attention_norm(x_BTD)
        mixed = []
        handle = attention.register_forward_hook(
            lambda m, i, out, mixed=mixed: mixed.append(out[0])
        )
        model.backbone(batch.tokens)
        handle.remove()
        # With the weights that were found, the values give what the attention gave.
        v_BHKE = attention(x_BTD, None)[1].v_BHKE
        assert torch.allclose(attention.out(merge_heads(found[0] @ v_BHKE)), mixed[0], atol=1e-5)
        view = attention_view(TEXT, 2, 1, model, tokenizer)
        lines = [line.split("  ")[-1].split() for line in view.text.split("\n\n")[2].splitlines()]
        shown = torch.tensor([[float(share) for share in line] for line in lines])
        assert torch.allclose(shown, found[1][0, 0], atol=6e-3)
        mean = attention_view(TEXT, 2, 0, model, tokenizer)
        opacity = [float(o) for o in re.findall(r"rgba\(47,111,179,([\d.]+)\)", mean.html)]
        [drawn] = harmless(mean).having("data-top")
        assert sum(opacity) * float(drawn["data-top"] or 0) == pytest.approx(length, abs=0.2)
        assert max(opacity) == 1
    with pytest.raises(ValueError, match="layers 1 to 2"):
        attention_view(TEXT, 3, 1, gpt(tokenizer), tokenizer)


def test_all_heads_are_seen_at_once_and_a_click_selects_a_row(tokenizer: Tokenizer) -> None:
    demo = attention_demo(gpt(tokenizer), tokenizer, "The cat sat.")
    batch = as_batch("The cat sat.", tokenizer, opened=True)
    assert batch is not None
    found = weights(gpt(tokenizer), batch.tokens)
    demo.change(heads="all")
    follows(demo)
    [beside] = [piece for piece in demo.shown.pieces if isinstance(piece, Beside)]
    maps = beside.pieces
    for head, small in enumerate(maps):
        assert isinstance(small, Shades)
        exact = found["as an encoder"][0][0, head]
        assert torch.allclose(torch.tensor(small.shares), exact)
    assert len(maps) == 2
    demo.clickable.index = 2
    [shown] = [piece for piece in demo.shown.pieces if isinstance(piece, Shades)]
    assert shown.selected == 2
    demo.clickable.index = 2
    [shown] = [piece for piece in demo.shown.pieces if isinstance(piece, Shades)]
    assert shown.selected == -1


def test_relative_attention_can_be_looked_at(tokenizer: Tokenizer) -> None:
    from labkit.models.xlnet import XLNet, XLNetConfig

    backbone = XLNet(XLNetConfig(len(tokenizer), width=16, layers=3, heads=4))
    model = LanguageModel(backbone, NextWord(backbone.token))
    demo = attention_demo(model, tokenizer, TEXT)
    follows(demo)
    demo.change(layer=3, head=4)
    assert demo.shown == attention_view(TEXT, 3, 4, model, tokenizer)
    assert "Layer 3 of 3, head 4 of 4" in demo.shown.text
    assert model.training


def test_the_bill_is_that_of_the_tables() -> None:
    from labkit.costs.bills import bill, machine

    demo = costs_demo()
    follows(demo)
    demo.change(devices=8, mfu=0.5)
    exact = bill("gpt-3-175b", machine("a100"), count=256, mfu=0.5)
    rows = dict(table_of(demo.shown, "bill"))
    assert rows["parameters"] == f"{exact.parameters:,}"
    assert float(rows["days"].replace(",", "")) == pytest.approx(exact.days, rel=1e-3)
    assert rows["rent"] == f"{exact.rent_dollars:,.0f} dollars"
    for model in demo.controls["model"].options[:3]:
        demo.change(model=model)
        assert 'role="status"' not in demo.shown.html
        follows(demo)


def test_neighbours_and_analogies_are_those_of_the_vectors() -> None:
    words = ["king", "queen", "man", "woman", "apple"]
    tokenizer = Tokenizer.words(words)
    vectors = torch.zeros(len(tokenizer), 3)
    for word, vector in zip(
        words, ([1, 1, 0.1], [1, -1, 0.1], [0, 1, 0.1], [0, -1, 0.1], [0, 0, 1.0]), strict=True
    ):
        vectors[tokenizer[word]] = torch.tensor(vector)
    demo = vectors_demo(vectors, tokenizer, "king", "man king woman")
    follows(demo)
    assert table_of(demo.shown, "analogy")[0][0] == "queen"
    near = table_of(demo.shown, "neighbours")
    assert [row[0] for row in near][:2] == ["man", "apple"]
    exact = torch.cosine_similarity(vectors[tokenizer["king"]], vectors[tokenizer["man"]], dim=0)
    assert float(near[0][1]) == pytest.approx(float(exact), abs=1e-4)
    assert "[MASK]" not in demo.shown.text
    demo.change(question="man king dragon")
    assert "Not in the vocabulary: dragon" in demo.shown.text


def test_a_leak_is_shown(tokenizer: Tokenizer) -> None:
    class Looking(GPT):
        """It sees the whole text."""

        def _mask_of(self, *given: object) -> tuple[None, bool]:
            return None, False

    text = "The cat sat on"
    assert "Nothing leaks." in leaks_view(text, gpt(tokenizer), NextToken(), tokenizer).text
    backbone = Looking(GPTConfig(len(tokenizer), width=16, layers=1, heads=2, context=64))
    model = LanguageModel(backbone, NextWord(backbone.token))
    demo = leaks_demo(model, NextToken(), tokenizer, text)
    follows(demo)
    assert re.search(r"^\d+ leaks: word at", demo.shown.text)
    assert "word at 0 [CLS] depends on 0 [CLS], 1 The, 2 cat" in demo.shown.text


def report(step: int, loss: float) -> Report:
    zero = torch.tensor(0.0)
    return Report(step, 9, torch.tensor(loss), {}, torch.tensor(2.5), 1e-3, 1, 1.0, 1.0, zero, zero)


def test_training_is_watched_and_passed_on() -> None:
    demo = training_demo(floor=1.25, seconds=0)
    follows(demo)
    reports = [report(step, 5.0 / step) for step in range(1, 8)]
    seen = []
    for one in demo.watch(reports, every=2):
        seen.append(one)
        follows(demo)
    assert seen == reports
    assert [point.step for point in demo.points] == [2, 4, 6, 7]
    assert demo.shown == training_view(demo.points, 1.25)
    now = dict(table_of(demo.shown, "now"))
    assert now["step"] == "7"
    assert float(now["above the floor"]) == pytest.approx(5 / 7 - 1.25, abs=1e-4)
    assert "fell from 2.5000 to 0.7143" in demo.shown.text


def test_long_and_broken_runs_can_be_drawn() -> None:
    points = [Point(n, float("nan") if n == 3 else 1 / n, 1e-3, 1.0) for n in range(1, 10_001)]
    found = harmless(training_view(points, 0.0))
    [line] = found.having("data-points")
    assert int(line["data-points"] or 0) <= 302
    assert "1 of 10000 losses are not finite" in training_view(points).text
    harmless(training_view([Point(1, float("inf"), 1e-3, 1.0)], 1.0))
    harmless(training_view([]))
    harmless(training_view(points[:1]))


def test_no_part_of_a_curve_leaves_the_frame_of_the_whole() -> None:
    points = [Point(n, 9.0 if n == 3 else 1.0) for n in range(1, 701)]
    [curve] = [p for p in training_view(points, now=350).pieces if isinstance(p, Curve)]
    assert curve.frame is not None
    assert (3, 9.0) in curve.points
    assert curve.frame[3] == 9.0
    assert curve.high == "9"


def test_a_text_that_costs_nothing_costs_no_less(world: World) -> None:
    view = floors_view("what does adam do ? he is a gardener .", 2, world)
    assert table_of(view, "floors")[0][2] == "0.0000"


# ---- both streams, memory, beams -----------------------------------------------------------------


def test_memory_has_columns_of_its_own(tokenizer: Tokenizer) -> None:
    from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig

    torch.manual_seed(3)
    backbone = TransformerXL(
        TransformerXLConfig(len(tokenizer), width=16, layers=2, heads=2, memory=4)
    )
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    demo = attention_demo(model, tokenizer, "the cat sat", before=OTHERS[0])
    follows(demo)
    assert "the 4 positions that are remembered" in demo.shown.text
    first = as_batch(OTHERS[0], tokenizer, opened=True)
    now = as_batch("the cat sat", tokenizer, opened=True)
    assert first is not None
    assert now is not None
    memory = backbone(first.tokens).memory
    found = weights(model, now.tokens, memory)["as an encoder"][0]
    assert tuple(found.shape[2:]) == (4, 8)
    assert bool((found[..., :4] > 0).all())
    # The weights are those that mix the states: a remembered word that changes changes them.
    plain = weights(model, now.tokens)["as an encoder"][0]
    assert tuple(plain.shape[2:]) == (4, 4)
    kept = [label(tokenizer, token) for token in first.tokens[0, -4:].tolist()]
    for word in kept:
        assert f"({word})" in "".join(Page(demo.shown.html).words)
    shown = [line.split("  ")[-1].split() for line in demo.shown.text.split("\n\n")[3].splitlines()]
    exact = found[0, 0]
    assert torch.allclose(
        torch.tensor([[float(s) for s in row] for row in shown]), exact, atol=6e-3
    )
    demo.change(before=OTHERS[0].upper())
    assert demo.shown.text.count("[UNK]") == 0
    demo.change(before="the")
    assert "the 2 positions that are remembered" in demo.shown.text
    demo.change(before="")
    assert "remembered" not in demo.shown.text
    follows(demo)


def test_the_query_stream_does_not_see_its_own_word(tokenizer: Tokenizer) -> None:
    from labkit.models.xlnet import XLNet, XLNetConfig

    torch.manual_seed(4)
    backbone = XLNet(XLNetConfig(len(tokenizer), width=16, layers=2, heads=2, memory=3))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    batch = as_batch("the cat sat on the mat", tokenizer)
    assert batch is not None
    rank = order_of_text(batch, tokenizer, 5)
    both = weights(model, batch.tokens, None, rank)
    for layer in range(2):
        seen = both["query stream"][layer][0, 0] > 0
        assert bool((seen == (rank[0][None] < rank[0][:, None])).all())
        content = both["content stream"][layer][0, 0] > 0
        assert bool((content == (rank[0][None] <= rank[0][:, None])).all())
    demo = attention_demo(model, tokenizer, "the cat sat on the mat")
    for stream in ("content stream", "query stream"):
        demo.change(stream=stream, draw=5, head=0, before=OTHERS[1])
        follows(demo)
        assert stream in demo.shown.text
        assert "remembered" in demo.shown.text
        ranks = [int(at) + 1 for at in rank[0].tolist() if at >= 0]
        captions = "".join(Page(demo.shown.html).words)
        assert all(f"{at}." in captions for at in ranks)
    for text in HOSTILE.values():
        demo.change(text=text, before=text)
        harmless(demo.shown)


def test_a_beam_finds_what_the_search_finds(tokenizer: Tokenizer) -> None:
    from labkit.writing.beam import beam

    model = gpt(tokenizer)
    demo = sampling_demo(model, tokenizer, PROMPT, settings=Sampling(length=4))
    assert 'data-table="beam"' not in demo.shown.html
    demo.change(beams=3)
    follows(demo)
    rows = table_of(demo.shown, "beam")
    sep = tokenizer.vocabulary.sep
    assert sep is not None
    asked = Sampling(length=4, stop=(sep,))
    exact = beam(model, [sep, *tokenizer.encode(PROMPT)], asked, beams=3)
    assert [float(row[1]) for row in rows] == pytest.approx(
        [one.log_probability for one in exact], abs=1e-3
    )
    assert [row[0] for row in rows] == [
        " ".join(label(tokenizer, token) for token in one.tokens) for one in exact
    ]
    short = sampling_demo(gpt(tokenizer, 12), tokenizer, "the cat " * 20)
    short.change(beams=2)
    assert len(table_of(short.shown, "beam")) == 2


def test_one_move_is_drawn_once(tokenizer: Tokenizer) -> None:
    demo = masking_demo(TEXT, tokenizer)
    draws = []
    draw = demo.draw
    demo.draw = lambda **values: draws.append(values) or draw(**values)  # type: ignore[func-returns-value]
    demo.controls["mask"].value = 1.0
    assert demo.values["random"] == 0.0
    assert draws == [demo.values]
    demo.change(rate=0.5, mask=0.5, draw=9)
    assert draws[1:] == [demo.values]


# ---- orders by hand ------------------------------------------------------------------------------


def test_an_order_can_be_dragged_and_moved() -> None:
    if not hasattr(ipywidgets, "TagsInput"):
        pytest.skip("ipywidgets 7 has no words to drag")
    demo = orders_demo("New York is York", "2 1 3 4")
    assert demo.dragged.value == ["2 York", "1 New", "3 is", "4 York"]
    demo.dragged.value = ["4 York", "2 York", "1 New", "3 is"]
    assert demo.values["order"] == "4 2 1 3"
    assert demo.shown == orders_view("New York is York", "4 2 1 3")
    follows(demo)
    demo.chosen.value = "1 New"
    demo.buttons["earlier"].click()
    assert demo.values["order"] == "4 1 2 3"
    assert demo.dragged.value == ["4 York", "1 New", "2 York", "3 is"]
    demo.buttons["later"].click()
    demo.buttons["later"].click()
    demo.buttons["later"].click()
    assert demo.values["order"] == "4 2 3 1"
    # A word that was taken out is back in its place.
    demo.dragged.value = ["2 York", "3 is", "1 New"]
    assert demo.values["order"] == "4 2 3 1"
    assert demo.dragged.value == ["4 York", "2 York", "3 is", "1 New"]
    demo.change(text="one two")
    assert demo.dragged.value == ["1 one", "2 two"]
    for text in HOSTILE.values():
        demo.change(text=text, order=text)
        harmless(demo.shown)
        for button in demo.buttons.values():
            button.click()
        assert len(demo.dragged.value) == len(demo.names)
        follows(demo)


# ---- masks, reach, schedule, senses, ledger ------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_more_demos_take_any_text(tokenizer: Tokenizer, text: str) -> None:
    harmless(masks_view(text, 5, 0.3, 2, tokenizer))
    probes = [torch.nn.Linear(16, 2)] * 3
    read_text = reader(gpt(tokenizer), tokenizer)
    harmless(senses_view([text, "the cat"], text, read_text, probes, [text, "b"]))
    finding = found_claim(text, text)
    harmless(ledger_view([finding], claim=text))
    follows(ledger_demo([finding]))


def squares(view: View, title: str) -> list[list[bool]]:
    """The squares of one of the grids of a page."""
    part = view.text.split(f"{title}: a filled")[1].splitlines()[1:]
    rows = []
    for line in part:
        if not re.search("[■·]$", line):
            break
        rows.append([c == "■" for c in line.split("  ")[-1].strip()])
    return rows


def test_static_masks_come_back_and_dynamic_ones_do_not(tokenizer: Tokenizer) -> None:
    view = masks_view(TEXT, 20, 0.2, 3, tokenizer)
    static, dynamic = squares(view, "Static, 3 copies"), squares(view, "Dynamic")
    assert len(static) == len(dynamic) == 20
    assert static[:3] + static[:3] == static[3:9]
    assert len({tuple(row) for row in static}) == 3
    assert len({tuple(row) for row in dynamic}) > 10
    rows = {row[0]: row[1:] for row in table_of(view, "asked")}
    words = len(static[0]) - 2
    for name, masks in (("static", static), ("dynamic", dynamic)):
        ever = sum(any(column) for column in zip(*masks, strict=True))
        assert rows[name][0] == f"{ever} of {words}"
        assert rows[name][1] == str(len({tuple(row) for row in masks}))
    assert float(rows["dynamic"][2]) == pytest.approx(1 - 0.8**20, abs=1e-3)
    assert float(rows["static"][2]) == pytest.approx(1 - 0.8**3, abs=1e-3)
    # In each epoch about as much is asked for either way, and over many it is the share.
    many = asked_by_epoch(as_batch(TEXT, tokenizer), 2000, 0.2, 0, tokenizer)
    assert float(many[:, 1:-1].double().mean()) == pytest.approx(0.2, abs=0.01)
    demo = masks_demo(TEXT, tokenizer)
    follows(demo)
    demo.change(epochs=20, rate=0.2, copies=3)
    assert demo.shown == view


@pytest.mark.parametrize(
    ("segment", "memory", "layers"), [(3, 3, 2), (2, 5, 3), (4, 2, 3), (3, 0, 2)]
)
def test_the_reach_is_that_of_a_transformer_xl(segment: int, memory: int, layers: int) -> None:
    from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig

    torch.manual_seed(5)
    config = TransformerXLConfig(50, width=8, layers=layers, heads=2, memory=memory, dropout=0.0)
    model = TransformerXL(config).double().eval()
    place, segments = 2, 5
    at = (segments - 1) * segment + place - 1

    def top(tokens: torch.Tensor) -> torch.Tensor:
        state = None
        with torch.no_grad():
            for n in range(segments):
                states = model(tokens[:, n * segment : (n + 1) * segment], memory=state)
                state = states.memory
        return states.hidden[0, place - 1]

    tokens = torch.arange(segments * segment)[None]
    before = top(tokens)
    depends = []
    for n in range(segments * segment):
        other = tokens.clone()
        other[0, n] = 49
        depends.append(bool((top(other) != before).any()))
    assert heard(segment, memory, layers, at)[-1].tolist() == depends
    view = reach_view(segment, memory, layers, segments, place)
    assert squares(view, f"A memory of {memory}")[-1] == depends
    rows = table_of(view, "reach")
    assert rows[0][1:] == [str(sum(depends)), str(at - depends.index(True))]


def test_no_state_hears_further_than_the_rule_of_the_reach_says() -> None:
    for segment, memory, layers in itertools.product((1, 3, 4, 7), (0, 2, 4, 8, 9), (1, 2, 4)):
        view = reach_view(segment, memory, layers, 60, 1)
        furthest = int(table_of(view, "reach")[0][2])
        said = re.search(r"at most (?:(\d+) \+ )?(\d+) × (\d+) before", view.text)
        assert said is not None
        assert furthest == int(said[1] or 0) + int(said[2]) * int(said[3])


def test_the_sliders_of_reach_never_leave_a_segment() -> None:
    demo = reach_demo(segment=4, memory=2, layers=2)
    follows(demo)
    demo.change(segment=2, position=8)
    assert demo.shown == reach_view(2, 2, 2, 5, 2)
    assert (demo.values["position"], demo.controls["position"].max) == (2, 2)
    demo.change(segment=7, position=7)
    assert demo.shown == reach_view(7, 2, 2, 5, 7)
    with pytest.raises(ValueError, match="positions 1 to 2"):
        reach_view(2, 2, 2, 5, 3)


def test_nothing_exact_is_shown_of_words_that_are_several_tokens(world: World) -> None:
    from classroom.demos.sampling import exact_next

    texts = [" ".join(document.words) for document in world.sample(documents=20, seed=0)]
    words, pieces = Tokenizer.words(texts), Tokenizer.bpe(texts, size=280)
    exact = exact_next(world, ["the"], "sentence", words)
    assert exact is None or float(exact.sum()) == pytest.approx(1)
    assert exact_next(world, ["the"], "sentence", pieces) is None


def test_a_model_of_another_vocabulary_is_refused(tokenizer: Tokenizer) -> None:
    model, other = bert(tokenizer), Tokenizer.words(["the film was good ."])
    with pytest.raises(ValueError, match="give the tokenizer that the model was trained with"):
        masking_view("the film was good .", Masking(), other, model=model)
    with pytest.raises(ValueError, match=rf"tokenizer {len(other)}: give the tokenizer"):
        sampling_view("the film", [], Sampling(), gpt(tokenizer), other)


def test_a_text_about_which_nothing_is_asked_is_a_problem_in_words(tokenizer: Tokenizer) -> None:
    objective = MaskedToken(vocabulary=tokenizer.vocabulary, rate=0.0)
    view = leaks_view("The cat sat", bert(tokenizer), objective, tokenizer)
    assert "nothing is predicted in this text" in view.text


def test_the_schedule_is_that_of_the_course() -> None:
    from labkit.plan import slanted_triangle

    view = schedule_view(130, 400, "slanted_triangle", 3, 2.0, 60)
    rows = {row[0]: row[1:] for row in table_of(view, "layers")}
    assert list(rows) == ["head", "layer 3", "layer 2", "layer 1", "embeddings"]
    assert [row[0] for row in rows.values()] == ["learns"] * 3 + ["frozen"] * 2
    share = slanted_triangle(130, 400)
    assert f"{share:.4f}" in view.text
    times = [float(row[1]) for row in rows.values()]
    assert times == pytest.approx([1, 0.5, 0.25, 0.125, 0.0625], abs=1e-4)
    now = [float(row[2]) for row in rows.values()]
    assert now == pytest.approx([share, share / 2, share / 4, 0, 0], abs=1e-4)
    for shape in ("slanted_triangle", "constant", "cosine"):
        [drawn] = [
            piece
            for piece in schedule_view(130, 400, shape, 3, 2.0, 60).pieces
            if isinstance(piece, Curve)
        ]
        assert drawn.frame == (0, 399, 0.0, 1.0), "the axis is labelled 0 and 1"
    everything = schedule_view(0, 400, "linear", 3, 2.0, 0)
    assert "5 of 5 layers learn" in everything.text
    demo = schedule_demo(steps=400, layers=3, every=60)
    follows(demo)
    demo.change(step=130, factor=2.0)
    assert demo.shown == view
    for name in demo.controls["shape"].options:
        demo.change(shape=name)
        harmless(demo.shown)
    with pytest.raises(ValueError, match="step is 10: give a whole number from 0 to 9"):
        schedule_view(10, 10, "linear", 1, 1.0, 0)
    with pytest.raises(ValueError, match="choose constant, "):
        schedule_view(0, 10, "steep", 1, 1.0, 0)


def test_senses_are_what_the_probes_say_of_each_layer(tokenizer: Tokenizer) -> None:
    model = bert(tokenizer)
    torch.manual_seed(6)
    probes = [torch.nn.Linear(16, 2) for _ in range(3)]
    texts = ["the cat sat", "Then the dog came in & the cat barked"]
    senses = ["animal", "machine"]
    demo = senses_demo(model, tokenizer, probes, senses, texts, "Cat")
    follows(demo)
    for number, text in enumerate(texts):
        batch = as_batch(text, tokenizer)
        assert batch is not None
        place = batch.tokens[0].tolist().index(tokenizer["cat"])
        with torch.no_grad():
            layers = model.backbone(batch.tokens).layers
            exact = [
                probe(layer[0, place]).softmax(-1)
                for probe, layer in zip(probes, layers, strict=True)
            ]
        rows = table_of(demo.shown, f"senses-{number + 1}")
        assert [row[0] for row in rows] == ["embeddings", "layer 1", "layer 2"]
        for row, law in zip(rows, exact, strict=True):
            assert [float(p) for p in row[1:]] == pytest.approx(law.tolist(), abs=1e-4)
    demo.change(second="no such word")
    assert "tokens of text 2" in demo.shown.text
    assert 'data-table="senses-1"' in demo.shown.html
    for few in ([], texts[:1]):
        with pytest.raises(ValueError, match=f"two texts, not {len(few)}: give at least two"):
            senses_demo(model, tokenizer, probes, senses, few, "Cat")


def test_exact_senses_are_those_of_the_language(world: World, of_world: Tokenizer) -> None:
    known = {word for _, word in world.machine.senses}
    document = next(
        d for d in world.documents(seed=1) if any(n in known for n in world.numbers(d.words))
    )
    for first, last in document.sentences:
        words = document.words[first:last]
        places = [n for n, number in enumerate(world.numbers(words)) if number in known]
        if places:
            break
    exact = world.posterior(words, "sense", position=places[0], start="sentence")
    senses = sorted(exact)
    probes = [torch.nn.Linear(16, len(senses)) for _ in range(3)]
    demo = senses_demo(
        bert(of_world), of_world, probes, senses, [" ".join(words), "<b>"], words[places[0]],
        world=world,
    )  # fmt: skip
    row = table_of(demo.shown, "senses-1")[-1]
    assert row[0] == "exact"
    assert [float(p) for p in row[1:]] == pytest.approx([exact[s] for s in senses], abs=1e-4)


def found_claim(name: str, says: str, verdict: str = "holds", notebook: str = "01") -> Finding:
    """A finding of two arms."""
    arms = {
        "with": Arm(0.8, 0.75, 0.85, [0.79, 0.81], 0.9),
        says: Arm(0.5, 0.45, 0.55, [0.5, 0.5]),
    }
    seen = Seen(says, 0.3, 0.2, 0.4, 0.05, None, verdict)  # type: ignore[arg-type]
    return Finding(
        name, says, "lecture", notebook, "accuracy", "laptop", [0, 1], verdict,  # type: ignore[arg-type]
        arms, [seen], 12.0, says,
    )  # fmt: skip


def test_the_ledger_is_filtered_and_opened() -> None:
    findings = [
        found_claim("a", "one is more"),
        found_claim("b", "two is more", "not significant"),
        found_claim("c", "three is more", "holds", "02"),
    ]
    demo = ledger_demo(findings)
    follows(demo)
    assert [row[0] for row in table_of(demo.shown, "claims")] == ["a", "b", "c"]
    demo.controls["verdict"].value = "holds"
    assert [row[0] for row in table_of(demo.shown, "claims")] == ["a", "c"]
    assert demo.controls["claim"].options == ("", "a", "c")
    demo.controls["claim"].value = "c"
    arms = table_of(demo.shown, "arms")
    assert arms[0] == ["with", "0.800", "0.750 … 0.850", "0.900", "0.790, 0.810"]
    assert arms[1][3] == "–"
    assert table_of(demo.shown, "contrasts") == [
        ["three is more", "> 0.050", "0.300", "0.200 … 0.400", "holds"]
    ]
    assert harmless(demo.shown).having("data-best")[0]["data-best"] == "0.9000"
    demo.controls["notebook"].value = "01"
    assert demo.controls["claim"].value == ""
    assert 'data-table="arms"' not in demo.shown.html
    demo.controls["verdict"].value = "not significant"
    demo.controls["notebook"].value = "02"
    assert "No claim fits" in demo.shown.text
    follows(demo)
    assert "is empty" in ledger_view([]).text
    harmless(ledger_demo().shown)
    untested = found_claim("d", "x")
    bare = type(untested)(**{**untested.__dict__, "arms": {}, "contrasts": []})
    assert "Not tested" in ledger_view([bare], claim="d").text


# ---- arguments and words that a demo takes as they are -------------------------------------------


def test_a_demo_shows_what_it_was_asked_for() -> None:
    reach = reach_demo(12, 20, 8)
    assert [reach.values[name] for name in ("segment", "memory", "layers")] == [12, 20, 8]
    assert reach.values["position"] == 12
    schedule = schedule_demo(steps=40, layers=14, every=60)
    assert (schedule.values["layers"], schedule.values["every"]) == (14, 60)


def test_capital_letters_and_unknown_words_are_read_alike(
    tokenizer: Tokenizer, world: World
) -> None:
    assert floors_view("The", 2, world) == floors_view("the", 2, world)
    assert "not in the vocabulary: “xyzzy”" in masks_view("xyzzy", 3, 0.3, 1, tokenizer).text
    unknown = masks_view("the xyzzy", 3, 0.3, 1, tokenizer)
    assert "Not in the vocabulary: “xyzzy”" in unknown.text


def test_a_model_without_attention_gets_a_sentence() -> None:
    demo = attention_demo(*trained("elmo-village"), "the cat sat")
    assert "has no attention to look at" in demo.shown.text


def test_a_curve_over_less_than_a_step_fills_its_picture() -> None:
    curve = Curve(
        points=((0.0, 0.0), (0.5, 1.0)), said="x", name="x", low="0", high="1", last="0.5"
    )
    [drawn] = re.findall(r' d="M([^"]*)"', View.of("x", curve).html)
    first, last = (float(point.split()[0]) for point in drawn.split("L"))
    assert last - first > 300


def test_words_that_are_next_to_impossible_are_counted() -> None:
    settings = Sampling(temperature=0.05, top_k=5)
    view = sampling_view("the film", [], settings, *trained("gpt-village"))
    assert "top-k: the 5 best words: 5 words hold" in view.text


@pytest.mark.parametrize("wrong", [{"objective": "cloze"}, {"rate": 2}, {"mask": -0.1}])
def test_a_setting_of_masking_that_cannot_be_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name} is .*: (choose|give a share)"):
        Masking(**wrong)
