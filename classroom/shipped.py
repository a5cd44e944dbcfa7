"""Models that ship with the course: trained once, loaded in a second.

    model, tokenizer = trained("gpt-village")
    card("gpt-village")["held_out"]                 the loss on text that it has never read
    python -m labkit train gpt-village              make it anew

A model is a folder of `data/models`: the weights in 16 bits, its tokenizer, and a card. The card
says which command trained it, on what, for how long, and what it was measured at.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from classroom import instructions, realtext, translating
from classroom.claims import village
from classroom.recipes import (
    RECIPE,
    CourseText,
    course_text,
    plan,
    random_words,
    untrained_awd_lstm,
    untrained_elmo,
)
from labkit.alignment import Reinforce, Rollouts, ceiling, gold, policies, reference_of
from labkit.alignment import measured as exactly
from labkit.alignment.preferences import AnswerTokens
from labkit.blocks import LanguageModel, Model, evaluating
from labkit.chance import Chance
from labkit.corpus import (
    Batch,
    Batches,
    Streams,
    Tokens,
    Windows,
    from_documents,
    pad_rows,
    tokenize,
)
from labkit.heads import MaskedWord, NextWord
from labkit.keeping.computing import processor
from labkit.keeping.files import read_json, write_json
from labkit.keeping.paths import data_path
from labkit.keeping.reports import Report
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    BothDirections,
    Labels,
    MaskedToken,
    NextToken,
    Objective,
    Permutation,
    Translation,
)
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate
from labkit.weights import load, load_tokenizer, save

CARD = "card.json"
TOLERANCE = 0.005
"""By how much the loss of a card may differ on another processor."""


@dataclass(frozen=True)
class Recipe:
    """How a model that ships is trained. Each field stands on its card."""

    read: str
    """What it reads, in words."""
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
    ending: tuple[int, float] | None = None
    """Further steps of a BERT, at a quarter of the rate, and the share of the words that it then
    predicts. With fewer words hidden, the text is closer to the one with a single blank that the
    model is measured on."""
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


class Measured(NamedTuple):
    """The loss on held-out text, beside the lowest possible one where that is known."""

    unit: str
    held_out: float
    floor: float | None
    by_text: dict[str, float] | None = None
    """The loss on each text, where there are few."""
    repeated: float | None = None
    """The share of the held-out words in paragraphs that nearly stand in the training text."""


Prepare = Callable[[Recipe], Run]
Measure = Callable[[Any, Tokenizer], Measured]
Losses = Mapping[str, Mapping[str, float]]
"""Of each way to predict some texts, the loss on each text."""


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


# ---- using one


def trained(name: str | Path) -> tuple[Any, Tokenizer]:
    """A model that ships with the course, ready to be used, and its tokenizer.

    Or one that `python -m labkit train gpt --text …` has written into a folder.
    """
    folder = _folder(name)
    model = load(folder, dtype=torch.float32)
    assert isinstance(model, Model)
    return model, load_tokenizer(folder)


def card(name: str | Path) -> dict[str, Any]:
    """What is known of a model that ships: how it was trained and what it was measured at."""
    return read_json(_folder(name) / CARD)


def names() -> list[str]:
    """The models that ship."""
    return sorted(path.parent.name for path in data_path("models").glob(f"*/{CARD}"))


def _folder(name: str | Path) -> Path:
    for folder in (data_path("models") / name, Path(name)):
        if (folder / CARD).is_file():
            return folder
    raise ValueError(
        f"no model {str(name)!r} ships with the course: choose {', '.join(names())}, "
        "or a folder that `labkit train` wrote"
    )


# ---- making one


def train(
    name: str,
    folder: Path,
    say: Callable[[str], None] = print,
    checkpoints: Path | None = None,
) -> dict[str, Any]:
    """Train a model by its recipe, write it with its card, and return the card.

    With a folder of checkpoints, a run that was interrupted goes on where it was, also in the
    part that reads shorter windows.
    """
    return carry_out(name, f"python -m labkit train {name}", _known(name), folder, say, checkpoints)


def carry_out(
    name: str,
    command: str,
    known: Shipped,
    folder: Path,
    say: Callable[[str], None] = print,
    checkpoints: Path | None = None,
    watch: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Train a model, write its folder, and return its card; `watch` sees each report."""
    recipe = known.recipe
    start = time.monotonic()
    run = known.prepare(recipe)
    preparing = time.monotonic() - start
    seconds = preparing + _train_in_parts(run, recipe, checkpoints, say, watch)
    folder.mkdir(parents=True, exist_ok=True)
    steps = {} if recipe.grain is None else round_matrices(run.model, recipe.grain)
    save(run.model.to("cpu").half(), folder, steps=steps)
    run.tokenizer.save(folder / "tokenizer.json")
    # Not every measure asks for eval mode, and dropout would be measured with the model.
    with evaluating(run.model):
        found = known.measure(run.model.float(), run.tokenizer)
    described: dict[str, Any] = {
        "name": name,
        "command": command,
        "recipe": asdict(recipe),
        "weights": sum(weight.numel() for weight in run.model.parameters()),
        "minutes": round(seconds / 60, 1),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        **{key: round(v, 4) if isinstance(v, float) else v for key, v in found._asdict().items()},
        "tolerance": TOLERANCE,
        "others": known.others(run.tokenizer) if known.others else {},
    }
    if known.readers:
        described["readers"] = dict(known.readers)
    if known.per_byte:
        ways = {name: described["by_text"], **described["others"]}
        described["per_byte"] = known.per_byte(run.tokenizer, ways)
    write_json(folder / CARD, described)
    return described


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
        how = _plan_of(recipe, steps, schedule="constant", save_every=200)
        seconds += _go_on(run, windows, how, within(f"windows-of-{length}"), see)
        _repeat_positions(run.model, length)
    how = _plan_of(recipe, recipe.steps, save_every=200)
    seconds += _go_on(run, run.batches, how, within("last"), see)
    if recipe.ending is not None:
        steps, hidden = recipe.ending
        say(f"{steps:,} steps in which {hidden:.0%} are hidden")
        slower = replace(recipe, rate=recipe.rate / 4, seed=recipe.seed + 1)
        how = _plan_of(slower, steps, save_every=200)
        objective: Any = run.objective
        fewer = run._replace(objective=replace(objective, rate=hidden))
        seconds += _go_on(fewer, run.batches, how, within("ending"), see)
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


def now_and_then(say: Callable[[str], None], seconds: float = 5) -> Callable[[Report], None]:
    """Return a function that says a report, at most one every few seconds."""
    said = time.monotonic()

    def watch(report: Report) -> None:
        nonlocal said
        if time.monotonic() - said > seconds:
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
        if matrix.ndim > 1:
            step = 2.0 ** round(math.log2(float(matrix.std()) / grain))
            whole = (matrix / step).round()
            matrix.copy_(whole * step)
            if float(whole.abs().max()) <= 127:
                steps[name] = step
    return steps


def _plan_of(recipe: Recipe, steps: int, **changes: Any) -> Plan:
    """How a recipe trains for so many steps."""
    return plan(
        steps, rate=recipe.rate, seed=recipe.seed, precision=recipe.precision,
        decay=recipe.decay, betas=recipe.betas, **changes,
    )  # fmt: skip


def measured(name: str) -> Measured:
    """Measure a model that ships, as its card says."""
    model, tokenizer = trained(name)
    return _known(name).measure(model, tokenizer)


def _known(name: str) -> Shipped:
    if name not in RECIPES:
        raise ValueError(f"there is no recipe for {name!r}: choose {', '.join(RECIPES)}")
    return RECIPES[name]


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


def _gpt(recipe: Recipe, tokens: Tokens, tokenizer: Tokenizer) -> Run:
    model = gpt_of(recipe, len(tokenizer))
    text = windows_of(recipe, tokens)
    return Run(model, tokenizer, NextToken(), text, _shorter(recipe, tokens))


def _bert(
    recipe: Recipe, tokens: Tokens, tokenizer: Tokenizer, frequencies: Tensor | None = None
) -> Run:
    model = bert_of(recipe, len(tokenizer))
    village.larger_weights(model, 0.08)
    objective = MaskedToken(
        vocabulary=tokenizer.vocabulary, rate=recipe.hidden, frequencies=frequencies
    )
    text = windows_of(recipe, tokens, framed=True)
    return Run(model, tokenizer, objective, text, _shorter(recipe, tokens))


def _text(language: str, words: int = 1_000) -> CourseText:
    """So much to learn from, and always the same to be measured on."""
    return course_text(language, words=words, held_out=20_000, seed=0)


def _gpt_of_language(language: str, words: int, recipe: Recipe) -> Run:
    text = _text(language, words)
    return _gpt(recipe, text.train, text.tokenizer)


def _measure_next(
    language: str, length: int, model: LanguageModel, tokenizer: Tokenizer
) -> Measured:
    """The loss on the first words of held-out documents."""
    text = _text(language)
    found = evaluate(model, NextToken(), text.tests(length))
    return Measured("nats per word", found.loss, text.floor("next", length))


def _elmo_village(recipe: Recipe) -> Run:
    model = untrained_elmo(_text("village"), width=recipe.width, layers=recipe.layers)
    texts = village.sentences("train", 2_000_000)
    batches = village.rows(texts, batch=recipe.batch, seed=recipe.seed)
    return Run(model, village.tokenizer(), BothDirections(), batches)


def _measure_elmo_village(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    texts = village.sentences("held_out", 20_000)
    found = evaluate(model, BothDirections(), village.rows(texts, batch=500).once())
    return Measured("nats per word, both directions", found.loss, village.sentence_floor(texts))


def _bert_village(recipe: Recipe) -> Run:
    texts = village.sentences("train", 2_000_000)
    model = village.encoder(recipe.seed, width=recipe.width, layers=recipe.layers)
    batches = village.rows(texts, batch=recipe.batch, seed=recipe.seed)
    return Run(model, village.tokenizer(), village.masked(), batches)


def _measure_bert_village(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked = village.blanks(2_000)
    found = village.cloze(model, asked)
    return Measured("nats per hidden word", sum(found) / len(found), float(asked.both.mean()))


# The course's language: windows of documents, since its sentences depend on those before. Large
# batches matter most: on an H100, in four minutes beside other work, AWD-LSTM ended 0.107 nats
# above the floor (12,700 steps), ELMo 0.148 (3,300), a BERT with learned positions 0.187 (3,500).
# AWD-LSTM and ELMo do not ship. On two cores of an EPYC, AWD-LSTM ended 0.197 above the floor,
# after 24,000 steps of batch 32 at a rate of 1e-2: half as many words, in 65 minutes beside other
# work. BERT ships: it needed rotary positions, and an ending in which fewer words are hidden.
COURSE_WORDS = 8_000_000
"""How many words each of these models can learn from."""


def _awd_course(recipe: Recipe) -> Run:
    text = _text("language", COURSE_WORDS)
    model = untrained_awd_lstm(
        text.vocabulary, recipe.width, inner=2 * recipe.width, layers=recipe.layers,
        seed=recipe.seed,
    )  # fmt: skip
    batches = Streams(text.train, batch=recipe.batch, length=recipe.length, seed=recipe.seed)
    return Run(model, text.tokenizer, NextToken(carry=True), batches)


def _elmo_course(recipe: Recipe) -> Run:
    text = _text("language", COURSE_WORDS)
    model = untrained_elmo(text, seed=recipe.seed, width=recipe.width, layers=recipe.layers)
    return Run(model, text.tokenizer, BothDirections(), windows_of(recipe, text.train))


def _windows_within(text: CourseText, length: int) -> list[list[str]]:
    """Windows of held-out documents that hold neither a beginning nor an end."""
    return [words[start : start + length] for words in text.documents
            for start in range(1, len(words) - length, length)]  # fmt: skip


def _framed(text: CourseText, windows: Sequence[Sequence[str]]) -> Tensor:
    """Each window as a row of tokens, [CLS] before it and [SEP] after it."""
    marks = text.tokenizer.vocabulary
    return torch.tensor([[marks.cls, *text.numbers(words), marks.sep] for words in windows])


def _measure_elmo_course(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    """Both directions have the same floor: the first word of a window, or its last, is given."""
    text = _text("language")
    assert text.world is not None
    windows = _windows_within(text, 64)
    batch = Batch.of(*pad_rows([text.numbers(words) for words in windows]))
    with torch.no_grad():
        found = evaluate(model, BothDirections(), [batch])
    ahead = text.world.log_probabilities(windows, start="anywhere")
    back = text.world.log_probabilities(windows, direction="backward")
    logs = [log[1:] for log in ahead] + [log[:-1] for log in back]
    return Measured(
        "nats per word, both directions", found.loss, -float(np.concatenate(logs).mean())
    )


def _bert_course(recipe: Recipe) -> Run:
    text = _text("language", COURSE_WORDS)
    frequencies = random_words(text.world, text.tokenizer)
    return _bert(recipe, text.train, text.tokenizer, frequencies)


def _measure_bert_course(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    """One hidden word of each window at a time, at sixteen positions."""
    text, mask = _text("language"), tokenizer.vocabulary.mask
    assert text.world is not None
    assert mask is not None
    length = model.backbone.config.context - 2
    random = np.random.default_rng(0)
    asked = [(words, int(position)) for words in _windows_within(text, length)
             for position in random.integers(length, size=16)]  # fmt: skip
    requests: Any = [(text.world.numbers(words), [position], {}) for words, position in asked]
    best = text.world.distributions(requests, "anywhere")
    lowest = [-np.log(one[0, words[position]])
              for one, (words, [position], _) in zip(best, requests, strict=True)]  # fmt: skip
    rows = _framed(text, [words for words, _ in asked])
    each, positions = torch.arange(len(rows)), torch.tensor([1 + position for _, position in asked])
    targets = rows[each, positions]
    rows[each, positions] = mask
    head: Any = model.head
    with torch.no_grad():
        found = head.losses_N(model.backbone(rows).hidden[each, positions], targets)
    return Measured(
        "nats per hidden word, one at a time", float(found.mean()), float(np.mean(lowest))
    )


PAIRS = 60_000
"""Sentences that the translator and the tagger learn from."""


def _translation(recipe: Recipe) -> Run:
    pairs = translating.pairs("train", PAIRS)
    batches = translating.pair_batches(pairs, batch=recipe.batch, seed=recipe.seed)
    model = translating.transformer(recipe.seed, width=recipe.width, layers=recipe.layers)
    return Run(model, translating.tokenizer(), Translation(begin=translating.begin()), batches)


def _measure_translation(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked = translating.pairs("held_out", 1_000)
    found = evaluate(
        model,
        Translation(begin=translating.begin()),
        translating.pair_batches(asked, batch=250).once(),
    )
    return Measured("nats per word", found.metrics["words"], translating.floor(asked))


def _tagger(recipe: Recipe) -> Run:
    sentences = [pair.source for pair in translating.pairs("train", PAIRS)]
    batches = translating.tagged(sentences, batch=recipe.batch, seed=recipe.seed)
    model = translating.tagger("Transformer", recipe.seed, width=recipe.width)
    return Run(model, translating.tokenizer(), Labels(position="each"), batches)


def _measure_tagger(model: Model, tokenizer: Tokenizer) -> Measured:
    sentences = [pair.source for pair in translating.pairs("held_out", 1_000)]
    asked = translating.tagged(sentences, batch=250, seed=1)
    found = evaluate(model, Labels(position="each"), asked.once())
    return Measured("nats per tag", found.metrics["label"], translating.tag_floor(asked, sentences))


def _journey(words: int) -> CourseText:
    return course_text("journey", words=words, held_out=12_000, seed=0)


def _xl_journey(recipe: Recipe) -> Run:
    text = _journey(1_000_000)
    torch.manual_seed(recipe.seed)
    sizes = TransformerXLConfig(
        text.vocabulary, recipe.width, recipe.layers, 4, recipe.length, 32,
        inner=2 * recipe.width, dropout=0.0,
    )  # fmt: skip
    backbone: Any = TransformerXL(sizes)
    batches = Streams(text.train, batch=recipe.batch, length=recipe.length, seed=recipe.seed)
    model = LanguageModel(backbone, NextWord(backbone.token))
    return Run(model, text.tokenizer, NextToken(carry=True), batches)


def _measure_xl_journey(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    text = _journey(1_000)
    stream = Streams(text.held_out, batch=1, length=16).once()
    found = evaluate(model, NextToken(carry=True), stream)
    floor = text.floor("next", max(map(len, text.documents)))
    return Measured("nats per word", found.loss, floor)


def _xlnet_journey(recipe: Recipe) -> Run:
    text = _journey(1_000_000)
    torch.manual_seed(recipe.seed)
    sizes = XLNetConfig(
        text.vocabulary, recipe.width, recipe.layers, 4, inner=2 * recipe.width, dropout=0.0
    )
    backbone = XLNet(sizes)
    model = LanguageModel(backbone, NextWord(backbone.token, bias=True))
    objective = Permutation(vocabulary=text.tokenizer.vocabulary)
    return Run(model, text.tokenizer, objective, windows_of(recipe, text.train, framed=True))


def _measure_xlnet_journey(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    """On windows of held-out documents; the floor is exact for the words that are asked there."""
    text = _journey(1_000)
    world = text.world
    assert world is not None
    windows = _windows_within(text, 30)
    rows = _framed(text, windows)
    batch = Batch.of(rows, torch.ones_like(rows, dtype=torch.bool))
    objective = Permutation(vocabulary=tokenizer.vocabulary)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    assert targets.order is not None
    asked = [row.nonzero()[:, 0].sub(1).tolist() for row in targets.order.predicted]
    logs = [world.joint(words, hidden, start="anywhere")
            for words, hidden in zip(windows, asked, strict=True)]  # fmt: skip
    with torch.no_grad():
        found = float(objective.loss(model, targets).loss)
    return Measured("nats per predicted word", found, -sum(logs) / sum(map(len, asked)))


def _gpt_addresses(recipe: Recipe) -> Run:
    texts = realtext.texts(held_out=False)
    tokenizer = Tokenizer.bpe(texts, 4_000)
    return _gpt(recipe, tokenize(from_documents(texts), tokenizer), tokenizer)


MEASURED_ADDRESSES = (5, 55, 105, 155, 205, 235)


def _measure_gpt_addresses(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    window = model.backbone.config.context - 1
    found = {
        str(one.number): realtext.nats_per_byte(model, tokenizer, one.text, window=window)
        for one in _measured_addresses()
    }
    return _by_text("nats per byte", found)


def _measured_addresses() -> list[realtext.Address]:
    return [one for one in realtext.addresses() if one.number in MEASURED_ADDRESSES]


def _by_text(unit: str, found: dict[str, float]) -> Measured:
    """The mean loss on the addresses, which weigh alike, and the loss on each."""
    mean = sum(found.values()) / len(found)
    by_text = {number: round(loss, 3) for number, loss in found.items()}
    return Measured(unit, mean, None, by_text, realtext.repeated())


def five_gram_losses(tokenizer: Tokenizer, tests: Sequence[realtext.Address]) -> list[float]:
    """Nats per byte of a Kneser-Ney model of five pieces on each of these addresses."""
    known = [tokenizer.encode(text) for text in realtext.texts(held_out=False)]
    five = realtext.KneserNey(known, len(tokenizer))
    logs = [five.log_probabilities(tokenizer.encode(one.text)).sum() for one in tests]
    return [float(-log / len(one.text.encode())) for one, log in zip(tests, logs, strict=True)]


def _xz(tests: Sequence[realtext.Address]) -> list[float]:
    return realtext.xz(realtext.texts(held_out=False), [one.text for one in tests])


def _others_of_addresses(tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """What else can predict the held-out addresses: five pieces at a time, and a compressor."""
    tests = _measured_addresses()
    ways = {
        "Kneser-Ney 5-gram": five_gram_losses(tokenizer, tests),
        "xz": _xz(tests),
    }
    return {
        name: {str(one.number): round(loss, 3) for one, loss in zip(tests, losses, strict=True)}
        for name, losses in ways.items()
    }


def _bert_addresses(recipe: Recipe) -> Run:
    texts = realtext.texts(held_out=False)
    tokenizer = Tokenizer.word_pieces(texts, 4_000)
    return _bert(recipe, tokenize(from_documents(texts), tokenizer), tokenizer)


BLANKS = 60
"""Hidden tokens of each held-out address that is measured."""


def _blanks(tokenizer: Tokenizer) -> dict[str, list[realtext.Blank]]:
    return {
        str(one.number): realtext.blanks(tokenizer, one.text, BLANKS)
        for one in _measured_addresses()
    }


def _measure_bert_addresses(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    length = model.backbone.config.context
    found = {
        number: sum(realtext.blank_losses(model, tokenizer, asked, length=length)) / BLANKS
        for number, asked in _blanks(tokenizer).items()
    }
    return _by_text("nats per hidden piece, one at a time", found)


def _others_of_blanks(tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """A 5-gram that sees four pieces on the left, and one that sees four on both sides."""
    known = [tokenizer.encode(text) for text in realtext.texts(held_out=False)]
    five = realtext.KneserNey(known, len(tokenizer))
    found: dict[str, dict[str, float]] = {"5-gram, left side": {}, "5-gram, both sides": {}}
    for number, asked in _blanks(tokenizer).items():
        left = five.log_probabilities(asked[0].tokens)
        both = [five.both_sides(*one)[one.tokens[one.position]] for one in asked]
        means = (sum(left[one.position] for one in asked) / BLANKS, sum(both) / BLANKS)
        for name, mean in zip(found, means, strict=True):
            found[name][number] = round(float(-mean), 3)
    return found


def per_byte_of_blanks(tokenizer: Tokenizer, ways: Losses) -> dict[str, float]:
    """The mean losses per hidden piece of the measured addresses, in nats per byte, beside `xz`."""
    tests = _measured_addresses()
    pieces = {
        str(one.number): len(tokenizer.encode(one.text)) / len(one.text.encode()) for one in tests
    }
    found = {
        name: sum(loss * pieces[number] for number, loss in losses.items()) / len(losses)
        for name, losses in ways.items()
    }
    packed = _xz(tests)
    found["xz"] = sum(packed) / len(packed)
    return {name: round(float(loss), 3) for name, loss in found.items()}


def _base(recipe: Recipe) -> Run:
    words = instructions.tokenizer()
    return _gpt(recipe, tokenize(from_documents(instructions.plain("train")), words), words)


def _measure_base(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    tests = instructions.plain("held_out", 1_000)
    found = evaluate(model, NextToken(), instructions.base_tests(tests))
    return Measured("nats per word", found.loss, instructions.plain_floor(tests))


def _tuned(recipe: Recipe) -> Run:
    model, words = trained("gpt-base")
    rows = instructions.Rows(instructions.conversations("train"), recipe.batch, recipe.seed)
    return Run(model, words, AnswerTokens(), rows)


def _measure_tuned(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    rows, floor = instructions.answer_tests(1_000)
    return Measured("nats per token of an answer", evaluate(model, AnswerTokens(), [rows]).loss,
                    floor)  # fmt: skip


def _rewarded(recipe: Recipe) -> Run:
    model, words = trained("gpt-tuned")
    asked = instructions.questions()
    rollouts = Rollouts(
        model=model, reference=reference_of(model), prompts=[one.prompt for one in asked],
        reward=gold(asked), settings=instructions.answering(), batch=recipe.batch, group=8,
        seed=recipe.seed,
    )  # fmt: skip
    return Run(model, words, Reinforce(beta=instructions.BETA, group=8), rollouts)


def _measure_rewarded(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked, beta = instructions.questions(), instructions.BETA
    reference = policies(trained("gpt-tuned")[0], asked)
    found = exactly(policies(model, asked), reference, asked, beta)
    best = ceiling(reference, asked, beta)
    return Measured("reward that is left to the ceiling", best - found.value, None)


RECIPES = {
    "gpt-village": Shipped(
        Recipe(
            "4 million words of the village", steps=3_000, batch=16, length=128, width=128,
            layers=2, rate=1e-2,
        ),
        partial(_gpt_of_language, "village", 4_000_000),
        partial(_measure_next, "village", 128),
    ),
    "elmo-village": Shipped(
        Recipe(
            "the sentences of 2 million words of the village, one a row", steps=3_000, batch=64,
            length=village.LONGEST, width=64, layers=2, rate=1.2e-2,
        ),
        _elmo_village,
        _measure_elmo_village,
    ),
    "bert-village": Shipped(
        Recipe(
            "the sentences of 2 million words of the village, one a row", steps=6_000, batch=64,
            length=village.LONGEST, width=64, layers=2, rate=1e-2,
        ),
        _bert_village,
        _measure_bert_village,
    ),
    "gpt-course": Shipped(
        Recipe(
            "8 million words of the course's language", steps=8_000, batch=16, length=256,
            width=128, layers=2, rate=1e-2, precision="bfloat16",
            shorter=((32, 800), (64, 500), (128, 500)),
        ),
        partial(_gpt_of_language, "language", COURSE_WORDS),
        partial(_measure_next, "language", 256),
    ),
    "awd-course": Shipped(
        Recipe(
            "8 million words of the course's language, in segments that follow each other",
            steps=20_000, batch=128, length=64, width=128, layers=2, rate=1.5e-2,
            precision="bfloat16", grain=8,
        ),
        _awd_course,
        partial(_measure_next, "language", 256),
    ),
    "elmo-course": Shipped(
        Recipe(
            "8 million words of the course's language, in windows of 64", steps=12_000, batch=256,
            length=64, width=96, layers=2, rate=1.2e-2,
        ),
        _elmo_course,
        _measure_elmo_course,
    ),
    "bert-course": Shipped(
        Recipe(
            "8 million words of the course's language, in windows of 128", steps=15_000, batch=64,
            length=128, width=128, layers=3, rate=6e-3, precision="bfloat16", hidden=0.4,
            ending=(2_500, 0.15), betas=(0.9, 0.999), rotary=True, heads=8, inner=256, grain=16,
        ),
        _bert_course,
        _measure_bert_course,
    ),
    "translation": Shipped(
        Recipe(
            f"{PAIRS:,} sentences with a drawn translation", steps=4_000, batch=64, length=20,
            width=64, layers=2, rate=1e-2,
        ),
        _translation,
        _measure_translation,
    ),
    "tagger": Shipped(
        Recipe(
            f"{PAIRS:,} sentences with a tag for each word", steps=3_000, batch=64, length=12,
            width=64, layers=2, rate=1e-2,
        ),
        _tagger,
        _measure_tagger,
    ),
    "xl-journey": Shipped(
        Recipe(
            "1 million words of the journey, in segments that follow each other", steps=2_500,
            batch=32, length=16, width=64, layers=2, rate=1e-2,
        ),
        _xl_journey,
        _measure_xl_journey,
    ),
    "xlnet-journey": Shipped(
        Recipe(
            "1 million words of the journey, in windows of 32", steps=4_000, batch=32,
            length=32, width=64, layers=2, rate=1e-2,
        ),
        _xlnet_journey,
        _measure_xlnet_journey,
    ),
    "gpt-addresses": Shipped(
        Recipe(
            "213 of 237 addresses of presidents (the numbers 5, 15, … are held out), in 4,000 "
            "pieces of bytes", steps=1_500, batch=8, length=512, width=256, layers=4, rate=5e-3,
            dropout=0.15, attention_dropout=0.0, shorter=((256, 3_000),), moved=True, rotary=True,
            grain=8,
        ),
        _gpt_addresses,
        _measure_gpt_addresses,
        _others_of_addresses,
        realtext.READERS,
    ),
    "bert-addresses": Shipped(
        Recipe(
            "213 of 237 addresses of presidents (the numbers 5, 15, … are held out), in 4,000 "
            "word pieces", steps=24_000, batch=16, length=128, width=128, layers=4, rate=4e-3,
            precision="bfloat16", shorter=((16, 900), (32, 300), (64, 300)), hidden=0.25,
            moved=True,
        ),
        _bert_addresses,
        _measure_bert_addresses,
        _others_of_blanks,
        realtext.READERS,
        per_byte_of_blanks,
    ),
    "gpt-base": Shipped(
        Recipe(
            "18,000 documents of facts, lists of questions and quizzes", steps=1_500, batch=16,
            length=96, width=64, layers=2, rate=1e-2,
        ),
        _base,
        _measure_base,
    ),
    "gpt-tuned": Shipped(
        Recipe(
            "22,000 conversations, after what gpt-base has read", steps=1_200, batch=64,
            length=96, width=64, layers=2, rate=6e-3,
        ),
        _tuned,
        _measure_tuned,
    ),
    "gpt-rewarded": Shipped(
        Recipe(
            "its own answers to four questions, after gpt-tuned (REINFORCE, leave one out)",
            steps=500, batch=8, length=96, width=64, layers=2, rate=2e-3,
        ),
        _rewarded,
        _measure_rewarded,
    ),
}  # fmt: skip
