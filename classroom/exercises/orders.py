"""Exercises of notebook 11: the gap, orders as ranks, two masks, what is predicted, two streams."""

import torch
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, between

# ---- the course's own versions ----------------------------------------------------------------


def gap(joint: Tensor) -> Tensor:
    """What two words say about each other, in nats, from their joint probabilities [V, V]."""
    alone = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    possible = joint > 0
    return (joint[possible] * (joint[possible] / alone[possible]).log()).sum()


def rank_of(order: Tensor) -> Tensor:
    """When each position is predicted [T], from the positions in the order of prediction [T]."""
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    return rank


def stream_masks(rank: Tensor) -> tuple[Tensor, Tensor]:
    """True [T, T] where a row may look at a column: for the content and for the query stream."""
    return rank[None, :] <= rank[:, None], rank[None, :] < rank[:, None]


def to_predict(rank: Tensor, K: int) -> Tensor:
    """True [T] at the last 1/K of the order, at least one word; -1 marks what is always seen."""
    words = int((rank >= 0).sum())
    count = max(1, words // K)
    return rank >= words - count


def two_streams(
    h: Tensor, g: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, content: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """One head of attention for both streams [T, D]; keys and values are the content's."""
    k, v = h @ W_k, h @ W_v
    found = []
    for asks, mask in ((h, content), (g, query)):
        scores = (asks @ W_q) @ k.T / k.shape[1] ** 0.5
        found.append(scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v)
    return found[0], found[1]


# ---- inputs -----------------------------------------------------------------------------------


def _joint(rng: torch.Generator) -> tuple[Tensor]:
    joint = torch.rand(between(2, 5, rng), between(2, 5, rng), generator=rng)
    joint[0, 0] = 0.0
    if len(joint) > 2 and between(0, 2, rng):
        joint[-1] = 0.0  # a word that never occurs
    return (joint / joint.sum(),)


def _rank(rng: torch.Generator) -> tuple[Tensor]:
    """Ranks of some words between two special tokens, which have the rank -1."""
    words = torch.randperm(between(1, 9, rng), generator=rng)
    return (torch.cat([torch.tensor([-1]), words, torch.tensor([-1])]),)


def _rank_and_k(rng: torch.Generator) -> tuple[Tensor, int]:
    """Ranks of some words, with up to three special tokens anywhere, and K."""
    words = torch.randperm(between(1, 9, rng), generator=rng)
    rank = torch.cat([words, torch.full((between(0, 4, rng),), -1)])
    return rank[torch.randperm(len(rank), generator=rng)], between(2, 7, rng)


def _streams(rng: torch.Generator) -> tuple[Tensor, ...]:
    [rank] = _rank(rng)
    width = between(2, 5, rng)
    h, g = (torch.randn(len(rank), width, generator=rng).requires_grad_() for _ in range(2))
    matrices = [torch.randn(width, width, generator=rng) for _ in range(3)]
    content, query = stream_masks(rank)
    # What is always seen is asked nothing; let it see itself, so that no row is empty.
    query = query | torch.diag(rank < 0)
    return h, g, *matrices, content, query


EXERCISES: dict[str, Exercise] = {
    "11.gap": Function(
        "the sum over all pairs of p(a, b) · log(p(a, b) / (p(a) p(b))), in nats",
        gap,
        _joint,
        (
            ("0 · log 0 counts as 0, but a computer says nan: leave impossible pairs out",
             lambda joint: (joint * (joint / (joint.sum(1, True) * joint.sum(0, True))).log())
             .sum()),
            ("a word that never occurs gives 0 / 0: leave impossible pairs out before you divide",
             lambda joint: torch.xlogy(joint, joint / (joint.sum(1, True) * joint.sum(0, True)))
             .sum()),
            ("the sign is wrong: what two words say about each other is never negative",
             lambda joint: -gap(joint)),
            ("that is the entropy of the pair: divide by the product of the two alone",
             lambda joint: -(joint[joint > 0] * joint[joint > 0].log()).sum()),
            ("that is in bits: the natural logarithm gives nats",
             lambda joint: gap(joint) / torch.tensor(2.0).log()),
            ("each pair counts as often as it occurs: weight by p(a, b), do not take the mean",
             lambda joint: (joint / (joint.sum(1, True) * joint.sum(0, True)))[joint > 0].log()
             .mean()),
        ),
        minutes=10,
        learned="what independence costs",
    ),
    "11.rank": Function(
        "a tensor [T]: when each position is predicted, from 0 on",
        rank_of,
        lambda rng: (torch.randperm(between(1, 8, rng), generator=rng),),
        (
            ("that is the order itself: the rank says for each position when its turn comes",
             lambda order: order.clone()),
            ("ranks are counted from 0", lambda order: rank_of(order) + 1),
            ("the first word of the order has the rank 0, not the last one",
             lambda order: len(order) - 1 - rank_of(order)),
        ),
        learned="an order as ranks",
        hint="`order` says which position comes at each step; its inverse says when each comes.",
    ),
    "11.masks": Function(
        "two booleans [T, T], content and query: may the row look at the column?",
        stream_masks,
        _rank,
        (
            ("rows and columns are swapped: the row is the query, the column the key",
             lambda rank: tuple(mask.T for mask in stream_masks(rank))),
            ("the query stream may not see its own word: it has to predict it",
             lambda rank: (stream_masks(rank)[0], stream_masks(rank)[0])),
            ("the content stream sees its own word, too",
             lambda rank: (stream_masks(rank)[1], stream_masks(rank)[1])),
            ("the two are in the other order: content first, then query",
             lambda rank: stream_masks(rank)[::-1]),
            ("that is the order of the text: compare ranks, not positions",
             lambda rank: stream_masks(torch.arange(len(rank)))),
        ),
        minutes=10,
        learned="an order is two masks",
        hint="Compare `rank[None, :]` with `rank[:, None]`. One mask has an equal sign.",
    ),
    "11.partial": Function(
        "a boolean [T]: the last words // K of the order, at least one",
        to_predict,
        _rank_and_k,
        (
            ("those are the first of the order: they have the least to go on",
             lambda rank, K: (rank >= 0) & (rank < max(1, int((rank >= 0).sum()) // K))),
            ("special tokens, with the rank −1, are not words: do not count them",
             lambda rank, K: rank >= int((rank >= 0).sum()) - max(1, len(rank) // K)),
            ("there need not be two special tokens: count the ranks from 0 on",
             lambda rank, K: rank >= len(rank) - 2 - max(1, (len(rank) - 2) // K)),
            ("of a short text at least one word is predicted",
             lambda rank, K: rank >= int((rank >= 0).sum()) - int((rank >= 0).sum()) // K),
            ("those are the last of the text: the last of the order are meant",
             lambda rank, K: torch.arange(len(rank))
             >= len(rank) - max(1, int((rank >= 0).sum()) // K)),
            ("all words are predicted: only the last 1/K of the order",
             lambda rank, K: rank >= 0),
        ),
        learned="partial prediction",
        hint="A rank of −1 is not a word. The last ones of the order have the highest ranks.",
    ),
    "11.streams": Function(
        "two tensors [T, D]: attention of the content stream and of the query stream, whose keys "
        "and values are the content's",
        two_streams,
        _streams,
        (
            ("the query stream has keys and values of its own: it must use those of the content, h",
             lambda h, g, *rest: (two_streams(h, g, *rest)[0], two_streams(g, g, *rest)[1])),
            ("the query stream takes its queries from h, which knows the word to be predicted",
             lambda h, g, *rest: two_streams(h, h, *rest)),
            ("the two masks are mixed up",
             lambda h, g, q, k, v, content, query: two_streams(h, g, q, k, v, query, content)),
            ("both streams have the content's mask: g sees the word that it has to predict",
             lambda h, g, q, k, v, content, query: two_streams(h, g, q, k, v, content, content)),
            ("scores are divided by √D before the softmax",
             lambda h, g, q, *rest: two_streams(h, g, q * h.shape[1] ** 0.5, *rest)),
            ("masks are missing: each stream may look only where its mask is True",
             lambda h, g, q, k, v, content, query:
             two_streams(h, g, q, k, v, content | True, query | True)),
        ),
        minutes=15,
        learned="two streams",
        hint="Make `k` and `v` once from `h`. The streams differ in their queries and masks.",
    ),
}  # fmt: skip
