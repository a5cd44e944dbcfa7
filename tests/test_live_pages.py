"""Live pages: what JavaScript computes and draws is what Python computes and draws."""

import base64
import hashlib
import itertools
import json
import math
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from test_demos import HOSTILE, bert, every_piece, found_claim, gpt

from classroom.cli.site import models, of_page
from classroom.demos import (
    Masking,
    View,
    attention_view,
    floors_view,
    ledger_view,
    masking_demo,
    masking_view,
    masks_demo,
    masks_view,
    orders_view,
    reach_demo,
    reach_view,
    recording,
    sampling_demo,
    sampling_view,
    schedule_demo,
    schedule_view,
    senses_view,
    training_view,
    vectors_view,
)
from classroom.demos.attention import Asked, weights
from classroom.demos.masking import OBJECTIVES
from classroom.demos.orders import drawn
from classroom.demos.sampling import drawn_number, next_step
from classroom.demos.senses import reader
from classroom.demos.training import Point
from classroom.models.shipped import trained
from classroom.pages.live import building, parts, pictures
from classroom.pages.live.forms import form_of, sliders
from classroom.pages.live.written import written_language, written_model
from labkit.chance import Chance
from labkit.objectives import hiding
from labkit.plan import SCHEDULES
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world import World, load_world

LIVE = Path(__file__).resolve().parent.parent / "classroom" / "pages" / "live"
NODE = shutil.which("node")
STATES = 200
TEXTS = ("the cat sat on the mat", "a dog & <b>cat</b> .", "The Cat said: “no”!", "xyzzy the")

pytestmark = pytest.mark.skipif(
    NODE is None, reason="node is not installed: pip install nodejs-bin"
)


def in_node(code: str, given: Any, tmp_path: Path) -> Any:
    """Run JavaScript with the files of the live pages, and return what it gives as JSON."""
    data = tmp_path / "given.json"
    data.write_text(json.dumps(given), encoding="utf-8")
    files = [name for name in ("render", "engine", "views") if (LIVE / f"{name}.js").exists()]
    required = "".join(f"const {name} = require({str(LIVE / name)!r});\n" for name in files)
    script = tmp_path / "script.js"
    script.write_text(
        f"{required}const given = JSON.parse(require('fs').readFileSync({str(data)!r}, 'utf8'));\n"
        f"const made = (() => {{ {code} }})();\n"
        "process.stdout.write(JSON.stringify(made));\n",
        encoding="utf-8",
    )
    done = subprocess.run([str(NODE), str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.words([" ".join(TEXTS)])


# ---- the renderer --------------------------------------------------------------------------------


def states(tokenizer: Tokenizer, world: World) -> dict[str, Callable[[random.Random], View]]:
    """For each demo, a view of a random state."""
    writer, guesser = gpt(tokenizer), bert(tokenizer)
    vectors = torch.randn(len(tokenizer), 4, generator=torch.Generator().manual_seed(0))
    probes = [torch.nn.Linear(16, 2).requires_grad_(False) for _ in range(3)]
    read = reader(writer, tokenizer)
    sentences = [" ".join(d.words[:8]) for d in world.sample(documents=9, seed=2)]
    findings = [found_claim("a", "it is"), found_claim("b <i>", "more", "not significant", "02")]

    # Of its states, 72 differ, and each takes many sums.
    floors = cache(floors_view)

    def text(pick: random.Random) -> str:
        return pick.choice(TEXTS)

    return {
        "masking": lambda pick: masking_view(
            text(pick),
            Masking(objective=pick.choice(OBJECTIVES[:5]), rate=pick.random(), mask=0.4,
                    random=0.3, draw=pick.randrange(99), clicked=(pick.randrange(9),)),
            tokenizer, model=guesser if pick.random() < 0.2 else None,
        ),
        "sampling": lambda pick: sampling_view(
            text(pick), [pick.randrange(5, len(tokenizer)) for _ in range(pick.randrange(4))],
            Sampling(temperature=pick.choice((0.0, 0.5, 1.0, 2.0)), top_p=pick.random(),
                     top_k=pick.randrange(1, 9)),
            writer, tokenizer, seed=pick.randrange(99),
        ),
        "attention": lambda pick: attention_view(
            text(pick), pick.randrange(1, 3), pick.randrange(3), writer, tokenizer,
            Asked(selected=pick.randrange(-1, 4), every=pick.random() < 0.5),
        ),
        "orders": lambda pick: orders_view(
            "New York is a city", drawn(5, pick.randrange(99)) + " x" * (pick.random() < 0.1)
        ),
        "floors": lambda pick: floors(pick.choice(sentences), pick.randrange(1, 9), world),
        "masks": lambda pick: masks_view(
            text(pick), pick.randrange(1, 9), pick.random(), pick.randrange(1, 4), tokenizer
        ),
        "reach": lambda pick: reach_view(
            size := pick.randrange(1, 9), pick.randrange(9), pick.randrange(1, 5),
            pick.randrange(1, 5), pick.randrange(1, size + 1),
        ),
        "schedule": lambda pick: schedule_view(
            pick.randrange(400), 400, pick.choice(list(SCHEDULES)), 3, 1 + pick.random(),
            pick.randrange(90),
        ),
        "senses": lambda pick: senses_view(
            [text(pick), text(pick)], "cat", read, probes, ["a", "b"]
        ),
        "vectors": lambda pick: vectors_view(
            pick.choice(("cat", "dog", "x")), pick.choice(("cat dog mat", "a")), vectors, tokenizer
        ),
        "ledger": lambda pick: ledger_view(
            findings, pick.choice(("all", "01")), "all", pick.choice(("a", "b <i>", ""))
        ),
        "training": lambda pick: training_view(
            [Point(n, pick.random() * 5, 1e-3, 2.0) for n in range(pick.randrange(1, 60))],
            pick.choice((None, pick.random())),
        ),
    }  # fmt: skip


DEMOS = ("masking", "sampling", "attention", "orders", "floors", "masks", "reach", "schedule",
         "senses", "vectors", "ledger", "training")  # fmt: skip


@pytest.mark.parametrize("demo", DEMOS)
def test_both_renderers_draw_and_tell_the_same(
    demo: str, tokenizer: Tokenizer, world: World, tmp_path: Path
) -> None:
    draw, pick = states(tokenizer, world)[demo], random.Random(demo)
    views = [draw(pick) for _ in range(STATES)]
    assert len({view.text for view in views}) > 3
    compared(views, tmp_path)


def compared(views: list[View], tmp_path: Path) -> None:
    """Node draws the views and tells them: each as Python does, sign for sign."""
    given = [view.as_data() for view in views]
    made = in_node("return given.map((v) => [render.text(v), render.html(v)]);", given, tmp_path)
    for view, (text, html) in zip(views, made, strict=True):
        assert text == view.text
        assert html == view.html


def test_hostile_words_are_drawn_alike(tmp_path: Path) -> None:
    compared([View.of(text, *every_piece(text)) for text in HOSTILE.values()], tmp_path)


def test_numbers_are_written_alike(tmp_path: Path) -> None:
    pick = random.Random(0)
    ties = (
        [n / 32 for n in range(-99, 99)] + [n / 8 for n in range(99)] + [n + 0.5 for n in range(9)]
    )
    numbers = [*ties, 1e-5, 5e-5, 0.99995, 1e6 + 0.5, *(pick.random() for _ in range(2000))]
    given = [(number, digits) for number in numbers for digits in (0, 1, 2, 3, 4)]
    made = in_node("return given.map(([x, digits]) => render.fixed(x, digits));", given, tmp_path)
    wrong = [
        (one, said) for one, said in zip(given, made, strict=True) if f"{one[0]:.{one[1]}f}" != said
    ]
    assert wrong == []


# ---- the engine ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def village() -> World:
    return load_world("village")


@pytest.fixture(scope="module")
def of_village(village: World) -> Tokenizer:
    return Tokenizer.words([" ".join(village.vocabulary[1:])])


def texts_of(world: World, tokenizer: Tokenizer, count: int, longest: int) -> list[list[int]]:
    documents = world.sample(documents=count, seed=5)
    pick = random.Random(1)
    return [tokenizer.encode(d.text)[: pick.randrange(2, longest)] for d in documents]


def near(found: Any, exact: Any) -> bool:
    """Whether all of these numbers are within 1e-5; `pytest.approx` takes a second for 100,000."""
    one, other = np.asarray(found, float), np.asarray(exact, float)
    return one.shape == other.shape and bool((np.abs(one - other) <= 1e-5).all())


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_a_model_of_the_page_is_the_model(
    kind: str, bits: int, village: World, of_village: Tokenizer, tmp_path: Path
) -> None:
    model = {"gpt": gpt, "bert": bert}[kind](of_village)
    if bits == 16:
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(weight.half().float())
    texts = texts_of(village, of_village, 20, 60)
    code = """
        const plain = (row) => Array.from(row);
        const model = new engine[given.kind](given.model), all = [];
        for (const tokens of given.texts) {
          model.tokens = [];
          const scores = model.read(tokens).map(plain);
          const shares = model.layers.map((layer) => layer.shares.map((rows) => rows.map(plain)));
          const upto = (t) => plain(model.read(tokens.slice(0, t + 1)).at(-1));
          const wordwise = () => tokens.map((_, t) => upto(t));
          const parts = given.kind === 'GPT' ? wordwise() : scores;
          all.push([scores, shares, parts]);
        }
        return all;"""
    given = {"kind": kind.upper(), "model": written_model(model, of_village, bits), "texts": texts}
    for tokens, (scores, shares, stepped) in zip(
        texts, in_node(code, given, tmp_path), strict=True
    ):
        with torch.no_grad():
            exact = model(torch.tensor([tokens]))[0]
        assert torch.allclose(torch.tensor(scores), exact, atol=1e-4)
        assert torch.allclose(torch.tensor(stepped), exact, atol=1e-4)
        found = weights(model, torch.tensor([tokens]))["as an encoder"]
        for layer, heads in zip(found, shares, strict=True):
            for head, rows in zip(layer[0], heads, strict=True):
                for row, known in zip(head, rows, strict=True):
                    assert near(row[: len(known)], known)


def test_the_exact_distributions_are_those_of_the_language(village: World, tmp_path: Path) -> None:
    pick, size = random.Random(3), len(village.vocabulary)
    requests = []
    for document in village.sample(documents=30, seed=8):
        first, last = document.sentences[0]
        words = document.words[first:last]
        numbers = village.numbers(words)
        channel = {n: (int(number), 0.7, 0.05 / size) for n, number in enumerate(numbers)}
        wanted = sorted(pick.sample(range(len(words) - 1), 2))
        channel.pop(wanted[0])
        channel[wanted[1]] = (1 + pick.randrange(size - 1), 0.5, 0.5 / size)
        hidden = {n: channel[n] for n in channel if pick.random() < 0.4 and n not in wanted}
        requests.append((numbers, wanted, pick.choice((channel, hidden, {}))))
    prefixes = [d.words[:-1][: pick.randrange(40)] for d in village.sample(documents=30, seed=9)]
    given = {
        "language": written_language(village),
        "requests": [
            (
                [channel.get(n, (-1 if n in wanted else int(number), 1, 0))[0]
                 for n, number in enumerate(numbers)],
                [channel.get(n, (0, float(n not in wanted), 0))[1] for n in range(len(numbers))],
                [channel.get(n, (0, 0, float(n in wanted)))[2] for n in range(len(numbers))],
                wanted,
            )
            for numbers, wanted, channel in requests
        ],
        "prefixes": prefixes,
    }  # fmt: skip
    code = """
        const language = new engine.Language(given.language), plain = (p) => Array.from(p);
        return [given.requests.map((r) => language.conditional(...r, 'sentence').map(plain)),
                given.prefixes.map((w) => plain(language.next(language.numbers(w), 'document'))),
                given.prefixes.map((w) => language.logs(language.numbers(w), 'document'))];"""
    conditional, following, logs = in_node(code, given, tmp_path)
    for request, found in zip(requests, conditional, strict=True):
        [exact] = village.distributions([request], "sentence")
        assert np.abs(np.array(found) - exact).max() < 1e-9
    for words, found, sums in zip(prefixes, following, logs, strict=True):
        assert np.abs(np.array(found) - village.next_word(words)).max() < 1e-9
        each = village.log_probability(words) if words else np.zeros(0)
        assert np.allclose(sums, np.cumsum(each), atol=1e-9)


def test_what_the_language_cannot_say_has_no_distribution(village: World, tmp_path: Path) -> None:
    code = """
        const language = new engine.Language(given);
        const words = language.numbers(['of', 'of', 'xyzzy']);
        const logs = language.logs(words, 'document').map((v) => v === -Infinity);
        return [language.next(words, 'document'), logs,
                language.conditional(words, [1, 1, 1], [0, 0, 0], [0], 'sentence')];"""
    assert in_node(code, written_language(village), tmp_path) == [None, [True] * 3, [None]]


def test_a_thousand_seeds_draw_the_same_words_and_hide_the_same_words(
    village: World, of_village: Tokenizer, tmp_path: Path
) -> None:
    model, pick = gpt(of_village), random.Random(4)
    texts, vocabulary = texts_of(village, of_village, 40, 60), of_village.vocabulary
    asked = []
    for seed in range(1000):
        how = {"temperature": pick.choice((0.0, 0.3, 1.0, 2.0)), "topK": pick.choice((0, 1, 7)),
               "topP": pick.choice((0.0, 0.5, 0.95, 1.0))}  # fmt: skip
        asked.append((texts[seed % 40], how, seed))
    asked_to_hide = [
        ([vocabulary.cls, *texts[seed % 40], vocabulary.sep],
         {"rate": pick.random(), "mask": 0.5, "random": pick.choice((0.0, 0.3))}, seed, seed % 3)
        for seed in range(1000)
    ]  # fmt: skip
    code = """
        const model = new engine.GPT(given.model), {special, config} = model;
        return [given.asked.map(([tokens, how, seed]) => {
          const {drawn, number, stages} = engine.nextWord(model, tokens, how, seed);
          return [drawn, number, stages.map(([name, p]) => [name, Array.from(p)])];
        }), given.hiding.map(([tokens, setting, seed, row]) => {
          const {seen, asked} = engine.corrupt(
            tokens, given.model.special, config.vocabulary, setting, 0, seed, row);
          return [seen, asked];
        })];"""
    given = {"model": written_model(model, of_village, 32), "asked": asked, "hiding": asked_to_hide}
    drawn, hidden = in_node(code, given, tmp_path)
    for (tokens, how, seed), (word, number, filters) in zip(asked, drawn, strict=True):
        settings = Sampling(temperature=how["temperature"], top_k=how["topK"] or None,
                            top_p=how["topP"])  # fmt: skip
        step = next_step(model, tokens, settings, seed)
        assert word == int(step.tokens_B[0])
        assert number == drawn_number(model, tokens, seed)
        assert [name for name, _ in filters] == list(step.stages)
        for (_, found), exact_BV in zip(filters, step.stages.values(), strict=True):
            assert near(found, exact_BV[0])
    for (tokens, setting, seed, row), found in zip(asked_to_hide, hidden, strict=True):
        chance = Chance(0, seed, torch.tensor([row]))
        shares = (setting["mask"], setting["random"], 1 - setting["mask"] - setting["random"])
        words = torch.tensor([tokens])
        able = hiding.ordinary(words, words >= 0, vocabulary)
        predicted = hiding.choose_tokens(able, chance, setting["rate"])
        seen = hiding.corrupt(words, predicted, chance, vocabulary, shares=shares)
        assert found == [seen[0].tolist(), predicted[0].nonzero()[:, 0].tolist()]


@pytest.mark.parametrize("length", [63, 64, 65, 120])
def test_a_text_longer_than_the_model_goes_on_alike(
    length: int, of_village: Tokenizer, tmp_path: Path
) -> None:
    model = gpt(of_village)
    tokens = [5 + n * 7 % (len(of_village) - 5) for n in range(length)]
    code = """
        const model = new engine.GPT(given.model), {tokens, how} = given;
        return given.seeds.map((seed) => engine.nextWord(model, tokens, how, seed).drawn);"""
    how = {"temperature": 1.0, "topK": 0, "topP": 1.0}
    seeds, written = list(range(20)), written_model(model, of_village, 32)
    given = {"model": written, "tokens": tokens, "seeds": seeds, "how": how}
    found = in_node(code, given, tmp_path)
    exact = [int(next_step(model, tokens, Sampling(), seed).tokens_B[0]) for seed in seeds]
    assert found == exact


# ---- views ---------------------------------------------------------------------------------------


def alike(one: str, other: str) -> bool:
    """Whether two texts say the same, up to one in the last digit of a number."""
    number = re.compile(r"\d+\.\d+")
    if number.sub("#", one) != number.sub("#", other):
        return False
    pairs = zip(number.findall(one), number.findall(other), strict=True)
    return all(abs(float(a) - float(b)) < 1.01 * 10.0 ** -len(a.split(".")[1]) for a, b in pairs)


def test_alike_is_strict() -> None:
    assert alike("p 0.1234 of a", "p 0.1235 of a")
    assert not alike("p 0.1234 of a", "p 0.1236 of a")
    assert not alike("p 0.1234 of a", "p 0.1234 of b")
    assert not alike("p 3 of a", "p 4 of a")


def test_sampling_tells_the_same_in_the_page(
    village: World, of_village: Tokenizer, tmp_path: Path
) -> None:
    model, pick, asked = gpt(of_village), random.Random(6), []
    odd = ["", "Xyzzy the <b>cat</b>", "The OAK ist", "the rose oak the", "[MASK] 😀", "the " * 90,
           UNUSUAL]  # fmt: skip
    for n, document in enumerate(village.sample(documents=STATES, seed=0)):
        text = " ".join(document.words[: pick.randrange(1, 20)])
        asked.append({
            "prompt": odd[n // 8 % len(odd)] if n % 8 == 0 else text.replace("<end>", ""),
            "written": [pick.randrange(5, len(of_village)) for _ in range(pick.choice((0, 0, 3)))],
            "temperature": pick.choice((0.0, 0.05, 0.5, 1.0, 1.35, 3.0)),
            "topK": pick.choice((0, 0, 1, 5, 50)), "topP": pick.choice((1.0, 0.0, 0.3, 0.95)),
            "seed": pick.randrange(1000),
        })  # fmt: skip
    asked[3]["written"] = [5, of_village.vocabulary.sep]

    told_alike("sampling", asked, model, of_village, village, tmp_path)


def test_what_is_certain_has_a_log_of_zero_without_a_sign(village: World, tmp_path: Path) -> None:
    model, tokenizer = trained("gpt-village")
    state = {"prompt": "we saw a star", "written": tokenizer.encode("near"), "temperature": 1.0,
             "topK": 0, "topP": 1.0, "seed": 0}  # fmt: skip
    told_alike("sampling", [state], model, tokenizer, village, tmp_path)
    assert "  0.000  " in in_python("sampling", state, model, tokenizer, None).text


def told_alike(
    name: str, asked: list[dict[str, Any]], model: Any, tokenizer: Tokenizer, world: World,
    path: Path,
) -> None:  # fmt: skip
    """JavaScript tells each asked state as Python does; each seventh without the language."""
    kind = type(model.backbone).__name__
    start = "document" if name == "sampling" else "sentence"
    code = f"""
        const model = new engine.{kind}(given.model), tokenizer = new views.Tokenizer(given.model);
        const language = new engine.Language(given.language), start = "{start}";
        return given.asked.map((state, n) => render.text(views.{name}(state,
          {{model, tokenizer, language: n % 7 ? language : null, start}})));"""
    given = {"model": written_model(model, tokenizer, 32), "asked": asked,
             "language": written_language(world)}  # fmt: skip
    exact = 0
    for n, (state, text) in enumerate(zip(asked, in_node(code, given, path), strict=True)):
        told = in_python(name, state, model, tokenizer, world if n % 7 else None).text
        assert alike(text, told), f"{state}\n{text}\n--- and in Python ---\n{told}"
        exact += text == told
    assert exact > len(asked) // 2


def in_python(
    name: str, state: dict[str, Any], model: Any, tokenizer: Tokenizer, world: World | None
) -> View:
    """The view of a state of a page."""
    if name == "sampling":
        settings = Sampling(temperature=state["temperature"], top_k=state["topK"] or None,
                            top_p=state["topP"])  # fmt: skip
        return sampling_view(
            state["prompt"], state["written"], settings, model, tokenizer, seed=state["seed"],
            world=world,
        )  # fmt: skip
    if name == "masking":
        setting = Masking(**{name: value for name, value in state.items() if name != "text"})
        return masking_view(state["text"], setting, tokenizer, model=model, world=world)
    seen = Asked(selected=state["selected"], every=state["every"])
    return attention_view(state["text"], state["layer"], state["head"], model, tokenizer, seen)


UNUSUAL = "the cat² ½ ⒶⒷ saw\ufeffthe\x85oak ٣ a\x1cb ."
"""Numbers that are no digits, letters that are symbols, and spaces that not everybody counts."""


def sentences_or_odd(village: World, pick: random.Random, count: int) -> Iterator[str]:
    """What somebody may type: a sentence of the language, or something odd."""
    odd = [
        "",
        "Ist cst",
        "the cat\u0301 saw \u0928\u092e\u0938\u094d\u0924\u0947 .",
        "the " * 39,
        "Xyzzy the <b>cat</b>",
        "The OAK ist",
        UNUSUAL,
        "the rose oak the",
        "[MASK] 😀 .",
        "the " * 90,
        "we saw a star near the museum . hugo was hungry and looked for soup .",
        "a\ud800 ?",
    ]
    # All of them from one seed: 512 documents are drawn side by side, however few are asked for.
    for n, document in enumerate(village.sample(documents=count, seed=0)):
        first, last = document.sentences[0]
        words = document.words[first:last]
        yield odd[n // 8 % len(odd)] if n % 8 == 0 else " ".join(words[: pick.randrange(3, 40)])


def test_masking_tells_the_same_in_the_page(
    village: World, of_village: Tokenizer, tmp_path: Path
) -> None:
    model, pick, asked = bert(of_village, context=40), random.Random(7), []
    for text in sentences_or_odd(village, pick, STATES):
        mask, random_share = pick.choice(((0.8, 0.1), (0.0, 1.0), (0.0, 0.0), (0.5, 0.3), (1.0, 0)))
        asked.append({
            "text": text, "rate": pick.choice((0.15, 0.4, 1.0, 0.0)),
            "mask": mask, "random": random_share, "draw": pick.randrange(1000),
            "clicked": [pick.randrange(60) for _ in range(pick.choice((0, 1, 3)))],
        })  # fmt: skip

    told_alike("masking", asked, model, of_village, village, tmp_path)


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_attention_tells_the_same_in_the_page(
    kind: str, village: World, of_village: Tokenizer, tmp_path: Path
) -> None:
    model, pick, asked = {"gpt": gpt, "bert": bert}[kind](of_village), random.Random(kind), []
    for text in sentences_or_odd(village, pick, STATES // 2):
        asked.append({
            "text": text, "layer": pick.randrange(1, 3),
            "head": pick.randrange(3), "every": pick.random() < 0.3,
            "selected": pick.randrange(-1, 40),
        })  # fmt: skip

    told_alike("attention", asked, model, of_village, village, tmp_path)


# ---- the page ------------------------------------------------------------------------------------


def test_the_policy_admits_the_scripts_of_the_page_and_nothing_else() -> None:
    scripts = ["const a = 'ä';", (LIVE / "page.js").read_text(encoding="utf-8")]
    made = parts.page("A <title>", "<p>x</p>", scripts)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', made)
    found = re.findall("<script>(.*?)</script>", made, flags=re.DOTALL)
    assert found == scripts
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in found]
    admitted = " ".join(f"'sha256-{one}'" for one in digests)
    assert policy.startswith(f"default-src 'none'; script-src {admitted}; ")
    assert not re.search(r'<script [^>]|src="|https?:', made)
    assert "script-src 'none'" in parts.policy([])


def test_the_engine_stays_short() -> None:
    lines = [len((LIVE / f"{name}.js").read_text().splitlines()) for name in ("engine", "views")]
    assert lines[0] <= 500
    assert sum(lines) <= 850


def test_a_demo_is_written_down_state_by_state() -> None:
    demo = reach_demo(segment=2, memory=1, layers=2)
    kept, written = recording.kept_values(demo), recording.written_states(demo)
    assert len(written["views"]) == math.prod(map(len, kept.values())) <= recording.MOST
    for n, state in list(enumerate(itertools.product(*kept.values())))[::17]:
        view = demo.draw(**dict(zip(kept, state, strict=True)))
        pieces = [written["pieces"][piece] for piece in written["views"][n]]
        assert pieces == json.loads(json.dumps(view.as_data()["pieces"]))
    # Every slider begins where the demo stands.
    begins = re.findall(r'name="([^"]*)" min="0" max="\d+" value="(\d+)"', form_of(written))
    assert {name: kept[name][int(n)] for name, n in begins} == {n: demo.values[n] for n in kept}
    assert recording.unpacked(recording.packed(written)) == written


def test_what_is_typed_has_the_values_that_are_given(tokenizer: Tokenizer) -> None:
    demo = masks_demo(TEXTS[0], tokenizer)
    assert "text" not in recording.kept_values(demo)
    kept = recording.kept_values(demo, {"text": TEXTS})
    assert kept["text"] == list(TEXTS)


def test_a_very_fine_slider_is_thinned_and_keeps_where_it_stands() -> None:
    demo = schedule_demo(steps=1_000_000)
    demo.change(step=123_457)
    values = recording.kept_values(demo)["step"]
    assert len(values) <= recording.MOST
    assert 123_457 in values


def cell_of(demo: Any, recorded: Any) -> nbformat.NotebookNode:
    kept = {} if recorded is None else {recording.KEY: recording.packed(recorded)}
    output = nbformat.v4.new_output("display_data", demo.stored, metadata=kept)
    return nbformat.v4.new_code_cell("1", outputs=[output])


def found_live(*cells: nbformat.NotebookNode) -> list[dict[str, Any]]:
    book = nbformat.v4.new_notebook(cells=list(cells))
    return list(pictures.live(book, of_page()))


def test_a_picture_is_live_where_something_was_recorded() -> None:
    schedule, reach = schedule_demo(steps=40, layers=2), reach_demo(2)
    schedule.change(step=3)
    found = found_live(
        cell_of(reach_demo(3), None),
        cell_of(schedule, schedule.recorded()),
        cell_of(reach, reach.recorded()),
    )
    named = [(one["name"], one["nth"]) for one in found]
    assert named == [("schedule", 0), ("memory-reach", 1)]
    assert 'name="step"' in found[0]["form"]


def test_typed_text_is_played_where_the_picture_is_that_of_the_models_of_the_page() -> None:
    # A model of its own, which is changed below.
    writer, guesser, world = trained("gpt-village"), models()[1], building.village()
    settings = Sampling(temperature=0.9, top_p=0.8)
    right = sampling_demo(*writer, "the film", settings=settings, world=world)
    torch.manual_seed(0)
    for parameter in writer[0].parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    other = sampling_demo(*writer, "the film", settings=settings, world=world)
    hiding = masking_demo(
        "she was at the inn .", guesser[1], texts=["he was ."], model=guesser[0], world=world,
        setting=Masking(rate=0.4, draw=3),
    )  # fmt: skip
    found = found_live(*(cell_of(demo, demo.recorded()) for demo in (other, right, hiding)))
    assert [(one["name"], one["nth"]) for one in found] == [("sampling", 1), ("masking", 0)]
    assert 'value="0.9"' in found[0]["form"]
    assert '<textarea name="prompt" dir="auto"' in found[0]["form"]
    assert found[1]["texts"] == ["she was at the inn .", "he was ."]


def test_a_training_is_played_again() -> None:
    curve = {"name": "training", "points": [[n, 5 - n / 10] for n in range(1, 31)],
             "floor": 1.5, "unit": "nats"}  # fmt: skip
    cell = cell_of(reach_demo(2), curve)
    [entry] = found_live(cell)
    [control] = entry["controls"]
    assert (control["name"], control["values"][control["at"]]) == ("shown", 30)
    drawn = [entry["pieces"][view[1]] for view in entry["views"]]
    assert [len(one["points"]) for one in drawn] == control["values"]
    assert {tuple(one["frame"]) for one in drawn} == {(1, 30, 1.5, 4.9)}
    assert 'data-does="play"' in entry["form"]
    assert "Loss, nats" in cell.outputs[0].data["text/plain"]


@pytest.mark.parametrize("recorded", [
    {}, [], "x", 1, {"points": "no"}, {"name": "memory-reach", "views": [[0], [0]]},
    {"name": "memory-reach", "controls": [{"name": "a"}], "views": [[0], [0]], "pieces": []},
    {"name": "sampling", "play": {"prompt": "<b>"}}, {"name": "other", "play": {}},
    {"points": [], "floor": None, "unit": "<script>"},
])  # fmt: skip
def test_what_a_foreign_notebook_recorded_leaves_the_picture(recorded: Any) -> None:
    assert found_live(cell_of(reach_demo(2), recorded)) == []
    broken = cell_of(reach_demo(2), None)
    broken.outputs[0].metadata[recording.KEY] = "no base64"
    assert found_live(broken) == []


def test_a_form_holds_no_markup_of_a_foreign_notebook() -> None:
    hostile = '"><img src=x onerror=alert(1)>'
    control = {"name": hostile, "said": hostile, "values": [hostile, "b"], "at": 0}
    numbers = {**control, "values": [1, 2]}
    form = form_of({"name": "reach", "controls": [control, numbers]})
    assert "<img" not in form
    assert "onerror=alert(1)&gt;" in form


def test_a_slider_keeps_a_value_between_two_steps() -> None:
    asked = [("rate", "rate", 0.0, 1.0, 0.05, 0.15)]
    assert 'step="0.05" value="0.15"' in sliders(asked)
    assert 'step="0.05" value="0.4"' in sliders(asked, {"rate": 0.4})
    assert 'step="any" value="0.12"' in sliders(asked, {"rate": 0.12})


def test_a_recording_of_any_size_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LARGEST", 1_000)
    assert recording.unpacked(recording.packed("a" * 900)) == "a" * 900
    assert recording.unpacked(recording.packed("a\ud800b")) == "a\ud800b"
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        recording.unpacked(recording.packed("a" * 2_000_000))
