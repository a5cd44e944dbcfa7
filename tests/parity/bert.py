"""The BERT family against the implementation of the releases."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import transformers as release
from torch import Tensor, nn

from labkit.heads import Label, MaskedWord
from labkit.masking import real_keys
from labkit.models.bert import BERT, BERTConfig
from labkit.weights.release_names import RELEASES

from . import Case, Differences, largest, merge
from .releases import SHAPES, copy_weights, gradients, tiny


@dataclass(frozen=True)
class Family:
    """How to build one of the family in the reference."""

    config: type
    model: type
    sizes: dict
    pair: bool = False
    """Whether a second head says if two sentences belong together."""


ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}

FAMILIES = {
    "bert": Family(release.BertConfig, release.BertForPreTraining, ENCODER, pair=True),
    "roberta": Family(
        release.RobertaConfig,
        release.RobertaForMaskedLM,
        {**ENCODER, "max_position_embeddings": 14, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "albert": Family(
        release.AlbertConfig,
        release.AlbertForPreTraining,
        # Its own default drops nothing but, unlike the authors' code, what the second head reads.
        {**ENCODER, "embedding_size": 8, **DROPOUT, "classifier_dropout_prob": 0.0},
        pair=True,
    ),
    "distilbert": Family(
        release.DistilBertConfig,
        release.DistilBertForMaskedLM,
        {"dim": 16, "n_layers": 3, "hidden_dim": 24, "max_position_embeddings": 12},
    ),
}


def pair(family: str, heads: int, dtype: torch.dtype):
    """A tiny reference, and our backbone and heads with the same weights."""
    each = FAMILIES[family]
    count = {"n_heads" if family == "distilbert" else "num_attention_heads": heads}
    reference = tiny(each.model(each.config(vocab_size=37, **each.sizes, **count)).to(dtype))
    fields = {**RELEASES[family].config(reference.config.to_dict()), "pooler": each.pair}
    backbone = BERT(BERTConfig(**fields)).to(dtype).eval()
    c = backbone.config
    words = MaskedWord(backbone.token, c.width, activation=c.activation, eps=c.eps).to(dtype)
    label = Label(c.width, 2, pool=backbone.pooler).to(dtype) if each.pair else None
    copy_weights(family, reference, backbone, words=words, label=label)
    return reference, backbone, words, label


def _run(
    family: str,
    padded: bool,
    segments: bool,
    dtype: torch.dtype,
    batch: int,
    length: int,
    heads: int,
) -> Differences:
    reference, backbone, words, label = pair(family, heads, dtype)
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 37, (batch, length), generator=draw)
    is_real = torch.ones(batch, length, dtype=torch.bool)
    if padded:
        is_real[0, max(1, length // 2) :] = False
        tokens[~is_real] = reference.config.pad_token_id
    asked = is_real & (torch.rand(batch, length, generator=draw) < 0.4)
    asked[:, 0] = True
    parts = (torch.arange(length) >= length // 3).long().expand(batch, -1) if segments else None
    targets = torch.randint(0, 37, (batch, length), generator=draw)
    given = {"token_type_ids": parts} if segments else {}
    if label is not None:
        follows = torch.arange(batch) % 2
        kind = "next_sentence_label" if family == "bert" else "sentence_order_label"
        given[kind] = follows
    theirs = reference(
        tokens,
        attention_mask=is_real.to(dtype),
        labels=targets.masked_fill(~asked, -100),
        output_hidden_states=True,
        **given,
    )
    mask = real_keys(is_real) if padded else None
    ours = backbone(tokens, mask=mask, segments_BT=parts)
    loss = words.losses_N(ours.hidden[asked], targets[asked]).mean()
    if label is not None:
        loss = loss + F.cross_entropy(label(ours.hidden[:, 0]), follows)
    loss.backward()
    theirs.loss.backward()
    layers = (theirs.hidden_states, ours.layers)
    return {
        "layers": largest(*([h[is_real] for h in each] for each in layers)),
        "loss": largest([loss], [theirs.loss]),
        "gradients": gradients(family, reference, backbone, words=words, label=label),
    }


def _case(model: str, family: str, *, padded: bool, segments: bool) -> Case:
    what = ["both heads" if FAMILIES[family].pair else "masked words"]
    what += ["padding"] * padded + ["segments"] * segments

    def compare(dtype: torch.dtype) -> Differences:
        return merge(_run(family, padded, segments, dtype, *shape) for shape in SHAPES)

    return Case(model, ", ".join(what), "transformers", compare)


class _Renamed(nn.Module):
    """RoFormer is a BERT with rotary positions: here its parts have the names of a BERT."""

    def __init__(self, reference: release.RoFormerForMaskedLM) -> None:
        super().__init__()
        self.bert, self.cls = reference.roformer, reference.cls


def _rotary(dtype: torch.dtype) -> Differences:
    return merge(_run_rotary(dtype, *shape) for shape in SHAPES)


def _reordered(queries_and_keys: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """RoFormer rotates pairs of neighbours in a head, we rotate its first half with its second."""
    return queries_and_keys.unflatten(0, shape).transpose(1, 2).flatten(0, 2)


def _run_rotary(dtype: torch.dtype, batch: int, length: int, heads: int) -> Differences:
    width = ENCODER["hidden_size"]
    sizes = release.RoFormerConfig(
        vocab_size=37, embedding_size=width, num_attention_heads=heads, **ENCODER
    )
    reference = tiny(release.RoFormerForMaskedLM(sizes).to(dtype))
    # Its table of sines is a parameter, which has just been drawn anew.
    table = reference.roformer.encoder.embed_positions.weight
    half = torch.arange(table.shape[1] // 2, dtype=torch.float64)
    angles = torch.arange(12)[:, None] / 10_000 ** (2 * half / table.shape[1])
    table.data.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))
    backbone = BERT(BERTConfig(37, width, 3, heads, 12, inner=24, rotary=True)).to(dtype).eval()
    words = MaskedWord(backbone.token, width).to(dtype)
    renamed = _Renamed(reference)
    copy_weights("bert", renamed, backbone, words=words)
    mixed = [w for block in backbone.blocks for w in block.attention.query_key_value.parameters()]
    for weight in mixed:
        both = weight.data[: 2 * width]
        both.copy_(_reordered(both, (2 * heads, -1, 2)))
    tokens = torch.randint(2, 37, (batch, length), generator=torch.Generator().manual_seed(1))
    theirs = reference(tokens, labels=tokens, output_hidden_states=True)
    ours = backbone(tokens)
    loss = words.losses_N(ours.hidden.flatten(0, 1), tokens.flatten()).mean()
    loss.backward()
    theirs.loss.backward()
    for weight in mixed:
        both = weight.grad[: 2 * width]
        both.copy_(_reordered(both, (2 * heads, 2, -1)))
    return {
        "layers": largest(theirs.hidden_states, ours.layers),
        "loss": largest([loss], [theirs.loss]),
        "gradients": gradients("bert", renamed, backbone, words=words),
    }


CASES = [
    Case("BERT, rotary", "masked words", "transformers (RoFormer)", _rotary),
    _case("BERT", "bert", padded=False, segments=False),
    _case("BERT", "bert", padded=True, segments=True),
    _case("RoBERTa", "roberta", padded=False, segments=False),
    _case("RoBERTa", "roberta", padded=True, segments=False),
    _case("ALBERT", "albert", padded=False, segments=False),
    _case("ALBERT", "albert", padded=True, segments=True),
    _case("DistilBERT", "distilbert", padded=False, segments=False),
    _case("DistilBERT", "distilbert", padded=True, segments=False),
]
