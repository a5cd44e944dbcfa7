"""The encoders before the Transformer against loops over words."""

import torch
from torch import Tensor

from labkit.blocks import LanguageModel
from labkit.heads import NextWord, Pooled
from labkit.masking import real_keys
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Recurrent,
    RecurrentConfig,
)

from . import Case, Differences, largest, loops, merge

WORDS = 13
RAGGED = torch.tensor([4, 7, 1])
CELLS = {"elman": loops.elman, "gru": loops.gru, "lstm": loops.lstm}


def _tokens(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(0, WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))


def _compare(ours, theirs, ours_loss: Tensor, theirs_loss: Tensor, model) -> Differences:
    parameters = list(model.parameters())
    found = torch.autograd.grad(ours_loss, parameters, materialize_grads=True)
    expected = torch.autograd.grad(theirs_loss, parameters, materialize_grads=True)
    return {
        "layers": largest(ours, theirs),
        "loss": largest([ours_loss], [theirs_loss]),
        "gradients": largest(found, expected),
    }


def _one_way(cell: str, dtype: torch.dtype, lengths: Tensor, activation: str) -> Differences:
    """A language model over two pieces of text, the second going on from the first's memory."""
    config = RecurrentConfig(WORDS, 6, 2, cell, activation=activation, dropout=0.1)
    backbone = Recurrent(config)
    head = NextWord(backbone.token, tied=False, bias=True)
    model = loops.random_weights(LanguageModel(backbone, head).to(dtype))
    p = dict(model.named_parameters())
    run = CELLS[cell]
    extra = {"bend": torch.tanh} if activation == "tanh" else {}
    zero = torch.zeros(6, dtype=dtype)
    states_kept = [[(zero,) * (2 if cell == "lstm" else 1)] * 2 for _ in lengths]
    memory, found = None, []
    # The first piece is whole, the second ragged.
    for piece, real in enumerate((torch.full_like(lengths, 5), lengths)):
        tokens, targets = _tokens(len(real), int(real.max()), piece), _tokens(len(real), 9, 7)
        is_real = torch.arange(tokens.shape[1]) < real[:, None]
        states = model.backbone(tokens, mask=real_keys(is_real), memory=memory)
        loss = model.head.losses_N(states.hidden[is_real], targets[:, : tokens.shape[1]][is_real])
        layers: list[list[list[Tensor]]] = [[], [], []]
        for row, length in enumerate(real.tolist()):
            text = [loops.drop(p["backbone.token.weight"][t]) for t in tokens[row, :length]]
            layers[0].append(text)
            for i in range(2):
                name, before = f"backbone.blocks.{i}", states_kept[row][i]
                text, after = run(p, name, text, *before, **extra)
                text = [loops.drop(x) for x in text]
                layers[i + 1].append(text)
                states_kept[row] = [
                    after if j == i else kept for j, kept in enumerate(states_kept[row])
                ]
        expected = loops.mean_loss(
            layers[-1], targets, lambda h: p["head.words.weight"] @ h + p["head.words.bias"]
        )
        ours = [layer[is_real] for layer in states.layers]
        ours += [part for layer in states.memory for part in layer]
        theirs = [loops.flat(layer) for layer in layers]
        theirs += [
            torch.stack([row[i][k] for row in states_kept])
            for i in range(2)
            for k in range(len(states.memory[0]))
        ]
        found.append(_compare(ours, theirs, loss.mean(), expected, model))
        memory = tuple(tuple(part.detach() for part in layer) for layer in states.memory)
        states_kept = [[tuple(s.detach() for s in kept) for kept in row] for row in states_kept]
    return merge(found)


def _both_ways(cell: str, dtype: torch.dtype) -> Differences:
    model = Recurrent(RecurrentConfig(WORDS, 6, 2, cell, both_ways=True, dropout=0.1))
    model = loops.random_weights(model.to(dtype))
    p, run, tokens = dict(model.named_parameters()), CELLS[cell], _tokens(3, 7)
    is_real = torch.arange(7) < RAGGED[:, None]
    states = model(tokens, mask=real_keys(is_real))
    start = (torch.zeros(6, dtype=dtype),) * (2 if cell == "lstm" else 1)
    layers: list[list[list[Tensor]]] = [[], [], []]
    for row, length in enumerate(RAGGED.tolist()):
        text = [loops.drop(p["token.weight"][t]) for t in tokens[row, :length]]
        layers[0].append(text)
        for i in range(2):
            left, _ = run(p, f"blocks.{i}.left", text, *start)
            right, _ = run(p, f"blocks.{i}.right", text[::-1], *start)
            text = [loops.drop(torch.cat(pair)) for pair in zip(left, right[::-1], strict=True)]
            layers[i + 1].append(text)
    theirs = [loops.flat(layer) for layer in layers]
    ours = [layer[is_real] for layer in states.layers]
    return _compare(ours, theirs, ours[-1].sin().sum(), theirs[-1].sin().sum(), model)


def _pool(text: list[Tensor], parts: tuple[str, ...]) -> Tensor:
    pooled = {
        "last": text[-1],
        "max": torch.stack(text).max(dim=0).values,
        "mean": sum(text) / len(text),
    }
    return torch.cat([pooled[part] for part in parts])


def _convolutions(dtype: torch.dtype) -> Differences:
    """Kernels of 3, 5 and 11 words, the largest of each feature, and a layer that reads them."""
    backbone = Convolutions(ConvolutionsConfig(WORDS, 6, 4, dropout=0.1)).to(dtype)
    head = Pooled(12, 3, parts=("max",), inner=5, dropout=0.1).to(dtype)
    model = loops.random_weights(torch.nn.ModuleList([backbone, head]))
    p, tokens = dict(model.named_parameters()), _tokens(3, 7)
    is_real = torch.arange(7) < RAGGED[:, None]
    states = backbone(tokens, mask=real_keys(is_real))
    answers = head(states.hidden, is_real)
    layers: list[list[list[Tensor]]] = [[], []]
    expected = []
    for row, length in enumerate(RAGGED.tolist()):
        text = [loops.drop(p["0.token.weight"][t]) for t in tokens[row, :length]]
        found = []
        for place in range(length):
            features = []
            for k, kernel in enumerate((3, 5, 11)):
                weight, bias = p[f"0.blocks.0.{k}.weight"], p[f"0.blocks.0.{k}.bias"]
                total = bias
                for j in range(kernel):
                    at = place + j - kernel // 2
                    if 0 <= at < length:
                        total = total + weight[:, :, j] @ text[at]
                features.append(total)
            found.append(loops.drop(loops.relu(torch.cat(features))))
        layers[0].append(text)
        layers[1].append(found)
        pooled = loops.drop(_pool(found, ("max",)))
        inner = loops.drop(loops.relu(p["1.inner.weight"] @ pooled + p["1.inner.bias"]))
        expected.append(p["1.labels.weight"] @ inner + p["1.labels.bias"])
    ours = [layer[is_real] for layer in states.layers] + [answers]
    theirs = [loops.flat(layer) for layer in layers] + [torch.stack(expected)]
    return _compare(ours, theirs, answers.sin().sum(), theirs[-1].sin().sum(), model)


def _bag(dtype: torch.dtype) -> Differences:
    """The mean of the words, and ULMFiT's pooling: last, largest and mean."""
    found = []
    for parts in (("mean",), ("last", "max", "mean")):
        backbone = Bag(BagConfig(WORDS, 6, dropout=0.1)).to(dtype)
        head = Pooled(6 * 1, 3, parts=parts, inner=None, dropout=0.1).to(dtype)
        model = loops.random_weights(torch.nn.ModuleList([backbone, head]))
        p, tokens = dict(model.named_parameters()), _tokens(3, 7)
        is_real = torch.arange(7) < RAGGED[:, None]
        answers = head(backbone(tokens, mask=real_keys(is_real)).hidden, is_real)
        expected = []
        for row, length in enumerate(RAGGED.tolist()):
            text = [loops.drop(p["0.token.weight"][t]) for t in tokens[row, :length]]
            pooled = loops.drop(_pool(text, parts))
            expected.append(p["1.labels.weight"] @ pooled + p["1.labels.bias"])
        theirs = torch.stack(expected)
        found.append(_compare([answers], [theirs], answers.sin().sum(), theirs.sin().sum(), model))
    return merge(found)


def _memory_case(cell: str, activation: str = "sigmoid") -> Case:
    def compare(dtype: torch.dtype) -> Differences:
        shapes = (RAGGED, torch.tensor([1]), torch.tensor([6, 6]))
        return merge(_one_way(cell, dtype, lengths, activation) for lengths in shapes)

    name = {"elman": f"Elman ({activation})", "gru": "GRU", "lstm": "LSTM"}[cell]
    return Case(name, "next word, padding, memory", loops.PAPER, compare)


CASES = [
    Case("Bag of words", "pooling, padding", loops.PAPER, _bag),
    Case("CNN", "kernels 3, 5, 11, padding", loops.PAPER, _convolutions),
    _memory_case("elman"),
    _memory_case("elman", "tanh"),
    _memory_case("gru"),
    _memory_case("lstm"),
    *(
        Case(name, "both ways, padding", loops.PAPER, lambda dtype, c=cell: _both_ways(c, dtype))
        for name, cell in (("Elman", "elman"), ("GRU", "gru"), ("LSTM", "lstm"))
    ),
]
