"""The decoder of one word against `GPT.forward` on the whole text, whatever way it multiplies."""

from typing import Any

import pytest
import torch
from torch import nn

from labkit.blocks import LanguageModel
from labkit.fast import decoding
from labkit.fast.decoding import Decoder, can_decode, product
from labkit.fast.replaying import Replayer, can_replay
from labkit.heads import NextWord
from labkit.models.gpt import GPT, GPTConfig
from labkit.sampling import Sampling, sample

SHAPES = {
    "GPT-2": {},
    "GPT": {"norm_first": False},
    "GPT-3": {"band": 3},
    "rotary": {"rotary": True},
    "wide": {"width": 64, "inner": 192},
    "narrow inside": {"inner": 8},
}


# A graph is recorded on a GPU; on a CPU the same operations run one by one.
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
WAYS = [(Decoder, "cpu"), (Replayer, "cpu"), pytest.param(Replayer, "cuda", marks=GPU)]


def gpt(**changed) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"vocabulary": 23, "width": 16, "layers": 3, "heads": 2, "context": 20}
    backbone = GPT(GPTConfig(**(sizes | changed)))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)  # biases and norms that matter
    return model


def begin(
    model: LanguageModel, text: torch.Tensor, read: int, length: int = 20, way: Any = Decoder
) -> Any:
    with torch.no_grad():
        return way(model, model.backbone(text[:, :read], memory=()).memory, length)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("name", SHAPES)
def test_word_by_word_it_equals_the_forward_pass(name, rows, packed, monkeypatch):
    monkeypatch.setattr(decoding, "SMALL", 0 if packed else 10**9)
    model, text = gpt(**SHAPES[name]), torch.randint(0, 23, (rows, 20))
    decoder = begin(model, text, 4)
    whole = model(text).detach()
    for place in range(4, 20):
        found = decoder.next_word(text[:, place])
        torch.testing.assert_close(found, whole[:, place], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "rotary"])
def test_what_is_replayed_equals_the_forward_pass(name, rows, device):
    model = gpt(**SHAPES[name]).to(device)
    text = torch.randint(0, 23, (rows, 20)).to(device)
    replayer = begin(model, text, 4, way=Replayer)
    whole = model(text).detach()
    for place in range(4, 20):
        found = replayer.next_word(text[:, place])
        torch.testing.assert_close(found, whole[:, place], atol=2e-5, rtol=1e-4)


def test_on_a_processor_nothing_is_replayed():
    assert not can_replay(gpt())


@GPU
def test_on_a_gpu_words_are_replayed_unless_positions_turn():
    assert can_replay(gpt().to("cuda"))
    assert not can_replay(gpt(rotary=True).to("cuda"))


def test_in_double_precision_it_is_the_forward_pass_to_the_last_digits():
    model, text = gpt().double(), torch.randint(0, 23, (3, 12))
    decoder = begin(model, text, 1)
    found = torch.stack([decoder.next_word(text[:, place]) for place in range(1, 12)], dim=1)
    torch.testing.assert_close(found, model(text)[:, 1:].detach(), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("way", "device"), WAYS)
@pytest.mark.parametrize("alike", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("rows", [[1, 1, 0], [2, 0, 1], [0, 1, 2]])
def test_rows_are_exchanged_from_where_they_differ(rows, alike, way, device):
    model, picked = gpt().to(device), torch.tensor(rows).to(device)
    text = torch.randint(0, 23, (3, 12)).to(device)
    text[:, :alike] = text[0, :alike]
    decoder = begin(model, text, 2, way=way)
    for place in range(2, 9):
        decoder.next_word(text[:, place])
    decoder.select(picked)
    mixed = torch.cat([text[picked, :9], text[:, 9:]], dim=1)
    whole = model(mixed).detach()
    for place in range(9, 12):
        found = decoder.next_word(mixed[:, place])
        torch.testing.assert_close(found, whole[:, place], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("way", "device"), WAYS)
def test_the_model_goes_on_from_where_the_decoder_stands(way, device):
    model, text = gpt().to(device), torch.randint(0, 23, (2, 9)).to(device)
    decoder = begin(model, text, 3, way=way)
    for place in range(3, 6):
        decoder.next_word(text[:, place])
    memory = decoder.memory
    decoder.next_word(text[:, 8])  # what is read later does not change a memory that was given
    with torch.no_grad():
        rest = model.head(model.backbone(text[:, 6:], memory=memory).hidden)
    torch.testing.assert_close(rest, model(text)[:, 6:].detach(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(300, 400), (400, 300), (7, 5)])
@pytest.mark.parametrize("rows", [1, 3])
def test_products_are_those_of_the_layer(rows, sizes, bias, gelu):
    torch.manual_seed(0)
    layer, x = nn.Linear(*sizes, bias=bias), torch.randn(rows, sizes[0])
    expected = layer(x).detach()
    expected = nn.functional.gelu(expected, approximate="tanh") if gelu else expected
    with torch.inference_mode():
        torch.testing.assert_close(product(layer, rows, gelu=gelu)(x), expected)


def test_models_of_another_kind_are_left_to_their_own_way():
    assert can_decode(gpt())
    assert not can_decode(gpt().train())
    assert not can_decode(gpt(experts=4))
    assert not can_decode(LanguageModel(gpt().backbone, nn.Linear(16, 23)).eval())
    assert not can_decode(nn.Linear(2, 2))
    patched = gpt()
    mlp = patched.backbone.blocks[1].mlp
    mlp.forward = lambda x: 2 * type(mlp).forward(mlp, x)
    assert not can_decode(patched)
    hook = nn.modules.module.register_module_forward_hook(lambda *given: None)
    assert not can_decode(gpt())
    hook.remove()
    assert can_decode(gpt())


def test_under_autocast_texts_are_written_by_the_model_itself():
    model = gpt(width=256, heads=4)  # so wide that the decoder would pack its weights
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_decode(model)
        written = sample(model, [[1, 2], [3, 4]], Sampling(length=6))
    assert [len(text.tokens) for [text] in written] == [6, 6]
