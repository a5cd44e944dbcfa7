"""GPT, GPT-2 and GPT-3, and rotary positions, against the implementation of the releases."""

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
)

from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.masking import causal, real
from labkit.models.gpt import GPT, GPTConfig
from labkit.weights.release_names import RELEASES

from . import Case, Differences, largest, merge
from .releases import SHAPES, copy_weights, gradients, tiny


def pair(family: str, heads: int, dtype: torch.dtype):
    """A tiny reference, and our model with the same weights."""
    sizes = {"vocab_size": 37, "n_positions": 13, "n_embd": 16, "n_layer": 3, "n_head": heads}
    config, build = {
        "openai-gpt": (OpenAIGPTConfig, OpenAIGPTLMHeadModel),
        "gpt2": (GPT2Config, GPT2LMHeadModel),
    }[family]
    tokens = {} if family == "openai-gpt" else {"bos_token_id": 0, "eos_token_id": 0}
    reference = tiny(build(config(**sizes, **tokens)).to(dtype))
    backbone = GPT(GPTConfig(**RELEASES[family].config(reference.config.to_dict()))).to(dtype)
    copy_weights(family, reference, backbone)
    return reference, LanguageModel(backbone, NextWord(backbone.token)).eval()


def _compare(family: str, padded: bool, dtype: torch.dtype) -> Differences:
    return merge(_run(family, padded, dtype, *shape) for shape in SHAPES)


def _run(family: str, padded: bool, dtype: torch.dtype, batch: int, length: int, heads: int):
    reference, model = pair(family, heads, dtype)
    torch.manual_seed(1)
    tokens = torch.randint(1, 37, (batch, length + 1))
    is_real = torch.ones(batch, length + 1, dtype=torch.bool)
    if padded:
        is_real[0, max(1, length // 2) :] = False
    given, targets = tokens[:, :-1], tokens[:, 1:]
    asked = is_real[:, 1:]
    theirs = reference(given, attention_mask=is_real[:, :-1].to(dtype), output_hidden_states=True)
    mask = causal(length) & real(is_real[:, :-1].long(), 0) if padded else None
    ours = model.backbone(given, mask=mask)
    if not asked.any():
        asked = torch.ones_like(asked)
    expected = F.cross_entropy(theirs.logits[asked], targets[asked])
    loss = model.head.losses_N(ours.hidden[asked], targets[asked]).mean()
    loss.backward()
    expected.backward()
    seen = is_real[:, :-1]
    return {
        "layers": largest((h[seen] for h in ours.layers), (h[seen] for h in theirs.hidden_states)),
        "loss": largest([loss], [expected]),
        "gradients": gradients(family, reference, model.backbone),
    }


def _remembering(dtype: torch.dtype) -> Differences:
    """Three pieces of a text with keys and values remembered, against the text in one pass."""
    reference, model = pair("gpt2", 4, dtype)
    tokens = torch.randint(0, 37, (2, 13), generator=torch.Generator().manual_seed(2))
    theirs = reference(tokens, output_hidden_states=True).hidden_states
    memory, pieces = (), []
    for piece in tokens.split([5, 1, 7], dim=1):
        states = model.backbone(piece, memory=memory)
        memory = states.memory
        pieces.append(states.layers)
    ours = [torch.cat(layer, dim=1) for layer in zip(*pieces, strict=True)]
    return {"layers": largest(ours, theirs)}


def _learned_and_in_pieces(reference: nn.Module, backbone: GPT, lengths: list[int]) -> Differences:
    """The layers of a text, read whole and in pieces, and its loss; both models have gradients."""
    draw = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 37, (2, sum(lengths) + 1), generator=draw)
    theirs = reference(tokens[:, :-1], output_hidden_states=True)
    ours, targets = backbone(tokens[:, :-1]), tokens[:, 1:].flatten()
    expected = F.cross_entropy(theirs.logits.flatten(0, 1), targets)
    loss = NextWord(backbone.token).losses_N(ours.hidden.flatten(0, 1), targets).mean()
    loss.backward()
    expected.backward()
    pieces, memory = [], ()
    for piece in tokens[:, :-1].split(lengths, dim=1):
        states = backbone(piece, memory=memory)
        memory = states.memory
        pieces.append(states.hidden)
    return {
        "layers": largest(
            [*ours.layers, torch.cat(pieces, dim=1)],
            [*theirs.hidden_states, theirs.hidden_states[-1]],
        ),
        "loss": largest([loss], [expected]),
    }


def _banded(dtype: torch.dtype) -> Differences:
    """GPT-3: the reference of GPT-2, told in every other layer to look three positions back."""
    reference, plain = pair("gpt2", 4, dtype)
    backbone = GPT(replace(plain.backbone.config, band=3)).to(dtype).eval()
    backbone.load_state_dict(plain.backbone.state_dict())
    band = torch.tensor([[0 <= i - j < 3 for j in range(11)] for i in range(11)])[None, None]
    for block in reference.transformer.h[1::2]:
        block.register_forward_pre_hook(lambda _, given: (*given[:2], band, *given[3:]))
    found = _learned_and_in_pieces(reference, backbone, [4, 1, 6])
    return {**found, "gradients": gradients("gpt2", reference, backbone)}


def _rotary(dtype: torch.dtype) -> Differences:
    """GPT-NeoX with its layers in GPT-2's order is a GPT-2 whose positions are rotary."""
    heads = 4
    sizes = {"vocab_size": 37, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
             "num_attention_heads": heads, "max_position_embeddings": 13}  # fmt: skip
    choices = GPTNeoXConfig(
        **sizes, rotary_pct=1.0, use_parallel_residual=False, hidden_act="gelu_new",
        hidden_dropout=0.1, attention_dropout=0.1, tie_word_embeddings=True, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    reference = tiny(GPTNeoXForCausalLM(choices).to(dtype))
    if dtype == torch.float64:
        # The reference computes its angles in 32 bits, whatever its weights are.
        reference.gpt_neox.rotary_emb.forward = _angles
    backbone = GPT(GPTConfig(37, 32, 3, heads, 13, inner=64, rotary=True)).to(dtype).eval()
    pairs = list(_pairs_of_neox(reference, backbone))
    assert len({id(mine) for mine, _ in pairs}) == len(list(backbone.parameters()))
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(_unmixed(theirs, mine, heads))
    found = _learned_and_in_pieces(reference, backbone, [4, 1, 8])
    grads = (_unmixed(theirs.grad, mine, heads) for mine, theirs in pairs)
    return {**found, "gradients": largest((mine.grad for mine, _ in pairs), grads)}


def _angles(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of position / 10,000^(2e / E), for a width E of a head of 8."""
    frequencies = torch.tensor([1, 10, 100, 1_000]).to(x.dtype)
    angles = (position_ids[..., None] / frequencies).repeat(1, 1, 2)
    return angles.cos(), angles.sin()


def _pairs_of_neox(reference: nn.Module, backbone: GPT) -> Iterator[tuple[Tensor, Tensor]]:
    """Each of our weights with that of the reference."""
    body = reference.gpt_neox
    yield backbone.token.weight, body.embed_in.weight
    layers = [(backbone.norm, body.final_layer_norm)]
    for ours, theirs in zip(backbone.blocks, body.layers, strict=True):
        layers += [
            (ours.attention.query_key_value, theirs.attention.query_key_value),
            (ours.attention.out, theirs.attention.dense),
            (ours.mlp.up, theirs.mlp.dense_h_to_4h),
            (ours.mlp.down, theirs.mlp.dense_4h_to_h),
            (ours.attention_norm, theirs.input_layernorm),
            (ours.mlp_norm, theirs.post_attention_layernorm),
        ]
    for mine, its in layers:
        yield mine.weight, its.weight
        yield mine.bias, its.bias


def _unmixed(theirs: Tensor, mine: Tensor, heads: int) -> Tensor:
    """Query, key and value of a head stand together in the reference, and of all heads in ours."""
    if len(theirs) != 3 * 32:  # of the weights, only those three together have so many rows
        return theirs
    return theirs.unflatten(0, (heads, 3, -1)).transpose(0, 1).reshape(mine.shape)


def _case(model: str, family: str, padded: bool) -> Case:
    what = "padding" if padded else "next word"
    return Case(model, what, "transformers", lambda dtype: _compare(family, padded, dtype))


CASES = [
    _case("GPT", "openai-gpt", False),
    _case("GPT", "openai-gpt", True),
    _case("GPT-2", "gpt2", False),
    _case("GPT-2", "gpt2", True),
    Case("GPT-2", "memory over three segments", "transformers", _remembering),
    Case("GPT-2, rotary", "memory over three segments", "transformers (GPT-NeoX)", _rotary),
    Case("GPT-3", "bands, memory over three segments", "transformers, masked", _banded),
]
