"""The exercises of notebook 01, each solved in two ways that are not the course's own."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pairs_by_offsets(tokens: list[int], reach: int) -> list[tuple[int, int]]:
    found = []
    for i in range(len(tokens)):
        for away in [*range(-reach, 0), *range(1, reach + 1)]:
            if 0 <= i + away < len(tokens):
                found.append((tokens[i], tokens[i + away]))
    return found


def pairs_by_slices(tokens: list[int], reach: int) -> list[tuple[int, int]]:
    found = []
    for i, word in enumerate(tokens):
        left, right = tokens[max(0, i - reach) : i], tokens[i + 1 : i + 1 + reach]
        found += [(word, other) for other in left + right]
    return found


def loss_by_sigmoids(centre: Tensor, near: Tensor, noise: Tensor) -> Tensor:
    right = torch.einsum("nd,nd->n", near, centre).sigmoid().log()
    wrong = (1 - torch.einsum("nkd,nd->nk", noise, centre).sigmoid()).log()
    return -(right + wrong.sum(dim=1))


def loss_by_targets(centre: Tensor, near: Tensor, noise: Tensor) -> Tensor:
    words = torch.cat([near[:, None], noise], dim=1)
    scores = (words @ centre[:, :, None])[..., 0]
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(dim=1)


def noise_by_shares(counts: Tensor) -> Tensor:
    powers = (counts / counts.sum()).pow(3 / 4)
    return powers / powers.sum()


def noise_by_roots(counts: Tensor) -> Tensor:
    return F.normalize(counts.sqrt() * counts.sqrt().sqrt(), p=1, dim=0)


def mean_by_loops(vectors: Tensor, present: Tensor) -> Tensor:
    rows = zip(vectors, present, strict=True)
    return torch.stack([row[here].mean(dim=0) for row, here in rows])


def mean_by_weights(vectors: Tensor, present: Tensor) -> Tensor:
    weights = present / present.sum(dim=1, keepdim=True)
    return torch.einsum("nk,nkd->nd", weights, vectors)


def analogy_by_cosine(vectors: Tensor, a: int, b: int, c: int) -> int:
    query = vectors[b] - vectors[a] + vectors[c]
    order = F.cosine_similarity(vectors, query[None]).argsort(descending=True)
    return next(word for word in order.tolist() if word not in (a, b, c))


def analogy_by_distance(vectors: Tensor, a: int, b: int, c: int) -> int:
    distance = (vectors - (vectors[b] - vectors[a] + vectors[c])).norm(dim=1)
    distance[torch.tensor([a, b, c])] = 1e9
    return int(distance.argmin())


RIGHT = {
    "01.pairs": (pairs_by_offsets, pairs_by_slices),
    "01.loss": (loss_by_sigmoids, loss_by_targets),
    "01.noise": (noise_by_shares, noise_by_roots),
    "01.cbow": (mean_by_loops, mean_by_weights),
    "01.analogy": (analogy_by_cosine, analogy_by_distance),
}
