"""The encoders before the Transformer: against torch's layers, and what each can and cannot see."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from labkit.blocks import Classifier, LanguageModel, halves
from labkit.heads import NextWord, Pooled, pool
from labkit.masking import causal, real_keys
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Elman,
    Recurrent,
    RecurrentConfig,
)
from labkit.recurrence import turned

WORDS = 20
CELLS = ("elman", "gru", "lstm")
LENGTHS = torch.tensor([3, 7, 1])
REAL = torch.arange(7) < LENGTHS[:, None]


def tokens(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(WORDS, (rows, length), generator=torch.Generator().manual_seed(0))


def encoders() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    made: dict[str, nn.Module] = {
        "bag": Bag(BagConfig(WORDS, 6)),
        "cnn": Convolutions(ConvolutionsConfig(WORDS, 6, 4)),
    }
    for cell in CELLS:
        made[cell] = Recurrent(RecurrentConfig(WORDS, 6, 2, cell))
        made[f"{cell} both ways"] = Recurrent(RecurrentConfig(WORDS, 6, 2, cell, both_ways=True))
    return made


NAMES = list(encoders())


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_layers_are_those_of_torch(cell: str, both: bool) -> None:
    """Stacked, both ways and packed, as nn.GRU and nn.LSTM do all of it at once."""
    ours = Recurrent(RecurrentConfig(WORDS, 6, 2, cell, both_ways=both)).double()
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    theirs = kind(6, 6, 2, bidirectional=both, batch_first=True).double()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            stem, _, layer = name.removesuffix("_reverse").rpartition("_l")
            side = ("right." if name.endswith("_reverse") else "left.") if both else ""
            weight.copy_(ours.get_parameter(f"blocks.{layer}.{side}{stem}_l0"))
    packed = pack_padded_sequence(
        ours.token(tokens()), LENGTHS, batch_first=True, enforce_sorted=False
    )
    expected, last = theirs(packed)
    expected, _ = pad_packed_sequence(expected, batch_first=True)
    states = ours(tokens(), mask=real_keys(REAL))
    torch.testing.assert_close(states.hidden, expected, atol=1e-10, rtol=0)
    if not both:
        for k, reference in enumerate(last if cell == "lstm" else (last,)):
            found = torch.stack([layer[k] for layer in states.memory])
            torch.testing.assert_close(found, reference, atol=1e-10, rtol=0)


def test_elman_with_tanh_is_nn_rnn() -> None:
    ours, theirs = Elman(4, 5, activation="tanh"), nn.RNN(4, 5, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.word.weight)
        theirs.weight_hh_l0.copy_(ours.state.weight)
        theirs.bias_ih_l0.copy_(ours.word.bias)
        theirs.bias_hh_l0.zero_()
    x, start = torch.randn(3, 6, 4), torch.randn(1, 3, 5)
    for mine, reference in zip(ours(x, start), theirs(x, start), strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=0)


def test_the_language_model_of_the_lectures_gives_probabilities() -> None:
    backbone = Recurrent(RecurrentConfig(WORDS, 6, cell="elman"))
    model = LanguageModel(backbone, NextWord(backbone.token, tied=False, bias=True))
    scores = model(tokens())
    assert scores.shape == (3, 7, WORDS)
    h = model.backbone(tokens()).hidden
    assert bool(((h > 0) & (h < 1)).all())  # sigmoid
    by_hand = torch.softmax(h @ model.head.words.weight.T + model.head.words.bias, dim=-1)
    torch.testing.assert_close(scores.softmax(dim=-1), by_hand)


def reach(model: nn.Module) -> Tensor:
    """[T, T]: True where the state of a row's word depends on the input of a column's word.

    With no negative weight a change always passes relu. Rounding alone changes some 1e-16.
    """
    with torch.no_grad():
        for weight in model.parameters():
            weight.abs_()
    seen = torch.zeros(7, 7, dtype=torch.bool)
    text = tokens(1)
    for place in range(7):
        other = text.clone()
        other[0, place] = (other[0, place] + 1) % WORDS
        moved = (model(text).hidden - model(other).hidden).abs().amax(-1)[0]
        seen[:, place] = moved > 1e-12
    return seen


def test_who_sees_whom() -> None:
    models = {name: model.double().eval() for name, model in encoders().items()}
    far = torch.arange(7)[:, None] - torch.arange(7)
    assert torch.equal(reach(models["bag"]), far == 0)
    assert torch.equal(reach(models["cnn"]), far.abs() <= 5)
    for cell in CELLS:
        assert torch.equal(reach(models[cell]), far >= 0)
        assert bool(reach(models[f"{cell} both ways"]).all())


def test_only_the_bag_is_blind_to_order() -> None:
    text, mixed = tokens(1), tokens(1)[:, [3, 1, 0, 2, 6, 5, 4]]
    for name, backbone in encoders().items():
        head = Pooled(backbone.width, 2, parts=("mean",))
        model = Classifier(backbone, head).double().eval()
        same = torch.allclose(model(text), model(mixed), atol=1e-12)
        assert same == (name == "bag"), name


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_other_rows_change_nothing(name: str) -> None:
    model = encoders()[name].double().eval()
    head = Pooled(model.width, 2).double().eval()
    results = []
    for width in (7, 12):
        text = torch.cat([tokens(), torch.full((3, width - 7), 19)], dim=1)
        real = torch.arange(width) < LENGTHS[:, None]
        states = model(text, mask=real_keys(real))
        loss = head(states.hidden, real).sin().sum()
        weights = list(model.parameters())
        grads = torch.autograd.grad(loss, weights, materialize_grads=True)
        memory = sum(states.memory or (), ())
        results.append([states.hidden[real], *memory, *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    whole = model(tokens(), mask=real_keys(REAL)).hidden
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens()[row : row + 1, :length]).hidden[0]
        torch.testing.assert_close(whole[row, :length], alone, atol=1e-12, rtol=0)
        assert bool((whole[row, length:] == 0).all())


def test_dropout_is_in_training_only() -> None:
    torch.manual_seed(0)
    for model in (
        Bag(BagConfig(WORDS, 6, dropout=0.5)),
        Convolutions(ConvolutionsConfig(WORDS, 6, 4, dropout=0.5)),
        Recurrent(RecurrentConfig(WORDS, 6, 2, dropout=0.5)),
    ):
        first, second = model.train()(tokens()), model(tokens())
        for a, b in zip(first.layers, second.layers, strict=True):
            assert not torch.equal(a, b)
        share = float((first.hidden == 0).float().mean())
        relu = isinstance(model, Convolutions)  # which makes zeros of its own
        assert share > 0.5 if relu else 0.3 < share < 0.7
        assert torch.equal(model.eval()(tokens()).hidden, model(tokens()).hidden)


@pytest.mark.parametrize("cell", CELLS)
def test_memory_makes_two_pieces_one_text(cell: str) -> None:
    model = Recurrent(RecurrentConfig(WORDS, 6, 2, cell)).double()
    whole, first = model(tokens()), model(tokens()[:, :3])
    second = model(tokens()[:, 3:], memory=first.memory)
    both = torch.cat([first.hidden, second.hidden], dim=1)
    torch.testing.assert_close(whole.hidden, both, atol=1e-12, rtol=0)
    # A ragged first piece: each row goes on from its own last word.
    ragged = model(tokens(), mask=real_keys(REAL))
    after = model(tokens(3, 2), memory=ragged.memory)
    for row, length in enumerate(LENGTHS.tolist()):
        text = torch.cat([tokens()[row, :length], tokens(3, 2)[row]])[None]
        torch.testing.assert_close(
            after.hidden[row], model(text).hidden[0, length:], atol=1e-12, rtol=0
        )


def test_turned_keeps_padding_at_the_end() -> None:
    x = torch.arange(1, 8).expand(3, 7).unsqueeze(-1)
    assert turned(x, LENGTHS).squeeze(-1).tolist() == [
        [3, 2, 1, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7],
    ]  # fmt: skip
    assert turned(x)[0].flatten().tolist() == [7, 6, 5, 4, 3, 2, 1]
    assert torch.equal(turned(turned(x, LENGTHS), LENGTHS), x)


def test_halves_are_left_and_right() -> None:
    model = Recurrent(RecurrentConfig(WORDS, 6, 1, both_ways=True)).eval()
    left, right = halves(model(tokens()))
    other = tokens()
    other[:, 0] = (other[:, 0] + 1) % WORDS
    changed_left, changed_right = halves(model(other))
    assert torch.equal(right.hidden[:, 1:], changed_right.hidden[:, 1:])
    assert not torch.equal(left.hidden[:, 1:], changed_left.hidden[:, 1:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 5), (3, 1), (2, 200)])
def test_any_shape_learns(name: str, rows: int, length: int) -> None:
    model = encoders()[name].train()
    model(tokens(rows, length)).hidden.square().sum().backward()
    for weight in model.parameters():
        assert weight.grad is not None
        assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_words_are_zeros_with_finite_gradients(name: str) -> None:
    model = encoders()[name].train()
    real = torch.arange(7) < torch.tensor([[7], [0], [0]])
    states = model(tokens(), mask=real_keys(real))
    head = Pooled(model.width, 2)
    head(states.hidden, real).sum().backward()
    assert bool((states.hidden[1:] == 0).all())
    for weight in model.parameters():
        assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_autocast_is_close(name: str) -> None:
    model = encoders()[name].eval()
    expected = model(tokens(), mask=real_keys(REAL)).hidden
    with torch.autocast("cpu", torch.bfloat16):
        states = model(tokens(), mask=real_keys(REAL))
    torch.testing.assert_close(states.hidden.float(), expected, atol=0.05, rtol=0)
    states.hidden.float().sum().backward()


def test_pooling_by_hand() -> None:
    x = torch.tensor([[[1.0, -5.0], [3.0, -2.0], [9.0, 9.0]], [[7.0, 7.0]] * 3])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert pool(x, real, "last").tolist() == [[3, -2], [0, 0]]
    assert pool(x, real, "max").tolist() == [[3, -2], [0, 0]]
    assert pool(x, real, "mean").tolist() == [[2, -3.5], [0, 0]]
    # Padding before the text is no matter to a head.
    turned_real = torch.tensor([[False, True, False]])
    assert pool(x[:1], turned_real, "last").tolist() == [[3, -2]]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="elman, lstm or gru"):
        RecurrentConfig(WORDS, cell="gated")
    with pytest.raises(ValueError, match="sigmoid or tanh"):
        RecurrentConfig(WORDS, activation="relu")
    with pytest.raises(ValueError, match=r"kernels is \(\): give the size of at least one"):
        ConvolutionsConfig(WORDS, kernels=())
    with pytest.raises(ValueError, match="last, max or mean"):
        Pooled(4, 2, parts=("first",))
    both = Recurrent(RecurrentConfig(WORDS, 6, both_ways=True))
    with pytest.raises(ValueError, match="both_ways=False"):
        both(tokens(), memory=Recurrent(RecurrentConfig(WORDS, 6))(tokens()).memory)
    assert both(tokens(), memory=()).memory is None
    for model in encoders().values():
        with pytest.raises(ValueError, match="no attention"):
            model(tokens(), mask=causal(7))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_autocast_leaves_an_lstm_in_the_format_of_its_weights() -> None:
    """Under autocast torch's own kernel computes in float16, which needs a loss scale."""
    model = Recurrent(RecurrentConfig(WORDS, 8)).cuda()
    tokens = torch.randint(0, WORDS, (2, 5), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = model(tokens).hidden
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, model(tokens).hidden)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_autocast_gives_elmo_a_memory_in_the_format_of_its_weights() -> None:
    """Its words come in bfloat16 out of a linear layer, and a blank memory with them."""
    model = ELMo(ELMoConfig(0, 10, 4, ((1, 3), (3, 5)), 1, 6, 9, 2)).cuda()
    letters = torch.randint(0, 256, (2, 5, 10), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        found = model(None, characters=letters).hidden
    torch.testing.assert_close(found.float(), model(None, characters=letters).hidden,
                               atol=0.05, rtol=0)  # fmt: skip
