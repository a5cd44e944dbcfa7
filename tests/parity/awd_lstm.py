"""AWD-LSTM against loops over words: as it is used, and in training with everything dropped."""

from itertools import pairwise
from unittest.mock import patch

import torch
from torch import Tensor

import labkit.recurrence
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.masking import real_keys
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.recurrence import LockedDropout, activation, temporal_activation

from . import Case, Differences, largest, loops, merge

WORDS = 13
SHAPES = ([4, 7, 1], [1], [6, 6])
"""Real words of each row."""


def _model(dtype: torch.dtype) -> LanguageModel:
    backbone = AWDLSTM(AWDLSTMConfig(WORDS, 6, 9, 3))
    head = NextWord(backbone.token, bias=True)
    return loops.random_weights(LanguageModel(backbone, head).to(dtype))


def _brute(model: LanguageModel, tokens: Tensor, lengths: list[int], start, factors: dict):
    """The layers, row by row, and the last (h, c) of each; `factors` are the dropouts' masks."""
    p = dict(model.backbone.named_parameters())
    weights = {**p, **factors.get("weights", {})}
    layers: list[list[list[Tensor]]] = [[] for _ in range(5)]
    last = []
    for row, length in enumerate(lengths):

        def drop(name: str, x: Tensor, row: int = row) -> Tensor:
            return x * factors[name][row, 0] if name in factors else x

        words = [p["token.weight"][t] for t in tokens[row, :length]]
        if "words" in factors:
            words = [
                x * factors["words"][t] for x, t in zip(words, tokens[row].tolist(), strict=False)
            ]
        text = [drop("input", x) for x in words]
        layers[0].append(text)
        memories = []
        for i in range(3):
            given = [drop(f"hidden {i}", x) for x in text]
            text, after = loops.lstm(weights, f"blocks.{i}", given, *start[row][i])
            layers[i + 1].append(text)
            memories.append(after)
        layers[4].append([drop("output", x) for x in text])
        last.append(memories)
    return layers, last


def _compare(model, states, real, lengths, brute, last, targets: Tensor) -> Differences:
    """Cross-entropy with AR and TAR, and what they say of every weight."""
    p = dict(model.named_parameters())
    loss = model.head.losses_N(states.hidden[real], targets[real]).mean()
    loss = loss + 2.0 * activation(states.layers[-1])[real].mean()
    steps = temporal_activation(states.layers[-2])[real[:, 1:] & real[:, :-1]]
    loss = loss + steps.sum() / max(len(steps), 1)
    expected = loops.mean_loss(
        brute[-1], targets,
        lambda h: p["backbone.token.weight"] @ h + p["head.words.bias"],
    )  # fmt: skip
    numbers = [x for text in brute[-1] for h in text for x in h]
    expected = expected + 2.0 * sum(x * x for x in numbers) / len(numbers)
    pairs = [(a, b) for text in brute[-2] for a, b in pairwise(text)]
    moved = [(y - x) ** 2 for a, b in pairs for x, y in zip(a, b, strict=True)]
    expected = expected + sum(moved) / max(len(moved), 1)
    ours = [layer[real] for layer in states.layers]
    ours += [part for layer in states.memory for part in layer]
    theirs = [loops.flat(layer) for layer in brute]
    theirs += [torch.stack([row[i][k] for row in last]) for i in range(3) for k in range(2)]
    weights = list(model.parameters())
    return {
        "layers": largest(ours, theirs),
        "loss": largest([loss], [expected]),
        "gradients": largest(
            torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights)
        ),
    }


def _blank(rows: int, dtype: torch.dtype):
    return [[(torch.zeros(n, dtype=dtype),) * 2 for n in (9, 9, 6)] for _ in range(rows)]


def _used(dtype: torch.dtype) -> Differences:
    """Two pieces of text, the second going on from the memory of the first."""
    model, found = _model(dtype), []
    for lengths in SHAPES:
        start, memory = _blank(len(lengths), dtype), None
        for seed, real_lengths in enumerate(([5] * len(lengths), lengths)):
            draw = torch.Generator().manual_seed(seed)
            size = (len(lengths), max(real_lengths))
            tokens = torch.randint(WORDS, size, generator=draw)
            targets = torch.randint(WORDS, size, generator=draw)
            real = torch.arange(size[1]) < torch.tensor(real_lengths)[:, None]
            states = model.backbone(tokens, mask=real_keys(real), memory=memory)
            brute, last = _brute(model, tokens, real_lengths, start, {})
            found.append(_compare(model, states, real, real_lengths, brute, last, targets))
            start = [[tuple(x.detach() for x in hc) for hc in row] for row in last]
            memory = tuple(tuple(part.detach() for part in layer) for layer in states.memory)
    return merge(found)


def _trained(dtype: torch.dtype) -> Differences:
    """The masks that were drawn are read off on the way, and the loops use the same."""
    model, found = _model(dtype).train(), []
    for lengths in SHAPES:
        torch.manual_seed(len(lengths))
        tokens = torch.randint(WORDS, (len(lengths), max(lengths)))
        targets = torch.randint(WORDS, tokens.shape)
        real = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
        states, factors = _watched(model, tokens, real)
        start = _blank(len(lengths), dtype)
        brute, last = _brute(model, tokens, lengths, start, factors)
        found.append(_compare(model, states, real, lengths, brute, last, targets))
    return merge(found)


def _watched(model: LanguageModel, tokens: Tensor, real: Tensor):
    """Run the backbone and keep every mask: what comes out of a dropout over what goes in."""
    backbone, factors, hooks = model.backbone, {"weights": {}}, []
    names = iter(["input", "hidden 1", "hidden 2", "output"])

    def ratio(module, given: tuple[Tensor], dropped: Tensor) -> None:
        kept = (dropped != 0).any(dim=1, keepdim=True)
        factors[next(names)] = kept.to(dropped.dtype) / (1 - module.rate)

    def words(module, given, dropped: Tensor) -> None:
        kept = torch.zeros(WORDS, dtype=dropped.dtype)
        kept[tokens[(dropped != 0).any(dim=-1)]] = 1 / (1 - module.rate)
        factors["words"] = kept

    for module in backbone.modules():
        if isinstance(module, LockedDropout):
            hooks.append(module.register_forward_hook(ratio))
    hooks.append(backbone.word_dropout.register_forward_hook(words))
    original = torch.nn.functional.dropout

    def dropout(weight: Tensor, rate: float, training: bool) -> Tensor:
        dropped = original(weight, rate, training)
        kept = (dropped != 0).to(weight.dtype) / (1 - rate)
        factors["weights"][f"blocks.{len(factors['weights'])}.weight_hh_l0"] = weight * kept
        return dropped

    with patch.object(labkit.recurrence.F, "dropout", dropout):
        states = backbone(tokens, mask=real_keys(real))
    for hook in hooks:
        hook.remove()
    assert set(factors) == {"weights", "words", "input", "hidden 1", "hidden 2", "output"}
    assert len(factors["weights"]) == 3
    return states, factors


CASES = [
    Case("AWD-LSTM", "next word, AR, TAR, padding, memory", loops.PAPER, _used),
    Case("AWD-LSTM", "the same in training, all dropouts on", loops.PAPER, _trained),
]
