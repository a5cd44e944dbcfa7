"""The exercises of notebook 08, each solved in two ways that are not the course's own."""

import torch
from torch import Tensor


def choose_by_products(tokens: Tensor, draws: Tensor, special: list[int], rate: float) -> Tensor:
    allowed = torch.ones_like(tokens, dtype=torch.bool)
    for one in special:
        allowed &= tokens != one
    return allowed.logical_and(draws.lt(rate))


def choose_by_loops(tokens: Tensor, draws: Tensor, special: list[int], rate: float) -> Tensor:
    rows = zip(tokens.tolist(), draws.tolist(), strict=True)
    return torch.tensor(
        [[t not in special and d < rate for t, d in zip(*row, strict=True)] for row in rows]
    )


def corrupt_by_filling(
    tokens: Tensor, predicted: Tensor, draws: Tensor, words: Tensor, mask: int
) -> Tensor:
    seen = tokens.clone()
    seen[predicted & (draws < 0.8)] = mask
    swapped = predicted & (draws >= 0.8) & (draws < 0.9)
    seen[swapped] = words[swapped]
    return seen


def corrupt_by_loops(
    tokens: Tensor, predicted: Tensor, draws: Tensor, words: Tensor, mask: int
) -> Tensor:
    seen = tokens.tolist()
    for i, j in predicted.nonzero().tolist():
        if draws[i, j] < 0.8:
            seen[i][j] = mask
        elif draws[i, j] < 0.9:
            seen[i][j] = int(words[i, j])
    return torch.tensor(seen)


def loss_by_gathering(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    log_p = logits.log_softmax(dim=-1).gather(2, tokens[..., None])[..., 0]
    return -(log_p * predicted).sum() / predicted.sum()


def loss_by_ignoring(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    targets = tokens.masked_fill(~predicted, -100)
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets)


def pair_by_parts(first: list[str], second: list[str]) -> tuple[list[str], list[int]]:
    left, right = ["[CLS]"] + first + ["[SEP]"], second + ["[SEP]"]  # noqa: RUF005
    return left + right, [0 for _ in left] + [1 for _ in right]


def pair_by_a_loop(first: list[str], second: list[str]) -> tuple[list[str], list[int]]:
    tokens, segments = ["[CLS]"], [0]
    for segment, text in enumerate((first, second)):
        for word in (*text, "[SEP]"):
            tokens.append(word)
            segments.append(segment)
    return tokens, segments


def pieces_by_recursion(word: str, vocabulary: set[str], sharps: str = "") -> list[str]:
    for end in range(len(word), 0, -1):
        if sharps + word[:end] in vocabulary:
            rest = pieces_by_recursion(word[end:], vocabulary, "##") if word[end:] else []
            return ["[UNK]"] if rest == ["[UNK]"] else [sharps + word[:end], *rest]
    return ["[UNK]"]


def pieces_by_shrinking(word: str, vocabulary: set[str]) -> list[str]:
    pieces, rest = [], word
    while rest:
        part = rest
        while part and ("##" * bool(pieces) + part) not in vocabulary:
            part = part[:-1]
        if not part:
            return ["[UNK]"]
        pieces.append("##" * bool(pieces) + part)
        rest = rest[len(part) :]
    return pieces


def furthest_by_loops(model: Tensor, exact: Tensor) -> tuple[int, float]:
    found = [
        sum(float(p * (p / q).log()) for p, q in zip(e, m, strict=True) if p > 0)
        for m, e in zip(model, exact, strict=True)
    ]
    return found.index(max(found)), max(found)


def furthest_by_xlogy(model: Tensor, exact: Tensor) -> tuple[int, float]:
    found = (torch.xlogy(exact, exact) - exact * model.log()).sum(dim=1)
    return int(found.argmax()), found.max().item()


RIGHT = {
    "08.furthest": (furthest_by_loops, furthest_by_xlogy),
    "08.choose": (choose_by_products, choose_by_loops),
    "08.corrupt": (corrupt_by_filling, corrupt_by_loops),
    "08.loss": (loss_by_gathering, loss_by_ignoring),
    "08.pair": (pair_by_parts, pair_by_a_loop),
    "08.pieces": (pieces_by_recursion, pieces_by_shrinking),
    "08.random": (15, 1000 * 0.15 * 0.1),
    "08.tables": ((30_522 + 512 + 2) * 768, 23_835_648),
}
WRONG_NUMBERS = {
    "08.random": (100, 150, 120, 30),
    "08.tables": (30_522 * 768, 30_522 * 512 * 768, 31_036 * 512, (30_522 + 512) * 768),
}
