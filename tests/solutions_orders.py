"""The exercises of notebook 11, each solved in two ways that are not the course's own."""

import math
from typing import Any

import torch
from torch import Tensor


def gap_by_entropies(joint: Tensor) -> Tensor:
    def entropy(p: Tensor) -> Tensor:
        return -torch.special.xlogy(p, p).sum()

    return entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint)


def gap_by_loops(joint: Tensor) -> Tensor:
    total = 0.0
    for a, row in enumerate(joint.tolist()):
        for b, p in enumerate(row):
            if p > 0:
                total += p * math.log(p / float(joint[a].sum() * joint[:, b].sum()))
    return torch.tensor(total)


def rank_by_sorting(order: Tensor) -> Tensor:
    return order.argsort()


def rank_by_finding(order: Tensor) -> Tensor:
    return torch.tensor([order.tolist().index(position) for position in range(len(order))])


def masks_by_loops(rank: Tensor) -> tuple[Tensor, Tensor]:
    ranks = rank.tolist()
    content = torch.tensor([[j <= i for j in ranks] for i in ranks])
    return content, torch.tensor([[j < i for j in ranks] for i in ranks])


def masks_by_differences(rank: Tensor) -> tuple[Tensor, Tensor]:
    later = rank.unsqueeze(1) - rank.unsqueeze(0)
    return later.ge(0), later.gt(0)


def partial_by_sorting(rank: Tensor, K: int) -> Tensor:
    words = rank[rank >= 0].sort().values
    chosen = words[-max(len(words) // K, 1) :]
    return torch.isin(rank, chosen)


def partial_by_loops(rank: Tensor, K: int) -> Tensor:
    ranks = rank.tolist()
    words = sum(r >= 0 for r in ranks)
    return torch.tensor([r >= words - max(words // K, 1) for r in ranks])


def streams_by_torch(
    h: Tensor, g: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, content: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    attend = torch.nn.functional.scaled_dot_product_attention
    k, v = (h @ W_k)[None], (h @ W_v)[None]
    new_h = attend((h @ W_q)[None], k, v, attn_mask=content)[0]
    return new_h, attend((g @ W_q)[None], k, v, attn_mask=query)[0]


def streams_by_rows(
    h: Tensor, g: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, content: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    def one(asks: Tensor, mask: Tensor) -> Tensor:
        rows = []
        for x, seen in zip(asks, mask, strict=True):
            weights = ((x @ W_q) @ (h[seen] @ W_k).T / math.sqrt(h.shape[1])).softmax(0)
            rows.append(weights @ (h[seen] @ W_v))
        return torch.stack(rows)

    return one(h, content), one(g, query)


RIGHT: dict[str, tuple[Any, Any]] = {
    "11.gap": (gap_by_entropies, gap_by_loops),
    "11.rank": (rank_by_sorting, rank_by_finding),
    "11.masks": (masks_by_loops, masks_by_differences),
    "11.partial": (partial_by_sorting, partial_by_loops),
    "11.streams": (streams_by_torch, streams_by_rows),
}
