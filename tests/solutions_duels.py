"""A test for each duel that finds every bug, and one that is too weak, with the hint that it gets.

The good tests stand on properties or on a plain calculation of their own, as a student would
write them; none calls the sound versions of the course.
"""

import copy
from typing import Any

import torch
from torch import Tensor


def looks_ahead(model: Any, tokens: Tensor) -> bool:
    for t in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, t:] = (other[:, t:] + 1) % 9
        if not torch.allclose(model(tokens)[:, :t], model(other)[:, :t], atol=1e-5):
            return True
    return False


def only_the_last(model: Any, tokens: Tensor) -> bool:
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 9
    return not torch.allclose(model(tokens)[:, :-1], model(other)[:, :-1], atol=1e-5)


def stepped(model: Any, batches: Any) -> Tensor:
    """All weights [4 + 1] after one step of gradient descent for each batch."""
    weight, bias = model.weight.detach()[0].clone(), model.bias.detach()[0].clone()
    for x, y in batches:
        error = x @ weight + bias - y
        slope = torch.cat([2 * error @ x, 2 * error.sum()[None]]) / len(x)
        slope = slope / max(1.0, float(slope.norm()))
        weight, bias = weight - 0.1 * slope[:4], bias - 0.1 * slope[4]
    return torch.cat([weight, bias[None]])


def trains_wrongly(train: Any, model: Any, batches: Any) -> bool:
    for scale in (1.0, 0.02):
        for pieces in (1, 2, 3):
            mine, easy = copy.deepcopy(model), [(x, y * scale) for x, y in batches]
            mine.weight.grad, mine.bias.grad = torch.ones(1, 4), torch.ones(1)
            wanted = stepped(mine, easy)
            train(mine, easy, pieces)
            if not torch.allclose(torch.cat([mine.weight[0], mine.bias]), wanted, atol=1e-5):
                return True
    return False


def never_trains(train: Any, model: Any, batches: Any) -> bool:
    before = model.weight.detach().clone()
    train(model, batches, 1)
    return torch.equal(before, model.weight)


def attends_wrongly(attend: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> bool:
    result = attend(q, k, v, mask)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                seen = mask[b, 0, t]
                weights = ((k[b, h, seen] @ q[b, h, t]) / q.shape[-1] ** 0.5).softmax(0)
                if not torch.allclose(result[b, h, t], weights @ v[b, h, seen], atol=1e-4):
                    return True
    return False


def weights_do_not_add_up(attend: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> bool:
    ones = torch.ones_like(v)
    return not torch.allclose(attend(q, k, ones, mask), torch.ones_like(q), atol=1e-4)


def loses_wrongly(loss: Any, logits: Tensor, tokens: Tensor, predicted: Tensor) -> bool:
    found = loss(logits, tokens, predicted)
    p = logits.softmax(-1)[predicted]
    wanted = -p[torch.arange(len(p)), tokens[predicted]].log().mean()
    return not found.requires_grad or abs(float((found - wanted).detach())) > 1e-4


def unpredicted_matters(loss: Any, logits: Tensor, tokens: Tensor, predicted: Tensor) -> bool:
    other = torch.where(predicted[..., None], logits, -logits)
    moved = loss(other, tokens, predicted) - loss(logits, tokens, predicted)
    return abs(float(moved.detach())) > 1e-5


def depends_wrongly(model: Any, tokens: Tensor, order: Tensor) -> bool:
    before = model(tokens, order)
    for t in range(len(order)):
        other = tokens.clone()
        other[:, t] = other[:, t] % 8 + 1
        after = model(other, order)
        moves = (after - before).abs().amax(dim=2) > 1e-6
        if not torch.equal(moves, (order > order[t]).expand_as(moves)):
            return True
    a, b = order.argsort()[-2:].tolist()
    swapped = order.clone()
    swapped[a], swapped[b] = order[b], order[a]
    same_words = tokens.clone()
    same_words[:, a] = same_words[:, b]
    one, two = model(same_words, order)[:, b], model(same_words, swapped)[:, a]
    return torch.allclose(one, two, atol=1e-6)


def sees_its_own_word(model: Any, tokens: Tensor, order: Tensor) -> bool:
    for t in range(len(order)):
        other = tokens.clone()
        other[:, t] = other[:, t] % 8 + 1
        if not torch.allclose(model(tokens, order)[:, t], model(other, order)[:, t], atol=1e-6):
            return True
    return False


def filtered(row: list[float], temperature: float, k: int, p: float) -> list[float]:
    weights = (torch.tensor(row) / temperature).softmax(0).tolist()
    best = sorted(range(len(row)), key=lambda word: -weights[word])[:k]
    total, held, kept = sum(weights[word] for word in best), 0.0, []
    for word in best:
        if held < p * total:
            kept.append(word)
        held += weights[word]
    whole = sum(weights[word] for word in kept)
    return [weights[word] / whole if word in kept else 0.0 for word in range(len(row))]


def filters_wrongly(shares: Any, logits: Tensor) -> bool:
    for temperature, k, p in ((1.0, 8, 0.7), (0.7, 3, 1.0), (1.5, 4, 0.6), (1.0, 8, 1.0)):
        wanted = torch.tensor([filtered(row, temperature, k, p) for row in logits.tolist()])
        if not torch.allclose(shares(logits, temperature, k, p), wanted, atol=1e-4):
            return True
    return False


def does_not_add_up(shares: Any, logits: Tensor) -> bool:
    sums = shares(logits, 1.0, 3, 0.8).sum(dim=-1)
    return not torch.allclose(sums, torch.ones(3), atol=1e-4)


def remembers_wrongly(read: Any, tokens: Tensor) -> bool:
    whole, _ = read(tokens, None)
    other = (tokens + 1) % 9
    for size in (1, 2, 4):
        memory, parts = None, []
        for part in tokens.split(size, dim=1):
            kept = None if memory is None else memory.clone()
            logits, new = read(part, memory)
            if new.requires_grad:
                return True
            read(other[:, : part.shape[1]], memory)
            if memory is not None and not torch.equal(memory, kept):
                return True
            parts.append(logits)
            memory = new
        if not torch.allclose(torch.cat(parts, dim=1), whole):
            return True
    return not torch.allclose(read(tokens, None)[0], whole)


def two_pieces(read: Any, tokens: Tensor) -> bool:
    first, memory = read(tokens[:, :4], None)
    second, _ = read(tokens[:, 4:], memory)
    return not torch.allclose(torch.cat([first, second], 1), read(tokens, None)[0], atol=1e-4)


def prefers_wrongly(loss: Any, policy: Tensor, reference: Tensor, answer: Any, beta: float) -> bool:
    for strength in (beta, 1.0, 2.5):
        wanted = 0.0
        for i in range(policy.shape[1]):
            gains = [
                sum(float((policy[a, i, t] - reference[a, i, t]).detach())
                    for t in range(policy.shape[2]) if answer[a, i, t])
                for a in (0, 1)
            ]  # fmt: skip
            margin = torch.tensor(strength * (gains[0] - gains[1]))
            wanted += float((1 + (-margin).exp()).log()) / policy.shape[1]
        found = loss(policy, reference, answer, strength)
        if abs(float(found.detach()) - wanted) > 1e-4 or not found.requires_grad:
            return True
    return False


def looks_at_the_rest(
    loss: Any, policy: Tensor, reference: Tensor, answer: Any, beta: float
) -> bool:
    other = torch.where(answer, policy, policy - 1)
    one, two = (loss(each, reference, answer, beta) for each in (policy, other))
    return not torch.allclose(one, two, atol=1e-5)


GOOD = {
    "attention": attends_wrongly,
    "masking": looks_ahead,
    "objectives": loses_wrongly,
    "streams": depends_wrongly,
    "sampling": filters_wrongly,
    "memory": remembers_wrongly,
    "training": trains_wrongly,
    "preferences": prefers_wrongly,
}
WEAK = {
    "attention": (weights_do_not_add_up, "Change a key and a value that the mask hides"),
    "masking": (only_the_last, "change every word in turn"),
    "objectives": (unpredicted_matters, "different numbers of predicted words"),
    "streams": (sees_its_own_word, "Change the word that comes last"),
    "sampling": (does_not_add_up, "How much do the kept words hold together"),
    "memory": (two_pieces, "read a text in three"),
    "preferences": (looks_at_the_rest, "answers of different lengths"),
    "training": (never_trains, "Train on one batch, then on two"),
}
