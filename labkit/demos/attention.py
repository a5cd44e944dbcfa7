"""Attention, to look at: how much each position takes from each other one, by layer and head."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labkit.attention import attention_weights
from labkit.demos.base import Demo, text_box, whole_slider
from labkit.demos.drawing import View, heading, note, page, problem, shades, table
from labkit.demos.reading import evaluating, labels, longest_for, read
from labkit.masking import causal
from labkit.tokenizers import Tokenizer

LONGEST = 32


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


@torch.no_grad()
def weights(model: Any, tokens_BT: Tensor) -> list[Tensor]:
    """The attention of each layer of a model [B, H, Q, K]."""
    with evaluating(model), Watching() as watching:
        model.backbone(tokens_BT.to(next(model.parameters()).device))
    return watching.found


def attention_view(text: str, layer: int, head: int, model: Any, tokenizer: Tokenizer) -> View:
    """One head of one layer, or with head 0 the mean of all: rows ask, columns are asked."""
    batch = read(text, tokenizer, longest_for(model, LONGEST))
    if batch is None:
        return page("attention", problem("There is nothing to look at: write some words."))
    layers = weights(model, batch.tokens)
    if not layers:
        said = f"{type(model.backbone).__name__} has no attention to look at."
        return page("attention", problem(said))
    heads = layers[0].shape[1]
    if not (1 <= layer <= len(layers) and 0 <= head <= heads):
        raise ValueError(
            f"layer {layer}, head {head}: there are layers 1 to {len(layers)}, and heads 1 to "
            f"{heads}, or 0 for their mean"
        )
    found = layers[layer - 1][0].float().cpu()
    shown = found.mean(dim=0) if head == 0 else found[head - 1]
    names = labels(tokenizer, batch.tokens[0].tolist())
    who = "the mean of all heads" if head == 0 else f"head {head} of {heads}"
    rows = [[f"{place} {name}", *most(shown[place], names)] for place, name in enumerate(names)]
    return page(
        "attention",
        heading(f"Layer {layer} of {len(layers)}, {who}"),
        note("Each row shares out 1 among what it looks at: the fuller the colour, the more."),
        shades(shown, names, title="Attention"),
        table(["position", "looks most at", "share"], rows, name="most"),
    )


def most(row: Tensor, names: list[str]) -> list[str]:
    """Where a position looks most, and how much."""
    if float(row.sum()) == 0:
        return ["nothing", "0.000"]
    best = int(row.argmax())
    return [f"{best} {names[best]}", f"{float(row[best]):.3f}"]


def attention_demo(model: Any, tokenizer: Tokenizer, text: str) -> Demo:
    """Slide through the layers and heads of a model that reads your text."""
    config = model.backbone.config

    def draw(text: str, layer: int, head: int) -> View:
        return attention_view(text, layer, head, model, tokenizer)

    controls = {
        "text": text_box("text", text),
        "layer": whole_slider("layer", 1, 1, config.layers),
        "head": whole_slider("head (0: mean)", 1, 0, config.heads),
    }
    return Demo("attention", draw, controls)
