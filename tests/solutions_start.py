"""The exercises of notebook 00, each solved in two ways that are not the course's own."""

import math

import numpy as np
import torch
from torch import Tensor


def surprise_by_numpy(p: Tensor) -> Tensor:
    return torch.tensor(float(np.mean(-np.log(p.numpy()))))


def surprise_by_loops(p: Tensor) -> Tensor:
    return torch.tensor(sum(-math.log(one) for one in p.tolist()) / len(p))


def entropy_by_where(next_word: Tensor, share: Tensor) -> Tensor:
    log_p = torch.where(next_word > 0, next_word, 1.0).log()
    return -(share @ (next_word * log_p).sum(dim=1))


def entropy_by_special(next_word: Tensor, share: Tensor) -> Tensor:
    return (torch.special.entr(next_word).sum(dim=1) * share).sum()


def pairs_by_bincount(tokens: Tensor, size: int) -> Tensor:
    return torch.bincount(tokens[:-1] * size + tokens[1:], minlength=size**2).view(size, size)


def pairs_by_index_put(tokens: Tensor, size: int) -> Tensor:
    ones = torch.ones(len(tokens) - 1)
    return torch.zeros(size, size).index_put((tokens[:-1], tokens[1:]), ones, accumulate=True)


def smoothed_in_place(counts: Tensor) -> Tensor:
    more = counts + 1
    return more / more.sum(dim=1, keepdim=True)


def smoothed_by_rows(counts: Tensor) -> Tensor:
    return torch.stack([(row + 1) / (row.sum() + len(row)) for row in counts])


def loss_by_log_softmax(logits: Tensor, before: Tensor, word: Tensor) -> Tensor:
    return -logits.log_softmax(dim=-1)[before, word].mean()


def loss_by_logsumexp(logits: Tensor, before: Tensor, word: Tensor) -> Tensor:
    return (logits.logsumexp(dim=1)[before] - logits[before, word]).sum() / len(word)


RIGHT = {
    "00.surprise": (surprise_by_numpy, surprise_by_loops),
    "00.entropy": (entropy_by_where, entropy_by_special),
    "00.pairs": (pairs_by_bincount, pairs_by_index_put),
    "00.smoothed": (smoothed_in_place, smoothed_by_rows),
    "00.loss": (loss_by_log_softmax, loss_by_logsumexp),
}
