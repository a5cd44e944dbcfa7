"""How a model is trained by a recipe, and written with its card.

`carry_out` does it for the models that ship (`shipped_recipes`), and for those of a reader's own
text (`classroom.tasks.own_text`).
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from classroom.models.recipes import RECIPE, larger_weights, plan
from classroom.versions import CARD
from labkit import fast
from labkit.blocks import LanguageModel, Model, evaluating
from labkit.corpus import Batches, Tokens, Windows
from labkit.heads import MaskedWord, NextWord
from labkit.keeping.computing import processor
from labkit.keeping.files import write_json
from labkit.keeping.reports import Report
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import MaskedToken, NextToken, Objective
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer
from labkit.weights.ours import save

TOLERANCE = 0.005
"""By how much the loss of a card may differ on another processor."""


@dataclass(frozen=True)
class Ending:
    """What a recipe does after its steps: further ones, at a lower rate."""

    steps: int
    rate: float = 0.25
    """The share of the recipe's rate that the ending begins with."""
    hidden: float | None = None
    """The share of the words that a BERT then predicts. With fewer words hidden, the text is closer
    to the one with a single blank that the model is measured on."""
    length: int | None = None
    """The length of the segments that it reads, which come from more text."""


@dataclass(frozen=True)
class Recipe:
    """How a model that ships is trained. Each field is on its card."""

    read: str
    """A description of the text that it reads."""
    steps: int
    batch: int
    length: int
    width: int
    layers: int
    rate: float
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    dropout: float = 0.0
    attention_dropout: float | None = None
    decay: float = RECIPE["decay"]
    betas: tuple[float, float] = (0.9, 0.95)
    shorter: tuple[tuple[int, int], ...] = ()
    """Lengths of windows, and for how many steps they are read before those of `length`."""
    hidden: float = 0.15
    """The share of the words that a BERT predicts."""
    ending: Ending | None = None
    moved: bool = False
    """Whether the text is cut into other windows in each epoch."""
    rotary: bool = False
    """Whether positions are rotary: attention rotates queries and keys, and none are learned."""
    heads: int | None = None
    """The number of attention heads; None: `width / 32`."""
    inner: int | None = None
    """The width of the feed-forward layers; None: four times `width`."""
    grain: int | None = None
    """About how many rounding steps make one standard deviation of a matrix; None: no rounding."""


class Run(NamedTuple):
    """All that a recipe needs to be carried out."""

    model: Model
    tokenizer: Tokenizer
    objective: Objective
    batches: Batches
    shorter: tuple[Windows, ...] = ()
    """The same text in shorter windows, which are read before `batches`."""
    ending: tuple[Objective, Batches] | None = None
    """What the ending learns and reads, if it is not `objective` and `batches`."""


class Measured(NamedTuple):
    """The loss on held-out text, beside the lowest possible one where that is known."""

    unit: str
    held_out: float
    floor: float | None
    by_text: dict[str, float] | None = None
    """The loss on each text, where there are few."""
    repeated: float | None = None
    """The share of the held-out words in paragraphs that the training text nearly repeats."""


Prepare = Callable[[Recipe], Run]
Measure = Callable[[Any, Tokenizer], Measured]
Losses = Mapping[str, Mapping[str, float]]
"""For each way to predict some texts, the loss on each text."""


class Shipped(NamedTuple):
    """How a model is made and measured, and what else can predict the same texts."""

    recipe: Recipe
    prepare: Prepare
    measure: Measure
    others: Callable[[Tokenizer], dict[str, dict[str, float]]] | None = None
    readers: Mapping[str, float | str] | None = None
    """How well people can predict such a text."""
    per_byte: Callable[[Tokenizer, Losses], dict[str, float]] | None = None
    """The losses of all ways in nats per byte, where the card gives them per piece of text."""


# ---- models and their text


def _sizes(recipe: Recipe, vocabulary: int) -> dict[str, Any]:
    """The sizes that the configurations of a GPT and of a BERT have in common."""
    return {
        "vocabulary": vocabulary, "width": recipe.width, "layers": recipe.layers,
        "heads": recipe.heads or recipe.width // 32, "inner": recipe.inner,
        "dropout": recipe.dropout, "rotary": recipe.rotary,
    }  # fmt: skip


def gpt_of(recipe: Recipe, vocabulary: int) -> LanguageModel:
    """A GPT of a recipe's sizes, not yet trained."""
    torch.manual_seed(recipe.seed)
    sizes = _sizes(recipe, vocabulary)
    context, on_weights = recipe.length + 1, recipe.attention_dropout
    gpt = GPT(GPTConfig(**sizes, context=context, attention_dropout=on_weights))
    return LanguageModel(gpt, NextWord(gpt.token))


def bert_of(recipe: Recipe, vocabulary: int) -> LanguageModel:
    """A BERT of a recipe's sizes, not yet trained."""
    torch.manual_seed(recipe.seed)
    bert = BERT(BERTConfig(**_sizes(recipe, vocabulary), context=recipe.length))
    return LanguageModel(bert, MaskedWord(bert.token, recipe.width))


def windows_of(recipe: Recipe, tokens: Tokens, *, framed: bool = False) -> Windows:
    """The text in windows of the recipe's length."""
    return Windows(
        tokens, batch=recipe.batch, length=recipe.length, seed=recipe.seed, framed=framed,
        moved=recipe.moved,
    )  # fmt: skip


def _shorter(recipe: Recipe, tokens: Tokens) -> tuple[Windows, ...]:
    """The text in the shorter windows that a recipe reads first, as many tokens in each batch.

    Among 16 words attention soon finds those that matter. Among 128 it stays close to a mean of
    all words for thousands of steps, and the loss of a BERT at what their frequencies tell.
    """
    as_short = [
        replace(recipe, batch=recipe.batch * recipe.length // length, length=length)
        for length, _ in recipe.shorter
    ]
    return tuple(windows_of(short, tokens) for short in as_short)


def gpt_run(recipe: Recipe, tokens: Tokens, tokenizer: Tokenizer) -> Run:
    """A GPT of a recipe's sizes, and the next tokens that it learns from."""
    model = gpt_of(recipe, len(tokenizer))
    text = windows_of(recipe, tokens)
    return Run(model, tokenizer, NextToken(), text, _shorter(recipe, tokens))


def bert_run(
    recipe: Recipe, tokens: Tokens, tokenizer: Tokenizer, frequencies: Tensor | None = None
) -> Run:
    """A BERT of a recipe's sizes, and the hidden tokens that it learns from."""
    model = bert_of(recipe, len(tokenizer))
    larger_weights(model, 0.08)
    objective = MaskedToken(
        vocabulary=tokenizer.vocabulary, rate=recipe.hidden, frequencies=frequencies
    )
    text = windows_of(recipe, tokens, framed=True)
    return Run(model, tokenizer, objective, text, _shorter(recipe, tokens))


# ---- training and writing


def carry_out(
    name: str,
    command: str,
    known: Shipped,
    folder: Path,
    say: Callable[[str], None] = print,
    checkpoints: Path | None = None,
    watch: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Train a model, write its folder, and return its card; `watch` sees each report.

    torchrun may start several processes, which share each batch. The first one says how it goes,
    measures and writes; the others return an empty card.
    """
    first = os.environ.get("RANK", "0") == "0"
    say = say if first else (lambda message: None)
    recipe = known.recipe
    # A folder that cannot be written is refused now, and not after hours.
    make_writable(folder)
    start = time.monotonic()
    run = known.prepare(recipe)
    preparing = time.monotonic() - start
    seconds = preparing + _train_in_parts(run, recipe, checkpoints, say, watch)
    if not first:
        return {}
    # A folder without a card is no model: other weights never stand beside an old card.
    (folder / CARD).unlink(missing_ok=True)
    steps = {} if recipe.grain is None else round_matrices(run.model, recipe.grain)
    save(run.model.to("cpu").half(), folder, steps=steps)
    run.tokenizer.save(folder / "tokenizer.json")
    card = _card(name, command, known, run, seconds)
    write_json(folder / CARD, card)
    return card


def _card(name: str, command: str, known: Shipped, run: Run, seconds: float) -> dict[str, Any]:
    """Measure a trained model, and say all that is known of it."""
    # Not every measure asks for eval mode, and dropout would be measured with the model.
    with evaluating(run.model), fast.enable():
        found = known.measure(run.model.float(), run.tokenizer)
    card: dict[str, Any] = {
        "name": name,
        "command": command,
        "recipe": asdict(known.recipe),
        "weights": sum(weight.numel() for weight in run.model.parameters()),
        "minutes": round(seconds / 60, 1),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        **{key: round(v, 4) if isinstance(v, float) else v for key, v in found._asdict().items()},
        "tolerance": TOLERANCE,
        "others": known.others(run.tokenizer) if known.others else {},
    }
    if known.readers:
        card["readers"] = dict(known.readers)
    if known.per_byte:
        ways = {name: card["by_text"], **card["others"]}
        card["per_byte"] = known.per_byte(run.tokenizer, ways)
    return card


def _train_in_parts(
    run: Run,
    recipe: Recipe,
    checkpoints: Path | None,
    say: Callable[[str], None],
    watch: Callable[[Report], None],
) -> float:
    """Train on shorter windows, then on those of the recipe's length. Return the seconds it took.

    Each part has its own folder of checkpoints: a part that is finished is not trained again.
    """
    tell = now_and_then(say)

    def see(report: Report) -> None:
        watch(report)
        tell(report)

    def within(part: str) -> Path | None:
        return None if checkpoints is None else checkpoints / part

    seconds = 0.0
    for windows, (length, steps) in zip(run.shorter, recipe.shorter, strict=True):
        say(f"{steps:,} steps on windows of {length} tokens")
        how = _plan_of(recipe, steps, schedule="constant")
        seconds += _go_on(run, windows, how, within(f"windows-of-{length}"), see)
        _repeat_positions(run.model, length)
    how = _plan_of(recipe, recipe.steps)
    seconds += _go_on(run, run.batches, how, within("last"), see)
    if recipe.ending is not None:
        last = recipe.ending
        say(f"ending: {last.steps:,} steps at {last.rate:g} of the rate")
        slower = replace(recipe, rate=recipe.rate * last.rate, seed=recipe.seed + 1)
        how = _plan_of(slower, last.steps)
        objective: Any
        objective, batches = run.ending or (run.objective, run.batches)
        if last.hidden is not None:
            objective = replace(objective, rate=last.hidden)
        ending = run._replace(objective=objective)
        seconds += _go_on(ending, batches, how, within("ending"), see)
    if isinstance(run.objective, NextToken) and isinstance(run.batches, Windows):
        _fill_positions(run.model, recipe.length)
    return seconds


def _go_on(
    run: Run, batches: Batches, how: Plan, checkpoints: Path | None, see: Callable[[Report], None]
) -> float:
    """Train one part of a run from its newest checkpoint. Return the seconds it took in all."""
    trainer = Trainer(run.model, run.objective, batches, how, progress=False)
    last = time.monotonic()
    for report in trainer.resume(checkpoints):
        now = time.monotonic()
        trainer.notes["seconds"] = trainer.notes.get("seconds", 0.0) + now - last
        last = now
        see(report)
    return float(trainer.notes["seconds"])


@torch.no_grad()
def _repeat_positions(model: Any, length: int) -> None:
    """Repeat learned positions, so that windows twice as long have some to begin with."""
    position = model.backbone.position
    if position is not None:
        position.weight[length : 2 * length] = position.weight[:length]


@torch.no_grad()
def _fill_positions(model: Any, length: int) -> None:
    """Copy the last position that was learned to those after it.

    The last token of a window is predicted and not read: windows teach one position less than
    they are long, and the rest would be as it was drawn.
    """
    position = model.backbone.position
    if position is not None:
        position.weight[length - 1 :] = position.weight[length - 2]


def make_writable(folder: Path) -> None:
    """Make a folder if it is missing, and refuse one in which nothing can be written."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written: give another folder")


def now_and_then(say: Callable[[str], None]) -> Callable[[Report], None]:
    """Return a function that prints a report, at most one every five seconds."""
    said = time.monotonic()

    def watch(report: Report) -> None:
        nonlocal said
        if time.monotonic() - said > 5:
            said = time.monotonic()
            say(str(report))

    return watch


@torch.no_grad()
def round_matrices(model: nn.Module, grain: int) -> dict[str, float]:
    """Round each matrix to multiples of a power of two: few different numbers compress well.

    About `grain` steps make one standard deviation of the matrix. With a grain of 8, no weight
    changes by more than a tenth of a standard deviation. Return the steps of those matrices whose
    numbers fit in a byte, that is, of those without very large ones.
    """
    steps = {}
    for name, matrix in model.named_parameters():
        # A constant matrix compresses as it is.
        if matrix.ndim > 1 and float(matrix.std()) > 0:
            step = 2.0 ** round(math.log2(float(matrix.std()) / grain))
            whole = (matrix / step).round()
            matrix.copy_(whole * step)
            if float(whole.abs().max()) <= 127:
                steps[name] = step
    return steps


def _plan_of(recipe: Recipe, steps: int, **changes: Any) -> Plan:
    """How a recipe trains for so many steps, in one process or in as many as torchrun starts."""
    return plan(
        steps, rate=recipe.rate, seed=recipe.seed, precision=recipe.precision,
        decay=recipe.decay, betas=recipe.betas, processes="ddp", save_every=200, **changes,
    )  # fmt: skip
