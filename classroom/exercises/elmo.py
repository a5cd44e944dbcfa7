"""Exercises of notebook 02: both targets, spelling, the best match of a kernel, the mix."""

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def both_targets(tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The next and the previous token of each position [B, T], -100 where there is none."""
    nothing = torch.full_like(tokens[:, :1], -100)
    known = tokens.masked_fill(~real, -100)
    after = torch.cat([known[:, 1:], nothing], dim=1)
    before = torch.cat([nothing, known[:, :-1]], dim=1)
    return after.masked_fill(~real, -100), before.masked_fill(~real, -100)


def spelled(word: str, longest: int) -> list[int]:
    """258, the bytes of the word, 259, and blanks (260) up to `longest`; a long word is cut."""
    letters = list(word.encode())[: longest - 2]
    return [258, *letters, 259] + [260] * (longest - 2 - len(letters))


def best_match(letters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu of each kernel's best match anywhere in the word: [N, E, L] to [N, F]."""
    return F.conv1d(letters, weight, bias).amax(dim=-1).relu()


def mix(layers: Tensor, w: Tensor, gamma: Tensor) -> Tensor:
    """gamma * sum_i s_i layers[i] with s = softmax(w): [L, B, T, D] to [B, T, D]."""
    return gamma * (w.softmax(dim=0)[:, None, None, None] * layers).sum(dim=0)


# ---- inputs -----------------------------------------------------------------------------------


def _rows(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    rows, length = between(1, 4, rng), between(3, 7, rng)
    tokens = torch.randint(1, 30, (rows, length), generator=rng)
    lengths = torch.randint(2, length + 1, (rows,), generator=rng)
    lengths[0] = length - 1  # some padding at the end
    return tokens, torch.arange(length) < lengths[:, None]


WORDS = ("stick", "sticks", "a", "straße", "naïve", "東京", "unbelievable", "light")


def _letters(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    words, width, length = between(1, 4, rng), between(2, 4, rng), between(4, 8, rng)
    kernels, reach = between(2, 5, rng), between(2, 4, rng)
    letters = torch.randn(words, width, length, generator=rng).requires_grad_()
    weight = torch.randn(kernels, width, reach, generator=rng)
    return letters, weight, 0.5 * torch.randn(kernels, generator=rng) - 1


def _layers(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    count, rows, length, width = (between(2, 5, rng) for _ in range(4))
    layers = torch.randn(count, rows, length, width, generator=rng)
    w = torch.randn(count, generator=rng).requires_grad_()
    return layers, w, (0.5 + 2 * torch.rand((), generator=rng)).requires_grad_()


# ---- mistakes ---------------------------------------------------------------------------------


def _rolled(tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    after, before = tokens.roll(-1, dims=1), tokens.roll(1, dims=1)
    return after.masked_fill(~real, -100), before.masked_fill(~real, -100)


def _predicts_padding(tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    after, before = both_targets(tokens, torch.ones_like(real))
    return after.masked_fill(~real, -100), before.masked_fill(~real, -100)


def _characters(word: str, longest: int) -> list[int]:
    letters = [ord(letter) for letter in word][: longest - 2]
    return [258, *letters, 259] + [260] * (longest - 2 - len(letters))


EXERCISES: dict[str, Exercise] = {
    "02.targets": Function(
        "(the next token, the token before) of each position, −100 where there is none",
        both_targets,
        _rows,
        (
            ("the two directions are exchanged: first the next token, then the one before",
             lambda *given: both_targets(*given)[::-1]),
            ("the row is a ring in your version: nothing follows its last token, and nothing comes "
             "before its first", _rolled),
            ("padding is a target, and padding has to predict: neither may count",
             lambda tokens, real: both_targets(tokens, torch.ones_like(real))),
            ("the last real token is asked for the padding after it", _predicts_padding),
            ("nothing is shifted: each position would be asked for the word that it has just read",
             lambda tokens, real: (tokens.masked_fill(~real, -100),) * 2),
        ),
        learned="the targets of a biLM",
        hint="Shift by one to each side. There is no target at an end, and none in padding.",
    ),
    "02.spell": Function(
        "a list of `longest` numbers: 258, the bytes of the word, 259, and 260 to fill up",
        spelled,
        lambda rng: (WORDS[between(0, len(WORDS), rng)], between(5, 12, rng)),
        (
            ("the marks are missing: 258 begins a word and 259 ends it",
             lambda word, longest: (list(word.encode()) + [260] * longest)[:longest]),
            ("a long word has lost its end mark: cut the bytes and not the whole list",
             lambda word, longest: [258, *word.encode(), 259, *[260] * longest][:longest]),
            ("those are characters, not bytes: ß has one number and two bytes, "
             "`word.encode()` gives them",
             _characters),
            ("a blank is 260 and not 0, which is a byte of its own",
             lambda *given: [0 if n == 260 else n for n in spelled(*given)]),
            ("the list has to have `longest` numbers: fill up with 260",
             lambda *given: [n for n in spelled(*given) if n != 260]),
        ),
        learned="words as bytes",
        hint="`list(word.encode())` gives the bytes; the two marks leave room for `longest` − 2.",
    ),
    "02.match": Function(
        "the relu of each kernel's best match anywhere in the word: [N, F]",
        best_match,
        _letters,
        (
            ("that is the mean over the positions: the best match is the maximum",
             lambda letters, weight, bias: F.conv1d(letters, weight, bias).mean(dim=-1).relu()),
            ("the relu is missing", lambda letters, weight, bias:
             F.conv1d(letters, weight, bias).amax(dim=-1)),
            ("the maximum was taken over the kernels: take it over the positions, the last "
             "dimension", lambda letters, weight, bias:
             F.conv1d(letters, weight, bias).amax(dim=1).relu()),
            ("only the first position was looked at: an ending is at the end",
             lambda letters, weight, bias: F.conv1d(letters, weight, bias)[..., 0].relu()),
            ("the bias is missing", lambda letters, weight, bias:
             F.conv1d(letters, weight).amax(dim=-1).relu()),
            ("zeros were added at both ends: a kernel should not match what is not there",
             lambda letters, weight, bias:
             F.conv1d(letters, weight, bias, padding=1).amax(dim=-1).relu()),
        ),
        minutes=10,
        learned="a convolution over letters",
    ),
    "02.mix": Function(
        "gamma times the weighted sum of the layers, the weights being the softmax of w: [B, T, D]",
        mix,
        _layers,
        (
            ("w was used as it is: its softmax gives the shares",
             lambda layers, w, gamma: gamma * (w[:, None, None, None] * layers).sum(dim=0)),
            ("the scale gamma is missing",
             lambda layers, w, gamma: mix(layers, w, torch.ones_like(gamma))),
            ("all layers have the same share: use w",
             lambda layers, w, gamma: mix(layers, 0 * w, gamma)),
            ("that is the top layer alone",
             lambda layers, w, gamma: gamma * layers[-1]),
            ("the shares add up to 1 already: do not divide by the number of layers",
             lambda layers, w, gamma: mix(layers, w, gamma) / len(w)),
        ),
        learned="a learned mix of layers",
        hint="The softmax runs over the layers. `torch.einsum` or a sum over a list both work.",
    ),
}  # fmt: skip
