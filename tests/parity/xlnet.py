"""XLNet's encoder and its two streams against the implementation of the releases."""

from types import MethodType

import torch
import torch.nn.functional as F
from transformers import XLNetConfig as ReleaseConfig
from transformers import XLNetLMHeadModel

from labkit.heads import NextWord
from labkit.masking import before, real_keys, same_position, up_to
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.weights.release_names import RELEASES

from . import Case, Differences, largest, merge
from .releases import SHAPES, copy_weights, gradients, tiny

MEMORY = 9
STREAMS_SHAPES = ((3, 7, 1), (2, 12, 4), (1, 2, 2))


def _exact_positions(self, qlen: int, klen: int, bsz: int, device=None):
    """The sinusoids of the reference in float64, which it computes in float32 whatever it is."""
    places = torch.arange(klen, -qlen, -1, dtype=torch.float64)
    steps = torch.arange(0, self.d_model, 2, dtype=torch.float64)
    return self.positional_embedding(places, 1 / 10_000 ** (steps / self.d_model), bsz)


def pair(heads: int, dtype: torch.dtype):
    """A tiny reference, and our backbone and head with the same weights."""
    sizes = {"d_model": 16, "n_layer": 3, "d_inner": 24, "n_head": heads}
    config = ReleaseConfig(vocab_size=37, mem_len=MEMORY, **sizes)
    reference = tiny(XLNetLMHeadModel(config).to(dtype))
    if dtype == torch.float64:
        inner = reference.transformer
        inner.relative_positional_encoding = MethodType(_exact_positions, inner)
    fields = RELEASES["xlnet"].config(config.to_dict())
    backbone = XLNet(XLNetConfig(**fields, memory=MEMORY)).to(dtype)
    words = NextWord(backbone.token, bias=True).to(dtype)
    copy_weights("xlnet", reference, backbone, words=words)
    return reference, backbone.eval(), words


def _text(batch: int, length: int, padded: bool, seed: int):
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(6, 37, (batch, length), generator=draw)
    is_real = torch.ones(batch, length, dtype=torch.bool)
    if padded:
        is_real[0, max(1, length // 2) :] = False
    segments = (torch.rand(batch, length, generator=draw) < 0.5).long()
    moments = torch.rand(batch, length, generator=draw)
    # Every query sees the first word at least: of one that sees nothing, the release takes the
    # mean of what was to be hidden.
    moments[:, 0] = 0
    order = moments.argsort(-1).argsort(-1)
    return tokens, is_real, segments, order


def _encoder(padded: bool, dtype: torch.dtype, batch: int, length: int, heads: int) -> Differences:
    reference, backbone, words = pair(heads, dtype)
    tokens, is_real, segments, order = _text(batch, length, padded, seed=1)
    given = {"token_type_ids": segments} if padded else {}
    theirs = reference(
        tokens,
        attention_mask=is_real.to(dtype) if padded else None,
        labels=order.masked_fill(~is_real, -100),
        output_hidden_states=True,
        **given,
    )
    # In the release a padded position still looks at itself.
    mask = real_keys(is_real) | same_position(length) if padded else None
    ours = backbone(tokens, mask=mask, segments_BT=given.get("token_type_ids"))
    loss = words.losses_N(ours.hidden[is_real], order[is_real]).mean()
    loss.backward()
    theirs.loss.backward()
    return {
        "layers": largest(ours.layers, theirs.hidden_states),
        "loss": largest([loss], [theirs.loss]),
        "gradients": gradients("xlnet", reference, backbone, words=words),
    }


def _streams(
    padded: bool, pieces: int, dtype: torch.dtype, batch: int, length: int, heads: int
) -> Differences:
    """Pieces of a text one after the other, each under a random order, with memory between."""
    reference, backbone, words = pair(heads, dtype)
    memory, mems, found = None, None, []
    for piece in range(pieces):
        tokens, is_real, segments, order = _text(batch, length, padded, seed=piece)
        asked = order.argsort(-1)[:, -max(1, length // 3) :]
        targets = torch.gather(tokens, 1, asked)
        past = 0 if memory is None else memory[0].shape[1]
        may_know = F.pad(is_real, (past, 0), value=True)[:, None, None]
        theirs = reference(
            tokens,
            attention_mask=is_real.to(dtype),
            mems=mems,
            use_mems=True,
            perm_mask=(~before(order)[:, 0]).to(dtype),
            target_mapping=F.one_hot(asked, length).to(dtype),
            token_type_ids=segments,
            labels=targets,
            output_hidden_states=True,
        )
        # In the release a position looks at itself even where it is padding.
        ours = backbone.two_streams(
            tokens,
            asked,
            mask=up_to(order, past) & may_know | same_position(length, past + length),
            query_mask=before(order, past) & may_know,
            memory=memory,
            segments_BT=segments,
        )
        loss = words.losses_N(ours.query.hidden.flatten(0, 1), targets.flatten()).mean()
        loss.backward()
        theirs.loss.backward()
        both = [
            h for layer in zip(ours.content.layers, ours.query.layers, strict=True) for h in layer
        ]
        kept = [layer.transpose(0, 1) for layer in theirs.mems]
        found.append(
            {
                "layers": largest([*both, *ours.content.memory], [*theirs.hidden_states, *kept]),
                "loss": largest([loss], [theirs.loss]),
                "gradients": gradients("xlnet", reference, backbone, words=words),
            }
        )
        memory, mems = ours.content.memory, theirs.mems
    return merge(found)


def _encoder_case(what: str, padded: bool) -> Case:
    return Case(
        "XLNet",
        what,
        "transformers",
        lambda dtype: merge(_encoder(padded, dtype, *shape) for shape in SHAPES),
    )


def _streams_case(what: str, padded: bool, pieces: int) -> Case:
    return Case(
        "XLNet",
        what,
        "transformers",
        lambda dtype: merge(_streams(padded, pieces, dtype, *shape) for shape in STREAMS_SHAPES),
    )


CASES = [
    _encoder_case("encoder", padded=False),
    _encoder_case("encoder, padding, segments", padded=True),
    _streams_case("two streams, segments", padded=False, pieces=1),
    _streams_case("two streams, padding, memory over three segments", padded=True, pieces=3),
]
