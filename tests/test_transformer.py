"""The encoder–decoder: who sees what, teacher forcing, and writing word by word."""

import pytest
import torch
from torch import Tensor

from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.masking import causal, real_keys
from labkit.models.transformer import Transformer, TransformerConfig, teacher_forced

SMALL = TransformerConfig(17, 8, 2, 2, 12)
REAL = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]


def model(dtype: torch.dtype = torch.float64) -> Transformer:
    torch.manual_seed(0)
    return Transformer(SMALL).to(dtype).eval()


def words(rows: int = 3, length: int = 6, seed: int = 0) -> Tensor:
    return torch.randint(17, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_each_answer_sees_the_whole_source_and_the_answers_before_it() -> None:
    net, text, source = model(), words(1), words(1, 5, 1)
    states = net(text, source_BK=source).hidden
    # Not 0: another number of rows may change what is not seen by some 1e-16, by rounding.
    for place in range(6):
        other = text.clone()
        other[0, place] = (other[0, place] + 1) % 17
        moved = (net(other, source_BK=source).hidden - states).abs().amax(-1)[0] > 1e-12
        assert torch.equal(moved, torch.arange(6) >= place)
    for place in range(5):
        other = source.clone()
        other[0, place] = (other[0, place] + 1) % 17
        assert bool(((net(text, source_BK=other).hidden - states).abs().amax(-1) > 1e-12).all())


def test_teacher_forcing_never_shows_the_answer_that_is_asked() -> None:
    answers = words()
    given = teacher_forced(answers, begin=16)
    assert given[:, 0].tolist() == [16] * 3
    assert torch.equal(given[:, 1:], answers[:, :-1])
    net, source = model(), words(3, 5, 1)
    states = net(given, source_BK=source).hidden
    for place in range(6):
        other = answers.clone()
        other[:, place] = (other[:, place] + 1) % 17
        changed = net(teacher_forced(other, 16), source_BK=source).hidden
        assert torch.equal(changed[:, : place + 1], states[:, : place + 1])


def test_word_by_word_is_all_at_once() -> None:
    """Greedy writing with remembered keys and values, against one pass over what was written."""
    net, source = model(), words(3, 5, 1)
    whole = LanguageModel(net, NextWord(net.token)).double()
    encoded = net.encode(source, mask=real_keys(REAL)).hidden
    told = {"encoded_BKD": encoded, "source_mask": real_keys(REAL)}
    text, memory, states = torch.full((3, 1), 16), (), []
    for _ in range(5):
        step = net(text[:, -1:], memory=memory, **told)
        memory = step.memory
        states.append(step.hidden)
        text = torch.cat([text, whole.head(step.hidden).argmax(-1)], dim=1)
    at_once = net(text[:, :-1], source_BK=source, source_mask=real_keys(REAL))
    torch.testing.assert_close(torch.cat(states, 1), at_once.hidden, atol=1e-12, rtol=0)
    assert at_once.memory is None
    forced = whole(teacher_forced(text[:, 1:], 16), source_BK=source, source_mask=real_keys(REAL))
    assert torch.equal(forced.argmax(-1), text[:, 1:])
    # Several words at once after some are remembered.
    first = net(text[:, :2], memory=(), **told)
    rest = net(text[:, 2:5], memory=first.memory, **told)
    torch.testing.assert_close(rest.hidden, at_once.hidden[:, 2:5], atol=1e-12, rtol=0)


def test_padding_of_the_source_and_other_rows_change_nothing() -> None:
    net, text, source = model(), words(), words(3, 5, 1)
    states = net(text, source_BK=source, source_mask=real_keys(REAL))
    wider = torch.cat([source, torch.full((3, 3), 9)], dim=1)
    mask = real_keys(torch.cat([REAL, torch.zeros(3, 3).bool()], dim=1))
    padded = net(text, source_BK=wider, source_mask=mask)
    torch.testing.assert_close(states.hidden, padded.hidden, atol=1e-12, rtol=0)
    alone = net(text[1:2], source_BK=source[1:2, :2])
    torch.testing.assert_close(states.hidden[1:2], alone.hidden, atol=1e-12, rtol=0)


def test_a_given_rule_replaces_the_natural_one() -> None:
    net, text, source = model(), words(), words(3, 5, 1)
    natural = net(text, source_BK=source).hidden
    given = net(text, source_BK=source, mask=causal(6)).hidden
    torch.testing.assert_close(natural, given, atol=1e-12, rtol=0)
    padded = net(text, source_BK=source, mask=causal(6) & real_keys(words() != 3))
    assert bool(padded.hidden.isfinite().all())
    assert not torch.allclose(padded.hidden, natural)


def test_dropout_is_in_training_only() -> None:
    net = model().train()
    given = {"source_BK": words(3, 5, 1)}
    first, second = net(words(), **given), net(words(), **given)
    for a, b in zip(first.layers, second.layers, strict=True):
        assert not torch.equal(a, b)
    encoded = net.encode(given["source_BK"])
    assert not torch.equal(encoded.hidden, net.encode(given["source_BK"]).hidden)
    net.eval()
    assert torch.equal(net(words(), **given).hidden, net(words(), **given).hidden)


def test_one_table_of_words_serves_both_texts_and_the_head() -> None:
    net = model()
    whole = LanguageModel(net, NextWord(net.token))
    names = [name for name, _ in whole.named_parameters()]
    assert [name for name in names if "token" in name or "words" in name] == [
        "backbone.token.weight"
    ]


@pytest.mark.parametrize(("rows", "source", "length"), [(1, 1, 1), (1, 4, 1), (2, 1, 3)])
def test_any_shape_learns(rows: int, source: int, length: int) -> None:
    net = model(torch.float32).train()
    net(words(rows, length), source_BK=words(rows, source, 1)).hidden.square().sum().backward()
    for weight in net.parameters():
        assert bool(weight.grad.isfinite().all())


def test_an_empty_source_is_finite() -> None:
    net = model(torch.float32).train()
    nothing = real_keys(torch.zeros(3, 5).bool())
    states = net(words(), source_BK=words(3, 5, 1), source_mask=nothing)
    states.hidden.square().sum().backward()
    assert bool(states.hidden.isfinite().all())
    for weight in net.parameters():
        assert bool(weight.grad.isfinite().all())


def test_it_learns_to_turn_a_text_around() -> None:
    torch.manual_seed(0)
    backbone = Transformer(TransformerConfig(8, 32, 1, 4, 64, dropout=0.0))
    whole = LanguageModel(backbone, NextWord(backbone.token))
    optimizer = torch.optim.Adam(whole.parameters(), lr=3e-3)
    for _ in range(250):
        source = torch.randint(1, 8, (32, 5))
        answers = source.flip(1)
        scores = whole(teacher_forced(answers, 0), source_BK=source)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # One of seven by chance.
    assert float((scores.argmax(-1) == answers).float().mean()) > 0.9


def test_bfloat16_autocast_is_close() -> None:
    net = model(torch.float32)
    given = {"source_BK": words(3, 5, 1), "source_mask": real_keys(REAL)}
    expected = net(words(), **given).hidden
    with torch.autocast("cpu", torch.bfloat16):
        states = net(words(), **given)
    states.hidden.float().sum().backward()
    torch.testing.assert_close(states.hidden.float(), expected, atol=0.1, rtol=0)


def test_one_source_and_only_one() -> None:
    net, source = model(), words(3, 5, 1)
    with pytest.raises(ValueError, match="give either source_BK"):
        net(words())
    with pytest.raises(ValueError, match="give either source_BK"):
        net(words(), source_BK=source, encoded_BKD=net.encode(source).hidden)
