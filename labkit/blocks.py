"""What the models of the course are built from.

A backbone reads tokens and gives hidden states; a head turns hidden states into answers.
`LanguageModel(backbone, head)` is what pre-training trains, `Classifier(backbone, head)` is what
transfer makes of it: that is the course in one line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import KeysValues


class States(NamedTuple):
    """What a backbone gives back."""

    layers: tuple[Tensor, ...]
    """Hidden states [B, T, D]: what went into the first layer, then what came out of each."""
    memory: tuple[Any, ...] | None = None
    """What the next segment may look back to, one entry per layer; None: nothing is kept."""

    @property
    def hidden(self) -> Tensor:
        """The states above the last layer [B, T, D]."""
        return self.layers[-1]


class LanguageModel(nn.Module):
    """A backbone and the head that predicts words: what pre-training trains."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, tokens_BT: Tensor, **inputs: Any) -> Tensor:
        """The scores of every word at every position [B, T, V]."""
        return self.head(self.backbone(tokens_BT, **inputs).hidden)


class Classifier(nn.Module):
    """A backbone and a head that answers a question: what transfer makes of it."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, tokens_BT: Tensor, **inputs: Any) -> Tensor:
        """The scores that the head gives to the states of the last layer."""
        return self.head(self.backbone(tokens_BT, **inputs).hidden)


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation of GELU by tanh that GPT uses."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
}


class FeedForward(nn.Module):
    """Each position thinks for itself: widen, bend, narrow."""

    def __init__(
        self, width: int, inner: int, *, activation: str = "gelu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """narrow(dropout(activation(widen(x))))"""
        return self.narrow(self.dropout(self.activation(self.widen(x_BTD))))


class Block(nn.Module):
    """Attention, then a feed-forward, each added to what it was given and normalised.

    norm_first (GPT-2 on):       x + f(norm(x))
    otherwise (Transformer, GPT, BERT): norm(x + f(x))
    """

    def __init__(
        self,
        attention: nn.Module,
        mlp: nn.Module,
        width: int,
        *,
        norm_first: bool,
        dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention, self.mlp = attention, mlp
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.mlp_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x_BTD: Tensor, source_BKD: Tensor | None = None, **asked: Any
    ) -> tuple[Tensor, Any]:
        """The new states, and what attention leaves for the next segment."""
        given = self.attention_norm(x_BTD) if self.norm_first else x_BTD
        answer_BTD, memory = self.attention(given, source_BKD, **asked)
        x_BTD = x_BTD + self.dropout(answer_BTD)
        if self.norm_first:
            return x_BTD + self.dropout(self.mlp(self.mlp_norm(x_BTD))), memory
        x_BTD = self.attention_norm(x_BTD)
        return self.mlp_norm(x_BTD + self.dropout(self.mlp(x_BTD))), memory


def remembered(memory: tuple[KeysValues, ...] | None) -> int:
    """How many positions a memory of keys and values holds."""
    return memory[0].k_BHKE.shape[2] if memory else 0


def remember(states_BTD: Tensor, count: int) -> Tensor:
    """The last `count` positions, or all there are, as values that no gradient flows into."""
    return states_BTD[:, max(states_BTD.shape[1] - count, 0) :].detach()


@torch.no_grad()
def initialise(model: nn.Module, std: float = 0.02) -> None:
    """Small normal weights, zero biases, norms of one: as GPT and BERT start."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.normal_(std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
