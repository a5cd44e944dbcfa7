"""Attention: masks, scales, and the dimension of the softmax."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 6, 4


def honest(q_BHTD: Tensor, k_BHKD: Tensor, v_BHKD: Tensor, mask_B1TK: Tensor) -> Tensor:
    """Scaled dot-product attention, as in the paper."""
    return _weights(q_BHTD, k_BHKD, mask_B1TK) @ v_BHKD


def _weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    return _scores(q, k).masked_fill(~mask, -torch.inf).softmax(dim=-1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


def _key_by_key(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """One key after the other with a running sum, as FlashAttention does."""
    most = torch.full((*q.shape[:-1], 1), -1e4)
    total, value = torch.zeros_like(most), torch.zeros(*q.shape[:-1], v.shape[-1])
    for j in range(k.shape[2]):
        score = _scores(q, k[:, :, j : j + 1]).masked_fill(~mask[..., j : j + 1], -torch.inf)
        more = torch.maximum(most, score)
        old, new = (most - more).exp(), (score - more).exp()
        total, value, most = total * old + new, value * old + new * v[:, :, j : j + 1], more
    return value / total


def _filled(value: float) -> Attend:
    """An attention that sets hidden scores to a number."""
    return lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, value).softmax(-1) @ v


def _scaled(width: int) -> Attend:
    """An attention whose scores are divided by the root of another width."""
    return lambda q, k, v, mask: honest(q * (q.shape[-1] / width) ** 0.5, k, v, mask)


def _heads_of_others(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    # repeat lays the masks out as 0 1 0 1 …; heads of one text stand side by side: 0 0 0 1 1 1.
    tiled = mask.expand(-1, -1, q.shape[2], -1)[:, 0].repeat(q.shape[1], 1, 1)
    return honest(q, k, v, tiled.view(len(q), q.shape[1], q.shape[2], -1))


def arguments() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries [B, H, T, E], keys and values [B, H, K, E], and which keys are seen [B, 1, T, K]."""
    q, k, v = (torch.randn(BATCH, HEADS, n, DIM) for n in (QUERIES, KEYS, KEYS))
    mask = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.6
    mask[..., 0] = True
    mask[..., -1] = torch.arange(BATCH)[:, None, None] > 0
    return q, k, v, mask


TOPIC = Topic(
    "attend(queries, keys, values, mask) returns softmax(q · k / √E) · v over the keys where the "
    "mask [B, 1, T, K] is True; return True if attend does something else",
    (
        Honest("a sound attention", honest),
        Honest("a sound attention of PyTorch's", F.scaled_dot_product_attention),
        Honest("a sound attention in 64 bits",
               lambda q, k, v, mask: honest(q.double(), k.double(), v.double(), mask).to(q.dtype)),
        Honest("a sound attention that reads key by key", _key_by_key),
    ),
    (
        Bug("the mask is turned round", lambda q, k, v, mask: honest(q, k, v, ~mask | (~mask).all(
                -1, keepdim=True)),
            "x-transformers, issue 160; LLMs-from-scratch, issue 1061",
            "Change a key and a value that the mask hides"),
        Bug("no mask", lambda q, k, v, mask: honest(q, k, v, torch.ones_like(mask)),
            "pytorch-openai-transformer-lm, issue 45: padding was attended to",
            "Change a key and a value that the mask hides"),
        Bug("0 where −∞ belongs", _filled(0.0),
            "hyunwoongko/transformer, issue 10: hidden scores were set to −10⁻¹²",
            "Change a value that the mask hides, and its key alone as well"),
        Bug("the mask comes after the softmax",
            lambda q, k, v, mask: (_scores(q, k).softmax(dim=-1) * mask) @ v,
            "timm, pull request 2236: eva.py",
            "Do the weights of what is seen add up to 1? Try values that are all 1"),
        Bug("another text's mask for some heads", _heads_of_others,
            "CLIP4Clip, issue 22; lighthouse, pull request 77: repeat for repeat_interleave",
            "Change what is hidden in one text only, and look at every head"),
        Bug("the softmax runs over the queries",
            lambda q, k, v, mask: torch.nan_to_num(
                _scores(q, k).masked_fill(~mask, -torch.inf).softmax(dim=-2)) @ v,
            "labml, issue 282; PyTorch-NLP, issue 2",
            "Do the weights of what is seen add up to 1? Try values that are all 1"),
        Bug("no scale", _scaled(1),
            "mlc-llm, pull request 3426; tiny-transformers, issue 71",
            "Calculate the attention of one query yourself and compare"),
        Bug("the scale of all heads together", _scaled(DIM * HEADS),
            "karpathy/ng-video-lecture, pull request 6",
            "Calculate the attention of one query yourself and compare"),
        Bug("dropout after training",
            lambda q, k, v, mask: F.dropout(_weights(q, k, mask), 0.1, training=True) @ v,
            "nanoGPT, pull request 240; PyTorch, issue 124464",
            "Does the same input give the same result twice?"),
    ),
    arguments,
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def shares() -> list[float]:
    """The mean attention that five words and three positions of padding get without a mask."""
    rng = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, n, DIM, generator=rng) for n in (200, 8))
    k[:, :, 5:] = 0.0  # the embedding of padding
    return _weights(q, k, torch.ones(1, 1, 1, 8).bool())[0, 0].mean(dim=0).tolist()


def _measure() -> Seen:
    got = shares()
    return Seen(
        f"A row has five words and three positions of padding. Its queries give the padding "
        f"{sum(got[5:]):.0%} of their attention, and the shares add up to 1.",
        got, "position",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "no mask: padding counts as words",
    {
        "the mask is turned round": "with that bug the padding would get all of the attention",
        "the mask comes after the softmax": "with that bug the padding would get nothing, and the "
        "rest would add up to less than 1",
        "the softmax runs over the queries": "with that bug the shares of one query would not add "
        "up to 1",
        "no scale": "with that bug the shares would be more uneven, but padding would get none",
    },
)
