"""What the notebooks train with: one text, one recipe, and models that are trained only once.

The recipe was found for a minute on two cores at width 128: one layer, Muon for the matrices of
the blocks, and a rate three times as high as is usual, for all weights. The experiments of the
ledger train with it. `MINUTE` reaches a lower loss: it uses bfloat16 where that is fast, a slower
average of squared gradients, and a GPT of eight heads with rotary positions, whose attention starts
by copying (`python -m labkit bench minute` measures it).
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from classroom.versions import NOT_TRAINING, result_version
from labkit.attention import Attention
from labkit.blocks import LanguageModel, initialise
from labkit.checks import clipped, shown
from labkit.corpus import (
    Batch,
    Batches,
    Tokens,
    Windows,
    from_documents,
    from_files,
    pad_rows,
    tokenize,
)
from labkit.heads import NextWord
from labkit.keeping import cache
from labkit.keeping.fingerprints import fingerprint
from labkit.keeping.processor import set_threads
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import BothDirections, NextToken, Objective, SkipGram
from labkit.plan import Plan
from labkit.text.tokenizers import Tokenizer
from labkit.text.tokens import NUMBER
from labkit.trainer import Trainer
from labkit.world import END, LANGUAGES, World, load_world

# One rule for all notebooks; a number that the user or a notebook sets stays.
set_threads()

RECIPE: dict[str, Any] = {
    "rate": 1.2e-2,
    "schedule": "linear",
    "optimizer": "muon",
    "decay": 0.05,
    "clip": 1.0,
    "precision": "float32",
    "device": "auto",
}
# Most words are rare in a small batch. AdamW takes too large a step for them if its average of
# squared gradients forgets them before they come again.
MINUTE: dict[str, Any] = {**RECIPE, "rate": 6e-3, "betas": (0.9, 0.999), "precision": "auto"}
"""For a GPT with eight heads and rotary positions, after `copying_start`."""
# In a minute, one layer comes nearer to the floor than two.
LAYERS, WIDTH, LENGTH, BATCH = 1, 128, 128, 8


def plan(steps: int, **changes: Any) -> Plan:
    """Return the recipe for this many steps, with changes."""
    return Plan(**{**RECIPE, "steps": steps, "warmup": max(1, steps // 20), **changes})


# ---- text


@dataclass(frozen=True)
class CourseText:
    """A text to learn from, and whole documents that were held out of it.

    Each document ends with the word `END`. `world` is the language that the text is from, None for
    a text of the reader's own: then no floor is known.
    """

    tokenizer: Tokenizer
    train: Tokens
    held_out: Tokens
    documents: list[list[str]]
    world: World | None

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        return len(self.tokenizer)

    @property
    def language(self) -> World:
        """The language that the text is from, in experiments that are on no other text."""
        assert self.world is not None
        return self.world

    def windows(self, batch: int, length: int, *, seed: int = 0, **choices: Any) -> Windows:
        """Batches to train on."""
        return Windows(self.train, batch=batch, length=length, seed=seed, **choices)

    def tests(self, length: int, *, batch: int = 32) -> list[Batch]:
        """The first words of each held-out document, after a separator; its end is a word, too."""
        separator = self.tokenizer.vocabulary.sep
        assert separator is not None
        rows = [[separator, *self.numbers(words[:length])] for words in self.documents]
        whole = Batch.of(*pad_rows(rows))
        return [whole[start : start + batch] for start in range(0, len(rows), batch)]

    def framed(self, texts: Iterable[Sequence[str]]) -> torch.Tensor:
        """Texts of one length as rows of tokens: [CLS] words [SEP]."""
        marks = self.tokenizer.vocabulary
        return torch.tensor([[marks.cls, *self.numbers(words), marks.sep] for words in texts])

    def numbers(self, words: Sequence[str]) -> list[int]:
        """The tokens of words, one each; the end of a document is the separator."""
        known = self.tokenizer.vocabulary
        assert known.sep is not None
        assert known.unk is not None
        numbers = (self.tokenizer.library.token_to_id(word) for word in words)
        return [
            known.sep if word == END else known.unk if number is None else number
            for word, number in zip(words, numbers, strict=True)
        ]

    def floor(self, objective: str, length: int, **choices: Any) -> float | None:
        """The lowest loss on `tests(length)`, where the language is known."""
        if self.world is None:
            return None
        documents = [words[:length] for words in self.documents]
        return self.world.floor(objective, documents, **choices).mean


def course_text(
    corpus: str | Path = "language", *, words: int = 300_000, held_out: int = 20_000, seed: int = 0
) -> CourseText:
    """Sample a language of the course ("language", "crawl", "foreign", or the small "village"
    and "journey"), or read a text file of yours.

    Words are tokens: in a text of your own, the 8,000 most frequent ones.
    """
    if str(corpus) in LANGUAGES:
        world = load_world(str(corpus))
        train = world.sample(words=words, seed=seed, split="train")
        tests = world.sample(words=held_out, seed=seed, split="held_out")
        tokenizer = Tokenizer.words([" ".join(world.vocabulary[1:])])
        known, asked = (tokenize(from_documents(side), tokenizer) for side in (train, tests))
        documents = [list(document.words) for document in tests]
        return CourseText(tokenizer, known, asked, documents, world)
    return _own_text(corpus)


def check_corpus(corpus: str | Path) -> None:
    """Refuse what is neither a language of the course nor a file or a pattern of files."""
    path = Path(corpus).expanduser()
    a_pattern = any(sign in str(corpus) for sign in "*?[")
    # `Path.is_file` raises where somebody gives the text itself, which is not a file name.
    if not (str(corpus) in LANGUAGES or os.path.isfile(path) or a_pattern):
        raise FileNotFoundError(
            f"corpus is {shown(str(corpus))}: give {', '.join(map(repr, LANGUAGES))}, or the path "
            f"of a text file (there is none at {clipped(str(path.absolute()), 300)})"
        )


def _own_text(corpus: str | Path) -> CourseText:
    """The text of a file, or of all files that match a pattern."""
    check_corpus(corpus)
    path = Path(corpus).expanduser()
    train, tests = from_files(path).split(held_out=0.1)
    if any(next(iter(side), None) is None for side in (train, tests)):
        raise ValueError(
            f"{path} has too few different documents to hold one out: end documents with blank "
            "lines"
        )
    tokenizer = Tokenizer.words(train.texts, size=8_000)
    documents = [[*tokenizer.pieces(tokenizer.encode(one.text)), END] for one in tests]
    refuse_unknown_words(tests.texts, tokenizer, path)
    known, asked = tokenize(train, tokenizer), tokenize(tests, tokenizer)
    return CourseText(tokenizer, known, asked, documents, None)


def refuse_unknown_words(texts: Iterable[str], tokenizer: Tokenizer, source: str | Path) -> None:
    """Refuse held-out texts that are mostly [UNK], whose loss would be low and mean nothing."""
    pieces = tokenizer.pieces(tokenizer.encode("\n".join(texts)))
    words = [piece for piece in pieces if any(map(str.isalnum, piece))]
    unknown = words.count("[UNK]") / max(1, len(words))
    if unknown > 0.5:
        raise ValueError(
            f"{source}: {unknown:.0%} of the held-out words are unknown: give a longer text, with "
            "spaces between its words (`labkit train gpt --text` needs none)"
        )


class Shuffled:
    """Batches of the given rows, in another order in each epoch."""

    def __init__(self, whole: Batch, batch: int, seed: int = 0) -> None:
        self.whole, self.batch, self.seed = whole, batch, seed
        self.steps = -(-len(whole) // batch)

    def at(self, step: int) -> Batch:
        """The batch of that step; the last one of an epoch may be smaller."""
        epoch, turn = divmod(step, self.steps)
        numbers = torch.Generator().manual_seed(self.seed + epoch)
        order = torch.randperm(len(self.whole), generator=numbers)
        return self.whole[order[self.batch * turn :][: self.batch]]


# ---- models


class Curve(NamedTuple):
    """How a run went: the loss of training, at some steps."""

    steps: list[int]
    losses: list[float]


def train_once(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    how: Plan,
    *,
    points: int = 200,
) -> Curve:
    """Train a model in place, or load the final weights of an earlier run that was the same.

    Weights that the plan averages end as their average. The model is left in `eval()` mode.
    """

    def make() -> Curve:
        trainer = Trainer(model, objective, batches, how)
        curve = _run(trainer, max(1, how.steps // points))
        if how.average != "none" and trainer.average.count:
            trainer.average.swap()
        model.cpu()
        return curve

    def write(curve: Curve, path: Path) -> None:
        save_model(model, str(path), metadata={"curve": json.dumps(curve)})

    def read(path: Path) -> Curve:
        with safe_open(path, framework="pt") as file:
            found = Curve(*json.loads(file.metadata()["curve"]))
        first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        try:
            load_model(model, path)
        except Exception:
            # Half of what is in the file must not be what training begins with.
            model.load_state_dict(first)
            raise
        return found

    # The text itself, and some of what is made of it, in case that takes code of the reader's own.
    seen = [batches, *(batches.at(int(step)) for step in np.linspace(0, how.steps - 1, 8))]
    learning = [name for name, weight in model.named_parameters() if weight.requires_grad]
    versions = result_version(NOT_TRAINING)
    key = fingerprint(versions, model, objective, methods(objective), seen, how, learning, points)
    curve = cache.kept(key, ".safetensors", make, write, read)
    model.eval()
    return curve


def methods(objective: Objective) -> list[FunctionType]:
    """The methods of an objective that the code version omits: a claim's, or a reader's own."""
    return [
        value
        for kind in type(objective).__mro__
        if not kind.__module__.startswith("labkit.")
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType) and not name.startswith("__")
    ]


def _run(trainer: Trainer, every: int) -> Curve:
    """Train to the end; each point of the curve is the mean since the one before it."""
    curve, since = Curve([], []), []
    for report in trainer.run():
        since.append(report.loss.detach())
        if report.step % every == 0 or report.step == report.steps:
            curve.steps.append(report.step)
            curve.losses.append(float(torch.stack(since).mean()))
            since.clear()
    return curve


def word_vectors(
    text: CourseText, steps: int, *, seed: int = 0, width: int = 64, reach: int = 5
) -> tuple[LanguageModel, Curve]:
    """A table of word vectors that learned to tell neighbours from noise, and its curve."""
    torch.manual_seed(seed)
    # There is no head: the vectors themselves answer.
    model = LanguageModel(WordVectors(WordVectorsConfig(text.vocabulary, width)), nn.Identity())
    objective = SkipGram(counts=counts(text), reach=reach)
    batches = text.windows(16, 64, seed=seed, apart=True)
    # A word is met in few steps only, so its vector must move far in each, and never shrink.
    how = plan(steps, seed=seed, optimizer="adamw", rate=3e-2, decay=0.0)
    return model, train_once(model, objective, batches, how)


def counts(text: CourseText) -> torch.Tensor:
    """How often each token occurs in the training text; special tokens never."""
    tokens = torch.from_numpy(text.train.arrays.marked.astype(np.int64) & NUMBER)
    found = torch.bincount(tokens, minlength=text.vocabulary)
    found[list(text.tokenizer.vocabulary.special)] = 0
    return found


def random_words(world: World | None, tokenizer: Tokenizer) -> torch.Tensor | None:
    """How often each token replaces a masked one: [V], so that the exact floor is that of training.

    No word that a document remembers is ever drawn; None where no floor is known.
    """
    if world is None:
        return None
    frequencies = torch.zeros(len(tokenizer))
    for word, drawn in zip(world.vocabulary, world.replacements, strict=True):
        if drawn:
            frequencies[tokenizer[word]] = 1.0
    return frequencies


def elmo(
    text: CourseText,
    steps: int,
    *,
    seed: int = 0,
    objective: Objective | None = None,
    sizes: Mapping[str, Any],
) -> tuple[LanguageModel, Curve]:
    """A small ELMo that has read a text from both sides, and its curve."""
    model = untrained_elmo(text, seed=seed, **sizes)
    batches = text.windows(16, 16, seed=seed)
    how = plan(steps, seed=seed, rate=2e-2)
    return model, train_once(model, objective or BothDirections(), batches, how)


def untrained_elmo(
    text: CourseText,
    *,
    seed: int = 0,
    width: int = 32,
    inner: int | None = None,
    layers: int = 2,
    kernels: tuple[tuple[int, int], ...] = ((1, 8), (2, 16), (3, 32)),
) -> LanguageModel:
    """The same before it has read anything."""
    torch.manual_seed(seed)
    sizes = ELMoConfig(
        text.vocabulary, longest=16, letter_width=8, kernels=kernels, highways=1, width=width,
        inner=inner or 2 * width, layers=layers, dropout=0.0,
    )  # fmt: skip
    backbone = ELMo(sizes, text.tokenizer.pieces(range(text.vocabulary)))
    # Its words are spelled, so the head has vectors of its own.
    return LanguageModel(backbone, NextWord(nn.Embedding(text.vocabulary, width)))


def untrained_awd_lstm(
    vocabulary: int, width: int, *, inner: int | None = None, layers: int = 2, seed: int = 0
) -> LanguageModel:
    """A small AWD-LSTM that has read nothing; without dropout, for it reads each word only once."""
    torch.manual_seed(seed)
    sizes = AWDLSTMConfig(
        vocabulary, width, inner or width, layers, dropout=0.0, hidden_dropout=0.0,
        input_dropout=0.0, embedding_dropout=0.0, weight_dropout=0.0,
    )  # fmt: skip
    backbone = AWDLSTM(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def gpt(
    text: CourseText,
    steps: int,
    *,
    seed: int = 0,
    width: int = WIDTH,
    layers: int = LAYERS,
    length: int = LENGTH,
    batch: int = BATCH,
    **changes: Any,
) -> tuple[LanguageModel, Curve]:
    """A small GPT that has read a text, and its curve."""
    model = untrained_gpt(text, seed=seed, width=width, layers=layers, length=length)
    batches = text.windows(batch, length, seed=seed)
    return model, train_once(model, NextToken(), batches, plan(steps, seed=seed, **changes))


def untrained_gpt(
    text: CourseText,
    *,
    seed: int = 0,
    width: int = WIDTH,
    layers: int = LAYERS,
    length: int = LENGTH,
) -> LanguageModel:
    """The same before it has read anything."""
    torch.manual_seed(seed)
    sizes = GPTConfig(text.vocabulary, width, layers, max(1, width // 32), length + 1, dropout=0.0)
    backbone = GPT(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def untrained_transformer_xl(
    vocabulary: int, width: int, segment: int, memory: int, *, layers: int = 2, seed: int = 0
) -> LanguageModel:
    """A small Transformer-XL of four heads that has read nothing."""
    torch.manual_seed(seed)
    sizes = TransformerXLConfig(
        vocabulary, width, layers, 4, segment, memory, inner=2 * width, dropout=0.0
    )
    backbone: Any = TransformerXL(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def untrained_xlnet(
    vocabulary: int, width: int, *, layers: int = 2, seed: int = 0
) -> LanguageModel:
    """A small XLNet of four heads that has read nothing."""
    torch.manual_seed(seed)
    sizes = XLNetConfig(vocabulary, width, layers, 4, inner=2 * width, dropout=0.0)
    backbone = XLNet(sizes)
    return LanguageModel(backbone, NextWord(backbone.token, bias=True))


def larger_weights(model: nn.Module, std: float = 0.1) -> nn.Module:
    """Draw first weights that suit a width of 64: those of BERT, 0.02, suit a width of 768.

    With weights that are too small, attention begins as a plain mean and takes long to change.
    """
    initialise(model, std)
    backbone: Any = model.backbone
    if backbone.position is not None:
        nn.init.normal_(backbone.position.weight, std=std)
    return model


@torch.no_grad()
def copying_start(model: nn.Module) -> None:
    """Let attention start by copying the words that it attends to.

    The identity is added to the initial value and output matrices of each layer, so a word that is
    attended to becomes more probable at once, and what is left to learn is where to look. Trockman
    and Kolter (2023) initialise these matrices too, with the opposite sign, for images.
    """
    for module in model.modules():
        if isinstance(module, Attention):
            identity = torch.eye(module.width)
            module.query_key_value.weight[2 * module.width :] += identity
            module.out.weight += identity
