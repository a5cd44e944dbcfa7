"""Skip-gram and CBOW with negative samples against the formulas, word by word."""

import torch

from labkit.models.word_vectors import WordVectors, WordVectorsConfig

from . import Case, Differences, largest, loops, merge


def _told_apart(given: torch.Tensor, right: int, wrong: list[int], u: torch.Tensor) -> torch.Tensor:
    """-log s(u_right . v) - sum log s(-u_wrong . v): equation 4 of Mikolov et al. 2013b."""
    loss = -torch.log(loops.sigmoid(torch.dot(u[right], given)))
    for word in wrong:
        loss = loss - torch.log(loops.sigmoid(-torch.dot(u[word], given)))
    return loss


def _differences(model: WordVectors, losses: torch.Tensor, naive: list) -> Differences:
    expected, weights = torch.stack(naive), list(model.parameters())
    return {
        "loss": largest([losses], [expected]),
        "gradients": largest(
            torch.autograd.grad(losses.sum(), weights), torch.autograd.grad(expected.sum(), weights)
        ),
    }


def _draw(number: int, pairs: int) -> tuple[WordVectors, torch.Tensor]:
    model = loops.random_weights(WordVectors(WordVectorsConfig(11, 5)), seed=number)
    return model, torch.randint(11, (pairs, 12), generator=torch.Generator().manual_seed(number))


def _skip_gram(dtype: torch.dtype) -> Differences:
    found = []
    for number, (pairs, noise) in enumerate(((4, 3), (1, 1), (20, 5))):
        model, words = _draw(number, pairs)
        model = model.to(dtype)
        losses = model.skip_gram(words[:, 0], words[:, 1], words[:, 2 : 2 + noise])
        v, u = model.token.weight, model.output.weight
        naive = [_told_apart(v[row[0]], row[1], row[2 : 2 + noise], u) for row in words.tolist()]
        found.append(_differences(model, losses, naive))
    return merge(found)


def _cbow(dtype: torch.dtype) -> Differences:
    found = []
    for number, (pairs, noise) in enumerate(((4, 3), (1, 1), (20, 5))):
        model, words = _draw(number, pairs)
        model = model.to(dtype)
        present = words[:, 6:10] % 2 == 0
        present[:, 0] = True
        losses = model.cbow(words[:, 6:10], present, words[:, 0], words[:, 1 : 1 + noise])
        v, u = model.token.weight, model.output.weight
        naive = []
        for row, there in zip(words.tolist(), present.tolist(), strict=True):
            near = [v[word] for word, seen in zip(row[6:10], there, strict=True) if seen]
            naive.append(_told_apart(sum(near) / len(near), row[0], row[1 : 1 + noise], u))
        found.append(_differences(model, losses, naive))
    return merge(found)


CASES = [
    Case("Skip-gram", "negative samples", loops.PAPER, _skip_gram),
    Case("CBOW", "negative samples, ragged windows", loops.PAPER, _cbow),
]
