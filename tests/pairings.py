"""Every model with every objective that suits it, small, for tests that hold for all of them."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.blocks import Classifier, LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import Label, MaskedWord, NextWord, Pooled
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import Convolutions, ConvolutionsConfig, Recurrent, RecurrentConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    CBOW,
    Both,
    BothDirections,
    Distillation,
    Labels,
    MaskedToken,
    NextSentence,
    NextToken,
    Objective,
    Permutation,
    SentenceOrder,
    SkipGram,
    Sum,
    auxiliary,
)
from labkit.text.vocabulary import Vocabulary

V, D = 60, 16
PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = Vocabulary(V, PAD, UNK, CLS, SEP, MASK, (PAD, UNK, CLS, SEP, MASK))
COUNTS = torch.cat([torch.zeros(5), torch.arange(1.0, V - 4)])
SMALL = {"width": D, "layers": 2, "heads": 2, "context": 16, "dropout": 0.0}
LENGTHS = (9, 7, 4, 8)


def chance(batch: Batch, seed: int = 1, step: int = 0) -> Chance:
    return Chance(seed, step, batch.rows)


@lru_cache
def batch(labels: str = "text") -> Batch:
    """[CLS] a [SEP] b [SEP], padded; every word stands once, so that a word is a place."""
    rows, length = len(LENGTHS), max(LENGTHS)
    tokens = (5 + torch.randperm(V - 5, generator=torch.Generator().manual_seed(0)))[
        : rows * length
    ]
    tokens = tokens.view(rows, length).clone()
    place, lengths = torch.arange(length), torch.tensor(LENGTHS)[:, None]
    tokens[:, 0] = CLS
    tokens[place == lengths // 2] = SEP
    tokens[place == lengths - 1] = SEP
    real = place < lengths
    segments = ((place > lengths // 2) & real).long()
    words = (place // 2).expand(rows, length)
    given = {
        "text": torch.tensor([1, 0, 1, 0]),
        "choices": torch.tensor([1, 1, 0, 0]),
        "tags": (tokens % 3).masked_fill(tokens < 5, -1),
    }[labels]
    tokens = tokens.masked_fill(~real, PAD)
    return Batch.of(tokens, real, segments=segments, words=words, labels=given)


def words_only() -> Batch:
    """The same without special tokens."""
    whole = batch()
    tokens = torch.where(whole.tokens < 5, 5 + torch.arange(9) + 9 * whole.rows[:, None], 0)
    tokens = torch.where((whole.tokens < 5) & whole.real, tokens, whole.tokens)
    return Batch.of(tokens, whole.real)


def bert(head: Callable[[BERT], nn.Module] | None = None, **changes) -> LanguageModel:
    backbone = BERT(BERTConfig(V, **(SMALL | changes)))
    model = LanguageModel(
        backbone, MaskedWord(backbone.token, D) if head is None else head(backbone)
    )
    model.pair = Label(D, 2)
    return model


def gpt(**changes) -> LanguageModel:
    backbone = GPT(GPTConfig(V, **(SMALL | changes)))
    return LanguageModel(backbone, NextWord(backbone.token))


def gpt_with_label() -> Classifier:
    backbone = GPT(GPTConfig(V, **SMALL))
    model = Classifier(backbone, Label(D, 3, pooled=False))
    model.words = NextWord(backbone.token)
    return model


def xlnet(head: nn.Module | None = None, memory: int = 0) -> LanguageModel:
    backbone = XLNet(XLNetConfig(V, **(SMALL | {"memory": memory})))
    return LanguageModel(backbone, head or NextWord(backbone.token, bias=True))


def transformer_xl(memory: int = 6) -> LanguageModel:
    backbone = TransformerXL(TransformerXLConfig(V, **(SMALL | {"memory": memory})))
    return LanguageModel(backbone, NextWord(backbone.token))


def awd_lstm() -> LanguageModel:
    none = ("dropout", "hidden_dropout", "input_dropout", "embedding_dropout", "weight_dropout")
    backbone = AWDLSTM(AWDLSTMConfig(V, width=D, inner=20, layers=2, **dict.fromkeys(none, 0.0)))
    return LanguageModel(backbone, NextWord(backbone.token))


def elmo() -> LanguageModel:
    sizes = {"longest": 6, "kernels": ((1, 4), (2, 8)), "width": 8, "inner": 12, "dropout": 0.0}
    backbone = ELMo(ELMoConfig(V, **sizes), [f"w{i:02}" for i in range(V)])
    return LanguageModel(backbone, NextWord(nn.Embedding(V, 8)))


def recurrent(**changes) -> LanguageModel:
    backbone = Recurrent(RecurrentConfig(V, width=D, layers=2, **changes))
    return LanguageModel(backbone, NextWord(backbone.token))


def pooled(backbone: nn.Module) -> Classifier:
    return Classifier(backbone, Pooled(backbone.width, 2, inner=None))


def vectors() -> LanguageModel:
    backbone = WordVectors(WordVectorsConfig(V, D))
    nn.init.normal_(backbone.output.weight)
    return LanguageModel(backbone, nn.Identity())


class Pairing(NamedTuple):
    """A model, an objective that suits it, and a batch."""

    name: str
    make: Callable[[], nn.Module]
    objective: Callable[[], Objective]
    batch: Callable[[], Batch] = batch

    def model(self) -> nn.Module:
        """The model in double precision, with weights large enough to see what depends on what."""
        torch.manual_seed(0)
        model = self.make().double().eval()
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.data.mul_(4.0 if weights.std() < 0.1 else 1.0)
        return model


def masked(**how) -> Callable[[], MaskedToken]:
    return lambda: MaskedToken(vocabulary=VOCABULARY, **({"rate": 0.4} | how))


def permuted(**how) -> Callable[[], Permutation]:
    return lambda: Permutation(vocabulary=VOCABULARY, **({"share": 0.5} | how))


def distilled() -> Distillation:
    torch.manual_seed(1)
    teacher = bert().double().eval()
    return Distillation(task=masked()(), teacher=teacher)


def tags() -> Batch:
    return batch("tags")


def choices() -> Batch:
    return batch("choices")


def label(width: int, pooled: bool = True) -> Callable[[BERT], nn.Module]:
    return lambda _: Label(D, width, pooled=pooled)


PAIRINGS = [
    Pairing("GPT, next word", gpt, NextToken),
    Pairing("GPT-1, next word", lambda: gpt(norm_first=False), NextToken),
    Pairing("GPT-3, next word", lambda: gpt(band=2, layers=4), NextToken),
    Pairing("GPT, L3", gpt_with_label, lambda: auxiliary(0.5)),
    Pairing("GPT, label", gpt_with_label, lambda: Labels(position="last")),
    Pairing("BERT, next word", bert, NextToken),
    Pairing("BERT, masked", bert, masked()),
    Pairing("BERT, whole words", bert, masked(unit="word")),
    Pairing("BERT, spans", bert, masked(unit="span")),
    Pairing("RoBERTa, masked", lambda: bert(segments=1, unused_positions=2), masked()),
    Pairing("BERT, static", bert, masked(static=True, shares=(0.2, 0.4, 0.4))),
    Pairing("ALBERT, masked", lambda: bert(shared=True, embedding=8), masked()),
    Pairing(
        "BERT, masked and next sentence",
        bert,
        lambda: Both(parts=(masked()(), NextSentence(head="pair"))),
    ),
    Pairing(
        "ALBERT, masked plus order",
        lambda: bert(shared=True, embedding=8),
        lambda: Sum(parts=(masked()(), SentenceOrder(head="pair")), weights=(1.0, 0.3)),
    ),
    Pairing("BERT, next sentence", lambda: bert(label(2)), NextSentence),
    Pairing("BERT, label", lambda: bert(label(2)), Labels),
    Pairing("BERT, tags", lambda: bert(label(3, False)), lambda: Labels(position="each"), tags),
    Pairing("BERT, choices", lambda: bert(label(1)), lambda: Labels(choices=2), choices),
    Pairing("DistilBERT, distilled", lambda: bert(segments=0, layers=1), distilled),
    Pairing("XLNet, permuted", xlnet, permuted()),
    Pairing("XLNet, all permuted", xlnet, permuted(share=1.0)),
    Pairing("XLNet, spans", xlnet, permuted(spans=True)),
    Pairing("XLNet, permuted, memory", lambda: xlnet(memory=5), permuted(carry=True)),
    Pairing("XLNet, label", lambda: xlnet(Label(D, 2)), lambda: Labels(position="last")),
    Pairing("XLNet, next word", xlnet, NextToken),
    Pairing("Transformer-XL, next word", transformer_xl, lambda: NextToken(carry=True)),
    Pairing("GPT, next word, memory", gpt, lambda: NextToken(carry=True)),
    Pairing("AWD-LSTM, next word", awd_lstm, lambda: NextToken(carry=True, ar=2.0, tar=1.0)),
    Pairing("RNN, next word", lambda: recurrent(cell="elman"), NextToken),
    Pairing(
        "LSTM both ways, label",
        lambda: pooled(Recurrent(RecurrentConfig(V, width=D, both_ways=True))),
        lambda: Labels(position="pooled"),
    ),
    Pairing(
        "CNN, label",
        lambda: pooled(Convolutions(ConvolutionsConfig(V, width=D, channels=8))),
        lambda: Labels(position="pooled"),
    ),
    Pairing("ELMo, both directions", elmo, BothDirections, words_only),
    Pairing(
        "word vectors, skip-gram", vectors, lambda: SkipGram(counts=COUNTS, reach=2, threshold=None)
    ),
    Pairing("word vectors, CBOW", vectors, lambda: CBOW(counts=COUNTS, reach=2, threshold=None)),
]


def named(name: str) -> Pairing:
    """The pairing of this name."""
    return next(pairing for pairing in PAIRINGS if pairing.name == name)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The gradients of a loss, zeros where it does not depend on a weight."""
    weights = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    pairs = zip(weights.items(), found, strict=True)
    return {name: torch.zeros_like(w) if g is None else g for (name, w), g in pairs}
