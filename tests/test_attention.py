"""Attention, distances and dropout against their formulas; mistakes of others, made on purpose."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from labkit import attention, blocks
from labkit.attention import (
    LearnedPositions,
    attend,
    attention_weights,
    by_distance,
    distances,
    rotate,
    sinusoids,
)
from labkit.blocks import initialise
from labkit.layers import Dropout, drop
from labkit.masking import causal, real_keys
from labkit.models import gpt, transformer_xl, xlnet

B, H, Q, K, E = 2, 3, 4, 6, 5

# Everything here holds for the formulas and for their faster versions.
pytestmark = pytest.mark.usefixtures("speed")


def inputs(queries: int = Q, keys: int = K, seed: int = 0) -> list[Tensor]:
    """Query, key and value, and a bias, in float64, all with gradients."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(B, H, queries, E), (B, H, keys, E), (B, H, keys, E), (B, H, queries, keys)]
    return [
        torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]


def holes(queries: int = Q, keys: int = K) -> Tensor:
    """A mask with a row where all may be seen and one where nothing may."""
    mask = torch.rand(B, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[0, 0, 0] = True
    mask[1, 0, 2] = False
    return mask


MASKS = {"all": None, "causal": causal(Q, K), "padding": holes()[:, :, :1], "holes": holes()}


def loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """The formula of Vaswani et al. 2017, one query at a time."""
    answers = torch.zeros_like(q)
    seen = torch.ones(B, 1, q.shape[2], k.shape[2], dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:3])).tolist():
        keys = [j for j in range(k.shape[2]) if seen[b, 0, i, j]]
        scores = [q[b, h, i] @ k[b, h, j] / math.sqrt(E) for j in keys]
        if bias is not None:
            scores = [score + bias[b, h, i, j] for score, j in zip(scores, keys, strict=True)]
        total = sum(score.exp() for score in scores)
        for score, j in zip(scores, keys, strict=True):
            answers[b, h, i] += score.exp() / total * v[b, h, j]
    return answers


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_is_its_formula(mask: Tensor | None, biased: bool) -> None:
    q, k, v, bias = inputs()
    given = {"mask": mask, "bias_BHQK": bias if biased else None}
    wanted = loops(*(t.detach() for t in (q, k, v)), mask, bias.detach() if biased else None)
    found, weights = attend(q, k, v, **given), attention_weights(q, k, **given) @ v
    torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(weights.detach(), wanted, rtol=0, atol=1e-12)
    asked = [q, k, v] + [bias] * biased
    upstream = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, asked, upstream),
        torch.autograd.grad(weights, asked, upstream),
        strict=True,
    ):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("biased", [False, True])
def test_who_sees_nothing_answers_zeros(biased: bool, dropout: float) -> None:
    torch.manual_seed(1)  # a seed with which dropout leaves every other query something to see
    q, k, v, bias = inputs()
    y = attend(q, k, v, mask=holes(), bias_BHQK=bias if biased else None, dropout=dropout)
    assert (y[1, :, 2] == 0).all()
    assert (y[0, :, 0] != 0).all()
    y.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    assert (q.grad[1, :, 2] == 0).all()


def test_causal_is_the_mask_of_the_same_name() -> None:
    q, k, v, _ = inputs(K, K)
    torch.testing.assert_close(
        attend(q, k, v, causal=True), attend(q, k, v, mask=causal(K)), rtol=0, atol=1e-12
    )
    torch.manual_seed(0)
    found = attend(q, k, v, causal=True, dropout=0.5)
    torch.manual_seed(0)
    assert torch.equal(found, attend(q, k, v, mask=causal(K), dropout=0.5))


def test_causal_joins_memory_and_masks() -> None:
    """`causal` counts from the last key, and takes away from what a mask allows."""
    q, k, v, bias = inputs()
    for mask in (None, holes()):
        joined = causal(Q, K) if mask is None else mask & causal(Q, K)
        torch.testing.assert_close(
            attend(q, k, v, causal=True, mask=mask, bias_BHQK=bias),
            attend(q, k, v, mask=joined, bias_BHQK=bias),
            rtol=0,
            atol=1e-12,
        )


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(400, 1001)
    for rate in (0.1, 0.5):
        y = drop(x, rate)
        assert set(y.unique().tolist()) == {0.0, y.max().item()}
        # Five standard errors of a share of 400,400 draws.
        error = 5 * math.sqrt(rate * (1 - rate) / x.numel())
        assert abs((y == 0).float().mean().item() - rate) < error
        assert abs(y.mean().item() - 1) < error / (1 - rate)
    lag = (drop(x, 0.5) == 0).float().flatten() - 0.5
    for distance in (1, 2, 3, 4):
        assert abs((lag[distance:] * lag[:-distance]).mean().item()) < 0.25 * 5 / 632


def test_dropout_has_the_gradient_of_what_it_did() -> None:
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    assert Dropout(0.4).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_attention_drops_weights_and_keeps_their_mean() -> None:
    q, k, v, bias = (t.detach() for t in inputs())
    torch.manual_seed(0)
    given = {"mask": holes(), "bias_BHQK": bias}
    many = torch.stack([attend(q, k, v, **given, dropout=0.3) for _ in range(2000)])
    error = many.std(dim=0) / math.sqrt(len(many))
    assert ((many.mean(dim=0) - attend(q, k, v, **given)).abs() <= 5 * error).all()


def test_scores_by_distance_are_found_where_the_distance_is() -> None:
    scores = torch.randn(B, H, Q, K + Q - 1)
    table = distances(Q, K).tolist()
    places = torch.tensor([[2, 3, 4, 5], [5, 2, 4, 2]])
    for given in (places, places[0]):
        found = by_distance(scores, given, K)
        for b, i, j in torch.cartesian_prod(*(torch.arange(n) for n in (B, Q, K))).tolist():
            distance = int(given.expand(B, Q)[b, i]) - j
            wanted = scores[b, :, i, table.index(distance)]
            assert torch.equal(found[b, :, i, j], wanted)


def test_sinusoids_have_the_wave_lengths_of_the_paper() -> None:
    found = sinusoids(torch.tensor([-3, 0, 700]), 6, torch.float64)
    for place, row in zip((-3, 0, 700), found.tolist(), strict=True):
        angles = [place / 10_000 ** (2 * i / 6) for i in range(3)]
        wanted = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        assert row == pytest.approx(wanted, abs=1e-12)
    with pytest.raises(ValueError, match="a width of 6 gives each of 2 heads 3 features; rotary"):
        gpt.GPT(gpt.GPTConfig(10, width=6, layers=1, heads=2, inner=6, rotary=True))
    with pytest.raises(ValueError, match="width 5 is odd"):
        sinusoids(torch.arange(3), 5)
    assert sinusoids(torch.tensor([301]), 4, torch.bfloat16).dtype == torch.bfloat16


def test_turned_queries_and_keys_know_their_distance_alone() -> None:
    q, k = torch.randn(2, 1, 6, dtype=torch.float64)
    scores = [[float(rotate(q, i) @ rotate(k, j).T) for j in range(9)] for i in range(9)]
    assert scores[0][0] == pytest.approx(float(q @ k.T))
    for row, next_row in pairwise(scores):
        assert next_row[1:] == pytest.approx(row[:-1])
    assert len({round(score, 6) for score in scores[8]}) == 9
    both = torch.cat([q, k])
    assert torch.equal(rotate(both, 4)[1:], rotate(k, 5))


def test_learned_positions_start_after_the_unused_rows() -> None:
    table = LearnedPositions(5, 4, unused=2)
    assert table.weight.shape == (7, 4)
    assert torch.equal(table(3, start=1), table.weight[3:6])
    with pytest.raises(ValueError, match="the text has 6 tokens, the model has positions for 5"):
        table(6)


# What a memory must do, as checks that a mistake makes fail.


def segments(model: torch.nn.Module, lengths: list[int], memory=None) -> tuple[Tensor, list]:
    """The states of a text read in pieces, and the memory after each piece."""
    tokens = torch.randint(0, 19, (2, sum(lengths)), generator=torch.Generator().manual_seed(3))
    states, kept = [], []
    for piece in tokens.split(lengths, dim=1):
        read = model(piece, memory=memory)
        memory = read.memory
        states.append(read.hidden)
        kept.append(memory)
    return torch.cat(states, dim=1), kept


SIZES = {"vocabulary": 19, "width": 8, "layers": 2, "heads": 2, "dropout": 0.0}
RECURRENT = {
    "Transformer-XL": lambda: transformer_xl.TransformerXL(
        transformer_xl.TransformerXLConfig(**SIZES, memory=5)
    ),
    "XLNet": lambda: xlnet.XLNet(xlnet.XLNetConfig(**SIZES, memory=5)),
}


def check_keys_and_values(*, rotary: bool = False) -> None:
    """GPT with memory reads a text in pieces as it reads it whole."""
    torch.manual_seed(0)
    model = gpt.GPT(gpt.GPTConfig(**SIZES, context=9, rotary=rotary)).double().eval()
    initialise(model, std=0.4)  # weights large enough for attention to matter
    whole, _ = segments(model, [9])
    pieces, _ = segments(model, [4, 1, 4], memory=())
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-6)


def check_memory_is_the_last_positions() -> None:
    """A memory is the last positions of what went into each layer, however long the pieces are."""
    for build in RECURRENT.values():
        torch.manual_seed(0)
        model = build().eval()
        entered: list[list[Tensor]] = [[] for _ in model.blocks]
        for into, block in zip(entered, model.blocks, strict=True):
            block.register_forward_pre_hook(lambda _, given, into=into: into.append(given[0]))
        _, kept = segments(model, [3, 4, 1, 7])
        for step, memory in enumerate(kept):
            for into, found in zip(entered, memory, strict=True):
                wanted = torch.cat(into[: step + 1], dim=1)[:, -5:]
                assert torch.equal(found, wanted)
                assert not found.requires_grad


def check_memory_is_not_changed() -> None:
    """The caller's memory stays as it was."""
    for build in RECURRENT.values():
        model = build().eval()
        _, (memory, _) = segments(model, [5, 3])
        before = [layer.clone() for layer in memory]
        segments(model, [4], memory)
        assert all(torch.equal(old, new) for old, new in zip(before, memory, strict=True))


def check_nothing_leaks_from_hidden_rows() -> None:
    """What a query may not see cannot reach it, even if it may see nothing at all."""
    q, k, v, _ = (t.detach() for t in inputs())
    other = torch.randn_like(v)
    for bias in (None, torch.zeros(B, H, Q, K, dtype=torch.float64)):
        mask = torch.zeros(B, 1, Q, K, dtype=torch.bool)
        mine = attention.attend(q, k, v, mask=mask, bias_BHQK=bias)
        assert torch.equal(mine, attention.attend(q, k, other, mask=mask, bias_BHQK=bias))


def test_memory() -> None:
    check_keys_and_values()
    check_keys_and_values(rotary=True)
    check_memory_is_the_last_positions()
    check_memory_is_not_changed()
    check_nothing_leaks_from_hidden_rows()


def _from_zero_again(x_BHTE: Tensor, start: int = 0) -> Tensor:
    return rotate(x_BHTE)


def _large_number(q, k, v, *, mask=None, bias_BHQK=None, causal=False, dropout=0.0):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores if bias_BHQK is None else scores + bias_BHQK
    return (scores - 1e30 * ~mask).softmax(dim=-1) @ v


def _causal_with_memory(q, k, v, *, mask=None, bias_BHQK=None, causal=False, dropout=0.0):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _lengths_swapped(states_BTD: Tensor, count: int) -> Tensor:
    return states_BTD[:, :count].detach()


def _gradient_kept(states_BTD: Tensor, count: int) -> Tensor:
    return states_BTD[:, max(states_BTD.shape[1] - count, 0) :]


def _nothing_from_zero(states_BTD: Tensor, count: int) -> Tensor:
    return states_BTD[:, -count + 1 :].detach()


@contextmanager
def instead(name: str, mutant: Callable, *modules) -> Iterator[None]:
    """A mutant in the place of a function, wherever it is used."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, name, mutant)
        yield


READERS = (blocks, transformer_xl, xlnet)
MUTANTS = [
    (check_nothing_leaks_from_hidden_rows, "attend", _large_number, (attention,)),
    (check_keys_and_values, "attend", _causal_with_memory, (attention,)),
    (partial(check_keys_and_values, rotary=True), "rotate", _from_zero_again, (attention,)),
    (check_memory_is_the_last_positions, "remember", _lengths_swapped, READERS),
    (check_memory_is_the_last_positions, "remember", _gradient_kept, READERS),
    (check_memory_is_the_last_positions, "remember", _nothing_from_zero, READERS),
]


@pytest.mark.parametrize(("check", "name", "mutant", "modules"), MUTANTS)
def test_the_checks_kill_the_mistakes_of_others(check, name, mutant, modules) -> None:
    with instead(name, mutant, *modules), pytest.raises(AssertionError):
        check()


def test_the_check_kills_a_memory_that_is_overwritten() -> None:
    class InPlace(transformer_xl.TransformerXL):
        def forward(self, tokens_BT, *, mask=None, memory=None):
            read = super().forward(tokens_BT, mask=mask, memory=memory)
            for old, new in zip(memory or (), read.memory, strict=False):
                old.copy_(new[:, -old.shape[1] :])
            return read

    with instead("TransformerXL", InPlace, transformer_xl), pytest.raises(AssertionError):
        check_memory_is_not_changed()


def test_padding_masks_broadcast_over_queries() -> None:
    q, k, v, _ = inputs()
    is_real = torch.tensor([[True] * K, [True] * 2 + [False] * (K - 2)])
    y = attend(q, k, v, mask=real_keys(is_real))
    torch.testing.assert_close(y[1:], attend(q[1:], k[1:, :, :2], v[1:, :, :2]))
