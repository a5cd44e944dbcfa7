"""Two streams: what XLNet's prediction of a word may depend on, in an order of its own."""

from collections.abc import Callable

import torch
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Predict = Callable[[Tensor, Tensor], Tensor]
WORDS, WIDTH, LENGTH = 9, 6, 7
_RNG = torch.Generator().manual_seed(0)
TABLE = torch.randn(WORDS, WIDTH, generator=_RNG)
PLACES = torch.randn(LENGTH, WIDTH, generator=_RNG)
START = torch.randn(WIDTH, generator=_RNG)
MIX = torch.randn(WIDTH, WORDS, generator=_RNG)
RANKS = torch.tensor([2, 5, 0, 6, 3, 1, 4])  # no permutation that is its own inverse


def two_masks(order_T: Tensor) -> tuple[Tensor, Tensor]:
    """Where content and query may look [T, T]: the content sees itself, the query does not."""
    content = order_T[:, None] >= order_T
    return content, order_T[:, None] > order_T


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of all states that a position sees; nothing where it sees none."""
    weights = mask.to(x.dtype)
    return (weights / weights.sum(-1, keepdim=True).clamp(min=1)) @ x


def _streams(tokens: Tensor, content: Tensor, query: Tensor, places: Tensor = PLACES) -> Tensor:
    """Two layers of both streams: h knows its word, g knows its position only."""
    places = places[: tokens.shape[1]]
    h = TABLE[tokens] + places
    g = (START + places).expand_as(h)
    for _ in range(2):
        h, g = torch.tanh(h + _mean(h, content)), torch.tanh(g + _mean(h, query))
    return g @ MIX.to(g.dtype)


def honest(tokens_BT: Tensor, order_T: Tensor) -> Tensor:
    """Logits [B, T, V]: the word at t from its position and the words whose rank is smaller."""
    return _streams(tokens_BT, *two_masks(order_T))


def _one_by_one(tokens: Tensor, order: Tensor) -> Tensor:
    """Each prediction for itself, from a text in which the other words are replaced."""
    out = torch.zeros(*tokens.shape, WORDS)
    for t in range(tokens.shape[1]):
        out[:, t] = honest(tokens.masked_fill(order >= order[t], 0), order)[:, t]
    return out


def _double(tokens: Tensor, order: Tensor) -> Tensor:
    content, query = two_masks(order)
    return _streams(tokens, content, query, PLACES.double())


def _one_layer(tokens: Tensor, order: Tensor) -> Tensor:
    _, query = two_masks(order)
    places = PLACES[: tokens.shape[1]]
    return torch.tanh(START + places + _mean(TABLE[tokens] * places, query)) @ MIX


def _with(change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Predict:
    """A model whose masks were changed: from content, query and order."""
    return lambda tokens, order: _streams(tokens, *change(*two_masks(order), order))


def _odd(content: Tensor, query: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    last = (order == order.max()) & (len(order) % 2 == 1)
    return content, query | torch.diag(last)


def _first_row_only(tokens: Tensor, order: Tensor) -> Tensor:
    content, query = two_masks(order)
    rows = torch.stack([query, *[torch.zeros_like(query)] * (len(tokens) - 1)])
    return _streams(tokens, content, rows)


def arguments() -> tuple[Tensor, Tensor]:
    """Tokens [B, T] and ranks [T]: the word at t is predicted as number rank[t]."""
    shift = int(torch.randint(LENGTH, ()))
    return torch.randint(1, WORDS, (3, LENGTH)), (RANKS + shift) % LENGTH


TOPIC = Topic(
    "model(tokens, rank) predicts the word at t from its position and from all words whose "
    "rank is smaller than rank[t], and from nothing else; return True if a prediction depends on "
    "something else, or not on one of these",
    (
        Honest("a sound model", honest),
        Honest("a sound model that predicts one word at a time", _one_by_one),
        Honest("a sound model in 64 bits", _double),
        Honest("a sound model with one layer", _one_layer),
    ),
    (
        Bug("the query sees its own word", _with(lambda c, q, order: (c, c)),
            "XLNet, section 2.3: the reason for two streams",
            "Change a word and look at its own prediction"),
        Bug("the order is turned round", _with(lambda c, q, order: (c.T, q.T)),
            "transformers, issues 1022 and 1629: 1 hides in one mask and shows in another",
            "Change the word that comes last in the order"),
        Bug("the positions are taken for the order",
            lambda tokens, order: honest(tokens, torch.arange(len(order))),
            "modelling from left to right by mistake: XLNet, figure 4",
            "Change a word on the left that comes later in the order"),
        Bug("the order is read as a list of positions",
            lambda tokens, order: honest(tokens, order.argsort()),
            "as easy to make: an order lists positions, its inverse gives the ranks",
            "Compare with rank[t], the rank of position t: not the position at rank t"),
        Bug("the first one sees nothing, and then everything",
            _with(lambda c, q, order: (c, q | ~q.any(dim=-1, keepdim=True))),
            "XLNet's release: −1e30 in all of a row gives the mean of all words",
            "Look at the prediction that comes first: it may know no word"),
        Bug("the last one of an odd number sees itself", _with(_odd),
            "transformers, issue 7341: no mask without a leak for odd lengths",
            "Look at the prediction that comes last in the order"),
        Bug("other rows than the first see nothing", _first_row_only,
            "transformers, pull request 7267: target_mapping was set for the first row only",
            "Does each prediction depend on each word before it in the order, in every row?"),
        Bug("the query does not know its position",
            lambda tokens, order: _streams(tokens, *two_masks(order), torch.zeros_like(PLACES)),
            "XLNet, section 2.3: two targets with the same words behind them are told apart by it",
            "Exchange the order of two positions: their predictions must not stay the same"),
    ),
    arguments,
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def moved() -> list[float]:
    """By how much the prediction of rank 3 moves when the word of rank 0, 1, … changes."""
    tokens = torch.randint(1, WORDS - 1, (50, LENGTH), generator=torch.Generator().manual_seed(0))
    predict = _with(lambda content, query, order: (content.T, query.T))
    order = RANKS
    before = predict(tokens, order)[:, order == 3]
    changed = [predict(tokens + (order == other), order)[:, order == 3] for other in range(LENGTH)]
    return [float((after - before).abs().max()) for after in changed]


def _measure() -> Seen:
    by = moved()
    return Seen(
        "The prediction of rank 3 does not move when the words of ranks 0, 1 or 2 change. It moves "
        f"by {by[4]:.1f}, {by[5]:.1f} and {by[6]:.1f} when those of ranks 4, 5 and 6 do.",
        by, "rank of the changed word",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "the mask's sign is turned round: it hides what it should show",
    {
        "the query sees its own word": "with that bug the prediction would move with the word of "
        "rank 3",
        "the first one sees nothing, and then everything": "with that bug only the prediction "
        "of rank 0 would move with later words",
        "other rows than the first see nothing": "with that bug predictions would move with no "
        "word at all",
        "the query does not know its position": "with that bug the prediction would move with "
        "ranks 0 to 2",
    },
)
