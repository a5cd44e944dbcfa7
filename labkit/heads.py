"""Heads, which map hidden states to the scores of words, labels or positions.

A head is given only the states of the positions that are predicted, [N, D]; `Pooled` and `Span` are
given those of the whole text, [B, T, D]. Word heads also give the loss of each target, so that a
head may compute it without a full softmax.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import ACTIVATIONS, Classifier, initialise
from labkit.checks import check_choice, check_whole
from labkit.layers import Dropout, replaceable


def exact(scores: Tensor) -> Tensor:
    """Scores in at least float32, since a softmax sums over many words."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def one_score(scores: Tensor, head: str) -> Tensor:
    """The single score that a head gives to each state; refuse a head that gives several."""
    if scores.shape[-1] != 1:
        raise ValueError(
            f"the head {head!r} gives {scores.shape[-1]} scores where one is needed: build it for "
            f"1 label, model.{head} = Label(width, 1)"
        )
    return scores[..., 0]


@replaceable
def losses(hidden_ND: Tensor, words_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    """-log softmax(h W' + b) at each target: [N]"""
    scores_NV = F.linear(hidden_ND, words_VD, bias_V)
    return cross_entropy(scores_NV, targets_N)


def cross_entropy(scores_NV: Tensor, targets_N: Tensor) -> Tensor:
    """-log softmax(scores) at each target; torch's own would leave out the target -100."""
    return F.cross_entropy(exact(scores_NV), targets_N, reduction="none", ignore_index=-(2**31))


def _table(embedding: Any) -> Tensor:
    """The vectors of an embedding [V, D]; refuse one that spells its words or has pieces."""
    vectors = getattr(embedding, "weight", None)
    if not isinstance(vectors, Tensor):
        raise TypeError(
            f"a {type(embedding).__name__} has no single table of words for a head: give "
            "nn.Embedding(vocabulary, config.width) for an ELMo that reads letters, or use "
            "AdaptiveWord(backbone.token) for adaptive embeddings"
        )
    return vectors


class WordHead(nn.Module):
    """The base class of heads that score all words of the vocabulary."""

    def losses_N(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """-log p(target) at each predicted position."""
        return cross_entropy(self(hidden_ND), targets_N)


class NextWord(WordHead):
    """softmax(h W'), with W the embedding of the words when it is tied."""

    def __init__(self, embedding: nn.Embedding, *, tied: bool = True, bias: bool = False) -> None:
        super().__init__()
        vocabulary, width = _table(embedding).shape
        self.words = nn.Linear(width, vocabulary, bias=bias)
        if tied:
            self.words.weight = embedding.weight

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """The scores of all words [N, V]."""
        return self.words(hidden_ND)

    def losses_N(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """-log p(target) at each predicted position."""
        return losses(hidden_ND, self.words.weight, self.words.bias, targets_N)


class MaskedWord(WordHead):
    """BERT's head: one more layer, then the embedding of the words, transposed, and a bias."""

    def __init__(
        self,
        embedding: nn.Embedding,
        width: int | None = None,
        *,
        activation: str = "gelu",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        vocabulary, narrow = _table(embedding).shape
        self.dense = nn.Linear(narrow if width is None else width, narrow)
        check_choice("activation", activation, *ACTIVATIONS)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(narrow, eps=eps)
        self.words = nn.Linear(narrow, vocabulary)
        self.words.weight = embedding.weight
        initialise(self.dense)
        nn.init.zeros_(self.words.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """The scores of all words [N, V]."""
        return self.words(self._transform(hidden_ND))

    def losses_N(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """-log p(target) at each predicted position."""
        return losses(self._transform(hidden_ND), self.words.weight, self.words.bias, targets_N)

    def _transform(self, hidden_ND: Tensor) -> Tensor:
        """The layer before the words: norm(activation(dense(h)))"""
        return self.norm(self.activation(self.dense(hidden_ND)))


LABEL_ACTIVATIONS = {**ACTIVATIONS, "tanh": F.tanh}


class Label(nn.Module):
    """Scores of labels from one state: of a whole text (BERT: the first), or of each word."""

    def __init__(
        self,
        width: int,
        labels: int,
        *,
        pooled: bool = True,
        pool: nn.Linear | None = None,
        activation: str = "tanh",
        dropout: float = 0.0,
        each: bool = False,
    ) -> None:
        """`pool`: the layer of a backbone that was pre-trained with one, to share it.

        `each`: each word has a label, as under a tagger; the scores are computed alike.
        """
        super().__init__()
        check_whole("labels", labels, least=1)
        self.each = each
        self.pool = (nn.Linear(width, width) if pool is None else pool) if pooled else None
        check_choice("activation", activation, *LABEL_ACTIVATIONS)
        self.activation = LABEL_ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.labels = nn.Linear(width, labels)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """The scores of all labels [N, labels]."""
        if self.pool is not None:
            hidden_ND = self.activation(self.pool(hidden_ND))
        return self.labels(self.dropout(hidden_ND))


class Pooled(nn.Module):
    """Scores of labels for a whole text, from all of its states (ULMFiT: last, max and mean).

    Howard and Ruder 2018, section 3.3: a recurrent network's last state may have forgotten words
    that matter. `inner` is the width of the hidden layer; None means no hidden layer.
    """

    def __init__(
        self,
        width: int,
        labels: int,
        *,
        parts: tuple[str, ...] = ("last", "max", "mean"),
        inner: int | None = 50,
        dropout: float = 0.0,
        normalised: bool = False,
    ) -> None:
        super().__init__()
        check_whole("labels", labels, least=1)
        if not parts or not set(parts) <= {"last", "max", "mean"}:
            raise ValueError(f"states are pooled by last, max or mean, or several: not {parts}")
        self.parts, self.normalised = parts, normalised
        self.dropout = Dropout(dropout)
        given = width * len(parts)
        self.inner = None if inner is None else nn.Linear(given, inner)
        self.labels = nn.Linear(given if inner is None else inner, labels)

    def forward(self, hidden_BTD: Tensor, real_BT: Tensor | None = None) -> Tensor:
        """The scores of all labels [B, labels], from the real positions only."""
        if real_BT is None:
            real_BT = torch.ones_like(hidden_BTD[:, :, 0], dtype=torch.bool)
        pooled = torch.cat([pool(hidden_BTD, real_BT, part) for part in self.parts], dim=-1)
        if self.normalised:
            pooled = F.normalize(pooled, dim=-1)
        if self.inner is not None:
            pooled = self.inner(self.dropout(pooled)).relu()
        return self.labels(self.dropout(pooled))


def pool(hidden_BTD: Tensor, real_BT: Tensor, part: str) -> Tensor:
    """The last, the largest or the mean of each feature over the real positions; of none, zero."""
    if part == "mean":
        count_B1 = real_BT.sum(dim=1, keepdim=True).clamp(min=1)
        return (hidden_BTD * real_BT[:, :, None]).sum(dim=1) / count_B1
    if part == "max":
        largest_BD = hidden_BTD.masked_fill(~real_BT[:, :, None], -math.inf).amax(dim=1)
        return largest_BD.masked_fill(~real_BT.any(dim=1)[:, None], 0.0)
    positions_T = torch.arange(real_BT.shape[1], device=real_BT.device)
    last_B = (positions_T * real_BT).argmax(dim=1)
    rows_B = torch.arange(len(last_B), device=real_BT.device)
    return hidden_BTD[rows_B, last_B] * real_BT.any(dim=1)[:, None]


class Span(nn.Module):
    """Where an answer starts and where it ends: two scores for each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ends = nn.Linear(width, 2)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """[B, T, 2]"""
        return self.ends(hidden_BTD)


def tied(head: Any, embedding: nn.Embedding) -> bool:
    """Whether a head uses the embedding's own weights."""
    return getattr(head, "words", None) is not None and head.words.weight is embedding.weight


# ---- the heads of a model ----------------------------------------------------------------------


def head_of(model: Any, name: str) -> Any:
    """The head of this name, in a model that has one."""
    if not hasattr(model, "backbone"):
        raise ValueError(
            f"the model is a bare {type(model).__name__}: put a head on it, such as "
            "LanguageModel(backbone, NextWord(backbone.token))"
        )
    if not hasattr(model, name):
        heads = [child for child, _ in model.named_children() if child != "backbone"]
        raise ValueError(f"the model has no head {name!r}: it has {', '.join(heads)}")
    return getattr(model, name)


def check_scores_words(model: Any) -> None:
    """Refuse a bare backbone, and the head of a task, whose labels would be taken for words."""
    head = head_of(model, "head")
    if isinstance(model, Classifier) or isinstance(head, Label | Pooled | Span):
        raise ValueError(
            f"the {type(model).__name__} of {type(model.backbone).__name__} has the head "
            f"{type(head).__name__}, which scores no words: give a LanguageModel, such as "
            "labkit.transfer.language_model_of(model, like=pretrained)"
        )


def check_next_word(model: Any, problem: str) -> None:
    """Refuse a model that does not predict the next word; `problem` if it reads from both sides."""
    check_scores_words(model)
    if not model.backbone.causal:
        raise ValueError(
            f"{type(model.backbone).__name__} {problem}: use labkit.writing.filling, or a causal "
            "model"
        )
