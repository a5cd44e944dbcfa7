"""The exercises of notebook 02, each solved in two ways that are not the course's own."""

import torch
import torch.nn.functional as F
from torch import Tensor


def targets_by_loops(tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    after, before = torch.full_like(tokens, -100), torch.full_like(tokens, -100)
    for row in range(len(tokens)):
        for t in range(int(real[row].sum()) - 1):
            after[row, t] = tokens[row, t + 1]
            before[row, t + 1] = tokens[row, t]
    return after, before


def targets_by_padding(tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    wide, known = F.pad(tokens, (1, 1)), F.pad(real, (1, 1))
    after = torch.where(real & known[:, 2:], wide[:, 2:], -100)
    return after, torch.where(real & known[:, :-2], wide[:, :-2], -100)


def spelled_step_by_step(word: str, longest: int) -> list[int]:
    row = [258]
    for byte in word.encode("utf-8"):
        if len(row) < longest - 1:
            row.append(byte)
    row.append(259)
    while len(row) < longest:
        row.append(260)
    return row


def spelled_by_the_package(word: str, longest: int) -> list[int]:
    from labkit.models.elmo import spell

    return [int(n) for n in spell([word], longest)[0]]


def match_by_windows(letters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    windows = letters.unfold(2, weight.shape[-1], 1)
    return (torch.einsum("nepk,fek->nfp", windows, weight).amax(dim=2) + bias).relu()


def match_by_loops(letters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    reach = weight.shape[-1]
    found = [
        (letters[:, None, :, i : i + reach] * weight).sum(dim=(2, 3)) + bias
        for i in range(letters.shape[-1] - reach + 1)
    ]
    return torch.stack(found).clamp(min=0).max(dim=0).values


def mix_by_einsum(layers: Tensor, w: Tensor, gamma: Tensor) -> Tensor:
    return torch.einsum("l,lbtd->btd", w.softmax(0), layers) * gamma


def mix_by_a_loop(layers: Tensor, w: Tensor, gamma: Tensor) -> Tensor:
    total = w.exp().sum()
    found = torch.zeros_like(layers[0])
    for layer, one in zip(layers, w, strict=True):
        found = found + gamma * one.exp() / total * layer
    return found


RIGHT = {
    "02.targets": (targets_by_loops, targets_by_padding),
    "02.spell": (spelled_step_by_step, spelled_by_the_package),
    "02.match": (match_by_windows, match_by_loops),
    "02.mix": (mix_by_einsum, mix_by_a_loop),
}
