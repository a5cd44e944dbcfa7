"""Claims of notebook 04: attention, search, context, shared tables and pre-training.

All use the two languages of `classroom.tasks.translating`. Read `attention_bottleneck` first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from classroom.ledger import Measured, claim
from classroom.models.recipes import plan, train_once
from classroom.models.scaling_runs import document_losses
from classroom.tasks import tagging, translating
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch, Epochs, pad_rows
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import Labels, NextToken, Objective, Translation
from labkit.world.translation import Pair


@dataclass(frozen=True)
class Size:
    """How large the experiments of a profile are."""

    pairs: int = 1_000
    """To learn from."""
    steps: int = 12
    tests: int = 30
    few: int = 200
    """Pairs for a translator whose encoder has read more."""


SIZES = {
    "smoke": Size(),
    "laptop": Size(pairs=20_000, steps=400, tests=300, few=1_000),
    "gpu": Size(pairs=60_000, steps=2_000, tests=1_000, few=1_000),
}


def _learn(model: Any, rows: Any, steps: int, seed: int, objective: Objective | None = None) -> Any:
    """The model after so many steps by the recipe of the notebook."""
    how = plan(steps, optimizer="adamw", rate=5e-3, decay=0.0, seed=seed)
    train_once(model, objective or Translation(begin=translating.begin()), rows, how)
    return model


def _pairs(profile: str, seed: int) -> tuple[list[Pair], list[Pair]]:
    """The pairs to learn from, and those that are asked: both are drawn anew for each seed."""
    size = SIZES[profile]
    drawn = translating.pairs("train", size.pairs, seed=seed)
    return drawn, translating.pairs("held_out", size.tests, seed=seed)


def _shares(model: Any, texts: Sequence[Pair]) -> list[float]:
    """The share of right words of each text, after the right words."""
    return [
        sum(a == b for a, b in zip(words, [*text.target, ""], strict=True)) / len(words)
        for text, words in zip(texts, translating.first_choices(model, texts), strict=True)
    ]


def _losses(model: Any, pairs: Sequence[Pair]) -> list[float]:
    """The loss of each sentence, in nats per word."""
    logs = translating.log_probabilities(model, pairs)
    return [-log / (len(pair.target) + 1) for log, pair in zip(logs, pairs, strict=True)]


def _floors(pairs: Sequence[Pair]) -> float:
    """The mean of the lowest possible losses of the sentences."""
    return sum(translating.floor([pair]) for pair in pairs) / len(pairs)


def attention_bottleneck(profile: str, seed: int) -> Measured:
    """Texts of one sentence and of three, by recurrent networks with and without attention.

    The Transformer is shown beside them.
    """
    drawn, asked = _pairs(profile, seed)
    texts = [text for count in (1, 2, 3) for text in translating.joined(drawn, count)]
    rows = translating.pair_batches(texts, batch=32, seed=seed)
    made = {
        "one vector": translating.one_vector(seed), "attention": translating.with_attention(seed),
        "Transformer": translating.transformer(seed),
    }  # fmt: skip
    arms, best = {}, {}
    for name, model in made.items():
        _learn(model, rows, SIZES[profile].steps, seed)
        for count, sentences in ((1, "1 sentence"), (3, "3 sentences")):
            arm = f"{name}, {sentences}"
            arms[arm] = _shares(model, translating.joined(asked, count))
            best[arm] = translating.best_tokens(asked, count)
    return Measured(arms, best, shared=False)


def beam_search(profile: str, seed: int) -> Measured:
    """The chance that a drawn translation is the written one: by greedy search and by a beam."""
    drawn, asked = _pairs(profile, seed)
    model = translating.transformer(seed)
    _learn(model, translating.pair_batches(drawn, seed=seed), SIZES[profile].steps // 2, seed)
    known = [translating.translator().translations(pair.source) for pair in asked]
    arms = {}
    for name, beams in (("greedy", 1), ("beam of 4", 4)):
        written = [translating.searched(model, pair.source, beams=beams)[0] for pair in asked]
        both = zip(known, written, strict=True)
        arms[name] = [chances.get(tuple(words), 0.0) for chances, words in both]
    highest = sum(max(chances.values()) for chances in known) / len(known)
    return Measured(arms, dict.fromkeys(arms, highest), shared=False)


def context_decides(profile: str, seed: int) -> Measured:
    """The tags of ambiguous words: from the word alone, from the left, from the sentence."""
    drawn, asked = _pairs(profile, seed)
    rows = tagging.tagged([pair.source for pair in drawn], seed=seed)
    some = [pair.source for pair in asked if set(pair.source) & tagging.ambiguous()]
    arms = {"best possible": [tagging.best_tags([words])[1] for words in some]}
    for name, kind in (
        ("word alone", "bag"), ("RNN from the left", "RNN"), ("Transformer encoder", "Transformer"),
    ):  # fmt: skip
        tagger = tagging.tagger(kind, seed)
        _learn(tagger, rows, SIZES[profile].steps, seed, Labels(position="each"))
        arms[name] = [tagging.tag_accuracy([words], [_tags(tagger, words)])[1] for words in some]
    highest = sum(arms["best possible"]) / len(some)
    return Measured(arms, dict.fromkeys(arms, highest), shared=False)


@torch.no_grad()
def _tags(tagger: Any, words: Sequence[str]) -> list[str]:
    """The likeliest tag of each word."""
    scores = tagger(torch.tensor([translating.numbers(words)[:-1]]))[0]
    return [tagging.tags()[tag] for tag in scores.argmax(dim=-1).tolist()]


def tied_embeddings(profile: str, seed: int) -> Measured:
    """One table of words for source, target and output, against an output of its own."""
    drawn, asked = _pairs(profile, seed)
    rows = translating.pair_batches(drawn, seed=seed)
    arms = {}
    for name, tied in (("one table", True), ("untied output", False)):
        model = translating.transformer(seed)
        model.head = NextWord(model.backbone.token, tied=tied)
        arms[name] = _losses(_learn(model, rows, SIZES[profile].steps, seed), asked)
    return Measured(arms, dict.fromkeys(arms, _floors(asked)), shared=False)


@dataclass(frozen=True, eq=False)
class Hidden(Epochs):
    """Sentences to be written again, of which 15 % of the words cannot be read."""

    rows: translating.Labelled

    @property
    def size(self) -> int:
        """How many sentences there are."""
        return self.rows.size

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The sentences with these numbers, with other words hidden in each epoch."""
        batch = self.rows.rows_of(examples, chance)
        mask = translating.tokenizer().vocabulary.mask
        assert mask is not None
        hidden = chance.uniform("hidden", batch.tokens.shape[1]) < 0.15
        batch.tokens[hidden & batch.real & (batch.tokens != translating.end())] = mask
        return batch


def pretrained_encoder(profile: str, seed: int) -> Measured:
    """A few pairs, for a translator whose encoder has restored hidden words, and for a new one."""
    size = SIZES[profile]
    drawn, asked = _pairs(profile, seed)
    plain = [Pair(pair.source, pair.source) for pair in drawn]
    few = translating.pair_batches(drawn[: size.few], seed=seed)
    reader: Any = translating.transformer(seed)
    rows = Hidden(translating.pair_batches(plain, seed=seed), batch=64, seed=seed)
    _learn(reader, rows, size.steps, seed)
    arms = {}
    for name in ("from scratch", "encoder pre-trained"):
        model: Any = translating.transformer(seed)
        if name == "encoder pre-trained":
            model.backbone.token.load_state_dict(reader.backbone.token.state_dict())
            model.backbone.encoder.load_state_dict(reader.backbone.encoder.state_dict())
        arms[name] = _losses(_learn(model, few, size.steps // 2, seed), asked)
    return Measured(arms, dict.fromkeys(arms, _floors(asked)), shared=False)


def second_language(profile: str, seed: int) -> Measured:
    """A language model of the target language, with new layers or with those of the source's."""
    size = SIZES[profile]
    drawn, asked = _pairs(profile, seed)
    first, second = (_text([getattr(pair, side) for pair in drawn], seed)
                     for side in ("source", "target"))  # fmt: skip
    rows = _text([pair.target for pair in asked], seed)
    tests = Batch.of(rows.source, rows.real)
    before = _learn(_language_model(seed), first, size.steps, seed, NextToken())
    arms = {}
    for when, steps in (("early", size.steps // 8), ("late", size.steps)):
        for name in ("from scratch", "transferred"):
            model = _language_model(seed)
            if name == "transferred":
                # The words are new, and so are their vectors; the layers are those of the other.
                new = {key for key in model.state_dict() if "token" in key or "head" in key}
                layers = {k: v for k, v in before.state_dict().items() if k not in new}
                model.load_state_dict(layers, strict=False)
            _learn(model, second, max(2, steps), seed, NextToken())
            arms[f"{when}, {name}"] = document_losses(model, [tests])
    return Measured(arms, shared=False)


def _text(sentences: Sequence[Sequence[str]], seed: int) -> translating.Labelled:
    """Rows of one language: the beginning, the words, the end."""
    rows = [[translating.begin(), *translating.numbers(words)] for words in sentences]
    tokens, real = pad_rows(rows)
    return translating.Labelled(tokens, real, torch.zeros_like(tokens), batch=64, seed=seed)


def _language_model(seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    sizes = GPTConfig(len(translating.tokenizer()), 64, 2, 4, context=32, dropout=0.0)
    backbone = GPT(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


CLAIMS = (
    claim("attention-bottleneck", attention_bottleneck),
    claim("beam-search", beam_search),
    claim("context-decides", context_decides),
    claim("tied-embeddings", tied_embeddings),
    claim("pretrained-encoder", pretrained_encoder),
    claim("second-language", second_language),
)
