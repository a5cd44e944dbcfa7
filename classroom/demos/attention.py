"""Attention, to look at: how much each position takes from each other one, by layer and head."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from classroom.demos.base import Demo, choice, text_box, whole_slider
from classroom.demos.pieces import Beside, Chip, Chips, Heading, Note, Piece, Problem, Table
from classroom.demos.reading import as_read, labels, ordinary_in
from classroom.demos.rendering import View
from classroom.demos.squares import shades
from classroom.tasks.watching import watching
from labkit.blocks import evaluating
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.masking import before, up_to
from labkit.models.xlnet import XLNet
from labkit.objectives.hiding import order
from labkit.text.tokenizers import Tokenizer

LONGEST = 32
HEADS = ("one", "all")
STREAMS = ("as an encoder", "content stream", "query stream")


class Asked(NamedTuple):
    """What is shown besides the text: an earlier text, a stream, an order."""

    before: str = ""
    """A text that a model with a memory has read before."""
    stream: str = STREAMS[0]
    draw: int = 0
    """Which order the two streams of XLNet follow."""
    selected: int = -1
    """The position whose row is shown below the map; the pointer shows any other one."""
    every: bool = False
    """Whether all heads of the layer are shown as small maps."""


@torch.no_grad()
def weights(
    model: Any, tokens_BT: Tensor, memory: Any = None, rank_BT: Tensor | None = None
) -> dict[str, list[Tensor]]:
    """The attention of each layer of a model [B, H, Q, K], by stream; with an order, of both."""
    device = next(model.parameters()).device
    tokens_BT = tokens_BT.to(device)
    with evaluating(model), watching() as found:
        if rank_BT is None:
            known = {} if memory is None else {"memory": memory}
            model.backbone(tokens_BT, **known)
            return {STREAMS[0]: found}
        rank_BT = rank_BT.to(device)
        past = 0 if memory is None else memory[0].shape[1]
        model.backbone.two_streams(
            tokens_BT,
            torch.arange(tokens_BT.shape[1], device=device)[None],
            mask=up_to(rank_BT, past),
            query_mask=before(rank_BT, past),
            memory=memory,
        )
    # In each layer, the attention of the content stream comes first.
    return {STREAMS[1]: found[::2], STREAMS[2]: found[1::2]}


def remembered(text: str, model: Any, tokenizer: Tokenizer) -> tuple[Any, list[str]]:
    """What a model with a memory keeps of a text, and its words; nothing for other models."""
    batch, _ = as_read(text, model, tokenizer, LONGEST, model.backbone.causal)
    if batch is None or not model.backbone.memory_length:
        return None, []
    with torch.no_grad(), evaluating(model):
        device = next(model.parameters()).device
        memory = model.backbone(batch.tokens.to(device)).memory
    kept = memory[0].shape[1]
    return memory, labels(tokenizer, batch.tokens[0, batch.tokens.shape[1] - kept :].tolist())


def order_of(batch: Batch, tokenizer: Tokenizer, draw: int) -> Tensor:
    """The rank of each position in an order that is drawn."""
    words = ordinary_in(batch, tokenizer)
    return order(words, Chance(0, draw, torch.zeros(1, dtype=torch.long))).rank


def attention_view(
    text: str,
    layer: int,
    head: int,
    model: Any,
    tokenizer: Tokenizer,
    asked: Asked | None = None,
) -> View:
    """One head of one layer, or with head 0 the mean of all: rows are queries, columns keys."""
    asked = asked or Asked()
    batch, notes = as_read(text, model, tokenizer, LONGEST, model.backbone.causal)
    if batch is None:
        return View.of("attention", Problem("There is nothing to look at: write some words."))
    memory, past = remembered(asked.before, model, tokenizer)
    two = asked.stream != STREAMS[0]
    rank = order_of(batch, tokenizer, asked.draw) if two else None
    layers = weights(model, batch.tokens, memory, rank)[asked.stream]
    if not layers:
        said = f"{type(model.backbone).__name__} has no attention to look at."
        return View.of("attention", Problem(said))
    shown, heads = picked(layers, layer, head), layers[0].shape[1]
    names = labels(tokenizer, batch.tokens[0].tolist())
    who = "the mean of all heads" if head == 0 else f"head {head} of {heads}"
    which = f", {asked.stream}" if two else ""
    numbered = [f"{n} {name}" for n, name in enumerate(names)]
    across = [*(f"({word})" for word in past), *numbered]
    rows = tuple((name, *most(row, across)) for name, row in zip(numbered, shown, strict=True))
    pieces: list[Piece] = [
        *notes,
        Heading(f"Layer {layer} of {len(layers)}, {who}{which}"),
        Note(
            "Each row shares out 1 among the positions that it attends to; the fullest colour is "
            f"{float(shown.max()):.3f}. Point at a row: the bars under the words are its shares."
        ),
    ]
    if rank is not None:
        pieces.append(Chips(in_order(names, rank[0].tolist())))
    if past:
        those = "position that is" if len(past) == 1 else "positions that are"
        said = f"Columns in brackets: the {len(past)} {those} remembered."
        pieces.append(Note(said, "memory"))
    pieces += [
        shades(shown, names, title="Attention", memory=past, selected=asked.selected),
        Table(("position", "attends most to", "share"), rows, "most"),
    ]
    if asked.every:
        pieces += [Heading(f"All heads of layer {layer}"), every_head(layers, layer, names, past)]
    return View.of("attention", *pieces)


def every_head(layers: list[Tensor], layer: int, names: list[str], past: list[str]) -> Beside:
    """One small map for each head of a layer."""
    maps = layers[layer - 1][0].float().cpu()
    return Beside(
        tuple(
            shades(one, names, title=f"head {n + 1}", memory=past, small=True)
            for n, one in enumerate(maps)
        )
    )


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


def in_order(names: list[str], rank: list[int]) -> tuple[Chip, ...]:
    """The text; below each word, when it is predicted."""
    return tuple(
        Chip(name, "plain", f"{at + 1}.") if at >= 0 else Chip(name, "special", "seen")
        for name, at in zip(names, rank, strict=True)
    )


def most(row: Tensor, names: list[str]) -> list[str]:
    """The position that gets the largest share, and that share."""
    if float(row.sum()) == 0:
        return ["nothing", "0.000"]
    best = int(row.argmax())
    return [names[best], f"{float(row[best]):.3f}"]


def attention_demo(model: Any, tokenizer: Tokenizer, text: str, before: str = "") -> Demo:
    """Slide through the layers and heads of a model that reads your text.

    A model with a memory can have read a text `before`; XLNet shows either of its two streams.
    """
    backbone, selected = model.backbone, [-1]
    demo: Demo

    def draw(text: str, layer: int, head: int, **others: Any) -> View:
        others["every"] = others.pop("heads") == HEADS[1]
        asked = Asked(**others, selected=selected[0])
        return attention_view(text, layer, head, model, tokenizer, asked)

    def select(position: int) -> None:
        selected[0] = -1 if selected[0] == position else position
        demo.refresh()

    def forget() -> None:
        selected[0] = -1

    controls: dict[str, Any] = {"text": text_box("text", text)}
    if backbone.memory_length:
        controls["before"] = text_box("read before", before)
    heads = getattr(backbone.config, "heads", 1)  # without attention the view says so
    controls["layer"] = whole_slider("layer", 1, 1, backbone.config.layers)
    controls["head"] = whole_slider("head (0: mean)", 1, 0, heads)
    if isinstance(backbone, XLNet):
        controls["stream"] = choice("stream", STREAMS)
        controls["draw"] = whole_slider("order drawn", 0, 0, 100)
    controls["heads"] = choice("heads", HEADS)
    controls["text"].observe(lambda _: forget(), names="value")
    demo = Demo("attention", draw, controls, act=select, forget=forget)
    return demo
