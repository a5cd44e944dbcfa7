"""ELMo against loops over letters and words."""

import torch
from torch import Tensor, nn

from labkit.blocks import halves
from labkit.heads import NextWord
from labkit.masking import real_keys
from labkit.models.elmo import ELMo, ELMoConfig, WeightedSum, spell
from labkit.transfer.mixed import Mixed

from . import Case, Differences, largest, loops, merge

WORDS = ["", "a", "the", "stick", "naïve", "extraordinarily", "dog", "o", "日本"]
CONFIG = ELMoConfig(len(WORDS), 9, 4, ((1, 3), (2, 4), (5, 2)), 2, 6, 10, 3)


def _letters(word: str) -> list[int]:
    """Two marks around the bytes, cut to nine letters, blanks behind."""
    letters = [258, *list(word.encode("utf-8"))[:7], 259]
    return letters + [260] * (9 - len(letters))


def _word(p: dict[str, Tensor], letters: list[int]) -> Tensor:
    """Section 2 of Kim et al.: kernels over the letters, their best matches, two highways."""
    spelled = [p["token.letter.weight"][letter] for letter in letters]
    best = []
    for k, (size, _) in enumerate(CONFIG.kernels):
        weight, bias = p[f"token.kernels.{k}.weight"], p[f"token.kernels.{k}.bias"]
        matches = [
            bias + sum(weight[:, :, j] @ spelled[at + j] for j in range(size))
            for at in range(len(letters) - size + 1)
        ]
        best.append(loops.relu(torch.stack(matches)).max(dim=0).values)
    x = torch.cat(best)
    for i in range(CONFIG.highways):
        name = f"token.highways.{i}"
        gate = loops.sigmoid(p[f"{name}.gate.weight"] @ x + p[f"{name}.gate.bias"])
        new = loops.relu(p[f"{name}.change.weight"] @ x + p[f"{name}.change.bias"])
        x = gate * new + (1 - gate) * x
    return p["token.out.weight"] @ x + p["token.out.bias"]


def _direction(p: dict[str, Tensor], way: str, text: list[Tensor], memory):
    """The layers of one language model, reading the text in the order in which it is given."""
    layers, kept = [text], []
    for i in range(CONFIG.layers):
        # In bilm-tf, DropoutWrapper stands around ResidualWrapper: what is added is dropped, too.
        given = [loops.drop(x) for x in layers[-1]]
        read, after = loops.lstm(p, f"blocks.{i}.{way}", given, *memory[i])
        kept.append(after)
        if i > 0:
            read = [new + old for new, old in zip(read, given, strict=True)]
        layers.append(read)
    return layers, kept


def _compare(dtype: torch.dtype, spelled: bool, normalise: bool) -> Differences:
    mix = WeightedSum(CONFIG.layers + 1, normalise=normalise)
    model = loops.random_weights(Mixed(ELMo(CONFIG, WORDS), mix).to(dtype))
    head = loops.random_weights(NextWord(nn.Embedding(len(WORDS), CONFIG.width)).to(dtype), 1)
    p = dict(model.backbone.named_parameters())
    blank = [(torch.zeros(6, dtype=dtype), torch.zeros(10, dtype=dtype))] * CONFIG.layers
    found = []
    for lengths in ([4, 7, 1], [1], [3, 3]):
        memory, starts = None, [blank] * len(lengths)
        for seed, real_lengths in enumerate(([2] * len(lengths), lengths)):
            draw = torch.Generator().manual_seed(seed)
            size = (len(lengths), max(real_lengths))
            tokens = torch.randint(len(WORDS), size, generator=draw)
            real = torch.arange(size[1]) < torch.tensor(real_lengths)[:, None]
            given = {"mask": real_keys(real), "memory": memory}
            if spelled:
                texts = [spell([WORDS[t] for t in row], 9) for row in tokens.tolist()]
                states = model(None, characters=torch.stack(texts), **given)
            else:
                states = model(tokens, **given)
            left, right = halves(states)
            assert torch.equal(torch.cat([left.hidden, right.hidden], -1), states.hidden)
            layers: list[list[list[Tensor]]] = [[] for _ in range(CONFIG.layers + 1)]
            ends = []
            for row, length in enumerate(real_lengths):
                text = [_word(p, _letters(WORDS[t])) for t in tokens[row, :length].tolist()]
                forward, end = _direction(p, "left", text, starts[row])
                backward, _ = _direction(p, "right", text[::-1], blank)
                ends.append(end)
                for i, (one, other) in enumerate(zip(forward, backward, strict=True)):
                    pairs = zip(one, other[::-1], strict=True)
                    layers[i].append([torch.cat(pair) for pair in pairs])
            found.append(_differences(model, states, real, layers, ends, normalise))
            found.append(_both_directions(model, head, states, tokens, real, layers[-1]))
            starts = [[tuple(x.detach() for x in hc) for hc in row] for row in ends]
            memory = tuple(tuple(x.detach() for x in layer) for layer in states.memory)
    return merge(found)


def _differences(model, states, real, layers, ends, normalise: bool) -> Differences:
    flat = [loops.flat(layer) for layer in layers]
    shares, mixed = loops.softmax(model.mix.weights), 0
    for share, layer in zip(shares, flat, strict=True):
        if normalise:
            centred = layer - layer.mean(dim=1, keepdim=True)
            layer = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
        mixed = mixed + share * layer
    mixed = model.mix.scale * mixed
    ours = [layer[real] for layer in states.layers]
    ours += [part for layer in states.memory for part in layer]
    theirs = [*flat, mixed]
    theirs += [
        torch.stack([row[i][k] for row in ends]) for i in range(CONFIG.layers) for k in range(2)
    ]
    weights = list(model.parameters())
    return {
        "layers": largest(ours, theirs),
        "gradients": largest(
            torch.autograd.grad(states.hidden[real].sin().sum(), weights, retain_graph=True),
            torch.autograd.grad(mixed.sin().sum(), weights, retain_graph=True),
        ),
    }


def _both_directions(model, head, states, tokens: Tensor, real: Tensor, top) -> Differences:
    """Section 3.1: the next word and the one before, by one softmax; a word alone asks nothing."""
    left, right = (half.layers[-2] for half in halves(states))
    both = real[:, 1:] & real[:, :-1]
    words = head.words.weight
    asked = [
        (h, int(tokens[row, place + step]))
        for row, text in enumerate(top)
        for place, state in enumerate(text)
        for h, step in ((state[: CONFIG.width], 1), (state[CONFIG.width :], -1))
        if 0 <= place + step < len(text)
    ]
    if not asked:
        return {}
    expected = sum(loops.surprise(words @ h, word) for h, word in asked) / len(asked)
    ahead = head.losses_N(left[:, :-1][both], tokens[:, 1:][both])
    back = head.losses_N(right[:, 1:][both], tokens[:, :-1][both])
    loss = (ahead.mean() + back.mean()) / 2
    weights = [*model.backbone.parameters(), *head.parameters()]
    return {
        "loss": largest([loss], [expected]),
        "gradients": largest(
            torch.autograd.grad(loss, weights, retain_graph=True),
            torch.autograd.grad(expected, weights),
        ),
    }


CASES = [
    Case("ELMo", "all layers, padding, memory, mix", loops.PAPER,
         lambda dtype: _compare(dtype, False, False)),
    Case("ELMo", "words given by letters, normalised mix", loops.PAPER,
         lambda dtype: _compare(dtype, True, True)),
]  # fmt: skip
