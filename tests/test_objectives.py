"""What is asked of a model, and what comes of it."""

import torch

from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import Memory, NextToken, combine, total

V = 30


def gpt(**changes) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 2, "context": 32, "dropout": 0.0}
    backbone = GPT(GPTConfig(vocabulary=V, **(sizes | changes)))
    return LanguageModel(backbone, NextWord(backbone.token))


def text(rows: int, length: int, seed: int = 1) -> torch.Tensor:
    return Chance(seed, 0, torch.arange(rows)).integers("text", length, V)


def test_next_token_is_the_mean_surprise():
    model, tokens = gpt(), text(3, 9)
    outcome = NextToken()(model, Batch.of(tokens), Chance(0, 0, torch.arange(3)))
    log_p = model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None])
    assert outcome.count == 24
    assert torch.allclose(outcome.loss, -log_p.mean())


def test_parts_of_a_step_add_up_to_the_whole():
    model, tokens = gpt(), text(5, 9)
    real = torch.arange(9) < torch.tensor([9, 2, 5, 1, 7])[:, None]
    batch, chance, objective = Batch.of(tokens, real), Chance(0, 0, torch.arange(5)), NextToken()
    whole = objective(model, batch, chance)
    whole.loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    asked = [objective.ask(part, Chance(0, 0, part.rows)) for part in batch.micro(3)]
    outcomes = [objective.answer(model, questions) for questions in asked]
    for outcome in outcomes:
        outcome.over(total(asked)).backward()
    assert torch.allclose(combine(outcomes).loss, whole.loss)
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, expected[name], atol=1e-7), name


def test_memory_makes_two_segments_one_text():
    model, tokens = gpt(), text(2, 13)
    chance, objective = Chance(0, 0, torch.arange(2)), NextToken(carry=True)
    goes_on = torch.tensor([False, False])
    first = objective(model, Batch.of(tokens[:, :7]), chance)
    second = objective(model, Batch.of(tokens[:, 6:], fresh=goes_on), chance, first.memory)
    whole = NextToken()(model, Batch.of(tokens), chance)
    assert torch.allclose(combine([first, second]).loss, whole.loss)
    assert not any(kv.k_BHKE.requires_grad for kv in first.memory.layers)
    saved = Memory.load(first.memory.tensors())
    again = objective(model, Batch.of(tokens[:, 6:], fresh=goes_on), chance, saved)
    assert torch.equal(again.loss, second.loss)


def test_a_fresh_row_remembers_nothing():
    model, tokens = gpt(), text(2, 13)
    chance, objective = Chance(0, 0, torch.arange(2)), NextToken(carry=True)
    pasts = [objective(model, Batch.of(text(2, 6, seed)), chance).memory for seed in (5, 6)]
    batch = Batch.of(tokens[:, 6:], fresh=torch.tensor([True, False]))
    mixed = [objective(model, batch, chance, past) for past in pasts]
    assert mixed[0].memory.known.tolist() == [[False] * 5 + [True] * 6, [True] * 11]
    # Later segments still do not see what was before the row was fresh; the other row does.
    later = Batch.of(text(2, 6, 9), fresh=torch.tensor([False, False]))
    for step, memories in ((batch, pasts), (later, [m.memory for m in mixed])):
        for row, same in ((0, True), (1, False)):
            rows = [of_row(memory, row) for memory in memories]
            one = step[row : row + 1]
            losses = [objective(model, one, chance, memory).loss for memory in rows]
            assert torch.equal(losses[0], losses[1]) == same
    every = Batch.of(tokens[:, 6:])
    assert torch.equal(
        objective(model, every, chance, pasts[0]).loss, objective(model, every, chance).loss
    )


def of_row(memory: Memory, row: int) -> Memory:
    return Memory.load({name: part[row : row + 1] for name, part in memory.tensors().items()})


def test_nothing_to_predict_is_a_loss_of_zero():
    model, tokens = gpt(), text(3, 5)
    batch = Batch.of(tokens, torch.zeros_like(tokens, dtype=torch.bool))
    outcome = NextToken()(model, batch, Chance(0, 0, torch.arange(3)))
    outcome.loss.backward()
    assert (outcome.loss.item(), outcome.count) == (0.0, 0)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
