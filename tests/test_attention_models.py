"""What every attention model must stand: precisions, edges of length, padding, copies, errors."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor

from labkit.blocks import States
from labkit.heads import Label, MaskedWord, NextWord
from labkit.keeping.processor import can_compile
from labkit.masking import before, causal, real_keys, up_to
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import (
    AdaptiveEmbedding,
    AdaptiveWord,
    TransformerXL,
    TransformerXLConfig,
)
from labkit.models.xlnet import XLNet, XLNetConfig

V, CONTEXT = 29, 9
SIZES = {"vocabulary": V, "width": 16, "layers": 2, "heads": 4, "context": CONTEXT}
BUILD = {
    "GPT": lambda **more: GPT(GPTConfig(**SIZES, norm_first=False, **more)),
    "GPT-2": lambda **more: GPT(GPTConfig(**{**SIZES, **more})),
    "GPT-3": lambda **more: GPT(GPTConfig(**SIZES, band=3, **more)),
    "GPT, experts": lambda **more: GPT(GPTConfig(**SIZES, experts=3, **more)),
    "GPT, rotary": lambda **more: GPT(GPTConfig(**SIZES, rotary=True, **more)),
    "BERT": lambda **more: BERT(BERTConfig(**SIZES, **more)),
    "BERT, rotary": lambda **more: BERT(BERTConfig(**SIZES, rotary=True, **more)),
    "RoBERTa": lambda **more: BERT(BERTConfig(**SIZES, segments=1, unused_positions=2, **more)),
    "ALBERT": lambda **more: BERT(
        BERTConfig(**{**SIZES, "embedding": 6, "shared": True, "activation": "gelu_tanh", **more})
    ),
    "DistilBERT": lambda **more: BERT(BERTConfig(**SIZES, segments=0, **more)),
    "Transformer-XL": lambda **more: TransformerXL(
        TransformerXLConfig(**{**SIZES, "memory": 4, **more})
    ),
    "XLNet": lambda **more: XLNet(XLNetConfig(**{**SIZES, "memory": 4, **more})),
}
LIMITED = [name for name in BUILD if name not in ("Transformer-XL", "XLNet")]
CAUSAL = ["GPT", "GPT-2", "GPT-3", "GPT, experts", "GPT, rotary", "Transformer-XL"]
MODELS = pytest.mark.parametrize("name", BUILD)


def build(name: str, **more) -> nn.Module:
    """A model with weights large enough to show in the output."""
    torch.manual_seed(0)
    model = BUILD[name](**{"dropout": 0.0, **more})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return model


def text(batch: int = 3, length: int = 7, seed: int = 1) -> Tensor:
    """Random tokens [B, T]."""
    return torch.randint(1, V, (batch, length), generator=torch.Generator().manual_seed(seed))


def read(model: nn.Module, tokens_BT: Tensor, mask: Tensor | None = None) -> States:
    """The states, of both streams where there are two."""
    if not isinstance(model, XLNet) or mask is not None:
        return model(tokens_BT, mask=mask)
    order = torch.arange(tokens_BT.shape[1]).expand(len(tokens_BT), -1)
    asked = order[:, -2:]
    streams = model.two_streams(tokens_BT, asked, mask=up_to(order), query_mask=before(order))
    layers = zip(streams.content.layers, streams.query.layers, strict=True)
    return States(tuple(torch.cat(both, dim=1) for both in layers), streams.content.memory)


def squares(model: nn.Module, hidden_BTD: Tensor) -> Tensor:
    """A loss that every state matters to; of a norm's output, a plain sum would not change."""
    weights = torch.randn(hidden_BTD.shape[-1], generator=torch.Generator().manual_seed(2))
    return (hidden_BTD.float() * weights).square().mean()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter that has one."""
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@MODELS
def test_every_parameter_learns(name: str) -> None:
    model = build(name, dropout=0.1).train()
    squares(model, read(model, text()).hidden).backward()
    found = gradients(model)
    assert all(grad.isfinite().all() for grad in found.values())
    missing = {n for n, _ in model.named_parameters()} - set(found)
    # Without segments in the text, XLNet does not ask about them.
    assert all("attention.s" in n for n in missing), missing


@MODELS
def test_bfloat16_is_near_float32(name: str) -> None:
    model = build(name)
    exact = read(model, text()).hidden
    squares(model, exact).backward()
    wanted = gradients(model)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        found = read(model, text()).hidden
        loss = squares(model, found)
    loss.backward()
    scale = exact.abs().max()
    # Eight bits of mantissa, through two layers; experts may choose differently on a tie.
    if name != "GPT, experts":
        assert (found.float() - exact).abs().max() < 0.05 * scale
    for parameter, grad in gradients(model).items():
        assert grad.dtype == torch.float32
        assert grad.isfinite().all(), parameter
        if name != "GPT, experts":
            largest = max(wanted[parameter].abs().max(), torch.tensor(0.02))
            assert (grad - wanted[parameter]).abs().max() < 0.2 * largest, parameter


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("GPT-2", "aot_eager"),
        ("ALBERT", "aot_eager"),
        ("Transformer-XL", "aot_eager"),
        ("XLNet", "aot_eager"),
        ("GPT-2", "inductor"),
    ],
)
def test_compiled_is_equal(name: str, backend: str) -> None:
    if backend == "inductor" and not can_compile():
        pytest.skip("no C++ compiler, or no headers of Python")
    # The compiler follows each layer anew; only those of ALBERT share their weights.
    model = build(name, dropout=0.0, layers=2 if name == "ALBERT" else 1)
    exact = read(model, text()).hidden
    squares(model, exact).backward()
    wanted = gradients(model)
    torch.compiler.reset()
    other = copy.deepcopy(model)
    other.zero_grad()
    compiled = torch.compile(lambda tokens: read(other, tokens).hidden, backend=backend)
    # Else inductor tries each kind of vectors with a compiler and with a new process, for 20 s.
    with inductor.patch({"cpp.vec_isa_ok": True}):
        found = compiled(text())
        squares(model, found).backward()
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5)
    for parameter, grad in gradients(other).items():
        torch.testing.assert_close(grad, wanted[parameter], rtol=0, atol=1e-5, msg=parameter)


@MODELS
def test_a_batch_of_one_reads_like_a_row(name: str) -> None:
    model = build(name).eval()
    tokens = text()
    for row, alone in enumerate(tokens.split(1)):
        torch.testing.assert_close(
            read(model, alone).hidden[0], read(model, tokens).hidden[row], rtol=0, atol=1e-5
        )


@MODELS
def test_a_text_of_one_word(name: str) -> None:
    model = build(name)
    hidden = model(text(2, 1)).hidden
    assert hidden.shape == (2, 1, 16)
    squares(model, hidden).backward()
    assert all(grad.isfinite().all() for grad in gradients(model).values())


@MODELS
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_rows_that_see_nothing_stay_finite(name: str, dropout: float) -> None:
    model = build(name, dropout=dropout).train()
    mask = causal(7).expand(3, 1, 7, 7).clone()
    mask[0] = False
    mask[1, 0, 3] = False
    hidden = model(text(), mask=mask).hidden
    squares(model, hidden).backward()
    assert hidden.isfinite().all()
    assert all(grad.isfinite().all() for grad in gradients(model).values())


@MODELS
def test_padding_changes_nothing(name: str) -> None:
    model = build(name).eval()
    tokens, other = text(), text(seed=5)
    is_real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3, [True] + [False] * 6])
    mask = real_keys(is_real) & (causal(7) if name in CAUSAL else torch.ones(7, 7, dtype=bool))
    padded = torch.where(is_real, tokens, other)
    found = model(padded, mask=mask).hidden
    assert torch.equal(found[is_real], model(tokens, mask=mask).hidden[is_real])
    alone = model(tokens[1:2, :4]).hidden[0]
    torch.testing.assert_close(found[1, :4], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_no_position_sees_the_next(name: str) -> None:
    model = build(name).double().eval()
    tokens = text()
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % V
    # An expert computes its tokens together, and their number may change the last digit of each.
    differs = ((model(tokens).hidden - model(changed).hidden).abs() > 1e-9).any(-1).any(0)
    assert differs.tolist() == [False] * 4 + [True] * 3


def test_a_band_sees_so_many_back_in_every_other_layer() -> None:
    model = build("GPT-3").eval()
    tokens = text(1, 9)
    x = torch.randn(1, 9, 16)
    y = x.clone()
    y[:, 1] += torch.randn(16)
    reached = []
    for layer, block in enumerate(model.blocks):
        mask, fast = model._mask_of(layer, 9, 0, None, tokens)
        found = [block(states, mask=mask, causal=fast)[0] for states in (x, y)]
        reached.append((found[0] != found[1]).any(-1)[0].tolist())
    assert reached == [[False] + [True] * 8, [False] + [True] * 3 + [False] * 5]


@pytest.mark.parametrize("name", LIMITED)
def test_the_longest_text_and_one_word_more(name: str) -> None:
    model = build(name).eval()
    assert model(text(1, CONTEXT)).hidden.shape == (1, CONTEXT, 16)
    message = (
        "the text has 10 tokens, the model has positions for 9: "
        "shorten the text or build the model with context=10"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        model(text(1, CONTEXT + 1))


@pytest.mark.parametrize("name", ["Transformer-XL", "XLNet"])
def test_without_places_there_is_no_longest_text(name: str) -> None:
    model = build(name).eval()
    assert model(text(1, 3 * CONTEXT)).hidden.shape == (1, 3 * CONTEXT, 16)


@pytest.mark.parametrize("name", ["Transformer-XL", "XLNet"])
def test_evaluation_may_remember_more_than_training(name: str) -> None:
    model = build(name).eval()
    assert [m.shape[1] for m in model(text()).memory] == [4, 4]
    model.memory_length = 11
    first = model(text())
    second = model(text(), memory=first.memory)
    assert [m.shape[1] for m in second.memory] == [11, 11]
    model.memory_length = 0
    nothing = model(text())
    assert [m.shape[1] for m in nothing.memory] == [0, 0]
    assert torch.equal(model(text(), memory=nothing.memory).hidden, nothing.hidden)


@MODELS
def test_a_copy_computes_with_its_own_weights(name: str) -> None:
    model = build(name).eval()
    wanted = model(text()).hidden
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(other(text()).hidden, wanted)


@MODELS
def test_a_checkpoint_holds_weights_and_nothing_else(name: str) -> None:
    model = build(name)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


class LambdaGPT(GPT):
    """The mistake of a popular model: a function that remembers the first owner's weights."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.embed = lambda tokens_BT: self.token(tokens_BT)

    def forward(self, tokens_BT, *, mask=None, memory=None) -> States:
        return States((self.embed(tokens_BT),))


class MaskInCheckpointGPT(GPT):
    """The mistake of a popular model: the mask is saved with the weights."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.register_buffer("bias", causal(config.context))


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (LambdaGPT, test_a_copy_computes_with_its_own_weights),
        (MaskInCheckpointGPT, test_a_checkpoint_holds_weights_and_nothing_else),
    ],
)
def test_the_checks_kill_the_mistakes_of_others(mutant, check, monkeypatch) -> None:
    monkeypatch.setitem(BUILD, "GPT", lambda **more: mutant(GPTConfig(**SIZES, **more)))
    with pytest.raises(AssertionError):
        check("GPT")


@pytest.mark.parametrize("shrink", [1, 2])
def test_adaptive_softmax_is_a_law_over_all_words(shrink: int) -> None:
    torch.manual_seed(0)
    head = AdaptiveWord(AdaptiveEmbedding(V, 8, (5, 12), shrink=shrink))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    hidden, targets = torch.randn(2, V, 8), torch.arange(V).expand(2, -1)
    scores = head(hidden)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(2, V))
    losses = head.losses_N(hidden.flatten(0, 1), targets.flatten())
    wanted = -scores.gather(-1, targets[..., None]).flatten()
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-5)
    assert head.losses_N(hidden[0, :3], torch.tensor([1, 2, 3])).isfinite().all()


def test_adaptive_embedding_has_pieces_of_falling_width() -> None:
    embedding = AdaptiveEmbedding(V, 8, (5, 12), shrink=2)
    assert [tuple(p.weight.shape) for p in embedding.pieces] == [(5, 8), (7, 4), (17, 2)]
    tokens = torch.tensor([[0, 4, 5], [11, 12, 28]])
    found = embedding(tokens)
    for where, token in zip(
        torch.cartesian_prod(torch.arange(2), torch.arange(3)), tokens.flatten(), strict=True
    ):
        piece = int(token >= 5) + int(token >= 12)
        row = embedding.pieces[piece].weight[token - (0, 5, 12)[piece]]
        wanted = embedding.up[piece].weight @ row
        torch.testing.assert_close(found[tuple(where)], wanted)


@pytest.mark.parametrize("cutoffs", [(0,), (12, 5), (5, 5), (V,)])
def test_cutoffs_that_do_not_cut_are_refused(cutoffs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not cut a vocabulary of 29 words"):
        AdaptiveEmbedding(V, 8, cutoffs)


def test_heads_share_the_weights_they_are_given() -> None:
    model = build("ALBERT", pooler=True)
    words = MaskedWord(model.token, 16)
    assert words.words.weight is model.token.weight
    assert NextWord(model.token).words.weight is model.token.weight
    label = Label(16, 3, pool=model.pooler)
    assert label.pool is model.pooler
    assert Label(16, 3).pool is not None
    hidden = model(text()).hidden
    assert words(hidden).shape == (3, 7, V)
    loss = words.losses_N(hidden[:, 1], torch.tensor([1, 2, 3]))
    wanted = -words(hidden[:, 1]).log_softmax(-1)[range(3), [1, 2, 3]]
    torch.testing.assert_close(loss, wanted)


def test_what_a_model_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="does not tell segments apart"):
        build("DistilBERT")(text(), segments_BT=torch.zeros(3, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="BERT reads a text at once and remembers nothing"):
        build("BERT")(text(), memory=())
    with pytest.raises(ValueError, match="a width of 16 does not divide into 3 heads"):
        XLNet(XLNetConfig(**{**SIZES, "heads": 3}))


def test_segments_and_places_matter_to_xlnet() -> None:
    model = build("XLNet").eval()
    tokens = text(2, 5)
    halves = torch.tensor([0, 0, 1, 1, 1]).expand(2, -1)
    found = model(tokens, segments_BT=halves).hidden
    # Only the relation counts: naming the parts the other way round is the same.
    assert torch.equal(found, model(tokens, segments_BT=1 - halves).hidden)
    whole = model(tokens, segments_BT=torch.zeros_like(halves)).hidden
    assert not torch.allclose(found, whole)
    assert not torch.allclose(model(tokens.flip(1)).hidden.flip(1), model(tokens).hidden)


def test_a_query_does_not_see_its_own_word() -> None:
    model = build("XLNet").eval()
    tokens = text(1, 6)
    order = torch.tensor([[3, 0, 5, 1, 4, 2]])
    asked = torch.tensor([[4, 2, 0]])
    masks = {"mask": up_to(order), "query_mask": before(order)}
    wanted = model.two_streams(tokens, asked, **masks).query.hidden
    for place in range(6):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % V
        found = model.two_streams(changed, asked, **masks).query.hidden
        differs = (found != wanted).any(-1)[0].tolist()
        assert differs == [bool(order[0, place] < order[0, n]) for n in asked[0]]


def test_the_query_stream_is_the_same_wherever_it_is_asked() -> None:
    model = build("XLNet").eval()
    tokens = text(2, 6)
    order = torch.stack([torch.randperm(6), torch.randperm(6)])
    masks = {"mask": up_to(order), "query_mask": before(order)}
    everything = torch.arange(6).expand(2, -1)
    all_of_them = model.two_streams(tokens, everything, **masks)
    some = torch.tensor([[5, 1], [0, 3]])
    asked = model.two_streams(tokens, some, **masks)
    for b in range(2):
        torch.testing.assert_close(
            asked.query.hidden[b], all_of_them.query.hidden[b, some[b]], rtol=0, atol=1e-6
        )
    assert torch.equal(asked.content.hidden, all_of_them.content.hidden)
