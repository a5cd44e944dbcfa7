"""The exercises of notebook 06, each solved in two ways that are not the course's own."""

import math
from typing import Any

import torch
from torch import Tensor


def temperature_by_powers(logits: Tensor, temperature: float) -> Tensor:
    powers = logits.softmax(dim=-1) ** (1 / temperature)
    return powers / powers.sum(dim=-1, keepdim=True)


def temperature_by_exp(logits: Tensor, temperature: float) -> Tensor:
    scores = logits / temperature
    return (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()


def top_k_by_counting(logits: Tensor, k: int) -> Tensor:
    better = (logits[:, None, :] > logits[:, :, None]).sum(dim=-1)
    return torch.where(better < k, logits, -math.inf)


def top_k_by_sorting(logits: Tensor, k: int) -> Tensor:
    kth = logits.sort(dim=-1, descending=True).values[:, k - 1 : k]
    return torch.where(logits >= kth, logits, -math.inf)


def nucleus_by_loops(logits: Tensor, p: float) -> Tensor:
    kept = torch.full_like(logits, -math.inf)
    for row, share in enumerate(logits.softmax(dim=-1)):
        held = 0.0
        for word in share.argsort(descending=True).tolist():
            if held >= p and p < 1:
                break
            kept[row, word] = logits[row, word]
            held += float(share[word])
    return kept


def nucleus_by_ranks(logits: Tensor, p: float) -> Tensor:
    sorted_p, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    count = (sorted_p.cumsum(dim=-1) < p).sum(dim=-1, keepdim=True) + 1
    return torch.where((order.argsort(dim=-1) < count) | (p == 1), logits, -math.inf)


def greedy_by_topk(model: Any, tokens: Tensor, words: int) -> Tensor:
    for _ in range(words):
        tokens = torch.hstack([tokens, model(tokens)[:, -1].topk(1).indices])
    return tokens


def greedy_into_space(model: Any, tokens: Tensor, words: int) -> Tensor:
    length = tokens.shape[1]
    written = torch.nn.functional.pad(tokens, (0, words))
    for t in range(length, length + words):
        written[:, t] = model(written[:, :t])[:, -1].max(dim=-1).indices
    return written


def beam_by_lists(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    longer = [
        (float(scores[k] + log_p[k, w]), k, w)
        for k in range(len(scores))
        for w in range(len(log_p[0]))
    ]
    best = sorted(longer, reverse=True)[: len(scores)]
    return torch.tensor([k for _, k, _ in best]), torch.tensor([w for _, _, w in best])


def beam_by_unravelling(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    total = scores.unsqueeze(1) + log_p
    best = total.reshape(-1).argsort(descending=True)[: len(scores)]
    text, word = torch.unravel_index(best, total.shape)
    return text, word


def kept_by_loops(model: Tensor, exact: Tensor, k: int, p: float) -> tuple[int, int]:
    words, held = 0, 0.0
    for share in sorted(model.tolist(), reverse=True):
        if held >= p and p < 1:
            break
        words, held = words + 1, held + share
    best = sorted(range(len(model)), key=lambda word: -float(model[word]))[:k]
    return words, sum(float(exact[word]) == 0 for word in best)


def kept_by_topk(model: Tensor, exact: Tensor, k: int, p: float) -> tuple[int, int]:
    held = model.sort(descending=True).values.cumsum(0)
    words = len(held) if p == 1 else 1 + int((held[:-1] < p).sum())
    return words, int((exact[model.topk(k).indices] == 0).sum())


RIGHT = {
    "06.kept": (kept_by_loops, kept_by_topk),
    "06.temperature": (temperature_by_powers, temperature_by_exp),
    "06.top_k": (top_k_by_counting, top_k_by_sorting),
    "06.nucleus": (nucleus_by_loops, nucleus_by_ranks),
    "06.greedy": (greedy_by_topk, greedy_into_space),
    "06.beam": (beam_by_lists, beam_by_unravelling),
    "06.shot": (3 / 5, torch.tensor(0.6)),
    "06.leak": (0.4 * 0.95 + 0.6 * 0.6 - 0.6, 0.14),
}
WRONG_NUMBERS = {"06.shot": (0.5, 0.3, 1.0, 0.4), "06.leak": (0.35, 0.74, 0.4, 0.38)}
