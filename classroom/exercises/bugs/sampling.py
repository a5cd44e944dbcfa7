"""Sampling: temperature, top-k and the nucleus, for each row of a batch."""

import torch
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

WORDS = 8


def honest(logits_BV: Tensor, temperature: float, k: int, p: float) -> Tensor:
    """Probabilities [B, V]: divide by the temperature, keep the k best, of those the nucleus."""
    return _nucleus(_best(logits_BV / temperature, k), p)


def _best(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k).values[:, -1:], -torch.inf)


def _nucleus(logits: Tensor, p: float) -> Tensor:
    """The fewest best words that together hold at least p."""
    sorted_p, order = logits.softmax(-1).sort(descending=True)
    kept = ((sorted_p.cumsum(-1) - sorted_p) < p) | (p >= 1)  # a sum may be rounded to 1
    return _shares(logits, torch.zeros_like(kept).scatter(1, order, kept))


def _shares(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.masked_fill(~kept, -torch.inf).softmax(-1)


def _by_loops(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    rows = []
    for row in (logits / temperature).double():
        best = row.argsort(descending=True)[:k]
        share = row[best].softmax(0)
        fewest = next(
            n for n in range(1, k + 1) if n == k or (p < 1 and float(share[:n].sum()) >= p)
        )
        out = torch.zeros(len(row), dtype=torch.float64)
        out[best[:fewest]] = share[:fewest] / share[:fewest].sum()
        rows.append(out)
    return torch.stack(rows).to(logits.dtype)


def _by_threshold(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    share = _best(logits / temperature, k).softmax(-1)
    above = torch.stack([(share * (share > share[:, [i]])).sum(-1) for i in range(share.shape[1])])
    kept = share * ((above.T.lt(p) | (p >= 1)) & (share > 0))
    return kept / kept.sum(-1, keepdim=True)


def _below(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    top = _best(logits / temperature, k)
    sorted_p, order = top.softmax(-1).sort(descending=True)
    kept = sorted_p.cumsum(-1) <= p
    kept[:, 0] = True
    return _shares(top, torch.zeros_like(kept).scatter(1, order, kept))


def _first_rows_order(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    top = _best(logits / temperature, k)
    sorted_p, order = top.softmax(-1).sort(descending=True)
    kept = (sorted_p.cumsum(-1) - sorted_p) < p
    kept = torch.zeros_like(kept).scatter(1, order[:1].expand_as(order), kept)
    return torch.nan_to_num(_shares(top, kept))


def _first_row_decides(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    scaled = logits / temperature
    least = scaled[0].topk(k).values[-1]
    return torch.nan_to_num(_nucleus(scaled.masked_fill(scaled < least, -torch.inf), p))


def _whole_first_row(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    shares = honest(logits, temperature, k, p)
    return torch.cat([(logits[:1] / temperature).softmax(-1), shares[1:]])


TOPIC = Topic(
    "shares(logits, temperature, k, p) returns the probabilities [B, V] from which words are "
    "drawn: divide by the temperature, keep the k best words of each row, and of those the fewest "
    "that hold at least p; return True if shares does something else",
    (
        Honest("a sound filter", honest),
        Honest("a sound filter that goes row by row", _by_loops),
        Honest("a sound filter without sorting", _by_threshold),
        Honest("a sound filter that reads the vocabulary backwards",
               lambda logits, *how: honest(logits.flip(1), *how).flip(1)),
    ),
    (
        Bug("the nucleus stays below p", _below,
            "reasoning-from-scratch, issue 164; GPT-2's own code",
            "How much do the kept words hold together, by their probabilities before filtering?"),
        Bug("k + 1 words are kept",
            lambda logits, t, k, p: honest(logits, t, min(k + 1, logits.shape[1]), p),
            "mesh-transformer-jax, issue 164", "Count the words that are left when p is 1"),
        Bug("p is ignored where k is given", lambda logits, t, k, p: honest(logits, t, k, 1.0),
            "Kronos, pull request 262: an early return; aprender, pull request 2080",
            "Count the words that are left when p is small"),
        Bug("every row is sorted like the first one", _first_rows_order,
            "mlx-vlm, pull request 1094", "Give two rows with different best words"),
        Bug("the first row's k-th best decides for all", _first_row_decides,
            "LLMs-from-scratch: top-k compared [b, V] with [b]",
            "Count the words that are left in each row"),
        Bug("nothing is filtered in the first row", _whole_first_row,
            "fish-speech, pull request 1326: [0] meant the first word and took the first row",
            "Count the words that are left in each row"),
        Bug("the temperature is ignored", lambda logits, t, k, p: honest(logits, 1.0, k, p),
            "trl, issues 3029 and 4159: the temperature was missing in the log probabilities",
            "Try two temperatures: the higher one flattens"),
        Bug("the kept words do not add up to 1",
            lambda logits, t, k, p: (logits / t).softmax(-1) * (honest(logits, t, k, p) > 0),
            "SkyRL, issue 877; prime-rl, issue 1965: scored over the full vocabulary",
            "Add up the probabilities of each row"),
    ),
    lambda: (2 * torch.randn(3, WORDS),),
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def held() -> list[float]:
    """How much the words of the first bug's nucleus hold on average, for p = 0.1, 0.2, … 0.9."""
    logits = 0.7 * torch.randn(2000, WORDS, generator=torch.Generator().manual_seed(0))
    share = logits.softmax(-1)
    kept = [_below(logits, 1.0, WORDS, p / 10) > 0 for p in range(1, 10)]
    return [float((share * one).sum(-1).mean()) for one in kept]


def _measure() -> Seen:
    shares = held()
    return Seen(
        f"With p = 0.9, the words that are left hold {shares[-1]:.2f} on average, and never more "
        "than 0.9 unless there is one word. The most frequent words come up too often.",
        shares, "p = 0.1 … 0.9", 0.9, "p = 0.9",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "the nucleus stops before it reaches p",
    {
        "p is ignored where k is given": "with that bug all words would be left, and hold 1",
        "k + 1 words are kept": "k is the whole vocabulary here: one more changes nothing",
        "the temperature is ignored": "the temperature is 1 here",
        "every row is sorted like the first one": "with that bug improbable words would be kept, "
        "and the rest would often hold next to nothing",
    },
)
