"""What the models of the course are built from.

A backbone maps tokens to hidden states; a head maps hidden states to scores. Pre-training trains a
`LanguageModel(backbone, head)`, and transfer makes a `Classifier(backbone, head)` of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.attention import Attention, KeysValues
from labkit.checks import check_choice, check_config
from labkit.layers import Dropout
from labkit.tensor_checks import check_mask, check_states, check_tokens


class States(NamedTuple):
    """The result of a backbone."""

    layers: tuple[Tensor, ...]
    """Hidden states [B, T, D]: what went into the first layer, then what came out of each."""
    memory: tuple[Any, ...] | None = None
    """What the next segment may attend to, one entry per layer; None: nothing is kept."""

    @property
    def hidden(self) -> Tensor:
        """The states above the last layer [B, T, D]."""
        return self.layers[-1]


def halves(states: States) -> tuple[States, States]:
    """Split the states of a model that reads both ways: those from the left, those from the right.

    At a position the first depend on the words up to it, the second on the words from it on.
    """
    left, right = zip(*(layer.chunk(2, dim=-1) for layer in states.layers), strict=True)
    return States(tuple(left), states.memory), States(tuple(right))


class Backbone(nn.Module):
    """The base class of all models of the course: token ids in, `States` out.

        states = backbone(tokens_BT, mask=None, memory=None)

    A new model is a subclass with a frozen dataclass as its config; training, transfer, weights,
    leaks and sampling use only what is declared here (docs/adding_a_model.md).
    """

    config: Any
    """A frozen dataclass with `vocabulary`; a subclass names its own: `config: GPTConfig`."""
    token: nn.Embedding
    """The vector of each word."""
    blocks: nn.ModuleList
    """The layers from the bottom up, for rates and freezing by layer; may be empty."""
    width: int
    """D of the states."""
    context: int | None = None
    """The largest number of positions; None: no limit."""
    causal: bool = False
    """Whether a position depends on its left only when no mask is given."""
    two_ways: bool = False
    """Whether a state has two halves, one that depends only on the words up to its position and one
    that depends only on those from it on."""
    attends: bool = True
    """Whether any mask may be given; False: only one that leaves out padding, `real(tokens)`."""
    remembers: bool = False
    """Whether forward takes `memory` and returns it for the next segment."""
    memory_length: int | None = None
    """The number of positions that are remembered; None: all that were read."""
    segments: bool = False
    """Whether forward takes `segments_BT`."""
    summary: int | None = None
    """The position that a classifier reads: 0 the first, -1 the last, None: it pools them all."""

    def __init__(self, config: Any, *, width: int | None = None) -> None:
        super().__init__()
        check_config(config)
        self.config, self.width = config, config.width if width is None else width

    def __call__(self, tokens_BT: Tensor | None, **inputs: Any) -> States:
        """Check the tokens and the mask, call `forward`, and check the states."""
        if torch.compiler.is_compiling():
            return super().__call__(tokens_BT, **inputs)
        self.check(tokens_BT, inputs.get("mask"))
        states = super().__call__(tokens_BT, **inputs)
        if tokens_BT is not None:
            check_states(type(self).__name__, states, tokens_BT)
        return states

    def check(self, tokens_BT: Tensor | None, mask: Tensor | None = None) -> None:
        """Refuse tokens outside of the vocabulary, and masks that do not fit the tokens.

        Tokens on a GPU are checked there, so the CPU need not wait; the message names no token.
        """
        if tokens_BT is None:
            return
        check_tokens(tokens_BT, self.config.vocabulary)
        rows, positions = tokens_BT.shape
        if self.attends:
            # The last axis counts what is remembered as well: attention knows how much that is.
            check_mask(mask, rows, 1, positions, None)
        else:
            rule = "has no attention and only leaves out padding, real(tokens, pad)"
            name = f"{type(self).__name__} {rule}: the mask"
            check_mask(mask, rows, 1, 1, positions, name=name)

    @property
    def layers(self) -> int:
        """The number of layers: that of the blocks, unless a block is applied more than once."""
        return len(self.blocks)

    def band(self, layer: int) -> int | None:
        """How many positions back a layer attends to; None: to all."""
        return None

    def above(self) -> list[nn.Module]:
        """The modules above the last block, which learn at the rate of the head."""
        return []


class Model(nn.Module):
    """A backbone and a head."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, tokens_BT: Tensor, **inputs: Any) -> Tensor:
        """The scores that the head gives to the states of the last layer."""
        return self.head(self.backbone(tokens_BT, **inputs).hidden)


class LanguageModel(Model):
    """A backbone and a head that predicts words, as pre-training trains them."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__(backbone, head)
        known, scored = vocabulary_of(self), getattr(head, "words", None)
        if known and isinstance(scored, nn.Linear) and scored.out_features != known:
            raise ValueError(
                f"the head scores {scored.out_features} words, and {type(backbone).__name__} knows "
                f"{known}: build the head from the embedding of the backbone, backbone.token"
            )


class Classifier(Model):
    """A backbone and the head of a task, as transfer makes them."""


def backbone_of(model: Any) -> Any:
    """The backbone of a model, which may be the model itself."""
    return model.backbone if isinstance(model, Model) else model


def vocabulary_of(model: Any) -> int:
    """How many tokens a model knows; 0 for a backbone without such a configuration."""
    return getattr(getattr(backbone_of(model), "config", None), "vocabulary", 0)


def check_reads_source(model: Any) -> None:
    """Refuse a model that reads no source."""
    backbone = backbone_of(model)
    if isinstance(backbone, Backbone) and not hasattr(backbone, "encode"):
        raise ValueError(
            f"{type(backbone).__name__} reads no source: give an encoder-decoder, such as "
            "Transformer"
        )


def to_device_of(other: nn.Module, model: nn.Module) -> None:
    """Move another model, such as a teacher, to the device of this one; free if it is there."""
    other.to(next(model.parameters()).device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode; afterwards each of its modules is in the mode it was in before."""
    modes = {module: module.training for module in model.modules()}
    if any(modes.values()):
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            if module.training != mode:  # to ask is fifty times cheaper than to set
                module.training = mode


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation of GELU by tanh that GPT uses."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu,
}


class FeedForward(nn.Module):
    """Two layers for each position on its own: up to the inner width, and down again."""

    def __init__(
        self, width: int, inner: int, *, activation: str = "gelu", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        check_choice("activation", activation, *ACTIVATIONS)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """down(dropout(activation(up(x)))), of states [B, T, D] or of picked ones [N, D]."""
        return self.down(self.dropout(self.activation(self.up(x))))


class Experts(nn.Module):
    """A mixture of experts: a router sends each position to a few of several feed-forwards.

    y = sum over the `used` likeliest experts e of p_e FeedForward_e(x), with p = softmax(router(x))
    scaled to sum to one over those; a single expert keeps its p, or the router would not learn.
    More experts mean more parameters, but not more operations.
    Shazeer et al. 2017, section 2. `labkit.objectives.Balanced` keeps all of them in use.
    """

    def __init__(
        self, width: int, inner: int, experts: int, *, used: int = 2, activation: str = "gelu"
    ) -> None:
        super().__init__()
        if not 1 <= used <= experts:
            raise ValueError(f"{used} of {experts} experts: use at least 1 and at most {experts}")
        self.used = used
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(width, inner, activation=activation) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum of the outputs of the experts that are chosen for each position."""
        x_ND = x.flatten(0, -2)
        likely, chosen = self.router(x_ND).softmax(dim=-1).topk(self.used, dim=-1)
        if self.used > 1:
            likely = likely / likely.sum(dim=-1, keepdim=True)
        # All positions of one expert side by side, so that each expert is called once.
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        groups = x_ND[order // self.used].split(counts)
        outputs = torch.cat([e(part) for e, part in zip(self.experts, groups, strict=True)])
        weighed = outputs * likely.flatten()[order].unsqueeze(-1)
        y_ND = torch.zeros_like(x_ND, dtype=weighed.dtype).index_add(0, order // self.used, weighed)
        return y_ND.view_as(x)


class Block(nn.Module):
    """Attention, then a feed-forward, each added to its input and normalised.

    norm_first (GPT-2 on):               x + f(norm(x))
    otherwise (Transformer, GPT, BERT):  norm(x + f(x))
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
        self.dropout = Dropout(dropout)

    def forward(
        self, x_BTD: Tensor, source_BKD: Tensor | None = None, **inputs: Any
    ) -> tuple[Tensor, Any]:
        """The new states, and what the next segment may attend to."""
        given = self.attention_norm(x_BTD) if self.norm_first else x_BTD
        attended_BTD, memory = self.attention(given, source_BKD, **inputs)
        x_BTD = x_BTD + self.dropout(attended_BTD)
        if self.norm_first:
            return x_BTD + self.dropout(self.mlp(self.mlp_norm(x_BTD))), memory
        x_BTD = self.attention_norm(x_BTD)
        return self.mlp_norm(x_BTD + self.dropout(self.mlp(x_BTD))), memory


def remembered(memory: tuple[KeysValues, ...] | None) -> int:
    """How many positions a memory of keys and values holds."""
    return memory[0].k_BHKE.shape[2] if memory else 0


def remember(states_BTD: Tensor, count: int | None) -> Tensor:
    """The last `count` positions, or all there are, as values that no gradient flows into."""
    first = 0 if count is None else max(states_BTD.shape[1] - count, 0)
    return states_BTD[:, first:].detach()


@torch.no_grad()
def initialise(model: nn.Module, std: float = 0.02) -> None:
    """Draw small normal weights and set biases to zero, as GPT and BERT do."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.normal_(std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()


@torch.no_grad()
def scale_residuals(blocks: nn.ModuleList) -> None:
    """Divide the weights that write into the residual stream by sqrt(2 * blocks).

    GPT-2 (Radford et al. 2019, section 2.3): each block writes twice, so the variance of the sum
    does not depend on the number of blocks.
    """
    scale = (2 * len(blocks)) ** -0.5
    for module in blocks.modules():
        if isinstance(module, Attention):
            module.out.weight.mul_(scale)
        if isinstance(module, FeedForward):
            module.down.weight.mul_(scale)
