"""Masking: language models that look ahead."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Model = Callable[[Tensor], Tensor]
WORDS, WIDTH = 9, 8
_RNG = torch.Generator().manual_seed(0)
TABLE = torch.randn(WORDS, WIDTH, generator=_RNG)
MIX = torch.randn(WIDTH, WORDS, generator=_RNG)


def averaging(sees: Callable[[int], Tensor]) -> Model:
    """A model whose positions take the mean of all positions that they may see."""

    def model(tokens: Tensor) -> Tensor:
        mask = sees(tokens.shape[1]).float()
        return (mask / mask.sum(-1, keepdim=True)) @ TABLE[tokens] @ MIX

    return model


def causal(length: int) -> Tensor:
    """True where a position may look."""
    return torch.ones(length, length, dtype=torch.bool).tril()


honest = averaging(causal)


def _in_another_layout(tokens: Tensor) -> Tensor:
    return honest(tokens.T.contiguous().T).double().transpose(1, 2).contiguous().transpose(1, 2)


def _rounded_differently(tokens: Tensor) -> Tensor:
    # Another order of adding up: the last digits depend on all of the batch.
    return honest(tokens) * (1 + 2e-7 * tokens.sum().sin())


def _softmax_over(scores: Tensor, tokens: Tensor) -> Tensor:
    return scores.softmax(-1) @ TABLE[tokens] @ MIX


def _finite(tokens: Tensor) -> Tensor:
    hidden = ~causal(tokens.shape[1])
    return _softmax_over(hidden * -3.0, tokens)


def _added(tokens: Tensor) -> Tensor:
    return _softmax_over(causal(tokens.shape[1]).float(), tokens)


def _strict(tokens: Tensor) -> Tensor:
    # Nothing is left to see for the first position, and a softmax over equal scores is even.
    hidden = ~causal(tokens.shape[1]).tril(-1)
    return _softmax_over(hidden * -1e30, tokens) + TABLE[tokens] @ MIX


def _normalised(tokens: Tensor) -> Tensor:
    x = TABLE[tokens]
    x = (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)
    return honest(tokens) + 1e-2 * x @ MIX


def _experts_choose(tokens: Tensor) -> Tensor:
    # An expert takes the half of all positions that suit it best.
    suits = TABLE[tokens][..., 0] + torch.linspace(0, 1e-3, tokens.shape[1])
    chosen = suits >= suits.quantile(0.5, dim=1, keepdim=True)
    return honest(tokens) + chosen[..., None] * MIX[0]


def _prefix(length: int) -> Tensor:
    mask = causal(length)
    mask[:3, :3] = True
    return mask


def _joined(length: int) -> Tensor:
    near = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= 1
    return causal(length) | near


TOPIC = Topic(
    "return True if some position depends on a later word",
    (
        Honest("a sound GPT", honest),
        Honest("a sound model that sees only three words",
               averaging(lambda length: causal(length).triu(-2))),
        Honest("a sound model that ignores its input",
               lambda tokens: torch.zeros(*tokens.shape, WORDS)),
        Honest("a sound model in 64 bits and another layout", _in_another_layout),
        Honest("a sound model whose last digit is rounded differently each time",
               _rounded_differently),
    ),
    (
        Bug("no mask at all", averaging(lambda length: torch.ones(length, length)),
            "Keras, 2026: with dropout the causal mask was dropped (issue 23038)",
            "Change a later word and see whether anything before it moves"),
        Bug("triu(2) for triu(1): one word ahead",
            averaging(lambda length: torch.ones(length, length).tril(1)),
            "triu's diagonal: PyTorch's forum and many courses; a slip of one character",
            "A leak may reach one word ahead only: look at the position right before the "
            "word that you change"),
        Bug("causal | window: joined by “or”, the window wins", averaging(_joined),
            "levanter: causal() | explicit(mask) lost its causal part",
            "A leak may reach one word ahead only: look at every position before the change"),
        Bug("the first three words see each other", averaging(_prefix),
            "prefix language models, such as PaliGemma, where it is wanted; elsewhere a leak",
            "A leak may sit among the first positions only: change every word in turn"),
        Bug("the first row sees nothing, and then everything", _strict,
            "XLNet's release: −1e30 in all of a row gives the mean of all words",
            "A leak may sit at the first position only: compare that one, too"),
        Bug("−3 where −∞ belongs", _finite,
            "transformers: −10,000 for −∞ for years, too little where scores are large",
            "A leak may be small: how close must two outputs be?"),
        Bug("a mask of 0 and 1 that is added to the scores", _added,
            "tsai, issue 171: a mask that is not boolean hides nothing",
            "Change a later word and see whether anything before it moves"),
        Bug("normalised over positions", _normalised,
            "batch norm leaks information about the other examples: MoCo, section 3.3",
            "A leak may be small: how close must two outputs be?"),
        Bug("experts that choose their words", _experts_choose,
            "expert choice routing: Zhou et al. 2022; see Raposo et al. 2024, section 3.5",
            "A leak may show for some words only: try more than one change, and more texts"),
    ),
    lambda: (torch.randint(0, WORDS, (4, 8)),),
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def peeking() -> list[float]:
    """The loss at each position of a small model that sees one word ahead, after training."""
    length, rng = 8, torch.Generator().manual_seed(0)
    tokens = torch.randint(WORDS, (64, length + 1), generator=rng)
    table = torch.zeros(WORDS, WORDS, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.5)
    loss_BT = torch.zeros(1)
    for _ in range(60):
        # With triu(2), position t sees word t + 1, which it has to predict; the last one has none.
        seen = torch.cat([tokens[:, 1:length], tokens[:, length - 1 : length]], dim=1)
        logits = table[seen].transpose(1, 2)
        loss_BT = F.cross_entropy(logits, tokens[:, 1:], reduction="none")
        optimizer.zero_grad()
        loss_BT.mean().backward()
        optimizer.step()
    return loss_BT.detach().mean(dim=0).tolist()


def _measure() -> Seen:
    losses, floor = peeking(), math.log(WORDS)
    return Seen(
        f"On words drawn at random, the loss is {losses[0]:.1f} at the first position and "
        f"{losses[-1]:.1f} at the last one; the lowest possible loss is {floor:.1f}.",
        losses, "position", floor,
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "each position sees one word too many: the word that comes next",
    {
        "each position sees itself": "that is no bug: GPT's positions see themselves",
        "no position sees the words before it": "with that bug the loss would be at the floor "
        "here, not below: nothing can be known of these words",
        "padding counts as words": "these rows have no padding",
        "the loss is the mean over the rows' means": "all rows are equally long here, so both "
        "means are the same",
    },
)
