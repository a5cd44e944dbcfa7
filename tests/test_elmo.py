"""ELMo: letters, directions, and the mix of layers."""

import copy
from pathlib import Path

import copies
import pytest
import torch
from torch import Tensor

from labkit.blocks import Classifier, halves
from labkit.heads import Label
from labkit.masking import causal, real_keys
from labkit.models.elmo import ELMo, ELMoConfig, WeightedSum, spell
from labkit.transfer.mixed import Mixed

# pytest shows all warnings, even those that the module keeps from its readers.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["", "a", "the", "stick", "naïve", "extraordinarily", "dog", "dogs"]
SMALL = ELMoConfig(8, 10, 4, ((1, 3), (3, 5)), 1, 6, 9, 2)


def model(seed: int = 0) -> ELMo:
    torch.manual_seed(seed)
    return ELMo(SMALL, WORDS).eval()


def tokens(rows: int = 3, length: int = 6) -> Tensor:
    return torch.randint(8, (rows, length), generator=torch.Generator().manual_seed(0))


def test_words_are_spelled_in_bytes_between_marks() -> None:
    rows = spell(["ab", "é", "", "abcdefgh"], 6).tolist()
    assert rows == [
        [258, 97, 98, 259, 260, 260],
        [258, 0xC3, 0xA9, 259, 260, 260],
        [258, 259, 260, 260, 260, 260],
        [258, 97, 98, 99, 100, 259],
    ]
    assert spell([], 6).shape == (0, 6)
    with pytest.raises(ValueError, match="longest is 2: give a whole number from 3"):
        spell(["abc"], 2)
    with pytest.raises(TypeError, match="the words are 'abc': give a list of them"):
        spell("abc", 6)


def test_a_word_by_its_number_is_the_word_by_its_letters() -> None:
    elmo, text = model(), tokens()
    letters = torch.stack([spell([WORDS[t] for t in row], 10) for row in text.tolist()])
    by_number, by_letters = elmo(text), elmo(None, characters=letters)
    for a, b in zip(by_number.layers, by_letters.layers, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_an_unseen_word_has_a_vector_like_its_relatives() -> None:
    elmo = model()
    letters = spell(["dogging", "dog"], 10)[None]
    unseen, known = elmo(None, characters=letters).layers[0][0]
    assert bool(unseen.isfinite().all())
    assert not torch.equal(unseen, known)
    no_table = ELMo(ELMoConfig(0, 10, 4, ((1, 3), (3, 5)), 1, 6, 9))
    assert no_table(None, characters=letters).hidden.shape == (1, 2, 12)


def test_neither_direction_sees_the_other_side() -> None:
    elmo, text = model().double(), tokens(1, 6)
    for place in range(6):
        other = text.clone()
        other[0, place] = (other[0, place] + 1) % 8
        for side, (before, after) in enumerate(
            zip(halves(elmo(text)), halves(elmo(other)), strict=True)
        ):
            for i, pair in enumerate(zip(before.layers, after.layers, strict=True)):
                moved = (pair[0] - pair[1]).abs().amax(-1)[0] > 1e-12  # not rounding
                here = torch.arange(6)
                expected = here >= place if side == 0 else here <= place
                assert torch.equal(moved, here == place if i == 0 else expected)


def test_padding_and_other_rows_change_nothing() -> None:
    elmo, lengths = model().double(), torch.tensor([3, 6, 0])
    results = []
    for width in (6, 9):
        text = torch.cat([tokens(), torch.full((3, width - 6), 7)], dim=1)
        real = torch.arange(width) < lengths[:, None]
        states = elmo(text, mask=real_keys(real))
        grads = torch.autograd.grad(states.hidden[real].sin().sum(), list(elmo.parameters()))
        results.append([*(h[real] for h in states.layers), *sum(states.memory, ()), *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    alone = elmo(tokens()[:1, :3])
    torch.testing.assert_close(results[0][2][:3], alone.hidden[0], atol=1e-12, rtol=0)
    for layer in elmo(tokens(), mask=real_keys(torch.arange(6) < lengths[:, None])).layers[1:]:
        assert bool((layer[0, 3:] == 0).all())


def test_memory_is_that_of_the_direction_that_has_a_past() -> None:
    elmo, text = model().double(), tokens()
    whole, first = elmo(text), elmo(text[:, :2])
    second = elmo(text[:, 2:], memory=first.memory)
    left, right = halves(whole)
    for i in range(3):
        pieces = [halves(states)[0].layers[i] for states in (first, second)]
        torch.testing.assert_close(left.layers[i], torch.cat(pieces, 1), atol=1e-12, rtol=0)
        later = halves(second)[1].layers[i]
        torch.testing.assert_close(right.layers[i][:, 2:], later, atol=1e-12, rtol=0)


def test_the_second_bias_of_torch_is_no_weight() -> None:
    elmo = model()
    names = [name for name, _ in elmo.named_parameters()]
    assert not [name for name in elmo.state_dict() if "bias_hh" in name]
    assert set(elmo.state_dict()) == {*names, "spelling"}
    other = copy.deepcopy(elmo)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    assert bool((other(tokens()).hidden == 0).all())
    loaded = ELMo(SMALL).eval()
    loaded.load_state_dict(elmo.state_dict())
    assert torch.equal(loaded(tokens()).hidden, elmo(tokens()).hidden)


def test_the_release_has_93_600_848_weights_and_its_parts_as_printed() -> None:
    """Peters et al. 2018, section 3.4: 2,048 n-gram filters, two highways, 4,096 cells, 512."""
    with torch.device("meta"):
        released = ELMo(ELMoConfig())
    letters = 261 * 16 + sum(16 * size * found + found for size, found in ELMoConfig().kernels)
    highways = 2 * 2 * (2048 * 2048 + 2048)
    lstm = 4 * 4096 * (512 + 512) + 4 * 4096 + 512 * 4096
    expected = letters + highways + 2048 * 512 + 512 + 4 * lstm
    assert sum(weight.numel() for weight in released.parameters()) == expected == 93_600_848


def test_no_warning_about_kernels_reaches_the_reader() -> None:
    """In a process where no model has computed, since torch gives this warning once."""
    script = (
        "import torch; from labkit.models.elmo import ELMo, ELMoConfig; "
        "model = ELMo(ELMoConfig(3, 7, 4, ((1, 3),), 1, 6, 9), ['a', 'b', 'c']); "
        "model(torch.zeros(1, 2).long())"
    )
    ran = copies.run(["-c", script], cwd=ROOT)
    assert ran.returncode == 0
    assert ran.stderr == ""


def test_the_mix_is_a_weighted_mean_and_starts_even() -> None:
    layers = [torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(3)]
    mix = WeightedSum(3).double()
    torch.testing.assert_close(mix(layers), sum(layers) / 3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 100.0, 0.0]))
        mix.scale.fill_(2.0)
    torch.testing.assert_close(mix(layers), 2 * layers[1])
    torch.testing.assert_close(mix.shares.sum(), torch.ones((), dtype=torch.float64))
    even = WeightedSum(3, normalise=True).double()(layers)
    torch.testing.assert_close(
        even, sum(torch.nn.functional.layer_norm(h, (4,)) for h in layers) / 3
    )


def test_a_batch_without_words_is_not_divided_by_nothing() -> None:
    nowhere = torch.zeros(1, 2, dtype=torch.bool)
    mixed = WeightedSum(2, normalise="batch")([torch.ones(1, 2, 3)] * 2, nowhere)
    assert bool(mixed.isfinite().all())


def test_a_mixed_backbone_takes_a_head_and_only_the_mix_learns() -> None:
    elmo = model().requires_grad_(False)
    classifier = Classifier(Mixed(elmo, WeightedSum(3)), Label(elmo.width, 4, pooled=False))
    scores = classifier(tokens())
    assert scores.shape == (3, 6, 4)
    scores.square().sum().backward()
    assert bool((classifier.backbone.mix.weights.grad != 0).all())
    assert all(weight.grad is None for weight in elmo.parameters())


def test_in_training_what_goes_into_each_lstm_is_dropped() -> None:
    elmo = model().train()
    torch.manual_seed(0)
    given: list[Tensor] = []
    for block in elmo.blocks:
        for lstm in (block.left, block.right):
            lstm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].detach()))
    text = torch.zeros(30, 20).long() + 3
    first, second = elmo(text), elmo(text)
    assert torch.equal(first.layers[0], second.layers[0])
    assert not torch.equal(first.layers[1], second.layers[1])
    assert len(given) == 8
    for x in given:
        # 3,600 draws of one in ten: four standard deviations.
        assert abs(float((x == 0).float().mean()) - 0.1) < 0.021
    assert torch.equal(elmo.eval()(text).hidden, elmo(text).hidden)


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 4), (3, 1), (2, 100)])
def test_any_shape_learns(rows: int, length: int) -> None:
    elmo = model().train()
    elmo(tokens(rows, length)).hidden.square().sum().backward()
    for weight in elmo.parameters():
        assert bool(weight.grad.isfinite().all())


def test_bfloat16_autocast_is_close() -> None:
    elmo = model()
    real = real_keys(torch.arange(6) < torch.tensor([[6], [2], [0]]))
    expected = elmo(tokens(), mask=real).hidden
    with torch.autocast("cpu", torch.bfloat16):
        states = elmo(tokens(), mask=real)
        elmo(tokens(), memory=states.memory).hidden.float().sum().backward()
    torch.testing.assert_close(states.hidden.float(), expected, atol=0.05, rtol=0)


def test_what_cannot_be_read_is_refused() -> None:
    elmo = model()
    with pytest.raises(ValueError, match="nothing to spell"):
        elmo(None)
    with pytest.raises(ValueError, match="nothing to spell"):
        ELMo(ELMoConfig(0, 10, 4, ((1, 3),), 1, 6, 9))(tokens())
    with pytest.raises(ValueError, match="words of 2 letters"):
        elmo(None, characters=torch.zeros(1, 1, 2).long())
    with pytest.raises(ValueError, match="2 words to spell, but the vocabulary has 8"):
        ELMo(SMALL, ["a", "b"])
    with pytest.raises(ValueError, match="no attention"):
        elmo(tokens(), mask=causal(6))
    with pytest.raises(ValueError, match="a kernel over 7"):
        ELMoConfig(longest=6)
    with pytest.raises(ValueError, match="projected down"):
        ELMoConfig(inner=512)
    with pytest.raises(ValueError, match="layers=3"):
        WeightedSum(2)(elmo(tokens()).layers)
