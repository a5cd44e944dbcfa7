"""AWD-LSTM and its dropout: what is dropped, for how long, and what is left clean."""

import copy

import pytest
import torch
from torch import Tensor, nn

from labkit import recurrence
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.keeping.computing import has_bfloat16
from labkit.masking import causal, real_keys
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.recurrence import (
    LockedDropout,
    WeightDropLSTM,
    WordDropout,
    activation,
    temporal_activation,
)

SMALL = AWDLSTMConfig(20, 6, 9, 3)


def tokens(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(20, (rows, length), generator=torch.Generator().manual_seed(0))


def test_locked_dropout_draws_once_for_a_text_and_anew_for_each_row() -> None:
    torch.manual_seed(0)
    x_BTD = torch.ones(200, 9, 50)
    dropped = LockedDropout(0.3).train()(x_BTD)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    # 10,000 draws: four standard deviations are 0.018.
    assert abs(float((dropped[:, 0] == 0).float().mean()) - 0.3) < 0.019
    assert abs(float(dropped.mean()) - 1) < 0.027
    assert len({tuple(row.tolist()) for row in dropped[:, 0]}) == 200


def test_word_dropout_drops_whole_words_wherever_they_stand() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(5000, 3)
    nn.init.ones_(embedding.weight)
    text = torch.arange(5000).repeat(2).view(4, 2500)
    dropped = WordDropout(0.2).train()(text, embedding).detach()
    assert torch.equal(dropped.min(-1).values, dropped.max(-1).values)
    by_word = dropped[..., 0].reshape(2, 5000)
    assert torch.equal(by_word[0], by_word[1])
    assert abs(float((by_word[0] == 0).float().mean()) - 0.2) < 0.023
    assert abs(float(by_word.mean()) - 1) < 0.029


def test_word_dropout_is_dropout_of_the_rows_of_the_table() -> None:
    """Looking the mask up is the same as masking the table, for the values and the gradients."""
    embedding, text = nn.Embedding(20, 4).double(), tokens()
    torch.manual_seed(3)
    found = WordDropout(0.5).train()(text, embedding)
    torch.manual_seed(3)
    kept_V = torch.empty(20, dtype=torch.float64).bernoulli_(0.5)
    expected = nn.functional.embedding(text, embedding.weight * (kept_V / 0.5)[:, None])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    (ours,) = torch.autograd.grad(found.sin().sum(), embedding.weight)
    (theirs,) = torch.autograd.grad(expected.sin().sum(), embedding.weight)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def run(lstm: nn.LSTM, x: Tensor, width: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    zero = x.new_zeros(1, len(x), width)
    return lstm(x, (zero, zero))


def test_without_dropout_it_is_nn_lstm() -> None:
    ours = WeightDropLSTM(4, 5, weight_dropout=0.5).double().eval()
    theirs = nn.LSTM(4, 5, batch_first=True).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.shape == reference.shape
    y, (h, c) = run(ours, x, 5)
    expected, (h_, c_) = theirs(x)
    for mine, reference in ((y, expected), (h, h_), (c, c_)):
        assert torch.equal(mine, reference)


def test_weights_are_dropped_anew_each_time_and_the_raw_ones_learn() -> None:
    torch.manual_seed(0)
    lstm, x = WeightDropLSTM(4, 5, weight_dropout=0.5).train(), torch.randn(2, 6, 4)
    raw = lstm.weight_hh_l0.clone()
    first, second = run(lstm, x, 5)[0], run(lstm, x, 5)[0]
    assert not torch.equal(first, second)
    assert torch.equal(first[:, 0], second[:, 0])  # from a blank state nothing is carried over
    first.sum().backward()
    assert torch.equal(lstm.weight_hh_l0, raw)
    grad = lstm.weight_hh_l0.grad
    assert 0.25 < float((grad == 0).float().mean()) < 0.75


def test_state_from_weights_dropped_is_kept_on_average() -> None:
    torch.manual_seed(0)
    seen: list[Tensor] = []
    original, lstm = torch.lstm, WeightDropLSTM(4, 50, weight_dropout=0.4).train()

    def spy(*arguments):
        seen.append(arguments[2][1])
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence.torch, "lstm", spy)
        run(lstm, torch.randn(1, 3, 4), 50)
    (dropped,) = seen
    ratio = (dropped / lstm.weight_hh_l0).detach()
    # 10,000 draws: four standard deviations.
    assert abs(float((ratio == 0).float().mean()) - 0.4) < 0.02
    assert abs(float(ratio.mean()) - 1) < 0.033


def test_in_evaluation_nothing_is_random() -> None:
    model = AWDLSTM(SMALL).eval()
    once, again = model(tokens()), model(tokens())
    for a, b in zip(once.layers, again.layers, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(once.layers[-1], once.layers[-2])


def test_the_last_two_layers_are_before_and_after_dropout() -> None:
    torch.manual_seed(0)
    states = AWDLSTM(SMALL).train()(tokens())
    raw, dropped = states.layers[-2:]
    assert states.hidden is dropped
    kept = dropped != 0
    assert not bool(kept.all())
    torch.testing.assert_close(dropped[kept], raw[kept] / 0.6)


def test_one_copy_of_each_weight_in_files_and_copies() -> None:
    torch.manual_seed(0)
    model = LanguageModel(AWDLSTM(SMALL), head := NextWord(nn.Embedding(20, 6)))
    head.words.weight = model.backbone.token.weight
    model.train()(tokens()).sum().backward()
    names = [name for name, _ in model.backbone.named_parameters()]
    assert sorted(model.backbone.state_dict()) == sorted(names)
    assert sum("weight_hh" in name for name in names) == 3
    # A copy computes with its own weights, and learns them.
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    assert bool((other.eval()(tokens()) == 0).all())
    assert not bool((model.eval()(tokens()) == 0).all())
    fresh = AWDLSTM(SMALL).eval()
    fresh.load_state_dict(model.backbone.state_dict())
    assert torch.equal(fresh(tokens()).hidden, model.backbone(tokens()).hidden)


def test_memory_makes_two_pieces_one_text() -> None:
    model, text = AWDLSTM(SMALL).double().eval(), tokens(3, 9)
    whole = model(text)
    first = model(text[:, :4])
    second = model(text[:, 4:], memory=first.memory)
    for layer, a, b in zip(whole.layers, first.layers, second.layers, strict=True):
        torch.testing.assert_close(layer, torch.cat([a, b], dim=1), atol=1e-12, rtol=0)
    for one, two in zip(whole.memory, second.memory, strict=True):
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    for parts in first.memory:
        assert [len(part) for part in parts] == [3, 3]


def test_padding_changes_nothing() -> None:
    """Neither its width nor the other rows matter, for the states, the memory and the gradients."""
    model, text = AWDLSTM(SMALL).double().eval(), tokens(3, 6)
    lengths = torch.tensor([6, 2, 0])
    results = []
    for width in (6, 11):
        padded = torch.cat([text, torch.full((3, width - 6), 19)], dim=1)
        real = torch.arange(width) < lengths[:, None]
        states = model(padded, mask=real_keys(real))
        assert bool((states.hidden[~real] == 0).all())
        loss = states.hidden[real].sin().sum()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        results.append([states.hidden[real], *sum(states.memory, ()), *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    alone = model(text[1:2, :2])
    states = model(text, mask=real_keys(torch.arange(6) < lengths[:, None]))
    torch.testing.assert_close(states.hidden[1, :2], alone.hidden[0], atol=1e-12, rtol=0)
    for layer, single in zip(states.memory, alone.memory, strict=True):
        for a, b in zip(layer, single, strict=True):
            torch.testing.assert_close(a[1], b[0], atol=1e-12, rtol=0)
            assert bool((a[2] == 0).all())  # a row without words remembers what it was given


def test_ar_and_tar_by_hand() -> None:
    x = torch.tensor([[[1.0, 2.0], [3.0, 2.0], [3.0, 6.0]]])
    assert activation(x).tolist() == [[2.5, 6.5, 22.5]]
    assert temporal_activation(x).tolist() == [[2.0, 8.0]]
    assert temporal_activation(x[:, :1]).shape == (1, 0)


def tar_is_right(tar) -> bool:
    """A batch of one is held in like any other, and a text of one word has no steps."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 4)
    rows = [tar(x[i : i + 1]) for i in range(3)]
    nothing = float(tar(x[:, :1]).sum())
    return nothing == 0 and all(row.numel() and float(row.sum()) > 0 for row in rows)


def test_a_batch_of_one_is_regularised_too() -> None:
    def by_the_number_of_rows(raw: Tensor) -> Tensor:
        return temporal_activation(raw) if len(raw) > 1 else raw.new_zeros(1, 0)

    def over_the_rows(raw: Tensor) -> Tensor:
        return temporal_activation(raw.transpose(0, 1))

    assert tar_is_right(temporal_activation)
    assert not tar_is_right(by_the_number_of_rows)
    assert not tar_is_right(over_the_rows)


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 5), (4, 1), (2, 300)])
def test_any_shape_learns(rows: int, length: int) -> None:
    torch.manual_seed(0)
    model = AWDLSTM(SMALL).train()
    states = model(tokens(rows, length))
    states.hidden.square().sum().backward()
    for weight in model.parameters():
        assert bool(weight.grad.isfinite().all())


@pytest.mark.skipif(
    not has_bfloat16(torch.device("cpu")), reason="torch's LSTM needs a CPU that has bfloat16"
)
def test_bfloat16_autocast_is_close() -> None:
    model = AWDLSTM(SMALL).eval()
    expected = model(tokens()).hidden
    with torch.autocast("cpu", torch.bfloat16):
        found = model(tokens())
        ragged = model(tokens(), mask=real_keys(torch.arange(7) < torch.tensor([[7], [3], [1]])))
        going_on = model(tokens(), memory=found.memory)
    torch.testing.assert_close(found.hidden.float(), expected, atol=0.02, rtol=0)
    assert bool(ragged.hidden.isfinite().all())
    going_on.hidden.float().sum().backward()


def test_what_cannot_be_read_is_refused() -> None:
    model = AWDLSTM(SMALL)
    with pytest.raises(ValueError, match=r"real\(tokens, pad\)"):
        model(tokens(), mask=causal(7))
    with pytest.raises(ValueError, match="real"):
        model(tokens(), mask=torch.ones(3, 1, 1, 7))
    left = torch.arange(7) >= torch.tensor([[0], [2], [0]])
    with pytest.raises(ValueError, match="padding at the end"):
        model(tokens(), mask=real_keys(left))
    with pytest.raises(ValueError, match=r"weight_dropout is 1\.0: give a number from 0 up to"):
        AWDLSTM(AWDLSTMConfig(20, 6, 9, weight_dropout=1.0))
    with pytest.raises(ValueError, match="layers is 0: give a whole number from 1"):
        AWDLSTM(AWDLSTMConfig(20, layers=0))
