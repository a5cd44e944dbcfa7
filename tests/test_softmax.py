"""The loss in pieces is the loss, with its gradients, however much each target counts."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from labkit import fast
from labkit.fast import softmax
from labkit.heads import MaskedWord, NextWord, losses


@pytest.fixture(autouse=True)
def in_pieces() -> Iterator[None]:
    """The faster version is in use."""
    with fast.enable():
        yield


def inputs(biased: bool, dtype: torch.dtype) -> list[Tensor | None]:
    """States, vectors of words and a bias, with gradients; and targets."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(11, 5), (23, 5), (23,)]
    made = [torch.randn(*s, generator=draw, dtype=dtype).requires_grad_() for s in shapes]
    return [*made[:2], made[2] if biased else None, torch.randint(0, 23, (11,), generator=draw)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scores", [1, 23 * 4, 10_000])
@pytest.mark.parametrize("counts", ["the same", "not the same"])
def test_pieces_are_the_whole(monkeypatch, scores, biased, dtype, counts) -> None:
    monkeypatch.setattr(softmax, "SCORES", scores)
    hidden, words, bias, targets = inputs(biased, dtype)
    learned = [t for t in (hidden, words, bias) if t is not None]
    upstream = torch.full((11,), 0.3, dtype=dtype)
    if counts == "not the same":
        upstream = torch.linspace(-1, 2, 11, dtype=dtype)
    found = losses(hidden, words, bias, targets)
    wanted = F.cross_entropy(F.linear(hidden, words, bias), targets, reduction="none")
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 1e-12}
    torch.testing.assert_close(found, wanted, **tolerance)
    for mine, theirs in zip(
        torch.autograd.grad(found, learned, upstream),
        torch.autograd.grad(wanted, learned, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, **tolerance)


def test_without_gradients_and_without_targets() -> None:
    hidden, words, bias, targets = inputs(True, torch.float32)
    with torch.no_grad():
        found = losses(hidden, words, bias, targets)
    assert not found.requires_grad
    assert torch.equal(found, losses(hidden, words, bias, targets))
    nothing = losses(hidden[:0], words, bias, targets[:0])
    nothing.sum().backward()
    assert nothing.shape == (0,)
    assert (words.grad == 0).all()


def test_a_short_float_is_summed_in_a_longer_one() -> None:
    hidden, words, bias, targets = inputs(True, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = losses(hidden, words, bias, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, losses(hidden, words, bias, targets), rtol=0.02, atol=0.05)


@pytest.mark.parametrize("head", [NextWord, MaskedWord])
def test_a_tied_head_gives_both_gradients_to_the_embedding(head: type) -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(23, 6)
    model, tokens = head(embedding), torch.randint(0, 23, (9,))
    model.losses_N(embedding(tokens), tokens).sum().backward()
    found = embedding.weight.grad.clone()
    embedding.weight.grad = None
    F.cross_entropy(model(embedding(tokens)), tokens, reduction="sum").backward()
    torch.testing.assert_close(found, embedding.weight.grad, rtol=0, atol=1e-5)
