"""Attention, to look at: how much each position takes from each other one, by layer and head."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from classroom.demos.base import Demo, choice, text_box, whole_slider
from classroom.demos.drawing import Chip, View, chips, heading, note, page, problem, table
from classroom.demos.reading import evaluating, labels, longest_for, read
from classroom.demos.squares import shades
from labkit.attention import attention_weights
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.masking import before, causal, order, ordinary, up_to
from labkit.models.xlnet import XLNet
from labkit.text.tokenizers import Tokenizer

LONGEST = 32
STREAMS = ("as an encoder", "content stream", "query stream")


class Watching(TorchFunctionMode):
    """Within this, the weights of every attention that a model computes are kept [B, H, Q, K]."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Every function does its work; beside attention, the formula is computed as well."""
        kwargs = kwargs or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            self.found.append(weights_of(args[0], args[1], **kwargs))
        return function(*args, **kwargs)


def weights_of(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The weights of a call of the library's attention."""
    mask, bias = attn_mask, None
    if is_causal:
        mask = causal(q_BHQE.shape[2], device=q_BHQE.device)
    elif attn_mask is not None and attn_mask.dtype != torch.bool:
        mask = attn_mask.isfinite()
        bias = attn_mask.masked_fill(~mask, 0.0)
    return attention_weights(q_BHQE, k_BHKE, mask=mask, bias_BHQK=bias)


class Asked(NamedTuple):
    """What is looked at beside the text: an earlier text, a stream, an order."""

    before: str = ""
    """A text that a model with a memory has read before."""
    stream: str = STREAMS[0]
    draw: int = 0
    """Which order the two streams of XLNet follow."""


@torch.no_grad()
def weights(
    model: Any, tokens_BT: Tensor, memory: Any = None, rank_BT: Tensor | None = None
) -> dict[str, list[Tensor]]:
    """The attention of each layer of a model [B, H, Q, K], by stream; with an order, of both."""
    device = next(model.parameters()).device
    tokens_BT = tokens_BT.to(device)
    with evaluating(model), Watching() as watching:
        if rank_BT is None:
            known = {} if memory is None else {"memory": memory}
            model.backbone(tokens_BT, **known)
            return {STREAMS[0]: watching.found}
        rank_BT = rank_BT.to(device)
        past = 0 if memory is None else memory[0].shape[1]
        model.backbone.two_streams(
            tokens_BT,
            torch.arange(tokens_BT.shape[1], device=device)[None],
            mask=up_to(rank_BT, past),
            query_mask=before(rank_BT, past),
            memory=memory,
        )
    # Layer after layer, the content stream asks first.
    return {STREAMS[1]: watching.found[::2], STREAMS[2]: watching.found[1::2]}


def remembered(text: str, model: Any, tokenizer: Tokenizer) -> tuple[Any, list[str]]:
    """What a model with a memory keeps of a text, and its words; nothing for other models."""
    batch = read(text, tokenizer, LONGEST)
    if batch is None or not model.backbone.memory_length:
        return None, []
    with torch.no_grad(), evaluating(model):
        device = next(model.parameters()).device
        memory = model.backbone(batch.tokens.to(device)).memory
    kept = memory[0].shape[1]
    return memory, labels(tokenizer, batch.tokens[0, batch.tokens.shape[1] - kept :].tolist())


def order_of(batch: Batch, tokenizer: Tokenizer, draw: int) -> Tensor:
    """The rank of each place in an order that is drawn."""
    words = ordinary(batch.tokens, batch.real, tokenizer.vocabulary)
    return order(words, Chance(0, draw, torch.zeros(1, dtype=torch.long))).rank


def attention_view(
    text: str,
    layer: int,
    head: int,
    model: Any,
    tokenizer: Tokenizer,
    asked: Asked | None = None,
) -> View:
    """One head of one layer, or with head 0 the mean of all: rows ask, columns are asked."""
    asked = asked or Asked()
    batch = read(text, tokenizer, longest_for(model, LONGEST))
    if batch is None:
        return page("attention", problem("There is nothing to look at: write some words."))
    memory, past = remembered(asked.before, model, tokenizer)
    two = asked.stream != STREAMS[0]
    rank = order_of(batch, tokenizer, asked.draw) if two else None
    layers = weights(model, batch.tokens, memory, rank)[asked.stream]
    if not layers:
        said = f"{type(model.backbone).__name__} has no attention to look at."
        return page("attention", problem(said))
    shown, heads = picked(layers, layer, head), layers[0].shape[1]
    names = labels(tokenizer, batch.tokens[0].tolist())
    who = "the mean of all heads" if head == 0 else f"head {head} of {heads}"
    which = f", {asked.stream}" if two else ""
    across = [f"({word})" for word in past] + [f"{n} {name}" for n, name in enumerate(names)]
    rows = [[f"{n} {name}", *most(shown[n], across)] for n, name in enumerate(names)]
    pieces = [
        heading(f"Layer {layer} of {len(layers)}, {who}{which}"),
        note(
            "Each row shares out 1 among what it looks at; the fullest colour is "
            f"{float(shown.max()):.3f}."
        ),
        shades(shown, names, title="Attention", memory=past),
        table(["position", "looks most at", "share"], rows, name="most"),
    ]
    if past:
        said = f"Columns in brackets: the {len(past)} positions that are remembered."
        pieces.insert(2, note(said, "memory"))
    if rank is not None:
        pieces.insert(2, chips(in_order(names, rank[0].tolist())))
    return page("attention", *pieces)


def picked(layers: list[Tensor], layer: int, head: int) -> Tensor:
    """The weights [Q, K] of one head of a layer, both counted from 1, or the mean of its heads."""
    heads = layers[0].shape[1]
    if not (1 <= layer <= len(layers) and 0 <= head <= heads):
        raise ValueError(
            f"layer {layer}, head {head}: there are layers 1 to {len(layers)}, and heads 1 to "
            f"{heads}, or 0 for their mean"
        )
    found = layers[layer - 1][0].float().cpu()
    return found.mean(dim=0) if head == 0 else found[head - 1]


def in_order(names: list[str], rank: list[int]) -> list[Chip]:
    """The text; below each word, when it is predicted."""
    return [
        Chip(name, "plain" if at >= 0 else "special", f"{at + 1}." if at >= 0 else "seen")
        for name, at in zip(names, rank, strict=True)
    ]


def most(row: Tensor, names: list[str]) -> list[str]:
    """Where a position looks most, and how much."""
    if float(row.sum()) == 0:
        return ["nothing", "0.000"]
    best = int(row.argmax())
    return [names[best], f"{float(row[best]):.3f}"]


def attention_demo(model: Any, tokenizer: Tokenizer, text: str, before: str = "") -> Demo:
    """Slide through the layers and heads of a model that reads your text.

    A model with a memory can have read a text `before`; XLNet shows either of its two streams.
    """
    config, backbone = model.backbone.config, model.backbone

    def draw(text: str, layer: int, head: int, **others: Any) -> View:
        return attention_view(text, layer, head, model, tokenizer, Asked(**others))

    controls: dict[str, Any] = {"text": text_box("text", text)}
    if backbone.memory_length:
        controls["before"] = text_box("read before", before)
    controls["layer"] = whole_slider("layer", 1, 1, config.layers)
    controls["head"] = whole_slider("head (0: mean)", 1, 0, config.heads)
    if isinstance(backbone, XLNet):
        controls["stream"] = choice("stream", STREAMS)
        controls["draw"] = whole_slider("order drawn", 0, 0, 100)
    return Demo("attention", draw, controls)
