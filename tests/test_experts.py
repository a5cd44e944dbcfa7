"""The mixture of experts: a drop-in feed-forward, its routing, and its balance."""

import pytest
import torch

from labkit.blocks import Classifier, Experts, FeedForward, LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import Label, NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import Balanced, Labels, NextToken, Sum
from labkit.objectives.experts import balance, routed


def test_one_expert_is_a_feed_forward() -> None:
    torch.manual_seed(0)
    experts, x = Experts(6, 8, 1, used=1), torch.randn(2, 5, 6)
    torch.testing.assert_close(experts(x), experts.experts[0](x))


def test_equal_experts_are_one_feed_forward() -> None:
    """The weights of the chosen experts sum to one."""
    torch.manual_seed(0)
    experts, x = Experts(6, 8, 4, used=3), torch.randn(2, 5, 6)
    for expert in experts.experts:
        expert.load_state_dict(experts.experts[0].state_dict())
    torch.testing.assert_close(experts(x), experts.experts[0](x))


def test_each_position_costs_two_experts_whatever_their_number() -> None:
    seen: list[int] = []
    for number in (4, 16):
        experts = Experts(6, 8, number)
        for expert in experts.experts:
            expert.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[0]))
        experts(torch.randn(3, 7, 6))
        assert sum(seen) == 2 * 21
        seen.clear()
        assert sum(p.numel() for p in experts.experts.parameters()) == number * sum(
            p.numel() for p in FeedForward(6, 8).parameters()
        )


def test_positions_are_routed_each_for_itself() -> None:
    torch.manual_seed(0)
    experts, x = Experts(6, 8, 5).double(), torch.randn(4, 7, 6).double()
    whole = experts(x)
    order = torch.randperm(28)
    torch.testing.assert_close(
        experts(x.flatten(0, 1)[order]), whole.flatten(0, 1)[order], atol=1e-12, rtol=0
    )
    torch.testing.assert_close(experts(x[2:3, 4:5]), whole[2:3, 4:5], atol=1e-12, rtol=0)
    assert experts(x[:0]).shape == (0, 7, 6)


def test_balance_is_one_when_even_and_worst_when_all_choose_the_same() -> None:
    even = torch.eye(4).repeat(6, 1) * 3
    assert float(balance(even, 1)) == pytest.approx(1)
    same = torch.zeros(24, 4)
    same[:, 2] = 50.0
    assert float(balance(same, 1)) == pytest.approx(4)
    same[:, 1] = 50.0
    assert float(balance(same, 2)) == pytest.approx(2)


def test_balance_moves_a_router_towards_even_work() -> None:
    torch.manual_seed(0)
    experts, x = Experts(6, 8, 4, used=1), torch.randn(200, 6)
    x[:, 0] = 1.0
    with torch.no_grad():
        experts.router.weight[0, 0] = 3.0  # nearly all choose the first
    optimizer = torch.optim.Adam(experts.router.parameters(), lr=0.05)
    worst = []
    for _ in range(100):
        with routed(experts) as scores:
            experts(x)
        (seen,) = scores
        worst.append(int(seen.argmax(-1).bincount(minlength=4).max()))
        optimizer.zero_grad()
        balance(seen, 1).backward()
        optimizer.step()
    assert worst[0] > 150
    assert worst[-1] < 80


def test_routed_collects_each_layer_and_leaves_nothing_behind() -> None:
    config = GPTConfig(17, 8, 3, 2, 10, inner=12, experts=4, dropout=0.0)
    model = GPT(config)
    before = [len(module._forward_hooks) for module in model.modules()]
    with routed(model) as scores:
        model(torch.zeros(2, 5).long())
    assert [tuple(s.shape) for s in scores] == [(10, 4)] * 3
    model(torch.zeros(2, 5).long())
    assert len(scores) == 3
    assert [len(module._forward_hooks) for module in model.modules()] == before
    with pytest.raises(RuntimeError, match="stop"), routed(model):
        raise RuntimeError("stop")
    assert [len(module._forward_hooks) for module in model.modules()] == before


def test_gpt_takes_experts_in_every_block() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(17, 8, 2, 2, 10, inner=12, experts=3, experts_used=2))
    tokens = torch.randint(17, (2, 10))
    assert all(isinstance(block.mlp, Experts) for block in model.blocks)
    model(tokens).hidden.square().sum().backward()
    # An expert that no position chose has a gradient of zeros, not of nothing.
    for weight in model.parameters():
        assert weight.grad is not None
        assert bool(weight.grad.isfinite().all())
    plain = GPT(GPTConfig(17, 8, 2, 2, 10, inner=12))
    assert all(isinstance(block.mlp, FeedForward) for block in plain.blocks)
    model.eval()
    whole = model(tokens).hidden
    memory = model(tokens[:, :4], memory=()).memory
    torch.testing.assert_close(model(tokens[:, 4:], memory=memory).hidden, whole[:, 4:])


def test_bfloat16_autocast_is_close() -> None:
    torch.manual_seed(0)
    experts, x = Experts(6, 8, 4), torch.randn(5, 9, 6)
    expected = experts(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = experts(x)
    found.float().sum().backward()
    # A position on the edge between two experts may go to the other one.
    far = (found.float() - expected).abs().amax(-1) > 0.05
    assert float(far.float().mean()) < 0.1


def test_more_experts_than_there_are_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="3 of 2 experts"):
        Experts(6, 8, 2, used=3)


def lopsided(backbone):
    """A router that sends everything to its first two experts."""
    for block in backbone.blocks:
        block.mlp.router.weight.data.zero_()
        block.mlp.router.weight.data[:2] = 0.2
        block.mlp_norm.bias.data += 1  # what the router reads has a positive mean
    return backbone


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_training_with_the_balance_spreads_the_work(weight):
    """With the term the routers come near an even share (1), without it they do not."""

    torch.manual_seed(0)
    config = GPTConfig(30, width=16, layers=1, heads=2, context=16, dropout=0.0, experts=6)
    backbone = lopsided(GPT(config))
    model = LanguageModel(backbone, NextWord(backbone.token))
    objective = Balanced(objective=NextToken(), weight=weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for step in range(60):
        batch = Batch.of(torch.randint(0, 30, (8, 12)))
        outcome = objective(model, batch, Chance(0, step, batch.rows))
        found.append(outcome.metrics["balance"].item())
        optimizer.zero_grad()
        outcome.loss.backward()
        optimizer.step()
    assert found[0] > 2
    assert (found[-1] < 1.3) == bool(weight)
    assert outcome.count == 8 * 11


def test_a_model_without_experts_has_nothing_to_balance():

    backbone = GPT(GPTConfig(9, width=8, layers=1, heads=1, context=8))
    model = LanguageModel(backbone, NextWord(backbone.token))
    with pytest.raises(ValueError, match="no experts to balance"):
        Balanced(objective=NextToken())(model, Batch.of(torch.zeros(1, 4).long()), None)


def test_the_balance_of_a_sum_is_over_the_real_positions_of_each_part():
    """Next words are read without the last position of a row, labels with it."""
    torch.manual_seed(0)
    config = GPTConfig(30, width=8, layers=2, heads=2, context=16, dropout=0.0, experts=3)
    backbone = GPT(config)
    model = Classifier(backbone, Label(8, 2, pooled=False)).double().eval()
    model.words = NextWord(backbone.token)
    real = torch.arange(6) < torch.tensor([[6], [4]])
    batch = Batch.of(torch.randint(0, 30, (2, 6)), real, labels=torch.tensor([0, 1]))
    parts = (NextToken(head="words"), Labels(position="last"))
    outcome = Balanced(objective=Sum(parts=parts))(model, batch, Chance(0, 0, batch.rows))
    expected = []
    for tokens, kept in ((batch.tokens[:, :-1], real[:, 1:]), (batch.tokens, real)):
        with routed(model) as scores:
            model.backbone(tokens)
        expected += [balance(router[kept.flatten()], 2) for router in scores]
    assert torch.allclose(outcome.metrics["balance"], torch.stack(expected).mean())


def test_a_single_expert_teaches_the_router() -> None:
    torch.manual_seed(0)
    experts = Experts(6, 8, 4, used=1)
    experts(torch.randn(2, 5, 6)).sum().backward()
    assert float(experts.router.weight.grad.abs().max()) > 1e-3
