"""The exercises of notebook 04, each solved in two ways that are not the course's own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_of_torch(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_by_exponents(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    shares = torch.einsum("...qe,...ke->...qk", q, k).div(q.shape[-1] ** 0.5).exp() * mask
    return (shares / shares.sum(dim=-1, keepdim=True)) @ v


def mask_by_comparison(length: int) -> Tensor:
    return torch.arange(length)[:, None] >= torch.arange(length)


def mask_by_loops(length: int) -> Tensor:
    return torch.tensor([[j <= i for j in range(length)] for i in range(length)])


def heads_by_chunks(x: Tensor, heads: int) -> Tensor:
    return torch.stack(x.chunk(heads, dim=-1), dim=1)


def heads_by_views(x: Tensor, heads: int) -> Tensor:
    rows, length, width = x.shape
    return x.view(rows, length, heads, width // heads).permute(0, 2, 1, 3)


def sinusoids_by_loops(length: int, width: int) -> Tensor:
    rows = []
    for p in range(length):
        angles = [p / 10_000 ** (2 * i / width) for i in range(width // 2)]
        rows.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
    return torch.tensor(rows)


def sinusoids_by_exponents(length: int, width: int) -> Tensor:
    i = torch.arange(width // 2, dtype=torch.float64)
    angles = torch.outer(torch.arange(length).double(), torch.exp(-math.log(1e4) * 2 * i / width))
    return torch.hstack([torch.sin(angles), torch.cos(angles)]).float()


def cross_of_torch(
    x: Tensor, source: Tensor, real: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    q, k, v = x @ query, source @ key, source @ value
    return F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None])


def cross_by_rows(
    x: Tensor, source: Tensor, real: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    found = []
    for own, text, kept in zip(x, source, real, strict=True):
        scores = (own @ query) @ (text[kept] @ key).T / math.sqrt(x.shape[-1])
        found.append(scores.softmax(dim=1) @ (text[kept] @ value))
    return torch.stack(found)


def forced_by_padding(answers: Tensor, begin: int) -> Tensor:
    return F.pad(answers, (1, -1), value=begin)


def forced_in_place(answers: Tensor, begin: int) -> Tensor:
    given = answers.roll(1, dims=1)
    given[:, 0] = begin
    return given


def smoothed_by_targets(logits: Tensor, answers: Tensor, share: float) -> Tensor:
    words = logits.shape[1]
    target = F.one_hot(answers, words) * (1 - share) + share / words
    return -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()


def smoothed_by_two_terms(logits: Tensor, answers: Tensor, share: float) -> Tensor:
    plain = F.cross_entropy(logits, answers)
    even = (logits.logsumexp(dim=1) - logits.mean(dim=1)).mean()
    return (1 - share) * plain + share * even


RIGHT = {
    "04.attention": (attention_of_torch, attention_by_exponents),
    "04.mask": (mask_by_comparison, mask_by_loops),
    "04.heads": (heads_by_chunks, heads_by_views),
    "04.sinusoids": (sinusoids_by_loops, sinusoids_by_exponents),
    "04.cross": (cross_of_torch, cross_by_rows),
    "04.forced": (forced_by_padding, forced_in_place),
    "04.smoothed": (smoothed_by_targets, smoothed_by_two_terms),
}
