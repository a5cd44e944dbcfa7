"""Train on text of your own: a small GPT or BERT, its folder, and a page about the run.

    python -m labkit train gpt --text "books/*.txt" --minutes 10
    model, tokenizer = trained("runs/gpt")

A document ends at a blank line, and a tenth of the documents are held out. How many steps there
are follows from the minutes and from the time of the first steps.
"""

import base64
import copy
import html
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from classroom.charts.live import LiveCurve
from classroom.charts.style import lowest
from classroom.models.recipes import plan, refuse_unknown_words
from classroom.models.shipped import trained
from classroom.models.training import (
    Measured,
    Recipe,
    Run,
    Shipped,
    bert_of,
    carry_out,
    gpt_of,
    windows_of,
)
from classroom.pages.live.parts import page as whole_page
from classroom.tasks import realtext
from labkit.checks import counted
from labkit.corpus import Windows, from_documents, from_files, tokenize
from labkit.objectives import MaskedToken, NextToken
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate

LEAST = 10_000
"""The fewest characters of text to learn from."""
LENGTH, BATCH, MOST_PASSES = 64, 16, 60
UNITS = {"gpt": "nats per piece", "bert": "nats per hidden piece"}


def documents_of(pattern: str) -> tuple[list[str], list[str]]:
    """The documents to learn from, and those that are held out."""
    known, held_out = (
        [one.text for one in side] for side in from_files(pattern).split(held_out=0.1)
    )
    letters, tests = (sum(map(len, texts)) for texts in (known, held_out))
    if letters < LEAST or tests < 20 * LENGTH:
        # Equal documents are on the same side, so copies do not help.
        documents = counted(len({*known, *held_out}), "different document")
        raise ValueError(
            f"{pattern}: too little text: {documents}, {counted(letters, 'character')} to learn "
            f"from and {tests:,} held out; give at least {LEAST:,} and {20 * LENGTH:,}, with a "
            "blank line after each document"
        )
    return known, held_out


def run_of(kind: str, texts: Sequence[str], recipe: Recipe) -> Run:
    """An untrained model, and the text in windows."""
    size = min(4_000, max(400, sum(map(len, texts)) // 100))
    make = Tokenizer.bpe if kind == "gpt" else Tokenizer.word_pieces
    tokenizer = make(texts, size)
    model = (gpt_of if kind == "gpt" else bert_of)(recipe, len(tokenizer))
    tokens = tokenize(from_documents(texts), tokenizer)
    batches = windows_of(recipe, tokens, framed=kind == "bert")
    return Run(model, tokenizer, _objective(kind, tokenizer), batches)


def _objective(kind: str, tokenizer: Tokenizer) -> NextToken | MaskedToken:
    return NextToken() if kind == "gpt" else MaskedToken(vocabulary=tokenizer.vocabulary)


def steps_in(run: Run, minutes: float, rate: float) -> int:
    """The number of steps that fit into these minutes, measured on a copy of the model.

    No text is read more than sixty times.
    """
    assert isinstance(run.batches, Windows)
    how = plan(4, rate=rate)
    trainer = Trainer(copy.deepcopy(run.model), run.objective, run.batches, how, progress=False)
    ends = [time.perf_counter() for _ in trainer.run()]
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(5, min(int(60 * minutes / each), MOST_PASSES * run.batches.steps))


def train_on(
    kind: str, pattern: str, minutes: float, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Train on the files that match, write the model's folder with a page, and return the card."""
    known, held_out = documents_of(pattern)
    width, layers = (64, 2) if minutes < 2 else (192, 4)
    recipe = Recipe(
        pattern, steps=1, batch=BATCH, length=LENGTH, width=width, layers=layers, rate=6e-3,
        dropout=0.0 if minutes < 2 else 0.1,
    )  # fmt: skip
    run = run_of(kind, known, recipe)
    refuse_unknown_words(held_out, run.tokenizer, pattern)
    steps = steps_in(run, minutes, recipe.rate)
    recipe = replace(recipe, steps=steps)
    live = LiveCurve(steps, unit=UNITS[kind])
    tests = tokenize(from_documents(held_out), run.tokenizer)
    # Made now, so that too short a text is refused before the training.
    rows = Windows(tests, batch=BATCH, length=LENGTH, framed=kind == "bert")

    def measure(model: Any, tokenizer: Tokenizer) -> Measured:
        found = evaluate(model, _objective(kind, tokenizer), rows.once())
        return Measured(UNITS[kind], found.loss, None)

    command = f'python -m labkit train {kind} --text "{pattern}" --minutes {minutes:g}'
    made = Shipped(recipe, lambda recipe: run, measure)
    card = carry_out(
        folder.as_posix(), command, made, folder, say, watch=lambda report: live.add(report.loss)
    )
    samples = _written(folder) if kind == "gpt" else _filled(folder, held_out)
    (folder / "page.html").write_text(page(card, live, samples), encoding="utf-8")
    return card


def _written(folder: Path) -> list[str]:
    """Three texts that the model writes."""
    model, tokenizer = trained(folder)
    how = Sampling(length=LENGTH - 1, temperature=0.8, top_p=0.9)
    [texts] = sample(model, [[tokenizer.vocabulary.sep or 0]], how, samples=3)
    return [tokenizer.decode(text.tokens) for text in texts]


def _filled(folder: Path, held_out: Sequence[str]) -> list[str]:
    """Blanks of the held-out text, and the three pieces that the model finds likeliest."""
    model, tokenizer = trained(folder)
    said = []
    for blank in realtext.blanks(tokenizer, "\n".join(held_out), 5):
        window, place = blank.window(24)
        log = realtext.blank_log_p(model, tokenizer, blank, 24)
        best = tokenizer.pieces(log.topk(3).indices.tolist())
        [right] = tokenizer.pieces([window[place]])
        parts = (tokenizer.decode(window[:place]), tokenizer.decode(window[place + 1 :]))
        said.append(f"{parts[0]} [MASK] {parts[1]} → {', '.join(best)} (it was {right})")
    return said


def page(card: dict[str, Any], live: LiveCurve, samples: Sequence[str]) -> str:
    """A self-contained page about the run: losses, samples, time."""
    figure = live.view(live.steps)
    lowest(figure.axes[0], card["held_out"], "held out")
    picture = base64.b64encode(figure.png()).decode()
    rows = {
        "command": card["command"],
        "held-out loss": f"{card['held_out']:.3f} {card['unit']}",
        "last losses in training": f"{sum(live.losses[-10:]) / len(live.losses[-10:]):.3f}",
        "time": f"{card['minutes']} minutes, {card['recipe']['steps']} steps",
        "weights": f"{card['weights']:,}",
        "use it": "from classroom.models.shipped import trained; "
        f'model, tokenizer = trained("{card["name"]}")',
    }
    table = "".join(
        f'<tr><th scope="row">{name}</th><td>{html.escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    said = "".join(f'<li dir="auto">{html.escape(text)}</li>' for text in samples)
    return whole_page(
        card["name"],
        f"<h1>{html.escape(card['name'])}</h1><table>{table}</table><h2>Loss</h2>"
        f'<img alt="{html.escape(figure.says)}" src="data:image/png;base64,{picture}">'
        f"<h2>{'Samples' if card['unit'] == UNITS['gpt'] else 'Blanks, filled in'}</h2>"
        f"<ol>{said}</ol>",
    )
