"""Live pages: what JavaScript computes and draws is what Python computes and draws."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_demos import HOSTILE, bert, every_piece, found_claim, gpt

from classroom.demos import (
    Masking,
    View,
    attention_view,
    floors_view,
    ledger_view,
    masking_view,
    masks_view,
    orders_view,
    reach_view,
    sampling_view,
    schedule_view,
    senses_view,
    training_view,
    vectors_view,
)
from classroom.demos.attention import Asked
from classroom.demos.masking import OBJECTIVES
from classroom.demos.orders import drawn
from classroom.demos.senses import reader
from classroom.demos.training import Point
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
def world() -> World:
    return load_world()


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
        "floors": lambda pick: floors_view(pick.choice(sentences), pick.randrange(1, 9), world),
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
        (one, said) for one, said in zip(given, made, strict=True)
        if float(f"{one[0]:.{one[1]}f}") != float(said) or len(said) < one[1]
    ]  # fmt: skip
    assert wrong == []
