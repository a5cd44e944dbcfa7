"""The same models in training: does dropout stand where the reference has it, at the same rate?

Random masks cannot be compared. In the place of every dropout, ours and the reference's, stands a
marker: a function of each number and of the rate. Two models that agree with the marker in place
drop the same things at the same places; a dropout that is missing, or stands before or after a sum,
a norm or an activation instead, makes another number.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import transformers as release
from torch import Tensor, nn

from labkit.blocks import Classifier
from labkit.heads import Label
from labkit.layers import replacements
from labkit.masking import real_keys
from labkit.models.bert import BERT, BERTConfig
from labkit.weights.release_names import RELEASES

from . import Case, Differences, bert, elmo, gpt, largest, loops, rnn, transformer, transformer_xl
from . import xlnet as xlnet_
from .releases import copy_weights, tiny


def marker(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """What stands for dropout: not linear, and zero at zero, where nothing could be dropped."""
    return x + p * torch.sin(3 * x) if training else x


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """torch's fused attention by its documented formula, with the marker on its weights."""
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return marker(scores.softmax(dim=-1), dropout_p) @ v


@contextmanager
def marked() -> Iterator[None]:
    """Every model trains, and the marker stands in the place of every dropout."""
    ours = {"labkit.layers.drop": marker}
    with (
        patch.dict(replacements, ours),
        patch.object(F, "dropout", marker),
        patch.object(F, "scaled_dot_product_attention", attention),
        patch.object(loops, "drop", partial(marker, p=0.1)),
        patch.object(nn.Module, "eval", nn.Module.train),
        patch.object(release.PreTrainedModel, "eval", release.PreTrainedModel.train),
    ):
        yield


def trained(case: Case, kinds: tuple[str, ...], dtype: torch.dtype) -> Differences:
    """What a case of another module finds when the models train."""
    with marked():
        found = case.compare(dtype)
    return {kind: found[kind] for kind in kinds if kind in found}


def _in_training(case: Case, kinds: tuple[str, ...] = ("layers", "loss", "gradients")) -> Case:
    return Case(case.model, f"{case.what}, in training", case.reference,
                partial(trained, case, kinds))  # fmt: skip


def _label(dtype: torch.dtype) -> Differences:
    """BERT's classifier: dropout between the pooler and the labels."""
    reference = tiny(
        release.BertForSequenceClassification(
            release.BertConfig(vocab_size=37, num_labels=3, num_attention_heads=4, **bert.ENCODER)
        ).to(dtype)
    )
    fields: dict[str, Any] = RELEASES["bert"].config(reference.config.to_dict())
    backbone = BERT(BERTConfig(**{**fields, "pooler": True}))
    model = Classifier(backbone, Label(16, 3, pool=backbone.pooler, dropout=0.1)).to(dtype).train()
    copy_weights("bert", reference, backbone)
    with torch.no_grad():
        model.head.labels.weight.copy_(reference.classifier.weight)
        model.head.labels.bias.copy_(reference.classifier.bias)
    tokens = torch.randint(2, 37, (3, 7), generator=torch.Generator().manual_seed(1))
    real = torch.arange(7) < torch.tensor([4, 7, 1])[:, None]
    targets = torch.tensor([2, 0, 1])
    hidden_BTD = model.backbone(tokens, mask=real_keys(real)).hidden
    loss = F.cross_entropy(model.head(hidden_BTD[:, 0]), targets)
    theirs = reference(tokens, attention_mask=real.to(dtype), labels=targets)
    loss.backward()
    theirs.loss.backward()
    words = reference.bert.embeddings.word_embeddings.weight
    return {
        "loss": largest([loss], [theirs.loss]),
        "gradients": largest(
            [model.head.labels.weight.grad, backbone.token.weight.grad],
            [
                reference.classifier.weight.grad,
                words.grad,
            ],
        ),
    }


def albert_as_published(run: Any) -> Any:
    """albert/modeling.py, attention_ffn_block, drops the feed-forward; the reference forgot it."""
    build = bert.pair

    def pair(family: str, *rest: Any) -> Any:
        found = build(family, *rest)
        if family == "albert":
            for group in found[0].albert.encoder.albert_layer_groups:
                for layer in group.albert_layers:
                    layer.ffn_output.register_forward_hook(lambda _, given, out: marker(out, 0.1))
        return found

    def compare(dtype: torch.dtype) -> Differences:
        with patch.object(bert, "pair", pair):
            return run(dtype)

    return compare


def _cases() -> Iterator[Case]:
    for case in (*gpt.CASES, *transformer_xl.CASES, *elmo.CASES, *rnn.CASES):
        yield _in_training(case)
    for case in transformer.CASES:
        yield _in_training(case)
    for case in bert.CASES:
        # The release of DistilBERT does not drop the answer of attention; ours is one BERT for all.
        if case.model != "DistilBERT":
            run = albert_as_published(case.compare) if case.model == "ALBERT" else case.compare
            yield _in_training(Case(case.model, case.what, case.reference, run))
    for case in xlnet_.CASES:
        # The reference keeps the last states before their dropout, ours after it.
        yield _in_training(case, ("loss", "gradients"))
    yield _in_training(Case("BERT", "labels, padding", "transformers", _label))


CASES = list(_cases())
