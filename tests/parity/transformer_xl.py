"""Transformer-XL against the formulas of the paper, written out with loops over single numbers."""

import math

import torch
from torch import Tensor

from labkit.heads import NextWord
from labkit.masking import causal
from labkit.models.transformer_xl import AdaptiveWord, TransformerXL, TransformerXLConfig

from . import Case, Differences, largest, loops, merge
from .releases import tiny

SHAPES = ((2, 3, 2, 4), (1, 4, 1, 1), (2, 1, 2, 2))
"""Batch, length, heads, memory."""

Vector = Tensor
Parameters = dict[str, Tensor]


def pair(heads: int, memory: int, dtype: torch.dtype, **adaptive):
    config = TransformerXLConfig(11, 8, 2, heads, memory=memory, inner=10, **adaptive)
    backbone = tiny(TransformerXL(config).to(dtype))
    head = (AdaptiveWord if adaptive else NextWord)(backbone.token).to(dtype)
    return backbone, tiny(head, seed=1)


def _sinusoid(distance: int, width: int, like: Tensor) -> Vector:
    angles = [distance / 10_000 ** (2 * i / width) for i in range(width // 2)]
    waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return torch.tensor(waves, dtype=like.dtype)


def _norm(x: Vector, p: Parameters, name: str) -> Vector:
    centred = x - x.sum() / len(x)
    variance = (centred * centred).sum() / len(x)
    return centred / (variance + 1e-5).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention(p: Parameters, heads: int, i: int, texts: list[Vector]) -> Vector:
    """Equation of section 3.3: what position i of [memory, text] hears from what is before it."""
    width = len(texts[0])
    size = width // heads
    heard = []
    for h in range(heads):
        rows = slice(h * size, (h + 1) * size)
        shifted = slice(width + h * size, width + (h + 1) * size)
        query = p["attention.query.weight"][rows] @ texts[i]
        scores, values = [], []
        for j in range(i + 1):
            key = p["attention.key_value.weight"][rows] @ texts[j]
            r = loops.drop(_sinusoid(i - j, width, key))
            place = p["attention.distance.weight"][rows] @ r
            score = query @ key + query @ place
            score = score + p["attention.u_HE"][h] @ key + p["attention.v_HE"][h] @ place
            scores.append((score / math.sqrt(size)).exp())
            values.append(p["attention.key_value.weight"][shifted] @ texts[j])
        total = sum(scores)
        heard.append(sum(loops.drop(s / total) * v for s, v in zip(scores, values, strict=True)))
    return p["attention.out.weight"] @ torch.cat(heard)


def _block(p: Parameters, heads: int, past: list[Vector], text: list[Vector]) -> list[Vector]:
    result = []
    for i, x in enumerate(text):
        heard = loops.drop(_attention(p, heads, len(past) + i, past + text))
        y = _norm(x + heard, p, "attention_norm")
        inner = p["mlp.up.weight"] @ y + p["mlp.up.bias"]
        inner = loops.drop(torch.stack([n if n > 0 else n * 0 for n in inner]))
        y = y + loops.drop(p["mlp.down.weight"] @ inner + p["mlp.down.bias"])
        result.append(_norm(y, p, "mlp_norm"))
    return result


def _embed(p: Parameters, token: int, cutoffs: tuple[int, ...]) -> Vector:
    if not cutoffs:
        return p["token.weight"][token]
    piece = sum(token >= cut for cut in cutoffs)
    vector = p[f"token.pieces.{piece}.weight"][token - (0, *cutoffs)[piece]]
    return p[f"token.up.{piece}.weight"] @ vector


def _loss(p: Parameters, head: Parameters, x: Vector, target: int, cutoffs) -> Tensor:
    """-log p(target): one softmax over all words, or one over pieces and one within the piece."""
    if not cutoffs:
        scores = [x @ vector for vector in p["token.weight"]]
        return -(scores[target].exp() / sum(s.exp() for s in scores)).log()
    piece = sum(target >= cut for cut in cutoffs)
    first = head["down.0"] @ x
    scores = list(p["token.pieces.0.weight"] @ first + head["biases.0"])
    scores += list(head["rare.weight"] @ first + head["rare.bias"])
    chosen = scores[target if piece == 0 else cutoffs[0] + piece - 1]
    loss = -(chosen.exp() / sum(s.exp() for s in scores)).log()
    if piece:
        narrow = p[f"token.up.{piece}.weight"].t() @ x
        within = p[f"token.pieces.{piece}.weight"] @ narrow + head[f"biases.{piece}"]
        inside = within[target - cutoffs[piece - 1]].exp() / sum(s.exp() for s in within)
        loss = loss - inside.log()
    return loss


def _brute(backbone, head, tokens: Tensor, targets: Tensor, memory):
    """All layers [B, T, D] and the mean loss; `memory[layer][row]` is a list of vectors."""
    p, c = dict(backbone.named_parameters()), backbone.config
    heads_p = dict(head.named_parameters())
    layers: list[list[Tensor]] = [[] for _ in range(c.layers + 1)]
    losses, kept = [], [[] for _ in range(c.layers)]
    for row, (words, answers) in enumerate(zip(tokens.tolist(), targets.tolist(), strict=True)):
        text = [loops.drop(_embed(p, word, c.cutoffs) * math.sqrt(c.width)) for word in words]
        layers[0].append(torch.stack(text))
        for i in range(c.layers):
            within = {
                name.removeprefix(f"blocks.{i}."): tensor
                for name, tensor in p.items()
                if name.startswith(f"blocks.{i}.")
            }
            past = memory[i][row] if memory else []
            kept[i].append([x.detach() for x in (past + text)][-c.memory :])
            text = _block(within, c.heads, past, text)
            if i == c.layers - 1:
                text = [loops.drop(x) for x in text]
            layers[i + 1].append(torch.stack(text))
        losses += [
            _loss(p, heads_p, x, answer, c.cutoffs) for x, answer in zip(text, answers, strict=True)
        ]
    return [torch.stack(layer) for layer in layers], sum(losses) / len(losses), kept


def _run(dtype, batch: int, length: int, heads: int, memory: int, **adaptive) -> Differences:
    """Three segments one after the other, each with its memory of those before."""
    backbone, head = pair(heads, memory, dtype, **adaptive)
    ours_memory, theirs_memory, found = None, None, []
    parameters = {id(p): p for p in (*backbone.parameters(), *head.parameters())}.values()
    for piece in range(3):
        draw = torch.Generator().manual_seed(piece)
        tokens = torch.randint(0, 11, (batch, length + 1), generator=draw)
        given, targets = tokens[:, :-1], tokens[:, 1:]
        states = backbone(given, memory=ours_memory)
        loss = head.losses_N(states.hidden.flatten(0, 1), targets.flatten()).mean()
        layers, expected, theirs_memory = _brute(backbone, head, given, targets, theirs_memory)
        ours = torch.autograd.grad(loss, parameters, materialize_grads=True)
        theirs = torch.autograd.grad(expected, parameters, materialize_grads=True)
        found.append(
            {
                "layers": largest(states.layers, layers),
                "loss": largest([loss], [expected]),
                "gradients": largest(ours, theirs),
            }
        )
        ours_memory = states.memory
    return merge(found)


def _one_pass(dtype: torch.dtype) -> Differences:
    """Three segments with memory equal the whole text under the mask that says the same."""
    backbone, _ = pair(2, 3, dtype)
    length, pieces, memory = 4, 3, None
    tokens = torch.randint(0, 11, (2, length * pieces), generator=torch.Generator().manual_seed(5))
    layers = []
    for piece in tokens.split(length, dim=1):
        states = backbone(piece, memory=memory)
        layers.append(states.layers)
        memory = states.memory
    place = torch.arange(length * pieces)
    remembered = place[None] >= (place // length * length)[:, None] - backbone.config.memory
    whole = backbone(tokens, mask=causal(length * pieces) & remembered)
    return {"layers": largest([torch.cat(x, 1) for x in zip(*layers, strict=True)], whole.layers)}


def _case(what: str, **adaptive) -> Case:
    return Case(
        "Transformer-XL",
        what,
        "loops from the paper",
        lambda dtype: merge(_run(dtype, *shape, **adaptive) for shape in SHAPES),
    )


CASES = [
    _case("memory over three segments"),
    _case("adaptive softmax, memory over three segments", cutoffs=(3, 6), shrink=2),
    Case("Transformer-XL", "three segments", "one pass over the text", _one_pass),
]
