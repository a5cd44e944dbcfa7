"""Every faster version equals the plain function that it replaces, and can be switched off."""

import ctypes
import importlib
import inspect
import os
import sys
from threading import Thread
from unittest import mock

import copies
import pytest
import torch
import torch.nn.functional as F
from crash.tiny import WORDS, Text
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit import attention, fast, heads, layers, sampling
from labkit.attention import KeysValues
from labkit.blocks import LanguageModel
from labkit.fast import attention as fast_attention
from labkit.fast import keep_memory, nucleus
from labkit.heads import NextWord
from labkit.layers import replacements
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer, evaluate
from labkit.writing.beam import beam

B, H, E = 2, 3, 4


def resolved(name: str):
    """What a full name stands for."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


# ---- the switch --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fast.versions())
def test_each_version_takes_what_its_function_takes(name: str) -> None:
    plain, faster = resolved(name), fast.versions()[name]
    assert plain.__wrapped__ is not faster
    taken = [inspect.signature(function).parameters.values() for function in (plain, faster)]
    kinds = [[(p.kind, p.default) for p in parameters] for parameters in taken]
    assert kinds[0] == kinds[1]


def test_it_is_on_inside_only_whatever_is_nested_or_fails() -> None:
    assert not replacements
    with fast.enable():
        with fast.enable():
            assert replacements == fast.versions()
        assert replacements == fast.versions()
    assert not replacements
    with pytest.raises(ZeroDivisionError), fast.enable():
        raise ZeroDivisionError
    assert not replacements


def test_it_stays_on_while_any_thread_uses_it() -> None:
    def work() -> None:
        for _ in range(2000):
            with fast.enable():
                seen.append(bool(replacements))

    seen: list[bool] = []
    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8000
    assert all(seen)
    assert not replacements


def test_the_environment_switches_it_off(monkeypatch) -> None:
    monkeypatch.setenv("LABKIT_FAST", "0")
    with fast.enable():
        assert not replacements


def used(model: torch.nn.Module) -> list[bool]:
    """Whether faster versions are in use at each call of the model."""
    calls: list[bool] = []
    model.backbone.register_forward_hook(lambda *_: calls.append(bool(replacements)))
    return calls


def test_training_and_evaluating_use_it_and_leave_nothing_behind() -> None:
    backbone = GPT(GPTConfig(WORDS, width=8, layers=1, heads=2, context=16))
    model = LanguageModel(backbone, NextWord(backbone.token))
    calls, batches = used(model), Text()
    for _ in Trainer(model, NextToken(), batches, Plan(steps=2, device="cpu")).run():
        assert not replacements
    evaluate(model, NextToken(), [batches.at(0)])
    assert calls == [True] * 3
    assert not replacements


# ---- attention ---------------------------------------------------------------------------------


def asked(queries: int, keys: int, dtype: torch.dtype) -> list[Tensor]:
    """Query, key, value and bias, with gradients."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(B, H, queries, E), (B, H, keys, E), (B, H, keys, E), (B, H, queries, keys)]
    made = [torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in shapes]
    return [each.to(dtype).requires_grad_() for each in made]


def masks(queries: int, keys: int) -> dict[str, Tensor | None]:
    """Masks of all shapes, one with a query that sees nothing."""
    holes = torch.rand(B, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.6
    holes[1, 0, 2] = False
    return {"all": None, "padding": holes[:, :, :1], "holes": holes, "plain": holes[0, 0]}


LOOSE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 0.03}


@pytest.mark.parametrize("dtype", LOOSE)
@pytest.mark.parametrize("keys", [4, 7])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", ["all", "padding", "holes", "plain"])
def test_attention_and_its_gradients(mask, biased, is_causal, keys, dtype) -> None:
    given = {"mask": masks(4, keys)[mask], "causal": is_causal}
    answers = []
    for context in (fast.enable(), torch.enable_grad()):
        q, k, v, bias = asked(4, keys, dtype)
        with context:
            y = attention.attend(q, k, v, **given, bias_BHQK=bias if biased else None)
        learned = [q, k, v] + [bias] * biased
        answers.append([y, *torch.autograd.grad(y.double().square().sum(), learned)])
    for found, wanted in zip(*answers, strict=True):
        assert found.dtype == wanted.dtype == dtype
        assert found.isfinite().all()
        assert (found - wanted).abs().max() <= LOOSE[dtype] * max(1, wanted.abs().max())


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_drops_the_weights(monkeypatch, dtype, is_causal) -> None:
    """With one mask of dropout for both, both are the same."""
    q, k, v, _ = asked(5, 5, dtype)
    kept = torch.rand(B, H, 5, 5, generator=torch.Generator().manual_seed(2)) < 0.7

    def marked(x: Tensor, rate: float) -> Tensor:
        assert rate == 0.3
        return x * kept / 0.7

    for module in (attention, fast_attention):
        monkeypatch.setattr(module, "drop", marked)
    wanted = attention.attend(q, k, v, causal=is_causal, dropout=0.3)
    with fast.enable():
        found = attention.attend(q, k, v, causal=is_causal, dropout=0.3)
    torch.testing.assert_close(found, wanted, rtol=0, atol=LOOSE[dtype])


def in_16_bits(length: int) -> tuple[list[Tensor], bool]:
    """Attention and its gradients in bfloat16, and whether the library's kernel was called."""
    given = asked(length, length, torch.bfloat16)[:3]
    with pytest.MonkeyPatch.context() as patch, fast.enable():
        kernel = mock.Mock(side_effect=F.scaled_dot_product_attention)
        patch.setattr(F, "scaled_dot_product_attention", kernel)
        y = attention.attend(*given, causal=True)
    return [y, *torch.autograd.grad(y.float().square().sum(), given)], kernel.called


@pytest.mark.parametrize("length", [8, fast_attention.LONG, fast_attention.LONG + 1])
def test_attention_in_16_bits_takes_the_way_whose_gradients_are_faster(length: int) -> None:
    mine, by_kernel = in_16_bits(length)
    assert by_kernel == (length > fast_attention.LONG)
    rounded = [each.detach() for each in asked(length, length, torch.bfloat16)[:3]]
    q, k, v = (each.double().requires_grad_() for each in rounded)
    y = attention.attend(q, k, v, causal=True)
    wanted = [y, *torch.autograd.grad(y.square().sum(), (q, k, v))]
    for given, right in zip(mine, wanted, strict=True):
        assert given.dtype == torch.bfloat16
        assert (given - right).abs().max() <= 0.02 * right.abs().max()


def test_the_formula_is_taken_in_autocast_too_and_only_where_it_is_faster() -> None:
    q, k, *_ = asked(4, 6, torch.float32)
    plain = q.detach()
    assert not fast_attention.formula_is_faster(q, k, 0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert fast_attention.formula_is_faster(q, k, 0.0)
        assert not fast_attention.formula_is_faster(plain, k, 0.0)
        assert not fast_attention.formula_is_faster(q.to("meta"), k, 0.5)
    assert fast_attention.formula_is_faster(plain, k, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_compiled_it_is_the_same_with_the_switch_on_and_off(dropout: float) -> None:
    q, k, v, _ = asked(5, 5, torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda: attention.attend(q, k, v, causal=True, dropout=dropout).sum(),
        backend="aot_eager",
        fullgraph=True,
    )
    wanted = attention.attend(q, k, v, causal=True).sum()
    for _ in range(2):
        found = [compiled()]
        with fast.enable():
            found.append(compiled())
        for each in found:
            assert each.requires_grad
            if dropout == 0:
                torch.testing.assert_close(each, wanted)


# ---- keys and values ---------------------------------------------------------------------------


def pieces(count: int) -> list[KeysValues]:
    """Keys and values of some stretches of text."""
    draw = torch.Generator().manual_seed(0)
    sizes = [1 + 40 * (i % 3) for i in range(count)]
    return [KeysValues(*(torch.randn(B, H, n, E, generator=draw) for _ in "kv")) for n in sizes]


def test_keys_and_values_grow_as_plain_ones_and_older_values_stay() -> None:
    start, *more = pieces(9)
    plain, grown = [start], [start]
    with torch.no_grad():
        for piece in more:
            plain.append(plain[-1].extended(*piece))
            with fast.enable():
                grown.append(grown[-1].extended(*piece))
        # A second text goes on from the middle, where the first one has written already.
        plain.append(plain[4].extended(*more[0]))
        with fast.enable():
            grown.append(grown[4].extended(*more[0]))
    for found, wanted in zip(grown, plain, strict=True):
        assert torch.equal(found.k_BHKE, wanted.k_BHKE)
        assert torch.equal(found.v_BHKE, wanted.v_BHKE)
    addresses = {value.k_BHKE.data_ptr() for value in grown[1:]}
    assert len(addresses) < len(grown) - 1, "some value must lie in the space of an older one"


def test_keys_and_values_of_two_precisions_keep_the_wider_one() -> None:
    start, piece = pieces(2)
    narrow = KeysValues(*(each.bfloat16() for each in start))
    with torch.no_grad():
        wanted = narrow.extended(*piece)
        with fast.enable():
            found = narrow.extended(*piece)
    assert wanted.k_BHKE.dtype == torch.float32
    assert all(map(torch.equal, found, wanted))


def test_keys_and_values_with_gradients_are_plain() -> None:
    start, piece = pieces(2)
    tracked = KeysValues(*(each.requires_grad_() for each in piece))
    with fast.enable():
        start.extended(*tracked).k_BHKE.sum().backward()
    assert torch.equal(piece.k_BHKE.grad, torch.ones_like(piece.k_BHKE))


# ---- dropout and the softmax over the words ----------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("shape", [(0,), (3,), (5, 0), (7, 11, 13)])
def test_dropout_gives_zeros_and_what_the_plain_one_gives_elsewhere(shape, rate, dtype) -> None:
    x = torch.randn(shape, dtype=dtype).requires_grad_()
    with fast.enable():
        y = layers.drop(x, rate)
    assert y.dtype == dtype
    assert y.shape == x.shape
    kept = y != 0
    exact = round(rate * 2**16) / 2**16  # the rate that 16 bits can say
    torch.testing.assert_close(y[kept], (x / (1 - exact))[kept], rtol=1e-2, atol=0)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y, rtol=1e-2, atol=0)


def test_a_dropout_of_one_gives_zeros_as_the_plain_one_does() -> None:
    with fast.enable():
        assert torch.equal(layers.drop(torch.ones(5), 1.0), torch.zeros(5))


def test_dropout_draws_again_from_the_same_seed() -> None:
    x, found = torch.ones(100), []
    for _ in range(2):
        torch.manual_seed(3)
        with fast.enable():
            found.append((layers.drop(x, 0.5), layers.drop(x, 0.5)))
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][0], found[0][1])


def test_the_loss_of_a_head_is_in_pieces_only_where_that_serves() -> None:
    head, x = NextWord(torch.nn.Embedding(9, 4)), torch.randn(5, 4)
    targets = torch.arange(5)
    with fast.enable():
        in_pieces = head.losses_N(x, targets)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = head.losses_N(x, targets)
    assert type(in_pieces.grad_fn).__name__ == "InPiecesBackward"
    assert type(rounded.grad_fn).__name__ != "InPiecesBackward"
    wanted = F.cross_entropy(head(x), targets, reduction="none")
    torch.testing.assert_close(in_pieces, wanted)
    torch.testing.assert_close(rounded, wanted, rtol=0.02, atol=0.02)
    assert rounded.dtype == torch.float32
    assert torch.equal(heads.losses(x, head.words.weight, None, targets), wanted)


# ---- memory of the process ---------------------------------------------------------------------


PAGES = """
import resource, torch
from labkit import fast
for step in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with fast.enable():
        torch.zeros(64, 2**18)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux is told")
@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_step_gets_no_fresh_pages_for_what_the_one_before_it_freed(switch: str) -> None:
    # Huge pages would hide what is tested.
    env = {**os.environ, "GLIBC_TUNABLES": "", "THP_MEM_ALLOC_ENABLE": "0", "LABKIT_FAST": switch}
    done = copies.run(["-c", PAGES], env=env)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) < 100) == (switch == "1"), "64 MiB anew are 16,384 pages"


def test_memory_is_kept_where_that_can_be_asked_for(monkeypatch) -> None:
    other = (
        mock.Mock(side_effect=OSError),
        mock.Mock(side_effect=TypeError),
        lambda name: object(),
    )
    for library in other:
        monkeypatch.setattr(ctypes, "CDLL", library)
        keep_memory()


# ---- writing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_best_word_is_the_first_of_the_highest(dtype) -> None:
    scores = torch.randn(8, 3, 900, generator=torch.Generator().manual_seed(0)).to(dtype)
    scores[0] = scores[0].round()  # many are equal
    scores[1], scores[2, :, 7] = -torch.inf, torch.inf
    scores[3, :, [5, 9]] = torch.nan
    wanted = sampling.best_word(scores)
    assert wanted[0, 0] == (scores[0, 0] == scores[0, 0].max()).nonzero()[0, 0]
    with fast.enable():
        for same in (scores, scores.clone().requires_grad_()):
            assert torch.equal(sampling.best_word(same), wanted)
        assert sampling.best_word(scores[:0]).shape == (0, 3)
    assert (fast.versions()["labkit.sampling.best_word"](scores) is None) == (
        dtype == torch.bfloat16
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("words", [3, nucleus.FEW, nucleus.FEW + 1, 700])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("p", [0, 1e-9, 0.3, 0.5, 0.9, 0.999999, 1, 1.0])
def test_a_nucleus_keeps_the_same_words(p, spread, words, dtype) -> None:
    draw = torch.Generator().manual_seed(words)
    logits = (spread * torch.randn(6, words, generator=draw)).to(dtype)
    logits[1] = logits[1].round()  # many equal the last one
    logits[2, words // 3 :] = -torch.inf  # other filters were here before
    wanted = sampling.nucleus(logits, p)
    with fast.enable():
        assert torch.equal(sampling.nucleus(logits, p), wanted)


def test_a_nucleus_keeps_the_same_words_at_every_boundary() -> None:
    logits = torch.randn(1, 90, generator=torch.Generator().manual_seed(0))
    sums = logits.softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)
    for p in sums[0].tolist():
        wanted = sampling.nucleus(logits, min(p, 1.0))
        with fast.enable():
            assert torch.equal(sampling.nucleus(logits, min(p, 1.0)), wanted)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "all"])
def test_a_nucleus_refuses_the_same(wrong) -> None:
    with fast.enable(), pytest.raises(ValueError, match="top_p is"):
        sampling.nucleus(torch.zeros(1, 99), wrong)


@pytest.mark.parametrize("changed", [{}, {"experts": 3}, {"band": 3}, {"rotary": True}])
def test_texts_are_the_same(monkeypatch, changed) -> None:
    """Drawn ones, of prompts of several lengths and of equal ones; and those of a beam."""
    torch.manual_seed(0)
    config = GPTConfig(WORDS, width=16, layers=2, heads=2, context=64, **changed)
    backbone = GPT(config)
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    how = sampling.Sampling(length=20, top_p=0.8, stop=(5,))
    found = []
    for switch in "01":
        monkeypatch.setenv("LABKIT_FAST", switch)
        texts = sampling.sample(model, [[1], [2, 3, 4], [1]], how, samples=2, seed=7)
        found.append([text.tokens for row in texts for text in row])
        found[-1] += [text.tokens for text in beam(model, [3, 4], how, beams=4)]
    assert found[0] == found[1]
    assert not replacements


@pytest.mark.parametrize("masked", [False, True])
def test_on_a_gpu_no_mask_goes_to_the_kernel_of_cudnn(
    masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that is said to be on a GPU shows which kernels torch might choose from."""
    allowed = []

    def kernel(*given: torch.Tensor, **how: object) -> torch.Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return given[0]

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    with FakeTensorMode():
        q_BHQE = torch.empty(1, 2, 3, 8, device="cuda")
        mask = torch.ones(3, 3, dtype=torch.bool, device="cuda") if masked else None
        fast_attention.by_kernel(q_BHQE, q_BHQE, q_BHQE, mask)
    assert allowed == [not masked]
    assert torch.backends.cuda.cudnn_sdp_enabled(), "what the user has set stays"
